"""A small factor analysis whose mean is a function of the linear predictor, and tables drawn from it."""

from __future__ import annotations

import numpy as np
import pyro
import pyro.distributions as dist
import torch

from pyro_sparse.inference.program.recorded import RecordedDensity
from pyro_sparse.programs import Data, Program, edges, factors

FEATURES, FACTORS, ROWS, CHAINS = 4, 2, 5, 400
SLAB, SPIKE, LOG_ODDS = 0.8, 0.2, -0.3


def program_of(link):
    """Cells with mean `link` of the linear predictor and learned noise."""

    def program(d):
        with d.features:
            slab, spike = dist.Normal(0.0, SLAB), dist.Normal(0.0, SPIKE)
            W = edges("W", log_odds=LOG_ODDS, slab=slab, spike=spike, to=d.factors)
            sd = pyro.sample("sd", dist.LogNormal(-0.5, 0.5))
        with d.rows:
            z = factors("z", dist.Normal(torch.zeros(d.n_factors), 1.0))
        with d.rows, d.features:
            pyro.sample("x", dist.Normal(link(z @ W.mT), sd).mask(d.seen), obs=d.x)

    return program


def tables_of(link):
    """Of each chain a draw from the prior, and a table of its own that comes from it."""
    data = Data(np.random.default_rng(0).standard_normal((ROWS, FEATURES)))
    program = Program(program_of(link), FACTORS)
    density = RecordedDensity(program, data, CHAINS)
    torch.manual_seed(3)
    u = density.start
    mean = link(u["z"][:, :, 0] @ u["W"].mT)
    tables = mean + u["sd"].exp()[:, None] * torch.randn_like(mean)
    return RecordedDensity(program, data, CHAINS, tables=tables.numpy())
