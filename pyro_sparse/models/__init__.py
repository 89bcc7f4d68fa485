"""The Pyro programs: one family of models per file."""

from __future__ import annotations

from .base import EdgeSet, FactorModel
from .latent_transition import LatentTransition
from .multitask import MultiTaskRegression
from .sparse_decoder import SparseDecoder

__all__ = ["EdgeSet", "FactorModel", "LatentTransition", "MultiTaskRegression", "SparseDecoder"]
