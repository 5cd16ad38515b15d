"""One OpenCL device: its context, its memory by address, its queues and programs. Imports PyOpenCL."""

from __future__ import annotations

import ctypes
import os
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyopencl as cl

from targetmem.abc import MemoryInfo
from targetmem.errors import PluginError
from targetmem.plugins.opencl_kernels import bind, entry_names

if TYPE_CHECKING:
    from collections.abc import Sequence

    from targetmem.abc import Argument, Kind

__all__ = ["OpenCLDevice", "find_devices"]

ALIGNMENT = 128  # bytes: long16, the largest data type of OpenCL C
SPIR_V = b"\x03\x02\x23\x07"  # how a module begins on a little-endian machine
NO_FLAGS: Any = 0
LONGEST_PATTERN = 128  # bytes of what clEnqueueSVMMemFill repeats, and a power of two
FLAGS: dict[str, Any] = {
    "device": cl.svm_mem_flags.READ_WRITE,
    "shared": cl.svm_mem_flags.READ_WRITE | cl.svm_mem_flags.SVM_FINE_GRAIN_BUFFER,
}
NO_MEMORY = frozenset(
    (
        cl.status_code.MEM_OBJECT_ALLOCATION_FAILURE,
        cl.status_code.OUT_OF_RESOURCES,
        cl.status_code.OUT_OF_HOST_MEMORY,
        cl.status_code.INVALID_BUFFER_SIZE,
    )
)


def find_devices(platform: str) -> list[OpenCLDevice]:
    """Give the devices with shared virtual memory, platform by platform in the order of their names."""
    try:
        platforms = cl.get_platforms()
    except cl.Error:  # the loader found no runtime at all
        return []
    chosen = [found for found in platforms if platform in found.name]
    devices = [device for found in sorted(chosen, key=_name) for device in _devices_of(found)]
    return [OpenCLDevice(device) for device in devices if _svm(device)]


def _name(platform: cl.Platform) -> tuple[str, str]:
    return platform.name, platform.version


def _devices_of(platform: cl.Platform) -> list[cl.Device]:
    try:
        return platform.get_devices()
    except cl.Error:  # a platform without a device says so with an error
        return []


def _svm(device: cl.Device) -> int:
    """Give what the device can do with shared virtual memory, 0 for nothing (before OpenCL 2.0 too)."""
    with suppress(cl.Error, AttributeError):
        return int(device.svm_capabilities)
    return 0


class OpenCLDevice:
    """A device, its context and its memory; addresses are those of shared virtual memory."""

    def __init__(self, device: cl.Device) -> None:
        self.device = device
        self.largest = int(device.max_mem_alloc_size)
        self.total = int(device.global_mem_size)
        self.alignment = ALIGNMENT
        self.fine_grained = bool(_svm(device) & cl.device_svm_capabilities.FINE_GRAIN_BUFFER)
        # A processor's memory is there when it was obtained; others may find out when it is first used.
        self.defers = not device.type & cl.device_type.CPU
        self._memory: dict[int, cl.SVMAllocation] = {}
        self._queues: dict[int, cl.CommandQueue] = {}

    def open(self) -> None:
        """Make the context, and the queue for calls without one."""
        self.context = cl.Context([self.device])
        self.queue = self.new_queue()

    def adopt(self, queue: cl.CommandQueue, *, fine: bool) -> None:
        """Work in a queue's context. Raises PluginError when the device lacks the memory that is wanted."""
        wanted = "fine-grained" if fine else "shared virtual"
        if not (self.fine_grained if fine else _svm(self.device)):
            raise PluginError(f"{self.device.name}: expected a device with {wanted} memory, got one without")
        self.context, self.queue = queue.context, queue

    def close(self) -> None:
        """Wait for all work; what is still handed out goes with the context."""
        self.finish(None)
        self._queues.clear()
        self._memory.clear()
        del self.queue, self.context

    # --- memory ---

    def allocate(self, size: int, kind: Kind) -> int:
        """Obtain memory; 0 when there is none."""
        if size > self.largest:
            return 0
        try:
            memory = cl.SVMAllocation(self.context, size, ALIGNMENT, FLAGS[kind])
            if self.defers:
                self.commit(memory)
        except (cl.MemoryError, MemoryError):
            return 0
        except cl.Error as error:
            if error.code in NO_MEMORY:
                return 0
            raise _failure("clSVMAlloc", error) from error
        address = int(memory.svm_ptr)
        self._memory[address] = memory
        return address

    def commit(self, memory: cl.SVMAllocation) -> None:
        """Have the runtime find memory for an allocation now, so that its refusal can still be answered."""
        cl.enqueue_svm_migrate_mem(self.queue, [memory], NO_FLAGS).wait()

    def release(self, address: int) -> None:
        """Give memory back."""
        memory = self._memory.pop(address, None)
        if memory is None:
            raise PluginError(
                f"release of {address:#x}: expected memory that was handed out, got another address"
            )
        memory.release()

    def memory_info(self) -> MemoryInfo:
        """Give what this process leaves of the device's memory, and all of it."""
        held = sum(memory.size or 0 for memory in [*self._memory.values()])
        return MemoryInfo(max(0, self.total - held), self.total)

    # --- transfers ---

    def copy(self, target: int, source: int, size: int, queue: Any) -> None:
        """Copy bytes between any two addresses, of the host or the device."""
        if size == 0:
            return
        where = self.queue if queue is None else queue
        try:
            cl.enqueue_copy(where, _at(target, size), _at(source, size), is_blocking=queue is None)
        except cl.Error as error:
            raise _failure(f"a copy of {size} bytes", error) from error

    def fill(self, target: int, pattern: bytes, count: int, queue: Any) -> None:
        """Repeat a pattern; one that the runtime can't repeat is written from the host."""
        size = len(pattern) * count
        if size == 0:
            return
        if len(pattern) > LONGEST_PATTERN or len(pattern) & (len(pattern) - 1):
            self.finish(queue)
            data = ctypes.create_string_buffer(pattern * count, size)
            self.copy(target, ctypes.addressof(data), size, None)
            return
        try:
            event = cl.enqueue_svm_memfill(
                self.queue if queue is None else queue,
                _at(target, size),
                np.frombuffer(pattern, np.uint8),
                size,
            )
            if queue is None:
                event.wait()
        except cl.Error as error:
            raise _failure(f"a fill of {size} bytes", error) from error

    # --- queues ---

    def new_queue(self) -> cl.CommandQueue:
        """Make a queue that runs in order."""
        queue = cl.CommandQueue(self.context)
        self._queues[id(queue)] = queue
        return queue

    def drop_queue(self, queue: Any) -> None:
        """Wait for a queue's work, and forget it."""
        queue.finish()
        self._queues.pop(id(queue), None)

    def finish(self, queue: Any) -> None:
        """Wait for a queue, or for all."""
        try:
            for each in [*self._queues.values()] if queue is None else [queue]:
                each.finish()
        except cl.Error as error:
            raise _failure("work on a queue", error) from error

    # --- programs ---

    def build(self, image: object) -> Any:
        """Build a program for the device from source (text, or bytes of it) or SPIR-V."""
        if isinstance(image, os.PathLike):
            image = Path(image).read_bytes()
        if not isinstance(image, (str, bytes)):
            raise TypeError(
                f"load: expected OpenCL C source, its path, or SPIR-V, got {type(image).__name__}"
            )
        if isinstance(image, bytes) and not image.startswith(SPIR_V):
            image = image.decode()
        try:
            return cl.Program(self.context, image).build(["-cl-kernel-arg-info"], [self.device])
        except cl.Error as error:
            raise _failure("the program", error) from error

    def entries(self, program: Any) -> tuple[str, ...]:
        """Give the names of a program's kernels."""
        return entry_names(program)

    def run(
        self, program: Any, entry: str, arguments: Sequence[Argument], shape: tuple[int, int], queue: Any
    ) -> None:
        """Run a kernel on work-groups of work-items; done on return when there is no queue."""
        teams, threads = shape
        kernel = bind(program, entry, arguments)
        where = self.queue if queue is None else queue
        try:
            event = cl.enqueue_nd_range_kernel(where, kernel, (teams * threads,), (threads,))
            if queue is None:
                event.wait()
        except cl.Error as error:
            raise _failure(f"{entry} on {teams} x {threads}", error) from error


def _at(address: int, size: int) -> Any:
    """Give an address as PyOpenCL takes it: it only looks at where a buffer lies."""
    return cl.SVM((ctypes.c_char * size).from_address(address))


def _failure(what: str, error: cl.Error) -> PluginError:
    return PluginError(f"{what}: {str(error).strip()}", native=int(error.code))
