"""Turn a run's JSON into the tables of docs/performance.md: `python -m benchmarks.markdown FILE`."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from benchmarks.figures import number


def row(cells: list[str]) -> str:
    """Join cells to a row."""
    return f"| {' | '.join(cells)} |"


def figures(title: str, plain: list[dict[str, Any]]) -> list[str]:
    """Give the table of one benchmark, a column for each contender."""
    names = list(dict.fromkeys(name for figure in plain for name in figure["values"]))
    lines = [f"### {title}", "", row(["", *names, "unit"]), row(["---", *["---:"] * len(names), "---"])]
    for figure in plain:
        values = figure["values"]
        cells = [number(values[name]) if name in values else "" for name in names]
        lines.append(row([figure["name"], *cells, figure["unit"]]))
    return [*lines, ""]


def bars(report: dict[str, Any]) -> list[str]:
    """Give the table of all bars."""
    lines = [row(["what", "must reach", "limit", "reached", ""]), row(["---", "---", "---:", "---:", "---"])]
    for figure in (figure for each in report["figures"].values() for figure in each):
        for bar in figure["bars"]:
            limit = f"{'≥' if bar['at_least'] else '≤'} {number(bar['limit'])}"
            lines.append(row([figure["name"], bar["text"], limit, number(bar["reached"]), bar["verdict"]]))
    return [*lines, ""]


def where(report: dict[str, Any]) -> list[str]:
    """Give the machine, the versions and what was missing."""
    facts = (
        report["machine"] | report["versions"] | {f"missing: {k}": v for k, v in report["missing"].items()}
    )
    return [*(f"- {key}: {value}" for key, value in facts.items()), ""]


def document(report: dict[str, Any]) -> str:
    """Give all tables."""
    parts = ["## Where", "", *where(report), "## Bars", "", *bars(report), "## Figures", ""]
    for title, plain in report["figures"].items():
        parts += figures(title, plain)
    return "\n".join(parts)


if __name__ == "__main__":
    print(document(json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))))
