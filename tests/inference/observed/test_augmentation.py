"""Missing cells drawn with the model: beside the normal distribution they have, and variables seen seldom."""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
import pytest

import pyro_sparse as ps
from pyro_sparse.data.sequences import as_sequences
from pyro_sparse.inference.observed.augmentation import Cells, _correlation
from pyro_sparse.inference.observed.effects import Effects
from pyro_sparse.inference.observed.posterior import Candidates, Settled, term_posterior
from pyro_sparse.inference.observed.steps import cells_to_fill, imputed, steps_of
from pyro_sparse.inference.observed.terms import TermMap, Units, term_map

transition = ps.models.ObservedTransition


def line_map(d, lags):
    """Terms that are the inputs themselves."""
    p = d * lags
    units = Units(np.full(p, -np.inf), np.full(p, np.inf), np.zeros(p), np.ones(p))
    nothing = np.zeros((0, 2), int)
    return TermMap(
        units, np.zeros((1, p)), [], [], nothing, np.zeros(0), np.zeros(0),
        np.zeros(p, int), np.repeat(np.arange(p)[:, None], 2, 1),
    )  # fmt: skip


@pytest.mark.slow
def test_cells_are_drawn_from_their_conditional_distribution():
    """Known vector autoregression: beside the conditional moments of the joint normal distribution."""
    b, sd, n = np.array([[0.6, 0.5], [-0.4, 0.3]]), np.array([0.8, 0.5]), 40
    rng = np.random.default_rng(0)
    x = np.zeros((n, 2))
    x[0] = rng.normal(size=2)
    for t in range(1, n):
        x[t] = b @ x[t - 1] + sd * rng.normal(size=2)
    hidden = np.zeros((n, 2), bool)
    hidden[np.arange(n) % 3 > 0, 0] = True
    sequences = as_sequences(np.where(hidden, np.nan, x), standardise=False)
    # joint precision: the first frame standard normal, then the regressions
    wide = np.eye(2 * n)
    for t in range(1, n):
        wide[2 * t : 2 * t + 2, 2 * t - 2 : 2 * t] = -b
    noise = np.concatenate([[1.0, 1.0], np.tile(sd, n - 1)])
    precision = wide.T @ np.diag(noise**-2) @ wide
    h = hidden.ravel()
    inverse = np.linalg.inv(precision[np.ix_(h, h)])
    wanted = -inverse @ precision[np.ix_(h, ~h)] @ x.ravel()[~h]
    effects = [
        Effects(line_map(2, 1), b[[i]], np.zeros(1), np.zeros((1, 0)), sd[[i]]) for i in range(2)
    ]  # fmt: skip
    values = imputed(sequences, rng)
    steps = steps_of(sequences, values, 1, filled_targets=True)
    cells = Cells(sequences, values, 1)
    draws = []
    for _ in range(1500):
        cells.draw(values, effects, steps, rng)
        draws.append(values[0][hidden].copy())
    draws = np.array(draws)[100:]
    np.testing.assert_array_equal(values[0][~hidden], x[~hidden])
    size = np.sqrt(np.diag(inverse))
    np.testing.assert_allclose(draws.mean(0), wanted, atol=0.2 * size.max())
    np.testing.assert_allclose(draws.std(0), size, rtol=0.15)


def test_some_terms_are_those_of_all():
    rng = np.random.default_rng(0)
    inputs = np.column_stack([rng.normal(size=(80, 3)), rng.integers(0, 2, 80)])
    terms, new = term_map(inputs), rng.normal(size=(20, 4))
    used = np.array([0, 2, 5, 7, 9, len(terms.kind) - 1])
    np.testing.assert_allclose(terms.columns(new, used), terms.columns(new)[:, used])


def test_noises_go_together_only_beyond_chance():
    rng = np.random.default_rng(0)
    noise = rng.normal(size=(300, 3))
    noise[:, 1] += noise[:, 0]
    r = _correlation(noise)
    assert r[0, 1] == pytest.approx(np.corrcoef(noise.T)[0, 1], abs=0.01) and r[0, 2] == r[1, 2] == 0


def system(seed, n=200, d=4, every=3):
    """A sparse vector autoregression, whose first variable is seen every third step."""
    rng = np.random.default_rng([seed, 9])
    own, other = rng.random(), rng.beta(1, 4)
    while True:
        graph = rng.random((d, d)) < np.where(np.eye(d, dtype=bool), own, other)
        b = np.where(graph, rng.normal(size=(d, d)) * np.sqrt(0.3), 0)
        if np.abs(np.linalg.eigvals(b)).max() < 0.95:
            break
    x = np.zeros((n + 100, d))
    for t in range(1, n + 100):
        x[t] = b @ x[t - 1] + rng.normal(size=d)
    x = x[100:]
    x[np.arange(n) % every > 0, 0] = np.nan
    return x, graph


def fitted(x, **options):
    model = transition(lags=1, curves=False, products=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return ps.fit(model, x, progress=False, **options)


def test_a_variable_that_is_seldom_seen_drives_nothing_by_what_was_put_in():
    """Regressions on neighbours put in effects on the frames after, and find them again."""
    x = np.random.default_rng(1003).normal(size=(200, 3))
    x[np.arange(200) % 3 > 0, 0] = np.nan
    sequences = as_sequences(x)
    settled, above = Settled(np.full(6, 0.2), np.full(6, 0.3)), []
    for k in range(8):
        steps = steps_of(sequences, imputed(sequences, np.random.default_rng(k)), 1)
        found = term_posterior(
            steps.inputs, steps.targets, Candidates(3, 1, 0), curves=False, products=False, rounds=0,
            settled=settled, seed=k,
        )  # fmt: skip
        above.append(found.probability[1:, 0])
    fit = fitted(x, imputations=8)
    p = fit.probability
    assert p[0, 0] < 0.95 and p[1:, 0].max() < 0.5 and np.mean(above) > 1.5 * p[1:, 0].mean()
    (missing,) = [finding for finding in fit.findings if finding.kind == "missing"]
    assert missing.columns == ("x1",) and "of x1, seen in less than half" in missing.remedy
    assert "133 of 600 cells" in missing.message and "drawn 8 times by each chain" in missing.message


def test_a_variable_that_is_seldom_seen_is_found_as_a_cause(tmp_path):
    rng = np.random.default_rng(0)
    x = np.zeros((210, 3))
    for t in range(1, 210):
        x[t] = [0.6 * x[t - 1, 0], 0.8 * x[t - 1, 0], 0.5 * x[t - 1, 2]] + rng.normal(size=3) * 0.7
    x[np.arange(210) % 3 > 0, 0] = np.nan
    table = pd.DataFrame(x, columns=["gdp", "sales", "rain"])
    table["month"] = pd.date_range("2000-01-01", periods=210, freq="MS")
    fit = fitted(table, time="month", imputations=6)
    p = ps.edge_prob(fit.edge_posterior(), "time")
    assert p.loc["sales", "gdp"] > 0.95 and p.loc["rain", "gdp"] < 0.5 and p.loc["rain", "rain"] > 0.95
    assert fit.filled.shape == (5, 140) and fit.draws.shape == (2, 500, 3, 3)
    ahead = fit.forecast(3, num_draws=50)
    assert np.isfinite(ahead).all() and ahead.sizes["draw"] == 50
    fit.save(tmp_path / "fit.pt")
    again = ps.load(tmp_path / "fit.pt").with_data(table)
    np.testing.assert_array_equal(again.forecast(3, num_draws=50), ahead)
    first, second = (fitted(x[:90], imputations=2, sampler_steps=50).by_chain for _ in range(2))
    np.testing.assert_array_equal(first, second)


@pytest.mark.slow
def test_probabilities_are_fair_where_a_variable_is_seen_every_third_step():
    p, truth = [], []
    for seed in range(1000, 1012):
        x, graph = system(seed)
        p.append(fitted(x, seed=seed).probability)
        truth.append(graph)
    p, truth = np.array(p), np.array(truth)
    assert not (p >= 0.95)[~truth].sum() > 1
    for edges in (np.s_[:, 1:, 0], np.s_[:, 0]):  # from it and into it: the sum of probabilities, and edges
        expected, spread = p[edges].sum(), np.sqrt((p[edges] * (1 - p[edges])).sum())
        assert abs(truth[edges].sum() - expected) < 3 * spread


def test_too_few_cells_of_a_variable_are_said():
    x = np.random.default_rng(0).normal(size=(90, 2))
    x[np.arange(90) % 6 > 0, 0] = np.nan
    with pytest.raises(ValueError, match=r"X: column 'x1' was seen in 14 of 89 steps, wanted at least 20"):
        fitted(x)


def test_steps_are_those_with_their_whole_past_in_one_piece():
    """Many short series, one long and one with a gap: beside joins by id and time."""
    rng = np.random.default_rng(0)
    lengths = {"long": 60, "gap": 25, **{f"s{k}": int(rng.integers(2, 6)) for k in range(12)}}
    rows = [(who, day) for who, n in lengths.items() for day in range(n)]
    table = pd.DataFrame(rows, columns=["who", "day"])
    table = table[~((table["who"] == "gap") & table["day"].isin([9, 10, 17]))]
    table[["a", "b"]] = rng.normal(size=(len(table), 2))
    table.loc[table["who"] == "s3", "a"] = np.nan
    data = as_sequences(table.sample(frac=1, random_state=0), id="who", time="day", lag=1)
    values = imputed(data, rng)
    for lags in (1, 2, 3):
        wanted = table
        for back in range(1, lags + 1):
            before = table[["who", "day", "a", "b"]].assign(day=table["day"] + back)
            wanted = wanted.merge(before, on=["who", "day"], suffixes=("", f"_{back}"))
        steps = steps_of(data, values, lags)
        assert len(steps.targets) == len(wanted)
        where = [data.sequence_names[s] for s in steps.at[:, 0]], steps.at[:, 1]
        keys = pd.DataFrame({"who": where[0], "day": data.time[steps.at[:, 0], steps.at[:, 1]].astype(int)})
        wanted = keys.merge(wanted, on=["who", "day"], how="left")
        columns = [f"{name}_{back}" for back in range(1, lags + 1) for name in ("a", "b")]
        inputs = steps.inputs * np.tile(data.scale, lags) + np.tile(data.centre, lags)
        known = wanted[columns].notna().to_numpy()
        np.testing.assert_allclose(inputs[known], wanted[columns].to_numpy()[known])
    assert cells_to_fill(data).sum() == lengths["s3"]


def test_a_gap_in_one_series_is_no_lag():
    """What would be an edge across the gaps only."""
    rng = np.random.default_rng(0)
    day = np.arange(400) + 2 * (np.arange(400) // 4)  # four days, then a weekend
    x = rng.normal(size=(400, 2))
    first = np.arange(400) % 4 == 0
    x[1:, 1] += np.where(first[1:], 3 * x[:-1, 0], 0.0)
    table = pd.DataFrame(x, columns=["a", "b"]).assign(day=day)
    in_pieces, as_one = fitted(table, time="day"), fitted(table.drop(columns="day"))
    assert in_pieces.settings["steps"] == 300 and as_one.settings["steps"] == 399
    assert in_pieces.probability[1, 0] < 0.5 and as_one.probability[1, 0] > 0.95
    assert any("unlinked by gaps" in warning for warning in in_pieces.warnings)
