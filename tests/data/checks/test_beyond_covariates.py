"""Covariates whose effects are no lines: each shape is told by name, its remedy silences it, lines do not."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy import stats

import pyro_sparse as ps
from pyro_sparse.data.checks.beyond_covariates import _chance, _orthonormal, _share
from pyro_sparse.data.design import design_of

N = 240


def table(seed, n=N):
    """Twelve columns of three factors."""
    rng = np.random.default_rng(seed)
    x = np.repeat(rng.normal(size=(n, 3)), 4, 1) * rng.uniform(0.7, 1.2, 12) + 0.6 * rng.normal(size=(n, 12))
    return rng, pd.DataFrame(x).add_prefix("x")


def seen(x, **given):
    return [finding for finding in ps.check_table(x, **given) if finding.kind in ("covariates", "groups")]


def curve(seed):
    rng, x = table(seed)
    age = rng.uniform(20, 70, N)
    x += 0.4 * stats.zscore((age - 45) ** 2)[:, None] * rng.choice([-1, 1], 12)
    return x, {"age": age, "height": rng.normal(170, 9, N)}, "the effect of 'age' is a curve"


def product(seed):
    rng, x = table(seed)
    age, sex = rng.normal(50, 9, N), rng.choice(["f", "m"], N)
    x += (np.where(sex == "f", 0.6, -0.6) * (age - 50) / 9)[:, None] * rng.choice([-1, 1], 12)
    return x, {"age": age, "sex": sex}, "effects of 'age' and 'sex' depend on each other"


def cluster(seed):
    rng, x = table(seed)
    school, funding = rng.permutation(np.repeat(np.arange(12), 20)), rng.lognormal(10, 1, 12)
    x += 0.6 * rng.normal(size=(12, 12))[school]
    return x, {"funding": funding[school]}, "rows with one value of 'funding' are alike"


def places(seed):
    rng, x = table(seed)
    at = rng.uniform(size=(N, 2))
    distance = ((at[:, None] - at[None]) ** 2).sum(-1)
    x += np.linalg.cholesky(np.exp(-distance / 0.08) + 1e-6 * np.eye(N)) @ rng.normal(size=(N, 12))
    return x, {"lat": at[:, 0], "lon": at[:, 1]}, "rows near one another in 'lat' and 'lon' are alike"


@pytest.mark.parametrize("make", [curve, product, cluster, places])
@pytest.mark.parametrize("seed", [5000, 5001])
def test_each_shape_is_told_by_its_name_and_its_covariates(make, seed):
    x, given, said = make(seed)
    (finding,) = seen(x, covariates=pd.DataFrame(given))
    assert finding.message.startswith(said) and finding.is_doubt and finding.touches_all
    assert 0.2 < finding.size < 1


def test_what_the_remedies_say_silences_it():
    x, given, _ = curve(5000)
    assert not seen(x, covariates=pd.DataFrame(given).assign(square=given["age"] ** 2))
    x, given, _ = product(5000)
    own = np.where(given["sex"] == "f", given["age"], 0)
    assert not seen(x, covariates=pd.DataFrame(given).assign(of_women=own))
    x, given, _ = cluster(5000)
    assert not seen(x, groups=pd.Series(given["funding"].round(3).astype(str), name="school"))


@pytest.mark.parametrize("seed", range(5000, 5010))
def test_lines_are_no_finding(seed):
    rng, x = table(seed)
    given = pd.DataFrame({
        "skewed": rng.exponential(size=N), "heavy": rng.standard_t(2, N), "level": rng.integers(1, 8, N),
        "group": rng.choice(list("abc"), N),
    })  # fmt: skip
    x += 0.7 * given["skewed"].to_numpy()[:, None] + 0.3 * np.outer(given["heavy"], rng.normal(size=12))
    x += given["group"].map({"a": 0.0, "b": 0.8, "c": 1.6}).to_numpy()[:, None]
    assert not seen(x, covariates=given)
    assert not seen(np.exp(x / 2), covariates=given[["level"]])


def test_the_chance_is_that_of_an_analysis_of_variance():
    """Of one component the F test; of several a uniform distribution where nothing depends."""
    rng = np.random.default_rng(0)
    n, q, r = 200, 3, 4
    rows, functions, y = (rng.normal(size=(n, k)) for k in (q, r, 1))
    y += 0.15 * functions[:, :1]
    taken = _orthonormal(np.column_stack([np.ones(n), rows]))

    def rest(*columns):
        design = np.column_stack([np.ones(n), *columns])
        return float(((y - design @ np.linalg.lstsq(design, y, rcond=None)[0]) ** 2).sum())

    free = n - 1 - q - r
    f = (rest(rows) - rest(rows, functions)) / r / (rest(rows, functions) / free)
    assert _chance(y, taken, functions) == pytest.approx(stats.f.sf(f, r, free), rel=0.02)
    chances = [_chance(rng.normal(size=(60, 5)), np.full((60, 1), 60**-0.5), rng.normal(size=(60, 8)))
               for _ in range(400)]  # fmt: skip
    assert stats.kstest(chances, "uniform").pvalue > 0.01


def test_the_share_is_the_squared_correlation_of_the_best_direction():
    rng = np.random.default_rng(1)
    n = 20_000
    function, noise = rng.normal(size=(n, 1)), rng.normal(size=(n, 3))
    y = noise + function * [0.8, 0.0, 0.0]
    ones = np.full((n, 1), n**-0.5)
    assert _share(y, ones, function) == pytest.approx(0.64 / 1.64, abs=0.02)
    assert _share(noise, ones, function) < 0.002


def test_coded_columns_come_back_from_a_design_matrix():
    rng = np.random.default_rng(2)
    given = {
        "covariates": pd.DataFrame({
            "income": rng.normal(4e6, 1e6, 50), "dose": rng.normal(size=50) * 1e-6,
            "sex": rng.choice(["f", "m"], 50),
        }),
        "groups": pd.Series(rng.choice(list("abcd"), 50), name="site"),
    }  # fmt: skip
    design, rows = design_of(given, 50, None)
    columns = design.coded(rows)
    np.testing.assert_allclose(columns[:, 0] + design.centre[0], given["covariates"]["income"])
    np.testing.assert_allclose(columns[:, 1] + design.centre[1], given["covariates"]["dose"])
    dummies = pd.get_dummies(given["groups"]).to_numpy(float)
    np.testing.assert_allclose(columns[:, -4:], dummies - dummies.mean(0), atol=1e-12)
