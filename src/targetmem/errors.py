"""Every exception that targetmem raises on its own, and the warnings that it gives.

One base class, `TargetMemoryError`. A native status code (the device's, the plugin's) stays on the exception
as `native`. All of them can be pickled: what an attribute says, a worker process can tell its parent.
"""

from __future__ import annotations

__all__ = [
    "ConfigError",
    "DeviceClosed",
    "InvalidFree",
    "LeakWarning",
    "MappingError",
    "NotSupported",
    "OutOfDeviceMemory",
    "PluginError",
    "TargetMemoryError",
    "TargetMemoryWarning",
    "UnknownDevice",
]


class TargetMemoryError(Exception):
    """Raised when targetmem cannot do what was asked; the base class of all its errors.

    `native` is the status code that the device or the plugin gave, None when there was none.
    """

    def __init__(self, message: str = "", *, native: int | None = None) -> None:
        super().__init__(message)
        self.native = native


class OutOfDeviceMemory(TargetMemoryError, MemoryError):
    """Raised when the device refused a request and giving back all that could be given back did not help.

    All sizes are bytes. `reason` is one word for why: "capacity", "limit", "fragmentation", "other process",
    "padding", "overflow", "metadata" or "refused"; the message says the same in a sentence.
    """

    def __init__(  # noqa: PLR0913 - each is a number that the message tells too
        self,
        message: str = "",
        *,
        reason: str = "refused",
        requested: int = 0,
        live: int = 0,
        cached: int = 0,
        largest_free_block: int = 0,
        limit: int | None = None,
        device_free: int | None = None,
        device_total: int | None = None,
        padding: int = 0,
        tags: tuple[tuple[str, int], ...] = (),
        hint: str = "",
        native: int | None = None,
    ) -> None:
        super().__init__(message, native=native)
        self.reason = reason
        self.requested = requested
        self.live = live
        self.cached = cached
        self.largest_free_block = largest_free_block
        self.limit = limit
        self.device_free = device_free
        self.device_total = device_total
        self.padding = padding
        self.tags = tags
        self.hint = hint


class InvalidFree(TargetMemoryError):
    """Raised when memory is freed twice, inside a block, or with a wrong size; nothing was changed.

    `address` and `size` (bytes, None when not given) are what free was called with; `hit_address` and
    `hit_size` are the block that they hit (0 when none). `reason` is "double_free", "interior",
    "size_mismatch", "owned" or, from routines that know all blocks, "foreign".
    """

    def __init__(
        self,
        message: str = "",
        *,
        address: int = 0,
        size: int | None = None,
        hit_address: int = 0,
        hit_size: int = 0,
        reason: str = "",
        native: int | None = None,
    ) -> None:
        super().__init__(message, native=native)
        self.address = address
        self.size = size
        self.hit_address = hit_address
        self.hit_size = hit_size
        self.reason = reason


class MappingError(TargetMemoryError):
    """Raised when host memory cannot be mapped to a device as asked: it overlaps, or is not present."""


class PluginError(TargetMemoryError):
    """Raised when a plugin cannot be loaded or initialised, fails, or breaks its contract.

    `plugin` is its name; `hint` says what to install or to change, empty when nothing is known to help.
    """

    def __init__(
        self, message: str = "", *, plugin: str = "", hint: str = "", native: int | None = None
    ) -> None:
        super().__init__(message, native=native)
        self.plugin = plugin
        self.hint = hint


class NotSupported(PluginError):
    """Raised when a plugin is asked for something that it has not implemented or its device cannot do."""


class ConfigError(TargetMemoryError, ValueError):
    """Raised when a setting has a value that cannot be used, wherever it was written.

    `where` names the variable, or the file and line; `key` the setting; `value` what stood there.
    """

    def __init__(self, message: str = "", *, where: str = "", key: str = "", value: object = None) -> None:
        super().__init__(message)
        self.where = where
        self.key = key
        self.value = value


class DeviceClosed(TargetMemoryError):
    """Raised when a device or a manager is used after its close, or in a forked child of its owner."""


class UnknownDevice(TargetMemoryError, LookupError):
    """Raised when no available plugin has a device of the given name."""


class TargetMemoryWarning(UserWarning):
    """Given when something is wrong that stops nothing: an unknown variable, a failing callback."""


class LeakWarning(TargetMemoryWarning):
    """Given when a manager is closed while memory is still live."""
