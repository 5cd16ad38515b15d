"""What a manager must do, written down as simply as it can be: the model of the state machine.

No thread caches, no tables, no locks: a dict of live blocks and, for each size, a list of cached ones.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import chain
from typing import TYPE_CHECKING, Any

from targetmem.statistics import Counters, Gauge

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Block", "ModelDevice", "ModelManager", "Refused", "Row"]

WHOLE = -1  # the row of the whole manager; the others are numbered as their buckets are


class Refused(Exception):
    """Raised when the whole ladder did not help."""


@dataclass(frozen=True)
class Block:
    """A block as handed out, and the range that the device gave for it (they differ by the padding)."""

    address: int
    size: int
    base: int
    range: int
    direct: bool = False
    owned: bool = True


@dataclass
class ModelDevice:
    """First fit over a capacity, with the allocate calls in `fail_on` refused; keeps a log of its calls."""

    first: int
    capacity: int
    min_alignment: int = 1
    fail_on: frozenset[int] = frozenset()
    ranges: dict[int, int] = field(default_factory=dict)
    calls: list[tuple[object, ...]] = field(default_factory=list)
    count: int = 0

    def allocate(self, size: int, alignment: int) -> int:
        """Give the lowest address that fits, 0 for none or when this call shall be refused."""
        self.count += 1
        self.calls.append(("allocate", size, alignment))
        address = 0 if self.count in self.fail_on else self.lowest(size, alignment)
        if address:
            self.ranges[address] = size
        return address

    def release(self, base: int, size: int) -> None:
        """Take a range back."""
        self.calls.append(("release", base, size))
        assert size == self.ranges.pop(base)

    @property
    def free(self) -> int:
        """The bytes that are in no range."""
        return self.capacity - sum(self.ranges.values())

    def lowest(self, size: int, alignment: int) -> int:
        """Give the lowest address that fits, 0 for none."""
        low = self.first
        for start, held in [*sorted(self.ranges.items()), (self.first + self.capacity, 0)]:
            low = -(-low // alignment) * alignment
            if low + size <= start:
                return low
            low = max(low, start + held)
        return 0


class Row:
    """What is counted, for a bucket or for the whole: the counters that the model knows, by name."""

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}
        self.gauges = {name: [0, 0, 0] for name in ("requested", "live", "cached", "held")}

    def add(self, gauges: dict[str, int], counts: dict[str, int]) -> None:
        """Count one event: bytes more or less in each gauge, and calls."""
        for name, change in gauges.items():
            gauge = self.gauges[name]
            gauge[0] += change
            gauge[1] = max(gauge[:2])
            gauge[2] += max(change, 0)
        for name, change in counts.items():
            self.counts[name] = self.counts.get(name, 0) + change

    def reset_peaks(self) -> None:
        """Let every peak start from now."""
        for gauge in self.gauges.values():
            gauge[1] = gauge[0]

    def counters(self, largest: int) -> Counters:
        """Give them as the manager does; time is not in the model."""
        gauges: dict[str, Any] = {name: Gauge(*gauge) for name, gauge in self.gauges.items()}
        counts: dict[str, Any] = self.counts
        return Counters(**gauges, **counts, largest_free_block=largest)


@dataclass
class ModelManager:
    """A manager of policy `exact` over a model device; `siblings` are the other managers of that device."""

    device: ModelDevice
    threshold: int
    cached_limit: int | None = None
    aligns: bool = False
    tells: bool = False  # the device tells its free memory, so that vain tries are saved
    siblings: list[ModelManager] = field(default_factory=list)
    live: dict[int, Block] = field(default_factory=dict)
    kept: dict[int, list[Block]] = field(default_factory=dict)  # by size, the newest last
    rows: dict[int, Row] = field(default_factory=lambda: {WHOLE: Row()})
    released: set[int] = field(default_factory=set)  # addresses that went back to the device
    latest_release: int = 0

    # --- calls ---

    def allocate(self, size: int, alignment: int | None = None) -> Block:
        """Give a live block; raises Refused."""
        alignment = alignment or self.device.min_alignment
        block = self._newest(size, alignment) if size <= self.threshold else None
        if block is not None:
            self._count(
                size, {"cached": -size, "live": size, "requested": size}, {"allocations": 1, "hits": 1}
            )
            self._count(size, {}, {"live_blocks": 1, "cached_blocks": -1})
        else:
            block = self._new(size, alignment)
        self.live[block.address] = replace(block, direct=size > self.threshold, owned=True)
        return self.live[block.address]

    def free(self, address: int, victims: list[int]) -> None:
        """Free a live block. `victims` are the bases that were given back to keep the limit, in order.

        Which size is given back first for the limit is the policy's choice; that it was cached, the oldest
        of its size, and needed, is checked here.
        """
        block = self.live.pop(address)
        gone = {"live": -block.size, "requested": -block.size}
        if block.direct or block.size > self.limit:
            self._give_back(block, {"frees": 1, "live_blocks": -1}, gone)
            return
        for base in victims:
            assert self.cached + block.size > self.limit, "more was given back than the limit asks for"
            self._trim_one(self._oldest_at(base))
        assert self.cached + block.size <= self.limit
        self.kept.setdefault(block.size, []).append(block)
        self._count(
            block.size, gone | {"cached": block.size}, {"frees": 1, "live_blocks": -1, "cached_blocks": 1}
        )

    def trim(self, keep: int) -> int:
        """Give the largest cached blocks back until `keep` bytes are left."""
        before = self.cached
        while self.cached > keep:
            self._trim_one(self._largest())
        return before - self.cached

    def close(self) -> None:
        """Give everything back, the cached blocks first."""
        self.trim(0)
        for block in sorted(self.live.values(), key=lambda block: block.base):
            gone = {"live": -block.size, "requested": -block.size}
            self._give_back(block, {"frees": 1, "live_blocks": -1}, gone)
        self.live.clear()

    # --- what is there ---

    @property
    def limit(self) -> float:
        """The most cached bytes."""
        return float("inf") if self.cached_limit is None else self.cached_limit

    @property
    def cached(self) -> int:
        """The cached bytes."""
        return sum(size * len(blocks) for size, blocks in self.kept.items())

    def cached_blocks(self) -> Iterator[Block]:
        """Give each cached block."""
        for blocks in self.kept.values():
            yield from blocks

    def blocks(self) -> list[Block]:
        """Give every block by address."""
        return sorted([*self.live.values(), *self.cached_blocks()], key=lambda block: block.address)

    def around(self, address: int) -> Block | None:
        """Give the block that an address lies in, the padding before and behind it included."""
        inside = (b for b in self.blocks() if b.base <= address < b.base + b.range)
        return next(inside, None)

    def counters(self, bucket: int = WHOLE) -> Counters:
        """Give what was counted, for a bucket or for the whole."""
        sizes = [block.size for block in self.cached_blocks() if bucket in (WHOLE, bucket_of(block.size))]
        return self.rows.get(bucket, Row()).counters(max(sizes, default=0))

    def reset_peaks(self) -> None:
        """Let every peak start from now."""
        for row in self.rows.values():
            row.reset_peaks()

    # --- how ---

    def _newest(self, size: int, alignment: int) -> Block | None:
        kept = self.kept.get(size, [])
        fitting = [block for block in kept if block.address % alignment == 0]
        if fitting:
            kept.remove(fitting[-1])
        return fitting[-1] if fitting else None

    def _new(self, size: int, alignment: int) -> Block:
        least = self.device.min_alignment
        extra = 0 if self.aligns else max(0, alignment - least)
        asked = alignment if self.aligns else least
        base = self._climb(size, size + extra, max(asked, least))
        address = -(-base // alignment) * alignment
        block = Block(address, size, base, size + extra)
        gauges = {"live": size, "requested": size, "held": block.range}
        kind = "direct" if size > self.threshold else "misses"
        self._count(size, gauges, {"allocations": 1, kind: 1, "device_allocations": 1, "live_blocks": 1})
        self._count(size, {}, {"padding_bytes": extra})
        return block

    def _climb(self, size: int, ask: int, alignment: int) -> int:
        for owner in chain((None,), self._ladder()):
            if owner is not None:
                owner._reclaim_one()
            if owner is not None and self.tells and self.device.free < ask:
                continue
            if base := self.device.allocate(ask, alignment):
                return base
            self._count(size, {}, {"device_failures": 1})
        if base := self.device.allocate(ask, alignment):  # after the garbage collection
            return base
        self._count(size, {}, {"device_failures": 1})
        raise Refused

    def _ladder(self) -> Iterator[ModelManager]:
        """Give the manager whose largest block goes next, as long as there is one."""
        for owner in [self, *self.siblings]:
            while owner.cached:
                yield owner

    def _reclaim_one(self) -> None:
        block = self._largest()
        self._drop(block, {"reclaims": 1, "reclaimed_bytes": block.size})

    def _trim_one(self, block: Block) -> None:
        self._drop(block, {"trims": 1, "trimmed_bytes": block.size})

    def _largest(self) -> Block:
        return self.kept[max(size for size, blocks in self.kept.items() if blocks)][0]

    def _oldest_at(self, base: int) -> Block:
        found = [blocks[0] for blocks in self.kept.values() if blocks and blocks[0].base == base]
        assert found, f"{base:#x} was given back for the limit: expected the oldest cached block of a size"
        return found[0]

    def _drop(self, block: Block, counts: dict[str, int]) -> None:
        self.kept[block.size].remove(block)
        self._give_back(block, counts | {"cached_blocks": -1}, {"cached": -block.size})

    def _give_back(self, block: Block, counts: dict[str, int], gauges: dict[str, int]) -> None:
        self.device.release(block.base, block.range)
        self.latest_release = block.address
        self.released.add(block.address)
        padding = {"padding_bytes": block.size - block.range, "device_releases": 1}
        self._count(block.size, gauges | {"held": -block.range}, counts | padding)

    def _count(self, size: int, gauges: dict[str, int], counts: dict[str, int]) -> None:
        for row in (WHOLE, bucket_of(size)):
            self.rows.setdefault(row, Row()).add(gauges, counts)


def bucket_of(size: int) -> int:
    """Give the bucket of a size: the power of two that is not above it."""
    return size.bit_length() - 1


def without_time(counters: Counters) -> Counters:
    """Give counters as the model knows them."""
    fields: dict[str, Any] = {name: getattr(counters, name) for name in Counters.__dataclass_fields__}
    return Counters(**(fields | {"device_nanoseconds": 0}))
