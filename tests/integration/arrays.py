"""What the tests of NumPy's pool share: a pool of one's own, arrays, and the process's resident memory."""

from __future__ import annotations

import gc
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy._core import _multiarray_umath  # type: ignore[attr-defined]

import targetmem
from targetmem._core import numpy_attached

if TYPE_CHECKING:
    from collections.abc import Iterator

    from targetmem.integrations.numpy import ArrayPool

__all__ = ["MIB", "attached", "bytes_of", "fresh_pool", "handler_name", "resident"]

MIB = 1 << 20


def attached() -> bool:
    """Tell whether NumPy's default handler can serve arrays from a pool now."""
    return numpy_attached(_multiarray_umath._ARRAY_API)


def handler_name(array: np.ndarray | None = None) -> object:
    """Give the name of an array's handler, or of the one that holds here."""
    arguments = () if array is None else (array,)
    return _multiarray_umath.get_handler_name(*arguments)


def bytes_of(size: int, value: int) -> np.ndarray:
    """Give an array of so many bytes, all of this value."""
    return np.full(size, value, np.uint8)


def resident() -> int:
    """Give the bytes of the process that are in memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


@contextmanager
def fresh_pool(**options: object) -> Iterator[ArrayPool]:
    """Serve from a pool; at the end all structures are sound, and no pooled array was forgotten."""
    gc.collect()
    with targetmem.pooled("numpy", **options) as pool:
        before = pool.live_blocks
        yield pool
        gc.collect()
        assert before == pool.live_blocks
        pool._core.check()
