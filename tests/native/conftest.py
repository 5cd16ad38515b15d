"""The C core compiled for a sanitizer, once a run, for the programs that stress it without an interpreter."""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).parents[2]
PROGRAMS = Path(__file__).parent / "programs"
# clang's sanitizers tell more, but any compiler that has them will do.
COMPILER = next((found for name in ("clang-19", "clang", "gcc") if (found := shutil.which(name))), "cc")
FLAGS = [
    "-std=c11",
    "-D_DEFAULT_SOURCE",
    "-D_POSIX_C_SOURCE=200809L",
    "-O1",
    "-g",
    "-fno-omit-frame-pointer",
    "-pthread",
    *(f"-I{folder}" for folder in (ROOT / "csrc", ROOT / "csrc" / "include", PROGRAMS)),
]
HELPERS = ("support", "arena")
SANITIZERS = {
    "asan": ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"],
    "tsan": ["-fsanitize=thread"],
}
ENVIRONMENT = {
    "ASAN_OPTIONS": "detect_leaks=1:abort_on_error=0:detect_stack_use_after_return=1",
    # Around a fork every lock is taken, which is more than its own search for cycles of locks can follow.
    "TSAN_OPTIONS": "halt_on_error=1:detect_deadlocks=0:die_after_fork=0",
    "UBSAN_OPTIONS": "print_stacktrace=1",
}
SECONDS = 600


@dataclass(frozen=True)
class Core:
    """The core, as objects for one sanitizer; `program` links one of the programs with it."""

    flags: list[str]
    folder: Path
    objects: list[Path]

    def program(self, name: str) -> Path:
        """Compile and link a program; gives the executable."""
        target = self.folder / name
        source = PROGRAMS / f"{name}.c"
        subprocess.run([COMPILER, *FLAGS, *self.flags, source, *self.objects, "-o", target], check=True)
        return target


def make_core(flags: list[str], folder: Path) -> Core:
    """Compile the core and what the programs share, all at a time."""
    sources = [*(ROOT / "csrc").glob("*.c"), *(PROGRAMS / f"{name}.c" for name in HELPERS)]
    objects = [folder / f"{source.stem}.o" for source in sources]
    running = [
        subprocess.Popen([COMPILER, *FLAGS, *flags, "-c", source, "-o", target])
        for source, target in zip(sources, objects, strict=True)
    ]
    assert [0] * len(running) == [process.wait() for process in running]
    return Core(flags, folder, objects)


@pytest.fixture(scope="session")
def core(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Core]:
    """Give the function that makes the core for a sanitizer, each one once."""
    return cache(lambda sanitizer: make_core(SANITIZERS[sanitizer], tmp_path_factory.mktemp(sanitizer)))


def run_program(program: Path, seed: int, scale: int) -> subprocess.CompletedProcess[str]:
    """Run a program with a seed and a share of its usual steps, in per cent."""
    return subprocess.run(
        [program, str(seed), str(scale)],
        capture_output=True,
        text=True,
        check=False,
        timeout=SECONDS,
        env={**os.environ, **ENVIRONMENT},
    )
