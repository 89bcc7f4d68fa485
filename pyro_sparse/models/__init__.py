"""How did the data come about? The Pyro programs, one family of models per file."""

from __future__ import annotations

from .autoencoder_pair import AutoencoderPair
from .base import FactorModel
from .dependency import DependencyVAE
from .latent_transition import LatentTransition
from .lavaan import from_lavaan, read_lavaan
from .multitask import MultiTaskRegression
from .observed_transition import ObservedTransition
from .sparse_decoder import SparseDecoder

__all__ = [
    "AutoencoderPair",
    "DependencyVAE",
    "FactorModel",
    "LatentTransition",
    "MultiTaskRegression",
    "ObservedTransition",
    "SparseDecoder",
    "from_lavaan",
    "read_lavaan",
]
