"""The report of a run: its numbers, its words, and its JSON."""

from __future__ import annotations

import io
import json
import os
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import targetmem
from targetmem.report import new_arrays, session, terminal, units
from targetmem.report.content import BUCKET_TITLES, bucket_rows
from targetmem.report.document import document, write
from targetmem.report.estimate import Estimate, NewBlock, estimate
from targetmem.report.facts import Facts, PageFaults, biggest_buckets
from targetmem.report.new_arrays import measure
from targetmem.report.plain import text
from targetmem.statistics import BucketStatistics, Gauge, Statistics

if TYPE_CHECKING:
    from pathlib import Path

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


def cost(size: int, together: int) -> NewBlock:
    """Give the cost of a new block: a nanosecond a byte, and a fault a page; two live together."""
    assert 2 == together
    return NewBlock(size * 1e-9, size / 4096)


def test_estimate_takes_new_blocks_of_the_size_of_the_reused() -> None:
    """Each hit counts with what a new block of its bucket's average size costs."""
    small = bucket(12, hits=50)
    big = bucket(26, hits=3)
    found = estimate(replace(STATISTICS, buckets=(small, big)), cost)
    assert (STATISTICS.hits, 50 * 1 + 3 * (1 << 14)) == (found.blocks_reused, found.page_faults_avoided)
    assert found.seconds_saved == pytest.approx(((50 << 12) + (3 << 26)) * 1e-9)


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

    def asked(size: int, together: int) -> NewBlock:
        raise AssertionError

    assert Estimate(0, 0, 0, 0, 0) == estimate(Statistics(), asked)
    found = estimate(Statistics(buckets=(bucket(9, hits=0, device_allocations=1000),)), asked)
    assert Estimate(0, 0, 0, 0, 0) == found
    assert "time saved       nothing, no block was reused" in text(replace(FACTS, estimate=found))


def test_new_arrays_cost_more_than_reused_ones() -> None:
    """A big array faults once a page at most, and no less than once a huge page; half of it costs half."""
    whole, half = measure(96 * MIB, 1, 64 * MIB), measure(48 * MIB, 1, 64 * MIB)
    assert whole.seconds > 0
    assert 48 <= whole.page_faults <= 96 * 256 + 1000
    assert whole.page_faults / 2 == pytest.approx(half.page_faults, rel=0.2, abs=50)
    assert measure(0, 1, 0).page_faults <= 1
    assert measure(1, 1000, 0).seconds < 1


def test_measuring_stays_within_its_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    """No more memory is taken than the pool gave back, however big the arrays were and however many."""
    taken: list[int] = []

    def cycle(size: int, count: int) -> NewBlock:
        taken.append(size * count)
        return NewBlock(1.0, 1.0)

    monkeypatch.setattr(new_arrays, "_cycle", cycle)
    for budget in (0, 20 * MIB, 1 << 40):
        new_arrays.measure(1 << 40, 100, budget)
        assert 15 * MIB <= max(taken) <= max(16 * MIB, min(budget, 144 * MIB))
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


def test_show_is_plain_where_there_is_no_terminal(tmp_path: Path) -> None:
    """A pipe or a file gets plain text, after what the program wrote there."""
    with (tmp_path / "stderr").open("w", encoding="utf-8") as stream:
        stream.write("before\n")
        session.show(FACTS, stream)
    assert "before\n" + text(FACTS) == (tmp_path / "stderr").read_text(encoding="utf-8")


def test_show_where_a_letter_is_missing(tmp_path: Path) -> None:
    """A stream that knows no `µ` gets what it makes of it."""
    path = tmp_path / "stderr"
    with path.open("w", encoding="ascii", errors="backslashreplace") as stream:
        session.show(replace(NOTHING, seconds=1e-5), stream)
    assert "10 \\xb5s" in path.read_text()


def test_show_without_a_stream(tmp_path: Path) -> None:
    """A program without stderr, or that closed it, or whose reader is gone, gets no report and no error."""
    with (tmp_path / "stderr").open("w") as closed:
        pass
    session.show(FACTS, closed)
    session.show(FACTS, None)
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w") as broken:
        session.show(FACTS, broken)
    assert "" == (tmp_path / "stderr").read_text()


SETTINGS = {
    "policy": "exact",
    "threshold": None,
    "cached_limit": 1 << 30,
    "quiet": False,
    "json": None,
    "program": ["x.py"],
    "started": 0.0,
    "page_faults": [0, 0],
}


class FakeIntegration:
    """What serves NumPy, with nothing behind it."""

    policy = "exact"
    min_size = 1 << 22
    threshold = 1 << 26
    serves = True
    cached_limit = None

    def stats(self) -> Statistics:
        """Give the statistics of the tests above."""
        return STATISTICS


def test_session_asks_what_serves(monkeypatch: pytest.MonkeyPatch) -> None:
    """The facts are those of the integration, and the settings those in force, not those asked for."""
    stopped: list[str] = []
    monkeypatch.setitem(vars(targetmem), "uninstall", stopped.append)
    facts = session.Session(dict(SETTINGS), FakeIntegration()).facts()
    assert ["numpy"] == stopped
    assert (1 << 26, None) == (facts.threshold, facts.cached_limit)
    assert STATISTICS == facts.statistics
    assert facts.estimate is not None
    assert "" == facts.why_not
    assert facts.page_faults > 0


def test_session_with_a_threshold_below_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pool that would serve no size is told as such; that is no failure."""
    pool = FakeIntegration()
    pool.serves = False
    monkeypatch.setitem(vars(targetmem), "install", lambda *_, **__: pool)
    started = session.Session(dict(SETTINGS))
    started.serve()
    assert (
        "the threshold is below the smallest array that is pooled (4194304 bytes)" == started.facts().why_not
    )
    assert not started.failed


def test_session_that_served_nothing() -> None:
    """Without an integration the facts hold the options that were given."""
    facts = session.Session(dict(SETTINGS)).facts()
    assert (None, 1 << 30, None) == (facts.statistics, facts.cached_limit, facts.threshold)
    assert "did not import NumPy" in facts.why_not


def test_session_whose_install_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    """What keeps NumPy from being served is told in one line; the program never sees it."""

    def install(*_: object, **__: object) -> None:
        raise RuntimeError("NumPy 9 is too new\nand more")

    monkeypatch.setitem(vars(targetmem), "install", install)
    started = session.Session(dict(SETTINGS))
    started.serve()
    assert "RuntimeError: NumPy 9 is too new" == started.facts().why_not
    lines: list[str] = []
    monkeypatch.setattr(session, "complain", lines.append)
    started.settings["quiet"] = True
    started.finish()
    assert ["no array was served: RuntimeError: NumPy 9 is too new"] == lines


def test_session_whose_report_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    """A report that cannot be made is one line on stderr, never an exception in the program's exit."""
    lines: list[str] = []
    monkeypatch.setattr(session, "complain", lines.append)
    session.Session({**SETTINGS, "page_faults": None}).finish()
    assert 1 == len(lines)
    assert lines[0].startswith("no report: TypeError")


def test_session_whose_file_fails(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A file that can no longer be written at the end is told in one line, and the report is printed."""
    lines: list[str] = []
    shown: list[object] = []
    monkeypatch.setattr(session, "complain", lines.append)
    monkeypatch.setattr(session, "show", lambda *arguments: shown.append(arguments))
    session.Session({**SETTINGS, "json": str(tmp_path)}).finish()
    assert [f"can't write {str(tmp_path)!r}: Is a directory"] == lines
    assert 1 == len(shown)


def test_quiet_session(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A quiet run prints nothing and writes its file all the same."""
    shown: list[object] = []
    monkeypatch.setattr(session, "show", lambda *arguments: shown.append(arguments))
    session.Session({**SETTINGS, "quiet": True, "json": str(tmp_path / "x.json")}).finish()
    assert [] == shown
    assert (tmp_path / "x.json").exists()
