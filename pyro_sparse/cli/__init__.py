"""The package from a command line: `pyro-sparse fit table.csv` and its other commands."""

from __future__ import annotations

from .commands import BAD_INPUT, INTERRUPTED, NOTHING_FOUND, app, main

__all__ = ["BAD_INPUT", "INTERRUPTED", "NOTHING_FOUND", "app", "main"]
