"""One contender of the call costs, in a process of its own: `pair SIZE COUNT` allocates and drops buffers."""

from __future__ import annotations

import os
import sys
from typing import Any

from benchmarks.measure import BUILD
from benchmarks.worker import serve, timed


def targetmem_manager() -> Any:
    """Give the memory manager of the host."""
    import targetmem

    return targetmem.device("host:0").memory


def targetmem_device() -> Any:
    """Give the host itself: one call more than its manager."""
    import targetmem

    return targetmem.device("host:0")


def pyopencl_pool() -> Any:
    """Give PyOpenCL's pool over immediate allocation on the first device."""
    import pyopencl
    from pyopencl.tools import ImmediateAllocator, MemoryPool

    device = pyopencl.get_platforms()[0].get_devices()[0]
    queue = pyopencl.CommandQueue(pyopencl.Context([device]))
    return MemoryPool(ImmediateAllocator(queue))


def no_operation() -> Any:
    """Give an object whose method does nothing."""
    sys.path.insert(0, str(BUILD))
    import noop  # type: ignore[import-not-found,unused-ignore]

    return noop.Noop()


CONTENDERS = {
    "targetmem": targetmem_manager,
    "targetmem device": targetmem_device,
    "pyopencl": pyopencl_pool,
    "no-op method": no_operation,
}


def main() -> None:
    """Serve the contender that the command line names."""
    pool = CONTENDERS[sys.argv[1]]()
    os.sched_setaffinity(0, {0})

    def answer(words: list[str]) -> float:
        _, size, count = words
        return timed(f"pool.allocate({size})", {"pool": pool}, int(count))

    serve(answer)


if __name__ == "__main__":
    main()
