"""Heat spreading in a plate: an ordinary NumPy program that knows nothing of targetmem.

    python examples/heat.py                        as it is
    python -m targetmem run examples/heat.py       with its arrays served from the pool

Two hot disks on a cold, square plate whose edge is kept at 0 degrees. Each step makes
a dozen arrays as big as the plate (72 MB at the default size) and drops them again.
"""

from __future__ import annotations

import argparse
import struct
import sys
import time
import zlib
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

Grid = NDArray[np.float64]

TIME_STEP = 0.2  # of the grid's spacing squared; from 0.25 on the scheme is unstable


def plate(size: int) -> Grid:
    """Give the temperatures at the start: 100 degrees in a big disk, 60 in a small one, else 0."""
    y, x = np.mgrid[0:size, 0:size] / size
    grid = np.zeros((size, size))
    grid[(x - 0.35) ** 2 + (y - 0.4) ** 2 < 0.04] = 100
    grid[(x - 0.7) ** 2 + (y - 0.65) ** 2 < 0.01] = 60
    return grid


def step(grid: Grid) -> Grid:
    """Give the temperatures one time step later (explicit Euler, five-point stencil)."""
    middle = grid[1:-1, 1:-1]
    along_y = grid[2:, 1:-1] - 2 * middle + grid[:-2, 1:-1]
    along_x = grid[1:-1, 2:] - 2 * middle + grid[1:-1, :-2]
    after = grid.copy()
    after[1:-1, 1:-1] += TIME_STEP * (along_x + along_y)
    return after


def simulate(size: int, steps: int) -> Grid:
    """Run the simulation, with its progress on a terminal."""
    grid = plate(size)
    for number in range(1, steps + 1):
        grid = step(grid)
        if sys.stderr.isatty():
            print(f"\r  step {number} of {steps}", end="" if number < steps else "\n", file=sys.stderr)
    return grid


def write_picture(grid: Grid, path: Path) -> None:
    """Write the temperatures as a PNG of at most 1000 x 1000 pixels, black over red and yellow to white."""
    every = -(-len(grid) // 1000)
    heat = grid[::every, ::every] / 100
    colours = np.clip(3 * heat[..., None] - np.arange(3), 0, 1) * 255
    height, width, _ = colours.shape
    rows = np.zeros((height, 1 + 3 * width), np.uint8)  # each row starts with a 0: no filter
    rows[:, 1:] = colours.reshape(height, -1)
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    chunks = (b"IHDR", header), (b"IDAT", zlib.compress(rows.tobytes())), (b"IEND", b"")
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + b"".join(chunk(name, data) for name, data in chunks))


def chunk(name: bytes, data: bytes) -> bytes:
    """Give one chunk of a PNG file."""
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


def natural(text: str) -> int:
    """Give a number from 1 on that stands on the command line."""
    number = int(text)
    if number < 1:
        raise ValueError
    return number


def main() -> None:
    """Do what the command line says."""
    parser = argparse.ArgumentParser(description="Heat spreading in a plate, in plain NumPy.")
    parser.add_argument("--size", type=natural, default=3000, help="points along each edge (3000)")
    parser.add_argument("--steps", type=natural, default=100, help="time steps (100)")
    parser.add_argument(
        "--picture", type=Path, metavar="FILE.png", help="write the temperatures as a picture"
    )
    args = parser.parse_args()
    start = time.perf_counter()
    grid = simulate(args.size, args.steps)
    seconds = time.perf_counter() - start
    speed = f"{seconds:.2f} s, {args.steps / seconds:.1f} steps a second"
    print(f"{args.size} x {args.size} points, {args.steps} steps: {speed}")
    print(f"mean temperature {grid.mean():.6f}, checksum {zlib.crc32(grid.data):08x}")
    if args.picture:
        write_picture(grid, args.picture)


if __name__ == "__main__":
    main()
