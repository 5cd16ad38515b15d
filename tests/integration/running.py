"""Run a program twice, by plain Python and by `targetmem run`, each in a fresh process."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

__all__ = ["Outcome", "assert_same", "plain", "served", "targetmem"]


class Outcome(NamedTuple):
    """How a process ended and what it said."""

    status: int
    stdout: str
    stderr: str


def start(
    command: Sequence[str], cwd: Path | None = None, stdin: str = "", env: Mapping[str, str] | None = None
) -> Outcome:
    """Run a command to its end. Addresses in what it says are made equal; `env` comes on top of ours."""
    done = subprocess.run(
        command,
        cwd=cwd,
        input=stdin,
        env=environment(env or {}),
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    out, err = (re.sub("0x[0-9a-f]{6,}", "0x", text) for text in (done.stdout, done.stderr))
    return Outcome(done.returncode, out, err)


def environment(more: Mapping[str, str]) -> dict[str, str]:
    """Give our environment without what would change how a program ends or what it prints."""
    ours = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    return {**ours, **more}


def plain(
    *program: str,
    flags: Sequence[str] = (),
    cwd: Path | None = None,
    stdin: str = "",
    env: Mapping[str, str] | None = None,
) -> Outcome:
    """Run a program by plain Python."""
    return start([sys.executable, *flags, *program], cwd, stdin, env)


def targetmem(
    *arguments: str,
    flags: Sequence[str] = (),
    cwd: Path | None = None,
    stdin: str = "",
    env: Mapping[str, str] | None = None,
) -> Outcome:
    """Run the command line of targetmem."""
    return start([sys.executable, *flags, "-m", "targetmem", *arguments], cwd, stdin, env)


def served(
    *program: str,
    flags: Sequence[str] = (),
    cwd: Path | None = None,
    stdin: str = "",
    env: Mapping[str, str] | None = None,
) -> Outcome:
    """Run a program by `targetmem run`, without the report."""
    return targetmem("run", "--quiet", *program, flags=flags, cwd=cwd, stdin=stdin, env=env)


def assert_same(
    *program: str,
    flags: Sequence[str] = (),
    cwd: Path | None = None,
    stdin: str = "",
    env: Mapping[str, str] | None = None,
) -> Outcome:
    """Assert that a program prints the same, and ends the same, whoever runs it; give its outcome."""
    expected = plain(*program, flags=flags, cwd=cwd, stdin=stdin, env=env)
    found = served(*program, flags=flags, cwd=cwd, stdin=stdin, env=env)
    assert expected == found, f"expected {expected}\ngot      {found}"
    return expected
