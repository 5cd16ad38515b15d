"""The command `targetmem`, also as `python -m targetmem`."""

from __future__ import annotations

import sys

from targetmem.commands import main

__all__ = ["main"]

if __name__ == "__main__":
    sys.exit(main())
