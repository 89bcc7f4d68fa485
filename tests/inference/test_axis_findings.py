"""Doubts about axes: rotated pairs, factors within others, factors that are curves; else none."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import torch

import pyro_sparse as ps
from pyro_sparse.inference.axis_findings import (
    axis_findings,
    curve_share,
    left_axes,
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


def test_factors_that_left_the_axes_they_began_in_are_named():
    rng = np.random.default_rng(1000)
    z = rng.normal(size=(150, 3))
    x = np.tanh(z[:, np.arange(9) % 3]) + 0.2 * rng.normal(size=(150, 9))
    fit = ps.fit(ps.models.SparseDecoder(n_factors=3), x, restarts=2, steps=60, seed=0, progress=False)
    rows = np.arange(100)
    with torch.no_grad():
        ended = fit.model.encode(fit.table.rows(rows).batch("cpu", fit.model.factor_cov.dtype))[0]
    ended = ended[fit.best].double().numpy()
    assert left_axes(fit, rows, ended) == []  # it began as every restart does
    fit.settings["axis_restarts"] = [fit.best]
    assert left_axes(fit, rows, ended[:, ::-1] * [-1, 1, 2]) == []
    mixed = ended / ended.std(0) @ [[1, 1, 0], [1, -1, 0], [0, 0, 1]]
    (doubt,) = left_axes(fit, rows, mixed)
    kept = fit.factor_names[list(fit.alignment["permutation"][fit.best]).index(2)]
    assert doubt.is_doubt and set(doubt.factors) == set(fit.factor_names) - {kept}
    assert doubt.size == pytest.approx(0.7, abs=0.15)
