"""Take the noise out of a picture without blurring its edges: NumPy and SciPy, no word of targetmem.

    python examples/denoise.py
    python -m targetmem run examples/denoise.py

Anisotropic diffusion (P. Perona, J. Malik 1990; with the smoothed gradient of F. Catté et al. 1992): grey
values spread like heat, but less the steeper the smoothed picture is. The picture is drawn by the program, 6
megapixels at the default size, so what it has lost and got back can be said exactly.
"""

from __future__ import annotations

import argparse
import sys
import time
import zlib

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage

Picture = NDArray[np.float64]

NOISE = 0.08  # standard deviation; grey values run from 0 to 1
EDGE = 0.04  # a slope from which on the values hardly spread, per pixel
TIME_STEP = 0.2


def draw(width: int) -> Picture:
    """Draw discs, stripes and a ramp, 3 wide to 2 high."""
    y, x = np.mgrid[0 : width * 2 // 3, 0:width] / width
    picture: Picture = 0.3 + 0.4 * x
    picture[(x - 0.3) ** 2 + (y - 0.3) ** 2 < 0.03] = 0.9
    picture[(x - 0.4) ** 2 + (y - 0.4) ** 2 < 0.01] = 0.1
    stripes = (np.floor(x * 40) % 2 == 0) & (x > 0.6) & (y > 0.35)
    picture[stripes] = 0.15
    return picture


def spread(picture: Picture) -> Picture:
    """Give the picture after one step of diffusion."""
    slope_y, slope_x = np.gradient(ndimage.gaussian_filter(picture, 1.0))
    conductivity = np.exp(-(slope_x**2 + slope_y**2) / EDGE**2)
    flow_y, flow_x = np.gradient(picture)
    flux_y = np.gradient(conductivity * flow_y, axis=0)
    flux_x = np.gradient(conductivity * flow_x, axis=1)
    after: Picture = picture + TIME_STEP * (flux_x + flux_y)
    return after


def quality(picture: Picture, original: Picture) -> float:
    """Give the peak signal-to-noise ratio in decibels."""
    return float(-10 * np.log10(np.mean((picture - original) ** 2)))


def denoise(picture: Picture, steps: int) -> Picture:
    """Spread so many times, with the progress on a terminal."""
    for number in range(1, steps + 1):
        picture = spread(picture)
        if sys.stderr.isatty():
            print(f"\r  step {number} of {steps}", end="" if number < steps else "\n", file=sys.stderr)
    return picture


def main() -> None:
    """Do what the command line says."""
    parser = argparse.ArgumentParser(description="Take the noise out of a picture, in NumPy and SciPy.")
    parser.add_argument("--width", type=int, default=3000, help="of the picture, in pixels (3000)")
    parser.add_argument("--steps", type=int, default=10, help="steps of diffusion (10)")
    args = parser.parse_args()
    if args.width < 30 or args.steps < 1:
        parser.error("expected a width of at least 30 and at least 1 step")
    original = draw(args.width)
    noisy = original + np.random.default_rng(1).normal(0, NOISE, original.shape)
    start = time.perf_counter()
    result = denoise(noisy, args.steps)
    seconds = time.perf_counter() - start
    print(f"{original.shape[1]} x {original.shape[0]} pixels, {args.steps} steps: {seconds:.2f} s")
    print(f"{quality(noisy, original):.1f} dB before, {quality(result, original):.1f} dB after")
    print(f"checksum {zlib.crc32(result.data):08x}")


if __name__ == "__main__":
    main()
