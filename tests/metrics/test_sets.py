"""R squared between sets: Gaussian closed forms, exact kernel ridge, what theory calls right and wrong."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.kernel_ridge import KernelRidge
from sklearn.metrics import r2_score
from sklearn.model_selection import GridSearchCV

from pyro_sparse.metrics import set_r2
from pyro_sparse.metrics.sets import _r2

GRAPH = np.array([[1, 1, 0, 0], [0, 1, 1, 0], [0, 0, 0, 1]])
PAIR = ([0], [1])  # share latent 1; latent 0 and latent 2 are theirs alone


@pytest.mark.slow
def test_gaussian_closed_forms():
    rng = np.random.default_rng(0)
    mix = np.eye(4) + 0.4 * rng.standard_normal((4, 4))
    z = rng.standard_normal((6000, 4))
    hat = z @ mix + 0.3 * rng.standard_normal(z.shape)
    score = set_r2(z, hat, GRAPH, PAIR, permutation=range(4), seed=7)
    test = np.random.default_rng(7).permutation(6000)[4800:]
    inner = mix.T @ mix + 0.09 * np.eye(4)

    def r2(targets, sources):
        """Of the conditional mean, on the rows that are scored."""
        slope = np.linalg.solve(inner[np.ix_(sources, sources)], mix[np.ix_(targets, sources)].T)
        return r2_score(z[np.ix_(test, targets)], hat[np.ix_(test, sources)] @ slope)

    def wanted(targets, sources):
        return pytest.approx(r2(targets, sources), abs=0.01)

    assert score.leak.intersection == wanted([1], [0, 2])
    assert score.leak.difference == wanted([0, 2], [1])
    assert score.leak.complement_a == wanted([0], [2])
    assert score.leak.complement_b == wanted([2], [0])
    assert score.own.intersection == wanted([1], [1])
    assert score.own.difference == wanted([0, 2], [0, 2])
    assert score.own.complement_a == wanted([0], [0])
    assert score.own.complement_b == wanted([2], [2])
    assert score.reference == wanted([0, 1, 2, 3], [0, 1, 2, 3])
    assert max(score.leak) > 0.1


@pytest.mark.slow
def test_groups_of_several_features():
    rng = np.random.default_rng(1)
    z = rng.standard_normal((1500, 4))
    hat = z + 0.6 * z[:, [3]] * [1, 0, 0, 0]  # latent 0 has some of latent 3
    score = set_r2(z, hat, GRAPH, ([0, 1], [2]))  # nothing shared
    assert np.isnan(score.leak.intersection) and np.isnan(score.leak.difference)
    assert np.isnan(score.own.intersection) and score.own.difference > 0.98
    assert score.leak.complement_b == pytest.approx(0.36 / 1.36, abs=0.05)  # z 3 from the hats of 0, 1, 2
    assert score.leak.complement_a < 0.02
    swapped = set_r2(z, hat, GRAPH, ([2], [0, 1]))
    assert swapped.leak.complement_a == score.leak.complement_b
    assert swapped.own.complement_b == score.own.complement_a


@pytest.mark.slow
def test_right_up_to_order_and_distortion_leaks_nothing():
    rng = np.random.default_rng(2)
    z = rng.standard_normal((2000, 4))
    hat = np.column_stack([np.tanh(z[:, 2]), z[:, 0] ** 3 / 5 + z[:, 0], -z[:, 3], np.exp(z[:, 1] / 2)])
    score = set_r2(z, hat, GRAPH, PAIR)
    assert score.permutation.tolist() == [1, 3, 0, 2]
    assert max(score.leak) < 0.01 and min(score.own) > 0.97 and score.reference > 0.97
    again = set_r2(z, hat * [2.0, -4.0, 0.5, 8.0], GRAPH, PAIR)
    np.testing.assert_allclose([*again.leak, *again.own], [*score.leak, *score.own], atol=1e-6)


@pytest.mark.slow
def test_leaks_that_no_correlation_shows():
    rng = np.random.default_rng(3)
    z = rng.standard_normal((2000, 4))
    hat = z.copy()
    hat[:, 2] += np.abs(z[:, 0]) * 2
    score = set_r2(z, hat, GRAPH, PAIR, permutation=range(4))
    assert abs(np.corrcoef(z[:, 0], hat[:, 2])[0, 1]) < 0.06
    moved = set_r2(np.abs(z), hat, GRAPH, PAIR, permutation=range(4))
    assert moved.leak.complement_a > 0.3  # |z 0| from the hat of 2
    assert score.leak.complement_b < 0.01


def test_collapse_leaks_nothing_and_keeps_nothing():
    z = np.random.default_rng(4).standard_normal((500, 4))
    score = set_r2(z, np.full((500, 4), 7.3), GRAPH, PAIR)
    assert score.leak == (0, 0, 0, 0) and score.own == (0, 0, 0, 0) and score.reference == 0
    short = set_r2(z, z[:, [1]], GRAPH, PAIR)
    assert short.permutation.tolist() == [-1, 0, -1, -1]
    assert short.own.intersection > 0.98 and short.own.difference == 0 and short.leak.difference < 0.02
    more = set_r2(z, np.column_stack([z[:, [1]], z]), GRAPH, PAIR)
    assert min(more.own) > 0.98


def test_landmarks_against_exact_kernel_ridge():
    rng = np.random.default_rng(5)
    z = rng.standard_normal((900, 3))
    hat = np.column_stack([np.sin(z[:, 0]) + z[:, 1], z[:, 1] * z[:, 2], z[:, 2] + 0.5 * rng.random(900)])
    rows = rng.permutation(900)
    train, test = rows[:700], rows[700:]
    found = _r2(z, hat, train, test, seed=0)
    x = (hat - hat[train].mean(0)) / hat[train].std(0)
    exact = []
    for i in range(3):
        search = GridSearchCV(KernelRidge(kernel="rbf", gamma=0.1), {"alpha": [1e-3, 1e-2, 0.1, 1, 10]}, cv=3)
        exact.append(search.fit(x[train], z[train, i]).score(x[test], z[test, i]))
    np.testing.assert_allclose(found, exact, atol=0.05)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"z_hat": np.zeros((9, 4))}, r"z_true has shape \(20, 4\), z_hat \(9, 4\)"),
        ({"z_hat": np.full((20, 4), np.inf)}, "z_hat: want finite numbers"),
        ({"graph": np.ones((3, 5))}, r"graph: want shape \(G, 4\), .* got \(3, 5\)"),
        ({"groups": ([0], [1], [2])}, "groups: want two groups of features, got 3"),
        ({"groups": ([0], [])}, "groups: want at least one feature in each, numbers from 0 to 2"),
        ({"groups": ([0], [3])}, r"numbers from 0 to 2, got \[3\]"),
        ({"groups": ([True, False, False], [1])}, "want at least one feature in each"),
        ({"permutation": [0, 0, 1, 2]}, "does not match 4 true latents to distinct ones of 4"),
        ({"permutation": [0, 1, 2, 4]}, "does not match 4 true latents"),
    ],
)
def test_bad_arguments_are_named(arguments, message):
    z = np.random.default_rng(6).standard_normal((20, 4))
    with pytest.raises(ValueError, match=message):
        set_r2(**{"z_true": z, "z_hat": z, "graph": GRAPH, "groups": PAIR, **arguments})
