"""A caching memory manager for any target: the host, accelerators, and a program's NumPy arrays.

    import targetmem

    device = targetmem.device("host:0")
    with device.allocate(1 << 20) as buffer:
        ...
    print(device.memory.stats().hit_rate)

Importing this costs next to nothing: everything else is loaded when it is first used.
"""

from __future__ import annotations

TYPE_CHECKING = False  # `typing` would be half of what importing this costs
if TYPE_CHECKING:
    from targetmem import abc, errors, omp
    from targetmem._core import Backend, Buffer
    from targetmem._device import Device
    from targetmem.integrations import install, pooled, uninstall
    from targetmem.manager import MemoryManager
    from targetmem.pressure import on_pressure
    from targetmem.tags import tagged

__all__ = [
    "Backend",
    "Buffer",
    "Device",
    "MemoryManager",
    "abc",
    "device",
    "devices",
    "errors",
    "get_include",
    "install",
    "omp",
    "on_pressure",
    "plugins",
    "pooled",
    "tagged",
    "uninstall",
]

# Where each name comes from; an empty one is a module of its own.
_HOMES = {
    "Backend": "_core",
    "Buffer": "_core",
    "Device": "_device",
    "MemoryManager": "manager",
    "abc": "",
    "errors": "",
    "install": "integrations",
    "omp": "",
    "on_pressure": "pressure",
    "plugins": "",
    "pooled": "integrations",
    "tagged": "tags",
    "uninstall": "integrations",
}


def device(name: str) -> Device:
    """Give the device of a name, like `host:0`; its plugin is started, the device itself on its first use.

    Raises UnknownDevice when there is no such device, PluginError when its plugin is not available,
    ConfigError for a setting that cannot be used.
    """
    from targetmem.plugins.registry import default

    return default().device(name)


def devices() -> list[Device]:
    """Give the devices of every plugin that is available, in the order of `targetmem devices`.

    Raises ConfigError for a setting that cannot be used.
    """
    from targetmem.plugins.registry import default

    return default().devices()


def get_include() -> str:
    """Give the folder of `targetmem.h`, for a C compiler's -I."""
    return __path__[0] + "/include"


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'targetmem' has no attribute {name!r}")
    from importlib import import_module

    module = import_module(f"targetmem.{home or name}")
    value = getattr(module, name) if home else module
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)


del TYPE_CHECKING
