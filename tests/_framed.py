"""A table of a library that need not be installed: what it offers to be read by name, and nothing else."""

from __future__ import annotations


class Convertible:
    """A table that becomes one of pandas, as those of Arrow and polars do."""

    def __init__(self, frame):
        self.frame = frame

    @property
    def columns(self):
        return list(self.frame.columns)

    def to_pandas(self):
        return self.frame.copy()
