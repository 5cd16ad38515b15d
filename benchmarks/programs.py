"""Whole programs: a heat equation under `targetmem run`, and what importing the package costs."""

from __future__ import annotations

import statistics
import sys
from typing import TYPE_CHECKING

from benchmarks.figures import Bar, Figure
from benchmarks.measure import ROOT, Run, Settings, alternate, progress, run_program

if TYPE_CHECKING:
    from collections.abc import Iterator

HEAT = ROOT / "examples" / "heat.py"


def heat(settings: Settings) -> Iterator[Figure]:
    """Run the example with and without the pool; wall time and page faults of the whole process."""
    size = ["--size", "300", "--steps", "3"] if settings.smoke else []
    rounds = settings.rounds(7)
    progress(f"heat.py, plain and under targetmem run, {rounds} times each")
    runs = alternate(
        {
            "plain": lambda: run_program([sys.executable, HEAT, *size]),
            "pooled": lambda: run_program([sys.executable, "-m", "targetmem", "run", "--quiet", HEAT, *size]),
        },
        rounds,
    )
    check_same_result(runs)
    seconds = {name: statistics.median(run.seconds for run in each) for name, each in runs.items()}
    faults = {name: statistics.median(run.page_faults for run in each) for name, each in runs.items()}
    wall = statistics.median(
        b.seconds / a.seconds for a, b in zip(runs["plain"], runs["pooled"], strict=True)
    )
    fewer = 1 - faults["pooled"] / faults["plain"]
    time_bar = Bar("<= 0.75 of plain Python's wall time", 0.75, wall)
    fault_bar = Bar("page faults down >= 90 %", 0.9, fewer, at_least=True)
    yield Figure("heat.py, wall time", "s", seconds, () if size else (time_bar,))
    yield Figure("heat.py, page faults", "faults", faults, () if size else (fault_bar,))


def check_same_result(runs: dict[str, list[Run]]) -> None:
    """Check that every run ended with the same line: the mean and the checksum of its temperatures."""
    results = {run.output.splitlines()[-1] for each in runs.values() for run in each}
    if len(results) != 1:
        raise RuntimeError(f"heat.py: expected one result, got {sorted(results)}")


def python(code: str) -> Run:
    """Run a line of Python."""
    return run_program([sys.executable, "-c", code])


def import_cost(settings: Settings) -> Iterator[Figure]:
    """Compare an import of the package with an interpreter that does nothing."""
    progress("import targetmem")
    python("import sys, targetmem; assert 'numpy' not in sys.modules, 'numpy was imported'")
    ways = {"pass": lambda: python("pass"), "import targetmem": lambda: python("import targetmem")}
    runs = alternate(ways, settings.rounds(101))
    for unit, values in (
        ("wall ms", {name: [run.seconds * 1e3 for run in each] for name, each in runs.items()}),
        ("cpu ms", {name: [run.cpu_seconds * 1e3 for run in each] for name, each in runs.items()}),
    ):
        both = zip(values["pass"], values["import targetmem"], strict=True)
        cost = statistics.median(b / a for a, b in both)
        bars = (Bar("<= 2 x python -c pass", 2.0, cost),) if unit == "wall ms" else ()
        medians = {name: statistics.median(each) for name, each in values.items()}
        yield Figure(f"python -c, {unit}", unit, medians, bars)
