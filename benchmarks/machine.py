"""Where the figures come from: the machine and the tools."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path

from benchmarks.measure import ROOT


def describe() -> dict[str, str]:
    """Describe the machine, the system, the tools and the moment."""
    return {
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "revision": first_line(["git", "-C", str(ROOT), "describe", "--always", "--dirty"]),
        "processor": f"{processor()}, {os.cpu_count()} cores",
        "memory": memory(),
        "system": f"{platform.system()} {platform.release()}, {' '.join(platform.libc_ver())}",
        "compiler": first_line(["cc", "--version"]),
        "python": sys.version.split("\n", maxsplit=1)[0],
        "load": " ".join(f"{load:.2f}" for load in os.getloadavg()),
    }


def processor() -> str:
    """Give the processor's name."""
    for line in lines(Path("/proc/cpuinfo")):
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.processor() or "unknown"


def memory() -> str:
    """Give the machine's memory in GiB and how huge pages are used."""
    pages = "".join(lines(Path("/sys/kernel/mm/transparent_hugepage/enabled"))) or "unknown"
    size = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return f"{size / 2**30:.1f} GiB, transparent huge pages: {pages}"


def lines(path: Path) -> list[str]:
    """Give a file's lines, none if it is not there."""
    return path.read_text(encoding="utf-8").splitlines() if path.exists() else []


def first_line(command: list[str]) -> str:
    """Give the first line that a tool prints, "missing" if it is not there or fails."""
    try:
        result = subprocess.run(command, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return "missing"
    return result.stdout.splitlines()[0] if result.stdout else "missing"


def version(distribution: str) -> str:
    """Give an installed distribution's version, "missing" if it is not installed."""
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return "missing"
