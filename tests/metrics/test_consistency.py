"""R_con against scikit-learn, SHD against all permutations."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest
from sklearn.linear_model import LinearRegression

from pyro_sparse.graphs import consistency
from pyro_sparse.metrics import consistency as module
from pyro_sparse.metrics import mcc, mechanism_shd, r_con, r_score


@pytest.fixture
def rng():
    return np.random.default_rng(0)


def test_r_con_by_regression_on_the_allowed_latents(rng):
    allowed = np.array([[1, 1, 0], [0, 1, 0], [0, 1, 1]])
    order = [2, 0, 1]
    hat, hat_test = rng.standard_normal((60, 3)), rng.standard_normal((50, 3))
    mix = rng.standard_normal((3, 3))
    true, true_test = (h @ mix + rng.standard_normal(h.shape) + 5 for h in (hat, hat_test))
    inside, outside = [], []
    for i, may in enumerate([[2, 0], [0], [0, 1]]):
        model = LinearRegression().fit(hat[:, may], true[:, i])
        inside.append(np.sqrt(model.score(hat[:, may], true[:, i])))
        outside.append(np.sqrt(max(0, model.score(hat_test[:, may], true_test[:, i]))))
    assert r_con(true, hat, allowed, order) == pytest.approx(np.mean(inside))
    assert r_con(true, hat, allowed, order, true_test, hat_test) == pytest.approx(np.mean(outside))


def test_r_con_lies_between_mcc_and_r(rng):
    true = rng.standard_normal((80, 4))
    hat = true @ rng.standard_normal((4, 4)) + 0.3 * rng.standard_normal((80, 4))
    middle = r_con(true, hat, np.kron(np.eye(2), np.ones((2, 2))))
    assert r_con(true, hat, np.eye(4)) == pytest.approx(mcc(true, hat).value)
    assert r_con(true, hat, np.ones((4, 4))) == pytest.approx(r_score(true, hat))
    assert mcc(true, hat).value < middle < r_score(true, hat)


def test_r_con_forgives_what_the_theory_allows_and_nothing_else(rng):
    graph = np.repeat(np.eye(5, dtype=int), 2, axis=0)
    graph[8:, 0] = 1
    free = consistency(graph)
    z = rng.standard_normal((300, 10))
    order = rng.permutation(10)
    allowed = free * rng.uniform(0.2, 0.6, (10, 10)) + 2 * np.eye(10)
    assert r_con(z, np.linalg.solve(allowed, z.T).T[:, order], free) == pytest.approx(1)
    forbidden = free.T * rng.uniform(0.2, 0.6, (10, 10)) + 2 * np.eye(10)
    assert r_con(z, np.linalg.solve(forbidden, z.T).T[:, order], free) < 0.995


def test_r_con_is_honest_on_test_rows_and_counts_missing_latents(rng):
    true, hat = rng.standard_normal((20, 3)), rng.standard_normal((20, 12))
    again = rng.standard_normal((500, 3)), rng.standard_normal((500, 12))
    assert r_con(true, hat, np.ones((3, 3))) > 0.2 > r_con(true, hat, np.ones((3, 3)), None, *again)
    assert r_con(true, true[:, [2]], np.eye(3)) == pytest.approx(1 / 3)
    assert r_con(true, true, np.eye(3), [0, -1, 2]) == pytest.approx(2 / 3)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"z_hat": np.ones((4, 2))}, "z_true has shape"),
        ({"z_true_test": np.ones((4, 2))}, "give both or neither"),
        ({"consistency": np.eye(3)}, r"consistency: want shape \(2, 2\)"),
        ({"consistency": [[1, 0], [1, 0]]}, "with a true diagonal"),
        ({"permutation": [1, 1]}, r"permutation=\[1, 1\] does not match 2"),
        ({"permutation": [0, 2]}, "does not match"),
        ({"permutation": [0, -2]}, "does not match"),
        ({"permutation": [0]}, "does not match"),
    ],
)
def test_r_con_refuses(change, message):
    z = np.random.default_rng(0).standard_normal((9, 2))
    with pytest.raises(ValueError, match=message):
        r_con(**({"z_true": z, "z_hat": z, "consistency": np.eye(2)} | change))


def distance(order, a, hat_a, z, hat_z):
    k, total = len(order), 0
    for i in range(k):
        if a is not None:
            total += sum(bool(a[i][m]) != bool(hat_a[order[i]][m]) for m in range(len(a[i])))
        if z is not None:
            total += sum(bool(z[i][j]) != bool(hat_z[order[i]][order[j]]) for j in range(k))
    return total


@pytest.mark.parametrize("kind", ["a", "z", "az"])
def test_shd_by_all_permutations(rng, kind):
    for _ in range(15):
        k = int(rng.integers(1, 6))
        a, hat_a = rng.random((2, k, k)) < 0.4 if "a" in kind else (None, None)  # as many actions as latents
        z, hat_z = rng.random((2, k, k)) < 0.4 if "z" in kind else (None, None)
        order = rng.permutation(k)
        got = mechanism_shd(a, hat_a, z, hat_z, order)
        assert got.value == distance(order, a, hat_a, z, hat_z)
        assert got.best == min(distance(p, a, hat_a, z, hat_z) for p in permutations(range(k)))
        assert got.best == distance(got.permutation, a, hat_a, z, hat_z) and got.exact


def test_shd_finds_a_scrambled_graph_with_a_few_errors(rng):
    z = np.tril(np.ones((10, 10), dtype=bool))
    a = rng.random((10, 4)) < 0.4
    wrong = z.copy()
    wrong[[7, 3, 2], [2, 1, 8]] ^= True
    order = rng.permutation(10)
    got = mechanism_shd(a, a[order], z, wrong[np.ix_(order, order)])
    assert got.value > 20 and got.best <= 3 and got.exact
    back = np.argsort(order)
    assert mechanism_shd(a, a[order], z, wrong[np.ix_(order, order)], back).value == 3


def test_shd_without_room_for_an_exact_search_says_so(rng, monkeypatch):
    z, hat_z = rng.random((2, 6, 6)) < 0.4
    exact = mechanism_shd(true_z=z, estimated_z=hat_z)
    monkeypatch.setattr(module, "_CELLS", 36)
    rough = mechanism_shd(true_z=z, estimated_z=hat_z)
    assert exact.exact and not rough.exact
    assert exact.best <= rough.best <= rough.value
    assert rough.best == distance(rough.permutation, None, None, z, hat_z)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "want at least one graph"),
        ({"true_z": np.eye(2)}, "true_z and estimated_z go together"),
        (
            {"true_z": np.eye(2), "estimated_z": [[1, np.nan], [0, 1]]},
            "estimated_z: want 0 or another",
        ),
        ({"true_a": np.eye(2), "estimated_a": np.eye(3)}, r"true_a has shape \(2, 2\), estimated_a \(3, 3\)"),
        ({"true_z": np.ones((2, 3)), "estimated_z": np.ones((2, 3))}, "true_z: want a square graph"),
        (
            {"true_z": np.eye(2), "estimated_z": np.eye(2), "true_a": np.eye(3), "estimated_a": np.eye(3)},
            "true_a has 3 latents, true_z 2",
        ),
        (
            {"true_z": np.eye(2), "estimated_z": np.eye(2), "permutation": [0, -1]},
            "is not a permutation of 2",
        ),
    ],
)
def test_shd_refuses(arguments, message):
    with pytest.raises(ValueError, match=message):
        mechanism_shd(**arguments)
