"""Build the source archive, the wheel from it, install that in a fresh environment and try it there.

What an editable install can't show: a file that the archive or the wheel lacks.
"""

from __future__ import annotations

import subprocess
import sys
import tarfile
import tempfile
import venv
from pathlib import Path

ROOT = Path(__file__).parents[1]
TRIAL = """
import pathlib, sys, targetmem
assert pathlib.Path(targetmem.__file__).is_relative_to(sys.prefix), targetmem.__file__
folder = pathlib.Path(targetmem.__file__).parent
header = pathlib.Path(targetmem.get_include()) / "targetmem.h"
for path in (folder / "py.typed", folder / "_core.pyi", header):
    assert path.is_file(), f"expected {path} in the wheel"
with targetmem.device("host:0").allocate(100) as block:
    assert block.size == 100
"""


def run(*command: str | Path, cwd: Path = ROOT) -> None:
    """Run a program and stop here if it fails."""
    subprocess.run([str(word) for word in command], cwd=cwd, check=True)


def source_archive(folder: Path) -> Path:
    """Build the source archive and unpack it; give the folder with what is in it."""
    run(sys.executable, "setup.py", "--quiet", "sdist", "--dist-dir", folder)
    (archive,) = folder.glob("*.tar.gz")
    with tarfile.open(archive) as tar:
        tar.extractall(folder, filter="data")
    return archive.with_suffix("").with_suffix("")


def environment(folder: Path, wheel: Path) -> Path:
    """Make a virtual environment with only the wheel and what it depends on; give its programs' folder."""
    venv.create(folder, with_pip=True)
    run(folder / "bin" / "python", "-m", "pip", "install", "--quiet", wheel)
    return folder / "bin"


def main() -> None:
    """Build, install, try."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        source = source_archive(folder)
        run(
            *(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"),
            *("--wheel-dir", folder, source),
        )
        (wheel,) = folder.glob("*.whl")
        programs = environment(folder / "venv", wheel)
        run(programs / "python", "-c", TRIAL, cwd=folder)
        run(programs / "targetmem", "devices", cwd=folder)
        print(f"{wheel.name}: built from the source archive, installed, tried")


if __name__ == "__main__":
    main()
