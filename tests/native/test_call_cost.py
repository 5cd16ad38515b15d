"""The cost of a call in instructions, which is the same on every run; times are in benchmarks/."""

from __future__ import annotations

import shutil
import types

import pytest

import targetmem
from benchmarks import instructions, peers
from targetmem._core import ManagerCore, own_methods
from targetmem._device import Device

# A little above what was counted with gcc 12: 95 from C; 468, 505 and 496 from CPython 3.11, 3.12 and 3.13,
# and 539, 579 and 563 with a device, of which a call that does nothing is 180 to 200. A call that costs more
# needs a reason, and a new ceiling.
CEILING_FROM_C = {64: 105, 4096: 105}
CEILING_FROM_PYTHON = {"targetmem": 530, "targetmem device": 610}

needs_valgrind = pytest.mark.skipif(
    shutil.which("valgrind") is None, reason="valgrind is not installed: apt-get install valgrind"
)


@pytest.mark.slow
@pytest.mark.native
@needs_valgrind
@pytest.mark.parametrize("size", CEILING_FROM_C)
def test_pair_from_c_stays_below_its_ceiling(size: int) -> None:
    """An allocate and a free of a cached size execute few instructions."""
    peers.TARGETMEM.prepare()
    assert 0 < instructions.from_c("targetmem", size) <= CEILING_FROM_C[size]


@pytest.mark.slow
@needs_valgrind
@pytest.mark.parametrize("name", CEILING_FROM_PYTHON)
def test_buffer_from_python_stays_below_its_ceiling(name: str) -> None:
    """Creating and dropping a buffer executes few instructions, the interpreter's included."""
    assert 0 < instructions.from_python(name, 64) <= CEILING_FROM_PYTHON[name]


@pytest.mark.parametrize(
    ("owner", "name"),
    [(targetmem.MemoryManager, "allocate"), (targetmem.MemoryManager, "free"), (Device, "allocate")],
)
def test_hot_methods_are_plain_c_methods_of_their_own_class(owner: type, name: str) -> None:
    """CPython specialises a call of a C method only for objects of the very class that it belongs to."""
    method = vars(owner)[name]
    assert type(method) is types.MethodDescriptorType
    assert method.__objclass__ is owner


def test_an_overriding_method_stays() -> None:
    """A class that has its own method, or inherits one written in Python, keeps it."""

    class Own(ManagerCore):
        def free(self, pointer: object, size: object = None, /) -> None:
            """Do nothing."""

    class Heir(Own):
        pass

    assert type(own_methods(Heir)) is type
    assert Heir.free is Own.free
    assert vars(Heir)["allocate"].__objclass__ is Heir
