"""The command line: one file a command, each with `add(subparsers)` and `execute(args) -> int`."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING

from targetmem.commands.common import CommandParser, ShowVersion
from targetmem.errors import TargetMemoryError

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["main"]

COMMANDS = ("run", "devices")
DESCRIPTION = "A caching memory manager for any target, and for the arrays of an unmodified NumPy program."
EXAMPLES = """\
examples:
  targetmem run simulate.py --steps 100   serve a program's arrays from the pool, then say what that did
  targetmem run -m pytest tests           the same for a module
  targetmem devices                       which devices there are, and what to install for more

`targetmem COMMAND --help` says more about a command.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and give its exit status: 2, with one line on stderr, when it cannot be done."""
    arguments = sys.argv[1:] if arguments is None else arguments
    asked = next(iter(arguments), "")
    args = _parser([asked] if asked in COMMANDS else COMMANDS).parse_args(arguments)
    try:
        return int(args.execute(args))
    except TargetMemoryError as error:
        print(f"targetmem {args.command}: {error}", file=sys.stderr)
        return 2


def _parser(names: Sequence[str]) -> CommandParser:
    """Give a parser of these commands. To load the other ones would take as long as to start the program."""
    parser = CommandParser(prog="targetmem", description=DESCRIPTION, epilog=EXAMPLES)
    parser.add_argument("--version", action=ShowVersion, help="print versions and exit")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True, title="commands")
    for name in names:
        import_module(f"targetmem.commands.{name}").add(commands)
    return parser
