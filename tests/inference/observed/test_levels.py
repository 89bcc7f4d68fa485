"""Levels of sequences: no edge by what tells sequences apart, a finding where they differ, forecasts."""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
import pytest

import pyro_sparse as ps
from pyro_sparse.data.frame_covariates import as_designed_sequences
from pyro_sparse.inference.observed.levels import levels_of_sequences
from pyro_sparse.inference.observed.steps import observed_values


def panel(n_sequences=12, n_frames=30, level=0.0, seed=0, curved=False):
    """a drives b and nothing c; sequences are high or low in all three."""
    rng = np.random.default_rng([seed, n_sequences])
    walks = []
    for k in range(n_sequences):
        levels, x = level * rng.normal() * rng.uniform(0.8, 1.2, 3), np.zeros((n_frames + 50, 3))
        for t in range(1, len(x)):
            past = np.sin(2 * x[t - 1]) if curved else 0.5 * x[t - 1]
            x[t] = past + [0, 0.5 * x[t - 1, 0], 0] + levels + rng.normal(size=3)
        walks.append(pd.DataFrame(x[50:], columns=list("abc")).assign(firm=k, year=range(n_frames)))
    return pd.concat(walks, ignore_index=True)


def fitted(table, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = ps.models.ObservedTransition(lags=1)
        return ps.fit(model, table, id="firm", time="year", progress=False, **options)


def findings_of(table, **options):
    sequences = as_designed_sequences(table, id="firm", time="year", **options)
    values = np.nan_to_num(observed_values(sequences))
    return levels_of_sequences(sequences, values, 1, seed=0)


@pytest.fixture(scope="module")
def levels():
    return panel(level=2.0)


@pytest.fixture(scope="module")
def net(levels, hurried_module):
    return fitted(levels, covariates=["firm"])


def test_levels_make_edges_and_are_found(levels):
    fit = fitted(levels)
    p = ps.edge_prob(fit.edge_posterior(), "time").to_numpy()
    true = np.eye(3, dtype=bool)
    true[1, 0] = True
    assert (p[~true] > 0.95).sum() >= 2
    [finding] = [finding for finding in fit.findings if finding.kind == "sequences"]
    assert {"b", "c"} <= set(finding.columns) and finding.severity == "doubt" and finding.size > 0.05
    assert "covariates=['firm']" in finding.remedy
    summary = ps.summary(fit.edge_posterior(), include_doubted=True)
    assert set(summary["verdict"]) == {"open"}


def test_a_level_of_each_sequence_takes_them_out(levels, net):
    p = ps.edge_prob(net.edge_posterior(), "time")
    assert p.loc["b", "a"] > 0.95 and p.loc["a", "b"] < 0.3 and p.loc["c", "a"] < 0.3
    assert not [finding for finding in net.findings if finding.kind == "sequences"]
    assert net.settings["covariates"] == ["firm"]
    assert len(net.sequences.design.covariates.terms[0].levels) == 12  # numbers of sequences are names


@pytest.mark.parametrize("naming", ["text", "index", "rows"])
def test_how_sequences_are_called_does_not_matter(levels, net, naming):
    table = {
        "text": levels.assign(firm=levels["firm"].map("no. {:02d}".format)),
        "index": levels.set_index(["firm", "year"]),
        "rows": levels.sample(frac=1, random_state=0),
    }[naming]
    again = fitted(table, covariates="firm")
    np.testing.assert_allclose(again.probability, net.probability, atol=1e-12)


def test_forecasts_know_whose_frames_they_continue(levels, net):
    ahead = net.forecast(25, num_draws=60).mean("draw")[:, -1].to_numpy()
    means = levels.groupby("firm")[list("abc")].mean().to_numpy()
    assert all(np.corrcoef(ahead[:, j], means[:, j])[0, 1] > 0.98 for j in range(3))
    one = net.forecast(25, levels[levels["firm"] == 7], num_draws=60).mean("draw")[0, -1].to_numpy()
    np.testing.assert_allclose(one, ahead[7], atol=1.5)
    with pytest.raises(ValueError, match="'firm' is '99' in row 0, a level that the fit has not seen"):
        net.forecast(2, levels[levels["firm"] == 7].assign(firm=99))


def test_other_covariates_beside_them(levels):
    rng = np.random.default_rng(0)
    rate = rng.normal(size=len(levels))
    table = levels.assign(rate=rate, c=levels["c"] + 2 * rate)
    fit = fitted(table, covariates=["firm", "rate"])
    ahead = pd.DataFrame({"firm": np.repeat(range(12), 2), "rate": np.tile([0.0, 3.0], 12)})
    both = fit.forecast(2, future_covariates=ahead, num_draws=40)
    np.testing.assert_array_equal(fit.forecast(2, future_covariates=ahead[["rate"]], num_draws=40), both)
    jump = both.sel(feature="c").mean(["draw", "sequence"]).to_numpy()
    assert jump[1] - jump[0] > 4
    with pytest.raises(ValueError, match="future_covariates: .*'rate' is not there"):
        fit.forecast(2, future_covariates=ahead[["firm"]])


@pytest.mark.parametrize("shape", [(60, 8), (40, 15), (8, 45), (3, 150)])
@pytest.mark.parametrize("curved", [False, True])
def test_sequences_alike_have_none(shape, curved):
    """Means of short sequences explain much by chance alone."""
    named = [findings_of(panel(*shape, seed=seed, curved=curved)) for seed in range(4)]
    assert sum(map(len, named)) <= 1


def test_one_sequence_has_none():
    assert findings_of(panel(1, 100)) == []
