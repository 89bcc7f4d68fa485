r"""How much of each feature factors explain: Hamiltonian steps of all features, factors summed out.

Given factors, a feature with little noise is next to known by them, and they by it: loadings of such a
feature (a Heywood case; with three indicators of a factor there often is one) took 700 sweeps to forget where
they were. So the factors of rows without a missing cell are summed out here, and of each feature j the total
variance :math:`v_j = h_j + \sigma_j^2`, :math:`h_j = w_j^\top C w_j`, and the direction of :math:`w_j` stay,
while :math:`r_j = \log h_j / \sigma_j^2` moves, with the density

.. math:: p(r) \propto p(x \mid W, \sigma^2)\, p(W)\, p(\sigma^2) \prod_j q_j^{d_j / 2} (1 - q_j), \qquad
          q_j = h_j / v_j,

:math:`d_j` being the number of its loadings.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from ..density.weight import Slabs

__all__ = ["moved_communalities"]

Array = NDArray[np.float64]
# Leapfrog steps of a move, and their length where one row of one feature is all there is. A feature with next
# to no noise has far to go: effective draws of the slowest weight (practical edges, 4,400 sweeps), with
# 5, 12, 20 steps: Holzinger (seeds 1000 to 1002) 38, 184, 144; 72, 175, 176; 16, 70, 145; Thurstone (1000,
# 1001) 99, 199, 222; 137, 150, 170; in 5.9, 6.3 and 6.3 CPU s.
_STEPS, _LENGTH = 20, 4.5
_JITTER = 0.5  # of the logarithm of the length, either way, so that no orbit is periodic
_NOTHING = 1e-11  # share of a variance that factors have to explain for it to move
_FAR = 27.0  # of r, either way: a share of 2e-12, beyond which matrices are singular and no move ends


def moved_communalities(
    weight: Array,
    noise: Array,
    cov: Array,
    log_odds: Array,
    likelihood: Callable[[Array, Array], tuple[Array, Array, Array]],
    n_rows: int,
    permitted: NDArray[np.bool_],
    must: NDArray[np.bool_],
    density: Slabs,
    slab_scale: float,
    noise_prior: tuple[float, float],
    rng: np.random.Generator,
) -> tuple[Array, Array]:
    """The next loadings and noise; edges and factors are to be drawn anew.

    Parameters
    ----------
    weight : ndarray (chain, feature, factor)
    noise : ndarray (chain, feature)
        Variances, of each feature its own.
    cov : ndarray (chain, factor, factor)
    log_odds : ndarray (chain, feature or 1, factor)
        Of edges, a priori.
    likelihood : callable
        log p(x | weight, noise) (chain,), and its derivatives by weights and by noise
        (`RowMoments.summed_out`).
    n_rows : int
    permitted, must : ndarray of bool (feature, factor)
    density : Slabs
    slab_scale : float
    noise_prior : tuple of float
        Shape and scale of the inverse gamma.
    rng : numpy.random.Generator

    Returns
    -------
    weight : ndarray (chain, feature, factor)
    noise : ndarray (chain, feature)
    """
    shape, scale = noise_prior
    odds = np.where(must, np.inf, log_odds) if must.any() else log_odds
    point = not np.any(density.ratio)  # then loadings are zero without an edge, and stay so
    there = permitted & (weight != 0) if point else np.broadcast_to(permitted, weight.shape)
    if point:
        odds = np.full_like(odds, np.inf)
    explained = ((weight @ cov) * weight).sum(-1)
    total, free = explained + noise, there.sum(-1)
    moves = explained > _NOTHING * total
    unit = weight / np.sqrt(np.where(moves, explained, 1.0))[..., None]

    def place(ratio: Array) -> tuple[Array, Array, Array]:
        """Weights, noise and the shares explained."""
        ratio = np.clip(ratio, -_FAR, _FAR)
        share = expit(ratio)
        weights = unit * np.sqrt(share * total)[..., None]
        return weights, expit(-ratio) * total, share

    def density_at(ratio: Array) -> tuple[Array, Array]:
        """log p(r) (chain,), and its slope (chain, feature)."""
        weights, variance, share = place(ratio)
        level, by_weight, by_noise = likelihood(weights, variance)
        log_prior, slope = density.sloped(weights / slab_scale, odds)
        by_weight = by_weight + np.where(there, slope / slab_scale, 0.0)
        by_noise = by_noise - (shape + 1 - scale / variance) / variance
        level = level + np.where(there, log_prior, 0.0).sum((-1, -2))
        of_features = 0.5 * free * np.log(share) + np.log1p(-share)
        of_features = of_features - (shape + 1) * np.log(variance) - scale / variance
        slope = 0.5 * (1 - share) * (by_weight * weights).sum(-1) - share * variance * by_noise
        slope = slope + 0.5 * free * (1 - share) - share
        return level + np.where(moves, of_features, 0.0).sum(-1), np.where(moves, slope, 0.0)

    n, g = noise.shape
    step = _LENGTH / np.sqrt(max(n_rows, 4)) / g**0.25 * np.exp(rng.uniform(-_JITTER, _JITTER))
    ratio = np.where(moves, np.log(np.where(moves, explained, 1.0)) - np.log(noise), 0.0)
    speed = np.where(moves, rng.standard_normal((n, g)), 0.0)
    with np.errstate(all="ignore"):  # a chain that went astray is not a number and stays where it was
        level, slope = density_at(ratio)
        energy = 0.5 * (speed**2).sum(-1) - level
        for _ in range(_STEPS):
            speed = speed + 0.5 * step * slope
            ratio = ratio + step * speed
            level, slope = density_at(ratio)
            speed = speed + 0.5 * step * slope
        taken = np.log(rng.random(n)) < energy + level - 0.5 * (speed**2).sum(-1)
        taken &= (np.abs(ratio) < _FAR).all(-1)
        new_weight, new_noise, _ = place(ratio)
    changed = taken[:, None] & moves
    return np.where(changed[..., None], new_weight, weight), np.where(changed, new_noise, noise)
