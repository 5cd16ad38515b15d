"""Libraries whose memory a pool can serve, one module each.

    targetmem.install("numpy")
    targetmem.uninstall("numpy")
    with targetmem.pooled("numpy"):
        ...

An integration is a module with functions of these three names; `targetmem.integrations.numpy` says what
NumPy's take and give, `targetmem.integrations.pyopencl_arrays` what PyOpenCL's do.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal, overload

from targetmem.errors import ConfigError, TargetMemoryError

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from targetmem.integrations.numpy import ArrayPool
    from targetmem.integrations.pyopencl_arrays import QueueMemory

__all__ = ["INTEGRATIONS", "install", "pooled", "uninstall"]

# library -> the module below this one
INTEGRATIONS = {"numpy": "numpy", "pyopencl": "pyopencl_arrays"}
_EXTRAS = {"numpy": "numpy", "pyopencl": "opencl"}


@overload
def install(library: Literal["numpy"], /, **options: Any) -> ArrayPool: ...
@overload
def install(library: Literal["pyopencl"], /, **options: Any) -> QueueMemory: ...
@overload
def install(library: str, /, **options: Any) -> Any: ...
def install(library: str, /, **options: Any) -> Any:
    """Serve a library's memory from a pool from now on; gives the pool, which tells what it did.

    Installing again with the same options gives the same pool. Raises ConfigError for an unknown library or
    an option that cannot be used, TargetMemoryError when others are in force or the library is not there.
    """
    return _module(library).install(**options)


def uninstall(library: str, /) -> None:
    """Stop serving a library's memory; what it holds is given back as it is freed. Idempotent.

    Raises ConfigError for an unknown library.
    """
    _module(library).uninstall()


@overload
def pooled(library: Literal["numpy"], /, **options: Any) -> AbstractContextManager[ArrayPool]: ...
@overload
def pooled(library: Literal["pyopencl"], /, **options: Any) -> AbstractContextManager[QueueMemory]: ...
@overload
def pooled(library: str, /, **options: Any) -> AbstractContextManager[Any]: ...
def pooled(library: str, /, **options: Any) -> AbstractContextManager[Any]:
    """Serve a library's memory, of the whole process, while the `with` block runs; gives the pool. It nests.

    Raises like `install`, but other options may be in force outside: the inner ones hold.
    """
    manager: AbstractContextManager[Any] = _module(library).pooled(**options)
    return manager


def _module(library: str) -> Any:
    if library not in INTEGRATIONS:
        raise ConfigError(
            f"expected a library that a pool can serve ({', '.join(INTEGRATIONS)}), got {library!r}",
            key="library",
            value=library,
        )
    try:
        return import_module(f"targetmem.integrations.{INTEGRATIONS[library]}")
    except ImportError as error:
        hint = f'install it with pip install "targetmem[{_EXTRAS[library]}]"'
        raise TargetMemoryError(f"{library}: cannot be imported ({error}): {hint}") from error
