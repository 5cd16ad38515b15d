"""Copies between any two devices, the host among them: bytes, and blocks of n-dimensional arrays."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from targetmem._core import HostMemory, Rectangle, copy_host
from targetmem.omp import numbering
from targetmem.omp.addresses import Memory, memory_on
from targetmem.omp.outcome import SUCCESS, attempt, refuse

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from targetmem._device import Device
    from targetmem.omp.addresses import Pointer

__all__ = ["Plan", "omp_target_memcpy", "omp_target_memcpy_rect", "plan_copy", "plan_rectangle"]

INT_MAX = 2**31 - 1
CHUNK = 1 << 22  # bytes of host memory at a time, for two devices that cannot exchange


class Plan(NamedTuple):
    """A copy that is checked and may begin; it holds what it uses."""

    run: Callable[[], object]
    keep: tuple[object, ...] = ()


class Side(NamedTuple):
    """One end of a copy. `device` is None where the host can dereference the memory."""

    device: Device | None
    memory: Memory

    @property
    def address(self) -> int:
        """The address of the memory's first byte."""
        return self.memory.address


def omp_target_memcpy(
    dst: Pointer,
    src: Pointer,
    length: int,
    dst_offset: int,
    src_offset: int,
    dst_device_num: int,
    src_device_num: int,
) -> int:
    """Copy bytes between two devices, either of which may be the host; gives 0, or -1 for a failure.

    Two devices that cannot exchange copy through the host. 0 bytes are a success, with null pointers too.
    Raises TypeError for a pointer of a wrong type, ValueError when an array is too small for the copy,
    UnknownDevice (OpenMP 5.2, 18.8.5).
    """
    plan = plan_copy(dst, src, length, (dst_offset, src_offset), (dst_device_num, src_device_num))
    return plan if isinstance(plan, int) else attempt(plan.run)


def omp_target_memcpy_rect(
    dst: Pointer,
    src: Pointer,
    element_size: int,
    num_dims: int,
    volume: Sequence[int],
    dst_offsets: Sequence[int],
    src_offsets: Sequence[int],
    dst_dimensions: Sequence[int],
    src_dimensions: Sequence[int],
    dst_device_num: int,
    src_device_num: int,
) -> int:
    """Copy a block of an n-dimensional array into another one; gives 0, or -1 for a failure.

    `volume`, offsets and dimensions count elements of `element_size` bytes, outermost dimension first. Both
    pointers null: gives the largest number of dimensions. A block that doesn't lie in both arrays is a
    failure, and nothing is copied. Raises as `omp_target_memcpy` does (OpenMP 5.2, 18.8.6).
    """
    shape = (element_size, num_dims, volume, dst_offsets, src_offsets, dst_dimensions, src_dimensions)
    plan = plan_rectangle(dst, src, shape, (dst_device_num, src_device_num))
    return plan if isinstance(plan, int) else attempt(plan.run)


def plan_copy(
    dst: Pointer, src: Pointer, length: int, offsets: tuple[int, int], numbers: tuple[int, int]
) -> Plan | int:
    """Check the arguments of a copy; gives what does it, or the code if there is nothing to do."""
    if length == 0:
        return SUCCESS
    to, source = _sides(dst, src, numbers)
    if not to.address or not source.address:
        return refuse(
            f"omp_target_memcpy: expected two pointers, got {to.address:#x} and {source.address:#x}"
        )
    if length < 0 or min(offsets) < 0:
        raise ValueError(f"omp_target_memcpy: expected 0 bytes or more, got {length}, offsets {offsets}")
    to.memory.check("dst", offsets[0] + length)
    source.memory.check("src", offsets[1] + length)
    run = partial(_copy, to, to.address + offsets[0], source, source.address + offsets[1], length)
    return Plan(run, (to, source))


def plan_rectangle(
    dst: Pointer,
    src: Pointer,
    shape: tuple[int, int, Sequence[int], Sequence[int], Sequence[int], Sequence[int], Sequence[int]],
    numbers: tuple[int, int],
) -> Plan | int:
    """Check the arguments of a copy of a block; gives what does it, or the code if there is nothing to do."""
    if _is_null(dst) and _is_null(src):
        return INT_MAX
    to, source = _sides(dst, src, numbers)
    if not to.address or not source.address or None in shape:
        return refuse("omp_target_memcpy_rect: expected two pointers and five sequences, got a null pointer")
    if shape[0] < 1 or shape[1] < 1:
        return refuse(f"omp_target_memcpy_rect: expected 1 byte and 1 dimension or more, got {shape[:2]}")
    rectangle = Rectangle(*shape)
    if rectangle.wrong:
        return refuse(f"omp_target_memcpy_rect: {rectangle.wrong}")
    to.memory.check("dst", rectangle.to_end)
    source.memory.check("src", rectangle.from_end)
    return Plan(partial(_copy_rectangle, rectangle, to, source), (to, source))


def _is_null(pointer: Pointer) -> bool:
    return pointer is None or (isinstance(pointer, int) and pointer == 0)


def _sides(dst: Pointer, src: Pointer, numbers: tuple[int, int]) -> tuple[Side, Side]:
    return _side(dst, "dst", numbers[0], writable=True), _side(src, "src", numbers[1], writable=False)


def _side(pointer: Pointer, name: str, number: int, *, writable: bool) -> Side:
    device = numbering.current.closed_device(number)
    return Side(device, memory_on(device, pointer, name, writable=writable))


def _copy(to: Side, to_address: int, source: Side, from_address: int, size: int) -> None:
    """Copy bytes by the shortest way."""
    if to.device is None and source.device is None:
        copy_host(to_address, from_address, size)
    elif to.device is None and source.device is not None:
        source.device.retrieve(to_address, from_address, size)
    elif to.device is not None and source.device is None:
        to.device.submit(to_address, from_address, size)
    elif to.device is not None and source.device is not None:
        _exchange(to.device, to_address, source.device, from_address, size)


def _exchange(to: Device, to_address: int, source: Device, from_address: int, size: int) -> None:
    """Copy between two devices: one of them does it if it can, else through the host's memory."""
    if to.can_exchange(source):
        to.exchange(to_address, source, from_address, size)
        return
    staging = bytearray(min(size, CHUNK))
    held = HostMemory(staging, writable=True)
    for done in range(0, size, CHUNK):
        part = min(CHUNK, size - done)
        source.retrieve(held.address, from_address + done, part)
        to.submit(to_address + done, held.address, part)


def _copy_rectangle(rectangle: Rectangle, to: Side, source: Side) -> None:
    """Copy a block: at once where the host reaches both arrays, else by the pieces that lie together."""
    if to.device is None and source.device is None:
        rectangle.copy(to.address, source.address)
        return
    for number in range(rectangle.pieces):
        to_place, from_place = rectangle.place(number)
        _copy(to, to.address + to_place, source, source.address + from_place, rectangle.piece)
