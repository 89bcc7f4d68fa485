"""The package from a command line: `pyro-sparse fit table.csv` and its other commands."""

from __future__ import annotations

from .commands import main

__all__ = ["main"]
