"""Salient edges: counted by hand from draws, taken by every table, refused where they mean nothing."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from scipy.stats import norm

import pyro_sparse as ps
from pyro_sparse.findings.finding import Finding
from pyro_sparse.graphs.selection import q_values
from pyro_sparse.posterior import arviz as _arviz
from pyro_sparse.posterior.salience import salience
from pyro_sparse.posterior.tables import to_arviz
from tests._fake_fit import fake_fit, fit_with_strengths

SD = 0.05


@pytest.fixture(scope="module")
def drawn():
    """Normal draws around the fit's weights, so that the probability is known; the last chain is left out."""
    fit = fake_fit(n_restarts=3)
    rng = np.random.default_rng(0)
    shape = (3, 500, *fit.weights.shape[1:])
    weight = fit.weights[:1, None] + SD * rng.normal(size=shape)
    weight[2] = 0.9  # says that everything is large, and is not kept
    idata = to_arviz(
        fit, edge=np.ones(shape, dtype=np.int8), weight=weight, probability=np.ones(shape[2:]),
        method="mcmc", is_score=False, note="", kept=[True, True, False],
        edge_stats={"if_permitted": np.full(shape[2:], np.nan)},
    )  # fmt: skip
    return idata, fit.weights[0]


def test_probability_is_that_of_the_normal_law(drawn):
    idata, centre = drawn
    found = ps.edge_prob(ps.salient_edges(idata, 0.3)).to_numpy()
    wanted = norm.sf(0.3, centre, SD) + norm.cdf(-0.3, centre, SD)
    assert np.abs(found - wanted).max() < 5 * np.sqrt(0.25 / 1000)
    assert ((wanted > 0.05) & (wanted < 0.95)).any()


def test_group_says_the_same_in_every_variable(drawn):
    idata, _ = drawn
    salient = ps.salient_edges(idata, 0.3)
    edges = _arviz.get_group(salient, "edge_posterior")
    weight = _arviz.get_group(idata, "posterior")["weight"].to_numpy()
    by_chain = (np.abs(weight) >= 0.3).mean(1)
    assert (_arviz.get_group(salient, "posterior")["edge"].to_numpy() == (np.abs(weight) >= 0.3)).all()
    assert edges["restart_probability"].to_numpy() == pytest.approx(by_chain)
    assert edges["probability"].to_numpy() == pytest.approx(by_chain[:2].mean(0))
    assert edges["gap"].to_numpy() == pytest.approx(np.abs(by_chain[0] - by_chain[1]))
    assert edges["q_value"].to_numpy() == pytest.approx(q_values(by_chain[:2].mean(0)))
    assert salient.attrs["salient_loading"] == 0.3
    assert "if_permitted" not in edges  # it is of edges, however small
    assert "0.3" in ps.summary(salient).attrs["note"]


def test_the_object_it_was_made_of_stays(drawn):
    idata, _ = drawn
    before = ps.edge_prob(idata).to_numpy().copy()
    ps.salient_edges(idata, 0.5)
    assert (ps.edge_prob(idata).to_numpy() == before).all()
    assert "salient_loading" not in idata.attrs


def test_the_larger_the_loading_the_fewer_edges(drawn):
    idata, _ = drawn
    kept = [int(ps.summary(ps.salient_edges(idata, t))["selected"].sum()) for t in (0.1, 0.6, 0.8, 0.99)]
    assert kept[0] > kept[1] > kept[2] > kept[3] == 0


def test_it_goes_to_a_file_and_back(drawn, tmp_path):
    salient = ps.salient_edges(drawn[0], 0.3)
    again = _arviz.from_netcdf(_arviz.to_netcdf(salient, tmp_path / "salient.nc"))
    assert (ps.edge_prob(again).to_numpy() == ps.edge_prob(salient).to_numpy()).all()


def test_no_certificate_is_issued_for_it(drawn):
    salient = ps.salient_edges(drawn[0], 0.3)
    words = (
        r"got salient edges, loadings of at least 0.3, .* pass the object of fit.edge_posterior\(\) itself"
    )
    with pytest.raises(ValueError, match="result: " + words):
        ps.identify(salient)
    with pytest.raises(ValueError, match="idata: " + words):
        ps.identify(fake_fit(n_restarts=3), idata=salient)


def test_a_fit_is_no_posterior():
    with pytest.raises(
        TypeError, match=r"idata: want an ArviZ object .* got FakeFit; fit.edge_posterior\(\)"
    ):
        ps.salient_edges(fake_fit())


def test_strengths_are_refused_as_scores_are():
    fit = fit_with_strengths()
    why = "every draw of a restart has the same weights; wanted draws of weights"
    with pytest.raises(ValueError, match=f"idata: it holds edges by the strengths of slopes, and {why}"):
        ps.salient_edges(fit.edge_posterior("jacobian", num_draws=5))
    with pytest.raises(ValueError, match=f"idata: it holds scores, and {why}"):
        ps.salient_edges(fit.edge_posterior("score", num_draws=5))


@pytest.mark.parametrize("loading", [0, 1, -0.3, float("nan")])
def test_loading_outside_its_range(drawn, loading):
    with pytest.raises(ValueError, match="loading: got .* strictly between 0 and 1"):
        ps.salient_edges(drawn[0], loading)


def test_scores_have_no_draws_of_weights():
    with pytest.raises(ValueError, match="holds scores"):
        ps.salient_edges(fake_fit().edge_posterior(num_draws=2))


def test_only_tables_have_a_common_scale():
    fit = fake_fit()
    none = np.zeros((6, 2, *fit.weights.shape[1:]))
    idata = to_arviz(
        fit, edge=none, weight=none, probability=none[0, 0], method="x", is_score=False, note="",
        attrs={"kind": "tasks"},
    )  # fmt: skip
    with pytest.raises(TypeError, match="posterior of tasks, wanted that of a table"):
        ps.salient_edges(idata)


@pytest.mark.parametrize("size", [0.3, 0.45])
def test_the_summary_has_it_beside_the_probability_of_the_edge(drawn, size):
    idata, _ = drawn
    table = ps.summary(idata, salient=size)
    column = f"p_salient_{size:g}"
    assert list(table.columns[:4]) == ["feature", "factor", "probability", column]
    assert table.attrs["salient"] == size
    pooled = _arviz.get_group(idata, "posterior")["weight"].to_numpy()[:2].reshape(1000, 12, 4)
    of_salient = ps.edge_prob(ps.salient_edges(idata, size))
    for feature, factor, p in table[["feature", "factor", column]].itertuples(index=False):
        own = pooled[:, int(feature.split()[1]) - 1, int(factor.split()[1]) - 1]
        assert p == sum(abs(value) >= size for value in own) / 1000
        assert p == of_salient.loc[feature, factor]
    # Of edges that are salient the probability is this number, and stands there once.
    assert column not in ps.summary(ps.salient_edges(idata, size), salient=size)
    other = ps.summary(ps.salient_edges(idata, 0.6), salient=size)
    assert (other[column] == table[column].loc[other.index]).all()
    assert column in repr(table)


def test_probabilities_are_calibrated_where_the_posterior_has_a_closed_form():
    """Regression on a known factor: of loadings with the probability p a share of p is large.

    The weight w ~ N(0, 1), rows x = w z + e, e ~ N(0, 2.25), have a normal posterior, and the loading is
    w / sqrt(w² + 2.25): at least .3 where w is at least .3 sqrt(2.25 / (1 - .09)).
    """
    rng, n, noise, size = np.random.default_rng(1000), 40, 1.5, 0.3
    fit = fake_fit(n_features=150, n_factors=4, n_restarts=2)
    shape = (150, 4)
    w, z = rng.standard_normal(shape), rng.standard_normal((n, *shape))
    x = w * z + noise * rng.standard_normal(z.shape)
    var = 1 / (1 + (z**2).sum(0) / noise**2)
    mean = var * (x * z).sum(0) / noise**2
    draws = mean + np.sqrt(var) * rng.standard_normal((2, 400, *shape))
    loading = draws / np.sqrt(draws**2 + noise**2)
    idata = to_arviz(
        fit, edge=np.ones(loading.shape, dtype=np.int8), weight=loading, probability=np.ones(shape),
        method="mcmc", is_score=False, note="", kept=[True, True],
    )  # fmt: skip
    p = salience(idata, size).to_numpy()
    least = size * noise / np.sqrt(1 - size**2)
    exact = norm.sf(least, mean, np.sqrt(var)) + norm.cdf(-least, mean, np.sqrt(var))
    assert np.abs(p - exact).max() < 5 * np.sqrt(0.25 / 800)
    is_large = np.abs(w) / np.sqrt(w**2 + noise**2) >= size
    for low, high in ((0, 0.3), (0.3, 0.7), (0.7, 1.01)):
        cell = (p >= low) & (p < high)
        error = np.sqrt((p * (1 - p))[cell].sum())
        assert cell.sum() > 40 and abs(is_large[cell].sum() - p[cell].sum()) < 4 * error


def test_counting_copies_no_draws():
    shape = (4, 200, 100, 10)
    fit = fake_fit(n_features=100, n_factors=10, n_active=10, n_restarts=4)
    idata = to_arviz(
        fit, edge=np.zeros(shape, dtype=np.int8), weight=np.full(shape, 0.5), probability=np.ones(shape[2:]),
        method="mcmc", is_score=False, note="", kept=np.ones(4, bool),
    )  # fmt: skip
    tracemalloc.start()
    try:
        assert (salience(idata) == 1).all()
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert most < 0.6 * np.prod(shape) * 8


def test_without_draws_of_loadings_there_is_no_column_and_no_other_size():
    for fit, method in ((fit_with_strengths(), "jacobian"), (fake_fit(), "score")):
        idata = fit.edge_posterior(method, num_draws=5)
        table = ps.summary(idata)
        assert not [name for name in table if name.startswith("p_salient")] and "salient" not in table.attrs
        with pytest.raises(ValueError, match="idata: it holds .* wanted draws of weights"):
            ps.summary(idata, salient=0.4)


@pytest.mark.parametrize("size", [0, 1.0, -0.3, float("nan"), "0.3"])
def test_size_outside_its_range(drawn, size):
    with pytest.raises(ValueError, match="salient: got .* strictly between 0 and 1, such as 0.3"):
        ps.summary(drawn[0], salient=size)


def test_the_verdict_is_of_large_loadings():
    """That the chains agree on which edges there are says not that they agree on which are large."""
    fit = fake_fit(n_restarts=3)
    shape = (2, 50, 12, 4)
    weight = np.full(shape, 0.5)
    weight[1, :, 0, 0] = 0.2
    idata = to_arviz(
        fit, edge=np.ones(shape, dtype=np.int8), weight=weight, probability=np.ones(shape[2:]),
        restart_probability=np.ones((2, 12, 4)), chain_restart=[0, 0], method="mcmc", is_score=False,
        note="", kept=[True, True],
    )  # fmt: skip
    assert idata.attrs["verdict"].endswith(" 0 open.\nNo edge is disputed between the chains.")
    said = ps.salient_edges(idata).attrs["verdict"].splitlines()
    assert said[0] == "Posterior probability that a standardised loading is at least 0.3 in size."
    assert said[1] == "47 of 48 loadings decided (47 large, 0 not), 1 open."
    assert said[2].startswith("1 edge is disputed between the chains")
    agreed = ps.salient_edges(idata, 0.1).attrs["verdict"]
    assert agreed.endswith("No edge is disputed between the chains.")


@pytest.mark.parametrize(
    ("empty", "said"),
    [
        ([], "."),
        ([3], "; so are 12 more, of factors that the fit left empty."),
        ([2, 3], "; so are 24 more, of factors that the fit left empty."),
    ],
)
def test_edges_that_chains_did_not_ask_for_are_counted_by_themselves(empty, said):
    """And the summary has as many open edges as the sentence says in all."""
    fit, shape = fake_fit(n_restarts=3), (2, 50, 12, 4)
    p = np.ones(shape[2:])
    p[0, 0], p[:, empty] = 0.5, 0.0
    edge = np.broadcast_to(p > 0, shape).astype(np.int8)
    names = tuple(fit.factor_names[k] for k in empty)
    findings = [Finding("empty", "chains ran over the rest", source="chains", factors=names)] if empty else []
    idata = to_arviz(
        fit, edge=edge, weight=edge * 0.5, probability=p, restart_probability=np.stack([p, p]),
        chain_restart=[0, 0], method="mcmc", is_score=False, note="", kept=[True, True], findings=findings,
    )  # fmt: skip
    n, left = 12 * (4 - len(empty)), 12 * len(empty)
    first = idata.attrs["verdict"].splitlines()[0]
    assert first == f"{n - 1} of {n} edges decided ({n - 1} present, 0 absent), 1 open{said}"
    assert (ps.summary(idata)["verdict"] == "open").sum() == 1 + left
    large = ps.salient_edges(idata)
    assert large.attrs["verdict"].splitlines()[1] == (
        f"{n} of {n} loadings decided ({n} large, 0 not), 0 open{said}"
    )
    assert (ps.summary(large)["verdict"] == "open").sum() == left


@pytest.mark.slow
def test_chains_agree_with_the_bootstrap_of_factor_analysis():
    """One factor, columns in units of their own: P(|loading| >= .3) beside the share of 200 resampled tables
    whose loading, by maximum likelihood, is as large."""
    from sklearn.decomposition import FactorAnalysis

    rng, n = np.random.default_rng(1000), 500
    truth = np.array([0.75, 0.65, 0.55, 0.36, 0.3, 0.24])
    z = rng.standard_normal(n)
    x = np.outer(z, truth) + np.sqrt(1 - truth**2) * rng.standard_normal((n, 6))
    x = x * [1, 10, 0.1, 3, 100, 0.01] + 5
    model = ps.models.SparseDecoder(n_factors=1, decoder="linear")
    fit = ps.fit(model, x, restarts=2, steps=1500, seed=0, progress=False)
    table = ps.summary(fit.edge_posterior(sweeps=400, warm_up=100)).set_index("feature")
    resampled = []
    for _ in range(200):
        rows = x[rng.integers(0, n, n)]
        standard = (rows - rows.mean(0)) / rows.std(0)
        resampled.append(np.abs(FactorAnalysis(1, tol=1e-6).fit(standard).components_[0]))
    share = (np.array(resampled) >= 0.3).mean(0)
    assert ((share > 0.1) & (share < 0.9)).sum() >= 3
    assert np.abs(table.loc[fit.feature_names, "p_salient_0.3"] - share).max() < 0.12


def weighed(weights):
    """Of one edge: chains that count differently and have loadings of .2, .4, .6 and so on, spread by .05."""
    fit, n = fake_fit(), len(weights)
    shape = (n, 100, *fit.weights.shape[1:])
    loading = np.zeros(shape)
    spread = np.linspace(-0.05, 0.05, 100)
    loading[..., 0, 0] = 0.2 * np.arange(1, n + 1)[:, None] + spread
    every = np.full((n, *shape[2:]), 0.5)
    return to_arviz(
        fit, edge=loading != 0, weight=loading, probability=every[0], restart_probability=every,
        chain_restart=np.zeros(n, int), kept=np.ones(n, bool), method="mcmc", is_score=False, note="a fake",
        chain_stats={"pool_weight": np.array(weights)},
    )  # fmt: skip


def first_edge(idata):
    table, fit = ps.summary(idata), fake_fit()
    return table[(table.feature == fit.feature_names[0]) & (table.factor == fit.factor_names[0])].iloc[0]


def test_chains_count_as_they_do_in_probabilities():
    """A chain of another graph is kept to be compared with: it decides neither sizes nor intervals."""
    light = weighed([0.01, 0.98, 0.01])
    assert float(salience(light, 0.5)[0, 0]) == pytest.approx(0.01)
    edge = first_edge(light)
    low, high = edge["hdi90_lb"], edge["hdi90_ub"]
    assert 0.35 <= low < high <= 0.45
    alike = first_edge(weighed([1 / 3] * 3))
    assert alike["hdi90_ub"] - alike["hdi90_lb"] > 0.35
    np.testing.assert_allclose(salience(weighed([0.5, 0.0, 0.5]), 0.5)[0, 0], 0.5)
