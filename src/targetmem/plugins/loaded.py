"""`LoadedPlugin`: one plugin's way through the process, from its entry point to its end."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from targetmem import environment
from targetmem._device import Device
from targetmem.abc import Plugin
from targetmem.callers import warn
from targetmem.config import SETTINGS, Found, settings_file
from targetmem.errors import ConfigError, PluginError, TargetMemoryError
from targetmem.failures import forked_text
from targetmem.lifecycle import Gate, Once, take_all

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from targetmem.plugins.discovery import Source
    from targetmem.settings_file import SettingsFile

T = TypeVar("T")

__all__ = ["LoadedPlugin"]


class LoadedPlugin:
    """A plugin that is loaded and initialised on first use, its devices, and its end."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self._start = Once(self._first_use, f"plugin {source.name}")
        self._gate = Gate()
        self._devices: tuple[Device, ...] = ()

    # --- use ---

    def devices(self) -> tuple[Device, ...]:
        """Give the plugin's devices; the first call starts it.

        Raises PluginError that says why the plugin is not available and ConfigError for its settings: each
        time the same.
        """
        if not self._start.finished:
            with self._gate:
                self._start()
        self._start()  # raises the error that was kept
        return self._devices

    @property
    def started(self) -> bool:
        """Whether the plugin is initialised."""
        return self._start.succeeded

    # --- end ---

    def shut(self) -> bool:
        """Lend no device any more. False when that was so: then somebody else walks the rest of the way."""
        return self._gate.close(
            f"plugin {self.source.name}: closed, for the interpreter exits: use it earlier"
        )

    def close_devices(self, *, report: bool | None) -> None:
        """Close every device. Before: `shut`."""
        take_all(partial(device.close_and_report, report=report) for device in self._devices)

    def deinit(self) -> None:
        """End the plugin if it began. Before: its devices are closed. After: no call reaches it."""
        if self._start.succeeded:
            self._start().deinit()

    def disown_in_child(self) -> None:
        """Refuse everything in a forked child, if the parent started the plugin and it cannot be shared."""
        if not self._start.begun or (self._start.succeeded and self._start().fork_safe):
            return
        self._gate.close_in_child(forked_text(f"plugin {self.source.name}"))
        for device in self._devices:
            device.disown()

    # --- first use ---

    def _first_use(self) -> Plugin:
        plugin = self._attempt(self._construct)
        self._attempt(plugin.init)
        try:
            self._devices = self._attempt(lambda: self._find_devices(plugin))
        except BaseException:
            plugin.deinit()
            raise
        return plugin

    def _attempt(self, step: Callable[[], T]) -> T:
        """Take a step of the plugin; what it raises becomes the reason why the plugin is not available."""
        try:
            return step()
        except TargetMemoryError:
            raise
        except Exception as error:
            hint = self.source.hint or _hint_for(error)
            told = f"{type(error).__name__}: {error}" + (f"; {hint}" if hint else "")
            text = f"plugin {self.source.name}: not available: {told}"
            raise PluginError(text, plugin=self.source.name, hint=hint) from error

    def _construct(self) -> Plugin:
        make = self.source.load()
        plugin = make(**self._options(getattr(make, "options", {})))
        if not isinstance(plugin, Plugin):
            raise TypeError(f"expected a targetmem.abc.Plugin, got {type(plugin).__name__}")
        plugin.name = self.source.name
        return plugin

    def _find_devices(self, plugin: Plugin) -> tuple[Device, ...]:
        devices = tuple(Device(plugin, index) for index in range(plugin.device_count()))
        file = settings_file()
        if file is not None:
            _check_names(file, plugin.name, [device.name for device in devices])
        return devices

    def _options(self, readers: Mapping[str, Callable[[object], Any]]) -> dict[str, Any]:
        """Read the plugin's own options from the file and, first, the environment."""
        file = settings_file()
        written = file.options_of(self.source.name) if file is not None else {}
        for key, found in written.items():
            if key not in readers:
                known = ", ".join(readers) or "none"
                text = f"{found.origin}: {key}: expected an option of the plugin ({known}), got {key!r}"
                raise ConfigError(text, where=found.origin, key=key, value=found.value)
        written.update(self._options_of_environment(readers))
        return {key: _read(readers[key], key, found) for key, found in written.items()}

    def _options_of_environment(self, readers: Mapping[str, object]) -> dict[str, Found]:
        prefix = environment.plugin_prefix(self.source.name)
        found: dict[str, Found] = {}
        for key, value in environment.plugin_options(self.source.name, SETTINGS).items():
            if key in readers:
                found[key] = Found(value, prefix + key.upper())
            else:
                known = ", ".join(prefix + option.upper() for option in readers) or "none"
                text = f"{prefix}{key.upper()}: expected an option ({known}), got one that nothing reads"
                warn(text)
        return found


def _check_names(file: SettingsFile, plugin: str, devices: list[str]) -> None:
    """Raise ConfigError for a table of a device that the plugin does not have: nothing would ever read it."""
    for name in file.names("device"):
        if name.rpartition(":")[0] == plugin and name not in devices:
            known = ", ".join(devices) or "none"
            raise file.error("device", name, expected=f"a device of the plugin ({known})", got=name)


def _read(reader: Callable[[object], Any], key: str, found: Found) -> Any:
    try:
        return reader(found.value)
    except (ValueError, TypeError) as error:
        text = f"{found.origin}: {key}: {error}"
        raise ConfigError(text, where=found.origin, key=key, value=found.value) from None


def _hint_for(error: Exception) -> str:
    """Say what to install when a module is missing and no extra of the package provides it."""
    if isinstance(error, ModuleNotFoundError) and error.name:
        return f"install what provides the module {error.name.partition('.')[0]}"
    return ""
