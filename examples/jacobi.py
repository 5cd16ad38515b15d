"""The electric potential between two charged plates: a Jacobi solver whose data stays on the device.

    python examples/jacobi.py --picture plates.png                     on the host
    python examples/jacobi.py --device opencl:0 --picture plates.png   on the first OpenCL device

A box with a grounded wall holds a plate at +1 volt and another one at -1 volt. In the
space between them every point's potential is the mean of its four neighbours'. Jacobi's
method gets there by taking that mean at all points at once, again and again.

The potential goes to the device once and comes back once, at the end: `device.map` does
both. In between only the largest change of each row is copied, with `device.update`, to
see how far it is. Writing the picture needs Pillow: pip install 'targetmem[examples]'.
"""

from __future__ import annotations

import argparse
import sys
import time
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

import targetmem
from targetmem.errors import TargetMemoryError

if TYPE_CHECKING:
    from collections.abc import Callable

    from targetmem import Device

Grid = NDArray[np.float32]

# --- the regions: each team has a band of rows ------------------------------------------------------


def sweep(old: Any, new: Any, fixed: Any, size: int, *, team: int, teams: int) -> None:
    """Take the mean of the four neighbours at every point of this team's rows that isn't fixed."""
    first, last = (1 + (size - 2) * part // teams for part in (team, team + 1))
    mean = old[first - 1 : last - 1, 1:-1] + old[first + 1 : last + 1, 1:-1]
    mean += old[first:last, :-2]
    mean += old[first:last, 2:]
    mean *= np.float32(0.25)
    np.copyto(new[first:last, 1:-1], mean, where=fixed[first:last, 1:-1] == 0)


def compare(old: Any, new: Any, changes: Any, size: int, *, team: int, teams: int) -> None:
    """Find the largest change in each of this team's rows."""
    rows = slice(size * team // teams, size * (team + 1) // teams)
    changes[rows] = np.abs(new[rows] - old[rows]).max(axis=1)


# The same for OpenCL, where a team is a work-group, and its threads share a row.
KERNELS = """
__kernel void sweep(__global const float *old, __global float *new, __global const uchar *fixed, int size)
{
    for (int y = get_group_id(0); y < size; y += get_num_groups(0))
        for (int x = get_local_id(0); x < size; x += get_local_size(0)) {
            int i = y * size + x;
            if (!fixed[i]) new[i] = 0.25f * (old[i - size] + old[i + size] + old[i - 1] + old[i + 1]);
        }
}
__kernel void compare(__global const float *old, __global const float *new, __global float *changes, int size)
{
    for (int y = get_global_id(0); y < size; y += get_global_size(0)) {
        changes[y] = 0;
        for (int i = y * size; i < (y + 1) * size; i++) changes[y] = fmax(changes[y], fabs(new[i] - old[i]));
    }
}
"""


class Regions(NamedTuple):
    """What a device loads, and how many teams of how many threads run it."""

    source: Any
    teams: int
    threads: int


ON_HOST = Regions({"sweep": sweep, "compare": compare}, teams=1, threads=1)
ON_OPENCL = Regions(KERNELS, teams=64, threads=32)

# --- the solver ------------------------------------------------------------------------------------


class Problem(NamedTuple):
    """The potential in volts to start from, and where it is fixed (1) and not to be found (0)."""

    potential: Grid
    fixed: NDArray[np.uint8]


def plates(size: int) -> Problem:
    """Give a box with a grounded wall, and two plates in it."""
    potential = np.zeros((size, size), np.float32)
    fixed = np.zeros((size, size), np.uint8)
    fixed[[0, -1]] = fixed[:, [0, -1]] = 1
    y, x = np.mgrid[0:size, 0:size] / size
    for centre, volts in ((0.38, 1), (0.62, -1)):
        plate = (abs(x - centre) < 0.02) & (abs(y - 0.5) < 0.25)
        potential[plate], fixed[plate] = volts, 1
    return Problem(potential, fixed)


class Outcome(NamedTuple):
    """How often the mean was taken, and the largest change of the last time."""

    sweeps: int
    change: float


def solve(
    device: Device,
    problem: Problem,
    tolerance: float,
    most: int,
    every: int,
    progress: Callable[[Outcome], object],
) -> Outcome:
    """Sweep until no point changes by more than the tolerance, or `most` times; looks `every` so many sweeps.

    Sweeps are done in pairs. The problem's potential is the solution then.
    """
    potential, fixed = problem
    size = len(potential)
    regions = ON_OPENCL if device.plugin.name == "opencl" else ON_HOST
    shape = {"teams": regions.teams, "threads": regions.threads}
    other, changes = potential.copy(), np.empty(size, np.float32)
    outcome = Outcome(0, float("inf"))
    with (
        device.load(regions.source) as image,
        device.map(tofrom=potential, to=[other, fixed], alloc=changes),
        device.queue() as queue,
    ):
        while outcome.sweeps < most and outcome.change > tolerance:
            pairs = max(1, min(every, most - outcome.sweeps) // 2)
            for _ in range(pairs):  # there and back: the newest is in `potential` again
                device.run(image["sweep"], potential, other, fixed, size, queue=queue, **shape)
                device.run(image["sweep"], other, potential, fixed, size, queue=queue, **shape)
            device.run(image["compare"], other, potential, changes, size, queue=queue, **shape)
            queue.synchronize()
            device.update(from_=changes)
            outcome = Outcome(outcome.sweeps + 2 * pairs, float(changes.max()))
            progress(outcome)
    return outcome


# --- the picture -----------------------------------------------------------------------------------


PICTURE = 768  # pixels along each edge, unless there are more points
RED, BLUE = np.array([178, 24, 43]), np.array([33, 102, 172])


def write_picture(problem: Problem, path: Path) -> None:
    """Write the potential as a picture: red above zero, blue below, and lines a tenth of a volt apart."""
    from PIL import Image

    size = max(PICTURE, len(problem.potential))
    volts = np.asarray(Image.fromarray(problem.potential).resize((size, size), Image.Resampling.BICUBIC))
    fixed = np.asarray(Image.fromarray(problem.fixed).resize((size, size), Image.Resampling.NEAREST))
    pure = np.where(volts[..., None] > 0, RED, BLUE)
    colours = 255 + np.abs(volts[..., None]) * (pure - 255)
    band = np.round(volts * 10)
    lines = (band != np.roll(band, 1, axis=0)) | (band != np.roll(band, 1, axis=1))
    colours[lines] *= 0.55
    colours[(fixed == 1) & (np.abs(volts) > 0.5)] = 40  # the plates
    Image.fromarray(colours.clip(0, 255).astype(np.uint8)).save(path)


# --- the command line ------------------------------------------------------------------------------


def natural(text: str, least: int = 1) -> int:
    """Give a whole number from `least` on that stands on the command line."""
    number = int(text)
    if number < least:
        raise argparse.ArgumentTypeError(f"expected a whole number from {least} on, got {text}")
    return number


def points(text: str) -> int:
    """Give the points along an edge, so many that there is room for the plates."""
    return natural(text, 50)


def volts(text: str) -> float:
    """Give a tolerance that stands on the command line."""
    number = float(text)
    if not number >= 0:
        raise argparse.ArgumentTypeError(f"expected 0 volts or more, got {text}")
    return number


def picture(text: str) -> Path:
    """Give the path of a picture that can be written, before the work for it is done."""
    path = Path(text)
    if path.suffix != ".png" or not path.absolute().parent.is_dir():
        raise argparse.ArgumentTypeError(f"expected FILE.png in a folder that there is, got {text}")
    if find_spec("PIL") is None:
        raise argparse.ArgumentTypeError("a picture needs Pillow: pip install 'targetmem[examples]'")
    return path


def arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--device", default="host:0", metavar="NAME", help="a name that `targetmem devices` lists (host:0)")
    add("--size", type=points, default=256, metavar="POINTS", help="points along each edge (256)")
    add("--tolerance", type=volts, default=1e-6, metavar="VOLTS", help="largest change to stop at (1e-6)")
    add("--sweeps", type=natural, default=50_000, help="stop after so many, or one more (50000)")
    add("--every", type=natural, default=200, metavar="SWEEPS", help="look at the changes so often (200)")
    add("--picture", type=picture, metavar="FILE.png", help="write the potential as a picture")
    return parser.parse_args()


def show(outcome: Outcome) -> None:
    """Show on a terminal how far it is."""
    if sys.stderr.isatty():
        print(f"\r  sweep {outcome.sweeps}, largest change {outcome.change:.1e} V", end="", file=sys.stderr)


def main() -> None:
    """Do what the command line says."""
    args = arguments()
    problem = plates(args.size)
    try:
        device = targetmem.device(args.device)
        start = time.perf_counter()
        outcome = solve(device, problem, args.tolerance, args.sweeps, args.every, show)
    except TargetMemoryError as error:
        hint = getattr(error, "hint", "")  # what to install, where that is known
        sys.exit(f"jacobi: {error}" if hint in str(error) else f"jacobi: {error}; {hint}")
    seconds = time.perf_counter() - start
    if sys.stderr.isatty():
        print(file=sys.stderr)
    speed = f"{seconds:.2f} s, {outcome.sweeps / seconds:,.0f} a second"
    print(f"{device.name}: {args.size} x {args.size} points, {outcome.sweeps} sweeps: {speed}")
    print(f"largest change {outcome.change:.1e} V, mean strength {abs(problem.potential).mean():.4f} V")
    if args.picture:
        write_picture(problem, args.picture)


if __name__ == "__main__":
    main()
