"""Which factors chains came back to that began elsewhere: three factors of nine features, three chains.

Chains 1 and 2 begin in axes 45 degrees from those of factors 1 and 2, and at factor 3 itself; where chain 0
began is not known.
"""

from __future__ import annotations

import numpy as np
import pytest

from pyro_sparse.graphs.chain_groups import ChainPool
from pyro_sparse.graphs.chain_starts import came_back

END = np.kron(np.eye(3), np.full((3, 1), 0.7))
ROTATED = END.copy()
ROTATED[:, :2] = END[:, :2] @ np.array([[1.0, -1.0], [1.0, 1.0]]) / np.sqrt(2)
BEGAN = np.stack([np.full(END.shape, np.nan), ROTATED, ROTATED])
TWO = [True, True, False]


def pool(*kept):
    keep = np.array(kept or [True] * 3)
    return ChainPool(np.zeros(3, int), np.ones(1), keep, keep / keep.sum(), np.zeros(3))


def test_a_chain_from_elsewhere_confirms_what_the_fit_has_and_the_chain_had_not():
    assert came_back([END] * 3, BEGAN, END, pool()).tolist() == TWO
    one = np.where(np.arange(3)[:, None, None] == 2, np.nan, BEGAN)  # of the last one it is not known, too
    assert came_back([END] * 3, one, END, pool()).tolist() == TWO


def test_two_are_wanted_of_a_factor_that_the_fit_has_not():
    one = np.where(np.arange(3)[:, None, None] == 2, np.nan, BEGAN)
    assert came_back([END] * 3, BEGAN, ROTATED, pool()).tolist() == TWO
    assert not came_back([END] * 3, one, ROTATED, pool()).any()
    half = END.copy()
    half[:, 1] = END[::-1, 0]  # the fit has factor 1 alone
    assert came_back([END] * 3, one, half, pool()).tolist() == [True, False, False]


def test_a_chain_that_left_the_axes_of_the_fit_is_one_of_the_two():
    one = np.stack([ROTATED, np.full_like(END, np.nan), ROTATED])  # chain 0 at the fit's best restart
    assert came_back([END] * 3, one, ROTATED, pool()).tolist() == TWO


def test_a_chain_that_left_a_restart_with_other_factors_confirms_those_of_the_fit():
    began = np.stack([END, ROTATED, END])  # two at the best restart, one at a rival
    assert came_back([END] * 3, began, END, pool()).tolist() == TWO
    assert not came_back([END, ROTATED, END], began, END, pool()).any()  # it stayed there


def test_chains_that_began_nobody_knows_where_or_with_the_factors_confirm_nothing():
    assert not came_back([END] * 3, np.full_like(BEGAN, np.nan), END, pool()).any()
    assert not came_back([END] * 3, [END] * 3, END, pool()).any()


def test_every_chain_kept_must_have_it():
    stayed = [END, END, ROTATED]
    assert not came_back(stayed, BEGAN, END, pool())[:2].any()
    assert came_back(stayed, BEGAN, END, pool(True, True, False)).tolist() == TWO  # but not those left out
    assert not came_back(stayed, BEGAN, ROTATED, pool(True, True, False)).any()  # of which one is left


def test_order_and_signs_of_the_starts_do_not_matter():
    order, sign = [2, 0, 1], np.array([-1.0, 1.0, -1.0])
    assert came_back([END] * 3, BEGAN[..., order] * sign, END, pool()).tolist() == TWO
    there = np.stack([END[:, order] * sign] * 3)  # the same three factors: nobody began without
    assert not came_back([END] * 3, there, END, pool()).any()


def test_chains_may_begin_with_fewer_factors():
    assert came_back([END] * 3, BEGAN[..., 1:], END, pool()).tolist() == TWO


def test_chains_are_in_one_frame_and_signs_of_their_ends_matter():
    assert not came_back([END, END, -END], BEGAN, END, pool()).any()


def test_an_empty_factor_is_not_confirmed():
    end, began = END.copy(), BEGAN.copy()
    end[:, 1] = began[1:, :, 1] = 0.0
    assert not came_back([end] * 3, began, end, pool())[1]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"loading": END}, r"loading, began, fitted: want \(chain, feature, factor\), \(chain"),
        ({"began": BEGAN[:2]}, r"got \(3, 9, 3\), \(2, 9, 3\) and \(9, 3\)"),
        ({"fitted": END[:5]}, r"and \(5, 3\)"),
        ({"loading": [END] * 2, "began": BEGAN[:2]}, "pool: is of 3 chains, want one of the 2"),
    ],
)
def test_shapes_that_do_not_fit_are_refused(change, words):
    given = {"loading": [END] * 3, "began": BEGAN, "fitted": END} | change
    with pytest.raises(ValueError, match=words):
        came_back(**given, pool=pool())


def test_a_failed_chain_that_is_kept_confirms_nothing():
    assert not came_back([END, END, np.full_like(END, np.nan)], BEGAN, END, pool()).any()
