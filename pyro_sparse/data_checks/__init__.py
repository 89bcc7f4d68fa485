"""Checks of a table before a fit: what in its columns, rows and cells would mislead a factor model."""

from __future__ import annotations

from .check import check_read_table, check_table
from .factors import doubted_by_columns

__all__ = ["check_read_table", "check_table", "doubted_by_columns"]
