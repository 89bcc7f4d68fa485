"""Fitting tasks: recovery, restarts, resuming, Ctrl-C, wrong input."""

from __future__ import annotations

import signal
from functools import partial

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

import pyro_sparse as ps
from pyro_sparse.data.tasks import as_tasks
from pyro_sparse.inference.multitask import job as module
from pyro_sparse.inference.multitask.job import _split, fold
from pyro_sparse.inference.multitask.task_axes import task_axes
from pyro_sparse.inference.multitask.task_run import raw_latents, ridge_rows, settle
from pyro_sparse.inference.training.elbo import elbo_by_restart
from pyro_sparse.inference.training.loop import Run
from pyro_sparse.metrics import mcc
from pyro_sparse.models import MultiTaskRegression
from pyro_sparse.priors import Laplace

T, N, G, K = 40, 30, 5, 3
SMALL = {"steps": 60, "sparse_steps": 24, "learning_rate": 0.03, "evaluate_every": 20, "progress": False}


def problem(seed=0, t=T, n=N, g=G, k=K, noise=0.2):
    """Tasks on latents that a linear map mixes: x, y, latents, weights."""
    rng = np.random.default_rng(seed)
    support = rng.random((t, k)) < 0.5
    support[np.arange(t), rng.integers(k, size=t)] = True
    w = support * rng.choice([-1, 1], (t, k)) * rng.uniform(0.5, 1.5, (t, k))
    z = rng.normal(size=(t, n, k))
    y = (z * w[:, None]).sum(-1) + noise * rng.normal(size=(t, n))
    return z @ rng.normal(size=(k, g)) + 0.01 * rng.normal(size=(t, n, g)), 3 * y + 10, z, w


X, Y, Z, W = problem()


def model_of(**options):
    return MultiTaskRegression(G, K, **options)


def fit_of(seed=1, restarts=2, x=X, y=Y, **options):
    return ps.fit(model_of(), x, y, seed=seed, restarts=restarts, **{**SMALL, **options})


def same_fit(one, other):
    np.testing.assert_array_equal(one.weights, other.weights)
    np.testing.assert_array_equal(one.noise, other.noise)
    np.testing.assert_array_equal(one.transform(X[0]), other.transform(X[0]))
    pd.testing.assert_frame_equal(one.history, other.history)
    pd.testing.assert_frame_equal(one.agreement, other.agreement)


@pytest.fixture(scope="module", autouse=True)
def few_starts():
    """The search is tested on its own; here a few starts will do."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "task_axes", partial(task_axes, n_starts=16, steps=100))
        yield


@pytest.fixture(scope="module")
def fitted():
    return fit_of()


def test_it_finds_the_latents_and_who_uses_them(fitted):
    match = mcc(Z.reshape(-1, K), fitted.transform().reshape(-1, K))
    assert match.value > 0.99
    order = np.asarray(match.permutation)
    np.testing.assert_array_equal(fitted.edge_score[fitted.best][:, order] > 0.5, W != 0)
    assert fitted.weights.shape == (2, T, K)
    assert (fitted.agreement["least"] > 0.99).all()
    assert fitted.agreement["similarity"][fitted.best] == pytest.approx(1)
    assert all("the tasks do not tell them apart" in note for note in fitted.warnings)
    np.testing.assert_allclose(fitted.noise[fitted.best], 0.6, rtol=0.5)
    stages = fitted.history.groupby(["restart", "stage"], sort=False)["step"].max()
    assert stages.to_dict() == {(r, s): n for r in (0, 1) for s, n in (("dense", 60), ("sparse", 24))}
    assert np.isfinite(fitted.history[["objective", "heldout"]].to_numpy()).all()


@pytest.mark.parametrize("inner", ["lasso", "outer"])
def test_the_other_sparse_objectives_find_them_too(inner):
    fit = fit_of(restarts=1, inner=inner)
    assert mcc(Z.reshape(-1, K), fit.transform().reshape(-1, K)).value > 0.99
    assert any("one restart only" in note for note in fit.warnings)


def test_a_ridge_finds_the_space_and_not_the_axes():
    fit = fit_of(inner="ridge", restarts=1)
    z = np.column_stack([fit.transform().reshape(-1, K), np.ones(T * N)])
    true = Z.reshape(-1, K)
    left = true - z @ np.linalg.lstsq(z, true, rcond=None)[0]
    assert (left.var(0) < 0.02 * true.var(0)).all()
    assert "single latents mean nothing" in fit.warnings[0]
    assert np.isnan(fit.found).all()
    assert set(fit.history["stage"]) == {"dense"}


def test_ridge_regressions_do_not_care_for_rotations():
    """The ridge weights of white latents turn with the latents: same predictions, same size."""
    data = as_tasks(X, Y).batch(dtype=torch.float64)
    torch.manual_seed(0)
    model = model_of()
    model.setup(T)
    model.double().eval()
    rows, white = ridge_rows(model, raw_latents(model, data), data, ridge=0.1)
    raw = model.encode(data.inputs).detach()
    own = raw - raw.mean(1, keepdim=True)
    h = own @ white.mT
    cov = torch.einsum("tni,tnj->ij", h, h) / (T * N)
    torch.testing.assert_close(cov, torch.eye(K).double())
    with torch.no_grad():
        model.turn.copy_(torch.randn(K, K, dtype=torch.float64))
    other, turned = ridge_rows(model, raw_latents(model, data), data, ridge=0.1)
    torch.testing.assert_close(other.norm(dim=1), rows.norm(dim=1))
    moved = model.encode(data.inputs).detach()
    moved = (moved - moved.mean(1, keepdim=True)) @ turned.mT
    predictions = [(f @ w.unsqueeze(-1))[..., 0] for f, w in ((h, rows), (moved, other))]
    torch.testing.assert_close(*predictions)


@pytest.mark.slow
def test_the_same_seed_gives_the_same_bits(fitted):
    same_fit(fit_of(), fitted)
    assert (fit_of(seed=2, restarts=1).transform(X[0]) != fitted.transform(X[0])).any()


@pytest.mark.parametrize(
    "cut", [pytest.param(40, marks=pytest.mark.slow), 80, pytest.param(110, marks=pytest.mark.slow)]
)
def test_a_resumed_fit_gives_the_same_bits(fitted, tmp_path, monkeypatch, cut):
    """Cut in the dense stage, in the sparse stage, in the second restart."""
    file, advance, steps = tmp_path / "run.pt", Run.advance, []

    def dying(run):
        steps.append(run.step)
        if len(steps) == cut:
            raise RuntimeError("the power went")
        advance(run)

    settings = {"checkpoint": file, "checkpoint_every": 7}
    with monkeypatch.context() as patch:
        patch.setattr(Run, "advance", dying)
        with pytest.raises(RuntimeError, match="the power went"):
            fit_of(**settings)

    counted = []
    monkeypatch.setattr(Run, "advance", lambda run: (counted.append(run.step), advance(run)))
    same_fit(fit_of(**settings), fitted)
    assert len(counted) <= 168 - cut + 1 + 7, "what was done is not done again"
    counted.clear()
    same_fit(fit_of(**settings), fitted)
    assert not counted
    with pytest.raises(ValueError, match="belongs to another fit .*seed: 1 there, 2 here"):
        fit_of(seed=2, **settings)
    with pytest.raises(ValueError, match="belongs to another fit .*data"):
        fit_of(y=Y + X[..., 0], **settings)


@pytest.mark.slow
def test_ctrl_c_returns_the_fit_so_far(monkeypatch):
    advance, steps, stop = Run.advance, [], 0

    def pressed(run):
        advance(run)
        steps.append(run.step)
        if len(steps) == stop:
            raise KeyboardInterrupt

    monkeypatch.setattr(Run, "advance", pressed)
    stop = 55
    with pytest.warns(RuntimeWarning, match="interrupted at step 55 .*; this is the fit so far"):
        fit = fit_of()
    assert fit.n_restarts == 1
    assert "interrupted at step 55 of 60 of restart 0" in fit.warnings
    assert mcc(Z.reshape(-1, K), fit.transform().reshape(-1, K)).value > 0.9
    assert set(fit.history["stage"]) == {"dense"}
    steps.clear()
    stop = 100  # the second restart is not worth looking at
    with pytest.warns(RuntimeWarning, match="interrupted"):
        fit = fit_of()
    assert "interrupted at step 16 of 60 of restart 1" in fit.warnings
    np.testing.assert_array_equal(fit.weights[0], fit_of(restarts=1).weights[0])
    steps.clear()
    stop = 5
    with pytest.raises(KeyboardInterrupt):
        fit_of()


def test_ctrl_c_before_there_is_a_fit_is_a_plain_one(monkeypatch):
    advance = Run.advance

    def pressed(run):
        signal.raise_signal(signal.SIGINT)
        advance(run)

    monkeypatch.setattr(Run, "advance", pressed)
    with pytest.raises(KeyboardInterrupt, match="^interrupted before there was a fit to return$") as error:
        fit_of()
    assert error.type is KeyboardInterrupt


@pytest.mark.slow
def test_ctrl_c_leaves_a_checkpoint_to_go_on_from(fitted, monkeypatch, tmp_path):
    file, advance, steps = tmp_path / "run.pt", Run.advance, []

    def pressed(run):
        advance(run)
        steps.append(run.step)
        if len(steps) == 77:
            signal.raise_signal(signal.SIGINT)

    with monkeypatch.context() as patch, pytest.warns(RuntimeWarning, match="interrupted"):
        patch.setattr(Run, "advance", pressed)
        fit = fit_of(checkpoint=file, checkpoint_every=1000)
    assert "interrupted at step 17 of 24" in " ".join(fit.warnings)
    same_fit(fit_of(checkpoint=file, checkpoint_every=1000), fitted)


def test_folding_changes_the_axes_and_not_the_space():
    data = as_tasks(X, Y).batch(dtype=torch.float64)
    torch.manual_seed(0)
    model = MultiTaskRegression(K, K)
    model.setup(T)
    model.double()
    exact = as_tasks(Z, (Z * W[:, None]).sum(-1)).batch(dtype=torch.float64)
    before = model.encode(exact.inputs).detach().reshape(-1, K).numpy()
    found = fold(model, exact, ridge=1e-9)
    after = model.encode(exact.inputs).detach().reshape(-1, K).numpy()
    assert after.std(0) == pytest.approx(np.ones(K), rel=1e-2)
    centred = before - before.mean(0)
    answer = np.linalg.lstsq(centred, after - after.mean(0), rcond=None)
    assert np.abs(centred @ answer[0] - after + after.mean(0)).max() < 1e-9
    assert mcc(Z.reshape(-1, K), after).value > 0.9999
    assert found.agreement >= 1
    assert data.total == T


def test_settling_ends_at_a_mode_of_the_program():
    """No small change of weights or noise raises the program's density; units are those of the samples."""
    data = as_tasks(X, Y).batch(dtype=torch.float64)
    torch.manual_seed(0)
    model = model_of()
    model.setup(T)
    model.double()
    settle(model, data, "ssl", 1e-3)
    raw = model.encode(data.inputs).detach().reshape(-1, K)
    torch.testing.assert_close(model.centre, raw.mean(0))
    torch.testing.assert_close(model.spread, raw.std(0, correction=0))

    def density():
        return elbo_by_restart(model.model, model.guide, data, 1).item()

    best = density()
    rng = np.random.default_rng(0)
    for t, k in zip(rng.integers(T, size=10), rng.integers(K, size=10), strict=True):
        for change in (-0.02, 0.02):
            model.weights[0, t, k] += change
            assert density() < best
            model.weights[0, t, k] -= change
            model.variance[t] *= 1 + change
            assert density() < best
            model.variance[t] /= 1 + change


def test_ridge_weights_of_a_fit_are_those_of_scikit_learn():
    from sklearn.linear_model import Ridge

    y = Y.copy()
    y[3, 10:] = np.nan
    data = as_tasks(X, y).batch(dtype=torch.float64)
    torch.manual_seed(0)
    model = model_of()
    model.setup(T)
    model.double()
    settle(model, data, "ridge", 0.1)
    z = model.standardised(data.inputs).detach().numpy()
    for t in (0, 3):
        seen = data.mask[t].numpy()
        want = Ridge(alpha=0.1 * seen.sum()).fit(z[t][seen], data.y[t].numpy()[seen])
        np.testing.assert_allclose(model.weights[0, t], want.coef_, rtol=1e-8)
        assert float(model.intercept[t]) == pytest.approx(want.intercept_, rel=1e-8)


def test_tasks_kept_aside_are_whole_tasks():
    data = as_tasks(X, Y).batch()
    train, heldout = _split(data, 0.25, seed=0)
    assert (len(train), train.total, len(heldout)) == (30, 30, 10)
    assert sorted([*train.index.tolist(), *heldout.index.tolist()]) == list(range(T))
    torch.testing.assert_close(heldout.x, data.x[heldout.index])
    few = data.rows(torch.arange(9))
    assert _split(few, 0.1, seed=0)[1] is None
    with pytest.raises(ValueError, match="holdout: 0.9 of 10 tasks leaves 1 to learn from; lower it"):
        _split(data.rows(torch.arange(10)), 0.9, seed=0)


def test_tasks_kept_aside_do_not_touch_the_representation():
    """Other targets in the held-out tasks: the same latents, other weights for them."""
    tasks = as_tasks(X, Y)
    aside = _split(tasks.batch(), 0.1, seed=1)[1].index.numpy()
    y = Y.copy()
    y[aside] = np.random.default_rng(0).normal(size=(len(aside), N))
    settings = {"restarts": 1, "sparse_steps": 0, "steps": 20, "inner": "lasso"}
    one, other = fit_of(**settings), fit_of(y=y, **settings)
    np.testing.assert_array_equal(one.transform(X[0]), other.transform(X[0]))
    assert (one.weights[0, aside] != other.weights[0, aside]).any()


def test_ragged_tasks_and_missing_targets():
    """Padding does not matter: the same tasks padded further, as missing targets, give the same fit."""
    xs, ys = list(X), list(Y)
    xs[0], ys[0] = X[0, :12], Y[0, :12]
    y = Y.copy()
    y[0, 12:] = np.nan
    x = X.copy()
    x[0, 12:] = X[0, 0]
    settings = {"restarts": 1, "standardise": False, "dtype": "float64", "steps": 20}
    one, other = fit_of(x=xs, y=ys, **settings), fit_of(x=x, y=y, **settings)
    np.testing.assert_allclose(one.weights, other.weights, rtol=1e-6, atol=1e-8)


@pytest.mark.slow
def test_tiny_tasks_have_no_left_out_error_and_are_in_doubt():
    with pytest.warns(RuntimeWarning, match="the latents rest on nothing"):
        fit = fit_of(x=X[:, :3], y=Y[:, :3], steps=10, sparse_steps=4)
    assert any(finding.kind == "error" and finding.touches_all for finding in fit.findings)
    assert np.isnan(fit.error).all()
    assert fit.best == 0


def test_no_steps_only_the_axes():
    """A representation that is already right up to a linear map needs no training."""
    fit = ps.fit(MultiTaskRegression(K, K), Z, Y, restarts=1, progress=False, steps=0, sparse_steps=0)
    assert mcc(Z.reshape(-1, K), fit.transform().reshape(-1, K)).value > 0.995
    assert len(fit.history) == 0


def test_as_published_all_steps_have_the_sparse_regressions():
    fit = fit_of(inner="lasso", axes=False, restarts=1, steps=20)
    assert set(fit.history["stage"]) == {"dense"}
    assert np.isnan(fit.found).all()
    assert fit.settings["axes"] is False


def test_a_module_of_ones_own_is_in_its_evaluation_mode_when_judged():
    own = nn.Sequential(nn.Linear(G, 16), nn.BatchNorm1d(16), nn.Dropout(0.3), nn.Linear(16, K))
    state = {name: value.clone() for name, value in own.state_dict().items()}
    fit = ps.fit(MultiTaskRegression(G, K, encoder=own), X, Y, restarts=1, **{**SMALL, "sparse_steps": 0})
    np.testing.assert_allclose(fit.transform(X[0]), fit.transform(X[0][::-1])[::-1], atol=1e-6)
    np.testing.assert_array_equal(fit.transform(X[0]), fit.transform(X[0]))
    for name, value in own.state_dict().items():
        torch.testing.assert_close(value, state[name])


@pytest.mark.slow
def test_images():
    rng = np.random.default_rng(0)
    x = rng.integers(0, 255, size=(12, 6, 1, 16, 16), dtype=np.uint8)
    y = x[:, :, 0, :8].mean((2, 3)) * rng.normal(size=(12, 1)) + 0.1 * rng.normal(size=(12, 6))
    model = MultiTaskRegression((1, 16, 16), 2, encoder="conv", hidden=8)
    fit = ps.fit(model, x, y, restarts=1, **{**SMALL, "steps": 4, "sparse_steps": 2})
    assert fit.transform().shape == (12, 6, 2)
    np.testing.assert_allclose(fit.transform(x[3]), fit.transform()[3], atol=1e-4)
    labels = np.repeat(np.arange(12), 6)
    again = ps.fit(model, x.reshape(-1, 1, 16, 16), y.ravel(), task=labels, restarts=1,
                   **{**SMALL, "steps": 4, "sparse_steps": 2})  # fmt: skip
    np.testing.assert_array_equal(again.weights, fit.weights)


@pytest.mark.parametrize(
    ("change", "kind", "message"),
    [
        (
            {"y": None},
            TypeError,
            "y: a MultiTaskRegression wants targets, or the name of their column; got none",
        ),
        ({"inner": "elastic"}, ValueError, "inner: want one of lasso, ridge, outer, ssl, got 'elastic'"),
        ({"penalty": 0.0}, ValueError, "penalty: want .*, got 0.0"),
        ({"ridge": -1.0}, ValueError, "ridge: want .*, got -1.0"),
        ({"lambda_": 0.1}, TypeError, "unknown setting 'lambda_'"),
        ({"schedule": ps.inference.Schedule()}, TypeError, "wants a TaskSchedule"),
        ({"restarts": 0}, ValueError, "restarts: want a whole number of at least 1, got 0"),
        ({"holdout": 0.99}, ValueError, "holdout: 0.99 of 40 tasks leaves 1"),
        ({"holdout": 1.0}, ValueError, r"holdout: got 1.0, wanted a share of rows in \[0, 1\)"),
        ({"actions": Y}, TypeError, "actions: is for sequences, and MultiTaskRegression reads none"),
        ({"mask": Y > 0}, TypeError, "mask: is for tables, and MultiTaskRegression reads none; leave it out"),
        ({"exposure": Y}, TypeError, "exposure: is for tables"),
        ({"n_factors_init": [1, 2]}, TypeError, "n_factors_init: is for tables"),
        ({"feature_names": list("abcde")}, TypeError, "feature_names: is for tables"),
        (
            {"x": X[..., :4]},
            ValueError,
            r"X: one sample has shape \(4,\), the model was made for n_features=5",
        ),
        ({"x": X[:2], "y": Y[:2]}, ValueError, "n_latents: 2 tasks to learn from cannot fix 3 axes"),
        ({"task": np.zeros(7)}, ValueError, "task: got 7 labels for X"),
    ],
)
def test_bad_arguments(change, kind, message):
    with pytest.raises(kind, match=message):
        fit_of(**change)


def test_tasks_whose_answers_are_all_one_fix_no_axes():
    above = Y > np.median(Y, 1, keepdims=True)
    answers = above | (np.arange(len(Y))[:, None] > 1)
    said = r"n_latents: 2 tasks to learn from \(38 more have the same outcome in all rows\) cannot fix 3 axes"
    with pytest.raises(ValueError, match=said):
        ps.fit(model_of(likelihood="bernoulli"), X, answers, restarts=1, **{**SMALL, "holdout": 0})
    holes = np.where(np.arange(Y.shape[1]) > 0, above, np.nan)  # of what was seen one answer is no other
    holes[:39, 1:] = np.where(holes[:39, 1:] == 1, 1.0, np.nan)
    with pytest.raises(ValueError, match=r"n_latents: 1 task to .*\(39 more have"):
        ps.fit(model_of(likelihood="bernoulli"), X, holes, restarts=1, **{**SMALL, "holdout": 0})


def test_a_prior_without_a_mode_step_is_refused_before_training():
    model = model_of(prior=Laplace())
    with pytest.raises(TypeError, match="prior: a Laplace has no exact mode here; want a SpikeSlabLasso"):
        ps.fit(model, X, Y, **SMALL)
    assert ps.fit(model, X, Y, inner="ridge", restarts=1, **SMALL).edge_score is None


@pytest.mark.parametrize("name", ["y", "task", "inner"])
def test_a_table_has_no_tasks(name):
    model = ps.models.SparseDecoder(5, 2)
    with pytest.raises(TypeError, match=f"{name}: is for tasks, and SparseDecoder reads none; leave it out"):
        ps.fit(model, X[0], **{name: "ridge"})
