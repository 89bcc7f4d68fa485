"""Doubts about axes: rotated pairs, factors within others, factors that are curves; else none."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from pyro_sparse.inference.axis_findings import (
    axis_findings,
    curve_share,
    nested_factors,
    sparser_axes,
)


@pytest.fixture(scope="module")
def right():
    """Scores of three correlated factors and E[J'J] of features with one or two of them."""
    rng = np.random.default_rng(1000)
    z = rng.multivariate_normal(np.zeros(3), np.full((3, 3), 0.5) + 0.5 * np.eye(3), size=500)
    c = np.concatenate([np.repeat(np.eye(3), 4, axis=0), [[1, 1, 0], [0, 1, -1], [1, 0, 1]]])
    c = c + 0.02 * rng.normal(size=c.shape)
    return z, c[:, :, None] * c[:, None, :]


def test_right_axes_are_the_sparsest(right):
    other, saved = sparser_axes(*right)
    assert not other.any() and abs(saved) < 1


def test_a_sum_and_a_difference_are_told_from_the_third_factor(right):
    z, moments = right
    map_ = np.array([[1.0, 1.0, 0.0], [1.0, -1.0, 0.0], [0.0, 0.0, 1.0]])
    back = np.linalg.inv(map_)  # f(c'z) = f(c' map^-T (map' z))
    other, saved = sparser_axes(z @ map_, back @ moments @ back.T)
    assert other.tolist() == [True, True, False]
    assert saved > 5


def test_a_factor_with_one_feature_of_its_own_lies_within_another():
    edge = np.zeros((12, 3), dtype=bool)
    edge[:8, 0] = edge[3:9, 1] = edge[9:, 2] = True  # factor 1 has feature 8 alone
    assert nested_factors(edge) == {1: 0}
    edge[9, 1] = True
    assert nested_factors(edge) == {}


def test_an_absolute_value_is_a_curve_and_a_correlated_factor_is_not():
    rng = np.random.default_rng(1000)
    z = rng.multivariate_normal(np.zeros(2), [[1, 0.8], [0.8, 1]], size=400)
    share = curve_share(np.column_stack([z, np.abs(z[:, 0]) + 0.2 * rng.normal(size=400)]))
    assert share[0, 2] > 0.5
    assert share[:2, :2].max() < 0.05


def test_curves_seldom_show_in_factors_of_normal_tables():
    rng = np.random.default_rng(1001)
    most = [curve_share(rng.normal(size=(300, 4))).max() for _ in range(50)]
    assert np.quantile(most, 0.98) < 0.08


def test_a_linear_decoder_has_no_such_doubts():
    fit = SimpleNamespace(model=SimpleNamespace(decoder_kind="linear"), table=None)
    assert axis_findings(fit) == []
