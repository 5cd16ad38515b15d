"""OpenMP's device numbers over plugins that a test chooses: the host is 0, then the simulated ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

from targetmem.omp import numbering
from targetmem.plugins.host import HostPlugin
from targetmem.plugins.registry import Registry
from targetmem.plugins.simulated import SimulatedPlugin
from tests.unit.registries import registry_of

if TYPE_CHECKING:
    import pytest

HOST = 0
FIRST, SECOND = 1, 2  # devices of one simulated plugin
OTHER = 3  # the device of another one, whose addresses are those of FIRST
INITIAL = 4


def use(monkeypatch: pytest.MonkeyPatch, **options: object) -> tuple[Registry, SimulatedPlugin]:
    """Number the host, two devices of a simulated plugin with these options, and one of another."""
    plugin = SimulatedPlugin(devices=2, **options)
    other = SimulatedPlugin()
    registry = registry_of(host=lambda: HostPlugin, one=lambda: lambda: plugin, two=lambda: lambda: other)
    monkeypatch.setattr(numbering, "current", numbering.Numbering(registry))
    return registry, plugin
