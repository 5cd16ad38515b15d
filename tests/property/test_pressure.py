"""Any set of callbacks against what must happen: who is called, in which order, and what the request gets."""

from __future__ import annotations

import warnings
from contextlib import ExitStack
from itertools import count
from typing import TYPE_CHECKING, NamedTuple

from hypothesis import given
from hypothesis import strategies as st

import targetmem
from targetmem import MemoryManager
from targetmem.errors import OutOfDeviceMemory, TargetMemoryWarning

if TYPE_CHECKING:
    from targetmem import Buffer


class Callback(NamedTuple):
    """A callback: its priority, the bytes that it frees, how it answers, and whether it was removed."""

    priority: int
    frees: int
    answer: str
    removed: bool


CALLBACKS = st.lists(
    st.builds(
        Callback,
        st.integers(-2, 2),
        st.sampled_from([0, 100, 400, 1000]),
        st.sampled_from(["None", "True", "False", "raise", "ask"]),
        st.booleans(),
    ),
    max_size=6,
)


def expected_calls(callbacks: list[Callback], wanted: int) -> tuple[list[int], bool]:
    """Give who is called, by place in the list, and whether the request is served then."""
    free, called = 0, []
    order = sorted((c for c in enumerate(callbacks) if not c[1].removed), key=lambda c: -c[1].priority)
    for place, callback in order:
        called.append(place)
        free += callback.frees
        if free >= wanted and callback.answer not in ("False", "raise"):
            return called, True
    return called, False


class Program:
    """A device full of live memory, some of which each callback frees."""

    def __init__(self, callbacks: list[Callback]) -> None:
        self.addresses = count(1 << 40, 1 << 20)
        self.used, self.limit = 0, sum(callback.frees for callback in callbacks)
        self.manager = MemoryManager(self.allocate, lambda _, size: self.release(size), threshold=0)
        self.caches = [[self.manager.allocate(callback.frees)] for callback in callbacks]
        self.callbacks = callbacks
        self.called: list[int] = []
        self.told: set[int] = set()

    def allocate(self, size: int, alignment: int) -> int | None:
        """Give an address of its own as long as the limit allows."""
        if self.used + size > self.limit:
            return None
        self.used += size
        return next(self.addresses)

    def release(self, size: int) -> None:
        """Take bytes back."""
        self.used -= size

    def run(self, place: int, wanted: int) -> bool | None:
        """Be the callback at a place of the list."""
        self.called.append(place)
        self.told.add(wanted)
        self.caches[place].clear()
        answer = self.callbacks[place].answer
        if answer == "raise":
            raise KeyError("as chosen")
        if answer == "ask":  # its own request is refused at once, or served: it calls nobody
            self.ask(self.limit + 1)
        return {"True": True, "False": False}.get(answer)

    def ask(self, wanted: int) -> Buffer | None:
        """Give the Buffer, or None when the request was refused."""
        try:
            return self.manager.allocate(wanted)
        except OutOfDeviceMemory:
            return None


@given(CALLBACKS, st.sampled_from([1, 100, 500, 1500]))
def test_callbacks(callbacks: list[Callback], wanted: int) -> None:
    """By priority, then as registered; each once and told the bytes; who made room is the last."""
    program = Program(callbacks)
    with ExitStack() as stack, warnings.catch_warnings():
        warnings.simplefilter("ignore", TargetMemoryWarning)  # of callbacks that raise
        for place, callback in enumerate(callbacks):
            handle = targetmem.on_pressure(
                lambda bytes_wanted, place=place: program.run(place, bytes_wanted),  # type: ignore[misc]
                callback.priority,
            )
            stack.callback(handle.remove)
            if callback.removed:
                handle.remove()
        served = program.ask(wanted)
    called, expected = expected_calls(callbacks, wanted)
    assert (called, expected) == (program.called, served is not None)
    assert program.told <= {wanted}
    program.manager.check()
