"""Standard deviations of scores: exact where they are known, near quadrature elsewhere, and they cover."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import torch

import pyro_sparse as ps

pytestmark = pytest.mark.usefixtures("hurried_module")

FEW = {"restarts": 2, "seed": 0, "progress": False}


def _table(n=200, seed=1000, noise=0.8):
    rng = np.random.default_rng(seed)
    z = rng.normal(size=(n, 2))
    w = np.array([[1.0, 0], [0.8, 0], [1.2, 0.6], [0, 1.0], [0, -0.9], [0, 0.7]])
    x = z @ w.T + noise * rng.normal(size=(n, 6))
    x[rng.random(x.shape) < 0.1] = np.nan
    x[np.isnan(x).all(1)] = 0.0
    return z, pd.DataFrame(x, columns=list("abcdef"))


@pytest.fixture(scope="module")
def linear():
    z, table = _table()
    return z, table, ps.fit(ps.models.SparseDecoder(n_factors=2, decoder="linear"), table, steps=600, **FEW)


def test_of_straight_lines_and_normal_noise_they_are_exact(linear):
    _, table, fit = linear
    scores, sd = fit.transform(return_std=True)
    np.testing.assert_array_equal(scores, fit.transform())
    model, best = fit.model, fit.best
    w = model.weights[best].detach().double().numpy()
    noise = model.likelihood.noise_sd()[best, 0].detach().double().numpy()
    prior = np.linalg.inv(model.factor_cov[best].double().numpy())
    seen = table.notna().to_numpy()
    order = fit.alignment["permutation"][best]
    for i in (0, 5, 17):
        information = (w * seen[i][:, None] / noise[:, None] ** 2).T @ w
        exact = np.sqrt(np.diag(np.linalg.inv(prior + information)))[order]
        np.testing.assert_allclose(sd[i], exact, rtol=1e-4)
    few_seen = sd[seen.sum(1) <= 4].mean()
    assert few_seen > sd[seen.all(1)].mean()  # what is not seen is less sure


def test_draws_have_the_location_and_the_covariance(linear):
    _, table, fit = linear
    draws = fit.factor_draws(table[:7], n=4000, seed=1)
    scores, sd = fit.transform(table[:7], return_std=True)
    assert draws.shape == (4000, 7, 2)
    np.testing.assert_allclose(draws.mean(0), scores, atol=5 * sd.max() / np.sqrt(4000))
    np.testing.assert_allclose(draws.std(0), sd, rtol=0.06)
    np.testing.assert_array_equal(draws, fit.factor_draws(table[:7], n=4000, seed=1))
    assert not np.array_equal(draws[:9], fit.factor_draws(table[:7], n=9, seed=2))


@pytest.mark.slow(hurried=True)
@pytest.mark.parametrize("likelihood", ["bernoulli", "ordinal", "poisson"])
def test_of_other_cells_they_are_near_quadrature(likelihood):
    rng = np.random.default_rng(0)
    f = rng.normal(size=(150, 1)) * np.linspace(0.8, 1.6, 8)
    x = {
        "bernoulli": (f + rng.logistic(size=f.shape) > 0).astype(float),
        "ordinal": np.digitize(f + rng.logistic(size=f.shape), [-1.0, 0.5, 2.0]).astype(float),
        "poisson": rng.poisson(np.exp(0.5 + 0.5 * f)).astype(float),
    }[likelihood]
    kind = ps.likelihoods.Poisson(size_factors=False) if likelihood == "poisson" else likelihood
    model = ps.models.SparseDecoder(n_factors=1, decoder="linear", likelihood=kind)
    fit = ps.fit(model, x, steps=400, **FEW)
    scores, sd = fit.transform(return_std=True)
    grid = torch.linspace(-6, 6, 1201).view(1, -1, 1)
    best = fit.model.decode(grid.expand(len(fit.elbo), -1, -1), fit.model.weights)[fit.best]
    like = ps.inference.training.restarts.pick(fit.model, [fit.best]).likelihood
    for i in (0, 3, 9):
        row = torch.as_tensor(x[i] - fit.table.centre, dtype=torch.float32).expand(1201, -1)
        log_p = like.log_prob(best.unsqueeze(0), row)[0].detach().double() - 0.5 * grid[0, :, 0].double() ** 2
        weight = torch.softmax(log_p, 0).numpy()
        at = grid[0, :, 0].double().numpy() * fit.alignment["sign"][fit.best][0]
        mean = (weight * at).sum()
        assert abs(scores[i, 0] - mean) < 0.1
        np.testing.assert_allclose(sd[i, 0], np.sqrt((weight * (at - mean) ** 2).sum()), rtol=0.08)


def test_curved_decoders_and_columns_of_several_kinds_have_them_too():
    _, table = _table(n=80)
    fit = ps.fit(ps.models.SparseDecoder(n_factors=2), table, steps=30, **FEW)
    _, sd = fit.transform(table[:5], return_std=True)
    assert ((sd > 0) & (sd <= 1.0001)).all()
    mixed = table.assign(a=(table["a"] > 0).astype(float))
    model = ps.models.SparseDecoder(n_factors=2, likelihood={"a": "bernoulli", "*": "normal"})
    _, sd = ps.fit(model, mixed, steps=30, **FEW).transform(return_std=True)
    assert np.isfinite(sd).all() and (sd > 0).all()
    counts = np.random.default_rng(0).multinomial(50, np.ones(5) / 5, size=40)
    model = ps.models.SparseDecoder(n_factors=1, decoder="linear", likelihood="multinomial")
    _, sd = ps.fit(model, counts, steps=30, **FEW).transform(return_std=True)
    assert ((sd > 0) & (sd <= 1.0001)).all()


def test_factors_that_are_no_normal_variables_have_none():
    _, table = _table(n=60)
    fit = ps.fit(ps.rivals.VSC(6, 2), table.dropna(), steps=5, **FEW)
    with pytest.raises(ValueError, match="return_std, factor_draws: factors of a VSC"):
        fit.transform(return_std=True)
    with pytest.raises(ValueError, match="return_std, factor_draws"):
        fit.factor_draws(n=2)


@pytest.mark.slow
def test_intervals_of_ninety_per_cent_cover_as_many_true_scores():
    inside = []
    for seed in range(1000, 1006):
        z, table = _table(n=400, seed=seed)
        model = ps.models.SparseDecoder(n_factors=2, decoder="linear", anchors={"a": 0, "d": 1})
        fit = ps.fit(model, table, restarts=4, seed=0, progress=False)
        scores, sd = fit.transform(return_std=True)
        for k in range(2):
            sign = np.sign(np.corrcoef(scores[:, k], z[:, k])[0, 1])
            inside.append(np.abs(sign * scores[:, k] - z[:, k]) < 1.645 * sd[:, k])
    assert 0.87 < np.mean(inside) < 0.93
