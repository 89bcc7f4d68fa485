"""The ArviZ object and the table of edges of tasks, and the certificate from them."""

from __future__ import annotations

import copy

import numpy as np
import pytest

import pyro_sparse as ps
from pyro_sparse.graphs import support_identifiability
from pyro_sparse.inference.multitask.task_notes import latent_findings
from pyro_sparse.posterior import arviz as _arviz
from tests._tasks import quick_fit, tasks_on_latents

X, Y, Z, W = tasks_on_latents()


@pytest.fixture(scope="module")
def fit():
    return quick_fit(X, Y)


@pytest.fixture(scope="module")
def idata(fit):
    return fit.edge_posterior(num_draws=300)


def test_dims_names_and_draws(fit, idata):
    edge = _arviz.get_group(idata, "posterior")["edge"]
    assert edge.dims == ("chain", "draw", "task", "latent") and edge.shape == (2, 300, 100, 3)
    assert list(edge["latent"].to_numpy()) == ["latent 1", "latent 2", "latent 3"]
    p = _arviz.get_group(idata, "edge_posterior")["restart_probability"].to_numpy()
    np.testing.assert_allclose(edge.mean("draw").to_numpy(), p, atol=0.15)
    np.testing.assert_allclose(ps.edge_prob(idata).to_numpy(), p[fit.best])
    np.testing.assert_array_equal(ps.graph_draws(idata)[0], edge.to_numpy()[fit.best])


def test_the_table(fit, idata):
    table = ps.summary(idata, fdr=0.05)
    assert len(table) == 300 and table["probability"].is_monotonic_decreasing
    first = table.iloc[0]
    draws = _arviz.get_group(idata, "posterior")["weight"].sel(task=first["task"], latent=first["latent"])
    own = draws.to_numpy()[fit.best]
    assert first["weight"] == pytest.approx(own.mean())
    assert first["hdi90_lb"] < first["weight"] < first["hdi90_ub"]
    inside = (own >= first["hdi90_lb"]) & (own <= first["hdi90_ub"])
    assert 0.85 < inside.mean() < 0.95
    # in the caller's units: the true weights are times 3, of latents of unit variance
    assert abs(first["weight"]) < 3 * np.abs(W).max() * 1.2
    selected = ps.summary(idata, fdr=0.05, selected_only=True)
    assert selected["selected"].all() and abs(len(selected) - (W != 0).sum()) <= 8
    assert table.attrs["edge_method"] == "ep" and not table.attrs["is_score"]


def test_one_draw_is_no_interval(fit):
    few = fit.adapt(X[:10], Y[:10])
    assert ps.summary(few.edge_posterior(num_draws=1))[["hdi90_lb", "hdi90_ub"]].isna().all(axis=None)


def test_a_score_says_so(fit):
    table = ps.summary(fit.edge_posterior("score", num_draws=5))
    assert "score" in table and "probability" not in table and table["hdi90_lb"].isna().all()


def test_the_certificate(fit, idata):
    certificate = ps.identify(fit, idata=idata)
    assert (certificate.table["verdict"] == "identified").all()
    assert certificate.all_identified == support_identifiability(ps.graph_draws(idata)[0]).all_disentangled
    assert certificate.assumptions.loc["3.4 tasks vary", "holds"]
    assert certificate.assumptions.loc["3.6 supports differ", "holds"]
    assert "rank 3 of 3" in str(certificate) and "latent 2: identified (P = 1.00)" in str(certificate)


@pytest.mark.slow
def test_latents_always_used_together_are_mixed():
    rng = np.random.default_rng(0)
    z = rng.normal(size=(100, 30, 2))
    y = (z * rng.normal(size=(100, 1, 2))).sum(-1)
    both = quick_fit(z @ rng.normal(size=(2, 5)), y + 0.1 * rng.normal(size=y.shape), n_latents=2)
    certificate = ps.identify(both)
    assert (certificate.table["verdict"] != "identified").all()
    assert certificate.table.loc["latent 1", "mixed_with"] == ["latent 2"]
    assert any("do not tell them apart" in note for note in both.warnings)
    assert str(certificate).startswith("Caution:")
    table = both.summary()
    assert (table["verdict"] == "open").all() and (table["probability"] > 0.95).any()
    assert "latents 1, 2: the tasks do not tell them apart" in table.attrs["note"]


def test_edges_of_a_latent_that_no_other_restart_found_are_open(fit, idata):
    assert not ps.summary(idata).groupby("latent")["verdict"].agg(lambda v: (v == "open").all()).any()
    doubted = copy.deepcopy(fit)
    similarity = fit.alignment["similarity"].copy()
    similarity[1 - fit.best, 1] = 0.5
    doubted.findings += latent_findings(similarity, np.arange(3), fit.best, fit.latent_names)
    table = ps.summary(doubted.edge_posterior(num_draws=200))
    assert (table["verdict"] == "open").groupby(table["latent"]).all().tolist() == [False, True, False]
    assert "no other restart found latent 2" in table.attrs["note"]


def test_a_certificate_from_the_posterior_alone(idata):
    certificate = ps.identify(idata)
    assert "3.4 tasks vary" not in certificate.assumptions.index and not certificate.caution
    with pytest.raises(ValueError, match="scores, not probabilities"):
        ps.identify(quick_fit(X, Y, restarts=1).edge_posterior("score", num_draws=2))


def test_a_loaded_fit_says_what_it_cannot_check(fit, idata, tmp_path):
    fit.save(tmp_path / "fit.pt")
    own, loaded = (ps.identify(f, idata=idata).assumptions for f in (fit, ps.load(tmp_path / "fit.pt")))
    assert list(loaded.index) == list(own.index) and own.loc["3.3 latents vary", "holds"]
    assert loaded.loc["3.3 latents vary", "holds"] is None
    assert loaded.loc["3.3 latents vary", "figure"] == "not checked: the fit was loaded without its data"
    for name in set(own.index) - {"3.3 latents vary"}:
        assert tuple(loaded.loc[name]) == tuple(own.loc[name])


def test_edges_of_other_tasks_are_refused(fit, idata):
    new = fit.adapt(X[:4], Y[:4], None)
    with pytest.raises(ValueError, match="idata: it is of another fit, its tasks are not this one's"):
        ps.identify(new, idata=idata)


def test_new_tasks_do_not_certify_latents_that_others_taught(fit, tmp_path):
    fit.adapt(X[:20], Y[:20], None).save(tmp_path / "fit.pt")
    new = ps.load(tmp_path / "fit.pt").adapt(X[20:40], Y[20:40], None)
    (note,) = [note for note in ps.identify(new).caution if note not in fit.warnings]
    assert note.startswith("the fit was adapted: its latents were learned from the tasks it was trained on")
