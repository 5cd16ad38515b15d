"""`Queue`: work for one device that is done in the order in which it was given, while the host goes on."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from targetmem._core import Buffer, begin_queue_use, end_queue_use
from targetmem.errors import DeviceClosed, NotSupported
from targetmem.lifecycle import take_all

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType
    from typing import Self

    from targetmem._device import Device

__all__ = ["Queue"]


class Queue:
    """Work for a device in order. Get one from `device.queue()`; ends with `close` or its with-statement.

    Until `synchronize` it holds whatever its work uses: a `Buffer` that is released meanwhile gives its
    memory back then, and not earlier. `native` is the plugin's own queue; None where the plugin has none,
    and every call is done when it returns. Any thread may use it.
    """

    __slots__ = ("_closed", "_deferred", "_kept", "device", "native")

    def __init__(self, device: Device) -> None:
        self.device = device
        self._kept: list[object] = []
        self._deferred: list[Callable[[], object]] = []
        self._closed = False
        try:
            self.native: object | None = device.plugin.create_queue(device.index)
        except NotSupported:
            self.native = None

    def check(self, device: Device) -> None:
        """Raise ValueError when this is another device's queue, DeviceClosed when it was closed."""
        if device is not self.device:
            raise ValueError(f"expected a queue of {device.name}, got one of {self.device.name}")
        if self._closed:
            raise DeviceClosed(
                f"{self.device.name}: this queue was closed: make a new one with device.queue()"
            )

    def keep(self, used: object) -> None:
        """Hold something that work given to the queue uses, until that is done."""
        if isinstance(used, Buffer) and not begin_queue_use(used, self):
            return  # it is held already
        self._kept.append(used)

    def defer(self, action: Callable[[], object]) -> None:
        """Have an action taken once the work given so far is done."""
        self._deferred.append(action)

    def synchronize(self) -> None:
        """Wait until the work given so far is done; then what it used is let go.

        Raises what went wrong in it, after everything was let go all the same.
        """
        with self.device.ready():
            self.drain()

    def drain(self) -> None:
        """Do what `synchronize` does. Before: the plugin may be called."""
        kept, self._kept = self._kept, []
        deferred, self._deferred = self._deferred, []
        plugin, index = self.device.plugin, self.device.index
        steps: list[Callable[[], object]] = []
        if self.native is not None:
            steps.append(partial(plugin.synchronize, index, self.native))
        steps += [*deferred, partial(_let_go, kept, self)]
        take_all(steps)

    def close(self) -> None:
        """Synchronise, and end the queue. Idempotent."""
        if not self._closed:
            with self.device.ready():
                self.end()

    def end(self) -> None:
        """Do what `close` does. Before: the plugin may be called."""
        if self._closed:
            return
        self._closed = True
        steps: list[Callable[[], object]] = [self.drain, partial(self.device.forget_queue, self)]
        if self.native is not None:
            steps.append(partial(self.device.plugin.release_queue, self.device.index, self.native))
        take_all(steps)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Queue of {self.device.name}{' closed' if self._closed else ''}>"


def _let_go(kept: list[object], queue: Queue) -> None:
    for used in kept:
        if isinstance(used, Buffer):
            end_queue_use(used, queue)
    kept.clear()
