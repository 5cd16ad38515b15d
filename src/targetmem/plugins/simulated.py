"""The target `simulated`: devices that are only bookkeeping, with a size, a speed and faults of your choice.

    plugin = SimulatedPlugin(capacity="64MiB", latency=0.0001, fail_on=3)
    targetmem.plugins.add(plugin, "small")
    buffer = targetmem.device("small:0").allocate(1 << 20)
    print(plugin.calls)

or, without code, in `targetmem.toml` (`[plugin.simulated]`, `capacity = "64MiB"`) or the environment
(`TARGETMEM_SIMULATED_CAPACITY=64MiB`). `SimulatedOptions` lists the choices. The addresses can't be
dereferenced; what is submitted to them is kept, so that retrieve gives it back.
"""

from __future__ import annotations

import ctypes
import os
import random
import threading
import time
from collections import deque
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from targetmem.abc import KINDS, Capabilities, Kind, MemoryInfo, Plugin
from targetmem.errors import PluginError
from targetmem.plugins.functions import Functions
from targetmem.plugins.ranges import AddressSpace
from targetmem.plugins.simulated_options import READERS, SimulatedOptions
from targetmem.plugins.views import views

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from targetmem.abc import Argument

T = TypeVar("T")

__all__ = ["Call", "SimulatedOutOfMemory", "SimulatedPlugin"]

FIRST_ADDRESS = 1 << 44  # nothing of the process lives there, and it looks like an address
DEVICE_STRIDE = 1 << 42  # addresses of different devices never meet: a mix-up is seen
UNWRITTEN = b"\xa5"  # what memory reads as before anything is written to it
OUT_OF_MEMORY, FAILED, NOT_HANDED_OUT, MISUSED = 2, 3, 4, 5  # native statuses


class SimulatedOutOfMemory(MemoryError):
    """Raised when a simulated device refuses and was told to do that with an error."""

    native = OUT_OF_MEMORY


@dataclass(slots=True)
class Call:
    """One call that a simulated plugin got: the method, its arguments, the address it gave, its number."""

    method: str
    arguments: tuple[object, ...] = ()
    result: object = None
    number: int = 0
    thread: int = field(default_factory=threading.get_ident, repr=False)

    def __str__(self) -> str:
        return " ".join([self.method, *map(str, self.arguments)])


class _Exclusive:
    """A lock around bookkeeping, for a thread that a finaliser may interrupt with calls of its own.

    A finaliser that releases memory meets the lock held by its own thread: what it asks is put off a moment.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._holder = 0
        self._later: deque[Callable[[], object]] = deque()

    def run(self, action: Callable[[], T], *, can_wait: bool = False) -> T | None:
        """Run an action alone; put it off, and give None, when this thread is in here and it can wait."""
        if self._holder == threading.get_ident():
            if not can_wait:
                raise PluginError(
                    "simulated: busy with another call of this thread, which a finaliser interrupted"
                )
            self._later.append(action)
            return None
        with self._lock:
            self._holder = threading.get_ident()
            try:
                return action()
            finally:
                self._finish()

    def _finish(self) -> None:
        try:
            while self._later:
                self._later.popleft()()
        finally:
            self._holder = 0


class _Memory:
    """One device's memory: ranges in use, and what was written to them."""

    def __init__(self, first: int, capacity: int) -> None:
        self.space = AddressSpace(first, capacity)
        self.contents: dict[int, bytearray] = {}
        self.queues: list[_Pending] = []


class _Pending:
    """A queue: what it was given and has not done."""

    def __init__(self) -> None:
        self.actions: deque[Callable[[], object]] = deque()

    def run(self) -> None:
        """Do all of it, in order. Raises what the first to fail raises; the rest stays for the next time."""
        while self.actions:
            self.actions.popleft()()


def _do(queue: Any, action: Callable[[], object]) -> None:
    if queue is None:
        action()
    else:
        queue.actions.append(action)


class SimulatedPlugin(Plugin):
    """Devices without memory behind them: see what a program does on a small, slow or faulty one.

    Takes the options of `SimulatedOptions` as keywords. `calls` is the log of all calls, in the order in
    which they began. Thread-safe. A call before `init` or after `deinit`, and use of memory that is not
    handed out, raise PluginError: they are bugs in the caller.
    """

    options: ClassVar[Mapping[str, Callable[[object], Any]]] = MappingProxyType(dict(READERS))

    def __init__(self, **options: Any) -> None:
        self.chosen = SimulatedOptions(**options)
        self.calls: list[Call] = []
        self._counts: dict[str, count[int]] = {}
        self._random = random.Random(self.chosen.seed)  # noqa: S311 - no secrets
        self._memories: list[_Memory] = []
        self._ready = False
        self._alone = _Exclusive()  # around the bookkeeping; never while a call takes its time

    # --- lifetime ---

    def init(self) -> None:
        """Make the devices."""
        self._begin("init", ready=False)
        if self.chosen.fail_init:
            raise PluginError("simulated: init failed, as fail_init asks", plugin=self.name, native=FAILED)
        firsts = range(FIRST_ADDRESS, FIRST_ADDRESS + self.chosen.devices * DEVICE_STRIDE, DEVICE_STRIDE)
        self._memories = [_Memory(first, self.chosen.capacity) for first in firsts]
        self._ready = True

    def deinit(self) -> None:
        """Take the devices away; every later call raises."""
        self._begin("deinit")
        self._ready = False

    def device_count(self) -> int:
        """Give the number of devices that was chosen."""
        return self.chosen.devices

    def init_device(self, device: int) -> None:
        """Log the call; raise if that was chosen."""
        self._begin("init_device", device)
        if self.chosen.fail_init_device:
            raise PluginError("simulated: init_device failed, as fail_init_device asks", native=FAILED)

    def deinit_device(self, device: int) -> None:
        """Log the call."""
        self._begin("deinit_device", device)

    # --- memory ---

    def allocate(self, device: int, size: int, kind: Kind, alignment: int) -> int:
        """Cut a range from the first gap that fits, unless a fault was chosen for this call."""
        call = self._begin("allocate", device, size, kind, alignment)
        space = self._memories[device].space
        address = self._alone.run(lambda: self._serve(call.number, space, size, alignment))
        call.result = address
        if not address and self.chosen.refusal == "error":
            raise SimulatedOutOfMemory(f"{self.name}:{device}: no range of {size} bytes")
        return address or 0

    def release(self, device: int, address: int, size: int, kind: Kind) -> None:
        """Make the range a gap again, unless this call was chosen to fail."""
        call = self._begin("release", device, address, size, kind)
        if call.number in self.chosen.fail_release_on:
            raise PluginError(f"{self.name}:{device}: release {call.number} failed, as chosen", native=FAILED)
        self._alone.run(lambda: self._give_back(device, address, size), can_wait=True)

    def memory_info(self, device: int) -> MemoryInfo:
        """Give what is in no range, and the capacity."""
        self._begin("memory_info", device)
        used = self._memories[device].space.used
        return MemoryInfo(self.chosen.capacity - used, self.chosen.capacity)

    def ranges(self, device: int) -> list[tuple[int, int]]:
        """Give address and size in bytes of every range that is handed out, by address. For tests."""
        return self._alone.run(self._memories[device].space.ranges) or []

    def min_alignment(self, device: int, kind: Kind) -> int:
        """Give the alignment that was chosen."""
        return self.chosen.min_alignment

    def default_threshold(self, device: int, kind: Kind) -> int | None:
        """Give the threshold that was chosen."""
        return self.chosen.threshold

    def capabilities(self, device: int) -> Capabilities:
        """Every memory kind, none of which the host can dereference."""
        return Capabilities(kinds=KINDS, aligns=self.chosen.aligns)

    # --- transfers: on a queue they are done when it is synchronised, and not earlier ---

    def submit(self, device: int, target: int, host: int, size: int, queue: object | None = None) -> None:
        """Keep a copy of the host's bytes."""
        self._begin("submit", device, target, host, size)
        _do(queue, lambda: self._write(device, target, ctypes.string_at(host, size)))

    def retrieve(self, device: int, host: int, target: int, size: int, queue: object | None = None) -> None:
        """Copy what was written there; bytes never written read as 0xA5."""
        self._begin("retrieve", device, host, target, size)
        _do(queue, lambda: ctypes.memmove(host, self._read(device, target, size), size))

    def exchange(
        self,
        device: int,
        target: int,
        other: int,
        source: int,
        size: int,
        queue: object | None = None,
    ) -> None:
        """Copy between two ranges, of one device or of two."""
        self._begin("exchange", device, target, other, source, size)
        _do(queue, lambda: self._write(device, target, self._read(other, source, size)))

    def can_exchange(self, device: int, other: int) -> bool:
        """Tell that any two can."""
        return True

    def fill(
        self,
        device: int,
        target: int,
        pattern: bytes,
        count: int,
        queue: object | None = None,
    ) -> None:
        """Write the pattern again and again."""
        self._begin("fill", device, target, pattern, count)
        _do(queue, lambda: self._write(device, target, pattern * count))

    def create_queue(self, device: int) -> object:
        """Give a queue, which puts off what it is given until it is synchronised."""
        self._begin("create_queue", device)
        queue = _Pending()
        self._memories[device].queues.append(queue)
        return queue

    def release_queue(self, device: int, queue: Any) -> None:
        """Forget a queue."""
        self._begin("release_queue", device)
        self._memories[device].queues.remove(queue)

    def synchronize(self, device: int, queue: Any = None) -> None:
        """Do what a queue, or all of the device, was given, and take the time."""
        self._begin("synchronize", device)
        for each in [*self._memories[device].queues] if queue is None else [queue]:
            each.run()

    # --- programs: Python functions ---

    def load(self, device: int, image: object) -> object:
        """Take a Python function, or a dictionary of names and functions."""
        self._begin("load", device)
        return Functions(image)

    def unload(self, device: int, program: object) -> None:
        """Log the call."""
        self._begin("unload", device)

    def entries(self, device: int, program: Any) -> tuple[str, ...]:
        """Give the functions' names."""
        return tuple(program.entries)

    def run(
        self,
        device: int,
        program: Any,
        entry: str,
        arguments: Sequence[Argument],
        *,
        teams: int = 1,
        threads: int = 1,
        queue: Any = None,
    ) -> None:
        """Call a function with arrays on the device's contents."""
        self._begin("run", device, entry, teams, threads)
        passed = views(arguments, partial(self._view, device))
        _do(queue, lambda: program.run(entry, passed, teams, threads))

    # --- how ---

    def _begin(self, method: str, *arguments: object, ready: bool = True) -> Call:
        """Log a call, then take the time that calls take. Raises PluginError when it comes out of order."""
        call = Call(method, arguments, number=next(self._counts.setdefault(method, count(1))))
        self.calls.append(call)
        if self.chosen.log is not None:
            self._append_to_log(str(call))
        if self._ready != ready:
            text = f"{self.name}: {method}: expected after init and before deinit, got out of order"
            raise PluginError(text, plugin=self.name, native=MISUSED)
        self._take_time(method)
        return call

    def _append_to_log(self, line: str) -> None:
        # One write to a file opened for appending: lines of processes don't mix, none is lost in a crash.
        handle = os.open(self.chosen.log or "", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        try:
            os.write(handle, f"{os.getpid()} {line}\n".encode())
        finally:
            os.close(handle)

    def _take_time(self, method: str) -> None:
        latency = self.chosen.latency
        if seconds := latency.get(method, latency.get("", 0.0)):
            time.sleep(seconds)

    def _serve(self, number: int, space: AddressSpace, size: int, alignment: int) -> int:
        """Give what the N-th allocate call gives, 0 for a refusal."""
        what = self.chosen.misbehave.get(number)
        if what == "raise":
            raise PluginError(f"{self.name}: allocate {number} failed, as chosen", native=FAILED)
        if what in ("overlapping", "live") and (ranges := space.ranges()):
            return ranges[-1][0] + (alignment if what == "overlapping" else 0)
        if self._refuses(number) or size > (self.chosen.largest_range or size):
            return 0
        alignment = max(alignment, self.chosen.min_alignment)
        return space.take(size, alignment, 1 if what == "misaligned" else 0) or 0

    def _refuses(self, number: int) -> bool:
        rate = self.chosen.fail_rate
        return number in self.chosen.fail_on or (rate > 0 and self._random.random() < rate)

    def _give_back(self, device: int, address: int, size: int) -> None:
        memory = self._memories[device]
        given = memory.space.give_back(address)
        memory.contents.pop(address, None)
        if given is None or size not in (0, given):
            got = "none" if given is None else f"one of {given} bytes"
            text = (
                f"{self.name}:{device}: release of {size} bytes at {address:#x}: expected a range, got {got}"
            )
            raise PluginError(text, plugin=self.name, native=NOT_HANDED_OUT)

    def _write(self, device: int, address: int, data: bytes) -> None:
        def write() -> None:
            contents, offset = self._contents(device, address, len(data))
            contents[offset : offset + len(data)] = data

        self._alone.run(write)

    def _read(self, device: int, address: int, size: int) -> bytes:
        def read() -> bytes:
            contents, offset = self._contents(device, address, size)
            return bytes(contents[offset : offset + size])

        return self._alone.run(read) or b""

    def _view(self, device: int, address: int, size: int) -> memoryview:
        contents, offset = self._contents(device, address, size)
        return memoryview(contents)[offset : offset + size]

    def _contents(self, device: int, address: int, size: int) -> tuple[bytearray, int]:
        """Give the contents of the range around these bytes, and where in them they are."""
        memory = self._memories[device]
        start = memory.space.find(address, size)
        if start is None:
            text = f"{self.name}:{device}: {size} bytes at {address:#x}: expected memory handed out, got none"
            raise PluginError(text, plugin=self.name, native=NOT_HANDED_OUT)
        if start not in memory.contents:
            memory.contents[start] = bytearray(UNWRITTEN) * memory.space.size_of(start)
        return memory.contents[start], address - start
