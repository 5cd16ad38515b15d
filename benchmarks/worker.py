"""What the Python workers share: time a statement by the thread's CPU time, answer on stdout."""

from __future__ import annotations

import gc
import sys
import time
import timeit
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

UNROLLED = 10


def timed(statement: str, names: dict[str, Any], count: int) -> float:
    """Give the nanoseconds that one statement of `count` takes, unrolled so that the loop costs little."""
    loops = max(1, count // UNROLLED)
    timer = timeit.Timer(";".join([statement] * UNROLLED), globals=names, timer=time.thread_time)
    return timer.timeit(loops) / (loops * UNROLLED) * 1e9


def serve(answer: Callable[[list[str]], float | list[float]]) -> None:
    """Answer each line of words on stdin with a number, or some, on stdout."""
    gc.disable()
    for line in sys.stdin:
        found = answer(line.split())
        print(*(f"{number:.6g}" for number in (found if isinstance(found, list) else [found])), flush=True)
