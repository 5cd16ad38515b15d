"""What can be chosen about simulated devices, and how each choice is read from a file or a variable."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any

from targetmem.config import parse_flag, parse_limit
from targetmem.sizes import parse_size

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = ["READERS", "SimulatedOptions"]

MISBEHAVIOURS = ("misaligned", "overlapping", "live", "raise")


def _read_count(value: object) -> int:
    if not str(value).isdecimal() or int(str(value)) < 1:
        raise ValueError(f"expected a number from 1 on, got {value!r}")
    return int(str(value))


def _read_seconds(value: object) -> float:
    try:
        seconds = float(str(value))
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds < float("inf"):
        raise ValueError(f"expected seconds (0.001), got {value!r}")
    return seconds


def _read_latency(value: object) -> dict[str, float]:
    table = value if isinstance(value, dict) else {"": value}
    return {str(method): _read_seconds(seconds) for method, seconds in table.items()}


def _read_rate(value: object) -> float:
    try:
        rate = float(str(value))
    except ValueError:
        rate = -1.0
    if not 0 <= rate <= 1:
        raise ValueError(f"expected a share from 0 to 1, got {value!r}")
    return rate


def _read_seed(value: object) -> int:
    if not str(value).isdecimal():
        raise ValueError(f"expected a number from 0 on, got {value!r}")
    return int(str(value))


def _read_calls(value: object) -> frozenset[int]:
    if isinstance(value, int):
        value = (value,)
    elif isinstance(value, str):
        value = value.replace(",", " ").split()
    if not isinstance(value, (list, tuple, set, frozenset, range)):
        raise ValueError(f"expected numbers of calls, counted from 1 (3,5), got {value!r}")  # noqa: TRY004
    return frozenset(_read_count(number) for number in value)


def _read_misbehaviours(value: object) -> dict[int, str]:
    if isinstance(value, str):
        value = dict(part.partition("=")[::2] for part in value.replace(",", " ").split())
    if not isinstance(value, dict) or not set(value.values()) <= set(MISBEHAVIOURS):
        raise ValueError(
            f"expected 3=misaligned and the like (one of {', '.join(MISBEHAVIOURS)}), got {value!r}"
        )
    return {_read_count(number): what for number, what in value.items()}


def _read_alignment(value: object) -> int:
    alignment = parse_size(value)
    if alignment.bit_count() != 1:
        raise ValueError(f"expected a power of two, got {value!r}")
    return alignment


def _read_refusal(value: object) -> str:
    if value not in ("null", "error"):
        raise ValueError(f"expected null or error, got {value!r}")
    return str(value)


def _option(read: Callable[[object], Any], default: object) -> Any:
    return field(default=default, metadata={"read": read})


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedOptions:
    """What can be chosen about simulated devices. Sizes are bytes, or text like "64MiB".

    The devices: `devices` is how many there are; `capacity` what each has. `largest_range` bounds one
    request; ranges are cut first fit and never moved, so the capacity fragments as a real device's does.
    Every address is a multiple of `min_alignment`; with `aligns` any alignment is honoured. `latency` is how
    long a call takes, in seconds: one number, or one by the call's name ("allocate", "release", "submit",
    ...). `threshold` is the default that the plugin asks the manager for, 0 for no manager.

    The faults: `fail_on` are the allocate calls that are refused, counted from 1 over all devices;
    `fail_rate` is the share of the others that is refused at random, from `seed`; `refusal` is "null" or
    "error". `misbehave` gives what an allocate call does instead, by its number: "misaligned", "overlapping",
    "live" (an address that is handed out already) or "raise" (an error that does not mean out of memory).
    `fail_release_on` are the release calls that raise and release nothing. `fail_init` makes `init` raise,
    `fail_init_device` `init_device`.

    `log` names a file to which each call is appended as it begins.

    Raises ValueError for a value that cannot be used.
    """

    devices: int = _option(_read_count, 1)
    capacity: int = _option(parse_limit, 1 << 30)
    largest_range: int | None = _option(parse_limit, None)
    min_alignment: int = _option(_read_alignment, 64)
    aligns: bool = _option(parse_flag, default=False)
    latency: Mapping[str, float] = _option(_read_latency, 0)
    threshold: int | None = _option(parse_size, None)
    fail_on: frozenset[int] = _option(_read_calls, ())
    fail_rate: float = _option(_read_rate, 0)
    seed: int = _option(_read_seed, 0)
    refusal: str = _option(_read_refusal, "null")
    misbehave: Mapping[int, str] = _option(_read_misbehaviours, "")
    fail_release_on: frozenset[int] = _option(_read_calls, ())
    fail_init: bool = _option(parse_flag, default=False)
    fail_init_device: bool = _option(parse_flag, default=False)
    log: str | None = _option(str, None)

    def __post_init__(self) -> None:
        for name, read in READERS.items():
            if (value := getattr(self, name)) is not None:
                object.__setattr__(self, name, _named(name, read, value))


READERS: Mapping[str, Callable[[object], Any]] = {
    item.name: item.metadata["read"] for item in fields(SimulatedOptions)
}


def _named(name: str, read: Callable[[object], Any], value: object) -> Any:
    try:
        return read(value)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None
