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
    progress("heat.py, plain and under targetmem run")
    runs = alternate(
        {
            "plain": lambda: run_program([sys.executable, HEAT]),
            "pooled": lambda: run_program([sys.executable, "-m", "targetmem", "run", "--quiet", HEAT]),
        },
        1 if settings.smoke else 9,
    )
    seconds = {name: statistics.median(run.seconds for run in each) for name, each in runs.items()}
    faults = {name: statistics.median(run.page_faults for run in each) for name, each in runs.items()}
    wall = statistics.median(
        b.seconds / a.seconds for a, b in zip(runs["plain"], runs["pooled"], strict=True)
    )
    yield Figure(
        "heat.py, wall time", "s", seconds, (Bar("<= 0.75 of plain Python's wall time", 0.75, wall),)
    )
    fewer = 1 - faults["pooled"] / faults["plain"]
    yield Figure(
        "heat.py, page faults", "", faults, (Bar("page faults down >= 90 %", 0.9, fewer, at_least=True),)
    )


def python(code: str) -> Run:
    """Run a line of Python."""
    return run_program([sys.executable, "-c", code])


def import_cost(settings: Settings) -> Iterator[Figure]:
    """Compare an import of the package with an interpreter that does nothing."""
    progress("import targetmem")
    python("import sys, targetmem; assert 'numpy' not in sys.modules, 'numpy was imported'")
    runs = alternate(
        {"pass": lambda: python("pass"), "import targetmem": lambda: python("import targetmem")},
        settings.rounds(101),
    )
    for unit, values in (
        ("wall ms", {name: [run.seconds * 1e3 for run in each] for name, each in runs.items()}),
        ("cpu ms", {name: [run.cpu_seconds * 1e3 for run in each] for name, each in runs.items()}),
    ):
        both = zip(values["pass"], values["import targetmem"], strict=True)
        cost = statistics.median(b / a for a, b in both)
        bars = (Bar("<= 2 x python -c pass", 2.0, cost),) if unit == "wall ms" else ()
        medians = {name: statistics.median(each) for name, each in values.items()}
        yield Figure(f"python -c, {unit}", unit, medians, bars)
