"""Fits with covariates: net of them, what they were, and what new rows want."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import pyro_sparse as ps

pytestmark = pytest.mark.usefixtures("hurried_module")

N, G, K = 240, 9, 2


def world(kind="normal", n=N, seed=0):
    """Nine features of two factors, a site with a mean of its own for each feature, and a slope of age."""
    rng = np.random.default_rng([seed, 3])
    weight = np.zeros((G, K))
    weight[np.arange(G), np.arange(G) % K] = rng.choice([-1, 1], G) * rng.uniform(0.8, 1.3, G)
    site, age = rng.choice(list("abc"), n, p=[0.5, 0.3, 0.2]), rng.normal(40, 10, n)
    means, slope = {s: rng.normal(size=G) for s in "abc"}, rng.normal(0, 0.05, G)
    z = rng.normal(size=(n, K))
    f = z @ weight.T + np.array([means[s] for s in site]) + slope * (age[:, None] - 40)
    if kind == "normal":
        x = 5 + f + 0.5 * rng.normal(size=f.shape)
    elif kind == "poisson":
        x = rng.poisson(np.exp(0.7 * f + 0.5)).astype(float)
    else:
        x = (rng.random(f.shape) < 1 / (1 + np.exp(-1.5 * f))).astype(float)
    table = pd.DataFrame(x, columns=[f"x{j}" for j in range(G)]).assign(site=site, age=age)
    return table, weight != 0, slope, z


def fitted(table, likelihood="normal", **settings):
    model = ps.models.SparseDecoder(n_factors=K, decoder="linear", likelihood=likelihood)
    kept = {"covariates": "age", "groups": "site", "restarts": 2, "seed": 1, "progress": False}
    return ps.fit(model, table, **{**kept, **settings})


@pytest.fixture(scope="module")
def normal():
    table, edge, slope, z = world()
    return fitted(table), table, edge, slope, z


def graph(fit):
    return (fit.weights[fit.best] != 0)[:, : fit.weights.shape[-1]]


def test_factors_and_edges_are_net_of_them(normal):
    fit, table, edge, _, z = normal
    assert fit.feature_names == [f"x{j}" for j in range(G)] and not fit.warnings
    ours = {tuple(column) for column in graph(fit).T}
    assert ours == {tuple(column) for column in edge.T}
    across = np.abs(np.corrcoef(fit.transform(table).T, z.T)[:K, K:])
    assert across.max(0).min() > 0.9
    sites = pd.get_dummies(table.site).to_numpy(float)
    means = np.linalg.lstsq(sites, fit.transform(), rcond=None)[0]
    assert np.abs(means).max() < 0.25  # standard errors of means of some 50 scores are .14


def test_effects_are_those_of_least_squares(normal):
    fit, table, *_ = normal
    dummies = pd.get_dummies(table.site).to_numpy(float)
    plain = np.linalg.lstsq(np.column_stack([table.age, dummies]), table[fit.feature_names], rcond=None)[0]
    want = np.vstack([plain[:1], plain[1:] - dummies.mean(0) @ plain[1:]])
    np.testing.assert_allclose(fit.covariate_effects, want, rtol=1e-6, atol=1e-9)
    assert list(fit.covariate_effects.index) == ["age", "site = a", "site = b", "site = c"]


@pytest.mark.slow(hurried=True)
def test_it_is_the_fit_of_what_least_squares_leave(normal):
    """But for degrees of freedom, which a table of residuals does not know of."""
    fit, table, *_ = normal
    design = np.column_stack([table.age, pd.get_dummies(table.site).to_numpy(float)])
    x = table[fit.feature_names].to_numpy()
    left = x - design @ np.linalg.lstsq(design, x, rcond=None)[0]
    plain = ps.fit(
        ps.models.SparseDecoder(n_factors=K, decoder="linear"), left, restarts=2, seed=1, progress=False
    )
    np.testing.assert_allclose(plain.weights[plain.best], fit.weights[fit.best], atol=0.01)
    ratio = fit.noise_sd / plain.noise_sd
    np.testing.assert_allclose(ratio, np.sqrt(N / (N - 3)), rtol=2e-3)


def test_new_rows_want_theirs_and_get_their_effects(normal):
    fit, table, *_ = normal
    few = table[:5]
    by_name = fit.predict(few)
    apart = fit.predict(few[fit.feature_names], covariates=few[["age"]], groups=few.site)
    np.testing.assert_array_equal(by_name, apart)
    moved = fit.predict(
        few[fit.feature_names] + fit.covariate_effects.loc["age"].to_numpy() * 10,
        covariates=few[["age"]] + 10, groups=few.site,
    )  # fmt: skip
    np.testing.assert_allclose(
        moved - by_name, 10 * fit.covariate_effects.loc[["age"]].to_numpy().repeat(5, 0), atol=1e-4
    )
    average = fit.transform(few[fit.feature_names].mean().to_frame().T, covariates=[np.nan], groups=[None])
    assert average.shape == (1, K)
    with pytest.raises(ValueError, match=r"covariates: 'age' is not there"):
        fit.transform(few[fit.feature_names])
    with pytest.raises(ValueError, match=r"groups: is of the rows of X, and X was left out"):
        fit.transform(groups=few.site)
    with pytest.raises(
        ValueError, match=r"groups: 'site' is 'd' in row 0, a level that the fit has not seen"
    ):
        fit.transform(few.assign(site="d"))


def test_missing_cells_get_their_rows_effects(normal):
    fit, table, *_ = normal
    holes = table[:6].copy()
    holes.loc[2, "x1"] = np.nan
    filled = fit.impute(holes)
    assert list(filled.columns) == list(table.columns) and filled.site.equals(holes.site)
    assert abs(filled.loc[2, "x1"] - table.loc[2, "x1"]) < 2.5
    pd.testing.assert_frame_equal(filled.drop(columns="x1"), holes.drop(columns="x1"))


def test_a_file_keeps_them(normal, tmp_path):
    fit, table, *_ = normal
    fit.save(tmp_path / "fit.pt")
    again = ps.load(tmp_path / "fit.pt")
    np.testing.assert_array_equal(again.transform(table[:9]), fit.transform(table[:9]))
    pd.testing.assert_frame_equal(again.covariate_effects, fit.covariate_effects)
    assert again.sample(7).shape == (7, G)


def test_average_rows_are_what_factors_alone_give(normal):
    fit, *_ = normal
    np.testing.assert_allclose(fit.inverse_transform(np.zeros((1, K)))[0], fit.table.centre, atol=0.1)


@pytest.mark.slow
def test_posterior_of_effects_is_that_of_a_regression(normal):
    """Under a flat prior: their least squares, and a row's variance over the design's squares."""
    fit, table, edge, slope, _ = normal
    idata = fit.edge_posterior()
    effects = ps.covariate_effects(idata).pivot(index="covariate", columns="feature", values=["mean", "sd"])
    age = effects.loc["age"]
    np.testing.assert_allclose(age["mean"], fit.covariate_effects.loc["age", age["mean"].index], atol=0.01)
    design = np.column_stack([pd.get_dummies(table.site).to_numpy(float), table.age])
    spread = np.linalg.inv(design.T @ design)[-1, -1]
    x = table[fit.feature_names].to_numpy()
    left = x - design @ np.linalg.lstsq(design, x, rcond=None)[0]
    want = np.sqrt(spread * (left**2).sum(0) / (N - 4))
    np.testing.assert_allclose(age["sd"][fit.feature_names], want, rtol=0.12)
    assert (np.abs(age["mean"][fit.feature_names] - slope) < 4 * want).all()
    posterior = idata.posterior
    assert float(np.abs(posterior["noise_sd"].mean(("chain", "draw")) - fit.noise_sd).max()) < 0.1
    assert posterior["factor_correlation"].dims == ("chain", "draw", "factor", "other_factor")
    prob = ps.edge_prob(idata).to_numpy()
    assert (prob[graph(fit)] > 0.95).all() and (prob[~graph(fit)] < 0.5).all()


@pytest.mark.parametrize("kind", ["bernoulli", "poisson", "mixed"])
@pytest.mark.slow
def test_other_likelihoods_draw_them_on_their_predictors(kind):
    table, edge, slope, _ = world(kind, 700)
    likelihood = ps.likelihoods.Poisson(size_factors=False) if kind == "poisson" else "bernoulli"
    if kind == "mixed":
        table, *_ = world("normal", 700)
        table[["x0", "x1", "x2"]] = (table[["x0", "x1", "x2"]] > 5).astype(float)
        likelihood = {("x0", "x1", "x2"): "bernoulli", "*": "normal"}
    fit = fitted(table, likelihood)
    idata = fit.edge_posterior()
    true = {tuple(column) for column in edge.T}
    assert {tuple(column) for column in (ps.edge_prob(idata).to_numpy() > 0.6).T} == true
    assert not [line for line in idata.attrs["verdict"].split("\n") if "effects" in line]
    effects = ps.covariate_effects(idata)
    if kind != "mixed":
        scale = {"bernoulli": 1.5, "poisson": 0.7}[kind]
        age = effects[effects.covariate == "age"]
        apart = age["mean"].to_numpy() - scale * slope
        assert (np.abs(apart) < 4 * age["sd"].to_numpy()).all()
    few = table[:4]
    assert fit.predict(few).shape == (4, G) and np.isfinite(fit.score(few))


@pytest.mark.slow
def test_counts_whose_totals_are_depth_have_them_too():
    """A site that doubles every rate is depth; effects are what tells features apart."""
    rng = np.random.default_rng(5)
    site, depth = rng.integers(0, 2, 400), rng.lognormal(0, 0.6, 400)
    effect = np.linspace(-1, 1, 12)
    z = rng.normal(size=(400, 1)) * np.r_[np.ones(4), np.zeros(8)] * 0.8
    x = rng.poisson(3 * (depth * 2**site)[:, None] * np.exp(z + site[:, None] * effect))
    fit = ps.fit(
        ps.models.SparseDecoder(n_factors=1, decoder="linear", likelihood=ps.likelihoods.Poisson(True)),
        x, groups=site, restarts=2, seed=0, progress=False,
    )  # fmt: skip
    idata = fit.edge_posterior()
    table = ps.covariate_effects(idata).pivot(index="covariate", columns="feature", values="mean")
    apart = (table.loc["group = 1"] - table.loc["group = 0"])[fit.feature_names].to_numpy()
    np.testing.assert_allclose(apart - apart.mean(), effect, atol=0.25)
    assert (ps.edge_prob(idata).to_numpy()[:4, 0] > 0.9).all()


@pytest.mark.slow
def test_many_groups_leave_noise_alone():
    """Persons seen three times: what they differ by is no factor, nor are the means they were given."""
    rng = np.random.default_rng(4)
    person = np.repeat(np.arange(100), 3)
    shared = rng.normal(size=(100, 2)) @ rng.normal(size=(2, 10)) + 0.5 * rng.normal(size=(100, 10))
    x = shared[person] + rng.normal(size=(300, 10))
    model = ps.models.SparseDecoder(n_factors=3, decoder="linear")
    fit = ps.fit(model, x, groups=person, restarts=4, seed=0, progress=False)
    assert not graph(fit).any()
    assert np.abs(fit.noise_sd - 1).max() < 0.2  # of 200 degrees of freedom, not of 300 rows
    assert not (ps.summary(fit.edge_posterior()).verdict == "present").any()


@pytest.mark.slow
def test_the_engine_holds_them_and_says_so(normal):
    fit, table, edge, *_ = normal
    program = fit.edge_posterior("program")
    chains = fit.edge_posterior()
    np.testing.assert_allclose(ps.edge_prob(program), ps.edge_prob(chains), atol=0.1)
    assert "The chains take the effects of covariates as the fit left them" in program.attrs["verdict"]
    with pytest.raises(ValueError, match="holds no effects of covariates"):
        ps.covariate_effects(program)


@pytest.mark.slow(hurried=True)
def test_tables_that_are_read_by_rows_have_none(tmp_path):
    import scipy.sparse as sp

    big = sp.random(6000, 5000, density=0.01, format="csr", random_state=0)
    with pytest.raises(ValueError, match="covariates, groups: X is read by rows"):
        ps.fit(ps.models.SparseDecoder(n_factors=2), big, groups=np.arange(6000) % 2, progress=False)


def test_sequences_and_tasks_refuse_them():
    model = ps.models.LatentTransition(n_features=3, n_latents=2)
    with pytest.raises(TypeError, match="groups: is for tables"):
        ps.fit(model, np.zeros((2, 20, 3)), groups=[0, 1])


def test_a_column_that_groups_explain_wholly_is_refused():
    table, *_ = world()
    table["x3"] = (table.site == "a") * 2.0
    with pytest.raises(ValueError, match="X: column 'x3' follows from"):
        fitted(table, steps=20)


@pytest.mark.parametrize("likelihood", ["ordinal", "student_t"])
def test_effects_begin_in_the_units_of_the_model(likelihood):
    """Levels that count from 1, and columns with a unit of their own."""
    rng = np.random.default_rng(6)
    site = rng.integers(0, 2, 150)
    z = rng.normal(size=(150, 1)) + 1.5 * site[:, None] + 0.7 * rng.normal(size=(150, 5))
    x = 1.0 + np.digitize(z, [-1, 0, 1, 2]) if likelihood == "ordinal" else 30 * z + 500
    model = ps.models.SparseDecoder(n_factors=1, decoder="linear", likelihood=likelihood)
    fit = ps.fit(model, x, groups=site, restarts=1, steps=60, seed=0, progress=False)
    effects = fit.covariate_effects
    apart = (effects.loc["group = 1"] - effects.loc["group = 0"]).to_numpy()
    assert ((apart > 0.8) & (apart < 4)).all() if likelihood == "ordinal" else (np.abs(apart - 45) < 20).all()


def test_levels_of_few_new_rows_are_no_names_of_columns(normal):
    fit, table, *_ = normal
    few = table[:3]
    apart = fit.transform(few[fit.feature_names], covariates=few[["age"]], groups=few.site.tolist())
    np.testing.assert_array_equal(apart, fit.transform(few))
    cells = few[fit.feature_names].to_numpy()
    unnamed = fit.transform(cells, covariates=few.age.to_numpy(), groups=few.site.tolist())
    np.testing.assert_array_equal(unnamed, apart)


def test_what_is_given_counts_more_than_a_column_of_the_table(normal):
    fit, table, *_ = normal
    few = table[:4]
    other = ["a", "b", "c", "a"]
    given = fit.predict(few, groups=other)
    np.testing.assert_array_equal(given, fit.predict(few.assign(site=other)))
    assert np.abs(given - fit.predict(few)).max() > 0.1


def test_simulated_rows_have_their_own_rows_inputs_together():
    """A site that is watched fifty times as long and has a fiftieth of the rate: totals are alike."""
    rng = np.random.default_rng(7)
    site = rng.integers(0, 2, 300)
    rate = 5.0 * np.exp(0.2 * rng.normal(size=(300, 1))) * np.ones(4)
    likelihood = ps.likelihoods.Poisson(size_factors=False)
    model = ps.models.SparseDecoder(n_factors=1, decoder="linear", likelihood=likelihood)
    fit = ps.fit(
        model, rng.poisson(rate), groups=site, exposure=np.where(site == 1, 50.0, 1.0), restarts=1, steps=100,
        seed=0, progress=False,
    )  # fmt: skip
    totals = fit.sample(400).sum(1)
    assert ((totals > 5) & (totals < 80)).mean() > 0.97
