r"""How much evidence is there for what a chain explored? Its level, and the volume that it moved in.

With :math:`\tilde p` the log joint density and H the entropy of a chain's draws,

.. math:: \log \int_{\text{explored}} \tilde p = \mathrm{E} \log \tilde p + H,

and H is that of a normal distribution of the loadings (Lewis and Raftery 1997, JASA 92(438)) whose covariance
is what axes have in common and what each feature has of its own,

.. math:: w_j = \bar w_j + \bar w_j A + r_j, \qquad
          H = \tfrac12 \sum_j \log |S_j| + \tfrac12 \log \Big| I + \mathrm{Cov}(A) \sum_j
          (\bar w_j \otimes I)^\top S_j^{-1} (\bar w_j \otimes I) \Big|,

A (factor, factor) by least squares over features, :math:`S_j` the covariance of :math:`r_j`: a whole
covariance wants more draws than chains have. Split by whether a chain that mixes has some edge, draws of bfi
gave the log odds of 52 edges within 1.9 nats (root mean square; of 250 draws 2.0), and those of Thurstone's
tests 1.9; a whole covariance 1.4 and 1.9 (2.1 and 2.3), features alone 7.3, the level alone 1.1 and .7, but
that grows by the logarithm of slab over spike with every weight in a spike.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["explored_evidence"]

Array = NDArray[np.float64]
_ERROR = 2.0  # nats, of a log evidence but for its Monte Carlo error: the figures above
_LEAST = 2  # draws of half a chain for each entry of A
_TINY = 1e-6  # variance of a loading, for one that stays where it is


def explored_evidence(weight: Array, log_joint: Array) -> tuple[Array, float | None]:
    """Log evidence of what each chain explored, up to a constant, and its standard error in nats.

    Parameters
    ----------
    weight : ndarray (chain, draw, feature, factor)
        Loadings, in one frame.
    log_joint : ndarray (chain, some sweeps)
        Factors and edges summed out.

    Returns
    -------
    evidence : ndarray (chain,)
        Not finite for a chain that failed.
    error : float or None
        None where there are too few draws, or only one level: the evidence is then the level alone.
    """
    level = log_joint.mean(1)
    weight = weight[..., np.nan_to_num(weight).any((0, 1, 2))]
    half, k = weight.shape[1] // 2, weight.shape[-1]
    sound = np.isfinite(level) & np.isfinite(weight).all((1, 2, 3))
    middle = log_joint.shape[1] // 2
    if half < max(_LEAST * k**2, 2) or not middle or not sound.any():
        return np.where(sound, level, np.nan), None
    evidence, change = np.full(len(level), np.nan), []
    for c in np.flatnonzero(sound):
        evidence[c] = level[c] + _entropy(weight[c])
        first = log_joint[c, :middle].mean() + _entropy(weight[c, :half])
        change.append(log_joint[c, middle:].mean() + _entropy(weight[c, half:]) - first)
    by_chance = float(np.sqrt(np.mean(np.square(change)))) / 2  # of the mean of two halves
    return evidence, float(np.hypot(_ERROR, by_chance))


def _entropy(weight: Array) -> float:
    """Of draws (draw, feature, factor) of loadings as if they were normal, up to a constant."""
    n, g, k = weight.shape
    mean = weight.mean(0)
    moved = weight - mean
    flat = np.swapaxes(moved, 0, 1).reshape(g, n * k)
    axes = np.swapaxes(np.linalg.lstsq(mean, flat, rcond=None)[0].reshape(k, n, k), 0, 1)
    rest = np.swapaxes(moved - mean @ axes, 0, 1)  # feature, draw, factor
    spread = np.swapaxes(rest, -1, -2) @ rest / n + _TINY * np.eye(k)
    common = np.atleast_2d(np.cov(axes.reshape(n, k * k), rowvar=False))
    pull = np.einsum("jk,jlm,jn->klnm", mean, np.linalg.inv(spread), mean).reshape(k * k, k * k)
    of_axes = np.linalg.slogdet(np.eye(k * k) + common @ pull)[1]
    return float(0.5 * (np.linalg.slogdet(spread)[1].sum() + of_axes))
