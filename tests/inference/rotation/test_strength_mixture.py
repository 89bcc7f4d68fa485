"""The mixture on strengths: data from its own prior, clear cases, and what it does when nothing is clear."""

from __future__ import annotations

import numpy as np
import pytest

from pyro_sparse.calibrate import reliability
from pyro_sparse.inference.rotation import _strength_mixture as own
from pyro_sparse.inference.rotation._strength_mixture import edge_probability, strength_mixture


def drawn(rng, shape=(24, 6)):
    """Edges and strengths from the mixture's prior, at scales a fit has."""
    centre = np.log(rng.uniform(0.005, 0.03))
    scale = np.exp(centre + own._SPREAD * rng.normal(size=shape[1]))
    edge = rng.random(shape) < rng.uniform(0.2, 0.8)
    spike = scale * np.abs(rng.standard_t(own._TAIL, size=shape))
    return edge, np.where(edge, rng.beta(own._SLAB, 1, size=shape), np.minimum(spike, 1.0))


@pytest.mark.slow
def test_probabilities_are_calibrated_on_data_of_its_own_prior():
    rng = np.random.default_rng(0)
    sets = [drawn(rng) for _ in range(40)]
    p = np.concatenate([edge_probability(r).ravel() for _, r in sets])
    truth = np.concatenate([edge.ravel() for edge, _ in sets])
    found = reliability(p, truth)
    assert found.ece < found.ece_null + 0.01
    assert found.brier < 0.05


def test_clear_graphs_are_read_whatever_their_density():
    rng = np.random.default_rng(1)
    for rate in (0.15, 0.5, 0.85):
        edge = rng.random((30, 5)) < rate
        r = np.where(edge, rng.uniform(0.2, 1, size=edge.shape), 0.01 * np.abs(rng.normal(size=edge.shape)))
        np.testing.assert_array_equal(edge_probability(r) > 0.5, edge)


def test_draws_agree_with_the_probabilities_and_with_the_seed():
    _, r = drawn(np.random.default_rng(2))
    found, again = strength_mixture(r, 2000, seed=3), strength_mixture(r, 2000, seed=3)
    assert np.abs(found.edge.mean(0) - found.probability).max() < 0.06
    np.testing.assert_array_equal(found.edge, again.edge)
    assert found.rate.shape == (2000,) and found.scale.shape == (2000, 6)


def test_a_bad_column_has_errors_of_its_own():
    """A factor whose axis is off shows strengths in its column that elsewhere would be edges."""
    rng = np.random.default_rng(4)
    edge = rng.random((60, 4)) < 0.4
    error = np.array([0.005, 0.005, 0.005, 0.04]) * np.abs(rng.normal(size=edge.shape))
    r = np.where(edge, rng.uniform(0.3, 1, size=edge.shape), error)
    r[0], edge[0] = 0.06, False
    p = edge_probability(r)
    assert p[0, 3] < 0.6 < p[0, 0]


@pytest.mark.parametrize(
    "bad", [np.ones(3), np.full((2, 2), np.nan), np.full((2, 2), -0.1), np.full((2, 2), 1.2)]
)
def test_bad_strengths_are_refused(bad):
    with pytest.raises(ValueError, match=r"strength: want numbers in \[0, 1\] of shape"):
        strength_mixture(bad)
