"""Other axes: as many edges by a count of its own, the edges that differ, scores that name axes."""

from __future__ import annotations

import numpy as np
import pytest

from pyro_sparse.inference.rotation.alternative_axes import alternatives, directions, in_axes_of


@pytest.fixture(scope="module")
def right():
    """Scores of three correlated factors, loadings with zeros, and E[J'J] of linear features."""
    rng = np.random.default_rng(1000)
    z = rng.multivariate_normal(np.zeros(3), np.full((3, 3), 0.5) + 0.5 * np.eye(3), size=500)
    c = np.concatenate([np.repeat(np.eye(3), 4, axis=0), [[1, 1, 0], [0, 1, -1], [1, 0, 1]]])
    return z, c, c[:, :, None] * c[:, None, :]


def test_loadings_are_those_of_a_regression_on_standardised_factors(right):
    z, c, moments = right
    seen = directions(z, moments)
    signal = z @ c.T
    signal /= signal.std(0)
    slopes = np.linalg.lstsq(seen.scores, signal - signal.mean(0), rcond=None)[0].T
    assert np.allclose(np.abs(seen.loadings), np.abs(slopes), atol=1e-8)
    assert np.allclose(np.cov(seen.white.T, bias=True), np.eye(3), atol=1e-8)


def test_right_axes_need_the_fewest_edges(right):
    z, _, moments = right
    best = alternatives(directions(z, moments))[0]
    assert not best.changed.any() and abs(best.more) < 0.2 and (best.correlation > 0.99).all()


def test_a_sum_and_a_difference_need_more_edges_than_their_factors(right):
    z, c, moments = right
    rotation = np.array([[1.0, 1.0, 0.0], [1.0, -1.0, 0.0], [0.0, 0.0, 1.0]])
    back = np.linalg.inv(rotation)
    seen = directions(z @ rotation, back @ moments @ back.T)
    best = alternatives(seen)[0]
    more = (np.abs(c @ back.T) > 1e-9).sum() - (c != 0).sum()
    assert best.more == pytest.approx(-more, abs=0.5)
    assert best.correlation[:2].max() < 0.9 < best.correlation[2]
    assert not best.changed[:, 2].any()


def test_a_factor_mixed_with_another_changes_the_other_column_where_it_has_edges(right):
    """z_1 + z_2 for z_1: every feature of factor 1 gains an edge of factor 2, or loses the one it has."""
    z, c, moments = right
    mixed = z @ np.array([[1.0, 0.0, 0.0], [1.0, 1.0, 0.0], [0.0, 0.0, 1.0]])
    other = in_axes_of(directions(z, moments), mixed[:, [2, 0, 1]] * [1.0, -2.0, 1.0])
    assert other.changed[:, 1].tolist() == (c[:, 0] != 0).tolist()
    assert not other.changed[:, [0, 2]].any()
    assert other.correlation.argmin() == 0


def test_fewer_scores_leave_the_other_factors(right):
    z, _, moments = right
    other = in_axes_of(directions(z, moments), z[:, [1]])
    assert not other.changed.any() and np.allclose(other.correlation, 1)


def test_few_features_say_nothing_of_axes(right):
    z, _, moments = right
    assert alternatives(directions(z, moments[:3])) == []
