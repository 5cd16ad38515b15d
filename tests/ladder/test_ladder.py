"""Out of memory (M8) on `simulated`: what is given back, in which order, and when it ends."""

from __future__ import annotations

import gc
import warnings
from typing import TYPE_CHECKING

import pytest

import targetmem
from targetmem.errors import OutOfDeviceMemory
from tests.ladder.devices import KiB, Small, small

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from targetmem import Buffer


@pytest.fixture(params=["null", "error"])
def make(request: pytest.FixtureRequest) -> Iterator[Callable[..., Small]]:
    """Give the function that makes a device which refuses in one way; what it made is whole afterwards."""
    made: list[Small] = []

    def make_one(**options: object) -> Small:
        made.append(small(refusal=request.param, **options))
        return made[-1]

    yield make_one
    for one in made:
        one.check()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            one.device.close()
        assert [] == one.plugin.ranges(0)
        one.registry.close()


def fill(one: Small, spare: int) -> Buffer:
    """Have live memory above the threshold fill the device but for some bytes."""
    free, _ = one.plugin.memory_info(0)
    return one.device.allocate(free - spare)


def test_largest_first_one_at_a_time(make: Callable[..., Small]) -> None:
    """The largest cached block goes first, then the next; each is followed by a try if it could succeed."""
    one = make()
    one.cache(1 * KiB, 8 * KiB, 2 * KiB, 4 * KiB)
    live = fill(one, spare=0)
    start = len(one.plugin.calls)
    got = one.device.allocate(9 * KiB)
    assert [
        ("allocate", 9 * KiB),
        ("release", 8 * KiB),  # no try: 8 KiB are free, fewer than are wanted
        ("release", 4 * KiB),  # 12 KiB are free, but not in one piece
        ("allocate", 9 * KiB),
        ("release", 2 * KiB),  # the 2 KiB between the two
        ("allocate", 9 * KiB),
    ] == one.since(start)
    assert (1, 3, 14 * KiB) == (
        one.device.memory.counters().cached_blocks,
        one.device.memory.counters().reclaims,
        one.device.memory.counters().reclaimed_bytes,
    )
    del live, got


def test_the_first_success_ends_it(make: Callable[..., Small]) -> None:
    """One block that is large enough is all that goes, and only the one of the largest bucket."""
    one = make()
    one.cache(1 * KiB, 8 * KiB, 2 * KiB, 4 * KiB)
    live = fill(one, spare=100)
    start = len(one.plugin.calls)
    got = one.device.allocate(3 * KiB)
    assert [("allocate", 3 * KiB), ("release", 8 * KiB), ("allocate", 3 * KiB)] == one.since(start)
    assert 3 == one.device.memory.counters().cached_blocks
    del live, got


def test_oldest_first_within_a_size(make: Callable[..., Small]) -> None:
    """Of blocks of one size the one that was freed first goes first."""
    one = make()
    buffers = [one.device.allocate(4 * KiB) for _ in range(3)]
    oldest = buffers[1].pointer
    for at in (1, 2, 0):
        buffers[at].release()
    live = fill(one, spare=0)
    start = len(one.plugin.calls)
    got = one.device.allocate(3 * KiB)
    assert [oldest] == [call.arguments[1] for call in one.plugin.calls[start:] if call.method == "release"]
    del live, got


def test_direct_requests_climb_too(make: Callable[..., Small]) -> None:
    """A request above the threshold has the same ladder."""
    one = make()
    one.cache(8 * KiB, 16 * KiB)
    live = one.device.allocate(40 * KiB)
    got = one.device.allocate(20 * KiB)
    assert (2, 2, 0) == (
        one.device.memory.counters().direct,
        one.device.memory.counters().reclaims,
        one.device.memory.counters().cached_blocks,
    )
    del live, got


def test_live_blocks_are_left_alone(make: Callable[..., Small]) -> None:
    """Whether it helps or not, what is live keeps its place and its contents; nothing of it is released."""
    one = make()
    live = [one.device.allocate(size) for size in (100, 1 * KiB, 8 * KiB, 20 * KiB)]
    for number, buffer in enumerate(live, 1):
        one.plugin.fill(0, buffer.pointer, bytes([number]), buffer.size)
    one.cache(300, 2 * KiB)
    before = one.plugin.ranges(0)
    with pytest.raises(OutOfDeviceMemory):
        one.device.allocate(60 * KiB)
    assert [(b.pointer, b.size) for b in live] == [r for r in before if r in one.plugin.ranges(0)]
    assert len(live) == len(one.plugin.ranges(0))
    contents = [one.plugin._read(0, buffer.pointer, buffer.size) for buffer in live]
    assert [bytes([number]) * buffer.size for number, buffer in enumerate(live, 1)] == contents


def test_other_managers_of_the_device_come_next(make: Callable[..., Small]) -> None:
    """After its own blocks those of the device's other kinds go, largest first, and no more than must."""
    one = make()
    one.cache(2 * KiB)
    one.cache(1 * KiB, 4 * KiB, kind="host")
    one.cache(8 * KiB, kind="shared")
    live = fill(one, spare=0)
    start = len(one.plugin.calls)
    got = one.device.allocate(3 * KiB)
    calls = one.since(start)
    assert [("allocate", 3 * KiB), ("release", 2 * KiB)] == calls[:2]
    assert calls[2:] in (
        [("release", 4 * KiB), ("allocate", 3 * KiB)],
        [("release", 8 * KiB), ("allocate", 3 * KiB)],
    )
    assert [0, 1, 1] == sorted(manager.counters().reclaims for manager in one.device.managers())
    del live, got


def test_another_device_is_left_alone(make: Callable[..., Small]) -> None:
    """What a device of the same plugin has cached does not help, and stays."""
    one = make(devices=2)
    other = one.registry.device("x:1")
    other.allocate(4 * KiB).release()
    with pytest.raises(OutOfDeviceMemory, match=r"^x:0: "):
        one.device.allocate(65 * KiB)
    assert 1 == other.memory.counters().cached_blocks


def test_garbage_is_collected_once(make: Callable[..., Small], monkeypatch: pytest.MonkeyPatch) -> None:
    """Only after the managers, once a request: however many callbacks follow."""
    one = make()
    events: list[str] = []
    monkeypatch.setattr(gc, "collect", lambda: events.append("gc"))
    one.cache(4 * KiB)
    live = fill(one, spare=0)
    one.device.allocate(4 * KiB).release()
    assert [] == events  # a hit; and below one block that went is enough
    one.device.allocate(3 * KiB).release()
    assert [] == events
    with (
        targetmem.on_pressure(lambda _: events.append("a")),
        targetmem.on_pressure(lambda _: events.append("b"), priority=1),
        pytest.raises(OutOfDeviceMemory),
    ):
        one.device.allocate(5 * KiB)
    assert ["gc", "b", "a"] == events
    del live


def test_what_a_callback_frees_may_be_any_block(make: Callable[..., Small]) -> None:
    """A callback is told the bytes that the device is asked for; a block that it frees serves the request."""
    one = make()
    cache = [one.device.allocate(8 * KiB)]
    address = cache[0].pointer
    live = fill(one, spare=0)
    told: list[int] = []

    def drop(wanted: int) -> None:
        told.append(wanted)
        cache.clear()

    start = len(one.plugin.calls)
    with targetmem.on_pressure(drop):
        got = one.device.allocate(8 * KiB)
    assert ([8 * KiB], address) == (told, got.pointer)
    assert [("allocate", 8 * KiB)] * 2 == one.since(start)  # before and after the collection; then the block
    del live


def test_callbacks_are_not_reentered(make: Callable[..., Small]) -> None:
    """A callback's own requests climb without callbacks; those of another manager likewise."""
    one = make()
    called: list[int] = []

    def greedy(wanted: int) -> None:
        called.append(wanted)
        for kind in ("device", "host"):
            with pytest.raises(OutOfDeviceMemory):
                one.device.allocate(64 * KiB, kind=kind)

    live = fill(one, spare=100)
    with targetmem.on_pressure(greedy), pytest.raises(OutOfDeviceMemory):
        one.device.allocate(1 * KiB)
    assert [1 * KiB] == called
    del live


def test_random_refusals(make: Callable[..., Small]) -> None:
    """A device that refuses at random costs cached blocks and sometimes an error, never a block too many."""
    one = make(fail_rate=0.5, seed=7)
    refused = 0
    kept: list[Buffer] = []
    for step in range(300):
        try:
            kept.append(one.device.allocate(1 + step * 37 % 5000))
        except OutOfDeviceMemory:
            refused += 1
        if len(kept) > 8:
            kept.pop(step % 8)
        one.check()
    assert refused > 0
    assert one.device.memory.counters().reclaims > 0
    assert len(kept) == one.device.memory.counters().live_blocks
