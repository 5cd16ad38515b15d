"""`targetmem.omp`: device numbers, memory and copies by the standard's names."""

from __future__ import annotations

import array
import threading
from contextvars import ContextVar
from typing import TYPE_CHECKING

import pytest

import targetmem
from targetmem import omp
from targetmem.errors import ConfigError, InvalidFree, OutOfDeviceMemory, PluginError, UnknownDevice
from tests.unit.omp_devices import FIRST, HOST, INITIAL, OTHER, SECOND, use

if TYPE_CHECKING:
    from collections.abc import Iterator

    from targetmem.plugins.simulated import SimulatedPlugin

NOWHERE = 5
DEVICES = (HOST, FIRST, SECOND, OTHER, INITIAL)


@pytest.fixture(autouse=True)
def plugin(monkeypatch: pytest.MonkeyPatch) -> Iterator[SimulatedPlugin]:
    """Number host, two simulated devices of one plugin, one of another."""
    registry, plugin = use(monkeypatch, capacity="64KiB")
    yield plugin
    registry.close()


def calls_of(plugin: SimulatedPlugin, method: str) -> int:
    """Count the calls of a method that a plugin got."""
    return sum(call.method == method for call in plugin.calls)


# --- device numbers -------------------------------------------------------------------------------


def test_the_initial_device_comes_after_the_others() -> None:
    """Numbers run over the devices of all plugins; the host as initial device has the next one, and -1."""
    assert 4 == omp.omp_get_num_devices() == omp.omp_get_initial_device()
    assert 1 == omp.omp_target_is_accessible(array.array("B", [1]), 1, omp.omp_initial_device)


def test_the_order_is_that_of_the_list_of_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without another choice the numbers are the places in targetmem.devices()."""
    monkeypatch.setattr(omp.numbering, "current", omp.numbering.Numbering())
    assert targetmem.devices() == list(omp.numbering.current.devices)


@pytest.mark.parametrize("number", [NOWHERE, -3, omp.omp_invalid_device])
def test_a_wrong_device_number_is_an_error(number: int) -> None:
    """A number of no device raises, with the numbers that there are; no routine gives a code for it."""
    one = array.array("B", [1])
    for call in (
        lambda: omp.omp_target_alloc(8, number),
        lambda: omp.omp_target_memcpy(one, one, 1, 0, 0, INITIAL, number),
        lambda: omp.omp_target_memset(one, 1, 1, number),
        lambda: omp.omp_target_is_accessible(one, 1, number),
        lambda: omp.omp_set_default_device(number),
    ):
        with pytest.raises(UnknownDevice, match=r"1 = one:0, .*4 = the initial device, got "):
            call()  # type: ignore[no-untyped-call, unused-ignore]


def test_a_device_number_is_an_integer() -> None:
    """A name is no number."""
    with pytest.raises(TypeError):
        omp.omp_target_alloc(8, "host:0")  # type: ignore[arg-type]


# --- the default device ---------------------------------------------------------------------------


def test_the_default_device_is_the_threads_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread's choice is seen by itself only; another thread starts with the environment's."""
    monkeypatch.setenv("OMP_DEFAULT_DEVICE", "2")
    seen: list[int] = []
    assert 2 == omp.omp_get_default_device()
    monkeypatch.setattr(omp.numbering, "_default", ContextVar[int]("fresh"))
    omp.omp_set_default_device(FIRST)
    thread = threading.Thread(target=lambda: seen.append(omp.omp_get_default_device()))
    thread.start()
    thread.join()
    assert (FIRST, [2]) == (omp.omp_get_default_device(), seen)


def test_the_default_device_is_0_without_a_choice(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing set, or set to nothing: 0."""
    monkeypatch.delenv("OMP_DEFAULT_DEVICE", raising=False)
    assert 0 == omp.omp_get_default_device()
    for text in ("", " 0 "):
        monkeypatch.setenv("OMP_DEFAULT_DEVICE", text)
        assert 0 == omp.omp_get_default_device()


@pytest.mark.parametrize("text", ["-1", "one", "0x1", "1.0", "²"])
def test_a_wrong_default_device_names_the_variable(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    """What is no device number is an error, never read as another one."""
    monkeypatch.setenv("OMP_DEFAULT_DEVICE", text)
    with pytest.raises(ConfigError, match="OMP_DEFAULT_DEVICE: expected a device number"):
        omp.omp_get_default_device()


# --- alloc and free -------------------------------------------------------------------------------


@pytest.mark.parametrize("number", DEVICES)
@pytest.mark.parametrize("kind", ["", "_device", "_host", "_shared"])
def test_memory_of_each_kind_is_freed_without_device_or_kind(number: int, kind: str) -> None:
    """An address is enough for a free: afterwards its manager has no live block."""
    allocate = getattr(omp, f"omp_target_alloc{kind}")
    for size in (1, 100, 10_000):
        pointer = allocate(size, number)
        manager = omp.numbering.current.memory(number).manager(kind[1:] or "device")  # type: ignore[arg-type]
        assert 1 == sum(block.live for block in manager.blocks())
        block = manager.find(pointer)
        assert block is not None
        assert size == block.requested
        omp.omp_target_free(pointer)
        assert 0 == sum(block.live for block in manager.blocks())


def test_a_free_with_another_device_frees_what_was_meant() -> None:
    """Two devices may hand out one address: the device number decides, unless it can't be meant."""
    one, other = omp.omp_target_alloc(64, FIRST), omp.omp_target_alloc(64, OTHER)
    assert one is not None
    assert one == other
    omp.omp_target_free(other, OTHER)
    assert 1 == sum(b.live for b in omp.numbering.current.memory(FIRST).memory.blocks())
    omp.omp_target_free(one, OTHER)
    assert 0 == sum(b.live for b in omp.numbering.current.memory(FIRST).memory.blocks())


def test_no_memory_is_a_null_pointer_that_is_explained() -> None:
    """A refusal gives None, and last_error the OutOfDeviceMemory that says why; 0 bytes give None too."""
    assert None is omp.omp_target_alloc(1 << 20, FIRST)
    error = omp.last_error()
    assert isinstance(error, OutOfDeviceMemory)
    assert 1 << 20 == error.requested
    assert None is omp.omp_target_alloc(0, FIRST)


def test_what_is_no_size_is_an_error() -> None:
    """A negative size, and what is no integer, are errors of the caller, not a lack of memory."""
    with pytest.raises(ValueError, match="expected 0 bytes or more, got -1"):
        omp.omp_target_alloc(-1, FIRST)
    with pytest.raises(TypeError):
        omp.omp_target_alloc("8K", FIRST)  # type: ignore[arg-type]


@pytest.mark.parametrize("null", [None, 0])
def test_null_is_not_freed(null: int | None) -> None:
    """Freeing null does nothing, with a device and without."""
    omp.omp_target_free(null)
    omp.omp_target_free(null, FIRST)


def test_wrong_frees_change_nothing() -> None:
    """Twice, inside a block, an address of no block: InvalidFree, each with its reason."""
    pointer, live = omp.omp_target_alloc(64, FIRST), omp.omp_target_alloc(64, FIRST)
    assert pointer is not None
    assert live is not None
    omp.omp_target_free(pointer)
    for address, reason in ((pointer, "double_free"), (live + 8, "interior"), (1 << 60, "foreign")):
        with pytest.raises(InvalidFree) as caught:
            omp.omp_target_free(address, FIRST)
        assert reason == caught.value.reason
    with pytest.raises(TypeError, match="expected an address of omp_target_alloc or a Buffer, got bytearray"):
        omp.omp_target_free(bytearray(8))
    omp.omp_target_free(live)


def test_a_buffer_can_be_freed() -> None:
    """A Buffer is released."""
    buffer = omp.numbering.current.memory(FIRST).allocate(64)
    omp.omp_target_free(buffer)
    assert 0 == buffer.pointer


# --- copies ---------------------------------------------------------------------------------------


def filled(number: int, content: bytes) -> int:
    """Give memory of a device with some bytes."""
    pointer = omp.omp_target_alloc(len(content), number)
    assert pointer is not None
    assert 0 == omp.omp_target_memcpy(pointer, content, len(content), 0, 0, number, INITIAL)
    return pointer


def content_of(number: int, pointer: int, size: int) -> bytes:
    """Give the bytes of a device's memory."""
    content = bytearray(size)
    assert 0 == omp.omp_target_memcpy(content, pointer, size, 0, 0, INITIAL, number)
    return bytes(content)


@pytest.mark.parametrize("to", DEVICES)
@pytest.mark.parametrize("source", DEVICES)
def test_bytes_get_from_each_device_to_each(to: int, source: int) -> None:
    """A copy with offsets moves exactly its bytes, whatever the two devices are."""
    src, dst = filled(source, bytes(range(100))), filled(to, bytes(100))
    assert 0 == omp.omp_target_memcpy(dst, src, 30, 50, 20, to, source)
    assert bytes(50) + bytes(range(20, 50)) + bytes(20) == content_of(to, dst, 100)


def test_devices_that_cannot_exchange_copy_through_the_host(
    plugin: SimulatedPlugin, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Devices of one plugin exchange directly; of two, in pieces no larger than a chunk."""
    monkeypatch.setattr("targetmem.omp.copies.CHUNK", 16)
    pointer = filled(FIRST, bytes(range(40)))
    same, different = filled(SECOND, bytes(40)), filled(OTHER, bytes(40))
    assert 0 == omp.omp_target_memcpy(same, pointer, 40, 0, 0, SECOND, FIRST)
    assert (1, 0) == (calls_of(plugin, "exchange"), calls_of(plugin, "retrieve"))
    assert 0 == omp.omp_target_memcpy(different, pointer, 40, 0, 0, OTHER, FIRST)
    assert (1, 3) == (calls_of(plugin, "exchange"), calls_of(plugin, "retrieve"))
    assert bytes(range(40)) == content_of(SECOND, same, 40) == content_of(OTHER, different, 40)


def test_nothing_to_copy_is_a_success_and_null_a_failure() -> None:
    """0 bytes succeed with null pointers; bytes from or to null are refused with a reason."""
    one = bytearray(1)
    assert 0 == omp.omp_target_memcpy(None, None, 0, 0, 0, FIRST, INITIAL)
    assert -1 == omp.omp_target_memcpy(None, one, 1, 0, 0, FIRST, INITIAL)
    assert -1 == omp.omp_target_memcpy(one, 0, 1, 0, 0, INITIAL, FIRST)
    assert "expected two pointers" in str(omp.last_error())


def test_a_copy_that_fails_has_a_code_and_a_reason() -> None:
    """What a plugin raises becomes -1; last_error keeps it."""
    assert -1 == omp.omp_target_memcpy(1 << 60, bytes(8), 8, 0, 0, FIRST, INITIAL)
    assert isinstance(omp.last_error(), PluginError)


def test_arrays_are_checked() -> None:
    """An array that is too small, read-only, or no memory at all, is an error that names the argument."""
    pointer = filled(FIRST, bytes(100))
    with pytest.raises(ValueError, match="src: expected memory of at least 18 bytes, got 16 bytes"):
        omp.omp_target_memcpy(pointer, bytes(16), 8, 0, 10, FIRST, INITIAL)
    with pytest.raises(TypeError, match="dst: expected writable host memory"):
        omp.omp_target_memcpy(bytes(8), pointer, 8, 0, 0, INITIAL, FIRST)
    with pytest.raises(TypeError, match=r"src: expected host memory .* got an object of type str"):
        omp.omp_target_memcpy(pointer, "text", 4, 0, 0, FIRST, INITIAL)
    with pytest.raises(TypeError, match=r"dst: expected memory of one:0 .*: host memory has the number"):
        omp.omp_target_memcpy(bytearray(8), pointer, 8, 0, 0, FIRST, INITIAL)
    with pytest.raises(ValueError, match="expected 0 bytes or more, got 4, offsets"):
        omp.omp_target_memcpy(pointer, bytes(8), 4, -1, 0, FIRST, INITIAL)
    with pytest.raises(ValueError, match="expected an address, 0 or more"):
        omp.omp_target_memcpy(pointer, -8, 4, 0, 0, FIRST, INITIAL)


# --- memset ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", DEVICES)
def test_bytes_are_set(number: int) -> None:
    """The low byte of the value is written, nothing beyond the count; the pointer comes back."""
    pointer = filled(number, bytes(20))
    assert pointer == omp.omp_target_memset(pointer, 0x1AB, 12, number)
    assert b"\xab" * 12 + bytes(8) == content_of(number, pointer, 20)
    assert pointer == omp.omp_target_memset(pointer, 7, 0, number)
    assert None is omp.omp_target_memset(None, 7, 12, number)


def test_a_device_without_fill_gets_the_bytes_from_the_host(
    plugin: SimulatedPlugin, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A plugin that doesn't support fill is written to in chunks."""
    refuse = targetmem.abc.Plugin.fill
    monkeypatch.setattr(type(plugin), "fill", refuse)
    monkeypatch.setattr("targetmem.omp.memory.CHUNK", 16)
    pointer = filled(FIRST, bytes(50))
    omp.omp_target_memset(pointer, 9, 40, FIRST)
    assert b"\x09" * 40 + bytes(10) == content_of(FIRST, pointer, 50)


def test_a_failing_memset_raises(plugin: SimulatedPlugin) -> None:
    """The routine has no code, so the plugin's error is raised."""
    with pytest.raises(PluginError):
        omp.omp_target_memset(1 << 60, 1, 8, FIRST)


# --- accessible -----------------------------------------------------------------------------------


def test_what_a_device_can_use() -> None:
    """The host uses everything; a device with its own memory only what lies in its blocks; null nobody."""
    there, here = omp.omp_target_alloc(64, FIRST), bytearray(64)
    assert there is not None
    for pointer, size, number, expected in (
        (here, 64, INITIAL, 1),
        (here, 64, HOST, 1),
        (here, 64, FIRST, 0),
        (there, 64, FIRST, 1),
        (there + 60, 5, FIRST, 0),
        (there, 64, SECOND, 0),
        (None, 64, INITIAL, 0),
    ):
        assert expected == omp.omp_target_is_accessible(pointer, size, number)
    omp.omp_target_free(there)
    assert 0 == omp.omp_target_is_accessible(there, 64, FIRST)
