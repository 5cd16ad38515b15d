"""`targetmem.toml`: what is wrong is told with file, line, key, and what was expected."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from targetmem.errors import ConfigError
from targetmem.settings_file import SettingsFile

if TYPE_CHECKING:
    from pathlib import Path


def read(folder: Path, text: str) -> SettingsFile:
    """Write a settings file and read it."""
    path = folder / "targetmem.toml"
    path.write_text(text)
    return SettingsFile.read(str(path))


def test_all_that_can_be_written(tmp_path: Path) -> None:
    """Settings for all, for one device, and a plugin's own options are found, with their places."""
    file = read(
        tmp_path,
        'policy = "exact"\nthreshold = 4096\ncached_limit = "1GiB"\ncall_sites = true\nreport_leaks = false\n'
        '[device."host:0"]\nthreshold = "64K"\n[plugin.simulated]\ncapacity = "2G"\n',
    )
    assert [65536, 4096] == [found.value for found in file.values_of("threshold", "host:0")]
    assert f"{tmp_path}/targetmem.toml:7" == next(file.values_of("threshold", "host:0")).origin
    assert [1 << 30] == [found.value for found in file.values_of("cached_limit", "host:0")]
    assert [True] == [found.value for found in file.values_of("call_sites", None)]
    assert {"capacity": ("2G", f"{tmp_path}/targetmem.toml:9")} == file.options_of("simulated")
    assert {} == file.options_of("host")
    assert (["host:0"], ["simulated"]) == (file.names("device"), file.names("plugin"))


@pytest.mark.parametrize(
    ("text", "line", "key", "expected"),
    [
        ('threshold = "8X"', 1, "threshold", "64KiB"),
        ("# a\n\nthreshold = -1", 3, "threshold", "64KiB"),
        ("threshold = 1e6", 1, "threshold", "64KiB"),
        ("threshold = true", 1, "threshold", "64KiB"),
        ("cached_limit = 0", 1, "cached_limit", "more than 0"),
        ('policy = "fast"', 1, "policy", "exact"),
        ("policy = []", 1, "policy", "exact"),
        ('call_sites = "maybe"', 1, "call_sites", "true"),
        ("tresh = 1", 1, "tresh", "threshold"),
        ('policy = "exact"\n[devices]\n', 2, "devices", "device"),
        ('[device."host:0"]\npolicy = "exact"\nlimit = 5', 3, "limit", "cached_limit"),
        ('[device."host:0"]\nthreshold = "0x2000"', 2, "threshold", "64KiB"),
        (
            'threshold = 1\n[device."simulated:0"]\n[device."host:0"]\nthreshold = "1e6"',
            4,
            "threshold",
            "64KiB",
        ),
        ('device."host:0".threshold = "8X"', 1, "threshold", "64KiB"),
        ('device = {"host:0" = {threshold = "8X"}}', 1, "threshold", "64KiB"),
        ("[device.host]\nthreshold = 1", 1, "host", "host:0"),
        ("device = 5", 1, "device", "[device"),
        ("[device]\n'host:0' = 5", 2, "host:0", "[device"),
        ("[plugin]\nhost = 5", 2, "host", "[plugin"),
    ],
)
def test_what_is_wrong_is_told(tmp_path: Path, text: str, line: int, key: str, expected: str) -> None:
    """A value, a key or a table that cannot be used is told with file, line and key, in one line."""
    with pytest.raises(ConfigError) as caught:
        read(tmp_path, text)
    told = str(caught.value)
    assert told.startswith(f"{tmp_path}/targetmem.toml:{line}: ")
    assert (key, True) == (caught.value.key, key in told)
    assert expected in told
    assert "\n" not in told


@pytest.mark.parametrize(
    ("text", "line", "key"),
    [
        ("threshold = 8K", 1, "threshold"),
        ('policy = "exact"\nthreshold = \n', 2, "threshold"),
        ("\n\n[device.host:0]\n", 3, ""),
        ('policy = "exact', 1, "policy"),
        ("threshold = 1\nthreshold = 2\n", 2, "threshold"),
        ("a = [1,\n2\n", 2, ""),
    ],
)
def test_no_toml(tmp_path: Path, text: str, line: int, key: str) -> None:
    """Text that is no TOML is told with file, line, the key where there is one, and how to write it."""
    with pytest.raises(ConfigError, match="expected TOML") as caught:
        read(tmp_path, text)
    assert str(caught.value).startswith(f"{tmp_path}/targetmem.toml:{line}: ")
    assert key == caught.value.key
    assert "\n" not in str(caught.value)


def test_unreadable(tmp_path: Path) -> None:
    """A file that is not there, a folder and other bytes than UTF-8 are told with the path."""
    (tmp_path / "latin.toml").write_bytes(b"# \xe4\n")
    for path in (tmp_path / "none.toml", tmp_path, tmp_path / "latin.toml"):
        with pytest.raises(ConfigError, match=f"^{path}: expected a readable settings file"):
            SettingsFile.read(str(path))


def test_a_key_inside_a_text_is_none(tmp_path: Path) -> None:
    """The line of a key in the right table is told, not that of the same key in another."""
    text = '[device."a:0"]\nthreshold = 1\n[device."b:0"]\nthreshold = 2\n'
    file = read(tmp_path, text)
    assert file.place("device", "b:0", "threshold").endswith(":4")
    assert file.place("device", "b:0", "policy").endswith(":3")
