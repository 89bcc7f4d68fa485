"""Distributions of weights and factors that torch and Pyro do not ship; nothing here knows a prior or a fit."""

from __future__ import annotations

from .correlated_normal import CorrelatedNormal
from .horseshoe import Horseshoe, RegularisedHorseshoe
from .spike_slab import SpikeSlab
from .spike_slab_lasso import SpikeSlabLasso
from .spike_slab_normal import SpikeSlabNormal

__all__ = [
    "CorrelatedNormal",
    "Horseshoe",
    "RegularisedHorseshoe",
    "SpikeSlab",
    "SpikeSlabLasso",
    "SpikeSlabNormal",
]
