"""What an edge of a questionnaire is: small cross-loadings, edges under exact zeros, are none."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

import pyro_sparse as ps
from pyro_sparse.findings.finding import findings_of
from pyro_sparse.inference.edges.mcmc.diagnostics import left_out_factors

QUICK = {"restarts": 4, "steps": 1500, "seed": 0, "progress": False}
SHORT = {"sweeps": 250, "warm_up": 80, "seed": 0}
MAIN = np.kron(np.eye(3, dtype=bool), np.ones((5, 1), bool))


def items(n=1500, sd=0.05, seed=1000):
    """Three factors of five items each, correlated .25; all other loadings are small and not zero."""
    rng = np.random.default_rng(seed)
    weight = np.where(MAIN, rng.uniform(0.5, 0.8, MAIN.shape), sd * rng.standard_normal(MAIN.shape))
    cov = np.full((3, 3), 0.25) + 0.75 * np.eye(3)
    noise = np.sqrt(1 - ((weight @ cov) * weight).sum(1))
    z = rng.standard_normal((n, 3)) @ np.linalg.cholesky(cov).T
    return z @ weight.T + noise * rng.standard_normal((n, 15))


def model(n_factors=3, **settings):
    return ps.models.SparseDecoder(n_factors=n_factors, decoder="linear", **settings)


@pytest.fixture(scope="module")
def fit():
    return ps.fit(model(6), items(), **QUICK)


@pytest.fixture
def short_fit():
    return ps.fit(model(6), items(500), **(QUICK | {"steps": 500, "restarts": 2}))


def matched(p):
    """Columns in the order of the factors that they are."""
    return p[:, [int(p[5 * k : 5 * k + 5].sum(0).argmax()) for k in range(3)]]


@pytest.mark.slow
def test_cross_loadings_are_no_edges(fit):
    idata = fit.edge_posterior(edge="practical", **SHORT)
    p = idata["edge_posterior"]["probability"].values
    q = matched(p)
    assert q[MAIN].min() > 0.95 and q[~MAIN].max() < 0.5
    assert idata.attrs["edge_means"] == "practical"
    for said in ("note", "verdict"):
        assert "cross-loadings of standard deviation 0.07 do not explain" in idata.attrs[said]
    assert "unlike their prior" not in idata.attrs["verdict"]  # an edge is not what the prior says
    of_prior = fit.edge_posterior(**SHORT)["edge_posterior"]["probability"].values
    assert (matched(of_prior)[~MAIN] > 0.5).any()  # a loading of .1 is not zero, and so many rows see it


def test_chains_run_over_the_factors_that_the_fit_kept(short_fit):
    """Six were offered; chains over six split the three that there are."""
    fit = short_fit
    idata = fit.edge_posterior(edge="practical", **SHORT)
    assert (fit.weights[fit.best] != 0).any(0).sum() == 3
    assert not idata["edge_posterior"]["probability"].values[:, 3:].any()
    weight = idata["posterior"]["weight"].values
    assert weight.shape[-1] == 6 and not weight[..., 3:].any()
    level = idata["sample_stats"]["log_joint"].values
    assert np.ptp(level) < 15 and "in other axes" in idata.attrs["note"]
    [empty] = [finding for finding in findings_of(idata=idata) if finding.kind == "empty"]
    assert empty.factors == ("factor 4", "factor 5", "factor 6") and not empty.remedy
    assert "ran over the 3 factors" in empty.message and "factor 4, factor 5 and factor 6" in empty.message
    assert empty.message in idata.attrs["verdict"]
    # nobody asked for edges of these, so that none of them is called absent
    verdicts = ps.summary(idata).groupby("factor")["verdict"].unique()
    assert verdicts["factor 4"].tolist() == verdicts["factor 6"].tolist() == ["open"]
    assert "absent" in verdicts["factor 1"]


def test_what_is_said_of_factors_that_chains_left_out():
    fit = SimpleNamespace(factor_names=[f"factor {k + 1}" for k in range(6)])
    assert left_out_factors(fit, None) == left_out_factors(fit, 6) == []
    [one], [many] = left_out_factors(fit, 5), left_out_factors(fit, 1)
    assert "edges of factor 6, which" in one.message and 'edge_posterior("program")' in one.remedy
    assert "over the 1 factor that" in many.message and "edges of 5 factors, which" in many.message


@pytest.mark.slow
@pytest.mark.parametrize(
    "settings, options, message",
    [
        ({"likelihood": ps.likelihoods.Normal(shared=True)}, {}, "these columns are as they came; wanted"),
        ({"decoder": "mlp"}, {}, "which curves do not have; wanted a linear decoder"),
        ({}, {"learn_scales": True}, "says what an edge is, and learn_scales learns it"),
        ({}, {"edge": "nonzero"}, "want 'prior' or 'practical', got 'nonzero'"),
    ],
)
def test_where_it_cannot_be_asked_it_is_refused(settings, options, message):
    x = items(60)
    made = ps.models.SparseDecoder(n_factors=2, **{"decoder": "linear", **settings})
    short = ps.fit(made, x, restarts=1, steps=5, progress=False)
    with pytest.raises(ValueError, match=message):
        short.edge_posterior(**{"edge": "practical", **options})


@pytest.mark.slow
def test_the_note_says_in_numbers_what_an_edge_of_the_prior_is(fit):
    rate, slab = float(fit.model.prior.lambda0), float(fit.model.prior.lambda1)
    note = fit.edge_posterior(**SHORT).attrs["note"]
    assert f"(edge='prior': Laplace, mean size {1 / slab:.2g} against {1 / rate:.2g})" in note
    assert "edge='prior'" in fit.edge_posterior(learn_scales=True, **SHORT).attrs["note"]
    normal = ps.fit(model(2, prior="spike_slab_normal"), items(60), restarts=1, steps=5, progress=False)
    note = normal.edge_posterior(sweeps=30, warm_up=10).attrs["note"]
    assert "(edge='prior': normal, standard deviation" in note
