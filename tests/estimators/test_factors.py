"""The scikit-learn front keeps scikit-learn's own contract and hands through what `pyro_sparse.fit` found."""

from __future__ import annotations

import signal

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

import pyro_sparse as ps
from pyro_sparse.estimators.factors import SparseFactorModel
from pyro_sparse.inference.training.loop import Run

QUICK = {"n_factors": 2, "decoder": "linear", "restarts": 2, "steps": 20, "random_state": 0}
HASTY = QUICK | {"steps": 5, "restarts": 1}

pytestmark = pytest.mark.usefixtures("hurried_module")


@pytest.fixture(scope="module")
def table():
    """Two factors, three features each, a tenth of the cells missing."""
    rng = np.random.default_rng(0)
    x = np.repeat(rng.normal(size=(200, 2)), 3, axis=1) + 0.3 * rng.normal(size=(200, 6))
    x = 10.0 + 3.0 * x
    x[rng.random(x.shape) < 0.1] = np.nan
    return pd.DataFrame(x, columns=["a1", "a2", "a3", "b1", "b2", "b3"])


@pytest.fixture(scope="module")
def fitted(table, hurried_module):
    return SparseFactorModel(**(QUICK | {"steps": 400})).fit(table)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:X. :RuntimeWarning")  # scikit-learn's tables are ordered blobs
@parametrize_with_checks(
    [SparseFactorModel(n_factors=1, restarts=1, steps=5, random_state=0)],
    expected_failed_checks=lambda estimator: dict.fromkeys(
        ("check_sample_weights_list", "check_sample_weights_not_overwritten",
         "check_sample_weight_equivalence_on_dense_data"),
        "weights are refused unless sample_weight_type says what they are",
    ),
)  # fmt: skip
def test_scikit_learn_contract(estimator, check):
    check(estimator)


def test_scores_of_a_row_depend_on_no_other(fitted, table):
    """scikit-learn's own tables are noise, in which there is no factor to score."""
    scores = fitted.transform(table)
    assert (scores.std(0) > 0.7).all()
    assert_allclose(fitted.transform(table[::-1])[::-1], scores, atol=1e-7)
    for rows in (slice(3, 4), slice(50, 90, 3)):
        assert_allclose(fitted.transform(table[rows]), scores[rows], atol=1e-7)


def test_ctrl_c_stops_a_search_and_scores_nothing(table, monkeypatch):
    advance, steps = Run.advance, []

    def pressed(run):
        steps.append(run.step)
        if len(steps) == 8:
            signal.raise_signal(signal.SIGINT)
        advance(run)

    monkeypatch.setattr(Run, "advance", pressed)
    search = GridSearchCV(SparseFactorModel(**QUICK), {"n_factors": [1, 2]}, cv=2)
    with pytest.raises(KeyboardInterrupt, match="interrupted at step 8 of 20 .*fit returns the fit so far"):
        search.fit(table)
    assert len(steps) == 8 and not hasattr(search, "cv_results_")


def test_finds_the_two_groups(fitted):
    factor = fitted.effects_.argmax(0)
    assert len(set(factor[:3])) == len(set(factor[3:])) == 1
    assert factor[0] != factor[3]


def test_attributes_are_those_of_the_fit(fitted, table):
    best = fitted.fit_.best
    assert_array_equal(fitted.components_, fitted.fit_.weights[best].T)
    assert_array_equal(fitted.edge_score_, fitted.fit_.edge_score[best].T)
    assert_array_equal(fitted.effects_, fitted.fit_.effects[best].T)
    assert fitted.components_.shape == (2, 6)
    assert fitted.n_features_in_ == 6
    assert_array_equal(fitted.feature_names_in_, table.columns)
    assert fitted.fit_.feature_names == list(table.columns)


def test_same_as_the_plain_call(table):
    found = SparseFactorModel(**QUICK).fit(table)
    model = ps.models.SparseDecoder(n_features=6, n_factors=2, decoder="linear")
    fit = ps.fit(model, table, restarts=2, steps=20, seed=0, dtype="float64", progress=False)
    assert_array_equal(fit.weights[fit.best].T, found.components_)
    assert_array_equal(fit.transform(table), found.transform(table))
    assert fit.score(table) == found.score(table)


def test_inverse_transform_returns_to_the_units_of_the_data(fitted, table):
    back = fitted.inverse_transform(fitted.transform(table))
    seen = table.notna().to_numpy()
    error = (back - table.to_numpy())[seen]
    assert np.mean(error**2) < 0.5 * np.nanvar(table.to_numpy())


def test_names_and_set_output(fitted, table):
    assert_array_equal(fitted.get_feature_names_out(), ["sparsefactormodel0", "sparsefactormodel1"])
    frame = clone(fitted).set_params(steps=5).set_output(transform="pandas").fit_transform(table)
    assert list(frame.columns) == list(fitted.get_feature_names_out())
    assert frame.index.equals(table.index)


def test_names_that_are_no_text(table):
    years = table.set_axis([1990, 1995, 2000, 2005, 2010, 2015], axis=1).set_axis(range(5, 205), axis=0)
    found = SparseFactorModel(**QUICK).fit(years)
    assert found.fit_.feature_names == ["1990", "1995", "2000", "2005", "2010", "2015"]
    assert found.fit_.sample_names[:2] == ["5", "6"]
    # scikit-learn has no names for these, so their order is ours to mind
    assert_allclose(found.transform(years[years.columns[::-1]]), found.transform(years), rtol=1e-6)


def test_pipeline_with_missing_cells(table):
    pipe = make_pipeline(StandardScaler(), SparseFactorModel(**QUICK))
    assert np.isfinite(pipe.fit_transform(table)).all()
    assert np.isfinite(pipe.score(table))


@pytest.mark.slow
def test_grid_search(table):
    search = GridSearchCV(SparseFactorModel(**HASTY), {"n_factors": [1, 2]}, cv=2).fit(table)
    assert search.best_params_["n_factors"] in (1, 2)
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()


@pytest.mark.slow
def test_grid_search_over_arguments_of_the_prior(table):
    """It had no set_params, so that `prior__lambda1` was no parameter."""
    prior = ps.priors.SpikeSlabLasso(lambda0=50.0)
    model = SparseFactorModel(**HASTY, prior=prior)
    search = GridSearchCV(model, {"prior__lambda1": [0.5, 2.0]}, cv=2).fit(table)
    own = search.best_estimator_.prior
    assert float(own.lambda1) == search.best_params_["prior__lambda1"] and own.spike_rate == 50.0
    assert prior.get_params()["lambda1"] == 1.0  # the caller's own is left alone
    changed = clone(model).set_params(prior__lambda0=80.0).fit(table)
    assert changed.fit_.model.prior.spike_rate == 80.0


def test_what_is_known_of_edges_is_handed_through(table):
    told = {
        "anchors": {"a1": 0},
        "required": [("a2", 0)],
        "forbidden": [(5, 0)],
        "edge_odds": {("b1", 1): 3.0},
    }
    model = clone(SparseFactorModel(**HASTY, **told)).fit(table).fit_.model
    permitted, must = model.permitted.numpy(), model.must.numpy()
    assert not permitted[0, 1] and must[0, 0] and must[1, 0] and not permitted[5, 0]
    assert model.prior.informed
    with pytest.raises(ValueError, match="anchors: no feature is called 'z'"):
        SparseFactorModel(**HASTY, anchors={"z": 0}).fit(table)


def test_parameters_are_neither_changed_nor_shared(table):
    prior = ps.priors.SpikeSlabLasso(lambda1=2.0)
    model = SparseFactorModel(**QUICK, prior=prior)
    before = set(prior.state_dict())
    first = model.fit(table).components_
    assert set(prior.state_dict()) == before
    assert model.prior is prior
    assert_array_equal(clone(model).fit(table).components_, first)


def test_random_state_makes_the_seed(table):
    one = SparseFactorModel(**HASTY).fit(table).components_
    assert_array_equal(one, SparseFactorModel(**HASTY).fit(table).components_)
    state = SparseFactorModel(**(HASTY | {"random_state": np.random.RandomState(3)})).fit(table).fit_
    again = SparseFactorModel(**(HASTY | {"random_state": np.random.RandomState(3)})).fit(table).fit_
    assert_array_equal(state.weights, again.weights)


def test_encoder_only(fitted, table):
    plain = clone(fitted).set_params(steps=5, refine=False).fit(table)
    assert_allclose(plain.transform(table), plain.fit_.transform(table, refine=False))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"n_factors": 6}, "n_factors"),
        ({"n_factors": 0}, "n_factors"),
        ({"prior": "spike"}, "prior"),
        ({"likelihood": "gauss"}, "likelihood"),
        ({"decoder": "tree"}, "decoder"),
    ],
)
def test_bad_settings_name_the_argument(table, change, message):
    with pytest.raises(ValueError, match=message):
        SparseFactorModel(**(QUICK | change)).fit(table)


def test_bad_data(fitted, table):
    unnamed = clone(fitted).set_params(steps=5).fit(table.to_numpy())
    with pytest.raises(ValueError, match="X has 5 features"):
        unnamed.transform(table.to_numpy()[:, :5])
    with pytest.raises(ValueError, match="feature names"):
        fitted.transform(table.rename(columns={"a1": "z"}))
    with pytest.raises(ValueError, match="has 3 column.*one per factor"):
        fitted.inverse_transform(np.zeros((2, 3)))
    with pytest.raises(ValueError, match="infinity"):
        clone(fitted).fit(table.fillna(np.inf))


def test_columns_that_are_no_numbers_are_named_and_missing_ones_of_pandas_are_missing(table):
    for odd in ("yes", pd.Categorical(["a", "b"] * (len(table) // 2))):
        with pytest.raises(TypeError, match="^X: column 'odd' holds"):
            SparseFactorModel(n_factors=2).fit(table.assign(odd=odd))
    cells = table.to_numpy().astype(object)
    cells[0, 0] = pd.NA  # what DataFrame.to_numpy() makes of nullable columns
    made = SparseFactorModel(n_factors=2, restarts=1, steps=5, random_state=0).fit(cells)
    holes = table.to_numpy(copy=True)
    holes[0, 0] = np.nan
    assert_array_equal(made.transform(cells), made.transform(holes))


def test_exposures_go_to_the_fit_and_are_wanted_again():
    rng = np.random.default_rng(0)
    hours = rng.uniform(0.2, 5, 120)
    x = rng.poisson(3 * hours[:, None] * np.exp(0.5 * np.repeat(rng.normal(size=(120, 2)), 3, axis=1)))
    how = QUICK | {"likelihood": "poisson", "decoder": "linear"}
    model = SparseFactorModel(**how)
    scores = model.fit_transform(x, exposure=hours)
    plain = ps.fit(
        ps.models.SparseDecoder(6, 2, likelihood="poisson", decoder="linear"),
        x,
        exposure=hours,
        restarts=2,
        steps=20,
        seed=0,
        dtype="float64",
        progress=False,
    )
    assert_allclose(scores, plain.transform(x, exposure=hours), atol=1e-8)
    assert model.score(x, exposure=hours) == pytest.approx(plain.score(x, exposure=hours))
    assert np.abs(scores - SparseFactorModel(**how).fit_transform(x)).max() > 0.05
    with pytest.raises(TypeError, match="positional argument"):
        model.transform(x, hours)
    for ask in (model.transform, model.score):
        with pytest.raises(ValueError, match="exposure: got none, and the fit was given its rows"):
            ask(x)


@pytest.mark.slow(hurried=True)
def test_covariates_may_be_columns_of_the_table_or_values():
    rng = np.random.default_rng(0)
    site = rng.choice(["north", "south"], 150)
    x = (
        rng.normal(size=(150, 1))
        + 0.5 * rng.normal(size=(150, 5))
        + (site == "north")[:, None] * rng.normal(size=5)
    )
    table = pd.DataFrame(x, columns=list("abcde")).assign(site=site)
    settings = {"n_factors": 1, "decoder": "linear", "restarts": 1, "steps": 60, "random_state": 0}
    by_name = SparseFactorModel(**settings)
    scores = by_name.fit_transform(table, groups="site")
    assert list(by_name.feature_names_in_) == list("abcde")
    beside = SparseFactorModel(**settings).fit(x, groups=site)
    assert_allclose(beside.transform(x, groups=site), scores, atol=1e-8)
    assert_allclose(by_name.transform(table[:9]), scores[:9], atol=1e-6)
    assert by_name.score(table) == pytest.approx(beside.score(x, groups=site))
    with pytest.raises(ValueError, match="groups: 'group' is not there"):
        beside.transform(x)


def test_weights_of_rows_may_be_a_column_or_values():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(60, 1)) + 0.5 * rng.normal(size=(60, 4))
    table = pd.DataFrame(x, columns=list("abcd")).assign(w=rng.integers(1, 3, 60))
    settings = {"n_factors": 1, "decoder": "linear", "restarts": 1, "steps": 40, "random_state": 0}
    by_name = SparseFactorModel(**settings)
    scores = by_name.fit_transform(table, sample_weight="w", sample_weight_type="frequency")
    assert scores.shape == (60, 1) and list(by_name.feature_names_in_) == list("abcd")
    beside = SparseFactorModel(**settings).fit(x, sample_weight=table.w, sample_weight_type="frequency")
    assert_allclose(beside.components_, by_name.components_)
    assert_allclose(by_name.transform(table[:9]), beside.transform(x[:9]), atol=1e-6)
    rows = beside.fit_.log_likelihood(x)
    assert beside.score(x, sample_weight=table.w) == pytest.approx(np.average(rows, weights=table.w))
    with pytest.raises(ValueError, match="sample_weight: got weights, and not what they are"):
        SparseFactorModel(**settings).fit(x, sample_weight=table.w)
