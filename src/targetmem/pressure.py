"""What happens when a device is out of memory and nothing is cached: `gc.collect()`, then callbacks.

    handle = targetmem.on_pressure(lambda wanted: cache.clear(), priority=10)

A callback is told how many bytes are wanted and may free anything. It is never called re-entrantly: while it
runs, in whatever thread, another request that runs out of memory passes it by.
"""

from __future__ import annotations

import gc
import threading
from typing import TYPE_CHECKING

from targetmem.callers import warn

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import TracebackType
    from typing import Self

__all__ = ["PressureCallback", "on_pressure", "relieve"]

# In the order of registration. A dict needs no lock, which a finaliser that removes a callback could meet.
_callbacks: dict[PressureCallback, None] = {}


class _Request(threading.local):
    """The request of this thread that is out of memory: its steps to take, and whether one is being taken."""

    steps: Iterator[bool] = iter(())
    busy = False


_request = _Request()


class PressureCallback:
    """A registered callback; `remove()` or the end of a with-block takes it away."""

    __slots__ = ("_running", "callback", "priority")

    def __init__(self, callback: Callable[[int], object], priority: int) -> None:
        self.callback = callback
        self.priority = priority
        self._running = threading.Lock()

    def remove(self) -> None:
        """Call it no more. Does nothing when it was removed before."""
        _callbacks.pop(self, None)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        self.remove()

    def run(self, wanted: int) -> bool:
        """Call it, unless it runs already; tell whether the request is worth another try."""
        if not self._running.acquire(blocking=False):
            return False
        try:
            return self.callback(wanted) is not False
        except Exception as error:  # noqa: BLE001 - a warning, so that the next callback gets its turn
            text = f"pressure callback {self.callback!r} failed, the next one follows: {error!r}"
            warn(text)
            return False
        finally:
            self._running.release()


def on_pressure(callback: Callable[[int], object], priority: int = 0) -> PressureCallback:
    """Have a callback run when a device is out of memory; gives the handle that removes it.

    `callback(wanted)` is told the bytes that are wanted; returning False says that it freed nothing. Higher
    priorities come first, equal ones in the order of registration. An exception in it becomes a
    TargetMemoryWarning, and the next callback follows.
    """
    if not callable(callback):
        raise TypeError(f"on_pressure: expected a function that takes the wanted bytes, got {callback!r}")
    handle = PressureCallback(callback, priority)
    _callbacks[handle] = None
    return handle


def relieve(wanted: int, step: int) -> bool:
    """Take the next step for a request that is out of memory; tell whether it is worth another try.

    Step 0 begins a request: it collects garbage. Each later one calls the next callback that frees something.
    False means that nothing is left to do. Called by the core with no lock held.
    """
    if _request.busy:  # a callback, or a finaliser run by gc, is itself out of memory
        return False
    if step == 0:
        _request.steps = _steps(wanted)
    _request.busy = True
    try:
        return next(_request.steps, False)
    finally:
        _request.busy = False


def _steps(wanted: int) -> Iterator[bool]:
    gc.collect()
    yield True
    for handle in sorted(_callbacks, key=lambda handle: -handle.priority):
        if handle.run(wanted):
            yield True
