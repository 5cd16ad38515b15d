"""The OpenCL plugin on a real runtime: memory, limits, queues, programs, and its messages."""

from __future__ import annotations

import ctypes
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from targetmem.abc import TargetArray
from targetmem.errors import OutOfDeviceMemory, PluginError
from targetmem.plugins.opencl import OpenCLPlugin
from tests.unit.registries import registry_with

if TYPE_CHECKING:
    from collections.abc import Iterator

cl = pytest.importorskip("pyopencl", reason="no PyOpenCL: pip install 'targetmem[opencl]'")
np = pytest.importorskip("numpy")

SOURCE = """
__kernel void axpy(__global float *x, __global const float *y, float a, int n)
{
    int i = get_global_id(0);
    if (i < n) x[i] += a * y[i];
}
__kernel void number(__global int *out) { out[get_global_id(0)] = get_group_id(0) * 1000 + get_local_id(0); }
__kernel void small(__global int *out, uchar value) { out[0] = value; }
"""


@pytest.fixture
def plugin() -> Iterator[OpenCLPlugin]:
    """Give the plugin with its first device ready."""
    made = OpenCLPlugin()
    made.name = "opencl"
    try:
        made.init()
    except PluginError as error:
        pytest.skip(f"not available: {error}; {error.hint}")
    made.init_device(0)
    yield made
    made.deinit_device(0)
    made.deinit()


class Memory:
    """An array on the device, from a NumPy array and back."""

    def __init__(self, plugin: OpenCLPlugin, array: Any) -> None:
        self.plugin, self.array = plugin, array
        self.address = plugin.allocate(0, array.nbytes, "device", 128)
        plugin.submit(0, self.address, array.ctypes.data, array.nbytes)

    def argument(self) -> TargetArray:
        """Give it as an argument of a kernel."""
        return TargetArray(self.address, self.array.nbytes, self.array.dtype.char, self.array.shape)

    def back(self) -> Any:
        """Give the device's contents, and the memory back."""
        self.plugin.retrieve(0, self.array.ctypes.data, self.address, self.array.nbytes)
        self.plugin.release(0, self.address, self.array.nbytes, "device")
        return self.array


def test_a_kernel_with_arrays_and_numbers(plugin: OpenCLPlugin) -> None:
    """Memory and numbers of all sorts reach a kernel in its own types."""
    program = plugin.load(0, SOURCE)
    assert {"axpy", "number", "small"} == set(plugin.entries(0, program))
    scales: tuple[Any, ...] = (2, 2.0, np.float32(2), ctypes.c_float(2))
    for scale in scales:
        x, y = (Memory(plugin, np.full(1000, value, "f4")) for value in (1, 3))
        plugin.run(0, program, "axpy", [x.argument(), y.argument(), scale, 1000], teams=16, threads=64)
        assert (7 == x.back()).all()
        y.back()


def test_teams_and_threads_are_groups_and_items(plugin: OpenCLPlugin) -> None:
    """A region on 3 teams of 4 threads runs 12 times, each time with its own numbers."""
    out = Memory(plugin, np.zeros(12, "i4"))
    plugin.run(0, plugin.load(0, SOURCE), "number", [out.argument()], teams=3, threads=4)
    assert [team * 1000 + thread for team in range(3) for thread in range(4)] == out.back().tolist()


def test_work_on_a_queue_is_done_after_synchronize(plugin: OpenCLPlugin) -> None:
    """Copies and kernels on one queue happen in order."""
    program, queue = plugin.load(0, SOURCE), plugin.create_queue(0)
    x, y = (Memory(plugin, np.zeros(1 << 16, "f4")) for _ in range(2))
    ones = np.ones(1 << 16, "f4")
    for memory in (x, y):
        plugin.submit(0, memory.address, ones.ctypes.data, ones.nbytes, queue)
    for _ in range(10):
        plugin.run(
            0,
            program,
            "axpy",
            [x.argument(), y.argument(), 1.0, 1 << 16],
            teams=256,
            threads=256,
            queue=queue,
        )
    plugin.retrieve(0, x.array.ctypes.data, x.address, x.array.nbytes, queue)
    plugin.synchronize(0, queue)
    plugin.release_queue(0, queue)
    assert (11 == x.array).all()
    for memory in (x, y):
        memory.back()


@pytest.mark.parametrize(
    ("entry", "arguments", "told"),
    [
        ("nothing", (), r"expected an entry \(axpy, number, small\), got 'nothing'"),
        ("number", (), r"number: expected 1 arguments \(int\* out\), got 0"),
        ("number", (5,), r"number: argument 0: expected int\* out, got 5"),
        ("small", ("array", "array"), "small: argument 1: expected uchar value, got an array"),
        ("small", ("array", 256), "small: argument 1: expected uchar value, got 256"),
        ("small", ("array", -1), "expected uchar value, got -1"),
        ("small", ("array", 1.5), "expected uchar value, got 1.5"),
        ("small", ("array", "7"), "expected uchar value, got '7'"),
        ("small", ("array", np.int64(7)), "expected uchar value, got int64 7"),
    ],
)
def test_wrong_arguments(plugin: OpenCLPlugin, entry: str, arguments: tuple[Any, ...], told: str) -> None:
    """For a missing entry and for wrong arguments the error says what the kernel takes."""
    memory = Memory(plugin, np.zeros(1, "i4"))
    given = [memory.argument() if argument == "array" else argument for argument in arguments]
    with pytest.raises((LookupError, TypeError), match=told):
        plugin.run(0, plugin.load(0, SOURCE), entry, given)
    memory.back()


def test_a_compile_error_has_the_compilers_log(plugin: OpenCLPlugin) -> None:
    """The compiler's own words are in the error."""
    with pytest.raises(PluginError, match=r"(?s)undeclared_name") as caught:
        plugin.load(0, "__kernel void f(__global int *x) { x[0] = undeclared_name; }")
    assert caught.value.native is not None
    with pytest.raises(TypeError, match="expected OpenCL C source, its path, or SPIR-V, got int"):
        plugin.load(0, 5)


def test_the_largest_allocation_is_respected(plugin: OpenCLPlugin) -> None:
    """A request above the device's limit is refused before the runtime sees it; the error names it."""
    largest = plugin.memory_limit(0).bytes
    assert 0 == plugin.allocate(0, largest + 1, "device", 128)
    registry = registry_with(OpenCLPlugin())
    device = registry.device("x:0")
    with pytest.raises(
        OutOfDeviceMemory, match=r"no single allocation may be larger than .* \(CL_DEVICE"
    ) as caught:
        device.allocate(largest + 1)
    assert "limit" == caught.value.reason
    registry.close()


def test_memory_that_is_missing_on_first_use(plugin: OpenCLPlugin, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a runtime would only find out later is a refusal now, with the ladder behind it (a fake fault)."""
    registry = registry_with(OpenCLPlugin())
    device = registry.device("x:0")
    inner: Any = device.plugin
    device.allocate(1000).release()
    refusals = [True]

    def commit(_memory: object) -> None:
        if refusals.pop():
            refusals.append(False)
            raise cl.MemoryError("fake", cl.status_code.MEM_OBJECT_ALLOCATION_FAILURE, "fake")

    monkeypatch.setattr(inner._devices[0], "defers", True)
    monkeypatch.setattr(inner._devices[0], "commit", commit)
    assert device.allocate(2000).pointer
    counters = device.memory.counters()
    assert (1, 1) == (counters.reclaims, counters.device_failures)
    registry.close()


def test_memory_is_committed_where_the_runtime_defers(
    plugin: OpenCLPlugin, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The real call that has the runtime find the memory goes through, and the memory works."""
    monkeypatch.setattr(plugin._devices[0], "defers", True)
    memory = Memory(plugin, np.arange(1000))
    assert np.arange(1000).tolist() == memory.back().tolist()


def test_shared_memory_is_the_hosts_too(plugin: OpenCLPlugin) -> None:
    """A Buffer of fine-grained memory is a NumPy array for the host and memory for a kernel."""
    if "shared" not in plugin.capabilities(0).kinds:
        pytest.skip("the device has no fine-grained shared virtual memory")
    registry = registry_with(OpenCLPlugin())
    device = registry.device("x:0")
    with device.allocate(48, kind="shared") as buffer:
        view = np.asarray(buffer).view("i4")
        view[:] = -1
        program = device.plugin.load(0, SOURCE)
        device.plugin.run(
            0, program, "number", [TargetArray(buffer.pointer, 48, "i", (12,))], teams=3, threads=4
        )
        assert 2003 == view[11]
        del view
    registry.close()


def test_release_of_a_foreign_address(plugin: OpenCLPlugin) -> None:
    """An address that the plugin never gave out is an error, not a crash of the runtime."""
    with pytest.raises(PluginError, match="expected memory that was handed out"):
        plugin.release(0, 4096, 64, "device")


def test_platform_picks_devices_by_name() -> None:
    """A platform that isn't there leaves no device, and the error says what to do."""
    plugin = OpenCLPlugin(platform="no such platform")
    with pytest.raises(PluginError, match="of a platform named like 'no such platform'") as caught:
        plugin.init()
    assert "install a runtime" in caught.value.hint


def test_without_pyopencl_the_device_is_not_available() -> None:
    """A missing PyOpenCL is told by `targetmem devices`, and is no error of the import of targetmem."""
    code = (
        "import sys; sys.modules['pyopencl'] = None\n"
        "from targetmem.__main__ import main; sys.exit(main(['devices']))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (0, "") == (done.returncode, done.stderr)
    (row,) = [line for line in done.stdout.splitlines() if "opencl" in line]
    assert "not available" in row
    assert "install targetmem[opencl]" in row
