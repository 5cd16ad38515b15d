"""What the memory of a new array costs on this machine, in this process, without the pool."""

from __future__ import annotations

import resource
import time

import numpy as np

from targetmem.report.estimate import NewBlock

__all__ = ["measure"]

MIB = 1 << 20
KEPT = 32 * MIB  # from here on the C library never keeps freed memory
LARGEST = 48 * MIB  # what is larger costs in proportion
SMALLEST_BUDGET = 16 * MIB
MOST_TOGETHER = 3


def measure(size: int, together: int, budget: int) -> NewBlock:
    """Measure what the memory of an array of `size` bytes costs more when it is new than when it is reused.

    Takes at most `budget` bytes of memory, or 16 MiB, and some milliseconds. `together` arrays live at once,
    as they did in the program: that decides what the C library keeps itself, where nothing is saved. The pool
    must not serve.
    """
    budget = max(budget, SMALLEST_BUDGET)
    sample = _uneven(min(size, budget, LARGEST))
    count = max(1, min(together, budget // sample, MOST_TOGETHER))
    _cycle(sample, count)  # the C library learns what to keep
    cost = sorted(_cycle(sample, count) for _ in range(3))[1]
    return NewBlock(*(value * size / (sample * count) for value in cost))


def _uneven(size: int) -> int:
    """Give a size that ends amid a huge page of 2 MiB, as most do: an even one faults far less."""
    if size < 4 * MIB:
        return max(1, size)
    uneven = size - size % (2 * MIB) - MIB
    return max(uneven, KEPT + MIB) if size >= KEPT else uneven


def _cycle(size: int, count: int) -> NewBlock:
    """Make some arrays, fill each twice, drop them all; give what it cost beyond the second filling."""
    faults, start = _page_faults(), time.perf_counter()
    arrays = [np.empty(size, np.uint8) for _ in range(count)]
    again = sum(_fill_twice(array) for array in arrays)
    del arrays
    return NewBlock(max(0.0, time.perf_counter() - start - 2 * again), _page_faults() - faults)


def _fill_twice(array: np.ndarray[tuple[int], np.dtype[np.uint8]]) -> float:
    """Fill an array twice; give the seconds of the second time, when no page is new."""
    array.fill(1)
    start = time.perf_counter()
    array.fill(2)
    return time.perf_counter() - start


def _page_faults() -> int:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_minflt + usage.ru_majflt
