"""From Python: a `Buffer` created and dropped."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import sysconfig
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.figures import Bar, Figure, MissingError
from benchmarks.measure import BUILD, Server, Settings, column, measure, progress, ratio
from benchmarks.peers import NATIVE, compile_c

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

SIZES = (64, 1024, 8192)  # all managed: the default threshold is 8192
WORKER = [sys.executable, "-m", "benchmarks.buffer_worker"]


def build_noop() -> None:
    """Build the extension module whose method does nothing."""
    include = Path(sysconfig.get_paths()["include"])
    if not (include / "Python.h").exists():
        raise MissingError(f"no {include}/Python.h")
    target = BUILD / f"noop{sysconfig.get_config_var('EXT_SUFFIX')}"
    compile_c(["cc", "-O3", "-DNDEBUG", "-shared", "-fPIC", f"-I{include}", NATIVE / "noop.c", "-o", target])


def check_pyopencl() -> None:
    """Check that PyOpenCL is there and finds a device."""
    if not importlib.util.find_spec("pyopencl"):
        raise MissingError("no pyopencl")
    find = "import pyopencl; pyopencl.get_platforms()[0].get_devices()[0]"
    if subprocess.run([sys.executable, "-c", find], capture_output=True, check=False).returncode:
        raise MissingError("no OpenCL device")


def contenders(report_missing: Callable[[str, str], None]) -> list[str]:
    """Give the contenders that can run here."""
    names = ["targetmem", "targetmem device"]
    for name, check, install in (
        ("pyopencl", check_pyopencl, "pip install 'targetmem[opencl]'"),
        ("no-op method", build_noop, "the Python headers (python3-dev)"),
    ):
        try:
            check()
            names.append(name)
        except MissingError as error:
            report_missing(name, f"{error}; to install: {install}")
    return names


def pairs(names: list[str], settings: Settings) -> Iterator[Figure]:
    """Create and drop a buffer."""
    with ExitStack() as stack:
        servers = [stack.enter_context(Server(name, [*WORKER, name])) for name in names]
        for size in SIZES:
            progress(f"Buffer of {size} bytes")
            answers = measure(servers, f"pair {size} {{count}}", settings, 31, 5e6)
            bars = []
            if "pyopencl" in answers:
                bars.append(Bar("<= 1/4 of PyOpenCL's pool", 0.25, ratio(answers, "targetmem", "pyopencl")))
                by_device = ratio(answers, "targetmem device", "pyopencl")
                bars.append(Bar("aim: Device.allocate as well", 0.25, by_device, aim=True))
            if "no-op method" in answers:
                over_noop = ratio(answers, "targetmem", "no-op method")
                bars.append(Bar("aim: 2 x a no-op C method", 2.0, over_noop, aim=True))
            yield Figure(f"Buffer created and dropped, {size} B", "ns", column(answers), tuple(bars))
