"""Which restart is best: by enumeration, scipy's standard errors, and the criterion of polynomials."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats
from sklearn.mixture import GaussianMixture

import pyro_sparse as ps
from pyro_sparse.graphs.restart_choice import best_restart, bic, chosen_restart, likeliest_restart
from pyro_sparse.metrics import mcc


def test_best_is_the_simplest_that_cannot_be_told_apart():
    rng = np.random.default_rng(0)
    base = rng.normal(size=200)
    noise = rng.normal(size=200)
    rows = np.stack([base, base - 0.001 + 0.1 * (noise - noise.mean()), base - 1.0])
    factors, edges = np.array([3, 2, 1]), np.array([9, 9, 9])
    assert best_restart(rows, factors, edges) == 1  # alike, fewer factors
    assert best_restart(rows, np.array([2, 2, 2]), np.array([8, 9, 1])) == 0  # then fewer edges
    assert best_restart(rows[[0, 2]], factors[[0, 2]], edges[[0, 2]]) == 0  # a worse one is never chosen


def test_a_restart_that_is_not_finite_is_never_best():
    rows = np.array([[np.nan, 5.0], [0.0, 1.0], [np.inf, 2.0]])
    assert best_restart(rows, np.array([1, 2, 1]), np.array([1, 2, 1])) == 1
    assert likeliest_restart(rows, np.array([1, 2, 1]), 2) == 1


def test_the_likeliest_restart_has_as_many_edges_as_its_rows_pay_for():
    """On polynomials, where the criterion is N log RSS + k log N."""
    rng = np.random.default_rng(3)
    x = rng.uniform(-1, 1, 150)
    y = 1 + x - 2 * x**3 + 0.5 * rng.standard_normal(150)
    rows, want = [], []
    for degree in range(7):
        left = y - np.polyval(np.polyfit(x, y, degree), x)
        var = left.var()
        rows.append(-0.5 * np.log(2 * np.pi * var) - 0.5 * left**2 / var)
        want.append(150 * np.log((left**2).sum()) + (degree + 1) * np.log(150))
    assert likeliest_restart(np.array(rows), np.arange(7), 150) == np.argmin(want) == 3
    assert likeliest_restart(np.array(rows)[:, :20], np.arange(7), 20) < 7


def test_the_criterion_is_that_of_a_normal_sample_by_hand():
    """Half of minus scikit-learn's: N times the mean log density, less half a log N for each parameter."""
    x = np.random.default_rng(2).normal(size=(50, 1))
    mixture = GaussianMixture(1).fit(x)  # a mean and a variance
    ours = bic(mixture.score_samples(x)[None], np.array([2]), 50)
    np.testing.assert_allclose(ours, -0.5 * mixture.bic(x))


def test_of_restarts_as_simple_the_one_with_the_highest_elbo_is_best():
    rng = np.random.default_rng(5)
    noise = rng.normal(size=100)
    rows = np.stack([noise, noise[::-1] + 0.01, noise])
    assert best_restart(rows, np.array([2, 2, 2]), np.array([7, 7, 7])) == 1


def test_all_rows_choose_the_number_of_factors_and_rows_aside_the_restart():
    rng = np.random.default_rng(0)
    train, held = rng.normal(size=(1, 180)), rng.normal(size=(1, 20))
    gain = np.array([0.0, 0.3, 0.32])[:, None]  # 54 and 58 nats over 180 rows
    train = np.concatenate([train + gain, train - 2.0])
    wide = rng.normal(size=(4, 20))
    held = held + np.array([0.0, 0.05, 0.0, 9.0])[:, None] + wide - wide.mean(1, keepdims=True)
    active, edges = np.array([3, 4, 4, 1]), np.array([20, 24, 27, 5])
    seen = np.concatenate([train, held], 1)
    assert best_restart(held[:3], active[:3], edges[:3]) == 0  # rows aside cannot tell
    assert chosen_restart(held, seen, active, edges, 200) == 1  # four factors; then fewer edges
    assert chosen_restart(held[:1], seen[:1], active[:1], edges[:1], 200) == 0


@pytest.mark.slow
def test_a_fit_keeps_a_factor_that_the_few_rows_aside_cannot_tell_from_none():
    rng = np.random.default_rng(1)
    z, loading = rng.standard_normal((130, 3)), np.kron(np.eye(3), np.ones((4, 1)))
    x = z @ loading.T + 1.2 * rng.standard_normal((130, 12))
    fit = ps.fit(ps.models.SparseDecoder(12, 3, decoder="linear"), x, restarts=4, progress=False)
    edges = (fit.model.weights != 0).sum((1, 2)).numpy()
    active = (fit.model.weights != 0).any(1).sum(1).numpy()
    level = 117 * fit.elbo + 13 * fit.heldout_elbo - 0.5 * edges * np.log(130)
    assert active[fit.best] == active[np.argmax(level)] == 3
    assert mcc(z, fit.transform(x)).value > 0.8


def test_a_single_row_gives_no_error_estimate():
    assert best_restart(np.array([[1.0], [0.9]]), np.array([2, 1]), np.array([2, 1])) == 0


@pytest.mark.parametrize("n", [12, 200])
def test_one_standard_error_of_the_paired_difference_is_what_cannot_be_told_apart(n):
    """By scipy's standard error: a simpler restart 0.9 of it behind is taken, one 1.1 behind is not."""
    noise = np.random.default_rng(0).normal(size=n)
    noise -= noise.mean()
    best = 3 * np.random.default_rng(1).normal(size=n)  # which rows share: it is no part of the difference
    unit = stats.sem(noise)
    for behind in (0.0, 0.5, 0.9, 0.98, 1.02, 1.1, 1.5, 1.9, 2.1):
        rows = np.stack([best, best + noise - behind * unit])
        assert best_restart(rows, np.array([2, 1]), np.array([5, 4])) == int(behind < 1), behind
