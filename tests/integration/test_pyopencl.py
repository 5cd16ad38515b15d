"""PyOpenCL's arrays on memory from a manager: results, reuse in the queue's order, limits, the end."""

from __future__ import annotations

import gc
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

cl = pytest.importorskip("pyopencl", reason="no PyOpenCL: pip install 'targetmem[opencl]'")
np = pytest.importorskip("numpy")
array = pytest.importorskip("pyopencl.array")

from targetmem.errors import ConfigError, OutOfDeviceMemory, PluginError  # noqa: E402
from targetmem.integrations.pyopencl import Allocator  # noqa: E402


@pytest.fixture
def queue() -> Iterator[Any]:
    """Give a queue of a context of PyOpenCL's own."""
    try:
        devices = [device for platform in cl.get_platforms() for device in platform.get_devices()]
    except cl.Error as error:
        pytest.skip(f"no OpenCL runtime: {error}")
    yield cl.CommandQueue(cl.Context(devices[:1]))
    gc.collect()


@pytest.mark.parametrize("options", [{}, {"svm": False}, {"svm": True}, {"fine": True}], ids=str)
def test_arrays_compute_what_numpy_computes(queue: Any, options: dict[str, Any]) -> None:
    """Temporaries of every size are right, and most of them come from memory that was freed."""
    allocator = Allocator(queue, **options)
    for size in (1, 7, 1000, 1 << 18):
        host = np.arange(size, dtype="f4")
        a, b = (array.to_device(queue, host + n, allocator=allocator) for n in range(2))
        for _ in range(20):
            result = a * b + a - 1
        assert np.allclose(host * (host + 1) + host - 1, result.get())
    stats = allocator.stats()
    assert stats.hit_rate > 0.9
    del a, b, result
    assert 0 == allocator.stats().live_blocks
    assert stats.cached.now <= allocator.trim() + stats.live.now


def test_a_freed_block_is_used_again_in_the_queues_order(queue: Any) -> None:
    """Memory is handed out again while kernels on it are under way, and no result is lost."""
    allocator = Allocator(queue, svm=True)
    x = array.to_device(queue, np.ones(1 << 16, "f4"), allocator=allocator)
    seen = set()
    for n in range(200):
        y = x + n
        seen.add(int(y.base_data.svm_ptr))
        x, y = (y - n) * 1, None
    assert (1 == x.get()).all()
    assert len(seen) < 10


def test_memory_goes_back_when_the_queue_is_done(queue: Any) -> None:
    """Trim waits for the queue, then OpenCL has the memory again."""
    allocator = Allocator(queue)
    array.zeros(queue, 1000, "f4", allocator=allocator)
    gc.collect()
    assert (4000, 1) == (allocator.stats().held.now, allocator.stats().cached_blocks)
    assert 4000 == allocator.trim()
    assert (0, 1) == (allocator.stats().held.now, allocator.stats().device_releases)
    assert {} == allocator._device._memory


@pytest.mark.parametrize("svm", [False, True])
def test_an_object_is_used_again_with_its_block(queue: Any, svm: bool) -> None:
    """What somebody gave the object is gone, and it is not the object of two blocks."""
    allocator = Allocator(queue, svm=svm)
    first = allocator(4096)
    first.note, number = allocator, id(first)
    del first
    again = allocator(4096)
    assert number == id(again)
    assert not hasattr(again, "note")
    assert isinstance(again, cl.SVM if svm else cl.Buffer)
    assert len({id(again), *(id(each) for each in [allocator(4096) for _ in range(9)])}) == 10


@pytest.mark.parametrize("svm", [False, True])
def test_more_blocks_than_places_for_their_objects(queue: Any, svm: bool) -> None:
    """Objects that find no place die, and all memory goes back."""
    allocator = Allocator(queue, svm=svm)
    for _ in range(2):
        objects = [allocator(64) for _ in range(9000)]
        assert 9000 == allocator.stats().live_blocks
        kind = type(objects[0])
        del objects
        assert 0 == allocator.stats().live_blocks
    assert 9000 * 64 == allocator.trim()
    assert {} == allocator._device._memory
    allocator.manager.check()
    assert not [each for each in gc.get_objects() if type(each) is kind]


@pytest.mark.parametrize("svm", [False, True])
def test_objects_in_cycles_are_collected(queue: Any, svm: bool) -> None:
    """The garbage collector takes objects apart that are in a cycle; their blocks are free then, once."""
    allocator = Allocator(queue, svm=svm)
    for turn in range(30):
        each = [allocator(100) for _ in range(5)]
        each[0].cycle = each
        del each
        if turn % 3 == 0:
            gc.collect()
    gc.collect()
    assert 0 == allocator.stats().live_blocks
    allocator.manager.check()
    assert {100} == {allocator(100).size for _ in range(3)}


def test_an_object_may_be_released_by_hand(queue: Any) -> None:
    """A released buffer refuses to be used, and its block serves the next request."""
    allocator = Allocator(queue, svm=False)
    released = allocator(4096)
    released.release()
    assert 0 == allocator.stats().live_blocks
    with pytest.raises(cl.LogicError):
        released.release()
    del released
    assert 4096 == allocator(4096).size
    assert 1 == allocator.stats().hits


def test_memory_outlives_its_allocator(queue: Any) -> None:
    """An array keeps what it needs alive."""
    x = array.to_device(queue, np.arange(1000, dtype="f4"), allocator=Allocator(queue))
    y = x + x
    del x
    assert np.arange(0, 2000, 2).tolist() == y.get().tolist()


def test_a_request_of_no_bytes(queue: Any) -> None:
    """OpenCL has no object of no bytes; an array without elements needs none."""
    allocator = Allocator(queue)
    with pytest.raises(ValueError, match="expected at least 1 byte, got 0"):
        allocator(0)
    assert 0 == array.zeros(queue, 0, "f4", allocator=allocator).nbytes


def test_settings_and_refusals(queue: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Settings are a manager's; a queue out of order, a wrong setting and too large an array are refused."""
    assert 100 == Allocator(queue, threshold=100).manager.threshold
    monkeypatch.setenv("TARGETMEM_OPENCL_0_THRESHOLD", "2K")
    with pytest.raises(ConfigError, match="cached_limit: expected"):
        Allocator(queue, cached_limit=0)
    with pytest.raises(OutOfDeviceMemory, match="pyopencl on"):
        Allocator(queue)(1 << 60)
    properties = cl.command_queue_properties.OUT_OF_ORDER_EXEC_MODE_ENABLE
    try:
        other = cl.CommandQueue(queue.context, properties=properties)
    except cl.Error:
        pytest.skip("the device has no queues that run out of order")
    with pytest.raises(ValueError, match="expected a queue that runs in order"):
        Allocator(other)


def test_a_device_without_the_memory(queue: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A device without shared virtual memory is an error that says so (a fake: PoCL has it)."""
    monkeypatch.setattr("targetmem.plugins.opencl_device._svm", lambda _device: 0)
    for fine in (False, True):
        with pytest.raises(PluginError, match="expected a device with"):
            Allocator(queue, fine=fine)


def test_arrays_alive_at_exit() -> None:
    """Arrays that are alive when the interpreter ends do no harm."""
    code = (
        "import sys, numpy as np, pyopencl as cl, pyopencl.array as array\n"
        "from targetmem.integrations.pyopencl import Allocator\n"
        "queue = cl.CommandQueue(cl.Context(cl.get_platforms()[0].get_devices()))\n"
        "allocator = Allocator(queue)\n"
        "x = sys.x = array.to_device(queue, np.ones(1000), allocator=allocator)\n"
        "y = x + x; sys.z = y * 2; print(y.get().sum())\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (0, "2000.0\n") == (done.returncode, done.stdout), done.stderr
