"""The page of a program says what its table, its posterior and its certificate say."""

from __future__ import annotations

import numpy as np
import pyro
import pyro.distributions as dist
import pytest
from scipy import stats

import pyro_sparse as ps
from pyro_sparse.findings.finding import findings_of
from pyro_sparse.pages.of_program import gather
from tests._programs import linear
from tests.inference.program.test_fit import simulated
from tests.pages.test_of_table import Page

pytest.importorskip("jinja2")
matplotlib = pytest.importorskip("matplotlib")
matplotlib.use("Agg")


@pytest.fixture(scope="module")
def fit():
    data = ps.Data(simulated(), feature_names=["<b>one</b>", *"abcde"])
    return ps.fit(ps.Program(linear, 2), data, restarts=2, sweeps=30, progress=False)


@pytest.fixture(scope="module")
def idata(fit):
    return fit.edge_posterior(sweeps=30, num_draws=20)


def test_the_page_has_the_edges_the_findings_and_the_certificate(fit, idata, tmp_path):
    page = Page(ps.report(fit, tmp_path / "new" / "page.html", idata=idata).read_text())
    table = ps.summary(idata)
    assert f"{table['selected'].sum()} edges of {len(table)} possible" in page.text
    assert "150 rows, 6 features, 2 factors, 2 restarts; the edges of site W of a program" in page.text
    for finding in findings_of(fit, idata):
        assert finding.message[1:] in page.text and finding.remedy in page.text
    assert idata.attrs["verdict"].splitlines()[0] in page.text
    assert "What is identified" in page.text and "<b>one</b>" in page.text  # escaped: a name, no tag
    assert len([tag for tag, _ in page.tags if tag == "img"]) == 2
    assert not [a for _, a in page.tags if a.get("src", a.get("href", "")).startswith("http")]


def test_numbers_of_other_sites_are_those_of_their_draws(fit, idata):
    sites = {site["name"]: site for site in gather(fit, idata, 0.1)["sites"]}
    assert set(sites) == {"eta", "b", "sd"} and sites["sd"]["size"] == 6
    draws = idata["posterior"]["sd"].to_numpy()
    number = sites["sd"]["numbers"][2]
    assert number["name"] == "b" and number["mean"] == pytest.approx(draws[..., 2].mean())
    low, high = stats.scoreatpercentile(draws[..., 2].ravel(), [5, 95])
    assert (number["low"], number["high"]) == pytest.approx((low, high))
    assert sites["sd"]["rhat"] == max(n["rhat"] for n in sites["sd"]["numbers"])
    kernels = dict(gather(fit, idata, 0.1)["kernels"])
    assert kernels["W"].startswith("exact") and {"rows", "eta", "b", "sd"} < set(kernels)


def test_scores_have_no_certificate_and_no_numbers(fit, tmp_path):
    scores = fit.edge_posterior("score")
    facts = gather(fit, scores, 0.1)
    assert facts["certificate"] is None and facts["sites"] == [] and len(facts["tiles"]) == 1
    page = Page(ps.report(fit, tmp_path / "page.html", idata=scores).read_text())
    assert "No chains were run" in page.text


def steps(d):
    """Which columns drive which, a row later."""
    slab, spike = dist.Normal(0.0, 0.8), dist.Normal(0.0, 0.05)
    with d.features:
        W = ps.edges("W", log_odds=-1.0, slab=slab, spike=spike, to=d.factors)
    with d.rows, d.features:
        pyro.sample("x", dist.Normal(d.before @ W.mT, 0.5), obs=d.x)


def test_a_program_without_factors_has_a_page_without_a_certificate(tmp_path):
    x = np.random.default_rng(0).standard_normal((21, 3))
    fit = ps.fit(
        ps.Program(steps, 3), ps.Data(x[1:], rows={"before": x[:-1]}), restarts=2, sweeps=20, progress=False
    )
    idata = fit.edge_posterior(sweeps=20, warm_up=5, num_draws=9)
    page = Page(fit.report(tmp_path / "page.html", idata=idata).read_text())
    assert "What is identified" not in page.text and "Which feature depends on which column" in page.text


def test_what_only_a_table_has_is_refused(fit, tmp_path):
    with pytest.raises(TypeError, match="salient_only: is for a table's fit, not for a ProgramFit"):
        ps.report(fit, tmp_path / "page.html", salient_only=True)


def test_criteria_of_a_certificate_are_whole(fit, idata):
    criteria = gather(fit, idata, 0.1)["certificate"]["criteria"]
    assert len(criteria) == 2 and all(text.count("(") == text.count(")") for text in criteria)
    assert "; ".join(criteria) == ps.identify(fit, idata=idata).theorem
