"""Log densities of rows, factors summed out: against quadrature, and what fits do with them."""

from __future__ import annotations

import itertools
import warnings

import numpy as np
import pytest
import torch

import pyro_sparse as ps
from pyro_sparse.inference.table.marginal_likelihood import (
    at_maximum,
    compared_rows,
    row_log_likelihood,
    sums_out_factors,
)
from pyro_sparse.posterior.rival_restarts import criterion_of

N, G, K = 30, 5, 2


def counts_and_answers(likelihood, missing=False):
    """A table with two correlated factors."""
    rng = np.random.default_rng(0)
    z = rng.multivariate_normal(np.zeros(K), [[1.0, 0.5], [0.5, 1.0]], N)
    f = z @ rng.normal(size=(G, K)).T
    x = (
        rng.poisson(np.exp(0.5 * f))
        if likelihood == "poisson"
        else rng.random(f.shape) < 1 / (1 + np.exp(-f))
    )
    x = x.astype(float)
    if missing:
        x[rng.random(x.shape) < 0.2] = np.nan
    return x


def fitted(x, likelihood, **settings):
    model = ps.models.SparseDecoder(n_factors=K, decoder="linear", likelihood=likelihood)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return ps.fit(model, x, seed=0, progress=False, **settings)


@pytest.mark.parametrize(
    "likelihood, missing",
    [
        ("bernoulli", False),
        ("poisson", True),
        pytest.param("negative_binomial", False, marks=pytest.mark.slow),
    ],
)
def test_rows_have_the_density_of_quadrature(likelihood, missing):
    x = counts_and_answers("bernoulli" if likelihood == "bernoulli" else "poisson", missing)
    fit = fitted(x, likelihood, restarts=2, steps=60)
    model = fit.model
    with torch.no_grad():
        rng = np.random.default_rng(1)
        model.weights.copy_(torch.as_tensor(rng.normal(size=(2, G, K))))
        model.factor_cov.copy_(torch.tensor([[[1.0, 0.6], [0.6, 1.0]], [[1.0, -0.3], [-0.3, 1.0]]]))
    batch = fit.table.batch(torch.device("cpu"), torch.float32)
    got = row_log_likelihood(model, batch).numpy()
    nodes, mass = np.polynomial.hermite_e.hermegauss(40)
    grid, mass = np.array(list(itertools.product(nodes, nodes))), np.outer(mass, mass).ravel() / (2 * np.pi)
    for r in range(2):
        root = np.linalg.cholesky(model.factor_cov[r].numpy().astype(float))
        z = torch.as_tensor(grid @ root.T).float()
        for i in range(N):
            row = batch.rows(torch.tensor([i] * len(z)))
            with torch.no_grad():
                f = model.decode(z.expand(2, -1, -1), model.weights)
                log_p = model.likelihood.observation(f, row.mask, row.per_row).log_prob(row.x)[r]
            want = np.log((mass * np.exp(log_p.double().numpy())).sum())
            assert got[r, i] == pytest.approx(want, abs=0.15)
    np.testing.assert_array_equal(row_log_likelihood(model, batch).numpy(), got)  # the same draws each time


def test_a_bound_is_below_it_and_restarts_are_compared_by_it():
    fit = fitted(counts_and_answers("bernoulli"), "bernoulli", restarts=3, steps=200)
    level = np.array(fit.settings["log_likelihood"])
    with torch.no_grad():
        batch = fit.table.batch(torch.device("cpu"), torch.float32)
        rows = row_log_likelihood(fit.model, batch).numpy()
    assert (level >= rows.mean(1) - 0.01).all()  # the fit's own parameters are no better than a maximum
    assert (np.asarray(fit.elbo) < level + 0.05).all()
    criterion, margin = criterion_of(fit)
    assert criterion[fit.best] > criterion.max() - 0.1 and margin == 5.0
    charged = (fit.weights != 0).sum((1, 2)) + np.array(fit.settings["correlations"])
    np.testing.assert_allclose(criterion, N * level - 0.5 * charged * np.log(N), atol=1e-2)


def test_restarts_with_one_graph_have_one_maximum():
    """Wherever they begin; edges that are not there stay so, and C stays a correlation matrix."""
    rng, edge = (
        np.random.default_rng(2),
        np.array([[1, 0], [1, 0], [1, 0], [0, 1], [0, 1], [0, 1]], dtype=bool),
    )
    f = 1.5 * rng.multivariate_normal(np.zeros(K), [[1.0, 0.5], [0.5, 1.0]], 200) @ edge.T
    x = (rng.random(f.shape) < 1 / (1 + np.exp(-f))).astype(float)
    fit = fitted(x, "bernoulli", restarts=3, steps=60)
    model, batch = fit.model, fit.table.batch(torch.device("cpu"), torch.float32)
    edge = torch.as_tensor(edge)
    with torch.no_grad():
        model.weights.copy_(edge * torch.as_tensor(rng.uniform(0.5, 2.0, size=(3, 6, K))))
    before, best = row_log_likelihood(model, batch).sum(1), model
    for _ in range(4):  # they begin far away
        best = at_maximum(best, batch)
    after = row_log_likelihood(best, batch).sum(1)
    assert (after > before).all() and after.max() - after.min() < 0.3
    assert not best.weights[:, ~edge].any()
    torch.testing.assert_close(best.factor_cov.diagonal(dim1=-2, dim2=-1), torch.ones(3, K))
    assert torch.equal(model.weights != 0, edge.expand(3, -1, -1))


@pytest.mark.parametrize("between, charged", [(0.0, 0), (0.6, 1)])
def test_a_correlation_is_charged_where_it_is_worth_it(between, charged):
    rng, edge = np.random.default_rng(3), np.kron(np.eye(K), np.ones((4, 1)))
    f = 2.0 * rng.multivariate_normal(np.zeros(K), [[1.0, between], [between, 1.0]], 300) @ edge.T
    x = (rng.random(f.shape) < 1 / (1 + np.exp(-f))).astype(float)
    fit = fitted(x, "bernoulli", restarts=2, steps=60)
    with torch.no_grad():
        fit.model.weights.copy_(1.5 * torch.as_tensor(edge))
    compared = compared_rows(fit.model, fit.table, np.array([True, False]))
    assert compared.correlations[0] == charged and compared.correlations[1] == 0
    assert np.isneginf(compared.log_density[1]).all()
    batch = fit.table.batch(torch.device("cpu"), torch.float32)
    full = row_log_likelihood(at_maximum(fit.model, batch), batch)[0].sum()
    lost = float(full) - compared.log_density[0].sum()  # by a zero in the place of what chance made
    assert abs(lost) < (0.5 * np.log(300) if charged == 0 else 1e-3)


@pytest.mark.parametrize("likelihood, decoder", [("normal", "linear"), ("bernoulli", "mlp")])
def test_normal_noise_and_curves_are_compared_as_before(likelihood, decoder):
    model = ps.models.SparseDecoder(n_features=G, n_factors=K, decoder=decoder, likelihood=likelihood)
    model.setup(n_restarts=1, n_samples=N)
    assert not sums_out_factors(model)


@pytest.mark.slow
def test_correlated_factors_of_yes_no_answers_are_kept():
    """By their bounds one factor was chosen on two of these six tables, and three factors on none."""
    found = []
    for seed in range(1000, 1006):
        rng = np.random.default_rng([77, seed])
        z = rng.multivariate_normal(np.zeros(3), 0.5 * np.eye(3) + 0.5, 300)
        edge = rng.random((15, 3)) < 0.4
        for j in np.flatnonzero(~edge.any(1)):
            edge[j, rng.integers(3)] = True
        f = z @ (edge * rng.uniform(0.8, 2, (15, 3))).T + rng.normal(0, 0.5, 15)
        x = (rng.random(f.shape) < 1 / (1 + np.exp(-f))).astype(float)
        model = ps.models.SparseDecoder(n_factors=3, decoder="linear", likelihood="bernoulli")
        fit = ps.fit(model, x, seed=seed, progress=False)
        found.append(int((fit.effects[fit.best] != 0).any(0).sum()))
    assert sum(found) >= 13 and found.count(3) >= 2, found
