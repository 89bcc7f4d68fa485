"""Distributions of weights and factors that torch and Pyro lack; they know nothing of priors or fits."""

from __future__ import annotations

from ._sweep import MaskedNet, Routes, routes
from .correlated_normal import CorrelatedNormal
from .decoded_cells import DecodedCells, predictor, recomputed_predictor
from .full_normal import FullNormal
from .gauss_markov import GaussMarkov
from .horseshoe import Horseshoe, RegularisedHorseshoe
from .latent_chain import LatentChain
from .plain_pass import PlainPass
from .relaxed_edges import RelaxedEdges, bernoulli_kl
from .spike_slab import SpikeSlab
from .spike_slab_lasso import SpikeSlabLasso
from .spike_slab_mixture import SpikeSlabMixture
from .spike_slab_normal import SpikeSlabNormal

__all__ = [
    "CorrelatedNormal",
    "DecodedCells",
    "FullNormal",
    "GaussMarkov",
    "Horseshoe",
    "LatentChain",
    "MaskedNet",
    "PlainPass",
    "RegularisedHorseshoe",
    "RelaxedEdges",
    "Routes",
    "SpikeSlab",
    "SpikeSlabLasso",
    "SpikeSlabMixture",
    "SpikeSlabNormal",
    "bernoulli_kl",
    "predictor",
    "recomputed_predictor",
    "routes",
]
