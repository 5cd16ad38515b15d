"""What a `dtype` means: NumPy's names and objects, and codes of the struct module, without NumPy."""

from __future__ import annotations

import re
import sys
from typing import NamedTuple

__all__ = ["ElementType", "parse_dtype"]

# kind and bytes -> code of the struct module; complex numbers as PEP 3118 writes them
FORMATS = {
    "b1": "?",
    "i1": "b",
    "i2": "h",
    "i4": "i",
    "i8": "q",
    "u1": "B",
    "u2": "H",
    "u4": "I",
    "u8": "Q",
    "f2": "e",
    "f4": "f",
    "f8": "d",
    "c8": "Zf",
    "c16": "Zd",
}
LONG_NAMES = {
    "bool": "b1",
    "bool_": "b1",
    "int": "i8",
    "uint": "u8",
    "intp": "i8",
    "uintp": "u8",
    "half": "f2",
    "single": "f4",
    "double": "f8",
    "float": "f8",
    "complex": "c16",
}
KINDS = {"int": "i", "uint": "u", "float": "f", "complex": "c"}
DLPACK_CODES = {"i": 0, "u": 1, "f": 2, "c": 5, "b": 6}  # DLDataTypeCode of DLPack 1.0
NATIVE = "<" if sys.byteorder == "little" else ">"


class ElementType(NamedTuple):
    """An element: its format (PEP 3118), its bytes, NumPy's typestr, DLPack's code (None: it has none)."""

    format: str
    size: int
    typestr: str
    dlpack: int | None


def parse_dtype(dtype: object) -> ElementType:
    """Give what a dtype means.

    Accepted are NumPy's names ("f4", "<i8", "float32", "complex64", "bool"), codes of the struct module,
    Python's and NumPy's types, and NumPy's dtype objects of numbers. Raises TypeError for anything else.
    """
    text = _text(dtype)
    order, name = (text[0], text[1:]) if text[:1] in ("<", ">", "=", "|", "@") else ("=", text)
    short = _short(name)
    if short not in FORMATS:
        expected = "a type of numbers (f4, <i8, float32, complex64, bool, or NumPy's)"
        raise TypeError(f"dtype: expected {expected}, got {dtype!r}")
    size = int(short[1:])
    order = NATIVE if order in ("=", "|", "@") else order
    swapped = order != NATIVE and size > 1
    return ElementType(
        format=(order if swapped else "") + FORMATS[short],
        size=size,
        typestr=("|" if size == 1 else order) + short,
        dlpack=None if swapped else DLPACK_CODES[short[0]],
    )


def _text(dtype: object) -> str:
    if isinstance(dtype, str):
        return dtype
    found = getattr(dtype, "str", None)  # of a NumPy dtype
    if isinstance(found, str) and not isinstance(dtype, type):
        return found
    return getattr(dtype, "__name__", "") if isinstance(dtype, type) else ""


def _short(name: str) -> str:
    """Give the kind and the bytes: float32 and f are f4."""
    if name in LONG_NAMES:
        return LONG_NAMES[name]
    if long := re.fullmatch(r"(int|uint|float|complex)(\d+)", name):
        return f"{KINDS[long[1]]}{int(long[2]) // 8}"
    by_code = {code: short for short, code in FORMATS.items()} | {"l": "i8", "L": "u8", "n": "i8", "N": "u8"}
    return by_code.get(name, name)
