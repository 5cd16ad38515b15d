"""Pointers as Python has them: ints, and objects that own memory, whose size is then known and checked."""

from __future__ import annotations

from operator import index
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from targetmem._core import Buffer, HostMemory

if TYPE_CHECKING:
    from collections.abc import Buffer as HostBuffer  # type: ignore[attr-defined,unused-ignore]

    from targetmem._device import Device

    Pointer: TypeAlias = int | Buffer | HostBuffer | None

__all__ = ["Memory", "host_memory", "memory_on", "number_of"]


class Memory(NamedTuple):
    """Where a pointer points; its size in bytes if that is known, and what must live as long as it's used."""

    address: int
    size: int | None = None
    keep: object = None

    def check(self, name: str, end: int) -> None:
        """Raise ValueError when a use up to `end` bytes from the start leaves the memory."""
        if self.size is not None and end > self.size:
            raise ValueError(f"{name}: expected memory of at least {end} bytes, got {self.size} bytes")


def number_of(value: object) -> int | None:
    """Give an address that is a number (or None, a null pointer); None when it is no number.

    Raises ValueError for one below 0. An array of NumPy could pass for a number, but has a length.
    """
    if value is None:
        return 0
    kind = type(value)
    if not hasattr(kind, "__index__") or hasattr(kind, "__len__"):
        return None
    address = index(value)  # type: ignore[arg-type]
    if address < 0:
        raise ValueError(f"pointer: expected an address, 0 or more, got {address}")
    return address


def host_memory(value: Pointer, name: str, *, writable: bool = False) -> Memory:
    """Read a host pointer: an int, None, or anything with the buffer protocol whose bytes lie together.

    Raises TypeError for anything else, and for memory that is to be written and is read-only.
    """
    address = number_of(value)
    if address is not None:
        return Memory(address)
    try:
        held = HostMemory(value, writable=writable)
    except (TypeError, BufferError, ValueError) as error:
        wanted = "writable host memory" if writable else "host memory"
        text = f"{name}: expected {wanted} (an address, or an array whose bytes lie together)"
        raise TypeError(f"{text}, got {_told(value)}: {error}") from None
    return Memory(held.address, held.size, held)


def memory_on(device: Device | None, value: Pointer, name: str, *, writable: bool = False) -> Memory:
    """Read a pointer to memory of a device: an int, None, or a Buffer; of the host (None): a host pointer."""
    if device is None:
        return host_memory(value, name, writable=writable)
    if isinstance(value, Buffer):
        return Memory(value.pointer, value.size, value)
    address = number_of(value)
    if address is None:
        text = f"{name}: expected memory of {device.name} (an address or a Buffer), got {_told(value)}"
        raise TypeError(f"{text}: host memory has the number omp_get_initial_device()")
    return Memory(address)


def _told(value: object) -> str:
    return f"an object of type {type(value).__name__}"
