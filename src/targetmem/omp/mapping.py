"""What of the host's memory a device can use, and where it is there."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING

from targetmem.errors import MappingError, TargetMemoryError
from targetmem.omp import numbering
from targetmem.omp.addresses import host_memory, memory_on
from targetmem.omp.outcome import attempt, note, refuse

if TYPE_CHECKING:
    from targetmem._device import Device
    from targetmem.omp.addresses import Pointer

__all__ = [
    "omp_get_mapped_ptr",
    "omp_target_associate_ptr",
    "omp_target_disassociate_ptr",
    "omp_target_is_accessible",
    "omp_target_is_present",
]


def omp_target_is_present(ptr: Pointer, device_num: int) -> int:
    """Tell whether the byte at a host pointer is mapped: 1 or 0; 1 on the initial device, 0 for null.

    (OpenMP 5.2, 18.8.3; as in LLVM a range of one byte, so that the end of a mapping is not in it.)
    """
    device = numbering.current.device(device_num)
    address = host_memory(ptr, "ptr").address
    if not address:
        return 0
    return int(device is None or device.is_present(address))


def omp_get_mapped_ptr(ptr: Pointer, device_num: int) -> int | None:
    """Give the target address of a host pointer, None when its byte is not mapped or it is null.

    On the initial device that is the pointer itself (OpenMP 5.2, 18.8.11).
    """
    device = numbering.current.device(device_num)
    address = host_memory(ptr, "ptr").address
    if device is None or not address:
        return address or None
    try:
        return device.mapped_pointer(address)
    except MappingError as error:
        note(error)
        return None


def omp_target_associate_ptr(
    host_ptr: Pointer, device_ptr: Pointer, size: int, device_offset: int, device_num: int
) -> int:
    """Map host memory to memory of the device that the caller keeps; 0, or why not in `last_error()`.

    Refused are null pointers, 0 bytes, the initial device, and host memory of which a part is mapped; the
    same association again is a success (OpenMP 5.2, 18.8.9).
    """
    device = numbering.current.device(device_num)
    host = host_memory(host_ptr, "host_ptr")
    if device is None or not host.address or size < 1:
        return refuse("omp_target_associate_ptr: expected a device, a host pointer and 1 byte or more")
    target = memory_on(device, device_ptr, "device_ptr")
    if not target.address:
        return refuse("omp_target_associate_ptr: expected memory of the device, got null")
    host.check("host_ptr", size)
    target.check("device_ptr", device_offset + size)
    memory = memoryview((ctypes.c_char * size).from_address(host.address))
    return attempt(lambda: device.associate(memory, target.address, device_offset))


def omp_target_disassociate_ptr(ptr: Pointer, device_num: int) -> int:
    """End what `omp_target_associate_ptr` began; 0, or why not in `last_error()` (OpenMP 5.2, 18.8.10)."""
    device = numbering.current.device(device_num)
    address = host_memory(ptr, "ptr").address
    if device is None or not address:
        return refuse("omp_target_disassociate_ptr: expected a device and a host pointer")
    try:
        device.disassociate(address)
    except TargetMemoryError as error:
        return note(error)
    return 0


def omp_target_is_accessible(ptr: Pointer, size: int, device_num: int) -> int:
    """Tell whether a device can use memory at its address: 1 or 0; 1 on the initial device, 0 for null.

    That is so for a device that reaches the host's memory, and for a range in one of the device's own live
    blocks, of any kind (OpenMP 5.2, 18.8.4).
    """
    device = numbering.current.device(device_num)
    memory = memory_on(device, ptr, "ptr") if _is_number(ptr) else host_memory(ptr, "ptr")
    if size < 0:
        raise ValueError(f"size: expected 0 bytes or more, got {size}")
    if not memory.address:
        return 0
    return int(device is None or device.capabilities.unified or _in_a_block(device, memory.address, size))


def _is_number(ptr: Pointer) -> bool:
    return ptr is None or isinstance(ptr, int)


def _in_a_block(device: Device, address: int, size: int) -> bool:
    found = [block for manager in device.managers() if (block := manager.find(address)) and block.live]
    return any(address + size <= block.address + block.size for block in found)
