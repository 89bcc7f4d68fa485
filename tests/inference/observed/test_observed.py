"""`ps.fit(ObservedTransition)`: lags, actions, missing cells, findings, files, errors."""

from __future__ import annotations

import warnings

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest

import pyro_sparse as ps
from pyro_sparse.inference.observed.posterior import Candidates, _shares
from pyro_sparse.inference.observed.terms import LINE, PRODUCT, terms_of
from pyro_sparse.posterior.arviz import get_group


def system(n=250, seed=0, lag=1, start=0.0):
    """a drives b by a curve at `lag`; c has its own past; the action moves c."""
    rng = np.random.default_rng(seed)
    x, act = np.zeros((n + 3, 3)), rng.integers(0, 2, n + 3)
    x[:3] = start
    for t in range(3, n + 3):
        x[t] = rng.normal(size=3) * 0.6
        x[t, 0] += 0.4 * x[t - 1, 0]
        x[t, 1] += np.tanh(2 * x[t - lag, 0])
        x[t, 2] += 0.5 * x[t - 1, 2] + act[t]
    return pd.DataFrame(x[3:], columns=["a", "b", "c"]).assign(act=act[3:], when=range(n), who="s")


pytestmark = pytest.mark.usefixtures("hurried_module")

COLUMNS = {"id": "who", "time": "when", "actions": ["act"]}


def fitted(table, model=None, **options):
    model = model or ps.models.ObservedTransition()
    return ps.fit(model, table, progress=False, **{**COLUMNS, **options})


@pytest.fixture(scope="module")
def fit(hurried_module):
    return fitted(system(lag=2))


def test_lags_are_chosen_and_edges_found(fit):
    assert fit.lags == 2
    assert fit.lag_evidence["largest"].to_numpy()[1] > 0.95 > fit.lag_evidence["largest"].to_numpy()[2]
    table = ps.summary(fit.edge_posterior())
    present = set(table.index[table["verdict"] == "present"])
    assert present == {"a, lag 1 -> a", "a, lag 2 -> b", "c, lag 1 -> c", "act -> c"}
    assert not fit.unsure and "2 lags" in repr(fit)


def test_edge_posterior_has_the_groups_of_a_transition(fit):
    idata = fit.edge_posterior()
    numbers = get_group(idata, "edge_posterior")
    assert numbers["probability_time"].dims == ("lag", "target", "source")
    assert numbers["probability_any_lag"].dims == ("target", "source")
    assert numbers["probability_action"].dims == ("target", "action")
    largest = numbers["probability_time"].max("lag")
    assert (numbers["probability_any_lag"] >= largest - 0.06).all()
    curved = numbers["curved_time"].sel(lag=2, target="b", source="a")
    assert float(curved) > 0.9 > float(numbers["curved_time"].sel(lag=1, target="c", source="c"))
    assert fit.edge_posterior() is idata
    assert "decided" in idata.attrs["verdict"]
    assert ps.edge_prob(idata, "action").loc["c", "act"] > 0.95
    ax = ps.plots.plot_transition(idata)
    assert ax.get_title("left") == "What drives which variable"
    plt.close(ax.figure)
    assert {"a, lag 2", "b"} <= set(ps.to_networkx(idata).nodes)


def test_gaussian_processes_on_parent_sets_agree(fit):
    idata = fit.edge_posterior("parent_sets", num_draws=100)
    p = get_group(idata, "edge_posterior")["probability_time"]
    assert float(p.sel(lag=2, target="b", source="a")) > 0.95 > float(p.sel(lag=1, target="b", source="a"))
    assert idata.attrs["edge_method"] == "parent_sets"


def test_one_lag_has_no_dimension():
    idata = fitted(system(n=120), ps.models.ObservedTransition(lags=1)).edge_posterior(num_draws=30)
    numbers = get_group(idata, "edge_posterior")
    assert numbers["probability_time"].dims == ("target", "source")
    assert get_group(idata, "posterior")["edge_action"].sizes["draw"] == 30


def test_a_lag_too_few_is_noticed():
    fit = fitted(system(lag=2), ps.models.ObservedTransition(lags=1))
    (doubt,) = [finding for finding in fit.findings if finding.kind == "lags"]
    assert doubt.is_doubt and "a -> b" in doubt.message and "set lags=2" in doubt.remedy
    table = ps.summary(fit.edge_posterior())
    assert set(table.loc[table["target"] == "b", "verdict"]) == {"open"}
    assert table.loc["a -> a", "verdict"] == "present"
    assert not [
        f for f in fitted(system(), ps.models.ObservedTransition(lags=1)).findings if f.kind == "lags"
    ]


def test_effects_within_a_step_are_noticed():
    table = system()
    table["b"] += 0.8 * table["a"]
    fit = fitted(table, ps.models.ObservedTransition(lags=1))
    (note,) = [finding for finding in fit.findings if finding.kind == "noise"]
    assert set(note.columns) == {"a", "b"} and not note.is_doubt
    assert fit.noise_correlation[0, 1] > 0.3 and np.allclose(np.diag(fit.noise_correlation), 1)
    assert not [f for f in fitted(system()).findings if f.kind == "noise"]


def holed(n):
    """A table with missing cells and a whole frame of them."""
    table, rng = system(n=n), np.random.default_rng(1)
    cells = table[["a", "b", "c"]].to_numpy(copy=True)
    cells[rng.random(cells.shape) < 0.15] = np.nan
    table[["a", "b", "c"]] = cells
    table.loc[50, ["a", "b", "c"]] = np.nan
    return table


def test_missing_cells_and_gaps_are_counted():
    table = holed(60)
    fit = fitted(table, ps.models.ObservedTransition(lags=1), rounds=1, imputations=3, sampler_steps=100)
    kinds = {finding.kind: finding.message for finding in fit.findings}
    assert f"{int(table[['a', 'b', 'c']].isna().sum().sum())} of 180 cells" in kinds["missing"]
    blank = table[["a", "b", "c"]].isna().all(axis=1).to_numpy()
    assert f"{(blank[1:] | blank[:-1]).sum()} of 59 steps" in kinds["gaps"]


@pytest.mark.slow
def test_missing_cells_are_drawn_as_inputs_and_left_out_as_targets():
    fit = fitted(holed(400), ps.models.ObservedTransition(lags=1))
    p = ps.edge_prob(fit.edge_posterior(), "time")
    assert p.loc["b", "a"] > 0.95 and p.loc["c", "c"] > 0.95 and p.loc["a", "b"] < 0.5


def test_imputed_cells_lie_near_what_was_hidden():
    from pyro_sparse.data.sequences import as_sequences
    from pyro_sparse.inference.observed.steps import imputed

    rng = np.random.default_rng(0)
    shared = rng.normal(size=(1, 500, 1))
    x = shared + 0.3 * rng.normal(size=(1, 500, 3))
    hidden = rng.random(x.shape) < 0.2
    sequences = as_sequences(np.where(hidden, np.nan, x))
    filled = imputed(sequences, np.random.default_rng(1)) * sequences.scale + sequences.centre
    some_seen = hidden & ~hidden.all(-1, keepdims=True)
    assert np.isnan(filled[hidden.all(-1)]).all()
    np.testing.assert_allclose(filled[~hidden], x[~hidden])
    error = (filled - x)[some_seen]
    assert 0.3 < error.std() < 0.7  # draws, not means: of noise .3 in three numbers


def test_sequences_and_gaps_do_not_run_into_each_other():
    table = system(n=300)
    table["who"] = np.repeat(["p", "q", "r"], 100)
    assert fitted(table, ps.models.ObservedTransition(lags=2)).settings["steps"] == 3 * 98
    with_gap = table.drop(index=range(40, 50))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fit = fitted(with_gap, ps.models.ObservedTransition(lags=2))
    assert fit.settings["steps"] == 3 * 98 - 10 - 2


def test_same_seed_same_bits_and_the_model_stays_as_it_is():
    model, table = ps.models.ObservedTransition(lags=1), system(n=120)
    first, second = (fitted(table, model, seed=3) for _ in range(2))
    np.testing.assert_array_equal(first.by_chain, second.by_chain)
    np.testing.assert_array_equal(first.draws, second.draws)
    assert not np.array_equal(first.draws, fitted(table, model, seed=4).draws)
    assert repr(model) == "ObservedTransition(lags=1, curves=True, products=True)"


def test_files_hold_the_posterior(fit, tmp_path):
    fit.save(tmp_path / "fit.pt")
    loaded = ps.load(tmp_path / "fit.pt")
    np.testing.assert_array_equal(loaded.by_chain, fit.by_chain)
    assert loaded.findings == fit.findings and loaded.lags == 2
    pd.testing.assert_frame_equal(loaded.lag_evidence, fit.lag_evidence)
    ours, theirs = (ps.summary(one.edge_posterior()) for one in (fit, loaded))
    pd.testing.assert_frame_equal(ours, theirs)
    assert fit.edge_posterior().attrs["fit_mark"] == loaded.edge_posterior().attrs["fit_mark"] != ""
    with pytest.raises(ValueError, match="with_data"):
        loaded.edge_posterior("parent_sets")
    again = loaded.with_data(system(lag=2), **COLUMNS)
    assert len(again.sequences) == 1
    with pytest.raises(ValueError, match="load: .* is a fit of"):
        ps.load(tmp_path / "fit.pt", ps.models.ObservedTransition(lags=1))
    content = bytearray((tmp_path / "fit.pt").read_bytes())
    content[len(content) // 2] ^= 1
    (tmp_path / "fit.pt").write_bytes(content)
    with pytest.raises(ValueError, match="checkpoint"):
        ps.load(tmp_path / "fit.pt")


def test_forbidden_edges_are_not_there():
    model = ps.models.ObservedTransition(lags=2, forbidden=[("b", "a"), ("c", "act")])
    fit = fitted(system(lag=2), model)
    p = ps.edge_prob(fit.edge_posterior(), "time")
    assert p.loc["b", "a"] == 0 and ps.edge_prob(fit.edge_posterior(), "action").loc["c", "act"] == 0


def test_what_is_wrong_is_said():
    transition = ps.models.ObservedTransition
    for options, message in (
        ({"lags": 0}, "lags"),
        ({"lags": "two"}, 'lags: got .two., wanted a whole number of at least 1, or "auto"'),
        ({"power": 0}, "power: got 0, wanted a number above 0"),
        ({"forbidden": ["ab"]}, "forbidden: got 'ab', wanted pairs"),
    ):
        with pytest.raises((ValueError, TypeError), match=message):
            transition(**options)
    with pytest.raises(TypeError, match="curves: got 1, wanted True or False"):
        transition(curves=1)
    table = system(n=60)
    with pytest.raises(ValueError, match="forbidden: .* names 'z', which is no variable"):
        fitted(table, transition(forbidden=[("z", "a")]))
    with pytest.raises(ValueError, match=r"X: has 18 step\(s\) with 2 frame\(s\) before them"):
        fitted(table[:20], transition(lags=2))
    with pytest.raises(TypeError, match="y: is for tasks"):
        ps.fit(transition(), table, "a")
    with pytest.raises(TypeError, match="unknown setting 'steps'"):
        fitted(table, steps=100)
    with pytest.raises(ValueError, match="n_jobs: the chains of an ObservedTransition"):
        fitted(table, n_jobs=2)
    with pytest.raises(ValueError, match="finite numbers"):
        fitted(table.assign(a=np.inf))


def test_what_there_is_none_of_is_said(fit, tmp_path):
    with pytest.raises(ValueError, match="method: want one of"):
        fit.edge_posterior("mcmc")
    with pytest.raises(TypeError, match="kernel"):
        fit.edge_posterior("terms", kernel="linear")
    with pytest.raises(TypeError, match="variables are measured"):
        ps.identify(fit)


@pytest.mark.parametrize("noise", ["t", "exponential"])
def test_noise_that_is_not_normal_makes_no_edges(noise):
    rng = np.random.default_rng(5)
    shocks = rng.standard_t(2, (300, 6)) if noise == "t" else rng.exponential(size=(300, 6))
    x = shocks.copy()
    for t in range(1, 300):
        x[t] += 0.5 * x[t - 1]
    p = ps.fit(ps.models.ObservedTransition(lags=1), x, progress=False).probability
    assert p[np.eye(6, dtype=bool)].min() > 0.9 and p[~np.eye(6, dtype=bool)].max() < 0.95


def with_dose(seed=0, effect=0.7):
    """The table with an action of four levels, of which the third moves b, and another that moves nothing."""
    table = system(n=400, seed=seed)
    rng = np.random.default_rng([seed, 1])
    dose, idle = rng.integers(0, 4, len(table)), rng.integers(0, 5, len(table))
    table["b"] += effect * (dose == 2)
    return table.assign(dose=np.array(["none", "low", "high", "other"])[dose], idle=idle.astype(str))


def test_an_action_of_several_levels_has_one_edge_whatever_they_are_called(tmp_path):
    table = with_dose()
    columns = {"actions": ["act", "dose", "idle"]}
    fit = fitted(table, **columns)
    assert fit.action_names == ["act", "dose", "idle"]
    p = ps.edge_prob(fit.edge_posterior(), "action")
    assert p.shape == (3, 3) and p.loc["b", "dose"] > 0.95 and p["idle"].max() < 0.5
    renamed = table.assign(dose=table["dose"].map({"none": "z", "low": "y", "high": "x", "other": "w"}))
    again = ps.edge_prob(fitted(renamed, **columns).edge_posterior(), "action")
    np.testing.assert_array_equal(again.to_numpy(), p.to_numpy())
    by_sets = ps.edge_prob(fit.edge_posterior("parent_sets", num_draws=10), "action")
    assert by_sets.shape == (3, 3) and by_sets.loc["b", "dose"] > 0.95
    fit.save(tmp_path / "fit.pt")
    loaded = ps.load(tmp_path / "fit.pt")
    np.testing.assert_array_equal(ps.edge_prob(loaded.edge_posterior(), "action").to_numpy(), p.to_numpy())
    back = loaded.with_data(table, **{**COLUMNS, **columns})
    np.testing.assert_array_equal(back.sequences.actions, fit.sequences.actions)


def test_contrasts_of_an_action_are_as_probable_together_as_the_line_of_a_number():
    rng = np.random.default_rng(0)
    candidates = Candidates(1, 1, 2, (1, 3))
    terms = terms_of(rng.normal(size=(50, 5)), True, True, np.array([0, 1, 2, 2, 2]))
    assert not ((terms.kind == PRODUCT) & (terms.parents == 2).all(1)).any()
    shares = _shares(terms, candidates)
    assert shares[terms.kind == LINE].tolist() == [1, 1, 3, 3, 3]
    pairs = terms.parents[terms.kind == PRODUCT].tolist()
    assert pairs.count([0, 1]) == 1 and pairs.count([0, 2]) == pairs.count([1, 2]) == 3
    assert shares[terms.kind == PRODUCT].tolist() == [3 if 2 in pair else 1 for pair in pairs]


def test_cells_that_are_cut_off_are_named():
    table = system(n=200)
    table.loc[[50, 90], "a"] = [80.0, -60.0]
    with pytest.warns(RuntimeWarning, match="column 'a' has 2 cells far from all others"):
        fit = fitted(table)
    cut_off, far = [f for f in fit.findings if f.kind == "cells"]
    assert far.columns == cut_off.columns == ("a",)
    assert cut_off.message.startswith("2 cells of a lie more than eight robust")
    assert not [f for f in fitted(system(n=200)).findings if f.kind == "cells"]
