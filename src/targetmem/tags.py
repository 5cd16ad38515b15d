"""Names for memory: `with tagged("weights"):` puts a name on what a thread allocates inside.

The core carries a number with each block; this module keeps which name a number stands for. A recorded call
site is a tag too. A tag belongs to the thread that set it: with asyncio, tag no block of code that awaits.
"""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING

from targetmem._core import set_tag

if TYPE_CHECKING:
    from types import CodeType, TracebackType

__all__ = ["any_tag", "number_of", "number_of_site", "tag_name", "tagged"]

# No lock: a finaliser may tag in the middle of any of this. A number that loses a race is never used.
_names = {0: ""}
_numbers: dict[object, int] = {"": 0}  # by name, and by call site
_next_number = count(1)


def number_of(name: str, key: object = None) -> int:
    """Give the number that stands for a name, the same one each time. `key` is what to remember it by."""
    key = name if key is None else key
    number = _numbers.get(key)
    if number is None:
        number = next(_next_number)
        _names[number] = name
        number = _numbers.setdefault(key, number)
    return number


def number_of_site(tag: int, code: CodeType, line: int) -> int:
    """Give the number that stands for a tag and the source line that allocates under it."""
    key = (tag, code, line)
    number = _numbers.get(key)
    if number is None:
        number = number_of(f"{tag_name(tag)} {code.co_filename}:{line}".lstrip(), key)
    return number


def any_tag() -> bool:
    """Tell whether any memory can carry a name: then it is worth a look at every block."""
    return len(_names) > 1


def tag_name(number: int) -> str:
    """Give the name that a number stands for, empty for untagged blocks and for numbers set by other code."""
    return _names.get(number, "")


class tagged:  # noqa: N801 - used like a function
    """Put a name on the memory that this thread allocates in a with-block; an inner tag replaces an outer.

    The name shows up in out-of-memory errors, in leak reports and in `MemoryManager.blocks()`.
    """

    __slots__ = ("_former", "_number")

    def __init__(self, name: str) -> None:
        self._number = number_of(name)
        self._former: list[int] = []

    def __enter__(self) -> None:
        self._former.append(set_tag(self._number))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        set_tag(self._former.pop())
