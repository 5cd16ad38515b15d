"""The conformance suite: what every plugin must do, for its authors to run. Needs pytest.

    from targetmem.conformance import DeviceConformance, PluginConformance

    class TestMyPlugin(PluginConformance):
        make_plugin = MyPlugin

    class TestMyDevice(DeviceConformance):
        make_plugin = MyPlugin

`PluginConformance` calls the plugin itself, `DeviceConformance` uses it through a device with each policy. A
plugin whose runtime is missing is skipped, with its reason.
"""

from __future__ import annotations

import ctypes
import threading
from itertools import pairwise
from typing import TYPE_CHECKING, ClassVar

import pytest

from targetmem.config import POLICIES
from targetmem.errors import (
    DeviceClosed,
    InvalidFree,
    LeakWarning,
    NotSupported,
    OutOfDeviceMemory,
    PluginError,
    TargetMemoryWarning,
)
from targetmem.plugins.discovery import Source
from targetmem.plugins.registry import Registry

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from targetmem._device import Device
    from targetmem.abc import Kind, Plugin

__all__ = ["DeviceConformance", "PluginConformance"]

NAME = "tested"
SIZES = (1, 7, 64, 1000, 4096, 65_537)
FAR_TOO_MUCH = 1 << 62
THREADS = 8


class PluginConformance:
    """What a plugin must do when its methods are called as `targetmem.abc` says."""

    make_plugin: ClassVar[Callable[[], Plugin]]

    @pytest.fixture
    def plugin(self) -> Iterator[Plugin]:
        """Give the plugin, initialised, device 0 too; both are ended after the test."""
        plugin = type(self).make_plugin()
        plugin.name = NAME
        try:
            plugin.init()
        except (ImportError, PluginError) as error:
            pytest.skip(f"not available: {error}")
        plugin.init_device(0)
        yield plugin
        plugin.deinit_device(0)
        plugin.deinit()

    def test_counts_its_devices(self, plugin: Plugin) -> None:
        """The number of devices is at least 1 here, and does not change."""
        assert plugin.device_count() >= 1
        assert plugin.device_count() == plugin.device_count()

    def test_ranges_are_aligned_and_apart(self, plugin: Plugin) -> None:
        """Addresses have the promised alignment, and ranges in use never overlap, in each kind."""
        for kind in plugin.capabilities(0).kinds:
            alignment = plugin.min_alignment(0, kind)
            taken = [(_allocate(plugin, size, kind, alignment), size) for size in SIZES * 3]
            assert [] == [hex(address) for address, _ in taken if address % alignment]
            assert [] == _overlaps(taken)
            for address, size in taken:
                plugin.release(0, address, size, kind)

    def test_larger_alignments(self, plugin: Plugin) -> None:
        """Where the plugin says that it aligns, it does so for any power of two."""
        if not plugin.capabilities(0).aligns:
            pytest.skip("the plugin leaves larger alignments to the manager")
        for power in range(16):
            alignment = max(1 << power, plugin.min_alignment(0, "device"))
            address = _allocate(plugin, 100, "device", alignment)
            plugin.release(0, address, 100, "device")
            assert 0 == address % alignment

    def test_too_much_is_refused(self, plugin: Plugin) -> None:
        """A request that no device can serve is refused, and the device is as good as before."""
        assert not _try(plugin, FAR_TOO_MUCH)
        plugin.release(0, _allocate(plugin, 64, "device", plugin.min_alignment(0, "device")), 64, "device")

    def test_memory_info(self, plugin: Plugin) -> None:
        """Where the plugin knows its memory, no more is free than there is."""
        info = plugin.memory_info(0)
        if info is None:
            pytest.skip("the plugin does not tell its memory")
        assert 0 <= info.free <= info.total
        assert info.total > 0

    def test_threads_do_not_share_ranges(self, plugin: Plugin) -> None:
        """Ranges that several threads hold at once never overlap."""
        alignment = plugin.min_alignment(0, "device")
        taken: list[tuple[int, int]] = []

        def work(_: int) -> None:
            for size in SIZES:
                address = _allocate(plugin, size, "device", alignment)
                plugin.release(0, address, size, "device")
                taken.append((_allocate(plugin, size, "device", alignment), size))

        _in_threads(work)
        assert [] == _overlaps(taken)
        for address, size in taken:
            plugin.release(0, address, size, "device")

    def test_data_goes_there_and_back(self, plugin: Plugin) -> None:
        """What is submitted is retrieved, also from the middle, and fill writes its pattern."""
        data = bytes(range(256)) * 4
        target = _allocate(plugin, len(data), "device", plugin.min_alignment(0, "device"))
        try:
            _submit(plugin, target, data)
            assert data[100:300] == _retrieve(plugin, target + 100, 200)
            plugin.fill(0, target + 4, b"abc", 5)
            plugin.synchronize(0)
            assert data[:4] + b"abc" * 5 + data[19:30] == _retrieve(plugin, target, 30)
        except NotSupported as error:
            pytest.skip(str(error))
        finally:
            plugin.release(0, target, len(data), "device")

    def test_a_queue_keeps_order(self, plugin: Plugin) -> None:
        """Two transfers of one queue happen in order, and are done after synchronize."""
        target = _allocate(plugin, 64, "device", plugin.min_alignment(0, "device"))
        first, second = (ctypes.create_string_buffer(bytes([number]) * 64, 64) for number in (1, 2))
        try:
            queue = plugin.create_queue(0)
            for source in (first, second):
                plugin.submit(0, target, ctypes.addressof(source), 64, queue)
            plugin.synchronize(0, queue)
            plugin.release_queue(0, queue)
            assert second.raw == _retrieve(plugin, target, 64)
        except NotSupported as error:
            pytest.skip(str(error))
        finally:
            plugin.release(0, target, 64, "device")

    def test_exchange(self, plugin: Plugin) -> None:
        """Where the device can exchange with itself, the data arrives."""
        if not plugin.can_exchange(0, 0):
            pytest.skip("the plugin cannot exchange")
        alignment = plugin.min_alignment(0, "device")
        source, target = (_allocate(plugin, 64, "device", alignment) for _ in range(2))
        _submit(plugin, source, b"x" * 64)
        plugin.exchange(0, target, 0, source, 64)
        plugin.synchronize(0)
        assert b"x" * 64 == _retrieve(plugin, target, 64)
        for address in (source, target):
            plugin.release(0, address, 64, "device")


class DeviceConformance:
    """What a device of a plugin must do behind a memory manager, with each policy."""

    make_plugin: ClassVar[Callable[[], Plugin]]

    @pytest.fixture(params=POLICIES)
    def device(self, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Device]:
        """Give device 0 with one of the policies and the usual threshold; all is closed after the test."""
        monkeypatch.setenv("TARGETMEM_POLICY", request.param)
        monkeypatch.setenv("TARGETMEM_THRESHOLD", "8192")
        yield from _first_device(type(self).make_plugin)

    @pytest.fixture
    def unmanaged(self, monkeypatch: pytest.MonkeyPatch) -> Iterator[Device]:
        """Give device 0 with its manager off; all is closed after the test."""
        monkeypatch.setenv("TARGETMEM_THRESHOLD", "0")
        yield from _first_device(type(self).make_plugin)

    def test_with_the_manager_off(self, unmanaged: Device) -> None:
        """Every request goes straight to the device, and back to it when it is freed; errors stay errors."""
        buffers = [unmanaged.allocate(size) for size in SIZES]
        assert [] == _overlaps([(buffer.pointer, buffer.size) for buffer in buffers])
        address = buffers.pop().detach()
        for buffer in buffers:
            buffer.release()
        unmanaged.memory.free(address)
        with pytest.raises(InvalidFree):
            unmanaged.memory.free(address)
        with pytest.raises(OutOfDeviceMemory):
            unmanaged.allocate(FAR_TOO_MUCH)
        counters = unmanaged.memory.counters()
        count = len(SIZES)
        assert (count, count, count) == (
            counters.direct,
            counters.device_allocations,
            counters.device_releases,
        )
        assert (0, 0) == (counters.cached.peak, counters.hits)

    def test_a_freed_block_serves_the_next_request(self, device: Device) -> None:
        """The same size again is a hit: the device is not called."""
        device.allocate(1000).release()
        before = device.memory.counters()
        device.allocate(1000).release()
        after = device.memory.counters()
        assert (before.hits + 1, before.device_allocations) == (after.hits, after.device_allocations)

    def test_the_threshold(self, device: Device) -> None:
        """A request of the threshold is managed; one byte more goes straight to the device and back."""
        device.allocate(8192).release()
        assert (0, 1) == (device.memory.counters().direct, device.memory.counters().cached_blocks)
        device.allocate(8193).release()
        counters = device.memory.counters()
        assert (1, 1, 1) == (counters.direct, counters.cached_blocks, counters.device_releases)

    def test_nothing_for_nothing(self, device: Device) -> None:
        """A request of 0 bytes is empty and reaches no device; a negative one is an error."""
        with device.allocate(0) as buffer:
            assert (0, 0) == (buffer.pointer, buffer.size)
        with pytest.raises(ValueError, match="-1"):
            device.allocate(-1)
        assert 0 == device.memory.counters().device_allocations

    def test_live_memory_is_apart(self, device: Device) -> None:
        """Live blocks never overlap, fresh or reused, with any alignment, and are aligned as asked."""
        for _ in range(2):
            buffers = [
                device.allocate(size, alignment=1 << power) for size in SIZES for power in range(0, 13, 4)
            ]
            assert [] == _overlaps([(buffer.pointer, buffer.size) for buffer in buffers])
            assert [] == [
                b for b, power in zip(buffers, [0, 4, 8, 12] * 6, strict=True) if b.pointer % (1 << power)
            ]
            del buffers

    def test_wrong_frees_change_nothing(self, device: Device) -> None:
        """A double free, an address inside a block and a wrong size are errors that change nothing."""
        manager, buffer = device.memory, device.allocate(256)
        address = buffer.detach()
        for wrong in ((address + 8,), (address, 255)):
            with pytest.raises(InvalidFree):
                manager.free(*wrong)
        assert 1 == manager.counters().live_blocks
        manager.free(address, 256)
        with pytest.raises(InvalidFree):
            manager.free(address)
        assert (0, 1) == (manager.counters().live_blocks, manager.counters().cached_blocks)

    def test_too_much_is_explained(self, device: Device) -> None:
        """Out of memory gives cached blocks back first, leaves live ones, and says how much was wanted."""
        live, cached = device.allocate(100), device.allocate(200)
        cached.release()
        with pytest.raises(OutOfDeviceMemory) as caught:
            device.allocate(FAR_TOO_MUCH)
        assert FAR_TOO_MUCH == caught.value.requested
        assert (1, 0) == (device.memory.counters().live_blocks, device.memory.counters().cached_blocks)
        assert live.pointer

    def test_each_kind_has_its_manager(self, device: Device) -> None:
        """Every kind of the device serves requests, from a manager of its own; another kind is refused."""
        kinds = device.capabilities.kinds
        buffers = [device.allocate(64, kind=kind) for kind in kinds]
        assert list(kinds) == [buffer.kind for buffer in buffers]
        assert len(kinds) == len({id(buffer.manager) for buffer in buffers})
        with pytest.raises(NotSupported, match="kind"):
            device.allocate(64, kind="other")  # type: ignore[arg-type]

    def test_trim(self, device: Device) -> None:
        """Trim gives cached blocks back until at most as many bytes are kept, and says how many went."""
        for buffer in [device.allocate(size) for size in (100, 200, 300)]:
            buffer.release()
        assert device.memory.trim(150) >= 300
        assert device.memory.counters().cached.now <= 150

    def test_a_storm(self, device: Device) -> None:
        """Threads allocate doubling sizes across the threshold, write their number, and read it back."""
        plugin = device.plugin
        wrong: list[int] = []

        def work(number: int) -> None:
            for _ in range(3):
                buffers = [device.allocate(4 << power) for power in range(13)]
                for buffer in buffers:
                    plugin.fill(device.index, buffer.pointer, bytes([number]), buffer.size)
                seen = [(b.size, _retrieve(plugin, b.pointer, b.size)) for b in buffers]
                wrong.extend(size for size, data in seen if data != bytes([number]) * size)

        try:
            plugin.fill(0, device.allocate(1).pointer, b"x", 1)
        except NotSupported as error:
            pytest.skip(str(error))
        _in_threads(work)
        assert [] == wrong
        assert 0 == device.memory.counters().live_blocks

    def test_close(self, device: Device) -> None:
        """Close gives each block back once; a buffer that outlives it is safe to free; the device refuses."""
        kept, cached = device.allocate(100), device.allocate(200)
        cached.release()
        with pytest.warns(TargetMemoryWarning) as told:
            device.close()
        device.close()
        assert [LeakWarning] == [warning.category for warning in told]
        assert 0 == device.memory.counters().cached_blocks
        kept.release()  # does nothing, unless close left live memory of the host alone
        counters = device.memory.counters()
        assert counters.device_allocations == counters.device_releases
        with pytest.raises(DeviceClosed):
            device.allocate(100)


# --- how ---


def _first_device(make_plugin: Callable[[], Plugin]) -> Iterator[Device]:
    registry = Registry(lambda: {NAME: Source(NAME, lambda: make_plugin)})
    try:
        device = registry.device(f"{NAME}:0")
    except PluginError as error:
        pytest.skip(str(error))
    yield device
    registry.close()


def _try(plugin: Plugin, size: int) -> int | None:
    try:
        return plugin.allocate(0, size, "device", plugin.min_alignment(0, "device"))
    except MemoryError:
        return None


def _allocate(plugin: Plugin, size: int, kind: Kind, alignment: int) -> int:
    address = plugin.allocate(0, size, kind, alignment)
    assert address, f"expected {size} bytes of kind {kind}, got none"
    return address


def _overlaps(ranges: list[tuple[int, int]]) -> list[str]:
    """Give a line for each two neighbours that share bytes."""
    return [
        f"{size} bytes at {start:#x} reach beyond {following:#x}"
        for (start, size), (following, _) in pairwise(sorted(ranges))
        if start + size > following
    ]


def _submit(plugin: Plugin, target: int, data: bytes) -> None:
    source = ctypes.create_string_buffer(data, len(data))
    plugin.submit(0, target, ctypes.addressof(source), len(data))
    plugin.synchronize(0)


def _retrieve(plugin: Plugin, target: int, size: int) -> bytes:
    host = ctypes.create_string_buffer(size)
    plugin.retrieve(0, ctypes.addressof(host), target, size)
    plugin.synchronize(0)
    return host.raw


def _in_threads(work: Callable[[int], None]) -> None:
    """Run work(1), work(2), ... at once; raises what one of them raised."""
    failures: list[BaseException] = []

    def guarded(number: int) -> None:
        try:
            work(number)
        except BaseException as error:  # noqa: BLE001 - raised again below, in the test's thread
            failures.append(error)

    threads = [threading.Thread(target=guarded, args=(number,)) for number in range(1, THREADS + 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
