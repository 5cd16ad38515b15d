"""`targetmem.install("pyopencl")`: arrays without an allocator get one, of their queue."""

from __future__ import annotations

import gc
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

import targetmem
from targetmem.errors import ConfigError, TargetMemoryError

if TYPE_CHECKING:
    from collections.abc import Iterator

cl = pytest.importorskip("pyopencl", reason="no PyOpenCL: pip install 'targetmem[opencl]'")
np = pytest.importorskip("numpy")
array = pytest.importorskip("pyopencl.array")


@pytest.fixture
def queue() -> Iterator[Any]:
    """Give a queue, and leave nothing installed."""
    try:
        devices = [device for platform in cl.get_platforms() for device in platform.get_devices()]
    except cl.Error as error:
        pytest.skip(f"no OpenCL runtime: {error}")
    yield cl.CommandQueue(cl.Context(devices[:1]))
    targetmem.uninstall("pyopencl")
    gc.collect()


def test_arrays_are_served_until_uninstall(queue: Any) -> None:
    """Arrays and what is computed from them; an allocator given by hand holds; then all is as it was."""
    constructor = array.Array.__init__
    memory = targetmem.install("pyopencl")
    assert memory is targetmem.install("pyopencl")
    x = array.to_device(queue, np.arange(1000, dtype="f4"))
    y = x * x + x
    assert [x.allocator] == [y.allocator] == memory.allocators
    assert (np.arange(1000, dtype="f4") ** 2 + np.arange(1000) == y.get()).all()
    assert memory.allocators[0].stats().allocations >= 3
    given = array.empty(queue, 10, "f4", allocator=lambda size: cl.Buffer(queue.context, 1, size))
    assert given.allocator not in memory.allocators
    targetmem.uninstall("pyopencl")
    targetmem.uninstall("pyopencl")
    assert array.Array.__init__ is constructor
    assert array.empty(queue, 10, "f4").allocator is None
    assert (y - x).allocator is x.allocator


def test_an_array_without_elements_and_one_over_given_data(queue: Any) -> None:
    """What needs no memory gets none."""
    with targetmem.pooled("pyopencl") as memory:
        assert 0 == array.empty(queue, 0, "f4").nbytes
        data = cl.Buffer(queue.context, cl.mem_flags.READ_WRITE, 40)
        over = array.Array(queue, 10, "f4", data=data)
        assert (data, None) == (over.base_data, over.allocator)
        served = over + over
        assert served.allocator is memory.allocators[0]


def test_blocks_nest_and_options_hold(queue: Any) -> None:
    """The inner block's memory serves; other options than those in force are refused."""
    outer = targetmem.install("pyopencl", threshold="1M")
    with targetmem.pooled("pyopencl", threshold="2K") as inner:
        assert 2048 == array.empty(queue, 10, "f4").allocator.manager.threshold
        with targetmem.pooled("pyopencl") as same:
            assert same is inner
    assert 1 << 20 == array.empty(queue, 10, "f4").allocator.manager.threshold
    assert outer is targetmem.install("pyopencl", threshold="1M")
    with pytest.raises(TargetMemoryError, match=r'call targetmem.uninstall."pyopencl". first'):
        targetmem.install("pyopencl", threshold=5)
    targetmem.uninstall("pyopencl")
    with pytest.raises(ConfigError, match="8X"):
        targetmem.install("pyopencl", threshold="8X")
    with pytest.raises(TypeError, match="expected an option of Allocator, got speed=5"):
        targetmem.install("pyopencl", speed=5)
    assert array.empty(queue, 10, "f4").allocator is None


def test_each_queue_has_its_own_and_the_oldest_goes(queue: Any) -> None:
    """Memory is never handed from one queue to another, and is not kept for every queue there ever was."""
    with targetmem.pooled("pyopencl") as memory:
        queues = [cl.CommandQueue(queue.context) for _ in range(20)]
        arrays = [array.zeros(each, 100, "f4") for each in queues]
        assert 20 == len({id(each.allocator) for each in arrays})
        assert 16 == len(memory.allocators)
        for each, found in zip(queues, arrays, strict=True):
            assert found.allocator.queue == each


def test_a_queue_out_of_order_is_left_alone(queue: Any) -> None:
    """Reuse in the order of a queue needs one."""
    properties = cl.command_queue_properties.OUT_OF_ORDER_EXEC_MODE_ENABLE
    try:
        other = cl.CommandQueue(queue.context, properties=properties)
    except cl.Error:
        pytest.skip("the device has no queues that run out of order")
    with targetmem.pooled("pyopencl") as memory:
        assert array.zeros(other, 10, "f4").allocator is None
        assert [] == memory.allocators


def test_without_pyopencl_the_error_says_what_to_install() -> None:
    """A missing library is an error of the install."""
    code = (
        "import sys; sys.modules['pyopencl'] = None\n"
        "import targetmem\n"
        "try: targetmem.install('pyopencl')\n"
        "except targetmem.errors.TargetMemoryError as error: print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert 'install it with pip install "targetmem[opencl]"' in done.stdout
