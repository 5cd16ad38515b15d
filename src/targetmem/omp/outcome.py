"""What a routine gives back: the standard's codes, and why the latest one was not 0."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from targetmem.errors import TargetMemoryError, UnknownDevice

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["FAILURE", "SUCCESS", "attempt", "last_error", "note", "refuse"]

SUCCESS = 0
FAILURE = -1  # as LLVM's: the standard only says that it isn't 0

_latest = threading.local()


def last_error() -> Exception | None:
    """Give why the latest routine of this thread that failed did so, None if none has.

    The standard's routines tell a failure by a number or a null pointer; this is the exception behind it.
    """
    return getattr(_latest, "error", None)


def note(error: Exception) -> int:
    """Keep an error for `last_error`; gives the code for it."""
    _latest.error = error
    return FAILURE


def refuse(text: str) -> int:
    """Keep why a call is refused; gives the code for it."""
    return note(TargetMemoryError(text))


def attempt(step: Callable[[], object]) -> int:
    """Take a step; gives the code of how it went. An unknown device, a runtime error in OpenMP, stays one."""
    try:
        step()
    except UnknownDevice:
        raise
    except Exception as error:  # noqa: BLE001 - whatever a plugin raises, the routine has a code for it
        return note(error)
    return SUCCESS
