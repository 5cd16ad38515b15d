"""Our mapping of NumPy arrays on the host device, in a process of its own: the commands of mapping_llvm.c."""

from __future__ import annotations

import os

import numpy as np

import targetmem
from benchmarks.worker import serve, timed

STATEMENT = "device.enter(to=array); device.exit(from_=array)"


def main() -> None:
    """Serve."""
    os.sched_setaffinity(0, {0})
    device = targetmem.device("host:0")
    mapped: list[np.ndarray] = []

    def answer(words: list[str]) -> float:
        number = int(words[1])
        if words[0] == "others":
            device.exit(delete=mapped)
            size = int(words[2])
            mapped[:] = [row[:size] for row in np.zeros((number, 2 * size), "u1")]
            device.enter(alloc=mapped)
            return number
        array = np.zeros(number, "u1")
        return timed(STATEMENT, {"device": device, "array": array}, int(words[2]))

    serve(answer)
    device.exit(delete=mapped)


if __name__ == "__main__":
    main()
