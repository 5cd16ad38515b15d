"""What the package offers is what it declares: exported C symbols, `__all__`, the header."""

from __future__ import annotations

import ast
import importlib
import re
import shutil
import subprocess
import types
from pathlib import Path

import pytest

import targetmem
import targetmem._core

ROOT = Path(__file__).parents[2]
HEADER = ROOT / "csrc" / "include" / "targetmem.h"
PACKAGE = ROOT / "src" / "targetmem"


def exported(library: Path) -> set[str]:
    """Give the dynamic symbols that a shared library defines."""
    nm = shutil.which("nm")
    assert nm, "expected the program nm (package binutils): it comes with the compiler"
    out = subprocess.run(
        [nm, "-D", "--defined-only", "--format=posix", library], check=True, text=True, capture_output=True
    )
    # What a sanitizer or gcov adds in a build for finding bugs is none of ours.
    names = {line.split()[0] for line in out.stdout.splitlines()}
    return {name for name in names if not re.match(r"_*(asan|ubsan|tsan|gcov|sancov|llvm|odr)_", name)}


def declared(header: str) -> set[str]:
    """Give the functions that a header declares with TM_API."""
    code = re.sub(r"/\*.*?\*/", "", header, flags=re.DOTALL)
    return set(re.findall(r"^TM_API\b[^;(]*?\b(tm_\w+)\s*\(", code, re.MULTILINE))


def test_the_exported_symbols_are_the_headers() -> None:
    """The extension exports what targetmem.h declares, the module's init function, and nothing else."""
    names = declared(HEADER.read_text())
    assert "tm_allocate" in names
    assert names | {"PyInit__core"} == exported(Path(targetmem._core.__file__))


@pytest.mark.native
def test_a_symbol_too_many_is_seen(tmp_path: Path) -> None:
    """A library that exports one function more than it declares is told from one that doesn't."""
    source = tmp_path / "a.c"
    source.write_text("int tm_a(void) { return 1; }\nint tm_leaked(void) { return 2; }\nstatic int b = 3;\n")
    library = tmp_path / "a.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source], check=True)
    assert {"tm_a", "tm_leaked"} == exported(library)
    assert {"tm_a"} == declared("/* TM_API int tm_no(void); */\nTM_API int *tm_a(int (*tm_b)(void));\n")


def test_the_header_is_installed() -> None:
    """get_include() names a folder with the header that the extension was built from."""
    assert HEADER.read_bytes() == (Path(targetmem.get_include()) / "targetmem.h").read_bytes()


def test_all_is_what_is_public() -> None:
    """Every name of `targetmem.__all__` is there, and every public name that is no module is in it."""
    public = {
        name
        for name, value in vars(targetmem).items()
        if not name.startswith("_") and not isinstance(value, types.ModuleType) and name != "annotations"
    }
    assert sorted(set(targetmem.__all__)) == sorted(targetmem.__all__)
    assert [] == [name for name in targetmem.__all__ if not hasattr(targetmem, name)]
    assert set() == public - set(targetmem.__all__)


def modules() -> list[str]:
    """Give the names of the package's modules that define something."""
    paths = [path for path in PACKAGE.rglob("*.py") if path.name != "__main__.py"]
    with_code = [path for path in paths if defines_something(path)]
    parts = [path.relative_to(PACKAGE.parent).with_suffix("").parts for path in with_code]
    return sorted(".".join(part for part in names if part != "__init__") for names in parts)


def defines_something(path: Path) -> bool:
    """Tell whether a module has more than a docstring and imports for the type checker's sake."""
    body = ast.parse(path.read_text()).body
    return any(isinstance(node, ast.FunctionDef | ast.ClassDef | ast.Assign | ast.AnnAssign) for node in body)


@pytest.mark.parametrize("name", modules())
def test_every_module_says_what_it_offers(name: str) -> None:
    """Each module has an `__all__`, and every name in it exists."""
    module = importlib.import_module(name)
    assert [] == [public for public in module.__all__ if not hasattr(module, public)]
