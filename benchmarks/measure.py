"""Measure contenders in turn, so that a slow phase of the machine hits all of them alike."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, Self

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

ROOT = Path(__file__).resolve().parents[1]
BUILD = ROOT / "build" / "benchmarks"
# What would change a contender behind our back.
TUNING = (
    "LIBOMPTARGET_",
    "OMP_",
    "KMP_",
    "MALLOC_",
    "GLIBC_",
    "MIMALLOC_",
    "UMF_",
    "TARGETMEM_",
    "LD_PRELOAD",
)
# One thread for the numerical libraries: what is measured is memory, not how many cores are free.
ONE_THREAD = {
    "OPENBLAS_NUM_THREADS": "1",
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "PYTHONHASHSEED": "0",
}


@dataclass(frozen=True)
class Settings:
    """How long to measure."""

    smoke: bool

    def rounds(self, full: int) -> int:
        """Give the number of rounds: `full`, or 3 in a smoke run."""
        return 3 if self.smoke else full

    def nanoseconds(self, full: float) -> float:
        """Give the length of one batch: `full`, or a tenth of it in a smoke run."""
        return full / 10 if self.smoke else full


class Contender(Protocol):
    """Anything that has a name and answers a command with numbers."""

    @property
    def name(self) -> str:
        """The column's head."""

    def ask(self, command: str) -> list[float]:
        """Run a command and give the numbers of the answer."""


class Server:
    """A child process that answers each line on its stdin with one line of numbers on its stdout."""

    def __init__(self, name: str, command: Sequence[str | Path]) -> None:
        self.name = name
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
            env=environment(),
            cwd=ROOT,
        )

    def line(self, command: str) -> str:
        """Send one command and give the line of the answer."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(command + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        if not answer:
            raise RuntimeError(f"{self.name}: no answer to {command!r}, exit status {self.process.wait()}")
        return answer.strip()

    def ask(self, command: str) -> list[float]:
        """Send one command and give the numbers of the answer."""
        return [float(word) for word in self.line(command).split()]

    def close(self) -> None:
        """Let the child come to its end and check its exit status."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        if status := self.process.wait(timeout=120):
            raise RuntimeError(f"{self.name}: exit status {status}")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None:
            self.close()
        else:
            self.process.kill()
            self.process.wait()


def environment(**more: str) -> dict[str, str]:
    """Give the environment for measured programs: no tuning variables, one thread for numerical libraries."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith(TUNING)}
    return {**kept, **ONE_THREAD, **more}


def interleave(
    contenders: Sequence[Contender], commands: Mapping[str, str], rounds: int
) -> dict[str, list[list[float]]]:
    """Ask each contender its command, in turn, each round starting with another one."""
    answers: dict[str, list[list[float]]] = {contender.name: [] for contender in contenders}
    for turn in range(rounds):
        start = turn % len(contenders)
        for contender in [*contenders[start:], *contenders[:start]]:
            answers[contender.name].append(contender.ask(commands[contender.name]))
    return answers


def column(answers: Mapping[str, list[list[float]]], index: int = 0) -> dict[str, float]:
    """Give each contender's median of one number of its answers."""
    return {name: statistics.median(row[index] for row in rows) for name, rows in answers.items()}


def ratio(answers: Mapping[str, list[list[float]]], over: str, under: str, index: int = 0) -> float:
    """Give the median over the rounds of one contender's number divided by another's of the same round."""
    pairs = zip(answers[over], answers[under], strict=True)
    return statistics.median(a[index] / b[index] for a, b in pairs)


def calibrate(contender: Contender, command: str, nanoseconds: float) -> str:
    """Fill the number of repetitions into a command (at {count}) so that it takes that long."""
    count = 10
    for share in (0.1, 1.0):  # ten repetitions tell too little of a short one
        once = max(contender.ask(command.format(count=count))[0], 0.5)
        count = max(10, int(share * nanoseconds / once))
    return command.format(count=count)


def measure(
    contenders: Sequence[Contender], command: str, settings: Settings, rounds: int, nanoseconds: float
) -> dict[str, list[list[float]]]:
    """Calibrate a command for each contender, then ask them in turn."""
    batch = settings.nanoseconds(nanoseconds)
    commands = {contender.name: calibrate(contender, command, batch) for contender in contenders}
    return interleave(contenders, commands, settings.rounds(rounds))


@dataclass(frozen=True)
class Run:
    """One run of a program."""

    seconds: float
    cpu_seconds: float
    page_faults: int
    output: str


def run_program(command: Sequence[str | Path], **more: str) -> Run:
    """Run a program to its end; a non-zero exit status is an error that shows its output."""
    start = time.perf_counter()
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=environment(**more),
        cwd=ROOT,
    )
    assert process.stdout is not None
    output = process.stdout.read()
    process.stdout.close()
    _, status, usage = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - start
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RuntimeError(f"{' '.join(map(str, command))}: exit status {process.returncode}\n{output}")
    return Run(seconds, usage.ru_utime + usage.ru_stime, usage.ru_minflt, output)


def alternate(commands: Mapping[str, Callable[[], Run]], rounds: int) -> dict[str, list[Run]]:
    """Run programs in turn; the first to start changes from round to round."""
    runs: dict[str, list[Run]] = {name: [] for name in commands}
    for turn in range(rounds):
        names: Iterable[str] = commands if turn % 2 else list(commands)[::-1]
        for name in names:
            runs[name].append(commands[name]())
    return runs


def progress(text: str) -> None:
    """Tell on stderr what is being measured."""
    print(f"  {text}", file=sys.stderr, flush=True)
