"""The plugins: one file a target, found through the entry-point group `targetmem.plugins`."""

from __future__ import annotations

from targetmem.plugins.discovery import add

__all__ = ["add"]
