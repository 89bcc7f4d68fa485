"""How did the data come about? The Pyro programs, one family of models per file."""

from __future__ import annotations

from .base import EdgeSet, FactorModel
from .dependency import DependencyVAE
from .latent_transition import LatentTransition
from .multitask import MultiTaskRegression
from .sparse_decoder import SparseDecoder

__all__ = [
    "DependencyVAE",
    "EdgeSet",
    "FactorModel",
    "LatentTransition",
    "MultiTaskRegression",
    "SparseDecoder",
]
