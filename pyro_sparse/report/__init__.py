"""How does a reader of graphs see a result? One HTML page of a fit."""

from __future__ import annotations

from .page_of_table import report

__all__ = ["report"]
