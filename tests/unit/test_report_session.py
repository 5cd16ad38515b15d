"""The program's end of a run: what it asks, where the report goes, and that it never disturbs the program."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

import targetmem
from targetmem.report import session
from targetmem.report.plain import text
from targetmem.statistics import Statistics
from tests.unit.run_facts import FACTS, NOTHING, STATISTICS

if TYPE_CHECKING:
    from pathlib import Path


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

    def trim(self) -> int:
        """Give back nothing."""
        return 0


def test_session_asks_what_serves() -> None:
    """The facts are those of the integration, and the settings those in force, not those asked for."""
    facts = session.Session(dict(SETTINGS), FakeIntegration()).facts()
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
