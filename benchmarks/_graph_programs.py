"""Programs with priors over graphs that the package does not have built in, each of some fifteen lines.

They differ in what the log odds of edges are made of; cells are normal, and factors independent.
"""

from __future__ import annotations

import numpy as np
import pyro
import pyro.distributions as dist
import torch
from torch import Tensor

import pyro_sparse as ps

__all__ = ["GRAPH_PRIORS", "known"]

SLAB, SPIKE = dist.Normal(0.0, 0.8), dist.Normal(0.0, 0.03)


def _cells(d: ps.DataView, log_odds: Tensor) -> None:
    """Weights with these log odds, factors, and normal cells."""
    with d.features:
        W = ps.edges("W", log_odds=log_odds, slab=SLAB, spike=SPIKE, to=d.factors)
        sd = pyro.sample("sd", dist.LogNormal(-0.5, 0.5))
    with d.rows:
        z = ps.factors("z", dist.Normal(torch.zeros(d.n_factors), 1.0))
    with d.rows, d.features:
        pyro.sample("x", dist.Normal(z @ W.mT, sd).mask(d.seen), obs=d.x)


def groups(d: ps.DataView) -> None:
    """Rates of groups of features, one for each factor, around a rate that they share (hierarchical)."""
    centre = pyro.sample("centre", dist.Normal(-0.5, 1.0))
    spread = pyro.sample("spread", dist.HalfNormal(1.0))
    away = dist.Normal(0.0, 1.0).expand([d.levels("group"), d.n_factors]).to_event(2)
    rate = centre[..., None, None] + spread[..., None, None] * ps.sample("away", away, each="factor")
    _cells(d, rate[..., d.group, :])


def regression(d: ps.DataView) -> None:
    """Log odds are a regression on covariates of the features, with coefficients of each factor."""
    centre = pyro.sample("centre", dist.Normal(-0.5, 1.0))
    slopes = dist.Normal(0.0, 1.0).expand([d.about.shape[-1], d.n_factors]).to_event(2)
    slope = ps.sample("slope", slopes, each="factor")
    _cells(d, centre[..., None, None] + d.about @ slope)


def field(d: ps.DataView) -> None:
    """Neighbouring features share edges: of each factor a Markov field (AR 1) along the features."""
    centre = pyro.sample("centre", dist.Normal(-0.5, 1.0))
    size = pyro.sample("size", dist.HalfNormal(1.5))
    stay = pyro.sample("stay", dist.Beta(6.0, 2.0))[..., None, None]
    steps = torch.arange(d.n_features)
    lag = (steps[:, None] - steps).abs()
    root = torch.linalg.cholesky(stay**lag)
    free = dist.Normal(0.0, 1.0).expand([d.n_features, d.n_factors]).to_event(2)
    drawn = ps.sample("drawn", free, each="factor")
    _cells(d, centre[..., None, None] + size[..., None, None] * (root @ drawn))


def pathways(d: ps.DataView) -> None:
    """Overlapping groups: a feature's log odds are the sum over the pathways that it belongs to."""
    centre = pyro.sample("centre", dist.Normal(-1.5, 0.7))
    gains = dist.Laplace(0.0, 1.0).expand([d.member.shape[-1], d.n_factors]).to_event(2)
    gain = ps.sample("gain", gains, each="factor")
    _cells(d, centre[..., None, None] + d.member @ gain)


def shrinkage(d: ps.DataView) -> None:
    """Cumulative shrinkage: the rate of factor k is a product of k sticks, and falls with k."""
    stick = pyro.sample("stick", dist.Beta(3.0 * torch.ones(d.n_factors), 1.0).to_event(1))
    rate = stick.cumprod(-1)
    _cells(d, torch.logit(rate)[..., None, :])


def learned(d: ps.DataView) -> None:
    """Log odds are a line in a covariate whose numbers are parameters: point estimates of the fit."""
    centre = pyro.param("centre", torch.tensor(-0.5))
    slope = pyro.param("slope", torch.tensor(1.0))
    _cells(d, (centre + slope * d.score)[..., None])


ROWS, FEATURES = 150, 16


def known(name: str, rng: np.random.Generator) -> dict[str, object]:
    """What is known of the features of a program."""
    member = np.zeros((FEATURES, 4))
    for p in range(4):
        member[4 * p : 4 * p + 6, p] = 1.0
    return {
        "groups": {"group": np.repeat(list("abcd"), FEATURES // 4)},
        "regression": {"about": rng.normal(size=(FEATURES, 2))},
        "pathways": {"member": member},
        "learned": {"score": np.linspace(-1.5, 1.5, FEATURES)},
    }.get(name, {})


GRAPH_PRIORS = {f.__name__: f for f in (groups, regression, field, pathways, shrinkage, learned)}
