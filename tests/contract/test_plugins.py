"""The conformance suite, over each plugin of the package: alone, and with each policy."""

from __future__ import annotations

import itertools
import threading
from typing import TYPE_CHECKING

from targetmem.abc import Plugin
from targetmem.conformance import DeviceConformance, PluginConformance
from targetmem.plugins.host import HostPlugin
from targetmem.plugins.simulated import SimulatedPlugin

if TYPE_CHECKING:
    from targetmem.abc import Kind


class Smallest(Plugin):
    """What somebody else's first plugin is like: the three methods that are required, and nothing else."""

    def __init__(self) -> None:
        self._addresses = itertools.count(1 << 45, 1 << 32)
        self._lock = threading.Lock()
        self._sizes: dict[int, int] = {}

    def device_count(self) -> int:
        """Give 1."""
        return 1

    def allocate(self, device: int, size: int, kind: Kind, alignment: int) -> int | None:
        """Give an address that was never given before, nothing for more than 4 GiB."""
        if size >= 1 << 32:
            return None
        with self._lock:
            address = next(self._addresses)
            self._sizes[address] = size
        return address

    def release(self, device: int, address: int, size: int, kind: Kind) -> None:
        """Take it back, once."""
        with self._lock:
            given = self._sizes.pop(address)
        assert size in (0, given)


def small_and_aligning() -> SimulatedPlugin:
    """Give a small device that aligns by itself and refuses with an error."""
    return SimulatedPlugin(capacity="16MiB", min_alignment=1, aligns=True, refusal="error")


class TestHostPlugin(PluginConformance):
    """The host, called directly."""

    make_plugin = HostPlugin


class TestHostDevice(DeviceConformance):
    """The host behind a manager: plain C functions."""

    make_plugin = HostPlugin


class TestSimulatedPlugin(PluginConformance):
    """A simulated device, called directly."""

    make_plugin = SimulatedPlugin


class TestSimulatedDevice(DeviceConformance):
    """A simulated device behind a manager: functions written in Python."""

    make_plugin = SimulatedPlugin


class TestAligningPlugin(PluginConformance):
    """A simulated device with other choices, called directly."""

    make_plugin = staticmethod(small_and_aligning)


class TestAligningDevice(DeviceConformance):
    """A simulated device with other choices, behind a manager."""

    make_plugin = staticmethod(small_and_aligning)


class TestSmallestPlugin(PluginConformance):
    """A plugin of three methods, called directly."""

    make_plugin = Smallest


class TestSmallestDevice(DeviceConformance):
    """A plugin of three methods behind a manager."""

    make_plugin = Smallest
