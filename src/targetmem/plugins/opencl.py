"""The target `opencl`: every OpenCL device that has shared virtual memory, through PyOpenCL.

Memory of the kind "device" is coarse-grained shared virtual memory: one address on the host and the device,
but only the device may use it. "shared" is the fine-grained sort, which the host may use as well, where the
device has it. Source: the OpenCL 3.0 specification, sections 5.6 (shared virtual memory) and 5.8 (programs).
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar

from targetmem.abc import Capabilities, Kind, Limit, MemoryInfo, Plugin
from targetmem.errors import PluginError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from targetmem.abc import Argument
    from targetmem.plugins.opencl_device import OpenCLDevice

__all__ = ["OpenCLPlugin"]


def _read_platform(value: object) -> str:
    if not isinstance(value, str) or not value:
        raise ValueError(f"expected a part of a platform's name, got {value!r}")
    return value


class OpenCLPlugin(Plugin):
    """OpenCL devices of all platforms, by platform; the option `platform` picks some by name."""

    options: ClassVar[Mapping[str, Callable[[object], Any]]] = MappingProxyType({"platform": _read_platform})

    def __init__(self, platform: str = "") -> None:
        self._platform = platform
        self._devices: list[OpenCLDevice] = []

    # --- lifetime ---

    def init(self) -> None:
        """Find the devices. Raises PluginError that says what to install when there are none."""
        try:
            from targetmem.plugins.opencl_device import find_devices
        except ImportError as error:
            hint = "install targetmem[opencl]"
            raise PluginError(f"no PyOpenCL ({error})", plugin=self.name, hint=hint) from error
        self._devices = find_devices(self._platform)
        if not self._devices:
            of = f" of a platform named like {self._platform!r}" if self._platform else ""
            raise PluginError(
                f"no OpenCL device with shared virtual memory{of} was found",
                plugin=self.name,
                hint="install a runtime: your vendor's, or pip install pocl-binary-distribution for the CPU",
            )

    def deinit(self) -> None:
        """Forget the devices; the runtime ends with the process."""
        self._devices = []

    def device_count(self) -> int:
        """Give the number of devices with shared virtual memory."""
        return len(self._devices)

    def init_device(self, device: int) -> None:
        """Make the device's context and the queue for calls without one."""
        self._devices[device].open()

    def deinit_device(self, device: int) -> None:
        """Wait for the device's work, and drop its context."""
        self._devices[device].close()

    # --- memory ---

    def allocate(self, device: int, size: int, kind: Kind, alignment: int) -> int:
        """Obtain shared virtual memory; 0 when the runtime refuses, or only would when it is first used."""
        return self._devices[device].allocate(size, kind)

    def release(self, device: int, address: int, size: int, kind: Kind) -> None:
        """Give memory back. Raises PluginError for an address that was not handed out."""
        self._devices[device].release(address)

    def memory_info(self, device: int) -> MemoryInfo:
        """Give the device's memory; OpenCL doesn't tell what others use, so less may be free."""
        return self._devices[device].memory_info()

    def memory_limit(self, device: int) -> Limit:
        """Give the largest single allocation that the device allows (CL_DEVICE_MAX_MEM_ALLOC_SIZE)."""
        return Limit(self._devices[device].largest, "CL_DEVICE_MAX_MEM_ALLOC_SIZE", single=True)

    def min_alignment(self, device: int, kind: Kind) -> int:
        """Give 128 bytes: the largest data type of OpenCL C, and what clSVMAlloc promises."""
        return self._devices[device].alignment

    def capabilities(self, device: int) -> Capabilities:
        """Fine-grained memory, where there is any, is accessible to the host."""
        fine = self._devices[device].fine_grained
        kinds: tuple[Kind, ...] = ("device", "shared") if fine else ("device",)
        return Capabilities(kinds=kinds, host_accessible=frozenset(kinds[1:]))

    # --- transfers ---

    def submit(self, device: int, target: int, host: int, size: int, queue: object | None = None) -> None:
        """Copy to the device."""
        self._devices[device].copy(target, host, size, queue)

    def retrieve(self, device: int, host: int, target: int, size: int, queue: object | None = None) -> None:
        """Copy from the device."""
        self._devices[device].copy(host, target, size, queue)

    def exchange(
        self, device: int, target: int, other: int, source: int, size: int, queue: object | None = None
    ) -> None:
        """Copy within a device; two devices have a context each, and can't reach each other's memory."""
        if device != other:
            raise self._not_supported("exchange between two devices")
        self._devices[device].copy(target, source, size, queue)

    def can_exchange(self, device: int, other: int) -> bool:
        """Tell that a device can exchange with itself."""
        return device == other

    def fill(self, device: int, target: int, pattern: bytes, count: int, queue: object | None = None) -> None:
        """Write a pattern again and again."""
        self._devices[device].fill(target, pattern, count, queue)

    def create_queue(self, device: int) -> object:
        """Make a queue that runs in order."""
        return self._devices[device].new_queue()

    def release_queue(self, device: int, queue: object) -> None:
        """Wait for a queue's work, and drop it."""
        self._devices[device].drop_queue(queue)

    def synchronize(self, device: int, queue: object | None = None) -> None:
        """Wait for a queue, or for all of the device's."""
        self._devices[device].finish(queue)

    # --- programs ---

    def load(self, device: int, image: object) -> object:
        """Build a program from OpenCL C source or SPIR-V. Raises PluginError with the compiler's own log."""
        return self._devices[device].build(image)

    def unload(self, device: int, program: object) -> None:
        """Do nothing: a program goes with its last reference."""

    def entries(self, device: int, program: object) -> tuple[str, ...]:
        """Give the names of the program's kernels."""
        return self._devices[device].entries(program)

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
        """Run a kernel on `teams` work-groups of `threads` work-items each.

        Raises TypeError for arguments that the kernel does not take, PluginError when the runtime refuses.
        """
        self._devices[device].run(program, entry, arguments, (teams, threads), queue)
