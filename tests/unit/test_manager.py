"""`MemoryManager`: over any two functions, its numbers, its errors, its end."""

from __future__ import annotations

import ctypes
import gc
import pickle
import weakref
from typing import Any

import pytest

import targetmem
from targetmem import MemoryManager
from targetmem._core import Backend
from targetmem.config import Settings
from targetmem.errors import (
    ConfigError,
    DeviceClosed,
    InvalidFree,
    LeakWarning,
    OutOfDeviceMemory,
    PluginError,
    TargetMemoryWarning,
)


class Functions:
    """Two functions over addresses that mean nothing, with a log and a limit in bytes."""

    def __init__(self, limit: int = 1 << 40) -> None:
        self.calls: list[tuple[str, int, int]] = []
        self.held: dict[int, int] = {}
        self.limit = limit
        self._next = 1 << 40

    def allocate(self, size: int, alignment: int) -> int | None:
        """Give a new address, None over the limit."""
        self.calls.append(("allocate", size, alignment))
        if sum(self.held.values()) + size > self.limit:
            return None
        self._next += 1 << 30
        self.held[self._next] = size
        return self._next

    def release(self, address: int, size: int) -> None:
        """Take an address back."""
        self.calls.append(("release", address, size))
        assert size == self.held.pop(address)

    def manager(self, **options: Any) -> MemoryManager:
        """Give a manager over the two."""
        return MemoryManager(self.allocate, self.release, **options)


def test_one_line_over_two_functions() -> None:
    """A manager over two functions reuses what is freed, and gives all back when closed."""
    functions = Functions()
    with MemoryManager(allocate=functions.allocate, release=functions.release, threshold="1MiB") as manager:
        address = manager.allocate(1000).pointer
        assert address == manager.allocate(1000).pointer
        assert 1 == len(functions.calls)
        assert (1 << 20, "exact") == (manager.threshold, manager.policy)
    assert {} == functions.held


def test_c_functions_by_address() -> None:
    """The two functions may be C functions given by address."""
    held: list[int] = []
    allocate_type = ctypes.CFUNCTYPE(
        ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t, ctypes.POINTER(ctypes.c_void_p)
    )
    release_type = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)

    def allocate(_context: int, size: int, _alignment: int, out: Any) -> int:
        held.append(size)
        out[0] = 1 << 40
        return 0

    def release(_context: int, _address: int, size: int) -> int:
        held.remove(size)
        return 0

    functions = allocate_type(allocate), release_type(release)
    addresses = [ctypes.cast(function, ctypes.c_void_p).value or 0 for function in functions]
    with MemoryManager(*addresses) as manager:
        assert 1 << 40 == manager.allocate(100).pointer
        assert [100] == held
    assert [] == held


@pytest.mark.parametrize("functions", [(), (max,), (None, max), (max, 5), (5, max), ("f", "g")], ids=repr)
def test_no_memory_to_manage(functions: tuple[Any, ...]) -> None:
    """Anything but two functions, two addresses or a backend is an error that says what is wanted."""
    with pytest.raises(TypeError, match="MemoryManager: expected two functions"):
        MemoryManager(*functions)


def test_settings_are_checked() -> None:
    """A setting that cannot be used is an error that names it."""
    for options in ({"threshold": "8X"}, {"threshold": -1}, {"cached_limit": 0}, {"policy": "best"}):
        with pytest.raises(ConfigError, match=f"^{next(iter(options))}: expected"):
            Functions().manager(**options)


def test_the_environment_holds_for_managers_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """A manager that belongs to no device has the settings that hold for all."""
    monkeypatch.setenv("TARGETMEM_THRESHOLD", "64K")
    monkeypatch.setenv("TARGETMEM_CACHED_LIMIT", "1M")
    manager = Functions().manager()
    assert (65536, 1 << 20) == (manager.threshold, manager.cached_limit)
    assert 5 == Functions().manager(threshold=5).threshold


def test_statistics() -> None:
    """Every number is that of what was done: per manager and per bucket."""
    manager = Functions().manager(threshold=4096)
    kept = [manager.allocate(100), manager.allocate(5000)]
    for size in (100, 2000, 2000):
        manager.allocate(size).release()
    stats = manager.stats()
    assert (5, 1, 3, 1, 3) == (stats.allocations, stats.hits, stats.misses, stats.direct, stats.frees)
    assert (5100, 7100, 9200) == stats.requested
    assert (2100, 2) == (stats.cached.now, stats.cached_blocks)
    assert (7200, 2000) == (stats.held.now, stats.largest_free_block)
    assert (4, 0, 0) == (stats.device_allocations, stats.device_releases, stats.device_failures)
    assert 0.2 == stats.hit_rate
    assert [(64, 127, 2), (1024, 2047, 2), (4096, 8191, 1)] == [
        (bucket.smallest, bucket.largest, bucket.allocations) for bucket in stats.buckets
    ]
    assert stats.allocations == sum(bucket.allocations for bucket in stats.buckets)
    assert 0.0 == Functions().manager().stats().hit_rate
    del kept


def test_out_of_memory_says_why() -> None:
    """The error has the numbers of the manager, the biggest tags, and can be pickled."""
    manager = Functions(limit=10_000).manager(name="scratch")
    with targetmem.tagged("weights"):
        weights = manager.allocate(6000)
    with targetmem.tagged("small"):
        small = manager.allocate(300)
    with pytest.raises(OutOfDeviceMemory, match=r"^scratch: out of memory: 3\.9 KiB") as caught:
        manager.allocate(4000)
    error = pickle.loads(pickle.dumps(caught.value))
    assert (4000, 6300, 0) == (error.requested, error.live, error.cached)
    assert (("weights", 6000), ("small", 300)) == error.tags
    assert "biggest live: weights 5.9 KiB, small 300 B" in str(error)
    assert "\n" not in str(error)
    assert isinstance(error, MemoryError)
    del weights, small


def test_what_a_device_tells_explains_its_refusal() -> None:
    """With a backend that tells its memory, the error says how much is free and of what."""
    functions = Functions(limit=1000)
    backend = Backend(functions.allocate, functions.release, memory_info=lambda: (400, 1000))
    manager = MemoryManager(backend=backend)
    live = manager.allocate(600)
    with pytest.raises(OutOfDeviceMemory, match="live memory fills the device") as caught:
        manager.allocate(500)
    assert ("capacity", 400, 1000) == (
        caught.value.reason,
        caught.value.device_free,
        caught.value.device_total,
    )
    del live


def test_overflow_is_out_of_memory() -> None:
    """A size that fits no address is an out-of-memory error, never a wrap, and reaches no function."""
    functions = Functions()
    manager = functions.manager()
    with pytest.raises(OutOfDeviceMemory):
        manager.allocate((1 << 64) - 8)
    with pytest.raises(OutOfDeviceMemory):
        manager.allocate_aligned((1 << 64) - 1, 4096)
    assert {} == functions.held


def test_a_failure_of_the_function_is_the_cause() -> None:
    """An exception that means no refusal ends as a PluginError chained from it, with its native status."""

    def allocate(_size: int, _alignment: int) -> int:
        raise PluginError("bus error", native=-5)

    manager = MemoryManager(allocate, Functions().release)
    with pytest.raises(
        PluginError, match=r"allocate of 10 B failed in the plugin: PluginError: bus error"
    ) as caught:
        manager.allocate(10)
    assert "bus error" == str(caught.value.__cause__)
    assert -5 == caught.value.native
    assert not isinstance(caught.value, MemoryError)


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        (lambda a: a + 1, "expected an aligned address"),
        (lambda a: a - 64 if a > (1 << 40) + 64 else a, "expected new memory"),
    ],
)
def test_a_function_that_breaks_the_contract(wrong: Any, told: str) -> None:
    """A misaligned address and one that is handed out already are errors that name the address."""
    addresses = iter(range((1 << 40) + 64, 1 << 41, 64))
    backend = Backend(
        lambda size, alignment: wrong(next(addresses)), lambda address, size: None, min_alignment=64
    )
    manager = MemoryManager(backend=backend, name="odd")
    with pytest.raises(PluginError, match=f"odd: allocate of 64 bytes: {told}.*0x"):
        kept = [manager.allocate(64) for _ in range(2)]  # noqa: F841
    assert manager.counters().live_blocks <= 1


def test_invalid_frees_say_what_they_hit() -> None:
    """Each wrong free is an error with the address, the block it hit, and what to do."""
    manager = Functions().manager(name="m")
    address = manager.allocate(100).detach()
    cases = {
        "interior": ((address + 8,), "8 bytes inside the block of 100 bytes"),
        "size_mismatch": ((address, 99), "expected the size that was requested, 100 bytes, got 99"),
    }
    for reason, (call, told) in cases.items():
        with pytest.raises(InvalidFree, match=told) as caught:
            manager.free(*call)
        assert (reason, address, 100) == (
            caught.value.reason,
            caught.value.hit_address,
            caught.value.hit_size,
        )
    manager.free(address)
    with pytest.raises(InvalidFree, match="already free") as caught:
        manager.free(address)
    assert ("double_free", address, None) == (caught.value.reason, caught.value.address, caught.value.size)
    owned = manager.allocate(50)
    with pytest.raises(InvalidFree, match="belongs to a Buffer"):
        manager.free(owned.pointer)


def test_close_tells_leaks_once() -> None:
    """Live blocks are told when a manager is closed, by tag; a second close says nothing."""
    manager = Functions().manager(name="m")
    with targetmem.tagged("weights"):
        kept = [manager.allocate(1000), manager.allocate(24)]
    with pytest.warns(LeakWarning, match="^m: closed with 2 live blocks, 1 KiB requested: weights 1 KiB"):
        manager.close()
    manager.close()
    assert manager.closed
    for buffer in kept:
        buffer.release()
    with pytest.raises(DeviceClosed, match="m: closed"):
        manager.allocate(10)


def test_leaks_by_call_site() -> None:
    """With call sites, each live block is told with the line that allocated it, and its tag."""
    manager = Functions().manager(call_sites=True)
    plain = manager.allocate(10)
    with targetmem.tagged("weights"):
        tagged = manager.allocate_aligned(20, 64)
    line = plain_line() - 3
    with pytest.warns(LeakWarning) as told:
        manager.close()
    text = str(told[0].message)
    assert f"{__file__}:{line} 10 B" in text
    assert f"weights {__file__}:{line + 2}" in text
    del plain, tagged


def plain_line() -> int:
    """Give the line of the caller."""
    import inspect

    frame = inspect.currentframe()
    assert frame is not None
    assert frame.f_back is not None
    return frame.f_back.f_lineno


def test_call_sites_leave_tags_alone() -> None:
    """Recording a call site puts the thread's tag back, also when the request fails."""
    manager = Functions(limit=100).manager(call_sites=True)
    plain = Functions().manager()
    with targetmem.tagged("mine"):
        with pytest.raises(OutOfDeviceMemory):
            manager.allocate(1000)
        buffer = plain.allocate(10)
    assert "mine" == targetmem.tags.tag_name(plain.blocks()[0].tag)
    del buffer


def test_a_failing_release_is_told_on_close() -> None:
    """A block that the function would not take back is not lost in silence."""

    def release(_address: int, _size: int) -> None:
        raise OSError("gone")

    manager = MemoryManager(Functions().allocate, release)
    manager.allocate(10).release()
    with pytest.warns(TargetMemoryWarning, match="failed to take 1 block"):
        manager.close()


def test_a_manager_goes_with_its_last_user() -> None:
    """A manager that nobody uses any more gives its memory back; a buffer keeps it alive until then."""
    functions = Functions()
    manager = functions.manager()
    gone = weakref.ref(manager)
    buffer = manager.allocate(10)
    del manager
    gc.collect()
    assert gone() is not None
    del buffer
    gc.collect()
    assert gone() is None
    assert {} == functions.held


def test_ready_settings() -> None:
    """Settings that were resolved before are taken as they are."""
    manager = Functions().manager(settings=Settings(threshold=7, cached_limit=9))
    assert (7, 9) == (manager.threshold, manager.cached_limit)
    assert "7" not in repr(manager)
    assert "0 B live" in repr(manager)


@pytest.mark.parametrize("when", ["trim", "ladder"])
def test_a_failing_release_is_no_cause_of_a_refusal(when: str) -> None:
    """A release that failed before, or on the way, is not told as the reason why memory ran out."""

    def release(_address: int, _size: int) -> None:
        raise OSError("gone")

    manager = MemoryManager(Functions(limit=1000).allocate, release)
    manager.allocate(600).release()
    if when == "trim":
        manager.trim()
    with pytest.raises(OutOfDeviceMemory) as caught:
        manager.allocate(900)
    assert caught.value.__cause__ is None


def test_a_failing_direct_release_is_raised() -> None:
    """A direct block that the function does not take back is an error of the free, with its cause."""

    def release(_address: int, _size: int) -> None:
        raise PluginError("gone", native=9)

    manager = MemoryManager(Functions().allocate, release, threshold=0)
    address = manager.allocate(100).detach()
    with pytest.raises(
        PluginError, match=r"release of 100 bytes at 0x.* failed.*: PluginError: gone"
    ) as caught:
        manager.free(address)
    assert 9 == caught.value.native


def test_a_manager_in_a_cycle_with_its_functions() -> None:
    """A cycle of a manager and its functions is collected with all memory given back by them, still whole."""
    released = []

    class Owner:
        def __init__(self) -> None:
            self.manager = MemoryManager(self.allocate, lambda address, size: self.release(address))
            self.manager.allocate(20).release()

        def allocate(self, size: int, alignment: int) -> int:
            return size << 20

        def release(self, address: int) -> None:
            released.append(address)

    owner = Owner()
    gone = weakref.ref(owner.manager)
    del owner
    gc.collect()
    assert gone() is None
    assert [20 << 20] == released
