"""What people write their own models with: data, a program, its edges and factors. How is it fitted? See `fit`."""

from __future__ import annotations

from .data import Data, DataView
from .program import Program
from .sites import edges, factors, gates, sample

__all__ = ["Data", "DataView", "Program", "edges", "factors", "gates", "sample"]
