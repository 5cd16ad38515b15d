"""A present table against the model: whatever is mapped, in whatever order, both do the same.

After each step: the same ranges and counts, the same bytes on host and device, and memory for exactly what
is mapped. `HYPOTHESIS_PROFILE=thorough` looks longer; a failure prints its steps and a line that repeats it.
"""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from targetmem.errors import MappingError
from targetmem.plugins.host import HostPlugin
from targetmem.plugins.simulated import SimulatedPlugin
from tests.property.table_model import Argument, ModelTable, Refused
from tests.unit.registries import registry_with

if TYPE_CHECKING:
    from collections.abc import Callable

BYTES = 24
MATRIX = (4, 6)  # the same bytes, as rows

Picker = tuple[Any, bool]
NO_FLAGS = ("always", "present", "hold", "implicit")
FLAGS = st.fixed_dictionaries({}, optional={"always": st.booleans(), "present": st.booleans()})


@st.composite
def pickers(draw: st.DrawFn) -> Picker:
    """Give an index into the bytes, or into the rows: few and small, so that they often meet."""
    if draw(st.integers(0, 3)):
        low, size = draw(st.integers(0, BYTES - 1)), draw(st.sampled_from([0, 1, 3, 6, 12]))
        return slice(low, min(BYTES, low + size), draw(st.sampled_from([1, 1, 2]))), False
    rows, columns = draw(st.integers(0, 2)), draw(st.integers(0, 4))
    step = draw(st.sampled_from([1, -1, 2]))
    return (
        slice(rows, rows + 2),
        slice(columns, columns + 2) if step > 0 else slice(columns + 1, None, step),
    ), True


def clauses(*names: str) -> st.SearchStrategy[dict[str, list[Picker]]]:
    """Give some arguments for each clause."""
    return st.fixed_dictionaries({}, optional={name: st.lists(pickers(), max_size=2) for name in names})


class TableMachine(RuleBasedStateMachine):
    """One device and the model of its table."""

    make: Callable[[], Any]

    def __init__(self) -> None:
        super().__init__()
        self.registry = registry_with(type(self).make())
        self.device = self.registry.device("x:0")
        self.host = np.arange(BYTES, dtype="u1")
        self.numbers = np.arange(BYTES)
        self.model = ModelTable(self.host.tolist(), self.look)
        self.next_value = BYTES

    def teardown(self) -> None:
        """End the device: nothing may be left of it."""
        self.registry.close()

    # --- arguments ---

    def array(self, picker: Picker) -> np.ndarray[Any, Any]:
        """Give the view of the host's memory."""
        index, matrix = picker
        view: np.ndarray[Any, Any] = (self.host.reshape(MATRIX) if matrix else self.host)[index]
        return view

    def argument(self, picker: Picker) -> Argument:
        """Give the same to the model."""
        index, matrix = picker
        elements = (self.numbers.reshape(MATRIX) if matrix else self.numbers)[index]
        at = self.array(picker).ctypes.data - self.host.ctypes.data
        return Argument(tuple(elements.ravel().tolist()), at)

    def look(self, byte: int) -> int:
        """Read the device's byte for one of the host's."""
        seen = ctypes.c_uint8()
        target = self.device.mapped_pointer(self.host.ctypes.data + byte)
        self.device.plugin.retrieve(0, ctypes.addressof(seen), target, 1)
        return seen.value

    def both(self, chosen: dict[str, list[Picker]], names: tuple[str, ...], does: str, **flags: bool) -> None:
        """Do the same to the device and to the model; both refuse, or none does."""
        arrays: Any = {
            name: [self.array(picker) for picker in chosen[name]] for name in names if name in chosen
        }
        arguments = [(name, self.argument(picker)) for name in names for picker in chosen.get(name, ())]
        refused = None
        try:
            getattr(self.device, does)(**arrays, **flags)
        except MappingError as error:
            refused = error
        try:
            getattr(self.model, does)(arguments, dict.fromkeys(NO_FLAGS, False) | flags)
        except Refused:
            assert refused is not None
        else:
            assert refused is None, refused

    # --- steps ---

    @rule(chosen=clauses("to", "alloc"), flags=FLAGS, hold=st.booleans(), implicit=st.booleans())
    def enter(
        self, chosen: dict[str, list[Picker]], flags: dict[str, bool], hold: bool, implicit: bool
    ) -> None:
        """Mapping anew, or counting once more."""
        self.both(chosen, ("to", "alloc"), "enter", hold=hold, implicit=implicit, **flags)

    @rule(
        chosen=clauses("from_", "release", "delete"), flags=FLAGS, hold=st.booleans(), implicit=st.booleans()
    )
    def exit(
        self, chosen: dict[str, list[Picker]], flags: dict[str, bool], hold: bool, implicit: bool
    ) -> None:
        """Counting down, copying back, and the end of a mapping."""
        self.both(chosen, ("from_", "release", "delete"), "exit", hold=hold, implicit=implicit, **flags)

    @rule(chosen=clauses("to", "from_"), present=st.booleans())
    def update(self, chosen: dict[str, list[Picker]], present: bool) -> None:
        """Copies that count nothing."""
        self.both(chosen, ("to", "from_"), "update", present=present)

    @rule(byte=st.integers(0, BYTES - 1))
    def write_on_the_host(self, byte: int) -> None:
        """The program writes a byte."""
        self.next_value = (self.next_value + 1) % 256
        self.host[byte] = self.model.host[byte] = self.next_value

    @rule(byte=st.integers(0, BYTES - 1))
    def write_on_the_device(self, byte: int) -> None:
        """A region writes a byte of what is mapped."""
        mapped = next((each for each in self.model.mappings if each.low <= byte < each.high), None)
        if mapped is not None:
            self.next_value = (self.next_value + 1) % 256
            value = ctypes.c_uint8(self.next_value)
            target = self.device.mapped_pointer(self.host.ctypes.data + byte)
            self.device.plugin.submit(0, target, ctypes.addressof(value), 1)
            mapped.data[byte] = self.next_value

    @rule(picker=pickers())
    def ask(self, picker: Picker) -> None:
        """What is present lies in one mapping, at the same distance from its begin on both sides."""
        array, argument = self.array(picker), self.argument(picker)
        present = self.model.is_present(argument)
        assert present == self.device.is_present(array)
        if present:
            low = self.host.ctypes.data + argument.low
            row = max(row for row in self.device.present_table() if row.host <= low)
            offset = low - row.host
            assert row.target + offset == self.device.mapped_pointer(array)
        else:
            with pytest.raises(MappingError):
                self.device.mapped_pointer(array)

    # --- what must hold ---

    @invariant()
    def the_same_is_mapped(self) -> None:
        """Ranges and counts are the model's, and the table's own invariants hold."""
        base = self.host.ctypes.data
        rows = [(row.host - base, row.size, row.dynamic, row.hold) for row in self.device.present_table()]
        assert self.model.rows() == rows
        if self.device.table is not None:
            self.device.table.check()

    @invariant()
    def the_bytes_are_the_same(self) -> None:
        """Host and device hold what the model says, gaps of strided views included."""
        assert self.model.host == self.host.tolist()
        for mapped in self.model.mappings:
            assert mapped.data == {byte: self.look(byte) for byte in range(mapped.low, mapped.high)}

    @invariant()
    def memory_is_held_for_what_is_mapped(self) -> None:
        """The manager's live bytes are those of the mapped ranges: nothing leaks, nothing is freed early."""
        live = self.device.memory.counters().requested.now
        assert sum(mapped.high - mapped.low for mapped in self.model.mappings) == live


class HostMachine(TableMachine):
    """The host, whose copies the table makes itself."""

    make = staticmethod(HostPlugin)


class SimulatedMachine(TableMachine):
    """A device that must be asked to copy."""

    make = staticmethod(SimulatedPlugin)


TestHost = HostMachine.TestCase
TestSimulated = SimulatedMachine.TestCase
