"""Handing a Buffer's memory to other libraries without a copy: typed views, DLPack, the buffer protocol."""

from __future__ import annotations

import ctypes
import gc
import math
import subprocess
import sys
import threading
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import targetmem
from targetmem.dtypes import parse_dtype
from targetmem.plugins.simulated import SimulatedPlugin
from tests.unit.registries import registry_with

if TYPE_CHECKING:
    from collections.abc import Iterator

    from targetmem import Buffer, MemoryManager

np = pytest.importorskip("numpy")

NUMBERS = ("?", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8", "c8", "c16")
MORE_NAMES = {
    "?": ("bool",),
    "i8": ("l", "n", "int", "intp", int),
    "u8": ("L", "N", "uint", "uintp"),
    "f2": ("half",),
    "f4": ("single",),
    "f8": ("double", "float", float),
    "c16": ("complex", complex),
}


@pytest.fixture
def manager() -> Iterator[MemoryManager]:
    """Give the host's manager, of which nothing may be live afterwards that was not before."""
    found = targetmem.device("host:0").memory
    before = found.counters().live_blocks
    yield found
    gc.collect()
    assert before == found.counters().live_blocks


def allocate(size: int) -> Buffer:
    """Give memory of the host that holds 0, 1, 2, ..."""
    buffer = targetmem.device("host:0").allocate(size)
    np.asarray(buffer)[:] = np.arange(size) % 256
    return buffer


@pytest.mark.parametrize("versioned", [False, True])
def test_numpy_takes_it_over(manager: MemoryManager, versioned: bool) -> None:
    """numpy.from_dlpack gives an array on the same memory, which keeps it alive and forbids its release."""
    buffer = allocate(48)
    view = buffer.view("f4", (3, 4))
    array = np.from_dlpack(view if versioned else Unversioned(view))
    assert ((3, 4), "float32", view.pointer) == (array.shape, str(array.dtype), array.ctypes.data)
    np.asarray(view)[1, 2] = 7.5
    assert 7.5 == array[1, 2]
    with pytest.raises(BufferError, match="in use"):
        buffer.release()
    address = buffer.pointer
    del buffer, view
    gc.collect()
    assert address == array.ctypes.data
    assert 7.5 == array[1, 2]
    assert 1 == sum(block.address == address and block.live for block in manager.blocks())


class Unversioned:
    """A producer of before DLPack 1.0."""

    def __init__(self, view: Any) -> None:
        self.view = view

    def __dlpack__(self, *, stream: object = None) -> Any:
        return self.view.__dlpack__(stream=stream)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.view.__dlpack_device__()  # type: ignore[no-any-return]


def test_a_buffer_itself_is_bytes(manager: MemoryManager) -> None:
    """A Buffer without a view is handed over as bytes."""
    buffer = allocate(300)
    assert (1, 0) == buffer.__dlpack_device__()
    assert (np.arange(300) % 256 == np.from_dlpack(buffer)).all()


@pytest.mark.parametrize("max_version", [None, (1, 0), (0, 8)])
def test_a_capsule_that_nobody_takes(manager: MemoryManager, max_version: tuple[int, int] | None) -> None:
    """A capsule holds the memory until it is dropped."""
    buffer = allocate(64)
    capsule = buffer.view("i4").__dlpack__(max_version=max_version)
    name = "dltensor_versioned" if max_version == (1, 0) else "dltensor"
    assert f'"{name}"' in repr(capsule)
    with pytest.raises(BufferError):
        buffer.release()
    del capsule
    buffer.release()


def test_a_copy(manager: MemoryManager) -> None:
    """copy=True gives memory of its own, with the same contents."""
    buffer = allocate(64)
    view = buffer.view("i2", offset=4)
    copied = np.from_dlpack(view, copy=True)
    assert copied.ctypes.data != view.pointer
    assert (copied == np.asarray(view)).all()
    buffer.release()
    assert 0x0504 == copied[0]


def test_what_dlpack_refuses() -> None:
    """Another device, a stream, another byte order and memory out of the host's reach are errors."""
    view = allocate(64).view("i4")
    with pytest.raises(BufferError, match=r"expected the device \(1, 0\), got \(2, 0\)"):
        view.__dlpack__(dl_device=(2, 0))
    with pytest.raises(ValueError, match="expected no stream for memory of the host, got 1"):
        view.__dlpack__(stream=1)
    with pytest.raises(BufferError, match=r"in the machine's byte order, got >i4"):
        allocate(64).view(">i4").__dlpack__()
    registry = registry_with(SimulatedPlugin())
    far = registry.device("x:0").allocate(64).view("i4")
    for call in (type(far).__dlpack__, type(far).__dlpack_device__, memoryview):
        with pytest.raises(BufferError, match="the host cannot reach this memory"):
            call(far)
    for name in ("__array_interface__", "__cuda_array_interface__", "__sycl_usm_array_interface__"):
        assert not hasattr(far, name)
    del far
    registry.close()


def test_a_released_buffer() -> None:
    """A view of a Buffer that was released is an error, not old memory."""
    buffer = allocate(64)
    view = buffer.view("i4")
    buffer.release()
    for call in (view.__dlpack__, lambda: memoryview(view), lambda: view.__array_interface__):
        with pytest.raises(BufferError, match="was released"):
            call()
    with pytest.raises(BufferError, match="was released"):
        buffer.view("i4")


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("i4", (4, 5)), "expected elements in bytes 0 to 64 of the Buffer, got 0 to 80"),
        (("i4", -1), "expected a shape of 0 or more elements"),
        (("f8", None, None, 4), r"expected a multiple of 8 bytes, got 60: give a shape"),
        (("i4", None, None, 65), "expected an offset of 0 to 64 bytes, got 65"),
        (("i4", None, None, -1), "expected an offset of 0 to 64 bytes, got -1"),
        (("i4", (2, 2), (4,)), "expected one stride for each of up to 64 dimensions, got 1 for 2"),
        (("i4", (2,), (-4,)), "got -4 to 4"),
        (("i4", (3,), (1 << 62,)), "expected elements in bytes 0 to 64"),
        (("i4", (1 << 62, 4)), "expected elements in bytes 0 to 64"),
        (("i4", (1 << 63, 0)), f"expected sizes and strides of at most {(1 << 63) - 1}"),
        (("i4", (1,), (-1 << 70,)), f"expected sizes and strides of at most {(1 << 63) - 1}"),
        (("i4", 2.5), "expected a shape of whole numbers, got 2.5"),
        (("i4", (2, "3")), r"expected a shape of whole numbers, got \(2, '3'\)"),
        (("O",), "dtype: expected a type of numbers .* got 'O'"),
        (("x9",), "dtype: expected a type of numbers"),
        ((object,), "dtype: expected a type of numbers"),
        ((5,), "dtype: expected a type of numbers .* got 5"),
    ],
)
def test_views_that_do_not_fit(arguments: tuple[Any, ...], told: str) -> None:
    """What goes beyond the memory, and a dtype of no numbers, are errors with the numbers."""
    names = ("dtype", "shape", "strides", "offset")
    with pytest.raises((TypeError, ValueError), match=told):
        allocate(64).view(**dict(zip(names, arguments, strict=False)))


@pytest.mark.parametrize("name", NUMBERS)
def test_dtypes_mean_what_numpy_means(name: str) -> None:
    """Each spelling of a type is NumPy's: short and long names, byte orders, dtype objects and types."""
    dtype = np.dtype(name)
    spellings: list[Any] = [*MORE_NAMES.get(name, ()), name, dtype]
    spellings += [dtype.type, dtype.name, dtype.str, "=" + dtype.str[1:], dtype.char]
    for spelling in spellings:
        if spelling in ("F", "D"):
            continue  # codes of NumPy alone
        element = parse_dtype(spelling)
        assert (dtype.itemsize, dtype.str) == (element.size, element.typestr), spelling
        assert dtype == np.asarray(allocate(64).view(spelling)).dtype, spelling
    if dtype.itemsize > 1:
        swapped = dtype.newbyteorder(">")
        assert (swapped.str, None) == (parse_dtype(swapped).typestr, parse_dtype(swapped).dlpack)
        assert swapped == np.asarray(memoryview(allocate(64).view(swapped))).dtype


@st.composite
def layouts(draw: st.DrawFn) -> tuple[str, tuple[int, ...], tuple[int, ...], int]:
    """Draw a dtype, a shape, strides (also negative and overlapping) and an offset that fit into 4 KiB."""
    dtype = draw(st.sampled_from(NUMBERS))
    size = np.dtype(dtype).itemsize
    shape = draw(st.lists(st.integers(0, 5), max_size=4).map(tuple))
    unit = draw(st.sampled_from([1, size]))
    strides = tuple(draw(st.integers(-6, 6)) * unit for _ in shape)
    low = sum((n - 1) * step for n, step in zip(shape, strides, strict=True) if step < 0 and 0 not in shape)
    return dtype, shape, strides, -low + draw(st.integers(0, 100)) * size


COPIED = partial(np.from_dlpack, copy=True)


@given(layouts())
def test_any_layout_is_numpys(layout: tuple[str, tuple[int, ...], tuple[int, ...], int]) -> None:
    """Whatever shape and strides a view has: every consumer sees the elements that NumPy's own view has."""
    dtype, shape, strides, offset = layout
    buffer = allocate(4096)
    expected = np.ndarray(shape, dtype, np.asarray(buffer), offset, strides)
    view = buffer.view(dtype, shape, strides=strides, offset=offset)
    assert (shape, strides) == (view.shape, view.strides)
    takers: list[Any] = [np.asarray, lambda view: np.asarray(memoryview(view)), COPIED]
    if all(step % expected.itemsize == 0 for step in strides):
        takers.append(np.from_dlpack)
    for seen in (take(view) for take in takers):
        assert (shape, expected.dtype) == (seen.shape, seen.dtype)
        assert expected.tobytes() == seen.tobytes()
    assert math.prod(shape) == np.asarray(view).size


SHAPED, STRIDES, C_ORDER, F_ORDER, ANY_ORDER = 0x8, 0x18, 0x38, 0x58, 0x98  # PyBUF_... of Python


@pytest.mark.parametrize(
    ("strides", "orders"),
    [
        ((12, 4), {0, SHAPED, STRIDES, C_ORDER, ANY_ORDER}),
        ((4, 8), {STRIDES, F_ORDER, ANY_ORDER}),
        ((24, 4), {STRIDES}),
        ((12, -4), {STRIDES}),
    ],
)
def test_consumers_get_the_order_that_they_ask_for(strides: tuple[int, int], orders: set[int]) -> None:
    """Who takes memory only in one order, or without strides, gets no view that has another."""
    view = allocate(64).view("i4", (2, 3), strides=strides, offset=8)
    found = ctypes.create_string_buffer(96)  # more than a Py_buffer
    taken = set()
    for order in (0, SHAPED, STRIDES, C_ORDER, F_ORDER, ANY_ORDER):
        try:
            ctypes.pythonapi.PyObject_GetBuffer(ctypes.py_object(view), found, order)
        except BufferError as error:
            assert f"does not take these strides (bytes): {strides}" in str(error)  # noqa: PT017
            continue
        taken.add(order)
        ctypes.pythonapi.PyBuffer_Release(found)
    assert orders == taken
    view.buffer.release()


def test_strides_that_dlpack_cannot_say() -> None:
    """DLPack counts strides in elements: others are an error, and a copy has none of them."""
    view = allocate(64).view("i4", (3,), strides=(6,))
    with pytest.raises(BufferError, match=r"expected strides in multiples of 4 bytes, got \(6,\): copy=True"):
        np.from_dlpack(view)
    copied = np.from_dlpack(view, copy=True)
    assert [0x03020100, 0x09080706, 0x0F0E0D0C] == copied.tolist()


def test_dropped_in_another_thread_and_after_close(manager: MemoryManager) -> None:
    """A consumer may end in any thread; the memory goes back once."""
    arrays = [np.from_dlpack(allocate(1000).view("i2")) for _ in range(40)]

    def drop() -> None:
        while arrays:
            arrays.pop()

    threads = [threading.Thread(target=drop) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def test_alive_at_exit() -> None:
    """Arrays on a Buffer's memory, and capsules, that are alive when the interpreter ends do no harm."""
    code = (
        "import numpy as np, targetmem, sys\n"
        "device = targetmem.device('host:0')\n"
        "kept = [np.from_dlpack(device.allocate(1 << 20).view('f8')) for _ in range(5)]\n"
        "sys.kept = [device.allocate(10).view('u1').__dlpack__() for _ in range(5)]\n"
        "kept[0][:] = 1; device.close(); print(kept[0].sum())\n"
    )
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, check=False
    )
    assert (0, "131072.0\n", "") == (done.returncode, done.stdout, done.stderr)
