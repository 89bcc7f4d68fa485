"""The benchmark of chains: its tables, effective samples, ratios, and which version is timed."""

from __future__ import annotations

from argparse import Namespace

import numpy as np
import pytest
import xarray

from benchmarks import _chains_run, chains


def options(**given):
    filled = {
        "seeds": 2, "quick": False, "first_seed": 1000, "tables": ["poisson"], "data": "", "baseline": None,
        "sweeps": None,
    }  # fmt: skip
    return Namespace(**{**filled, **given})


def autoregressive(shape, r, seed=0):
    """Draws along axis 1 with correlation r of neighbours, variance 1."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal(shape)
    for t in range(1, shape[1]):
        x[:, t] = r * x[:, t - 1] + np.sqrt(1 - r**2) * x[:, t]
    return x


def test_effective_samples_are_those_of_autoregressive_draws():
    r, shape = 0.6, (4, 2000, 6, 1)
    draws = 0.5 + 0.05 * autoregressive(shape, r)
    pooled, within = _chains_run.effective(draws)
    want = 4 * 2000 * (1 - r) / (1 + r)
    assert pooled.shape == (6,) and np.median(pooled) == pytest.approx(want, rel=0.15)
    assert np.median(within) == pytest.approx(want, rel=0.15)
    apart = draws * np.array([1.0, 1.0, 1.0, -1.0]).reshape(-1, 1, 1, 1)  # one chain found another answer
    pooled, within = _chains_run.effective(apart)
    assert np.median(pooled) < 10 and np.median(within) == pytest.approx(want, rel=0.15)


def test_loadings_near_zero_do_not_count_but_five_do():
    draws = 0.05 * autoregressive((2, 200, 10, 2), 0.0)
    draws[:, :, :7, 0] += 0.5
    assert len(_chains_run.effective(draws)[0]) == 7
    assert len(_chains_run.effective(0.1 * draws)[0]) == 5
    many = 0.5 + 0.05 * autoregressive((2, 20, 250, 1), 0.0)
    assert len(_chains_run.effective(many)[0]) == 125  # every second one


class Answer(dict):
    """Groups by name, and attributes."""


def answer(draws, kept, verdict):
    """An edge posterior of these draws."""
    dims = ("feature", "factor")
    p = np.array([[0.96, 0.1]] * draws.shape[2])
    groups = {
        "posterior": xarray.Dataset({"weight": (("chain", "draw", *dims), draws)}),
        "sample_stats": xarray.Dataset({"kept": (("chain",), np.array(kept))}),
        "edge_posterior": xarray.Dataset({"probability": (dims, p), "gap": (dims, 0.1 * p)}),
    }
    idata = Answer(groups)
    idata.attrs = {"sweeps": draws.shape[1], "rows_used": 50, "verdict": verdict}
    return idata


def test_figures_are_of_the_chains_kept():
    draws = 0.5 + 0.05 * autoregressive((3, 400, 5, 2), 0.0)
    draws[2] -= 1.0
    verdict = "The chains used 50 of 60 rows: few.\nMore."
    row = _chains_run.figures(answer(draws, [True, True, False], verdict))
    assert (row["kept"], row["chains"], row["present"], row["sweeps"], row["rows"]) == (2, 3, 5, 400, 50)
    assert row["ess"] == pytest.approx(800, rel=0.2) and row["gap"] == pytest.approx(0.096)
    assert row["rows_said"] is True


@pytest.mark.parametrize("name", ["wide", "bernoulli", "poisson", "negative_binomial"])
def test_tables_are_of_their_kind(name):
    x = chains.made(name, 1000, "")
    assert x.shape == chains.TABLES[name].shape and np.isfinite(x).all()
    np.testing.assert_array_equal(x, chains.made(name, 1000, ""))
    assert not np.array_equal(x, chains.made(name, 1001, ""))
    if name == "bernoulli":
        assert set(np.unique(x)) == {0.0, 1.0}
    elif name != "wide":
        assert (x == np.round(x)).all() and x.min() == 0
    correlations = np.corrcoef(x.T)[np.triu_indices(x.shape[1], 1)]
    assert (np.abs(correlations) > 0.3).any() and np.median(np.abs(correlations)) < 0.3


def test_a_ratio_is_of_seconds_by_effective_samples(monkeypatch):
    asked = []

    def measured(root, x, job):
        asked.append((root == chains.ROOT, job["chains"]))
        seconds, ess = (2.0, 100.0) if root == chains.ROOT else (30.0, 150.0)
        return {"chains_cpu_s": seconds, "fit_cpu_s": 1.0, "ess": ess, "ess_within": 2 * ess, "rows": 500}

    monkeypatch.setattr(chains, "measured", measured)
    common = {"table": "poisson", "data": "", "sweeps": 30, "quick": False}
    rows = [
        {**chains.run(seed=seed, baseline="elsewhere", **common), "table": "poisson", "seed": seed}
        for seed in (1000, 1001)
    ]
    assert rows[0]["ratio"] == pytest.approx((30 / 150) / (2 / 100)) == rows[0]["ratio_within"]
    assert [ours for ours, _ in asked] == [False, True, True, False]  # by turns
    assert asked[0][1] == {"sweeps": 30, "warm_up": 10}
    line = chains.collect(rows, Namespace())["poisson"]
    assert line["ratio"] == pytest.approx(10) and line["cpu_s"] == 2 and line["baseline_cpu_s"] == 30
    assert line["rows"] == line["of"] == 500 and line["by_seed"]["seed"] == [1000, 1001]
    assert chains.table(rows)[0]["n"] == 2
    alone = chains.run(seed=1000, baseline=None, **common)
    assert "ratio" not in alone and not any(name.startswith("baseline") for name in alone)


def test_what_cannot_be_run_is_said_first(tmp_path):
    assert [task["seed"] for task in chains.tasks(options())] == [1000, 1001]
    with pytest.raises(SystemExit, match="has no bfi.csv; name the folder"):
        chains.tasks(options(tables=["mlp"], data=str(tmp_path)))
    with pytest.raises(SystemExit, match="has no pyro_sparse; name a checkout"):
        chains.tasks(options(baseline=str(tmp_path)))


@pytest.mark.slow
def test_a_version_is_run_from_its_folder(tmp_path):
    row = chains.run("bernoulli", 1000, "", str(chains.ROOT), 30, True)
    assert row["ratio"] > 0 and row["sweeps"] == row["baseline_sweeps"] == 20
    assert row["ess"] == pytest.approx(row["baseline_ess"])  # the same version twice
