"""Sizes as text: every accepted form is read right, everything else is refused, never guessed."""

from __future__ import annotations

import sys
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from targetmem.sizes import format_size, parse_size

UNITS = {"": 0, "K": 10, "M": 20, "G": 30, "T": 40}


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("8192", 8192),
        ("0", 0),
        ("8K", 8192),
        ("64KiB", 65536),
        ("1MiB", 1 << 20),
        ("2G", 2 << 30),
        ("1TiB", 1 << 40),
        ("8k", 8192),
        (" 64kib\n", 65536),
        (4096, 4096),
    ],
)
def test_accepted_forms(text: object, size: int) -> None:
    """Plain bytes and the suffixes of 1024 are read, in either case, as is an int."""
    assert size == parse_size(text)


NO_SIZES: list[object] = [
    *("8X", "-1", "0x2000", "1e6", "", " ", "8 K", "8KB", "8B", "1.5M", "K", "8KiBs", "+8", "1_000", "inf"),
    *("٨", "8\u212a"),  # digits and letters that only look right
    *(-1, 1.0, True, None, [], b"8"),
]


@pytest.mark.parametrize("text", NO_SIZES, ids=repr)
def test_everything_else_is_refused(text: object) -> None:
    """What is no accepted form is an error that shows the value and the forms."""
    with pytest.raises(ValueError, match="expected a number of bytes") as caught:
        parse_size(text)
    assert repr(text) in str(caught.value)
    assert "64KiB" in str(caught.value)


@pytest.mark.parametrize("text", ["9" * 5000, str(sys.maxsize + 1), "8388608T", 1 << 64])
def test_no_overflow(text: object) -> None:
    """A size beyond what an address can count is refused."""
    with pytest.raises(ValueError, match="at most"):
        parse_size(text)


@given(st.integers(0, 1 << 22), st.sampled_from(sorted(UNITS)), st.sampled_from(["", "iB"]))
def test_every_number_and_suffix(number: int, unit: str, tail: str) -> None:
    """A number with a suffix is the number times the suffix's power of 1024."""
    assert number << UNITS[unit] == parse_size(f"{number}{unit}{tail if unit else ''}")


@given(st.text())
def test_text_is_read_or_refused(text: str) -> None:
    """No text gives anything but a size or a ValueError."""
    with suppress(ValueError):
        assert parse_size(text) >= 0


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1 KiB"),
        (1536, "1.5 KiB"),
        (65536, "64 KiB"),
        ((1 << 20) - 1, "1 MiB"),
        (1 << 20, "1 MiB"),
        (1 << 62, "4194304 TiB"),
    ],
)
def test_sizes_are_shown_short(size: int, text: str) -> None:
    """A size is shown in the largest unit that leaves at least 1, with a decimal where it says something."""
    assert text == format_size(size)
