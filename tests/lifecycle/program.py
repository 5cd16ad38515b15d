"""Use a plugin that logs its calls, and end in one of many ways: `python program.py LOG KIND`.

The plugin writes each of its calls to the file LOG. What the test then expects of the log
and of the exit status stands in test_exits.py.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import signal
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from targetmem._device import Device

LOG = sys.argv[1]


def early() -> None:
    """Run at exit after targetmem's own handler, which was registered later."""
    if device is not None:
        expect_closed(lambda: device.allocate(10))
        expect_closed(device.synchronize)


def expect_closed(call: Callable[[], object]) -> None:
    """Make a call that must be refused, since the plugin is gone."""
    from targetmem.errors import DeviceClosed

    try:
        call()
    except DeviceClosed:
        return
    Path(LOG).write_text(f"{os.getpid()} not_refused\n")


device: Device | None = None
atexit.register(early)

import targetmem  # noqa: E402 - the handler above is to be registered first
from targetmem.errors import TargetMemoryError  # noqa: E402
from targetmem.plugins.simulated import SimulatedPlugin  # noqa: E402


def get_device() -> Device:
    """Give the device, used already: one block is cached."""
    global device  # noqa: PLW0603 - a global that is alive at exit is what is tested
    targetmem.plugins.add(SimulatedPlugin(log=LOG), "logged")
    device = targetmem.device("logged:0")
    device.allocate(100).release()
    return device


class Late:
    """Allocates and frees when it is collected, whenever that is."""

    def __init__(self, device: Device) -> None:
        self.device = device
        self.kept = device.allocate(300)
        self.itself = self

    def __del__(self) -> None:
        with contextlib.suppress(TargetMemoryError):
            self.device.allocate(400)
        self.kept.release()


kept: list[object] = []


def normal() -> None:
    """Nothing is left alive but what the manager keeps."""
    get_device()


def live() -> None:
    """Buffers of every kind live in a global."""
    made = get_device()
    kept.extend(
        made.allocate(size, kind=kind) for size in (10, 10_000) for kind in ("device", "host", "shared")
    )


def system_exit() -> None:
    """The program ends by sys.exit, with a live buffer."""
    live()
    sys.exit(3)


def exception() -> None:
    """The program ends by an exception that nobody catches, with a live buffer in its traceback."""
    buffer = get_device().allocate(200)
    raise RuntimeError(f"uncaught, with {buffer.size} bytes")


def interrupt() -> None:
    """Ctrl-C."""
    live()
    signal.raise_signal(signal.SIGINT)


def interrupt_anywhere() -> None:
    """Ctrl-C, or as good as that, in the middle of whatever call it happens to meet."""
    made = get_device()
    signal.signal(signal.SIGALRM, signal.default_int_handler)
    signal.setitimer(signal.ITIMER_REAL, 0.003)
    while True:
        for size in (300, 400, 20_000):
            made.allocate(size).release()
        made.memory.trim()


def logging_deinit() -> None:
    """The plugin's last call logs, which Python can still do then."""
    import logging

    class Logging(SimulatedPlugin):
        def deinit(self) -> None:
            logging.getLogger("plugin").warning("the end")
            super().deinit()

    targetmem.plugins.add(Logging(log=LOG), "logged")
    kept.append(targetmem.device("logged:0").allocate(10))


def cycles() -> None:
    """Objects in reference cycles, and in a global, that allocate and free while they are collected."""
    made = get_device()
    for _ in range(5):
        Late(made)
    kept.append(Late(made))


def daemons() -> None:
    """Daemon threads allocate and free until they are stopped dead."""
    made = get_device()
    started = threading.Barrier(4)

    def allocate() -> None:
        made.allocate(100)
        kept[:] = [made.allocate(5000), made.allocate(50_000)]

    def work(again_and_again: Callable[[], object]) -> None:
        started.wait()
        with contextlib.suppress(TargetMemoryError):
            while True:
                again_and_again()

    for target in (allocate, allocate, made.synchronize):
        threading.Thread(target=work, args=[target], daemon=True).start()
    started.wait()


def late_thread() -> None:
    """A thread that the interpreter waits for uses the device after the main program's end."""
    made = get_device()

    def work() -> None:
        threading.main_thread().join()
        kept.append(made.allocate(600))

    threading.Thread(target=work).start()


def handler() -> None:
    """A handler that runs at exit, before targetmem's own, still allocates."""
    made = get_device()
    atexit.register(lambda: kept.append(made.allocate(700)))


def closed() -> None:
    """The program closes the device itself, twice, and keeps a buffer."""
    import warnings

    warnings.simplefilter("ignore")
    live()
    for _ in range(2):
        get_device_again().close()


def get_device_again() -> Device:
    """Give the device that was used."""
    assert device is not None
    return device


def arrays() -> None:
    """NumPy arrays from a pool are alive at exit."""
    import numpy as np

    normal()
    targetmem.install("numpy")
    kept.extend(np.ones(1 << 20) for _ in range(3))


def unused() -> None:
    """The plugin is there, and nobody uses it."""
    targetmem.plugins.add(SimulatedPlugin(log=LOG), "logged")


if __name__ == "__main__":
    globals()[sys.argv[2]]()
