"""`targetmem devices`: which devices there are, and what to install for those that are not available."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from targetmem.errors import ConfigError, TargetMemoryError
from targetmem.sizes import format_size

if TYPE_CHECKING:
    import argparse

    from targetmem._device import Device
    from targetmem.commands.common import Subparsers
    from targetmem.plugins.registry import Registry

__all__ = ["Row", "add", "execute", "rows", "table"]

DESCRIPTION = """\
List the devices of every plugin, with their memory and what is set for their managers. A plugin that is not
available is listed with the reason and what to install.
"""
HEADINGS = ("DEVICE", "TARGET", "MEMORY", "MANAGER", "THRESHOLD")


@dataclass(frozen=True, slots=True)
class Row:
    """One device, or a plugin that is not available (`error` says why). Sizes are bytes, None if unknown."""

    name: str
    target: str
    free: int | None = None
    total: int | None = None
    policy: str = ""
    threshold: int | None = None
    threshold_origin: str = ""
    cached_limit: int | None = None
    mapped_ranges: int = 0
    mapped_bytes: int = 0
    error: str = ""
    hint: str = ""

    @property
    def manager_on(self) -> bool:
        """Whether requests of this device are managed."""
        return bool(self.threshold)


def add(subparsers: Subparsers) -> None:
    """Add the command to the command line."""
    parser = subparsers.add_parser(
        "devices", help="list the devices, and what to install for more", description=DESCRIPTION
    )
    parser.add_argument("--json", action="store_true", help="print the list as JSON, sizes in bytes")
    parser.set_defaults(execute=execute)


def execute(args: argparse.Namespace) -> int:
    """Print the list. Raises ConfigError for a setting that cannot be used."""
    from targetmem.plugins.registry import default

    found = rows(default())
    if args.json:
        print(json.dumps([asdict(row) | {"manager": row.manager_on} for row in found], indent=2))
    elif sys.stdout.isatty():
        _print_rich(found)
    else:
        print(table(found))
    return 0


def rows(registry: Registry) -> list[Row]:
    """Start every plugin and device; give a row for each device, and for each plugin not available."""
    found: list[Row] = []
    for name, devices in registry.survey().items():
        if isinstance(devices, TargetMemoryError):
            found.append(Row(name, name, error=str(devices), hint=getattr(devices, "hint", "")))
        else:
            found += [_row(device) for device in devices]
    return found


def _row(device: Device) -> Row:
    target = device.plugin.name
    try:
        memory, settings = device.memory_info(), device.settings()
    except ConfigError:
        raise
    except TargetMemoryError as error:
        return Row(device.name, target, error=str(error), hint=getattr(error, "hint", ""))
    table = device.table
    return Row(
        device.name,
        target,
        free=memory.free if memory else None,
        total=memory.total if memory else None,
        policy=settings.policy,
        threshold=settings.threshold,
        threshold_origin=settings.origin("threshold"),
        cached_limit=settings.cached_limit,
        mapped_ranges=table.ranges if table is not None else 0,
        mapped_bytes=table.bytes if table is not None else 0,
    )


def _cells(row: Row) -> tuple[str, ...]:
    """Give what a row says, in the order of the headings; an error takes the place of the rest."""
    if row.error:
        return row.name, row.target, _reason(row)
    memory = "unknown"
    if row.free is not None and row.total is not None:
        memory = f"{format_size(row.free)} free of {format_size(row.total)}"
    if row.mapped_ranges:
        memory += f", {row.mapped_ranges} ranges mapped ({format_size(row.mapped_bytes)})"
    size = format_size(row.threshold) if row.threshold else "-"
    manager = f"on, {row.policy}" if row.manager_on else "off"
    return row.name, row.target, memory, manager, f"{size} ({row.threshold_origin})"


def _reason(row: Row) -> str:
    """Say why a row's plugin or device is not available, and what to install."""
    text = row.error if "not available" in row.error else f"not available: {row.error}"
    return text if row.hint in text else f"{text}; {row.hint}"


def table(found: list[Row]) -> str:
    """Give the list as plain text, one line a row, in columns."""
    lines = [HEADINGS, *map(_cells, found)]
    whole = [line for line in lines if len(line) == len(HEADINGS)]
    widths = [max(len(line[column]) for line in whole) for column in range(len(HEADINGS))]
    widths[:2] = [max(len(line[column]) for line in lines) for column in range(2)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=False)).rstrip()
        for line in lines
    )


def _print_rich(found: list[Row]) -> None:
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    view = Table(
        *(heading.capitalize() for heading in HEADINGS), box=None, header_style="bold", pad_edge=False
    )
    console = Console()
    errors = [row for row in found if row.error]
    for row in found:
        if row not in errors:
            view.add_row(*map(escape, _cells(row)))
    console.print(view)
    for row in errors:
        console.print(f"[yellow]{escape(_reason(row))}[/yellow]", soft_wrap=True)
