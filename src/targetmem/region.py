"""Programs of a device, and running their entries: `device.load`, `image["entry"]`, `device.run`."""

from __future__ import annotations

from contextlib import suppress
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

from targetmem._core import Buffer
from targetmem.abc import TargetArray
from targetmem.errors import DeviceClosed, MappingError, NotSupported, PluginError, TargetMemoryError

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

    from targetmem._device import Device
    from targetmem.queue import Queue

__all__ = ["Entry", "Image", "run"]


class Entry(NamedTuple):
    """One entry of an image, to be run on its device."""

    image: Image
    name: str


class Image:
    """A program loaded on a device. Get one from `device.load(...)`; `image["name"]` is an entry of it."""

    __slots__ = ("_closed", "device", "program")

    def __init__(self, device: Device, source: object) -> None:
        self.device = device
        self._closed = False
        with device.ready():
            self.program = device.plugin.load(device.index, source)

    @property
    def entries(self) -> tuple[str, ...]:
        """The names of the entries, none where the target can't list them."""
        with self.device.ready():
            try:
                return tuple(self.device.plugin.entries(self.device.index, self.program))
            except NotSupported:
                return ()

    def __getitem__(self, name: str) -> Entry:
        """Give an entry. Raises LookupError, with the names that there are."""
        names = self.entries
        if names and name not in names:
            raise LookupError(
                f"{self.device.name}: expected an entry of the image ({', '.join(names)}), got {name!r}"
            )
        return Entry(self, name)

    def close(self) -> None:
        """Drop the program. Before: nothing of it runs. Idempotent."""
        if not self._closed:
            with self.device.ready():
                self.end()

    def end(self) -> None:
        """Do what `close` does. Before: the plugin may be called."""
        if not self._closed:
            self._closed = True
            self.device.forget_image(self)
            self.device.plugin.unload(self.device.index, self.program)

    @property
    def closed(self) -> bool:
        """Whether the program was dropped."""
        return self._closed

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def run(
    device: Device, entry: Entry, arguments: tuple[object, ...], shape: tuple[int, int], queue: Queue | None
) -> None:
    """Run an entry of an image of the device; `shape` is teams and threads of each team."""
    check(device, entry, shape)
    passed = [
        translate(device, entry.name, number, argument, queue) for number, argument in enumerate(arguments)
    ]
    with device.ready():
        if queue is not None:
            queue.check(device)
            for used in (entry.image, *arguments):
                queue.keep(used)
        native = None if queue is None else queue.native
        try:
            device.plugin.run(
                device.index,
                entry.image.program,
                entry.name,
                passed,
                teams=shape[0],
                threads=shape[1],
                queue=native,
            )
        except TargetMemoryError:
            raise
        except (LookupError, TypeError) as error:
            raise type(error)(f"{device.name}: {error}") from None
        except Exception as error:
            text = f"{device.name}: {entry.name}: {type(error).__name__}: {error}"
            raise PluginError(text, plugin=device.plugin.name) from error
    if queue is not None:
        _use_again(device, arguments, queue)


def _use_again(device: Device, arguments: tuple[object, ...], queue: Queue) -> None:
    """Have the queue use the mappings, should it have been synchronised before the work was given to it."""
    for argument in arguments:
        if not isinstance(argument, Buffer) and _view(argument) is not None:
            with suppress(MappingError):  # another thread ended it
                device.mapped_pointer_on(argument, queue)


def check(device: Device, entry: object, shape: tuple[int, int]) -> None:
    """Raise an error that says what was expected when the entry or the shape can't be run on the device."""
    if not isinstance(entry, Entry):
        raise TypeError(f"run: expected an entry (image['name']), got {type(entry).__name__}")
    if entry.image.device is not device:
        other = entry.image.device.name
        raise ValueError(f"run: expected an entry of an image of {device.name}, got one of {other}")
    if entry.image.closed:
        raise DeviceClosed(f"{device.name}: the image of {entry.name!r} was closed: load it again")
    if min(shape) < 1:
        raise ValueError(f"run: expected 1 or more teams of 1 or more threads, got {shape[0]} of {shape[1]}")


def translate(device: Device, entry: str, number: int, argument: Any, queue: Queue | None = None) -> Any:
    """Give an argument as the plugin gets it: memory of the device with its format, or the number itself.

    With a queue that uses the mapping of an array from then on.

    Raises MappingError for an array that isn't mapped, ValueError for a Buffer of another device.
    """
    if isinstance(argument, Buffer):
        if argument.device is not device:
            raise ValueError(
                f"{entry}: argument {number}: expected a Buffer of {device.name}, got {argument!r}"
            )
        return TargetArray(argument.pointer, argument.size, "B", (argument.size,))
    view = _view(argument)
    if view is None:
        return argument
    try:
        address = device.mapped_pointer_on(argument, queue)
    except MappingError as error:
        text = f"{entry}: argument {number}: expected an array that is mapped; device.enter(to=[...]) maps it"
        raise MappingError(f"{device.name}: {text}: {error}") from None
    return TargetArray(address, view.nbytes, view.format, view.shape or (), _strides(view))


def _view(argument: Any) -> memoryview | None:
    """Give what an array looks like; None for a number, NumPy's or ctypes' too, and for what is no buffer."""
    if isinstance(argument, (int, float, complex)):
        return None
    try:
        view = memoryview(argument)
    except TypeError:
        return None
    is_number = view.ndim == 0 and not hasattr(argument, "__setitem__") and not hasattr(argument, "_fields_")
    return None if is_number else view


def _strides(view: memoryview) -> tuple[int, ...] | None:
    return None if view.c_contiguous or not prod(view.shape or ()) else tuple(view.strides or ())
