"""Mapped data: counts, transfers, overlaps, strided views, and constructs that fail halfway (D1 to D8)."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any

import pytest

from targetmem.errors import MappingError, NotSupported, OutOfDeviceMemory, PluginError
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


def test_data_goes_there_and_back(device: Device) -> None:
    """`to` is copied when it enters, `from_` when the last count goes; in between the two are apart."""
    a = np.arange(1000, dtype="i4")
    assert not device.is_present(a)
    device.enter(to=a)
    assert device.is_present(a)
    assert (a == on_device(device, a)).all()
    a[:] = 0
    assert 999 == on_device(device, a)[-1]
    device.exit(from_=a)
    assert (np.arange(1000) == a).all()
    assert not device.is_present(a)
    with pytest.raises(MappingError, match=r"not mapped: device.enter\(to=\[...\]\) maps it"):
        device.mapped_pointer(a)


def test_counts(device: Device) -> None:
    """What is mapped already is counted and not copied, unless always; the last exit copies and deletes."""
    a = np.zeros(10, "u1")
    device.enter(to=a)
    target = device.mapped_pointer(a)
    a[:] = 1
    device.enter(to=a[2:5])
    assert 0 == on_device(device, a).sum()
    assert target + 2 == device.mapped_pointer(a[2:5])
    device.enter(to=a, always=True)
    assert 10 == on_device(device, a).sum()
    assert [(3, 0)] == [(row.dynamic, row.hold) for row in device.present_table()]
    poke(device, a, 7)
    device.exit(from_=a)
    assert 1 == a[0]
    device.exit(from_=a, always=True)
    assert 7 == a[0]
    device.exit(delete=a)
    assert [] == device.present_table()


def test_delete_and_hold(device: Device) -> None:
    """Delete takes every dynamic count, yet what is held stays until the hold goes."""
    a = np.zeros(4, "u1")
    device.enter(to=a, hold=True)
    for _ in range(3):
        device.enter(to=a)
    device.exit(delete=a)
    assert [(0, 1)] == [(row.dynamic, row.hold) for row in device.present_table()]
    device.exit(release=a)
    assert device.is_present(a)
    device.exit(release=a, hold=True)
    assert not device.is_present(a)
    device.exit(release=a, from_=[], delete=a)  # what is not mapped is passed over


def test_overlaps_and_presence(device: Device) -> None:
    """A mapped part is an error that gives both ranges; touching is none; `present` wants the whole."""
    a = np.zeros(100, "u1")
    device.enter(to=a[10:20])
    for part in (a[5:15], a[15:25], a[:], a[9:11]):
        with pytest.raises(MappingError, match=r"enter: to: .* of which a part is mapped: 10 bytes at 0x"):
            device.enter(to=part)
    device.enter(to=[a[:10], a[20:]])
    with pytest.raises(MappingError, match="expected memory that is present on the device"):
        device.enter(to=np.zeros(5), present=True)
    with pytest.raises(MappingError, match=r"exit: release\[1\]: expected memory that is present"):
        device.exit(release=[a[:10], np.zeros(5)], present=True)
    assert 3 == len(device.present_table())
    device.enter(to=a[15:25], implicit=True)
    device.exit(release=a[15:25], implicit=True)
    device.exit(release=[a[:10], a[10:20], a[20:]])


def test_update(device: Device) -> None:
    """Update copies and counts nothing; what is not mapped is passed over, or an error with `present`."""
    a, other = np.zeros(10, "u1"), np.zeros(3, "u1")
    with device.map(alloc=a):
        a[:] = 5
        device.update(to=[a[:5], other])
        assert 25 == on_device(device, a)[:5].sum()
        poke(device, a, 9)
        device.update(from_=a[5:])
        assert [5] * 5 + [9] * 5 == a.tolist()
        assert 1 == device.present_table()[0].dynamic
        with pytest.raises(MappingError, match=r"update: from_: expected memory that is present"):
            device.update(from_=other, present=True)


@pytest.mark.parametrize(
    "pick",
    [
        lambda a: a[::2],
        lambda a: a[:, 1:3],
        lambda a: a[::-1, ::3],
        lambda a: a.T,
        lambda a: a[1:5, ::2].T,
        lambda a: a[3:4],
    ],
    ids=["rows", "columns", "backwards", "transposed", "part transposed", "dense"],
)
def test_strided_views(device: Device, pick: Any) -> None:
    """Of a strided view the elements are copied; the gaps on the host are never written."""
    a = np.arange(48, dtype="i4").reshape(6, 8)
    before, view = a.copy(), pick(a)
    expected = view * 3
    with device.map(tofrom=view):
        image = device.load(lambda x: np.multiply(x, 3, out=x))
        device.run(image["<lambda>"], view)
        a += 1000
    assert (expected == view).all()
    untouched = np.ones(a.shape, bool)
    pick(untouched)[...] = False
    assert (before[untouched] + 1000 == a[untouched]).all()


def test_what_can_be_mapped(device: Device) -> None:
    """What has the buffer protocol can be mapped; other things, objects and read-only memory are errors."""
    things: list[Any] = [
        bytearray(b"abc"),
        (ctypes.c_int * 4)(1, 2, 3, 4),
        memoryview(bytearray(9)),
        np.array(5.0),
    ]
    device.enter(to=things)
    device.exit(from_=things)
    assert [1, 2, 3, 4] == list(things[1])
    with pytest.raises(TypeError, match=r"enter: to\[1\]: expected an array .* got int"):
        device.enter(to=[things[0], 5])
    with pytest.raises(MappingError, match="Python objects"):
        device.enter(to=np.array([None]))
    device.enter(to=b"read-only")
    with pytest.raises(MappingError, match="expected memory that the host can write"):
        device.exit(from_=b"read-only")
    device.exit(release=device.present_table() and b"read-only")
    device.enter(to=np.zeros(0))
    assert [] == device.present_table()


def test_regions_see_mapped_arrays(device: Device) -> None:
    """A mapped array is an argument with its type and shape; one that isn't mapped is an error."""

    def add(x: Any, y: Any, factor: float) -> None:
        x += factor * y

    entry = device.load(add)["add"]
    x, y = np.ones((3, 4), "f4"), np.full((3, 4), 2, "f4")
    with device.map(tofrom=x, to=y):
        device.run(entry, x, y, 10.0)
        device.run(entry, x[1], y[2], 1.0)
    assert (21 == x[0]).all()
    assert (23 == x[1]).all()
    with (
        pytest.raises(MappingError, match=r"add: argument 1: expected an array that is mapped; device.enter"),
        device.map(to=x),
    ):
        device.run(entry, x, y, 1.0)


def test_associated_memory(device: Device) -> None:
    """Associated memory is the caller's, counts without end, and is only ended by disassociate."""
    a, buffer = np.arange(16, dtype="u1"), device.allocate(32)
    device.associate(a, buffer, 8)
    device.associate(a, buffer, 8)
    assert buffer.pointer + 8 == device.mapped_pointer(a)
    for part, offset in ((a, 0), (a[4:], 8)):
        with pytest.raises(MappingError, match="expected memory that is not mapped"):
            device.associate(part, buffer, offset)
    device.enter(to=a)
    device.exit(delete=a)
    device.update(to=a)
    assert (a == on_device(device, a)).all()
    assert [(None, "associated")] == [(row.dynamic, row.memory) for row in device.present_table()]
    device.enter(to=a, hold=True)
    with pytest.raises(MappingError, match="got a hold count of 1"):
        device.disassociate(a)
    device.exit(release=a, hold=True)
    device.disassociate(a)
    with pytest.raises(MappingError, match="expected associated memory"):
        device.disassociate(a)
    device.enter(to=a)
    with pytest.raises(MappingError, match="a mapping of `enter`: use exit"):
        device.disassociate(a)
    device.exit(release=a)
    with pytest.raises(MappingError, match="expected a Buffer of 48 bytes or more, got one of 32"):
        device.associate(np.zeros(16, "u1"), buffer, 32)
    buffer.release()


class Node(ctypes.Structure):
    """A structure with a pointer."""

    _fields_ = (("count", ctypes.c_int), ("data", ctypes.c_void_p))


def test_attached_pointers(device: Device) -> None:
    """On the device the pointer leads to the device's memory, also after updates; the host keeps its own."""
    data = np.arange(4, dtype="i4")
    node = Node(4, data.ctypes.data)
    with device.map(tofrom=[node, data]):
        device.attach(node, "data", data)
        for _ in range(2):
            seen = np.empty(16, "u1")
            device.plugin.retrieve(device.index, seen.ctypes.data, device.mapped_pointer(node), 16)
            assert device.mapped_pointer(data) == seen.view("u8")[1]
            node.count += 1
            device.update(to=node)
        with pytest.raises(TypeError, match=r"expected a field of a ctypes structure \(count, data\)"):
            device.attach(node, "other", data)
        with pytest.raises(TypeError, match=r"expected a pointer, got Node\.count of 4 bytes"):
            device.attach(node, "count", data)
    assert (6, data.ctypes.data) == (node.count, node.data)


def test_unified_memory() -> None:
    """With unified memory the device uses the host's memory itself, unless `close` is asked for."""
    registry = registry_with(HostPlugin())
    device = registry.device("x:0")
    device.unified_memory = True
    a, b = np.zeros(8, "u1"), np.zeros(8, "u1")
    with device.map(to=a):
        assert a.ctypes.data == device.mapped_pointer(a)
        assert 0 == device.memory.counters().live_blocks
        with device.map(tofrom=b, close=True):
            assert b.ctypes.data != device.mapped_pointer(b)
    registry.close()
    registry = registry_with(SimulatedPlugin())
    with pytest.raises(NotSupported, match="expected a device that reaches the host's memory"):
        registry.device("x:0").unified_memory = True
    registry.close()


# --- constructs that fail ---


class Faulty(SimulatedPlugin):
    """Fails from the N-th call of a construct on: a refusal that the ladder could get over would be none."""

    fail_at = 0  # 0: never
    seen = 0

    def _begin(self, method: str, *arguments: object, ready: bool = True) -> Any:
        if self.fail_at and method in ("allocate", "submit", "retrieve"):
            self.seen += 1
            if self.seen >= self.fail_at:
                if method == "allocate":
                    raise MemoryError("planted")
                raise PluginError("planted", native=-7)
        return super()._begin(method, *arguments, ready=ready)


def state(device: Device) -> Any:
    """Give what a failed construct must leave as it was."""
    counters = device.memory.counters()
    return device.present_table(), counters.live.now, counters.live_blocks


def construct(device: Device, arrays: Any, method: str, queue: Any) -> None:
    """Make one of the constructs that will fail."""
    a, b, c, d = arrays
    if method == "enter":
        device.enter(to=[b, a, c], alloc=d, always=True, queue=queue)
    elif method == "exit":
        device.exit(from_=[a, b, c], delete=d, queue=queue)
    else:
        device.update(to=[a, b], from_=[c], queue=queue)


def fails_at(plugin: Faulty, method: str, at: int, *, queued: bool) -> bool:
    """Have a construct fail at a call and see that nothing changed; False when it makes fewer calls."""
    registry = registry_with(plugin)
    device = registry.device("x:0")
    arrays = [np.full(100 + i, i, "u1") for i in range(4)]
    device.enter(to=arrays[:1] if method == "enter" else arrays)
    if method != "enter":
        device.enter(to=arrays[1])
    before, queue, error = state(device), device.queue() if queued else None, None
    plugin.fail_at = at
    try:
        construct(device, arrays, method, queue)
    except (PluginError, OutOfDeviceMemory) as raised:
        error = raised
    plugin.fail_at = 0
    if error is not None:
        notes = getattr(error, "__notes__", ())
        assert ["targetmem: " + method] == [note.partition(": ")[0] + ": " + method for note in notes][:1]
        if queue is not None:
            queue.synchronize()
        assert before == state(device)
        assert device.table is not None
        device.table.check()
        construct(device, arrays, method, queue)  # and works the next time
    registry.close()
    return error is not None


@pytest.mark.parametrize("queued", [False, True])
@pytest.mark.parametrize("method", ["enter", "exit", "update"])
def test_a_failure_at_each_call_leaves_everything_as_it_was(method: str, queued: bool) -> None:
    """Whichever call to the device fails: table and memory are as before, the error names the argument."""
    at = 1
    while fails_at(Faulty(), method, at, queued=queued):
        at += 1
    assert 2 < at < 20


def test_an_unmapped_argument_in_the_middle(device: Device) -> None:
    """An error that needs no device undoes the construct as well."""
    a = np.zeros(8)
    with pytest.raises(MappingError, match=r"enter: to\[1\]: expected memory that is mapped as a whole"):
        device.enter(to=[a[:4], a])
    assert [] == device.present_table()
