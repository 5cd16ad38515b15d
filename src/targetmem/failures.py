"""From what the core reports to the exception that a person reads: what failed, where, and what to do.

The core knows numbers, this module knows sentences. It runs in the thread whose call failed, with no lock
held.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from targetmem import shortage
from targetmem.errors import DeviceClosed, InvalidFree, PluginError
from targetmem.sizes import format_size

if TYPE_CHECKING:
    from collections.abc import Callable

    from targetmem.manager import MemoryManager

__all__ = ["Failure", "build"]


class Failure(NamedTuple):
    """What the core reports: its status and reason, the native status, the call, the block hit, the cause."""

    status: str
    reason: str
    native: int
    address: int
    size: int
    hit_address: int
    hit_size: int
    cause: BaseException | None


def build(manager: MemoryManager, failure: Failure) -> BaseException:
    """Build the exception for a failure, chained from its cause."""
    make = _MAKERS.get(failure.status, _unexpected)
    error = make(manager, failure)
    error.__cause__ = failure.cause
    return error


def _out_of_memory(manager: MemoryManager, failure: Failure) -> BaseException:
    cause = failure.cause
    if cause is None or isinstance(cause, MemoryError):
        return shortage.build(manager, failure.size, failure.reason, _native(failure))
    text = f"{manager.name}: allocate of {format_size(failure.size)} failed in the plugin: {_told(cause)}"
    return PluginError(text, plugin=manager.plugin_name, native=_native(failure))


def _invalid_free(manager: MemoryManager, failure: Failure) -> BaseException:
    size = failure.size if failure.reason == "size_mismatch" else None
    return InvalidFree(
        f"{manager.name}: free({_call(failure)}): {_FREE_TEXTS[failure.reason](failure)}",
        address=failure.address,
        size=size,
        hit_address=failure.hit_address,
        hit_size=failure.hit_size,
        reason=failure.reason,
        native=_native(failure),
    )


def _call(failure: Failure) -> str:
    sized = failure.reason == "size_mismatch"
    return f"{failure.address:#x}, {failure.size}" if sized else f"{failure.address:#x}"


def _block(failure: Failure) -> str:
    return f"the block of {failure.hit_size} bytes at {failure.hit_address:#x}"


_FREE_TEXTS: dict[str, Callable[[Failure], str]] = {
    "double_free": lambda f: f"expected a live block, got {_block(f)}, which is already free: free it once",
    "interior": lambda f: (
        f"expected the start of a block, got a pointer {f.address - f.hit_address} bytes inside {_block(f)}: "
        "free the address that allocate gave"
    ),
    "size_mismatch": lambda f: (
        f"expected the size that was requested, {f.hit_size} bytes, got {f.size}: give that, or no size"
    ),
    "owned": lambda f: f"{_block(f)} belongs to a Buffer: release that, or take the pointer with detach()",
}


def _backend_error(manager: MemoryManager, failure: Failure) -> BaseException:
    tell = _BACKEND_TEXTS.get(failure.reason)
    text = tell(failure) if tell is not None else f"failed ({failure.reason})"
    told = f": {_told(failure.cause)}" if failure.cause is not None else ""
    text = (
        f"{manager.name}: {text}{told}; report it to the authors of {manager.plugin_name or 'the functions'}"
    )
    return PluginError(text, plugin=manager.plugin_name, native=_native(failure))


_BACKEND_TEXTS: dict[str, Callable[[Failure], str]] = {
    "misaligned": lambda f: (
        f"allocate of {f.size} bytes: expected an aligned address, got {f.address:#x}, which was given back"
    ),
    "overlap": lambda f: (
        f"allocate of {f.size} bytes: expected new memory, got {f.address:#x}, which overlaps {_block(f)} "
        "(nothing was given back)"
    ),
    "already_live": lambda f: (
        f"allocate of {f.size} bytes: expected new memory, got {f.address:#x}, which is {_block(f)} already "
        "(nothing was given back)"
    ),
    "release_failed": lambda f: f"release of {f.size} bytes at {f.address:#x} failed, status {f.native}",
}


def _invalid_argument(manager: MemoryManager, failure: Failure) -> BaseException:
    text = f"{manager.name}: expected a size >= 0 and an alignment that is a power of two, got others"
    return ValueError(f"{text} (size {failure.size})")


def _closed(manager: MemoryManager, _failure: Failure) -> BaseException:
    return DeviceClosed(
        f"{manager.name}: closed: expected an open manager; make a new one, or allocate before close()"
    )


def _forked(manager: MemoryManager, _failure: Failure) -> BaseException:
    return DeviceClosed(forked_text(manager.name))


def forked_text(name: str) -> str:
    """Say why something of the parent process cannot be used in a forked child."""
    return (
        f"{name}: belongs to the parent process: its memory cannot be used after fork; "
        'start the child with multiprocessing\'s "spawn", or use the device in the child only'
    )


def _unexpected(manager: MemoryManager, failure: Failure) -> BaseException:
    return PluginError(f"{manager.name}: {failure.status} ({failure.reason})", native=_native(failure))


_MAKERS: dict[str, Callable[[MemoryManager, Failure], BaseException]] = {
    "out_of_memory": _out_of_memory,
    "invalid_free": _invalid_free,
    "invalid_argument": _invalid_argument,
    "backend_error": _backend_error,
    "closed": _closed,
    "forked": _forked,
}


def _native(failure: Failure) -> int | None:
    """Give the status of the device: what a Python plugin put on its exception, or what a C function gave."""
    native = failure.native if failure.cause is None else getattr(failure.cause, "native", None)
    return native if isinstance(native, int) and native else None


def _told(cause: BaseException) -> str:
    return f"{type(cause).__name__}: {cause}" if str(cause) else type(cause).__name__
