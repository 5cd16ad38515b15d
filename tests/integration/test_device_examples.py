"""The examples of the device side: on the host, on OpenCL and on `simulated`, with the same results."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from targetmem.plugins.host import HostPlugin
from targetmem.plugins.simulated import SimulatedPlugin
from tests.integration.running import plain
from tests.integration.test_examples import EXAMPLES, module_of
from tests.unit.registries import registry_with

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from targetmem._device import Device
    from tests.integration.running import Outcome

np = pytest.importorskip("numpy")

DEVICES = pytest.mark.parametrize("name", ["host:0", "opencl:0", "simulated:0"])
SIZE = 60


def example(name: str, *arguments: str, device: str) -> Outcome:
    """Run an example on a device in a fresh process."""
    if device.startswith("opencl"):
        pytest.importorskip("pyopencl", reason="no PyOpenCL: pip install 'targetmem[opencl]'")
    return plain(str(EXAMPLES / f"{name}.py"), "--device", device, *arguments)


@pytest.fixture(params=[HostPlugin, SimulatedPlugin])
def device(request: pytest.FixtureRequest) -> Iterator[Device]:
    """Give a device of the host and a simulated one."""
    registry = registry_with(request.param())
    yield registry.device("x:0")
    registry.close()


# --- threads.py ---


@DEVICES
def test_threads_on_a_device(name: str) -> None:
    """Sixteen threads find their own numbers in blocks of all sizes, and leave nothing behind."""
    found = example("threads", device=name)
    assert (0, "") == (found.status, found.stderr)
    first, second = found.stdout.splitlines()
    assert f"{name}: 16 threads x 13 sizes up to 16 KiB: every number right" == first
    assert second.startswith("624 allocations in ")
    assert second.endswith("; 0 bytes live at the end")


def test_threads_sees_a_wrong_number(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """A block with another number in it ends the program, with where it is."""
    threads = module_of(EXAMPLES / "threads.py")

    def write(block: Any, number: int, count: int) -> None:
        block.view(np.int32)[:] = number
        if count == 16 and number == 2:
            block[4 * 5] = 7

    monkeypatch.setattr(threads, "write", write)
    monkeypatch.setattr(threads, "TEAMS", 1)
    with pytest.raises(threads.Mixed, match=r"thread 2, 64 bytes: expected 2 at element 5, got 7"):
        threads.run(device, 4, [4, 64, 1024])
    assert 0 == device.memory.counters().live_blocks


# --- jacobi.py ---


def solution(problem: Any) -> Any:
    """Give the potential by a direct solver."""
    sparse = pytest.importorskip("scipy.sparse")
    linalg = pytest.importorskip("scipy.sparse.linalg")
    size = len(problem.potential)
    free = np.flatnonzero(problem.fixed == 0)
    ones = np.ones(free.size)
    total = size * size
    means = sum(
        sparse.coo_matrix((ones / 4, (free, free + step)), (total, total)) for step in (-size, size, -1, 1)
    )
    known = np.where(problem.fixed, problem.potential, 0).ravel().astype(float)
    return linalg.spsolve((sparse.eye(total) - means).tocsc(), known).reshape(size, size)


def test_jacobi_finds_the_solution(device: Device) -> None:
    """The potential is what a direct solver gives; every look at the changes was shown."""
    jacobi = module_of(EXAMPLES / "jacobi.py")
    problem = jacobi.plates(SIZE)
    seen: list[Any] = []
    expected = solution(problem)
    outcome = jacobi.solve(device, problem, 1e-6, 5000, 200, seen.append)
    assert outcome.change <= 1e-6 < seen[-2].change
    assert [200 * look for look in range(1, len(seen) + 1)] == [each.sweeps for each in seen]
    np.testing.assert_allclose(problem.potential, expected, atol=1e-3)
    assert ([], 0) == (device.present_table(), device.memory.counters().live_blocks)


def test_jacobi_in_teams(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many teams share the rows, more than there are rows too: the same numbers come out."""
    jacobi = module_of(EXAMPLES / "jacobi.py")
    found = []
    for teams in (1, 3, SIZE + 10):
        monkeypatch.setattr(jacobi, "ON_HOST", jacobi.ON_HOST._replace(teams=teams))
        problem = jacobi.plates(SIZE)
        outcome = jacobi.solve(device, problem, 0, 10, 4, lambda _: None)
        assert 10 == outcome.sweeps
        found.append((outcome.change, problem.potential.tobytes()))
    assert 1 == len(set(found))


def test_jacobis_data_stays_on_the_device() -> None:
    """Between the first copies and the last, only the changes of each row leave the device, once a look."""
    jacobi = module_of(EXAMPLES / "jacobi.py")
    plugin = SimulatedPlugin()
    registry = registry_with(plugin)
    jacobi.solve(registry.device("x:0"), jacobi.plates(SIZE), 0, 30, 10, lambda _: None)
    points = SIZE * SIZE
    moved: dict[str, list[Any]] = {
        method: [call.arguments[-1] for call in plugin.calls if call.method == method]
        for method in ("submit", "retrieve")
    }
    assert [4 * points, 4 * points, points] == sorted(moved["submit"], reverse=True)
    assert [4 * SIZE] * 3 + [4 * points] == moved["retrieve"]
    assert 30 + 3 == sum(call.method == "run" for call in plugin.calls)
    registry.close()


@DEVICES
def test_jacobis_picture(name: str, tmp_path: Path) -> None:
    """The picture has a dark plate on each side, red around the left one, blue around the other."""
    image = pytest.importorskip("PIL.Image", reason="no Pillow: pip install 'targetmem[examples]'")
    path = tmp_path / "plates.png"
    found = example("jacobi", "--size", "64", "--picture", str(path), device=name)
    assert (0, "") == (found.status, found.stderr)
    assert found.stdout.startswith(f"{name}: 64 x 64 points, ")
    strength = abs(solution(module_of(EXAMPLES / "jacobi.py").plates(64))).mean()
    assert strength == pytest.approx(float(found.stdout.split()[-2]), abs=2e-4)
    picture = np.asarray(image.open(path)).astype(int)
    assert (768, 768, 3) == picture.shape
    middle = picture[384]
    assert [40, 40, 40] == middle[290].tolist() == middle[478].tolist()
    (left_red, _, left_blue), (right_red, _, right_blue) = middle[205:215].max(0), middle[555:565].max(0)
    assert left_red > left_blue + 50
    assert right_blue > right_red + 50
    assert (250 < picture[:3].mean()) & (250 < picture[:, -3:].mean())


# --- the command line of both ---


@pytest.mark.parametrize(
    ("name", "arguments", "told"),
    [
        ("threads", ["--threads", "0"], "argument --threads: "),
        ("threads", ["--sizes", "x"], "argument --sizes: "),
        ("jacobi", ["--size", "9"], "argument --size: expected a whole number from 50 on, got 9"),
        ("jacobi", ["--tolerance", "nan"], "argument --tolerance: expected 0 volts or more, got nan"),
        ("jacobi", ["--picture", "x.jpg"], "argument --picture: expected FILE.png in a folder that there is"),
        (
            "jacobi",
            ["--picture", "/none/x.png"],
            "expected FILE.png in a folder that there is, got /none/x.png",
        ),
    ],
)
def test_arguments_that_cannot_be_used(name: str, arguments: list[str], told: str) -> None:
    """Each ends with status 2 before any work, and says what was expected."""
    found = plain(str(EXAMPLES / f"{name}.py"), *arguments)
    assert (2, "") == (found.status, found.stdout)
    assert told in found.stderr.splitlines()[-1]


@pytest.mark.parametrize("name", ["threads", "jacobi"])
def test_a_device_that_is_not_there(name: str) -> None:
    """One line says so, with the devices that there are."""
    found = example(name, device="host:7")
    assert (1, "") == (found.status, found.stdout)
    (line,) = found.stderr.splitlines()
    assert line.startswith(f"{name}: expected a device (host:0")


@pytest.mark.parametrize("name", ["threads", "jacobi"])
def test_help(name: str) -> None:
    """--help says what the example is about and how to run it on another device."""
    found = plain(str(EXAMPLES / f"{name}.py"), "--help")
    assert 0 == found.status
    assert f"python examples/{name}.py --device opencl:0" in found.stdout
