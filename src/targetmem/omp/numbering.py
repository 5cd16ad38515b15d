"""Device numbers: which device a number means, and the default one of a thread."""

from __future__ import annotations

import os
from contextvars import ContextVar
from operator import index
from typing import TYPE_CHECKING

from targetmem.errors import ConfigError, UnknownDevice
from targetmem.lifecycle import Once

if TYPE_CHECKING:
    from targetmem._device import Device
    from targetmem.plugins.registry import Registry

__all__ = [
    "Numbering",
    "current",
    "omp_get_default_device",
    "omp_get_initial_device",
    "omp_get_num_devices",
    "omp_initial_device",
    "omp_invalid_device",
    "omp_set_default_device",
]

omp_initial_device = -1
"""A number that always means the host, as does `omp_get_initial_device()`."""
omp_invalid_device = -2
"""A number that no device ever has: using it is an error."""

VARIABLE = "OMP_DEFAULT_DEVICE"
_default: ContextVar[int] = ContextVar("default-device-var")


class Numbering:
    """The devices of a registry by number, as they are when a number is first used: none ever changes."""

    def __init__(self, registry: Registry | None = None) -> None:
        self._registry = registry
        self._found = Once(lambda: tuple(self.registry.devices()), "OpenMP's device numbers")
        self._open: dict[Device, bool] = {}

    @property
    def registry(self) -> Registry:
        """The plugins and devices that are numbered."""
        if self._registry is None:
            from targetmem.plugins.registry import default

            self._registry = default()
        return self._registry

    @property
    def devices(self) -> tuple[Device, ...]:
        """The devices, each at its number."""
        return self._found()

    def device(self, number: int) -> Device | None:
        """Give the device of a number, None for the initial device. Raises UnknownDevice, TypeError."""
        devices, place = self.devices, index(number)
        if 0 <= place < len(devices):
            return devices[place]
        if place in (omp_initial_device, len(devices)):
            return None
        known = ", ".join(f"{at} = {device.name}" for at, device in enumerate(devices))
        text = f"device number: expected one of {known}, {len(devices)} = the initial device, got {number}"
        raise UnknownDevice(text)

    def memory(self, number: int) -> Device:
        """Give the device whose managers serve a number: `host:0` for the initial device."""
        device = self.device(number)
        return self.registry.device("host:0") if device is None else device

    def all_devices(self) -> tuple[Device, ...]:
        """Give every device whose memory may come from here."""
        host = self.memory(omp_initial_device)
        return self.devices if host in self.devices else (*self.devices, host)

    def closed_device(self, number: int) -> Device | None:
        """Give the device of a number, None where the host can dereference its memory: no plugin copies."""
        device = self.device(number)
        if device is not None and device not in self._open:
            able = device.capabilities
            self._open[device] = able.host_accessible >= set(able.kinds)
        return None if device is None or self._open[device] else device


current = Numbering()


def omp_get_num_devices() -> int:
    """Give the number of target devices, without the host as initial device (OpenMP 5.2, 18.7.4)."""
    return len(current.devices)


def omp_get_initial_device() -> int:
    """Give the number of the host: that of the devices (OpenMP 5.2, 18.7.7)."""
    return len(current.devices)


def omp_get_default_device() -> int:
    """Give the calling thread's default device: the one it set, else OMP_DEFAULT_DEVICE, else 0.

    An asyncio task or another context has its own, like a task of OpenMP (5.2, 18.7.3). Raises ConfigError
    for a value of the variable that is no device number.
    """
    chosen = _default.get(None)
    return _from_environment() if chosen is None else chosen


def omp_set_default_device(device_num: int) -> None:
    """Set the calling thread's default device (OpenMP 5.2, 18.7.2). Raises UnknownDevice."""
    current.device(device_num)
    _default.set(index(device_num))


def _from_environment() -> int:
    text = os.environ.get(VARIABLE, "").strip() or "0"
    if not (text.isascii() and text.isdecimal()):
        message = f"{VARIABLE}: expected a device number, 0 or more, got {text!r}"
        raise ConfigError(message, where=VARIABLE, key=VARIABLE, value=text)
    return int(text)
