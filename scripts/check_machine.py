"""Say in one line each what this machine lacks for a build, before pip says it in two hundred."""

from __future__ import annotations

import importlib.util
import os
import shlex
import shutil
import sys
import sysconfig
from pathlib import Path


def compiler() -> str:
    """Give the C compiler's program, as setuptools will call it."""
    return shlex.split(os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc")[0]


def missing() -> list[str]:
    """Give one line for each thing that is missing, with what to do."""
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    header = Path(sysconfig.get_path("include"), "Python.h")
    lines = []
    if sys.version_info < (3, 11):  # noqa: UP036 - this script runs before anything has checked it
        lines.append(
            f"expected Python >= 3.11, got {version} ({sys.executable}): make PYTHON=/path/to/python3.11"
        )
    if importlib.util.find_spec("ensurepip") is None:
        lines.append(
            f"expected the module ensurepip in {sys.executable}: apt-get install python{version}-venv"
        )
    if not header.is_file():
        lines.append(f"expected Python's C headers at {header}: apt-get install python{version}-dev")
    if shutil.which(compiler()) is None:
        lines.append(f"expected a C compiler, found no '{compiler()}': apt-get install gcc, or set CC")
    return lines


if __name__ == "__main__":
    problems = missing()
    for line in problems:
        print(f"targetmem: {line}", file=sys.stderr)
    sys.exit(bool(problems))
