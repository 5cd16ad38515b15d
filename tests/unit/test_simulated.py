"""The simulated target: its memory, its faults, its log."""

from __future__ import annotations

import ctypes
import gc
import threading
import time
import weakref
from itertools import chain
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from targetmem.errors import PluginError
from targetmem.plugins.ranges import AddressSpace
from targetmem.plugins.simulated import SimulatedOutOfMemory, SimulatedPlugin

if TYPE_CHECKING:
    from pathlib import Path

KiB = 1024


def started(**options: Any) -> SimulatedPlugin:
    """Give a plugin that is initialised."""
    plugin = SimulatedPlugin(**options)
    plugin.name = "simulated"
    plugin.init()
    return plugin


def take(plugin: SimulatedPlugin, size: int = 64, alignment: int = 64) -> int:
    """Allocate on device 0."""
    return plugin.allocate(0, size, "device", alignment)


def give_back(plugin: SimulatedPlugin, address: int, size: int = 64) -> None:
    """Release on device 0."""
    plugin.release(0, address, size, "device")


def test_the_capacity_is_all_there_is() -> None:
    """Requests are served until the capacity is used up, and again after a release."""
    plugin = started(capacity="4K")
    addresses = [take(plugin, KiB) for _ in range(4)]
    assert 0 == take(plugin, 1)
    assert (0, 4 * KiB) == plugin.memory_info(0)
    give_back(plugin, addresses[1], KiB)
    assert addresses[1] == take(plugin, KiB)


def test_the_address_space_fragments() -> None:
    """Free bytes that lie apart serve no request of their sum."""
    plugin = started(capacity="4K")
    addresses = [take(plugin, KiB) for _ in range(4)]
    for address in addresses[::2]:
        give_back(plugin, address, KiB)
    info = plugin.memory_info(0)
    assert 2 * KiB == info.free
    assert 0 == take(plugin, 2 * KiB)
    give_back(plugin, addresses[1], KiB)
    assert addresses[0] == take(plugin, 3 * KiB)


def test_a_range_is_bounded() -> None:
    """No range is larger than largest_range, however much is free."""
    plugin = started(capacity="1M", largest_range="4K")
    assert 0 == take(plugin, 4 * KiB + 1)
    assert take(plugin, 4 * KiB)


@given(st.lists(st.tuples(st.integers(1, 300), st.sampled_from([1, 2, 64, 256])), max_size=60), st.randoms())
def test_first_fit(requests: list[tuple[int, int]], random: Any) -> None:
    """Ranges are aligned, inside and apart; what is given back can be taken again, down to one whole gap."""
    space = AddressSpace(64, 4096)
    taken: dict[int, int] = {}
    for size, alignment in requests:
        if taken and random.random() < 0.4:
            address = random.choice(sorted(taken))
            assert taken.pop(address) == space.give_back(address)
        address = space.take(size, alignment)
        if address is not None:
            taken[address] = size
            assert 0 == address % alignment
    assert sorted(taken.items()) == space.ranges()
    ends = [0, *chain.from_iterable((a, a + s) for a, s in space.ranges()), 64 + 4096]
    assert sorted(ends) == ends
    for address in taken:
        space.give_back(address)
    assert 64 == space.take(4096, 64)


@pytest.mark.parametrize("refusal", ["null", "error"])
def test_the_nth_call_fails(refusal: str) -> None:
    """Exactly the chosen calls are refused, as null or as an error with a native status."""
    plugin = started(fail_on=[2, 4], refusal=refusal)
    served: list[int] = []
    for _ in range(5):
        try:
            served.append(bool(take(plugin)))
        except SimulatedOutOfMemory as error:
            served.append(error.native)
    refused = False if refusal == "null" else 2
    assert [True, refused, True, refused, True] == served


def test_random_failures_can_be_had_again() -> None:
    """The same seed gives the same refusals, another one others; about as many as the rate says."""
    runs = [
        [bool(take(plugin)) for _ in range(500)]
        for plugin in (started(fail_rate=0.3, seed=s) for s in (1, 1, 2))
    ]
    assert runs[0] == runs[1]
    assert runs[0] != runs[2]
    assert 100 < runs[0].count(False) < 200


def test_misbehaviour() -> None:
    """The chosen calls give a misaligned, an overlapping, a live address, or raise what is no refusal."""
    plugin = started(misbehave={2: "misaligned", 3: "overlapping", 4: "live", 5: "raise"})
    first, second = take(plugin, 256), take(plugin, 256)
    assert 1 == second % 64
    assert second < take(plugin, 256) < second + 256
    assert second == take(plugin, 256)
    with pytest.raises(PluginError, match="allocate 5 failed"):
        take(plugin)
    assert [(first, 256), (second, 256)] == plugin.ranges(0)
    give_back(plugin, second, 256)


def test_a_release_fails() -> None:
    """The chosen release raises and gives nothing back."""
    plugin = started(fail_release_on=1)
    address = take(plugin)
    with pytest.raises(PluginError, match="release 1 failed"):
        give_back(plugin, address)
    assert [(address, 64)] == plugin.ranges(0)
    give_back(plugin, address)
    assert [] == plugin.ranges(0)


def test_wrong_releases_are_seen() -> None:
    """An address that was not handed out, one released twice and a wrong size are errors."""
    plugin = started()
    address = take(plugin)
    for wrong, size in ((address + 1, 64), (address, 63), (12345, 64)):
        with pytest.raises(PluginError, match="expected a range"):
            give_back(plugin, wrong, size)


def test_latency_is_taken_by_call() -> None:
    """A call takes at least the time that was chosen for it; others take none of it."""
    plugin = started(latency={"allocate": 0.02})
    before = time.monotonic()
    address = take(plugin)
    assert time.monotonic() - before >= 0.02
    assert 0 == plugin.chosen.latency.get("release", 0)
    give_back(plugin, address)


def test_threads_wait_together() -> None:
    """Calls of several threads take their time side by side: no lock is held meanwhile."""
    plugin = started(latency=0.05)
    inside = []

    def work() -> None:
        take(plugin)
        inside.append(time.monotonic())

    threads = [threading.Thread(target=work) for _ in range(20)]
    begun = time.monotonic()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert 20 == len(inside)
    assert max(inside) - begun < 20 * 0.05


def test_the_log_has_every_call(tmp_path: Path) -> None:
    """Each call is in `calls` and in the file, from init to deinit, with arguments and what allocate gave."""
    plugin = started(log=str(tmp_path / "log"))
    plugin.init_device(0)
    address = take(plugin)
    give_back(plugin, address)
    plugin.deinit_device(0)
    plugin.deinit()
    methods = ["init", "init_device", "allocate", "release", "deinit_device", "deinit"]
    assert methods == [call.method for call in plugin.calls]
    assert (0, 64, "device", 64) == plugin.calls[2].arguments
    assert address == plugin.calls[2].result
    lines = (tmp_path / "log").read_text().splitlines()
    assert methods == [line.split()[1] for line in lines]
    assert f"release 0 {address} 64 device" in lines[3]


@pytest.mark.parametrize("when", ["before init", "after deinit"])
def test_calls_out_of_order_are_seen(when: str) -> None:
    """A call before init or after deinit raises, and stands in the log."""
    plugin = SimulatedPlugin()
    if when == "after deinit":
        plugin.init()
        plugin.deinit()
    with pytest.raises(PluginError, match="out of order"):
        take(plugin)
    assert "allocate" == plugin.calls[-1].method


def test_init_fails() -> None:
    """Chosen failures of init and init_device are raised."""
    with pytest.raises(PluginError, match="fail_init"):
        started(fail_init=True)
    with pytest.raises(PluginError, match="fail_init_device"):
        started(fail_init_device=True).init_device(0)


def test_addresses_of_devices_never_meet() -> None:
    """The same first request gives another address on another device."""
    plugin = started(devices=3)
    assert 3 == len({plugin.allocate(device, 64, "device", 64) for device in range(3)})


def test_memory_is_kept_until_it_is_released() -> None:
    """What is written can be read, bytes never written are marked, and a new range starts unwritten."""
    plugin = started()
    host = ctypes.create_string_buffer(8)
    address = take(plugin, 8)
    plugin.fill(0, address + 2, b"ab", 2)
    plugin.retrieve(0, ctypes.addressof(host), address, 8)
    assert b"\xa5\xa5abab\xa5\xa5" == host.raw
    give_back(plugin, address, 8)
    assert address == take(plugin, 8)
    plugin.retrieve(0, ctypes.addressof(host), address, 8)
    assert b"\xa5" * 8 == host.raw


def test_transfers_outside_are_seen() -> None:
    """A transfer to memory that is not handed out, or beyond its end, is an error."""
    plugin = started()
    address = take(plugin, 8)
    for wrong, count in ((address + 1, 8), (address - 1, 1), (12345, 1)):
        with pytest.raises(PluginError, match="expected memory handed out"):
            plugin.fill(0, wrong, b"x", count)


class Owner:
    """Something in a cycle that owns memory."""

    def __init__(self) -> None:
        self.itself = self


def test_a_finaliser_may_release(monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory that the garbage collector releases in the middle of another call is released, no hang."""
    plugin, taking = started(), AddressSpace.take

    def take_and_collect(space: AddressSpace, size: int, alignment: int, offset: int = 0) -> int | None:
        gc.collect()
        return taking(space, size, alignment, offset)

    monkeypatch.setattr(AddressSpace, "take", take_and_collect)
    first = take(plugin)
    weakref.finalize(Owner(), give_back, plugin, first)
    second = take(plugin)
    assert ["allocate", "allocate", "release"] == [call.method for call in plugin.calls[1:]]
    assert [(second, 64)] == plugin.ranges(0)


@pytest.mark.parametrize(
    "options",
    [
        {"capacity": 0},
        {"capacity": "8X"},
        {"devices": 0},
        {"min_alignment": 3},
        {"latency": -1},
        {"latency": {"allocate": "slow"}},
        {"fail_on": [0]},
        {"fail_on": 1.5},
        {"fail_rate": 2},
        {"seed": "x"},
        {"refusal": "maybe"},
        {"misbehave": {1: "badly"}},
        {"misbehave": "1"},
        {"aligns": "perhaps"},
    ],
    ids=repr,
)
def test_bad_options(options: dict[str, object]) -> None:
    """An option that cannot be used is an error with its name, what was expected, and what it got."""
    with pytest.raises(ValueError, match=rf"^{next(iter(options))}: expected .*, got "):
        SimulatedPlugin(**options)


def test_an_unknown_option() -> None:
    """An option that does not exist is refused."""
    with pytest.raises(TypeError, match="capacitance"):
        SimulatedPlugin(capacitance=5)
