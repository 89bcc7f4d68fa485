"""The Pyro programs: one family of models per file."""

from __future__ import annotations

from .base import EdgeSet, FactorModel
from .sparse_decoder import SparseDecoder

__all__ = ["EdgeSet", "FactorModel", "SparseDecoder"]
