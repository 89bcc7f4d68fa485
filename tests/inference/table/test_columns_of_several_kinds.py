"""A table of numbers, answers, levels and counts: from the table to edges, files, new rows and holes."""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
import pytest

import pyro_sparse as ps
from pyro_sparse.inference.edges.program.model_program import model_program
from pyro_sparse.inference.training.restarts import pick

pytestmark = pytest.mark.usefixtures("hurried_module")

WORDS = ["never", "rarely", "sometimes", "often"]
KINDS = {"height": "normal", "girth": "normal", "smokes": "bernoulli", "visits": "poisson", "*": "ordinal"}


def _table(n=300, seed=1001):
    """Two factors; words, numbers of levels, yes or no, counts and measurements, with two holes."""
    rng = np.random.default_rng(seed)
    z = rng.normal(size=(n, 2))

    def levels(k):
        return ((1.8 * z[:, k] + rng.logistic(size=n))[:, None] > np.array([-1.5, 0.0, 1.5])).sum(1)

    table = pd.DataFrame(
        {
            "height": 170 + 7 * z[:, 0] + 4 * rng.normal(size=n),
            "mood": pd.Categorical(np.array(WORDS)[levels(1)], WORDS, ordered=True),
            "girth": 70 + 9 * z[:, 0] + 5 * rng.normal(size=n),
            "smokes": rng.random(n) < 1 / (1 + np.exp(-2 * z[:, 1])),
            "grade": 1 + levels(1),
            "visits": rng.poisson(np.exp(1 + 0.6 * z[:, 0])),
        }
    )
    table.loc[3, "mood"], table.loc[5, "height"] = None, np.nan
    return table


TRUE = np.array([[1, 0], [0, 1], [1, 0], [0, 1], [0, 1], [1, 0]], dtype=bool)


@pytest.fixture(scope="module")
def table():
    return _table()


@pytest.fixture(scope="module")
def fit(table, hurried_module):
    model = ps.models.SparseDecoder(n_factors=2, likelihood=KINDS, decoder="linear")
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # a clean table is told nothing
        return ps.fit(model, table, restarts=2, steps=500, seed=0, progress=False)


@pytest.mark.slow(hurried=True)
def test_the_model_that_was_given_stays_as_it_was(table):
    model = ps.models.SparseDecoder(n_factors=2, likelihood=KINDS, decoder="linear")
    ps.fit(model, table, restarts=1, steps=5, progress=False)
    assert not model.likelihood.columns
    with pytest.raises(ValueError, match="no column is meant by 'smokes'"):
        ps.fit(model, table.drop(columns="smokes"), restarts=1, steps=5)


@pytest.mark.slow(hurried=True)
def test_each_column_is_under_its_likelihood(fit):
    kinds = {part.name: members for part, members in fit.model.likelihood.families()}
    assert kinds == {"normal": [0, 2], "ordinal": [1, 4], "bernoulli": [3], "poisson": [5]}
    assert fit.model.likelihood.labels == (None, tuple(WORDS), None, None, None, None)


@pytest.mark.slow(hurried=True)
def test_edges_are_the_true_ones(fit, table):
    idata = fit.edge_posterior(X=table, sweeps=120, warm_up=40)
    p = ps.summary(idata).set_index(["feature", "factor"])["probability"].unstack().loc[list(table.columns)]
    p = p.to_numpy() if p.iloc[0].argmax() == 0 else p.to_numpy()[:, ::-1]
    assert (p[TRUE] > 0.9).all() and (p[~TRUE] < 0.9).all(), p


@pytest.mark.slow(hurried=True)
def test_cells_are_expected_in_the_units_of_each_column(fit, table):
    expected = pd.DataFrame(fit.predict(table), columns=table.columns)
    assert expected["height"].between(140, 200).all()
    assert expected["smokes"].between(0, 1).all()
    assert expected["mood"].between(0, 3).all() and expected["grade"].between(1, 4).all()
    assert (expected["visits"] > 0).all()
    mood = table["mood"].cat.codes.where(table["mood"].notna())
    assert expected["mood"].corr(mood) > 0.6 and expected["grade"].corr(table["grade"]) > 0.6
    assert expected["height"].corr(table["height"]) > 0.7


@pytest.mark.slow(hurried=True)
def test_missing_cells_come_back_as_what_the_column_holds(fit, table):
    whole = fit.impute(table)
    assert whole["mood"].dtype == table["mood"].dtype
    assert whole["mood"].notna().all() and whole["height"].notna().all()
    seen = table["mood"].notna()
    assert (whole["mood"][seen].astype(str) == table["mood"][seen].astype(str)).all()


@pytest.mark.slow(hurried=True)
def test_draws_are_cells_that_a_table_may_hold(fit):
    draws = pd.DataFrame(fit.sample(300, seed=1), columns=fit.feature_names)
    assert set(draws["smokes"]) == {0.0, 1.0}
    assert set(draws["mood"]) == {0.0, 1.0, 2.0, 3.0} and set(draws["grade"]) == {1.0, 2.0, 3.0, 4.0}
    assert (draws["visits"] >= 0).all() and (draws["visits"] == draws["visits"].round()).all()


@pytest.mark.slow(hurried=True)
def test_a_saved_fit_comes_back_whole(fit, table, tmp_path):
    fit.save(tmp_path / "fit.pt")
    again = ps.load(tmp_path / "fit.pt")
    np.testing.assert_array_equal(again.transform(table[:9]), fit.transform(table[:9]))
    assert again.model.likelihood.labels == fit.model.likelihood.labels


@pytest.mark.slow(hurried=True)
def test_new_rows_are_read_by_the_words_and_levels_of_the_table(fit, table):
    as_text = table[:9].assign(mood=table["mood"][:9].astype(object))
    np.testing.assert_array_equal(fit.transform(as_text), fit.transform(table[:9]))
    fewer = table[:9].assign(mood=pd.Categorical(["often"] * 9))  # other categories, the same words
    assert np.isfinite(fit.transform(fewer)).all()
    with pytest.raises(ValueError, match=r"column 'mood' holds 'always' \(row 0\); its levels are 'never'"):
        fit.transform(table[:9].assign(mood="always"))
    with pytest.raises(ValueError, match=r"column 'grade' holds 9 \(row 0\); no such level"):
        fit.transform(table[:9].assign(grade=9))


@pytest.mark.slow(hurried=True)
def test_the_estimator_reads_words_too(table):
    model = ps.SparseFactorModel(2, likelihood=KINDS, decoder="linear", restarts=1, steps=20, random_state=0)
    scores = model.fit(table).transform(table[:9].assign(mood=table["mood"][:9].astype(object)))
    np.testing.assert_allclose(scores, model.transform(table[:9]))
    assert model.fit_.model.likelihood.labels[1] == tuple(WORDS)


@pytest.mark.slow(hurried=True)
def test_row_names_and_the_order_of_columns_do_not_matter(fit, table):
    turned = table[list(table.columns[::-1])]
    np.testing.assert_allclose(fit.transform(turned[:9]), fit.transform(table[:9]))


@pytest.mark.slow(hurried=True)
def test_auto_asks_about_whole_numbers_and_takes_the_rest(table):
    model = ps.models.SparseDecoder(n_factors=2, likelihood="auto")
    with pytest.raises(ValueError, match="cannot know what whole numbers are, in 'grade', 'visits'"):
        ps.fit(model, table)
    told = {"grade": "ordinal", "visits": "negative_binomial", "*": "auto"}
    model = ps.models.SparseDecoder(n_factors=2, likelihood=told)
    with pytest.warns(RuntimeWarning, match="\"auto\" reads columns 'height' and 'girth' under 'normal'"):
        fit = ps.fit(model, table, restarts=1, steps=5, progress=False)
    kinds = {part.name: members for part, members in fit.model.likelihood.families()}
    assert kinds == {"normal": [0, 2], "ordinal": [1, 4], "bernoulli": [3], "negative_binomial": [5]}


def test_one_kind_in_other_words_is_that_likelihood_alone():
    x = np.random.default_rng(0).normal(size=(60, 4))
    plain = ps.fit(
        ps.models.SparseDecoder(n_factors=1, decoder="linear"), x, restarts=1, steps=20, progress=False
    )
    model = ps.models.SparseDecoder(n_factors=1, decoder="linear", likelihood="auto")
    with pytest.warns(RuntimeWarning, match='"auto" reads columns'):
        fit = ps.fit(model, x, restarts=1, steps=20, progress=False)
    assert fit.model.likelihood.name == "normal"
    np.testing.assert_array_equal(fit.weights, plain.weights)


def test_levels_that_are_numbers_are_the_same_however_they_are_written():
    rng = np.random.default_rng(0)
    z = rng.normal(size=(80, 1)) + 0.6 * rng.normal(size=(80, 3))
    codes = np.digitize(z, [-0.7, 0.7])
    for categories in ([2, 1, 0], [1.0, 3.0, 5.0]):
        table = pd.DataFrame(
            {c: pd.Categorical.from_codes(codes[:, j], categories, ordered=True) for j, c in enumerate("abc")}
        )
        model = ps.models.SparseDecoder(n_factors=1, decoder="linear", likelihood="ordinal")
        fit = ps.fit(model, table, restarts=1, steps=20, progress=False)
        for kind in (float, str, object):
            np.testing.assert_array_equal(fit.transform(table.astype(kind)[:9]), fit.transform(table[:9]))
        with pytest.raises(ValueError, match="holds 7.* its levels are"):
            fit.transform(table.astype(float)[:9].assign(a=7.0))
        holes = table[:5].copy()
        holes.loc[0, "a"] = np.nan
        filled = fit.impute(holes)
        assert filled["a"].dtype == table["a"].dtype  # numbers stay numbers
        assert fit.impute(holes.astype(float))["a"].isin(categories).all()


@pytest.mark.slow(hurried=True)
def test_masked_cells_do_not_choose(table):
    cells = table.astype({"smokes": float}).assign(grade=table["grade"].astype(float))
    cells.loc[5, "grade"] = -99.0
    mask = np.ones(cells.shape, dtype=bool)
    mask[5, list(cells.columns).index("grade")] = False
    model = ps.models.SparseDecoder(n_factors=2, likelihood=KINDS, decoder="linear")
    fit = ps.fit(model, cells, mask=mask, restarts=1, steps=5, progress=False)
    ordinal = next(part for part, _ in fit.model.likelihood.families() if part.name == "ordinal")
    assert ordinal.n_levels.tolist() == [4, 4]


def test_columns_called_by_numbers_are_asked_about():
    x = pd.DataFrame(np.random.default_rng(0).normal(size=(40, 3)), columns=[1, 2, 0])
    model = ps.models.SparseDecoder(n_factors=1, likelihood={0: "normal", (1, 2): "normal"})
    with pytest.raises(ValueError, match="likelihood: 0 is the name of the column at position 2"):
        ps.fit(model, x, restarts=1, steps=5)


def test_simulated_levels_are_the_callers():
    likelihood = ps.likelihoods.Columns(
        {(0, 1, 2): "normal", (3, 4, 5): ps.likelihoods.Ordinal(levels=(1, 5))}
    )
    model = ps.models.SparseDecoder(
        6, 2, decoder="linear", anchors={0: 0, 3: 1}, factor_cov=False, likelihood=likelihood
    )
    simulate, infer = ps.calibrate.experiment(model, n_rows=60, sweeps=30, num_draws=10, steps=20)
    rng = np.random.default_rng(0)
    _, x = simulate(rng)
    assert x[:, 3:].min() >= 1 and x[:, 3:].max() <= 5
    assert infer(x, rng)["edge"].shape[1:] == (6, 2)


def test_tables_read_by_rows_have_one_likelihood():
    import scipy.sparse as sp

    rows = ps.open_rows(sp.csr_matrix(np.random.default_rng(0).poisson(2.0, size=(50, 3)).astype(float)))
    model = ps.models.SparseDecoder(n_factors=1, likelihood={(0, 1): "poisson", 2: "normal"})
    with pytest.raises(ValueError, match="read by rows has one likelihood for all columns"):
        ps.fit(model, rows, restarts=1, steps=5)


@pytest.mark.slow(hurried=True)
def test_columns_of_a_kind_are_checked_by_themselves(table):
    rng = np.random.default_rng(0)
    far = table.assign(height=table["height"].where(table.index != 7, 1e5))
    findings = ps.check_table(far, KINDS)
    assert ["height"] == [name for finding in findings for name in finding.columns]
    over = table.assign(visits=rng.poisson(4 * rng.gamma(0.5, 2.0, len(table))), calls=rng.poisson(
        4 * rng.gamma(0.5, 2.0, len(table))
    ))  # fmt: skip
    findings = ps.check_table(over, {**KINDS, "calls": "poisson"})
    assert [finding.kind for finding in findings] == ["counts"]
    assert ps.check_table(table, KINDS) == []


@pytest.mark.slow(hurried=True)
def test_counts_over_known_exposures_are_not_overdispersed(table):
    rng = np.random.default_rng(0)
    exposure = rng.gamma(1.0, 1.0, len(table)) + 0.05
    counted = table.assign(visits=rng.poisson(8.0 * exposure))
    assert [f.kind for f in ps.check_table(counted, KINDS)] == ["counts"]
    assert ps.check_table(counted, KINDS, exposure=exposure) == []


@pytest.mark.slow(hurried=True)
def test_ordinal_of_a_whole_table_reads_words(table):
    others = {f"day {seed}": _table(len(table), seed)["mood"] for seed in (5, 6)}
    words = pd.DataFrame({"mood": table["mood"], **others, "grade": table["grade"]})
    fit = ps.fit(
        ps.models.SparseDecoder(n_factors=1, likelihood="ordinal"), words, restarts=1, steps=5, progress=False
    )
    assert fit.model.likelihood.lowest.tolist() == [0.0, 0.0, 0.0, 1.0]
    assert np.isfinite(fit.score(words))


@pytest.mark.slow(hurried=True)
def test_sites_of_the_program_are_called_by_the_kind_of_column(fit):
    program = model_program(pick(fit.model, [fit.best]), fit.table)
    of_likelihood = {s for s, name in program.stands_for.items() if name.startswith("likelihood.")}
    assert of_likelihood == {"normal_log_sigma", "ordinal_log_gap_1", "ordinal_log_gap_2"}
    starts = program.starts(fit.model, fit.table, None)
    assert starts["normal_log_sigma"].shape == (2, 1, 2) and starts["ordinal_log_gap_1"].shape == (2, 1, 2)


@pytest.mark.slow
def test_special_chains_and_the_engine_agree(table):
    """Two samplers of one posterior: rows integrated feature by feature, and the recorded program."""
    model = ps.models.SparseDecoder(n_factors=2, likelihood=KINDS, decoder="linear")
    fit = ps.fit(model, table, restarts=2, seed=0, progress=False)
    special = fit.edge_posterior("mcmc", X=table, sweeps=800, warm_up=200, tolerance=0.0)

    def means(idata):
        """Of four chains, and their Monte Carlo errors."""
        by_chain = idata["edge_posterior"]["restart_probability"].to_numpy()
        by_chain = by_chain if by_chain[:, 0].mean(0).argmax() == 0 else by_chain[..., ::-1]
        return by_chain.mean(0), by_chain.std(0, ddof=1) / np.sqrt(len(by_chain))

    p, error = means(special)
    for seed in (0, 1):  # before rows followed a column's noise, it kept seven of eight chains in one place
        q, other = means(fit.edge_posterior("program", X=table, sweeps=700, seed=seed))
        gap = np.abs(p - q)
        assert (gap < 0.02 + 4 * np.hypot(error, other)).all() and gap.mean() < 0.02, gap.round(3)
        assert other.max() < 0.04, other.round(3)
