"""The versions that a report, or a bug report, needs."""

from __future__ import annotations

import platform
from importlib.metadata import PackageNotFoundError, version

__all__ = ["installed", "python"]


def installed(package: str) -> str | None:
    """Give the version of an installed package; None when it is not, as in a bare checkout."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def python() -> str:
    """Give the implementation and the version of the Python that runs this: `CPython 3.13.0`."""
    return f"{platform.python_implementation()} {platform.python_version()}"
