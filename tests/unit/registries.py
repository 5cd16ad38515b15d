"""Registries of plugins for tests, and threads that all do the same."""

from __future__ import annotations

import os
import threading
import traceback
from typing import TYPE_CHECKING

from targetmem.errors import TargetMemoryError
from targetmem.plugins.discovery import Source
from targetmem.plugins.registry import Registry
from targetmem.plugins.simulated import SimulatedPlugin

if TYPE_CHECKING:
    from collections.abc import Callable

    from targetmem.abc import Plugin


def registry_of(**plugins: Callable[[], object]) -> Registry:
    """Give a registry of plugins by name: each a function that does what loading an entry point would."""
    return Registry(lambda: {name: Source(name, load) for name, load in plugins.items()})  # type: ignore[arg-type]


def registry_with(plugin: Plugin) -> Registry:
    """Give a registry with one plugin, `x`."""
    return registry_of(x=lambda: lambda: plugin)


def methods(plugin: SimulatedPlugin) -> list[str]:
    """Give the names of the calls that a plugin got."""
    return [call.method for call in plugin.calls]


def in_threads(count: int, work: Callable[[], object]) -> list[object]:
    """Run work in threads at once; gives what each gave or raised."""
    given: list[object] = []
    barrier = threading.Barrier(count)

    def run() -> None:
        barrier.wait()
        try:
            given.append(work())
        except TargetMemoryError as error:
            given.append(error)

    threads = [threading.Thread(target=run) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return given


def forked(work: Callable[[], object]) -> int:
    """Run work in a forked child; gives its exit status, 0 when work raised nothing."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            work()
            status = 0
        except BaseException:  # noqa: BLE001 - the exit status tells the parent
            traceback.print_exc()
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
