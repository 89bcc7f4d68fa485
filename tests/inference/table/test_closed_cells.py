"""Cells by the closed forms of chains: equal to the distributions, and to their slopes in all parameters."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import pyro_sparse as ps
from pyro_sparse.data.table import Batch
from pyro_sparse.inference.table.closed_cells import cell_sums, closed_terms

R, D, N, G = 2, 3, 11, 4
FAMILIES = {
    "bernoulli": ps.likelihoods.Bernoulli,
    "probit": lambda: ps.likelihoods.Bernoulli(link="probit"),
    "poisson": lambda: ps.likelihoods.Poisson(size_factors=False),
    "negative_binomial": lambda: ps.likelihoods.NegativeBinomial(size_factors=False),
    "ordinal": lambda: ps.likelihoods.Ordinal(levels=[(0, 2)] * G),
}


def cells(family, masked):
    rng = np.random.default_rng(0)
    likelihood = FAMILIES[family]()
    likelihood.setup(G, R)
    likelihood = likelihood.double()
    with torch.no_grad():
        for p in likelihood.parameters():
            p += 0.3 * torch.as_tensor(rng.standard_normal(tuple(p.shape)))
    x = torch.as_tensor(rng.poisson(2.0, (N, G)).astype(float))
    x = x.clamp(max={"bernoulli": 1, "probit": 1, "ordinal": 2}.get(family, 99))
    mask = torch.as_tensor(rng.random((N, G)) < 0.8) if masked else None
    per_row = {"exposure": torch.as_tensor(rng.uniform(0.5, 2.0, (N, 1)))}
    per_row = per_row if family in ("poisson", "negative_binomial") else {}
    return (
        likelihood,
        Batch(x, x, mask, N, per_row=per_row),
        torch.as_tensor(rng.standard_normal((R, D, N, G))),
    )


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("family", FAMILIES)
def test_sums_differ_between_draws_as_the_distribution_does(family, masked):
    likelihood, batch, f = cells(family, masked)

    def rows(at):
        return likelihood.observation(at, batch.mask, batch.per_row).log_prob(batch.x)

    moving = [f.requires_grad_(True), *likelihood.parameters()]
    mine = cell_sums(likelihood, batch, f)
    assert mine.shape == (R, D, N)
    mine = mine - mine[:, :1]
    want = torch.stack([rows(f[:, d]) - rows(f[:, 0]) for d in range(D)], 1)
    torch.testing.assert_close(mine, want, rtol=1e-6, atol=1e-6)
    weight = torch.linspace(-1, 2, mine.numel()).view_as(mine).double()
    slopes = (
        torch.autograd.grad((weight * found).sum(), moving, materialize_grads=True) for found in (mine, want)
    )
    for slope, wanted in zip(*slopes, strict=True):
        torch.testing.assert_close(slope, wanted, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("family", FAMILIES)
def test_derivatives_are_those_of_autograd(family):
    likelihood, batch, f = cells(family, masked=True)
    at = f[:, 0].clone().requires_grad_(True)
    log_p = likelihood(at, batch.per_row).log_prob(batch.x) * batch.mask
    (slope,) = torch.autograd.grad(log_p.sum(), at, create_graph=True)
    (bend,) = torch.autograd.grad(-slope.sum(), at)
    with torch.no_grad():
        terms = closed_terms(likelihood, batch, f[:, 0], 2)
    for mine, want in zip(terms[1:], (slope, bend), strict=True):
        torch.testing.assert_close(mine, want.detach(), rtol=1e-6, atol=1e-6)


def test_cells_without_a_density_of_their_own_have_no_sum():
    likelihood, batch, f = cells("poisson", masked=False)
    likelihood.from_totals = torch.tensor(True)
    assert likelihood.shares and cell_sums(likelihood, batch, f) is None
    likelihood = ps.likelihoods.Multinomial()
    likelihood.setup(G, R)
    assert closed_terms(likelihood, batch, f[:, 0], 2) is None
