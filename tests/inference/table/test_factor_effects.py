"""`ps.factor_effects`: what moves factors, of fits as users have them, and what is refused or warned of."""

from __future__ import annotations

import json
import warnings

import numpy as np
import pandas as pd
import pytest

import pyro_sparse as ps

N = 400


def table(seed=0, direct=0.0):
    """Nine items of two factors, moved by age and by sex, with holes; schools differ in the first."""
    rng = np.random.default_rng([seed, 7])
    about = pd.DataFrame(
        {
            "age": rng.normal(40, 10, N),
            "sex": rng.choice(["f", "m"], N),
            "school": rng.choice(list("abcdef"), N),
        }
    )
    of_school = dict(zip("abcdef", rng.normal(0, 0.5, 6), strict=True))
    z = 0.8 * rng.normal(size=(N, 2))
    z[:, 0] += 0.05 * (about.age - 40) + about.school.map(of_school)
    z[:, 1] += np.where(about.sex == "f", 0.4, -0.4)
    sd = z.std(0)
    weight = np.zeros((9, 2))
    weight[:5, 0] = weight[5:, 1] = 0.6
    x = (z - z.mean(0)) / sd @ weight.T + 0.8 * rng.normal(size=(N, 9))
    x[:, 6] += direct * (about.age - 40) / 10
    x[rng.random(x.shape) < 0.05] = np.nan
    slopes = {("age", 0): 0.05 / sd[0], ("sex = f", 1): 0.8 * (about.sex == "m").mean() / sd[1]}
    return pd.DataFrame(x, columns=[f"x{j}" for j in range(9)]), about, slopes, of_school, sd


def fitted(x, **settings):
    model = ps.models.SparseDecoder(n_factors=2, decoder="linear")
    fit = ps.fit(model, x, restarts=2, seed=0, progress=False, **settings)
    first = int(np.abs(fit.weights[fit.best][0]).argmax())
    signs = [np.sign(fit.weights[fit.best][j, k]) for j, k in ((0, first), (6, 1 - first))]
    return fit, fit.edge_posterior(seed=0, sweeps=240, progress=False), [first, 1 - first], signs


@pytest.fixture(scope="module")
def world():
    x, about, slopes, of_school, sd = table()
    return fitted(x), about, slopes, of_school, sd


@pytest.fixture(scope="module")
def effects(world):
    (fit, idata, *_), about, *_ = world
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return ps.factor_effects(fit, idata, about[["age", "sex"]], groups=about["school"])


@pytest.mark.slow
def test_intervals_hold_the_truth_where_scores_fall_short(world, effects):
    (fit, _, place, signs), about, slopes, *_ = world
    rows = effects.set_index(["covariate", "factor"])
    for (name, k), truth in slopes.items():
        row = rows.loc[(name, fit.factor_names[place[k]])]
        low, high = sorted(row[["hdi90_lb", "hdi90_ub"]] * signs[k])
        assert low < truth < high and row["mean"] * signs[k] == pytest.approx(truth, rel=0.25)
        other = rows.loc[(name, fit.factor_names[place[1 - k]])]
        assert other.hdi90_lb < 0 < other.hdi90_ub
    age = about.age.to_numpy() - about.age.mean()
    of_scores = age @ fit.transform()[:, place[0]] * signs[0] / (age @ age)
    assert of_scores < 0.9 * slopes["age", 0]


@pytest.mark.slow
def test_means_of_groups_lie_near_theirs(world, effects):
    (fit, _, place, signs), about, _, of_school, sd = world
    rows = effects.set_index(["covariate", "factor"])
    names = [f"school = {s}" for s in "abcdef"]
    got = rows.loc[[(name, fit.factor_names[place[0]]) for name in names], "mean"].to_numpy() * signs[0]
    truth = np.array([of_school[s] for s in "abcdef"]) - about.school.map(of_school).mean()
    assert np.corrcoef(got, truth)[0, 1] > 0.8
    elsewhere = rows.loc[[(name, fit.factor_names[place[1]]) for name in names], "mean"]
    assert np.abs(elsewhere).max() < np.abs(got).max() / 2


@pytest.mark.slow
def test_the_table_says_what_it_is_of_and_is_the_same_again(world, effects):
    (fit, idata, *_), about, *_ = world
    assert list(effects.columns) == ["covariate", "factor", "mean", "sd", "hdi90_lb", "hdi90_ub", "doubted"]
    assert len(effects) == (1 + 2 + 6) * 2 and not effects.doubted.any()
    assert json.loads(effects.attrs["findings"]) == []
    again = ps.factor_effects(fit, idata, about[["age", "sex"]], groups=about["school"])
    pd.testing.assert_frame_equal(effects, again)


@pytest.mark.slow
def test_a_covariate_that_moves_an_item_directly_is_said():
    x, about, *_ = table(direct=0.5)
    fit, idata, *_ = fitted(x)
    with pytest.warns(RuntimeWarning, match="age moves x6 directly, past the factors"):
        effects = ps.factor_effects(fit, idata, {"age": about.age.to_numpy()})
    [finding] = json.loads(effects.attrs["findings"])
    assert finding["kind"] == "direct" and finding["columns"] == ["x6"]


@pytest.mark.slow
def test_clusters_of_rows_with_one_value_are_said(world):
    """Schools differ, and each has a number of computers: its pupils are no independent evidence."""
    (fit, idata, *_), about, *_ = world
    computers = about["school"].map(dict(zip("abcdef", (4.0, 11.0, 2.0, 7.0, 9.0, 3.0), strict=True)))
    with pytest.warns(RuntimeWarning, match="rows with one value of 'computers' are alike beyond its effect"):
        table = ps.factor_effects(fit, idata, {"age": about["age"], "computers": computers})
    (finding,) = json.loads(table.attrs["findings"])
    assert finding["kind"] == "covariates" and "groups=" in finding["remedy"]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ps.factor_effects(fit, idata, {"age": about["age"], "computers": computers}, groups=about["school"])


def test_a_curve_is_said(world):
    (fit, idata, *_), about, *_ = world
    score = np.asarray(fit.transform())[:, 0] + np.random.default_rng(0).normal(size=N)
    with pytest.warns(RuntimeWarning, match="the effect of 'mood' is a curve"):
        ps.factor_effects(fit, idata, {"mood": np.sqrt(np.maximum(score + 2, 0)) * np.resize([-1, 1], N)})


@pytest.mark.slow
def test_yes_no_answers_have_effects_too():
    x, about, slopes, *_ = table(seed=1)
    answers = (x.fillna(0.0) > 0).astype(float)
    model = ps.models.SparseDecoder(
        n_factors=2, decoder="linear", likelihood="bernoulli", anchors={0: 0, 8: 1}
    )
    fit = ps.fit(model, answers, restarts=2, seed=0, progress=False)
    idata = fit.edge_posterior(seed=0, sweeps=160, progress=False)
    rows = ps.factor_effects(fit, idata, about["age"]).set_index("factor")
    row, other = rows.iloc[0], rows.iloc[1]
    sign = np.sign(fit.weights[fit.best][0, 0])
    assert (
        row["mean"] * sign == pytest.approx(slopes["age", 0], abs=3 * row.sd)
        and row["mean"] * sign > 3 * row.sd
    )
    assert abs(other["mean"]) < 3 * other.sd


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "got none of both"),
        ({"covariates": "age"}, r"got the name 'age', wanted the values, such as table\['age'\]"),
        ({"covariates": np.zeros(N)}, "in every row"),
        ({"covariates": np.arange(N - 1)}, f"has {N - 1} rows, and X has {N}"),
        ({"groups": [f"g{i}" for i in range(N)]}, "has one row with the level"),
        ({"covariates": np.arange(N), "seed": -1}, "seed"),
        (
            {"covariates": {"s": ["a", "b"] * (N // 2)}, "groups": {"s": ["a", "b"] * (N // 2)}},
            "is there twice",
        ),
    ],
    ids=["nothing", "name", "constant", "rows", "group of one", "seed", "twice"],
)
def test_bad_input_is_refused(world, arguments, message):
    (fit, idata, *_), *_ = world
    with pytest.raises((ValueError, TypeError), match=message):
        ps.factor_effects(fit, idata, **arguments)


@pytest.mark.slow
def test_covariates_that_factors_are_net_of_are_refused_and_others_are_not():
    x, about, *_ = table(seed=2)
    fit, idata, place, _ = fitted(x, covariates=about[["sex"]])
    with pytest.raises(ValueError, match="net of 'sex'"):
        ps.factor_effects(fit, idata, about[["sex"]])
    effects = ps.factor_effects(fit, idata, about[["age"]]).set_index("factor")
    row = effects.loc[fit.factor_names[place[0]]]
    assert row.hdi90_lb * row.hdi90_ub > 0


@pytest.mark.slow
def test_what_has_no_straight_lines_or_no_chains_is_refused(world, tmp_path):
    (fit, idata, *_), about, *_ = world
    with pytest.raises(ValueError, match="has no factor_correlation"):
        ps.factor_effects(fit, fit.edge_posterior("score"), about["age"])
    fit.save(tmp_path / "fit")
    with pytest.raises(ValueError, match=r"fit\.with_data"):
        ps.factor_effects(ps.load(tmp_path / "fit"), idata, about["age"])
    curved = ps.fit(ps.models.SparseDecoder(n_factors=1), np.random.default_rng(0).normal(size=(60, 4)),
                    restarts=1, steps=40, progress=False)  # fmt: skip
    with pytest.raises(ValueError, match=r'SparseDecoder\(decoder="linear"\)'):
        ps.factor_effects(curved, curved.edge_posterior("score"), np.arange(60))
    rows = ps.open_rows(np.random.default_rng(0).normal(size=(60, 4)))
    by_rows = ps.fit(
        ps.models.SparseDecoder(n_factors=1, decoder="linear"), rows, restarts=1, steps=40, progress=False
    )
    with pytest.raises(ValueError, match="is read by rows"):
        ps.factor_effects(by_rows, by_rows.edge_posterior("score"), np.arange(60))
