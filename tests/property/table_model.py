"""What a present table must do, written down as simply as it can be: the model of the state machine.

The host's memory is one array of bytes and an argument is the list of those that its elements are. A mapping
is two counts and the bytes of the device; what `alloc` leaves there is learnt from the device itself.
"""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

__all__ = ["Argument", "Mapped", "ModelTable", "Refused"]


class Refused(Exception):
    """Raised when a construct must be an error that changes no count."""


@dataclass(frozen=True)
class Argument:
    """The elements of one argument: their numbers in the host's memory; `at` is where an empty one is."""

    elements: tuple[int, ...]
    at: int = 0

    @property
    def low(self) -> int:
        """The lowest byte."""
        return min(self.elements, default=self.at)

    @property
    def high(self) -> int:
        """One beyond the highest byte."""
        return max(self.elements) + 1 if self.elements else self.at


@dataclass
class Mapped:
    """One mapped range; the bytes on the device are by their number on the host."""

    low: int
    high: int
    dynamic: int = 0
    hold: int = 0
    data: dict[int, int] = field(default_factory=dict)
    fresh: bool = True  # made by the construct that is under way
    released: bool = False  # by the construct that is under way


@dataclass
class ModelTable:
    """A device's table over the host's bytes, which it changes when something is copied back.

    `look` gives the device's byte for a byte of the host, for what was never copied.
    """

    host: list[int]
    look: Callable[[int], int]
    mappings: list[Mapped] = field(default_factory=list)

    def enter(self, arguments: Iterable[tuple[str, Argument]], flags: dict[str, bool]) -> None:
        """Enter arguments, each with the name of its clause. Raises Refused."""
        before = [copy(mapped) for mapped in self.mappings]
        for mapped in self.mappings:
            mapped.fresh = False
        try:
            for clause, argument in arguments:
                self._enter(clause, argument, flags)
        except Refused:
            self.mappings = before  # what was copied stays: the copies share the bytes
            raise
        for mapped in self.mappings:
            for byte in range(mapped.low, mapped.high) if mapped.fresh else ():
                mapped.data.setdefault(byte, self.look(byte))

    def _enter(self, clause: str, argument: Argument, flags: dict[str, bool]) -> None:
        contained, mapped = self._find(argument)
        if mapped is None:
            if flags["present"]:
                raise Refused
            if not argument.elements:
                return
            mapped, contained = Mapped(argument.low, argument.high), True
            self.mappings.append(mapped)
        elif not contained and not flags["implicit"]:
            raise Refused
        mapped.hold += flags["hold"]
        mapped.dynamic += not flags["hold"]
        if clause == "to" and contained and (mapped.fresh or flags["always"]):
            self._copy_to(mapped, argument)

    def exit(self, arguments: Sequence[tuple[str, Argument]], flags: dict[str, bool]) -> None:
        """Exit arguments, each with the name of its clause. Raises Refused."""
        before = [copy(mapped) for mapped in self.mappings]
        try:
            for clause, argument in reversed(arguments):
                self._exit(clause, argument, flags)
        except Refused:
            self.mappings = before
            raise
        self.mappings = [mapped for mapped in self.mappings if not mapped.released]

    def _exit(self, clause: str, argument: Argument, flags: dict[str, bool]) -> None:
        contained, mapped = self._find(argument)
        if mapped is None or not (contained or flags["implicit"]):
            if flags["present"]:
                raise Refused
            return
        if not mapped.released:
            self._let_go(mapped, hold=flags["hold"], everything=clause == "delete")
        if clause == "from_" and contained and (mapped.released or flags["always"]):
            self._copy_back(mapped, argument)

    def update(self, arguments: Iterable[tuple[str, Argument]], flags: dict[str, bool]) -> None:
        """Copy each argument as its clause says. Raises Refused."""
        for clause, argument in arguments:
            contained, mapped = self._find(argument)
            if mapped is None or not contained:
                if flags["present"]:
                    raise Refused
            elif clause == "to":
                self._copy_to(mapped, argument)
            else:
                self._copy_back(mapped, argument)

    def rows(self) -> list[tuple[int, int, int, int]]:
        """Give first byte, bytes and counts of what is mapped, in order."""
        found = [
            (mapped.low, mapped.high - mapped.low, mapped.dynamic, mapped.hold) for mapped in self.mappings
        ]
        return sorted(found)

    def is_present(self, argument: Argument) -> bool:
        """Tell whether an argument lies in one mapping."""
        return self._find(argument)[0]

    def _find(self, argument: Argument) -> tuple[bool, Mapped | None]:
        """Give whether one mapping contains the argument, and the lowest that it meets."""
        low, high = argument.low, argument.high
        for mapped in sorted(self.mappings, key=lambda mapped: mapped.low):
            if mapped.low <= low < mapped.high:
                return high <= mapped.high, mapped
            if low < mapped.low < high:
                return False, mapped
        return False, None

    def _let_go(self, mapped: Mapped, *, hold: bool, everything: bool) -> None:
        name = "hold" if hold else "dynamic"
        count = getattr(mapped, name)
        if count:
            setattr(mapped, name, 0 if everything else count - 1)
            mapped.released = not (mapped.dynamic or mapped.hold)

    def _copy_to(self, mapped: Mapped, argument: Argument) -> None:
        mapped.data.update((byte, self.host[byte]) for byte in argument.elements)

    def _copy_back(self, mapped: Mapped, argument: Argument) -> None:
        for byte in argument.elements:
            self.host[byte] = mapped.data[byte]
