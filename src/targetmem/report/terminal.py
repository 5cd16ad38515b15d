"""The report on a terminal, drawn by rich."""

from __future__ import annotations

from typing import TYPE_CHECKING, TextIO

from rich.console import Console
from rich.table import Table
from rich.text import Text

from targetmem.report.content import BUCKET_TITLES, bucket_rows, heading, rows

if TYPE_CHECKING:
    from targetmem.report.facts import Facts
    from targetmem.statistics import Statistics

__all__ = ["text"]


def text(facts: Facts, stream: TextIO) -> str:
    """Give the report, drawn for the terminal that the stream leads to; nothing is written."""
    console = Console(file=stream, highlight=False)
    with console.capture() as captured:
        _draw(facts, console)
    return captured.get()


def _draw(facts: Facts, console: Console) -> None:
    console.print(Text.assemble(("targetmem", "bold cyan"), ": ", heading(facts)))
    lines = Table.grid(padding=(0, 2))
    lines.add_column(style="dim", no_wrap=True)
    for name, what in rows(facts):
        lines.add_row(f"  {name}", Text(what))
    console.print(lines)
    if facts.statistics is not None and facts.statistics.buckets:
        console.print(_buckets(facts.statistics))


def _buckets(statistics: Statistics) -> Table:
    table = Table(box=None, padding=(0, 2), header_style="dim")
    for title in BUCKET_TITLES:
        table.add_column(title, justify="left" if title == BUCKET_TITLES[0] else "right", no_wrap=True)
    for row in bucket_rows(statistics):
        table.add_row(*row)
    return table
