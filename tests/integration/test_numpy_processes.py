"""Pooled arrays at a process's end, in its children, and without memory left: each in a fresh process."""

from __future__ import annotations

import sys
import textwrap

import pytest

from tests.integration.running import Outcome, plain

START = """
import gc, os, sys, threading, time
import numpy as np
import targetmem

MIB = 1 << 20
pool = targetmem.install("numpy", min_size=1)
"""

# How a program can end while arrays are alive.
EXITS = {
    "in globals": "a = np.ones(9 * MIB)\nb = [np.zeros(5 * MIB) for _ in range(4)]",
    "in cycles": """
        class Node: pass
        for _ in range(5):
            n = Node(); n.me = n; n.a = np.ones(MIB); n.o = np.array([n, n], object)
    """,
    "in a default argument": "def f(a=np.ones(MIB)): pass\nnp.mine = np.ones(MIB)",
    "freed by an object's end": """
        class Late:
            def __init__(self): self.a = np.ones(MIB)
            def __del__(self): self.a.resize(2 * MIB, refcheck=False); b = self.a + 1; del self.a
        late = Late(); sys.late = Late(); late.me = late
    """,
    "sys.exit": "a = np.ones(MIB)\nsys.exit(3)",
    "an exception": "a = np.ones(MIB)\nraise KeyError(5)",
    "os._exit": "a = np.ones(MIB)\nos._exit(4)",
    "daemon threads": """
        def work():
            while True: np.ones(MIB // 4).resize(MIB // 8, refcheck=False)
        for _ in range(3): threading.Thread(target=work, daemon=True).start()
        time.sleep(0.2)
    """,
    "uninstalled": "a = np.ones(MIB)\ntargetmem.uninstall('numpy')\nb = np.ones(MIB)",
    "in a block": "x = targetmem.pooled('numpy', min_size=MIB)\nx.__enter__()\na = np.ones(MIB)",
    "atexit": """
        import atexit
        @atexit.register
        def end():
            b = np.ones(MIB); targetmem.uninstall('numpy'); del b; print('end', file=sys.stderr)
    """,
    "NumPy's module taken away": """
        a = np.ones(MIB)
        for name in [name for name in sys.modules if name.startswith('numpy')]: del sys.modules[name]
        del np; gc.collect(); b = a + 1; del a; gc.collect()
    """,
}
STATUSES = {"sys.exit": 3, "an exception": 1, "os._exit": 4}
LAST_LINES = {"an exception": "KeyError: 5", "atexit": "end"}


# Python warns of a fork while there are threads, those of NumPy's linear algebra included.
MAY_FORK = ("-W", "ignore::DeprecationWarning")


def run(program: str) -> Outcome:
    """Run a program that starts as START says."""
    return plain("-c", START + textwrap.dedent(program), flags=MAY_FORK)


@pytest.mark.parametrize("way", EXITS)
def test_exits(way: str) -> None:
    """A process that ends with pooled arrays alive ends as it would without a pool."""
    outcome = run(EXITS[way])
    assert STATUSES.get(way, 0) == outcome.status, outcome.stderr
    assert LAST_LINES.get(way, "") == (outcome.stderr.splitlines() or [""])[-1]


@pytest.mark.slow
def test_many_exits() -> None:
    """Daemon threads that work on arrays don't crash the exit, however often it is tried."""
    for _ in range(15):
        assert (0, "") == (outcome := run(EXITS["daemon threads"]))[::2], outcome


def test_fork() -> None:
    """Parent and child both go on with their arrays and the pool, and neither sees what the other does."""
    outcome = run("""
        array = np.full(9 * MIB, 1, np.uint8)
        np.ones(9 * MIB)
        child = os.fork()
        for value in range(2, 50):
            assert (array == value - 1).all()
            array = np.full(9 * MIB, value, np.uint8)
            array.resize(10 * MIB, refcheck=False)
            array.fill(value)
        hits = pool.stats().hits
        assert hits > 40, hits
        targetmem.uninstall("numpy")
        if child == 0:
            sys.exit(7)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    """)
    assert (0, "", "") == outcome


def test_fork_while_threads_work() -> None:
    """A child forked while other threads are inside the pool can use the pool."""
    outcome = run("""
        def work():
            while not stop: np.ones(MIB // 8); np.zeros(MIB // 16)
        stop = False
        threads = [threading.Thread(target=work) for _ in range(3)]
        for thread in threads: thread.start()
        for _ in range(20):
            child = os.fork()
            if child == 0:
                assert (np.full(MIB, 3, np.uint8) + np.zeros(MIB, np.uint8) == 3).all()
                os._exit(0)
            assert os.waitpid(child, 0)[1] == 0
        stop = True
        for thread in threads: thread.join()
    """)
    assert (0, "", "") == outcome


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_multiprocessing(method: str, tmp_path: object) -> None:
    """Arrays sent to worker processes and back are the same ones."""
    program = f"{tmp_path}/program.py"
    with open(program, "w") as file:  # noqa: PTH123 - spawn needs a file of the program's own
        file.write(
            START.replace("pool =", "pool = __name__ == '__main__' and")
            + textwrap.dedent(f"""
            import multiprocessing

            def double(array):
                return array * 2

            if __name__ == "__main__":
                with multiprocessing.get_context({method!r}).Pool(2) as workers:
                    found = workers.map(double, [np.full(MIB, n) for n in range(6)])
                assert [(a == 2 * n).all() for n, a in enumerate(found)] == [True] * 6
        """)
        )
    assert (0, "", "") == plain(program, flags=MAY_FORK)


LIMITED = """
    import resource
    def limit(spare):
        used = int(open("/proc/self/statm").read().split()[0]) * 4096
        resource.setrlimit(resource.RLIMIT_AS, (used + spare,) * 2)
"""


def test_kept_memory_is_given_back_to_an_array() -> None:
    """When the system has no more memory the pool gives back what it keeps, and the array gets it."""
    outcome = run(
        LIMITED
        + """
    targetmem.uninstall("numpy")
    pool = targetmem.install("numpy", cached_limit="1GiB")
    a = [np.ones(8 * MIB) for _ in range(6)]
    a.clear()
    assert pool.stats().cached.now >= 380 * MIB
    limit(64 * MIB)
    b = np.ones(45 * MIB)
    assert b.sum() == 45 * MIB
    assert pool.stats().reclaims > 0
    """
    )
    assert (0, "", "") == outcome


def test_kept_memory_is_given_back_to_small_arrays() -> None:
    """When the C library has no more memory for arrays below min_size it gets what the pool keeps."""
    outcome = run(
        LIMITED
        + """
    targetmem.uninstall("numpy")
    pool = targetmem.install("numpy", cached_limit="1GiB")
    a = [np.ones(8 * MIB) for _ in range(6)]
    a.clear()
    limit(64 * MIB)
    b = [np.ones(MIB // 4) for _ in range(100)]
    c = [np.zeros(MIB // 4) for _ in range(50)]
    assert pool.stats().trims > 0
    """
    )
    assert (0, "", "") == outcome


def test_garbage_is_collected_for_an_array() -> None:
    """Arrays in unreachable cycles are freed when an array finds no memory; what is alive stays."""
    outcome = run(
        LIMITED
        + """
    class Node: pass
    gc.disable()
    alive = np.ones(8 * MIB)
    for _ in range(4):
        node = Node(); node.me = node; node.a = np.ones(8 * MIB)
    del node
    limit(48 * MIB)
    b = np.ones(24 * MIB)
    assert b.sum() == 3 * alive.sum()
    try:
        np.ones(200 * MIB)
    except MemoryError as error:
        print("Unable to allocate" in str(error))
    assert np.ones(100).sum() == 100
    """
    )
    assert (0, "True\n", "") == outcome


@pytest.mark.skipif(sys.version_info < (3, 13), reason="subinterpreters have a module only since Python 3.13")
def test_subinterpreters() -> None:
    """Another interpreter of the process, in which NumPy itself refuses to be imported, changes nothing."""
    outcome = run("""
        import _interpreters
        other = _interpreters.create()
        error = _interpreters.exec(other, "import numpy")
        _interpreters.destroy(other)
        assert (np.ones(MIB) + 1 == 2).all()
    """)
    assert (0, "") == (outcome.status, outcome.stderr)


def test_numpy_is_imported_by_install_only() -> None:
    """Importing targetmem, and naming install, leaves NumPy unimported; install imports it."""
    outcome = plain(
        "-c",
        "import sys, targetmem\ntargetmem.install\nprint('numpy' in sys.modules)\n"
        "targetmem.install('numpy')\nprint('numpy' in sys.modules)",
    )
    assert (0, "False\nTrue\n", "") == outcome
