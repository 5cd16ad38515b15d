"""The plugins and devices of this process: found by name, started on first use, ended in order.

Whoever can call a plugin is gone before it is: buffers, managers, devices, then the plugin. That order is
walked in one place, `Registry.close`, at interpreter exit.
"""

from __future__ import annotations

import atexit
import os
import threading
from functools import partial
from typing import TYPE_CHECKING

from targetmem import manager
from targetmem.callers import warn
from targetmem.config import settings_file
from targetmem.errors import ConfigError, TargetMemoryError, UnknownDevice
from targetmem.lifecycle import Once, take_all, tell
from targetmem.plugins import discovery
from targetmem.plugins.loaded import LoadedPlugin

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from targetmem._device import Device
    from targetmem.plugins.discovery import Source
    from targetmem.settings_file import SettingsFile

__all__ = ["Registry", "default"]


class Registry:
    """Every plugin that `sources` gives, with its devices; the process's own one is `default()`."""

    def __init__(self, sources: Callable[[], Mapping[str, Source]] = discovery.sources) -> None:
        self._sources = sources
        self._plugins: dict[str, LoadedPlugin] = {}
        self._lock = threading.RLock()  # held for nothing but changes of the table

    def plugins(self) -> dict[str, LoadedPlugin]:
        """Look for plugins, new ones included; gives them by name, in the order of `targetmem devices`.

        Raises ConfigError for a table of the settings file that belongs to none of them.
        """
        sources = self._sources()
        file = settings_file()
        if file is not None:
            _check_names(file, sources)
        with self._lock:
            for name, source in sources.items():
                self._plugins.setdefault(name, LoadedPlugin(source))
            self._plugins = {name: self._plugins[name] for name in sources}
            return self._plugins

    def device(self, name: str) -> Device:
        """Give the device of a name like `host:0`.

        Raises UnknownDevice when there is none, PluginError when its plugin is not available.
        """
        plugin, _, index = name.rpartition(":")
        loaded = self._plugins.get(plugin) or self._built_in(plugin) or self.plugins().get(plugin)
        if loaded is None or not index.isdecimal():
            raise self._unknown(name)
        devices = loaded.devices()
        if int(index) >= len(devices):
            raise self._unknown(name)
        return devices[int(index)]

    def _built_in(self, name: str) -> LoadedPlugin | None:
        """Give a plugin of this package without the search for others, if nothing needs their names."""
        source = discovery.built_in(name) if self._sources is discovery.sources else None
        if source is None or settings_file() is not None:
            return None
        with self._lock:
            return self._plugins.setdefault(name, LoadedPlugin(source))

    def devices(self) -> list[Device]:
        """Give the devices of all plugins that are available; starts every plugin."""
        available = [found for found in self.survey().values() if not isinstance(found, TargetMemoryError)]
        return [device for found in available for device in found]

    def survey(self) -> dict[str, tuple[Device, ...] | TargetMemoryError]:
        """Start every plugin; gives its devices, or why it is not available, by its name."""
        return {name: _devices_or_error(loaded) for name, loaded in self.plugins().items()}

    def close(self) -> None:
        """Close all devices, then end the plugins: all of them, whatever fails. Idempotent."""
        self._close(lambda: None)

    def close_at_exit(self) -> None:
        """Close, with the managers that belong to no device before the plugins that they may belong to.

        What fails becomes one warning, for nobody is left to catch it.
        """
        try:
            self._close(manager.close_all)
        except Exception as error:  # noqa: BLE001
            warn(f"while closing the devices at exit: {tell(error)}")

    def _close(self, close_other_managers: Callable[[], None]) -> None:
        ending = [loaded for loaded in self._plugins.values() if loaded.shut()]
        steps: list[Callable[[], object]] = [partial(loaded.close_devices, report=None) for loaded in ending]
        take_all([*steps, close_other_managers, *(loaded.deinit for loaded in reversed(ending))])

    def after_fork_in_child(self) -> None:
        """Give up what belongs to the parent."""
        self._lock = threading.RLock()
        for loaded in self._plugins.values():
            loaded.disown_in_child()

    def _unknown(self, name: str) -> UnknownDevice:
        """Build the error; starts no plugin only to list its devices."""
        plugins = self.plugins()
        names = [device.name for loaded in plugins.values() if loaded.started for device in loaded.devices()]
        names += [f"those of {name}" for name, loaded in plugins.items() if not loaded.started]
        known = ", ".join(names)
        return UnknownDevice(f"expected a device ({known}; `targetmem devices` lists them), got {name!r}")


def _devices_or_error(loaded: LoadedPlugin) -> tuple[Device, ...] | TargetMemoryError:
    try:
        return loaded.devices()
    except ConfigError:
        raise
    except TargetMemoryError as error:
        return error


def _check_names(file: SettingsFile, sources: Mapping[str, Source]) -> None:
    """Raise ConfigError for a table whose plugin is not there: nothing would ever read it."""
    for kind in ("device", "plugin"):
        for name in file.names(kind):
            plugin = name.rpartition(":")[0] if kind == "device" else name
            if plugin not in sources:
                raise file.error(kind, name, expected=f"a table of a plugin ({', '.join(sources)})", got=name)


def _make_default() -> Registry:
    registry = Registry()
    atexit.register(registry.close_at_exit)
    os.register_at_fork(after_in_child=registry.after_fork_in_child)
    return registry


default = Once(_make_default, "plugins")
