"""Priors over the weights of a factor graph; ``base.py`` states the contract, one prior per file keeps it."""

from __future__ import annotations

from pyro_sparse.priors.base import Prior

__all__ = ["Prior"]
