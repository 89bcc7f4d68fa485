"""Fitting sequences: recovery, restarts, resuming, Ctrl-C, wrong input."""

from __future__ import annotations

import re
import sys
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch

import pyro_sparse as ps
from pyro_sparse.data.sequences import as_sequences
from pyro_sparse.datasets import transition_data
from pyro_sparse.findings.finding import Finding
from pyro_sparse.graphs import consistency
from pyro_sparse.graphs.selection import q_values
from pyro_sparse.inference.edges.parents.transitions import steps_of
from pyro_sparse.inference.rotation.jacobian_axes import jacobian_axes
from pyro_sparse.inference.training.job import train
from pyro_sparse.inference.transition.job import TransitionJob, _pieces, _split
from pyro_sparse.inference.transition.transition_axes import latents
from pyro_sparse.inference.transition.transition_result import _recovered
from pyro_sparse.inference.transition.transition_run import TransitionRun
from pyro_sparse.inference.transition.transition_schedule import TransitionSchedule
from pyro_sparse.likelihoods import NegativeBinomial
from pyro_sparse.metrics import mcc
from tests.inference._transitions import SMALL, model_of

pytestmark = pytest.mark.usefixtures("hurried_module")

BRIEF = SMALL | {"steps": 30, "polish_steps": 8, "edge_steps": 8, "evaluate_every": 15}  # for equal bits


@pytest.fixture(scope="module")
def data():
    return transition_data("ActionTimeDiag", n=200, d_z=3, d_x=6, T=4, seed=1000)


@pytest.fixture(scope="module")
def fitted(data, hurried_module):
    x, _, a = data.part("train")
    return ps.fit(model_of(x, n_actions=3), x, actions=a, seed=1, restarts=2, **SMALL)


@pytest.fixture(scope="module")
def brief(data, hurried_module):
    x, _, a = data.part("train")
    return ps.fit(model_of(x, n_actions=3), x, actions=a, seed=1, restarts=2, **BRIEF)


def test_what_a_fit_holds(fitted, data):
    assert fitted.graph_time.shape == fitted.strength_time.shape == (2, 1, 3, 3)
    assert fitted.graph_action.shape == fitted.relaxed_action.shape == (2, 3, 3)
    assert set(np.unique(fitted.graph_time)) <= {0, 1}
    assert ((fitted.relaxed_time > 0) & (fitted.relaxed_time < 1)).all()
    assert fitted.agreement["similarity"][fitted.best] == pytest.approx(1)
    assert fitted.agreement["edges_differing"][fitted.best] == 0
    assert list(fitted.history.groupby(["restart", "stage"]).size().index) == [
        (r, s) for r in (0, 1) for s in ("dense", "edges")
    ]
    assert np.isfinite(fitted.heldout_elbo).all()
    z = fitted.transform()
    assert z.shape == (200, 4, 3)
    assert z.reshape(-1, 3).std(0) == pytest.approx(np.ones(3), abs=0.15)
    x, _, a = data.part("test")
    assert fitted.transform(x, actions=a).shape == (len(x), 4, 3)
    assert isinstance(fitted.unsure, bool)
    assert fitted.agreement["influence"].between(0, 1).all()


def test_all_restarts_stand_in_the_frame_of_the_best(fitted):
    """Strengths of another restart are those of its own latents, reordered as the alignment says."""
    frames = latents(fitted.model, fitted.sequences.batch()).detach().numpy()
    other = 1 - fitted.best
    turn, sign = fitted.alignment["permutation"][other], fitted.alignment["sign"][other]
    assert sorted(turn) == [0, 1, 2]
    assert set(np.abs(sign)) == {1.0}
    best = frames[fitted.best].reshape(-1, 3).T
    pairs = zip(best, (frames[other][..., turn] * sign).reshape(-1, 3).T, strict=True)
    correlations = [np.corrcoef(a, b)[0, 1] for a, b in pairs]
    assert min(correlations) >= 0
    assert fitted.agreement["similarity"][other] == pytest.approx(np.mean(correlations), abs=1e-6)


@pytest.mark.slow(hurried=True)
def test_a_restart_that_is_added_is_the_one_that_more_restarts_would_have(data):
    """Two, and one more since none agrees, are the three of a fit that was asked for three, to the bit."""
    x, _, a = data.part("train")
    three = ps.fit(model_of(x, n_actions=3), x, actions=a, seed=1, restarts=3, **BRIEF)
    sequences = as_sequences(x, actions=a, lag=1)
    settings = {name: value for name, value in BRIEF.items() if name != "progress"}
    job = TransitionJob(
        model_of(x, n_actions=3), sequences, restarts=2, seed=1, schedule=TransitionSchedule(**settings)
    )
    asked = []

    def more(trained):
        asked.append(len(trained))
        return [range(2, 3)] if len(trained) == 2 else []

    added = train(job, progress=False, more=more)
    assert asked == [2, 3]
    np.testing.assert_array_equal(added.strength_time, three.strength_time)
    np.testing.assert_array_equal(added.heldout_elbo, three.heldout_elbo)


def test_restarts_are_added_only_where_none_agrees_with_the_best(data, monkeypatch):
    x, _, a = data.part("train")
    job = TransitionJob(model_of(x, n_actions=3), as_sequences(x, actions=a, lag=1), restarts=2)

    def said(*findings):
        monkeypatch.setattr(job, "_result", lambda *parts, **options: SimpleNamespace(findings=findings))

    alone = Finding("restarts", "no other restart found latent 1", severity="doubt", factors=("latent 1",))
    of_run = {"run": SimpleNamespace(model=job.model), "answers": [], "history": []}
    whole, interrupted = (SimpleNamespace(has_edges=has, **of_run) for has in (True, False))
    said(alone)
    assert job.more([whole] * 2) == [range(2, 3)]
    assert job.more([whole] * 3) == [range(3, 4)]
    assert job.more([whole] * 4) == []  # two at most
    assert job.more([whole, interrupted]) == []
    said(replace(alone, severity="note"), replace(alone, kind="gap"))
    assert job.more([whole] * 2) == []


@pytest.mark.slow(hurried=True)
def test_ctrl_c_while_restarts_are_compared_adds_none_and_is_said(data):
    x, _, a = data.part("train")
    settings = {name: value for name, value in SMALL.items() if name != "progress"}
    job = TransitionJob(
        model_of(x, n_actions=3), as_sequences(x, actions=a, lag=1), restarts=1,
        schedule=TransitionSchedule(**settings),
    )  # fmt: skip

    def interrupted(trained):
        raise KeyboardInterrupt

    fit = train(job, progress=False, more=interrupted)
    assert fit.n_restarts == 1
    assert any("before any was added" in warning for warning in fit.warnings)


def test_a_fit_adds_restarts_only_where_their_number_and_length_are_left_open(data, monkeypatch):
    """What the caller said stands: the loop is not asked for more."""
    x, _, a = data.part("train")
    asked = []

    def stopped(job, **options):
        asked.append(options["more"] is not None)
        raise KeyboardInterrupt

    monkeypatch.setattr(sys.modules["pyro_sparse.inference.fit"], "train", stopped)
    for settings in ({}, {"restarts": 2}, {"steps": 50}):
        with pytest.raises(KeyboardInterrupt):
            ps.fit(model_of(x, n_actions=3), x, actions=a, progress=False, **settings)
    with pytest.raises(KeyboardInterrupt):
        ps.fit(ps.models.SparseDecoder(6, 2), np.random.default_rng(0).normal(size=(60, 6)), progress=False)
    assert asked == [True, False, False, False]


@pytest.mark.slow(hurried=True)
def test_the_same_seed_gives_the_same_bits(brief, data):
    x, _, a = data.part("train")
    again = ps.fit(model_of(x, n_actions=3), x, actions=a, seed=1, restarts=2, **BRIEF)
    np.testing.assert_array_equal(again.strength_time, brief.strength_time)
    np.testing.assert_array_equal(again.relaxed_action, brief.relaxed_action)


@pytest.mark.slow(hurried=True)
def test_a_resumed_fit_gives_the_same_bits(brief, data, tmp_path, monkeypatch):
    x, _, a = data.part("train")
    file, advance, steps = tmp_path / "run.pt", TransitionRun.advance, []

    def dying(run):
        steps.append(run.step)
        if len(steps) == 52:
            raise RuntimeError("the power went")
        advance(run)

    settings = {**BRIEF, "checkpoint": file, "checkpoint_every": 5}
    with monkeypatch.context() as patch:
        patch.setattr(TransitionRun, "advance", dying)
        with pytest.raises(RuntimeError, match="the power went"):
            ps.fit(model_of(x, n_actions=3), x, actions=a, seed=1, restarts=2, **settings)
    resumed = ps.fit(model_of(x, n_actions=3), x, actions=a, seed=1, restarts=2, **settings)
    np.testing.assert_array_equal(resumed.strength_time, brief.strength_time)
    np.testing.assert_array_equal(resumed.relaxed_time, brief.relaxed_time)
    with pytest.raises(ValueError, match="belongs to another fit"):
        ps.fit(model_of(x, n_actions=3), x, actions=a, seed=2, restarts=2, **settings)


@pytest.mark.slow
def test_a_smoother_goes_through_all_stages(data, tmp_path, monkeypatch):
    """Frames missing, two restarts: the same bits again, when resumed, from a file, and each by itself."""
    x, _, a = data.part("train")
    x = np.where(np.random.default_rng(0).random((*x.shape[:2], 1)) < 0.2, np.nan, x)
    x[:, 0] = data.part("train")[0][:, 0]

    def run(restarts=2, **settings):
        model = model_of(x, n_actions=3, smoother=True)
        settings = {**SMALL, "steps": 20, "polish_steps": 5, "edge_steps": 5, **settings}
        return ps.fit(model, x, actions=a, seed=1, restarts=restarts, **settings)

    whole = run()
    assert whole.graph_time.shape == (2, 1, 3, 3) and np.isfinite(whole.transform()).all()
    advance, steps = TransitionRun.advance, []

    def dying(run):
        steps.append(run.step)
        if len(steps) == 45:
            raise RuntimeError("the power went")
        advance(run)

    settings = {"checkpoint": tmp_path / "run.pt", "checkpoint_every": 5}
    with monkeypatch.context() as patch:
        patch.setattr(TransitionRun, "advance", dying)
        with pytest.raises(RuntimeError, match="the power went"):
            run(**settings)
    resumed = run(**settings)
    alone = run(restarts=1)
    whole.save(tmp_path / "fit.pt")
    loaded = ps.load(tmp_path / "fit.pt")
    for other in (resumed, loaded):
        np.testing.assert_array_equal(other.strength_time, whole.strength_time)
        np.testing.assert_array_equal(other.transform(x, actions=a), whole.transform(x, actions=a))
    theirs, own = whole.model.state_dict(), alone.model.state_dict()
    for name, value in own.items():
        assert torch.equal(theirs[name][:1] if value.shape != theirs[name].shape else theirs[name], value)


@pytest.mark.slow
def test_ctrl_c_returns_the_fit_so_far(data, monkeypatch):
    x, _, a = data.part("train")
    advance, steps = TransitionRun.advance, []

    def pressed(run):
        advance(run)
        steps.append(run.step)
        if len(steps) == stop:
            raise KeyboardInterrupt

    monkeypatch.setattr(TransitionRun, "advance", pressed)
    stop = 110
    with pytest.warns(RuntimeWarning, match="restart 0; this is the fit so far"):
        fit = ps.fit(model_of(x, n_actions=3), x, actions=a, restarts=2, **SMALL)
    assert fit.n_restarts == 1
    assert "interrupted at step 110 of 120" in " ".join(fit.warnings)
    steps.clear()
    stop = 130
    with pytest.warns(RuntimeWarning, match="interrupted"):
        fit = ps.fit(model_of(x, n_actions=3), x, actions=a, restarts=2, **SMALL)
    assert fit.n_restarts == 1
    steps.clear()
    stop = 5
    with pytest.raises(KeyboardInterrupt):
        ps.fit(model_of(x, n_actions=3), x, actions=a, restarts=2, **SMALL)


@pytest.mark.slow
@pytest.mark.parametrize(("call", "kept"), [(1, 1), (3, 1), (5, 1), (7, 2)])
def test_ctrl_c_in_the_search_for_axes_keeps_what_there_is(data, monkeypatch, call, kept):
    """Each of two restarts searches after its dense fit and after its polish, in two whitenings each."""
    x, _, a = data.part("train")
    calls = []

    def pressed(*moments, **options):
        calls.append(options)
        if len(calls) == call:
            raise KeyboardInterrupt
        return jacobian_axes(*moments, **{"steps": 10, "n_starts": 4, **options})

    monkeypatch.setattr("pyro_sparse.inference.transition.transition_axes.jacobian_axes", pressed)
    with pytest.warns(RuntimeWarning, match="interrupted .*this is the fit so far"):
        few = {**SMALL, "steps": 30, "polish_steps": 5, "edge_steps": 5}
        fit = ps.fit(model_of(x, n_actions=3), x, actions=a, seed=1, restarts=2, **few)
    assert fit.n_restarts == kept and "interrupted" in " ".join(fit.warnings)
    assert np.isfinite(fit.transform()).all()


def test_long_sequences_are_cut_and_padded():
    x = np.random.default_rng(0).normal(size=(2, 103, 4))
    batch = as_sequences(x).batch()
    pieces = _pieces(batch, lags=1)
    assert pieces.x.shape[1] == 11
    assert len(pieces) == 20
    assert int(pieces.present.sum()) == 206
    assert (pieces.x[~pieces.present] == 0).all()
    back = pieces.x[pieces.present]
    torch.testing.assert_close(back, batch.x.reshape(-1, 4))
    assert pieces.mask[pieces.present].all()
    assert not pieces.mask[~pieces.present].any()
    assert not pieces.steps(1)[~pieces.present[:, 1:]].any() and pieces.steps(1).sum() == 206 - 20
    many = as_sequences(np.random.default_rng(0).normal(size=(40, 5, 4))).batch()
    assert _pieces(many, lags=1) is many


@pytest.mark.slow
def test_a_long_table_with_gaps_and_a_categorical_action():
    """One sequence, missing cells, labels as actions: from DataFrame to graph."""
    rng = np.random.default_rng(0)
    n = 300
    label = rng.choice(["none", "up"], n)
    z = np.zeros((n, 2))
    for t in range(1, n):
        z[t] = [0.8 * z[t - 1, 0] + (label[t] == "up"), 0.5 * z[t - 1, 1] + np.sin(z[t - 1, 0])]
        z[t] += 0.3 * rng.normal(size=2)
    x = z @ rng.normal(size=(2, 5)) + 0.1 * rng.normal(size=(n, 5))
    table = pd.DataFrame(x, columns=list("abcde")).assign(day=np.arange(n), what=label)
    table.loc[10, "a"] = np.nan
    table = table.drop(index=[50, 51])
    fit = ps.fit(model_of(x, 2, n_actions=1), table, time="day", actions=["what"], restarts=1, **SMALL)
    assert fit.action_names == ["what"] and fit.action_levels == {"what": ["none", "up"]}
    assert fit.transform().shape == (1, n - 2, 2)
    assert any("one restart only" in note for note in fit.warnings)
    gaps = "1 of 297 steps are unlinked by gaps, more than the regular step (1) "
    assert any(note.startswith(gaps) for note in fit.warnings)


@pytest.mark.parametrize(("frames", "aside"), [(40, 0), (150, 2), (300, 2), (2000, 2)])
def test_pieces_of_one_series_are_held_out_where_it_has_enough(frames, aside):
    """A series of some 150 frames makes eleven pieces, and a tenth of these is one."""
    batch = as_sequences(np.random.default_rng(0).normal(size=(1, frames, 3))).batch()
    train, heldout = _split(_pieces(batch, lags=2), 0.1, 0)
    assert (0 if heldout is None else len(heldout)) == aside
    assert _split(_pieces(batch, lags=2), 0.0, 0)[1] is None
    kept = train.present.sum() if train.present is not None else train.x.shape[0] * train.x.shape[1]
    left = 0 if heldout is None else heldout.seen.sum()
    assert kept + left == frames


@pytest.mark.parametrize(
    ("change", "kind", "message"),
    [
        ({"actions": None}, ValueError, "actions: 0, the model was made for n_actions=3"),
        ({"steps": 0}, ValueError, "steps: want .*, got 0"),
        ({"lasso_weight": 1.0}, TypeError, "unknown setting 'lasso_weight'"),
        ({"schedule": ps.inference.Schedule()}, TypeError, "wants a TransitionSchedule"),
        ({"restarts": 0}, ValueError, "restarts: want a whole number of at least 1, got 0"),
        ({"holdout": 0.999}, ValueError, "holdout"),
        ({"sparsity": "few"}, ValueError, "sparsity"),
        ({"sparsity": 400}, ValueError, "sparsity: the budget is 400 and only 18 edges are possible; lower"),
    ],
)
def test_bad_arguments(data, change, kind, message, monkeypatch):
    """Said before the first step."""
    monkeypatch.setattr(TransitionRun, "advance", lambda run: pytest.fail("it took a step"))
    x, _, a = data.part("train")
    with pytest.raises(kind, match=message):
        ps.fit(model_of(x, n_actions=3), x, **{"actions": a, "restarts": 1, **SMALL, **change})


def test_a_table_has_no_actions():
    x = np.zeros((30, 4, 6))
    for name, value in {"mask": x > 0, "exposure": x[:, 0, 0], "n_factors_init": [1, 2]}.items():
        with pytest.raises(TypeError, match=f"{name}: is for tables.*, and LatentTransition reads none"):
            ps.fit(model_of(x), x, **{name: value})
    with pytest.raises(TypeError, match="actions: is for sequences"):
        ps.fit(ps.models.SparseDecoder(4, 2), np.random.default_rng(0).normal(size=(30, 4)), actions=["a"])


@pytest.mark.slow
def test_it_finds_the_latents_and_the_graph():
    data = transition_data("TimeNonDiag", n=20_000, d_z=4, d_x=8, seed=1002)
    x, _, _ = data.part("train")
    model = ps.models.LatentTransition(8, 4, hidden=64)
    # of single starts of this size about one in ten ends in a bent space, 7 nats below the others
    fit = ps.fit(model, x, seed=0, restarts=2, steps=1500, batch_size=256, progress=False)
    x, z, _ = data.part("test")
    match = mcc(z.reshape(-1, 4), fit.transform(x).reshape(-1, 4))
    order = np.asarray(match.permutation)
    assert match.value > 0.97
    np.testing.assert_array_equal(fit.graph_time[fit.best, 0][np.ix_(order, order)], data.graph_z)


def test_edge_probabilities_are_of_seen_frames(fitted, data):
    x, _, a = data.part("train")
    blank = x.copy()
    blank[:, -1] = np.nan
    with pytest.warns(RuntimeWarning, match="X: has missing cells, and the fit's sequences had none"):
        new = fitted.with_data(blank, actions=a)
    both = [steps_of(new), steps_of(fitted.with_data(x[:, :-1], actions=a[:, :-1]))]
    for one, other in zip(*both, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("likelihood", ["bernoulli", NegativeBinomial(size_factors=False)])
def test_likelihoods_of_other_scales(data, likelihood, tmp_path):
    x, _, a = data.part("train")
    x = (x > x.mean((0, 1))).astype(float)
    model = model_of(x, n_actions=3, likelihood=likelihood)
    fit = ps.fit(model, x, actions=a, restarts=1, **{**SMALL, "steps": 20, "edge_steps": 5})
    np.testing.assert_array_equal(fit.sequences.x, x)
    assert np.isfinite(fit.heldout_elbo).all()
    with pytest.raises(ValueError, match="X: column 'x1' holds"):
        fit.transform(x - 0.5, actions=a)


def test_a_saved_fit_is_the_same_fit(fitted, data, tmp_path):
    file = tmp_path / "fit.pt"
    fitted.save(file)
    again = ps.load(file)
    x, _, a = data.part("test")
    np.testing.assert_array_equal(again.transform(x, actions=a), fitted.transform(x, actions=a))
    np.testing.assert_array_equal(again.graph_time, fitted.graph_time)
    pd.testing.assert_frame_equal(again.agreement, fitted.agreement)
    assert again.action_names == fitted.action_names
    assert again.warnings == fitted.warnings
    with pytest.raises(ValueError, match=r"fit.with_data\(X, ...\) first"):
        again.edge_posterior()
    with pytest.raises(ValueError, match="X: a loaded fit has no sequences of its own; give some"):
        again.transform()
    x, _, a = data.part("train")
    options = {"num_draws": 20, "seed": 1}
    np.testing.assert_array_equal(
        again.with_data(x, actions=a).edge_posterior("gate_probability", **options).posterior["edge_time"],
        fitted.edge_posterior("gate_probability", **options).posterior["edge_time"],
    )
    np.testing.assert_array_equal(again.with_data(x, actions=a).transform(), fitted.transform())
    both = again.with_data(x, actions=a), fitted
    one, two = (fit.edge_posterior("parent_sets", max_rows=100, **options) for fit in both)
    for group in ("posterior", "edge_posterior", "sample_stats", "alignment"):
        assert one[group].equals(two[group]) and len(one[group]), group


def test_missing_cells_are_news_to_a_fit_without(fitted, data):
    x, _, a = data.part("test")
    holed = x.copy()
    holed[0, 1, 2] = np.nan
    with pytest.warns(RuntimeWarning, match="reads each as the feature's mean"):
        z = fitted.transform(holed, actions=a)
    holed[0, 1, 2] = fitted.sequences.centre[2]
    np.testing.assert_allclose(z, fitted.transform(holed, actions=a), atol=1e-6)
    ragged = as_sequences([x[0, :3], *x[1:]], actions=[a[0, :3], *a[1:]])
    assert ragged.mask is not None and not ragged.missing


@pytest.mark.parametrize(("intervals", "n_levels"), [(False, 2), (True, 2), (False, 4), (True, 3)])
def test_a_saved_fit_remembers_labels_and_steps(tmp_path, intervals, n_levels):
    rng = np.random.default_rng(1)
    table = pd.DataFrame(rng.normal(size=(60, 4)), columns=list("abcd"))
    table["day"] = pd.date_range("2020-01-01", periods=60, freq="D")
    words = np.array(["none", "up", "down", "left"])[:n_levels]
    table["what"] = pd.cut(rng.uniform(size=60), n_levels) if intervals else rng.choice(words, 60)
    model = ps.models.LatentTransition(4, 2, n_actions=1, hidden=4, units=4, gated_units=4)
    settings = {"restarts": 1, "steps": 5, "edge_steps": 2, "progress": False}
    fit = ps.fit(model, table, time="day", actions=["what"], **settings)
    fit.save(tmp_path / "fit.pt")
    again = ps.load(tmp_path / "fit.pt")
    new = table.iloc[:20]
    wanted = fit.transform(new, time="day", actions=["what"])
    np.testing.assert_array_equal(again.transform(new, time="day", actions=["what"]), wanted)
    np.testing.assert_array_equal(again.transform(new), wanted)  # the columns of the fit
    levels = fit.action_levels["what"]
    assert len(levels) == n_levels and again.action_levels == fit.action_levels
    assert again.model.n_inputs == 2 + n_levels - 1 and again.relaxed_action.shape == (1, 2, 1)
    after = pd.DataFrame({"what": [new["what"].iloc[0]]})
    both = [f.forecast(1, new, future_actions=after, num_draws=2) for f in (fit, again)]
    np.testing.assert_array_equal(*both)
    strange = new.assign(what="sideways")
    known = rf"column 'what' has level 'sideways'.*it knows {re.escape(str(levels))}"
    with pytest.raises(ValueError, match=known):
        again.transform(strange, time="day", actions=["what"])
    with pytest.raises(ValueError, match="future_actions: " + known):
        again.forecast(1, new, future_actions=after.assign(what="sideways"))
    mine = ps.models.LatentTransition(4, 2, n_actions=1, hidden=4, units=4, gated_units=4)
    np.testing.assert_array_equal(ps.load(tmp_path / "fit.pt", mine).transform(new), wanted)


@pytest.mark.slow
def test_the_graph_keeps_to_the_constraints(data):
    x, _, a = data.part("train")
    model = model_of(x, n_actions=3, required_time=[(0, 1)], forbidden_time=[(1, 2), (2, 0)])
    fit = ps.fit(model, x, actions=a, restarts=2, **{**SMALL, "steps": 20, "edge_steps": 5})
    own = np.stack(
        [
            g[np.ix_(o, o)]
            for g, o in zip(fit.graph_time[:, 0], fit.alignment["permutation"].argsort(1), strict=True)
        ]
    )
    assert (own[:, 0, 1] == 1).all()
    assert (own[:, 1, 2] == 0).all()
    assert (own[:, 2, 0] == 0).all()
    idata = fit.edge_posterior(num_draws=20)
    given = idata["edge_posterior"]["given_time"].to_numpy()
    assert np.argwhere(given).tolist() == [[0, 1]]
    assert not idata["edge_posterior"]["given_action"].to_numpy().any()
    table = ps.summary(idata, fdr=0.0).set_index(["source", "target"])
    assert table.loc[(fit.latent_names[1], fit.latent_names[0]), "selected"]  # told, whatever the rate
    p = table["probability"].drop(index=(fit.latent_names[1], fit.latent_names[0]))
    np.testing.assert_allclose(table.loc[p.index, "q_value"], q_values(p))


def test_agreement_forgives_what_the_graph_does_not_identify():
    """Two latents with the same parents may come back as any mixture of the two, a third may not."""
    z = np.random.default_rng(0).normal(size=(500, 3))
    graph = np.array([[1, 0], [1, 0], [0, 1]])
    turn = np.eye(3)
    turn[:2, :2] = [[0.6, 0.8], [-0.8, 0.6]]
    frames = np.stack([z, z @ turn.T])
    order = np.tile(np.arange(3), (2, 1))
    assert _recovered(frames, order, 0, consistency(graph))[1] == pytest.approx(1)
    assert _recovered(frames, order, 0, consistency(np.eye(3)))[1] < 0.8
    turn = np.linalg.qr(np.random.default_rng(1).normal(size=(3, 3)))[0]
    assert _recovered(np.stack([z, z @ turn.T]), order, 0, consistency(graph))[1] < 0.95
