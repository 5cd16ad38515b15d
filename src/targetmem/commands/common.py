"""What the commands share: a parser whose errors are one line, and the error that a command ends with."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING, Any, NoReturn

from targetmem.errors import TargetMemoryError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["CommandError", "CommandParser", "ShowVersion"]

if TYPE_CHECKING:
    Subparsers = argparse._SubParsersAction["CommandParser"]  # noqa: SLF001 - it has no public name


class CommandError(TargetMemoryError):
    """Raised when a command cannot do what was asked; the message is the one line that the user sees."""


class CommandParser(argparse.ArgumentParser):
    """A parser that says what is wrong in one line, and that leaves a program's arguments alone.

    `split`, where a command sets it, takes the arguments apart into the command's own and the program's;
    those end up as they are in `program`.
    """

    split: Callable[[Sequence[str]], tuple[list[str], list[str]]] | None = None

    def __init__(self, **options: Any) -> None:
        options.setdefault("formatter_class", argparse.RawDescriptionHelpFormatter)
        super().__init__(allow_abbrev=False, **options)

    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> tuple[argparse.Namespace, list[str]]:
        """Parse the command's own arguments; see the class."""
        own, program = list(sys.argv[1:] if args is None else args), list[str]()
        if self.split is not None:
            own, program = self.split(own)
        found, unknown = super().parse_known_args(own, namespace)
        if unknown:
            self.error(f"unknown option or argument {unknown[0]!r}")
        if self.split is not None:
            found.program = program
        return found, unknown

    def error(self, message: str) -> NoReturn:
        """Print one line that says where help is, and exit with status 2."""
        self.exit(2, f"{self.prog}: {message}; see `{self.prog} --help`\n")


class ShowVersion(argparse.Action):
    """Print the versions and exit; they are looked up only now, for that is slow."""

    def __init__(self, option_strings: Sequence[str], dest: str, help: str | None = None) -> None:  # noqa: A002
        super().__init__(option_strings, dest, nargs=0, help=help)

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> NoReturn:
        """Print the versions and exit with status 0."""
        from targetmem.report.versions import installed, python

        print(f"targetmem {installed('targetmem') or '(not installed)'}, {python()}")
        parser.exit()
