"""A hundred exits of each kind in fresh processes: none crashes, none calls the plugin after deinit (L3)."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

PROGRAM = Path(__file__).parent / "program.py"
TIMES = int(os.environ.get("TEST_EXITS", "100"))
ENDS_WELL = ("normal", "live", "cycles", "daemons", "late_thread", "handler", "closed", "arrays", "unused")
STATUS = dict.fromkeys((*ENDS_WELL, "logging_deinit"), 0) | {"system_exit": 3, "exception": 1}
STATUS |= dict.fromkeys(("interrupt", "interrupt_anywhere"), -signal.SIGINT)
# The last line on stderr; the others end without a word.
LAST_WORDS = {
    "exception": "RuntimeError: uncaught, with 200 bytes",
    "interrupt": "KeyboardInterrupt",
    "interrupt_anywhere": "KeyboardInterrupt",
    "logging_deinit": "the end",
}
# An allocate call that is interrupted was logged, with nothing allocated; so were those of its ladder.
CUT_OFF = {"interrupt_anywhere": 10}


def end_once(kind: str, log: Path) -> None:
    """Run the program in a fresh process, and look at its end and at the plugin's log."""
    done = subprocess.run(
        [sys.executable, PROGRAM, log, kind], capture_output=True, text=True, check=False, timeout=120
    )
    calls = [line.split()[1] for line in log.read_text().splitlines()] if log.exists() else []
    assert STATUS[kind] == done.returncode, done.stderr
    assert LAST_WORDS.get(kind, "") == (done.stderr.strip().splitlines() or [""])[-1], done.stderr
    assert [] == wrong_calls(calls, used=kind != "unused", cut_off=CUT_OFF.get(kind, 0)), calls


def wrong_calls(calls: list[str], *, used: bool, cut_off: int = 0) -> list[str]:
    """Name what is wrong with a plugin's life, as the log tells it; so many calls may have given nothing."""
    if not used:
        return calls
    count = Counter(calls)
    rules = {
        "init is not the first call": calls[:1] == ["init"],
        "deinit is not the last call": calls[-1:] == ["deinit"],
        "deinit_device is not the last but one": calls[-2:-1] == ["deinit_device"],
        "one of them came twice": all(
            count[name] == 1 for name in ("init", "deinit", "init_device", "deinit_device")
        ),
        "something was not given back": 0 <= count["allocate"] - count["release"] <= cut_off,
        "nothing was given back": count["release"] > 0,
        "a call was not refused": "not_refused" not in count,
    }
    return [text for text, holds in rules.items() if not holds]


@pytest.mark.slow
@pytest.mark.parametrize("kind", STATUS)
def test_exits(kind: str, tmp_path: Path) -> None:
    """Each of a hundred processes has its exit status, says what it must, and ends its plugin in order."""
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(end_once, [kind] * TIMES, [tmp_path / str(number) for number in range(TIMES)]))


@pytest.mark.parametrize(
    ("calls", "wrong"),
    [
        ("init init_device allocate release deinit_device deinit", []),
        ("init init_device allocate allocate release deinit_device deinit", ["something was not given back"]),
        ("init init_device deinit_device deinit", ["nothing was given back"]),
        ("init_device init allocate release deinit_device deinit", ["init is not the first call"]),
        (
            "init init_device allocate deinit_device deinit release",
            ["deinit is not the last call", "deinit_device is not the last but one"],
        ),
        ("init init_device allocate release deinit_device deinit_device deinit", ["one of them came twice"]),
    ],
)
def test_the_rules_bite(calls: str, wrong: list[str]) -> None:
    """A log that breaks a rule is seen to."""
    assert wrong == wrong_calls(calls.split(), used=True)
