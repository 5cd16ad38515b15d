"""A manager with its model, and the calls of a device as the model notes them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from targetmem import Buffer, MemoryManager
    from targetmem.plugins.simulated import Call, SimulatedPlugin
    from tests.property.model import Block, ModelManager

__all__ = ["Pair", "as_told"]


class Pair:
    """A manager and its model over one device and its model."""

    def __init__(self, manager: MemoryManager, model: ModelManager, plugin: SimulatedPlugin) -> None:
        self.manager, self.model, self.plugin = manager, model, plugin
        self.buffers: dict[int, Buffer] = {}  # the owned ones, by address
        self.closed = False
        self.nanoseconds = 0

    def pick(self, place: int, *, owned: bool | None = None) -> Block | None:
        """Give one of the live blocks."""
        live = [block for block in self.model.live.values() if owned in (None, block.owned)]
        return live[place % len(live)] if live else None


def as_told(call: Call) -> tuple[object, ...]:
    """Give a call as the model notes it, nothing for those that it does not have."""
    if call.method == "allocate":
        return ("allocate", call.arguments[1], call.arguments[3])
    return ("release", *call.arguments[1:3]) if call.method == "release" else ()
