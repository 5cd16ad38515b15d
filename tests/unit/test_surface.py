"""What `import targetmem` gives and costs, tags, the contract's defaults, and `targetmem devices`."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest

import targetmem
from targetmem.abc import Plugin
from targetmem.commands import devices as command
from targetmem.commands import main
from targetmem.errors import NotSupported
from targetmem.plugins.simulated import SimulatedPlugin
from targetmem.tags import number_of, tag_name
from tests.unit.registries import registry_of, registry_with

if TYPE_CHECKING:
    from pathlib import Path


def python(code: str, *arguments: str) -> str:
    """Run code in a fresh interpreter; gives what it printed."""
    done = subprocess.run(
        [sys.executable, *arguments, "-c", code], check=True, capture_output=True, text=True
    )
    return done.stdout.strip()


def test_importing_loads_nothing_else() -> None:
    """`import targetmem` loads no other module than itself."""
    code = (
        "import sys; before = set(sys.modules); import targetmem; print(*sorted(set(sys.modules) - before))"
    )
    assert {"targetmem"} == set(python(code).split()) - {"__future__"}


def test_a_device_needs_no_numpy() -> None:
    """Memory of the host is had without NumPy, rich, or a look at installed packages."""
    code = "import targetmem, sys; targetmem.device('host:0').allocate(8); print(*sys.modules)"
    assert {"numpy", "rich", "importlib.metadata", "tomllib"}.isdisjoint(python(code).split())


def test_every_name_is_there() -> None:
    """Each public name can be had, is listed, and a wrong one is an AttributeError."""
    code = "import targetmem as t; print(all(hasattr(t, n) for n in t.__all__), sorted(t.__all__) == dir(t))"
    assert "True True" == python(code)
    with pytest.raises(AttributeError, match="no attribute 'allocator'"):
        _ = targetmem.allocator


def test_functions_survive_every_import() -> None:
    """No module of the package takes the place of a function with its name."""
    code = (
        "import pkgutil, importlib, targetmem\n"
        "for m in pkgutil.walk_packages(targetmem.__path__, 'targetmem.'):\n"
        "    if not m.name.endswith(('__main__', 'sitecustomize')): importlib.import_module(m.name)\n"
        "print(all(callable(getattr(targetmem, n)) for n in ('device', 'devices', 'install', 'tagged')))"
    )
    assert "True" == python(code)


def test_the_same_devices() -> None:
    """A device is one object, whichever way it is had."""
    assert targetmem.device("host:0") is targetmem.devices()[0]
    assert "<Device host:0>" == repr(targetmem.device("host:0"))


# --- tags ---


def test_tags_nest_and_come_back() -> None:
    """An inner tag replaces the outer one until it ends, also when it ends with an error."""
    manager = targetmem.device("host:0").memory
    kept = []

    def tag_of_next() -> str:
        kept.append(manager.allocate(10))
        block = manager.find(kept[-1].pointer)
        assert block is not None
        return tag_name(block.tag)

    outer = targetmem.tagged("outer")
    with outer:
        with suppress(KeyError), targetmem.tagged("inner"), outer:
            assert "outer" == tag_of_next()
            raise KeyError
        assert "outer" == tag_of_next()
        with targetmem.tagged("inner"):
            assert "inner" == tag_of_next()
    assert "" == tag_of_next()
    assert number_of("outer") == number_of("outer") != number_of("inner")
    assert "" == tag_name(10**9)


def test_a_tag_is_its_threads() -> None:
    """Another thread's memory does not carry this thread's tag."""
    manager, kept = targetmem.device("host:0").memory, []
    with targetmem.tagged("here"):
        thread = threading.Thread(target=lambda: kept.append(manager.allocate(10)))
        thread.start()
        thread.join()
    block = manager.find(kept[0].pointer)
    assert block is not None
    assert 0 == block.tag


# --- the contract's defaults ---


class Smallest(Plugin):
    """A plugin with nothing but what is required."""

    def device_count(self) -> int:
        """Give 1."""
        return 1

    def allocate(self, device: int, size: int, kind: str, alignment: int) -> int:
        """Give an address that is made up."""
        return 1 << 40

    def release(self, device: int, address: int, size: int, kind: str) -> None:
        """Do nothing."""


def test_three_methods_are_enough() -> None:
    """A plugin of three methods serves memory of its one kind."""
    registry = registry_of(small=lambda: Smallest)
    device = registry.device("small:0")
    assert 1 << 40 == device.allocate(100).pointer
    assert device.memory_info() is None
    device.synchronize()
    with pytest.raises(NotSupported, match="host"):
        device.allocate(10, kind="host")
    registry.close()


@pytest.mark.parametrize(
    ("method", "arguments"),
    [
        ("submit", (0, 1, 2, 3)),
        ("retrieve", (0, 1, 2, 3)),
        ("exchange", (0, 1, 0, 2, 3)),
        ("fill", (0, 1, b"x", 3)),
        ("create_queue", (0,)),
        ("release_queue", (0, None)),
        ("reserve", (0, 1)),
        ("commit", (0, 1, 2)),
        ("decommit", (0, 1, 2)),
        ("unreserve", (0, 1, 2)),
        ("load", (0, b"")),
        ("unload", (0, None)),
        ("run", (0, None, "main", [])),
    ],
)
def test_the_rest_is_refused_clearly(method: str, arguments: tuple[Any, ...]) -> None:
    """What a plugin leaves out says that it is not supported, by which plugin."""
    with pytest.raises(NotSupported, match=rf"{method}: not supported by this plugin \(Smallest\)"):
        getattr(Smallest(), method)(*arguments)


# --- targetmem devices ---


def test_the_table() -> None:
    """Each device is a line with its memory and its manager; what is missing is told with what to install."""

    def missing() -> object:
        raise ModuleNotFoundError("No module named 'pyopencl'", name="pyopencl")

    registry = registry_of(
        sim=lambda: lambda: SimulatedPlugin(capacity="64M", threshold="1M"),
        off=lambda: lambda: SimulatedPlugin(threshold=0),
        bad=lambda: lambda: SimulatedPlugin(fail_init_device=True),
        opencl=missing,
    )
    lines = command.table(command.rows(registry)).splitlines()
    assert ["DEVICE", "TARGET", "MEMORY", "MANAGER", "THRESHOLD"] == lines[0].split()
    assert "sim:0 sim 64 MiB free of 64 MiB on, exact 1 MiB (plugin)" == " ".join(lines[1].split())
    assert "off:0 off 1 GiB free of 1 GiB off - (plugin)" == " ".join(lines[2].split())
    assert lines[3].startswith("bad:0")
    assert "not available: simulated: init_device failed" in lines[3]
    assert "not available: ModuleNotFoundError" in lines[4]
    assert "install what provides the module pyopencl" in lines[4]
    registry.close()


def test_the_table_tells_what_is_mapped() -> None:
    """A device with mapped data says how many ranges and bytes that are, in text and as numbers."""
    registry = registry_with(SimulatedPlugin(capacity="64M"))
    data = [bytearray(1024), bytearray(512)]
    with registry.device("x:0").map(to=data):
        rows = command.rows(registry)
        assert "<Device x:0, 2 ranges mapped>" == repr(registry.device("x:0"))
    assert [(2, 1536)] == [(row.mapped_ranges, row.mapped_bytes) for row in rows]
    assert ", 2 ranges mapped (1.5 KiB)" in command.table(rows)
    assert "mapped" not in command.table(command.rows(registry))
    registry.close()


def test_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    """`targetmem devices` prints the table, and with --json everything as JSON."""
    assert 0 == main(["devices"])
    assert capsys.readouterr().out.splitlines()[1].startswith("host:0")
    assert 0 == main(["devices", "--json"])
    host = json.loads(capsys.readouterr().out)[0]
    assert ("host:0", "host", 8192, "default", True) == tuple(
        host[key] for key in ("name", "target", "threshold", "threshold_origin", "manager")
    )
    assert host["total"] > host["free"] > 0


def test_bad_settings_end_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A malformed settings file is one line on stderr and a status that is not 0."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "targetmem.toml").write_text('threshold = "8X"\n')
    assert 2 == main(["devices"])
    captured = capsys.readouterr()
    assert captured.err.startswith("targetmem devices: targetmem.toml:1: threshold: expected")
    assert (1, "") == (captured.err.count("\n"), captured.out)


def test_asyncio_is_not_in_the_way() -> None:
    """Devices can be used inside a running event loop."""

    async def use() -> int:
        return targetmem.device("host:0").allocate(64).size

    assert 64 == asyncio.run(use())
