"""What a run of a program did: the facts, the estimate from them, and how they are shown."""

from __future__ import annotations

__all__: list[str] = []
