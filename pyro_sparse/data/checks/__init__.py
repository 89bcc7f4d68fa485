"""What in the data would mislead a model? Columns, rows and cells of a table, frames, tasks, before a fit."""

from __future__ import annotations

from .check import check_table

__all__ = ["check_table"]
