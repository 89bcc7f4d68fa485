"""Support metrics against all permutations and scikit-learn."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest
from sklearn.metrics import f1_score, precision_score, recall_score

from pyro_sparse.metrics import fdp, shd, support_scores


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("columns", [3, 4, 5])
def test_matching_is_the_best_of_all(seed, columns):
    """Pad both graphs to the same width, try every order, keep the least Hamming distance."""
    rng = np.random.default_rng(seed)
    true, found = rng.random((12, 4)) < 0.4, rng.random((12, columns)) < 0.4
    wide = max(4, columns)
    a = np.pad(true, ((0, 0), (0, wide - 4)))
    b = np.pad(found, ((0, 0), (0, wide - columns)))
    orders = [b[:, list(p)] for p in permutations(range(wide))]
    best = min(orders, key=lambda c: (a != c).sum())
    scores = support_scores(true, found)
    assert scores.hamming == (a != best).sum()
    assert scores.f1 == pytest.approx(f1_score(a.ravel(), best.ravel()))
    assert scores.precision == pytest.approx(precision_score(a.ravel(), best.ravel()))
    assert scores.recall == pytest.approx(recall_score(a.ravel(), best.ravel()))


def test_given_permutation_is_kept():
    true = np.array([[1, 0], [1, 0], [0, 1]])
    assert support_scores(true, true[:, ::-1]).hamming == 0
    straight = support_scores(true, true[:, ::-1], permutation=[0, 1])
    assert straight.hamming == 6 and straight.f1 == 0
    half = support_scores(true, true, permutation=[0, -1])
    assert (half.hamming, half.recall, half.precision) == (2, pytest.approx(2 / 3), pytest.approx(2 / 3))
    for bad in ([0, 0], [0], [0, 2], [0, -2]):
        with pytest.raises(ValueError, match="permutation="):
            support_scores(true, true, permutation=bad)


@pytest.mark.parametrize("score", [support_scores, shd, fdp])
def test_an_unknown_edge_is_no_edge_found(score):
    true = np.eye(3)
    holes = np.where(true, np.nan, true)
    with pytest.raises(ValueError, match="^true: want 0 or another number for every edge, got NaN"):
        score(holes, true)
    with pytest.raises(ValueError, match="^(estimated|selected): want 0 or another number"):
        score(true, holes)


def test_empty_graphs():
    nothing, something = np.zeros((3, 2)), np.eye(3)[:, :2]
    assert support_scores(nothing, nothing)[:3] == (1, 1, 1)
    assert support_scores(something, nothing)[:4] == (0, 0, 0, 2)
    assert support_scores(nothing, something)[:4] == (0, 0, 1, 2)


def test_shd_counts():
    true = np.array([[0, 1, 0], [0, 0, 1], [0, 0, 0]])
    turned = np.array([[0, 0, 0], [1, 0, 1], [1, 0, 0]])  # 0->1 reversed, 2->0 added
    assert shd(true, turned) == 3 and shd(true, turned, reversal=1) == 2
    order = np.array([2, 0, 1])
    renamed = np.zeros((3, 3))
    renamed[np.ix_(order, order)] = true
    assert shd(true, renamed, permutation=order) == 0 and shd(true, renamed) > 0
    action = np.array([[1, 0], [0, 1], [1, 1]])
    assert shd(action, action[[1, 2, 0]], permutation=[2, 0, 1]) == 0
    cycle = np.array([[0, 1], [1, 0]])  # both directions are there: nothing is reversed
    assert shd(cycle, np.array([[0, 0], [1, 0]]), reversal=1) == 1


def test_shd_refuses():
    with pytest.raises(ValueError, match="same two dimensions"):
        shd(np.eye(3), np.eye(2))
    with pytest.raises(ValueError, match="reversal=3"):
        shd(np.eye(2), np.eye(2), reversal=3)
    with pytest.raises(ValueError, match="not a permutation"):
        shd(np.eye(2), np.eye(2), permutation=[0, 0])


def test_fdp():
    true = np.array([1, 1, 0, 0, 0])
    assert fdp(true, [1, 0, 1, 1, 0]) == pytest.approx(2 / 3)
    assert fdp(true, [0, 0, 0, 0, 0]) == 0
    with pytest.raises(ValueError, match="shape"):
        fdp(true, [1])
