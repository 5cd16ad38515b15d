"""Where the elements of a typed view lie in its Buffer, and whether they fit."""

from __future__ import annotations

from math import prod
from operator import index
from typing import TYPE_CHECKING

from targetmem.dtypes import parse_dtype

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any, SupportsIndex

    from targetmem.dtypes import ElementType

__all__ = ["Layout", "dense", "layout_of"]

MOST_DIMENSIONS = 64  # of NumPy and of the buffer protocol
MOST = (1 << 63) - 1  # what the buffer protocol holds, in elements and in bytes
Layout = tuple["ElementType", tuple[int, ...], tuple[int, ...], int]


def layout_of(
    size: int,
    dtype: object,
    shape: SupportsIndex | Iterable[SupportsIndex] | None,
    strides: Iterable[SupportsIndex] | None,
    offset: SupportsIndex,
) -> Layout:
    """Give element type, shape, strides and offset (bytes) of a view of `size` bytes.

    Raises TypeError for a dtype of no numbers, ValueError for what does not fit into the memory.
    """
    element = parse_dtype(dtype)
    start = offset.__index__()
    if not 0 <= start <= size:
        raise ValueError(f"view: expected an offset of 0 to {size} bytes, got {start}")
    extents = _shape(size - start, element.size, shape)
    steps = dense(element.size, extents) if strides is None else tuple(step.__index__() for step in strides)
    if len(steps) != len(extents) or len(extents) > MOST_DIMENSIONS:
        raise ValueError(
            f"view: expected one stride for each of up to {MOST_DIMENSIONS} dimensions, "
            f"got {len(steps)} for {len(extents)}"
        )
    if max(map(abs, (*extents, *steps)), default=0) > MOST:
        raise ValueError(f"view: expected sizes and strides of at most {MOST}, got {extents} and {steps}")
    _check_inside(size, element.size, extents, steps, start)
    return element, extents, steps, start


def _shape(
    room: int, itemsize: int, shape: SupportsIndex | Iterable[SupportsIndex] | None
) -> tuple[int, ...]:
    if shape is None:
        if room % itemsize:
            raise ValueError(f"view: expected a multiple of {itemsize} bytes, got {room}: give a shape")
        return (room // itemsize,)
    try:
        extents: Any = (shape,) if hasattr(shape, "__index__") else shape
        numbers = tuple(index(extent) for extent in extents)
    except TypeError:
        raise TypeError(f"view: expected a shape of whole numbers, got {shape!r}") from None
    if any(number < 0 for number in numbers):
        raise ValueError(f"view: expected a shape of 0 or more elements in each dimension, got {numbers}")
    return numbers


def dense(itemsize: int, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Give the strides of C order."""
    return tuple(itemsize * prod(shape[at + 1 :]) for at in range(len(shape)))


def _check_inside(
    size: int, itemsize: int, shape: tuple[int, ...], strides: tuple[int, ...], offset: int
) -> None:
    if 0 in shape:
        return
    spans = [(extent - 1) * step for extent, step in zip(shape, strides, strict=True)]
    first = offset + sum(span for span in spans if span < 0)
    last = offset + sum(span for span in spans if span > 0) + itemsize
    if first < 0 or last > size:
        raise ValueError(f"view: expected elements in bytes 0 to {size} of the Buffer, got {first} to {last}")
