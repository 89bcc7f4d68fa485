"""How does a reader of graphs see a result? One HTML page of a fit, of tables, sequences or tasks."""

from __future__ import annotations

from .any_fit import report

__all__ = ["report"]
