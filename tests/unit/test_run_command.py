"""`targetmem run`: how the command line is taken apart, and how the interpreter is started again."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

import pytest

from targetmem.commands import program
from targetmem.commands.common import CommandError
from targetmem.commands.run import split

if TYPE_CHECKING:
    from pathlib import Path

SPLITS: list[tuple[str, str]] = [
    ("", ""),
    ("", "x.py"),
    ("", "x.py --quiet --cap 3"),
    ("", "x.py -- -m"),
    ("", "-"),
    ("", "- --quiet"),
    ("", "-m module"),
    ("", "-mmodule -x"),
    ("", "-m module --help -m other"),
    ("", "-- -x.py"),
    ("--quiet", "x.py"),
    ("--cap 3 --quiet", "x.py 4"),
    ("--cap=3", "x.py"),
    ("--threshold -1", "x.py"),
    ("--policy -m", "x.py"),
    ("--json x.json --policy exact", "-m module"),
    ("--unknown", "x.py"),
    ("--cap", ""),
    ("--cap 3", ""),
    ("-h", "x.py"),
]

# how it was started, what its sys.argv[0] is, which flags it had
STARTS: list[tuple[str, str, str]] = [
    ("python -m targetmem", "/x/__main__.py", ""),
    ("python -mtargetmem", "/x/__main__.py", ""),
    ("python -Bm targetmem", "/x/__main__.py", "-B"),
    ("python -Bmtargetmem", "/x/__main__.py", "-B"),
    ("python -X dev -W error -m targetmem", "/x/__main__.py", "-X dev -W error"),
    ("python -uO -m targetmem.__main__", "/x/__main__.py", "-uO"),
    ("python /bin/targetmem", "/bin/targetmem", ""),
    ("python -I /bin/targetmem", "/bin/targetmem", "-I"),
    ("python -X m /bin/targetmem", "/bin/targetmem", "-X m"),
    ("python -c code", "-c", ""),
    ("python -Bc code", "-c", "-B"),
    ("python", "", ""),
]


@pytest.mark.parametrize(("own", "rest"), SPLITS)
def test_split(own: str, rest: str) -> None:
    """The program starts at the first word that is no option of ours; all after it is the program's."""
    assert (own.split(), rest.split()) == split([*own.split(), *rest.split()])


@pytest.mark.parametrize(("start", "this", "flags"), STARTS)
def test_flags_of_the_interpreter(start: str, this: str, flags: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The flags before the module, script or code of targetmem are those of the program's interpreter."""
    arguments = ["run", "-m", "x", "targetmem"]
    monkeypatch.setattr(sys, "orig_argv", [*start.split(), *arguments])
    monkeypatch.setattr(sys, "argv", [this, *arguments])
    assert [sys.executable, *flags.split()] == program.interpreter()


def test_an_interpreter_without_a_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """An embedded interpreter cannot be started again."""
    monkeypatch.setattr(sys, "executable", "")
    with pytest.raises(CommandError, match="executable"):
        program.interpreter()


@pytest.mark.parametrize(
    "given", [["-"], ["-m", "json.tool"], ["-mjson.tool", "x"], ["-m", "os"], [__file__]]
)
def test_programs_that_are_there(given: list[str]) -> None:
    """A program that Python would find is handed on as it is."""
    assert given == program.check_program(given)


def test_dashes_before_a_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`--` is handed on only where Python needs it, too."""
    monkeypatch.chdir(tmp_path)
    for name in ("x.py", "-x.py", "-m"):
        (tmp_path / name).touch()
    assert ["x.py", "--"] == program.check_program(["--", "x.py", "--"])
    assert ["--", "-x.py"] == program.check_program(["--", "-x.py"])
    assert ["--", "-m", "y"] == program.check_program(["--", "-m", "y"])


def test_looking_for_a_module_imports_nothing() -> None:
    """No module is loaded by the search, and the path is as before."""
    before, path = set(sys.modules), list(sys.path)
    program.check_program(["-m", "xml.sax.handler"])
    with pytest.raises(CommandError, match=r"'lib2to3\.nothing'|'lib2to3'"):
        program.check_program(["-m", "lib2to3.nothing"])
    assert before == set(sys.modules)
    assert path == sys.path


def test_a_module_of_the_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`-m` finds modules of the working directory first, namespaces within namespaces too."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a1" / "b2").mkdir(parents=True)
    (tmp_path / "a1" / "b2" / "c3.py").touch()
    assert program.check_program(["-m", "a1.b2.c3"])
    with pytest.raises(CommandError, match=r"'a1\.b4'"):
        program.check_program(["-m", "a1.b4.c3"])


def test_a_folder_with_compiled_code_only(tmp_path: Path) -> None:
    """A `__main__.pyc` makes a program of a folder as well."""
    (tmp_path / "__main__.pyc").touch()
    assert [os.fspath(tmp_path)] == program.check_program([os.fspath(tmp_path)])
