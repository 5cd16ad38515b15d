"""Build the peers: native/driver.c once for each, with that peer's calls inlined."""

from __future__ import annotations

import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.figures import MissingError
from benchmarks.machine import version
from benchmarks.measure import BUILD, ROOT, Server

if TYPE_CHECKING:
    from collections.abc import Callable

NATIVE = ROOT / "benchmarks" / "native"
FLAGS = ["-std=gnu11", "-O3", "-g", "-Wall", "-Wextra", "-fno-builtin", "-pthread"]
# As setup.py builds the extension module.
LIBRARY_FLAGS = [
    "-std=c11",
    "-O3",
    "-g",
    "-DNDEBUG",
    "-fPIC",
    "-shared",
    "-fvisibility=hidden",
    "-ftls-model=initial-exec",
    "-fno-semantic-interposition",
    "-Wl,-Bsymbolic-functions",
    "-pthread",
]


@dataclass(frozen=True)
class Peer:
    """One contender: its name and how its executable is built."""

    name: str
    build: Callable[[str], None]
    install: str  # what to do when it cannot be built; empty for ours, which must
    command: tuple[str, ...] = ()  # instead of the driver's executable

    def prepare(self) -> Peer:
        """Build the driver for this peer. A peer that does not build is missing; ours is at fault."""
        try:
            self.build(self.name)
        except CompileError as error:
            if not self.install:
                raise
            raise MissingError(str(error).strip().splitlines()[0]) from error
        return self

    def start(self) -> Server:
        """Start what `prepare` built."""
        return Server(self.name, self.command or [BUILD / self.name])


class CompileError(Exception):
    """Carry a compiler's messages."""


def compile_c(command: list[str | Path]) -> None:
    """Run a compiler, in the folder of builds."""
    BUILD.mkdir(parents=True, exist_ok=True)
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode:
        raise CompileError(result.stderr)


def driver(name: str, header: str, more: list[str | Path], compiler: str = "cc") -> None:
    """Compile the driver with one peer's adapter."""
    if not shutil.which(compiler):
        raise MissingError(f"no {compiler} in the path")
    peer = f'-DPEER_HEADER="{header}"'
    compile_c([compiler, *FLAGS, peer, NATIVE / "driver.c", "-o", BUILD / name, *more])


def core_sources() -> list[Path]:
    """Give the C core's files, without the one that needs Python's headers."""
    return sorted(
        path for path in (ROOT / "csrc").glob("*.c") if "Python.h" not in path.read_text(encoding="utf-8")
    )


def build_targetmem(name: str, *switches: str) -> None:
    """Build the core as a shared library, as it ships and as the peers come, and the driver on it."""
    library = BUILD / f"lib{name}.so"
    include = f"-I{ROOT / 'csrc/include'}"
    compile_c(["cc", *LIBRARY_FLAGS, *switches, include, *core_sources(), "-o", library])
    build = f'-DPEER_BUILD="{version("targetmem")}"'
    link: list[str | Path] = [include, build, library, f"-Wl,-rpath,{BUILD}"]
    driver(name, "peer_targetmem.h", link)


def build_without_statistics(name: str) -> None:
    """Build the core with its statistics compiled out."""
    build_targetmem(name, "-DTM_STATISTICS=0")


def build_glibc(name: str) -> None:
    """Build for the C library's malloc."""
    driver(name, "peer_glibc.h", [])


def build_mimalloc(name: str) -> None:
    """Build for mimalloc."""
    driver(name, "peer_mimalloc.h", ["-lmimalloc"])


def build_umf(name: str) -> None:
    """Build for the framework as its wheel installs it: below sys.prefix, without a link-time name."""
    prefix = Path(sys.prefix)
    if not (prefix / "include" / "umf.h").exists():
        raise MissingError(f"no {prefix}/include/umf.h")
    library = prefix / "lib" / "libumf.so.1"
    driver(name, "peer_umf.h", [f"-I{prefix / 'include'}", library, f"-Wl,-rpath,{prefix / 'lib'}"])


def newest_clang() -> str:
    """Give the newest clang that is there."""
    return next((found for n in range(22, 14, -1) if (found := shutil.which(f"clang-{n}"))), "clang")


def build_llvm(name: str) -> None:
    """Build for libomptarget with the newest clang that is there."""
    compiler = newest_clang()
    offload: list[str | Path] = ["-fopenmp", "-fopenmp-targets=x86_64-pc-linux-gnu"]
    library = Path(compiler).resolve().parents[1] / "lib"
    driver(name, "peer_llvm.h", [*offload, f"-Wl,-rpath,{library}"], compiler)


def build_loop(name: str) -> None:
    """Build the loop that calls the extension module as it is installed, its functions by address."""
    compile_c(["cc", *FLAGS, "-shared", "-fPIC", NATIVE / "loop.c", "-o", BUILD / f"{name}.so"])


TARGETMEM = Peer("targetmem", build_targetmem, "")
WITHOUT_STATISTICS = Peer("no-statistics", build_without_statistics, "")
EXTENSION = Peer("extension", build_loop, "", (sys.executable, "-m", "benchmarks.extension_worker"))
PEERS = (
    TARGETMEM,
    Peer("mimalloc", build_mimalloc, "apt-get install libmimalloc-dev"),
    Peer("glibc", build_glibc, "a C compiler"),
    Peer("umf", build_umf, "pip install 'targetmem[bench]' (or umf)"),
    Peer("llvm", build_llvm, "apt-get install clang-19 clang-tools-19 libomp-19-dev"),
)


def available(report_missing: Callable[[str, str], None]) -> list[Peer]:
    """Build each peer and give those that could be built; tell what the others need."""
    found = []
    for peer in PEERS:
        try:
            found.append(peer.prepare())
        except MissingError as error:
            report_missing(peer.name, f"{error}; to install: {peer.install}")
    return found
