"""A small simulated device with its managers, and what it was asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from targetmem.plugins.simulated import SimulatedPlugin
from tests.unit.registries import registry_with

if TYPE_CHECKING:
    from targetmem._device import Device
    from targetmem.plugins.registry import Registry

__all__ = ["KiB", "Small", "small"]

KiB = 1 << 10


class Small(NamedTuple):
    """A device of 64 KiB, or what the options say, and its plugin."""

    device: Device
    plugin: SimulatedPlugin
    registry: Registry

    def since(self, start: int) -> list[tuple[object, ...]]:
        """Give the calls that got or gave memory from a place of the log on: sizes only."""
        sizes = {"allocate": 1, "release": 2}
        calls = [call for call in self.plugin.calls[start:] if call.method in sizes]
        return [(call.method, call.arguments[sizes[call.method]]) for call in calls]

    def cache(self, *sizes: int, kind: Any = "device") -> None:
        """Have blocks of these sizes cached."""
        for buffer in [self.device.allocate(size, kind=kind) for size in sizes]:
            buffer.release()

    def check(self) -> None:
        """Assert that the managers are whole and that the device holds just what they hold."""
        held = 0
        for manager in self.device.managers():
            manager.check()
            held += manager.counters().held.now
        assert held == sum(size for _, size in self.plugin.ranges(0))

    def check_live(self, count: int) -> None:
        """Assert that the managers are whole and have so many live blocks."""
        for manager in self.device.managers():
            manager.check()
        assert count == sum(manager.counters().live_blocks for manager in self.device.managers())


def small(**options: Any) -> Small:
    """Make one; whoever does closes its registry."""
    plugin = SimulatedPlugin(**{"capacity": 64 * KiB, "threshold": 16 * KiB} | options)
    registry = registry_with(plugin)
    return Small(registry.device("x:0"), plugin, registry)
