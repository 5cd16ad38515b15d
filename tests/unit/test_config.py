"""Settings: which writing wins, and what is said of one that cannot be used."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any, cast

import pytest

from targetmem.config import SETTINGS, Settings, resolve
from targetmem.errors import ConfigError, TargetMemoryWarning

if TYPE_CHECKING:
    from pathlib import Path

LLVM = "LIBOMPTARGET_MEMORY_MANAGER_THRESHOLD"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give an empty working directory, and no user folder with settings."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "user"))
    (tmp_path / "user").mkdir()
    return tmp_path


FILE = """\
threshold = "1M"
[device."host:0"]
threshold = "2M"
"""


def test_nothing_is_set() -> None:
    """Without any writing the built-in defaults hold, and say so."""
    settings = resolve("host:0")
    assert Settings() == settings
    assert 8192 == settings.threshold
    assert "default" == settings.origin("threshold")


def test_the_order(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Argument, device variable, variable, LLVM's, device table, file, plugin, default: the first wins."""
    (folder / "targetmem.toml").write_text(FILE)
    monkeypatch.setenv("TARGETMEM_HOST_0_THRESHOLD", "5M")
    monkeypatch.setenv("TARGETMEM_THRESHOLD", "4M")
    monkeypatch.setenv(LLVM, "3M")
    assert (6 << 20, "argument") == found("host:0", threshold="6M")
    assert (5 << 20, "TARGETMEM_HOST_0_THRESHOLD") == found("host:0")
    monkeypatch.delenv("TARGETMEM_HOST_0_THRESHOLD")
    assert (4 << 20, "TARGETMEM_THRESHOLD") == found("host:0")
    monkeypatch.delenv("TARGETMEM_THRESHOLD")
    assert (3 << 20, LLVM) == found("host:0")
    monkeypatch.delenv(LLVM)
    assert (2 << 20, "targetmem.toml:3") == found("host:0")
    assert (1 << 20, "targetmem.toml:1") == found("host:1")
    assert (1 << 20, "targetmem.toml:1") == found(None)
    (folder / "targetmem.toml").unlink()
    assert (7, "plugin") == found("host:0", plugin_threshold=7)
    assert (8192, "default") == found("host:0")


def found(device: str | None, **arguments: Any) -> tuple[int, str]:
    """Give the threshold and where it was found."""
    settings = resolve(device, **arguments)
    return settings.threshold, settings.origin("threshold")


def test_the_files_order(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file that TARGETMEM_CONFIG names, else that of the working directory, else that of the user."""
    (folder / "user" / "targetmem.toml").write_text("threshold = 1")
    assert 1 == resolve().threshold
    (folder / "targetmem.toml").write_text("threshold = 2")
    assert 2 == resolve().threshold
    (folder / "third.toml").write_text("threshold = 3")
    monkeypatch.setenv("TARGETMEM_CONFIG", str(folder / "third.toml"))
    assert 3 == resolve().threshold


@pytest.mark.parametrize("value", ["8X", "-1", "0x2000", "1e6", "", "8KB"])
@pytest.mark.parametrize("name", ["TARGETMEM_THRESHOLD", "TARGETMEM_SIMULATED_3_THRESHOLD", LLVM])
def test_a_bad_threshold_in_the_environment(monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> None:
    """A threshold that LLVM would misread is an error with the variable, the value and the accepted forms."""
    monkeypatch.setenv(name, value)
    with pytest.raises(ConfigError, match=name) as caught:
        resolve("simulated:3")
    assert repr(value) in str(caught.value)
    assert "64KiB" in str(caught.value)
    assert "\n" not in str(caught.value)
    assert (name, "threshold", value) == (caught.value.where, caught.value.key, caught.value.value)


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        ("cached_limit", "0", "more than 0"),
        ("cached_limit", "-5", "more than 0"),
        ("policy", "bestest", "exact"),
        ("call_sites", "maybe", "true"),
        ("report_leaks", "2", "true"),
    ],
)
def test_bad_values(monkeypatch: pytest.MonkeyPatch, key: str, value: str, expected: str) -> None:
    """Each setting refuses what it cannot use, in the environment and as an argument."""
    with pytest.raises(ConfigError, match=expected):
        resolve(None, **cast("dict[str, Any]", {key: value}))
    monkeypatch.setenv(f"TARGETMEM_{key.upper()}", value)
    with pytest.raises(ConfigError, match=f"TARGETMEM_{key.upper()}.*{expected}"):
        resolve()


def test_a_losing_value_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """A value that another one beats is not looked at."""
    monkeypatch.setenv(LLVM, "8X")
    assert 16 == resolve(threshold=16).threshold


def test_an_unknown_argument() -> None:
    """A setting that does not exist is an error that lists those that do."""
    with pytest.raises(ConfigError, match="cached_limit"):
        resolve(cache_limit=5)


@pytest.mark.parametrize("value", ["0", "0K"])
def test_threshold_0_is_off(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    """LLVM's variable turns the manager off with 0, over what the plugin wants; a user turns it on again."""
    monkeypatch.setenv(LLVM, value)
    assert not resolve("host:0", plugin_threshold=100).manager_on
    assert resolve("host:0", plugin_threshold=0, threshold=1).manager_on


@pytest.mark.parametrize(
    "name", ["TARGETMEM_TRESHOLD", "TARGETMEM_CACHE_LIMIT", "TARGETMEM_HOSTS_0_THRESHOLD"]
)
def test_an_unknown_variable_is_a_warning(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """A TARGETMEM_ variable that nothing reads is told, with those that are read."""
    monkeypatch.setenv(name, "1")
    with pytest.warns(TargetMemoryWarning, match=f"{name}.*TARGETMEM_THRESHOLD"):
        resolve()


@pytest.mark.parametrize(
    "name",
    ["TARGETMEM_DEBUG", "TARGETMEM_STATISTICS", "TARGETMEM_HOST_0_POLICY", "TARGETMEM_SIMULATED_CAPACITY"],
)
def test_a_known_variable_is_none(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """The build's switches, a device's settings and a plugin's options are nobody's mistake."""
    monkeypatch.setenv(name, "exact")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        resolve()


def test_the_settings_are_those_of_the_dataclass() -> None:
    """Every setting that can be written is a field of Settings."""
    assert set(SETTINGS) <= set(Settings.__slots__)
