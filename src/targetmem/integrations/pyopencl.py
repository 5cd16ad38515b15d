"""PyOpenCL: arrays and shared virtual memory from a manager, by an allocator that is passed by hand.

    from targetmem.integrations.pyopencl import Allocator

    allocator = Allocator(queue)
    x = pyopencl.array.to_device(queue, data, allocator=allocator)

An allocator belongs to one queue that runs in order. A block that is freed while kernels on it are under way
may so be handed out again at once: whatever uses it next comes after them. It goes back to OpenCL only when
the queue is done. Use its memory with that queue alone, as with PyOpenCL's own SVMPool.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyopencl as cl

from targetmem._core import Backend, Wrapping
from targetmem.config import resolve
from targetmem.manager import MemoryManager
from targetmem.plugins.opencl_device import OpenCLDevice

if TYPE_CHECKING:
    from targetmem.statistics import Statistics

__all__ = ["Allocator"]

NO_LIMIT = (1 << 63) - 1


class Allocator(Wrapping):
    """Allocate shared virtual memory (a `pyopencl.SVM`) for arrays, kernels and copies on one queue.

    `fine` asks for fine-grained memory, which the host may use as well. `policy`, `threshold` (default: every
    size is pooled) and `cached_limit` are those of a MemoryManager; the settings of the environment and of
    `targetmem.toml` for `opencl:0` hold where they are not given. Raises ValueError for a queue that runs out
    of order, PluginError when the device lacks the memory, ConfigError.
    """

    __slots__ = ("_device", "queue")

    def __init__(
        self,
        queue: cl.CommandQueue,
        *,
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
        super().__init__(self._make_manager(settings, "shared" if fine else "device"), cl.SVM)

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

    def _make_manager(self, settings: Any, kind: Any) -> MemoryManager:
        device, queue = self._device, self.queue

        def release(address: int, _size: int) -> None:
            queue.finish()
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
