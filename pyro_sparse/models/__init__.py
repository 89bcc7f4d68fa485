"""The Pyro programs: one family of models per file. `models.baselines` is imported when asked for."""

from __future__ import annotations

from importlib import import_module
from typing import Any

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


def __getattr__(name: str) -> Any:
    if name == "baselines":  # it imports the training, which imports the models
        return import_module(".baselines", __name__)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
