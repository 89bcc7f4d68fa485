"""The fit of a table by a `DependencyVAE`: its own trainer, and every restart begins with all factors."""

from __future__ import annotations

from .dependency_run import DependencyRun
from .job import TableJob

__all__ = ["DependencyJob"]


class DependencyJob(TableJob):
    """A `TableJob` whose decoders begin dense."""

    trainer = DependencyRun
    dense = True
