"""What people write their own models with: data, a program, its edges and factors. `fit` fits it."""

from __future__ import annotations

from .data import Data, DataView
from .program import Program
from .sites import correlation, deterministic, edges, factors, gates, sample

__all__ = [
    "Data",
    "DataView",
    "Program",
    "correlation",
    "deterministic",
    "edges",
    "factors",
    "gates",
    "sample",
]
