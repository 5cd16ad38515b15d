"""`omp_target_memcpy_rect` against NumPy's slices, and what it refuses."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from targetmem import omp
from targetmem._core import Rectangle
from tests.unit.omp_devices import FIRST, HOST, INITIAL, OTHER, use

if TYPE_CHECKING:
    from collections.abc import Iterator

DEVICES = (HOST, FIRST, OTHER, INITIAL)


@pytest.fixture(autouse=True)
def devices(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Number host and simulated devices."""
    registry, _ = use(monkeypatch)
    yield
    registry.close()


@st.composite
def blocks(draw: st.DrawFn) -> tuple[int, list[tuple[int, int, int, int, int]]]:
    """Give an element's bytes, and for each dimension volume, two offsets and two dimensions that fit."""
    element = draw(st.sampled_from([1, 2, 3, 4, 8, 16, 24]))
    axes = []
    for _ in range(draw(st.integers(1, 5))):
        volume = draw(st.sampled_from([2, 3, 1, 4, 0]))
        to, source, more, more_source = (draw(st.sampled_from([0, 0, 1, 2])) for _ in range(4))
        axes.append((volume, to, source, volume + to + more, volume + source + more_source))
    return element, axes


def placed(content: np.ndarray, number: int) -> int | np.ndarray:
    """Give a copy of an array on a device; on the initial device the array itself."""
    if number == INITIAL:
        return content
    pointer = omp.omp_target_alloc(max(content.nbytes, 1), number)
    assert pointer is not None
    assert 0 == omp.omp_target_memcpy(pointer, content, content.nbytes, 0, 0, number, INITIAL)
    return pointer


@example(
    (1, [(2, 0, 0, 2, 2), (2, 0, 0, 2, 3), (2, 0, 0, 3, 2)]), INITIAL, INITIAL
)  # merges on one side only
@example((1, [(2, 0, 0, 2, 2), (2, 0, 0, 3, 2), (2, 0, 0, 2, 3)]), INITIAL, INITIAL)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(block=blocks(), to=st.sampled_from(DEVICES), source=st.sampled_from(DEVICES))
def test_a_block_is_copied_as_a_slice_is(
    block: tuple[int, list[tuple[int, int, int, int, int]]], to: int, source: int
) -> None:
    """Up to five dimensions, any element, any pair of devices: the bytes are those of NumPy's assignment."""
    element, axes = block
    volume, to_offsets, offsets, to_shape, shape = (list(numbers) for numbers in zip(*axes, strict=True))
    rng = np.random.default_rng(1)
    here = rng.integers(0, 255, (*shape, element), np.uint8)
    expected = rng.integers(0, 255, (*to_shape, element), np.uint8)
    got = expected.copy()
    dst, src = placed(got, to), placed(here, source)
    arguments = (element, len(volume), volume, to_offsets, offsets, to_shape, shape, to, source)
    assert 0 == omp.omp_target_memcpy_rect(dst, src, *arguments), omp.last_error()
    where = tuple(slice(o, o + v) for o, v in zip(to_offsets, volume, strict=True))
    expected[where] = here[tuple(slice(o, o + v) for o, v in zip(offsets, volume, strict=True))]
    if to != INITIAL:
        assert 0 == omp.omp_target_memcpy(got, dst, got.nbytes, 0, 0, INITIAL, to)
        omp.omp_target_free(dst, to)
    if source != INITIAL:
        omp.omp_target_free(src, source)
    assert np.array_equal(expected, got)


def test_the_largest_number_of_dimensions_is_told() -> None:
    """Two null pointers ask for it; and a block of very many dimensions is copied."""
    nothing: list[int] = []
    numbers = (nothing, nothing, nothing, nothing, nothing)
    assert 2**31 - 1 == omp.omp_target_memcpy_rect(None, 0, 0, 0, *numbers, INITIAL, FIRST)
    many = 1000
    to, source = bytearray(16), bytes(range(16))
    volume = [1] * (many - 2) + [2, 2]
    zeros, shape = [0] * many, [1] * (many - 2) + [4, 4]
    arguments = (volume, zeros, zeros, shape, shape)
    assert 0 == omp.omp_target_memcpy_rect(to, source, 1, many, *arguments, INITIAL, INITIAL)
    assert bytes([0, 1, 0, 0, 4, 5]) + bytes(10) == bytes(to)


def refused(**changed: object) -> str:
    """Try a copy of 2x2 of 4x4 bytes with something changed; gives why it is refused."""
    given: dict[str, object] = {
        "dst": bytearray(16),
        "src": bytes(16),
        "element_size": 1,
        "num_dims": 2,
        "volume": (2, 2),
        "dst_offsets": (0, 0),
        "src_offsets": (0, 0),
        "dst_dimensions": (4, 4),
        "src_dimensions": (4, 4),
        "dst_device_num": INITIAL,
        "src_device_num": INITIAL,
    }
    arguments = given | changed
    assert -1 == omp.omp_target_memcpy_rect(**arguments)  # type: ignore[arg-type]
    assert bytes(16) == bytes(arguments["dst"] or bytes(16))  # type: ignore[call-overload]
    return str(omp.last_error())


def test_what_cannot_be_copied_is_refused() -> None:
    """Null, no bytes, no dimensions, a block that sticks out, an array beyond all memory: -1, and why."""
    assert "null pointer" in refused(src=None)
    assert "null pointer" in refused(dst=None)
    assert "null pointer" in refused(volume=None)
    assert "1 byte and 1 dimension" in refused(element_size=0)
    assert "1 byte and 1 dimension" in refused(num_dims=0)
    assert "doesn't lie in the destination's" in refused(dst_offsets=(0, 3))
    assert "doesn't lie in the source's" in refused(src_dimensions=(1, 4))
    assert "doesn't lie in the source's" in refused(src_offsets=(2**64 - 1, 0))
    assert "more bytes than there are addresses" in refused(dst_dimensions=(2**60, 2**60))


def test_arguments_of_a_wrong_shape_are_errors() -> None:
    """Too few numbers, one below 0, an array that is too small: an exception that says which."""
    to, source, two = bytearray(16), bytes(16), (2, 2)
    four = (4, 4)
    with pytest.raises(ValueError, match="volume: expected 2 numbers, one for each dimension, got 1"):
        omp.omp_target_memcpy_rect(to, source, 1, 2, (2,), two, two, four, four, INITIAL, INITIAL)
    with pytest.raises(ValueError, match="expected 0 bytes or more, got -2"):
        omp.omp_target_memcpy_rect(to, source, 1, 2, (-2, 2), two, two, four, four, INITIAL, INITIAL)
    with pytest.raises(ValueError, match="dst: expected memory of at least 32 bytes, got 16"):
        omp.omp_target_memcpy_rect(to, bytes(32), 2, 2, two, two, two, four, four, INITIAL, INITIAL)


def test_axes_that_touch_become_one() -> None:
    """A block that is dense in both arrays is one piece; of a slab there are as many as there are gaps."""
    whole = Rectangle(8, 3, (4, 5, 6), (0, 0, 0), (0, 0, 0), (4, 5, 6), (9, 5, 6))
    assert (1, 960) == (whole.pieces, whole.piece)
    slab = Rectangle(8, 3, (4, 2, 6), (0, 0, 0), (0, 3, 0), (4, 5, 6), (4, 5, 6))
    assert (4, 96) == (slab.pieces, slab.piece)
    assert (3 * 240, 3 * 240 + 144) == slab.place(3)
    with pytest.raises(IndexError):
        slab.place(4)
