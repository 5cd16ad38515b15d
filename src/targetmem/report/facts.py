"""The facts of one run: what the pool counted, what the system counted, and the settings that held."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

    from targetmem.report.estimate import Estimate
    from targetmem.statistics import BucketStatistics, Counters, Statistics

__all__ = ["SETTINGS", "Facts", "PageFaults", "biggest_buckets", "device_calls"]


SETTINGS = ("policy", "min_size", "threshold", "cached_limit")


class PageFaults(NamedTuple):
    """Page faults of the process so far: served from memory, and from disk."""

    minor: int
    major: int

    @property
    def total(self) -> int:
        """All of them."""
        return self.minor + self.major


@dataclass(frozen=True, slots=True)
class Facts:
    """All that a report can show. Sizes are bytes.

    `statistics` and `estimate` are None when nothing was served; `why_not` then says why. `policy`,
    `min_size`, `threshold` and `cached_limit` are those in force, or the options given when nothing was
    served; a limit of None is none.
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
    estimate: Estimate | None = None
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
