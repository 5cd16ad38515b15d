"""Threads that share one device: what a thread wrote to its memory is what it reads back.

    python examples/threads.py                         on the host
    python examples/threads.py --device opencl:0       on the first OpenCL device

Each thread first allocates and frees blocks of 4 bytes, 8 bytes and so on. Then it takes
a block of each size, a region on the device writes the thread's number into all of it,
a second region copies it into an array of the host that is mapped from the device, and
the thread compares. Sizes go past 8 KiB, from where on the manager keeps no blocks.

That is what LLVM's test of its memory manager does, offloading/memory_manager.cpp.
"""

from __future__ import annotations

import argparse
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import numpy as np

import targetmem
from targetmem.errors import TargetMemoryError
from targetmem.sizes import format_size

if TYPE_CHECKING:
    from collections.abc import Callable

    from targetmem import Device
    from targetmem.region import Image

TEAMS = 4  # parts of a region, each of which does every fourth element


def write(block: Any, number: int, count: int, *, team: int, teams: int) -> None:
    """Write a number into this team's elements of a block, which comes as bytes."""
    block.view(np.int32)[team:count:teams] = number


def read(out: Any, block: Any, count: int, *, team: int, teams: int) -> None:
    """Copy this team's elements of a block."""
    out[team:count:teams] = block.view(np.int32)[team:count:teams]


# The same two regions for OpenCL: a team is a work-group.
KERNELS = """
__kernel void write(__global int *block, int number, int count)
{
    for (int i = get_group_id(0); i < count; i += get_num_groups(0)) block[i] = number;
}
__kernel void read(__global int *out, __global const int *block, int count)
{
    for (int i = get_group_id(0); i < count; i += get_num_groups(0)) out[i] = block[i];
}
"""


class Mixed(Exception):
    """Raised when memory holds something else than its thread wrote."""


def check(device: Device, image: Image, number: int, size: int) -> None:
    """Write a thread's number into a block of so many bytes on the device, read it back, compare."""
    count = size // 4
    host = np.full(count, -1, np.int32)
    with device.allocate(size) as block:
        device.run(image["write"], block, number, count, teams=TEAMS)
        with device.map(from_=host):
            device.run(image["read"], host, block, count, teams=TEAMS)
    wrong = np.flatnonzero(host != number)
    if len(wrong):
        at = wrong[0]
        raise Mixed(f"thread {number}, {size} bytes: expected {number} at element {at}, got {host[at]}")


def in_threads(count: int, work: Callable[[int], None]) -> None:
    """Do work in so many threads at once, each with its number. Raises what went wrong in one of them."""
    start = threading.Barrier(count)

    def begin(number: int) -> None:
        start.wait()
        work(number)

    with ThreadPoolExecutor(count) as pool:
        for done in [pool.submit(begin, number) for number in range(count)]:
            done.result()


def run(device: Device, threads: int, sizes: list[int]) -> None:
    """Allocate and free at once in all threads, then write and read back. Raises what goes wrong."""

    def allocate_and_free(_number: int) -> None:
        for size in sizes:
            device.allocate(size).release()

    def write_and_read(number: int) -> None:
        for size in sizes:
            check(device, image, number, size)

    in_threads(threads, allocate_and_free)
    with device.load(KERNELS if device.plugin.name == "opencl" else {"write": write, "read": read}) as image:
        in_threads(threads, write_and_read)


def report(device: Device, threads: int, sizes: list[int], seconds: float) -> None:
    """Say what was done, and what the device was asked for."""
    stats = device.memory.stats()
    largest = format_size(sizes[-1])
    print(f"{device.name}: {threads} threads x {len(sizes)} sizes up to {largest}: every number right")
    print(
        f"{stats.allocations} allocations in {seconds:.2f} s, {stats.hits} from freed blocks, "
        f"{stats.device_allocations} from the device; {stats.live.now} bytes live at the end"
    )


def natural(text: str) -> int:
    """Give a number from 1 on that stands on the command line."""
    number = int(text)
    if number < 1:
        raise ValueError
    return number


def arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--device", default="host:0", metavar="NAME", help="a name that `targetmem devices` lists (host:0)"
    )
    parser.add_argument("--threads", type=natural, default=16, help="threads at once (16)")
    parser.add_argument(
        "--sizes", type=natural, default=13, help="sizes, doubling from 4 bytes on (13: 16 KiB)"
    )
    return parser.parse_args()


def main() -> None:
    """Do what the command line says."""
    args = arguments()
    sizes = [4 << power for power in range(args.sizes)]
    try:
        device = targetmem.device(args.device)
        begin = time.perf_counter()
        run(device, args.threads, sizes)
        report(device, args.threads, sizes, time.perf_counter() - begin)
    except (TargetMemoryError, Mixed) as error:
        hint = getattr(error, "hint", "")  # what to install, where that is known
        sys.exit(f"threads: {error}" if hint in str(error) else f"threads: {error}; {hint}")


if __name__ == "__main__":
    main()
