"""Memory of a device by the standard's names: allocate, free, fill."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from targetmem._core import Buffer, HostMemory, fill_host
from targetmem.errors import InvalidFree, NotSupported, UnknownDevice
from targetmem.omp import numbering
from targetmem.omp.addresses import memory_on, number_of
from targetmem.omp.outcome import note

if TYPE_CHECKING:
    from targetmem._core import ManagerCore
    from targetmem._device import Device
    from targetmem.abc import Kind
    from targetmem.omp.addresses import Pointer

__all__ = [
    "fill",
    "omp_target_alloc",
    "omp_target_alloc_device",
    "omp_target_alloc_host",
    "omp_target_alloc_shared",
    "omp_target_free",
    "omp_target_memset",
]

CHUNK = 1 << 22  # bytes of host memory at a time, where a device must be filled from the host


def omp_target_alloc(size: int, device_num: int) -> int | None:
    """Obtain bytes on a device; gives the address, None for 0 bytes or when there is no memory.

    On the initial device it is the host's memory. `last_error()` has the explained OutOfDeviceMemory.
    Raises TypeError, ValueError for a negative size, UnknownDevice (OpenMP 5.2, 18.8.1).
    """
    return _allocate(size, device_num, "device")


def omp_target_alloc_device(size: int, device_num: int) -> int | None:
    """Obtain bytes that only the device need reach, as `omp_target_alloc` does (LLVM's extension)."""
    return _allocate(size, device_num, "device")


def omp_target_alloc_host(size: int, device_num: int) -> int | None:
    """Obtain pinned bytes of the host that the device reaches; None also where it has no such kind."""
    return _allocate(size, device_num, "host")


def omp_target_alloc_shared(size: int, device_num: int) -> int | None:
    """Obtain bytes that move between host and device; None also where it has no such kind."""
    return _allocate(size, device_num, "shared")


def omp_target_free(device_ptr: Pointer, device_num: int | None = None) -> None:
    """Free what one of the routines above gave, of any kind; None and 0 do nothing.

    The tables know the device and the kind: a wrong `device_num` frees all the same, and it can be left out.
    Raises InvalidFree for an address that is freed, inside a block, or of no block: nothing is changed then
    (OpenMP 5.2, 18.8.2; fatal, or not seen, in LLVM).
    """
    first = None if device_num is None else numbering.current.memory(device_num)
    if isinstance(device_ptr, Buffer):
        device_ptr.release()
        return
    address = number_of(device_ptr)
    if address is None:
        told = type(device_ptr).__name__
        raise TypeError(f"device_ptr: expected an address of omp_target_alloc or a Buffer, got {told}")
    if address:
        _owner(address, first).free(address)


def omp_target_memset(ptr: Pointer, value: int, count: int, device_num: int) -> Pointer:
    """Set bytes of a device's memory to the low byte of a value; gives the pointer.

    Null or 0 bytes: nothing is done. The routine has no code for a failure (OpenMP 6.0), so what the device
    raises is raised.
    """
    device = numbering.current.closed_device(device_num)
    memory = memory_on(device, ptr, "ptr", writable=True)
    memory.check("ptr", count)
    if memory.address and count > 0:
        fill(device, memory.address, value & 0xFF, count)
    return ptr


def fill(device: Device | None, address: int, value: int, count: int) -> None:
    """Set bytes from an address on; a device that cannot do that itself gets them from the host."""
    if device is None:
        fill_host(address, value, count)
        return
    try:
        device.fill(address, bytes([value]), count)
    except NotSupported:
        staging = bytearray([value]) * min(count, CHUNK)
        held = HostMemory(staging)
        for done in range(0, count, CHUNK):
            device.submit(address + done, held.address, min(CHUNK, count - done))


def _allocate(size: int, device_num: int, kind: Kind) -> int | None:
    device = numbering.current.memory(device_num)
    allocate = device.allocate if kind == "device" else partial(device.allocate, kind=kind)
    try:
        return allocate(size).detach() or None
    except (TypeError, ValueError, UnknownDevice):
        raise
    except Exception as error:  # noqa: BLE001 - whatever a plugin raises: no memory, and last_error says why
        note(error)
        return None


def _owner(address: int, first: Device | None) -> ManagerCore:
    """Find the manager with a live block at an address, else one whose free says what is wrong with it."""
    devices = numbering.current.all_devices()
    ordered = devices if first is None else (first, *(device for device in devices if device is not first))
    hits = []
    for manager in (manager for device in ordered for manager in device.managers()):
        block = manager.find(address)
        if block and block.live and block.address == address:
            return manager
        if block:
            hits.append((not block.live, manager))
    if not hits:
        text = f"omp_target_free: expected an address that omp_target_alloc gave, got {address:#x}: no block"
        raise InvalidFree(
            f"{text} that is live or cached; was it freed before?", address=address, reason="foreign"
        )
    return min(hits, key=lambda hit: hit[0])[1]
