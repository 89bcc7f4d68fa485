"""What in the data would mislead a model? Columns, rows and cells of a table, frames, tasks, before a fit."""

from __future__ import annotations

from .check import check_read_table, check_table
from .factors import doubted_by_columns

__all__ = ["check_read_table", "check_table", "doubted_by_columns"]
