"""The report for programs: one JSON object with everything that is known."""

from __future__ import annotations

import dataclasses
import json
import platform
import sys
from typing import TYPE_CHECKING, Any

from targetmem.report.facts import SETTINGS, device_calls
from targetmem.report.versions import installed, python
from targetmem.statistics import Gauge

if TYPE_CHECKING:
    from targetmem.report.facts import Facts
    from targetmem.statistics import Counters, Statistics

__all__ = ["FORMAT", "document", "write"]

FORMAT = 1  # goes up when a reader of the former format would be misled


def write(facts: Facts, path: str) -> None:
    """Write the document to a file. Raises OSError when that fails."""
    with open(path, "w", encoding="utf-8") as file:
        json.dump(document(facts), file, indent=2)
        file.write("\n")


def document(facts: Facts) -> dict[str, Any]:
    """Give the report as a tree of JSON values: bytes, and seconds where the name says nothing else."""
    return {
        "format": FORMAT,
        "versions": _versions(),
        "program": list(facts.program),
        "settings": {name: getattr(facts, name) for name in SETTINGS},
        "seconds": facts.seconds,
        "page_faults": _page_faults(facts),
        "served": facts.statistics is not None,
        "why_not": facts.why_not or None,
        "statistics": None if facts.statistics is None else _whole(facts.statistics),
        "estimate": None if facts.estimate is None else facts.estimate._asdict(),
    }


def _page_faults(facts: Facts) -> dict[str, Any]:
    before, after = facts.faults_before._asdict(), facts.faults_after._asdict()
    return {"before": before, "after": after, "program": facts.page_faults}


def _whole(statistics: Statistics) -> dict[str, Any]:
    buckets = [_counters(bucket) for bucket in statistics.buckets]
    return {**_counters(statistics), "buckets": buckets}


def _counters(counters: Counters) -> dict[str, Any]:
    values = {field.name: getattr(counters, field.name) for field in dataclasses.fields(counters)}
    values.pop("buckets", None)
    gauges = {name: value._asdict() for name, value in values.items() if isinstance(value, Gauge)}
    return {**values, **gauges, "hit_rate": counters.hit_rate, "device_calls": device_calls(counters)}


def _versions() -> dict[str, Any]:
    return {
        "targetmem": installed("targetmem"),
        "python": python(),
        "numpy": getattr(sys.modules.get("numpy"), "__version__", None),
        "platform": platform.platform(),
    }
