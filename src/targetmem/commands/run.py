"""`targetmem run`: start an unmodified Python program with its NumPy arrays served from the pool.

The program gets an interpreter of its own, in this very process (`exec`): the one that runs the command, with
the same flags, started on the program as a user would start it. So arguments, path, exit status, tracebacks
and signals are plain Python's because plain Python makes them. `startup/sitecustomize.py` joins the pool.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
import warnings
from typing import TYPE_CHECKING

from targetmem.commands.common import CommandError
from targetmem.commands.program import check_program, interpreter

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from targetmem.commands.common import Subparsers

__all__ = ["add", "execute", "split"]

USAGE = "%(prog)s [options] SCRIPT [args]\n       %(prog)s [options] -m MODULE [args]"
DESCRIPTION = """\
Run an unmodified Python program with its NumPy arrays served from a pool that keeps freed memory for reuse,
and say at the end, on stderr, what that did. SCRIPT may be anything that `python SCRIPT` takes: a file, a
folder or zip file with a __main__.py, or - for standard input. Arguments, exit status, tracebacks and signals
are those of plain Python.
"""
EXAMPLES = """\
examples:
  targetmem run simulate.py --steps 100        what stands before SCRIPT is for targetmem, the rest its own
  targetmem run -m pytest tests                a module
  targetmem run --cap 2GiB simulate.py         keep at most 2 GiB of freed memory
  targetmem run --quiet --json run.json x.py   no report on stderr, everything in a file
  python -X dev -m targetmem run x.py          flags of the interpreter hold for the program too

Every thread of the program is served, and so are processes that it forks; interpreters that it starts anew
(subprocess, multiprocessing's "spawn") are not. Only the main process reports, unless os._exit or a signal
ends it. SIZE is a number of bytes, or one with a suffix of 1024: 8192, 64K, 64KiB, 1MiB, 2G. What no option
says is taken from the TARGETMEM_* variables, then from targetmem.toml.
"""
VALUED = ("--policy", "--threshold", "--cap", "--json")


def add(subparsers: Subparsers) -> None:
    """Add the command to the command line."""
    summary = "run a Python program with its NumPy arrays served from the pool"
    parser = subparsers.add_parser("run", help=summary, usage=USAGE, description=DESCRIPTION, epilog=EXAMPLES)
    option = parser.add_argument
    option("--policy", type=_setting("policy"), help="how free blocks are kept and found")
    option(
        "--threshold", metavar="SIZE", type=_setting("threshold"), help="the largest request that is pooled"
    )
    option("--cap", metavar="SIZE", type=_setting("cached_limit"), help="the most freed memory that is kept")
    option("--json", metavar="FILE", type=_writable, help="write the whole report to FILE")
    option("--quiet", action="store_true", help="print no report")
    parser.split = split
    parser.set_defaults(execute=execute)


def split(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """Take the arguments apart: the command's own options, and the program with its arguments."""
    rest = iter(range(len(arguments)))
    for index in rest:
        argument = arguments[index]
        if argument == "--":
            return list(arguments[:index]), list(arguments[index:])
        if argument == "-" or argument.startswith("-m") or not argument.startswith("-"):
            return list(arguments[:index]), list(arguments[index:])
        if argument in VALUED:
            next(rest, None)
    return list(arguments), []


def execute(args: argparse.Namespace) -> int:
    """Become the program; comes back only with the error (CommandError, ConfigError) that keeps it out."""
    command = [*interpreter(), *check_program(args.program)]
    environment = _environment(args)
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    try:
        os.execve(command[0], command, environment)  # noqa: S606 - the interpreter itself, no shell
    except OSError as error:
        raise CommandError(
            f"can't start {command[0]}: {error.strerror}; run it with another Python"
        ) from None


def _setting(key: str) -> Callable[[str], object]:
    """Give what argparse calls with the text of an option that is one of the settings."""

    def parse(text: str) -> object:
        from targetmem.config import SETTINGS

        try:
            return SETTINGS[key](text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return parse


def _writable(path: str) -> str:
    """Give the absolute path of a file that can be written, without touching it (it may be a pipe)."""
    path = os.path.abspath(path)
    place = path if os.path.exists(path) else os.path.dirname(path)
    folder = os.path.dirname(path)
    if os.path.isdir(path) or not os.path.isdir(folder) or not os.access(place, os.W_OK):
        raise argparse.ArgumentTypeError(f"can't write {path!r}: give a file in a folder that can be written")
    return path


def _environment(args: argparse.Namespace) -> Mapping[str, str]:
    """Give the program's environment, with marks that `startup/sitecustomize.py` takes out again."""
    _check_settings(args)
    former = os.environ.get("PYTHONPATH")
    package = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    folder = os.path.join(package, "startup")
    environment = {**os.environ, "TARGETMEM_RUN": _settings(args)}
    environment["PYTHONPATH"] = os.pathsep.join([folder, former] if former else [folder])
    if former is not None:
        environment["TARGETMEM_RUN_PYTHONPATH"] = former
    return environment


def _check_settings(args: argparse.Namespace) -> None:
    """Find what is wrong in variables and settings file before the program starts; warnings come there."""
    from targetmem import environment

    names = [name for name in os.environ if name.startswith((environment.PREFIX, environment.LLVM_THRESHOLD))]
    if not names and not any(map(os.path.exists, environment.usual_files())):
        return  # the options were checked as they were read; most runs need not load what follows
    from targetmem.config import resolve

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        resolve("host:0", policy=args.policy, threshold=args.threshold, cached_limit=args.cap)


def _settings(args: argparse.Namespace) -> str:
    """Give what the program's end of the run must know, as text."""
    import json
    import resource

    usage = resource.getrusage(resource.RUSAGE_SELF)
    return json.dumps(
        {
            "policy": args.policy,
            "threshold": args.threshold,
            "cached_limit": args.cap,
            "quiet": args.quiet,
            "json": args.json,
            "program": args.program,
            "started": time.monotonic(),
            "page_faults": [usage.ru_minflt, usage.ru_majflt],
        }
    )
