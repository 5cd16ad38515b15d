"""PyOpenCL: serve every `pyopencl.array.Array` that is made without an allocator.

An array's constructor gets an `Allocator` of the array's queue where it has none. A queue that runs out of
order, or a device without shared virtual memory, is left alone.
"""

from __future__ import annotations

from collections import OrderedDict
from contextlib import contextmanager
from threading import RLock
from typing import TYPE_CHECKING, Any

import pyopencl as cl
import pyopencl.array as cl_array

from targetmem import config
from targetmem.errors import PluginError, TargetMemoryError
from targetmem.integrations.pyopencl import Allocator

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["QueueMemory", "install", "pooled", "uninstall"]

MOST_QUEUES = 16  # whose memory is kept for reuse; a queue can't be watched, and would else stay for ever


class QueueMemory:
    """An `Allocator` for each of the latest queues, with the options of `install`."""

    def __init__(self, options: dict[str, Any]) -> None:
        for name, value in options.items():
            if name in ("policy", "threshold", "cached_limit"):
                config.check_value(name, value, name)
            elif name not in ("svm", "fine"):
                raise TypeError(f"pyopencl: expected an option of Allocator, got {name}={value!r}")
        self.options = options
        self._lock = RLock()
        # The queue is kept beside: while it lives no other has its number.
        self._allocators: OrderedDict[int, tuple[cl.CommandQueue, Allocator | None]] = OrderedDict()

    @property
    def allocators(self) -> list[Allocator]:
        """The allocators in use, the latest last."""
        return [each for _, each in [*self._allocators.values()] if each is not None]

    def allocator(self, queue: cl.CommandQueue) -> Allocator | None:
        """Give a queue's allocator, None for a queue that is left alone. Raises ConfigError."""
        with self._lock:
            key = queue.int_ptr
            if key not in self._allocators:
                self._allocators[key] = queue, self._make(queue)
                if len(self._allocators) > MOST_QUEUES:
                    self._allocators.popitem(last=False)
            self._allocators.move_to_end(key)
            return self._allocators[key][1]

    def _make(self, queue: cl.CommandQueue) -> Allocator | None:
        if queue.properties & cl.command_queue_properties.OUT_OF_ORDER_EXEC_MODE_ENABLE:
            return None
        try:
            return Allocator(queue, **self.options)
        except PluginError:  # the device lacks the memory
            return None


class _Service:
    """What serves arrays now: the innermost `pooled` block's memory, else the installed one, else nothing."""

    def __init__(self) -> None:
        self.lock = RLock()
        self.installed: QueueMemory | None = None
        self.entered: dict[object, QueueMemory] = {}
        self.constructor: Any = None  # PyOpenCL's own, while ours stands in for it

    def current(self) -> QueueMemory | None:
        """Give the memory that is meant to serve."""
        return next(reversed(self.entered.values()), self.installed)

    def apply(self) -> None:
        """Stand in for the constructor of arrays, or don't."""
        if self.current() is not None and self.constructor is None:
            self.constructor = cl_array.Array.__init__
            cl_array.Array.__init__ = _stand_in(self.constructor)  # type: ignore[method-assign]
        elif self.current() is None and self.constructor is not None:
            cl_array.Array.__init__ = self.constructor  # type: ignore[method-assign]
            self.constructor = None


_service = _Service()


def _stand_in(constructor: Any) -> Any:
    def __init__(  # noqa: N807 - it becomes one
        self: Any,
        cq: Any,
        shape: Any,
        dtype: Any,
        order: str = "C",
        allocator: Any = None,
        data: Any = None,
        *more: Any,
        **named: Any,
    ) -> None:
        if allocator is None and data is None and (memory := _service.current()) is not None:
            queue = named.get("_queue") or cq
            if isinstance(queue, cl.CommandQueue):
                allocator = memory.allocator(queue)
        constructor(self, cq, shape, dtype, order, allocator, data, *more, **named)

    return __init__


def install(**options: Any) -> QueueMemory:
    """Serve the arrays made without an allocator from now on; gives the memory, by queue.

    The options are those of `Allocator`. Installing again gives the same. An array's memory belongs to its
    queue: use it on another one only when the first is done, and drop it when the other is. Raises
    ConfigError, and TargetMemoryError when other options are in force.
    """
    with _service.lock:
        if (found := _service.installed) is not None:
            _check_same(found, options)
            return found
        _service.installed = QueueMemory(options)
        _service.apply()
        return _service.installed


def uninstall() -> None:
    """Serve no new arrays; those alive, and what is computed from them, keep their allocator. Idempotent."""
    with _service.lock:
        _service.installed = None
        _service.apply()


@contextmanager
def pooled(**options: Any) -> Iterator[QueueMemory]:
    """Serve the arrays made while the `with` block runs, in every thread; gives the memory."""
    key = object()
    with _service.lock:
        memory = (None if options else _service.current()) or QueueMemory(options)
        _service.entered[key] = memory
        _service.apply()
    try:
        yield memory
    finally:
        with _service.lock:
            del _service.entered[key]
            _service.apply()


def _check_same(found: QueueMemory, options: dict[str, Any]) -> None:
    if options and options != found.options:
        raise TargetMemoryError(
            f"pyopencl: installed with {found.options}, got {options}: "
            'call targetmem.uninstall("pyopencl") first'
        )
