"""The exceptions: one base, picklable with all they say, documented; and why a device is out of memory."""

from __future__ import annotations

import pickle
from dataclasses import replace

import pytest

from targetmem import errors
from targetmem.abc import Limit
from targetmem.errors import ConfigError, InvalidFree, OutOfDeviceMemory, PluginError, TargetMemoryError
from targetmem.shortage import Shortage, explain

MiB = 1 << 20
FULL = Shortage(requested=10 * MiB, live=90 * MiB, held_by_all=95 * MiB, free=5 * MiB, total=100 * MiB)

EXAMPLES = [
    TargetMemoryError("base", native=7),
    OutOfDeviceMemory(
        "oom", reason="limit", requested=1, live=2, cached=3, largest_free_block=4, limit=5, device_free=6,
        device_total=7, padding=8, tags=(("a", 9),), hint="do", native=10,
    ),
    InvalidFree("free", address=1, size=2, hit_address=3, hit_size=4, reason="interior", native=5),
    PluginError("plugin", plugin="opencl", hint="install it", native=-5),
    ConfigError("config", where="here:1", key="threshold", value="8X"),
]  # fmt: skip


@pytest.mark.parametrize("error", EXAMPLES, ids=lambda error: type(error).__name__)
def test_errors_survive_pickling(error: TargetMemoryError) -> None:
    """An error that a worker process raises arrives with its text and with everything that it says."""
    again = pickle.loads(pickle.dumps(error))
    assert type(error) is type(again)
    assert (str(error), vars(error)) == (str(again), vars(again))


@pytest.mark.parametrize("name", errors.__all__)
def test_every_class_says_when(name: str) -> None:
    """Each exception's docstring says when it is raised, each warning's when it is given."""
    kind = getattr(errors, name)
    first = "Given when" if issubclass(kind, Warning) else "Raised when"
    assert str(kind.__doc__).startswith(first)
    assert issubclass(kind, Warning | TargetMemoryError)


def test_what_else_they_are() -> None:
    """Out of memory is a MemoryError, a bad setting a ValueError, an unknown device a LookupError."""
    assert issubclass(OutOfDeviceMemory, MemoryError)
    assert issubclass(ConfigError, ValueError)
    assert issubclass(errors.UnknownDevice, LookupError)
    assert issubclass(errors.NotSupported, PluginError)


@pytest.mark.parametrize(
    ("shortage", "word", "hint"),
    [
        (FULL, "capacity", "free live memory"),
        (replace(FULL, requested=101 * MiB), "capacity", "ask for less"),
        (replace(FULL, free=20 * MiB), "fragmentation", "TARGETMEM_CACHED_LIMIT"),
        (replace(FULL, padding=6 * MiB), "padding", "smaller alignments"),
        (replace(FULL, held_by_all=10 * MiB), "other process", "another device"),
        (replace(FULL, limit=Limit(100 * MiB, "ulimit -v")), "limit", "raise ulimit -v"),
        (replace(FULL, limit=Limit(500 * MiB, "ulimit -v")), "capacity", "free live memory"),
        (replace(FULL, free=None, total=None), "refused", "free live memory"),
    ],
)
def test_why(shortage: Shortage, word: str, hint: str) -> None:
    """Each cause of a refusal is told from the others, with the setting that would have helped, if any."""
    reason = explain(shortage)
    assert word == reason.word
    assert hint in reason.hint


@pytest.mark.parametrize("word", ["overflow", "metadata"])
def test_why_the_core_knows(word: str) -> None:
    """What the core itself found out is told as it is, whatever the device says."""
    assert word == explain(FULL, word).word


def test_set_or_lower() -> None:
    """The hint asks to set a limit where there is none, and to lower one that is there."""
    apart = replace(FULL, free=20 * MiB)
    assert explain(apart).hint.startswith("set cached_limit")
    assert explain(replace(apart, cached_limit=MiB)).hint.startswith("lower cached_limit")
