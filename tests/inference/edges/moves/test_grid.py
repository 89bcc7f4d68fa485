"""The step along a grid leaves a density alone, whatever the grid's width."""

from __future__ import annotations

import numpy as np
from scipy import stats

from pyro_sparse.inference.edges.moves.grid import grid, place


def test_zero_is_among_the_places():
    moves = grid((3, 2), 7, (0.1, 2.0), np.random.default_rng(0))
    assert moves.shape == (7, 3, 2)
    assert (np.abs(moves).min(0) == 0).all()
    spread = (moves.max(0) - moves.min(0)) * 7 / 6
    assert (spread >= 0.1).all() and (spread <= 2.0).all()


def test_a_density_is_left_alone():
    """From a skewed density, ten steps on: were 0 always in the middle or the first, draws would drift."""
    rng = np.random.default_rng(1)
    density = stats.gamma(3)
    x = density.rvs(20_000, random_state=rng)
    for _ in range(10):
        tried = x + grid(x.shape, 8, (0.5, 10.0), rng)
        with np.errstate(invalid="ignore"):
            x = np.take_along_axis(tried, place(density.logpdf(tried), rng)[None], 0)[0]
    assert stats.kstest(x, density.cdf).pvalue > 0.001
