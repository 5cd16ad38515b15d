"""Reuse at its edges: addresses that come back, kinds that must not mix, sizes that vary without end."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

from targetmem import MemoryManager
from targetmem.plugins.simulated import SimulatedPlugin
from tests.unit.registries import methods, registry_with

if TYPE_CHECKING:
    from collections.abc import Callable

    from targetmem._device import Device

KiB = 1 << 10


def a_device(**options: object) -> Device:
    """Give the first device of a simulated plugin with these options."""
    return registry_with(SimulatedPlugin(**options)).device("x:0")


@pytest.mark.parametrize("how", ["trim", "reclaim", "limit"])
def test_an_address_that_comes_back(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A block that went back is forgotten: its address, handed out again, is a block of the new size (M9)."""
    if how == "limit":
        monkeypatch.setenv("TARGETMEM_CACHED_LIMIT", "4K")
    device = a_device(capacity=8 * KiB)
    small = device.allocate(64)
    address = small.pointer
    small.release()
    ways: dict[str, Callable[[], object]] = {
        "trim": device.memory.trim,
        "reclaim": lambda: device.allocate(8 * KiB).release(),
        "limit": lambda: device.allocate(4 * KiB).release(),
    }
    ways[how]()
    device.memory.trim()
    large = device.allocate(4 * KiB)
    assert (address, 4 * KiB) == (large.pointer, large.size)
    large.release()
    other = device.allocate(64)  # the original gave the large block's address here, or 4 KiB from a small one
    assert other.pointer >= address + 4 * KiB
    assert [(address, 4 * KiB), (other.pointer, 64)] == [(b.address, b.size) for b in device.memory.blocks()]
    assert address == device.allocate(4 * KiB).pointer
    device.memory.check()


def test_kinds_share_no_block() -> None:
    """A cached block of one kind serves no request of another, and each goes back as what it is."""
    plugin = SimulatedPlugin()
    registry = registry_with(plugin)
    device = registry.device("x:0")
    first = {kind: device.allocate(100, kind=kind) for kind in ("device", "host", "shared")}
    addresses = {kind: buffer.pointer for kind, buffer in first.items()}
    for buffer in first.values():
        buffer.release()
    again = {kind: device.allocate(100, kind=kind) for kind in ("shared", "device", "host")}
    assert addresses == {kind: again[kind].pointer for kind in addresses}
    assert 3 == methods(plugin).count("allocate")
    assert 3 == len(set(addresses.values()))
    with pytest.raises(ValueError, match="another manager"):
        device.memory.free(again["host"])
    registry.close()
    released = {call.arguments[3]: call.arguments[1] for call in plugin.calls if call.method == "release"}
    assert addresses == released


def test_hits_call_nobody_and_other_sizes_do() -> None:
    """Any number of requests of a cached size needs no call; a size that is one byte off needs one."""
    plugin = SimulatedPlugin()
    device = registry_with(plugin).device("x:0")
    device.allocate(1000).release()
    calls, nanoseconds = len(plugin.calls), device.memory.counters().device_nanoseconds
    for _ in range(1000):
        device.allocate(1000).release()
    assert calls == len(plugin.calls)
    assert nanoseconds == device.memory.counters().device_nanoseconds
    many = [device.allocate(1000) for _ in range(300)]  # more than the thread keeps for itself
    many.clear()
    calls = len(plugin.calls)
    for size in (999, 1001):
        device.allocate(size).release()
    assert calls + 2 == len(plugin.calls)


def test_growth_is_bounded_by_the_limit() -> None:
    """However the sizes vary, what is held never passes what is live and the limit together."""
    plugin = SimulatedPlugin()
    plugin.init()
    manager = MemoryManager(
        lambda size, alignment: plugin.allocate(0, size, "device", alignment),
        lambda address, size: plugin.release(0, address, size, "device"),
        cached_limit=64 * KiB,
    )
    generator = random.Random(5)
    live = []
    for _ in range(5000):
        live.append(manager.allocate(generator.randint(1, 9000)))
        if len(live) > 10:
            live.pop(generator.randrange(10))
        counters = manager.counters()
        assert counters.held.now <= counters.live.now + 64 * KiB
        assert counters.held.now == sum(size for _, size in plugin.ranges(0))
    assert manager.counters().held.peak <= 64 * KiB + 11 * 9000


def test_growth_without_a_limit_ends_at_the_device() -> None:
    """Without a limit, sizes that never come again fill the device and no more: no request is refused."""
    device = a_device(capacity=256 * KiB)
    for size in range(1, 8192, 3):
        device.allocate(size).release()
    counters = device.memory.counters()
    assert counters.reclaims > 0
    assert counters.held.peak <= 256 * KiB
    assert 0 == counters.live_blocks


def test_a_refused_request_raises_no_peak() -> None:
    """Whatever sizes share a place in the thread's cache: what was not handed out never counted as live."""
    device = a_device(capacity=8 * KiB)
    for size in range(1, 129):
        device.allocate(size).release()
        with pytest.raises(MemoryError):
            device.allocate(8 * KiB + 1)
    assert (128, 128) == (device.memory.counters().live.peak, device.memory.counters().requested.peak)
