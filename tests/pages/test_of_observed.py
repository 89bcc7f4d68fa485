"""The page of variables that drive each other themselves says what summary, fit and forecast say."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import pyro_sparse as ps
from pyro_sparse.findings.finding import Finding
from pyro_sparse.pages.of_observed import gather
from tests.pages.test_of_table import Page

pytest.importorskip("jinja2")
matplotlib = pytest.importorskip("matplotlib")
matplotlib.use("Agg")


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(0)
    x = np.zeros((150, 3))
    for t in range(1, 150):
        x[t] = [0.5 * x[t - 1, 0], 0.9 * x[t - 1, 0], 0.0] + rng.normal(size=3)
    x[:, 2] += x[:, 1]  # within a step
    return pd.DataFrame(x, columns=["<i>a</i>", "b", "c"]).assign(when=range(150))


def fitted(table, season=4, **options):
    model = ps.models.ObservedTransition(lags=2, trend="linear", season=season)
    return ps.fit(model, table, time="when", progress=False, **options)


@pytest.fixture(scope="module")
def fit(table, hurried_module):
    return fitted(table)


def test_the_page_has_graph_lags_steps_and_forecasts(fit, tmp_path):
    html = ps.report(fit, tmp_path / "report.html").read_text()
    page = Page(html)
    chosen = ps.summary(fit.edge_posterior())["selected"].sum()
    assert "Which variable drives which, and when" in page.text and "<i>a</i>" in page.text
    assert f"{chosen} edges of 18 possible" in page.text
    assert "b is driven by <i>a</i> (1 step before) (probability ≥ .95)" in page.text
    assert "Always in the model, and no edges: trend and season of 4." in page.text
    assert "3 variables, 1 sequence, 150 frames; 2 lags, 2 chains" in page.text
    assert f"+{fit.noise_correlation[1, 2]:.2f}" in page.text
    assert "In the 90 % interval" in page.text and "Identified" not in page.text
    assert len([tag for tag, _ in page.tags if tag == "img"]) == 2
    links = {a["href"][1:] for tag, a in page.tags if tag == "a" and a.get("href", "").startswith("#")}
    assert links <= {a["id"] for _, a in page.tags if "id" in a}
    assert not [a for _, a in page.tags if a.get("src", a.get("href", "")).startswith("http")]
    assert "time='when'" in html.replace("&#39;", "'") and "training steps" not in page.text


def test_its_numbers_are_those_of_the_fit(fit):
    idata = fit.edge_posterior()
    facts, table = gather(fit, idata, 0.1), ps.summary(idata)
    assert {word: int(figure) for figure, word, _ in facts["tiles"][1:]} == {
        "present": 0, "absent": 0, "open": 0, **table["verdict"].value_counts(),
    }  # fmt: skip
    assert facts["n_edges"] == table["selected"].sum()
    assert [row["used"] for row in facts["lags"]] == ["in the model"] * 2 + ["not in the model"]
    assert facts["within"]["rows"][0][:2] == ("b", "c")
    scores = fit.forecast_scores(3, origins=20, num_draws=100)
    assert len(facts["forecast"]["rows"]) == len(scores) == 9
    assert facts["verdict"]["title"] == "The chains agree, with cautions"  # of the effect within a step


def test_what_it_says_of_trust(fit):
    idata = fit.edge_posterior()
    clean = replace(fit, findings=[])
    assert gather(clean, clean.edge_posterior(), 0.1)["verdict"]["level"] == "good"
    doubt = replace(fit, findings=[Finding("lags", "one more", severity="doubt", edges=(("b", "c"),))])
    assert gather(doubt, doubt.edge_posterior(), 0.1)["verdict"]["title"] == "Some edges are in doubt"
    whole = replace(fit, findings=[Finding("training", "cut short", severity="doubt")])
    assert gather(whole, whole.edge_posterior(), 0.1)["verdict"]["level"] == "poor"
    alone = replace(fit, findings=[], by_chain=fit.by_chain[:1])
    assert gather(alone, idata, 0.1)["verdict"]["title"] == "One chain only"


def test_pages_of_loaded_fits_and_of_what_is_not_known_ahead(fit, table, tmp_path):
    fit.save(tmp_path / "fit.pt")
    page = Page(ps.report(ps.load(tmp_path / "fit.pt"), tmp_path / "report.html").read_text())
    assert "None: the fit was loaded without its sequences" in page.text
    assert len([tag for tag, _ in page.tags if tag == "img"]) == 1
    heat = table.assign(heat=np.random.default_rng(1).normal(size=150))
    hot = fitted(heat, covariates=["heat"])
    html = ps.report(hot, tmp_path / "report.html").read_text()
    page = Page(html)  # scores, for which the heat is known, and no picture
    assert len([tag for tag, _ in page.tags if tag == "img"]) == 1 and "In the 90 % interval" in page.text
    assert "trend, season of 4 and heat" in page.text
    assert "covariates=['heat']" in html.replace("&#39;", "'")
    with pytest.raises(TypeError, match="groups: is for a table's fit, not for a ObservedFit"):
        ps.report(hot, tmp_path / "other.html", groups=[["b"]])
