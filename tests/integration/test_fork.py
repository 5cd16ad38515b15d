"""Fork (M16): the host goes on in the child, any other device refuses, and the parent keeps what it has."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

import pytest

from tests.integration.running import Outcome, plain

if TYPE_CHECKING:
    from pathlib import Path

# Python warns of a fork while there are threads.
MAY_FORK = ("-W", "ignore::DeprecationWarning")
START = """
import multiprocessing, os, signal, sys, threading
import targetmem
from targetmem.errors import DeviceClosed

def wait(child):
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert status == 0, status

def refuses(call):
    try:
        call()
    except DeviceClosed as error:
        assert "belongs to the parent process" in str(error), error
        assert "spawn" in str(error), error
        return True
    return False
"""
DEVICES = """
host, other = targetmem.device("host:0"), targetmem.device("simulated:0")
kept, freed = host.allocate(1000), host.allocate(2000)
memoryview(kept)[:] = b"k" * 1000
freed.release()
theirs, cached = other.allocate(1000), other.allocate(2000)
cached.release()
"""


def run(program: str, log: Path, devices: str = DEVICES) -> tuple[Outcome, dict[int, list[str]]]:
    """Run a program; gives its outcome, and the simulated plugin's calls of each process."""
    path = log / "program.py"
    path.write_text(START + devices + textwrap.dedent(program))
    outcome = plain(str(path), flags=MAY_FORK, env={"TARGETMEM_SIMULATED_LOG": str(log / "log")})
    calls: dict[int, list[str]] = {}
    for line in (log / "log").read_text().splitlines():
        calls.setdefault(int(line.split()[0]), []).append(line.split()[1])
    return outcome, calls


def assert_parent_only(calls: dict[int, list[str]]) -> None:
    """Assert that one process called the plugin, and that it gave back all that it had."""
    (own,) = calls.values()
    assert ("init", "deinit") == (own[0], own[-1])
    assert own.count("allocate") == own.count("release")


ENDS = {"falls through": "", "sys.exit": "sys.exit(0)", "os._exit": "os._exit(0)"}


@pytest.mark.parametrize("end", ENDS)
def test_a_child(end: str, tmp_path: Path) -> None:
    """The child uses and frees the host's memory, the other device refuses it; the parent sees none of it."""
    outcome, calls = run(
        f"""
        child = os.fork()
        if child == 0:
            assert bytes(kept) == b"k" * 1000
            memoryview(kept)[:] = b"c" * 1000
            kept.release()
            reused = host.allocate(2000)
            assert reused.pointer == host.allocate(1000).pointer or reused.pointer
            big = host.allocate(1 << 20)
            host.memory.check(); host.memory.trim(); host.memory.check()
            assert refuses(lambda: other.allocate(2000))
            assert refuses(lambda: other.allocate(20_000))
            assert refuses(lambda: other.allocate(10, kind="host"))
            assert refuses(other.memory_info) and refuses(other.synchronize)
            assert refuses(lambda: targetmem.device("simulated:0").allocate(1))
            assert 0 == other.memory.trim()
            theirs.release()
            other.close()
            {ENDS[end]}
        else:
            wait(child)
            assert bytes(kept) == b"k" * 1000
            theirs.release()
            assert other.memory.counters().cached_blocks == 2
            assert other.allocate(1000) and other.memory.counters().hits == 1
        """,
        tmp_path,
    )
    assert (0, "", "") == outcome
    assert_parent_only(calls)


def test_a_device_may_be_first_used_in_a_child(tmp_path: Path) -> None:
    """A plugin that the parent did not start is the child's own: it begins and ends there."""
    outcome, calls = run(
        """
        child = os.fork()
        buffer = targetmem.device("simulated:0").allocate(100)
        if child:
            wait(child)
        """,
        tmp_path,
        devices="",
    )
    assert (0, "", "") == outcome
    assert 2 == len(calls)
    for own in calls.values():
        assert ["init", "init_device", "allocate", "release", "deinit_device", "deinit"] == own


def test_a_childs_child(tmp_path: Path) -> None:
    """The same holds for a child of the child."""
    outcome, calls = run(
        """
        child = os.fork()
        if child == 0:
            second = os.fork()
            assert refuses(lambda: other.allocate(10))
            host.allocate(2000).release(); host.memory.check()
            if second == 0:
                kept.release(); host.memory.check(); os._exit(0)
            wait(second)
            os._exit(0)
        wait(child)
        """,
        tmp_path,
    )
    assert (0, "", "") == outcome
    assert_parent_only(calls)


def test_fork_while_threads_allocate(tmp_path: Path) -> None:
    """A fork at any moment of other threads' calls leaves the child's managers whole and usable."""
    outcome, calls = run(
        """
        over = False
        def work(device, size):
            while not over:
                buffers = [device.allocate(size + step) for step in range(20)]
                del buffers[::2]
                device.memory.trim(1000)
        threads = [threading.Thread(target=work, args=pair, daemon=True)
                   for pair in ((host, 100), (host, 8180), (other, 50), (other, 8180))]
        for thread in threads: thread.start()
        for turn in range(25):
            child = os.fork()
            if child == 0:
                signal.alarm(30)
                assert refuses(lambda: other.allocate(turn + 1))
                buffers = [host.allocate(100 + step) for step in range(0, 9000, 300)]
                for number, buffer in enumerate(buffers):
                    memoryview(buffer)[:] = bytes([number]) * len(buffer)
                assert all(set(bytes(buffer)) == {number} for number, buffer in enumerate(buffers))
                buffers.clear(); host.memory.trim()  # no check: what other threads had in their hands is lost
                os._exit(0)
            wait(child)
        over = True
        for thread in threads: thread.join()
        host.memory.check(); other.memory.check()
        """,
        tmp_path,
    )
    assert (0, "", "") == outcome
    assert_parent_only(calls)


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_multiprocessing(method: str, tmp_path: Path) -> None:
    """Workers of each start method use the host; the other device only where they don't come by a fork."""
    outcome, calls = run(
        f"""
        def work(size):
            with targetmem.device("host:0").allocate(size) as buffer:
                memoryview(buffer)[:] = b"w" * size
                found = bytes(buffer).count(b"w")
            if "parent" in globals() and {method == "fork"}:
                assert refuses(lambda: targetmem.device("simulated:0").allocate(size))
            else:
                targetmem.device("simulated:0").allocate(size).release()
            return found

        if __name__ == "__main__":
            parent = targetmem.device("simulated:0").allocate(100)
            with multiprocessing.get_context({method!r}).Pool(2) as workers:
                assert workers.map(work, range(1, 20_000, 1000)) == list(range(1, 20_000, 1000))
                workers.close(); workers.join()
        """,
        tmp_path,
        devices="",
    )
    assert (0, "", "") == outcome
    if method == "fork":
        assert_parent_only(calls)
    for own in calls.values():
        assert 1 == own.count("init")


def test_mapped_data(tmp_path: Path) -> None:
    """In the child the host's mappings go on, apart from the parent's; another device refuses."""
    program = """
    data, big = bytearray(b"parent"), bytearray(1 << 20)
    host.enter(to=data)
    other.enter(to=data)

    child = os.fork()
    if child == 0:
        assert host.is_present(data)
        data[:] = b"child!"
        host.exit(from_=data)
        assert data == b"parent"
        assert refuses(lambda: other.exit(from_=data))
        assert refuses(lambda: other.is_present(data))
        os._exit(0)
    wait(child)
    assert host.is_present(data)
    host.exit(release=data)
    other.exit(from_=data)
    """
    outcome, calls = run(program, tmp_path)
    assert (0, "") == (outcome.status, outcome.stderr)
    assert_parent_only(calls)
