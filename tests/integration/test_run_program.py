"""`targetmem run`: a program finds itself and its surroundings as under plain Python."""

from __future__ import annotations

import os
import py_compile
import sys
import zipapp
from pathlib import Path

import pytest

from tests.integration.running import assert_same, plain, served

# What a program can see of itself. The spec is compared by what is in it; addresses differ from run to run.
MIRROR = """\
import os, sys, warnings
import __main__
spec = __spec__
known = ("name", "origin", "parent", "cached", "has_location", "submodule_search_locations")
print("arguments", sys.argv)
print("original", sys.orig_argv[1:] if {compare_command} else "")
print("path", sys.path)
print("flags", sys.flags, sys.warnoptions, sys._xoptions, warnings.filters)
print("names", sorted(globals()), __name__, __file__, __package__, __doc__, __cached__ if {cached} else "")
print("spec", spec and [str(getattr(spec, name)) for name in known])
print("loader", type(__loader__).__name__, __builtins__ is sys.modules["builtins"])
print("main", vars(__main__) is globals(), sys.modules["__main__"] is __main__)
print("environment", {{name: value for name, value in os.environ.items() if name != "_"}})
print("here", os.getcwd(), sys.executable, sys.prefix)
print("recursion", sys.getrecursionlimit(), "trace", sys.gettrace(), sys.getprofile())
print("streams", sys.stdin.encoding, sys.stdout.errors, sys.stderr.errors, sys.stdout.line_buffering)
print("interactive", hasattr(sys, "ps1"))
"""
MIRROR = MIRROR.format(compare_command=True, cached=sys.version_info < (3, 14))


@pytest.fixture
def program(tmp_path: Path) -> Path:
    """Give a program that prints what it can see."""
    path = tmp_path / "mirror.py"
    path.write_text(MIRROR)
    return path


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["one", "two words", ""],
        ["--quiet", "--json", "x", "-m", "module", "--", "-h"],
        ["--help"],
        ["--version"],
        ["-c", "pass", "é", "\\"],
    ],
)
def test_arguments_are_handed_on(arguments: list[str], program: Path) -> None:
    """Everything after the script is the program's, even what looks like an option of targetmem."""
    assert repr([str(program), *arguments]) in assert_same(str(program), *arguments).stdout


@pytest.mark.parametrize(
    "flags",
    [
        ["-O"],
        ["-OO", "-B"],
        ["-u"],
        ["-W", "error::DeprecationWarning"],
        ["-X", "dev"],
        ["-X", "utf8=0"],
        ["-bb"],
        ["-P"],
        ["-s"],
        ["-q"],
        ["-d"],
        ["-X", "int_max_str_digits=700", "-Wignore"],
    ],
    ids=" ".join,
)
def test_flags_of_the_interpreter_hold_for_the_program(flags: list[str], program: Path) -> None:
    """A flag before `-m targetmem` is as good as one before the script."""
    assert_same(str(program), "x", flags=flags)


def test_a_relative_path(program: Path) -> None:
    """A script is found from the working directory, and stands in `sys.argv` as it was written."""
    assert "arguments ['mirror.py']" in assert_same("mirror.py", cwd=program.parent).stdout
    assert_same("../" + program.parent.name + "/mirror.py", cwd=program.parent)


def test_a_link(program: Path, tmp_path: Path) -> None:
    """The folder of the file that a link leads to comes first on the path."""
    (tmp_path / "elsewhere").mkdir()
    link = tmp_path / "elsewhere" / "link.py"
    link.symlink_to(program)
    assert_same(str(link))


def test_a_name_that_looks_like_an_option(program: Path) -> None:
    """After `--` comes a script, whatever its name."""
    program.with_name("-odd.py").write_text(MIRROR.replace("sys.orig_argv[1:]", "''"))
    assert "arguments ['-odd.py', 'x']" in assert_same("--", "-odd.py", "x", cwd=program.parent).stdout


def test_a_program_from_standard_input() -> None:
    """`-` reads the program from standard input, as Python does."""
    assert_same("-", "x", stdin=MIRROR.replace("__file__,", "").replace("__cached__", "''"))


def test_standard_input_is_the_programs(tmp_path: Path) -> None:
    """Nothing reads from the program's standard input but the program."""
    path = tmp_path / "reader.py"
    path.write_text("import sys\nprint(input())\nprint(sys.stdin.read())\n")
    assert "first\nsecond\nthird\n\n" == assert_same(str(path), stdin="first\nsecond\nthird\n").stdout


def test_the_interactive_flag(tmp_path: Path) -> None:
    """`-i` gives a prompt in the program's module after its end."""
    path = tmp_path / "program.py"
    path.write_text("x = 21\n")
    assert "42" in assert_same(str(path), flags=["-i"], stdin="print(2 * x)\nexit(4)\n").stdout


def test_a_folder_and_an_archive(tmp_path: Path) -> None:
    """A folder or a zip file with a `__main__.py` is a program."""
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "__main__.py").write_text(MIRROR + "import beside\n")
    (folder / "beside.py").write_text("print('beside', __file__)\n")
    assert "beside" in assert_same(str(folder), "x").stdout
    zipapp.create_archive(folder, tmp_path / "archive.pyz")
    assert "archive.pyz/beside.py" in assert_same(str(tmp_path / "archive.pyz"), "x").stdout


def test_bytecode(program: Path) -> None:
    """A compiled file is a program."""
    compiled = str(program.with_suffix(".pyc"))
    py_compile.compile(str(program), compiled)
    assert_same(compiled, "x")


@pytest.mark.parametrize(
    "module", ["mirror", "package", "package.inner", "package.inner.deep", "space.inside"]
)
def test_a_module(module: str, program: Path) -> None:
    """`-m` takes modules, packages with a `__main__`, and modules in packages and namespaces."""
    inner = program.parent / "package" / "inner"
    inner.mkdir(parents=True)
    (program.parent / "space").mkdir()
    for path in (
        "package/__main__.py",
        "package/inner/__main__.py",
        "package/inner/deep.py",
        "space/inside.py",
    ):
        (program.parent / path).write_text(MIRROR)
    (program.parent / "package/__init__.py").write_text("import sys\nprint('package', __name__, sys.argv)\n")
    (inner / "__init__.py").write_text("print('inner', __name__)\n")
    assert "names" in assert_same("-m", module, "-x", "--", "-m", cwd=program.parent).stdout


def test_a_package_with_a_path_of_its_own(program: Path) -> None:
    """A package may look for its modules elsewhere; that is found out by the program's interpreter alone."""
    (program.parent / "package").mkdir()
    (program.parent / "package/__init__.py").write_text(f"__path__ = [{str(program.parent)!r}]\n")
    assert "names" in assert_same("-m", "package.mirror", cwd=program.parent).stdout


def test_the_module_glued_to_its_option(program: Path) -> None:
    """`-mmirror` is `-m mirror`, as Python reads it."""
    assert "names" in assert_same("-mmirror", "x", cwd=program.parent).stdout


def test_python_path_is_kept(program: Path) -> None:
    """PYTHONPATH reaches the program as it was: set, empty or not set."""
    for value in (os.pathsep.join(["/nowhere", *sys.path]), os.pathsep.join(sys.path)):
        assert_same(str(program), env={"PYTHONPATH": value})


def test_a_sitecustomize_of_the_user_is_run(tmp_path: Path, program: Path) -> None:
    """The `sitecustomize` that targetmem's hides is run, and is the one that the program sees."""
    (tmp_path / "custom").mkdir()
    (tmp_path / "custom" / "sitecustomize.py").write_text("import sys\nsys.mark = __name__, __spec__\n")
    program.write_text(
        "import sys\nprint(sys.mark)\nimport sitecustomize\nprint(vars(sitecustomize).keys())\n"
        "print(sitecustomize.__file__)\n"
    )
    path = os.pathsep.join([str(tmp_path / "custom"), *sys.path])
    outcome = assert_same(str(program), env={"PYTHONPATH": path})
    assert str(tmp_path / "custom") in outcome.stdout.splitlines()[2]


def test_a_sitecustomize_that_fails(tmp_path: Path, program: Path) -> None:
    """A `sitecustomize` that raises is told as Python tells it, by both interpreters; the program runs."""
    (tmp_path / "custom").mkdir()
    (tmp_path / "custom" / "sitecustomize.py").write_text("import no_such_module\n")
    path = os.pathsep.join([str(tmp_path / "custom"), *sys.path])
    expected, found = (run(str(program), env={"PYTHONPATH": path}) for run in (plain, served))
    assert "no_such_module" in expected.stderr
    assert (0, expected.stdout, 2 * expected.stderr) == found


def test_no_module_is_loaded_that_plain_python_does_not_load(program: Path) -> None:
    """A program that does not use NumPy starts with the modules of plain Python."""
    program.write_text("import sys\nprint(sorted(sys.modules.keys() - {'atexit', '__future__'}))\n")
    assert "'site'" in assert_same(str(program)).stdout


def test_numpy_is_imported_only_by_the_program(program: Path) -> None:
    """What does not import NumPy does not pay for it."""
    program.write_text("import atexit, sys\natexit.register(lambda: print('numpy' in sys.modules))\n")
    assert "False\n" == assert_same(str(program)).stdout


NAMES = ("json", "resource", "queue", "random", "dataclasses", "tomllib", "statistics", "copy", "rich")


@pytest.mark.parametrize("order", ["numpy first", "numpy last"])
def test_modules_of_the_program_with_standard_names(order: str, tmp_path: Path) -> None:
    """A program's own `json.py` is the one that it imports, and the report comes nevertheless."""
    imports = [f"import {name}; print({name}.__name__, {name}.__file__)" for name in NAMES]
    where = 0 if order == "numpy first" else len(imports)
    imports.insert(where, "import numpy; print(numpy.__name__)")
    for name in NAMES:
        (tmp_path / f"{name}.py").write_text(f"print('own {name}')\n")
    path = tmp_path / "program.py"
    path.write_text("\n".join(imports))
    assert "own json" in assert_same(str(path)).stdout


def test_numpy_looks_untouched(program: Path) -> None:
    """The module NumPy has the spec and the loader that it always has, and can be found and loaded again."""
    program.write_text(
        "import importlib, importlib.util\n"
        "print(importlib.util.find_spec('numpy').origin)\n"
        "import numpy\n"
        "print(type(numpy.__loader__), vars(numpy.__loader__), numpy.__spec__)\n"
        "print(numpy.arange(10).sum(), importlib.util.find_spec('numpy') is numpy.__spec__)\n"
    )
    assert "45 True" in assert_same(str(program)).stdout.replace("\n", " ")


def test_a_numpy_that_cannot_be_loaded(program: Path) -> None:
    """An import of NumPy that fails shows the frames that it shows without the pool, each time."""
    broken = program.parent / "numpy"
    broken.mkdir()
    (broken / "__init__.py").write_text("import numpy.missing\n")
    program.write_text(
        "try:\n    import numpy\nexcept ImportError as error:\n    print(error)\nimport numpy\n"
    )
    assert "import numpy.missing" in assert_same(str(program)).stderr
    (broken / "__init__.py").write_text("1 / 0\n")
    assert "ZeroDivisionError" in assert_same(str(program)).stderr


def test_numpy_is_imported_by_a_thread(program: Path) -> None:
    """Threads that import NumPy at the same time all get it whole."""
    program.write_text(
        "import threading\n\ndef work():\n    import numpy\n    found.append(int(numpy.ones(1000).sum()))\n\n"
        "found = []\nthreads = [threading.Thread(target=work) for _ in range(8)]\n"
        "for t in threads:\n    t.start()\nfor t in threads:\n    t.join()\nprint(found)\n"
    )
    assert f"{[1000] * 8}\n" == assert_same(str(program)).stdout
