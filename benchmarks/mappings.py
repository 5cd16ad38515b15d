"""Mapped data: entering and exiting an array, beside libomptarget's target enter data and exit data."""

from __future__ import annotations

import shutil
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.figures import Bar, Figure, MissingError
from benchmarks.measure import BUILD, Server, Settings, column, measure, progress, ratio
from benchmarks.peers import FLAGS, NATIVE, CompileError, compile_c, newest_clang

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

OTHERS = (10, 1_000, 100_000)
OTHER_SIZE = 64
SIZE = 1024
OURS = "targetmem (Python)"
PEER = "llvm (C)"
INSTALL = "apt-get install clang-19 clang-tools-19 libomp-19-dev"


def build_peer() -> Path:
    """Build libomptarget's side. Raises MissingError when that can't be done here."""
    compiler = newest_clang()
    if not shutil.which(compiler):
        raise MissingError(f"no {compiler} in the path; to install: {INSTALL}")
    library = Path(shutil.which(compiler) or compiler).resolve().parents[1] / "lib"
    offload = ["-fopenmp", "-fopenmp-targets=x86_64-pc-linux-gnu", f"-Wl,-rpath,{library}"]
    try:
        compile_c([compiler, *FLAGS, NATIVE / "mapping_llvm.c", "-o", BUILD / "mapping-llvm", *offload])
    except CompileError as error:
        raise MissingError(f"{str(error).strip().splitlines()[0]}; to install: {INSTALL}") from error
    return BUILD / "mapping-llvm"


def pairs(report_missing: Callable[[str, str], None], settings: Settings) -> Iterator[Figure]:
    """Enter and exit one array while other ranges are mapped."""
    with ExitStack() as stack:
        servers = [stack.enter_context(Server(OURS, [sys.executable, "-m", "benchmarks.mapping_worker"]))]
        try:
            servers.append(stack.enter_context(Server(PEER, [build_peer()])))
        except MissingError as error:
            report_missing("llvm's mapping", str(error))
        first = 0.0
        for count in OTHERS:
            progress(f"enter and exit of {SIZE} bytes beside {count} mapped ranges")
            for server in servers:
                server.ask(f"others {count} {OTHER_SIZE}")
            answers = measure(servers, f"mapping {SIZE} {{count}}", settings, 31, 5e6)
            first = first or column(answers)[OURS]
            bars = [Bar(f"flat: <= 2 x beside {OTHERS[0]}", 2.0, column(answers)[OURS] / first)]
            if PEER in answers:
                over = ratio(answers, OURS, PEER)
                bars += [Bar("<= 1.5 x LLVM from C", 1.5, over), Bar("aim: LLVM's", 1.0, over, aim=True)]
            yield Figure(f"enter+exit, {SIZE} B, {count:.0e} others", "ns", column(answers), tuple(bars))
