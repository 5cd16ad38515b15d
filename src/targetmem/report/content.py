"""What the report on the terminal says, whichever way it is drawn."""

from __future__ import annotations

from typing import TYPE_CHECKING

from targetmem.report.facts import Facts, biggest_buckets, device_calls
from targetmem.report.units import count, limit, percent, seconds, size_range
from targetmem.sizes import format_size

if TYPE_CHECKING:
    from collections.abc import Iterator

    from targetmem.report.estimate import Estimate
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
        yield from _pool_rows(facts.statistics)
    if facts.estimate is not None:
        yield "time saved", _saved(facts.estimate)
    yield "page faults", _page_faults(facts)
    yield "wall time", seconds(facts.seconds)


def _pool_rows(statistics: Statistics) -> Iterator[tuple[str, str]]:
    yield "allocations", _allocations(statistics)
    inside = seconds(statistics.device_nanoseconds / 1e9)
    yield "device calls", f"{count(device_calls(statistics))}, {inside} inside them"
    peaks = format_size(statistics.live.peak), format_size(statistics.held.peak)
    yield "memory", f"{peaks[0]} live and {peaks[1]} held, each at its peak"


def _saved(estimate: Estimate) -> str:
    if not estimate.blocks_reused:
        return "nothing, no block was reused"
    each = seconds(estimate.seconds_saved / estimate.blocks_reused)
    how = f"{count(estimate.blocks_reused)} blocks reused, a new one costs {each}"
    return f"about {seconds(estimate.seconds_saved)} (estimate: {how})"


def _page_faults(facts: Facts) -> str:
    avoided = f", about {count(facts.estimate.page_faults_avoided)} avoided" if facts.estimate else ""
    before, after = count(facts.faults_before.total), count(facts.faults_after.total)
    return f"{count(facts.page_faults)} ({before} before, {after} after{avoided})"


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
