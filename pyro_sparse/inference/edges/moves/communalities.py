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
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from ..density.row_likelihood import RowLikelihood
from ..density.weight import Slabs, SpikeSlab
from ._compiled import AVAILABLE, LARGEST, by_factor, communality_orbit

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
    odds = np.where(must, np.inf, log_odds) if must.any() else log_odds
    point = not np.any(density.ratio)  # then loadings are zero without an edge, and stay so
    there = permitted & (weight != 0) if point else np.broadcast_to(permitted, weight.shape)
    if point:
        odds = np.full_like(odds, np.inf)
    explained = ((weight @ cov) * weight).sum(-1)
    total = explained + noise
    moves = explained > _NOTHING * total
    unit = weight / np.sqrt(np.where(moves, explained, 1.0))[..., None]
    target = Communalities(
        likelihood, density, slab_scale, noise_prior, unit, total, there, moves, np.asarray(odds, dtype=float)
    )

    n, g = noise.shape
    step = _LENGTH / np.sqrt(max(n_rows, 4)) / g**0.25 * np.exp(rng.uniform(-_JITTER, _JITTER))
    ratio = np.where(moves, np.log(np.where(moves, explained, 1.0)) - np.log(noise), 0.0)
    speed = np.where(moves, rng.standard_normal((n, g)), 0.0)
    orbit = target.compiled_orbit if target.compiles else target.orbit
    with np.errstate(all="ignore"):  # a chain that went astray is not a number and stays where it was
        ratio, new_speed, gain = orbit(ratio, speed, step, _STEPS)
        lost = 0.5 * (new_speed**2).sum(-1) - 0.5 * (speed**2).sum(-1)
        taken = np.log(rng.random(n)) < gain - lost
        taken &= (np.abs(ratio) < _FAR).all(-1)
        new_weight, new_noise, _ = target.place(ratio)
    changed = taken[:, None] & moves
    return np.where(changed[..., None], new_weight, weight), np.where(changed, new_noise, noise)


class Communalities(NamedTuple):
    """log p(r), and orbits in it.

    Attributes
    ----------
    likelihood, density, slab_scale, noise_prior
        As in `moved_communalities`.
    unit : ndarray (chain, feature, factor)
        Loadings that explain a variance of one.
    total : ndarray (chain, feature)
        Variances.
    there : ndarray of bool (chain, feature, factor)
        Loadings that have a density.
    moves : ndarray of bool (chain, feature)
    odds : ndarray (chain, feature or 1, factor)
        log odds of edges; infinite: there is one.
    """

    likelihood: Callable[[Array, Array], tuple[Array, Array, Array]]
    density: Slabs
    slab_scale: float
    noise_prior: tuple[float, float]
    unit: Array
    total: Array
    there: NDArray[np.bool_]
    moves: NDArray[np.bool_]
    odds: Array

    def place(self, ratio: Array) -> tuple[Array, Array, Array]:
        """Weights, noise and the shares explained."""
        ratio = np.clip(ratio, -_FAR, _FAR)
        share = expit(ratio)
        weights = self.unit * np.sqrt(share * self.total)[..., None]
        return weights, expit(-ratio) * self.total, share

    def density_at(self, ratio: Array) -> tuple[Array, Array]:
        """log p(r) (chain,), and its slope (chain, feature)."""
        shape, scale = self.noise_prior
        there, free = self.there, self.there.sum(-1)
        weights, variance, share = self.place(ratio)
        left = variance / self.total  # 1 - share would be rounding where next to all is explained
        level, by_weight, by_noise = self.likelihood(weights, variance)
        log_prior, slope = self.density.sloped(weights / self.slab_scale, self.odds)
        by_weight = by_weight + np.where(there, slope / self.slab_scale, 0.0)
        by_noise = by_noise - (shape + 1 - scale / variance) / variance
        level = level + np.where(there, log_prior, 0.0).sum((-1, -2))
        of_features = 0.5 * free * np.log(share) + np.log(left)
        of_features = of_features - (shape + 1) * np.log(variance) - scale / variance
        slope = 0.5 * left * ((by_weight * weights).sum(-1) + free) - share * (variance * by_noise + 1)
        return level + np.where(self.moves, of_features, 0.0).sum(-1), np.where(self.moves, slope, 0.0)

    def orbit(self, ratio: Array, speed: Array, step: float, n_steps: int) -> tuple[Array, Array, Array]:
        """r and speeds after leapfrog steps, and what log p has gained."""
        begun, slope = self.density_at(ratio)
        level = begun
        for _ in range(n_steps):
            speed = speed + 0.5 * step * slope
            ratio = ratio + step * speed
            level, slope = self.density_at(ratio)
            speed = speed + 0.5 * step * slope
        return ratio, speed, level - begun

    @property
    def compiles(self) -> bool:
        """Whether this can be machine code, and that is faster."""
        known = isinstance(self.density, SpikeSlab) and isinstance(self.likelihood, RowLikelihood)
        return AVAILABLE and known and self.unit[0].size <= LARGEST

    def compiled_orbit(
        self, ratio: Array, speed: Array, step: float, n_steps: int
    ) -> tuple[Array, Array, Array]:
        """The same in one call."""
        rows, density = self.likelihood, self.density
        assert isinstance(rows, RowLikelihood) and isinstance(density, SpikeSlab)
        ratio, speed = ratio.copy(), speed.copy()
        odds = np.where(self.there, self.odds, np.inf)  # then the others have a constant, as they stay
        gain = communality_orbit(
            ratio, speed, step, n_steps, _FAR, by_factor(self.unit), self.total, self.moves,
            self.there.sum(-1), by_factor(odds), by_factor(-np.logaddexp(0, -odds)), density.laplace,
            float(np.max(density.ratio)), float(self.slab_scale), tuple(map(float, self.noise_prior)),
            *rows.contiguous(),
        )  # fmt: skip
        return ratio, speed, gain
