"""NumPy: the memory of every array, of every thread and asyncio task, comes from a pool.

NumPy obtains an array's memory through the handler of the current context; a context that names none has the
default handler. What changes here is that default handler itself (`docs/decisions` says how), so threads and
tasks that start later are served as well, and arrays from before are freed as they always were.

Arrays below `min_size` stay with NumPy and the C library, which serve them as fast as a pool could. Arrays
that another handler serves, because a program set one, stay with it.
"""

from __future__ import annotations

import sys
from contextlib import contextmanager
from threading import RLock
from typing import TYPE_CHECKING, Any, NamedTuple

from targetmem import config, pressure, statistics
from targetmem._core import NumpyPool, numpy_stop
from targetmem.errors import ConfigError, TargetMemoryError
from targetmem.sizes import format_size, parse_size

if TYPE_CHECKING:
    from collections.abc import Iterator

    from targetmem.statistics import Statistics

__all__ = ["MIN_SIZE", "ArrayPool", "default_cached_limit", "install", "pooled", "uninstall"]

MIN_SIZE = 4 << 20  # bytes: below it the C library recycles as well; docs/decisions has the measurements
_DEVICE = "host:0"  # whose settings hold
_SUPPORTED = "use a version that this release of targetmem is tested with (1.26, 2.0 to 2.5)"


class _Options(NamedTuple):
    """What tells one pool from another. Sizes are bytes."""

    policy: str
    threshold: int
    cached_limit: int
    min_size: int


class ArrayPool:
    """What serves NumPy's arrays: the settings in force, and what was counted.

    There is no `close`: arrays may use its memory as long as the process lives.
    """

    __slots__ = ("_core", "_options")

    def __init__(self, options: _Options) -> None:
        self._options = options
        self._core = NumpyPool(**options._asdict(), pressure=pressure.relieve)

    @property
    def policy(self) -> str:
        """How free blocks are kept and found."""
        return self._options.policy

    @property
    def threshold(self) -> int | None:
        """The largest array that is pooled, in bytes; None: no limit. Larger ones are returned when freed."""
        return None if self._options.threshold >= sys.maxsize else self._options.threshold

    @property
    def cached_limit(self) -> int:
        """The most bytes that are kept for reuse."""
        return self._options.cached_limit

    @property
    def min_size(self) -> int:
        """The smallest array that is served, in bytes."""
        return self._options.min_size

    @property
    def live_blocks(self) -> int:
        """How many arrays have memory of this pool now."""
        return self._core.live_blocks

    @property
    def serves(self) -> bool:
        """Whether there is any size that it would pool."""
        return self._options.threshold >= self._options.min_size

    def start(self) -> None:
        """Serve all new arrays. Raises TargetMemoryError when NumPy is missing or not built as expected."""
        api = _array_api()
        try:
            self._core.serve(api)
        except ValueError as error:
            raise TargetMemoryError(f"numpy: {error}; {_SUPPORTED}") from None

    def stats(self) -> Statistics:
        """Give what was counted so far, for the whole pool and for each bucket used; sizes in bytes.

        A request counts with the size of its block: an array's size rounded up by at most a quarter.
        """
        return statistics.collect(self._core.raw_statistics(), self._core.raw_bucket_statistics)

    def trim(self, keep: int = 0, /) -> int:
        """Give freed memory back to the system until at most `keep` bytes are kept; gives the bytes."""
        return self._core.trim(keep)

    def __repr__(self) -> str:
        largest = "" if self.threshold is None else f" to {format_size(self.threshold)}"
        sizes = f"from {format_size(self.min_size)}{largest}, cap {format_size(self.cached_limit)}"
        return f"<ArrayPool: {self.policy}, {sizes}, {self.live_blocks} live blocks>"


class _Service:
    """What serves NumPy now: the innermost `pooled` block's pool, else the installed one, else nothing."""

    def __init__(self) -> None:
        self.lock = RLock()  # a finaliser may come in between
        self.installed: ArrayPool | None = None
        self.entered: dict[object, ArrayPool] = {}  # the innermost block is the last one
        self._pools: dict[_Options, ArrayPool] = {}  # for ever: each is the home of blocks

    def current(self) -> ArrayPool | None:
        """Give the pool that is meant to serve."""
        return next(reversed(self.entered.values()), self.installed)

    def pool(self, options: _Options) -> ArrayPool:
        """Give the one pool with these options."""
        if options not in self._pools:
            self._pools[options] = ArrayPool(options)
        return self._pools[options]

    def apply(self) -> None:
        """Have the meant pool serve, or none. Raises TargetMemoryError for a NumPy not built as expected."""
        pool = self.current()
        if pool is None or not pool.serves:
            numpy_stop()
        else:
            pool.start()

    def install(self, pool: ArrayPool) -> None:
        """Take a pool into service for good; when that fails, nothing has changed."""
        self.installed = pool
        try:
            self.apply()
        except BaseException:
            self.installed = None
            raise

    def enter(self, key: object, pool: ArrayPool) -> None:
        """Take a pool into service for a block; when that fails, nothing has changed."""
        self.entered[key] = pool
        try:
            self.apply()
        except BaseException:
            del self.entered[key]
            raise

    def leave(self, key: object) -> None:
        """Take a block's pool out of service."""
        del self.entered[key]
        self.apply()


_service = _Service()


def install(
    *,
    policy: str | None = None,
    threshold: int | str | None = None,
    cached_limit: int | str | None = None,
    min_size: int | str | None = None,
) -> ArrayPool:
    """Serve all new arrays of the process from a pool from now on; gives the pool.

    `policy` is how free blocks are kept; `threshold` the largest array that is pooled (all, unless set; none
    when it is below `min_size`); `cached_limit` the most freed memory that is kept (see
    `default_cached_limit`); `min_size` the smallest array that is served (4 MiB; smaller ones are faster
    without a pool). Sizes are bytes, or a text like "64KiB". The first three may also stand in the
    environment and in `targetmem.toml`, as those of the device `host:0`.

    Installing again gives the same pool. Raises ConfigError for an option that cannot be used,
    TargetMemoryError when one differs from that in force, or when NumPy is missing or not built as expected.
    """
    given = _given(policy=policy, threshold=threshold, cached_limit=cached_limit, min_size=min_size)
    _array_api()  # imports NumPy, which is slow: not under the lock
    with _service.lock:
        if (pool := _service.installed) is not None:
            _check_same(pool, given)
            return pool
        pool = _service.pool(_resolve(given))
        _service.install(pool)
        return pool


def uninstall() -> None:
    """Serve no new arrays from the installed pool; those alive keep their memory until they are freed.

    What the pool keeps goes back to the system, and so does each block as it is freed. Once no pooled array
    is left NumPy's own handler is in place again. Idempotent.
    """
    with _service.lock:
        _service.installed = None
        _service.apply()


@contextmanager
def pooled(
    *,
    policy: str | None = None,
    threshold: int | str | None = None,
    cached_limit: int | str | None = None,
    min_size: int | str | None = None,
) -> Iterator[ArrayPool]:
    """Serve all new arrays of the process, in every thread, while the `with` block runs; gives the pool.

    Options and errors are those of `install`. Without options the pool that serves already goes on; with
    some, the inner block's pool serves until its end. Arrays may outlive the block.
    """
    given = _given(policy=policy, threshold=threshold, cached_limit=cached_limit, min_size=min_size)
    _array_api()
    key = object()
    with _service.lock:
        pool = (None if given else _service.current()) or _service.pool(_resolve(given))
        _service.enter(key, pool)
    try:
        yield pool
    finally:
        with _service.lock:
            _service.leave(key)


def default_cached_limit() -> int:
    """Give the most freed memory that is kept unless a setting says otherwise, in bytes.

    An eighth of the memory that the process can have, the machine's or its container's; but 256 MiB where
    that is at most a quarter.
    """
    from targetmem.plugins.host import HostPlugin

    host = HostPlugin()
    info, limit = host.memory_info(0), host.memory_limit(0)
    memory = min(info.total if info else sys.maxsize, limit.bytes if limit else sys.maxsize)
    return max(1, min(max(memory // 8, 256 << 20), memory // 4))


def _given(**options: object) -> dict[str, Any]:
    """Give the options that were given, as the pool needs them."""
    given = {name: value for name, value in options.items() if value is not None}
    return {name: _check(name, value) for name, value in given.items()}


def _check(name: str, value: object) -> Any:
    if name != "min_size":
        return config.check_value(name, value, name)
    try:
        size = parse_size(value)
    except ValueError as error:
        raise ConfigError(f"{name}: {error}", where=name, key=name, value=value) from None
    if size < 1:
        raise ConfigError(
            f"{name}: expected at least 1 byte, got {value!r}", where=name, key=name, value=value
        )
    return size


def _resolve(given: dict[str, Any]) -> _Options:
    arguments = {name: value for name, value in given.items() if name != "min_size"}
    found = config.resolve(_DEVICE, plugin_threshold=sys.maxsize, **arguments)
    limit = default_cached_limit() if found.cached_limit is None else found.cached_limit
    return _Options(found.policy, found.threshold, limit, given.get("min_size", MIN_SIZE))


def _check_same(pool: ArrayPool, given: dict[str, Any]) -> None:
    """Raise TargetMemoryError unless the options given are those of the pool."""
    in_force = pool._options._asdict()  # noqa: SLF001 - of this module
    for name, value in given.items():
        if in_force[name] != value:
            raise TargetMemoryError(
                f"numpy: installed with {name}={in_force[name]!r}, got {name}={value!r}: "
                'call targetmem.uninstall("numpy") first'
            )


def _array_api() -> object:
    """Give NumPy's table of functions. Raises TargetMemoryError when there is none."""
    try:
        import numpy as np
    except ImportError as error:
        hint = 'install it with pip install "targetmem[numpy]"'
        raise TargetMemoryError(f"numpy: cannot be imported ({error}): {hint}") from error
    for name in ("numpy._core._multiarray_umath", "numpy.core._multiarray_umath"):  # NumPy 2, NumPy 1
        if (api := getattr(sys.modules.get(name), "_ARRAY_API", None)) is not None:
            return api
    found = f"numpy: expected _multiarray_umath._ARRAY_API, found none in version {np.__version__}"
    raise TargetMemoryError(f"{found}; {_SUPPORTED}")
