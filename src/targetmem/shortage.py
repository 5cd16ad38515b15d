"""Why a device is out of memory: the text and the numbers of `OutOfDeviceMemory`.

The first reason that explains the refusal is told, with the one setting that would have helped; where none
would, it says so.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from targetmem.errors import OutOfDeviceMemory
from targetmem.sizes import format_size
from targetmem.tags import any_tag, tag_name

if TYPE_CHECKING:
    from collections.abc import Callable

    from targetmem.abc import Limit
    from targetmem.manager import MemoryManager

T = TypeVar("T")

__all__ = ["Reason", "Shortage", "build", "explain", "live_tags"]

MOST_TAGS = 3
# Looking at every block costs a microsecond for each; an error that a program handles shall not take long.
MOST_BLOCKS = 100_000


@dataclass(frozen=True, slots=True)
class Shortage:
    """What is known at a refusal; bytes, None where the device cannot tell.

    `live` and `padding` are those of the manager that was asked, `held_by_all` what all managers of the
    device hold, `limit` one that holds below the device's capacity.
    """

    requested: int
    live: int = 0
    cached: int = 0
    largest_free_block: int = 0
    padding: int = 0
    held_by_all: int = 0
    free: int | None = None
    total: int | None = None
    limit: Limit | None = None
    cached_limit: int | None = None
    tags: tuple[tuple[str, int], ...] = ()


class Reason(NamedTuple):
    """Why, in a word and in a sentence, and what would have helped."""

    word: str
    text: str
    hint: str


def build(manager: MemoryManager, requested: int, reason: str, native: int | None) -> OutOfDeviceMemory:
    """Build the error for a request of so many bytes that a manager could not serve."""
    shortage = _measure(manager, requested)
    why = explain(shortage, reason)
    return OutOfDeviceMemory(
        f"{manager.name}: out of memory: {format_size(requested)} ({requested} bytes) requested: {why.text}; "
        f"{_numbers(shortage)}; {why.hint}",
        reason=why.word,
        requested=requested,
        live=shortage.live,
        cached=shortage.cached,
        largest_free_block=shortage.largest_free_block,
        limit=shortage.limit.bytes if shortage.limit else None,
        device_free=shortage.free,
        device_total=shortage.total,
        padding=shortage.padding,
        tags=shortage.tags,
        hint=why.hint,
        native=native,
    )


def _measure(manager: MemoryManager, requested: int) -> Shortage:
    counters = manager.counters()
    free, total = _ask(manager.device_memory) or (None, None)
    return Shortage(
        requested=requested,
        live=counters.live.now,
        cached=counters.cached.now,
        largest_free_block=counters.largest_free_block,
        padding=counters.padding_bytes,
        held_by_all=sum(other.counters().held.now for other in manager.siblings()),
        free=free,
        total=total,
        limit=_ask(manager.device_limit),
        cached_limit=manager.cached_limit,
        tags=live_tags(manager, counters.live_blocks)[:MOST_TAGS],
    )


def _ask(question: Callable[[], T]) -> T | None:
    """Ask the plugin for what would explain the error; its failure shall not hide that error."""
    with suppress(Exception):
        return question()
    return None


def live_tags(manager: MemoryManager, blocks: int) -> tuple[tuple[str, int], ...]:
    """Give each tag of live blocks with its bytes, the biggest first; none when there are too many blocks."""
    if blocks > MOST_BLOCKS or not any_tag():
        return ()
    sums: dict[str, int] = {}
    for block in manager.blocks():
        if block.live and (name := tag_name(block.tag)):
            sums[name] = sums.get(name, 0) + block.size
    return tuple(sorted(sums.items(), key=lambda item: -item[1]))


def explain(s: Shortage, reason: str = "refused") -> Reason:
    """Give the first reason that explains why the device refused."""
    if reason == "overflow":
        return Reason("overflow", "with padding the size does not fit an address", "ask for less")
    if reason == "metadata":
        text = "no host memory is left for the manager's own tables"
        return Reason("metadata", text, "no setting of targetmem helps: free host memory")
    return _from_limit(s) or _from_size(s) or _from_use(s)


def _from_limit(s: Shortage) -> Reason | None:
    if s.limit is None or (0 if s.limit.single else s.held_by_all) + s.requested <= s.limit.bytes:
        return None
    if s.limit.single:
        text = f"no single allocation may be larger than {format_size(s.limit.bytes)} ({s.limit.setting})"
        return Reason("limit", text, "no setting of targetmem helps: ask for less at a time")
    text = f"a limit of {format_size(s.limit.bytes)} is in force"
    return Reason("limit", text, f"raise {s.limit.setting}")


def _from_size(s: Shortage) -> Reason | None:
    if s.total is not None and s.requested > s.total:
        text = f"the device has {format_size(s.total)} in all"
        return Reason("capacity", text, "no setting of targetmem helps: ask for less, or use a larger device")
    if s.free is not None and s.free >= s.requested:
        text = f"the device has {format_size(s.free)} free, but not in one piece"
        verb = "set" if s.cached_limit is None else "lower"
        hint = f"{verb} cached_limit (TARGETMEM_CACHED_LIMIT), so that fewer blocks spread over the device"
        return Reason("fragmentation", text, hint)
    return None


def _from_use(s: Shortage) -> Reason:
    if s.free is None or s.total is None:
        hint = "no setting of targetmem is known to help: free live memory, or ask for less"
        return Reason("refused", "the device refused and does not tell its free memory", hint)
    if s.padding + s.free >= s.requested:
        text = f"{format_size(s.padding)} are lost to padding for alignment"
        return Reason("padding", text, "ask for smaller alignments")
    others = s.total - s.free - s.held_by_all
    if others > s.held_by_all:
        text = f"{format_size(others)} of the device are used by another process or library"
        return Reason("other process", text, "no setting of targetmem helps: end it, or use another device")
    text = f"live memory fills the device ({format_size(s.held_by_all)} of {format_size(s.total)})"
    return Reason("capacity", text, "no setting of targetmem helps: free live memory, or use a larger device")


def _numbers(s: Shortage) -> str:
    sizes = {
        "live": s.live,
        "cached": s.cached,
        "largest free block": s.largest_free_block,
        "padding": s.padding,
    }
    parts = [f"{name} {format_size(size)}" for name, size in sizes.items()]
    parts.append(f"limit {format_size(s.limit.bytes) if s.limit else 'none'}")
    if s.free is not None and s.total is not None:
        parts.append(f"device {format_size(s.free)} free of {format_size(s.total)}")
    if s.tags:
        parts.append("biggest live: " + ", ".join(f"{name} {format_size(size)}" for name, size in s.tags))
    return ", ".join(parts)
