"""Settings: what can be set, where it may be written, and which writing wins.

For each setting the first of these wins: an argument in code; the environment (`TARGETMEM_HOST_0_THRESHOLD`
for one device, then `TARGETMEM_THRESHOLD`, then LLVM's `LIBOMPTARGET_MEMORY_MANAGER_THRESHOLD`);
`targetmem.toml` (the device's table, then the top of the file); the plugin's default; the built-in default.
A value that cannot be used is an error that says where it stands, never a guess.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from targetmem import environment
from targetmem.errors import ConfigError
from targetmem.sizes import ACCEPTED_SIZES, parse_size

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from targetmem.settings_file import SettingsFile

__all__ = ["POLICIES", "SETTINGS", "Found", "Settings", "check_value", "resolve", "settings_file"]

POLICIES = ("exact",)
DEFAULT_THRESHOLD = 8192
_FLAGS = {
    "1": True,
    "true": True,
    "yes": True,
    "on": True,
    "0": False,
    "false": False,
    "no": False,
    "off": False,
}


def parse_policy(value: object) -> str:
    """Give the policy that a setting's value names. Raises ValueError for an unknown one."""
    if value not in POLICIES:
        raise ValueError(f"expected a policy ({', '.join(POLICIES)}), got {value!r}")
    return str(value)


def parse_limit(value: object) -> int:
    """Give a limit in bytes. Raises ValueError for what is no size, and for 0."""
    try:
        limit = parse_size(value)
    except ValueError:
        limit = 0
    if limit == 0:
        raise ValueError(f"expected more than 0: {ACCEPTED_SIZES}, got {value!r}")
    return limit


def parse_flag(value: object) -> bool:
    """Give the truth of a setting's value. Raises ValueError for what is no bool and no word for one."""
    flag = value if isinstance(value, bool) else _FLAGS.get(str(value).strip().lower())
    if flag is None:
        raise ValueError(f"expected one of {', '.join(_FLAGS)}, got {value!r}")
    return flag


SETTINGS: Mapping[str, Callable[[object], Any]] = MappingProxyType(
    {
        "policy": parse_policy,
        "threshold": parse_size,
        "cached_limit": parse_limit,
        "call_sites": parse_flag,
        "report_leaks": parse_flag,
    }
)


class Found(NamedTuple):
    """A setting's value and where it was found: "argument", a variable's name, `file:line` or "plugin"."""

    value: Any
    origin: str


@dataclass(frozen=True, slots=True)
class Settings:
    """What holds for one manager. Sizes are bytes.

    `threshold` 0 means that the manager is off; `cached_limit` None means no limit; `call_sites` whether each
    allocation records the line that made it; `report_leaks` whether leaks are reported at interpreter exit as
    well; `origins` where each value was found.
    """

    policy: str = "exact"
    threshold: int = DEFAULT_THRESHOLD
    cached_limit: int | None = None
    call_sites: bool = False
    report_leaks: bool = False
    origins: Mapping[str, str] = field(default_factory=dict, compare=False)

    @property
    def manager_on(self) -> bool:
        """Whether requests are managed at all."""
        return self.threshold > 0

    def origin(self, key: str) -> str:
        """Give where a setting's value was found."""
        return self.origins.get(key, "default")


def check_value(key: str, value: object, where: str) -> Any:
    """Give the setting's value as the manager needs it.

    Raises ConfigError that names the place (`where`; the key itself when the value is an argument), the value
    and what is accepted.
    """
    try:
        return SETTINGS[key](value)
    except ValueError as error:
        raise ConfigError(f"{where}: {error}", where=where, key=key, value=value) from None


def resolve(
    device: str | None = None, *, plugin_threshold: int | None = None, **arguments: object
) -> Settings:
    """Give the settings of a device (`host:0`), or of a manager that belongs to none.

    `plugin_threshold` is the plugin's default in bytes; `arguments` are settings given in code, None when not
    given. Raises ConfigError for a value that cannot be used, anywhere; warns (TargetMemoryWarning) of
    unknown `TARGETMEM_*` variables.
    """
    environment.warn_of_unknown(SETTINGS, lambda: _plugin_names(device))
    if unknown := sorted(arguments.keys() - SETTINGS.keys()):
        raise ConfigError(f"expected a setting ({', '.join(SETTINGS)}), got {unknown[0]!r}", key=unknown[0])
    file = settings_file()
    found: dict[str, Found] = {}
    for key in SETTINGS:
        sources = _sources(key, device, arguments.get(key), file)
        if (first := next(sources, None)) is not None:
            found[key] = first
    if plugin_threshold is not None:
        found.setdefault("threshold", Found(plugin_threshold, "plugin"))
    origins = {key: item.origin for key, item in found.items()}
    return Settings(**{key: item.value for key, item in found.items()}, origins=origins)


def _sources(key: str, device: str | None, argument: object, file: SettingsFile | None) -> Iterator[Found]:
    """Yield the values written for a setting, the one that wins first."""
    if argument is not None:
        yield Found(check_value(key, argument, key), "argument")
    for name in environment.names_of(key, device):
        if (text := os.environ.get(name)) is not None:
            yield Found(check_value(key, text, name), name)
    if file is not None:
        yield from file.values_of(key, device)


def _plugin_names(device: str | None) -> list[str]:
    """Give the names of all plugins, the one of this device included."""
    from targetmem.plugins.discovery import sources

    return [*sources(), *([device.rpartition(":")[0]] if device is not None else [])]


def settings_file() -> SettingsFile | None:
    """Read the settings file: the one that `TARGETMEM_CONFIG` names, else that of the working or user folder.

    Gives None when there is none. Raises ConfigError when it is malformed, has a key that nothing reads, or
    when the one named by `TARGETMEM_CONFIG` cannot be read.
    """
    path = os.environ.get(environment.CONFIG)
    if path is None:
        path = next((found for found in environment.usual_files() if os.path.exists(found)), None)
        if path is None:
            return None
    from targetmem.settings_file import SettingsFile

    return SettingsFile.read(path)
