"""Mapped data on queues, from many threads, in thousands of ranges, and when the device closes."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest

from targetmem.errors import DeviceClosed
from targetmem.plugins.host import HostPlugin
from targetmem.plugins.simulated import SimulatedPlugin
from tests.integration.mapped import on_device, poke
from tests.unit.registries import registry_with

if TYPE_CHECKING:
    from collections.abc import Iterator

    from targetmem._device import Device

np = pytest.importorskip("numpy")


@pytest.fixture(params=[HostPlugin, SimulatedPlugin])
def device(request: pytest.FixtureRequest) -> Iterator[Device]:
    """Give a device of the host and a simulated one; at the end nothing may be live."""
    registry = registry_with(request.param())
    found = registry.device("x:0")
    yield found
    if not found.closed:
        assert 0 == found.memory.counters().live_blocks
    registry.close()


def test_a_queue_delays_copies_and_deletion() -> None:
    """On a queue the copies are made, and the mapping is deleted, when it is synchronised; not earlier."""
    registry = registry_with(SimulatedPlugin())
    device = registry.device("x:0")
    a = np.full(64, 1, "u1")
    with device.queue() as queue:
        device.enter(to=a, queue=queue)
        image = device.load(lambda x: np.add(x, 1, out=x))
        device.run(image["<lambda>"], a, queue=queue)
        device.exit(from_=a, queue=queue)
        assert (1, 1) == (a[0], device.memory.counters().live_blocks)
        queue.synchronize()
        assert (2, 0) == (a[0], device.memory.counters().live_blocks)
        device.enter(to=a, queue=queue)
        device.exit(from_=a, queue=queue)
        a[:] = 5
        device.enter(to=a, queue=queue)  # revived before it was gone, and copied again
        queue.synchronize()
        assert [1] == [row.dynamic for row in device.present_table()]
        device.exit(release=a)
    assert [] == device.present_table()
    registry.close()


def test_threads_map_the_same_and_their_own(device: Device) -> None:
    """Threads that enter and leave the same and different arrays at once lose no byte and leave nothing."""
    shared = np.arange(5000, dtype="i4")
    failures: list[BaseException] = []

    def work(number: int) -> None:
        try:
            own = np.full(3000, number, "i4")
            for step in range(30):
                with device.map(to=shared, tofrom=own):
                    assert (on_device(device, shared) == np.arange(5000)).all()
                    poke(device, own, step)
                assert (own.view("u1") == step).all()
        except BaseException as error:  # noqa: BLE001 - told below
            failures.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [] == failures
    assert [] == device.present_table()


def test_many_ranges(device: Device) -> None:
    """Thousands of ranges are found, listed in order and left in any order."""
    whole = np.zeros(1 << 16, "u1")
    parts = [whole[at : at + 10] for at in range(0, 1 << 16, 16)]
    rng = np.random.default_rng(1)
    for at in rng.permutation(len(parts)):
        device.enter(to=parts[at])
    rows = device.present_table()
    assert [part.ctypes.data for part in parts] == [row.host for row in rows]
    for at in rng.permutation(len(parts)):
        assert device.is_present(parts[at][3:])
        device.exit(release=parts[at])
    assert [] == device.present_table()


def test_closing_a_device_with_mapped_data(device: Device) -> None:
    """A device that is closed gives mapped memory back, and refuses."""
    a = np.zeros(100)
    device.enter(to=a)
    device.close()
    assert 0 == device.memory.counters().live_blocks
    for call in (lambda: device.enter(to=a), lambda: device.exit(from_=a), lambda: device.mapped_pointer(a)):
        with pytest.raises(DeviceClosed):
            call()
