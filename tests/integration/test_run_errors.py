"""`targetmem run`: what cannot be done is one line on stderr that says what to do, and exit status 2."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

import pytest

from tests.integration.running import targetmem

if TYPE_CHECKING:
    from pathlib import Path

# arguments, and what the line must say: what is wrong, then what to do
COMMANDS: dict[str, tuple[list[str], list[str]]] = {
    "no command": ([], ["COMMAND", "--help"]),
    "unknown command": (["ran"], ["ran", "run", "devices"]),
    "nothing to run": (["run"], ["expected a SCRIPT or -m MODULE", "--help"]),
    "options only": (["run", "--quiet"], ["expected a SCRIPT or -m MODULE"]),
    "dashes only": (["run", "--"], ["expected a SCRIPT or -m MODULE"]),
    "missing script": (["run", "missing.py"], ["'missing.py'", "No such file", "give the path"]),
    "empty name": (["run", ""], ["''", "give the path"]),
    "folder without a main": (["run", "folder"], ["'folder'", "__main__.py", "give a file"]),
    "below a file": (["run", "ok.py/x"], ["'ok.py/x'", "Not a directory"]),
    "missing module": (["run", "-m", "no_such_module"], ["'no_such_module'", "install it"]),
    "missing in a package": (["run", "-m", "json.no_such"], ["'json.no_such'", "check the name"]),
    "inside a module": (["run", "-m", "ok.inner"], ["'ok.inner'"]),
    "package without a main": (["run", "-m", "xml.dom"], ["'xml.dom'", "no __main__", "give a module"]),
    "missing, deep": (["run", "-m", "xml.dom.nothing.at.all"], ["'xml.dom.nothing'"]),
    "no module": (["run", "-m"], ["expected a MODULE"]),
    "empty module": (["run", "-m", ""], ["expected a MODULE"]),
    "unknown option": (["run", "--frobnicate", "ok.py"], ["run: unknown", "--frobnicate", "run --help"]),
    "abbreviated option": (["run", "--thresh", "8K", "ok.py"], ["--thresh", "--help"]),
    "option without a value": (["run", "--cap"], ["--cap", "--help"]),
    "threshold with a wrong suffix": (["run", "--threshold", "8X", "ok.py"], ["--threshold", "'8X'", "8K"]),
    "negative threshold": (["run", "--threshold", "-1", "ok.py"], ["--threshold", "'-1'", "64KiB"]),
    "hexadecimal threshold": (["run", "--threshold=0x2000", "ok.py"], ["--threshold", "'0x2000'"]),
    "empty threshold": (["run", "--threshold", "", "ok.py"], ["--threshold", "''"]),
    "fraction": (["run", "--threshold", "1.5K", "ok.py"], ["--threshold", "'1.5K'"]),
    "huge threshold": (["run", "--threshold", "9" * 30, "ok.py"], ["--threshold", "at most"]),
    "cap of zero": (["run", "--cap", "0", "ok.py"], ["--cap", "more than 0", "'0'"]),
    "cap of zero bytes": (["run", "--cap", "0K", "ok.py"], ["--cap", "more than 0", "'0K'"]),
    "negative cap": (["run", "--cap", "-5", "ok.py"], ["--cap", "'-5'"]),
    "cap that is no size": (["run", "--cap", "much", "ok.py"], ["--cap", "'much'"]),
    "unknown policy": (["run", "--policy", "magic", "ok.py"], ["--policy", "'magic'", "exact"]),
    "report into a missing folder": (["run", "--json", "no/x.json", "ok.py"], ["no/x.json", "give a file"]),
    "report into a folder": (["run", "--json", "folder", "ok.py"], ["folder", "give a file"]),
    "report without a name": (["run", "--json", "", "ok.py"], ["--json", "give a file"]),
}

SETTINGS = {
    "a wrong value in the environment": ({"TARGETMEM_THRESHOLD": "8X"}, "", ["TARGETMEM_THRESHOLD", "'8X'"]),
    "LLVM's variable": (
        {"LIBOMPTARGET_MEMORY_MANAGER_THRESHOLD": "0x2000"},
        "",
        ["LIBOMPTARGET_MEMORY_MANAGER_THRESHOLD", "'0x2000'"],
    ),
    "a missing file": ({"TARGETMEM_CONFIG": "missing.toml"}, "", ["missing.toml"]),
    "a malformed file": ({}, "threshold = \n", ["targetmem.toml"]),
    "a wrong value in the file": ({}, '\ncached_limit = "0"\n', ["targetmem.toml:2", "more than 0"]),
    "an unknown key in the file": ({}, "treshold = 8192\n", ["targetmem.toml", "treshold"]),
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Give a folder with a program that must not run."""
    (tmp_path / "ok.py").write_text("print('ran')\n")
    (tmp_path / "folder").mkdir()
    return tmp_path


def assert_one_line(stderr: str, words: list[str]) -> None:
    """Assert that there is one line, ours, with all of the words."""
    assert stderr.startswith("targetmem")
    assert 1 == stderr.count("\n")
    assert stderr.endswith("\n")
    assert [] == [word for word in words if word not in stderr]


@pytest.mark.parametrize("name", COMMANDS)
def test_a_wrong_command(name: str, folder: Path) -> None:
    """A command that cannot be carried out says so in one line, and no program is started."""
    arguments, words = COMMANDS[name]
    outcome = targetmem(*arguments, cwd=folder)
    assert (2, "") == outcome[:2]
    assert_one_line(outcome.stderr, words)


@pytest.mark.parametrize("name", SETTINGS)
def test_a_wrong_setting(name: str, folder: Path) -> None:
    """A setting that cannot be used is found before the program starts, wherever it was written."""
    variables, file, words = SETTINGS[name]
    if file:
        (folder / "targetmem.toml").write_text(file)
    outcome = targetmem("run", "ok.py", cwd=folder, env=variables)
    assert (2, "") == outcome[:2]
    assert_one_line(outcome.stderr, words)


@pytest.mark.parametrize("flag", ["-E", "-I"])
def test_flags_that_keep_the_pool_out(flag: str, folder: Path) -> None:
    """Under a flag that hides PYTHONPATH nothing could be served, and that is said."""
    outcome = targetmem("run", "ok.py", cwd=folder, flags=[flag])
    if "No module named targetmem" in outcome.stderr:
        pytest.skip("targetmem is found through PYTHONPATH only, which the flag hides")
    assert (2, "") == outcome[:2]
    assert_one_line(outcome.stderr, [flag, "leave it out"])


def test_a_script_that_cannot_be_read(folder: Path) -> None:
    """A script without permission to read is an error like a missing one."""
    (folder / "ok.py").chmod(0)
    if os.access(folder / "ok.py", os.R_OK):
        pytest.skip("root may read everything")
    assert_one_line(targetmem("run", "ok.py", cwd=folder).stderr, ["'ok.py'", "Permission denied"])


def test_a_package_is_not_imported_to_find_a_module(folder: Path) -> None:
    """To look for a module runs no code of its package: that is done once, by the program's interpreter."""
    (folder / "package").mkdir()
    (folder / "package" / "__init__.py").write_text("print('imported')\n")
    assert (2, "") == targetmem("run", "-m", "package.missing", cwd=folder)[:2]


def test_the_report_file_is_left_alone_when_nothing_runs(folder: Path) -> None:
    """A file that could be written is neither made nor emptied by a command that then fails."""
    (folder / "old.json").write_text("precious")
    assert 2 == targetmem("run", "--json", "old.json", "missing.py", cwd=folder).status
    assert 2 == targetmem("run", "--json", "new.json", "missing.py", cwd=folder).status
    assert "precious" == (folder / "old.json").read_text()
    assert not (folder / "new.json").exists()


@pytest.mark.parametrize("arguments", [["--help"], ["run", "--help"], ["run", "-h"], ["devices", "--help"]])
def test_help(arguments: list[str]) -> None:
    """Help goes to stdout and fits a terminal; that of `run` shows examples."""
    outcome = targetmem(*arguments, env={"COLUMNS": "120"})
    assert (0, "") == (outcome.status, outcome.stderr)
    assert max(map(len, outcome.stdout.splitlines())) <= 120
    assert "usage: targetmem" in outcome.stdout
    assert ("examples:" in outcome.stdout) == ("devices" not in arguments)


def test_version() -> None:
    """`--version` names targetmem and the Python that it runs under."""
    outcome = targetmem("--version")
    assert (0, "") == (outcome.status, outcome.stderr)
    assert outcome.stdout.startswith("targetmem ")
    assert sys.version.split()[0] in outcome.stdout
