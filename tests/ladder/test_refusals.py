"""What the error says, and a device that fails at each of its calls in turn."""

from __future__ import annotations

import pickle
import re
import warnings
from contextlib import suppress

import pytest

import targetmem
from targetmem.errors import OutOfDeviceMemory, TargetMemoryError
from tests.ladder.devices import KiB, Small, small


def test_the_error_tells_everything() -> None:
    """All the numbers, the biggest tags and what would help are in the text, and on the error."""
    one = small(min_alignment=64)
    with targetmem.tagged("weights"):
        weights = one.device.allocate(20 * KiB)
    with targetmem.tagged("images"):
        images = one.device.allocate(2 * KiB, alignment=1 * KiB)
    one.cache(500)
    with pytest.raises(OutOfDeviceMemory) as caught:
        one.device.allocate(50 * KiB)
    error = caught.value
    padding = 1 * KiB - 64
    held = 22 * KiB + padding
    assert (50 * KiB, 22 * KiB, 0, 0, None, 64 * KiB - held, 64 * KiB, padding) == (
        error.requested,
        error.live,
        error.cached,  # what was cached went back before the error
        error.largest_free_block,
        error.limit,
        error.device_free,
        error.device_total,
        error.padding,
    )
    assert (("weights", 20 * KiB), ("images", 2 * KiB)) == error.tags
    text = str(error)
    for told in (
        "x:0: out of memory: 50 KiB (51200 bytes) requested",
        "live 22 KiB",
        "cached 0 B",
        "largest free block 0 B",
        "padding 960 B",
        "limit none",
        "free of 64 KiB",
        "biggest live: weights 20 KiB, images 2 KiB",
    ):
        assert told in text
    assert text.endswith(error.hint)
    assert re.fullmatch(r"[^\n;]+", error.hint)
    del weights, images
    one.registry.close()


@pytest.mark.parametrize("refusal", ["null", "error"])
def test_the_error_is_a_memory_error_and_travels(refusal: str) -> None:
    """It is caught as a MemoryError, and pickling keeps all that it says; the plugin's error is its cause."""
    one = small(refusal=refusal)
    with pytest.raises(MemoryError) as caught:
        one.device.allocate(65 * KiB)
    error = caught.value
    assert isinstance(error, OutOfDeviceMemory)
    again = pickle.loads(pickle.dumps(error))
    assert (str(error), vars(error)) == (str(again), vars(again))
    assert ("error" == refusal) == isinstance(error.__cause__, MemoryError)
    one.registry.close()


def test_the_reason_and_the_setting() -> None:
    """Each reason that the device can give leads to its own hint."""
    one = small(capacity=64 * KiB)
    with pytest.raises(OutOfDeviceMemory, match="the device has 64 KiB in all") as caught:
        one.device.allocate(65 * KiB)
    assert "capacity" == caught.value.reason
    parts = [one.device.allocate(16 * KiB) for _ in range(4)]
    del parts[::2]
    with pytest.raises(OutOfDeviceMemory, match="not in one piece") as caught:
        one.device.allocate(20 * KiB)
    assert "fragmentation" == caught.value.reason
    assert "TARGETMEM_CACHED_LIMIT" in caught.value.hint
    with pytest.raises(OutOfDeviceMemory, match="live memory fills the device") as caught:
        one.device.allocate(40 * KiB)
    assert "capacity" == caught.value.reason
    one.registry.close()


# --- each call fails in turn ---


def work(one: Small, second: str = "host") -> int:
    """Do some of everything; what fails is passed over. Gives how many allocate calls it came to."""
    kept = []
    for size, kind in [(100, "device"), (5000, second), (9000, "device"), (20 * KiB, "device")] * 3:
        with suppress(TargetMemoryError):
            kept.append(one.device.allocate(size, kind=kind))  # type: ignore[arg-type]
        if len(kept) > 4:
            with suppress(TargetMemoryError):
                kept.pop(0).release()
        with suppress(TargetMemoryError):
            one.device.allocate(300, alignment=4 * KiB).release()
        one.check_live(len(kept))
    return sum(call.method == "allocate" for call in one.plugin.calls)


def end(one: Small) -> None:
    """Close: the device has all back, from both managers."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a release that fails is told
        one.device.close()
    assert 0 == sum(manager.counters().held.now for manager in one.device.managers())


@pytest.mark.parametrize("refusal", ["null", "error"])
def test_each_allocate_call_is_refused_in_turn(refusal: str) -> None:
    """Whichever call is refused, the managers stay whole, and everything goes back."""
    number, calls = 1, 1
    while number <= calls:
        one = small(refusal=refusal, fail_on=number)
        calls = work(one)
        one.check()
        assert one.device.managers()
        end(one)
        assert [] == one.plugin.ranges(0)
        one.registry.close()
        number += 1
    assert number > 15


def test_the_same_call_is_refused_again() -> None:
    """Two and three refusals one after the other: those of the retries too."""
    for first in range(1, 20):
        for length in (2, 3):
            one = small(fail_on=range(first, first + length))
            work(one)
            one.check()
            end(one)
            assert [] == one.plugin.ranges(0)
            one.registry.close()


@pytest.mark.parametrize("what", ["misaligned", "overlapping", "live", "raise"])
def test_each_allocate_call_misbehaves_in_turn(what: str) -> None:
    """Whichever call breaks the contract: an error, nothing lost that was good, nothing given back twice."""
    number, calls = 1, 1
    while number <= calls:
        one = small(misbehave={number: what}, min_alignment=64)
        calls = work(one, second="device")  # a manager knows its own blocks only
        one.check()
        end(one)
        assert [] == one.plugin.ranges(0)
        one.registry.close()
        number += 1
    assert number > 15


def test_each_release_call_fails_in_turn() -> None:
    """A block that the device would not take back is lost to the device, and to nobody else."""
    number, calls = 1, 1
    while number <= calls:
        one = small(fail_release_on=number)
        work(one)
        end(one)
        calls = sum(call.method == "release" for call in one.plugin.calls)
        assert 1 == len(one.plugin.ranges(0))
        for manager in one.device.managers():
            manager.check()
        one.registry.close()
        number += 1
    assert number > 10
