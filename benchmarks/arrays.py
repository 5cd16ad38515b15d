"""NumPy with and without the pool, in interleaved pairs: nothing may get slower."""

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
# No bar: outside what the requirement names. The pool serves them, so each mode has a process of its own.
BEYOND = ("a+b_8MiB", "a+b_40MiB", "zeros_1MiB", "empty_1MiB")
WORKER = [sys.executable, "-m", "benchmarks.array_worker"]
Pairs = list[tuple[float, float]]  # nanoseconds plain and pooled


def compare(settings: Settings) -> Iterator[Figure]:
    """Compare each case, in several processes and with arrays at new places in each round."""
    if not importlib.util.find_spec("numpy"):
        raise MissingError("no numpy; to install: pip install 'targetmem[numpy]'")
    from benchmarks.array_worker import CASES

    pairs: dict[str, Pairs] = {name: [] for name in CASES}
    repeats = 1 if settings.smoke else 9
    for repeat in range(repeats):
        progress(f"NumPy plain and pooled, {repeat + 1} of {repeats}")
        with ExitStack() as stack:
            plain, pooled = [stack.enter_context(Server(mode, [*WORKER, mode])) for mode in MODES]
            for name in CASES:
                if name in BEYOND:
                    pairs[name] += apart(plain, pooled, name, settings)
                else:
                    pairs[name] += together(plain, name, settings)
    for name, found in pairs.items():
        yield figure(name, found)


def together(worker: Server, name: str, settings: Settings) -> Pairs:
    """Time a case in one process that puts the pool in and takes it out."""
    answers = measure([worker], f"pair {name} {{count}}", settings, 21, 1e6)
    return [(row[0], row[1]) for row in answers[worker.name]]


def apart(plain: Server, pooled: Server, name: str, settings: Settings) -> Pairs:
    """Time a case in two processes in turn."""
    answers = measure([plain, pooled], f"case {name} {{count}}", settings, 31, 1e6)
    return [(a[0], b[0]) for a, b in zip(*(answers[mode] for mode in MODES), strict=True)]


def figure(name: str, pairs: Pairs) -> Figure:
    """Give a case's medians over all processes and rounds, and the median ratio of a pair."""
    values = {mode: statistics.median(pair[at] for pair in pairs) for at, mode in enumerate(MODES)}
    values["ratio"] = statistics.median(pooled / plain for plain, pooled in pairs)
    bars = () if name in BEYOND else (Bar("<= 1.03 x plain NumPy", 1.03, values["ratio"]),)
    return Figure(f"NumPy {name}", "ns", values, bars)
