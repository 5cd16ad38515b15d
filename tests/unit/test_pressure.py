"""The ladder beyond the managers: garbage collection once, then callbacks by priority, never re-entered."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest

import targetmem
from targetmem import MemoryManager, pressure
from targetmem.errors import OutOfDeviceMemory, TargetMemoryWarning
from targetmem.plugins.simulated import SimulatedPlugin

if TYPE_CHECKING:
    from collections.abc import Iterator

    from targetmem import Buffer

MiB = 1 << 20


@pytest.fixture
def manager() -> Iterator[MemoryManager]:
    """Give a manager over a simulated device of 4 MiB; no callback outlives the test."""
    plugin = SimulatedPlugin(capacity="4M")
    plugin.init()
    manager = MemoryManager(
        lambda size, alignment: plugin.allocate(0, size, "device", alignment),
        lambda address, size: plugin.release(0, address, size, "device"),
    )
    yield manager
    assert {} == pressure._callbacks
    manager.close()


def test_a_callback_frees_what_is_wanted(manager: MemoryManager) -> None:
    """A callback is told how much is wanted; what it frees serves the request."""
    cache: list[Buffer] = [manager.allocate(3 * MiB)]
    told = []

    def drop(wanted: int) -> None:
        told.append(wanted)
        cache.clear()

    with targetmem.on_pressure(drop):
        buffer = manager.allocate(2 * MiB)
    assert [2 * MiB] == told
    buffer.release()


def test_callbacks_by_priority(manager: MemoryManager) -> None:
    """Higher priorities come first, equal ones as they were registered; all are tried before giving up."""
    order: list[str] = []
    handles = [
        targetmem.on_pressure(lambda _, name=name: order.append(name), priority=priority)  # type: ignore[misc]
        for name, priority in (("b1", 0), ("a", 5), ("b2", 0), ("c", -1))
    ]
    with pytest.raises(OutOfDeviceMemory):
        manager.allocate(8 * MiB)
    assert ["a", "b1", "b2", "c"] == order
    for handle in handles:
        handle.remove()
        handle.remove()
    with pytest.raises(OutOfDeviceMemory):
        manager.allocate(8 * MiB)
    assert 4 == len(order)


def test_the_first_success_ends_it(manager: MemoryManager) -> None:
    """Once the request is served, no further callback is called."""
    cache = [manager.allocate(3 * MiB)]
    later: list[int] = []
    with targetmem.on_pressure(lambda _: cache.clear(), 1), targetmem.on_pressure(later.append):
        manager.allocate(2 * MiB).release()
    assert [] == later


def test_false_saves_a_retry(manager: MemoryManager) -> None:
    """A callback that says it freed nothing causes no further try."""
    tries = []
    for answer in (None, False):
        with targetmem.on_pressure(lambda _, answer=answer: answer):  # type: ignore[misc]
            before = manager.counters().device_failures
            with pytest.raises(OutOfDeviceMemory):
                manager.allocate(8 * MiB)
            tries.append(manager.counters().device_failures - before)
    assert tries[0] == tries[1] + 1


def test_garbage_is_collected_first(manager: MemoryManager) -> None:
    """Memory that only a reference cycle holds is given back before any callback is called."""
    holder: list[object] = [manager.allocate(3 * MiB)]
    holder.append(holder)
    del holder
    called: list[int] = []
    with targetmem.on_pressure(called.append):
        manager.allocate(2 * MiB).release()
    assert [] == called


def test_never_reentered(manager: MemoryManager) -> None:
    """A callback that itself runs out of memory gets the error, not another call."""
    called: list[int] = []

    def greedy(wanted: int) -> None:
        called.append(wanted)
        with pytest.raises(OutOfDeviceMemory):
            manager.allocate(wanted)

    with targetmem.on_pressure(greedy), pytest.raises(OutOfDeviceMemory):
        manager.allocate(8 * MiB)
    assert [8 * MiB] == called


def test_not_by_another_thread_either(manager: MemoryManager) -> None:
    """While a callback runs in one thread, another one that runs out of memory passes it by."""
    inside, go_on = threading.Event(), threading.Event()
    called: list[int] = []

    def slow(wanted: int) -> None:
        called.append(wanted)
        inside.set()
        go_on.wait(10)

    def work() -> None:
        with pytest.raises(OutOfDeviceMemory):
            manager.allocate(8 * MiB)

    with targetmem.on_pressure(slow):
        thread = threading.Thread(target=work)
        thread.start()
        assert inside.wait(10)
        with pytest.raises(OutOfDeviceMemory):
            manager.allocate(7 * MiB)
        go_on.set()
        thread.join()
    assert [8 * MiB] == called


def test_a_failing_callback_is_told(manager: MemoryManager) -> None:
    """An exception in a callback becomes a warning, and the next callback still frees."""
    cache = [manager.allocate(3 * MiB)]

    def broken(_: int) -> None:
        raise KeyError("lost")

    told = pytest.warns(TargetMemoryWarning, match=r"broken.*KeyError\('lost'\)")
    with targetmem.on_pressure(broken, 1), targetmem.on_pressure(lambda _: cache.clear()), told:
        manager.allocate(2 * MiB).release()


def test_a_callback_must_be_one() -> None:
    """What cannot be called is refused at once."""
    with pytest.raises(TypeError, match="expected a function"):
        targetmem.on_pressure(5)  # type: ignore[arg-type]
