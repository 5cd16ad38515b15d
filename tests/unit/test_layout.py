"""The design, read from the source: layers, sizes and names. Each rule is also shown a planted fault."""

from __future__ import annotations

import ast
import re
import statistics
import tokenize
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
CORE = ROOT / "csrc"
PACKAGE = ROOT / "src" / "targetmem"
PYTHON_FILES = ("*.py", "*.pyi", "*.pyx", "*.pxd", "*.pxi")
C_FILES = ("*.c", "*.h")
MOST_LINES = {".py": 400, ".pyi": 400, ".pyx": 400, ".pxd": 400, ".pxi": 400, ".c": 600, ".h": 600}


def files(*patterns: str, below: tuple[Path, ...]) -> list[Path]:
    """Give the files of the folders that match one of the patterns, sorted."""
    return sorted(chain.from_iterable(folder.rglob(pattern) for folder in below for pattern in patterns))


def name_of(path: Path) -> str:
    """Give a path as a message shows it."""
    return str(path.relative_to(ROOT)) if path.is_relative_to(ROOT) else path.name


# --- sizes ----------------------------------------------------------------------------------------


def too_long(paths: list[Path]) -> list[str]:
    """Give a line for each file over its limit of lines."""
    counts = {path: len(path.read_text().splitlines()) for path in paths}
    return [
        f"{name_of(path)}: {count} lines, at most {MOST_LINES[path.suffix]}"
        for path, count in counts.items()
        if count > MOST_LINES[path.suffix]
    ]


def python_functions(text: str) -> Iterator[int]:
    """Give the length of each function in lines, without its docstring: law 8 asks for that one."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.end_lineno:
            has_docstring = ast.get_docstring(node, clean=False) is not None
            docstring = (node.body[0].end_lineno or 0) - node.body[0].lineno + 1 if has_docstring else 0
            yield node.end_lineno - node.lineno + 1 - docstring


def c_functions(text: str) -> Iterator[int]:
    """Give the length of each C function in lines, without the one that is only the opening brace."""
    lines = text.splitlines()
    for number, line in enumerate(lines):
        if re.match(r"(?!typedef|struct|enum|union|#)\w.*\)\s*\{.*\}$", line):
            yield 1
        elif line == "{":
            first = number
            while (
                first > 0
                and re.search(r"[^;}/\\]$", lines[first - 1])
                and not lines[first - 1].startswith("#")
            ):
                first -= 1
            yield lines.index("}", number) - first


def sizes_wrong(lengths: list[int]) -> list[str]:
    """Give a line for each of law 5's two bounds that the lengths break: median 8, nine in ten 30."""
    middle = statistics.median(lengths)
    ninety = statistics.quantiles(lengths, n=10)[-1]
    return [
        f"{what} of {len(lengths)} functions is {got:g} lines, at most {most}"
        for what, got, most in (("median", middle, 8), ("90 %", ninety, 30))
        if got > most
    ]


def test_files_are_short() -> None:
    """No file is longer than 400 lines (C: 600)."""
    folders = tuple(ROOT / name for name in ("src", "csrc", "tests", "benchmarks", "examples", "scripts"))
    found = files(*PYTHON_FILES, *C_FILES, below=folders)
    assert found
    assert [] == too_long(found)


def test_a_long_file_is_seen(tmp_path: Path) -> None:
    """The rule names a file that is one line over its limit, and no file that is at it."""
    (tmp_path / "long.c").write_text("\n" * 601)
    (tmp_path / "fits.py").write_text("\n" * 400)
    assert ["long.c: 601 lines, at most 600"] == too_long(files("*.c", "*.py", below=(tmp_path,)))


def test_python_functions_are_short() -> None:
    """Half of the package's functions have at most 8 lines, nine in ten at most 30."""
    texts = [path.read_text() for path in files("*.py", below=(PACKAGE,))]
    assert [] == sizes_wrong([length for text in texts for length in python_functions(text)])


def test_c_functions_are_short() -> None:
    """Half of the core's functions have at most 8 lines, nine in ten at most 30."""
    texts = [path.read_text() for path in files(*C_FILES, below=(CORE,))]
    assert [] == sizes_wrong([length for text in texts for length in c_functions(text)])


def test_function_lengths_are_counted() -> None:
    """Signature and body count, a docstring doesn't; C's one-line and many-line functions are both seen."""
    python = 'def f(\n    a,\n):\n    """Two\n    lines."""\n    return a\n\nasync def g(): pass\n'
    c = "static int one(void) { return 1; }\n\nint\nmany(int a)\n{\n    a++;\n}\nstruct s {\n    int a;\n};\n"
    assert [4, 1] == list(python_functions(python))
    assert [1, 4] == list(c_functions(c))


def test_long_functions_are_seen() -> None:
    """Each bound is broken by its own kind of excess."""
    assert ["median of 20 functions is 9 lines, at most 8"] == sizes_wrong([9] * 20)
    assert ["90 % of 20 functions is 31 lines, at most 30"] == sizes_wrong([1] * 17 + [31] * 3)


# --- layers ---------------------------------------------------------------------------------------


def layers_of(readme: str) -> dict[str, int]:
    """Give the layer of each file that the numbered list of csrc/README.md names, anywhere in an item."""
    items = re.findall(r"^(\d+)\. (.*(?:\n {2,}.*)*)", readme, re.MULTILINE)
    return {name: int(number) for number, text in items for name in re.findall(r"\w+\.[ch]\b", text)}


def layer_of(name: str, layers: dict[str, int]) -> int:
    """Give a file's layer, its header's for a .c file that is not named itself; 0 when there is none."""
    return layers.get(name) or layers.get(f"{name[:-2]}.h") or 0


def includes_wrong(folder: Path, layers: dict[str, int]) -> list[str]:
    """Give a line for each file without a layer, and for each include that doesn't go down.

    A header includes lower layers only, a .c file its own layer's headers too; everybody the public header.
    """
    wrong = []
    for path in files(*C_FILES, below=(folder,)):
        layer = layer_of(path.name, layers | {"targetmem.h": 1})
        if not layer:
            wrong.append(f"{path.name} is not in the list of csrc/README.md")
        for included in re.findall(r'^\s*#\s*include\s*"(\w+\.h)"', path.read_text(), re.MULTILINE):
            below = layers.get(included, 0) <= layer - (path.suffix == ".h")
            if layer and not below:
                wrong.append(f"{path.name} includes {included}, which is not below it")
    return wrong


def test_the_core_is_layered() -> None:
    """Each file of the core includes only layers below its own, as csrc/README.md lists them."""
    layers = layers_of((CORE / "README.md").read_text())
    present = {path.name for path in files(*C_FILES, below=(CORE,))}
    assert [] == includes_wrong(CORE, layers)
    assert set() == layers.keys() - present


def test_an_include_upwards_is_seen(tmp_path: Path) -> None:
    """The rule sees an include upwards, a header's sideways and a file without a layer, and nothing else."""
    readme = "1. `base.h` - all\n2. `a.h`, `b.h` - both, with\n   more.c\n3. top.h - not c.h\n\nnew.c isn't\n"
    (tmp_path / "base.h").write_text('#include "a.h"\n#include "targetmem.h"\n')
    (tmp_path / "a.c").write_text('#include "a.h"\n#include "base.h"\n')
    (tmp_path / "b.h").write_text('#include "a.h"\n')
    (tmp_path / "more.c").write_text('#include "b.h"\n#include "top.h"\n')
    (tmp_path / "new.c").write_text('#include "a.h"\n')
    assert [
        "b.h includes a.h, which is not below it",
        "base.h includes a.h, which is not below it",
        "more.c includes top.h, which is not below it",
        "new.c is not in the list of csrc/README.md",
    ] == sorted(includes_wrong(tmp_path, layers_of(readme)))


def test_the_core_knows_no_python() -> None:
    """No file of the core includes Python.h or NumPy's headers: it must work without the GIL."""
    text = "\n".join(path.read_text() for path in files(*C_FILES, below=(CORE,)))
    assert [] == re.findall(r'#\s*include\s*[<"](?:Python|numpy/\w+)\.h', text)


# --- names ----------------------------------------------------------------------------------------


def unwanted_words(glossary: str) -> dict[str, str]:
    """Give each word of the glossary's last column with the word to use instead."""
    rows = re.findall(r"^\| ([^|]+) \|[^|]+\| ([^|]*)\|$", glossary, re.MULTILINE)
    return {bad: word.strip() for word, last in rows for bad in re.findall(r"`(\w+)`", last)}


def names_in(path: Path) -> set[str]:
    """Give the identifiers of a file, without those in comments and strings, and without Python's own."""
    if path.suffix in MOST_LINES and path.suffix not in (".c", ".h"):
        with path.open("rb") as file:
            names = {
                token.string for token in tokenize.tokenize(file.readline) if token.type == tokenize.NAME
            }
    else:
        code = re.sub(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"', " ", path.read_text(), flags=re.DOTALL)
        names = set(re.findall(r"[A-Za-z_]\w*", code))
    return {name for name in names if not name.startswith("__")}


def words_of(name: str) -> list[str]:
    """Give the words that an identifier is made of, in lower case."""
    return [word.lower() for word in re.findall(r"[A-Z]?[a-z]+|[A-Z]+", name)]


def names_wrong(paths: list[Path], unwanted: dict[str, str]) -> list[str]:
    """Give a line for each identifier with a word in it that the glossary has another word for."""
    return [
        f"{name_of(path)}: {name}: say {unwanted[word]}, not {word}"
        for path in paths
        for name in sorted(names_in(path))
        for word in words_of(name)
        if word in unwanted
    ]


def test_names_are_the_glossarys() -> None:
    """No identifier of the package or the core uses a word that the glossary has another word for."""
    unwanted = unwanted_words((ROOT / "docs" / "glossary.md").read_text())
    assert {"inuse": "live", "purge": "trim"}.items() <= unwanted.items()
    assert [] == names_wrong(files(*PYTHON_FILES, *C_FILES, below=(PACKAGE, CORE)), unwanted)


@pytest.mark.parametrize(
    ("name", "text"),
    [("a.py", "def evictBlocks(): pass  # purge\n"), ("a.c", "/* purge */ int tm_evict_all(void);\n")],
)
def test_a_name_of_another_word_is_seen(tmp_path: Path, name: str, text: str) -> None:
    """The rule sees a word inside an identifier, and not in a comment."""
    (tmp_path / name).write_text(text)
    wrong = names_wrong([tmp_path / name], {"evict": "reclaim", "purge": "trim"})
    assert 1 == len(wrong)
    assert wrong[0].endswith("say reclaim, not evict")
