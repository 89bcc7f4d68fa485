"""What a fit of tasks answers: latents, predictions, new tasks, files, doubts."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import torch

import pyro_sparse as ps
from pyro_sparse.data.tasks import as_tasks
from pyro_sparse.inference.multitask.task_notes import error_findings, latent_findings, unused
from pyro_sparse.inference.multitask.task_result import MultiTaskFit
from pyro_sparse.inference.multitask.task_run import settle
from pyro_sparse.inference.training.restarts import align_latents
from pyro_sparse.models import MultiTaskRegression
from pyro_sparse.priors import SpikeSlabLasso
from tests._framed import Convertible
from tests._tasks import quick_fit, tasks_on_latents

pytestmark = pytest.mark.usefixtures("hurried_module")


T, N, G, K = 12, 25, 4, 2
RNG = np.random.default_rng(0)
Z = RNG.normal(size=(T, N, K))
W = RNG.normal(size=(T, K)) * (RNG.random((T, K)) < 0.6) + 0.5 * np.eye(K)[RNG.integers(K, size=T)]
X = Z @ RNG.normal(size=(K, G)) + 0.2 * RNG.normal(size=(T, N, G)) + [5.0, -3.0, 0.0, 100.0]
Y = (Z * W[:, None]).sum(-1) * np.geomspace(0.01, 50, T)[:, None] + np.linspace(-20, 20, T)[:, None]
Y += 0.1 * Y.std(1, keepdims=True) * RNG.normal(size=(T, N))
NAMES = [f"site {t:02d}" for t in range(T)]  # sorted, as a fit has them
TABLE = pd.DataFrame(X.reshape(-1, G), columns=list("abcd")).assign(y=Y.ravel(), site=np.repeat(NAMES, N))


def made(inner="ssl", x=X, y=Y, prior=None, normalise="task", seeds=(0, 1)) -> MultiTaskFit:
    """A fit without training: random encoders, their weights solved."""
    tasks = as_tasks(x, y)
    data, models = tasks.batch(dtype=torch.float64), []
    for seed in seeds:
        torch.manual_seed(seed)
        model = MultiTaskRegression(G, K, prior=prior, normalise=normalise)
        model.setup(T)
        model.double()
        settle(model, data, inner, 1e-3)
        models.append(model)
    history = pd.DataFrame({"step": [1], "restart": [0], "objective": [0.5]})
    settings = {"inner": inner, "penalty": 0.05, "ridge": 1e-3, "tasks": T}
    found = np.linspace(0.5, 1, len(seeds))
    return MultiTaskFit.build(
        models,
        tasks,
        judged=data,
        found=found,
        blocks=np.tile(np.arange(K), (len(seeds), 1)),
        inner=inner,
        history=history,
        settings=settings,
        findings=[],
    )


def made_of(flat):
    from dataclasses import replace

    return replace(made(), tasks=as_tasks(flat["X"], flat["y"], flat["task"]))


@pytest.fixture(scope="module")
def fit():
    return made()


@pytest.fixture(scope="module")
def trained():
    options = {"steps": 60, "sparse_steps": 20, "learning_rate": 0.03, "restarts": 1, "progress": False}
    return ps.fit(MultiTaskRegression(G, K), TABLE, "y", task="site", **options)


def test_a_fit_is_shown_on_one_line(trained):
    said = f"MultiTaskFit(MultiTaskRegression: {len(trained.tasks)} tasks, {K} latents; one restart, left-out"
    assert repr(trained).startswith(f"{said} error {trained.error[0]:.4g}; ") and len(repr(trained)) < 200


def by_hand(fit, x):
    """Latents in the frame of the best restart, from its tensors alone."""
    model = fit.model
    layer = model.encoder[1]
    flat = X.reshape(-1, G)
    h = ((x - flat.mean(0)) / flat.std(0)) @ layer.weight.detach().numpy().T + layer.bias.detach().numpy()
    h = h @ model.turn.detach().numpy().T
    z = (h - model.centre.numpy()) / model.spread.numpy()
    return z[..., fit.alignment["permutation"][fit.best]] * fit.alignment["sign"][fit.best]


def test_latents_by_hand(fit):
    z = by_hand(fit, X)
    np.testing.assert_allclose(fit.transform(), z, atol=1e-10)
    np.testing.assert_allclose(fit.transform(X[3]), z[3], atol=1e-10)
    np.testing.assert_allclose(z.reshape(-1, K).std(0), 1, rtol=1e-9)
    np.testing.assert_allclose(z.reshape(-1, K).mean(0), 0, atol=1e-9)
    many = np.tile(X.reshape(-1, G), (15, 1))
    np.testing.assert_allclose(fit.transform(many), np.tile(z.reshape(-1, K), (15, 1)), atol=1e-10)


@pytest.mark.parametrize("normalise", ["task", "global"])
def test_predictions_by_hand(normalise):
    """Ridge weights in latents by scikit-learn, from targets in their own units."""
    from sklearn.linear_model import Ridge

    fit = made("ridge", normalise=normalise)
    z = by_hand(fit, X)
    shape, level, share = (float(getattr(fit.model, f"noise_{name}")) for name in ("shape", "level", "share"))
    scale = shape * level * (Y.var(1) / np.exp(np.log(Y.var(1)).mean())) ** -share
    for t in (0, 7, 11):
        # the ridge is one of standardised targets, and a ridge does not mind the targets' units
        want = Ridge(alpha=N * 1e-3).fit(z[t], Y[t])
        np.testing.assert_allclose(fit.weights[fit.best, t], want.coef_, rtol=1e-8)
        assert fit.intercept[fit.best, t] == pytest.approx(want.intercept_, rel=1e-8)
        np.testing.assert_allclose(fit.predict()[t], want.predict(z[t]), rtol=1e-8)
        square = ((Y[t] - want.predict(z[t])) ** 2).sum() / Y[t].var()
        noise = np.sqrt((scale[t] + square / 2) / (shape + 1 + N / 2)) * Y[t].std()
        assert fit.noise[fit.best, t] == pytest.approx(noise, rel=1e-8)
    np.testing.assert_allclose(fit.model_weights, fit.weights / Y.std(1)[:, None], rtol=1e-9)


def test_predictions_of_rows_with_labels(trained):
    want = trained.predict()
    order = RNG.permutation(len(TABLE))
    shuffled = TABLE.iloc[order]
    np.testing.assert_allclose(trained.predict(shuffled, task="site"), want.ravel()[order], rtol=1e-5)
    np.testing.assert_allclose(
        trained.predict(shuffled[list("dcba")], shuffled["site"]), want.ravel()[order], rtol=1e-5
    )
    np.testing.assert_allclose(trained.predict(X[2], ["site 02"] * N), want[2], rtol=1e-5)
    np.testing.assert_array_equal(
        trained.predict(Convertible(shuffled), "site"), trained.predict(shuffled, "site")
    )
    numbered = TABLE.rename(columns={"site": 0})
    np.testing.assert_allclose(trained.predict(numbered, task=0), want.ravel(), rtol=1e-5)
    assert ((want - Y).var(1) < 0.5 * Y.var(1)).all()
    assert trained.task_names == NAMES
    assert trained.latent_names == ["latent 1", "latent 2"]


def test_ragged_tasks_and_missing_targets():
    """NaN at padding only: a row whose target is missing has latents, and a prediction."""
    x, y = [*X], [*Y]
    x[1], y[1] = X[1, :10], Y[1, :10].copy()
    y[1][4] = np.nan
    fit = made(x=x, y=y)
    z, prediction = fit.transform(), fit.predict()
    assert np.isnan(z[1, 10:]).all()
    assert np.isnan(prediction[1, 10:]).all()
    assert np.isnan(prediction).sum() == 15
    np.testing.assert_allclose(z[1, :10], fit.transform(X[1, :10]))
    np.testing.assert_allclose(prediction[1, :10], fit.predict(X[1, :10], ["task 2"] * 10))


@pytest.mark.parametrize("name", ["ssl", "ridge"])
def test_adapting_to_the_same_tasks_changes_nothing(name):
    fit = made(name)
    again = fit.adapt(X, Y)
    np.testing.assert_allclose(
        again.weights, fit.weights, rtol=2e-3, atol=1e-4 * fit.tasks.target_scale.max()
    )
    np.testing.assert_allclose(again.predict(), fit.predict(), atol=2e-3 * Y.std(1).max())
    np.testing.assert_array_equal(again.transform(X[0]), fit.transform(X[0]))


def test_adapting_to_new_tasks_leaves_the_fit_alone():
    """Also a prior of the caller's own, and with one task, ragged, named."""
    fit = made(prior=SpikeSlabLasso(lambda0=30.0, a=1.0, b=1.0))
    before = [{k: v.clone() for k, v in m.state_dict().items()} for m in fit.models]
    score = fit.edge_score.copy()
    new = fit.adapt(X[4, :9], 2 * Y[4, :9] + 1, ["copy"] * 9)
    assert new.task_names == ["copy"]
    assert new.weights.shape == (2, 1, K)
    assert new.settings["tasks"] == 1
    assert fit.settings["tasks"] == T
    for model, state in zip(fit.models, before, strict=True):
        for key, value in model.state_dict().items():
            torch.testing.assert_close(value, state[key])
    np.testing.assert_array_equal(fit.edge_score, score)
    for own, copied in zip(fit.models, new.models, strict=True):
        torch.testing.assert_close(own.prior.eta, copied.prior.eta)
    error = new.predict(X[4, :9], ["copy"] * 9) - (2 * Y[4, :9] + 1)
    assert error.std() < 2 * Y[4].std()
    np.testing.assert_allclose(
        new.predict(X[4], ["copy"] * N),
        fit.adapt([X[4, :9]], [Y[4, :9]]).predict(X[4], ["task 1"] * N) * 2 + 1,
    )
    with pytest.raises(ValueError, match=r"X: one sample has shape \(3,\), those of the fit \(4,\)"):
        fit.adapt(X[..., :3], Y)


def test_other_restarts_stand_in_the_frame_of_the_best(fit):
    other = 1 - fit.best
    data = fit.tasks.batch(dtype=torch.float64)
    frames = [
        ((m.encode(data.inputs) - m.centre) / m.spread).detach().reshape(-1, K).numpy() for m in fit.models
    ]
    turn, sign = fit.alignment["permutation"], fit.alignment["sign"]
    best, moved = (frames[r][:, turn[r]] * sign[r] for r in (fit.best, other))
    own = np.array([np.corrcoef(best[:, k], moved[:, k])[0, 1] for k in range(K)])
    assert (own >= 0).all()
    assert own.mean() == pytest.approx(fit.agreement["similarity"][other])
    assert own.min() == pytest.approx(fit.agreement["least"][other])
    swapped = [np.corrcoef(best[:, k], moved[:, 1 - k])[0, 1] for k in range(K)]
    assert np.abs(swapped).sum() <= own.sum() + 1e-9
    np.testing.assert_allclose(
        fit.model_weights[other], fit.models[other].weights[0].numpy()[:, turn[other]] * sign[other]
    )
    odds = fit.models[other].prior.edge_log_odds(fit.models[other].weights)[0]
    np.testing.assert_allclose(fit.edge_score[other], torch.sigmoid(odds).numpy()[:, turn[other]])
    assert fit.error[fit.best] == fit.error.min()


def test_alignment_by_hand():
    frames = RNG.normal(size=(1, 500, 3))
    mixed = np.stack([-frames[0, :, 2], frames[0, :, 0], frames[0, :, 1] + 0.5 * RNG.normal(size=500)], -1)
    permutation, sign, similarity = align_latents(np.stack([frames[0], mixed]), best=0)
    np.testing.assert_array_equal(permutation, [[0, 1, 2], [1, 2, 0]])
    np.testing.assert_array_equal(sign, [[1, 1, 1], [1, 1, -1]])
    np.testing.assert_allclose(similarity[1], [1, 1 / np.sqrt(1.25), 1], atol=0.03)
    dead = np.stack([frames[0], np.zeros_like(frames[0])])
    assert (align_latents(dead, best=0)[2][1] == 0).all()
    one = np.stack([frames[0, :, :1], -frames[0, :, :1]])
    assert align_latents(one, best=0)[1].tolist() == [[1], [-1]]


def test_latents_without_a_task_are_told():
    fit = made(seeds=(0,))
    assert unused(fit.model) == []
    fit.model.weights[..., 1] = 0.0
    (note,) = unused(fit.model)
    assert str(note) == "latent 2: used by no task: lower n_latents, or give more tasks and rows"
    assert note.factors == ("latent 2",)
    noise = np.random.default_rng(3).normal(size=Y.shape)
    assert any("used by no task" in note for note in made(y=noise).warnings)


def test_normal_targets_are_predicted_by_posterior_means_where_the_mode_lacks_weights():
    x, y, *_ = tasks_on_latents(t=40, noise=2.5)
    fit = quick_fit(x, y, restarts=1)
    assert [finding.kind for finding in fit.findings].count("mode") == 1
    by_mean = fit.predict(weights="mean")
    np.testing.assert_array_equal(fit.predict(), by_mean)
    assert (by_mean.std(1) > fit.predict(weights="mode").std(1)).any()
    np.testing.assert_allclose(by_mean.mean(1), y.mean(1), rtol=1e-4)


def test_tasks_that_use_no_latent_are_not_blamed_on_the_spike():
    clear = made(seeds=(0,))
    assert (clear.weights[0] == 0).all(1).mean() > 0.1
    assert "mode" not in {finding.kind for finding in clear.findings}
    np.testing.assert_array_equal(clear.predict(), clear.predict(weights="mode"))


def test_a_saved_fit_is_the_same_fit(trained, tmp_path):
    file = tmp_path / "fit.pt"
    trained.save(file)
    again = ps.load(file)
    np.testing.assert_array_equal(again.transform(TABLE), trained.transform(TABLE))
    np.testing.assert_array_equal(again.predict(TABLE, "site"), trained.predict(TABLE, "site"))
    for name in ("weights", "noise", "intercept", "edge_score", "error", "found"):
        np.testing.assert_array_equal(getattr(again, name), getattr(trained, name))
    for name in ("agreement", "history"):
        pd.testing.assert_frame_equal(getattr(again, name), getattr(trained, name), check_index_type=False)
    for name in ("best", "settings", "warnings", "task_names"):
        assert getattr(again, name) == getattr(trained, name)
    assert again.tasks.feature_names == list("abcd")
    new = TABLE[:N].assign(site="new")
    np.testing.assert_array_equal(
        again.adapt(new, "y", "site").weights, trained.adapt(new, "y", "site").weights
    )
    with pytest.raises(ValueError, match=r"fit.with_data\(X, y, task\) first"):
        again.edge_posterior()
    for question in (again.transform, again.predict):
        with pytest.raises(ValueError, match="X: a loaded fit has no rows of its own; give some"):
            question()
    with pytest.raises(ValueError, match="is a fit of another model"):
        ps.load(file, model=MultiTaskRegression(G, 3))


def test_a_fit_saved_before_the_noise_had_a_learned_prior_is_refused(tmp_path):
    fit = made(seeds=(0,))
    del fit.model._buffers["noise_shape"]
    fit.save(tmp_path / "fit.pt")
    with pytest.raises(ValueError, match=r"written by another version.*fit again .*noise_shape"):
        ps.load(tmp_path / "fit.pt")


def test_a_loaded_fit_with_its_data_is_the_fit(trained, tmp_path):
    trained.save(tmp_path / "fit.pt")
    mixed = TABLE.iloc[np.random.default_rng(0).permutation(len(TABLE))].sort_index()
    again = ps.load(tmp_path / "fit.pt").with_data(mixed, "y", "site")
    for method in ("ep", "score"):
        one, two = (fit.edge_posterior(method, num_draws=20) for fit in (trained, again))
        for group in ("posterior", "edge_posterior", "sample_stats", "alignment"):
            assert one[group].equals(two[group]) and len(one[group]), group
    np.testing.assert_array_equal(again.weights, trained.weights)
    np.testing.assert_array_equal(again.predict(), trained.predict())
    assert again.settings == trained.settings and "adapted" not in again.settings
    assert str(ps.identify(again)) == str(ps.identify(trained))
    other = again.with_data(
        TABLE.assign(y=2 * TABLE["y"] + 1), "y", "site"
    ).tasks  # the units of the fit stay
    own = trained.tasks
    np.testing.assert_array_equal(other.target_scale, own.target_scale)
    target = own.y * own.target_scale[:, None] + own.target_centre[:, None]
    wanted = (2 * target + 1 - own.target_centre[:, None]) / own.target_scale[:, None]
    np.testing.assert_allclose(other.y, wanted, atol=1e-10)


def test_data_of_other_tasks_are_refused_or_put_in_order(fit):
    again = fit.with_data(X[::-1], Y[::-1])  # tasks in arrays are told by their places
    assert again.task_names == fit.task_names
    flat = {"X": X.reshape(-1, G), "y": Y.ravel(), "task": np.repeat(NAMES, N)}
    named = made_of(flat)
    for change, message in (
        ({"task": np.repeat(["new", *NAMES[1:]], N)}, r"task: 'new' is none of the fit's \(1 such task"),
        ({k: v[N:] for k, v in flat.items()}, r"task: 'site 00' is missing \(1 such task.*adapt\(\) fits"),
    ):
        with pytest.raises(ValueError, match=message):
            named.with_data(**{**flat, **change})
    labels = pd.Categorical(flat["task"], categories=NAMES[::-1])
    again = named.with_data(**{**flat, "task": labels})
    assert again.task_names == NAMES
    np.testing.assert_array_equal(again.tasks.y, named.tasks.y)


def test_a_saved_fit_with_an_encoder_of_ones_own(tmp_path):
    encoder = torch.nn.Linear(G, K)
    options = {"steps": 4, "sparse_steps": 0, "restarts": 1, "progress": False}
    fit = ps.fit(MultiTaskRegression(G, K, encoder=encoder), X, Y, **options)
    fit.save(tmp_path / "fit.pt")
    with pytest.raises(ValueError, match="pass model="):
        ps.load(tmp_path / "fit.pt")
    again = ps.load(tmp_path / "fit.pt", model=MultiTaskRegression(G, K, encoder=encoder))
    np.testing.assert_array_equal(again.transform(X[0]), fit.transform(X[0]))


@pytest.mark.parametrize(
    ("x", "task", "message"),
    [
        (X[0], None, "task: got none; want the name of a task for every row of X"),
        (X[0], ["site 01"], "task: got 1 names for 25 rows; want one per row"),
        (X[0], ["site 01"] * 24 + ["site 99"], "the fit does not know 'site 99'; want one of .*site 00"),
        (X[0], [None] * N, "task: row 0 has no task"),
        (TABLE, "place", "task: X has no column 'place'"),
        (
            X[0][:, :3],
            ["site 01"] * N,
            r"X: got \(25, 3\), want one row per sample and inputs of shape \(4,\)",
        ),
        (TABLE, TABLE["site"][::-1], "task: has the rows of X in another order; give task.loc"),
        (X[0] * np.nan, ["site 01"] * N, "X has NaN or infinite inputs in 'a'; impute"),
        (TABLE.drop(columns="c"), "site", "X: it has no column 'c'"),
    ],
)
def test_bad_rows(trained, x, task, message):
    with pytest.raises(ValueError, match=message):
        trained.predict(x, task)


def test_an_indian_buffet_keeps_its_concentration_for_other_tasks():
    """By default it is one over the number of tasks, which adapting changes."""
    model = MultiTaskRegression(4, 2, prior=SpikeSlabLasso(column="ibp"))
    model.setup(6)
    assert model.prior.alpha == pytest.approx(1 / 6)
    assert model.for_tasks(1).prior.alpha == pytest.approx(1 / 6)


def test_an_error_that_cannot_be_computed_is_told_from_one_that_diverged():
    (few,) = error_findings(np.nan, np.full(9, 3))
    assert "cannot be computed" in few.message
    assert few.is_doubt and few.touches_all
    assert "diverged" in error_findings(np.nan, np.full(9, 30))[0].message
    assert "1.2 variances" in error_findings(1.2, np.full(9, 30))[0].message
    assert error_findings(0.9, np.full(9, 30)) == []


def test_lost_and_mixed_latents_are_named():
    names = ["latent 1", "latent 2", "latent 3"]
    similarity = np.array([[1.0, 1.0, 1.0], [0.99, 0.7, 0.98]])
    (lost,) = latent_findings(similarity, np.arange(3), 0, names)
    assert lost.factors == ("latent 2",)
    assert "0.70" in lost.message
    assert latent_findings(np.vstack([similarity, np.ones(3)]), np.arange(3), 0, names) == []
    (mixed,) = latent_findings(similarity[:1], np.array([0, 1, 0]), 0, names)
    assert mixed.factors == ("latent 1", "latent 3")
    assert mixed.is_doubt
    assert latent_findings(similarity[:1], np.arange(3), 0, names) == []


def test_with_as_many_rows_as_latents_nothing_is_without_a_doubt_and_nothing_is_selected():
    x, y, *_ = tasks_on_latents(n=3, t=20)
    with pytest.warns(RuntimeWarning, match="the latents rest on nothing"):
        fit = quick_fit(x, y, restarts=1)
    assert "error unknown" in repr(fit)
    assert {"rows", "error"} <= {finding.kind for finding in fit.findings if finding.is_doubt}
    table = ps.summary(fit.edge_posterior())
    assert not table["selected"].any()
    assert (table["verdict"] == "open").all()


def test_tasks_with_one_row_take_part_with_open_edges_at_the_share_of_the_others():
    x, y, *_ = tasks_on_latents(t=40)
    targets = y.copy()
    targets[[3, 7], 1:] = np.nan
    with pytest.warns(RuntimeWarning, match="2 of 40 tasks .* have fewer than 5 rows"):
        fit = quick_fit(x, targets, restarts=1)
    few = [finding for finding in fit.findings if finding.kind == "rows"]
    assert few and few[0].columns == ("task 4", "task 8") and few[0].is_doubt
    edges = fit.edge_posterior()
    p = ps.edge_prob(edges).to_numpy()
    shares = edges["posterior"]["eta"].to_numpy()[0, 0]
    np.testing.assert_allclose(p[[3, 7]], np.stack([shares, shares]), atol=1e-3)
    table = ps.summary(edges)
    assert (table.loc[table["task"].isin(["task 4", "task 8"]), "verdict"] == "open").all()
    assert fit.predict()[3, 0] == pytest.approx(y[3, 0])
    alone = fit.adapt([x[3, :1]], [y[3, :1]])
    assert alone.predict()[0, 0] == pytest.approx(y[3, 0])
    np.testing.assert_allclose(ps.edge_prob(alone.edge_posterior()), 0.5, atol=1e-3)
