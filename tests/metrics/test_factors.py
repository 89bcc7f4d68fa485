"""Factor metrics against brute force, SciPy and scikit-learn."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest
from scipy.stats import entropy, pearsonr, spearmanr
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.linear_model import LassoCV, LinearRegression
from sklearn.metrics import r2_score
from sklearn.model_selection import KFold

from pyro_sparse.metrics import dci, mcc, r_score


@pytest.mark.parametrize("method", ["pearson", "spearman"])
@pytest.mark.parametrize("extra", [0, 2])
def test_mcc_by_all_permutations(method, extra):
    rng = np.random.default_rng(extra)
    true = rng.standard_normal((60, 3))
    hat = true @ rng.standard_normal((3, 3 + extra)) + rng.standard_normal((60, 3 + extra))
    one = {"pearson": pearsonr, "spearman": spearmanr}[method]
    table = np.array([[abs(one(a, b).statistic) for b in hat.T] for a in true.T])
    best = max(permutations(range(3 + extra), 3), key=lambda p: table[range(3), p].sum())
    result = mcc(true, hat, method)
    assert result.value == pytest.approx(table[range(3), best].mean())
    assert result.permutation.tolist() == list(best)
    np.testing.assert_allclose(result.correlation, table[range(3), best])


def test_mcc_ignores_order_sign_scale_and_spearman_any_monotone_map():
    z = np.random.default_rng(0).standard_normal((100, 4))
    moved = z[:, [2, 0, 3, 1]] * [-2.0, 1.0, 0.1, 5.0] + 3
    assert mcc(z, moved).value == pytest.approx(1)
    assert mcc(z, moved).permutation.tolist() == [1, 3, 0, 2]
    assert mcc(z, np.exp(3 * z), "spearman").value == pytest.approx(1)
    assert mcc(z, np.exp(3 * z)).value < 0.7


def test_mcc_missing_and_constant_factors_count_zero():
    z = np.random.default_rng(1).standard_normal((80, 3))
    short = mcc(z, z[:, [2]])
    assert short.value == pytest.approx(1 / 3) and short.permutation.tolist() == [-1, -1, 0]
    constant = np.column_stack([z[:, 0], np.full(80, 7.3), np.full(80, 1e9)])
    assert mcc(z, constant).value == pytest.approx(1 / 3)


def test_mcc_refuses():
    z = np.zeros((5, 2))
    with pytest.raises(ValueError, match="z_true has shape"):
        mcc(z, np.zeros((4, 2)))
    with pytest.raises(ValueError, match="method='kendall'"):
        mcc(z, z, "kendall")


@pytest.mark.parametrize("score", [mcc, r_score, dci])
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_factors_that_are_not_finite_are_refused(score, bad):
    z = np.random.default_rng(0).standard_normal((20, 2))
    hole = np.where(np.arange(40).reshape(20, 2) == 3, bad, z)
    with pytest.raises(ValueError, match="z_true: want finite numbers, got 1 that are NaN or infinite"):
        score(hole, z)
    with pytest.raises(ValueError, match="z_hat: want finite numbers"):
        score(z, hole)


def test_r_score_is_sqrt_r2_of_linear_regression():
    rng = np.random.default_rng(2)
    hat, hat_test = rng.standard_normal((50, 4)), rng.standard_normal((40, 4))
    mix = rng.standard_normal((4, 3))
    true, true_test = (h @ mix + 2 * rng.standard_normal((len(h), 3)) + 5 for h in (hat, hat_test))
    model = LinearRegression()
    inside = [model.fit(hat, t).score(hat, t) for t in true.T]
    outside = [model.fit(hat, t).score(hat_test, u) for t, u in zip(true.T, true_test.T, strict=True)]
    assert r_score(true, hat) == pytest.approx(np.sqrt(inside).mean())
    assert r_score(true, hat, true_test, hat_test) == pytest.approx(np.sqrt(np.clip(outside, 0, 1)).mean())
    rotated = true @ np.linalg.qr(rng.standard_normal((3, 3)))[0]
    assert r_score(true, rotated) == pytest.approx(1) and mcc(true, rotated).value < 0.99


def test_r_score_edges():
    z = np.random.default_rng(3).standard_normal((30, 2))
    assert r_score(np.ones((30, 1)), z) == 0
    with pytest.raises(ValueError, match="give both or neither"):
        r_score(z, z, z)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["boosting", "lasso"])
def test_dci_one_to_one_and_mixed(method):
    rng = np.random.default_rng(4)
    true = rng.standard_normal((300, 3))
    clean = dci(true, true[:, [1, 2, 0]] * [1, -2, 3], method)
    assert min(clean[:3]) > 0.9
    assert clean.importance.argmax(0).tolist() == [2, 0, 1]
    mixed = dci(true, true @ (np.eye(3) - 2 / 3), method)  # a reflection that mixes all three
    assert mixed.disentanglement < 0.6 and mixed.completeness < 0.6
    noise = dci(true, rng.standard_normal((300, 3)), method)
    assert noise.informativeness < 0.05


@pytest.mark.slow
def test_dci_formula_from_its_own_importances():
    rng = np.random.default_rng(5)
    true = rng.standard_normal((200, 3))
    hat = true @ rng.standard_normal((3, 5)) + 0.1 * rng.standard_normal((200, 5))
    result = dci(true, hat, "lasso")
    r = result.importance
    d = np.average(1 - entropy(r.T, base=3), weights=r.sum(1))
    c = np.average(1 - entropy(r, base=5), weights=r.sum(0))
    assert result.disentanglement == pytest.approx(d) and result.completeness == pytest.approx(c)
    with pytest.raises(ValueError, match="method='forest'"):
        dci(true, hat, "forest")
    assert dci(true[:, :1], true[:, :2], "lasso").disentanglement == 1
    assert dci(true[:, :1], np.ones((200, 2)), "lasso").completeness == 0


def levels_and_mixed(n, seed):
    rng = np.random.default_rng(seed)
    levels = np.stack([rng.integers(c, size=n) for c in (4, 3)], axis=1)
    codes = (levels - levels.mean(0)) @ [[1.0, 0.0, 0.6], [0.0, 1.0, 0.6]] + 0.6 * rng.standard_normal((n, 3))
    return levels, codes


@pytest.mark.slow
@pytest.mark.parametrize("method", ["boosting", "histogram"])
def test_dci_of_levels(method):
    levels, codes = levels_and_mixed(600, 6)
    fresh = levels_and_mixed(300, 7)[0]

    def score(of, test):
        return dci(levels, of, method, discrete=True, z_true_test=fresh, z_hat_test=test)

    clean = score(levels[:, [1, 0]] * [1.0, -2.0], fresh[:, [1, 0]] * [1.0, -2.0])
    assert min(clean[:3]) == pytest.approx(1, abs=0.01)
    assert clean.importance.argmax(0).tolist() == [1, 0]
    np.testing.assert_allclose(clean.importance.sum(0), 1)
    rng = np.random.default_rng(7)
    noise = score(rng.standard_normal((600, 2)), rng.standard_normal((300, 2)))
    assert noise.disentanglement < 0.1 and noise.informativeness == pytest.approx(7 / 24, abs=0.06)
    mixed = score(codes, np.zeros((300, 3)))
    assert 0.1 < mixed.disentanglement < 0.9
    moved = score(codes[:, [2, 0, 1]] * [2.0, -4.0, 8.0] + 1, np.zeros((300, 3)))
    assert moved.disentanglement == pytest.approx(mixed.disentanglement, abs=0.03)


@pytest.mark.slow
def test_dci_has_no_use_for_the_order_of_levels():
    levels, codes = levels_and_mixed(600, 8)
    odd = np.array([10, -3, 7, 0])[levels]
    first = dci(levels, codes, "histogram", discrete=True, folds=2)
    second = dci(odd, codes, "histogram", discrete=True, folds=2)
    assert second[:3] == pytest.approx(first[:3], abs=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("discrete", [True, False])
def test_histogram_gains_are_close_to_those_of_boosting(discrete):
    levels, codes = levels_and_mixed(1500, 9)
    one, other = (
        dci(levels, codes, m, discrete=discrete, z_true_test=levels, z_hat_test=codes)
        for m in ("boosting", "histogram")
    )
    np.testing.assert_allclose(one.importance, other.importance, atol=0.06)
    assert one.informativeness == pytest.approx(other.informativeness, abs=0.05)


@pytest.mark.parametrize("discrete", [pytest.param(True, marks=pytest.mark.slow), False])
def test_dci_on_test_rows(discrete):
    levels, codes = levels_and_mixed(800, 10)
    levels = levels * 2 + 5
    train, test = (levels[:400], codes[:400]), (levels[400:], codes[400:])
    score = dci(*train, "histogram", discrete=discrete, z_true_test=test[0], z_hat_test=test[1])
    kind = HistGradientBoostingClassifier if discrete else HistGradientBoostingRegressor
    wanted = []
    for k in range(2):
        model = kind(
            max_depth=3, max_leaf_nodes=None, min_samples_leaf=5, early_stopping=False, random_state=0
        )
        guess = model.fit(train[1], train[0][:, k]).predict(test[1])
        error = (guess - test[0][:, k]) ** 2 / train[0][:, k].var()
        wanted.append((guess == test[0][:, k]).mean() if discrete else 1 - error.mean())
    assert score.informativeness == pytest.approx(np.mean(wanted), abs=0.01)
    same = dci(*train, "histogram", discrete=discrete, folds=2)
    np.testing.assert_array_equal(same.importance, score.importance)
    assert same.informativeness != score.informativeness


def test_dci_informativeness_is_r2_of_the_test_rows():
    rng = np.random.default_rng(0)
    (true, test), noise = rng.standard_normal((2, 300, 2)), rng.standard_normal((2, 300, 2))
    test = 0.3 * test + 1.0
    hat, test_hat = true + 0.2 * noise[0], test + 0.2 * noise[1]
    score = dci(true, hat, "lasso", z_true_test=test, z_hat_test=test_hat).informativeness
    centre, scale = hat.mean(0), hat.std(0)
    model = [
        LassoCV(cv=KFold(5, shuffle=True, random_state=0)).fit((hat - centre) / scale, t) for t in true.T
    ]
    guess = np.column_stack([m.predict((test_hat - centre) / scale) for m in model])
    assert score == pytest.approx(r2_score(test, guess), abs=1e-3) and score < 0.8


@pytest.mark.parametrize("tested", [False, True])
def test_dci_of_a_constant_factor_is_not_informative(tested):
    rng = np.random.default_rng(0)
    true = np.column_stack([rng.standard_normal(200), np.full(200, 3.1)])
    rows = {"z_true_test": true, "z_hat_test": true} if tested else {}
    assert dci(true, true, "lasso", **rows).informativeness == pytest.approx(0.5, abs=0.01)


def test_dci_of_levels_refuses():
    levels, codes = levels_and_mixed(30, 11)
    with pytest.raises(ValueError, match="method='lasso' must be 'boosting' or 'histogram' for discrete"):
        dci(levels, codes, "lasso", discrete=True)
    with pytest.raises(ValueError, match="z_true: want whole numbers"):
        dci(levels + 0.5, codes, discrete=True)
    with pytest.raises(ValueError, match="z_true: factor 0 has one level only"):
        dci(levels * [0, 1], codes, discrete=True)
    with pytest.raises(ValueError, match="give both or neither"):
        dci(levels, codes, z_true_test=levels)
