"""Mapped data on queues, from many threads, in thousands of ranges, and when the device closes."""

from __future__ import annotations

import threading
import weakref
from typing import TYPE_CHECKING, Any

import pytest

from targetmem.errors import DeviceClosed, MappingError
from targetmem.plugins.host import HostPlugin
from targetmem.plugins.simulated import SimulatedPlugin
from targetmem.queue import Queue
from tests.integration.mapped import on_device, poke
from tests.unit.registries import forked, in_threads, registry_with

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

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


# --- queues that meet each other ---


class Eager(Queue):
    """A queue that another thread synchronises at the worst moment: whenever an action is deferred."""

    def defer(self, action: Callable[[], object]) -> None:
        """Take the action at once."""
        super().defer(action)
        self.synchronize()


@pytest.fixture
def simulated() -> Iterator[Device]:
    """Give a simulated device, whose queues do nothing before they are synchronised."""
    registry = registry_with(SimulatedPlugin())
    yield registry.device("x:0")
    registry.close()


def test_a_region_on_a_queue_is_waited_for(simulated: Device) -> None:
    """Whoever ends a mapping that a region on a queue uses waits for the region: its results come back."""
    a = np.full(64, 1, "u1")
    image = simulated.load(lambda x: np.add(x, 1, out=x))
    simulated.enter(to=a)
    with simulated.queue() as queue:
        simulated.run(image["<lambda>"], a, queue=queue)
        simulated.exit(from_=a)
        assert 2 == a[0]
    assert [] == simulated.present_table()


def test_one_queue_waits_for_the_other(simulated: Device) -> None:
    """Work on a second queue, or on none, has the first queue's work on the same range done before."""
    a = np.full(64, 1, "u1")
    with simulated.queue() as first, simulated.queue() as second:
        simulated.enter(to=a, queue=first)
        image = simulated.load(lambda x: np.add(x, 1, out=x))
        simulated.run(image["<lambda>"], a, queue=second)
        assert 2 == on_device(simulated, a)[0]  # looks the address up: the second is done as well
        simulated.exit(from_=a, queue=first)
        simulated.enter(to=a, queue=second)  # the first is done, and the range is mapped anew
        assert 2 == a[0]
        simulated.exit(release=a)
    assert [] == simulated.present_table()


def test_a_queue_that_is_synchronised_meanwhile(simulated: Device) -> None:
    """A queue that others synchronise at any moment leaves no mapping behind, and none waits in vain."""
    a = np.full(64, 1, "u1")
    queue = Eager(simulated)
    image = simulated.load(lambda x: np.add(x, 1, out=x))
    simulated.enter(to=a, queue=queue)
    simulated.run(image["<lambda>"], a, queue=queue)
    simulated.update(to=a, queue=queue)
    simulated.exit(from_=a, queue=queue)
    queue.synchronize()
    assert ([], 0) == (simulated.present_table(), simulated.memory.counters().live_blocks)
    queue.close()


def test_dates_on_a_queue(simulated: Device) -> None:
    """Memory that the buffer protocol has no format for goes on queues too."""
    a = np.zeros(4, "M8[s]")
    with simulated.queue() as queue:
        simulated.enter(to=a, queue=queue)
        queue.synchronize()
        a[:] = 9
        simulated.exit(from_=a, queue=queue)
    assert (a == np.zeros(4, "M8[s]")).all()


# --- what the table holds ---


def test_a_mapping_holds_its_array(device: Device) -> None:
    """An array that is mapped or associated stays where it is until that ends, even if nobody else has it."""
    buffer = device.allocate(80)
    ways: list[tuple[Callable[[Any], None], Callable[[Any], None]]] = [
        (lambda x: device.enter(to=x), lambda x: device.exit(release=x)),
        (lambda x: device.associate(x, buffer), device.disassociate),
    ]
    for begin, end in ways:
        array = np.zeros(10)
        view, gone = array[:], weakref.ref(array)
        begin(array)
        del array, view
        assert gone() is not None
        end(gone())
        assert gone() is None
    buffer.release()


def test_an_interrupt_inside_the_device() -> None:
    """Ctrl-C inside a plugin's allocate or release reaches the program, and the table is as before."""

    class Interrupted(SimulatedPlugin):
        """Gets a Ctrl-C in the calls of one method."""

        method = ""

        def _begin(self, method: str, *arguments: object, ready: bool = True) -> Any:
            call = super()._begin(method, *arguments, ready=ready)
            if method == self.method:
                self.method = ""
                raise KeyboardInterrupt
            return call

    plugin = Interrupted(threshold=0)
    registry = registry_with(plugin)
    device = registry.device("x:0")
    a = np.zeros(10)
    for method in ("allocate", "submit"):
        device.present_table()
        plugin.method = method
        with pytest.raises(KeyboardInterrupt):
            device.enter(to=a)
        assert ([], 0) == (device.present_table(), device.memory.counters().live_blocks)
    device.enter(to=a)
    plugin.method = "retrieve"
    with pytest.raises(KeyboardInterrupt):
        device.exit(from_=a)
    assert [1] == [row.dynamic for row in device.present_table()]
    device.exit(from_=a)
    registry.close()


def test_a_fork_while_an_array_is_mapped() -> None:
    """What a thread of the parent was just mapping is never ready in the child: an error, and no hang."""

    class Forking(SimulatedPlugin):
        """Forks inside its first copy."""

        fork_safe = True
        status = -1

        def submit(self, *arguments: Any, **options: Any) -> None:
            if self.status == -1:
                self.status = forked(lambda: in_threads(1, in_the_child).remove(True))
            super().submit(*arguments, **options)

    def in_the_child() -> bool:
        with pytest.raises(MappingError, match="by the parent when this process was forked"):
            device.enter(to=a)
        return True

    plugin = Forking()
    registry = registry_with(plugin)
    device = registry.device("x:0")
    a = np.zeros(10)
    device.enter(to=a)
    assert 0 == plugin.status
    device.exit(release=a)
    registry.close()
