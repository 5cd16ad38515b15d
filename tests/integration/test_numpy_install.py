"""install, uninstall and pooled: who serves when, what is refused, and what is left behind."""

from __future__ import annotations

import gc
import sys
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import targetmem
from targetmem import integrations
from targetmem.errors import ConfigError, TargetMemoryError
from targetmem.integrations import numpy as integration
from tests.integration.arrays import MIB, attached, bytes_of, fresh_pool

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(autouse=True)
def nothing_installed() -> Iterator[None]:
    """Start without a pool, and leave NumPy as it was."""
    gc.collect()
    assert not attached()
    yield
    targetmem.uninstall("numpy")
    gc.collect()
    assert not attached()


def test_install_and_uninstall() -> None:
    """From install to uninstall big arrays are served; afterwards NumPy's own handler is in place again."""
    pool = targetmem.install("numpy")
    assert attached()
    allocations = pool.stats().allocations
    bytes_of(5 * MIB, 1)
    assert allocations + 1 == pool.stats().allocations
    targetmem.uninstall("numpy")
    assert not attached()
    bytes_of(5 * MIB, 1)
    assert allocations + 1 == pool.stats().allocations
    assert 0 == pool.stats().held.now


def test_arrays_outlive_the_pool() -> None:
    """A pooled array stays valid after uninstall and can be resized; the last one takes the handler out."""
    pool = targetmem.install("numpy")
    first, second = bytes_of(5 * MIB, 1), bytes_of(6 * MIB, 2)
    targetmem.uninstall("numpy")
    first.resize(8 * MIB, refcheck=False)
    assert (first[: 5 * MIB] == 1).all()
    assert (second == 2).all()
    assert attached()
    assert 2 == pool.live_blocks
    del first
    assert attached()
    assert pool.stats().cached.now == 0
    del second
    assert not attached()
    assert 0 == pool.stats().held.now


def test_arrays_from_before() -> None:
    """An array from before install stays with NumPy: it is read, resized and freed while a pool serves."""
    arrays = [bytes_of(size, 7) for size in (1, 1000, 5 * MIB, 40 * MIB)]
    with fresh_pool(min_size=1):
        for array in arrays:
            array.resize(2 * array.size, refcheck=False)
            assert (array[: array.size // 2] == 7).all()
        arrays.clear()
        del array


def test_installing_again() -> None:
    """The same options give the same pool, no options too; another one is an error that names it."""
    pool = targetmem.install("numpy", cached_limit="64MiB")
    assert pool is targetmem.install("numpy", cached_limit=64 * MIB)
    assert pool is targetmem.install("numpy")
    with pytest.raises(
        TargetMemoryError, match=r"installed with cached_limit=67108864, got cached_limit=.*uninstall"
    ):
        targetmem.install("numpy", cached_limit="32MiB")
    targetmem.uninstall("numpy")
    assert pool is not targetmem.install("numpy", cached_limit="32MiB")
    targetmem.uninstall("numpy")
    targetmem.uninstall("numpy")
    assert pool is targetmem.install("numpy", cached_limit="64MiB")


def test_nested_blocks() -> None:
    """A block without options goes on with the pool that serves; one with options has its own."""
    outer = targetmem.install("numpy")
    with targetmem.pooled("numpy") as same:
        assert same is outer
        with targetmem.pooled("numpy", min_size=MIB) as inner:
            count = inner.stats().allocations
            bytes_of(2 * MIB, 1)
            assert count + 1 == inner.stats().allocations
        targetmem.uninstall("numpy")
        count = outer.stats().allocations
        bytes_of(5 * MIB, 1)
        assert count + 1 == outer.stats().allocations
    assert not attached()


def test_blocks_that_overlap() -> None:
    """Blocks that end in another order than they began, as those of threads do, each end their own pool."""
    first, second = targetmem.pooled("numpy", min_size=MIB), targetmem.pooled("numpy", min_size=2 * MIB)
    one, two = first.__enter__(), second.__enter__()
    first.__exit__(None, None, None)
    before = one.stats().allocations, two.stats().allocations
    bytes_of(5 * MIB, 1)
    assert (before[0], before[1] + 1) == (one.stats().allocations, two.stats().allocations)
    second.__exit__(None, None, None)
    assert not attached()


def test_a_block_that_raises() -> None:
    """An exception leaves the block, and the pool stops serving."""
    with pytest.raises(ZeroDivisionError), targetmem.pooled("numpy"):
        assert 1 / (not attached())
    assert not attached()


def test_arrays_of_several_pools() -> None:
    """Each array goes back to the pool that it came from, whichever serves meanwhile."""
    with targetmem.pooled("numpy", min_size=MIB, cached_limit="64MiB") as one:
        first = bytes_of(5 * MIB, 1)
        with targetmem.pooled("numpy", min_size=MIB, cached_limit="65MiB") as two:
            second = bytes_of(5 * MIB, 2)
            del first
            assert (0, 1) == (one.live_blocks, two.live_blocks)
            assert 0 == one.stats().held.now
        assert (second == 2).all()
        second.resize(9 * MIB, refcheck=False)
        assert (0, 1) == (one.live_blocks, two.live_blocks)
    del second
    assert 0 == two.stats().held.now


def test_the_limit_of_freed_memory() -> None:
    """No more than cached_limit bytes are kept, and the sizes in use push out those that are not."""
    with fresh_pool(cached_limit="64MiB") as pool:
        for size in range(4, 40, 2):
            bytes_of(size * MIB, 1)
            assert pool.stats().cached.now <= 64 * MIB
        hits = pool.stats().hits
        for _ in range(3):
            bytes_of(5 * MIB, 1)
        assert hits + 2 <= pool.stats().hits
        assert pool.stats().cached.peak <= 64 * MIB


def test_trim() -> None:
    """Trimming gives freed memory back to the system, as much as is asked for."""
    with fresh_pool() as pool:
        arrays = [bytes_of(5 * MIB, 1) for _ in range(4)]
        arrays.clear()
        cached = pool.stats().cached.now
        assert cached >= 20 * MIB
        assert pool.trim(10 * MIB) >= cached - 10 * MIB
        assert pool.stats().cached.now <= 10 * MIB
        assert pool.trim() + pool.stats().cached.now == pool.stats().cached.now + 10 * MIB


def test_a_threshold() -> None:
    """An array above the threshold comes straight from the system and goes back to it when it is freed."""
    with fresh_pool(threshold="8MiB") as pool:
        assert 8 * MIB == pool.threshold
        before = pool.stats()
        array = np.zeros(20 * MIB, np.uint8)
        array += 1
        array.resize(30 * MIB, refcheck=False)
        assert (array[: 20 * MIB] == 1).all()
        assert 1 == pool.live_blocks
        del array
        after = pool.stats()
        assert after.direct > before.direct
        assert before.cached.now == after.cached.now
        assert 0 == pool.live_blocks


@pytest.mark.parametrize("threshold", [0, "1MiB"])
def test_a_threshold_below_all_served_sizes(threshold: int | str) -> None:
    """A threshold under min_size, or 0, leaves all arrays to NumPy: the manager is off."""
    with fresh_pool(threshold=threshold) as pool:
        bytes_of(5 * MIB, 1)
        assert 0 == pool.stats().allocations
        assert not attached()


def test_settings_from_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """What no argument says is taken from the environment, then from the file, as for the device host:0."""
    monkeypatch.setenv("TARGETMEM_CACHED_LIMIT", "48MiB")
    monkeypatch.setenv("LIBOMPTARGET_MEMORY_MANAGER_THRESHOLD", "16M")
    file = tmp_path / "targetmem.toml"
    file.write_text('cached_limit = "1MiB"\n')
    monkeypatch.setenv("TARGETMEM_CONFIG", str(file))
    with fresh_pool() as pool:
        assert (48 * MIB, 16 * MIB) == (pool.cached_limit, pool.threshold)
        assert "from 4 MiB to 16 MiB, cap 48 MiB" in repr(pool)
    with fresh_pool(cached_limit="49MiB", threshold="17M") as pool:
        assert (49 * MIB, 17 * MIB) == (pool.cached_limit, pool.threshold)


def test_the_defaults() -> None:
    """Without settings all sizes are pooled from 4 MiB on, and an eighth of the memory is kept at most."""
    with fresh_pool() as pool:
        assert ("exact", None, 4 * MIB) == (pool.policy, pool.threshold, pool.min_size)
        assert integration.default_cached_limit() == pool.cached_limit > 0
        assert "from 4 MiB, cap" in repr(pool)


@pytest.mark.parametrize(
    ("total", "limit", "expected"),
    [
        (64 << 30, None, 8 << 30),
        (64 << 30, 4 << 30, 512 << 20),
        (1 << 30, None, 256 << 20),
        (200 << 20, None, 50 << 20),
    ],
)
def test_the_default_limit(
    total: int, limit: int | None, expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An eighth of what machine and container allow, 256 MiB at least, a quarter at most."""
    from targetmem.abc import Limit, MemoryInfo
    from targetmem.plugins.host import HostPlugin

    monkeypatch.setattr(HostPlugin, "memory_info", lambda *_: MemoryInfo(0, total))
    monkeypatch.setattr(HostPlugin, "memory_limit", lambda *_: limit and Limit(limit, "x"))
    assert expected == integration.default_cached_limit()


BAD = {
    "min_size": ["8X", 0, -1, "0x2000"],
    "threshold": ["8X", -1, "0x2000"],
    "cached_limit": [0, "0B", -1, "many"],
    "policy": ["worst", 3],
}


@pytest.mark.parametrize(
    ("name", "value"), [(name, value) for name, values in BAD.items() for value in values]
)
def test_options_that_cannot_be_used(name: str, value: object) -> None:
    """Each is a ConfigError of one line that names option and value; nothing is served then."""
    options: dict[str, Any] = {name: value}
    with pytest.raises(ConfigError) as caught:
        targetmem.install("numpy", **options)
    assert name in str(caught.value)
    assert repr(value) in str(caught.value)
    assert "\n" not in str(caught.value)
    with pytest.raises(ConfigError), targetmem.pooled("numpy", **options):
        pass
    assert not attached()


def test_unknown_libraries_and_options() -> None:
    """A library that no pool can serve is a ConfigError that lists others, an unknown option a TypeError."""
    for call in (targetmem.install, targetmem.uninstall, targetmem.pooled):
        with pytest.raises(
            ConfigError, match=r"expected a library that a pool can serve \(numpy, pyopencl\), got 'pandas'"
        ):
            call("pandas")
    with pytest.raises(TypeError, match="size_min"):
        targetmem.install("numpy", size_min=1)


def test_numpy_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without NumPy the error says what to install."""
    monkeypatch.setitem(sys.modules, "numpy", None)
    with pytest.raises(TargetMemoryError, match=r'pip install "targetmem\[numpy\]"'):
        targetmem.install("numpy")


def test_a_numpy_of_another_build(monkeypatch: pytest.MonkeyPatch) -> None:
    """A NumPy without the table of functions is refused, with its version."""
    for name in ("numpy._core._multiarray_umath", "numpy.core._multiarray_umath"):
        monkeypatch.setitem(sys.modules, name, np)
    with pytest.raises(
        TargetMemoryError, match=f"_ARRAY_API, found none in version {np.__version__}; use a version"
    ):
        targetmem.install("numpy")


@pytest.mark.parametrize("fault", ["version", "name"])
def test_a_handler_of_another_kind(fault: str) -> None:
    """A handler that isn't as expected, here a made-up one, is refused, and left as it is."""
    import ctypes

    new = ctypes.pythonapi.PyCapsule_New
    new.restype, new.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
    table = ctypes.create_string_buffer(b"name".ljust(127, b"\0") + bytes([2]), 200)
    name = ctypes.c_char_p(b"other" if fault == "name" else b"mem_handler")
    capsule = new(ctypes.addressof(table), name, None)
    functions = (ctypes.c_void_p * 307)()
    place = ctypes.py_object(capsule)
    functions[306] = ctypes.addressof(place)
    api = new(ctypes.addressof(functions), None, None)
    pool = integration._service.pool(integration._resolve({}))
    with pytest.raises(ValueError, match="version 1" if fault == "version" else "mem_handler"):
        pool._core.serve(api)
    assert b"name" == table.raw[:4]


def test_all_integrations_have_the_three_functions() -> None:
    """What `INTEGRATIONS` lists can be installed, uninstalled and entered."""
    for name in integrations.INTEGRATIONS:
        module = integrations._module(name)
        assert all(callable(getattr(module, function)) for function in ("install", "uninstall", "pooled"))
