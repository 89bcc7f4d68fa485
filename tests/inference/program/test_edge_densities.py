"""Densities of weights against scipy and against the distribution that programs declare."""

from __future__ import annotations

import itertools

import numpy as np
import pyro.distributions as dist
import pytest
import torch
from scipy import integrate, special, stats

from pyro_sparse.distributions.edge_weights import EdgeWeights, as_component
from pyro_sparse.inference.program.edge_densities import (
    drawn_variance,
    edge_log_density,
    edge_prob,
    log_evidence,
    summed_evidence,
)
from pyro_sparse.inference.program.recorded import EdgeTerms
from tests.inference.program._long_runs import double
from tests.inference.program.test_weights import LAWS

FAMILIES = {
    "normal": lambda scale: dist.Normal(torch.tensor(0.0).double(), scale),
    "laplace": lambda scale: dist.Laplace(torch.tensor(0.0).double(), scale),
    "student": lambda scale: dist.StudentT(torch.tensor(3.0).double(), torch.tensor(0.0).double(), scale),
}


@pytest.mark.parametrize("slab", FAMILIES)
@pytest.mark.parametrize("spike", FAMILIES)
def test_the_log_density_is_that_of_the_declared_distribution_up_to_a_constant(slab, spike):
    torch.manual_seed(0)
    weight, log_odds = torch.randn(5, 2, 3).double(), torch.randn(5, 2, 3).double()
    wide, narrow = torch.full((3,), 0.9).double(), torch.full((3,), 0.1).double()
    declared = EdgeWeights(
        log_odds, as_component("slab", FAMILIES[slab](wide)), as_component("spike", FAMILIES[spike](narrow))
    )
    three = torch.full_like(weight, 3.0)
    terms = EdgeTerms(log_odds, wide + 0 * weight, narrow + 0 * weight, three, three)
    gap = edge_log_density(weight, terms, (slab, spike)).sum(-1) - declared.log_prob(weight)
    torch.testing.assert_close(gap, torch.zeros_like(gap))


def test_evidence_is_an_integral():
    pull, diagonal, scale = 1.3, 2.0, 0.7

    def level(w):
        return np.exp(pull * w - diagonal * w**2 / 2)

    for family, density in (("normal", stats.norm), ("laplace", stats.laplace), ("student", stats.t(3))):
        scaled = density(scale=scale) if family != "student" else stats.t(3, scale=scale)
        wanted = np.log(integrate.quad(lambda w, d=scaled: level(w) * d.pdf(w), -20, 20)[0])
        torch.manual_seed(0)
        numbers = [torch.full((300,), v, dtype=torch.float64) for v in (scale, 3.0, pull, diagonal)]
        found = summed_evidence(family, *numbers).exp().mean().log().item()
        assert found == pytest.approx(wanted, abs=1e-9 if family == "normal" else 0.01)
    tensors = [torch.tensor(v, dtype=torch.float64) for v in (pull, diagonal, scale**2)]
    assert log_evidence(*tensors).item() == pytest.approx(
        np.log(integrate.quad(lambda w: level(w) * stats.norm(0, scale).pdf(w), -20, 20)[0])
    )


@pytest.mark.parametrize("family", ["laplace", "student"])
def test_weights_of_drawn_variances_have_the_density(family):
    """Variance from its prior and a normal weight, then the same given the weight."""
    torch.manual_seed(0)
    scale, df = torch.full((40_000,), 0.8).double(), torch.full((40_000,), 3.0).double()
    yes, no = torch.ones_like(scale).bool(), torch.zeros_like(scale).bool()
    weight = drawn_variance(family, scale, df, scale, no).sqrt() * torch.randn_like(scale)
    weight = drawn_variance(family, scale, df, weight, yes).sqrt() * torch.randn_like(scale)
    scaled = stats.laplace(scale=0.8) if family == "laplace" else stats.t(3, scale=0.8)
    assert stats.kstest(weight.numpy(), scaled.cdf).pvalue > 1e-3


def test_edge_probabilities_by_scipy():
    weight = double([[[0.0, 0.05, -0.4, 3.0]]])
    odds, slab, spike = -0.3, 0.9, 0.08
    like = torch.ones_like(weight)
    terms = EdgeTerms(odds * like, slab * like, spike * like, 3.0 * like, 3.0 * like)
    w = weight.numpy()
    for families in itertools.product(LAWS, LAWS):
        log_ratio = odds + LAWS[families[0]][1](slab)(w) - LAWS[families[1]][1](spike)(w)
        np.testing.assert_allclose(edge_prob(weight, terms, families), special.expit(log_ratio), rtol=1e-9)
    at_zero = EdgeTerms(terms.log_odds, terms.slab, 0 * like, like, like)
    np.testing.assert_array_equal(edge_prob(weight, at_zero, ("normal", "point")), w != 0)


def test_variances_of_laplace_weights_are_those_of_other_units():
    scale, in_use = torch.ones(4000, dtype=torch.float64), torch.ones(4000, dtype=torch.bool)
    drawn = []
    for unit in (1.0, 1e8, 1e-8):
        torch.manual_seed(0)
        drawn.append(drawn_variance("laplace", unit * scale, scale, 0.7 * unit * scale, in_use) / unit**2)
    torch.testing.assert_close(drawn[1], drawn[0])
    torch.testing.assert_close(drawn[2], drawn[0])
