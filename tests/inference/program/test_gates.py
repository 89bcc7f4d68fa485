"""Gates in the long run, against enumeration of all graphs."""

from __future__ import annotations

import itertools

import numpy as np
import pyro
import pytest
import torch
from scipy import special, stats

from pyro_sparse.inference.program.gates import GateSampler
from pyro_sparse.programs import gates
from tests.inference.program._long_runs import check, of_copies, run
from tests.inference.program.test_weights import BITS, MORE_Z, NOISE, ODDS, X, Z, bernoulli, gaussian

SLOPES = np.array([0.6, -0.5])


def gated(cells, odds, permitted=None):
    def program(d):
        with d.features:
            g = gates("g", log_odds=torch.as_tensor(odds), to=d.factors, permitted=permitted)
        with d.rows, d.features:
            pyro.sample("x", cells((d.known * torch.as_tensor(SLOPES)) @ g.mT), obs=d.x)

    return program


def log_of_graph(graph, x, is_bits):
    mean = ((MORE_Z if is_bits else Z) * SLOPES) @ np.array(graph, float)
    return (
        stats.bernoulli.logpmf(x, special.expit(mean)).sum()
        if is_bits
        else stats.norm.logpdf(x, mean, NOISE).sum()
    )


@pytest.mark.parametrize("is_bits", [False, True])
def test_gates_agree_with_enumeration(is_bits):
    x, z, cells = (BITS, MORE_Z, bernoulli) if is_bits else (X, Z, gaussian)
    graphs = list(itertools.product((0, 1), repeat=2))
    weight = special.softmax([log_of_graph(g, x, is_bits) + ODDS @ g for g in graphs])
    wanted = weight @ np.array(graphs)
    density = of_copies(x, z, gated(cells, ODDS), 2)
    torch.manual_seed(3)
    sampler = GateSampler(density, density.blocks["g"], density.start)

    def seen(u):
        both = u["g"][..., 0] * u["g"][..., 1]
        return torch.cat([u["g"], sampler.prob, both[..., None]], -1)

    means = run(sampler, density.start, 150, 10, seen)
    check(means, [*wanted, *wanted, weight[-1]])
    assert (means[:, 2:4].std(0) < means[:, :2].std(0)).all()  # probabilities vary less than gates


def test_gates_that_are_not_permitted_have_no_probability():
    permitted = torch.tensor([True, False])
    density = of_copies(X, Z, gated(gaussian, np.array([0.0, 2.0]), permitted), 2, copies=3)
    sampler = GateSampler(density, density.blocks["g"], density.start)
    u = density.start
    for _ in range(5):
        u = sampler.draw(u, adapts=False)
        assert sampler.prob[..., 1].max() < 1e-9 and u["g"][..., 1].max() == 0
    odds = log_of_graph((1, 0), X, False) - log_of_graph((0, 0), X, False)
    np.testing.assert_allclose(sampler.prob[..., 0], special.expit(odds), rtol=1e-9)


def test_a_gate_sampler_goes_on_from_its_state():
    density = of_copies(X, Z, gated(gaussian, ODDS), 2, copies=3)
    one, two = (GateSampler(density, density.blocks["g"], density.start) for _ in range(2))
    one.ascend(density.start)
    two.load(one.state())
    assert torch.equal(one.prob, two.prob) and (one.method, one.acceptance) == ("gibbs", 1.0)
