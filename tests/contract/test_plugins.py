"""The conformance suite, over each plugin of the package: alone, and with each policy."""

from __future__ import annotations

from targetmem.conformance import DeviceConformance, PluginConformance
from targetmem.plugins.host import HostPlugin
from targetmem.plugins.simulated import SimulatedPlugin


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
