"""`MemoryManager`: the C core with settings, statistics, explained errors and leak reports."""

from __future__ import annotations

import atexit
import weakref
from typing import TYPE_CHECKING, Any

from targetmem import failures, pressure, shortage, statistics
from targetmem._core import Backend, ManagerCore, own_methods, set_tag
from targetmem.callers import outer_frame, warn
from targetmem.config import resolve
from targetmem.errors import LeakWarning
from targetmem.sizes import format_size
from targetmem.tags import number_of_site

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Self

    from targetmem._core import Buffer
    from targetmem._device import Device
    from targetmem.abc import Limit
    from targetmem.config import Settings

__all__ = ["MemoryManager", "close_all"]

# By id. A WeakSet may not grow while it is gone through.
_managers: dict[int, weakref.ref[MemoryManager]] = {}


@own_methods
class MemoryManager(ManagerCore):
    """Keep freed blocks of memory for reuse, over a device or over any two functions.

        manager = MemoryManager(allocate=f, release=g, threshold="1MiB")

    `allocate(size, alignment)` gives an address (0 or None, or a MemoryError: no memory) and
    `release(address, size)` takes it back; all bytes. Both may also be ints: addresses of C functions as
    `tm_backend` of the header wants them, which are then called without the GIL. `backend` takes the place of
    both and can say more about the memory.

    `policy`, `threshold` (the largest managed request; 0: none), `cached_limit` (most bytes kept for reuse)
    and `call_sites` (record the line of each allocation) come from the environment and `targetmem.toml` when
    not given. `name` is what errors call it. Managers with the same `group`, not 0, reclaim from each other.

    Raises ConfigError for a setting that cannot be used, TypeError when there is no memory to manage.
    """

    __slots__ = ("__weakref__", "name", "settings")

    def __init__(  # noqa: PLR0913 - what a manager can be told; only the first three are common
        self,
        allocate: Callable[[int, int], int | None] | int | None = None,
        release: Callable[[int, int], None] | int | None = None,
        *,
        backend: Backend | None = None,
        policy: str | None = None,
        threshold: int | str | None = None,
        cached_limit: int | str | None = None,
        call_sites: bool | None = None,
        settings: Settings | None = None,
        name: str = "manager",
        kind: str = "device",
        group: int = 0,
        owner: Device | None = None,
    ) -> None:
        if settings is None:
            settings = resolve(
                policy=policy, threshold=threshold, cached_limit=cached_limit, call_sites=call_sites
            )
        self.name = name  # first, for an error of the core asks for it
        self.settings = settings
        super().__init__(
            _backend_of(allocate, release) if backend is None else backend,
            policy=settings.policy,
            threshold=settings.threshold,
            cached_limit=settings.cached_limit,
            group=group,
            kind=kind,
        )
        self.owner = owner
        _managers[id(self)] = weakref.ref(self, _forget(id(self)))
        if settings.call_sites:
            self._record_call_sites()

    def _record_call_sites(self) -> None:
        """Become a manager whose allocations record their lines; the others pay nothing for the choice."""
        if type(self) is MemoryManager:
            self.__class__ = _CallSites

    # --- explaining ---

    def stats(self) -> statistics.Statistics:
        """Give what was counted so far, for the whole manager and for each bucket used; sizes in bytes."""
        return statistics.collect(self.raw_statistics(), self.raw_bucket_statistics)

    def counters(self) -> statistics.Counters:
        """Give what was counted for the whole manager only: cheaper than `stats`."""
        return statistics.counters(self.raw_statistics())

    def siblings(self) -> Iterable[MemoryManager]:
        """Give the managers of the same device, itself included."""
        return [self] if self.owner is None else self.owner.managers()

    @property
    def plugin_name(self) -> str:
        """The name of the plugin that the memory comes from, empty when it comes from two functions."""
        return "" if self.owner is None else self.owner.plugin.name

    def device_memory(self) -> tuple[int, int] | None:
        """Give the device's free and total bytes, None when it cannot tell."""
        return self.memory_info() if self.owner is None else self.owner.memory_info()

    def device_limit(self) -> Limit | None:
        """Give the limit that holds below the device's capacity, None when there is none."""
        return None if self.owner is None else self.owner.memory_limit()

    # --- lifetime ---

    def close(self) -> None:
        """Give every block back and refuse further requests; a `Buffer` that is still live becomes inert.

        Live blocks are leaks: they are told in a LeakWarning. Idempotent.
        """
        self.close_and_report(report=True)

    def close_and_report(self, *, report: bool | None) -> None:
        """Close, and warn of live blocks or not; None leaves that to the setting `report_leaks`."""
        if self.closed:
            return
        wanted = self.settings.report_leaks if report is None else report
        leaks = self._leaks() if wanted else ""
        failures_before = self.counters().device_failures
        super().close()
        if failed := self.counters().device_failures - failures_before:
            text = f"{self.name}: closed, but the device failed to take {failed} block(s) back"
            warn(text)
        if leaks:
            warn(leaks, LeakWarning)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        counters = self.counters()
        live, cached = format_size(counters.live.now), format_size(counters.cached.now)
        state = " closed" if self.closed else ""
        return f"<MemoryManager {self.name}{state}: {self.policy}, {live} live, {cached} cached>"

    def _leaks(self) -> str:
        counters = self.counters()
        if not counters.live_blocks:
            return ""
        count, size = counters.live_blocks, format_size(counters.requested.now)
        tags = shortage.live_tags(self, count)
        sites = ", ".join(f"{name} {format_size(held)}" for name, held in tags[:10])
        hint = sites or "tag them (targetmem.tagged) or set TARGETMEM_CALL_SITES=1 to see which"
        return f"{self.name}: closed with {count} live block{'s' * (count > 1)}, {size} requested: {hint}"

    # --- what the core asks of its subclass, in the failing thread and with no lock held ---

    def _pressure(self, wanted: int, step: int) -> bool:
        return pressure.relieve(wanted, step)

    def _error(self, *failure: Any) -> BaseException:
        return failures.build(self, failures.Failure(*failure))


class _CallSites(MemoryManager):
    """A manager that tags each block with the line that allocated it; only such a manager pays for that."""

    __slots__ = ()

    def allocate(self, size: int, /) -> Buffer:
        former = _enter_site()
        try:
            return super().allocate(size)
        finally:
            set_tag(former)

    def allocate_aligned(self, size: int, alignment: int, /) -> Buffer:
        former = _enter_site()
        try:
            return super().allocate_aligned(size, alignment)
        finally:
            set_tag(former)


def _forget(key: int) -> Callable[[object], None]:
    def forget(_: object) -> None:
        _managers.pop(key, None)

    return forget


def _enter_site() -> int:
    """Set the tag of the line outside targetmem that allocates; gives the thread's former tag."""
    frame, _ = outer_frame()
    former = set_tag(0)
    set_tag(number_of_site(former, frame.f_code, frame.f_lineno))
    return former


def _backend_of(
    allocate: Callable[[int, int], int | None] | int | None, release: Callable[[int, int], None] | int | None
) -> Backend:
    if isinstance(allocate, int) and isinstance(release, int):
        return Backend.from_pointers(allocate, release)
    if callable(allocate) and callable(release):
        return Backend(allocate, release)
    raise TypeError(
        "MemoryManager: expected two functions, two addresses of C functions, or a backend, "
        f"got allocate={allocate!r}, release={release!r}"
    )


def close_all() -> None:
    """Close every manager at interpreter exit; with devices in use, `Registry.close` called this before."""
    for reference in list(_managers.values()):
        if (manager := reference()) is not None:
            manager.close_and_report(report=None)


atexit.register(close_all)
