"""Made-up array programs compute the same, bit for bit, with their arrays served from a pool and without."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.integration.arrays import fresh_pool

if TYPE_CHECKING:
    from collections.abc import Callable

Values = list[np.ndarray]


def make(values: Values, one: int, two: int) -> np.ndarray:
    """Give a new array whose length one number says, and its contents the other."""
    array = np.empty(one * 97 % 5000)
    array[:] = np.arange(array.size)
    array *= two
    return array


def zeros(values: Values, one: int, two: int) -> np.ndarray:
    """Give zeros, in two dimensions."""
    return np.zeros((one % 40, two % 60))


def add(values: Values, one: int, two: int) -> np.ndarray:
    """Give the sum of two arrays, as long as the shorter one."""
    a, b = values[one % len(values)].ravel(), values[two % len(values)].ravel()
    size = min(a.size, b.size)
    return np.asarray(a[:size] + 2 * b[:size] - a[:size] * b[:size])


def grow(values: Values, one: int, two: int) -> np.ndarray:
    """Resize a copy of an array, and give it."""
    array = values[one % len(values)].flatten()
    array.resize(two * 31 % 6000, refcheck=False)
    return array


def join(values: Values, one: int, two: int) -> np.ndarray:
    """Give two arrays as one."""
    return np.concatenate([values[one % len(values)].ravel(), values[two % len(values)].ravel()])[:9000]


def order(values: Values, one: int, two: int) -> np.ndarray:
    """Give an array sorted, by one of three methods."""
    return np.sort(values[one % len(values)], axis=None, kind=("quicksort", "stable", "heapsort")[two % 3])


def select(values: Values, one: int, two: int) -> np.ndarray:
    """Give the elements that a mask and an index of integers leave."""
    array = values[one % len(values)].ravel()
    masked = array[array > two]
    return masked[np.arange(0, masked.size, 3)]


def view(values: Values, one: int, two: int) -> np.ndarray:
    """Give a view that keeps the whole array alive."""
    return values[one % len(values)][:: two % 3 + 1].T


def store(values: Values, one: int, two: int) -> np.ndarray:
    """Write into an array, which views may share; give its cumulated sum."""
    array = values[one % len(values)]
    array[...] = np.where(array > two, array - 1, array + 0.5)
    return np.cumsum(array)


def convert(values: Values, one: int, two: int) -> np.ndarray:
    """Give an array by way of other types, and of text."""
    array = values[one % len(values)].ravel() % 1000
    return array.astype(("i4", "f4", "c16", "U8", "O", "S12")[two % 6]).astype(np.complex128).real


def drop(values: Values, one: int, two: int) -> np.ndarray:
    """Forget an array."""
    return values.pop(one % len(values))[:two]


STEPS = [make, zeros, add, grow, join, order, select, view, store, convert, drop]
PROGRAMS = st.lists(
    st.tuples(st.sampled_from(STEPS), st.integers(0, 200), st.integers(0, 200)), min_size=3, max_size=40
)


def run(program: list[tuple[Callable[[Values, int, int], np.ndarray], int, int]]) -> list[bytes]:
    """Run a program; give the contents of every array that it made, and at the end of those still alive."""
    values = [np.arange(3000.0)]
    trace = []
    with np.errstate(all="ignore"):
        for step, one, two in program:
            values.append(step(values, one, two))
            trace.append(values[-1].tobytes())
    return trace + [value.tobytes() for value in values]


@settings(max_examples=60)
@given(PROGRAMS, st.sampled_from([1, 1000, 16_384, 65_536]), st.sampled_from([1, 50_000, 1 << 30]))
def test_programs(
    program: list[tuple[Callable[[Values, int, int], np.ndarray], int, int]], min_size: int, limit: int
) -> None:
    """Whichever sizes are served and however much is kept, every array has the same contents."""
    expected = run(program)
    with fresh_pool(min_size=min_size, cached_limit=limit):
        assert expected == run(program)
