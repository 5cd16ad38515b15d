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


@pytest.mark.parametrize("fine", [False, True])
def test_arrays_compute_what_numpy_computes(queue: Any, fine: bool) -> None:
    """Temporaries of every size are right, and most of them come from memory that was freed."""
    allocator = Allocator(queue, fine=fine)
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
    allocator = Allocator(queue)
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
