"""The environment variables that targetmem reads, and the folders where it looks for its settings file."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

from targetmem.callers import warn

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

__all__ = [
    "CONFIG",
    "LLVM_THRESHOLD",
    "device_prefix",
    "names_of",
    "plugin_options",
    "plugin_prefix",
    "usual_files",
    "warn_of_unknown",
]

PREFIX = "TARGETMEM_"
CONFIG = "TARGETMEM_CONFIG"
LLVM_THRESHOLD = "LIBOMPTARGET_MEMORY_MANAGER_THRESHOLD"
FILE_NAME = "targetmem.toml"
# Read by the build, not by the package; `make` hands them to everything that it starts.
BUILD_SWITCHES = frozenset(PREFIX + name for name in ("SANITIZE", "COVERAGE", "DEBUG", "STATISTICS"))


def plugin_prefix(plugin: str) -> str:
    """Give how the variables of a plugin's own options start: `TARGETMEM_SIMULATED_`."""
    return f"{PREFIX}{re.sub('[^A-Z0-9]', '_', plugin.upper())}_"


def device_prefix(device: str) -> str:
    """Give how the variables of one device start: `TARGETMEM_HOST_0_` for `host:0`."""
    plugin, _, index = device.rpartition(":")
    return f"{plugin_prefix(plugin)}{index}_"


def names_of(key: str, device: str | None) -> Iterator[str]:
    """Yield the variables that can hold a setting, the one that wins first."""
    if device is not None:
        yield device_prefix(device) + key.upper()
    yield PREFIX + key.upper()
    if key == "threshold":
        yield LLVM_THRESHOLD


def plugin_options(plugin: str, settings: Collection[str]) -> dict[str, str]:
    """Give the options of a plugin that stand in the environment, by their names in lower case.

    `settings` are the names that belong to the plugin's devices (`TARGETMEM_HOST_0_THRESHOLD`), not to
    itself.
    """
    prefix = plugin_prefix(plugin)
    of_device = _device_variables(settings)
    return {
        name.removeprefix(prefix).lower(): text
        for name, text in os.environ.items()
        if name.startswith(prefix) and not of_device.fullmatch(name)
    }


def warn_of_unknown(settings: Collection[str], plugins: Callable[[], list[str]]) -> None:
    """Warn of each `TARGETMEM_*` variable that nothing reads.

    `plugins` gives the names of the known plugins; it may be slow, and is asked only when a variable may be a
    plugin's (which the plugin then reads or warns of, once it is used).
    """
    for name in _doubtful(settings):
        if not any(name.startswith(plugin_prefix(plugin)) for plugin in plugins()):
            known = ", ".join(sorted(_fixed_names(settings)))
            text = f"{name}: expected a variable that targetmem reads ({known}), got one that nothing reads"
            warn(text)


def _doubtful(settings: Collection[str]) -> list[str]:
    known = _fixed_names(settings) | BUILD_SWITCHES
    return [name for name in os.environ if name.startswith(PREFIX) and name not in known]


def _fixed_names(settings: Collection[str]) -> set[str]:
    return {CONFIG, *(PREFIX + key.upper() for key in settings)}


def _device_variables(settings: Collection[str]) -> re.Pattern[str]:
    return re.compile(rf"{PREFIX}[A-Z0-9_]+_[0-9]+_(?:{'|'.join(settings).upper()})")


def usual_files() -> Iterator[str]:
    """Yield where the settings file is looked for: the working directory, then the user's folder."""
    yield FILE_NAME
    folder = os.environ.get("APPDATA") if os.name == "nt" else os.environ.get("XDG_CONFIG_HOME")
    yield os.path.join(folder or os.path.expanduser("~/.config"), FILE_NAME)
