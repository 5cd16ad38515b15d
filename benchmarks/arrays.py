"""NumPy with and without the pool: nothing may get slower."""

from __future__ import annotations

import importlib.util
import statistics
import sys
from contextlib import ExitStack
from typing import TYPE_CHECKING

from benchmarks.figures import Bar, Figure, MissingError
from benchmarks.measure import Server, Settings, column, measure, progress, ratio

if TYPE_CHECKING:
    from collections.abc import Iterator

BIG = ("a+b_8MiB", "a+b_40MiB", "zeros_1MiB", "empty_1MiB")  # no bar: outside what the requirement names
WORKER = [sys.executable, "-m", "benchmarks.array_worker"]


def case_names() -> list[str]:
    """Give the names of all cases."""
    from benchmarks import array_worker

    for add in (array_worker.add_slicing, array_worker.add_small, array_worker.add_big):
        add()
    return list(array_worker.CASES)


def compare(settings: Settings) -> Iterator[Figure]:
    """Compare each case in several pairs of processes: in each pair the arrays lie elsewhere in memory."""
    if not importlib.util.find_spec("numpy"):
        raise MissingError("no numpy; to install: pip install 'targetmem[numpy]'")
    names = case_names()
    ratios: dict[str, list[float]] = {name: [] for name in names}
    times: dict[str, list[dict[str, float]]] = {name: [] for name in names}
    repeats = 1 if settings.smoke else 25
    for repeat in range(repeats):
        progress(f"NumPy plain and pooled, pair {repeat + 1} of {repeats}")
        with ExitStack() as stack:
            both = [stack.enter_context(Server(mode, [*WORKER, mode])) for mode in ("plain", "pooled")]
            for name in names:
                answers = measure(both, f"case {name} {{count}}", settings, 5, 2e6)
                ratios[name].append(ratio(answers, "pooled", "plain"))
                times[name].append(column(answers))
    for name in names:
        yield figure(name, ratios[name], times[name])


def figure(name: str, ratios: list[float], times: list[dict[str, float]]) -> Figure:
    """Give a case's medians over the pairs of processes."""
    values = {mode: statistics.median(row[mode] for row in times) for mode in ("plain", "pooled")}
    values["ratio"] = statistics.median(ratios)
    bars = () if name in BIG else (Bar("<= 1.03 x plain NumPy", 1.03, values["ratio"]),)
    return Figure(f"NumPy {name}", "ns", values, bars)
