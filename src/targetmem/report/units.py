"""Numbers as a person reads them."""

from __future__ import annotations

from targetmem.sizes import format_size

__all__ = ["count", "limit", "percent", "seconds", "size_range"]


def count(number: int) -> str:
    """Give a number with its thousands apart: `12,345`."""
    return f"{number:,}"


def percent(share: float) -> str:
    """Give a share as a percentage; only a full one is `100%`, only none at all `0%`."""
    text = f"{share * 100:.1f}"
    if text == "100.0" and share < 1:
        return "99.9%"
    if text == "0.0" and share > 0:
        return "0.1%"
    return f"{text.removesuffix('.0')}%"


def seconds(time: float) -> str:
    """Give a time with three digits: `412 ns`, `17.9 µs`, `1.23 s`."""
    for unit, factor in (("ns", 1e9), ("µs", 1e6), ("ms", 1e3)):
        if time * factor < 999.5:
            return f"{time * factor:.3g} {unit}" if time else "0 s"
    return f"{time:.3g} s" if time < 99.95 else f"{time:,.0f} s"


def size_range(smallest: int, largest: int) -> str:
    """Give the sizes of a bucket: `64 - 128 MiB`. The upper end is the first size that is not in it."""
    low, high = format_size(smallest).split(), format_size(largest + 1).split()
    return f"{low[0] if low[1] == high[1] else ' '.join(low)} - {' '.join(high)}"


def limit(size: int | None, none: str) -> str:
    """Give a limit in bytes, or what to say when there is none."""
    return none if size is None else format_size(size)
