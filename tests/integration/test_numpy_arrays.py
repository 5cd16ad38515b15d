"""Arrays whose memory comes from a pool: which are served, what they contain, how they grow and shrink."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.integration.arrays import MIB, bytes_of, fresh_pool, handler_name, resident

SIZES = [4 * MIB, 4 * MIB + 1, 5 * MIB - 4097, 16 * MIB + 8, 40 * MIB]


def test_big_arrays_are_served() -> None:
    """An array of min_size bytes comes from the pool, one that is a byte smaller doesn't."""
    with fresh_pool(min_size="5MiB") as pool:
        before = pool.stats().allocations
        small = bytes_of(5 * MIB - 1, 1)
        assert before == pool.stats().allocations
        big = bytes_of(5 * MIB, 1)
        assert before + 1 == pool.stats().allocations
        assert 1 == pool.live_blocks
        assert (small == 1).all()
        assert (big == 1).all()
        del big


def test_freed_memory_is_reused() -> None:
    """The temporaries of an expression are served again and again by the same few blocks."""
    with fresh_pool(cached_limit="256MiB") as pool:
        a = np.arange(1_000_000.0)
        expected = float((a * 2 + a / 2).sum())
        before = pool.stats()
        for _ in range(20):
            assert expected == float((a * 2 + a / 2).sum())
        after = pool.stats()
        assert after.hits - before.hits >= 40
        assert after.device_allocations <= before.device_allocations + 1  # NumPy may use a temporary twice
        del a


def test_sizes_that_are_close_share_blocks() -> None:
    """A block serves requests a little smaller or bigger: sizes are rounded up, by a quarter at most."""
    with fresh_pool() as pool:
        bytes_of(9 * MIB, 1)
        before = pool.stats().misses
        for size in range(8 * MIB + 1, 10 * MIB, 99_998):
            bytes_of(size, 2)
        stats = pool.stats()
        assert before == stats.misses
        array = bytes_of(8 * MIB + 1, 1)
        assert 8 * MIB < pool.stats().live.now <= 10 * MIB
        del array


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("min_size", [1, 4 * MIB])
def test_zeros_are_zeros(size: int, min_size: int) -> None:
    """np.zeros on a reused block reads as zeros up to the last byte, whatever the array before left there."""
    with fresh_pool(min_size=min_size) as pool:
        bytes_of(size, 255)
        hits = pool.stats().hits
        zeros = np.zeros(size, np.uint8)
        assert hits < pool.stats().hits
        assert not zeros.any()
        del zeros


@pytest.mark.parametrize("step", [4096, 2 * MIB, 3 * MIB])
def test_zeros_on_a_block_touched_here_and_there(step: int) -> None:
    """np.zeros reads as zeros too when only some pages of the reused block had been written."""
    with fresh_pool() as pool:
        sparse = np.empty(40 * MIB, np.uint8)
        sparse[1::step] = 7
        del sparse
        hits = pool.stats().hits
        zeros = np.zeros(40 * MIB - 5, np.uint8)
        assert hits < pool.stats().hits
        assert not zeros.any()
        del zeros


def test_zeros_stay_lazy() -> None:
    """Zeros that nobody touches take no memory, neither new blocks nor those that an untouched array left."""
    with fresh_pool() as pool:
        before = resident()
        for _ in range(5):
            zeros = np.zeros(256 * MIB, np.uint8)
            zeros[123] = 1
            del zeros
        assert pool.stats().hits >= 4
        assert resident() - before < 16 * MIB


@settings(max_examples=30)
@given(st.lists(st.integers(1, 9 * MIB), min_size=1, max_size=6))
@example([3 * MIB, 6 * MIB, 6 * MIB + 1, 1, 5 * MIB])
@example([8 * MIB, 4 * MIB, 4 * MIB - 1])
def test_resize_keeps_the_contents(sizes: list[int]) -> None:
    """An array that grows and shrinks, across min_size too, keeps what fits; NumPy zeroes the rest."""
    for min_size in (1, 4 * MIB):
        with fresh_pool(min_size=min_size):
            array = bytes_of(2 * MIB, 9)
            for size in sizes:
                kept = min(size, array.size)
                array.resize(size, refcheck=False)
                assert (array[:kept] == 9).all()
                assert not array[kept:].any()
                array.fill(9)
            del array


def test_a_growing_array_is_moved_by_the_system() -> None:
    """Growing a pooled array copies nothing: no second block is ever held."""
    with fresh_pool(cached_limit="99MiB") as pool:
        array = bytes_of(32 * MIB, 3)
        array.resize(96 * MIB, refcheck=False)
        held = pool.stats().held
        assert (96 * MIB, 96 * MIB) == (held.now, held.peak)
        assert (array[: 32 * MIB] == 3).all()
        del array


@pytest.mark.parametrize(("before", "after"), [(4, 8), (4, 5), (12, 5), (40, 100), (100, 40), (9, 3)])
def test_resizing_again_and_again(before: int, after: int) -> None:
    """A program that resizes in a loop is served by the same few blocks, and what is kept doesn't pile up."""
    with fresh_pool() as pool:
        for turn in range(12):
            array = bytes_of(before * MIB, turn)
            array.resize(after * MIB, refcheck=False)
            assert array[0] == array[min(before, after) * MIB - 1] == turn
            del array
            if turn == 4:
                start = pool.stats()
        assert start.device_allocations == pool.stats().device_allocations
        assert start.held.now == pool.stats().held.now


def test_shrinking_a_little_keeps_the_block() -> None:
    """An array that shrinks to more than half of its block stays where it is; below that memory goes back."""
    with fresh_pool() as pool:
        array = bytes_of(64 * MIB, 7)
        address = array.ctypes.data
        array.resize(33 * MIB, refcheck=False)
        assert (64 * MIB, address) == (pool.stats().live.now, array.ctypes.data)
        array.resize(20 * MIB, refcheck=False)
        assert 20 * MIB == pool.stats().live.now
        assert (array == 7).all()
        array.resize(MIB, refcheck=False)
        assert (0, 0) == (pool.stats().live.now, pool.live_blocks)
        assert (array == 7).all()
        del array


def test_memory_functions_of_numpy() -> None:
    """What NumPy builds by growing, and what it copies, has the right contents."""
    with fresh_pool(min_size=1):
        numbers = np.fromiter((i * i for i in range(100_000)), np.int64)
        assert int(numbers[99_999]) == 99_999**2
        assert (np.append(numbers, [1])[:-1] == numbers).all()
        assert np.array_equal(np.fromstring(" ".join(map(str, range(5000))), sep=" "), np.arange(5000.0))
        assert 0 == np.zeros(0).size
        assert np.empty((0, 5)).size == np.empty((3, 0)).copy().size
        copy = numbers.copy()
        copy.sort()
        assert np.array_equal(copy, numbers)
        del numbers, copy


def test_arrays_of_objects() -> None:
    """Arrays of Python objects, which NumPy clears before use, hold and drop their references."""
    with fresh_pool(min_size=1):
        things: np.ndarray = np.array([[i] for i in range(100)] + [None], dtype=object)
        empty = np.empty(1000, object)
        assert things[7] == [7]
        assert all(item is None for item in empty)
        del things, empty


def test_the_handler_keeps_its_name() -> None:
    """Code that asks for the handler gets the answer that it gets without a pool."""
    expected = handler_name(), handler_name(np.ones(3))
    with fresh_pool(min_size=1):
        assert expected == (handler_name(), handler_name(np.ones(3))) == ("default_allocator",) * 2


def test_tracemalloc_still_counts() -> None:
    """Python's tracemalloc sees pooled arrays as it sees others, with the size asked for."""
    with fresh_pool() as pool:
        tracemalloc.start()
        try:
            before = tracemalloc.get_traced_memory()[0]
            array = np.empty(9 * MIB, np.uint8)
            assert 1 == pool.live_blocks
            assert abs(tracemalloc.get_traced_memory()[0] - before - 9 * MIB) < 100_000
            del array
            assert tracemalloc.get_traced_memory()[0] - before < 100_000
        finally:
            tracemalloc.stop()


def test_a_size_beyond_all_memory() -> None:
    """A request that no system can serve is NumPy's own MemoryError, and nothing is lost."""
    with fresh_pool() as pool:
        live = pool.stats().live.now
        for size in (1 << 60, (1 << 63) - 1):
            with pytest.raises(MemoryError, match="Unable to allocate"):
                np.empty(size, np.uint8)
            with pytest.raises(MemoryError, match="Unable to allocate"):
                np.zeros(size, np.uint8)
        array = bytes_of(4 * MIB, 5)
        with pytest.raises(MemoryError):
            array.resize(1 << 60, refcheck=False)
        assert (array == 5).all()
        del array
        assert live == pool.stats().live.now
