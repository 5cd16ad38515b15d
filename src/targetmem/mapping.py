"""Mapped data seen from Python: the with-block, the rows of the present table, pointer fields."""

from __future__ import annotations

import ctypes
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator
    from collections.abc import Mapping as Options

    from targetmem._device import Device

__all__ = ["Mapping", "mapped", "pointer_offset"]

ENTERING_ONLY = ("close",)


class Mapping(NamedTuple):
    """One mapped range: host and target address, bytes, the two counts (None: infinite), whose the memory is.

    `memory` is "device" (the table's own), "host" (unified memory) or "associated" (the caller's).
    """

    host: int
    target: int
    size: int
    dynamic: int | None
    hold: int
    memory: str


@contextmanager
def mapped(
    device: Device, to: object, from_: object, tofrom: object, alloc: object, modifiers: Options[str, Any]
) -> Iterator[Device]:
    """Map arrays while a with-block runs."""
    there, both, back, neither = _list(to), _list(tofrom), _list(from_), _list(alloc)
    device.enter(to=[*there, *both], alloc=[*back, *neither], **modifiers)
    try:
        yield device
    finally:
        leaving = {name: value for name, value in modifiers.items() if name not in ENTERING_ONLY}
        device.exit(from_=[*both, *back], release=[*there, *neither], **leaving)


def _list(things: object) -> list[object]:
    return list(things) if isinstance(things, (list, tuple)) else [things]


def pointer_offset(structure: object, field: str) -> int:
    """Give the offset in bytes of a pointer field of a ctypes structure. Raises TypeError."""
    kind = type(structure)
    fields = dict(entry[:2] for entry in getattr(kind, "_fields_", ()))
    if not isinstance(structure, ctypes.Structure) or field not in fields:
        known = ", ".join(fields) or "none"
        raise TypeError(
            f"attach: expected a field of a ctypes structure ({known}), got {field!r} of {kind.__name__}"
        )
    offset: int = getattr(kind, field).offset
    if getattr(kind, field).size != ctypes.sizeof(ctypes.c_void_p):
        raise TypeError(
            f"attach: expected a pointer, got {kind.__name__}.{field} of {getattr(kind, field).size} bytes"
        )
    return offset
