"""Who called: the nearest code outside targetmem, for warnings and for recorded call sites."""

from __future__ import annotations

import sys
import warnings
from typing import TYPE_CHECKING

from targetmem.errors import TargetMemoryWarning

if TYPE_CHECKING:
    from types import FrameType

__all__ = ["outer_frame", "warn"]

_INSIDE = __name__.partition(".")[0] + "."


def outer_frame() -> tuple[FrameType, int]:
    """Give the nearest frame outside the package, and how many frames above the caller of this it is."""
    frame, above = sys._getframe(1), 0  # noqa: SLF001 - far faster than inspect
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith(_INSIDE):
        frame, above = frame.f_back, above + 1
    return frame, above


def warn(text: str, category: type[TargetMemoryWarning] = TargetMemoryWarning) -> None:
    """Give a warning that shows the line outside the package that led to it."""
    _, above = outer_frame()
    warnings.warn(text, category, stacklevel=above + 1)
