"""`targetmem.toml`: reading it, and saying where in it something is wrong.

threshold = "1MiB"             # for every device

[device."host:0"]              # for one device
threshold = "64MiB"

[plugin.simulated]             # a plugin's own options
capacity = "2GiB"
"""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from targetmem.config import SETTINGS, Found, check_value
from targetmem.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

__all__ = ["SettingsFile"]

_DEVICE_NAME = re.compile(r"[^:\s]+:[0-9]+")
_KEY_OF_LINE = re.compile(r"\s*((?:[\w.-]|\"[^\"]*\"|'[^']*')+)\s*=")


@dataclass(frozen=True, slots=True)
class SettingsFile:
    """The contents of one settings file, every value of a setting already checked."""

    path: str
    text: str
    tables: Mapping[str, Any]

    @classmethod
    def read(cls, path: str) -> SettingsFile:
        """Read and check a file. Raises ConfigError with file, line, key and what was expected."""
        text = _read_text(path)
        try:
            tables = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            raise _syntax_error(path, text, error) from None
        file = cls(path, text, tables)
        file._check()
        return file

    def values_of(self, key: str, device: str | None) -> Iterator[Found]:
        """Yield what the file says of a setting: for the device, then for all."""
        if device is not None and key in self.tables.get("device", {}).get(device, {}):
            yield self._found("device", device, key)
        if key in self.tables:
            yield self._found(key)

    def options_of(self, plugin: str) -> dict[str, Found]:
        """Give the options in a plugin's table, as they stand in the file: only the plugin knows them."""
        table = self.tables.get("plugin", {}).get(plugin, {})
        return {key: Found(value, self.place("plugin", plugin, key)) for key, value in table.items()}

    def names(self, kind: str) -> list[str]:
        """Give the names of the tables of one kind, "device" or "plugin"."""
        return list(self.tables.get(kind, {}))

    def place(self, *keys: str) -> str:
        """Give `file:line` of a key that is given with the tables around it."""
        return f"{self.path}:{_line_of(self.text, keys)}"

    def error(self, *keys: str, expected: str, got: object) -> ConfigError:
        """Build the error about a key that is given with the tables around it."""
        where = self.place(*keys)
        return ConfigError(
            f"{where}: {'.'.join(keys)}: expected {expected}, got {got!r}",
            where=where,
            key=keys[-1],
            value=got,
        )

    def _found(self, *keys: str) -> Found:
        value: Any = self.tables
        for key in keys:
            value = value[key]
        where = self.place(*keys)
        return Found(check_value(keys[-1], value, f"{where}: {'.'.join(keys)}"), where)

    def _check(self) -> None:
        for key, value in self.tables.items():
            if key in ("device", "plugin"):
                self._check_tables(key, value)
            else:
                self._check_setting(key)

    def _check_tables(self, kind: str, tables: object) -> None:
        if not isinstance(tables, dict):
            raise self.error(kind, expected=f'tables like [{kind}."name"]', got=tables)
        for name, table in tables.items():
            if not isinstance(table, dict):
                raise self.error(kind, name, expected=f'a table [{kind}."{name}"]', got=table)
            if kind == "device":
                self._check_device(name, table)

    def _check_device(self, name: str, table: Mapping[str, object]) -> None:
        if not _DEVICE_NAME.fullmatch(name):
            raise self.error("device", name, expected='a device like [device."host:0"]', got=name)
        for key in table:
            self._check_setting("device", name, key)

    def _check_setting(self, *keys: str) -> None:
        if keys[-1] not in SETTINGS:
            known = ", ".join(SETTINGS)
            also = "" if len(keys) > 1 else " or a table device or plugin"
            raise self.error(*keys, expected=f"a setting ({known}){also}", got=keys[-1])
        self._found(*keys)


def _read_text(path: str) -> str:
    try:
        with open(path, encoding="utf-8") as stream:
            return stream.read()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8"
        raise ConfigError(f"{path}: expected a readable settings file: {reason}", where=path) from None


def _syntax_error(path: str, text: str, error: tomllib.TOMLDecodeError) -> ConfigError:
    """Say in one line where the file stops being TOML, and what stands there."""
    at_line = re.search(r"at line (\d+)", str(error))
    number = int(at_line[1]) if at_line else max(1, text.count("\n"))
    line = (text.splitlines() or [""])[number - 1].strip()
    key = match[1] if (match := _KEY_OF_LINE.match(line)) else ""
    where = f"{path}:{number}"
    expected = 'expected TOML (text in quotes: threshold = "8K")'
    told = f"{where}: {key}: {expected}" if key else f"{where}: {expected}"
    return ConfigError(f"{told}, got {line!r}: {error}", where=where, key=key, value=line)


def _line_of(text: str, keys: tuple[str, ...]) -> int:
    """Give the number of the line that holds a key, or else the nearest table around it."""
    table: tuple[str, ...] = ()
    best, best_length = 1, 0
    for number, line in enumerate(text.splitlines(), 1):
        if line.lstrip().startswith("["):
            path = table = _path_of(line, table)
        else:
            match = _KEY_OF_LINE.match(line)
            path = table + _path_of(f"{match[1]} = 0", ()) if match else ()
        if best_length < len(path) <= len(keys) and path == keys[: len(path)]:
            best, best_length = number, len(path)
    return best


def _path_of(line: str, otherwise: tuple[str, ...]) -> tuple[str, ...]:
    """Give the dotted keys of a line of TOML: a table's head, or a key with a value."""
    try:
        table: object = tomllib.loads(line)
    except tomllib.TOMLDecodeError:
        return otherwise
    path: list[str] = []
    while isinstance(table, dict) and table:
        key, table = next(iter(table.items()))
        path.append(key)
    return tuple(path)
