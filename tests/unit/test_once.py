"""Steps that are taken once, and gates that close: with threads, with errors, with fork."""

from __future__ import annotations

import threading
import time

import pytest

from targetmem import lifecycle
from targetmem.errors import DeviceClosed, PluginError
from targetmem.lifecycle import Gate, Once, take_all, tell
from tests.unit.registries import forked, in_threads


def test_once_is_once() -> None:
    """Many threads that need a step at once see it taken once, and all get its result."""
    taken = []

    def step() -> int:
        time.sleep(0.02)
        taken.append(1)
        return 42

    assert [42] * 8 == in_threads(8, Once(step, "step"))
    assert [1] == taken


def test_an_error_is_kept() -> None:
    """A step that failed is not taken again: the same error is raised to everyone."""
    taken = []

    def step() -> None:
        taken.append(1)
        time.sleep(0.02)
        raise PluginError("no")

    once = Once(step, "step")
    errors = in_threads(8, once)
    assert [1] == taken
    assert 1 == len({id(error) for error in errors})
    with pytest.raises(PluginError, match="no"):
        once()
    assert not once.succeeded


def test_an_interrupted_step_is_not_taken_again() -> None:
    """Ctrl-C in a step reaches its thread; later uses get an error that says so."""

    def step() -> None:
        raise KeyboardInterrupt

    once = Once(step, "device x:0")
    with pytest.raises(KeyboardInterrupt):
        once()
    with pytest.raises(PluginError, match="device x:0: KeyboardInterrupt"):
        once()


def test_a_step_that_needs_itself() -> None:
    """A step that uses what it is initialising is an error, not a hang."""

    def step() -> object:
        return once()

    once: Once[object] = Once(step, "plugin x")
    with pytest.raises(PluginError, match=r"plugin x.*leave it alone"):
        once()


def test_a_gate_waits_and_refuses() -> None:
    """Closing waits for the calls inside; later ones are refused with its text; a second close says so."""
    gate, left = Gate(), []
    entered = threading.Event()

    def call() -> None:
        with gate:
            entered.set()
            time.sleep(0.05)
            left.append(1)

    thread = threading.Thread(target=call)
    thread.start()
    entered.wait()
    assert gate.close("shut")
    assert [1] == left
    assert not gate.close("again")
    with pytest.raises(DeviceClosed, match="shut"), gate:
        left.append(2)
    thread.join()
    assert [1] == left


def test_fork_never_finds_the_lock_held() -> None:
    """A child forked while other threads enter and leave gates can use them."""
    gate, stop = Gate(), threading.Event()

    def churn() -> None:
        while not stop.is_set():
            with gate:
                pass

    threads = [threading.Thread(target=churn) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        statuses = [forked(gate.__enter__) for _ in range(20)]
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert [0] * 20 == statuses
    assert lifecycle._state.acquire(blocking=False)
    lifecycle._state.release()


def test_every_step_is_taken() -> None:
    """Steps go on after one that fails; the first error is raised, and tells the others."""
    taken = []

    def fail(text: str) -> None:
        taken.append(text)
        raise PluginError(text)

    with pytest.raises(PluginError, match="first") as caught:
        take_all([lambda: fail("first"), lambda: taken.append("middle"), lambda: fail("last")])
    assert ["first", "middle", "last"] == taken
    assert "PluginError: first; PluginError: last" == tell(caught.value)
    take_all([])
