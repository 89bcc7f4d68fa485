"""The expectation-propagation benchmark: its tasks, its data, what it counts, and a small run."""

from __future__ import annotations

from argparse import Namespace

import numpy as np
import pytest

from benchmarks import ep


def options(**settings):
    return Namespace(**{"quick": False, "seeds": 2, "first_seed": 0, "model": None, **settings})


def test_every_cell_once_for_every_seed():
    jobs = ep.tasks(options())
    assert len(jobs) == 2 * 2 * 2 * 7
    assert {job["seed"] for job in jobs} == {0, 1}
    quick = ep.tasks(options(quick=True, seeds=1, first_seed=1000, model=["lasso"]))
    assert {job["cell"] for job in quick} == set(ep.QUICK)
    assert {(job["model"], job["seed"]) for job in quick} == {("lasso", 1000)}


def test_truth_is_drawn_from_the_prior():
    x, y, edge = ep.data("normal", "known", "n40_rho0.9", 1000, 400)
    assert x.shape == (400, 40, 8) and y.shape == (400, 40)
    assert edge.mean() == pytest.approx(0.3, abs=0.03)
    r = np.corrcoef(x.reshape(-1, 8).T)
    assert r[0, 1] == pytest.approx(0.9, abs=0.02) and r[0, 2] == pytest.approx(0.81, abs=0.03)
    assert y.var() == pytest.approx(1 + 0.3 * 8, rel=0.2)
    _, _, learned = ep.data("lasso", "learned", "n40_rho0.9", 1000, 400)
    assert learned.mean() == pytest.approx(1 / 3, abs=0.05)
    assert learned.mean(1).std() > 1.2 * edge.mean(1).std()  # a rate for every task


def test_a_cell_is_met_by_its_mean_over_seeds():
    row = {name: 0.5 for name in ep.FIGURES} | {"model": "normal", "given": "known", "cell": "easy"}
    rows = [row | {"mean": 0.01, "max": 0.2}, row | {"mean": 0.02, "max": 0.3}]
    found = ep.collect(rows, Namespace())
    assert found["cells"]["normal known easy"]["mean"] == pytest.approx(0.015)
    assert found["cells"]["normal known easy"]["max"] == 0.3
    assert found["met_everywhere"]
    assert not ep.collect([*rows, row | {"cell": "n15_rho0.0", "mean": 0.03}], Namespace())["met_everywhere"]
    assert [line["cell"] for line in ep.table(rows)] == ["normal known easy"]


def test_a_small_run():
    found = ep.run("normal", "known", "n40_rho0.5", 1000, quick=True)
    assert set(found) == set(ep.FIGURES)
    assert found["mean"] < ep.TARGET and found["gap"] == 0
    assert found["brier"] == pytest.approx(found["brier_gold"], abs=0.005)
