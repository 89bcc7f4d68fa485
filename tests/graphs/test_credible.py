"""Credible sets of parents: against every set of columns, and against conditional probabilities by hand."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from pyro_sparse.graphs import credible, credible_parents, credible_sets


def correlated_draws(rng, n=40, rows=3, columns=5):
    """Parent sets drawn from a short list of frequent ones, with some noise."""
    frequent = rng.random((4, rows, columns)) < 0.4
    return frequent[rng.integers(4, size=n)] ^ (rng.random((n, rows, columns)) < 0.06)


def subsets(columns):
    return [
        np.isin(np.arange(columns), s)
        for k in range(columns + 1)
        for s in itertools.combinations(range(columns), k)
    ]


def share_inside(draws, j, inside):
    return np.mean([set(np.flatnonzero(graph[j])) <= set(np.flatnonzero(inside)) for graph in draws])


@pytest.mark.parametrize("alpha", [0.0, 0.1, 0.25, 0.6])
def test_smallest_of_all_sets_and_most_probable_among_them(alpha):
    rng = np.random.default_rng(0)
    for _ in range(4):
        draws = correlated_draws(rng)
        found = credible_sets(draws, alpha)
        for j in range(draws.shape[1]):
            good = [
                (inside.sum(), -share)
                for inside in subsets(draws.shape[2])
                if (share := share_inside(draws, j, inside)) >= 1 - alpha - 1e-9
            ]
            smallest, most = min(good)
            assert found.member[j].sum() == smallest
            assert found.probability[j] == pytest.approx(-most)
            assert found.probability[j] == pytest.approx(share_inside(draws, j, found.member[j]))
            assert found.exact[j]


def test_rows_without_parents_and_alpha_zero():
    draws = np.zeros((10, 2, 3), dtype=bool)
    draws[0, 1] = [True, False, True]
    assert credible_sets(draws).member.tolist() == [[False] * 3, [False] * 3]
    assert credible_sets(draws).probability.tolist() == [1.0, 0.9]
    assert credible_sets(draws, alpha=0.0).member.tolist() == [[False] * 3, [True, False, True]]


def test_leading_axes_are_pooled():
    draws = correlated_draws(np.random.default_rng(1))
    for function in (credible_sets, credible_parents):
        for one, other in zip(function(draws), function(draws.reshape(4, 10, 3, 5)), strict=True):
            np.testing.assert_array_equal(one, other)


def test_greedy_sets_cover_and_none_of_their_columns_can_go(monkeypatch):
    rng = np.random.default_rng(2)
    for _ in range(20):
        draws = correlated_draws(rng, n=30, rows=2, columns=6)
        exact = credible_sets(draws, 0.3)
        with monkeypatch.context() as patch:
            patch.setattr(credible, "_EXACT", -1)
            greedy = credible_sets(draws, 0.3)
        assert not greedy.exact.any()
        for j in range(2):
            assert greedy.probability[j] == pytest.approx(share_inside(draws, j, greedy.member[j]))
            assert greedy.probability[j] >= 0.7
            assert greedy.member[j].sum() >= exact.member[j].sum()
            for k in np.flatnonzero(greedy.member[j]):
                without = greedy.member[j] & (np.arange(6) != k)
                assert share_inside(draws, j, without) < 0.7


def test_greedy_can_miss_the_smallest_set_and_says_so(monkeypatch):
    """Leaving out the rarest column first keeps two that come together, and could have gone together."""
    draws = [[[0, 0, 1]]] * 3 + [[[1, 1, 0]]] * 4 + [[[0, 0, 0]]] * 6
    assert credible_sets(draws, 0.31).member.astype(int).tolist() == [[0, 0, 1]]
    monkeypatch.setattr(credible, "_EXACT", -1)
    found = credible_sets(draws, 0.31)
    assert found.member.astype(int).tolist() == [[1, 1, 0]]
    assert found.probability[0] == pytest.approx(10 / 13) and not found.exact[0]


def test_many_undecided_columns_are_searched_greedily():
    """Twenty columns, each the only parent in one draw of forty: any two may be left out, at alpha = .05."""
    draws = np.zeros((40, 1, 20), dtype=bool)
    draws[np.arange(20), 0, np.arange(20)] = True
    found = credible_sets(draws, alpha=0.05)
    assert found.member.sum() == 18
    assert found.probability[0] == pytest.approx(0.95)
    assert not found.exact[0]


def test_undecided_columns_alone_count_towards_the_limit():
    draws = np.ones((50, 1, 30), dtype=bool)  # thirty certain parents
    draws[:, :, 25:] = np.random.default_rng(0).random((50, 1, 5)) < 0.05
    assert credible_sets(draws).exact.all()


def test_the_parent_of_rows_that_have_one():
    one = lambda k: [int(i == k) for i in range(4)]  # noqa: E731
    draws = [[one(2)]] * 5 + [[one(0)]] * 2 + [[one(3)]] * 1 + [[[1, 1, 1, 1]]] * 1 + [[[0, 0, 0, 0]]] * 1
    found = credible_parents(draws, alpha=0.3)
    assert found.member.astype(int).tolist() == [[1, 0, 1, 0]]
    assert found.probability[0] == pytest.approx(7 / 8)
    assert found.single[0] == pytest.approx(0.8)
    assert credible_parents(draws, alpha=0.4).member.astype(int).tolist() == [[0, 0, 1, 0]]  # 5/8 >= .6
    assert credible_parents(draws, alpha=0.0).member.astype(int).tolist() == [[1, 0, 1, 1]]


def test_no_single_parent_no_set():
    found = credible_parents(np.ones((4, 1, 2)))
    assert not found.member.any() and np.isnan(found.probability).all() and found.single.tolist() == [0.0]


def test_columns_equally_probable_are_taken_in_order():
    draws = np.eye(4)[:, None, :]
    assert credible_parents(draws, alpha=0.5).member.astype(int).tolist() == [[1, 1, 0, 0]]


@pytest.mark.parametrize("function", [credible_sets, credible_parents])
@pytest.mark.parametrize(
    ("draws", "alpha", "message"),
    [
        (
            np.zeros((2, 2)),
            0.1,
            r"draws: want shape \(..., draw, row, column\) .* got \(2, 2\); use graph\[None\]",
        ),
        (np.zeros((0, 2, 2)), 0.1, r"draws: want shape .* with entries, got \(0, 2, 2\)"),
        (np.full((3, 2, 2), 0.3), 0.1, "draws: want edges of 0 or 1, got 0.3"),
        (np.full((3, 2, 2), np.nan), 0.1, "draws: want edges of 0 or 1, got nan"),
        (np.zeros((3, 2, 2)), 1.0, r"alpha: want a probability in \[0, 1\), got 1.0; for sets of 90 % it is"),
        (np.zeros((3, 2, 2)), np.nan, "alpha: want a probability"),
    ],
)
def test_messages(function, draws, alpha, message):
    with pytest.raises(ValueError, match=message):
        function(draws, alpha)
