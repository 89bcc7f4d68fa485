"""Distributions of one weight that torch and Pyro do not ship; they know nothing of priors, models or fits."""

from __future__ import annotations

from pyro_sparse.distributions.spike_slab_lasso import SpikeSlabLasso

__all__ = ["SpikeSlabLasso"]
