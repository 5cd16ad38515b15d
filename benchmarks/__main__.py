"""Run the benchmarks: `python -m benchmarks [--smoke] [--only NAME] [--json FILE]`."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks import arrays, buffers, c_patterns, instructions, machine, mappings, peers, programs
from benchmarks.figures import Figure, MissingError, Report, bars_table, figures_table
from benchmarks.measure import ROOT, Settings, progress

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

DISTRIBUTIONS = ("targetmem", "numpy", "pyopencl", "pocl-binary-distribution", "umf")
RESULTS = ROOT / "benchmarks" / "results"


class Session:
    """One run: what was found on this machine, and the report that grows."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.report = Report(settings.smoke, machine.describe())
        self._peers: list[peers.Peer] | None = None
        self._buffers: list[str] | None = None

    def missing(self, name: str, reason: str) -> None:
        """Note and show what cannot be measured here."""
        self.report.missing[name] = reason
        progress(f"MISSING {name}: {reason}")

    @property
    def peers(self) -> list[peers.Peer]:
        """The C peers that can be built here."""
        if self._peers is None:
            self._peers = peers.available(self.missing)
            self.report.versions |= c_patterns.versions(self._peers)
        return self._peers

    @property
    def buffers(self) -> list[str]:
        """The Python contenders that can run here."""
        if self._buffers is None:
            self._buffers = buffers.contenders(self.missing)
        return self._buffers


BENCHMARKS: dict[str, tuple[str, Callable[[Session], Iterator[Figure]]]] = {
    "hot": ("C: a hot pair, one thread", lambda s: c_patterns.hot(s.peers, s.settings)),
    "threads": ("C: two threads", lambda s: c_patterns.two_threads(s.peers, s.settings)),
    "live": ("C: among many live blocks", lambda s: c_patterns.among_live(s.peers, s.settings)),
    "statistics": ("C: what the statistics cost", lambda s: c_patterns.statistics_cost(s.settings)),
    "buffer": ("Python: a Buffer created and dropped", lambda s: buffers.pairs(s.buffers, s.settings)),
    "mapping": ("Python: an array entered and exited", lambda s: mappings.pairs(s.missing, s.settings)),
    "numpy": ("NumPy, plain and pooled", lambda s: arrays.compare(s.settings)),
    "heat": ("examples/heat.py", lambda s: programs.heat(s.settings)),
    "import": ("import targetmem", lambda s: programs.import_cost(s.settings)),
    "instructions": ("instructions a pair", lambda s: instructions.count(s.peers, s.buffers, s.settings)),
}


def arguments(argv: list[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--smoke", action="store_true", help="everything once, briefly: does it still work?")
    parser.add_argument(
        "--only",
        action="append",
        choices=list(BENCHMARKS),
        metavar="NAME",
        help=f"one of {', '.join(BENCHMARKS)}; repeatable",
    )
    parser.add_argument(
        "--json", type=Path, metavar="FILE", help="where to write the figures (default: benchmarks/results/)"
    )
    parser.add_argument("--require", action="store_true", help="a missing peer is an error")
    return parser.parse_args(argv)


def run(session: Session, names: list[str]) -> None:
    """Run benchmarks by name, showing each one's table as soon as it is there."""
    for place, name in enumerate(names, 1):
        title, benchmark = BENCHMARKS[name]
        print(f"[{place}/{len(names)}] {title}", file=sys.stderr, flush=True)
        try:
            figures = list(benchmark(session))
        except MissingError as error:
            session.missing(name, str(error))
            continue
        session.report.figures[name] = figures
        print(f"\n## {title}\n\n{figures_table(figures)}\n", flush=True)


def show_end(report: Report, seconds: float) -> None:
    """Print the machine, the versions, the bars and what was missing."""
    every = [figure for figures in report.figures.values() for figure in figures]
    if report.smoke:
        print("A smoke run: it works, but its times say nothing, so no bars are shown.")
    else:
        print(f"## Bars\n\n{bars_table(every) or 'none measured'}")
    print("\n## Where\n")
    for key, value in (report.machine | report.versions).items():
        print(f"{key:24}  {value}")
    for name, reason in report.missing.items():
        print(f"MISSING {name}: {reason}")
    print(f"\n{seconds:.0f} s")


def main(argv: list[str] | None = None) -> int:
    """Run the benchmarks that the command line asks for; a bar that is missed is shown, not an error."""
    options = arguments(argv)
    start = time.monotonic()
    session = Session(Settings(options.smoke))
    run(session, options.only or list(BENCHMARKS))
    report = session.report
    report.versions |= {name: machine.version(name) for name in DISTRIBUTIONS}
    show_end(report, time.monotonic() - start)
    path = options.json or RESULTS / f"{time.strftime('%Y-%m-%d-%H%M%S')}.json"
    report.write(path)
    print(f"written to {path}", file=sys.stderr)
    return 1 if options.require and report.missing else 0


if __name__ == "__main__":
    sys.exit(main())
