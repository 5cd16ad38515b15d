"""What the report on the terminal says, whichever way it is drawn."""

from __future__ import annotations

from typing import TYPE_CHECKING

from targetmem.report.facts import Facts, biggest_buckets, device_calls, estimate
from targetmem.report.units import count, limit, percent, seconds, size_range
from targetmem.sizes import format_size

if TYPE_CHECKING:
    from collections.abc import Iterator

    from targetmem.statistics import BucketStatistics, Statistics

__all__ = ["BUCKET_TITLES", "bucket_rows", "heading", "rows"]

BUCKET_TITLES = ("biggest buckets", "served", "allocations", "hits", "peak held")


def heading(facts: Facts) -> str:
    """Give the first line: whether NumPy was served, which sizes, and under which settings."""
    if facts.statistics is None:
        return f"no array was served: {facts.why_not}"
    smallest, threshold = limit(facts.min_size, "0"), limit(facts.threshold, "any size")
    cap = limit(facts.cached_limit, "none")
    return f"arrays of {smallest} to {threshold} came from the pool (policy {facts.policy}, cap {cap})"


def rows(facts: Facts) -> Iterator[tuple[str, str]]:
    """Yield the lines of the report, each as its name and what it says."""
    if facts.statistics is not None:
        yield from _pool_rows(facts.statistics, facts.small)
    before, after = count(facts.faults_before.total), count(facts.faults_after.total)
    yield "page faults", f"{count(facts.page_faults)} by the program ({before} before, {after} after)"
    yield "wall time", seconds(facts.seconds)


def _pool_rows(statistics: Statistics, small: int | None) -> Iterator[tuple[str, str]]:
    yield "allocations", _allocations(statistics)
    if small is not None:
        yield "small arrays", f"{count(small)} left to NumPy"
    inside = seconds(statistics.device_nanoseconds / 1e9)
    yield "device calls", f"{count(device_calls(statistics))}, {inside} inside them"
    calls, saved = estimate(statistics)
    how = f"{count(calls)} calls avoided, at what those made cost"
    yield "time saved", f"about {seconds(saved)}, an estimate: {how}"
    peaks = format_size(statistics.live.peak), format_size(statistics.held.peak)
    yield "memory", f"{peaks[0]} live and {peaks[1]} held, each at its peak"


def _allocations(statistics: Statistics) -> str:
    text = f"{count(statistics.allocations)}, {count(statistics.hits)} hits ({percent(statistics.hit_rate)})"
    return f"{text}, {count(statistics.direct)} over the threshold" if statistics.direct else text


def bucket_rows(statistics: Statistics) -> list[tuple[str, ...]]:
    """Give the rows of the table of the biggest buckets, as many cells as BUCKET_TITLES."""
    return [_bucket_row(bucket) for bucket in biggest_buckets(statistics)]


def _bucket_row(bucket: BucketStatistics) -> tuple[str, ...]:
    return (
        size_range(bucket.smallest, bucket.largest),
        format_size(bucket.requested.total),
        count(bucket.allocations),
        percent(bucket.hit_rate),
        format_size(bucket.held.peak),
    )
