"""Images, target regions and queues through a device: on the host, on `simulated`, and what is refused."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
import threading
from typing import TYPE_CHECKING, Any

import pytest

from targetmem.errors import DeviceClosed, PluginError
from targetmem.plugins.host import HostPlugin
from targetmem.plugins.simulated import SimulatedPlugin
from tests.unit.registries import methods, registry_with

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from targetmem._device import Device

np = pytest.importorskip("numpy")

C_SOURCE = """
void axpy(float *x, const float *y, float a, long n) { for (long i = 0; i < n; i++) x[i] += a * y[i]; }
void number(int *out, int team, int teams, int thread, int threads)
{
    out[team * threads + thread] = 1000 * team + 10 * thread + teams + threads;
}
"""


@pytest.fixture(params=[HostPlugin, SimulatedPlugin])
def device(request: pytest.FixtureRequest) -> Iterator[Device]:
    """Give a device of the host and a simulated one."""
    registry = registry_with(request.param())
    yield registry.device("x:0")
    registry.close()


@pytest.fixture
def simulated() -> Iterator[Device]:
    """Give a simulated device, whose queues put off their work."""
    registry = registry_with(SimulatedPlugin())
    yield registry.device("x:0")
    registry.close()


def read(device: Device, buffer: Any, dtype: str = "u1") -> Any:
    """Give what a Buffer holds, copied from the device."""
    host = np.empty(buffer.size, "u1")
    device.plugin.retrieve(device.index, host.ctypes.data, buffer.pointer, buffer.size)
    return host.view(dtype)


def number_all(out: Any, *, team: int, thread: int, teams: int, threads: int) -> None:
    """Write the numbers of the team and the thread to their own place."""
    out.view("i4")[team * threads + thread] = 1000 * team + 10 * thread + teams + threads


def test_a_python_function_runs_for_each_thread_of_each_team(device: Device) -> None:
    """A region is called once for each part, is told which one, and sees the target's memory."""
    image = device.load(number_all)
    assert ("number_all",) == image.entries
    buffer = device.allocate(4 * 12)
    device.run(image["number_all"], buffer, teams=3, threads=4)
    expected = [1000 * team + 10 * thread + 7 for team in range(3) for thread in range(4)]
    assert expected == read(device, buffer, "i4").tolist()
    image.close()
    with pytest.raises(DeviceClosed, match="was closed: load it again"):
        device.run(image["number_all"], buffer)


def test_parts_are_told_by_position_too(device: Device) -> None:
    """Parameters behind the arguments, as Numba wants them, get the numbers they are named after."""

    def region(out: Any, factor: float, thread: int, team: int) -> None:
        out[team * 2 + thread] = factor * (10 * team + thread)

    buffer = device.allocate(4)
    device.run(device.load({"region": region})["region"], buffer, 2, teams=2, threads=2)
    assert [0, 2, 20, 22] == read(device, buffer).tolist()


def test_an_exception_in_a_region(device: Device) -> None:
    """What a region raises is the cause of an error that names it, after all its parts have ended."""
    ended: list[int] = []

    def region(*, thread: int) -> None:
        ended.append(thread)
        if thread == 1:
            raise ZeroDivisionError("in a region")

    with pytest.raises(PluginError, match="region: ZeroDivisionError: in a region") as caught:
        device.run(device.load(region)["region"], threads=4)
    assert isinstance(caught.value.__cause__, ZeroDivisionError)
    assert [0, 1, 2, 3] == sorted(ended)


def test_wrong_entries_and_arguments(device: Device) -> None:
    """Each mistake is an error that says what was expected."""

    def region(out: Any, n: int) -> None:
        raise AssertionError

    image = device.load({"region": region, "other": number_all})
    with pytest.raises(LookupError, match=r"expected an entry of the image \(region, other\), got 'none'"):
        image["none"]
    with pytest.raises(TypeError, match=r"region: expected 2 arguments \(out, n\), got 1"):
        device.run(image["region"], 5)
    with pytest.raises(TypeError, match=r"expected an entry \(image\['name'\]\), got str"):
        device.run("region")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="expected 1 or more teams of 1 or more threads, got 0 of 1"):
        device.run(image["region"], 1, 2, teams=0)
    with pytest.raises(TypeError, match="load: expected"):
        device.load(5)
    other = registry_with(HostPlugin())
    with pytest.raises(ValueError, match="expected an entry of an image of x:0, got one of x:0"):
        other.device("x:0").run(image["region"], 1, 2)
    with pytest.raises(ValueError, match="argument 0: expected a Buffer of x:0"):
        device.run(image["region"], other.device("x:0").allocate(8), 2)
    other.close()


# --- compiled code ---


@pytest.fixture(scope="module")
def shared_object(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Compile a shared object."""
    folder = tmp_path_factory.mktemp("image")
    (folder / "image.c").write_text(C_SOURCE)
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler (cc) in the path")
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", "image.c", "-o", "image.so"], cwd=folder, check=True)
    return folder / "image.so"


@pytest.mark.parametrize("as_bytes", [False, True])
def test_a_shared_object(shared_object: Path, as_bytes: bool) -> None:
    """Entries of a shared object, from its path or its bytes, get pointers and numbers, and their part."""
    registry = registry_with(HostPlugin())
    device = registry.device("x:0")
    image = device.load(shared_object.read_bytes() if as_bytes else shared_object)
    x, y, out = device.allocate(400), device.allocate(400), device.allocate(48)
    np.asarray(x).view("f4")[:], np.asarray(y).view("f4")[:] = 1, 3
    for factor in (np.float32(2), ctypes.c_float(2)):
        device.run(image["axpy"], x, y, factor, 100)
    assert (13 == np.asarray(x).view("f4")).all()
    device.run(image["number"], out, teams=3, threads=4)
    expected = [1000 * team + 10 * thread + 7 for team in range(3) for thread in range(4)]
    assert expected == np.asarray(out).view("i4").tolist()
    with pytest.raises(LookupError, match=r"expected an exported function of .*, got 'nothing'"):
        device.run(image["nothing"])
    with pytest.raises(TypeError, match="axpy: argument 1: expected memory or a number, got 'text'"):
        device.run(image["axpy"], x, "text")
    registry.close()


def test_what_is_no_shared_object(tmp_path: Path) -> None:
    """A missing file, a file of another sort and other bytes are errors that say so."""
    registry = registry_with(HostPlugin())
    device = registry.device("x:0")
    (tmp_path / "text.so").write_text("text")
    for image in (tmp_path / "missing.so", tmp_path / "text.so", b"text"):
        with pytest.raises(PluginError, match="load: expected"):
            device.load(image)
    registry.close()


def test_numba_runs_without_the_gil() -> None:
    """A function that Numba compiled with nogil is a region like any other."""
    numba = pytest.importorskip("numba", reason="numba is not installed")

    @numba.njit(nogil=True)  # type: ignore[untyped-decorator, unused-ignore]
    def region(out: Any, team: int, teams: int) -> None:
        for i in range(team, out.size, teams):
            out[i] = team

    registry = registry_with(HostPlugin())
    device = registry.device("x:0")
    buffer = device.allocate(10)
    device.run(device.load({"region": region})["region"], buffer, teams=2)
    assert [0, 1] * 5 == np.asarray(buffer).tolist()
    registry.close()


# --- queues ---


def test_work_on_a_queue_waits_for_synchronize(simulated: Device) -> None:
    """A region on a queue runs at synchronize, after what was given before it."""
    buffer = simulated.allocate(12 * 4)
    image = simulated.load(number_all)
    with simulated.queue() as queue:
        simulated.plugin.fill(0, buffer.pointer, b"\0", 48, queue.native)
        simulated.run(image["number_all"], buffer, teams=3, threads=4, queue=queue)
        assert 0xA5 == read(simulated, buffer)[0]
        queue.synchronize()
        assert 2037 == read(simulated, buffer, "i4")[11]
    plugin = simulated.plugin
    assert isinstance(plugin, SimulatedPlugin)
    assert "release_queue" == methods(plugin)[-1]


@pytest.mark.parametrize("how", ["release", "drop", "with", "free"])
def test_a_block_is_not_reused_before_the_queue_is_done(simulated: Device, how: str) -> None:
    """Memory that is given back while work on a queue uses it goes to nobody else before that is done."""
    image, manager = simulated.load(number_all), simulated.memory
    first, second = simulated.queue(), simulated.queue()
    buffer = simulated.allocate(48)
    address = buffer.pointer
    for queue in (first, second):
        simulated.run(image["number_all"], buffer, teams=3, threads=4, queue=queue)
    if how == "release":
        buffer.release()
        assert 0 == buffer.pointer
    elif how == "with":
        with buffer:
            pass
    elif how == "free":
        manager.free(buffer)
    del buffer
    taken = [simulated.allocate(48) for _ in range(3)]
    assert address not in [other.pointer for other in taken]
    first.synchronize()
    taken.append(simulated.allocate(48))
    assert address not in [other.pointer for other in taken]
    second.synchronize()
    assert address == simulated.allocate(48).pointer
    assert len(taken) == manager.counters().live_blocks


def test_a_view_still_forbids_release(device: Device) -> None:
    """A queue's use does not hide that somebody else looks at the memory."""
    if device.plugin.fork_safe:  # the host
        buffer, queue = device.allocate(8), device.queue()
        queue.keep(buffer)
        view = memoryview(buffer)
        with pytest.raises(BufferError, match=r"2 view\(s\)"):
            buffer.release()
        view.release()
        buffer.release()
        queue.synchronize()
    assert 0 == device.memory.counters().live_blocks


def test_a_failure_on_a_queue_lets_everything_go(simulated: Device) -> None:
    """What goes wrong in a queue's work is raised by synchronize, and nothing stays held."""

    def broken() -> None:
        raise ZeroDivisionError("on a queue")

    queue, done = simulated.queue(), []
    buffer = simulated.allocate(64)
    simulated.run(simulated.load(broken)["broken"], queue=queue)
    queue.keep(buffer)
    queue.defer(lambda: done.append(1))
    buffer.release()
    with pytest.raises(ZeroDivisionError, match="on a queue"):
        queue.synchronize()
    assert ([1], 0) == (done, simulated.memory.counters().live_blocks)


def test_a_queue_belongs_to_its_device_and_ends(device: Device) -> None:
    """Another device's queue and a closed one are refused."""
    image = device.load(number_all)
    queue = device.queue()
    other = registry_with(SimulatedPlugin())
    with pytest.raises(ValueError, match="expected a queue of x:0, got one of x:0"):
        device.run(image["number_all"], device.allocate(4), queue=other.device("x:0").queue())
    other.close()
    queue.close()
    queue.close()
    with pytest.raises(DeviceClosed, match="this queue was closed"):
        device.run(image["number_all"], device.allocate(4), queue=queue)


def test_close_ends_queues_and_images_before_the_device() -> None:
    """Whatever was given to a queue is done, its memory is back, then the device goes."""
    plugin = SimulatedPlugin()
    registry = registry_with(plugin)
    device = registry.device("x:0")
    image, queue, buffer = device.load(number_all), device.queue(), device.allocate(48)
    device.run(image["number_all"], buffer, teams=3, threads=4, queue=queue)
    buffer.release()
    registry.close()
    ends = ["synchronize", "release_queue", "unload", "release", "deinit_device", "deinit"]
    assert ends == methods(plugin)[-6:]
    queue.close()
    image.close()
    assert ends == methods(plugin)[-6:]


def test_a_plugin_without_queues_serves_at_once() -> None:
    """Where a plugin has no queue the synchronous call serves, and memory is held all the same."""

    class Plain(SimulatedPlugin):
        def create_queue(self, device: int) -> object:
            raise self._not_supported("create_queue", device)

    registry = registry_with(Plain())
    device = registry.device("x:0")
    buffer = device.allocate(48)
    with device.queue() as queue:
        assert queue.native is None
        device.run(device.load(number_all)["number_all"], buffer, teams=3, threads=4, queue=queue)
        assert 2037 == read(device, buffer, "i4")[11]
    registry.close()


def test_sixteen_threads_run_regions_at_once(device: Device) -> None:
    """Each thread's region writes its number to its own memory: no error, no lost byte."""
    wrong: list[int] = []

    def fill(out: Any, number: int) -> None:
        out[:] = number

    entry = device.load({"fill": fill})["fill"]

    def work(number: int) -> None:
        for _ in range(20):
            buffer = device.allocate(1000)
            with device.queue() as queue:
                device.run(entry, buffer, number, queue=queue)
            if not (number == read(device, buffer)).all():
                wrong.append(number)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(1, 17)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [] == wrong
    assert 0 == device.memory.counters().live_blocks
