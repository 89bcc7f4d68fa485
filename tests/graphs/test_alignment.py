"""Aligning restarts: a scrambled copy must come back, whatever its order, signs and empty columns."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from scipy.optimize import linear_sum_assignment
from scipy.stats import pearsonr

from pyro_sparse.graphs import align, apply_alignment
from pyro_sparse.graphs.alignment import agreement_matrix, match_columns, orient, similarity


@pytest.fixture
def rng():
    return np.random.default_rng(0)


def scramble(x, rng):
    """A random order and random signs, with what was done."""
    order, sign = rng.permutation(x.shape[-1]), rng.choice([-1.0, 1.0], x.shape[-1])
    return x[:, order] * sign


def test_similarity_of_loadings_is_the_cosine(rng):
    a, b = rng.normal(size=(9, 3)), rng.normal(size=(9, 4))
    got = similarity(a, b)
    for k, m in itertools.product(range(3), range(4)):
        want = a[:, k] @ b[:, m] / np.sqrt(a[:, k] @ a[:, k] * (b[:, m] @ b[:, m]))
        assert got[k, m] == pytest.approx(want, abs=1e-12)


def test_similarity_of_factors_is_the_correlation(rng):
    a, b = rng.normal(size=(50, 2)) + 7, rng.normal(size=(50, 2)) - 3
    got = similarity(a, b, kind="factors")
    for k, m in itertools.product(range(2), repeat=2):
        assert got[k, m] == pytest.approx(pearsonr(a[:, k], b[:, m]).statistic, abs=1e-12)


def test_similarity_of_empty_constant_and_tiny_columns(rng):
    a = rng.normal(size=(6, 3))
    a[:, 1] = 0
    assert np.all(similarity(a, a)[1] == 0)
    a[:, 1] = 0.1
    assert np.all(similarity(a, a, kind="factors")[1] == 0)
    assert similarity(1e-300 * a, a)[0, 0] == pytest.approx(1)


def test_match_is_the_best_of_all_permutations(rng):
    for _ in range(20):
        s = rng.uniform(-1, 1, size=(4, 5))
        permutation, sign = match_columns(s)
        rows = np.arange(4)
        want = max(np.abs(s[rows, list(p)]).sum() for p in itertools.permutations(range(5), 4))
        assert np.abs(s[rows, permutation]).sum() == pytest.approx(want)
        assert np.all(sign * s[rows, permutation] >= 0)


def test_match_fills_ties_in_increasing_order():
    s = np.zeros((4, 4))
    s[2, 0] = -0.5
    permutation, sign = match_columns(s)
    assert permutation.tolist() == [1, 2, 0, 3]
    assert sign.tolist() == [1, 1, -1, 1]


def test_a_stack_is_matched_one_by_one(rng):
    """Members whose rows' nearest columns differ, members where they do not, zeros, and rows of zeros."""
    s = rng.uniform(-1, 1, size=(3, 40, 3, 4))
    s[0, :5], s[1, :5, 1], s[2, :5, :, 2] = np.eye(3, 4), 0.0, 2.0
    permutation, sign = match_columns(s)
    nearest = np.abs(s).argmax(-1)
    assert 10 < (permutation == nearest).all(-1).sum() < 110  # both kinds are there
    for index in np.ndindex(3, 40):
        one, its_sign = match_columns(s[index])
        np.testing.assert_array_equal(permutation[index], one)
        np.testing.assert_array_equal(sign[index], its_sign)
        rows, want = linear_sum_assignment(-np.abs(s[index]))
        assert np.abs(s[index][rows, one]).sum() == pytest.approx(np.abs(s[index][rows, want]).sum())
        assert len(set(one)) == 3
    for shape in ((2, 0, 3), (0, 2, 3), (0, 0)):
        assert match_columns(np.zeros(shape))[0].shape == shape[:-1]
    s[2, 0, 0, 0] = np.nan
    with pytest.raises(ValueError, match="invalid numeric"):
        match_columns(s)


def test_similarities_of_stacks_are_those_of_their_members(rng):
    a, b = rng.normal(size=(4, 9, 3)), rng.normal(size=(4, 9, 2))
    a[1, :, 0] = 0.0
    for kind in ("loadings", "factors"):
        want = [similarity(x, y, kind) for x, y in zip(a, b, strict=True)]
        np.testing.assert_allclose(similarity(a, b, kind), want, atol=1e-14)
    np.testing.assert_allclose(similarity(a[0], b)[3], similarity(a[0], b[3]), atol=1e-14)


def test_match_refuses_more_rows_than_columns():
    with pytest.raises(ValueError, match="similarities: want shape .*transpose"):
        match_columns(np.zeros((3, 2)))


@pytest.mark.parametrize("kind", ["loadings", "factors"])
def test_align_undoes_scrambling(rng, kind):
    truth = rng.normal(size=(30, 5))
    stack = np.stack([truth] + [scramble(truth, rng) for _ in range(6)])
    alignment = align(stack, kind=kind)
    np.testing.assert_allclose(apply_alignment(stack, alignment), np.broadcast_to(truth, stack.shape))
    np.testing.assert_allclose(alignment.congruence, 1)
    np.testing.assert_array_equal(alignment.permutation[0], np.arange(5))


def test_align_survives_noise_and_takes_a_matrix_as_pivot(rng):
    truth = rng.normal(size=(40, 4))
    stack = np.stack([scramble(truth + 0.3 * rng.normal(size=truth.shape), rng) for _ in range(5)])
    aligned = apply_alignment(stack, align(stack, pivot=truth))
    assert np.abs(aligned - truth).max() < 2
    for member in aligned:
        assert np.all(np.diag(similarity(truth, member)) > 0.8)


def test_align_with_empty_columns(rng):
    truth = rng.normal(size=(12, 4))
    truth[:, 2:] = 0
    other = np.zeros_like(truth)
    other[:, 1], other[:, 3], other[:, 0] = -truth[:, 0], truth[:, 1], 0
    alignment = align(np.stack([truth, other]))
    np.testing.assert_allclose(apply_alignment(np.stack([truth, other]), alignment)[1], truth)
    assert np.isnan(alignment.congruence[:, 2:]).all()  # nothing to compare
    third = truth.copy()
    third[:, 1] = 0  # lost a factor: congruence 0, not NaN
    assert align(np.stack([truth, third])).congruence[1].tolist()[:2] == [1.0, 0.0]


def test_repivot_forgets_a_poor_pivot(rng):
    truth = rng.normal(size=(25, 4))
    poor = truth + 2.5 * rng.normal(size=truth.shape)
    stack = np.stack([poor] + [scramble(truth + 0.1 * rng.normal(size=truth.shape), rng) for _ in range(30)])
    aligned = apply_alignment(stack, align(stack, pivot=0, repivot=True))[1:]
    spread = aligned.std(axis=0).mean()
    assert spread < 0.15  # all thirty good members share one frame


def test_groups_bound_who_may_change_places(rng):
    """Against all permutations that keep groups {0, 3} and {1, 2} and factor 4 to themselves."""
    truth = rng.normal(size=(6, 5))
    stack = np.stack([truth] + [scramble(truth, rng) for _ in range(20)])
    found = align(stack, groups=["x", "y", "y", "x", "anchored"])
    swaps = [[0, 1, 2, 3, 4], [3, 1, 2, 0, 4], [0, 2, 1, 3, 4], [3, 2, 1, 0, 4]]
    for member, permutation, sign in zip(stack, found.permutation, found.sign, strict=True):
        s = similarity(truth, member)
        assert permutation.tolist() == max(swaps, key=lambda p: np.abs(s[np.arange(5), p]).sum())
        np.testing.assert_array_equal(sign, np.sign(s[np.arange(5), permutation]))


def test_long_stacks_are_aligned_as_short_ones_are(rng):
    truth = rng.normal(size=(8, 3))
    stack = np.stack([scramble(truth + 0.8 * rng.normal(size=truth.shape), rng) for _ in range(600)])
    whole = align(stack, pivot=truth)
    for part in (slice(0, 7), slice(250, 262), slice(590, 600)):
        for field, want in zip(align(stack[part], pivot=truth), whole, strict=True):
            np.testing.assert_array_equal(field, want[part])


def test_apply_alignment_unsigned_moves_only(rng):
    truth = rng.normal(size=(10, 3))
    stack = np.stack([truth, -truth[:, [2, 0, 1]]])
    alignment = align(stack)
    p = rng.uniform(size=stack.shape)
    moved = apply_alignment(p, alignment, signed=False)
    np.testing.assert_array_equal(moved[1], p[1][:, [1, 2, 0]])
    eta = rng.uniform(size=(2, 3))
    np.testing.assert_array_equal(apply_alignment(eta, alignment, signed=False)[1], eta[1][[1, 2, 0]])
    with pytest.raises(ValueError, match=r"values: want shape \(restart"):
        apply_alignment(p[:1], alignment)


def test_orient_makes_large_entries_positive(rng):
    weights = np.array([[-0.9, 0.2, 0.0], [0.3, 0.8, 0.0], [0.4, -0.1, 0.0]])
    assert orient(weights).tolist() == [-1, 1, 1]
    assert np.all(((weights * orient(weights)) ** 3).sum(0) >= 0)


def test_agreement_ignores_order_and_sign_and_counts_lost_factors(rng):
    truth = np.linalg.qr(rng.normal(size=(20, 4)))[0]
    lost = truth.copy()
    lost[:, 3] = 0
    table = agreement_matrix(np.stack([truth, scramble(truth, rng), lost, np.zeros_like(truth)]))
    np.testing.assert_allclose(table, table.T)
    assert table[0, 1] == pytest.approx(1)
    assert table[0, 2] == pytest.approx(0.75)
    assert table[0, 3] == 0
    assert np.isnan(table[3, 3])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: similarity(np.zeros((3, 2)), np.zeros((4, 2))), r"b: want as many rows as a \(3\), got 4"),
        (lambda: similarity(np.zeros(3), np.zeros((3, 2))), r"a: want a matrix .* got shape \(3,\)"),
        (lambda: similarity([[np.nan]], [[1.0]]), "a: want finite numbers"),
        (lambda: similarity([[1.0]], [[1.0]], kind="cos"), "kind: want .* got 'cos'"),
        (lambda: align(np.zeros((3, 2))), r"stack: want shape \(restart, row, factor\)"),
        (lambda: align(np.zeros((2, 3, 2)), pivot=2), "pivot: want a restart number below 2, got 2"),
        (lambda: align(np.zeros((2, 3, 2)), pivot=np.zeros((2, 2))), r"pivot: want shape \(3, 2\)"),
        (
            lambda: align(np.zeros((2, 3, 2)), groups=["a"]),
            r"groups: want one label per factor, .* got \(1,\)",
        ),
        (lambda: agreement_matrix(np.zeros((3, 2))), r"stack: want shape \(restart, row, factor\)"),
    ],
)
def test_messages(call, message):
    with pytest.raises(ValueError, match=message):
        call()
