"""Plugins: found by entry points, refused with a reason when they are not available, set up by the user."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import targetmem
from targetmem.errors import ConfigError, NotSupported, PluginError, TargetMemoryWarning, UnknownDevice
from targetmem.plugins import discovery
from targetmem.plugins.discovery import Source
from targetmem.plugins.registry import Registry
from targetmem.plugins.simulated import SimulatedPlugin
from tests.unit.registries import registry_of, registry_with

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def raising(error: Exception) -> Callable[[], object]:
    """Give a function that raises."""

    def load() -> object:
        raise error

    return load


@pytest.mark.parametrize(
    ("load", "told", "hint"),
    [
        (
            raising(ModuleNotFoundError("No module named 'pyopencl'", name="pyopencl")),
            "ModuleNotFoundError: No module named 'pyopencl'",
            "install what provides the module pyopencl",
        ),
        (raising(AttributeError("no class Plugin")), "AttributeError: no class Plugin", ""),
        (raising(RuntimeError("libcuda is too old")), "RuntimeError: libcuda is too old", ""),
        (lambda: lambda: 5, "TypeError: expected a targetmem.abc.Plugin, got int", ""),
        (lambda: 5, "TypeError: 'int' object is not callable", ""),
    ],
)
def test_a_plugin_that_cannot_be_loaded(load: Callable[[], object], told: str, hint: str) -> None:
    """However an entry point fails, its plugin is not available, with the reason, and the others are."""
    registry = registry_of(bad=load, good=lambda: SimulatedPlugin)
    with pytest.raises(PluginError, match=r"^plugin bad: not available: ") as caught:
        registry.device("bad:0")
    assert told in str(caught.value)
    assert ("bad", hint) == (caught.value.plugin, caught.value.hint)
    assert ["good:0"] == [device.name for device in registry.devices()]
    registry.close()


def test_the_extra_is_the_hint() -> None:
    """A plugin whose entry point names an extra tells to install that."""
    source = Source("opencl", raising(ImportError("no pyopencl")), "install targetmem[opencl]")  # type: ignore[arg-type]
    registry = Registry(lambda: {"opencl": source})
    with pytest.raises(PluginError, match=r"not available: .*; install targetmem\[opencl\]"):
        registry.device("opencl:0")


@pytest.mark.parametrize("name", ["x:1", "x", "x:", "x:-1", "y:0", "", ":0", "x:0x0", "x:¹"])
def test_an_unknown_device(name: str) -> None:
    """A device that is not there is an error that lists those that are."""
    registry = registry_with(SimulatedPlugin())
    registry.device("x:0")
    with pytest.raises(UnknownDevice, match="x:0") as caught:
        registry.device(name)
    assert repr(name) in str(caught.value)
    registry.close()


def test_listing_for_an_error_starts_nothing() -> None:
    """A misspelt device starts no plugin only to list its devices."""
    plugin = SimulatedPlugin()
    with pytest.raises(UnknownDevice, match="those of x"):
        registry_with(plugin).device("y:0")
    assert [] == plugin.calls


def entry_points_in(folder: Path, text: str) -> None:
    """Install a distribution that consists of entry points."""
    info = folder / "fake_plugins-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: fake-plugins\nVersion: 1.0\nProvides-Extra: cl\n"
    )
    (info / "entry_points.txt").write_text(f"[targetmem.plugins]\n{text}\n")


def test_entry_points_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Plugins of other packages are found by their entry points, and stand between host and simulated."""
    entry_points_in(tmp_path, "zeta = fake_zeta:Plugin\nalpha = fake_alpha:Plugin [cl]\n")
    (tmp_path / "fake_zeta.py").write_text(
        "from targetmem.plugins.simulated import SimulatedPlugin\nclass Plugin(SimulatedPlugin): pass\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    assert ["host", "alpha", "opencl", "zeta", "simulated"] == list(discovery.sources())
    registry = Registry()
    assert "zeta:0" == registry.device("zeta:0").name
    with pytest.raises(PluginError, match=r"plugin alpha: not available: .*install fake-plugins\[cl\]"):
        registry.device("alpha:0")
    registry.close()


def test_a_claimed_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An entry point with the name of one of targetmem's own plugins is ignored, with a warning."""
    entry_points_in(tmp_path, "host = fake:Plugin")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.warns(TargetMemoryWarning, match="host = fake:Plugin"):
        source = discovery.sources()["host"]
    assert "HostPlugin" == source.load().__name__


def test_two_of_one_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two packages that claim one name are told, and neither is used."""
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        info = tmp_path / name / f"{name}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(f"[targetmem.plugins]\nx = {name}:Plugin\n")
        monkeypatch.syspath_prepend(str(tmp_path / name))
    registry = Registry()
    with pytest.raises(
        PluginError, match=r"plugin x: expected one package.*uninstall all but one of one, two"
    ):
        registry.device("x:0")


def test_a_plugin_is_added(monkeypatch: pytest.MonkeyPatch) -> None:
    """A plugin object can be added under a new name, and then has devices like any other."""
    monkeypatch.setattr(discovery, "_added", {})
    targetmem.plugins.add(SimulatedPlugin(), "added")
    registry = Registry()
    assert "added:0" == registry.device("added:0").name
    registry.close()
    for taken in ("added", "host", "no name", ""):
        with pytest.raises(PluginError, match="expected a new name"):
            targetmem.plugins.add(SimulatedPlugin(), taken)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give an empty working directory."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_options_from_file_and_environment(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A plugin's options are read from its table and, first, from its variables."""
    (folder / "targetmem.toml").write_text('[plugin.x]\ncapacity = "2M"\ndevices = 2\nfail_on = [1]\n')
    monkeypatch.setenv("TARGETMEM_X_CAPACITY", "4M")
    registry = registry_of(x=lambda: SimulatedPlugin)
    chosen: Any = registry.device("x:1").plugin
    assert (4 << 20, 2, frozenset({1})) == (
        chosen.chosen.capacity,
        chosen.chosen.devices,
        chosen.chosen.fail_on,
    )
    registry.close()


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[plugin.x]\ncapacities = 5", r"targetmem.toml:2: capacities: expected an option"),
        ('[plugin.x]\ncapacity = "8X"', r"targetmem.toml:2: capacity: expected more than 0.*'8X'"),
        ("[plugin.y]\na = 1", r"targetmem.toml:1: plugin.y: expected a table of a plugin \(x\)"),
        (
            '[device."y:0"]\nthreshold = 1',
            r"targetmem.toml:1: device.y:0: expected a table of a plugin \(x\)",
        ),
        (
            '[device."x:7"]\nthreshold = 1',
            r"targetmem.toml:1: device.x:7: expected a device of the plugin \(x:0\)",
        ),
    ],
)
def test_what_nothing_reads_is_an_error(folder: Path, text: str, told: str) -> None:
    """A table or a key for a plugin, a device or an option that is not there is told with its place."""
    (folder / "targetmem.toml").write_text(text)
    with pytest.raises(ConfigError, match=told):
        registry_of(x=lambda: SimulatedPlugin).device("x:0")


def test_a_variable_that_the_plugin_does_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """A variable with a plugin's prefix that is no option of it is a warning."""
    monkeypatch.setenv("TARGETMEM_X_0_TRESHOLD", "8K")
    registry = registry_of(x=lambda: SimulatedPlugin)
    with pytest.warns(TargetMemoryWarning, match=r"TARGETMEM_X_0_TRESHOLD.*TARGETMEM_X_CAPACITY"):
        registry.device("x:0")
    registry.close()


def test_per_device_settings_reach_the_manager(monkeypatch: pytest.MonkeyPatch) -> None:
    """A device's variables hold for it alone; a plugin's default holds where nothing is set."""
    monkeypatch.setenv("TARGETMEM_X_1_THRESHOLD", "0")
    plugin = SimulatedPlugin(devices=2, threshold="1M")
    registry = registry_with(plugin)
    assert [1 << 20, 0] == [registry.device(f"x:{index}").memory.threshold for index in range(2)]
    registry.close()


def test_an_unwanted_manager_is_off() -> None:
    """Where the plugin says that a manager does not help, it is off until a user sets a threshold."""

    class Unmanaged(SimulatedPlugin):
        def manager_wanted(self, device: int, kind: str) -> bool:
            return False

    registry = registry_with(Unmanaged())
    device = registry.device("x:0")
    assert (0, "plugin") == (device.memory.threshold, device.settings().origin("threshold"))
    registry.close()


def test_a_kind_that_the_device_lacks() -> None:
    """Memory of a kind that the device does not have is refused; the next request is served."""

    class Plain(SimulatedPlugin):
        def capabilities(self, device: int) -> Any:
            return targetmem.abc.Capabilities()

    registry = registry_with(Plain())
    device = registry.device("x:0")
    with pytest.raises(NotSupported, match=r"expected a memory kind of this device \(device\), got 'host'"):
        device.allocate(10, kind="host")
    assert device.allocate(10).pointer
    registry.close()
