"""PyOpenCL: arrays and shared virtual memory from a manager, by an allocator that is passed by hand.

    from targetmem.integrations.pyopencl import Allocator

    allocator = Allocator(queue)
    x = pyopencl.array.to_device(queue, data, allocator=allocator)

An allocator belongs to one queue that runs in order. A block that is freed while kernels on it are under way
may so be handed out again at once: whatever uses it next comes after them. It goes back to OpenCL only when
the queue is done. Use its memory with that queue alone, as with PyOpenCL's own SVMPool.
"""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any

import pyopencl as cl

from targetmem._core import Backend, Lease, Wrappers, Wrapping, recycled
from targetmem.config import resolve
from targetmem.manager import MemoryManager
from targetmem.plugins.opencl_device import OpenCLDevice

if TYPE_CHECKING:
    from collections.abc import Callable

    from targetmem.statistics import Statistics

__all__ = ["Allocator"]

NO_LIMIT = (1 << 63) - 1


@recycled
class _Buffer(cl.Buffer):
    """A buffer over shared virtual memory of the manager; dropped or released, it gives its block back."""

    __slots__ = ("_lease",)
    _lease: Lease

    def release(self) -> None:
        """Give the block back now. Raises pyopencl.LogicError when that was done before."""
        super().release()
        self._lease.release()


@recycled
class _SVM(cl.SVM):  # type: ignore[type-arg]
    """Shared virtual memory of the manager; dropped, it gives its block back."""

    __slots__ = ("_lease",)


class Allocator(Wrapping):
    """Allocate memory for arrays, kernels and copies on one queue.

    It gives `pyopencl.Buffer` objects over shared virtual memory, or with `svm` the memory as `pyopencl.SVM`;
    that is the default on all but processors. `fine` asks for fine-grained memory, which the host may use as
    well, and implies `svm`. `policy`, `threshold` (default: every size is pooled) and `cached_limit` are a
    MemoryManager's; the settings of the environment and of `targetmem.toml` for `opencl:0` hold where they
    are not given. Raises ValueError for a queue that runs out of order, PluginError when the device lacks the
    memory, ConfigError.
    """

    __slots__ = ("_device", "queue")

    def __init__(
        self,
        queue: cl.CommandQueue,
        *,
        svm: bool | None = None,
        fine: bool = False,
        policy: str | None = None,
        threshold: int | str | None = None,
        cached_limit: int | str | None = None,
    ) -> None:
        if queue.properties & cl.command_queue_properties.OUT_OF_ORDER_EXEC_MODE_ENABLE:
            raise ValueError("Allocator: expected a queue that runs in order, got one that does not")
        self.queue = queue
        self._device = OpenCLDevice(queue.device)
        self._device.adopt(queue, fine=fine)
        settings = resolve(
            "opencl:0",
            policy=policy,
            threshold=threshold,
            cached_limit=cached_limit,
            plugin_threshold=NO_LIMIT,
        )
        wrappers = Wrappers()
        manager = self._make_manager(settings, "shared" if fine else "device", wrappers)
        if fine:
            super().__init__(manager, cl.SVM)
            return
        if svm is None:
            svm = not queue.device.type & cl.device_type.CPU
        super().__init__(manager, _svm_maker() if svm else _buffer_maker(queue.context), wrappers)

    @property
    def manager(self) -> MemoryManager:
        """The manager that serves the requests."""
        return self.source  # type: ignore[return-value]

    def stats(self) -> Statistics:
        """Give what was counted so far, for the whole manager and for each bucket used; sizes in bytes."""
        return self.manager.stats()

    def trim(self, keep: int = 0, /) -> int:
        """Give freed memory back to OpenCL until at most `keep` bytes are kept; gives the bytes."""
        return self.manager.trim(keep)

    def _make_manager(self, settings: Any, kind: Any, wrappers: Wrappers) -> MemoryManager:
        device, queue = self._device, self.queue

        def release(address: int, _size: int) -> None:
            queue.finish()
            wrappers.forget(address)
            device.release(address)

        backend = Backend(
            lambda size, _alignment: device.allocate(size, kind),
            release,
            min_alignment=device.alignment,
            host_accessible=True,  # it is an address of the host, too, and PyOpenCL takes a buffer
            memory_info=device.memory_info,
        )
        return MemoryManager(
            backend=backend, settings=settings, name=f"pyopencl on {queue.device.name}", kind=kind
        )


def _at(address: int, size: int) -> Any:
    return (ctypes.c_char * size).from_address(address)


def _svm_maker() -> Callable[[int, int], _SVM]:
    return lambda address, size: _SVM(_at(address, size))


def _buffer_maker(context: cl.Context) -> Callable[[int, int], _Buffer]:
    flags = cl.mem_flags.READ_WRITE | cl.mem_flags.USE_HOST_PTR
    return lambda address, size: _Buffer(context, flags, hostbuf=_at(address, size))
