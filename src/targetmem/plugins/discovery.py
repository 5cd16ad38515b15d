"""Which plugins there are, without loading any: entry points of `targetmem.plugins`, and added ones.

The two plugins of this package are known without the entry points of an installed distribution, so that a
source checkout works.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING

from targetmem.callers import warn
from targetmem.errors import PluginError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from importlib.metadata import EntryPoint

    from targetmem.abc import Plugin

__all__ = ["GROUP", "Source", "add", "built_in", "sources"]

GROUP = "targetmem.plugins"
BUILT_IN = {
    "host": "targetmem.plugins.host:HostPlugin",
    "simulated": "targetmem.plugins.simulated:SimulatedPlugin",
}
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]*")
_added: dict[str, Source] = {}


@dataclass(frozen=True, slots=True)
class Source:
    """Where a plugin comes from: `load` gives its class (or what else makes one), `hint` what to install."""

    name: str
    load: Callable[[], Callable[..., Plugin]]
    hint: str = ""


def built_in(name: str) -> Source | None:
    """Give a plugin of this package, None when it has none of that name; reads no package's metadata."""
    if name not in BUILT_IN:
        return None
    module, _, attribute = BUILT_IN[name].partition(":")
    return Source(name, lambda: getattr(import_module(module), attribute))


def sources() -> dict[str, Source]:
    """Give every plugin by its name: `host` first, `simulated` last, the others by name.

    An entry point that claims the name of a plugin of this package is ignored, with a TargetMemoryWarning.
    """
    from importlib.metadata import entry_points

    points: dict[str, list[EntryPoint]] = {}
    for point in entry_points(group=GROUP):
        points.setdefault(point.name, []).append(point)
    found = {name: _source_of(name, same) for name, same in points.items()} | _added
    found |= {name: source for name in BUILT_IN if (source := built_in(name)) is not None}
    return dict(sorted(found.items(), key=lambda item: (item[0] != "host", item[0] == "simulated", item[0])))


def add(plugin: Plugin, name: str) -> None:
    """Add a plugin to this process, without an entry point; its devices are `name:0` and so on.

        targetmem.plugins.add(SimulatedPlugin(capacity="1GiB"), "small")
        device = targetmem.device("small:0")

    Raises PluginError when the name is taken, or is not made of letters, digits, - and _.
    """
    if not _NAME.fullmatch(name) or name in sources():
        text = f"plugin {name!r}: expected a new name of letters, digits, - and _, got a taken or another one"
        raise PluginError(text, plugin=name)
    _added[name] = Source(name, lambda: lambda: plugin)


def _source_of(name: str, points: list[EntryPoint]) -> Source:
    if name in BUILT_IN:
        _warn_of_claims(name, points)
    if len({point.value for point in points}) > 1:
        return _conflict(name, points)
    return Source(name, points[-1].load, _install_hint(points[-1]))


def _warn_of_claims(name: str, points: list[EntryPoint]) -> None:
    for point in points:
        if point.value != BUILT_IN[name]:
            text = f"entry point {name} = {point.value}: expected a name that targetmem does not use, ignored"
            warn(text)


def _install_hint(point: EntryPoint) -> str:
    """Say what installs the plugin's runtime: the extras that its entry point names."""
    if point.dist is None or not point.extras:
        return ""
    return f"install {point.dist.name}[{','.join(point.extras)}]"


def _conflict(name: str, points: Iterable[EntryPoint]) -> Source:
    """Make a source that refuses to load: two packages claim one name, and neither shall win silently."""
    owners = sorted({"?" if point.dist is None else point.dist.name for point in points})
    hint = f"uninstall all but one of {', '.join(owners)}"

    def load() -> Callable[..., Plugin]:
        text = f"plugin {name}: expected one package that provides it, got {', '.join(owners)}; {hint}"
        raise PluginError(text, plugin=name, hint=hint)

    return Source(name, load)
