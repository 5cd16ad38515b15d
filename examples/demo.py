"""Run the heat equation with the pool and without, each in a fresh process, and compare: `make demo`."""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

HEAT = Path(__file__).with_name("heat.py")


class Run(NamedTuple):
    """What one process took, and the result that it printed."""

    seconds: float
    page_faults: int
    checksum: str


def run(command: list[str]) -> Run:
    """Run one process to its end."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    start = time.perf_counter()
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    seconds = time.perf_counter() - start
    if done.returncode:
        sys.exit(f"demo: {' '.join(command)} ended with status {done.returncode}; its error stands above")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    faults = after.ru_minflt - before.ru_minflt
    return Run(seconds, faults, done.stdout.split()[-1])


def compare(program: list[str], rounds: int, report: Path) -> dict[str, list[Run]]:
    """Run the program in turn as it is and with the pool, which writes its report."""
    pooled = ["-m", "targetmem", "run", "--quiet", "--json", str(report)]
    ways = {"plain Python": program, "targetmem run": [*pooled, *program]}
    runs: dict[str, list[Run]] = {name: [] for name in ways}
    for number in range(rounds):
        for name, arguments in ways.items():
            print(f"  {name}, {number + 1} of {rounds} ...", flush=True)
            runs[name].append(run([sys.executable, *arguments]))
    return runs


def show(runs: dict[str, list[Run]], report: Path) -> None:
    """Print both times and page faults, and what came of it."""
    print(f"\n{'':16}{'wall time':>10}{'page faults':>14}")
    seconds = {name: statistics.median(each.seconds for each in found) for name, found in runs.items()}
    faults = {name: statistics.median(each.page_faults for each in found) for name, found in runs.items()}
    for name in runs:
        print(f"{name:16}{seconds[name]:8.2f} s{faults[name]:14,.0f}")
    plain, pooled = runs
    print(f"{'ratio':16}{seconds[pooled] / seconds[plain]:10.2f}{faults[pooled] / faults[plain]:14.2f}")
    served = json.loads(report.read_text())["statistics"]
    print(f"\n{served['allocations']} arrays came from the pool, {served['hits']} of them from freed memory.")


def main() -> None:
    """Do what the command line says."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=2, help="runs of each kind (2)")
    parser.add_argument("--size", type=int, default=3000)
    parser.add_argument("--steps", type=int, default=100)
    args = parser.parse_args()
    program = [str(HEAT), "--size", str(args.size), "--steps", str(args.steps)]
    print(f"{os.path.relpath(HEAT)}: {args.steps} steps on {args.size} x {args.size} points, in NumPy")
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        runs = compare(program, args.rounds, report)
        show(runs, report)
    if len({each.checksum for found in runs.values() for each in found}) != 1:
        sys.exit("demo: expected the same result from each run, got different ones")


if __name__ == "__main__":
    main()
