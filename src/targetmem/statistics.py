"""What a manager counted: the numbers of `MemoryManager.stats()`."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    RawStatistics = Mapping[str, int | tuple[int, int, int]]

__all__ = ["BUCKETS", "BucketStatistics", "Counters", "Gauge", "Statistics", "collect", "counters"]

BUCKETS = 64


class Gauge(NamedTuple):
    """A number of bytes: now, at its highest, and all that was ever added."""

    now: int = 0
    peak: int = 0
    total: int = 0


@dataclass(frozen=True, slots=True)
class Counters:
    """What was counted in a manager or in one bucket of it; exact when no call is in flight.

    `requested` is what callers asked for, `live` what the blocks handed out really have, `cached` what is
    kept for reuse, `held` both together. `allocations` = `hits` + `misses` + `direct` (requests above the
    threshold). `reclaims` and `trims` count blocks given back because the device was out of memory, or
    because someone asked or the limit was reached. `padding_bytes` is what the device
    gave for alignment beyond live and cached bytes, now.
    """

    requested: Gauge = Gauge()
    live: Gauge = Gauge()
    cached: Gauge = Gauge()
    held: Gauge = Gauge()
    allocations: int = 0
    hits: int = 0
    misses: int = 0
    frees: int = 0
    direct: int = 0
    device_allocations: int = 0
    device_releases: int = 0
    device_failures: int = 0
    device_nanoseconds: int = 0
    reclaims: int = 0
    reclaimed_bytes: int = 0
    trims: int = 0
    trimmed_bytes: int = 0
    padding_bytes: int = 0
    live_blocks: int = 0
    cached_blocks: int = 0
    largest_free_block: int = 0

    @property
    def hit_rate(self) -> float:
        """The share of all requests that cached blocks served, 0.0 to 1.0; 0.0 before the first one."""
        return self.hits / self.allocations if self.allocations else 0.0


@dataclass(frozen=True, slots=True)
class BucketStatistics(Counters):
    """The counters of one bucket, which holds the blocks of `smallest` to `largest` bytes."""

    smallest: int = 0
    largest: int = 0


@dataclass(frozen=True, slots=True)
class Statistics(Counters):
    """The counters of one manager, and those of each bucket that was ever used, smallest sizes first."""

    buckets: tuple[BucketStatistics, ...] = ()


_NAMES = tuple(field.name for field in fields(Counters))


def counters(raw: RawStatistics) -> Counters:
    """Make the counters of a manager from the numbers of the core."""
    return Counters(**_values(raw))


def collect(manager: RawStatistics, bucket: Callable[[int], RawStatistics]) -> Statistics:
    """Make the statistics of a manager from the numbers of the core, asked bucket by bucket."""
    raw = [(number, bucket(number)) for number in range(BUCKETS)]
    used = [_bucket(number, numbers) for number, numbers in raw if numbers["allocations"]]
    return Statistics(**_values(manager), buckets=tuple(used))


def _bucket(number: int, raw: RawStatistics) -> BucketStatistics:
    return BucketStatistics(**_values(raw), smallest=1 << number, largest=(2 << number) - 1)


def _values(raw: RawStatistics) -> dict[str, Any]:
    return {name: Gauge(*value) if isinstance(value := raw[name], tuple) else value for name in _NAMES}
