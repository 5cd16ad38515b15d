"""Regions that are Python functions: each runs once for every thread of every team, on a pool of threads."""

from __future__ import annotations

import inspect
import os
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["Functions"]

PLACE = ("team", "thread", "teams", "threads")
Parameter = inspect.Parameter


class Functions:
    """Entries of a program that are functions, by name.

    A function gets NumPy arrays on the target's memory and numbers. One that has parameters named `team`,
    `thread`, `teams` or `threads` behind them (by position, which Numba needs, or by keyword) is told which
    part is its own.
    """

    def __init__(self, image: object) -> None:
        self.entries: dict[str, Callable[..., object]] = _functions_of(image)

    def run(self, entry: str, arguments: Sequence[object], teams: int, threads: int) -> None:
        """Call an entry for every thread of every team, as many at a time as there are cores.

        Raises LookupError when there is no such entry, TypeError for a wrong number of arguments, and the
        first exception of a call when all of them have ended.
        """
        if entry not in self.entries:
            raise LookupError(f"expected an entry ({', '.join(self.entries)}), got {entry!r}")
        call = _Call(entry, self.entries[entry], arguments)
        places = [
            dict(zip(PLACE, (team, thread, teams, threads), strict=True))
            for team, thread in product(range(teams), range(threads))
        ]
        if len(places) == 1:
            call(places[0])
            return
        with ThreadPoolExecutor(min(len(places), os.cpu_count() or 1)) as pool:
            calls = [pool.submit(call, place) for place in places]
        for done in calls:
            done.result()


class _Call:
    """A function with its arguments, but for the numbers of the team and the thread."""

    def __init__(self, entry: str, function: Callable[..., object], arguments: Sequence[object]) -> None:
        self.function, self.arguments = function, arguments
        parameters = _parameters(function)
        by_position = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
        self.behind = [p.name for p in by_position[len(arguments) :] if p.name in PLACE]
        self.by_keyword = [p.name for p in parameters if p.kind == p.KEYWORD_ONLY and p.name in PLACE]
        own = [p for p in by_position if p.name not in PLACE]
        least = sum(p.default is p.empty for p in own)
        most = len(arguments) if any(p.kind == p.VAR_POSITIONAL for p in parameters) else len(own)
        if parameters and not least <= len(arguments) <= most:
            names = ", ".join(p.name for p in own)
            raise TypeError(f"{entry}: expected {len(own)} arguments ({names}), got {len(arguments)}")

    def __call__(self, place: Mapping[str, int]) -> None:
        behind = [place[name] for name in self.behind]
        self.function(*self.arguments, *behind, **{name: place[name] for name in self.by_keyword})


def _functions_of(image: object) -> dict[str, Callable[..., object]]:
    """Give the functions of an image: one, or a mapping of names to them."""
    found: Mapping[Any, Any] = (
        image if isinstance(image, Mapping) else {getattr(image, "__name__", "region"): image}
    )
    wrong = [name for name, function in found.items() if not (isinstance(name, str) and callable(function))]
    if wrong or not found:
        raise TypeError(f"load: expected a function, or a dictionary of names and functions, got {image!r}")
    return dict(found)


def _parameters(function: Callable[..., object]) -> list[Parameter]:
    """Give a function's parameters, none when it does not tell."""
    try:
        return [*inspect.signature(getattr(function, "py_func", function)).parameters.values()]
    except (TypeError, ValueError):
        return []
