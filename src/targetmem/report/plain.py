"""The report as plain text: for logs, pipes and files."""

from __future__ import annotations

from typing import TYPE_CHECKING

from targetmem.report.content import BUCKET_TITLES, bucket_rows, heading, rows

if TYPE_CHECKING:
    from collections.abc import Iterator

    from targetmem.report.facts import Facts

__all__ = ["text"]


def text(facts: Facts) -> str:
    """Give the report, one fact a line, the numbers of the table below each other."""
    return "\n".join(_lines(facts)) + "\n"


def _lines(facts: Facts) -> Iterator[str]:
    yield f"targetmem: {heading(facts)}"
    for name, what in rows(facts):
        yield f"  {name:<{len(BUCKET_TITLES[0])}}  {what}"
    table = bucket_rows(facts.statistics) if facts.statistics is not None else []
    if table:
        yield from _table([BUCKET_TITLES, *table])


def _table(table: list[tuple[str, ...]]) -> Iterator[str]:
    widths = [max(len(row[column]) for row in table) for column in range(len(BUCKET_TITLES))]
    for name, *cells in table:
        numbers = "  ".join(cell.rjust(width) for cell, width in zip(cells, widths[1:], strict=True))
        yield f"  {name.ljust(widths[0])}  {numbers}"
