"""`Device`: one unit of a target, with a memory manager for each of its memory kinds."""

from __future__ import annotations

from functools import partial
from itertools import count
from typing import TYPE_CHECKING

from targetmem._core import Backend, DeviceCore, PresentTable, own_methods
from targetmem.abc import KINDS, Kind
from targetmem.config import resolve
from targetmem.errors import NotSupported, PluginError, TargetMemoryError
from targetmem.failures import forked_text
from targetmem.lifecycle import Gate, Once, take_all
from targetmem.manager import MemoryManager

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager
    from typing import Any

    from targetmem._core import Buffer
    from targetmem.abc import Capabilities, Limit, MemoryInfo, Plugin
    from targetmem.config import Settings
    from targetmem.mapping import Mapping
    from targetmem.queue import Queue
    from targetmem.region import Entry, Image

__all__ = ["Device"]

_groups = count(1)


@own_methods
class Device(DeviceCore):
    """One unit of a target, named `plugin:index`. Get one from `targetmem.device("host:0")`.

    `plugin` is its plugin and `index` its number there. It is initialised on first use, once; an error in
    that is kept and raised again. Any thread may use it.
    """

    __slots__ = (
        "__weakref__",
        "_gate",
        "_group",
        "_images",
        "_managers",
        "_queues",
        "_start",
        "_table_once",
        "index",
        "name",
        "plugin",
    )

    def __init__(self, plugin: Plugin, index: int) -> None:
        self.plugin = plugin
        self.index = index
        self.name = f"{plugin.name}:{index}"
        self._gate = Gate()
        self._start = Once(self._initialise, f"device {self.name}")
        self._managers: dict[str, Once[MemoryManager]] = {
            kind: Once(partial(self._make_manager, kind), f"device {self.name}") for kind in KINDS
        }
        self._group = next(_groups)
        self._table_once = Once(self._make_table, f"the present table of {self.name}")
        self._queues: list[Queue] = []
        self._images: list[Image] = []

    # --- memory ---

    @property
    def memory(self) -> MemoryManager:
        """The manager of the kind "device". Its `allocate` is the shortest way to memory."""
        return self.manager("device")

    def manager(self, kind: Kind) -> MemoryManager:
        """Give the manager of a memory kind. Raises NotSupported when the device does not have that kind."""
        made = self._managers.get(kind)
        if made is None:
            raise NotSupported(f"{self.name}: expected a memory kind ({', '.join(KINDS)}), got {kind!r}")
        if made.succeeded:  # also when the device is closed, for its statistics
            return made()
        with self.ready():
            return made()

    def managers(self) -> list[MemoryManager]:
        """Give the managers that were used so far, one for each memory kind."""
        return [made() for made in self._managers.values() if made.succeeded]

    def settings(self, kind: Kind = "device") -> Settings:
        """Give what is set for the device, and where each value was found. Raises ConfigError."""
        with self.ready():
            wanted = self.plugin.manager_wanted(self.index, kind)
            default = self.plugin.default_threshold(self.index, kind) if wanted else 0
        return resolve(self.name, plugin_threshold=default)

    def memory_info(self) -> MemoryInfo | None:
        """Give the device's free and total bytes, None when it cannot tell."""
        with self.ready():
            return self.plugin.memory_info(self.index)

    def memory_limit(self) -> Limit | None:
        """Give the limit in bytes that holds below the device's capacity, None when there is none."""
        with self.ready():
            return self.plugin.memory_limit(self.index)

    @property
    def capabilities(self) -> Capabilities:
        """What the device is able to do."""
        with self.ready():
            return self.plugin.capabilities(self.index)

    # --- mapped data ---

    def map(
        self,
        *,
        to: object = (),
        from_: object = (),
        tofrom: object = (),
        alloc: object = (),
        **modifiers: Any,
    ) -> AbstractContextManager[Device]:
        """Map arrays while a with-block runs: `enter` before it, `exit` behind it; gives the device.

        `to` is copied to the device, `from_` back from it, `tofrom` both ways, `alloc` neither way; each is
        one array or a list of them. The modifiers are those of `enter` and `exit` (always, present, close,
        hold, queue). Raises what they raise. Semantics: OpenMP 5.2, target data.
        """
        from targetmem.mapping import mapped

        return mapped(self, to, from_, tofrom, alloc, modifiers)

    def attach(self, structure: object, field: str, pointee: object, /) -> None:
        """Have a pointer field of a mapped ctypes structure point to mapped memory, on the device.

        The host's pointer stays as it is, also when the structure is copied back. Raises MappingError when
        one of the two is not mapped, TypeError when there is no such pointer. Semantics: OpenMP 5.2, attach.
        """
        from targetmem.mapping import pointer_offset

        self._attach(structure, pointer_offset(structure, field), pointee)

    def present_table(self) -> list[Mapping]:
        """List what is mapped, by host address: where to, how many bytes, the counts."""
        from targetmem.mapping import Mapping

        return (
            [Mapping(*entry) for entry in self._table_once().entries()] if self._table_once.succeeded else []
        )

    @property
    def unified_memory(self) -> bool:
        """Whether the device uses the host's own memory for what is mapped (OpenMP's unified_shared_memory).

        Off at first. Setting it raises NotSupported where the device can't reach the host's memory.
        """
        return self._table_once().unified

    @unified_memory.setter
    def unified_memory(self, wanted: bool) -> None:
        if wanted and not self.capabilities.unified:
            text = f"{self.name}: expected a device that reaches the host's memory, got one that does not"
            raise NotSupported(text, plugin=self.plugin.name)
        self._table_once().unified = wanted

    # --- copies: done on return; addresses as ints ---

    def submit(self, target: int, host: int, size: int) -> None:
        """Copy bytes from a host address to an address of the device. Raises what the plugin does."""
        with self.ready():
            self.plugin.submit(self.index, target, host, size)

    def retrieve(self, host: int, target: int, size: int) -> None:
        """Copy bytes from an address of the device to a host address. Raises what the plugin does."""
        with self.ready():
            self.plugin.retrieve(self.index, host, target, size)

    def can_exchange(self, other: Device) -> bool:
        """Tell whether `exchange` works with another device: only those of one plugin can."""
        with self.ready():
            return self.plugin is other.plugin and self.plugin.can_exchange(self.index, other.index)

    def exchange(self, target: int, other: Device, source: int, size: int) -> None:
        """Copy bytes from an address of another device (`can_exchange`) to one of this device."""
        with self.ready(), other.ready():
            self.plugin.exchange(self.index, target, other.index, source, size)

    def fill(self, target: int, pattern: bytes, count: int) -> None:
        """Write a pattern `count` times, one after the other, from an address of the device on."""
        with self.ready():
            self.plugin.fill(self.index, target, pattern, count)

    # --- work ---

    def queue(self) -> Queue:
        """Make a queue, whose work the device does in order while the host goes on.

        Where the plugin has none, each call given to it is done when it returns. Raises PluginError,
        DeviceClosed.
        """
        from targetmem.queue import Queue

        with self.ready():
            made = Queue(self)
        self._queues.append(made)
        return made

    def forget_queue(self, queue: Queue) -> None:
        """Hold a queue no more: it was closed."""
        if queue in self._queues:
            self._queues.remove(queue)

    def load(self, source: object) -> Image:
        """Load a program, in whatever form the target takes it.

        The host takes a shared object (path or bytes), a Python function or a dictionary of names and
        functions, OpenCL takes kernel source, the path of it, or SPIR-V. Raises PluginError, with the
        compiler's log when it does not compile, TypeError for what the target can't load, NotSupported.
        """
        from targetmem.region import Image

        made = Image(self, source)
        self._images.append(made)
        return made

    def forget_image(self, image: Image) -> None:
        """Hold an image no more: it was closed."""
        if image in self._images:
            self._images.remove(image)

    def run(
        self,
        entry: Entry,
        /,
        *arguments: object,
        teams: int = 1,
        threads: int = 1,
        queue: Queue | None = None,
    ) -> None:
        """Run an entry of an image on `teams` teams of `threads` threads; on a queue, or done on return.

        Arguments are arrays that are mapped (`enter`), Buffers of this device, and numbers. Raises
        MappingError for an array that isn't mapped, TypeError and LookupError for what the entry does not
        take, PluginError for what went wrong in it.
        """
        from targetmem.region import run

        run(self, entry, arguments, (teams, threads), queue)

    def synchronize(self) -> None:
        """Wait until all work given to the device is done. Raises what went wrong in it."""
        with self.ready():
            self.plugin.synchronize(self.index)
            take_all([queue.drain for queue in [*self._queues]])

    # --- lifetime ---

    @property
    def closed(self) -> bool:
        """Whether the device was closed."""
        return self._gate.closed

    def close(self) -> None:
        """Close the managers, which give all memory back, then end the use of the device, for good.

        Waits for calls that other threads have inside the plugin. Live memory is told in a LeakWarning, and
        every `Buffer` becomes inert. Idempotent.
        """
        self.close_and_report(report=True)

    def close_and_report(self, *, report: bool | None) -> None:
        """Close, and warn of live memory or not; None leaves that to the setting `report_leaks`."""
        if not self._gate.close(f"{self.name}: closed: expected an open device; use it before close()"):
            return
        steps: list[Callable[[], object]] = [queue.end for queue in self._queues]
        steps += [image.end for image in self._images]
        if self._table_once.succeeded:
            steps.append(self._table_once().close)
        steps += [partial(manager.close_and_report, report=report) for manager in self.managers()]
        if self._start.succeeded:
            steps.append(partial(self.plugin.deinit_device, self.index))
        take_all(steps)

    def disown(self) -> None:
        """Refuse everything: the device belongs to the parent of this forked process."""
        self._gate.close_in_child(forked_text(self.name))
        if self._table_once.succeeded:
            self._table_once().disown()

    def __repr__(self) -> str:
        ranges = self.table.ranges if self.table is not None else 0
        mapped = f", {ranges} ranges mapped" if ranges else ""
        return f"<Device {self.name}{' closed' if self.closed else ''}{mapped}>"

    # --- first use ---

    def ready(self) -> Gate:
        """Give the gate to call the plugin through, once the device is initialised."""
        if not self._start.succeeded:
            with self._gate:
                self._start()
        return self._gate

    def _initialise(self) -> None:
        try:
            self.plugin.init_device(self.index)
        except TargetMemoryError:
            raise
        except Exception as error:
            text = f"device {self.name}: cannot be initialised: {type(error).__name__}: {error}"
            raise PluginError(text, plugin=self.plugin.name) from error

    def _allocate(self, size: int, kind: Kind | None, alignment: int | None) -> Buffer:
        """Allocate for a request with wishes, or for the first one."""
        manager = self.manager("device" if kind is None else kind)
        if manager.kind == "device" and not manager.settings.call_sites:
            self.first = manager
        return manager.allocate(size) if alignment is None else manager.allocate_aligned(size, alignment)

    def _open_table(self) -> PresentTable:
        """Give the present table, made when it is first used."""
        with self.ready():
            self.table = self._table_once()
        return self.table

    def _make_table(self) -> PresentTable:
        return PresentTable(self, self.manager("device"))

    def _make_manager(self, kind: Kind) -> MemoryManager:
        if kind not in self.plugin.capabilities(self.index).kinds:
            known = ", ".join(self.plugin.capabilities(self.index).kinds)
            text = f"{self.name}: expected a memory kind of this device ({known}), got {kind!r}"
            raise NotSupported(text, plugin=self.plugin.name)
        return MemoryManager(
            backend=self.plugin.backend(self.index, kind) or self._backend(kind),
            settings=self.settings(kind),
            name=self.name if kind == "device" else f"{self.name} ({kind})",
            kind=kind,
            group=self._group,
            owner=self,
        )

    def _backend(self, kind: Kind) -> Backend:
        """Make the backend that calls the plugin's own methods."""
        plugin, index = self.plugin, self.index
        able = plugin.capabilities(index)
        return Backend(
            lambda size, alignment: plugin.allocate(index, size, kind, alignment),
            lambda address, size: plugin.release(index, address, size, kind),
            min_alignment=plugin.min_alignment(index, kind),
            aligns=able.aligns,
            host_accessible=kind in able.host_accessible,
            fork_safe=plugin.fork_safe,
            memory_info=lambda: plugin.memory_info(index),
        )
