"""Draws of several chains in one frame: the fit's factors by their loadings, empty ones by what chains do."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest

from pyro_sparse.inference.edges.mcmc import alignment
from pyro_sparse.inference.edges.mcmc._compiled_alignment import AVAILABLE
from pyro_sparse.inference.edges.mcmc.alignment import Frame

TRUE = np.kron(np.eye(3), np.ones((5, 1)))


def shuffled(rng, loading=TRUE):
    """The same loadings, their factors in any order and with any signs, and noise."""
    order, sign = rng.permutation(3), rng.choice([-1, 1], 3)
    return (loading + 0.3 * rng.normal(size=loading.shape))[:, order] * sign


def in_frame(frame, draws):
    """Loadings (draw, chain, feature, factor) in the frame."""
    turns = map(frame.turns, draws)
    return np.stack(
        [np.take_along_axis(w, t[:, None], -1) * s[:, None] for w, (t, s) in zip(draws, turns, strict=True)]
    )


@pytest.mark.parametrize("filled", [0, 1, 2, 3])
def test_factors_that_the_fit_left_empty_come_into_one_frame(filled):
    rng = np.random.default_rng(filled)
    pivot = TRUE * (np.arange(3) < filled)
    frame = Frame(pivot, [np.arange(3)], 4)
    assert frame.learns
    seen = np.stack([[shuffled(rng) for _ in range(4)] for _ in range(60)])
    frame.settle(seen[:20])
    mean = in_frame(frame, seen[20:]).mean((0, 1))
    size = np.abs(mean)
    np.testing.assert_allclose(np.sort(size, 1)[:, -1], 1, atol=0.15)  # one factor each, none averaged away
    assert np.sort(size, 1)[:, :-1].max() < 0.15
    np.testing.assert_allclose(mean[:, :filled], TRUE[:, :filled], atol=0.15)


@pytest.mark.parametrize("seed", range(5))
def test_factors_keep_apart_where_the_fit_has_their_sum_and_difference(seed):
    """Both are as like the one as the other, so that noise says which is which, until draws do."""
    rng = np.random.default_rng(seed)
    half = np.sqrt(0.5)
    pivot = TRUE @ [[half, half, 0], [half, -half, 0], [0, 0, 1]]
    seen = np.stack([[shuffled(rng) for _ in range(4)] for _ in range(80)])
    frame = Frame(pivot, [np.arange(3)], 4)
    mixed = np.abs(in_frame(frame, seen[20:]).mean((0, 1)))
    assert mixed.max(1)[:10].max() < 0.9
    frame.settle(seen[:20])
    apart = in_frame(frame, seen[20:])
    size = np.abs(apart.mean((0, 1)))
    np.testing.assert_allclose(np.sort(size, 1)[:, -1], 1, atol=0.1)
    assert np.sort(size, 1)[:, :-1].max() < 0.1
    np.testing.assert_allclose(size[:, 2], TRUE[:, 2], atol=0.1)  # the fit still says which is the third


def test_groups_and_a_pivot_for_each_chain():
    frame = Frame(0 * TRUE, [np.array([0]), np.array([1, 2])], 2)
    frame.settle(np.stack([[TRUE, TRUE[:, [0, 2, 1]]]] * 3))
    turn, _ = frame.turns(np.stack([TRUE, TRUE[:, [0, 2, 1]]]))
    np.testing.assert_array_equal(turn, [[0, 1, 2], [0, 2, 1]])
    assert not Frame(np.zeros((2, 15, 3)), [np.arange(3)], 2).learns
    turn, sign = frame.turns(None)
    np.testing.assert_array_equal(turn, [[0, 1, 2]] * 2)
    np.testing.assert_array_equal(sign, 1)


def test_a_factor_that_chains_leave_empty_takes_no_other_s_place():
    """Its loadings point anywhere, also along a factor whose own have other signs than the fit's."""
    rng = np.random.default_rng(0)
    loading = TRUE * [1, 1, 0]
    pivot = loading.copy()
    pivot[5:7, 1] *= -1  # as of features that neither rise nor fall
    seen = loading + 0.01 * rng.normal(size=(80, 4, 15, 3))
    frame = Frame(pivot, [np.arange(3)], 4)
    frame.settle(seen[:20])
    for one in seen[20:]:
        np.testing.assert_array_equal(frame.turns(one)[0], [[0, 1, 2]] * 4)


@pytest.mark.parametrize("n_even", [1, 4])
def test_features_that_are_even_in_their_factors_leave_order_to_the_sizes(n_even):
    """They have signs by chance; the others of a factor's five say that it is reflected."""
    rng = np.random.default_rng(0)
    pivot = TRUE * [1, 1, 0]
    even = (np.arange(15) % 5 < n_even)[:, None]

    def draws(n):
        signs = np.where(even, rng.choice([-1, 1], (n, 2, 15, 3)), 1)
        return -(pivot + 0.03 * rng.normal(size=(n, 2, 15, 3))) * signs

    in_order = {}
    for signed in (True, False):
        frame = Frame(pivot, [np.arange(3)], 2, signed)
        frame.settle(draws(20))
        turns, signs = zip(*map(frame.turns, draws(60)), strict=True)
        in_order[signed] = (np.array(turns) == [0, 1, 2]).mean()
    assert in_order[False] == 1
    assert n_even == 1 or in_order[True] < 0.9
    if n_even == 1:
        assert (np.array(signs)[..., :2] == -1).all()


HALF = np.sqrt(0.5)
MIXED = TRUE @ [[HALF, HALF, 0], [HALF, -HALF, 0], [0, 0, 1]]


def astray(rng, n, size=1e9):
    """Loadings (draw, feature, factor) of a chain that failed: all factors are one feature, of any size."""
    one_feature = np.where(np.arange(15) == 5, size, 0.0)[:, None] * rng.normal(size=(n, 1, 3))
    return one_feature + rng.normal(size=(n, 15, 3))


@pytest.mark.parametrize("n_astray", [1, 2])
@pytest.mark.parametrize("pivot", [TRUE, MIXED, TRUE * [1, 1, 0]])
@pytest.mark.parametrize("size", [3.0, 1e9])
def test_chains_that_went_astray_have_no_say(n_astray, pivot, size):
    rng = np.random.default_rng(0)
    seen = np.stack([[shuffled(rng) for _ in range(4)] for _ in range(60)])
    for chain in range(n_astray):
        seen[:, 2 * chain] = astray(rng, len(seen), size)
    frame = Frame(pivot, [np.arange(3)], 4)
    frame.settle(seen[:20])
    good = [chain for chain in range(4) if chain not in range(0, 2 * n_astray, 2)]
    mean = np.abs(in_frame(frame, seen[20:])[:, good].mean((0, 1)))
    np.testing.assert_allclose(np.sort(mean, 1)[:, -1], 1, atol=0.15)
    assert np.sort(mean, 1)[:, :-1].max() < 0.15


def test_of_two_chains_the_one_that_is_sound_keeps_the_fits_frame():
    """Neither is like the other, so that no third can say which went astray."""
    rng = np.random.default_rng(0)
    seen = np.stack([[shuffled(rng) for _ in range(2)] for _ in range(60)])
    seen[:, 0] = astray(rng, len(seen))
    frame = Frame(TRUE, [np.arange(3)], 2)
    frame.settle(seen[:20])
    np.testing.assert_allclose(in_frame(frame, seen[20:])[:, 1].mean(0), TRUE, atol=0.15)


def test_a_chain_in_other_axes_leaves_the_rest_their_frame():
    """It stayed in the fit's axes, of which the other three hold the sum and the difference."""
    rng = np.random.default_rng(0)
    seen = np.stack([[*(shuffled(rng) for _ in range(3)), shuffled(rng, MIXED)] for _ in range(80)])
    frame = Frame(MIXED, [np.arange(3)], 4)
    frame.settle(seen[:20])
    means = np.abs(in_frame(frame, seen[20:]).mean(0))
    for mean in means[:3]:
        np.testing.assert_allclose(np.sort(mean, 1)[:, -1], 1, atol=0.15)
        np.testing.assert_allclose(mean, means[0], atol=0.15)
    np.testing.assert_allclose(means[3], np.abs(MIXED), atol=0.15)


def test_chains_that_agree_have_one_frame():
    rng = np.random.default_rng(0)
    frame = Frame(MIXED, [np.arange(3)], 4)
    frame.settle(np.stack([[shuffled(rng) for _ in range(4)] for _ in range(20)]))
    assert (frame.pivot == frame.pivot[0]).all()


def test_a_curved_chain_that_went_astray_leaves_an_empty_factor_to_the_others():
    rng = np.random.default_rng(0)
    pivot = TRUE * [1, 0, 0]
    seen = np.abs(np.stack([[shuffled(rng) for _ in range(4)] for _ in range(60)]))
    seen[:, 1] = astray(rng, len(seen), 1e20)
    frame = Frame(pivot, [np.arange(3)], 4, signed=False)
    frame.settle(seen[:20])
    order = np.array([frame.turns(draw)[0] for draw in seen[20:]])
    mean = np.stack(
        [np.take_along_axis(w, o[:, None], -1) for w, o in zip(seen[20:], order, strict=True)]
    ).mean(0)
    np.testing.assert_allclose(np.sort(mean[[0, 2, 3]], -1)[..., -1], 1, atol=0.2)


@pytest.mark.parametrize("seed", range(6))
def test_draws_are_put_where_they_are_most_like_the_pivot(seed):
    """Chains in place, in other places, with an empty factor; with and without groups; by every order."""
    rng = np.random.default_rng(seed)
    pivot = TRUE * (1 if seed else np.array([1, 1, 0]))
    groups = [np.arange(3)] if seed % 2 else [np.array([0, 2]), np.array([1])]
    draws = pivot * rng.choice([-1, 1], (6, 1, 3)) + 0.4 * rng.normal(size=(6, *pivot.shape))
    draws[1], draws[2] = draws[1][:, [2, 1, 0]], draws[2][:, [0, 2, 1]]  # the latter not within the groups
    draws[3], draws[4][:, 1] = shuffled(rng), 0.0
    turn, sign = Frame(pivot, groups, 6).turns(draws)
    permitted = [order for order in permutations(range(3)) if len(groups) == 1 or order[1] == 1]
    for draw, its_turn, its_sign in zip(draws, turn, sign, strict=True):
        norms = np.linalg.norm(pivot, axis=0)[:, None] * np.linalg.norm(draw, axis=0)
        cosine = pivot.T @ draw / np.where(norms > 0, norms, 1)
        best = max(np.abs(cosine[range(3), order]).sum() for order in permitted)
        assert tuple(its_turn) in permitted
        np.testing.assert_allclose((cosine[range(3), its_turn] * its_sign).sum(), best, atol=1e-12)
        assert (its_sign[cosine[range(3), its_turn] == 0] == 1).all()


def test_a_draw_that_is_not_a_number_has_no_place():
    draws = np.stack([TRUE, np.full(TRUE.shape, np.nan)])
    with pytest.raises(ValueError, match="want finite numbers"):
        Frame(TRUE, [np.arange(3)], 2).turns(draws)


@pytest.mark.skipif(not AVAILABLE, reason="the extra 'fast' is not installed")
@pytest.mark.parametrize("groups", [[[0, 1, 2]], [[0, 2], [1]], [[0], [1], [2]]])
def test_compiled_places_are_those_of_the_assignment(groups, monkeypatch):
    """Of draws that are clear, of mixed ones, where two places want one factor, and with empty factors."""
    rng = np.random.default_rng(0)
    draws = np.stack([shuffled(rng) for _ in range(60)])
    draws[20:40] += rng.normal(size=(20, *TRUE.shape))
    draws[40:] *= rng.random((20, 1, 3)) < 0.6
    draws[50:] += 1e-3  # next to nothing
    frame = Frame(TRUE, [np.array(members) for members in groups], len(draws))
    order, sign = frame.turns(draws)
    monkeypatch.setattr(alignment, "AVAILABLE", False)
    plain_order, plain_sign = frame.turns(draws)
    np.testing.assert_array_equal(order, plain_order)
    np.testing.assert_array_equal(sign, plain_sign)
