"""The OpenMP routines about mapped data: presence, mapped pointers, associations, with their codes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from targetmem import omp
from targetmem.errors import MappingError
from tests.unit.omp_devices import FIRST, HOST, INITIAL, SECOND, use

if TYPE_CHECKING:
    from collections.abc import Iterator

    from targetmem._device import Device


@pytest.fixture
def devices(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Device]]:
    """Number the host and some simulated devices, and give them."""
    registry, _ = use(monkeypatch)
    yield [registry.device(name) for name in ("host:0", "one:0", "one:1")]
    registry.close()


@pytest.mark.parametrize("number", [HOST, FIRST])
def test_presence_and_mapped_pointers(devices: list[Device], number: int) -> None:
    """A byte of mapped memory is present, with its address on the device; its neighbours and null are not."""
    array = bytearray(100)
    address = omp.omp_get_mapped_ptr(array, INITIAL)
    assert address
    assert (0, None) == (omp.omp_target_is_present(array, number), omp.omp_get_mapped_ptr(array, number))
    assert isinstance(omp.last_error(), MappingError)
    with devices[number].map(to=memoryview(array)[10:20]):
        target = omp.omp_get_mapped_ptr(address + 10, number)
        assert target
        assert [0, 1, 1, 0] == [omp.omp_target_is_present(address + at, number) for at in (9, 10, 19, 20)]
        assert target + 7 == omp.omp_get_mapped_ptr(address + 17, number)
        assert 0 == omp.omp_target_is_present(array, SECOND)
    assert 0 == omp.omp_target_is_present(address + 10, number)
    assert (1, 0) == (omp.omp_target_is_present(array, INITIAL), omp.omp_target_is_present(None, number))
    assert omp.omp_get_mapped_ptr(None, number) is None


def test_associations(devices: list[Device]) -> None:
    """Associated memory is present; the same again is fine, another is not, nor is its end twice."""
    array = bytearray(64)
    target = omp.omp_target_alloc(128, FIRST)
    assert target
    assert 0 == omp.omp_target_associate_ptr(array, target, 64, 16, FIRST)
    assert 0 == omp.omp_target_associate_ptr(array, target, 64, 16, FIRST)
    assert 0 != omp.omp_target_associate_ptr(array, target, 64, 0, FIRST)
    assert "disassociate or exit that first" in str(omp.last_error())
    assert target + 16 == omp.omp_get_mapped_ptr(array, FIRST)
    assert [(None, "associated")] == [(row.dynamic, row.memory) for row in devices[FIRST].present_table()]
    assert 0 == omp.omp_target_disassociate_ptr(array, FIRST)
    assert 0 != omp.omp_target_disassociate_ptr(array, FIRST)
    with devices[FIRST].map(to=array):
        assert 0 != omp.omp_target_disassociate_ptr(array, FIRST)
        assert "use exit" in str(omp.last_error())
    omp.omp_target_free(target)


@pytest.mark.parametrize(
    ("host", "device", "size", "number"),
    [
        (None, 4096, 8, FIRST),
        (bytearray(8), None, 8, FIRST),
        (bytearray(8), 4096, 0, FIRST),
        (bytearray(8), 4096, 8, INITIAL),
    ],
)
def test_refused_associations(
    devices: list[Device], host: bytearray | None, device: int | None, size: int, number: int
) -> None:
    """Null pointers, 0 bytes and the initial device are refused with a code, and change nothing."""
    assert 0 != omp.omp_target_associate_ptr(host, device, size, 0, number)
    assert "omp_target_associate_ptr: expected" in str(omp.last_error())
    assert [] == devices[FIRST].present_table()
    assert 0 != omp.omp_target_disassociate_ptr(None, FIRST)
