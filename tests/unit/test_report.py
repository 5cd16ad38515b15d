"""The report of a run: its numbers, its words, and its JSON."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from targetmem.report import new_blocks, terminal, units
from targetmem.report.content import BUCKET_TITLES, bucket_rows
from targetmem.report.document import document, write
from targetmem.report.estimate import Estimate, NewBlock, estimate
from targetmem.report.facts import biggest_buckets
from targetmem.report.new_blocks import measure
from targetmem.report.plain import text
from targetmem.statistics import Gauge, Statistics
from tests.unit.run_facts import FACTS, MIB, NOTHING, STATISTICS, bucket

if TYPE_CHECKING:
    from pathlib import Path

PLAIN = """\
targetmem: arrays of 4 MiB to 1 GiB came from the pool (policy exact, cap none)
  allocations      12,345, 12,001 hits (97.2%), 44 over the threshold
  device calls     354, 12.3 ms inside them
  memory           412 MiB live and 618 MiB held, each at its peak
  time saved       about 630 ms (estimate: 12,001 blocks reused, a new one costs 52.5 µs)
  page faults      7,001 (2,010 before, 9,011 after, about 3,000,000 avoided)
  wall time        3.21 s
  biggest buckets   served  allocations  hits  peak held
  64 - 128 MiB     6.2 GiB          100   90%    640 MiB
  32 - 64 MiB      3.1 GiB          100   90%    320 MiB
  16 - 32 MiB      1.6 GiB          100   90%    160 MiB
  8 - 16 MiB       800 MiB          100   90%     80 MiB
  4 - 8 MiB        400 MiB          100   90%     40 MiB
"""


def test_plain_report() -> None:
    """The plain report has every fact that the issue of a run can be read from, one a line."""
    assert PLAIN == text(FACTS)


def test_plain_report_of_a_run_that_served_nothing() -> None:
    """It says why nothing was served, and what is known nevertheless."""
    assert text(NOTHING) == (
        "targetmem: no array was served: the program did not import NumPy\n"
        "  page faults      0 (5 before, 5 after)\n"
        "  wall time        12.3 ms\n"
    )


def test_rich_report_says_the_same() -> None:
    """The drawn report has the words of the plain one."""
    drawn = terminal.text(FACTS, io.StringIO())
    assert [] == [word for word in text(FACTS).split() if word not in drawn]


def test_rich_report_without_buckets() -> None:
    """A run that served nothing has no table."""
    drawn = terminal.text(NOTHING, io.StringIO())
    assert "did not import NumPy" in drawn
    assert BUCKET_TITLES[0] not in drawn


def test_the_biggest_buckets_served_most_bytes() -> None:
    """Five buckets, by the bytes that they served, not by their sizes."""
    busy = bucket(10, requested=Gauge(0, 0, 1 << 50))
    found = biggest_buckets(replace(STATISTICS, buckets=(busy, *STATISTICS.buckets)))
    assert [busy, *reversed(STATISTICS.buckets[-4:])] == found


def test_each_row_of_the_table_has_all_columns() -> None:
    """Titles and cells go together."""
    assert {len(BUCKET_TITLES)} == {len(row) for row in bucket_rows(STATISTICS)}


def cost(size: int) -> NewBlock:
    """Give the cost of a new block: a nanosecond a byte, and a fault a page."""
    return NewBlock(size * 1e-9, size / 4096)


def test_estimate_takes_new_blocks_of_the_size_of_the_reused() -> None:
    """Each hit counts with what a new block of its bucket's average size costs."""
    small = bucket(22, hits=50)
    big = bucket(26, hits=3)
    found = estimate(replace(STATISTICS, buckets=(small, big)), cost)
    assert (STATISTICS.hits, 50 * (1 << 10) + 3 * (1 << 14)) == (
        found.blocks_reused,
        found.page_faults_avoided,
    )
    assert found.seconds_saved == pytest.approx(((50 << 22) + (3 << 26)) * 1e-9)


def test_estimate_leaves_out_what_does_not_matter() -> None:
    """A bucket that served less than a fiftieth is not worth the time to measure what its blocks cost."""
    found = estimate(replace(STATISTICS, buckets=(bucket(19, hits=90), bucket(26))), cost)
    assert found.seconds_saved == pytest.approx((90 << 26) * 1e-9)


def test_estimate_of_calls_takes_the_cost_of_the_same_bucket() -> None:
    """Each avoided call counts with what a call of its own bucket cost."""
    cheap = bucket(10, device_nanoseconds=15 * 1_000)
    dear = bucket(26, device_nanoseconds=15 * 1_000_000)
    found = estimate(replace(STATISTICS, buckets=(cheap, dear)), cost)
    assert 2 * (100 + 95 - 15) == found.calls_avoided
    assert found.call_seconds == pytest.approx(180 * 1e-6 + 180 * 1e-3)


def test_estimate_without_a_call_in_the_bucket() -> None:
    """A bucket that never called the device counts with the average of all calls."""
    quiet = bucket(10, device_allocations=0, device_releases=0, device_nanoseconds=0)
    found = estimate(replace(STATISTICS, buckets=(quiet,)), cost)
    assert found.call_seconds == pytest.approx(195 * 12_300_000e-9 / 354)


def test_estimate_of_nothing() -> None:
    """Without hits nothing was saved, and no cost is asked for; more calls than requests take nothing off."""

    def asked(size: int) -> NewBlock:
        raise AssertionError

    assert Estimate(0, 0, 0, 0, 0) == estimate(Statistics(), asked)
    found = estimate(Statistics(buckets=(bucket(9, hits=0, device_allocations=1000),)), asked)
    assert Estimate(0, 0, 0, 0, 0) == found
    assert "time saved       nothing, no block was reused" in text(replace(FACTS, estimate=found))


def test_new_blocks_cost_more_than_reused_ones() -> None:
    """A big block faults once a page at most, and no less than once a huge page; half of it costs half."""
    whole, half = measure(96 * MIB, 64 * MIB), measure(48 * MIB, 64 * MIB)
    assert whole.seconds > 0
    assert 48 <= whole.page_faults <= 96 * 256 + 1000
    assert whole.page_faults / 2 == pytest.approx(half.page_faults, rel=0.2, abs=50)
    assert measure(0, 0) == (0, 0)
    assert measure(1, 0).seconds < 1


def test_measuring_stays_within_its_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    """No more memory is taken than the pool gave back, however big the blocks were."""
    taken: list[int] = []

    def cycle(size: int) -> tuple[float, float, int]:
        taken.append(size)
        return 1.0, 0.0, 1

    monkeypatch.setattr(new_blocks, "_cycle", cycle)
    for budget in (0, 20 * MIB, 1 << 40):
        measure(1 << 40, budget)
        assert 15 * MIB <= max(taken) <= max(16 * MIB, min(budget, 48 * MIB))
        taken.clear()


def test_document_can_be_written_and_has_everything(tmp_path: Path) -> None:
    """The JSON holds settings, versions, statistics, all buckets, faults and the estimate."""
    write(FACTS, str(tmp_path / "run.json"))
    found = json.loads((tmp_path / "run.json").read_text())
    assert found == json.loads(json.dumps(document(FACTS)))
    settings = {"policy": "exact", "min_size": 4 << 20, "threshold": 1 << 30, "cached_limit": None}
    assert settings == found["settings"]
    assert {"before", "after", "program"} == found["page_faults"].keys()
    assert (7_001, 11) == (found["page_faults"]["program"], found["page_faults"]["after"]["major"])
    assert {"targetmem", "python", "numpy"} <= found["versions"].keys()
    assert 7 == len(found["statistics"]["buckets"])
    assert {"now": 0, "peak": 412 * MIB, "total": 0} == found["statistics"]["live"]
    assert 1_260 == found["estimate"]["calls_avoided"]
    assert 0.63 == found["estimate"]["seconds_saved"]
    assert ["heat.py", "--steps", "3"] == found["program"]
    assert found["served"] is True
    assert found["why_not"] is None


def test_document_of_a_run_that_served_nothing() -> None:
    """What is not known is null, and why is said."""
    found = document(NOTHING)
    assert (False, None, None) == (found["served"], found["statistics"], found["estimate"])
    assert "the program did not import NumPy" == found["why_not"]


@pytest.mark.parametrize(
    ("time", "expected"),
    [
        (0, "0 s"),
        (4.12e-7, "412 ns"),
        (1.79e-5, "17.9 µs"),
        (0.0123, "12.3 ms"),
        (0.9996, "1 s"),
        (1.234, "1.23 s"),
        (61.26, "61.3 s"),
        (99.96, "100 s"),
        (4321.4, "4,321 s"),
    ],
)
def test_seconds(time: float, expected: str) -> None:
    """Times have three digits and the unit that suits them."""
    assert expected == units.seconds(time)


@given(st.floats(1e-10, 1e7))
def test_seconds_never_need_an_exponent(time: float) -> None:
    """No time is shown as `1e+03 ns`."""
    assert "e" not in units.seconds(time)


@pytest.mark.parametrize(
    ("share", "expected"),
    [(0, "0%"), (1, "100%"), (0.5, "50%"), (0.972, "97.2%"), (0.99999, "99.9%"), (0.00001, "0.1%")],
)
def test_percent(share: float, expected: str) -> None:
    """Nothing but all is 100%, nothing but none is 0%."""
    assert expected == units.percent(share)


@pytest.mark.parametrize(
    ("number", "expected"),
    [(0, "1 - 2 B"), (9, "512 B - 1 KiB"), (10, "1 - 2 KiB"), (26, "64 - 128 MiB"), (29, "512 MiB - 1 GiB")],
)
def test_size_range(number: int, expected: str) -> None:
    """A bucket is shown by its ends, with one unit where one will do."""
    assert expected == units.size_range(1 << number, (2 << number) - 1)
