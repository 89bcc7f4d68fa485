"""Edge posteriors of programs: truth, agreement with the special chains and with NUTS, and what is said."""

from __future__ import annotations

import copy

import numpy as np
import pandas as pd
import pyro
import pyro.distributions as dist
import pytest
import torch
from pyro.infer import MCMC, NUTS
from scipy.special import expit
from scipy.stats import norm

import pyro_sparse as ps
from pyro_sparse.certificates.table import criteria_of
from pyro_sparse.findings.finding import findings_of, found_by_one_restart
from pyro_sparse.graphs.alignment import similarity
from pyro_sparse.inference.edges.program import sampler
from pyro_sparse.inference.edges.program.model_program import model_program
from pyro_sparse.inference.edges.program.sampler import run_program
from pyro_sparse.inference.program.recorded import RecordedDensity
from pyro_sparse.inference.training.restarts import pick
from pyro_sparse.posterior.draws import MOST_DRAWS, graph_draws, pooled
from tests.inference.program.test_fit import WEIGHT, fit_of_program, simulated


@pytest.fixture(scope="module")
def fit():
    return fit_of_program()


@pytest.fixture(scope="module")
def idata(fit):
    return fit.edge_posterior(sweeps=120)


@pytest.mark.slow
def test_true_edges_are_present_and_others_are_not(fit, idata):
    p = ps.edge_prob(idata).to_numpy()
    order = [0, 1] if p[0, 0] > p[0, 1] else [1, 0]
    assert (p[:, order][WEIGHT != 0] > 0.95).all() and (p[:, order][WEIGHT == 0] < 0.95).all()
    table = ps.summary(idata)
    assert (table["verdict"] == "present").sum() == 6 and "p_salient_0.3" not in table


@pytest.mark.slow
def test_a_factor_that_the_fit_left_empty_gets_the_frame_that_chains_agree_on(fit):
    emptied = copy.copy(fit)
    emptied.weights, emptied._edges = fit.weights.copy(), {}
    emptied.weights[..., 1] = 0.0
    idata = emptied.edge_posterior(sweeps=150)
    mean = idata["posterior"]["weight"].to_numpy().mean((0, 1))
    other = np.abs(fit.weights[fit.best][:, 1]) > 0.4
    assert (np.abs(mean[other, 1]) > 0.4).all() and (np.abs(mean[~other, 1]) < 0.3).all()
    assert not [finding for finding in findings_of(idata=idata) if finding.kind in ("axes", "chains")]


@pytest.mark.slow
def test_factors_keep_apart_where_the_fit_has_their_sum_and_difference(fit):
    mixed = copy.copy(fit)
    mixed.weights, mixed._edges = fit.weights @ np.array([[1.0, 1.0], [1.0, -1.0]]) * np.sqrt(0.5), {}
    p = ps.edge_prob(mixed.edge_posterior(sweeps=120)).to_numpy()
    order = [0, 1] if p[0, 0] > p[0, 1] else [1, 0]
    assert (p[:, order][WEIGHT != 0] > 0.95).all() and (p[:, order][WEIGHT == 0] < 0.95).all()


@pytest.mark.slow
def test_every_site_outside_of_the_rows_has_draws_and_factors_have_scores(fit, idata):
    posterior, scores = idata["posterior"], idata["factor_scores"]
    assert {"edge", "weight", "eta", "b", "sd"} <= set(posterior.data_vars)
    assert posterior["eta"].dims == ("chain", "draw", "factor")
    assert posterior["b"].dims == ("chain", "draw", "feature") and scores["z"].dims == ("row", "factor")
    regression = np.linalg.lstsq(scores["z"].to_numpy(), simulated() - simulated().mean(0), rcond=None)[0]
    np.testing.assert_allclose(regression.T, fit.weights[fit.best], atol=0.2)


@pytest.mark.slow
def test_the_verdict_counts_and_the_kernels_are_named(idata):
    assert (
        idata.attrs["verdict"].splitlines()[0].startswith(("6 of 12", "7 of 12", "8 of 12", "9 of 12", "1"))
    )
    assert "W: exact" in idata.attrs["kernels"] and int(idata.attrs["is_score"]) == 0


@pytest.mark.slow
def test_a_seed_gives_the_same_bits(fit):
    one, two = (fit.edge_posterior(seed=3, sweeps=12, warm_up=2) for _ in range(2))
    np.testing.assert_array_equal(ps.edge_prob(one), ps.edge_prob(two))


@pytest.mark.slow
def test_the_fits_doubt_shrinks_to_the_factors_that_chains_from_other_axes_did_not_come_back_to(
    fit, monkeypatch
):
    """Chains that began at a restart began with its weights, and are evidence for what it has not."""
    asked = {}

    def first(loading, began, fitted, pool):
        asked.update(loading=loading, began=began, fitted=fitted, pool=pool)
        return np.array([True, False])

    monkeypatch.setattr(sampler, "came_back", first)
    doubted = copy.copy(fit)
    doubted.findings = [found_by_one_restart(fit.factor_names, "fit more")]
    idata = doubted.edge_posterior(sweeps=30, warm_up=10)
    turned = idata["sample_stats"]["turned"].to_numpy()
    assert turned.any() and not turned.all()
    restarts = idata["sample_stats"]["restart"].to_numpy()
    np.testing.assert_array_equal(asked["began"][~turned], fit.weights[restarts[~turned]])
    assert not np.allclose(asked["began"][turned], fit.weights[restarts[turned]], atol=0.05)
    assert asked["loading"].shape == (len(turned), *WEIGHT.shape) and asked["fitted"].shape == WEIGHT.shape
    left, gone = (finding for finding in findings_of(idata=idata) if finding.kind == "unconfirmed")
    assert left.is_doubt and left.factors == ("factor 2",)
    assert not gone.is_doubt and gone.factors == ("factor 1",)
    verdict = idata.attrs["verdict"].splitlines()
    assert [line for line in verdict if "restart" in line] == ["No other restart found factor 2: fit more."]


@pytest.mark.slow
def test_scores_are_called_scores(fit):
    idata = fit.edge_posterior("score")
    assert int(idata.attrs["is_score"]) == 1 and (ps.summary(idata)["verdict"] == "open").all()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"chains": 1}, "chains"),
        ({"sweeps": 5}, "sweeps"),
        ({"sweeps": 30, "warm_up": 25}, "warm_up: leaves 5 of sweeps=30"),
        ({"max_rows": 9}, "max_rows"),
    ],
)
def test_a_slip_is_said_before_the_work(fit, options, words):
    with pytest.raises((ValueError, TypeError), match=words):
        fit.edge_posterior("mcmc", **options)
    with pytest.raises(ValueError, match="method: want one of"):
        fit.edge_posterior("polish")


@pytest.mark.slow
def test_what_needs_loadings_says_that_a_program_has_none(idata):
    with pytest.raises(ValueError, match="units of the program"):
        ps.salient_edges(idata)


@pytest.mark.slow
def test_a_certificate_asks_anchors_and_zeros_whatever_a_programs_features_do(fit, idata):
    certificate = ps.identify(fit, idata=idata)
    draws = pooled(graph_draws(idata), MOST_DRAWS)
    criteria = criteria_of(draws, 1.0).alone
    assert list(certificate.criteria) == list(criteria) == ["anchors", "zeros"]
    for name, alone in criteria.items():
        np.testing.assert_array_equal(certificate.criteria[name], alone.mean(0))
    assert certificate.assumptions.at["enough nonlinearity", "holds"] is None
    assert any("features do with its factors" in sentence for sentence in certificate.caution)
    pd.testing.assert_frame_equal(
        ps.identify(idata).table[["probability"]], certificate.table[["probability"]]
    )


def mechanism(d):
    """Which columns drive which, of rows and the ones before them."""
    with d.features:
        W = ps.edges(
            "W", log_odds=-1.0, slab=dist.Normal(0.0, 0.8), spike=dist.Normal(0.0, 0.05), to=d.factors
        )
    with d.rows, d.features:
        pyro.sample("x", dist.Normal(d.before @ W.mT, 0.5), obs=d.x)


def test_a_program_without_factors_has_nothing_to_identify():
    x = np.random.default_rng(0).standard_normal((21, 3))
    data = ps.Data(x[1:], rows={"before": x[:-1]})
    plain = ps.fit(ps.Program(mechanism, 3), data, restarts=2, sweeps=20, progress=False)
    with pytest.raises(TypeError, match=r"without ps\.factors"):
        ps.identify(plain, idata=plain.edge_posterior(sweeps=20, warm_up=5, chains=2))


@pytest.mark.slow
def test_a_time_budget_ends_the_chains_and_the_verdict_says_so(fit):
    idata = fit.edge_posterior(sweeps=5000, warm_up=10, time_budget=0.5)
    assert idata.attrs["stopped_by"] == "time" and "time budget ended the chains" in idata.attrs["verdict"]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["normal", "bernoulli", "poisson"])
def test_edges_are_those_of_the_special_chains(kind):
    """Anchored, so that both know which factor is which; a largest difference of four Monte Carlo errors."""
    rng = np.random.default_rng(5)
    weight = (rng.random((10, 2)) < 0.4) * rng.normal(0, 0.6, (10, 2))
    weight[:2] = 0.8 * np.eye(2)
    f = rng.standard_normal((200, 2)) @ weight.T
    x = {
        "normal": f + 0.7 * rng.standard_normal(f.shape),
        "bernoulli": (rng.random(f.shape) < expit(2 * f)).astype(float),
        "poisson": rng.poisson(np.exp(0.5 * f + 0.7)).astype(float),
    }[kind]
    prior = ps.priors.SpikeSlabNormal(slab_scale=1.0, spike_scale=0.1, b=2.0)
    likelihood = ps.likelihoods.Poisson(size_factors=False) if kind == "poisson" else kind
    model = ps.models.SparseDecoder(
        10,
        2,
        decoder="linear",
        likelihood=likelihood,
        prior=prior,
        factor_cov=False,
        anchors={"x1": 0, "x2": 1},
    )
    fit = ps.fit(model, x, restarts=2, progress=False)
    special = fit.edge_posterior("mcmc", sweeps=3000, tolerance=0.0)
    reference = special["edge_posterior"]["weight"].transpose("feature", "factor").to_numpy()
    data = ps.Data(np.asarray(fit.table.x, dtype=float))
    program = model_program(pick(fit.model, [fit.best]), fit.table).program
    density = RecordedDensity(program, data, 4)
    draws = run_program(density, density.start, "W", pivot=reference, sweeps=1500, warm_up=300, num_draws=50)
    level = draws.log_marginal.mean(1)
    kept = level > level.max() - 15
    apart = np.abs(draws.prob[kept].mean(0) - ps.edge_prob(special).to_numpy())
    assert apart.mean() < 0.02 and apart.max() < 0.12


@pytest.mark.slow
def test_weights_are_those_of_nuts():
    """One factor with its sign held by a required, positive start: NUTS of Pyro on the same program."""
    rng = np.random.default_rng(1)
    x = rng.standard_normal((60, 1)) @ np.array([[0.9, 0.7, 0.15, 0.0]]) + 0.6 * rng.standard_normal((60, 4))
    slab, spike, odds = 0.8, 0.1, -0.5

    def program(d):
        with d.features:
            W = ps.edges(
                "W", log_odds=odds, slab=dist.Normal(0.0, slab), spike=dist.Normal(0.0, spike), to=d.factors
            )
        with d.rows:
            z = ps.factors("z", dist.Normal(torch.zeros(d.n_factors), 1.0))
        with d.rows, d.features:
            pyro.sample("x", dist.Normal(z @ W.mT, 0.6), obs=d.x)

    model, data = ps.Program(program, 1), ps.Data(x)
    fit = ps.fit(model, data, restarts=2, progress=False)
    p = ps.edge_prob(fit.edge_posterior(sweeps=3000)).to_numpy()[:, 0]
    pyro.set_rng_seed(0)
    mcmc = MCMC(NUTS(model), num_samples=1500, warmup_steps=400, disable_progbar=True)
    mcmc.run(data)
    w = mcmc.get_samples()["W"].numpy()[:, :, 0]
    log_odds = odds + norm.logpdf(w, 0, slab) - norm.logpdf(w, 0, spike)
    np.testing.assert_allclose(p, expit(log_odds).mean(0), atol=0.05)


@pytest.mark.slow
@pytest.mark.parametrize("warm_up", [0, 3])
def test_hardly_any_warm_up_is_no_reason_to_fail(fit, warm_up):
    idata = fit.edge_posterior(sweeps=14 + warm_up, warm_up=warm_up)
    assert np.isfinite(ps.edge_prob(idata).to_numpy()).all()


# ---- several sites of edges ------------------------------------------------------------------------------
LINEAR = np.array([[0.9, 0], [0.8, 0], [0.7, 0], [0, 0.9], [0, 0.8], [0, 0.8], [0, 0], [0, 0]])
SQUARE = np.array([[0, 0], [0, 0], [0, 0.5], [0, 0], [0, 0], [0.5, 0], [0.6, 0], [0, 0.6]])


def bowls(d):
    """Lines and bowls: each feature may have either of each factor."""
    slab, spike = dist.Normal(0.0, 0.8), dist.Normal(0.0, 0.05)
    with d.features:
        W = ps.edges("W", log_odds=-0.5, slab=slab, spike=spike, to=d.factors)
        V = ps.edges("V", log_odds=-1.0, slab=slab, spike=spike, to=d.factors)
        sd = pyro.sample("sd", dist.LogNormal(-0.5, 0.7))
    with d.rows:
        z = ps.factors("z", dist.Normal(torch.zeros(d.n_factors), 1.0))
    with d.rows, d.features:
        pyro.sample("x", dist.Normal(z @ W.mT + (z**2 - 1) @ V.mT, sd), obs=d.x)


@pytest.fixture(scope="module")
def two_sites():
    rng = np.random.default_rng(0)
    z = rng.standard_normal((250, 2))
    x = z @ LINEAR.T + (z**2 - 1) @ SQUARE.T + 0.4 * rng.standard_normal((250, 8))
    return ps.fit(ps.Program(bowls, 2), x, restarts=4, sweeps=120, progress=False)


@pytest.mark.slow
def test_each_site_of_edges_has_its_probabilities_in_one_order_of_factors(two_sites):
    of_w, of_v = (two_sites.edge_posterior(site=site, sweeps=150) for site in ("W", "V"))
    assert (of_w.attrs["site"], of_v.attrs["site"]) == ("W", "V") and "'V'" in of_v.attrs["note"]
    order = [0, 1] if ps.edge_prob(of_w).to_numpy()[0, 0] > 0.5 else [1, 0]
    for idata, true in ((of_w, LINEAR), (of_v, SQUARE)):
        p = ps.edge_prob(idata).to_numpy()[:, order]
        assert (p[true != 0] > 0.9).all() and p[true == 0].mean() < 0.3
    assert of_w["posterior"]["V"].dims == ("chain", "draw", "feature", "factor")
    np.testing.assert_allclose(  # the same chains, whichever is asked for
        of_w["posterior"]["V"].to_numpy(), of_v["posterior"]["weight"].to_numpy()
    )
    np.testing.assert_array_equal(two_sites.edge_posterior(sweeps=150).attrs["site"], "W")


@pytest.mark.slow
def test_a_site_has_weights_of_its_own_in_the_fit(two_sites):
    of_w, of_v = (sampler._fitted(two_sites, site) for site in ("W", "V"))
    np.testing.assert_array_equal(of_w, two_sites.weights[two_sites.best])
    strongest = [np.abs(similarity(of_v, SQUARE)).max(), np.abs(similarity(of_v, LINEAR)).max()]
    assert strongest[0] > 0.9 > strongest[1]


@pytest.mark.slow
def test_a_site_without_edges_is_refused_before_the_work(two_sites):
    with pytest.raises(ValueError, match="site: got 'sd', wanted one that has edges: W, V"):
        two_sites.edge_posterior(site="sd")


@pytest.mark.slow
def test_edges_to_a_factor_and_to_a_covariate_are_columns_of_one_site():
    """The recipe of docs/programs.md, on a table where each column has edges of its own."""

    def program(d):
        with d.features:
            slab, spike = dist.Normal(0.0, 0.8), dist.Normal(0.0, 0.05)
            W = ps.edges("W", log_odds=-1.0, slab=slab, spike=spike, to=d.factors)
            sd = pyro.sample("sd", dist.LogNormal(-0.5, 0.5))
        with d.rows:
            z = ps.sample("z", dist.Normal(torch.zeros(1), 1.0).to_event(1))
        both = torch.cat([z.squeeze(-2), d.dose], -1)
        with d.rows, d.features:
            pyro.sample("x", dist.Normal(both @ W.mT, sd), obs=d.x)

    rng = np.random.default_rng(1000)
    true = np.array([[1.0, 0.0], [0.8, 0.6], [0.9, 0.0], [0.0, -0.7], [0.0, 0.0]])
    dose, z = rng.standard_normal((2, 150, 1))
    x = np.hstack([z, dose]) @ true.T + 0.6 * rng.standard_normal((150, 5))
    fit = ps.fit(ps.Program(program, 2), ps.Data(x, rows={"dose": dose}), restarts=2, seed=0, progress=False)
    idata = fit.edge_posterior(sweeps=400, progress=False)
    probability = idata.edge_posterior["probability"].to_numpy()
    assert (probability[true != 0] > 0.95).all()
    assert (probability[true == 0] < 0.5).all()
    weight = idata.posterior["weight"].mean(("chain", "draw")).to_numpy()
    np.testing.assert_allclose(weight[:, 1], true[:, 1], atol=0.2)  # of the covariate, with its sign
