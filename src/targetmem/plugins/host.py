"""The target `host`: one device, the memory of this process, handed out by C functions without the GIL."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from targetmem._core import Backend, ManagerCore
from targetmem.abc import KINDS, Capabilities, Kind, Limit, MemoryInfo, Plugin

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from targetmem.abc import Argument

__all__ = ["HostPlugin"]

MIN_ALIGNMENT = 64
CGROUP_LIMIT = "/sys/fs/cgroup/memory.max"


class HostPlugin(Plugin):
    """The host as a target: addresses are the host's own, and its three memory kinds are one memory."""

    fork_safe = True

    def init(self) -> None:
        """Make the way for calls of `allocate` and `release`: a manager that is off and so keeps nothing."""
        self._direct = ManagerCore(Backend.host(), threshold=0)

    def deinit(self) -> None:
        """Give back what was allocated through the plugin itself."""
        self._direct.close()

    def device_count(self) -> int:
        """Give 1."""
        return 1

    def allocate(self, device: int, size: int, kind: Kind, alignment: int) -> int:
        """Obtain memory of the process. Raises OutOfDeviceMemory's base MemoryError when there is none."""
        return self._direct.allocate_aligned(size, alignment).detach()

    def release(self, device: int, address: int, size: int, kind: Kind) -> None:
        """Give memory back to the C library or the system."""
        self._direct.free(address)

    def memory_info(self, device: int) -> MemoryInfo | None:
        """Give the machine's memory: what the system says can still be had, and all of it."""
        total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        return MemoryInfo(_available() or os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"), total)

    def memory_limit(self, device: int) -> Limit | None:
        """Give the lowest limit on this process: ulimit's on addresses or data, or the container's."""
        return min(_limits(), default=None)

    def min_alignment(self, device: int, kind: Kind) -> int:
        """Give 64: a cache line."""
        return MIN_ALIGNMENT

    def backend(self, device: int, kind: Kind) -> Backend:
        """Give the backend of C functions."""
        return Backend.host()

    def capabilities(self, device: int) -> Capabilities:
        """Everything is accessible, with any alignment."""
        return Capabilities(kinds=KINDS, host_accessible=frozenset(KINDS), aligns=True, unified=True)

    def submit(self, device: int, target: int, host: int, size: int, queue: object | None = None) -> None:
        """Copy; done on return, with a queue too."""
        _copy(target, host, size)

    def retrieve(self, device: int, host: int, target: int, size: int, queue: object | None = None) -> None:
        """Copy; done on return, with a queue too."""
        _copy(host, target, size)

    def exchange(
        self,
        device: int,
        target: int,
        other: int,
        source: int,
        size: int,
        queue: object | None = None,
    ) -> None:
        """Copy; done on return, with a queue too."""
        _copy(target, source, size)

    def can_exchange(self, device: int, other: int) -> bool:
        """Tell that the one device can exchange with itself."""
        return device == other == 0

    def fill(
        self,
        device: int,
        target: int,
        pattern: bytes,
        count: int,
        queue: object | None = None,
    ) -> None:
        """Write a pattern again and again; done on return, with a queue too."""
        if len(pattern) == 1:
            from ctypes import memset

            memset(target, pattern[0], count)
        elif count:
            _copy(target, pattern, len(pattern))
            _spread(target, len(pattern), len(pattern) * count)

    def create_queue(self, device: int) -> object:
        """Give a queue that is always done."""
        return object()

    def release_queue(self, device: int, queue: object) -> None:
        """Do nothing: a queue of the host holds nothing."""

    def load(self, device: int, image: object) -> object:
        """Take a Python function or a dictionary of them, or load a shared object from its path or bytes."""
        if callable(image) or isinstance(image, dict):
            from targetmem.plugins.functions import Functions

            return Functions(image)
        from targetmem.plugins.shared_object import SharedObject

        return SharedObject(image)

    def unload(self, device: int, program: object) -> None:
        """Do nothing: a function goes with its last reference, a shared object stays with the process."""

    def entries(self, device: int, program: Any) -> tuple[str, ...]:
        """Give the functions' names, none for a shared object, which ctypes can't list."""
        return tuple(getattr(program, "entries", ()))

    def run(
        self,
        device: int,
        program: Any,
        entry: str,
        arguments: Sequence[Argument],
        *,
        teams: int = 1,
        threads: int = 1,
        queue: object | None = None,
    ) -> None:
        """Call a function on a pool of threads; done on return, with a queue too."""
        from targetmem.plugins.functions import Functions
        from targetmem.plugins.views import views

        passed = views(arguments) if isinstance(program, Functions) else arguments
        program.run(entry, passed, teams, threads)


def _copy(target: int, source: int | bytes, size: int) -> None:
    from ctypes import memmove  # slow to import, and most programs copy nothing here

    memmove(target, source, size)


def _spread(target: int, done: int, size: int) -> None:
    """Repeat the first `done` bytes up to `size`; each copy doubles what is there, so it takes few."""
    while done < size:
        step = min(done, size - done)
        _copy(target + done, target, step)
        done += step


def _available() -> int | None:
    """Give the bytes that the system could still hand out without swapping; None where it does not say."""
    try:
        with open("/proc/meminfo", encoding="ascii") as lines:
            found = [line for line in lines if line.startswith("MemAvailable:")]
    except OSError:
        return None
    return int(found[0].split()[1]) * 1024 if found else None


def _limits() -> Iterator[Limit]:
    import resource

    for name, option in (("RLIMIT_AS", "ulimit -v"), ("RLIMIT_DATA", "ulimit -d")):
        limit = resource.getrlimit(getattr(resource, name))[0]
        if limit != resource.RLIM_INFINITY:
            yield Limit(limit, f"{option} ({name})")
    try:
        with open(CGROUP_LIMIT, encoding="ascii") as file:
            text = file.read().strip()
    except OSError:
        return
    if text.isdecimal():
        yield Limit(int(text), "the memory limit of the container (memory.max)")
