"""What `targetmem run` starts: the interpreter with the flags of this one, and a program that is there."""

from __future__ import annotations

import importlib.machinery
import os
import sys
from typing import TYPE_CHECKING

from targetmem.commands.common import CommandError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = ["check_program", "interpreter"]

HELP = "see `targetmem run --help`"


def interpreter() -> list[str]:
    """Give the command that starts this interpreter again, with the flags that it was given.

    Raises CommandError under flags that make Python ignore PYTHONPATH or skip site.py.
    """
    for flag, name in ((sys.flags.ignore_environment, "-E or -I"), (sys.flags.no_site, "-S")):
        if flag:
            raise CommandError(f"Python was started with {name}, which keeps the pool out: leave it out")
    if not sys.executable:
        raise CommandError("Python does not know its own executable: use a regular installation of Python")
    return [sys.executable, *_flags(sys.orig_argv[: len(sys.orig_argv) - len(sys.argv) + 1], sys.argv[0])]


def _flags(command: Sequence[str], this: str) -> list[str]:
    """Give the interpreter's flags out of the command that started this: `python -W error -m targetmem`."""
    flags = list(command[1:])
    if not flags:
        return []
    last = flags.pop()
    if last == this:  # the console script
        return flags
    # -m targetmem, -Bm targetmem, -mtargetmem, -c CODE
    cluster = flags.pop() if flags and not last.startswith("-") else last.removesuffix("targetmem")
    return [*flags, cluster[:-1]] if len(cluster) > 2 else flags


def check_program(program: Sequence[str]) -> list[str]:
    """Give the arguments that start the program. Raises CommandError where there is no such program."""
    program = list(program)
    explicit = program[:1] == ["--"]
    if explicit:
        del program[0]
    if not program:
        raise CommandError(f"expected a SCRIPT or -m MODULE, got none; {HELP}")
    if program[0].startswith("-m") and not explicit:
        _check_module(program[0][2:] or next(iter(program[1:2]), ""))
    elif program[0] != "-":
        _check_script(program[0])
    return ["--", *program] if program[0].startswith("-") and program[0] != "-" and explicit else program


def _check_script(path: str) -> None:
    if os.path.isdir(path):
        mains = [os.path.join(path, "__main__" + ending) for ending in _endings()]
        if not any(map(os.path.exists, mains)):
            raise CommandError(
                f"can't run the folder {path!r}: it has no __main__.py; give a file, or add one"
            )
        return
    try:
        os.close(os.open(path, os.O_RDONLY))
    except OSError as error:
        hint = "give the path of a Python program, or -m MODULE"
        raise CommandError(f"can't open {path!r}: {error.strerror}; {hint}") from None


def _endings() -> Iterator[str]:
    yield from importlib.machinery.SOURCE_SUFFIXES
    yield from importlib.machinery.BYTECODE_SUFFIXES


def _check_module(name: str) -> None:
    """Look for a module as the program's interpreter will, but import nothing: that is for the program."""
    if not name:
        raise CommandError(f"expected a MODULE after -m, got nothing; {HELP}")
    # -m puts the working directory first; here stands where this command was found.
    former, sys.path = sys.path, sys.path if sys.flags.safe_path else [os.getcwd(), *sys.path[1:]]
    try:
        missing = _missing(name)
    except Exception:  # noqa: BLE001 - finders may want the parent imported, as for a namespace in a namespace
        missing = None
    finally:
        sys.path = former
    if missing == f"{name}.__main__":
        raise CommandError(f"can't run the package {name!r}: it has no __main__; give a module that is in it")
    if missing is not None:
        hint = "install it, or check the name and the working directory"
        raise CommandError(f"no module named {missing!r}: {hint}")


def _missing(name: str) -> str | None:
    """Give the first part of a dotted name that no finder knows; None when all are there, or who knows."""
    path: list[str] | None = None
    parts = name.split(".")
    for count in range(1, len(parts) + 1):
        module = ".".join(parts[:count])
        spec = _find(module, path)
        if spec is None:
            return module
        if spec.submodule_search_locations is None:
            return ".".join(parts[: count + 1]) if count < len(parts) else None
        if _makes_its_own_path(spec):
            return None
        path = list(spec.submodule_search_locations)
    main = f"{name}.__main__"
    return None if _find(main, path) is not None else main


def _find(module: str, path: list[str] | None) -> importlib.machinery.ModuleSpec | None:
    finders = [finder for finder in sys.meta_path if hasattr(finder, "find_spec")]
    return next(filter(None, (finder.find_spec(module, path) for finder in finders)), None)


def _makes_its_own_path(spec: importlib.machinery.ModuleSpec) -> bool:
    """Say whether a package may look for its modules elsewhere; only its own code knows."""
    try:
        with open(spec.origin or "", "rb") as file:
            return b"__path__" in file.read()
    except OSError:
        return False
