"""Libraries whose memory a pool can serve, one module each.

    targetmem.install("numpy")
    targetmem.uninstall("numpy")
    with targetmem.pooled("numpy"):
        ...

An integration is a module with functions of these three names; `targetmem.integrations.numpy` says what
NumPy's take and give.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from targetmem.errors import ConfigError

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from targetmem.integrations.numpy import ArrayPool

__all__ = ["INTEGRATIONS", "install", "pooled", "uninstall"]

INTEGRATIONS = ("numpy",)


def install(library: str, /, **options: Any) -> ArrayPool:
    """Serve a library's memory from a pool from now on; gives the pool, which tells what it did.

    Installing again with the same options gives the same pool. Raises ConfigError for an unknown library or
    an option that cannot be used, TargetMemoryError when others are in force or the library is not there.
    """
    pool: ArrayPool = _module(library).install(**options)
    return pool


def uninstall(library: str, /) -> None:
    """Stop serving a library's memory; what it holds is given back as it is freed. Idempotent.

    Raises ConfigError for an unknown library.
    """
    _module(library).uninstall()


def pooled(library: str, /, **options: Any) -> AbstractContextManager[ArrayPool]:
    """Serve a library's memory, of the whole process, while the `with` block runs; gives the pool. It nests.

    Raises like `install`, but other options may be in force outside: the inner ones hold.
    """
    manager: AbstractContextManager[ArrayPool] = _module(library).pooled(**options)
    return manager


def _module(library: str) -> Any:
    if library not in INTEGRATIONS:
        raise ConfigError(
            f"expected a library that a pool can serve ({', '.join(INTEGRATIONS)}), got {library!r}",
            key="library",
            value=library,
        )
    return import_module(f"targetmem.integrations.{library}")
