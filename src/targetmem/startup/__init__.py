"""What runs inside the interpreter that `targetmem run` starts; the folder itself goes on PYTHONPATH."""

from __future__ import annotations

__all__: list[str] = []
