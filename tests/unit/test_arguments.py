"""Arguments that are no address and no alignment: an error that says what was expected, and no call."""

from __future__ import annotations

from typing import Any

import pytest

from targetmem import MemoryManager
from targetmem.errors import PluginError
from tests.unit.test_manager import Functions


@pytest.mark.parametrize(
    ("wrong", "told"),
    [(1.5, "got float"), ("8", "got str"), (-5, "got -5"), (1 << 64, "of 0 to 0xf"), ([], "list")],
)
def test_what_is_no_address(wrong: Any, told: str) -> None:
    """What can't be an address is an error and reaches no function: from a caller as from a function."""
    functions = Functions()
    manager = functions.manager()
    for call in (manager.free, manager.find):
        with pytest.raises((TypeError, ValueError), match=f"^{call.__name__}: expected .*{told}"):
            call(wrong)
    assert [] == functions.calls
    with pytest.raises(PluginError, match=f"allocate: expected .*{told}"):
        MemoryManager(lambda _size, _alignment: wrong, functions.release).allocate(10)
    assert [] == functions.calls


@pytest.mark.parametrize(
    ("wrong", "told"), [(-8, "got -8"), ("64", "got str"), (2.0, "got float"), (3, "got 3")]
)
def test_what_is_no_alignment(wrong: Any, told: str) -> None:
    """An alignment that is no power of two is an error that calls it so."""
    with pytest.raises((TypeError, ValueError), match=f"^alignment: expected .*{told}"):
        Functions().manager().allocate_aligned(64, wrong)
