"""The asynchronous routines of `targetmem.omp`: order by dependences, errors, lifetimes."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading
import weakref
from typing import TYPE_CHECKING

import numpy as np
import pytest

from targetmem import omp
from targetmem.errors import PluginError, UnknownDevice
from targetmem.omp import tasks
from tests.unit.omp_devices import FIRST, HOST, INITIAL, use
from tests.unit.registries import forked

if TYPE_CHECKING:
    from collections.abc import Iterator

    from targetmem.plugins.simulated import SimulatedPlugin

WAIT = 60  # seconds: longer than anything here takes; a hang fails


@pytest.fixture(autouse=True)
def plugin(monkeypatch: pytest.MonkeyPatch) -> Iterator[SimulatedPlugin]:
    """Number host and simulated devices."""
    registry, plugin = use(monkeypatch)
    yield plugin
    omp.taskwait()
    registry.close()


class Gate:
    """A submit of a plugin that waits until it's opened; `inside` tells that one waits."""

    def __init__(self, plugin: SimulatedPlugin, monkeypatch: pytest.MonkeyPatch) -> None:
        self.open, self.inside = threading.Event(), threading.Semaphore(0)
        self._submit = plugin.submit
        monkeypatch.setattr(plugin, "submit", self.submit)

    def submit(self, device: int, target: int, host: int, size: int, queue: object | None = None) -> None:
        """Wait, then do it."""
        self.inside.release()
        assert self.open.wait(WAIT)
        self._submit(device, target, host, size, queue)


def there() -> int:
    """Give 8 bytes of the first simulated device."""
    pointer = omp.omp_target_alloc(8, FIRST)
    assert pointer is not None
    return pointer


def begin(to: int | bytearray, source: int | bytes, *depends: omp.Depend, back: bool = False) -> None:
    """Begin a copy of 8 bytes to the device, or back."""
    numbers = (INITIAL, FIRST) if back else (FIRST, INITIAL)
    assert 0 == omp.omp_target_memcpy_async(to, source, 8, 0, 0, *numbers, len(depends), depends)


def test_a_copy_waits_for_those_it_depends_on(
    plugin: SimulatedPlugin, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A chain out, in, through one place runs in order though the first is held up; others overtake it."""
    gate = Gate(plugin, monkeypatch)
    pointer, back, free = there(), bytearray(8), bytearray(8)
    begin(pointer, b"12345678", omp.Depend("out", pointer))
    begin(back, pointer, omp.Depend("in", pointer), back=True)
    assert gate.inside.acquire(timeout=WAIT)
    other = omp.Depend("out", free)
    assert 0 == omp.omp_target_memcpy_async(free, b"overtake", 8, 0, 0, INITIAL, HOST, 1, [other])
    omp.taskwait([other])
    assert (b"overtake", bytes(8)) == (bytes(free), bytes(back))
    gate.open.set()
    omp.taskwait()
    assert b"12345678" == bytes(back)


@pytest.mark.parametrize("kind", ["in", "inoutset"])
def test_tasks_of_a_set_run_at_once(
    plugin: SimulatedPlugin, monkeypatch: pytest.MonkeyPatch, kind: tasks.Kind
) -> None:
    """Two that only read one place are inside the plugin together."""
    gate = Gate(plugin, monkeypatch)
    place = omp.Depend(kind, bytearray(1))
    begin(there(), bytes(8), place)
    begin(there(), bytes(8), place)
    assert gate.inside.acquire(timeout=WAIT)
    assert gate.inside.acquire(timeout=WAIT)
    gate.open.set()
    omp.taskwait()


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("in", "out"),
        ("out", "in"),
        ("inout", "inout"),
        ("in", "inoutset"),
        ("mutexinoutset", "mutexinoutset"),
    ],
)
def test_pairs_that_run_one_after_the_other(first: tasks.Kind, second: tasks.Kind) -> None:
    """The second of these waits for the first; seen from the tables, without threads."""
    place = tasks._Place()
    one, two = tasks._Task(tasks._nothing), tasks._Task(tasks._nothing)
    assert [] == place.join(first, one)
    assert [one] == place.join(second, two)


def test_a_writer_waits_for_all_readers() -> None:
    """Two readers, then a writer, then a reader."""
    place = tasks._Place()
    write, a, b, again, last = (tasks._Task(tasks._nothing) for _ in range(5))
    assert [] == place.join("out", write)
    assert [write] == place.join("in", a) == place.join("in", b)
    assert [a, b] == place.join("out", again)
    assert [again] == place.join("in", last)


def test_a_long_chain_keeps_its_order() -> None:
    """Each of 2000 copies moves the byte that the one before it wrote."""
    count = 2000
    bytes_ = bytearray([7]) + bytearray(count)
    chain = [omp.Depend("inout", bytes_)]
    for i in range(count):
        assert 0 == omp.omp_target_memcpy_async(bytes_, bytes_, 1, i + 1, i, INITIAL, HOST, 1, chain)
    omp.taskwait()
    assert bytes([7]) * (count + 1) == bytes(bytes_)


def test_an_error_is_raised_by_the_wait_once() -> None:
    """A copy that fails has no code any more; the rest goes on, the wait raises, the next one doesn't."""
    pointer, chain = there(), [omp.Depend("inout", bytearray(1))]
    begin(1 << 60, bytes(8), *chain)
    begin(pointer, b"12345678", *chain)
    with pytest.raises(PluginError):
        omp.taskwait()
    omp.taskwait()
    back = bytearray(8)
    assert 0 == omp.omp_target_memcpy(back, pointer, 8, 0, 0, INITIAL, FIRST)
    assert b"12345678" == bytes(back)


def test_a_task_keeps_its_arrays(plugin: SimulatedPlugin, monkeypatch: pytest.MonkeyPatch) -> None:
    """The source lives until it is copied, and no longer."""
    gate = Gate(plugin, monkeypatch)
    array = np.full(8, 5, np.uint8)
    alive, pointer = weakref.ref(array), there()
    assert 0 == omp.omp_target_memcpy_async(pointer, array, 8, 0, 0, FIRST, INITIAL)
    del array
    gc.collect()
    assert alive() is not None
    gate.open.set()
    omp.taskwait()
    gc.collect()
    assert alive() is None


def test_what_is_wrong_at_once_is_told_at_once() -> None:
    """Null is refused, a wrong number or a wrong list of dependences raises, before any task is made."""
    one, depend = bytearray(1), omp.Depend("in", bytearray(1))
    assert -1 == omp.omp_target_memcpy_async(None, one, 0, 0, 0, INITIAL, INITIAL)
    assert -1 == omp.omp_target_memcpy_async(one, 0, 1, 0, 0, INITIAL, INITIAL)
    with pytest.raises(UnknownDevice):
        omp.omp_target_memcpy_async(one, one, 1, 0, 0, 99, INITIAL)
    with pytest.raises(ValueError, match=r"expected 2 depend objects \(depobj_count\), got 1"):
        omp.omp_target_memcpy_async(one, one, 1, 0, 0, INITIAL, INITIAL, 2, [depend])
    with pytest.raises(TypeError, match=r"expected omp\.Depend objects, got int"):
        omp.omp_target_memset_async(one, 1, 1, INITIAL, 1, [3])  # type: ignore[list-item]
    with pytest.raises(ValueError, match="expected one of in, out, inout"):
        omp.Depend("sink", one)  # type: ignore[arg-type]


def test_memset_and_blocks_too() -> None:
    """The two other routines run as tasks; their order is that of the chain."""
    grid, chain = bytearray(16), [omp.Depend("inout", bytearray(1))]
    assert grid is omp.omp_target_memset_async(grid, 1, 16, INITIAL, 1, chain)
    shape = ((2, 2), (1, 1), (0, 0), (4, 4), (2, 2))
    assert 0 == omp.omp_target_memcpy_rect_async(
        grid, b"\x05\x06\x07\x08", 1, 2, *shape, INITIAL, HOST, 1, chain
    )
    omp.taskwait()
    assert [1, 1, 1, 1, 1, 5, 6, 1, 1, 7, 8, 1, 1, 1, 1, 1] == list(grid)


def test_an_empty_task_still_has_its_place_in_the_order(
    plugin: SimulatedPlugin, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A copy of 0 bytes that depends on two places ties them together."""
    gate = Gate(plugin, monkeypatch)
    one, two, back = omp.Depend("inout", bytearray(1)), omp.Depend("inout", bytearray(1)), bytearray(8)
    pointer = there()
    begin(pointer, b"12345678", one)
    assert 0 == omp.omp_target_memcpy_async(back, pointer, 0, 0, 0, INITIAL, FIRST, 2, [one, two])
    begin(back, pointer, two, back=True)
    assert 1 == tasks._tasks.at([two.address])[-1].blockers
    gate.open.set()
    omp.taskwait()
    assert b"12345678" == bytes(back)


def test_a_forked_child_has_tasks_of_its_own() -> None:
    """The threads stay with the parent; the child starts others, and waits for nothing of the parent's."""
    copied = bytearray(8)
    assert 0 == omp.omp_target_memcpy_async(copied, b"12345678", 8, 0, 0, INITIAL, INITIAL)
    omp.taskwait()

    def work() -> None:
        omp.taskwait()
        assert 0 == omp.omp_target_memcpy_async(copied, b"87654321", 8, 0, 0, INITIAL, INITIAL)
        omp.taskwait()
        assert b"87654321" == bytes(copied)

    assert 0 == forked(work)


def test_tasks_are_done_before_the_interpreter_ends() -> None:
    """A program that doesn't wait still ends well, with every copy of a chain made."""
    code = """
import atexit
from targetmem import omp
a = bytearray([7]) + bytearray(5000)
atexit.register(lambda: print(sum(a)))
chain = [omp.Depend("inout", a)]
for i in range(5000):
    omp.omp_target_memcpy_async(a, a, 1, i + 1, i, -1, -1, 1, chain)
"""
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (0, "35007\n", "") == (result.returncode, result.stdout, result.stderr)
