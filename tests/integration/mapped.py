"""What the tests of mapped data share: looking at the device's memory and writing to it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from targetmem._device import Device


def on_device(device: Device, array: Any) -> Any:
    """Give what the device has for a mapped array, copied from there by the plugin itself."""
    seen = np.empty(array.nbytes, "u1")
    device.plugin.retrieve(device.index, seen.ctypes.data, device.mapped_pointer(array), array.nbytes)
    return seen.view(array.dtype).reshape(array.shape)


def poke(device: Device, array: Any, value: int) -> None:
    """Write bytes to the device's memory of a mapped array, as a region would."""
    device.plugin.fill(device.index, device.mapped_pointer(array), bytes([value]), array.nbytes)
