"""Fits whose tasks count by weights: what they learn together, what they do not share, files, complaints."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from functools import partial

import numpy as np
import pandas as pd
import pytest
import torch

import pyro_sparse as ps
from pyro_sparse.data.tasks import as_tasks
from pyro_sparse.inference.multitask import job as module
from pyro_sparse.inference.multitask.bilevel import left_out_error
from pyro_sparse.inference.multitask.job import TaskJob, _split
from pyro_sparse.inference.multitask.task_axes import _Weights, task_axes
from pyro_sparse.inference.multitask.task_means import mean_error, weighted_mean
from pyro_sparse.inference.multitask.task_run import solve_tasks
from pyro_sparse.metrics import mcc
from pyro_sparse.models import MultiTaskRegression, SparseDecoder
from pyro_sparse.pages.model_card import model_card
from tests._tasks import SHORT, tasks_on_latents

T, N, G, K = 24, 20, 5, 2
X, Y, *_ = tasks_on_latents(t=T, n=N, g=G, k=K)
NAMES = [f"task {t + 1}" for t in range(T)]
WEIGHT = np.linspace(0.5, 1.5, T)


@pytest.fixture(scope="module", autouse=True)
def few_starts():
    """The search is tested on its own; here a few starts will do."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "task_axes", partial(task_axes, n_starts=16, steps=100))
        yield


def fit_of(x=X, y=Y, n_latents=K, likelihood="normal", **options):
    model = MultiTaskRegression(x.shape[-1], n_latents, likelihood=likelihood)
    return ps.fit(model, x, y, **{"seed": 1, "restarts": 1, **SHORT, **options})


@pytest.fixture(scope="module")
def weighted():
    return fit_of(task_weight=dict(zip(NAMES, 2 * WEIGHT, strict=True)))


@pytest.mark.parametrize("family", ["normal", pytest.param("bernoulli", marks=pytest.mark.slow)])
def test_equal_weights_change_nothing(family):
    y = Y if family == "normal" else (Y > 10).astype(float)
    plain = fit_of(y=y, likelihood=family)
    equal = fit_of(y=y, likelihood=family, task_weight=np.full(T, 3.0))
    np.testing.assert_allclose(equal.weights, plain.weights, rtol=1e-5, atol=1e-6)
    pd.testing.assert_frame_equal(equal.history, plain.history, rtol=1e-5)
    assert "task_weight" not in plain.settings and plain.tasks.weight is None
    assert set(equal.settings["task_weight"].values()) == {1.0}


@pytest.mark.parametrize("inner", ["ssl", "lasso", "ridge"])
def test_weights_reach_what_is_learned(inner):
    plain, other = (fit_of(inner=inner, task_weight=w, steps=10) for w in (None, WEIGHT**8))
    assert np.abs(plain.transform() - other.transform()).max() > 1e-3


def corrupted(seed, t=60, bad=48, n=12, g=12, k=3):
    """Tasks of which most have targets in random order: x, y, latents, which are of that kind."""
    rng = np.random.default_rng(seed)
    support = rng.random((t, k)) < 0.5
    support[np.arange(t), rng.integers(k, size=t)] = True
    w = support * rng.choice([-1, 1], (t, k)) * rng.uniform(0.5, 1.5, (t, k))
    z = rng.normal(size=(t, n, k))
    y = (z * w[:, None]).sum(-1) + 0.3 * rng.normal(size=(t, n))
    x = z @ rng.normal(size=(k, g)) + rng.normal(size=(t, n, g))
    y[:bad] = rng.permuted(y[:bad], axis=1)
    return x, y, z.reshape(-1, k), np.arange(t) < bad


def r_squared(z, found):
    """Share of the latents' variance that a linear map of those found explains."""
    design = np.column_stack([found, np.ones(len(found))])
    left = z - design @ np.linalg.lstsq(design, z, rcond=None)[0]
    return 1 - left.var(0).sum() / z.var(0).sum()


@pytest.mark.slow
def test_tasks_that_say_nothing_do_less_harm_with_little_weight():
    """As good as without their rows, and far better than with all alike, on each of five sets."""
    options = {"n_latents": 3, "inner": "ridge", "steps": 150, "holdout": 0.0}
    gains, losses = [], []
    for seed in range(5):
        x, y, z, bad = corrupted(seed)
        rows = x.reshape(-1, x.shape[-1])
        alike, little, without = (
            r_squared(z, fit.transform(rows))
            for fit in (
                fit_of(x, y, **options),
                fit_of(x, y, task_weight=np.where(bad, 1e-3, 1.0), **options),
                fit_of(x[~bad], y[~bad], **options),
            )
        )
        gains.append(little - alike)
        losses.append(without - little)
    assert min(gains) > 0.08 and np.mean(gains) > 0.15
    assert max(losses) < 0.05


def test_the_search_for_axes_counts_a_weight_as_repetitions():
    rng = np.random.default_rng(0)
    w = rng.normal(size=(30, 3)) * (rng.random((30, 3)) < 0.4) + 0.02 * rng.normal(size=(30, 3))
    times = np.where(np.arange(30) < 10, 2, 1)
    counted, repeated = _Weights(w, times.astype(float)), _Weights(np.repeat(w, times, 0))
    maps = torch.linalg.qr(torch.tensor(rng.normal(size=(8, 3, 3))))[0]
    torch.testing.assert_close(counted.cost(maps, 0.2), repeated.cost(maps, 0.2), rtol=1e-12, atol=0)
    for kind in ("log", "count"):
        slopes = (problem.gradient(maps, kind, 0.2) for problem in (counted, repeated))
        torch.testing.assert_close(*slopes, rtol=1e-10, atol=1e-12)
    search = {"n_starts": 16, "steps": 100}
    one = task_axes(w, task_weight=times / times.mean(), **search)
    two = task_axes(np.repeat(w, times, 0), **search)
    assert one.objective == pytest.approx(two.objective, rel=1e-4)
    np.testing.assert_allclose((one.weights**2 * times[:, None]).sum(0) / times.sum(), 1.0)
    alike, plain = (task_axes(w, task_weight=v, **search) for v in (np.ones(30), None))
    assert alike.objective == pytest.approx(plain.objective, rel=1e-4)
    np.testing.assert_allclose(alike.evidence, plain.evidence, rtol=0.05)


def test_axes_do_not_go_by_tasks_of_little_weight():
    rng = np.random.default_rng(0)
    good = rng.normal(size=(60, 3)) * (rng.random((60, 3)) < 0.4)
    bad = rng.normal(size=(200, 3)) @ rng.normal(size=(3, 3))  # sparse in no axes
    weight = np.r_[np.ones(60), np.full(200, 1e-3)]
    search = {"n_starts": 16, "steps": 100}
    found = [
        task_axes(np.r_[good, bad], task_weight=w, **search).weights[:60]
        for w in (None, weight / weight.mean())
    ]
    scores = [mcc(good, w).value for w in found]
    assert scores[1] > 0.999 and scores[0] < 0.98


def test_a_tasks_own_weights_do_not_know_how_much_it_counts(weighted):
    """Given the representation: solved again without weights of tasks they stay, and edges too."""
    plain = replace(weighted, tasks=replace(weighted.tasks, weight=None))
    model = weighted.model
    before = model.weights.clone(), model.variance.clone()
    solve_tasks(model, plain.tasks.batch(), "ssl", weighted.settings["ridge"], learn=False)
    for was, now in zip(before, (model.weights, model.variance), strict=True):
        torch.testing.assert_close(now, was, rtol=1e-3, atol=1e-4)
    one, two = (fit.edge_posterior(num_draws=20, seed=0)["posterior"] for fit in (weighted, plain))
    assert one.equals(two)


def test_means_over_tasks():
    values, weight = torch.tensor([1.0, 2.0, 6.0]), torch.tensor([0.5, 1.5, 1.0])
    assert float(weighted_mean(values, weight)) == pytest.approx(9.5 / 3)
    assert float(weighted_mean(values, None)) == pytest.approx(3)
    with_gap = torch.tensor([1.0, torch.nan, 6.0])
    assert mean_error(with_gap, None) == pytest.approx(3.5)
    assert mean_error(with_gap, weight) == pytest.approx(6.5 / 1.5)
    assert np.isnan(mean_error(torch.full((2,), torch.nan), weight[:2]))
    assert mean_error(torch.tensor([1.0, torch.inf]), weight[:2]) == np.inf


def test_held_out_tasks_and_the_others_keep_weights_of_mean_1():
    tasks = replace(as_tasks(X, Y), weight=WEIGHT)
    train, heldout = _split(tasks.batch(dtype=torch.float64), 0.25, seed=0)
    for part in (train, heldout):
        assert float(part.weight.mean()) == pytest.approx(1)
    at = torch.argsort(train.index)
    ratio = train.weight[at] / torch.as_tensor(WEIGHT)[train.index[at]]
    torch.testing.assert_close(ratio, ratio[:1].expand_as(ratio))


def test_the_left_out_error_of_a_fit_is_weighted(weighted):
    judged = replace(weighted, tasks=replace(weighted.tasks, weight=None))
    plain = TaskJob(weighted.model, judged.tasks, restarts=1, seed=1).heldout
    counted = TaskJob(weighted.model, weighted.tasks, restarts=1, seed=1).heldout
    settings = weighted.settings
    error = left_out_error(weighted.model, plain, "ssl", settings["penalty"], settings["ridge"])
    assert weighted.error[0] == pytest.approx(mean_error(error, counted.weight), rel=1e-5)
    assert weighted.error[0] != pytest.approx(float(error.nanmean()), rel=1e-4)


def test_a_saved_fit_keeps_the_weights(weighted, tmp_path):
    weighted.save(tmp_path / "fit.pt")
    again = ps.load(tmp_path / "fit.pt")
    np.testing.assert_array_equal(again.tasks.weight, weighted.tasks.weight)
    assert again.settings == weighted.settings
    assert json.loads(json.dumps(again.settings))["task_weight"]["task 1"] == pytest.approx(0.5)
    np.testing.assert_array_equal(again.with_data(X, Y).tasks.weight, weighted.tasks.weight)
    new = again.adapt(X[:3], Y[:3])  # nothing is learned from these
    assert new.tasks.weight is None and new.settings["task_weight"] == weighted.settings["task_weight"]


def test_restarts_of_other_weights_are_not_merged(weighted, tmp_path):
    model, options = MultiTaskRegression(G, K), {"seed": 1, "restarts": 1, **SHORT}
    file = tmp_path / "0.pt"
    ps.fit_restart(0, file, model, X, Y, task_weight=WEIGHT, **options)
    merged = ps.merge(file, model, X, Y, task_weight=WEIGHT, **options)
    np.testing.assert_allclose(merged.weights, weighted.weights, rtol=1e-4, atol=1e-5)
    for other in (None, WEIGHT**2):
        with pytest.raises(ValueError, match="task_weight"):
            ps.merge(file, model, X, Y, task_weight=other, **options)


def test_bad_weights_are_refused_before_any_training():
    with pytest.raises(ValueError, match="task_weight: got 'site', which names no task"):
        fit_of(task_weight={"site": 1.0})
    with pytest.raises(ValueError, match=re.escape(f"task_weight: got shape (3,), wanted ({T},)")):
        fit_of(task_weight=[1, 2, 3])
    with pytest.raises(
        TypeError, match="task_weight: is for tasks, and SparseDecoder reads none; leave it out"
    ):
        ps.fit(SparseDecoder(G, 2), X[0], task_weight=[1, 2])


def test_the_model_card_asks_for_the_weights(weighted):
    card = model_card(weighted, weighted.edge_posterior("score"), 0.1, [("tasks", str(T))])
    assert "task_weight=task_weight" in card["code"] and "the weights of tasks" in card["beside"]
