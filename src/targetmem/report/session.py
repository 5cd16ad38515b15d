"""The program's end of `targetmem run`: have NumPy served once it is imported, and report at the exit.

Nothing here may disturb the program: what fails is told in the report, in one line.
"""

from __future__ import annotations

import json
import os
import sys
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from typing import Protocol, Self, TextIO

    from targetmem.report.facts import Facts, PageFaults
    from targetmem.statistics import Statistics

    class Integration(Protocol):
        """What serves NumPy, as far as the report asks it."""

        @property
        def policy(self) -> str: ...
        @property
        def min_size(self) -> int: ...
        @property
        def threshold(self) -> int | None: ...
        @property
        def cached_limit(self) -> int | None: ...
        @property
        def serves(self) -> bool: ...
        def stats(self) -> Statistics: ...
        def trim(self) -> int: ...


__all__ = ["Session", "page_faults"]


def page_faults() -> PageFaults:
    """Give the page faults of this process so far."""
    from resource import RUSAGE_SELF, getrusage

    from targetmem.report.facts import PageFaults

    usage = getrusage(RUSAGE_SELF)
    return PageFaults(usage.ru_minflt, usage.ru_majflt)


class Session:
    """One run, from the launcher's start on. `settings` are those that `targetmem run` handed over.

    Modules are loaded when they are needed: most of this comes before the program's own work.
    """

    def __init__(self, settings: dict[str, Any], integration: Integration | None = None) -> None:
        self.settings = settings
        self.integration = integration
        self.why_not = "the program did not import NumPy"
        self.failed = False

    @classmethod
    def from_text(cls, text: str) -> Self:
        """Read the settings that the launcher wrote."""
        return cls(json.loads(text))

    def serve(self) -> None:
        """Serve NumPy's arrays from the pool from now on."""
        import targetmem

        try:
            pool = targetmem.install("numpy", **self._options())
        except Exception as error:  # noqa: BLE001 - whatever it is, the program goes on without the pool
            self.failed = True
            self.why_not = f"{type(error).__name__}: {error}".partition("\n")[0]
            return
        if pool.serves:
            self.integration = pool
        else:
            self.why_not = f"the threshold is below the smallest array that is pooled ({pool.min_size} bytes)"

    def finish(self) -> None:
        """Write the report to where it was asked for."""
        try:
            self._report()
        except KeyboardInterrupt:
            pass
        except Exception as error:  # noqa: BLE001 - the program is over; its exit status stays its own
            complain(f"no report: {type(error).__name__}: {error}")

    def _report(self) -> None:
        path, quiet = self.settings["json"], self.settings["quiet"]
        if quiet and self.failed:
            complain(f"no array was served: {self.why_not}")
        if quiet and path is None:
            return
        facts = self.facts()
        if path is not None:
            write(facts, path)
        if not quiet:
            show(facts, sys.__stderr__)

    def facts(self) -> Facts:
        """Put together what is known now."""
        from targetmem.report.facts import Facts, PageFaults

        facts = Facts(
            program=self.settings["program"],
            seconds=time.monotonic() - self.settings["started"],
            faults_before=PageFaults(*self.settings["page_faults"]),
            faults_after=page_faults(),
            why_not=self.why_not,
            **self._options(),
        )
        return facts if self.integration is None else with_pool(facts, self.integration)

    def _options(self) -> dict[str, Any]:
        return {name: self.settings[name] for name in ("policy", "threshold", "cached_limit")}


def with_pool(facts: Facts, pool: Integration) -> Facts:
    """Give the facts with those of the pool, which gives its freed memory back for what is measured here."""
    from dataclasses import replace
    from functools import partial

    from targetmem.report.estimate import estimate
    from targetmem.report.facts import SETTINGS
    from targetmem.report.new_blocks import measure

    statistics = pool.stats()
    measured = partial(measure, budget=statistics.cached.now)
    known: dict[str, Any] = {name: getattr(pool, name) for name in SETTINGS}
    pool.trim()
    return replace(facts, why_not="", statistics=statistics, estimate=estimate(statistics, measured), **known)


def write(facts: Facts, path: str) -> None:
    """Write the report to a file; one line on stderr says when that fails."""
    from targetmem.report import document

    try:
        document.write(facts, path)
    except OSError as error:
        complain(f"can't write {path!r}: {error.strerror}")


def show(facts: Facts, stream: TextIO | None) -> None:
    """Print the report after all that the program printed; on a terminal, as rich draws it."""
    if stream is None or stream.closed:
        return
    with suppress(Exception):  # Python will say so itself when it closes the stream
        sys.stdout.flush()
    from targetmem.report import plain

    print_text(drawn(facts, stream) or plain.text(facts), stream)


def drawn(facts: Facts, stream: TextIO) -> str:
    """Give the report for the terminal that a stream leads to; nothing where it leads elsewhere."""
    if not stream.isatty():
        return ""
    try:
        from targetmem.report import terminal
    except ImportError:
        return ""
    return terminal.text(facts, stream)


def complain(message: str) -> None:
    """Print one line on stderr, where there is one."""
    stream = sys.__stderr__
    if stream is not None and not stream.closed:
        print_text(f"targetmem: {message}\n", stream)


def print_text(text: str, stream: TextIO) -> None:
    """Write to where a stream leads, past its buffer: what can't be written must not fail at Python's end."""
    data = text.encode(stream.encoding, stream.errors or "strict")
    with suppress(OSError):
        stream.flush()
        while data:
            data = data[os.write(stream.fileno(), data) :]
