"""Frames to come: linear dynamics have a closed form; units, names and lengths are the caller's."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch

import pyro_sparse as ps
from pyro_sparse.inference.training.forecast_scores import _changes
from pyro_sparse.inference.transition.forecast import carry
from tests.inference._transitions import SMALL, model_of


def linear(lags=1, n_actions=0):
    """A gated program with m(u) = A u, and what it was made of."""
    torch.manual_seed(0)
    model = ps.models.LatentTransition(4, 2, n_actions, lags, hidden=8, gated_units=2)
    model.setup()
    model.dense = False
    a = 0.4 * torch.randn(2, model.n_inputs)
    with torch.no_grad():
        model.gated.outer.zero_()
        model.gated.line[0, :, :, 0] = a
        model.gated.log_sd.fill_(np.log(0.5))
        model.logits.fill_(20.0)
    return model, a.numpy()


def test_linear_dynamics_have_a_closed_form():
    model, a = linear(lags=2, n_actions=1)
    rng = np.random.default_rng(0)
    past, actions = rng.normal(size=(2, 2)), rng.normal(size=(3, 1))  # the latest frame first
    step = np.block([[a[:, :4]], [np.eye(2), np.zeros((2, 2))]])
    state, cov = past.ravel(), np.zeros((4, 4))
    many = [torch.as_tensor(v, dtype=torch.float32).expand(40_000, *v.shape) for v in (past, actions)]
    with torch.no_grad():
        z = carry(model, *many, 3).numpy()
    for h in range(3):
        state = step @ state + np.r_[a[:, 4:] @ actions[h], 0, 0]
        cov = step @ cov @ step.T + np.diag([0.25, 0.25, 0, 0])
        np.testing.assert_allclose(z[:, h].mean(0), state[:2], atol=0.02)
        np.testing.assert_allclose(np.cov(z[:, h].T), cov[:2, :2], atol=0.02)


def test_a_closed_edge_carries_nothing():
    model, _ = linear()
    with torch.no_grad():
        model.logits.fill_(-20.0)
        z = carry(model, torch.full((20_000, 1, 2), 9.0), None, 1)
    np.testing.assert_allclose(z.mean((0, 1)), 0, atol=0.02)


@pytest.fixture(scope="module")
def sequences():
    rng = np.random.default_rng(1)
    z = np.zeros((60, 15, 2))
    u = rng.normal(size=(60, 15, 1))
    for t in range(1, 15):
        z[:, t] = 0.9 * z[:, t - 1] + 0.7 * u[:, t] + 0.2 * rng.normal(size=(60, 2))
    return 40 + 10 * (z @ rng.normal(size=(2, 5)) + 0.1 * rng.normal(size=(60, 15, 5))), u


@pytest.fixture(scope="module")
def fitted(sequences):
    x, u = sequences
    own = SMALL | {"steps": 500, "edge_steps": 150, "restarts": 1, "seed": 0}
    return ps.fit(model_of(x, 2, n_actions=1), x[:, :12], actions=u[:, :12], **own)


@pytest.mark.slow(hurried=True)
def test_forecasts_beat_the_last_frame_and_know_how_sure_they_are(sequences, fitted):
    x, u = sequences
    found = fitted.forecast(3, future_actions=u[:, 12:])
    assert found.dims == ("draw", "sequence", "step", "feature") and found.shape == (200, 60, 3, 5)
    assert list(found["step"].to_numpy()) == [1, 2, 3]
    assert list(found["feature"].to_numpy()) == fitted.feature_names
    error = ((found.mean("draw") - x[:, 12:]) ** 2).mean()
    assert error < 0.5 * ((x[:, 11:12] - x[:, 12:]) ** 2).mean()
    low, high = found.quantile([0.05, 0.95], "draw").to_numpy()
    assert 0.8 < ((low < x[:, 12:]) & (x[:, 12:] < high)).mean() <= 1
    again = fitted.forecast(3, future_actions=u[:, 12:])
    np.testing.assert_array_equal(found, again)
    assert not np.array_equal(found, fitted.forecast(3, future_actions=u[:, 12:], seed=1))


@pytest.mark.slow(hurried=True)
def test_scores_are_those_of_forecasts_from_the_frames_before(sequences, fitted):
    x, u = sequences
    table = fitted.forecast_scores(2, x[:20], actions=u[:20], origins=2, interval=0.8, num_draws=400)
    assert list(table.columns) == ["step", "feature", "coverage", "crps", "crps_persistence", "n"]
    assert len(table) == 10 and (table["n"] == 40).all()
    truth, scores, inside = [], [], []
    for origin in (13, 12):
        ahead = u[:20, origin : origin + 2]
        drawn = fitted.forecast(
            2, x[:20, :origin], actions=u[:20, :origin], future_actions=ahead, num_draws=400
        )
        truth.append(x[:20, origin : origin + 2])
        scores.append(ps.metrics.crps(drawn, truth[-1]))
        low, high = drawn.quantile([0.1, 0.9], "draw").to_numpy()
        inside.append((low <= truth[-1]) & (truth[-1] <= high))
    scores, inside = (np.mean(values, (0, 1)) for values in (scores, inside))
    np.testing.assert_allclose(table["crps"].to_numpy().reshape(2, 5), scores, rtol=0.05)
    np.testing.assert_allclose(table["coverage"].to_numpy().reshape(2, 5), inside, atol=0.11)
    assert (table["crps"] < table["crps_persistence"]).all()
    apart = np.abs(x[:20, 12:14] - x[:20, 11:13]).mean((0, 1))  # mean of two normals' distance, .56 of theirs
    assert (table["crps_persistence"].to_numpy()[:5] < apart).all()


@pytest.mark.slow(hurried=True)
@pytest.mark.filterwarnings("ignore:X. has missing cells")
def test_cells_that_are_missing_or_beyond_a_gap_are_not_scored(sequences, fitted):
    x, u = sequences
    x = x[:6].copy()
    x[0, 13, 2] = np.nan
    table = fitted.forecast_scores(2, x, actions=u[:6], origins=1, num_draws=20)
    assert table.set_index(["step", "feature"])["n"].unstack().to_numpy().tolist() == [
        [6, 6, 5, 6, 6],
        [6] * 5,
    ]
    short = [x[1], x[2, :3]]
    table = fitted.forecast_scores(2, short, actions=[u[1], u[2, :3]], origins=5, num_draws=20)
    assert (table["n"] == 6).all()
    table = fitted.forecast_scores(1, short, actions=[u[1], u[2, :3]], origins=1, num_draws=4000)
    drawn = fitted.forecast(
        1, [x[1, :14], x[2, :2]], actions=[u[1, :14], u[2, :2]],
        future_actions=np.stack([u[1, 14:15], u[2, 2:3]]), num_draws=4000,
    )  # fmt: skip
    wanted = ps.metrics.crps(drawn[:, :, 0], np.stack([x[1, 14], x[2, 2]])).mean(0)
    np.testing.assert_allclose(table["crps"], wanted, rtol=0.05)


@pytest.mark.slow(hurried=True)
def test_a_loaded_fit_scores_its_own_forecasts_and_knows_no_changes(sequences, fitted, tmp_path):
    x, u = sequences
    fitted.save(tmp_path / "fit.pt")
    loaded = ps.load(tmp_path / "fit.pt")
    options = {"actions": u[:5], "origins": 1, "num_draws": 20}
    table, wanted = (f.forecast_scores(2, x[:5], **options) for f in (loaded, fitted))
    assert table["crps_persistence"].isna().all() and wanted["crps_persistence"].notna().all()
    np.testing.assert_array_equal(table["coverage"], wanted["coverage"])


@pytest.mark.slow(hurried=True)
def test_persistence_changes_leave_out_gaps_and_what_was_not_seen(fitted):
    x = np.cumsum(np.ones((1, 6, 5)), 1) ** 2
    linked = np.array([[True, True, True, False, True, True]])
    mask = np.ones((1, 6, 5), dtype=bool)
    mask[0, 5, 0] = False
    found = _changes(replace(fitted.sequences, x=x, linked=linked, mask=mask), 3)
    assert [None if change is None else change[:, 0].tolist() for change in found] == [[3, 5, 9], [8], None]


@pytest.mark.slow(hurried=True)
def test_scores_refuse_what_they_cannot_score(sequences, fitted):
    x, u = sequences
    with pytest.raises(ValueError, match=r"X: the longest sequence has 3 frame\(s\), wanted 6 or more"):
        fitted.forecast_scores(5, x[:2, :3], actions=u[:2, :3])
    with pytest.raises(ValueError, match="interval: want a probability between 0 and 1, got 90"):
        fitted.forecast_scores(1, interval=90)


@pytest.mark.slow(hurried=True)
def test_each_sequence_goes_on_from_its_own_end(sequences, fitted):
    x, u = sequences
    own = {"future_actions": u[:2, 12:13], "num_draws": 400}
    both = fitted.forecast(1, [x[0, :12], x[1, :7]], actions=[u[0, :12], u[1, :7]], **own).mean("draw")
    alone = fitted.forecast(1, x[1:2, :7], actions=u[1:2, :7], future_actions=u[1:2, 12:13], num_draws=400)
    spread = alone.std("draw").to_numpy()[0, 0]
    np.testing.assert_array_less(abs(both[1, 0] - alone.mean("draw")[0, 0]), 5 * spread * (2 / 400) ** 0.5)


@pytest.mark.slow
@pytest.mark.usefixtures("hurried")
@pytest.mark.filterwarnings("ignore:X. frame t-1 still predicts:RuntimeWarning")  # without lags
@pytest.mark.parametrize("kind", [{"lags": 0}, {"lags": 2}, {"smoother": True}])
def test_models_of_every_kind(sequences, kind):
    x, u = sequences
    own = SMALL | {"steps": 20, "edge_steps": 5, "polish_steps": 5, "restarts": 1, "seed": 0}
    fit = ps.fit(model_of(x, 2, n_actions=1, **kind), x, actions=u, **own)
    found = fit.forecast(2, future_actions=u[:, :2], num_draws=5)
    assert found.shape == (5, 60, 2, 5) and np.isfinite(found).all()
    if kind.get("lags") == 2:
        with pytest.raises(ValueError, match=r"X: sequence '1' has 1 frame\(s\), wanted at least the 2"):
            fit.forecast(1, [x[0], x[1, :1]], actions=[u[0], u[1, :1]], future_actions=u[:2, :1])


@pytest.mark.slow(hurried=True)
def test_a_loaded_fit_wants_sequences(sequences, fitted, tmp_path):
    x, u = sequences
    fitted.save(tmp_path / "fit.pt")
    loaded = ps.load(tmp_path / "fit.pt")
    with pytest.raises(ValueError, match="X: a loaded fit has no sequences of its own"):
        loaded.forecast(1, future_actions=u[:, 12:13])
    own = {"actions": u[:, :12], "future_actions": u[:, 12:13], "num_draws": 3}
    wanted = fitted.forecast(1, future_actions=u[:, 12:13], num_draws=3)
    np.testing.assert_allclose(loaded.forecast(1, x[:, :12], **own), wanted, rtol=1e-5)


@pytest.mark.slow(hurried=True)
def test_messages(sequences, fitted):
    u = sequences[1]
    with pytest.raises(ValueError, match="steps"):
        fitted.forecast(0, future_actions=u[:, :0])
    with pytest.raises(ValueError, match=r"future_actions: the model was fitted with actions \['a1'\]"):
        fitted.forecast(2)
    for given, got in (
        (u[:, :1], r"shape \(60, 1, 1\)"),
        (np.repeat(u[:, :2], 2, 2), r"shape \(60, 2, 2\)"),
        (u[:7, :2], r"shape \(7, 2, 1\)"),
        (1.0, r"shape \(\)"),
        (list(u[:9, :2]), r"9 sequence\(s\)"),
        ([*u[:59, :2], u[59, :1]], r"\(1, 1\) in sequence 59"),
    ):
        wanted = rf"future_actions: want \(sequence, step, action\) = \(60, 2, 1\), got {got}; give for"
        with pytest.raises(ValueError, match=wanted):
            fitted.forecast(2, future_actions=given)
    with pytest.raises(ValueError, match="future_actions: column 'a1' has inf in sequence '0'"):
        fitted.forecast(2, future_actions=np.full((60, 2, 1), np.inf))
    holed = u[:, :2].copy()
    holed[3, 1] = np.nan
    with pytest.raises(ValueError, match="future_actions: an action is missing in sequence '3', step 2"):
        fitted.forecast(2, future_actions=holed)


@pytest.mark.slow(hurried=True)
@pytest.mark.usefixtures("hurried")
def test_actions_to_come_as_a_long_table(sequences):
    """Found by id and sorted by time, whatever the order of rows; text is a categorical action."""
    x, u = sequences
    frames = pd.DataFrame(x[:, :12].reshape(-1, 5), columns=list("abcde"))
    frames["patient"], frames["day"] = np.repeat(np.arange(60) + 5, 12), np.tile(np.arange(12), 60)
    frames["dose"], frames["what"] = u[:, :12].ravel(), np.where(u[:, :12, 0] > 0, "up", "down").ravel()
    own = SMALL | {"steps": 20, "edge_steps": 5, "polish_steps": 5, "restarts": 1, "seed": 0}
    columns = {"id": "patient", "time": "day", "actions": ["dose", "what"]}
    fit = ps.fit(model_of(x, 2, n_actions=2), frames, **columns, **own)
    future = [pd.DataFrame({"dose": u[i, 12:, 0], "what": ["up", "up", "down"]}) for i in range(60)]
    wanted = fit.forecast(3, future_actions=future, num_draws=3)
    table = pd.concat(f.assign(patient=i + 5, day=[12, 13, 14]) for i, f in enumerate(future))
    mixed = table.sample(frac=1, random_state=0)
    for given in (mixed, mixed.set_index(["patient", "day"]), table.drop(columns="day")):
        np.testing.assert_array_equal(fit.forecast(3, future_actions=given, num_draws=3), wanted)
    few = fit.forecast(3, frames[frames["patient"] == 9], future_actions=table[table["patient"] == 9])
    assert list(few["sequence"].to_numpy()) == ["9"]
    with pytest.raises(
        ValueError, match=r"future_actions: has 2 row\(s\) of sequence '5' \(60 such seq.*want 3"
    ):
        fit.forecast(3, future_actions=table[table["day"] < 14])
    with pytest.raises(ValueError, match="future_actions: has no column 'dose'; want those of the fit"):
        fit.forecast(3, future_actions=table.drop(columns="dose"))
