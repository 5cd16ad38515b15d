"""`AddressSpace`: ranges of addresses, first fit, as a simple device hands them out."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort

__all__ = ["AddressSpace"]


class AddressSpace:
    """Addresses from `start` on, `size` bytes; a range is cut from the first gap that fits.

    Not thread-safe: its owner holds a lock.
    """

    def __init__(self, start: int, size: int) -> None:
        self.used = 0
        self._gaps = (
            [(start, start + size)] if size else []
        )  # (first address, end), by address, never touching
        self._starts: list[int] = []
        self._sizes: dict[int, int] = {}

    def take(self, size: int, alignment: int, offset: int = 0) -> int | None:
        """Take the lowest range that fits; gives its address, None when no gap is large enough.

        The address is `offset` beyond a multiple of `alignment`.
        """
        for index, (low, high) in enumerate(self._gaps):
            address = -(-(low - offset) // alignment) * alignment + offset
            if address + size <= high:
                left = ((low, address), (address + size, high))
                self._gaps[index : index + 1] = [gap for gap in left if gap[0] < gap[1]]
                insort(self._starts, address)
                self._sizes[address] = size
                self.used += size
                return address
        return None

    def give_back(self, address: int) -> int | None:
        """Give a range back; gives its size, None when no range starts there."""
        size = self._sizes.pop(address, None)
        if size is not None:
            del self._starts[bisect_left(self._starts, address)]
            self.used -= size
            self._open_gap(address, address + size)
        return size

    def find(self, address: int, size: int) -> int | None:
        """Give the start of the range that holds these bytes, None when no single one does."""
        index = bisect_right(self._starts, address) - 1
        if index < 0:
            return None
        start = self._starts[index]
        return start if address + size <= start + self._sizes[start] else None

    def size_of(self, start: int) -> int:
        """Give the size of the range that starts there."""
        return self._sizes[start]

    def ranges(self) -> list[tuple[int, int]]:
        """Give address and size of each range in use, by address."""
        return [(start, self._sizes[start]) for start in self._starts]

    def _open_gap(self, low: int, high: int) -> None:
        """Add a gap, joined with the neighbours that it touches."""
        first = last = bisect_left(self._gaps, (low, high))
        if first > 0 and self._gaps[first - 1][1] == low:
            first -= 1
            low = self._gaps[first][0]
        if last < len(self._gaps) and self._gaps[last][0] == high:
            high = self._gaps[last][1]
            last += 1
        self._gaps[first:last] = [(low, high)]
