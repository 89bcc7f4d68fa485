"""The benchmark beside NumPyro: its likelihood, the matching of factors, what is counted."""

from __future__ import annotations

from argparse import Namespace

import numpy as np
import pytest
from scipy import stats

from benchmarks import ppl


def options(**given):
    filled = {"seeds": 2, "quick": False, "first_seed": 1000, "cells": None, "methods": None, **given}
    return Namespace(**filled)


def test_the_likelihood_of_second_moments_is_that_of_the_rows():
    rng = np.random.default_rng(0)
    weight, noise = rng.normal(size=(6, 3)), rng.uniform(0.2, 2, 6)
    cov = np.array([[1, 0.4, 0.1], [0.4, 1, -0.3], [0.1, -0.3, 1]])
    x = rng.normal(size=(25, 6))
    found = ppl.log_likelihood(x.T @ x / 25, 25, weight, np.linalg.cholesky(cov), noise)
    want = stats.multivariate_normal(np.zeros(6), weight @ cov @ weight.T + np.diag(noise)).logpdf(x).sum()
    assert found == pytest.approx(want, rel=1e-12)


@pytest.mark.parametrize("cell, r", [("uncorrelated", 0.0), ("correlated", 0.4)])
def test_tables_are_what_the_cells_say(cell, r):
    tables = [ppl.simulated(cell, seed) for seed in range(1000, 1100)]
    weights = np.array([weight for _, weight in tables])
    edge = weights != 0
    sizes = np.abs(weights[edge])
    assert tables[0][0].shape == (200, 15) and edge.shape == (100, 15, 3)
    assert edge.mean() == pytest.approx(0.4, abs=0.03) and (weights[edge] > 0).mean() == pytest.approx(
        0.5, abs=0.04
    )
    assert 0.4 <= sizes.min() < 0.42 and 0.98 < sizes.max() <= 1
    x, weight = tables[0]
    cov = (1 - r) * np.eye(3) + r
    whole = weight @ cov @ weight.T + 0.6**2 * np.eye(15)
    np.testing.assert_allclose(np.cov(x.T), whole, atol=0.6)
    assert np.mean(np.cov(x.T) * whole) == pytest.approx(np.mean(whole**2), rel=0.15)
    np.testing.assert_array_equal(x, ppl.simulated(cell, 1000)[0])


def test_brier_scores_do_not_mind_order_and_signs():
    rng = np.random.default_rng(0)
    weight = rng.normal(size=(15, 3)) * (rng.random((15, 3)) < 0.5)
    p = np.clip((weight != 0) + rng.uniform(-0.2, 0.2, weight.shape), 0, 1)
    want = np.mean((p - (weight != 0)) ** 2)
    order, sign = [2, 0, 1], np.array([1, -1, 1])
    assert ppl.brier(p[:, order], weight[:, order] * sign, weight) == pytest.approx(want)
    lost = ppl.brier(np.zeros((15, 3)), np.zeros((15, 3)), weight)
    assert lost == pytest.approx((weight != 0).mean())


def test_draws_are_put_in_the_order_of_the_reference():
    rng = np.random.default_rng(0)
    reference = rng.normal(size=(8, 3))
    weight, p = np.empty((2, 30, 8, 3)), np.empty((2, 30, 8, 3))
    chance = rng.random((8, 3))
    for c, d in np.ndindex(2, 30):
        order, sign = rng.permutation(3), rng.choice([-1, 1], 3)
        weight[c, d] = (reference + 0.05 * rng.normal(size=(8, 3)))[:, order] * sign
        p[c, d] = chance[:, order]
    found, loading = ppl.aligned(p, weight, reference)
    np.testing.assert_allclose(found, np.broadcast_to(chance, (2, 8, 3)))
    np.testing.assert_allclose(loading, np.broadcast_to(reference, (2, 8, 3)), atol=0.05)


def test_jobs(monkeypatch, capsys):
    monkeypatch.setattr(ppl, "find_spec", lambda name: True)
    jobs = ppl.tasks(options())
    assert len(jobs) == 2 * 2 * 3 and {job["seed"] for job in jobs} == {1000, 1001}
    assert {job["method"] for job in ppl.tasks(options(quick=True))} == {"default", "laplace"}
    monkeypatch.setattr(ppl, "find_spec", lambda name: None)
    jobs = ppl.tasks(options(cells=["correlated"]))
    assert [(job["cell"], job["method"]) for job in jobs] == [("correlated", "default")] * 2
    assert "NumPyro is not installed (pip install numpyro)" in capsys.readouterr().err


def test_the_better_of_the_peers_priors_is_quoted():
    rows = [
        {
            "cell": "correlated",
            "method": method,
            "seed": seed,
            "brier": brier,
            "method_cpu_s": cpu,
            "gap": 0.1,
        }
        for method, figures in {
            "default": [(0.02, 10.0), (0.04, 10.0)],
            "laplace": [(0.01, 100.0), (0.03, 40.0)],
            "normal": [(0.03, 20.0), (0.03, 20.0)],
        }.items()
        for seed, (brier, cpu) in enumerate(figures)
    ]
    cell = ppl.collect(rows, options())["correlated"]
    assert cell["numpyro_prior"] == "laplace" and cell["n"] == 2
    assert cell["brier_default"] == pytest.approx(0.03) and cell["brier_numpyro_true"] == pytest.approx(0.02)
    assert cell["ratio"] == pytest.approx(1.5) and cell["cpu_ratio"] == pytest.approx((0.1 + 0.25) / 2)
    assert cell["of_table_default"] == [0.02, 0.04]
    alone = ppl.collect(rows[:2], options())["correlated"]
    assert "ratio" not in alone and alone["cpu_s_default"] == 10.0
    assert [line["method"] for line in ppl.table(rows)] == ["default", "laplace", "normal"]


@pytest.mark.filterwarnings("ignore:X.*:RuntimeWarning", "ignore:edge_posterior.*:RuntimeWarning")
def test_a_short_run_of_the_defaults(monkeypatch, hurried):
    monkeypatch.setattr(ppl, "QUICK_FIT", {"restarts": 1, "steps": 60, "sweeps": 40, "num_draws": 12})
    row = ppl.run("correlated", "default", 1000, quick=True)
    assert 0 <= row["brier"] <= 0.6 and 1 <= row["factors"] <= 3 and row["method_cpu_s"] > 0


@pytest.mark.slow
@pytest.mark.parametrize("prior", list(ppl.PRIORS))
def test_a_short_run_of_numpyro(prior):
    pytest.importorskip("numpyro")
    row = ppl.run("correlated", prior, 1000, quick=True)
    assert 0 <= row["brier"] <= 0.4 and row["factors"] == 3 and 0 <= row["gap"] <= 1
