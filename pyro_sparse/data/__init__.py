"""What came in? Tables, sequences and tasks as named arrays, and how files are read into them."""

from __future__ import annotations

from .files import read_table
from .sequences import Sequences, as_sequences
from .stores import open_rows
from .table import Batch, Table
from .tasks import Tasks, as_tasks

__all__ = ["Batch", "Sequences", "Table", "Tasks", "as_sequences", "as_tasks", "open_rows", "read_table"]
