"""Three programs on tables of a few cells: linear normal; 0/1 cells with covariates and groups; gates."""

from __future__ import annotations

import numpy as np
import pyro
import pyro.distributions as dist
import torch

from pyro_sparse.programs import Data, Program, edges, factors, gates, sample

ROWS, FEATURES, FACTORS = 6, 4, 2


def linear(d):
    """Normal cells; an edge rate of each factor; noise and intercept of each feature."""
    k = torch.ones(d.n_factors)
    eta = sample("eta", dist.Beta(k, 2 * k).to_event(1), each="factor")
    with d.features:
        slab, spike = dist.Normal(0.0, 0.8), dist.Normal(0.0, 0.05)
        W = edges("W", log_odds=torch.logit(eta)[..., None, :], slab=slab, spike=spike, to=d.factors)
        b = pyro.sample("b", dist.Normal(0.0, 2.0))
        sd = pyro.sample("sd", dist.LogNormal(-0.5, 0.7))
    with d.rows:
        z = factors("z", dist.Normal(0 * k, 1.0))
    with d.rows, d.features:
        pyro.sample("x", dist.Normal(z @ W.mT + b, sd).mask(d.seen), obs=d.x)


def grouped(d):
    """0/1 cells; factors depend on doses; the edge rate is that of the feature's family."""
    rate = sample("rate", dist.Normal(-1.0, 1.0).expand([d.levels("family")]).to_event(1))
    B = sample("B", dist.Normal(0.0, 1.0).expand([d.dose.shape[1], d.n_factors]).to_event(2), axes="factor")
    with d.features:
        slab, spike = dist.Laplace(0.0, 1.0), dist.Laplace(0.0, 0.1)
        W = edges("W", log_odds=rate[..., d.family][..., None], slab=slab, spike=spike, to=d.factors)
    with d.rows:
        z = factors("z", dist.Normal(d.dose @ B, 1.0))
    with d.rows, d.features:
        pyro.sample("x", dist.Bernoulli(logits=z @ W.mT).mask(d.seen), obs=d.x)


def gated(d):
    """Normal cells; 0/1 gates times slopes."""
    k = torch.ones(d.n_factors)
    with d.features:
        g = gates("g", log_odds=-0.4, to=d.factors)
        v = sample("v", dist.Normal(0 * k, 1.0).to_event(1))
    with d.rows:
        z = factors("z", dist.Normal(0 * k, 1.0))
    mean = (z.unsqueeze(-2) * g.unsqueeze(-3) * v).sum(-1)  # row, feature, factor
    with d.rows, d.features:
        pyro.sample("x", dist.Normal(mean, 0.5).mask(d.seen), obs=d.x)


def table(binary: bool = False, rows: int = ROWS) -> Data:
    """A table for any of them, one cell missing."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((rows, FEATURES))
    x = (x > 0).astype(float) if binary else x
    x[1, 2] = np.nan
    return Data(x, rows={"dose": rng.standard_normal((rows, 1))}, features={"family": ["a", "b", "a", "b"]})


PROGRAMS = {program.__name__: program for program in (linear, grouped, gated)}


def case(name: str) -> tuple[Program, Data]:
    """One of the programs, and its table."""
    return Program(PROGRAMS[name], FACTORS), table(binary=name == "grouped")
