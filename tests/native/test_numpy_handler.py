"""NumPy's handler without NumPy and without an interpreter, under the sanitizers."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROGRAMS = Path(__file__).parent / "programs"
SOURCES = [PROGRAMS / "numpy_handler.c", PROGRAMS / "support.c", *sorted((ROOT / "csrc").glob("*.c"))]
COMPILER = shutil.which("clang-19") or shutil.which("clang") or "cc"


@pytest.mark.slow
@pytest.mark.native
@pytest.mark.parametrize("sanitizer", ["address,undefined", "thread"])
def test_threads_and_pools_that_change(sanitizer: str, tmp_path: Path) -> None:
    """Threads make, resize, swap and free arrays while pools come and go: nothing is lost, changed, raced."""
    program = tmp_path / "numpy_handler"
    folders = [f"-I{folder}" for folder in (ROOT / "csrc", ROOT / "csrc" / "include", PROGRAMS)]
    flags = ["-std=c11", "-O1", "-g", f"-fsanitize={sanitizer}", "-fno-omit-frame-pointer", "-pthread"]
    subprocess.run([COMPILER, *flags, *folders, *SOURCES, "-o", program], check=True)
    for seed in range(1, 4):
        done = subprocess.run([program, str(seed)], capture_output=True, text=True, check=False)
        assert 0 == done.returncode, done.stderr
        assert "" == done.stderr
