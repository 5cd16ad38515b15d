"""Regions that are functions of a compiled shared object, called through ctypes without the GIL."""

from __future__ import annotations

import ctypes
import os
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

from targetmem.abc import TargetArray
from targetmem.errors import PluginError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from targetmem.abc import Argument

__all__ = ["SharedObject"]

ELF = b"\x7fELF"


class SharedObject:
    """A shared object that is loaded: its functions are the entries.

    Memory is passed as a pointer, a Python int as `long`, a float as `double`; NumPy's and ctypes' numbers
    as what they are. Behind the arguments each call gets four ints, which a function may leave out of its
    parameters: its team, the number of teams, its thread, the number of threads of a team.
    """

    def __init__(self, image: object) -> None:
        self.library = _open(image)

    def run(self, entry: str, arguments: Sequence[Argument], teams: int, threads: int) -> None:
        """Call an entry for every thread of every team, as many at a time as there are cores.

        Raises LookupError when there is no such function, TypeError for what can't be passed.
        """
        try:
            function = self.library[entry]
        except AttributeError:
            name = self.library._name  # noqa: SLF001 - ctypes has no other way to tell
            raise LookupError(f"expected an exported function of {name}, got {entry!r}") from None
        function.restype = None
        passed = [_passed(entry, number, argument) for number, argument in enumerate(arguments)]
        places = list(product(range(teams), range(threads)))

        def call(place: tuple[int, int]) -> None:
            function(*passed, *map(ctypes.c_int, (place[0], teams, place[1], threads)))

        if len(places) == 1:
            call(places[0])
            return
        with ThreadPoolExecutor(min(len(places), os.cpu_count() or 1)) as pool:
            list(pool.map(call, places))


def _open(image: object) -> ctypes.CDLL:
    try:
        if isinstance(image, bytes):
            return _open_bytes(image)
        if isinstance(image, (str, os.PathLike)):
            return ctypes.CDLL(str(Path(image).resolve(strict=True)))
    except OSError as error:
        raise PluginError(f"load: expected a shared object, got {error}") from error
    raise TypeError(
        "load: expected a shared object (path or bytes), a function, or a dictionary of names and functions, "
        f"got {type(image).__name__}"
    )


def _open_bytes(image: bytes) -> ctypes.CDLL:
    """Load from memory: a file without a name, which goes with the process."""
    if not image.startswith(ELF):
        raise PluginError(f"load: expected the bytes of a shared object (ELF), got {image[:8]!r}...")
    handle = os.memfd_create("targetmem image")
    try:
        os.write(handle, image)
        return ctypes.CDLL(f"/proc/self/fd/{handle}")
    finally:
        os.close(handle)


def _passed(entry: str, number: int, argument: Any) -> object:
    if isinstance(argument, TargetArray):
        return ctypes.c_void_p(argument.address)
    if isinstance(argument, bool) or (isinstance(argument, int) and -(1 << 63) <= argument < 1 << 63):
        return ctypes.c_long(argument)
    if isinstance(argument, float) and type(argument) is float:
        return ctypes.c_double(argument)
    if isinstance(argument, ctypes._SimpleCData):  # noqa: SLF001 - the base of all of ctypes' numbers
        return argument
    if hasattr(argument, "dtype"):
        import numpy as np

        return np.ctypeslib.as_ctypes_type(argument.dtype)(argument.item())
    raise TypeError(f"{entry}: argument {number}: expected memory or a number, got {argument!r}")
