"""Instructions a pair, counted by callgrind: every run gives the same number, so a test can set a ceiling."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

from benchmarks.figures import Figure, MissingError
from benchmarks.measure import BUILD, ROOT, Settings, environment, progress

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from benchmarks import peers

SIZES = (64, 4096)
FEW, MANY = 1_000, 11_000
COLLECTED = re.compile(r"Collected : (\d+)")
WORKER = [sys.executable, "-m", "benchmarks.buffer_worker"]


def executed(command: Sequence[str | Path], stdin: str) -> int:
    """Count the instructions that a program executes from start to end."""
    valgrind = ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null"]
    result = subprocess.run(
        [*valgrind, *command],
        input=stdin,
        capture_output=True,
        text=True,
        env=environment(),
        cwd=ROOT,
        check=False,
    )
    found = COLLECTED.search(result.stderr)
    if result.returncode or not found:
        raise RuntimeError(
            f"{' '.join(map(str, command))} under callgrind: exit status {result.returncode}\n{result.stderr}"
        )
    return int(found[1])


def per_pair(command: Sequence[str | Path], few: str, many: str, difference: int) -> float:
    """Give the instructions of one pair: what `difference` pairs more add to the program's total."""
    return (executed(command, many) - executed(command, few)) / difference


def from_c(name: str, size: int) -> float:
    """Count an allocate+free from C; the driver repeats a tenth as its warm-up."""
    few, many = f"hot {size} {FEW}\n", f"hot {size} {MANY}\n"
    return per_pair([BUILD / name], few, many, (MANY - FEW) * 11 // 10)


def from_python(name: str, size: int) -> float:
    """Count a buffer created and dropped, or a call that does nothing."""
    few, many = f"pair {size} {FEW}\n", f"pair {size} {MANY}\n"
    return per_pair([*WORKER, name], few, many, MANY - FEW)


def count(found: list[peers.Peer], names: list[str], settings: Settings) -> Iterator[Figure]:
    """Count the instructions of a pair from C and from Python."""
    if not shutil.which("valgrind"):
        raise MissingError("no valgrind in the path; to install: apt-get install valgrind")
    for size in SIZES[:1] if settings.smoke else SIZES:
        progress(f"instructions, {size} bytes")
        from_c_values = {peer.name: from_c(peer.name, size) for peer in found if peer.name != "llvm"}
        yield Figure(f"allocate+free from C, {size} B", "instructions", from_c_values)
        from_python_values = {name: from_python(name, size) for name in names if name != "pyopencl"}
        yield Figure(f"Buffer created and dropped, {size} B", "instructions", from_python_values)
