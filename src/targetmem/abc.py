"""The contract of a plugin: what targetmem asks of the code that talks to one target.

A plugin is one class. Only `device_count`, `allocate` and `release` must be written; everything else has a
default, or refuses with "not supported by this plugin". Announce it as an entry point of the group
`targetmem.plugins`:

    [project.entry-points."targetmem.plugins"]
    mytarget = "mypackage.plugin:MyPlugin"

and run the conformance suite (`targetmem.conformance`) against it.

What holds for every method, unless it says otherwise:

- Devices are numbered 0 .. `device_count()` - 1; addresses are ints, sizes and alignments are bytes.
- Any thread may call, several at once. No lock of targetmem is held, so the method may block and may call
  Python code; it runs with the GIL and should release it around a call that blocks.
- `init` came before, for a device also `init_device`; nothing comes after `deinit`.
- A failure is an exception. A plugin that has a native status code puts it on a `PluginError` as `native`.
- Memory kinds are "device", "host" (pinned) and "shared" (managed).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple

from targetmem.errors import NotSupported

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from targetmem._core import Backend

__all__ = ["KINDS", "Argument", "Capabilities", "Kind", "Limit", "MemoryInfo", "Plugin", "TargetArray"]

Kind = Literal["device", "host", "shared"]
KINDS: tuple[Kind, ...] = ("device", "host", "shared")


class MemoryInfo(NamedTuple):
    """A device's memory in bytes, as the device itself counts it."""

    free: int
    total: int


class Limit(NamedTuple):
    """A limit below the device's capacity, in bytes, and the setting (none of targetmem's) that raises it.

    `single`: it holds for each allocation, not for all together, and nothing raises it; then `setting` is
    its name.
    """

    bytes: int
    setting: str
    single: bool = False


class TargetArray(NamedTuple):
    """An argument of a region that lies on the device: target address, bytes, and how to read them.

    `format` is a struct format code (PEP 3118), `shape` the elements in each dimension and `strides` their
    distances in bytes (None: C order).
    """

    address: int
    size: int
    format: str = "B"
    shape: tuple[int, ...] = ()
    strides: tuple[int, ...] | None = None


Argument = TargetArray | int | float
"""What an entry of a program gets: memory of the device, or a number (also NumPy's or ctypes')."""


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What a device is able to do.

    `kinds` are the memory kinds it has, `host_accessible` those whose addresses the host may dereference;
    `aligns` whether `allocate` honours any power of two as alignment (else the manager pads); `reserve`
    whether address ranges can be reserved and committed piecewise; `unified` whether the device can use the
    host's own memory at the host's addresses.
    """

    kinds: tuple[Kind, ...] = ("device",)
    host_accessible: frozenset[Kind] = frozenset()
    aligns: bool = False
    reserve: bool = False
    unified: bool = False


class Plugin(ABC):
    """The code that talks to one target and owns its devices; the module says what holds for all methods.

    The class is called with the plugin's options as keywords (`[plugin.NAME]` of `targetmem.toml`,
    `TARGETMEM_NAME_OPTION`), which `options` lists with the function that reads each: it gets what was
    written and raises ValueError ("expected ..., got ...") for what it cannot use. The constructor must not
    touch the target.
    """

    name: str = ""
    """The target's name, set by targetmem to the name of the entry point before `init`."""
    options: ClassVar[Mapping[str, Callable[[object], Any]]] = MappingProxyType({})
    """The plugin's own options: name -> function that reads the written value."""
    fork_safe: ClassVar[bool] = False
    """Whether a forked child may go on using memory and devices of its parent."""

    # --- lifetime ---

    def init(self) -> None:
        """Start the target's runtime. The first call that the plugin gets, at most once.

        An exception makes the plugin unavailable for the rest of the process: it is kept and shown to
        everyone who asks, and `deinit` is not called, so undo what was begun. A missing runtime: raise
        `PluginError` whose `hint` says what to install, or let the ImportError through.
        """

    def deinit(self) -> None:
        """End the runtime. The last call that the plugin gets: exactly once if `init` ended well.

        Before: every device is deinitialised, no call is in flight. Comes at interpreter exit, in the main
        thread.
        """

    @abstractmethod
    def device_count(self) -> int:
        """Give the number of devices, which never changes. Called after `init`."""

    def init_device(self, device: int) -> None:
        """Make a device ready: once, before its first use. An exception is kept as for `init`."""

    def deinit_device(self, device: int) -> None:
        """End the use of a device: once if `init_device` ended well; all its memory was released before."""

    # --- memory ---

    @abstractmethod
    def allocate(self, device: int, size: int, kind: Kind, alignment: int) -> int | None:
        """Obtain memory and give its address, a multiple of `alignment`.

        Before: size > 0; alignment is `min_alignment(device, kind)`, or with `Capabilities.aligns` any power
        of two from there on. After: the range overlaps no other that was not released. No memory: give 0 or
        None, or raise MemoryError (both are followed by giving cached blocks back and trying again). Another
        exception counts as a refusal too, but the caller sees it as the cause of a `PluginError`.
        """

    @abstractmethod
    def release(self, device: int, address: int, size: int, kind: Kind) -> None:
        """Give memory back.

        Before: address came from `allocate` with this size and kind; size 0 means not known (an address that
        the manager never gave out). Work that uses the memory has ended: that is the caller's duty.
        """

    def memory_info(self, device: int) -> MemoryInfo | None:
        """Give the device's free and total bytes, None when the target cannot tell. Must not allocate."""
        return None

    def memory_limit(self, device: int) -> Limit | None:
        """Give the limit that holds below the device's capacity, None when there is none. For error texts."""
        return None

    def min_alignment(self, device: int, kind: Kind) -> int:
        """Give the alignment, a power of two, that every address of `allocate` has."""
        return 1

    def manager_wanted(self, device: int, kind: Kind) -> bool:
        """Tell whether keeping freed blocks helps this target. A user's threshold overrides it."""
        return True

    def default_threshold(self, device: int, kind: Kind) -> int | None:
        """Give the largest request to manage when the user sets none; None means the default, 8192."""
        return None

    def backend(self, device: int, kind: Kind) -> Backend | None:
        """Give a backend of plain C functions for allocate and release, which then never take the GIL.

        None (the default) has the manager call `allocate` and `release` of this class. Called once for each
        kind.
        """
        return None

    def capabilities(self, device: int) -> Capabilities:
        """Give what the device is able to do."""
        return Capabilities()

    def reserve(self, device: int, size: int) -> int:
        """Reserve a range of addresses without memory behind it (`Capabilities.reserve`); gives its start."""
        raise self._not_supported("reserve", device, size)

    def commit(self, device: int, address: int, size: int) -> None:
        """Put memory behind a part of a reserved range. No memory: as for `allocate`."""
        raise self._not_supported("commit", device, address, size)

    def decommit(self, device: int, address: int, size: int) -> None:
        """Take the memory behind a part of a reserved range away; the addresses stay reserved."""
        raise self._not_supported("decommit", device, address, size)

    def unreserve(self, device: int, address: int, size: int) -> None:
        """Give a whole reserved range back. Before: nothing of it is committed."""
        raise self._not_supported("unreserve", device, address, size)

    # --- transfers: with a queue they may return before they are done, in the queue's order ---

    def submit(self, device: int, target: int, host: int, size: int, queue: object | None = None) -> None:
        """Copy `size` bytes from a host address to a target address.

        With a queue, the host memory must stay unchanged until `synchronize`.
        """
        raise self._not_supported("submit", device, target, host, size, queue)

    def retrieve(self, device: int, host: int, target: int, size: int, queue: object | None = None) -> None:
        """Copy `size` bytes from a target address to a host address."""
        raise self._not_supported("retrieve", device, host, target, size, queue)

    def exchange(
        self, device: int, target: int, other: int, source: int, size: int, queue: object | None = None
    ) -> None:
        """Copy `size` bytes to target address `target` of `device` from `source` of device `other`."""
        raise self._not_supported("exchange", device, target, other, source, size, queue)

    def can_exchange(self, device: int, other: int) -> bool:
        """Tell whether `exchange` works between two devices of this plugin."""
        return False

    def fill(self, device: int, target: int, pattern: bytes, count: int, queue: object | None = None) -> None:
        """Write `pattern` (1 byte or more) `count` times, one after the other, from a target address on."""
        raise self._not_supported("fill", device, target, pattern, count, queue)

    def create_queue(self, device: int) -> object:
        """Make a queue, which runs what is given to it in order."""
        raise self._not_supported("create_queue", device)

    def release_queue(self, device: int, queue: object) -> None:
        """End a queue. Before: it was synchronised."""
        raise self._not_supported("release_queue", device, queue)

    def synchronize(self, device: int, queue: object | None = None) -> None:
        """Wait until a queue, or all work of the device, is done. Raises what went wrong in it."""

    # --- programs ---

    def load(self, device: int, image: object) -> object:
        """Load a program for the device; gives what `run` and `unload` want.

        What an image is depends on the target: source text, bytes of a binary, a function. A failing
        compiler's own log belongs in the error.
        """
        raise self._not_supported("load", device, image)

    def unload(self, device: int, program: object) -> None:
        """Drop a program. Before: nothing of it runs."""
        raise self._not_supported("unload", device, program)

    def entries(self, device: int, program: object) -> tuple[str, ...]:
        """Give the names of a program's entries."""
        raise self._not_supported("entries", device, program)

    def run(
        self,
        device: int,
        program: object,
        entry: str,
        arguments: Sequence[Argument],
        *,
        teams: int = 1,
        threads: int = 1,
        queue: object | None = None,
    ) -> None:
        """Run an entry of a program with memory of the device and numbers as arguments, on teams of threads.

        Raises LookupError when there is no such entry, TypeError for arguments that it does not take.
        """
        raise self._not_supported("run", device, program, entry, arguments, teams, threads, queue)

    def _not_supported(self, method: str, *_arguments: object) -> NotSupported:
        name = self.name or type(self).__name__
        return NotSupported(f"{method}: not supported by this plugin ({name})", plugin=name)
