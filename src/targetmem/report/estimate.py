"""What the pool saved: an estimate, for nobody knows how the program would have run without it."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from targetmem.report.facts import biggest_buckets, device_calls

if TYPE_CHECKING:
    from collections.abc import Callable

    from targetmem.statistics import Counters, Statistics

__all__ = ["Estimate", "NewBlock", "estimate"]


class NewBlock(NamedTuple):
    """What a new block costs that a reused one does not: obtaining it, the first touch, giving it back."""

    seconds: float
    page_faults: float


class Estimate(NamedTuple):
    """What the run would have paid for more. All of it is estimated but `blocks_reused`.

    `calls_avoided` and `call_seconds` are the device's calls alone, at what those that were made cost;
    `page_faults_avoided` and `seconds_saved` add what the first touch of the memory costs.
    """

    blocks_reused: int
    calls_avoided: int
    call_seconds: float
    page_faults_avoided: int
    seconds_saved: float


def estimate(statistics: Statistics, new_block: Callable[[int], NewBlock]) -> Estimate:
    """Estimate what reused blocks saved.

    `new_block` gives the cost of a new block of so many bytes; it is asked only for the buckets that matter.
    """
    calls = [(_avoided(bucket), _cost(bucket) or _cost(statistics)) for bucket in statistics.buckets]
    enough = max(1, sum(map(_reused, statistics.buckets)) / 50)
    used = [bucket for bucket in biggest_buckets(statistics) if _reused(bucket) >= enough]
    blocks = [(bucket.hits, new_block(_size(bucket))) for bucket in used]
    return Estimate(
        blocks_reused=statistics.hits,
        calls_avoided=sum(count for count, _ in calls),
        call_seconds=sum(count * cost for count, cost in calls),
        page_faults_avoided=round(sum(hits * block.page_faults for hits, block in blocks)),
        seconds_saved=sum(hits * block.seconds for hits, block in blocks),
    )


def _size(bucket: Counters) -> int:
    """Give the average size of a bucket's blocks in bytes."""
    return bucket.requested.total // bucket.allocations


def _reused(bucket: Counters) -> int:
    """Give the bytes that a bucket served from freed blocks."""
    return bucket.hits * _size(bucket)


def _avoided(bucket: Counters) -> int:
    return max(0, bucket.allocations + bucket.frees - device_calls(bucket))


def _cost(counters: Counters) -> float:
    """Give the seconds of an average call, 0.0 when there was none."""
    calls = device_calls(counters)
    return counters.device_nanoseconds / calls / 1e9 if calls else 0.0
