"""Distributions of weights and factors that torch and Pyro lack; they know nothing of priors or fits."""

from __future__ import annotations

from .correlated_normal import CorrelatedNormal
from .edge_weights import EdgeWeights
from .full_normal import FullNormal
from .gauss_markov import GaussMarkov
from .horseshoe import Horseshoe, RegularisedHorseshoe
from .ordered_logistic import OrderedLogistic
from .ordered_probit import OrderedProbit
from .relaxed_edges import RelaxedEdges
from .spike_slab import SpikeSlab
from .spike_slab_lasso import SpikeSlabLasso
from .spike_slab_mixture import SpikeSlabMixture
from .spike_slab_normal import SpikeSlabNormal

__all__ = [
    "CorrelatedNormal",
    "EdgeWeights",
    "FullNormal",
    "GaussMarkov",
    "Horseshoe",
    "OrderedLogistic",
    "OrderedProbit",
    "RegularisedHorseshoe",
    "RelaxedEdges",
    "SpikeSlab",
    "SpikeSlabLasso",
    "SpikeSlabMixture",
    "SpikeSlabNormal",
]
