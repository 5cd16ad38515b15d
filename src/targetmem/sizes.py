"""Sizes in bytes as people write and read them: `64KiB` to 65536 and back."""

from __future__ import annotations

import re
import sys

__all__ = ["ACCEPTED_SIZES", "format_size", "parse_size"]

ACCEPTED_SIZES = "a number of bytes (8192), or one with a suffix K, M, G or T of 1024 (8K, 64KiB, 1MiB, 2G)"

_FORM = re.compile(r"([0-9]+)(?:([KMGT])(?:IB)?)?", re.IGNORECASE | re.ASCII)
_SHIFTS = {"": 0, "K": 10, "M": 20, "G": 30, "T": 40}
_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


def parse_size(value: object) -> int:
    """Give the number of bytes that a setting's value stands for.

    An int is taken as bytes. Raises ValueError, which says what is accepted, for anything but an int >= 0 or
    a string of the accepted forms. Never guesses: LLVM reads `8K` as 8 and `0x2000` as 0 here, this refuses
    or understands.
    """
    size = _parse_text(value.strip()) if isinstance(value, str) else value
    if isinstance(size, bool) or not isinstance(size, int) or size < 0:
        raise ValueError(f"expected {ACCEPTED_SIZES}, got {value!r}")
    if size > sys.maxsize:
        raise ValueError(f"expected at most {sys.maxsize} bytes, got {value!r}")
    return size


def _parse_text(text: str) -> int | None:
    match = _FORM.fullmatch(text)
    if match is None:
        return None
    number, suffix = match.groups(default="")
    # Python refuses to convert thousands of digits; so many are too many here as well.
    return int(number) << _SHIFTS[suffix.upper()] if len(number) < 100 else sys.maxsize + 1


def format_size(size: int) -> str:
    """Give a size in bytes as a person reads it: `512 B`, `1.5 KiB`, `64 MiB`."""
    amount, unit = float(size), 0
    while amount >= 1023.95 and unit < len(_UNITS) - 1:
        amount /= 1024
        unit += 1
    text = f"{amount:.0f}" if unit == 0 or amount >= 100 else f"{amount:.1f}".removesuffix(".0")
    return f"{text} {_UNITS[unit]}"
