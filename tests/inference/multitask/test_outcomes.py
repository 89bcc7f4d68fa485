"""Tasks whose outcomes are not normal: modes against scipy, the fit, and all that one asks of a fit."""

from __future__ import annotations

import warnings
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy import optimize
from scipy.special import expit

import pyro_sparse as ps
from pyro_sparse.data.tasks import as_tasks
from pyro_sparse.inference.multitask.mean_weights import at_mean_weights
from pyro_sparse.inference.multitask.outcomes import (
    centred,
    dense_gain,
    dense_model,
    dense_weights,
    dispersion,
    left_out_ratio,
    levels_given,
    likelihood_step,
    outcome_loss,
    outcome_mode_step,
)
from pyro_sparse.inference.multitask.task_notes import error_findings, mode_findings, unused
from pyro_sparse.inference.multitask.task_run import ridge_rows
from pyro_sparse.metrics import mcc
from pyro_sparse.models import MultiTaskRegression
from pyro_sparse.models.multitask import INTERCEPT_SD

T, N, G, K = 40, 80, 4, 2
SHORT = {"steps": 60, "sparse_steps": 20, "learning_rate": 0.03, "progress": False, "seed": 1}


def problem(family, seed=0, t=T, n=N, g=G, k=K):
    """Tasks on latents that a linear map mixes: x, y, latents, weights."""
    rng = np.random.default_rng(seed)
    support = rng.random((t, k)) < 0.5
    support[np.arange(t), rng.integers(k, size=t)] = True
    w = support * rng.choice([-1, 1], (t, k)) * rng.uniform(0.8, 1.6, (t, k))
    z = rng.normal(size=(t, n, k))
    f = (z * w[:, None]).sum(-1) + 0.5 * rng.normal(size=(t, 1))
    if family == "bernoulli":
        y = (rng.random(f.shape) < expit(2 * f)).astype(float)
    elif family == "ordinal":
        y = 1.0 + (rng.random(f.shape)[..., None] > expit(np.array([-1.5, 0, 2]) - 2 * f[..., None])).sum(-1)
    elif family == "negative_binomial":
        y = rng.poisson(rng.gamma(3, np.exp(f) / 3)).astype(float)
    else:
        y = rng.poisson(np.exp(f)).astype(float)
    return z @ rng.normal(size=(k, g)), y, z, w


def prepared(family, seed=0, t=5):
    """A model that knows its tasks, the batch, and centred latents."""
    x, y, *_ = problem(family, seed, t=t)
    model = MultiTaskRegression(G, K, likelihood=family)
    tasks = as_tasks(x, y, units=model.take_outcomes)
    torch.manual_seed(0)
    model.setup(t)
    model.double().eval()
    batch = tasks.batch(dtype=torch.float64)
    return model, batch, model.latents(batch).detach()


def log_joint(model, batch, f, t, theta):
    """log density of a task's outcomes and of its level."""
    predictor = torch.zeros_like(batch.y)
    predictor[t] = f[t] @ torch.as_tensor(theta[:-1]) + theta[-1]
    fit = float(model.outcome(predictor, batch).log_prob(batch.y)[t].sum().detach())
    return fit - 0.5 * (theta[-1] / INTERCEPT_SD) ** 2


@pytest.mark.parametrize("family", ["bernoulli", "poisson", "ordinal", "negative_binomial", "student_t"])
def test_dense_weights_are_at_the_mode(family):
    model, batch, f = prepared(family)
    ridge = 0.01
    found = dense_weights(model, batch, f, ridge)
    for t in (0, 3):

        def minus(theta, t=t):
            precision = N * ridge + 0.5
            return -log_joint(model, batch, f, t, theta) + 0.5 * precision * (theta[:-1] ** 2).sum()

        mine = np.append(found.weight[t].numpy(), float(found.level[t]))
        best = optimize.minimize(minus, mine, method="Nelder-Mead", options={"xatol": 1e-7, "fatol": 1e-9})
        np.testing.assert_allclose(mine, best.x, atol=2e-3)


@pytest.mark.parametrize("family", ["bernoulli", "negative_binomial"])
def test_sparse_steps_climb_to_a_mode_of_the_program(family):
    model, batch, f = prepared(family, t=8)
    with torch.no_grad():
        model.prior.anneal(1.0)
        weights, level = dense_weights(model, batch, f, 1e-3)
        model.weights[0], model.level[:] = weights, level

    def objective():
        theta = torch.cat([model.weights[0], model.level[:, None]], 1).numpy()
        fits = sum(log_joint(model, batch, f, t, theta[t]) for t in range(8))
        return fits + float(model.prior.log_density(model.weights))

    values = [objective()]
    for _ in range(60):
        outcome_mode_step(model, batch, f)
        values.append(objective())
    assert (np.diff(values) > -1e-6).all()
    assert values[-1] - values[-2] < 1e-6
    at = model.weights.clone()
    for step in (-1e-3, 1e-3):  # no small move of a weight that is there is better
        for t, k in np.argwhere(at[0].numpy() != 0)[:6]:
            model.weights[0, t, k] = at[0, t, k] + step
            assert objective() < values[-1] + 1e-9
            model.weights.copy_(at)


def test_parameters_of_the_likelihood_are_brought_to_their_mode():
    model, batch, f = prepared("negative_binomial")
    with torch.no_grad():
        weights, level = dense_weights(model, batch, f, 1e-3)
        model.weights[0], model.level[:] = weights, level

    def value():
        predictor = (f @ model.weights[0].unsqueeze(-1))[..., 0] + model.level[:, None]
        own = model.likelihood.priors()["extra_cv"].log_prob(model.likelihood.values()["extra_cv"])
        return float((model.outcome(predictor, batch).log_prob(batch.y).sum() + own.sum()).detach())

    before = value()
    likelihood_step(model, batch, f)
    best = value()
    assert best > before
    with torch.no_grad():
        for step in (-0.05, 0.05):
            model.likelihood.log_theta += step
            assert value() < best
            model.likelihood.log_theta -= step


def test_the_gradient_of_the_representation_is_that_of_the_mode():
    """By finite differences of the whole objective, the weights at their mode solved anew."""
    model, batch, _ = prepared("bernoulli")
    model.train()
    ridge, linear = 0.01, model.encoder[1].weight

    def whole():
        f = model.latents(batch).detach()
        weight, _ = dense_weights(model, batch, f, ridge, steps=60)
        with torch.no_grad():
            model.weights.zero_()
            model.level.zero_()
        loss = outcome_loss(model, batch, f, ridge)
        for _ in range(20):  # five steps each
            loss = outcome_loss(model, batch, f, ridge)
        penalty = 0.5 * (N * ridge + 0.5) * (weight**2).sum(1) + 0.5 * (model.level / INTERCEPT_SD) ** 2
        return float(loss + (penalty / N).mean())

    whole()
    loss = outcome_loss(model, batch, model.latents(batch), ridge)
    (gradient,) = torch.autograd.grad(loss, linear)
    with torch.no_grad():
        for i, j in ((0, 1), (1, 2)):
            values = []
            for step in (1e-4, -1e-4):
                linear[i, j] += step
                values.append(whole())
                linear[i, j] -= step
            slope = (values[0] - values[1]) / 2e-4
            assert float(gradient[i, j]) == pytest.approx(slope, rel=1e-3, abs=1e-6)


def test_a_task_of_weight_2_is_a_task_that_is_there_twice():
    x, y, *_ = problem("bernoulli", t=4)
    times = np.array([1, 2, 1, 1])
    losses = []
    for at, weight in ((np.arange(4), times / times.mean()), (np.repeat(np.arange(4), times), None)):
        model = MultiTaskRegression(G, K, likelihood="bernoulli")
        tasks = as_tasks(x[at], y[at], standardise=False, units=model.take_outcomes)
        tasks = replace(tasks, weight=weight)
        torch.manual_seed(0)
        model.setup(len(at))
        batch = tasks.batch(dtype=torch.float64)
        model.double()
        for _ in range(5):  # to the mode
            loss = outcome_loss(model, batch, model.latents(batch), 0.01)
        losses.append((loss, torch.autograd.grad(loss, model.turn)[0]))
    torch.testing.assert_close(*losses, rtol=1e-6, atol=1e-8)


def test_dense_weights_of_white_latents_turn_with_them():
    model, batch, _ = prepared("poisson", t=12)
    raw = model.encode(batch.inputs).detach()
    rows, white = ridge_rows(model, raw, batch, 0.01)
    turn = torch.tensor([[1.0, 2.0], [-0.5, 1.0]], dtype=torch.float64)
    other, turned = ridge_rows(model, raw @ turn.mT, batch, 0.01)
    torch.testing.assert_close(other.norm(dim=1), rows.norm(dim=1), rtol=1e-4, atol=1e-6)
    one, two = (
        (h @ w.unsqueeze(-1))[..., 0] for h, w in ((raw @ white.mT, rows), (raw @ turn.mT @ turned.mT, other))
    )
    torch.testing.assert_close(
        one - one.mean(1, keepdim=True), two - two.mean(1, keepdim=True), rtol=1e-4, atol=1e-5
    )


def test_the_left_out_error_is_below_one_only_where_latents_help():
    model, batch, _ = prepared("poisson", t=20)
    x, y, z, w = problem("poisson", t=20)
    half = torch.arange(N).expand(20, N) % 2 == 0
    true = left_out_ratio(model, batch, torch.as_tensor(z), half, ~half, 1e-3)
    noise = left_out_ratio(model, batch, torch.randn(20, N, K, dtype=torch.float64), half, ~half, 1e-3)
    assert float(true.mean()) < 0.5
    assert float(noise.mean()) > 0.95


@pytest.fixture(scope="module")
def fitted():
    x, y, *_ = problem("poisson")
    return ps.fit(MultiTaskRegression(G, K, likelihood="poisson"), x, y, restarts=2, **SHORT)


def test_counts_find_the_latents_and_who_uses_them(fitted):
    x, y, z, w = problem("poisson")
    match = mcc(z.reshape(-1, K), fitted.transform().reshape(-1, K))
    assert match.value > 0.97
    edges = fitted.edge_posterior(num_draws=20)
    order = np.asarray(match.permutation)
    p = ps.edge_prob(edges).to_numpy()[:, order]
    # Three in four edges are there, and of 80 counts a small weight cannot be told from none.
    assert p[w != 0].min() > 0.99 and p[w == 0].mean() < 0.7
    assert ((fitted.edge_score[fitted.best][:, order] > 0.5) == (w != 0)).mean() > 0.95
    assert "site for each outcome (poisson)" in edges.attrs["note"]
    assert not any("normal noise" in warning for warning in fitted.warnings)
    assert np.isnan(fitted.noise).all()
    assert (fitted.error < 0.6).all()
    assert ps.summary(edges).shape[0] == T * K


def test_predictions_are_expected_outcomes(fitted):
    x, y, z, w = problem("poisson")
    predictor = fitted.intercept[fitted.best][:, None]
    predictor = predictor + (fitted.transform() * fitted.weights[fitted.best][:, None]).sum(-1)
    np.testing.assert_allclose(fitted.predict(weights="mode"), np.exp(predictor), rtol=1e-4)
    means = fitted.predict()
    some = fitted.predict(x[[3, 7, 3], 5], task=["task 4", "task 8", "task 4"])
    np.testing.assert_allclose(some, means[[3, 7, 3], 5], rtol=1e-5)
    truth = np.log(np.clip(means, 1e-3, None)) - (z * w[:, None]).sum(-1)
    assert np.median(np.abs(truth - np.median(truth, 1, keepdims=True))) < 0.25


def test_new_tasks_and_new_rows(fitted):
    x, y, *_ = problem("poisson", seed=0)
    new = fitted.adapt(x[:3], y[:3])
    np.testing.assert_allclose(new.weights[:, :3], fitted.weights[:, :3], atol=0.1)
    with pytest.raises(ValueError, match="y: task 'task 2' holds 0.5"):
        fitted.adapt(x[:3], np.where(np.arange(3)[:, None] == 1, 0.5, y[:3]))
    again = fitted.with_data(x, y)
    np.testing.assert_allclose(again.predict(), fitted.predict())
    with pytest.raises(ValueError, match="wants whole numbers"):
        fitted.with_data(x, y + 0.5)


@pytest.mark.slow
@pytest.mark.parametrize("family", ["negative_binomial", "ordinal", "mixed"])
def test_a_saved_fit_is_the_same(family, tmp_path):
    """Levels, dispersions and kinds of tasks come back; new tasks may have other levels than the old."""
    x, y, *_ = problem("ordinal" if family == "mixed" else family, t=10, n=30)
    likelihood = {"task 1*": "ordinal", "*": "normal"} if family == "mixed" else family
    y[4] = y[4] + 3.0 * (family != "mixed")  # another range of levels
    fit = ps.fit(MultiTaskRegression(G, K, likelihood=likelihood), x, y, restarts=1, **SHORT)
    path = tmp_path / "tasks.pt"
    fit.save(path)
    loaded = ps.load(path).with_data(x, y)
    np.testing.assert_allclose(loaded.predict(), fit.predict())
    one, other = (ps.edge_prob(f.edge_posterior(num_draws=5)).to_numpy() for f in (fit, loaded))
    np.testing.assert_allclose(one, other, atol=1e-8)
    new = loaded.adapt(x[:3] * 1.0, y[:3])
    assert new.weights.shape == (1, 3, K)


def test_words_of_a_fit_know_its_outcomes(fitted):
    assert "likelihood='poisson'" in repr(fitted.model)
    assert "a poisson likelihood of its outcomes" in str(ps.identify(fitted))
    (doubt,) = error_findings(1.2, np.full(9, 30), normal=False)
    assert "no better than by each task's intercept (error 1.2" in doubt.message


@pytest.mark.slow
def test_tasks_with_one_answer_only_and_missing_ones_fit():
    x, y, *_ = problem("bernoulli", t=12)
    y[2] = 1.0
    y[5, 30:] = np.nan
    fit = ps.fit(MultiTaskRegression(G, K, likelihood="bernoulli"), x, y, restarts=1, **SHORT)
    assert np.isfinite(fit.weights).all()
    assert (fit.predict()[2] > 0.8).all()
    p = ps.edge_prob(fit.edge_posterior(num_draws=5)).to_numpy()
    assert np.isfinite(p).all()


@pytest.mark.parametrize("method", ["enumerate", "gibbs", "bootstrap"])
def test_methods_of_normal_outcomes_say_so(fitted, method):
    with pytest.raises(
        ValueError, match=f"method: '{method}' knows normal outcomes only, and these are poisson"
    ):
        fitted.edge_posterior(method)


class Watched(ps.likelihoods.Poisson):
    """A density of its own, of whole rows."""

    def log_prob(self, f, x, mask=None, per_row=None):
        return 2 * super().log_prob(f, x, mask)


@pytest.mark.slow
def test_a_likelihood_of_rows_gets_scores_with_the_reason():
    x, y, *_ = problem("poisson", t=12, n=30)
    model = MultiTaskRegression(G, K, likelihood=Watched(size_factors=False))
    fit = ps.fit(model, x, y, restarts=1, **SHORT)
    edges = fit.edge_posterior(num_draws=5)
    assert "Watched" in edges.attrs["chosen_because"]
    assert "Why scores" in edges.attrs["verdict"]
    with pytest.raises(ValueError, match='ask for method="score"'):
        fit.edge_posterior("ep")


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"inner": "lasso"}, ValueError, "inner: 'lasso' is for normal outcomes, and these are bernoulli"),
        ({"inner": "outer"}, ValueError, "inner: 'outer' is for normal outcomes"),
    ],
)
def test_what_a_fit_cannot_do_is_refused(options, error, message):
    x, y, *_ = problem("bernoulli", t=12)
    with pytest.raises(error, match=message):
        ps.fit(MultiTaskRegression(G, K, likelihood="bernoulli"), x, y, **SHORT, **options)


def test_exposures_of_samples_are_not_read_in_silence():
    x, y, *_ = problem("poisson", t=12)
    with pytest.raises(TypeError, match="exposure"):
        ps.fit(MultiTaskRegression(G, K, likelihood="poisson"), x, y, exposure=np.ones(N), **SHORT)


def test_outcomes_of_another_kind_are_refused_by_the_task_s_name():
    x, y, *_ = problem("poisson", t=12)
    with pytest.raises(ValueError, match=r"y: task 'task \d+' holds \d"):
        ps.fit(MultiTaskRegression(G, K, likelihood="bernoulli"), x, y, **SHORT)


@pytest.mark.slow
def test_ridge_alone_and_a_network_run():
    x, y, *_ = problem("bernoulli", t=12)
    fit = ps.fit(MultiTaskRegression(G, K, likelihood="bernoulli"), x, y, inner="ridge", restarts=1, **SHORT)
    with pytest.raises(ValueError, match="weights: got 'mean', and the edges of this fit are scores"):
        fit.predict(weights="mean")
    assert (fit.weights != 0).all()
    model = MultiTaskRegression(G, K, encoder="mlp", hidden=8, likelihood="bernoulli")
    assert np.isfinite(ps.fit(model, x, y, restarts=1, **SHORT).predict()).all()


def test_dispersion_is_that_of_pearson():
    """By hand, with weights of which one is 0."""
    model, batch, _ = prepared("poisson")
    with torch.no_grad():
        model.weights.copy_(0.3 * torch.ones_like(model.weights))
        model.weights[0, :, 1] = 0.0
        model.level.fill_(0.2)
    found = dispersion(model, batch)
    f = model.latents(batch).detach().numpy()[..., 0] * 0.3 + 0.2
    ratio = (batch.y.numpy() - np.exp(f)) ** 2 / np.exp(f)
    freedom = ratio.size - 2 * len(ratio)
    assert found[0] == pytest.approx(ratio.sum() / freedom, rel=1e-5)
    assert found[1] == pytest.approx(
        (found[0] - 1) / (ratio.std(ddof=1) * np.sqrt(ratio.size) / freedom), rel=1e-4
    )


@pytest.mark.parametrize(
    ("outcomes", "likelihood", "doubted"),
    [
        ("negative_binomial", "poisson", True),
        pytest.param("negative_binomial", "negative_binomial", False, marks=pytest.mark.slow),
        pytest.param("poisson", "poisson", False, marks=pytest.mark.slow),
    ],
)
def test_counts_that_vary_more_than_their_likelihood_says_are_in_doubt(outcomes, likelihood, doubted):
    x, y, *_ = problem(outcomes, seed=1000)
    model = MultiTaskRegression(G, K, likelihood=likelihood)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        fit = ps.fit(model, list(x), list(y), restarts=1, **SHORT)
    said = [f for f in fit.findings if f.kind == "outcomes"]
    assert bool(said) == doubted
    if doubted:
        assert said[0].is_doubt and 'likelihood="negative_binomial"' in said[0].remedy
        assert (ps.summary(fit.edge_posterior(num_draws=2))["verdict"] == "open").all()


def held_out(size=0.7, t=20, n=60, seed=1):
    """Yes/no answers that say little of a weight each: rows to fit, rows to judge by, latents of both."""
    rng = np.random.default_rng(seed)
    w = size * (rng.random((t, K)) < 0.6) * rng.choice([-1, 1], (t, K)) * rng.uniform(0.8, 1.6, (t, K))
    z = rng.normal(size=(t, 2 * n, K))
    y = (rng.random((t, 2 * n)) < expit((z * w[:, None]).sum(-1))).astype(float)
    x = z @ rng.normal(size=(K, G))
    return (x[:, :n], y[:, :n], z[:, :n]), (x[:, n:], y[:, n:], z[:, n:]), w


@pytest.fixture(scope="module")
def weak():
    (x, y, _), *_ = held_out()
    return ps.fit(MultiTaskRegression(G, K, likelihood="bernoulli"), x, y, restarts=1, **SHORT)


def log_score(y, p):
    return float(np.mean(np.where(y == 1, np.log(p), np.log1p(-p))))


def test_answers_are_predicted_where_the_mode_is_zero(weak):
    """As well as by scikit-learn's ridge that is given the true latents, but for what learning them costs."""
    from sklearn.linear_model import LogisticRegression

    (_, y, z), (new_x, new_y, new_z), _ = held_out()
    assert ((weak.weights[0] == 0).all(1)).mean() > 0.3  # what this is about
    rows, labels = new_x.reshape(-1, G), np.repeat(weak.task_names, new_x.shape[1])
    ours = log_score(new_y, weak.predict(rows, labels).reshape(new_y.shape))
    mode = log_score(new_y, weak.predict(rows, labels, weights="mode").reshape(new_y.shape))
    ridge = [LogisticRegression().fit(z[t], y[t]).predict_proba(new_z[t])[:, 1] for t in range(len(y))]
    base = np.repeat((y.sum(1, keepdims=True) + 0.5) / (y.shape[1] + 1), y.shape[1], 1)
    assert ours > log_score(new_y, np.stack(ridge)) - 0.015
    assert ours > mode + 0.015 and ours > log_score(new_y, base) + 0.03


def test_predictions_have_the_weights_of_the_summary(weak):
    """Log odds move by the posterior mean per standard deviation of a latent; intercepts are at a mode."""
    (x, y, _), *_ = held_out()
    weight = np.zeros((20, K))
    table = ps.summary(weak.edge_posterior())
    for row in table.itertuples():
        weight[weak.task_names.index(row.task), weak.latent_names.index(row.latent)] = row.weight
    log_odds = np.log(weak.predict()) - np.log1p(-weak.predict())
    intercept = log_odds - (weak.transform() * weight[:, None]).sum(-1)
    np.testing.assert_allclose(intercept, np.broadcast_to(intercept[:, :1], intercept.shape), atol=1e-4)
    z = weak.transform()
    level = intercept[:, 0] + (z.mean(1) * weight).sum(1)
    slope = (y - weak.predict()).sum(1) - level / INTERCEPT_SD**2
    np.testing.assert_allclose(slope, 0, atol=1e-3)
    with pytest.raises(ValueError, match=r"weights: want one of \['auto', 'mean', 'mode'\], got 'map'"):
        weak.predict(weights="map")


def test_a_mode_at_zero_is_said_and_no_latent_is_called_idle_for_it(weak):
    (note,) = [finding for finding in weak.findings if finding.kind == "mode"]
    idle = [name for name, w in zip(weak.task_names, weak.weights[0], strict=True) if not w.any()]
    assert note.columns == tuple(idle) and not note.is_doubt
    assert f"{len(idle)} of 20 tasks" in note.message and "edge_posterior()" in note.remedy
    (unlike,) = unused(weak.model.for_tasks(2, weak.model), True)
    assert "at the mode" in unlike.message and "before you lower n_latents" in unlike.remedy


def test_gains_of_tasks_without_a_weight_are_held_against_chance():
    """The chi-squared quantile of 6 degrees of freedom at 1 % is 16.8."""
    names, zero = list("abc"), np.zeros((3, 2))
    assert mode_findings(zero, np.full(3, 5.5), (1.0, 100.0), names) == []
    (note,) = mode_findings(zero, np.full(3, 5.7), (1.0, 100.0), names)
    assert "3 of 3 tasks (a, b, c)" in note.message and "4.6 nats" in note.message
    assert mode_findings(zero + 1, np.full(3, 50.0), (1.0, 100.0), names) == []
    assert mode_findings(zero, np.full(3, np.nan), (1.0, 100.0), names) == []


@pytest.mark.parametrize("family", ["normal", "poisson"])
def test_gains_without_an_effect_are_those_of_chance(family):
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(200, 25, G)), rng.poisson(3.0, (200, 25)).astype(float)
    model = MultiTaskRegression(G, K, likelihood=family)
    tasks = as_tasks(x, y, units=None if family == "normal" else model.take_outcomes)
    torch.manual_seed(0)
    model.setup(200)
    gain = dense_gain(model.double().eval(), tasks.batch(dtype=torch.float64), 1e-3).numpy()
    assert abs(gain.mean() - K) < 3 * np.sqrt(2 * K / 200)
    few = as_tasks(x[:, :3], y[:, :3] + x[:, :3, 0], units=None)
    plain = MultiTaskRegression(G, K)
    plain.setup(200)
    assert torch.isnan(dense_gain(plain.double().eval(), few.batch(dtype=torch.float64), 1e-3)).all()


def test_a_loaded_fit_predicts_as_before_it_was_saved(weak, tmp_path):
    (x, *_), *_ = held_out()
    weak.save(tmp_path / "tasks.pt")
    loaded = ps.load(tmp_path / "tasks.pt")
    rows, labels = x[:, :3].reshape(-1, G), np.repeat(weak.task_names, 3)
    np.testing.assert_array_equal(loaded.predict(rows, labels), weak.predict(rows, labels))
    assert loaded.n_restarts == 1


@pytest.mark.slow
@pytest.mark.parametrize("family", ["ordinal", "negative_binomial"])
def test_levels_and_parameters_follow_the_mean_weights(family):
    """Cuts that stand where weights of 0 put them would pull expected levels together."""
    x, y, *_ = problem(family, t=10, n=30)
    fit = ps.fit(MultiTaskRegression(G, K, likelihood=family), x, y, restarts=1, **SHORT)
    model = at_mean_weights(fit, fit.edge_posterior(num_draws=20))
    batch = fit.tasks.batch()
    f = centred(((model.encode(batch.inputs) - model.centre) / model.spread).double(), batch.y == batch.y)
    np.testing.assert_allclose(levels_given(model, batch, f), model.level.double(), atol=1e-5)
    before = {name: value.clone() for name, value in model.likelihood.state_dict().items()}
    likelihood_step(model, batch, f)
    for name, value in model.likelihood.state_dict().items():
        np.testing.assert_allclose(value, before[name], atol=0.05)


def test_dispersion_of_counts_does_not_blame_weights_that_the_mode_lacks():
    """With all weights at 0 what the latents do looks like overdispersion; dense weights take it away."""
    model, batch, _ = prepared("poisson", t=20)
    assert dispersion(model, batch)[0] > 1.3
    assert dispersion(dense_model(model, batch, 1e-3), batch)[0] < 1.3
    assert not model.weights.any()  # a copy
