"""What a benchmark gives back: figures with their bars, and what could not be measured."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path


class MissingError(Exception):
    """Say what a benchmark needs and does not find, and what to install."""


@dataclass(frozen=True)
class Bar:
    """One requirement, or one aim: `reached` must be at most (or at least) `limit`."""

    text: str
    limit: float
    reached: float
    at_least: bool = False
    aim: bool = False

    @property
    def passed(self) -> bool:
        """Tell whether the requirement is met."""
        return self.reached >= self.limit if self.at_least else self.reached <= self.limit

    @property
    def verdict(self) -> str:
        """Give one word for it: an aim that is missed is no failure."""
        return "pass" if self.passed else "missed" if self.aim else "FAIL"


@dataclass(frozen=True)
class Figure:
    """One measured quantity: the median of each contender, and the bars that hang on it."""

    name: str
    unit: str
    values: dict[str, float]
    bars: tuple[Bar, ...] = ()
    note: str = ""


@dataclass
class Report:
    """All that one run found; `machine` and `versions` say where."""

    smoke: bool
    machine: dict[str, str]
    versions: dict[str, str] = field(default_factory=dict)
    figures: dict[str, list[Figure]] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        """Give the report as plain data, each bar with its verdict."""
        data = asdict(self)
        for name, figures in self.figures.items():
            for figure, plain in zip(figures, data["figures"][name], strict=True):
                for bar, plain_bar in zip(figure.bars, plain["bars"], strict=True):
                    plain_bar["verdict"] = bar.verdict
        return data

    def write(self, path: Path) -> None:
        """Write the report to a file, making its folder."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(self.as_json(), indent=1) + "\n", encoding="utf-8")


def number(value: float) -> str:
    """Format a value with three significant digits, without an exponent."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def table(rows: list[list[str]]) -> str:
    """Align the columns of rows; the first row is the head, the first column goes to the left."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = [
        "  ".join(
            cell.ljust(width) if i == 0 else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in rows
    ]
    return "\n".join([lines[0], "  ".join("-" * width for width in widths), *lines[1:]])


def figures_table(figures: list[Figure]) -> str:
    """Draw figures as a table, a column for each contender."""
    names = list(dict.fromkeys(name for figure in figures for name in figure.values))
    head = ["", *names, "unit"]
    body = [
        [
            figure.name,
            *(number(figure.values[name]) if name in figure.values else "-" for name in names),
            figure.unit,
        ]
        for figure in figures
    ]
    return table([head, *body])


def bars_table(figures: list[Figure]) -> str:
    """Draw the bars of figures as a table, an empty string if there are none."""
    rows = [
        [
            figure.name,
            bar.text,
            f"{'>=' if bar.at_least else '<='} {number(bar.limit)}",
            number(bar.reached),
            bar.verdict,
        ]
        for figure in figures
        for bar in figure.bars
    ]
    return table([["what", "must reach", "limit", "reached", ""], *rows]) if rows else ""
