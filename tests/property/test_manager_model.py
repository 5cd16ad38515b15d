"""A manager against the model: whatever is done, in whatever order, both do the same.

After each step: the same addresses, blocks, statistics (whole and by bucket), errors and calls of the
device. `HYPOTHESIS_PROFILE=thorough` looks longer; a failure prints its steps and a line that repeats it.
"""

from __future__ import annotations

import gc
import warnings
from itertools import count, islice
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import event
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from targetmem import MemoryManager
from targetmem._core import Backend
from targetmem.config import POLICIES
from targetmem.errors import DeviceClosed, InvalidFree, LeakWarning, OutOfDeviceMemory, PluginError
from targetmem.plugins.simulated import FIRST_ADDRESS, SimulatedPlugin
from tests.property.model import WHOLE, Block, ModelDevice, ModelManager, Refused, bucket_of, without_time
from tests.property.pairs import Pair, as_told

if TYPE_CHECKING:
    from collections.abc import Callable

    from targetmem import Buffer

KiB = 1 << 10
GROUPS = count(1 << 32)
MODELS = {"exact": ModelManager}

# Few sizes, so that blocks are found again, and some that are near each other or of one bucket.
SIZES = st.sampled_from([1, 7, 64, 65, 96, 100, 127, 128, 1000, 1024, 4095, 4096, 4097, 8192, 8193, 20_000])
ALIGNMENTS = st.sampled_from([1, 2, 64, 256, 4096])
WHICH = st.integers(0, 1)
PLACE = st.integers(0, 1 << 16)


class ManagerMachine(RuleBasedStateMachine):
    """Two managers of one simulated device, which reclaim from each other."""

    @initialize(
        capacity=st.sampled_from([8 * KiB, 40 * KiB, 200 * KiB, 4096 * KiB]),
        min_alignment=st.sampled_from([1, 64]),
        aligns=st.booleans(),
        refusal=st.sampled_from(["null", "error"]),
        tells=st.booleans(),
        fail_on=st.frozensets(st.integers(1, 40), max_size=6),
        thresholds=st.tuples(*[st.sampled_from([0, 1, 100, 4096, 8192, 1 << 30])] * 2),
        limits=st.tuples(*[st.sampled_from([None, None, 1, 100, 5000, 30_000])] * 2),
    )
    def start(
        self,
        capacity: int,
        min_alignment: int,
        aligns: bool,
        refusal: str,
        tells: bool,
        fail_on: frozenset[int],
        thresholds: tuple[int, ...],
        limits: tuple[int | None, ...],
    ) -> None:
        """Make the device, the managers, and their models."""
        self.plugin = SimulatedPlugin(
            capacity=capacity, min_alignment=min_alignment, aligns=aligns, refusal=refusal, fail_on=fail_on
        )
        self.plugin.init()
        gc.freeze()  # each refusal collects garbage: not in what the tests themselves keep
        self.seen = 0  # of the device's calls
        self.device = ModelDevice(FIRST_ADDRESS, capacity, min_alignment, fail_on)
        group, plugin = next(GROUPS), self.plugin
        self.pairs = []
        for threshold, limit in zip(thresholds, limits, strict=True):
            backend = Backend(
                lambda size, alignment: plugin.allocate(0, size, "device", alignment),
                lambda address, size: plugin.release(0, address, size, "device"),
                min_alignment=min_alignment,
                aligns=aligns,
                memory_info=(lambda: plugin.memory_info(0)) if tells else None,
            )
            manager = MemoryManager(backend=backend, threshold=threshold, cached_limit=limit, group=group)
            model = ModelManager(self.device, threshold, limit, aligns, tells)
            self.pairs.append(Pair(manager, model, plugin))
        for pair, other in (self.pairs, self.pairs[::-1]):
            pair.model.siblings.append(other.model)

    # --- allocate ---

    @rule(which=WHICH, size=SIZES)
    def allocate(self, which: int, size: int) -> None:
        """A request is served, or refused, as in the model."""
        self._allocate(self.pairs[which], size)

    @rule(which=WHICH, size=SIZES, alignment=ALIGNMENTS)
    def allocate_aligned(self, which: int, size: int, alignment: int) -> None:
        """The same with an alignment, which holds for cached blocks too."""
        self._allocate(self.pairs[which], size, alignment)

    @rule(
        which=WHICH, size=st.sampled_from([1, 64, 100, 1000]), number=st.integers(2, 150), back=st.booleans()
    )
    def burst(self, which: int, size: int, number: int, back: bool) -> None:
        """Many blocks of one size at once: more than a thread keeps for itself."""
        pair = self.pairs[which]
        asked = iter(lambda: self._allocate(pair, size), None)  # ends when one is refused
        blocks: list[Any] = list(islice(asked, number))
        for block in blocks[::-1] if back else blocks:
            self._free(pair, block, pair.buffers[block.address].release)

    @rule(which=WHICH)
    def allocate_nothing(self, which: int) -> None:
        """A request of 0 bytes is empty and reaches nobody; negative ones are errors."""
        manager = self.pairs[which].manager
        assert (0, 0) == ((empty := manager.allocate(0)).pointer, empty.size)
        for wrong in (-1, -(1 << 70)):
            with pytest.raises(ValueError, match="expected 0 bytes or more"):
                manager.allocate(wrong)

    # --- free ---

    @rule(which=WHICH, place=PLACE, how=st.sampled_from(["release", "drop", "free", "with size", "with"]))
    def free_buffer(self, which: int, place: int, how: str) -> None:
        """However a Buffer is given up, its block is free once."""
        pair = self.pairs[which]
        if (block := pair.pick(place, owned=True)) is None or pair.closed:
            return
        buffer = pair.buffers[block.address]
        ways: dict[str, Callable[[], object]] = {
            "release": buffer.release,
            "drop": lambda: None,  # the last reference goes in `_free`
            "free": lambda: pair.manager.free(buffer),
            "with size": lambda: pair.manager.free(buffer, block.size),
            "with": lambda: buffer.__exit__(None, None, None),
        }
        way = ways.pop(how)
        if how == "drop":
            del buffer
            ways.clear()
        self._free(pair, block, way)

    @rule(which=WHICH, place=PLACE)
    def detach(self, which: int, place: int) -> None:
        """A detached block is nobody's but the caller's; its Buffer is empty."""
        pair = self.pairs[which]
        if (block := pair.pick(place, owned=True)) is None or pair.closed:
            return
        buffer = pair.buffers.pop(block.address)
        assert block.address == buffer.detach()
        assert (0, 0) == (buffer.pointer, buffer.detach())
        pair.model.live[block.address] = Block(
            block.address, block.size, block.base, block.range, block.direct, owned=False
        )

    @rule(which=WHICH, place=PLACE, sized=st.booleans())
    def free_pointer(self, which: int, place: int, sized: bool) -> None:
        """A detached address is freed by the manager, with its size or without."""
        pair = self.pairs[which]
        if (block := pair.pick(place, owned=False)) is None or pair.closed:
            return
        size = block.size if sized else None
        self._free(pair, block, lambda: pair.manager.free(block.address, size))

    # --- free wrongly ---

    @rule(which=WHICH, place=PLACE, more=st.sampled_from([-1, 1, 1 << 20]))
    def free_with_a_wrong_size(self, which: int, place: int, more: int) -> None:
        """A size that is not the requested one is refused, for an address and for a Buffer."""
        pair = self.pairs[which]
        if (block := pair.pick(place)) is not None and not pair.closed:
            what = pair.buffers[block.address] if block.owned else block.address
            self._refused(pair, "size_mismatch", block, what, block.size + more)

    @rule(which=WHICH, place=PLACE)
    def free_what_a_buffer_owns(self, which: int, place: int) -> None:
        """The bare address of an owned block is refused, and a Buffer by the other manager."""
        pair, other = self.pairs[which], self.pairs[1 - which]
        if (block := pair.pick(place, owned=True)) is None or pair.closed:
            return
        self._refused(pair, "owned", block, block.address)
        if not other.closed:
            self._refused_as_anothers(other, pair.buffers[block.address])

    @rule(which=WHICH, place=PLACE)
    def free_twice(self, which: int, place: int) -> None:
        """A cached block is free already."""
        pair = self.pairs[which]
        cached = list(pair.model.cached_blocks())
        if cached and not pair.closed:
            block = cached[place % len(cached)]
            self._refused(pair, "double_free", block, block.address)

    @rule(which=WHICH, place=PLACE, offset=st.integers(1, 5000))
    def free_inside(self, which: int, place: int, offset: int) -> None:
        """An address inside a block, live or cached, or in its padding, is refused."""
        pair = self.pairs[which]
        large = [block for block in pair.model.blocks() if block.range > 1]
        if large and not pair.closed:
            block = large[place % len(large)]
            address = block.base + offset % block.range
            if address != block.address:
                self._refused(pair, "interior", block, address)

    @rule(which=WHICH)
    def free_what_went_back(self, which: int) -> None:
        """An address that went back to the device, and that it did not hand out again, is free already."""
        pair = self.pairs[which]
        address = pair.model.latest_release
        if address and pair.model.around(address) is None and not pair.closed:
            self._refused(pair, "double_free", None, address)

    @rule(which=WHICH, size=SIZES, sized=st.booleans())
    def free_foreign(self, which: int, size: int, sized: bool) -> None:
        """An address that the manager never gave out goes to the device's own release."""
        pair, least = self.pairs[which], self.device.min_alignment
        address = self.plugin.allocate(0, size, "device", least) if self._may_call_directly(size) else 0
        assert address == (self.device.allocate(size, least) if address else 0)
        if not address:
            return
        event("foreign")
        ours = pair.closed or address in pair.model.released
        self.device.release(address, size)
        if ours:
            self.plugin.release(0, address, size, "device")
        else:
            pair.manager.free(address, size if sized else None)
            self.device.calls[-1] = ("release", address, size if sized else 0)

    @rule(which=WHICH)
    def free_nobodys(self, which: int) -> None:
        """When the device does not know such an address either, its error is the caller's."""
        pair = self.pairs[which]
        address = FIRST_ADDRESS + (1 << 41)
        if pair.closed:
            return
        with pytest.raises(PluginError, match="expected a range, got none"):
            pair.manager.free(address)
        self.device.calls.append(("release", address, 0))
        pair.manager.free(None)
        pair.manager.free(0)

    # --- the rest ---

    @rule(which=WHICH, keep=st.sampled_from([0, 1, 100, 5000, 1 << 40]))
    def trim(self, which: int, keep: int) -> None:
        """The largest blocks go first, no more than must."""
        pair = self.pairs[which]
        given = pair.manager.trim(keep)
        assert given == (0 if pair.closed else pair.model.trim(keep))

    @rule(which=WHICH)
    def reset_peaks(self, which: int) -> None:
        """Every peak starts anew."""
        self.pairs[which].manager.reset_peaks()
        self.pairs[which].model.reset_peaks()

    @precondition(lambda self: len(self.plugin.calls) > 100)
    @rule(which=WHICH)
    def close(self, which: int) -> None:
        """All goes back; later requests are refused, later frees do nothing."""
        pair = self.pairs[which]
        self._close(pair)
        with pytest.raises(DeviceClosed, match="closed"):
            pair.manager.allocate(100)
        for buffer in pair.buffers.values():
            buffer.release()
        pair.buffers.clear()
        pair.manager.free(FIRST_ADDRESS)

    # --- what holds after each step ---

    @invariant()
    def the_device_got_the_same_calls(self) -> None:
        """Calls, their order and arguments, and what is held."""
        new = self.plugin.calls[self.seen :]
        self.seen += len(new)
        assert self.device.calls == [told for call in new if (told := as_told(call))]
        assert sorted(self.device.ranges.items()) == self.plugin.ranges(0)
        self.device.calls.clear()

    @invariant()
    def the_blocks_are_the_same(self) -> None:
        """Addresses, sizes, who is live, who is owned, and the core's own walk over its structures."""
        for pair in self.pairs:
            pair.manager.check()
            live = pair.model.live
            expected = [
                (
                    b.address,
                    b.size,
                    b.address in live,
                    b.direct and b.address in live,
                    b.owned and b.address in live,
                )
                for b in pair.model.blocks()
            ]
            found = [(b.address, b.size, b.live, b.direct, b.owned) for b in pair.manager.blocks()]
            assert expected == found

    @invariant()
    def the_statistics_are_the_same(self) -> None:
        """Every number but the time, for the whole and for each bucket."""
        for pair in self.pairs:
            stats = pair.manager.stats()
            assert pair.model.counters() == without_time(stats)
            found = {bucket_of(bucket.smallest): without_time(bucket) for bucket in stats.buckets}
            used = [n for n, row in pair.model.rows.items() if n != WHOLE and row.counts.get("allocations")]
            assert {number: pair.model.counters(number) for number in used} == found
            assert stats.device_nanoseconds >= pair.nanoseconds
            pair.nanoseconds = stats.device_nanoseconds

    def teardown(self) -> None:
        """Close what is open: the device has everything back."""
        gc.unfreeze()
        for pair in getattr(self, "pairs", []):
            self._close(pair)
        if hasattr(self, "plugin"):
            assert [] == self.plugin.ranges(0)

    # --- how ---

    def _allocate(self, pair: Pair, size: int, alignment: int | None = None) -> Block | None:
        def ask() -> Buffer:
            manager = pair.manager
            return manager.allocate(size) if alignment is None else manager.allocate_aligned(size, alignment)

        if pair.closed:
            return None
        try:
            block = pair.model.allocate(size, alignment)
        except Refused:
            event("out of memory")
            with pytest.raises(OutOfDeviceMemory) as caught:
                ask()
            self._check_text(pair, size, caught.value)
            return None
        buffer = ask()
        assert (block.address, size) == (buffer.pointer, buffer.size)
        pair.buffers[block.address] = buffer
        return block

    def _check_text(self, pair: Pair, size: int, error: OutOfDeviceMemory) -> None:
        counters = pair.model.counters()
        assert (size, counters.live.now, 0, counters.padding_bytes) == (
            error.requested,
            error.live,
            error.cached,
            error.padding,
        )

    def _free(self, pair: Pair, block: Block, how: Callable[[], object]) -> None:
        before = len(self.plugin.calls)
        buffer = pair.buffers.pop(block.address, None)
        how()
        del buffer
        released = [c.arguments[1] for c in self.plugin.calls[before:] if c.method == "release"]
        pair.model.free(block.address, [int(str(base)) for base in released if base != block.base])

    def _refused(self, pair: Pair, reason: str, hit: Block | None, *call: Any) -> None:
        reasons = []
        try:
            pair.manager.free(*call)
        except InvalidFree as error:  # pytest.raises would keep the Buffer in its traceback
            reasons = [error.reason, error.hit_address, error.hit_size]
        expected = [reason, *((hit.address, hit.size) if hit else (0, 0))]
        assert expected == reasons

    def _refused_as_anothers(self, other: Pair, buffer: Buffer) -> None:
        told = ""
        try:
            other.manager.free(buffer)
        except ValueError as error:
            told = str(error)
        assert "another manager" in told

    def _may_call_directly(self, size: int) -> bool:
        return self.device.count + 1 not in self.device.fail_on and bool(self.device.lowest(size, 64))

    def _close(self, pair: Pair) -> None:
        if pair.closed:
            return
        leaks = len(pair.model.live)
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            pair.manager.close()
        assert [LeakWarning] * bool(leaks) == [warning.category for warning in told]
        pair.model.close()
        pair.closed = True


def test_every_policy_has_its_model() -> None:
    """A new policy comes with a model of how it keeps and finds free blocks."""
    assert set(POLICIES) == set(MODELS)


TestManager = ManagerMachine.TestCase
