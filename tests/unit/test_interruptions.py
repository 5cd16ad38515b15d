"""A Ctrl-C, or an exit that a signal's handler asks for, in the middle of a function of the backend."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import pytest

import targetmem
from targetmem import MemoryManager
from targetmem._core import Backend

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from targetmem import Buffer


@pytest.fixture(autouse=True)
def ctrl_c_counts() -> Iterator[None]:
    """Have Python handle Ctrl-C: a process that was started in the background may ignore it."""
    former = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, former)


class Interrupted:
    """Two functions, one of whose next calls is interrupted."""

    def __init__(self) -> None:
        self.next = 1 << 40
        self.when = ""
        self.error: type[BaseException] = KeyboardInterrupt

    def step(self, name: str) -> None:
        """Raise once, in the call that was chosen."""
        if self.when == name:
            self.when = ""
            raise self.error

    def allocate(self, size: int, alignment: int) -> int | None:
        """Give a new address, none for a megabyte."""
        self.step("allocate")
        self.next += 4096
        return self.next if size < 1 << 20 else None

    def release(self, address: int, size: int) -> None:
        """Take an address back."""
        self.step("release")

    def memory_info(self) -> None:
        """Tell nothing."""
        self.step("memory_info")

    def manager(self) -> MemoryManager:
        """Give a manager that has two cached blocks of 100 bytes, which is all that it may."""
        backend = Backend(self.allocate, self.release, memory_info=self.memory_info)
        manager = MemoryManager(backend=backend, threshold=1000, cached_limit=200)
        for buffer in [manager.allocate(100) for _ in range(2)]:
            buffer.release()
        return manager


def free_one_more(manager: MemoryManager) -> None:
    """Free a block for which a cached one must go."""
    manager.allocate(50).release()


WAYS: dict[str, tuple[str, Callable[[MemoryManager], object]]] = {
    "allocate": ("allocate", lambda manager: manager.allocate(10)),
    "direct": ("allocate", lambda manager: manager.allocate_aligned(5000, 64)),
    "reclaim": ("release", lambda manager: manager.allocate(1 << 20)),
    "memory_info": ("memory_info", lambda manager: manager.allocate(1 << 20)),
    "free": ("release", lambda manager: manager.free(manager.allocate(5000).detach())),
    "release": ("release", lambda manager: manager.allocate(5000).release()),
    "limit": ("release", free_one_more),
    "trim": ("release", lambda manager: manager.trim()),
    "close": ("release", lambda manager: manager.close()),
}


@pytest.mark.filterwarnings("ignore:.*failed to take 1 block:targetmem.errors.TargetMemoryWarning")
@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
@pytest.mark.parametrize("way", WAYS)
def test_an_interruption_is_itself(way: str, error: type[BaseException]) -> None:
    """It reaches the caller as what it is, when the call has ended; the manager is whole, nothing is live."""
    interrupted = Interrupted()
    manager = interrupted.manager()
    interrupted.when, do = WAYS[way]
    interrupted.error = error
    with pytest.raises(error) as caught:
        do(manager)
    assert error is caught.type
    del caught
    manager.check()
    assert 0 == manager.counters().live_blocks
    if not manager.closed:
        manager.allocate(10).release()


def test_an_interruption_of_a_callback() -> None:
    """A callback that is interrupted ends the request; the next request has its own."""
    manager = Interrupted().manager()

    def callback(_: int) -> None:
        raise KeyboardInterrupt

    with targetmem.on_pressure(callback), pytest.raises(KeyboardInterrupt):
        manager.allocate(1 << 20)
    with pytest.raises(MemoryError):
        manager.allocate(1 << 20)


def test_garbage_keeps_an_interruption() -> None:
    """A Buffer that the ladder's garbage collection drops leaves the interruption to the request."""
    interrupted = Interrupted()
    manager = interrupted.manager()
    cycle: list[object] = [Interrupted().manager().allocate(5000)]
    cycle.append(cycle)
    del cycle
    interrupted.when = "release"
    with pytest.raises(KeyboardInterrupt):
        manager.allocate(1 << 20)


def test_a_dropped_buffer_passes_it_on() -> None:
    """While a Buffer is dropped nothing can be raised; Python raises a Ctrl-C right afterwards."""
    interrupted = Interrupted()
    manager = interrupted.manager()
    kept = [manager.allocate(5000)]
    interrupted.when = "release"
    with pytest.raises(KeyboardInterrupt):
        drop_and_wait(kept)
    assert 0 == manager.counters().live_blocks


def drop_and_wait(kept: list[Buffer]) -> None:
    """Drop all, and take some steps in which Python can look for signals."""
    kept.clear()
    for _ in range(1000):
        pass
