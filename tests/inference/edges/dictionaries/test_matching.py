"""Latents that refits share: permutations made by hand, the best assignment, groups over three refits."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import linear_sum_assignment

from pyro_sparse.inference.edges.dictionaries import match_latents


def turned(rng, directions, noise):
    """The same directions in another order, at other lengths, a little off."""
    order = rng.permutation(len(directions))
    off = directions[order] + noise * rng.normal(size=directions.shape) / np.sqrt(directions.shape[1])
    return order, off * rng.uniform(0.5, 2.0, (len(order), 1))


def test_a_permutation_is_found_and_is_the_best_assignment():
    rng = np.random.default_rng(0)
    first = rng.normal(size=(40, 30))
    order, second = turned(rng, first, 0.2)
    same = match_latents([first, second])
    assert same.number.shape == (40, 2) and same.cosine.min() > 0.9
    np.testing.assert_array_equal(order[same.number[:, 1]], same.number[:, 0])
    a, b = (d / np.linalg.norm(d, axis=1, keepdims=True) for d in (first, second))
    rows, columns = linear_sum_assignment(-(a @ b.T))
    np.testing.assert_array_equal(same.number, np.stack([rows, columns], 1))


def test_latents_that_two_of_three_refits_have():
    rng = np.random.default_rng(1)
    d = np.linalg.qr(rng.normal(size=(12, 12)))[0]
    refits = [d[[0, 1, 2, 3, 4]], d[[4, 1, 6, 0]], d[[6, 2, 0, 8]]]
    same = match_latents(refits)
    assert same.number.tolist() == [[0, 3, 2], [1, 1, -1], [2, -1, 1], [4, 0, -1], [-1, 2, 0]]


def test_dead_latents_and_far_ones_have_no_match():
    d = np.eye(3)
    halves = (d[[0]] + d[[1]]) / 2**0.5  # a sum of two: cosine .71 with each
    assert len(match_latents([d, halves]).number) == 0
    assert len(match_latents([d, halves], cosine=0.7).number) == 1
    same = match_latents([d, d], [[True, False, True], [True, True, False]])
    assert same.number.tolist() == [[0, 0]]


def test_no_two_latents_of_a_refit_are_joined_by_a_third():
    """A chain a1 - b1 - c1 - a2: the surest pairs win, and a1 and a2 stay apart."""
    angle = lambda degrees: [np.cos(np.radians(degrees)), np.sin(np.radians(degrees))]  # noqa: E731
    same = match_latents([[angle(0), angle(40)], [angle(12)], [angle(26)]])
    assert same.number.tolist() == [[0, 0, -1], [1, -1, 0]]


def test_bad_directions_are_refused():
    with pytest.raises(ValueError, match="directions: number 1 has shape"):
        match_latents([np.eye(3), np.eye(4)])
    with pytest.raises(ValueError, match="cosine: got 1.0"):
        match_latents([np.eye(3), np.eye(3)], cosine=1.0)
