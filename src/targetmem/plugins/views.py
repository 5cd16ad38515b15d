"""Memory that a Python function may look at, as a NumPy array; without NumPy as a memoryview."""

from __future__ import annotations

import ctypes
from importlib import import_module
from typing import TYPE_CHECKING, Any

from targetmem.abc import TargetArray

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from targetmem.abc import Argument

__all__ = ["memory_at", "views"]


def memory_at(address: int, size: int) -> Any:
    """Give bytes of this process as an object with the buffer protocol, without a copy."""
    return (ctypes.c_char * size).from_address(address)


def views(arguments: Sequence[Argument], memory: Callable[[int, int], Any] = memory_at) -> list[Any]:
    """Give a function's arguments: arrays for memory, numbers as they are; `memory` finds bytes."""
    return [_view(a, memory) if isinstance(a, TargetArray) else a for a in arguments]


def _view(array: TargetArray, memory: Callable[[int, int], Any]) -> Any:
    try:
        import numpy as np
    except ImportError:
        whole: Any = memoryview(memory(array.address, array.size)).cast("B")
        return whole.cast(array.format.lstrip("@="), array.shape) if array.size else whole
    dtype = np.dtype(_dtype(array.format))
    if array.strides is None:
        return np.frombuffer(memory(array.address, array.size), dtype).reshape(array.shape)
    low = sum((n - 1) * stride for n, stride in zip(array.shape, array.strides, strict=True) if stride < 0)
    high = sum((n - 1) * stride for n, stride in zip(array.shape, array.strides, strict=True) if stride > 0)
    span = memory(array.address, high - low + dtype.itemsize)
    return np.ndarray(array.shape, dtype, span, offset=-low, strides=array.strides)


def _dtype(code: str) -> Any:
    """Give a NumPy type for a format of PEP 3118; records and the like go through NumPy's own reader."""
    simple = code.lstrip("@=<")
    if len(simple) == 1 and simple in "?bBhHiIlLqQefdg":
        return simple
    if simple in ("Zf", "Zd"):
        return {"Zf": "c8", "Zd": "c16"}[simple]
    internal: Any = import_module("numpy._core._internal")
    return internal._dtype_from_pep3118(code)  # noqa: SLF001 - what np.asarray(memoryview) itself uses
