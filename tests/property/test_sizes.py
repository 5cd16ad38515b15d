"""Sizes as text: whatever looks like one is read as the grammar says, or refused; and so it is everywhere."""

from __future__ import annotations

import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from targetmem.config import resolve
from targetmem.errors import ConfigError
from targetmem.sizes import parse_size

# Text that is nearly a size: st.text() alone hardly ever comes close.
NEARLY = st.text("0189kKMgGtTiIbBxX.+-_ ", min_size=1, max_size=8)


def expected_size(text: str) -> int | None:
    """Give what a text means, read letter by letter; None when it is no size."""
    text = text.strip().upper()
    digits = text.rstrip("KMGTIB")
    suffix = text[len(digits) :]
    powers = {"": 0} | {
        letter + tail: 10 * (at + 1) for at, letter in enumerate("KMGT") for tail in ("", "IB")
    }
    if not digits or suffix not in powers or set(digits) - set("0123456789"):
        return None
    size = int(digits) << powers[suffix]
    return size if size <= sys.maxsize else None


@given(NEARLY)
def test_a_text_is_read_as_the_grammar_says(text: str) -> None:
    """Never a part of it, never a guess."""
    expected = expected_size(text)
    if expected is None:
        with pytest.raises(ValueError, match="expected"):
            parse_size(text)
    else:
        assert expected == parse_size(text)


@given(NEARLY, st.sampled_from(["LIBOMPTARGET_MEMORY_MANAGER_THRESHOLD", "TARGETMEM_THRESHOLD"]))
def test_a_variable_is_read_the_same(text: str, name: str) -> None:
    """In either variable the same text gives the same threshold, or an error that names it and the text."""
    expected = expected_size(text)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(name, text)
        if expected is not None:
            assert (expected, name) == ((found := resolve()).threshold, found.origin("threshold"))
            return
        with pytest.raises(ConfigError) as caught:
            resolve()
    assert name in str(caught.value)
    assert repr(text) in str(caught.value)
