"""Replicated tables: moments of the data, densities of rows, what ArviZ reads, whose parameters, refusals."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from scipy.stats import kstest, multivariate_normal

import pyro_sparse as ps
from pyro_sparse.inference.table.normal_rows import NormalState, SeenRows, parameters_of
from pyro_sparse.posterior import arviz as _arviz

pytestmark = pytest.mark.usefixtures("hurried_module")

W = np.array([[1.0, 0], [0.8, 0], [0.9, 0], [0, 1.0], [0, -0.9], [0.5, 0.7]])
C = np.array([[1.0, 0.4], [0.4, 1.0]])
QUICK = {"restarts": 1, "seed": 0, "progress": False}
az = _arviz.arviz()


def linear(likelihood="normal", n_factors=2):
    return ps.models.SparseDecoder(n_factors=n_factors, decoder="linear", likelihood=likelihood)


def rows(n, seed=0):
    rng = np.random.default_rng(seed)
    x = 10 + 3 * (rng.multivariate_normal([0, 0], C, size=n) @ W.T + 0.7 * rng.normal(size=(n, 6)))
    x[rng.random(x.shape) < 0.1] = np.nan
    x[np.isnan(x).all(1), 0] = 10.0
    return pd.DataFrame(x, [f"row {i}" for i in range(n)], list("abcdef"))


@pytest.fixture(scope="module")
def world():
    fit = ps.fit(linear(), rows(200), steps=200, n_factors_init=[2], **QUICK)
    return fit, fit.edge_posterior(sweeps=200, warm_up=80, chains=2)


def cells(idata, group="posterior_predictive"):
    return _arviz.get_group(idata, group)["x"]


# ---- rows under normal noise -------------------------------------------------------------------------------
@pytest.fixture(scope="module")
def state():
    return NormalState(W, np.linspace(0.3, 0.8, 6), C, np.array([[1.0, -1.0, 0.0, 0.5, 0.0, 2.0]]))


def table(n=60):
    rng = np.random.default_rng(7)
    mask = rng.random((n, 6)) < 0.8
    x = np.where(mask, rng.normal(size=(n, 6)) + np.arange(6), 0.0)
    return SimpleNamespace(x=x, mask=mask, per_row={"design": rng.normal(size=(n, 1))})


def test_densities_of_rows_are_those_of_their_seen_cells(state):
    data, intercept = table(), np.arange(6) / 2
    found = state.log_density(SeenRows.of(data), intercept)
    mean = intercept + data.per_row["design"] @ state.effects
    whole = W @ C @ W.T + np.diag(state.noise)
    np.testing.assert_allclose(state.covariance(), whole)
    for i, seen in enumerate(data.mask):
        want = multivariate_normal(mean[i, seen], whole[np.ix_(seen, seen)]).logpdf(data.x[i, seen])
        assert found[i] == pytest.approx(want)
    none_missing = SimpleNamespace(x=data.x, mask=None, per_row=data.per_row)
    want = [multivariate_normal(m, whole).logpdf(x) for m, x in zip(mean, data.x, strict=True)]
    np.testing.assert_allclose(state.log_density(SeenRows.of(none_missing), intercept), want)


@pytest.mark.parametrize("complete", [False, True])
def test_intercepts_are_drawn_from_generalised_least_squares(state, complete):
    data, whole = table(), W @ C @ W.T + np.diag(state.noise)
    if complete:
        data.mask = None
    precision, pull = np.zeros((6, 6)), np.zeros(6)
    left = data.x - data.per_row["design"] @ state.effects
    for i in range(len(data.x)):
        seen = np.ones(6, bool) if complete else data.mask[i]
        part = np.linalg.inv(whole[np.ix_(seen, seen)])
        precision[np.ix_(seen, seen)] += part
        pull[seen] += part @ left[i, seen]
    rng = np.random.default_rng(0)
    drawn = np.stack([state.intercept(SeenRows.of(data), rng) for _ in range(2000)])
    covariance = np.linalg.inv(precision)
    error = np.sqrt(np.diag(covariance) / 2000)
    np.testing.assert_allclose((drawn.mean(0) - covariance @ pull) / error, 0, atol=4)
    np.testing.assert_allclose(np.cov(drawn.T), covariance, atol=0.1 * np.diag(covariance).max())


def test_loadings_come_back_from_standardised_ones(world):
    """The chains' own sum: a standardised loading is w sd(z) / sd(x)."""
    fit, idata = world
    chains, posterior = parameters_of(fit, idata), _arviz.get_group(idata, "posterior")
    drawn = chains.at(130)
    total = np.sqrt(np.diag(drawn.covariance()))
    place = divmod(130, posterior.sizes["draw"])
    np.testing.assert_allclose(
        drawn.weight / total[:, None], posterior["weight"].to_numpy()[place], atol=1e-5
    )
    np.testing.assert_allclose(
        np.sqrt(drawn.noise) * fit.table.scale, posterior["noise_sd"].to_numpy()[place]
    )
    implied = np.mean([chains.at(i).covariance() for i in range(len(chains))], 0)
    of_rows = pd.DataFrame(np.where(fit.table.mask, fit.table.x, np.nan)).cov()
    np.testing.assert_allclose(implied, of_rows, atol=0.15)


# ---- what is returned --------------------------------------------------------------------------------------
def test_replicates_have_the_moments_of_the_data(world):
    fit, idata = world
    checked = ps.posterior_predictive(fit, idata, seed=1)
    x, data = cells(checked), cells(checked, "observed_data")
    assert x.dims == ("chain", "draw", "sample", "feature") and x.shape == (2, 100, 200, 6)
    assert list(x["feature"].to_numpy()) == fit.feature_names and x["sample"].to_numpy()[3] == "row 3"
    np.testing.assert_allclose(data, rows(200))
    missing = np.isnan(data.to_numpy())
    np.testing.assert_array_equal(np.isnan(x.to_numpy()), np.broadcast_to(missing, x.shape))
    n = (~missing).sum(0)
    of_tables = x.mean("sample").to_numpy().reshape(-1, 6)
    # a mean of a replicate varies by the rows drawn and by what is not known of the mean, each s² / n
    sd = data.std("sample").to_numpy()
    np.testing.assert_allclose(of_tables.mean(0), data.mean("sample"), atol=0.1 * sd.max())
    np.testing.assert_allclose(of_tables.std(0), sd * np.sqrt(2 / n), rtol=0.25)
    np.testing.assert_allclose(x.std(("chain", "draw", "sample")), sd, rtol=0.06)
    complete = x.to_numpy()[:, ::10].reshape(-1, 6)
    np.testing.assert_allclose(pd.DataFrame(complete).corr(), data.to_pandas().corr().to_numpy(), atol=0.12)
    again = ps.posterior_predictive(fit, idata, seed=1)
    np.testing.assert_array_equal(cells(again), x)
    assert not np.array_equal(cells(ps.posterior_predictive(fit, idata, seed=2)), x)
    assert _arviz.get_group(checked, "posterior_predictive").attrs["parameters"] == "chains"
    assert "constant_data" not in _arviz.group_names(checked)
    assert "posterior_predictive" not in _arviz.group_names(idata)  # the caller's object is left alone


@pytest.mark.slow(hurried=True)
def test_densities_are_those_that_chains_keep(world):
    fit, _ = world
    idata = fit.edge_posterior(log_likelihood=True, sweeps=200, warm_up=80, chains=2)
    kept = cells(idata, "log_likelihood").mean(("chain", "draw"))
    made = cells(ps.posterior_predictive(fit, idata), "log_likelihood").mean(("chain", "draw"))
    np.testing.assert_allclose(made, kept, atol=0.25)  # of a row far out; they spread by 2.4
    assert abs(float((made - kept).mean())) < 0.01


def test_draws_are_those_of_the_chains_that_count(world):
    fit, idata = world
    assert cells(ps.posterior_predictive(fit, idata, draws=7)).shape[:2] == (2, 7)
    assert cells(ps.posterior_predictive(fit, idata, draws=500)).shape[:2] == (2, 120)
    groups = {name: _arviz.get_group(idata, name) for name in _arviz.group_names(idata)}
    alone = groups["sample_stats"].assign(pool_weight=("chain", [0.0, 1.0]))
    uneven = _arviz.from_datasets({**groups, "sample_stats": alone}, idata.attrs)
    chains, second = parameters_of(fit, uneven), parameters_of(fit, idata)
    np.testing.assert_array_equal(chains.weight[0], second.weight[1])
    assert cells(ps.posterior_predictive(fit, uneven, draws=9)).shape[:2] == (1, 9)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore:Estimated shape")  # both are of ArviZ
def test_arviz_reads_them(world, tmp_path):
    fit, idata = world
    checked = ps.posterior_predictive(fit, idata)
    again = _arviz.from_netcdf(_arviz.to_netcdf(checked, tmp_path / "checked.nc"))
    np.testing.assert_array_equal(cells(again), cells(checked))
    if _arviz.is_modern():
        return
    az.plot_ppc(checked, num_pp_samples=5, flatten=["sample"])
    az.plot_bpv(checked)
    assert np.isfinite(az.loo(checked).elpd_loo)
    y = cells(checked, "observed_data").sel(feature="b")
    y_hat = cells(checked).sel(feature="b").stack(__sample__=("chain", "draw"))
    pit = az.loo_pit(checked, y=y, y_hat=y_hat)[y.notnull().to_numpy()]
    assert kstest(pit, "uniform").pvalue > 0.01


def test_a_column_that_is_not_normal_is_seen():
    x = rows(200, 3)
    x["a"] = np.where(x["a"] > 10, 3, -3) + 0.2 * np.random.default_rng(0).normal(size=200)
    fit = ps.fit(linear(), x, steps=200, n_factors_init=[2], **QUICK)
    checked = ps.posterior_predictive(fit, fit.edge_posterior(sweeps=80, warm_up=40, chains=2))
    replicates = cells(checked)
    near = [
        float((np.abs(values.sel(feature="a")) < 1.5).mean())
        for values in (replicates, cells(checked, "observed_data"))
    ]
    assert near[0] > 0.2 and near[1] < 0.02


@pytest.mark.slow(hurried=True)
def test_groups_keep_their_means():
    x, group = rows(200, 2), np.repeat(list("pq"), 100)
    x.loc[group == "q", "d"] += 9.0
    fit = ps.fit(linear(), x, groups=group, steps=200, n_factors_init=[2], **QUICK)
    checked = ps.posterior_predictive(fit, fit.edge_posterior(sweeps=400, warm_up=100, chains=2))
    data, of_group = x.groupby(group).mean(), cells(checked).mean(("chain", "draw"))
    for name in "pq":
        np.testing.assert_allclose(of_group[group == name].mean("sample"), data.loc[name], atol=0.3)
    design = _arviz.get_group(checked, "constant_data")["design"]
    assert design.dims == ("sample", "effect")
    np.testing.assert_allclose(design, fit.table.per_row["design"])
    tables = fit.impute(x, draws=3, idata=fit.edge_posterior(sweeps=40, warm_up=10, chains=2), groups=group)
    hole = x["d"].isna()
    drawn = pd.concat([t["d"][hole] for t in tables]).groupby(np.tile(group[hole], 3)).mean()
    assert 6 < drawn["q"] - drawn["p"] < 12


# ---- the fit's own parameters ------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "kind",
    ["ordinal", "mlp", *(pytest.param(name, marks=pytest.mark.slow) for name in ("bernoulli", "poisson"))],
)
def test_without_chains_any_fit_has_replicates(kind):
    rng = np.random.default_rng(0)
    f = rng.normal(size=(150, 1)) * np.linspace(0.6, 1.2, 5)
    time = rng.uniform(1, 5, size=150)
    x = {
        "bernoulli": (f + rng.logistic(size=f.shape) > 0).astype(float),
        "ordinal": np.digitize(f + rng.logistic(size=f.shape), [-1.0, 0.5, 2.0]).astype(float) + 1,
        "poisson": rng.poisson(time[:, None] * np.exp(0.3 * f)).astype(float),
        "mlp": f + 0.5 * rng.normal(size=f.shape),
    }[kind]
    model = ps.models.SparseDecoder(n_factors=1) if kind == "mlp" else linear(kind, 1)
    fit = ps.fit(model, x, steps=150, **({"exposure": time} if kind == "poisson" else {}), **QUICK)
    checked = ps.posterior_predictive(fit, draws=60, seed=3)
    drawn, data = cells(checked), cells(checked, "observed_data")
    assert drawn.shape == (1, 60, 150, 5)
    assert _arviz.get_group(checked, "posterior_predictive").attrs["parameters"] == "fit"
    np.testing.assert_allclose(
        drawn.mean(("chain", "draw", "sample")), data.mean("sample"), atol=0.3 * float(data.std())
    )
    if kind in ("bernoulli", "ordinal"):
        assert set(np.unique(drawn)) == set(np.unique(data))
    if kind == "poisson":
        np.testing.assert_allclose(_arviz.get_group(checked, "constant_data")["exposure"], time)
        totals = drawn.mean(("chain", "draw")).sum("feature")
        assert np.corrcoef(totals, time)[0, 1] > 0.9
    with pytest.raises(ValueError, match="idata: (holds no|has no)"):
        ps.posterior_predictive(fit, fit.edge_posterior("score"))


# ---- refusals ----------------------------------------------------------------------------------------------
def test_what_is_not_there_is_said(world, tmp_path):
    fit, idata = world
    with pytest.raises(ValueError, match=r"idata: has no noise_sd, which the method 'score' does not keep"):
        ps.posterior_predictive(fit, fit.edge_posterior("score"))
    with pytest.raises(ValueError, match=r"draws: 30000 of each of 2 chains are 0.29 GB of 200 x 6 cells"):
        ps.posterior_predictive(fit, idata, draws=30_000)
    with pytest.raises(ValueError, match="draws: want a whole number of at least 1"):
        ps.posterior_predictive(fit, idata, draws=0)
    with pytest.raises(TypeError, match="idata: want an ArviZ object"):
        ps.posterior_predictive(fit, 3)
    with pytest.raises(TypeError, match="fit: want that of a table"):
        ps.posterior_predictive(3)
    fit.save(tmp_path / "a.fit")
    loaded = ps.load(tmp_path / "a.fit")
    with pytest.raises(ValueError, match=r"fit: a loaded one has no rows to replicate"):
        ps.posterior_predictive(loaded, idata)
    np.testing.assert_allclose(
        cells(ps.posterior_predictive(loaded.with_data(rows(200)), idata, draws=3)),
        cells(ps.posterior_predictive(fit, idata, draws=3)),
        rtol=1e-5,
    )


def test_another_fits_posterior_is_refused(world):
    _, idata = world
    other = ps.fit(linear(), rows(100, 9), steps=20, n_factors_init=[2], **QUICK)
    with pytest.raises(ValueError, match="idata: is the edge posterior of another fit"):
        ps.posterior_predictive(other, idata)
