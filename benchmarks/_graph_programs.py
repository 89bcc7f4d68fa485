"""Programs with priors over graphs, as on the page of this name, and the data that each of them reads.

They differ in what the log odds of edges are made of; cells are normal, and factors independent.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyro
import pyro.distributions as dist
import torch
from torch import Tensor

import pyro_sparse as ps
from benchmarks._programs import Case

__all__ = ["GRAPH_PRIORS", "GRAPH_PROGRAMS"]

ROWS, FEATURES = 150, 16
Rng = np.random.Generator


def groups(d: ps.DataView) -> Tensor:
    """Rates of groups of features, one for each factor, around a rate that they share (hierarchical)."""
    centre = pyro.sample("centre", dist.Normal(-0.5, 1.0))
    spread = pyro.sample("spread", dist.HalfNormal(1.0))
    away = dist.Normal(0.0, 1.0).expand([d.levels("group"), d.n_factors]).to_event(2)
    rate = centre + spread * ps.sample("away", away, each="factor")
    return rate[..., d.group, :]


def regression(d: ps.DataView) -> Tensor:
    """A regression on covariates of the features, with coefficients of each factor."""
    centre = pyro.sample("centre", dist.Normal(-0.5, 1.0))
    slopes = dist.Normal(0.0, 1.0).expand([d.about.shape[-1], d.n_factors]).to_event(2)
    return centre + d.about @ ps.sample("slope", slopes, each="factor")


def field(d: ps.DataView) -> Tensor:
    """Of each factor a Markov field along the features: neighbours share edges."""
    centre = pyro.sample("centre", dist.Normal(-0.5, 1.0))
    size = pyro.sample("size", dist.HalfNormal(1.5))
    reach = pyro.sample("reach", dist.LogNormal(1.0, 0.5))
    distance = (d.place[:, None] - d.place).abs()
    root = torch.linalg.cholesky(torch.exp(-distance / reach) + 1e-6 * torch.eye(d.n_features))
    free = dist.Normal(0.0, 1.0).expand([d.n_features, d.n_factors]).to_event(2)
    return centre + size * (root @ ps.sample("free", free, each="factor"))


def pathways(d: ps.DataView) -> Tensor:
    """Overlapping groups: the sum over the pathways that a feature belongs to."""
    centre = pyro.sample("centre", dist.Normal(-1.5, 0.7))
    gains = dist.Laplace(0.0, 1.0).expand([d.member.shape[-1], d.n_factors]).to_event(2)
    return centre + d.member @ ps.sample("gain", gains, each="factor")


def shrinkage(d: ps.DataView) -> Tensor:
    """Cumulative shrinkage: the rate of factor k is a product of k sticks, and falls with k."""
    stick = ps.sample("stick", dist.Beta(3.0 * torch.ones(d.n_factors), 1.0).to_event(1))
    rate = ps.deterministic("rate", stick.cumprod(-1), each="factor")
    return torch.logit(rate)[..., None, :]


def parameters(d: ps.DataView) -> Tensor:
    """A line in a covariate, whose numbers are parameters: estimated, and held by the chains."""
    centre = pyro.param("centre", torch.tensor(-0.5))
    slope = pyro.param("slope", torch.tensor(1.0))
    return (centre + slope * d.score)[..., None]


def program_with(log_odds: Callable[[ps.DataView], Tensor]) -> Callable[[ps.DataView], None]:
    """Sparse factor analysis with these log odds."""

    def program(d: ps.DataView) -> None:
        odds = log_odds(d)
        with d.features:
            slab, spike = dist.Normal(0.0, 0.8), dist.Normal(0.0, 0.03)
            W = ps.edges("W", log_odds=odds, slab=slab, spike=spike, to=d.factors)
            sd = pyro.sample("sd", dist.LogNormal(-0.5, 0.5))
        with d.rows:
            z = ps.factors("z", dist.Normal(torch.zeros(d.n_factors), 1.0))
        with d.rows, d.features:
            pyro.sample("x", dist.Normal(z @ W.mT, sd).mask(d.seen), obs=d.x)

    return program


def _members() -> np.ndarray:
    """Four pathways of six features, each of which overlaps with the next by two."""
    member = np.zeros((FEATURES, 4))
    for p in range(4):
        member[4 * p : 4 * p + 6, p] = 1.0
    return member


KNOWN: dict[str, Callable[[Rng], dict[str, np.ndarray]]] = {
    "groups": lambda rng: {"group": np.repeat(list("abcd"), FEATURES // 4)},
    "regression": lambda rng: {"about": rng.normal(size=(FEATURES, 2))},
    "field": lambda rng: {"place": np.arange(float(FEATURES))},
    "pathways": lambda rng: {"member": _members()},
    "shrinkage": lambda rng: {},
    "parameters": lambda rng: {"score": np.linspace(-1.5, 1.5, FEATURES)},
}
GRAPH_PRIORS = {f.__name__: f for f in (groups, regression, field, pathways, shrinkage, parameters)}


def _case(name: str) -> Case:
    def data(rng: Rng) -> ps.Data:
        return ps.Data(rng.normal(size=(ROWS, FEATURES)), features=KNOWN[name](rng))

    return Case(program_with(GRAPH_PRIORS[name]), data, 3 if name == "shrinkage" else 2)


GRAPH_PROGRAMS = {name: _case(name) for name in GRAPH_PRIORS}
