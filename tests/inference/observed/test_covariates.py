"""Trend, season and covariates of observed variables: no edge by what is shared, forecasts, files, errors."""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
import pytest

import pyro_sparse as ps
from pyro_sparse.inference.observed.posterior import Candidates, Settled, term_posterior
from pyro_sparse.inference.observed.terms import effects_basis, freed

pytestmark = pytest.mark.usefixtures("hurried_module")

transition = ps.models.ObservedTransition


def seasonal(seed=0, n=240, link=0.0):
    """a, b and c share a season and a trend; a drives b where there is a link."""
    rng = np.random.default_rng([seed, 5])
    t, season = np.arange(n), rng.normal(size=12)
    u = np.zeros((n, 3))
    for i in range(n):
        past = u[i - 1] if i else np.zeros(3)
        u[i] = [0.4 * past[0], 0.3 * past[1] + link * past[0], 0.5 * past[2]] + rng.normal(size=3)
    x = u + 1.5 * season[t % 12][:, None] * rng.uniform(0.7, 1.3, 3)
    x += (3 * t / n)[:, None] * rng.uniform(0.7, 1.3, 3)
    return pd.DataFrame(x, columns=list("abc")).assign(
        month=pd.date_range("2000-01-01", periods=n, freq="MS")
    )


def fitted(table, model=None, **options):
    model = model or transition(lags=1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return ps.fit(model, table, progress=False, **{"time": "month", **options})


def false_edges(fit, true=()):
    p = fit.probability.reshape(3, fit.lags, 3).max(1)
    return sum(p[i, j] >= 0.95 for i in range(3) for j in range(3) if i != j and (i, j) not in true)


SHARED = 1000


@pytest.fixture(scope="module")
def fit(hurried_module):
    return fitted(seasonal(SHARED, link=0.5), transition(lags=1, trend="linear", season="month"))


def test_what_two_variables_share_is_no_edge():
    table = seasonal(1004)
    plain = fitted(table)
    assert false_edges(plain) >= 2
    remedies = {finding.kind: finding.remedy for finding in plain.findings}
    assert remedies["season"].startswith("give the model its season: so many steps that 2.4 divides")
    for options in ({"trend": "linear", "season": "month"}, {"trend": "spline", "season": 12}):
        told = fitted(table, transition(lags=1, **options))
        assert false_edges(told) == 0 and "season" not in {finding.kind for finding in told.findings}


def test_a_true_edge_is_found_beside_a_season(fit):
    assert ps.edge_prob(fit.edge_posterior(), "time").loc["b", "a"] > 0.95 and false_edges(fit, {(1, 0)}) == 0
    assert fit.settings["covariates"] == ["trend", "month"]
    assert (fit.explained < 0.6).all()  # of what trend and season leave


def test_covariates_have_the_evidence_of_wide_normal_priors():
    """Beside the covariance of a multivariate t with normal effects of growing width, by enumeration."""
    rng = np.random.default_rng(0)
    n, p = 40, 3
    known = np.column_stack([np.arange(n) / n, np.arange(n) % 4 == 1])
    x = rng.normal(size=(n, p)) + known[:, [0]]
    y = 0.4 * x[:, 0] + 3 * known[:, 0] - 2 * known[:, 1] + rng.normal(size=n)
    basis = effects_basis(known)
    standard = (x - x.mean(0)) / x.std(0)
    # the slab is in units of what the covariates leave of a column
    left = standard - basis @ (basis.T @ standard)
    columns = standard / np.sqrt((left**2).mean(0))
    design = np.column_stack([np.ones(n), known])
    log = []
    sets = [s for s in np.ndindex(2, 2, 2)]
    for s in sets:
        chosen = columns[:, np.flatnonzero(s)]
        covariance = np.eye(n) + 0.3 * chosen @ chosen.T
        inverse = np.linalg.inv(covariance)
        gram = design.T @ inverse @ design  # effects integrated out under flat priors (Zellner)
        rest = inverse - inverse @ design @ np.linalg.solve(gram, design.T @ inverse)
        value = -0.5 * (np.linalg.slogdet(covariance)[1] + np.linalg.slogdet(gram)[1])
        log.append(value - (n - 3) / 2 * np.log(y @ rest @ y) + sum(s) * np.log(0.25))
    weight = np.exp(np.array(log) - max(log))
    exact = weight @ np.array(sets) / weight.sum()
    posterior = term_posterior(
        x, y[:, None], Candidates(p, 1, 0), curves=False, products=False, rounds=0, steps=4000,
        settled=Settled(np.full(6, 0.2), np.full(6, 0.3)), covariates=known,
    )  # fmt: skip
    np.testing.assert_allclose(posterior.probability[0], exact, atol=0.03)
    assert exact.max() > 0.5 > exact.min()


def test_what_is_freed_is_orthogonal_and_of_one_size():
    rng = np.random.default_rng(1)
    known = np.column_stack([rng.normal(size=(60, 2)), np.ones(60)])
    known = np.column_stack([known, known[:, 0] - known[:, 1]])  # follows from the others
    basis = effects_basis(known)
    assert basis.shape == (60, 2)
    values = rng.normal(size=(60, 3))
    values = (values - values.mean(0)) / values.std(0)
    left = freed(np.column_stack([values, (known[:, 0] - known[:, 0].mean()) / known[:, 0].std()]), basis)
    np.testing.assert_allclose(basis.T @ left, 0, atol=1e-9)
    np.testing.assert_allclose((left**2).mean(0), [1, 1, 1, 0], atol=1e-9)


def test_a_covariate_that_drives_both_is_no_edge():
    rng = np.random.default_rng(3)
    n, heat = 300, np.zeros(300)
    for t in range(1, n):
        heat[t] = 0.8 * heat[t - 1] + rng.normal()
    kind = rng.choice(["home", "away"], n)
    x = np.zeros((n, 3))
    for t in range(1, n):
        x[t] = 0.3 * x[t - 1] + heat[t] + (kind[t] == "home") + rng.normal(size=3)
    table = pd.DataFrame(x, columns=list("abc")).assign(heat=heat, kind=kind, month=range(n))
    assert false_edges(fitted(table.drop(columns=["heat", "kind"]))) >= 2
    fit = fitted(table, covariates=["heat", "kind"])
    assert fit.feature_names == ["a", "b", "c"] and fit.settings["covariates"] == ["heat", "kind"]
    assert false_edges(fit) == 0
    # rows in any order, values beside the table, arrays: the same
    mixed = fitted(table.sample(frac=1, random_state=0), covariates=["heat", "kind"])
    np.testing.assert_allclose(mixed.probability, fit.probability, atol=0.05)
    beside = fitted(table[["a", "b", "c", "month"]], covariates=table[["heat", "kind"]])
    np.testing.assert_array_equal(beside.by_chain, fit.by_chain)
    array = fitted(x, covariates=table[["heat", "kind"]], time=None)
    np.testing.assert_allclose(array.probability, fit.probability, atol=0.05)


def test_rows_of_sequences_keep_their_covariates():
    """Against the columns that each row's own id and time lead to."""
    from pyro_sparse.data.frame_covariates import as_designed_sequences

    rng = np.random.default_rng(0)
    table = pd.DataFrame({"who": np.repeat(["q", "p"], 30), "day": np.tile(np.arange(30), 2)})
    table = table.assign(u=rng.normal(size=60), w=100 * (table["who"] == "p") + table["day"])
    table = table[table["day"] != 12].sample(frac=1, random_state=1)  # a gap
    data = as_designed_sequences(table, id="who", time="day", covariates="w", trend="linear", season=(5,))
    assert data.feature_names == ["u"] and data.sequence_names == ["p", "q"]
    day = np.delete(np.arange(30), 12)
    np.testing.assert_allclose(data.covariates[:, :, 0], np.tile(day / 29 - 0.5, (2, 1)))
    np.testing.assert_array_equal(
        data.covariates[0, :, 1:5].argmax(1)[day % 5 > 0], (day % 5 - 1)[day % 5 > 0]
    )
    wide = np.stack([100 + day, day])
    np.testing.assert_allclose(data.covariates[..., 5], (wide - wide.mean()) / wide.std())


@pytest.mark.parametrize(
    ("stamps", "season", "places"),
    [
        (pd.date_range("2021-03-01", periods=40, freq="D"), "weekday", 7),
        (pd.date_range("2021-03-31", periods=40, freq=pd.offsets.MonthEnd()), "month", 12),
        (pd.period_range("2021Q1", periods=40, freq="Q"), "quarter", 4),
        (pd.date_range("2021-03-01", periods=60, freq="h", tz="Europe/Rome"), "hour", 24),
    ],
)
def test_places_of_the_calendar(stamps, season, places):
    from pyro_sparse.data.frame_covariates import as_designed_sequences, future_columns

    x = np.random.default_rng(0).normal(size=len(stamps))
    table = pd.DataFrame({"x": x, "when": stamps})
    data = as_designed_sequences(table, time="when", season=(season,))
    parts = {"weekday": "day_of_week"}.get(season, season)
    wanted = pd.get_dummies(getattr(table["when"].dt, parts)).iloc[:, 1:].to_numpy(float)
    assert wanted.shape[1] == places - 1
    np.testing.assert_array_equal(data.covariates[0], wanted)
    # frames to come are what the same stamps, read on, would be
    first = as_designed_sequences(table[:-5], time="when", season=(season,))
    np.testing.assert_array_equal(future_columns(first, 5, None, "x")[0], wanted[-5:])


def test_long_seasons_are_harmonics_and_trends_go_on():
    from pyro_sparse.data.frame_covariates import as_designed_sequences, future_columns

    x = np.random.default_rng(0).normal(size=(800, 1))
    data = as_designed_sequences(x, season=(365,), trend="spline")
    spline, harmonics = np.split(data.covariates[0], [-8], 1)
    assert spline.shape[1] == 6
    np.testing.assert_allclose(harmonics[:, 0], np.sin(2 * np.pi * np.arange(800) / 365), atol=1e-9)
    np.testing.assert_allclose(harmonics[365:], harmonics[:-365], atol=1e-9)
    ahead = future_columns(data, 3, None, "x")[0][:, :6]
    steps = np.diff(np.concatenate([spline[-1:], ahead]), axis=0)
    np.testing.assert_allclose(steps, np.tile(steps[:1], (3, 1)), atol=1e-9)  # on along a line


def test_forecasts_are_those_of_least_squares(fit):
    """One step ahead, beside a regression by statsmodels on the true parents, trend and months."""
    api = pytest.importorskip("statsmodels.api")
    table = seasonal(SHARED, link=0.5)
    x, month = table[["a", "b", "c"]].to_numpy(), np.arange(241) % 12
    ahead = fit.forecast(1, num_draws=4000)
    assert ahead.dims == ("draw", "sequence", "step", "feature")
    for j, parents in enumerate(([0], [0, 1], [2])):
        dummies = (month[:, None] == np.arange(12)).astype(float)
        design = np.column_stack([x[:, parents], dummies[1:], np.arange(1, 241)])
        target = x[1:, j]
        found = api.OLS(target, design[:-1]).fit()
        wanted = found.get_prediction(design[-1:]).summary_frame(alpha=0.1)
        draws = ahead.to_numpy()[:, 0, 0, j]
        assert draws.mean() == pytest.approx(wanted["mean"].iloc[0], abs=0.15)
        low, high = np.quantile(draws, [0.05, 0.95])
        width = (wanted["obs_ci_upper"] - wanted["obs_ci_lower"]).iloc[0]
        assert high - low == pytest.approx(width, rel=0.08)


@pytest.mark.slow
def test_forecasts_know_season_and_covariates_to_come():
    table = seasonal(1001, link=0.5)
    table["push"] = np.random.default_rng(0).normal(size=240).cumsum()
    table["a"] += 2 * table["push"]
    past, future = table[:216], table[216:228]
    fit = fitted(past, transition(lags=1, season="month", trend="linear"), covariates=["push"])
    truth = future[["a", "b", "c"]].to_numpy()

    def error(pushes):
        ahead = fit.forecast(12, future_covariates=pushes, num_draws=100).mean("draw")[0].to_numpy()
        return np.sqrt(((ahead - truth) ** 2).mean(0))

    told = error(future[["push", "month"]].sample(frac=1, random_state=0))
    assert told[0] < 0.5 * error(future["push"].to_numpy()[::-1])[0]
    plain = fitted(past.drop(columns="push")).forecast(12, num_draws=100).mean("draw")[0].to_numpy()
    assert told.mean() < 0.7 * np.sqrt(((plain - truth) ** 2).mean(0)).mean()
    scores = fit.forecast_scores(3, table[150:], origins=30, num_draws=100)
    assert 0.75 < scores["coverage"].mean() < 0.99
    assert scores["crps"].mean() < 0.6 * scores["crps_persistence"].mean()


def test_forecasts_beyond_one_step_follow_the_graph():
    """Against draws of the system itself, whose action is known."""
    rng = np.random.default_rng(0)
    n, act = 600, rng.choice(["off", "on"], 600)
    x = np.zeros((n, 2))
    for t in range(1, n):
        x[t, 0] = 0.6 * x[t - 1, 0] + (act[t] == "on") + 0.5 * rng.normal()
        x[t, 1] = np.tanh(2 * x[t - 1, 0] - 1) + 0.3 * rng.normal()
    table = pd.DataFrame(x, columns=["a", "b"]).assign(act=act)
    fit = fitted(table, transition(lags=1), time=None, actions=["act"])
    ahead = fit.forecast(
        4, future_actions=[[[act] for act in ("on", "off", "on", "on")]], num_draws=2000
    ).to_numpy()[:, 0]
    true = np.tile(x[-1], (20000, 1))
    for h, pushed in enumerate([1, 0, 1, 1]):
        before = true[:, 0].copy()
        true[:, 0] = 0.6 * before + pushed + 0.5 * rng.normal(size=20000)
        true[:, 1] = np.tanh(2 * before - 1) + 0.3 * rng.normal(size=20000)
        np.testing.assert_allclose(ahead[:, h].mean(0), true.mean(0), atol=0.12)
        np.testing.assert_allclose(ahead[:, h].std(0), true.std(0), rtol=0.15)
    again = fit.forecast(
        4, future_actions=[[[act] for act in ("on", "off", "on", "on")]], num_draws=2000
    ).to_numpy()[:, 0]
    np.testing.assert_array_equal(again, ahead)
    with pytest.raises(ValueError, match="future_actions: the model was fitted with actions"):
        fit.forecast(2)


def test_files_keep_trend_season_and_covariates(tmp_path):
    table = seasonal(SHARED, n=120)
    table["heat"] = np.random.default_rng(0).normal(size=120)
    table["site"] = np.random.default_rng(1).choice(["x", "y"], 120)
    fit = fitted(table, transition(lags=1, trend="spline", season="month"), covariates=["heat", "site"])
    fit.save(tmp_path / "fit.pt")
    loaded = ps.load(tmp_path / "fit.pt")
    assert loaded.model.season == "month" and repr(loaded.model) == repr(fit.model)
    ahead = pd.DataFrame({"heat": [0.0, 1], "site": ["x", "y"]})
    with pytest.raises(ValueError, match="with_data"):
        loaded.forecast(2, future_covariates=ahead)
    again = loaded.with_data(table)
    np.testing.assert_array_equal(
        again.forecast(2, future_covariates=ahead), fit.forecast(2, future_covariates=ahead)
    )
    with pytest.raises(ValueError, match="other sequences than it was made from"):
        loaded.with_data(table[5:]).forecast(2, future_covariates=ahead)
    later = fit.forecast(2, table[40:], future_covariates=ahead)
    assert np.abs(later.mean("draw") - fit.forecast(2, future_covariates=ahead).mean("draw")).max() < 0.4


@pytest.mark.parametrize(
    ("model", "options", "message"),
    [
        ({"season": 400}, {}, r"season: is 400 steps, and the frames span 120, wanted at least two rounds"),
        ({"season": 61}, {}, "two rounds"),
        ({"season": "hour"}, {}, "season: 'hour' is the same in every frame"),
        ({"season": "month"}, {"time": "number"}, "'month' is read off dates, and the time stamps are int64"),
        ({"season": "month"}, {"time": None}, "the frames have no time stamps; give time= with dates"),
        ({}, {"covariates": ["warmth"]}, "covariates: X has no column 'warmth'"),
        ({}, {"covariates": ["month"]}, "covariates: column 'month' is already in time; use it once"),
        ({}, {"covariates": ["hole"]}, "covariates: 'hole' is missing in row 7"),
        ({}, {"covariates": ["same"]}, "covariates: 'same' is 1 in every row"),
        ({}, {"covariates": np.zeros(7)}, "covariates: has 7 rows, and X has 120"),
        ({"trend": "linear"}, {"actions": ["number"]}, "actions: 'number' follows from trend"),
        ({"season": 24, "trend": "spline"}, {"rows": 49}, "effects on 'a', seen in 48 steps"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said_before_the_work(model, options, message):
    options = dict(options)
    table = seasonal(0, n=120).assign(
        number=range(120), hole=np.where(np.arange(120) == 7, np.nan, 1.5), same=1.0
    )
    table = table[: options.pop("rows", 120)]
    used = ["a", "b", "c", "month", *options.get("actions", []), "number", "hole", "same"]
    names = {options.get("time", "month"), *options.get("actions", [])}
    names |= {*(options["covariates"] if isinstance(options.get("covariates"), list) else [])}
    kept = [name for name in dict.fromkeys(used) if name in {"a", "b", "c"} | names]
    with pytest.raises((ValueError, TypeError), match=message):
        fitted(table[kept], transition(lags=1, **model), **options)


def test_what_is_wrong_with_a_model_or_what_is_to_come_is_said(fit):
    for options, message in (
        ({"season": 1}, "season: want a whole number of at least 2"),
        ({"season": "moon"}, "season: got 'moon', wanted a number of steps, or one of"),
        ({"season": [12, 12]}, "has one twice"),
        ({"trend": "up"}, "trend: got 'up', wanted one of"),
    ):
        with pytest.raises(ValueError, match=message):
            transition(**options)
    with pytest.raises(ValueError, match='"parent_sets" knows no trend, month'):
        fit.edge_posterior("parent_sets")
    table = seasonal(0, n=100).assign(heat=np.random.default_rng(0).normal(size=100))
    hot = fitted(table, covariates=["heat"])
    for ahead, message in (
        (
            None,
            r"future_covariates: the model was fitted with the covariates \['heat'\]; give those",
        ),
        ([1.0], "future_covariates: has 1 rows, and X has 2"),
        ([1.0, np.nan], "future_covariates: .* is missing in row 1"),
        (pd.DataFrame({"cold": [1.0, 2]}), "future_covariates"),
    ):
        with pytest.raises(ValueError, match=message):
            hot.forecast(2, future_covariates=ahead)
    with pytest.raises(ValueError, match="future_covariates: the model was fitted without covariates"):
        fit.forecast(1, future_covariates=[1.0])
    with pytest.raises(TypeError, match="unexpected argument 'when'"):
        fit.forecast(1, table, when="month")
    with pytest.raises(ValueError, match="interval"):
        fit.forecast_scores(1, interval=2)
    short = fitted(
        seasonal(0, n=60)[:30].assign(month=pd.date_range("2000-01-01", periods=30, freq="MS")),
        transition(lags=1, season="quarter"),
    )
    assert short.forecast(4).shape == (200, 1, 4, 3)
