"""NumPy in a process of its own: `pair NAME COUNT` times a case without the pool and with it, in turn.

Where arrays lie decides by up to 15 % how fast the same code is (an address whose lowest 12 bits equal
another one's makes a load wait). So each command makes the arrays anew, at places drawn at random, and a pair
shares them: two processes, alike or not, differ by more than what is looked for. `case NAME COUNT` times one
case as the command line says, plain or pooled, for arrays that the pool itself serves.
"""

from __future__ import annotations

import os
import random
import sys
from typing import Any

import numpy as np

import targetmem
from benchmarks.worker import serve, timed

ADD_SIZES = (8, 64, 512, 1024, 2048, 4096, 8192, 16384, 32768, 131072, 262144, 524288, 1048576)
BIG = {"a+b_8MiB": 1 << 20, "a+b_40MiB": 5 << 20}
# name: (statement, the arrays that it uses: shape by name)
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    **{f"a+b_{size}": ("a + b", {"a": size // 8, "b": size // 8}) for size in ADD_SIZES},
    "slice_stencil_32": ("g[1:-1, 1:-1] + g[:-2, 1:-1]", {"g": (32, 32)}),
    "slice_stencil_256": ("g[1:-1, 1:-1] + g[:-2, 1:-1]", {"g": (256, 256)}),
    "slice_copy_32": ("g[::2, ::2].copy()", {"g": (32, 32)}),
    "slice_copy_256": ("g[::2, ::2].copy()", {"g": (256, 256)}),
    "slice_row_view": ("g[3]", {"g": (32, 32)}),
    "slice_fancy": ("g[which]", {"g": (32, 32)}),
    "small_update": ("v * 0.5 + w", {"v": 3, "w": 3}),
    "small_array": ("np.array(line)", {}),
    "small_zeros": ("np.zeros(4)", {}),
    "small_empty": ("np.empty(4)", {}),
    "small_matmul": ("m @ v", {"m": (3, 3), "v": 3}),
    "small_norm": ("np.sqrt((v * v).sum())", {"v": 3}),
    "small_concatenate": ("np.concatenate((v, w))", {"v": 3, "w": 3}),
    "small_astype": ("row.astype('f4')", {"row": 100}),
    "small_keep_100": ("[row + i for i in range(100)]", {"row": 100}),
    "small_grow_list": ("[np.zeros(3) for i in range(100)]", {}),
    "empty_1MiB": ("np.empty(1 << 17)", {}),
    "zeros_1MiB": ("np.zeros(1 << 17)", {}),
    **{name: ("a + b", {"a": count, "b": count}) for name, count in BIG.items()},
}
TURNS = 5
NAMES = {"np": np, "line": [1.0, 2.0, 3.0], "which": np.array([1, 5, 9, 30])}


def arrays(shapes: dict[str, Any]) -> dict[str, Any]:
    """Make arrays of ones at random distances, and a hole among them as big as one, for the result."""
    made: dict[str, Any] = dict(NAMES)
    for name, shape in [*shapes.items(), *(("hole", shape) for shape in [*shapes.values()][:1])]:
        made[f"before {name}"] = bytearray(random.randrange(1024, 9216))
        made[name] = np.ones(shape)
    made["behind"] = bytearray(random.randrange(1024, 9216))
    made.pop("hole", None)
    return made


def pair(statement: str, names: dict[str, Any], count: int) -> list[float]:
    """Give the nanoseconds without the pool and with it, the least of several turns of each."""
    plain, pooled = [], []
    for _ in range(TURNS):
        plain.append(timed(statement, names, count))
        with targetmem.pooled("numpy"):
            pooled.append(timed(statement, names, count))
    return [min(plain), min(pooled)]


def main() -> None:
    """Serve the cases, with the pool installed if the command line says so."""
    os.sched_setaffinity(0, {0})
    if sys.argv[1] == "pooled":
        targetmem.install("numpy")

    def answer(words: list[str]) -> float | list[float]:
        statement, shapes = CASES[words[1]]
        return (timed if words[0] == "case" else pair)(statement, arrays(shapes), int(words[2]))

    serve(answer)


if __name__ == "__main__":
    main()
