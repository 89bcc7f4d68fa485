"""Doubts about axes: rotated pairs, factors within others, factors that are curves; else none."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

import pyro_sparse as ps
import pyro_sparse.inference.table.axis_findings as axis_module
from pyro_sparse.inference.table.axis_findings import axis_findings, curve_share, nested_factors
from pyro_sparse.inference.table.axis_restarts import AxisStart


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


@pytest.fixture(scope="module")
def straight():
    """A fit of nine features of three factors, one each, and its factors of a hundred rows."""
    rng = np.random.default_rng(1000)
    z = rng.normal(size=(150, 3))
    x = np.tanh(z[:, np.arange(9) % 3]) + 0.2 * rng.normal(size=(150, 9))
    fit = ps.fit(ps.models.SparseDecoder(n_factors=3), x, restarts=2, steps=60, seed=0, progress=False)
    return fit, np.arange(100), fit.transform()[:100]


def test_axes_of_a_search_that_are_those_of_the_fit_are_no_doubt(straight):
    fit, rows, scores = straight
    same = AxisStart(None, 3, rows, scores[:, ::-1] * [-1, 1, 2])
    assert axis_findings(fit, same) == axis_findings(fit)


def test_edges_that_a_search_sees_in_other_axes_are_in_doubt(straight):
    """With z1 + z2 in the place of the first factor its features would depend on the second, too."""
    fit, rows, scores = straight
    other = AxisStart(None, 3, rows, scores / scores.std(0) @ [[1, 0, 0], [1, 1, 0], [0, 0, 1]])
    (doubt,) = [finding for finding in axis_findings(fit, other) if "search" in finding.message]
    of_first = {fit.feature_names[j] for j in np.flatnonzero(fit.weights[fit.best][:, 0])}
    assert doubt.is_doubt and not doubt.factors and len(of_first) == 3
    assert set(doubt.edges) == {(feature, fit.factor_names[1]) for feature in of_first}
    assert doubt.size == pytest.approx(0.7, abs=0.15)


def test_rotated_factors_are_in_doubt_and_right_ones_are_not(straight, monkeypatch):
    """The sum and the difference of two factors need six edges more than the two."""
    fit, _, _ = straight
    assert [f for f in axis_findings(fit) if "other axes" in f.message] == []
    seen = axis_module.directions
    rotation = np.array([[1, 1, 0], [1, -1, 0], [0, 0, 1.0]])
    back = np.linalg.inv(rotation)  # f(c'z) = f(c' rotation^-T (rotation' z))
    monkeypatch.setattr(
        axis_module, "directions", lambda z, moments: seen(z @ rotation, back @ moments @ back.T)
    )
    (doubt,) = [finding for finding in axis_findings(fit) if "other axes" in finding.message]
    assert doubt.factors == tuple(fit.factor_names[:2])
    assert doubt.size == pytest.approx(6, abs=0.5)
