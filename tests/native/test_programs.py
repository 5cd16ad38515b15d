"""The programs in C that stress the core, under the sanitizers and without an interpreter.

A failure names the program, the sanitizer and the seed. How long they run is set by TEST_STRESS, in per
cent of the usual number of steps.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from tests.native.conftest import PROGRAMS, SANITIZERS, run_program

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.native.conftest import Core

SCALE = int(os.environ.get("TEST_STRESS", "100"))
SEEDS = (1, 2, 3)
# What each one is for stands at its head.
NAMES = ("arrays", "double_free", "endings", "forks", "reenter", "storm", "stress", "watch")
UNFIT = {
    ("endings", "tsan"): "the thread sanitizer ends a thread before the last of its destructors run",
}


def cases() -> list[object]:
    """Give each program with each sanitizer; a pair that can't be has its reason."""
    return [
        pytest.param(
            name,
            sanitizer,
            id=f"{name}-{sanitizer}",
            marks=[pytest.mark.skip(reason=UNFIT[name, sanitizer])] if (name, sanitizer) in UNFIT else [],
        )
        for sanitizer in SANITIZERS
        for name in NAMES
    ]


@pytest.mark.slow
@pytest.mark.native
@pytest.mark.parametrize(("name", "sanitizer"), cases())
def test_program(name: str, sanitizer: str, core: Callable[[str], Core]) -> None:
    """It ends well with each seed, and the sanitizer has nothing to say."""
    program = core(sanitizer).program(name)
    for seed in SEEDS:
        done = run_program(program, seed, SCALE)
        how = f"{name} under {sanitizer}, seed {seed}, scale {SCALE}"
        told = f"{how}: exit status {done.returncode}\n{done.stderr}"
        assert 0 == done.returncode, told
        assert "" == done.stderr, told
        assert f"seed {seed} " in done.stdout


def test_each_program_is_run() -> None:
    """No program lies about unused: what has a `main` is in the list."""
    with_main = {
        path.stem for path in PROGRAMS.glob("*.c") if "int main(" in path.read_text(encoding="utf-8")
    }
    assert with_main == set(NAMES)
