"""The examples run, compute the same with the pool as without, and refuse what they can't use."""

from __future__ import annotations

import importlib.util
import struct
import sys
import zlib
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.integration.running import plain, start, targetmem

if TYPE_CHECKING:
    from types import ModuleType

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
PROGRAMS = {
    "heat": [str(EXAMPLES / "heat.py"), "--size", "900", "--steps", "4"],
    "denoise": [str(EXAMPLES / "denoise.py"), "--width", "1000", "--steps", "2"],
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_same_result(name: str) -> None:
    """Plain Python and `targetmem run` print the same checksum; the pool served arrays meanwhile."""
    pytest.importorskip("scipy" if name == "denoise" else "numpy")
    expected, found = plain(*PROGRAMS[name]), targetmem("run", *PROGRAMS[name])
    assert (0, "") == (expected.status, expected.stderr)
    assert 0 == found.status, found.stderr
    assert "checksum" in expected.stdout
    assert expected.stdout.split()[-2:] == found.stdout.split()[-2:]
    assert "hits" in found.stderr


def test_the_picture(tmp_path: Path) -> None:
    """The heat equation's picture is a PNG of the plate, with the hot disks in it."""
    path = tmp_path / "plate.png"
    outcome = plain(*PROGRAMS["heat"], "--picture", str(path))
    assert (0, "") == (outcome.status, outcome.stderr)
    data = path.read_bytes()
    assert data.startswith(b"\x89PNG\r\n\x1a\n")
    assert (900, 900) == struct.unpack(">II", data[16:24])
    at = data.index(b"IDAT")
    pixels = zlib.decompress(data[at + 4 :])
    assert 900 * (1 + 3 * 900) == len(pixels)
    assert {0, 255} <= set(pixels)


@pytest.mark.parametrize("arguments", [["--size", "0"], ["--steps", "x"], ["--speed", "3"]])
def test_arguments_that_cannot_be_used(arguments: list[str]) -> None:
    """Each ends with status 2 and names the option."""
    outcome = plain(str(EXAMPLES / "heat.py"), *arguments)
    assert 2 == outcome.status
    assert arguments[0] in outcome.stderr.splitlines()[-1]


def test_the_demo() -> None:
    """The demo prints both times, their ratio and the page faults."""
    outcome = start(
        [sys.executable, str(EXAMPLES / "demo.py"), "--rounds", "1", "--size", "900", "--steps", "4"]
    )
    assert (0, "") == (outcome.status, outcome.stderr)
    lines = {line.split("  ")[0]: line for line in outcome.stdout.splitlines()}
    assert {"plain Python", "targetmem run", "ratio"} <= lines.keys()
    assert "page faults" in outcome.stdout
    assert "came from the pool" in outcome.stdout


def module_of(path: Path) -> ModuleType:
    """Give a script as a module."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


REPORT = """<testsuites><testsuite>
<testcase classname="a.T" name="one"/>
<testcase classname="a.T" name="two"><{fault} type=""/></testcase>
<testcase classname="a" name="three"><skipped type="pytest.xfail"/></testcase>
</testsuite></testsuites>"""


def test_outcomes_that_differ_are_seen(tmp_path: Path) -> None:
    """A test that failed one way only, or ran one way only, is named with its outcome each way."""
    suite = module_of(ROOT / "scripts" / "numpy_suite.py")
    found = {}
    for way, fault in (("plain", "skipped"), ("pooled", "failure")):
        path = tmp_path / f"{way}.xml"
        path.write_text(REPORT.format(fault=fault))
        found[way] = suite.outcomes(path)
    assert {"a.T::one": ["passed"], "a.T::two": ["skipped"], "a::three": ["pytest.xfail"]} == found["plain"]
    assert ["a.T::two: skipped (plain), failure (pooled)"] == list(suite.differences(found))
    del found["pooled"]["a.T::one"]
    assert "a.T::one: passed (plain), not run (pooled)" in list(suite.differences(found))
    assert [] == list(suite.differences({"plain": found["plain"], "same": dict(found["plain"])}))
