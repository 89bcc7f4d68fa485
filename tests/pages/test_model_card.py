"""The model card: its hash is that of the data, its figures are those of the fit, its call makes it again."""

from __future__ import annotations

import hashlib
from importlib.metadata import version
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

import pyro_sparse as ps
from pyro_sparse.inference.table import graph_restarts, linear_maximum
from pyro_sparse.pages.model_card import model_card
from tests._fake_fit import fake_fit
from tests._tasks import quick_fit, tasks_on_latents

pytestmark = pytest.mark.usefixtures("hurried_module")

SMALL = {"restarts": 2, "progress": False}


@pytest.fixture(scope="module")
def table():
    x = fake_fit(n_features=6, n_factors=2, n_active=2).sample(60)
    x[3, 1] = x[7, 2] = np.nan
    return pd.DataFrame(x, columns=list("abcdef"))


@pytest.fixture(scope="module")
def fit(table):
    prior = ps.priors.SpikeSlabLasso(lambda0=50.0, a=2.0)
    model = ps.models.SparseDecoder(n_factors=2, decoder="linear", prior=prior)
    return ps.fit(model, table, steps=60, seed=3, **SMALL)


def card_of(fit, X=None):
    card = model_card(fit, fit.edge_posterior("score"), 0.1, [("rows", "60")], X)
    facts = {key: value for section in card["sections"] for key, value in section["facts"]}
    return card, facts


def test_the_hash_and_the_missing_cells_are_those_of_the_data(fit, table):
    _, facts = card_of(fit, table)
    digest = hashlib.sha256(np.ascontiguousarray(table.to_numpy(), dtype="<f8").tobytes()).hexdigest()
    assert facts["SHA-256 of the cells"].startswith(digest)
    assert facts["missing cells"] == f"{100 * 2 / 360:.2g} %"
    changed = table.copy()
    changed.iloc[0, 0] += 1e-12
    assert card_of(fit, changed)[1]["SHA-256 of the cells"] != facts["SHA-256 of the cells"]


def test_without_the_data_it_says_what_it_can(fit, table, tmp_path):
    _, facts = card_of(fit)
    assert facts["missing cells"] == f"{100 * 2 / 360:.2g} %" and "SHA-256 of the cells" not in facts
    fit.save(tmp_path / "fit.pt")
    _, facts = card_of(ps.load(tmp_path / "fit.pt"))
    assert "loaded without its data" in facts["missing cells"]


def test_it_names_the_prior_with_its_parameters_the_likelihood_and_the_seed(fit):
    card, facts = card_of(fit)
    assert facts["prior of the weights"].startswith("SpikeSlabLasso(") and "lambda0=50.0" in str(facts)
    assert facts["likelihood"] == "normal" and facts["seed"] == "3" and facts["training steps"] == "60"
    rates = [float(value) for value in facts["share of edges of each factor, as fitted"].split(", ")]
    np.testing.assert_allclose(rates, fit.eta[fit.best], atol=0.006)
    assert dict(card["settings"])["seed"] == "3" and facts["torch"] == version("torch")


def test_the_call_makes_the_same_fit(fit, table):
    card, _ = card_of(fit, table)
    assert "steps=60" in card["code"] and "batch_size" not in card["code"] and card["beside"] == []
    again = {"X": table}
    exec(card["code"].replace("seed=3", "seed=3, progress=False"), again)
    np.testing.assert_array_equal(again["fit"].weights, fit.weights)


@pytest.mark.parametrize("likelihood", ["normal", "bernoulli"])
def test_the_call_makes_the_same_fit_where_restarts_are_trained_for_fewer_steps(monkeypatch, likelihood):
    for module in (graph_restarts, linear_maximum):
        monkeypatch.setattr(module, "LEAST_STEPS", 30)
    x = np.random.default_rng(1000).normal(size=(60, 6)) + np.random.default_rng(0).normal(size=(60, 1))
    cells = x if likelihood == "normal" else (x > 0).astype(float)
    model = ps.models.SparseDecoder(n_factors=2, decoder="linear", likelihood=likelihood)
    shorter = {"steps_to_graphs": 20, "steps_to_compare": 20}
    fit = ps.fit(model, cells, steps=40, seed=3, **shorter, **SMALL)
    assert min(fit.settings["steps_made"]) == 20 and fit.settings["steps"] == 40
    again = {"X": cells}
    exec(card_of(fit)[0]["code"].replace("seed=3", "seed=3, progress=False"), again)
    assert again["fit"].settings["steps_made"] == fit.settings["steps_made"]
    np.testing.assert_array_equal(again["fit"].weights, fit.weights)


def test_the_call_of_tasks_makes_the_same_fit():
    x, y, *_ = tasks_on_latents(t=6, k=2, g=3)
    fit = quick_fit(x, y, n_latents=2, restarts=2, steps=10, sparse_steps=5)
    card = model_card(fit, fit.edge_posterior(), 0.1, [])
    again = {"X": x, "y": y}
    exec(card["code"].replace("seed=", "progress=False, seed="), again)
    np.testing.assert_array_equal(again["fit"].weights, fit.weights)


def test_what_the_call_leaves_out_is_said(table):
    with_site = table.assign(site=np.repeat(["north", "south"], 30)).fillna(0.0)
    model = ps.models.SparseDecoder(n_factors=1, decoder="linear")
    fit = ps.fit(model, with_site, groups="site", steps=20, **SMALL)
    assert card_of(fit, with_site)[0]["beside"] == ["the covariates and groups"]
    assert "SHA-256 of the cells" in card_of(fit, with_site)[1]


def test_a_model_of_plain_arguments_only_has_a_call(fit):
    class Mine(ps.models.SparseDecoder):
        pass

    odd = SimpleNamespace(model=Mine(n_factors=2), settings=fit.settings, n_restarts=2)
    from pyro_sparse.pages.model_card import _call

    assert _call(odd) == ("", [])
    anchored = ps.models.SparseDecoder(n_features=3, n_factors=2, anchors={0: 0, 2: 1}, forbidden=[(1, 0)])
    odd = SimpleNamespace(model=anchored, settings=fit.settings, n_restarts=2)
    code, _ = _call(odd)
    made = {}
    exec(code.partition("fit =")[0], made)
    assert made["model"]._arguments == anchored._arguments
