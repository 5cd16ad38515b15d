"""NumPy in a process of its own, plain or served from the pool: `case NAME COUNT` times one of the cases."""

from __future__ import annotations

import os
import sys
from typing import Any

import numpy as np

from benchmarks.worker import serve, timed

ADD_SIZES = (8, 64, 512, 1024, 2048, 4096, 8192, 16384, 32768, 131072, 262144, 524288, 1048576)
# name: (statement, names it uses)
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    f"a+b_{size}": ("a + b", {"a": np.ones(size // 8), "b": np.ones(size // 8)}) for size in ADD_SIZES
}


def add_slicing() -> None:
    """Add the cases that cut two-dimensional arrays."""
    for side in (32, 256):
        grid = {"g": np.ones((side, side))}
        CASES[f"slice_stencil_{side}"] = ("g[1:-1, 1:-1] + g[:-2, 1:-1]", grid)
        CASES[f"slice_copy_{side}"] = ("g[::2, ::2].copy()", grid)
    CASES["slice_row_view"] = ("g[3]", {"g": np.ones((32, 32))})
    CASES["slice_fancy"] = ("g[i]", {"g": np.ones((32, 32)), "i": np.array([1, 5, 9, 30])})


def add_small() -> None:
    """Add the loops over small arrays."""
    names = {
        "np": np,
        "v": np.ones(3),
        "w": np.ones(3),
        "m": np.eye(3),
        "row": np.ones(100),
        "line": [1.0, 2.0, 3.0],
    }
    CASES["small_update"] = ("v * 0.5 + w", names)
    CASES["small_array"] = ("np.array(line)", names)
    CASES["small_zeros"] = ("np.zeros(4)", names)
    CASES["small_empty"] = ("np.empty(4)", names)
    CASES["small_matmul"] = ("m @ v", names)
    CASES["small_norm"] = ("np.sqrt((v * v).sum())", names)
    CASES["small_concatenate"] = ("np.concatenate((v, w))", names)
    CASES["small_astype"] = ("row.astype('f4')", names)
    CASES["small_keep_100"] = ("[row + i for i in range(100)]", names)
    CASES["small_grow_list"] = ("[np.zeros(3) for i in range(100)]", names)


def add_big() -> None:
    """Add what only reserves memory, and bigger arrays, where the pool should gain."""
    names = {"np": np, "big": np.ones(1 << 20), "bigger": np.ones(5 << 20)}
    CASES["empty_1MiB"] = ("np.empty(1 << 17)", names)
    CASES["zeros_1MiB"] = ("np.zeros(1 << 17)", names)
    CASES["a+b_8MiB"] = ("big + big", names)
    CASES["a+b_40MiB"] = ("bigger + bigger", names)


def main() -> None:
    """Serve the cases, with the pool installed if the command line says so."""
    os.sched_setaffinity(0, {0})
    if sys.argv[1] == "pooled":
        import targetmem

        targetmem.install("numpy")
    add_slicing()
    add_small()
    add_big()

    def answer(words: list[str]) -> float:
        statement, names = CASES[words[1]]
        return timed(statement, names, int(words[2]))

    serve(answer)


if __name__ == "__main__":
    main()
