"""The facts of two made-up runs, for the tests of the report."""

from __future__ import annotations

from typing import Any

from targetmem.report.estimate import Estimate
from targetmem.report.facts import Facts, PageFaults
from targetmem.statistics import BucketStatistics, Gauge, Statistics

__all__ = ["FACTS", "MIB", "NOTHING", "STATISTICS", "bucket"]

MIB = 1 << 20


def bucket(number: int, **counts: Any) -> BucketStatistics:
    """Give a bucket that was used."""
    values: dict[str, Any] = {
        "smallest": 1 << number,
        "largest": (2 << number) - 1,
        "allocations": 100,
        "hits": 90,
        "misses": 10,
        "frees": 95,
        "device_allocations": 10,
        "device_releases": 5,
        "device_nanoseconds": 15_000,
        "requested": Gauge(0, 2 << number, 100 << number),
        "held": Gauge(0, 10 << number, 0),
    }
    return BucketStatistics(**{**values, **counts})


STATISTICS = Statistics(
    live=Gauge(0, 412 * MIB, 0),
    held=Gauge(0, 618 * MIB, 0),
    allocations=12_345,
    hits=12_001,
    misses=300,
    direct=44,
    frees=12_300,
    device_allocations=344,
    device_releases=10,
    device_nanoseconds=12_300_000,
    buckets=tuple(bucket(number) for number in range(20, 27)),
)
FACTS = Facts(
    program=["heat.py", "--steps", "3"],
    seconds=3.214,
    faults_before=PageFaults(2_000, 10),
    faults_after=PageFaults(9_000, 11),
    policy="exact",
    min_size=4 << 20,
    threshold=1 << 30,
    statistics=STATISTICS,
    estimate=Estimate(12_001, 1_260, 0.00126, 3_000_000, 0.63),
)
NOTHING = Facts(
    program=["x.py"],
    seconds=0.0123,
    faults_before=PageFaults(5, 0),
    faults_after=PageFaults(5, 0),
    why_not="the program did not import NumPy",
)
