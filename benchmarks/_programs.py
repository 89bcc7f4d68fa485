"""Programs that the package does not have built in, and the data that each of them reads.

Each is a function of `d`, as a user would write it; `PROGRAMS` pairs it with what makes its data: rows,
features and what is known of them, whose cells are then drawn from the program.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pyro
import pyro.distributions as dist
import torch

import pyro_sparse as ps

Rng = np.random.Generator


class Case(NamedTuple):
    """A program and its data.

    Attributes
    ----------
    program : callable
    data : callable
        Of a generator of random numbers.
    n_factors : int
    """

    program: Callable[[ps.DataView], Any]
    data: Callable[[Rng], ps.Data]
    n_factors: int = 2


def _table(rng: Rng, rows: int, features: int, discrete: bool = False) -> np.ndarray:
    """Cells that only say which shape a table has."""
    return (
        rng.integers(0, 2, (rows, features)).astype(float) if discrete else rng.normal(size=(rows, features))
    )


def linear(d: ps.DataView) -> None:
    """Sparse factor analysis."""
    k = torch.ones(d.n_factors)
    eta = ps.sample("eta", dist.Beta(k, 2 * k).to_event(1), each="factor")
    with d.features:
        W = ps.edges(
            "W",
            log_odds=torch.logit(eta),
            slab=dist.Normal(0.0, 0.8),
            spike=dist.Normal(0.0, 0.03),
            to=d.factors,
        )
        b = pyro.sample("b", dist.Normal(0.0, 1.0))
        sd = pyro.sample("sd", dist.LogNormal(-0.5, 0.5))
    with d.rows:
        z = ps.factors("z", dist.Normal(0 * k, 1.0))
    with d.rows, d.features:
        pyro.sample("x", dist.Normal(z @ W.mT + b, sd).mask(d.seen), obs=d.x)


def covariates(d: ps.DataView) -> None:
    """Covariates on the factors' means; rates of edges by family of features."""
    rate = pyro.sample("rate", dist.Normal(-0.5, 1.0).expand([d.levels("family")]).to_event(1))
    B = ps.sample(
        "B", dist.Normal(0.0, 1.0).expand([d.dose.shape[-1], d.n_factors]).to_event(2), axes="factor"
    )
    with d.features:
        odds = rate[..., d.family].unsqueeze(-1)
        W = ps.edges(
            "W", log_odds=odds, slab=dist.Normal(0.0, 0.8), spike=dist.Normal(0.0, 0.03), to=d.factors
        )
        sd = pyro.sample("sd", dist.LogNormal(-0.5, 0.5))
    with d.rows:
        z = ps.factors("z", dist.Normal(d.dose @ B, 1.0))
    with d.rows, d.features:
        pyro.sample("x", dist.Normal(z @ W.mT, sd).mask(d.seen), obs=d.x)


def hierarchical(d: ps.DataView) -> None:
    """Log odds of edges grow with a covariate of the features, by a slope that is learned."""
    centre = pyro.sample("centre", dist.Normal(-0.5, 1.0))
    slope = pyro.sample("slope", dist.Normal(0.0, 1.0))
    with d.features:
        odds = (centre + slope * d.score).unsqueeze(-1)
        W = ps.edges(
            "W", log_odds=odds, slab=dist.Normal(0.0, 0.8), spike=dist.Normal(0.0, 0.03), to=d.factors
        )
        sd = pyro.sample("sd", dist.LogNormal(-0.5, 0.5))
    with d.rows:
        z = ps.factors("z", dist.Normal(torch.zeros(d.n_factors), 1.0))
    with d.rows, d.features:
        pyro.sample("x", dist.Normal(z @ W.mT, sd).mask(d.seen), obs=d.x)


def ordinal(d: ps.DataView) -> None:
    """Five ordered levels, the cut points of each item its own."""
    k = torch.ones(d.n_factors)
    eta = ps.sample("eta", dist.Beta(k, 2 * k).to_event(1), each="factor")
    with d.features:
        W = ps.edges(
            "W",
            log_odds=torch.logit(eta),
            slab=dist.Normal(0.0, 1.5),
            spike=dist.Normal(0.0, 0.05),
            to=d.factors,
        )
        first = pyro.sample("first", dist.Normal(-1.5, 1.0))
        gaps = pyro.sample("gaps", dist.LogNormal(torch.zeros(3), 0.5).to_event(1))
    with d.rows:
        z = ps.factors("z", dist.Normal(0 * k, 1.0))
    cuts = torch.cat([first.unsqueeze(-1), first.unsqueeze(-1) + gaps.cumsum(-1)], -1)
    with d.rows, d.features:
        pyro.sample("x", ps.distributions.OrderedLogistic(z @ W.mT, cuts), obs=d.x)


def counts(d: ps.DataView) -> None:
    """Zero-inflated counts of rows with a known exposure."""
    k = torch.ones(d.n_factors)
    eta = ps.sample("eta", dist.Beta(k, 2 * k).to_event(1), each="factor")
    with d.features:
        W = ps.edges(
            "W",
            log_odds=torch.logit(eta),
            slab=dist.Normal(0.0, 0.5),
            spike=dist.Normal(0.0, 0.02),
            to=d.factors,
        )
        b = pyro.sample("b", dist.Normal(1.0, 0.7))
        zero = pyro.sample("zero", dist.Beta(1.0, 6.0))
    with d.rows:
        z = ps.factors("z", dist.Normal(0 * k, 1.0))
    with d.rows, d.features:
        log_mean = (z @ W.mT + b + d.log_depth.unsqueeze(-1)).clamp(max=8.0)
        pyro.sample("x", dist.ZeroInflatedPoisson(log_mean.exp(), gate=zero), obs=d.x)


def mechanism(d: ps.DataView) -> None:
    """A transition with a saturating mechanism of one's own, gated: which variable drives which."""
    rate = pyro.sample("rate", dist.Beta(1.0, 2.0))
    with d.features:
        gate = ps.gates("gate", log_odds=torch.logit(rate), to=d.factors)
        force = ps.sample("force", dist.Normal(torch.zeros(d.n_factors), 1.0).to_event(1))
        half = pyro.sample("half", dist.LogNormal(0.0, 0.4))
        sd = pyro.sample("sd", dist.LogNormal(-0.5, 0.5))
    drive = d.before.unsqueeze(-2)  # row, target, source
    pushed = drive / (half.unsqueeze(-1) + drive.abs())
    with d.rows, d.features:
        pyro.sample("x", dist.Normal((pushed * gate * force).sum(-1), sd), obs=d.x)


def curved(d: ps.DataView) -> None:
    """A decoder of one's own: a line and a small network of each feature's gated factors."""
    k = torch.ones(d.n_factors)
    eta = ps.sample("eta", dist.Beta(k, 2 * k).to_event(1), each="factor")
    A = ps.sample("A", dist.Normal(0.0, 1.0).expand([d.n_factors, 3]).to_event(2))
    with d.features:
        W = ps.edges(
            "W",
            log_odds=torch.logit(eta),
            slab=dist.Normal(0.0, 0.8),
            spike=dist.Normal(0.0, 0.03),
            to=d.factors,
        )
        head = ps.sample("head", dist.Normal(torch.zeros(3), 0.4).to_event(1))
        sd = pyro.sample("sd", dist.LogNormal(-0.7, 0.4))
    with d.rows:
        z = ps.factors("z", dist.Normal(0 * k, 1.0))
    gated = z.unsqueeze(-2) * W  # row, feature, factor
    f = gated.sum(-1) + (torch.tanh(gated @ A) * head).sum(-1)
    with d.rows, d.features:
        pyro.sample("x", dist.Normal(f, sd).mask(d.seen), obs=d.x)


def views(d: ps.DataView) -> None:
    """Two views: how many edges a factor has differs between them, and so does the noise."""
    rate = ps.sample("rate", dist.Normal(-0.5, 1.2).expand([2, d.n_factors]).to_event(2), each="factor")
    level = pyro.sample("level", dist.Normal(-0.5, 0.5).expand([2]).to_event(1))
    with d.features:
        odds = rate[..., d.view, :]
        W = ps.edges(
            "W", log_odds=odds, slab=dist.Normal(0.0, 0.8), spike=dist.Normal(0.0, 0.03), to=d.factors
        )
        sd = pyro.sample("sd", dist.LogNormal(level[..., d.view], 0.2))
    with d.rows:
        z = ps.factors("z", dist.Normal(torch.zeros(d.n_factors), 1.0))
    with d.rows, d.features:
        pyro.sample("x", dist.Normal(z @ W.mT, sd).mask(d.seen), obs=d.x)


def bernoulli(d: ps.DataView) -> None:
    """Yes/no cells."""
    k = torch.ones(d.n_factors)
    eta = ps.sample("eta", dist.Beta(k, 2 * k).to_event(1), each="factor")
    with d.features:
        W = ps.edges(
            "W",
            log_odds=torch.logit(eta),
            slab=dist.Normal(0.0, 1.5),
            spike=dist.Normal(0.0, 0.05),
            to=d.factors,
        )
        b = pyro.sample("b", dist.Normal(0.0, 1.0))
    with d.rows:
        z = ps.factors("z", dist.Normal(0 * k, 1.0))
    with d.rows, d.features:
        pyro.sample("x", dist.Bernoulli(logits=z @ W.mT + b).mask(d.seen), obs=d.x)


ROWS, FEATURES = 120, 12
PROGRAMS = {
    "linear": Case(linear, lambda rng: ps.Data(_table(rng, ROWS, FEATURES))),
    "covariates": Case(
        covariates,
        lambda rng: ps.Data(
            _table(rng, ROWS, FEATURES), rows={"dose": rng.normal(size=(ROWS, 2))},
            features={"family": ["a"] * (FEATURES // 2) + ["b"] * (FEATURES // 2)},
        ),
    ),
    "hierarchical": Case(
        hierarchical,
        lambda rng: ps.Data(
            _table(rng, ROWS, FEATURES), features={"score": np.linspace(-1.5, 1.5, FEATURES)}
        ),
    ),
    "ordinal": Case(ordinal, lambda rng: ps.Data(_table(rng, ROWS, FEATURES, discrete=True))),
    "counts": Case(
        counts,
        lambda rng: ps.Data(
            _table(rng, ROWS, FEATURES, discrete=True), rows={"log_depth": 0.5 * rng.normal(size=ROWS)}
        ),
    ),
    "mechanism": Case(
        mechanism, lambda rng: ps.Data(_table(rng, ROWS, 6), rows={"before": rng.normal(size=(ROWS, 6))}), 6
    ),
    "curved": Case(curved, lambda rng: ps.Data(_table(rng, ROWS, FEATURES))),
    "views": Case(
        views,
        lambda rng: ps.Data(
            _table(rng, ROWS, FEATURES),
            features={"view": ["rna"] * (FEATURES // 2) + ["protein"] * (FEATURES // 2)},
        ),
    ),
    "bernoulli": Case(bernoulli, lambda rng: ps.Data(_table(rng, ROWS, FEATURES, discrete=True))),
}  # fmt: skip
