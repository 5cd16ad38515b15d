"""NumPy with and without the pool: nothing may get slower."""

from __future__ import annotations

import importlib.util
import statistics
import sys
from contextlib import ExitStack
from typing import TYPE_CHECKING

from benchmarks.figures import Bar, Figure, MissingError
from benchmarks.measure import Server, Settings, measure, progress

if TYPE_CHECKING:
    from collections.abc import Iterator

MODES = ("plain", "pooled")
# No bar: outside what the requirement names.
BEYOND = ("a+b_8MiB", "a+b_40MiB", "zeros_1MiB", "empty_1MiB")
WORKER = [sys.executable, "-m", "benchmarks.array_worker"]
Times = dict[str, dict[str, list[float]]]


def compare(settings: Settings) -> Iterator[Figure]:
    """Compare each case in several pairs of processes, whose arrays lie at new places in each round."""
    if not importlib.util.find_spec("numpy"):
        raise MissingError("no numpy; to install: pip install 'targetmem[numpy]'")
    from benchmarks.array_worker import CASES

    times: Times = {name: {mode: [] for mode in MODES} for name in CASES}
    repeats = 1 if settings.smoke else 15
    for repeat in range(repeats):
        progress(f"NumPy plain and pooled, pair {repeat + 1} of {repeats}")
        with ExitStack() as stack:
            both = [stack.enter_context(Server(mode, [*WORKER, mode])) for mode in MODES]
            for name, times_of in times.items():
                answers = measure(both, f"case {name} {{count}}", settings, 31, 1e6)
                for mode in MODES:
                    times_of[mode] += [row[0] for row in answers[mode]]
    for name, times_of in times.items():
        yield figure(name, times_of)


def figure(name: str, times: dict[str, list[float]]) -> Figure:
    """Give a case's medians over all pairs of processes and rounds, and their ratio."""
    values = {mode: statistics.median(times[mode]) for mode in MODES}
    values["ratio"] = values["pooled"] / values["plain"]
    bars = () if name in BEYOND else (Bar("<= 1.03 x plain NumPy", 1.03, values["ratio"]),)
    return Figure(f"NumPy {name}", "ns", values, bars)
