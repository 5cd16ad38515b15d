"""Run NumPy's own tests with its arrays served from a pool and without; compare the outcome of every test.

    python scripts/numpy_suite.py            everything: numpy._core and numpy.lib, an hour on two cores
    python scripts/numpy_suite.py --quick    a representative part, some minutes

Three ways: plain Python, `targetmem run`, and a pool that serves arrays of *every* size. NumPy's tests make
small arrays, which `targetmem run` leaves to NumPy; only the third way sends all through the handler. The
exit status is 0 when each test has the same outcome all three ways, 1 when one differs, 2 when the tests
can't be run. NumPy's tests of its memory policies compile an extension module: that takes meson and ninja.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    Outcomes = Mapping[str, list[str]]

NEEDED = ("pytest", "hypothesis", "mesonbuild", "ninja")
ALL = ("numpy._core", "numpy.lib")
QUICK = (
    *(
        f"numpy._core.tests.test_{name}"
        for name in ("mem_policy", "multiarray", "nditer", "regression", "umath")
    ),
    *(
        f"numpy.lib.tests.test_{name}"
        for name in ("arraypad", "function_base", "io", "shape_base", "stride_tricks")
    ),
)
EVERY_ARRAY = (
    "import sys, pytest, targetmem; targetmem.install('numpy', min_size=1, cached_limit='256MiB'); "
    "sys.exit(pytest.main())"
)
WAYS = {
    "plain Python": ("-m", "pytest"),
    "targetmem run": ("-m", "targetmem", "run", "--quiet", "-m", "pytest"),
    "every array pooled": ("-c", EVERY_ARRAY),
}


def pytest_arguments(quick: bool, report: Path) -> Iterator[str]:
    """Yield what pytest is told, the same each way."""
    yield from ("--quiet", "--no-header", "--tb=short", "-p", "no:cacheprovider")
    yield from ("-c", os.devnull, "--rootdir", str(Path(np.__file__).parents[1]))
    yield from ("-o", "junit_family=xunit1", f"--junitxml={report}")
    if quick:
        yield from ("-m", "not slow")
    yield from ("--pyargs", *(QUICK if quick else ALL))


def spare_gibibytes() -> int:
    """Give the memory that the system could hand out now."""
    return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") >> 30


def run(way: str, quick: bool, memory: int, folder: Path) -> Outcomes:
    """Run the tests one way; gives the outcome of each. Exits when there are none."""
    place = folder / way.replace(" ", "_")
    place.mkdir()
    report, log = place / "report.xml", place / "log.txt"
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])  # meson and ninja
    # NumPy skips a test that takes more memory than there is: the same ones each way, whatever runs beside.
    fixed = {"PYTHONHASHSEED": "0", "NPY_AVAILABLE_MEM": f"{memory} GB"}
    environment = {**os.environ, "PATH": path, **fixed}
    start = time.monotonic()
    with log.open("w") as output:
        command = [sys.executable, *WAYS[way], *pytest_arguments(quick, report)]
        done = subprocess.run(command, cwd=place, env=environment, stdout=output, stderr=output, check=False)
    print(f"  {way}: exit status {done.returncode} after {time.monotonic() - start:.0f} s", flush=True)
    if not report.exists():
        lines = "\n".join(log.read_text().splitlines()[-30:])
        fail(f"{way}: pytest wrote no report; its last words:\n{lines}")
    return outcomes(report)


def outcomes(report: Path) -> Outcomes:
    """Read the outcomes from a report; a test that ran twice, or failed in its teardown too, has several."""
    found: dict[str, list[str]] = {}
    for case in ET.parse(report).iter("testcase"):
        name = f"{case.get('classname')}::{case.get('name')}"
        kinds = [
            child.get("type") or child.tag for child in case if child.tag in ("failure", "error", "skipped")
        ]
        found.setdefault(name, []).extend(kinds or ["passed"])
    return found


def differences(found: Mapping[str, Outcomes]) -> Iterator[str]:
    """Yield a line for each test whose outcome isn't the same each way."""
    for name in sorted(set().union(*found.values())):
        each = {way: "+".join(results.get(name, ["not run"])) for way, results in found.items()}
        if len(set(each.values())) > 1:
            yield f"{name}: " + ", ".join(f"{outcome} ({way})" for way, outcome in each.items())


def show(found: Mapping[str, Outcomes]) -> None:
    """Print how many tests had which outcome, each way."""
    for way, results in found.items():
        counts = Counter(outcome for all_of_one in results.values() for outcome in all_of_one)
        print(
            f"{way}: {len(results)} tests, " + ", ".join(f"{counts[kind]} {kind}" for kind in sorted(counts))
        )


def check_needed() -> None:
    """Exit when a package is missing that the tests need."""
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        fail(f"expected {', '.join(NEEDED)}, missing: {', '.join(missing)}; install targetmem[test]")


def fail(message: str) -> None:
    """End with the status for "can't be run"."""
    print(f"numpy_suite: {message}", file=sys.stderr)
    sys.exit(2)


def main() -> None:
    """Do what the command line says."""
    parser = argparse.ArgumentParser(
        description="Compare the outcome of NumPy's own tests with and without a pool."
    )
    parser.add_argument("--quick", action="store_true", help="run a representative part, without slow tests")
    parser.add_argument(
        "--jobs",
        type=int,
        default=1,
        help="ways that run at a time; some tests want several GiB each (default: %(default)s)",
    )
    parser.add_argument("--keep", type=Path, help="write reports and logs into this folder, and keep them")
    args = parser.parse_args()
    check_needed()
    print(f"NumPy {np.__version__}'s tests, three ways:", flush=True)
    jobs = max(1, min(args.jobs, len(WAYS)))
    with tempfile.TemporaryDirectory() as temporary, ThreadPoolExecutor(jobs) as pool:
        folder = args.keep or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        memory = spare_gibibytes() // jobs
        runs = {way: pool.submit(run, way, args.quick, memory, folder.resolve()) for way in WAYS}
        found = {way: each.result() for way, each in runs.items()}
    show(found)
    differing = list(differences(found))
    print("\n".join(differing or ["each test has the same outcome each way"]))
    sys.exit(bool(differing))


if __name__ == "__main__":
    main()
