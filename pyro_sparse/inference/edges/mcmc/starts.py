"""Where linear chains begin: at a restart of the fit, or in other axes of the space that it found.

Chains that begin with every edge there stayed hundreds of nats below the best one and were left out, so that
they said nothing. Axes by another criterion are as good a guess as the fit's own, and random ones are none at
all: a chain that comes back from them says that the data know the axes, and one that does not, that they do
not.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ...rotation.axes import obliques, varimax

__all__ = ["in_other_axes"]

Array = NDArray[np.float64]
_RANDOM = 1  # the start in random axes, which no criterion chose
_STARTS, _STEPS = 4, 150  # of an oblique rotation: a guess, not the best one
_MOST_CORRELATED = 0.9  # of which a chain may be long in getting away


def in_other_axes(weight: Array, cov: Array, number: int, correlated: bool, seed: int) -> tuple[Array, Array]:
    """Loadings and correlations in axes by another criterion than the fit's.

    Parameters
    ----------
    weight : ndarray (feature, factor)
        Factors without a loading stay without.
    cov : ndarray (factor, factor)
    number : int
        Which: varimax, then random orthogonal axes, then oblique ones, each time others.
    correlated : bool
        Whether axes may be oblique; else they are varimax from random ones.
    seed : int

    Returns
    -------
    weight : ndarray (feature, factor)
    cov : ndarray (factor, factor)
        Correlation matrix.
    """
    used = np.flatnonzero(weight.any(0))
    if len(used) < 2:
        return weight, cov
    straight = weight[:, used] @ np.linalg.cholesky(cov[np.ix_(used, used)])
    rng = np.random.default_rng([seed, number])
    turn = np.linalg.qr(rng.standard_normal((len(used), len(used))))[0]
    rotated = straight @ turn
    if number != _RANDOM:
        rotated = straight @ varimax(straight) if number == 0 else rotated @ varimax(rotated)
    correlation = np.eye(len(used))
    if correlated and number > _RANDOM:
        solutions = obliques(
            straight @ turn, n_starts=_STARTS, steps=_STEPS, max_correlation=_MOST_CORRELATED, seed=number
        )
        rotated, correlation = solutions[0] if solutions else (rotated, correlation)
    weight, cov = np.zeros_like(weight), np.eye(len(cov))
    weight[:, used], cov[np.ix_(used, used)] = rotated, correlation
    return weight, cov
