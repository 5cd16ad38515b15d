"""What a new block of memory costs on this machine, in this process."""

from __future__ import annotations

import mmap
import resource
import time

import numpy as np

from targetmem.report.estimate import NewBlock

__all__ = ["measure"]

MIB = 1 << 20
LARGEST = 48 * MIB  # what is larger costs in proportion
SMALLEST_BUDGET = 16 * MIB


def measure(size: int, budget: int) -> NewBlock:
    """Measure what a block of `size` bytes costs more when it is new than when it is reused.

    New means: obtained from the system as NumPy obtains a big array, touched for the first time, given back.
    Takes at most `budget` bytes of memory, or 16 MiB, and some 50 ms.
    """
    sample = _uneven(min(size, LARGEST, max(budget, SMALLEST_BUDGET)))
    seconds, again, faults = map(min, zip(*(_cycle(sample) for _ in range(3)), strict=True))
    cost = NewBlock(max(0.0, seconds - 2 * again), faults)
    return NewBlock(*(value * size / sample for value in cost))


def _uneven(size: int) -> int:
    """Give a size that ends amid a huge page of 2 MiB, as most do: an even one faults far less."""
    return max(1, size - size % (2 * MIB) - MIB if size >= 4 * MIB else size)


def _cycle(size: int) -> tuple[float, float, int]:
    """Obtain a block, fill it twice, give it back; give all seconds, those of the second time, the faults.

    The thread's own time is taken: other programs are no cost of a block.
    """
    faults, start = _page_faults(), time.thread_time()
    block = mmap.mmap(-1, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if size >= 4 * MIB:
        block.madvise(mmap.MADV_HUGEPAGE)
    again = _fill_twice(block)
    block.close()
    return time.thread_time() - start, again, _page_faults() - faults


def _fill_twice(block: mmap.mmap) -> float:
    """Fill a block twice; give the seconds of the second time, when no page is new."""
    array = np.frombuffer(block, np.uint8)
    array.fill(1)
    start = time.thread_time()
    array.fill(2)
    return time.thread_time() - start


def _page_faults() -> int:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_minflt + usage.ru_majflt
