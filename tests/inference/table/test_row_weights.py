"""Fits with weights: frequencies are repeated rows, survey weights weighted moments of as many as count."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import pyro_sparse as ps
from pyro_sparse.data.row_weights import read_weights

# of the tables that these fits are compared with
pytestmark = [
    pytest.mark.filterwarnings("ignore:X. .*:RuntimeWarning"),
    pytest.mark.usefixtures("hurried_module"),
]

N, G = 60, 5
FREQUENCY = {"sample_weight": "w", "sample_weight_type": "frequency"}
SURVEY = {"sample_weight": "w", "sample_weight_type": "survey"}


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(N, 1)) + 0.6 * rng.normal(size=(N, G))
    frame = pd.DataFrame(x, [f"row {i}" for i in range(N)], list("abcde"))
    return frame.assign(w=rng.integers(1, 4, N).astype(float))


def repeated(table):
    return table.drop(columns="w").iloc[np.repeat(np.arange(len(table)), table.w.astype(int))]


def fitted(table, likelihood="normal", decoder="linear", **settings):
    model = ps.models.SparseDecoder(n_factors=1, decoder=decoder, likelihood=likelihood)
    return ps.fit(model, table, **{"restarts": 1, "steps": 40, "seed": 1, "progress": False, **settings})


def probability(idata):
    return idata["edge_posterior"]["probability"].to_numpy()


CHAINS = {"chains": 2, "sweeps": 60, "warm_up": 20}


def same(fit, other):
    assert_array_equal(fit.weights, other.weights)
    assert_array_equal(fit.elbo, other.elbo)
    assert_array_equal(fit.heldout_elbo, other.heldout_elbo)
    assert fit.score() == pytest.approx(other.score(), rel=1e-12)


@pytest.mark.slow(hurried=True)
@pytest.mark.usefixtures("patient")
def test_frequencies_are_repeated_rows(table):
    fit, plain = fitted(table, steps=600, **FREQUENCY), fitted(repeated(table), steps=600)
    same(fit, plain)
    first = np.cumsum(table.w.astype(int)) - table.w.astype(int)
    assert fit.sample_names == list(table.index)
    assert_allclose(fit.transform(), plain.transform()[first], atol=5e-3)  # a climb stops anywhere near
    assert_allclose(fit.predict(), plain.predict()[first], atol=0.1)
    ours, theirs = (f.edge_posterior(log_likelihood=True, **CHAINS) for f in (fit, plain))
    assert_array_equal(probability(ours), probability(theirs))
    assert_array_equal(ours["log_likelihood"]["x"], theirs["log_likelihood"]["x"])
    assert_array_equal(ours["sample_stats"]["log_joint"], theirs["sample_stats"]["log_joint"])
    assert_array_equal(ours["sample_stats"]["pool_weight"], theirs["sample_stats"]["pool_weight"])


@pytest.mark.slow(hurried=True)
@pytest.mark.parametrize(("likelihood", "decoder"), [("bernoulli", "linear"), ("normal", "mlp")])
def test_frequencies_under_models_that_draw_factors_of_rows(table, likelihood, decoder):
    if likelihood == "bernoulli":
        table = (table > 0).astype(float).assign(w=table.w)
    fit, plain = (fitted(rows, likelihood, decoder, **more)
                  for rows, more in ((table, FREQUENCY), (repeated(table), {})))  # fmt: skip
    same(fit, plain)
    assert fit.transform().shape == (N, 1)
    if likelihood == "bernoulli":
        ours, theirs = (f.edge_posterior(progress=False, **CHAINS) for f in (fit, plain))
        assert_array_equal(probability(ours), probability(theirs))


def test_frequencies_beside_missing_cells_masks_groups_and_columns_of_several_kinds(table):
    rng = np.random.default_rng(1)
    site = pd.Series(rng.choice(list("xyz"), N), table.index)
    kinds = {"a": "bernoulli", "*": "normal"}
    table = table.assign(a=(table.a > 0).astype(float)).mask(rng.random(table.shape) < 0.1)
    table["w"] = rng.integers(1, 3, N)
    mask = pd.DataFrame(rng.random((N, G)) < 0.95, table.index, list("abcde"))
    index = np.repeat(np.arange(N), table.w)
    fit = fitted(table, kinds, groups=site, mask=mask, **FREQUENCY)
    plain = fitted(repeated(table), kinds, groups=site.iloc[index], mask=mask.iloc[index])
    same(fit, plain)
    assert_allclose(fit.covariate_effects, plain.covariate_effects)
    assert fit.transform(table, groups=site).shape == (N, 1)


def test_frequencies_beside_covariates_and_groups_by_the_names_of_columns(table):
    rng = np.random.default_rng(2)
    beside = pd.DataFrame({"age": rng.normal(size=N), "site": rng.choice(list("xy"), N)}, table.index)
    rows = pd.concat([table, beside], axis=1)
    by_name = fitted(rows, covariates=["age"], groups="site", **FREQUENCY)
    same(by_name, fitted(table, covariates=beside[["age"]], groups=beside["site"], **FREQUENCY))
    same(by_name, fitted(repeated(rows), covariates="age", groups="site"))
    assert_array_equal(by_name.with_data(rows).table.x, by_name.table.x)
    with pytest.raises(ValueError, match=r"groups\['site'\]: has the rows of X in another order"):
        fitted(table, groups={"site": beside["site"].iloc[::-1]}, **FREQUENCY)


def test_weights_of_an_anndata_in_another_order_are_refused(table):
    anndata = pytest.importorskip("anndata")
    cells = anndata.AnnData(table.drop(columns="w"))
    with pytest.raises(ValueError, match="sample_weight: has the rows of X in another order"):
        read_weights(cells, table["w"].iloc[::-1], "frequency")


def test_exposures_are_repeated_too(table):
    rng = np.random.default_rng(2)
    x, hours, w = rng.poisson(3, (N, G)).astype(float), rng.uniform(1, 3, N), rng.integers(1, 3, N)
    fit = fitted(x, "poisson", exposure=hours, sample_weight=w, sample_weight_type="frequency")
    plain = fitted(np.repeat(x, w, 0), "poisson", exposure=np.repeat(hours, w))
    same(fit, plain)
    assert fit.sample_names == [str(i) for i in range(N)]
    with pytest.raises(ValueError, match="exposure: has 9 rows, and X has 60"):
        fitted(x, "poisson", exposure=hours[:9], sample_weight=w, sample_weight_type="frequency")


@pytest.mark.parametrize("kind", ["frequency", "survey"])
def test_a_fit_with_weights_is_saved_and_has_its_rows_again(table, tmp_path, kind):
    fit = fitted(table, sample_weight="w", sample_weight_type=kind)
    fit.save(tmp_path / "fit.pt")
    loaded = ps.load(tmp_path / "fit.pt")
    assert loaded.table.weights.kind == kind and loaded.sample_names == list(table.index)
    assert loaded.settings["sample_weight"]["counted"] == fit.table.n_counted == len(fit.table.x)
    again = loaded.with_data(table)
    assert_allclose(again.table.x, fit.table.x, atol=1e-9)
    assert again.score() == pytest.approx(fit.score())
    beside = loaded.with_data(table.drop(columns="w"), sample_weight=table.w)
    assert_allclose(beside.table.x, fit.table.x, atol=1e-9)
    assert_allclose(probability(loaded.edge_posterior(X=table, **CHAINS)),
                    probability(fit.edge_posterior(**CHAINS)), atol=1e-6)  # fmt: skip
    with pytest.raises(ValueError, match="sample_weight: got none, and the fit was given its rows'"):
        loaded.with_data(table.drop(columns="w"))
    assert loaded.transform(table).shape == loaded.transform(table.drop(columns="w")).shape == (N, 1)


@pytest.mark.slow(hurried=True)
def test_weights_of_one_are_none_to_the_bit(table):
    table = table.assign(w=1)
    plain = fitted(table.drop(columns="w"))
    for settings in ({"sample_weight": "w"}, FREQUENCY, SURVEY):
        fit = fitted(table, **settings)
        same(fit, plain)
        assert "sample_weight" not in fit.settings and fit.findings == plain.findings
        assert_array_equal(fit.transform(table), plain.transform())  # the column is no feature
    assert_array_equal(fitted(table.drop(columns="w"), sample_weight=np.ones(N)).weights, plain.weights)


def test_groups_of_frequency_weights_are_of_the_rows_as_they_were_given(table):
    """Before, `variance_explained` wanted a level for each of the repeated rows."""
    group = np.repeat(["a", "b", "c"], [20, 39, 1])
    table = table.assign(w=np.append(table.w[:-1], 3))  # the one row of "c" counts three times
    plain = fitted(repeated(table)).edge_posterior(scores=True, **CHAINS)
    idata = fitted(table, **FREQUENCY).edge_posterior(scores=True, **CHAINS)
    wanted = ps.variance_explained(plain, groups=np.repeat(group, table.w.astype(int)))
    pd.testing.assert_frame_equal(ps.variance_explained(idata, groups=group), wanted)
    by_name = pd.Series(group, table.index)
    pd.testing.assert_frame_equal(ps.variance_explained(idata, groups=by_name), wanted)
    same_rows = ps.variance_explained(idata, groups=np.repeat(group, table.w.astype(int)))
    pd.testing.assert_frame_equal(same_rows, wanted)
    with pytest.raises(
        ValueError, match="groups: has 59 values, wanted one for each of the 60 rows of the f"
    ):
        ps.variance_explained(idata, groups=group[1:])
    once = table.assign(w=np.append(table.w[:-1], 1))
    with pytest.raises(ValueError, match="groups: 'c' has one row, row 59"):
        ps.variance_explained(fitted(once, **FREQUENCY).edge_posterior(scores=True, **CHAINS), groups=group)


def test_survey_weights_are_weighted_moments_of_effective_rows(table):
    fit = fitted(table, **SURVEY)
    x, share = table.drop(columns="w").to_numpy(), table.w.to_numpy() / table.w.sum()
    effective = int(table.w.sum() ** 2 / (table.w**2).sum())
    counted = fit.table.given_back(fit.table.x)
    assert counted.shape == (effective, G)
    mean = share @ x
    assert_allclose(counted.mean(0), mean, atol=1e-10)
    cov = (x - mean).T @ (share[:, None] * (x - mean))
    assert_allclose(np.cov(counted.T, ddof=0), cov, atol=1e-10)
    answered = fit.table.caller_rows
    assert_allclose(answered.given_back(answered.x), x, atol=1e-10)
    assert fit.transform().shape == (N, 1) and fit.sample_names == list(table.index)
    assert fit.score() == pytest.approx(np.average(fit.log_likelihood(), weights=table.w))
    (said,) = [finding for finding in fit.findings if finding.kind == "weights"]
    assert f"{N} rows of unequal weights say as much as {effective}" in said.message
    # units of weights do not matter
    scaled = fitted(table.assign(w=table.w * 1e-9), **SURVEY)
    assert_allclose(scaled.table.x, fit.table.x, atol=1e-7)


def test_survey_weights_have_the_likelihood_of_effective_rows_to_a_power(table):
    """Log density of the counted rows at any normal distribution: that of rows, with weights as powers."""
    from scipy.stats import multivariate_normal

    fit = fitted(table, **SURVEY)
    counted, own = fit.table.x, fit.table.caller_rows.x
    power = table.w.to_numpy() * len(counted) / table.w.sum()
    for seed in range(3):
        rng = np.random.default_rng(seed)
        root = rng.normal(size=(G, G))
        density = multivariate_normal(rng.normal(size=G), root @ root.T + np.eye(G))
        assert density.logpdf(counted).sum() == pytest.approx(power @ density.logpdf(own))


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"likelihood": "bernoulli"}, "sample_weight: survey weights want a linear decoder and normal noise"),
        ({"decoder": "mlp"}, "sample_weight: survey weights want a linear decoder and normal noise"),
        ({"groups": np.arange(N) % 3}, "groups: cannot be had together with survey weights"),
        ({"mask": np.arange(N * G).reshape(N, G) > 0}, "want rows without missing cells, and row 0 has one"),
    ],
)
def test_what_survey_weights_refuse(table, settings, said):
    if settings.get("likelihood"):
        table = (table > 0).astype(float).assign(w=table.w)
    with pytest.raises(ValueError, match=said):
        fitted(table, **settings, **SURVEY)


def test_answers_that_survey_weights_cannot_give(table):
    fit = fitted(table, **SURVEY)
    with pytest.raises(ValueError, match="log_likelihood: of survey weights the chains read"):
        fit.edge_posterior("mcmc", log_likelihood=True)
    with pytest.raises(ValueError, match="has survey weights, and counts the moments"):
        ps.posterior_predictive(fit)
    with pytest.raises(
        ValueError, match="sample_weight: what is said of a row does not depend on its weight"
    ):
        fit.transform(table, sample_weight="w")
    with pytest.raises(ValueError, match=r"say as much as 1 of equal ones \(Kish\), wanted at least 10"):
        fitted(table.assign(w=np.where(np.arange(N) == 3, 1e6, 1.0)), **SURVEY)


BAD = [
    (
        {"sample_weight": np.ones(N) * 2},
        "sample_weight: got weights, and not what they are; wanted .*'frequency'"
        " .*three identical rows.*'survey' .*members of the population",
    ),  # fmt: skip
    ({"sample_weight_type": "survey"}, "sample_weight_type: got 'survey', and no sample_weight"),
    (
        {"sample_weight": "w", "sample_weight_type": "probability"},
        "sample_weight_type: got 'probability', wanted",
    ),
    ({"sample_weight": "v", "sample_weight_type": "survey"}, "sample_weight: X has no column 'v'"),
    (
        {"sample_weight": np.arange(N) * 1.0, "sample_weight_type": "survey"},
        "is 0 in row 0, wanted a finite number above 0; leave out rows of weight zero",
    ),  # fmt: skip
    ({"sample_weight": -np.ones(N), "sample_weight_type": "survey"}, "is -1 in row 0"),
    ({"sample_weight": np.full(N, np.nan), "sample_weight_type": "survey"}, "is nan in row 0"),
    ({"sample_weight": np.full(N, np.inf), "sample_weight_type": "frequency"}, "is inf in row 0"),
    ({"sample_weight": np.ones(N - 1), "sample_weight_type": "survey"}, r"has shape \(59,\) for 60 rows"),
    ({"sample_weight": np.ones((N, 2)), "sample_weight_type": "survey"}, r"has shape \(60, 2\) for 60 rows"),
    (
        {"sample_weight": np.full(N, 1.5), "sample_weight_type": "frequency"},
        "is 1.5 in row 0, and frequencies are whole numbers",
    ),  # fmt: skip
    (
        {"sample_weight": np.full(N, 1e7), "sample_weight_type": "frequency"},
        "counts 600,000,000 rows of 6 columns",
    ),
]


@pytest.mark.parametrize(("settings", "said"), BAD)
def test_bad_weights_are_refused_before_the_work(table, settings, said):
    with pytest.raises(ValueError, match=said):
        fitted(table, **settings)
    with pytest.raises(ValueError, match=said):
        ps.check_table(table, **settings)


def test_weights_that_are_no_numbers_or_of_other_rows(table):
    with pytest.raises(TypeError, match="sample_weight: cannot be read as numbers"):
        fitted(table, sample_weight=["much"] * N, sample_weight_type="survey")
    with pytest.raises(TypeError, match="sample_weight: got the name 'w', and X has no names of columns"):
        fitted(table.to_numpy(), **SURVEY)
    with pytest.raises(ValueError, match="sample_weight: has the rows of X in another order"):
        fitted(table.drop(columns="w"), sample_weight=table.w[::-1], sample_weight_type="survey")
    with pytest.raises(ValueError, match="sample_weight: got some, and the fit was made without"):
        fitted(table.drop(columns="w")).with_data(table.drop(columns="w"), sample_weight=table.w)
    with pytest.raises(TypeError, match="sample_weight: is for tables"):
        ps.fit(ps.models.LatentTransition(3, 2), np.zeros((4, 9, 3)), sample_weight=np.ones(4))


def test_rows_read_from_disk_are_refused(table):
    with pytest.raises(
        ValueError, match="sample_weight: X is read by rows, and weights want a table in memory"
    ):
        fitted(
            ps.open_rows(table.drop(columns="w").to_numpy()),
            sample_weight=table.w,
            sample_weight_type="survey",
        )


@pytest.mark.parametrize("container", ["list", "tensor", "sparse", "anndata"])
def test_containers(table, container):
    import scipy.sparse as sp
    import torch

    x, w = table.drop(columns="w").to_numpy(copy=True), table.w.to_numpy()
    if container == "anndata":
        anndata = pytest.importorskip("anndata")
        data = anndata.AnnData(x, obs=pd.DataFrame({"w": w}, index=table.index))
        data.var_names, w = list("abcde"), "w"
    else:
        data = {"list": x.tolist(), "tensor": torch.as_tensor(x), "sparse": sp.coo_array(x)}[container]
    fit = fitted(data, sample_weight=w, sample_weight_type="frequency")
    assert_array_equal(fit.weights, fitted(repeated(table).to_numpy()).weights)
    assert fit.sample_names == (list(table.index) if container == "anndata" else [str(i) for i in range(N)])


def test_frequencies_count_in_checks_and_survey_weights_are_noted(table):
    assert ps.check_table(table, **FREQUENCY) == ps.check_table(
        table.drop(columns="w")
    )  # no rows are repeated
    few = table.assign(w=np.where(np.arange(N) < 6, 100.0, 1.0))
    (finding,) = [f for f in ps.check_table(few, **SURVEY) if f.kind == "weights"]
    assert "trim the largest" in finding.remedy and finding.size < 0.2


def test_effective_rows_by_hand():
    weights = read_weights(np.zeros((4, 2)), [1.0, 1.0, 2.0, 4.0], "survey")[1]
    assert weights.effective == pytest.approx(64 / 22) and weights.counted == 2
    assert read_weights(np.zeros((4, 2)), [3, 1, 2, 4], "frequency")[1].counted == 10


def test_frequencies_of_rows_that_nobody_measures_twice_are_a_doubt():
    rng = np.random.default_rng(0)
    measured = pd.DataFrame(rng.normal(size=(60, 5)))
    of_people, bootstrap = rng.integers(50, 200, 60), np.maximum(rng.poisson(1, 60), 1)
    (doubt,) = ps.check_table(measured, sample_weight=of_people, sample_weight_type="frequency")
    assert doubt.kind == "weights" and doubt.is_doubt and "sample_weight_type='survey'" in doubt.remedy
    assert f"{of_people.sum():,} rows count where 60 are different" in doubt.message
    for weights, table in ((bootstrap, measured), (of_people, measured.round().clip(-2, 2))):
        said = ps.check_table(table, sample_weight=weights, sample_weight_type="frequency")
        assert "weights" not in [finding.kind for finding in said]
