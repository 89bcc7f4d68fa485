"""The mixture of binned strengths: equal to that of the strengths themselves, dense or sparse, and large."""

from __future__ import annotations

import time

import numpy as np
import pytest
from scipy.sparse import csr_array

from pyro_sparse.inference import binned_strength_mixture, strength_mixture


def strengths(rng, shape, share=0.3, zeros=0.3):
    """Edges and errors at the scales of a graph between dictionaries, with pairs that never met."""
    scale = np.exp(np.log(0.02) + 0.35 * rng.normal(size=shape[1]))
    edge = rng.random(shape) < share
    r = np.where(edge, rng.beta(1.3, 1, shape), np.minimum(1.0, scale * np.abs(rng.standard_t(3, shape))))
    return np.where(rng.random(shape) < zeros, 0.0, r)


@pytest.mark.parametrize("shape", [(6, 4), (40, 12)])
def test_equal_to_the_unbinned_within_monte_carlo_error(shape):
    r = strengths(np.random.default_rng(0), shape)
    whole, again = (strength_mixture(r, 1500, 200, seed=seed) for seed in (1, 2))
    binned = binned_strength_mixture(r, 1500, 200, seed=3)
    noise = np.abs(whole.probability - again.probability).max()
    assert np.abs(binned.probability - whole.probability).max() < 0.012 + 2 * noise
    assert np.abs(binned.probability - whole.probability).mean() < 0.004
    assert binned.rate.mean() == pytest.approx(whole.rate.mean(), abs=0.02)
    log_scale, log_whole = np.log(binned.scale).mean(0), np.log(whole.scale).mean(0)
    np.testing.assert_allclose(log_scale, log_whole, atol=0.12)


def test_sparse_and_dense_are_the_same_table():
    r = strengths(np.random.default_rng(1), (20, 9))
    dense, sparse = (binned_strength_mixture(table, 50, 20, seed=5) for table in (r, csr_array(r)))
    np.testing.assert_array_equal(dense.probability, sparse.probability)
    np.testing.assert_array_equal(dense.bin, sparse.bin)


def test_drawn_graphs_have_the_probabilities():
    r = strengths(np.random.default_rng(2), (15, 6))
    found = binned_strength_mixture(r, 800, seed=0)
    drawn = np.mean([found.edge(d, seed=d) for d in range(800)], axis=0)
    np.testing.assert_allclose(drawn, found.probability, atol=0.07)
    np.testing.assert_array_equal(found.edge(3, seed=1), found.edge(3, seed=1))


@pytest.mark.slow
def test_millions_of_strengths_take_seconds():
    r = strengths(np.random.default_rng(3), (1536, 1536), share=0.1)
    start = time.process_time()
    found = binned_strength_mixture(r)
    assert time.process_time() - start < 20
    assert found.probability.shape == r.shape and found.rate.mean() == pytest.approx(0.07, abs=0.02)


def test_bad_input_is_refused():
    for bad in (np.ones(3), np.full((2, 2), np.nan), csr_array(np.full((2, 2), 1.2)), np.ones((0, 2))):
        with pytest.raises(ValueError, match=r"strength: want numbers in \[0, 1\] of shape"):
            binned_strength_mixture(bad)
    with pytest.raises(ValueError, match="bins: want a whole number"):
        binned_strength_mixture(np.eye(2), bins=1)
    with pytest.raises(ValueError, match="bins: got 40000"):
        binned_strength_mixture(np.eye(2), bins=40_000)
