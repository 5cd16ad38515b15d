"""Arrays of every thread, task and context come from the pool, and pass between them."""

from __future__ import annotations

import asyncio
import contextvars
import queue
import random
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import targetmem
from tests.integration.arrays import MIB, bytes_of, fresh_pool


def served(size: int = 5 * MIB) -> bool:
    """Tell whether an array made here comes from the pool that serves."""
    with targetmem.pooled("numpy") as pool:
        before = pool.stats().allocations
        array = bytes_of(size, 1)
        return pool.stats().allocations == before + 1 and bool((array == 1).all())


@pytest.mark.parametrize("started", ["before", "after"])
def test_threads(started: str) -> None:
    """A thread's arrays are served, whether it was started before the pool or after."""
    ready, found = threading.Event(), []
    thread = threading.Thread(target=lambda: found.append(ready.wait(60) and served()))
    if started == "before":
        thread.start()
    with fresh_pool(cached_limit="100MiB"):
        if started == "after":
            thread.start()
        ready.set()
        thread.join()
    assert [True] == found


def test_asyncio_tasks() -> None:
    """The arrays of tasks are served: of those made before the pool, and of those made after."""

    async def main() -> list[bool]:
        go = asyncio.Event()

        async def work() -> bool:
            await go.wait()
            return served()

        early = asyncio.create_task(work())
        await asyncio.sleep(0)
        with fresh_pool(cached_limit="101MiB"):
            late = asyncio.create_task(work())
            go.set()
            return [await early, await late, await asyncio.to_thread(served)]

    assert [True] * 3 == asyncio.run(main())


def test_contexts() -> None:
    """An empty context, and one copied before the pool, are served like the current one."""
    contexts = [contextvars.Context(), contextvars.copy_context()]
    with fresh_pool(cached_limit="102MiB"):
        assert [True, True] == [context.run(served) for context in contexts]


def test_arrays_pass_between_threads() -> None:
    """An array freed by another thread than its maker's goes back to the pool; the maker uses it again."""
    arrays: queue.SimpleQueue[np.ndarray | None] = queue.SimpleQueue()
    sums: list[int] = []

    def consume() -> None:
        while (array := arrays.get()) is not None:
            sums.append(int(array[::MIB].sum()))

    with fresh_pool(cached_limit="103MiB") as pool:
        thread = threading.Thread(target=consume)
        thread.start()
        for value in range(50):
            arrays.put(bytes_of(5 * MIB, value))
            while arrays.qsize() > 2:
                pass
        arrays.put(None)
        thread.join()
        assert [5 * value for value in range(50)] == sums
        assert pool.stats().hits > 30


def test_many_threads() -> None:
    """Threads that make, fill, resize, check, swap and drop arrays meet no other's contents."""
    shelf: list[tuple[np.ndarray, int] | None] = [None] * 8

    def work(number: int) -> None:
        chance = random.Random(number)
        for turn in range(60):
            value = (number * 37 + turn) % 251 + 1
            make = np.zeros if chance.random() < 0.4 else np.empty
            array = make(int(2 ** chance.uniform(10, 22.7)), np.uint8)
            assert make is np.empty or not array.any()
            array.fill(value)
            if chance.random() < 0.3:
                array.resize(int(2 ** chance.uniform(10, 22.7)), refcheck=False)
                array[array == 0] = value
            place = chance.randrange(len(shelf))
            former, shelf[place] = shelf[place], (array, value)
            if former is not None:
                assert (former[0] == former[1]).all()

    with fresh_pool(min_size=1, cached_limit="32MiB"), ThreadPoolExecutor(8) as workers:
        list(workers.map(work, range(8)))
        shelf.clear()


def test_install_while_threads_work() -> None:
    """Pools come and go while other threads make, resize and drop arrays: nothing is lost or freed twice."""
    stop = threading.Event()
    failures: list[str] = []

    def work(number: int) -> None:
        arrays: list[np.ndarray] = []
        chance = random.Random(number)
        while not stop.is_set():
            arrays.append(bytes_of(int(2 ** chance.uniform(4, 20)), number + 1))
            if chance.random() < 0.3:
                array = arrays[chance.randrange(len(arrays))]
                array.resize(int(2 ** chance.uniform(4, 20)), refcheck=False)
                array.fill(number + 1)
            if len(arrays) > 6 and not (arrays.pop(chance.randrange(6)) == number + 1).all():
                failures.append(f"thread {number}")

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    pools = set()
    for turn in range(150):
        pools.add(targetmem.install("numpy", min_size=1 << turn % 12, cached_limit="8MiB"))
        with targetmem.pooled("numpy", min_size=1, cached_limit="4MiB") as inner:
            pools.add(inner)
        targetmem.uninstall("numpy")
    stop.set()
    for thread in threads:
        thread.join()
    assert [] == failures
    assert {(0, 0)} == {(pool.live_blocks, pool.stats().held.now) for pool in pools}
