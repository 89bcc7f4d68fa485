r"""All axes at once, by Hamiltonian steps: which directions the factors of a linear decoder have.

:math:`W z` stays what it is under :math:`W \to W A^{-1}, z \to A z`, so that only priors ask for axes. As
unit vectors :math:`t_k` whose cosines are the correlations, :math:`T T^\top = C`, and :math:`M = W T` stays,

.. math:: p(T) \propto |T|^{1 - G} \prod_{jk} [\eta_k \psi_1 + (1 - \eta_k) \psi_0]\big((M T^{-1})_{jk}\big)

over K unit spheres, G features and a flat prior over correlation matrices (LKJ, 1): :math:`|T|^{-G}` is the
volume that loadings take up, and :math:`|T|` makes uniform directions flat correlations. One loading, or one
pair of factors, at a time, chains of bfi took some 200 sweeps to get from one end of what the data leave open
to the other; ten steps of all K (K - 1) angles take six (Byrne and Girolami 2013, Scandinavian Journal of
Statistics 40(4): geodesics of a sphere are known).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ....priors import LKJ
from ..density.weight import Slabs, SpikeSlab
from ._compiled import AVAILABLE, LARGEST, axes_orbit, by_factor

__all__ = ["all_axes_move", "moved_axes"]

Array = NDArray[np.float64]
# Leapfrog steps of a move, and their length in units of what the spike lets a loading rotate. Four chains of
# bfi, seed 1001, accepted and least effective of 4,400 draws: .5 90 %, 367; 1 48 %, 188; 1.5 15 %, 26; by
# steps of single pairs 20.
_STEPS, _LENGTH = 10, 0.5
# Spike over slab from which all axes move at once. Narrower ones (the prior's own has 1 / N) make every zero
# a mode that Hamiltonian steps have to climb out of; .14 is that of edge="practical".
_SMOOTH = 0.05
_JITTER = 0.5  # of the logarithm of the length, either way, so that no orbit is periodic


def all_axes_move(permitted: NDArray[np.bool_], density: Slabs) -> bool:
    """Whether any axes may be those of the factors, and the way from one set to another is smooth."""
    return float(np.max(density.ratio)) >= _SMOOTH and bool(permitted.all())


def moved_axes(
    weight: Array,
    cov: Array,
    log_odds: Array,
    must: NDArray[np.bool_],
    density: Slabs,
    slab_scale: float,
    correlation_prior: LKJ,
    rng: np.random.Generator,
) -> tuple[Array, Array, Array]:
    """Loadings and correlations in the next axes, and the map of the factors; edges are to be drawn anew.

    Parameters
    ----------
    weight : ndarray (chain, feature, factor)
        Every loading may be there.
    cov : ndarray (chain, factor, factor)
        Correlation matrices.
    log_odds : ndarray (chain, feature or 1, factor)
        Of edges, a priori.
    must : ndarray of bool (feature, factor)
        Edges that have to be there.
    density : Slabs
        With a spike that is no point.
    slab_scale : float
    correlation_prior : LKJ
    rng : numpy.random.Generator

    Returns
    -------
    weight : ndarray (chain, feature, factor)
    cov : ndarray (chain, factor, factor)
    map : ndarray (chain, factor, factor)
        A: factors become ``z @ A.T``.
    """
    n, g, k = weight.shape
    odds = np.where(must, np.inf, log_odds) if must.any() else log_odds
    begun: Array = np.linalg.cholesky(cov).astype(float)
    straight, identity = weight @ begun, np.eye(k)
    target = Axes(straight, np.asarray(odds, dtype=float), density, slab_scale, correlation_prior)

    # The sum of squares is the same in all axes, so that steps are as long on the way back.
    communality = (straight**2).sum((-1, -2)) / k
    spike = slab_scale * float(np.max(density.ratio))
    step = _LENGTH * np.exp(rng.uniform(-_JITTER, _JITTER)) * spike / np.sqrt(np.maximum(communality, 1e-12))
    step = np.minimum(step, 1.0)[:, None, None]
    speed = _tangent(rng.standard_normal((n, k, k)), begun)
    orbit = target.compiled_orbit if target.compiles else target.orbit
    with np.errstate(all="ignore"):  # a chain that went astray is not a number and stays where it was
        direction, new_speed, gain = orbit(begun, speed, step, _STEPS)
        lost = 0.5 * (new_speed**2).sum((-1, -2)) - 0.5 * (speed**2).sum((-1, -2))
        taken = np.log(rng.random(n)) < gain - lost
    direction = np.where(taken[:, None, None], direction, begun)
    new_cov = direction @ np.swapaxes(direction, -1, -2)
    new_cov[:, range(k), range(k)] = 1.0
    new_weight, by = straight @ np.linalg.inv(direction), direction @ np.linalg.inv(begun)
    still = ~taken[:, None, None]
    return np.where(still, weight, new_weight), np.where(still, cov, new_cov), np.where(still, identity, by)


class Axes(NamedTuple):
    """log p(T), and orbits in it.

    Attributes
    ----------
    straight : ndarray (chain, feature, factor)
        M, loadings of uncorrelated factors.
    odds : ndarray (chain, feature or 1, factor)
        log odds of edges; infinite: there is one.
    density, slab_scale, correlation_prior
        As in `moved_axes`.
    """

    straight: Array
    odds: Array
    density: Slabs
    slab_scale: float
    correlation_prior: LKJ

    def density_at(self, direction: Array) -> tuple[Array, Array]:
        """log p(T) (chain,), and its slope along the spheres (chain, factor, factor)."""
        g, k = self.straight.shape[-2:]
        prior, back = self.correlation_prior, np.linalg.inv(direction)
        loading = self.straight @ back
        log_prior, slope = self.density.sloped(loading / self.slab_scale, self.odds)
        log_det = np.linalg.slogdet(direction)[1]
        level = log_prior.sum((-1, -2)) - (g - 1) * log_det + prior.log_density(2 * log_det, k)
        inner = np.swapaxes(loading, -1, -2) @ slope / self.slab_scale
        inner = inner + (g - 1 - 2 * prior.slope(2 * log_det, k))[:, None, None] * np.eye(k)
        return level, _tangent(-inner @ np.swapaxes(back, -1, -2), direction)

    def orbit(self, direction: Array, speed: Array, step: Array, n_steps: int) -> tuple[Array, Array, Array]:
        """Directions and speeds after steps of a length (chain, 1, 1), and what log p has gained."""
        begun, slope = self.density_at(direction)
        level = begun
        for _ in range(n_steps):
            direction, speed = _along(direction, speed + 0.5 * step * slope, step)
            level, slope = self.density_at(direction)
            speed = _tangent(speed + 0.5 * step * slope, direction)
        return direction, speed, level - begun

    @property
    def compiles(self) -> bool:
        """Whether this can be machine code, and that is faster."""
        known = isinstance(self.density, SpikeSlab) and type(self.correlation_prior) is LKJ
        return AVAILABLE and known and self.straight[0].size <= LARGEST

    def compiled_orbit(
        self, direction: Array, speed: Array, step: Array, n_steps: int
    ) -> tuple[Array, Array, Array]:
        """The same in one call."""
        density, prior = self.density, self.correlation_prior
        assert isinstance(density, SpikeSlab)
        direction, speed = direction.copy(), speed.copy()
        odds = np.broadcast_to(self.odds, self.straight.shape)
        gain = axes_orbit(
            direction, speed, step.reshape(-1), n_steps, by_factor(self.straight), by_factor(odds),
            by_factor(-np.logaddexp(0, -odds)), density.laplace, float(np.max(density.ratio)),
            float(self.slab_scale), np.array(prior.concentration), prior.log_weights(self.straight.shape[-1]),
        )  # fmt: skip
        return direction, speed, gain


def _tangent(vector: Array, direction: Array) -> Array:
    """Rows without what of them points along the directions."""
    along: Array = vector - (vector * direction).sum(-1, keepdims=True) * direction
    return along


def _along(direction: Array, speed: Array, step: Array) -> tuple[Array, Array]:
    """Directions and speeds after a step along great circles."""
    size = np.sqrt((speed**2).sum(-1, keepdims=True))
    cos, sin = np.cos(size * step), np.sin(size * step)
    unit = speed / np.maximum(size, 1e-300)
    return direction * cos + unit * sin, size * (unit * cos - direction * sin)
