"""The facts of one run: what the pool counted, what the system counted, and the settings that held."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

    from targetmem.statistics import BucketStatistics, Counters, Statistics

__all__ = ["SETTINGS", "Estimate", "Facts", "PageFaults", "biggest_buckets", "device_calls", "estimate"]


SETTINGS = ("policy", "min_size", "threshold", "cached_limit")


class PageFaults(NamedTuple):
    """Page faults of the process so far: served from memory, and from disk."""

    minor: int
    major: int

    @property
    def total(self) -> int:
        """All of them."""
        return self.minor + self.major


class Estimate(NamedTuple):
    """What the run would have paid for more; no measurement."""

    calls_avoided: int
    seconds_saved: float


@dataclass(frozen=True, slots=True)
class Facts:
    """All that a report can show. Sizes are bytes.

    `statistics` is None when nothing was served; `why_not` then says why. `small` counts the requests left to
    NumPy for their size, None when nobody counted them. `policy`, `min_size`, `threshold` and `cached_limit`
    are those in force, or the options given when nothing was served; a limit of None is none.
    """

    program: Sequence[str]
    seconds: float
    faults_before: PageFaults
    faults_after: PageFaults
    policy: str | None = None
    min_size: int | None = None
    threshold: int | None = None
    cached_limit: int | None = None
    statistics: Statistics | None = None
    small: int | None = None
    why_not: str = ""

    @property
    def page_faults(self) -> int:
        """Page faults from the program's start to its end."""
        return self.faults_after.total - self.faults_before.total


def device_calls(counters: Counters) -> int:
    """Give how often the device was called."""
    return counters.device_allocations + counters.device_releases


def biggest_buckets(statistics: Statistics, count: int = 5) -> list[BucketStatistics]:
    """Give the buckets that served the most bytes, the biggest first."""
    return sorted(statistics.buckets, key=lambda bucket: bucket.requested.total, reverse=True)[:count]


def estimate(statistics: Statistics) -> Estimate:
    """Estimate what cached blocks saved, from what a device call of the same bucket cost in this very run.

    Without them each allocation and each free would have been a call. What comes later on account of a call
    (page faults, above all) is not in it.
    """
    avoided = [(_avoided(bucket), _cost(bucket) or _cost(statistics)) for bucket in statistics.buckets]
    return Estimate(sum(calls for calls, _ in avoided), sum(calls * cost for calls, cost in avoided))


def _avoided(bucket: Counters) -> int:
    return max(0, bucket.allocations + bucket.frees - device_calls(bucket))


def _cost(counters: Counters) -> float:
    """Give the seconds of an average call, 0.0 when there was none."""
    calls = device_calls(counters)
    return counters.device_nanoseconds / calls / 1e9 if calls else 0.0
