"""The benchmark of inner problems on small ones, and on made-up rows: what it measures and what it counts."""

from __future__ import annotations

import argparse

import numpy as np
import pytest
import torch

from benchmarks import inner
from pyro_sparse.inference.multitask.inner import moments
from pyro_sparse.inference.multitask.inner.lasso import duality_gap


def options(**given):
    return argparse.Namespace(**{"quick": False, "seeds": 1, "peer": None, "peer_python": "python", **given})


def test_jobs():
    kinds = [job["what"] for job in inner.tasks(options(seeds=2))]
    assert kinds.count("accuracy") == 2 * len(inner.TASKS) * len(inner.FEATURES)
    assert kinds.count("speed") == 2 * len(inner.SPEED_SIZES) and "step" not in kinds
    jobs = inner.tasks(options(peer="folder", quick=True))
    assert {
        "what": "step",
        "n_tasks": 100,
        "d": 20,
        "seed": 0,
        "peer": "folder",
        "peer_python": "python",
    } in jobs
    assert max(job["d"] for job in jobs) == 20


def test_the_gap_is_the_package_s_where_they_overlap():
    features, targets = inner.problem(3, 6, 1000)
    data = moments(torch.as_tensor(features), torch.as_tensor(targets))
    rng = np.random.default_rng(0)
    weight = rng.normal(size=(3, 6, 1))
    lam = torch.full((3, 6), 0.1, dtype=torch.float64)
    wanted = 2 * duality_gap(data.gram, data.moment, data.square, lam, torch.as_tensor(weight)) / data.square
    for t in range(3):
        found = inner.relative_gap(features[t], targets[t, :, 0], 0.1, weight[t, :, 0])
        assert found == pytest.approx(float(wanted[t]))


@pytest.mark.slow
def test_an_accuracy_row_is_exact_and_a_wrong_answer_is_seen(monkeypatch):
    row = inner.accuracy(8, 6, 1000)
    assert row["gap"] < 1e-12 and row["support_errors"] == 0
    assert row["hypergrad_err"] < 1e-6 and row["weight_difference"] < 1e-10
    solve = inner.solve
    monkeypatch.setattr(inner, "solve", lambda x, y: (solve(x, y)[0] + 0.01, solve(x, y)[1]))
    row = inner.accuracy(4, 6, 1000)
    assert row["gap"] > 1e-6 and row["support_errors"] > 0 and row["weight_difference"] >= 0.01
    assert "hypergrad_err" not in row


def test_in_turns_takes_the_least_of_every_round():
    seconds = {"a": iter([3.0, 1, 2] * 9), "b": iter([5.0] * 99)}
    assert inner.in_turns({name: lambda own=own: next(own) for name, own in seconds.items()}) == {
        "a": 1,
        "b": 5,
    }


def test_a_solver_that_is_not_installed_is_left_out(monkeypatch, capsys):
    monkeypatch.setattr(inner.importlib.util, "find_spec", lambda name: None)
    assert list(inner.peers()) == ["sklearn"]
    exact = {
        "what": "accuracy",
        "n_tasks": 8,
        "d": 6,
        "gap": 1e-15,
        "support_errors": 0,
        "hypergrad_err": 1e-9,
    }
    speed = {"what": "speed", "n_tasks": 100, "missing": ["celer", "skglm"]}
    rows = [exact, {**speed, "d": 20, "speedup_sklearn": 30.0}, {**speed, "d": 100, "speedup_sklearn": 12.0}]
    figures = inner.collect(rows, options())
    assert figures["speedup_sklearn"] == 12 and figures["speedup_sklearn_by_size"] == {
        "100,20": 30,
        "100,100": 12,
    }
    assert figures["speedup_celer"] is None and figures["speedup_peer"] is None
    assert figures["missing"] == ["celer", "skglm"] and "not installed" in capsys.readouterr().err
    assert figures["gap_max"] == 1e-15 and figures["hypergrad_err_max"] == 1e-9
    assert len(inner.table(rows)) == 3


@pytest.mark.slow
def test_a_peer_that_does_not_run_is_said():
    with pytest.raises(RuntimeError, match="peer: .* did not run"):
        inner.step(2, 3, 1000, "nowhere", "false")
