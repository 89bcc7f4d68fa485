"""The path of ever fewer edges against all subsets."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from scipy import stats

from pyro_sparse.inference.transition.edge_path import decreasing_path, one_standard_error


class Regression:
    """Sparse linear regression with known noise; an edge is a regressor. Strengths are exact, in nats."""

    def __init__(self, seed, coefficients, copies=(), n=150, regrow=True):
        rng = np.random.default_rng(seed)
        self.coefficients, self.regrow = np.asarray(coefficients, dtype=float), regrow
        x = rng.normal(size=(2, n, len(self.coefficients)))
        for original, copy in copies:
            x[..., copy] = x[..., original] + 0.02 * rng.normal(size=(2, n))
        self.x, self.test_x = x
        self.y, self.test_y = x @ self.coefficients + rng.normal(size=(2, n))
        self.fits = []

    def solve(self, edges):
        w = np.zeros(len(edges))
        w[edges] = np.linalg.lstsq(self.x[:, edges], self.y, rcond=None)[0]
        return w

    def half_rss(self, edges):
        return 0.5 * ((self.y - self.x @ self.solve(edges)) ** 2).sum()

    def __call__(self, edges, state):
        self.fits.append((edges, state))
        w = self.solve(edges)
        strengths = np.empty(len(edges))
        for e in range(len(edges)):
            other = edges.copy()
            other[e] = ~other[e]
            strengths[e] = abs(self.half_rss(other) - self.half_rss(edges))
        if not self.regrow:
            strengths[~edges] = np.nan
        return w, -0.5 * (self.test_y - self.test_x @ w) ** 2, strengths


@pytest.mark.parametrize("seed", range(4))
def test_path_finds_the_true_regressors(seed):
    problem = Regression(seed, [1.0, -1.0, 0.8, 0, 0, 0, 0, 0, 0, 0, 0, 0])
    path = decreasing_path(problem, np.ones(12, dtype=bool))
    best = path.checkpoints[path.chosen]
    np.testing.assert_array_equal(best.edges, problem.coefficients != 0)
    np.testing.assert_allclose(best.state, problem.solve(best.edges))
    assert len(problem.fits) < 20


def test_every_level_holds_the_best_subset():
    """Against all subsets of the size, on regressors that are not copies of each other."""
    problem = Regression(7, [1.6, -1.1, 0.7, 0.4, 0, 0, 0, 0])
    path = decreasing_path(problem, np.ones(8, dtype=bool), levels=[6, 4, 2, 1], patience=9)
    assert [c.level for c in path.checkpoints] == [8, 6, 4, 2, 1]
    for checkpoint in path.checkpoints:
        subsets = [np.isin(np.arange(8), s) for s in combinations(range(8), checkpoint.level)]
        np.testing.assert_array_equal(checkpoint.edges, min(subsets, key=problem.half_rss))


def test_a_wrongly_removed_edge_returns():
    """Of two near copies each seems worthless while the other is there: a large step removes both."""
    truth = [1.0, 1.0, 1.0, 0, 0, 0, 0, 0]
    everything = np.ones(8, dtype=bool)
    kept = {}
    for regrow in (False, True):
        problem = Regression(3, truth, copies=[(0, 5)], regrow=regrow)
        kept[regrow] = decreasing_path(problem, everything, levels=[3], swaps=2).checkpoints[1].edges
    assert not kept[False][[0, 5]].any()
    assert kept[True][[0, 5]].sum() == 1 and kept[True][[1, 2]].all() and kept[True].sum() == 3


def test_an_exchange_that_held_out_rows_refuse_is_undone():
    scores = {(0, 1, 2): 3.0, (0, 1): 1.0, (0, 2): 0.5}

    def train(edges, state):
        names = tuple(np.flatnonzero(edges).tolist())
        return names, [scores[names], scores[names] + 0.1], np.where(edges, [9.0, 2.0, 1.0], [0, 5.0, 5.0])

    path = decreasing_path(train, np.ones(3, dtype=bool), levels=[2])
    assert path.checkpoints[1].state == (0, 1) and path.chosen == 0


def test_masks_hold_and_states_are_handed_on():
    problem = Regression(0, [1.0, 0, 0, 0.9, 0, 0, 0, 0])
    permitted = np.array([1, 1, 1, 1, 1, 1, 1, 0], dtype=bool)
    required = np.array([0, 0, 0, 0, 1, 0, 0, 0], dtype=bool)
    path = decreasing_path(problem, permitted, required, patience=99)
    assert all(edges[4] and not edges[7] for edges, _ in problem.fits)
    assert problem.fits[0][1] is None and all(state is not None for _, state in problem.fits[1:])
    assert path.checkpoints[-1].level == 1
    np.testing.assert_array_equal(np.flatnonzero(path.checkpoints[path.chosen].edges), [0, 3, 4])
    levels = [c.level for c in path.checkpoints]
    assert levels == sorted(set(levels), reverse=True)


def staircase(needed, seen, n=100):
    """Noise shared by all levels, less a constant for every needed edge that is missing."""
    noise = np.random.default_rng(0).normal(size=n)

    def train(edges, state):
        seen.append(int(edges.sum()))
        missing = max(0, needed - edges.sum())
        return None, noise - 0.5 * missing, np.arange(edges.size).reshape(edges.shape)

    return train


@pytest.mark.parametrize("needed", [1, 13, 37, 99])
def test_the_walk_ends_and_the_gap_is_closed(needed):
    seen = []
    path = decreasing_path(staircase(needed, seen), np.ones((10, 10), dtype=bool), swaps=0)
    assert path.checkpoints[path.chosen].level == needed
    assert len(seen) == len(set(seen)) <= 24
    assert path.checkpoints[path.chosen].edges.shape == (10, 10)


def test_one_standard_error_by_hand():
    rng = np.random.default_rng(1)
    rows = 5 * rng.normal(size=200)  # shared by all candidates, and far larger than what tells them apart
    own = 0.1 * np.sign(np.sin(np.arange(1, 5)[:, None] * (np.arange(200) + 0.5)))
    scores = rows + own - own.mean(1, keepdims=True) + np.array([0.0, 0.05, 0.049, -0.1])[:, None]
    chosen, loss, error = one_standard_error(scores)
    best = max(range(4), key=lambda c: scores[c].mean())
    for c in range(4):
        d = [b - s for b, s in zip(scores[best], scores[c], strict=True)]
        assert loss[c] == pytest.approx(sum(d) / 200)
        assert error[c] == pytest.approx(stats.sem(d))
    assert chosen == max(c for c in range(4) if loss[c] <= error[c]) == 2
    assert stats.sem(scores[best]) > 0.2 > loss[3]  # an unpaired error would have let the last one through


def test_refused_paths():
    yes = np.ones(4, dtype=bool)

    def train(edges, state):
        return None, np.zeros(3), np.ones(4)

    for permitted, required in [(np.ones(4), None), (yes, yes[:2]), (~yes, None)]:
        with pytest.raises(ValueError, match="wanted boolean arrays of one shape that permit an edge"):
            decreasing_path(train, permitted, required)
    with pytest.raises(ValueError, match="required: 1 edges are not permitted; permit or drop them"):
        decreasing_path(train, np.array([0, 1, 1, 1], dtype=bool), np.array([1, 0, 0, 0], dtype=bool))
    for levels in ([4], [2, 3], [2, 2], [0]):
        with pytest.raises(
            ValueError, match="wanted decreasing whole numbers below the 4 permitted edges and not"
        ):
            decreasing_path(train, yes, np.array([1, 0, 0, 0], dtype=bool), levels=levels)
    bad = [(np.zeros((3, 1)), np.ones(4)), (np.zeros(3), np.ones(3)), (np.array([0, np.nan]), np.ones(4))]
    for scores, strengths in [*bad, (np.zeros(3), np.full(4, np.nan))]:
        with pytest.raises(ValueError, match="train: at 4 edges got scores of shape"):
            decreasing_path(lambda e, s, a=scores, b=strengths: (None, a, b), yes)
    with pytest.raises(
        ValueError, match=r"train: got scores of \[3, 4\] rows; score the same rows at every level"
    ):
        decreasing_path(lambda e, s: (None, np.zeros(3 + (e.sum() < 4)), np.ones(4)), yes)
    for scores in (np.zeros((2, 1)), np.zeros(4), np.full((2, 3), np.inf)):
        with pytest.raises(ValueError, match="scores: got shape .* with at least 2 rows; hold out more rows"):
            one_standard_error(scores)
