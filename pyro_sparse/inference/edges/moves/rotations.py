r"""Axes that a linear decoder's likelihood does not tell apart, and moves from one set of them to another.

:math:`W z` stays what it is under :math:`W \to W A^{-1}, z \to A z`. So only priors ask for axes, and
ordinary sweeps, one loading at a time, hardly get from one set to another. Two moves, of two factors each:

*Turns* keep the factors' density, :math:`A C A^\top = C`: with :math:`C = L L^\top`, the pair (i, j) first,
and :math:`R_\theta` a rotation of that pair, :math:`A_\theta = L R_\theta L^{-1}`; columns i and j change.

*Swivels* move factor i alone in its plane with j, and C with it. As vectors whose cosines are C,
:math:`t_i = \cos\psi\, t_j + \sin\psi\, t_\perp`, and

.. math:: w_i = P / \sin\psi, \quad w_j = Q - P \cot\psi, \qquad
          p(\psi) \propto (\sin\psi)^{K - 1 - G}\, p(w_i)\, p(w_j)

with P and Q what stays, G loadings of factor i, and a flat prior over correlation matrices (LKJ, 1).

Either way :math:`p(w_k) = \prod_j [\eta_k \psi_1 + (1 - \eta_k) \psi_0](w_{jk})`, and of M equally spaced
angles, M at random, one is drawn in proportion to its density: they are the orbit of a finite group, so these
are Gibbs steps (Liu and Sabatti 2000, Biometrika 87(2)).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from ..density.weight import Slabs

__all__ = ["Turns", "related_factors"]

Array = NDArray[np.float64]
_ANGLES = (120, 240)  # of half a turn
# loadings at all angles that a sweep may look at; of larger tables some sweeps take a pair
_CELLS = 4_000_000


def related_factors(cov: Array) -> NDArray[np.bool_]:
    """Which factors are correlated, in any chain, (factor, factor).

    Parameters
    ----------
    cov : ndarray (chain or 1, factor, factor)
    """
    return (np.abs(cov) > 1e-9).any(0) & ~np.eye(cov.shape[-1], dtype=bool)


@dataclass(frozen=True, eq=False)
class Turns:
    """The prior that chooses the axes, and which pairs may move.

    Parameters
    ----------
    permitted, must : ndarray of bool (feature, factor)
    related : ndarray of bool (factor, factor)
        Factors that are, or may become, correlated.
    density : Slabs
        Slab and spike in units of the slab's scale.
    slab_scale : float
    """

    permitted: NDArray[np.bool_]
    must: NDArray[np.bool_]
    related: NDArray[np.bool_]
    density: Slabs
    slab_scale: float

    @cached_property
    def pairs(self) -> NDArray[np.bool_]:
        """Which factors can be turned into which, (factor, factor).

        Both are to see the same features; all of them, if the two are correlated with a third factor, since
        what that one loads on would spread to both. None under a spike that is a point: zeros do not turn.
        """
        p = self.permitted
        same = (p[:, :, None] == p[:, None]).all(0) & self.swivels
        for i, j in np.argwhere(same):
            others = np.delete(np.arange(len(same)), [i, j])
            same[i, j] = p[:, i].all() or not self.related[[i, j]][:, others].any()
        return same

    @cached_property
    def swivels(self) -> NDArray[np.bool_]:
        """Which factors (first) can be swivelled towards which: to one that sees whatever the first does."""
        p = self.permitted
        inside = (p[:, :, None] <= p[:, None]).all(0) & ~np.eye(p.shape[1], dtype=bool)
        return inside & bool(np.any(self.density.ratio))

    def turned(
        self, weight: Array, cov: Array, log_odds: Array, rng: np.random.Generator
    ) -> tuple[Array, Array]:
        """Loadings after a turn of every factor with some other, and what the factors are multiplied by.

        Parameters
        ----------
        weight : ndarray (chain, feature, factor)
        cov : ndarray (chain or 1, factor, factor)
            C.
        log_odds : ndarray (chain, feature or 1, factor)
            Of edges, a priori.
        rng : numpy.random.Generator

        Returns
        -------
        weight : ndarray (chain, feature, factor)
        map : ndarray (chain, factor, factor)
            A: factors become ``z @ A.T``.
        """
        n, _, k = weight.shape
        whole = np.tile(np.eye(k), (n, 1, 1))
        for pair in self._some(self.pairs, n, rng):
            weight, turn = self._turned_pair(weight, cov, log_odds, pair, rng)
            whole = turn @ whole
        return weight, whole

    def swivelled(
        self, weight: Array, cov: Array, log_odds: Array, rng: np.random.Generator
    ) -> tuple[Array, Array]:
        """Loadings and correlations after a swivel of half of the factors.

        Parameters
        ----------
        weight : ndarray (chain, feature, factor)
        cov : ndarray (chain, factor, factor)
            C, with a diagonal of ones.
        log_odds : ndarray (chain, feature or 1, factor)
        rng : numpy.random.Generator
        """
        for i, j in self._some(self.swivels, len(weight), rng):
            weight, cov = self._swivelled_one(weight, cov, log_odds, i, j, rng)
        return weight, cov

    def _some(self, pairs: NDArray[np.bool_], chains: int, rng: np.random.Generator) -> list[tuple[int, int]]:
        """Pairs at random, each factor in one at most, as many as time allows."""
        most = _CELLS / (chains * len(self.permitted) * _ANGLES[1])
        if most < 1 and rng.random() > most:
            return []
        return _matching(pairs, rng)[: max(1, int(most))]

    def _swivelled_one(
        self, weight: Array, cov: Array, log_odds: Array, i: int, j: int, rng: np.random.Generator
    ) -> tuple[Array, Array]:
        n, _, k = weight.shape
        permitted = self.permitted[:, i]
        begun = np.arccos(np.clip(cov[:, i, j], -1, 1))
        n_angles, turn = _angles(rng)
        angle = (begun[:, None] + turn) % np.pi
        cos, sin = np.cos(angle)[:, None], np.maximum(np.sin(angle), 1e-12)[:, None]
        p = weight[..., i, None] * sin[..., :1]
        q = weight[..., j, None] + weight[..., i, None] * cos[..., :1]
        one, two = p / sin, q - p * cos / sin
        level = (k - 1 - permitted.sum()) * np.log(sin[:, 0])
        level += self._log_prior(one, log_odds[..., i, None], i)
        level += self._log_prior(two, log_odds[..., j, None], j)
        level += rng.gumbel(size=(n, n_angles))
        at_mode = (weight[:, permitted, i] == 0).any(1)  # zeros are no draws of the spike
        picked = (np.arange(n), np.where(at_mode, 0, level.argmax(1)))

        weight, cov = weight.copy(), cov.copy()
        weight[..., i], weight[..., j] = one[picked[0], :, picked[1]], two[picked[0], :, picked[1]]
        across = (cov[:, i] - cos[:, 0, :1] * cov[:, j]) / sin[:, 0, :1]  # of t with what is perpendicular
        row = cos[:, 0][picked][:, None] * cov[:, j] + sin[:, 0][picked][:, None] * across
        row[:, i] = 1.0
        row[:, j] = cos[:, 0][picked]
        cov[:, i], cov[:, :, i] = row, row
        return weight, cov

    def _turned_pair(
        self, weight: Array, cov: Array, log_odds: Array, pair: tuple[int, int], rng: np.random.Generator
    ) -> tuple[Array, Array]:
        n, _, k = weight.shape
        paired, others = np.array(pair), np.delete(np.arange(k), pair)
        root = np.linalg.cholesky(cov[:, paired][:, :, paired])  # L of the pair
        back = np.linalg.inv(root)
        across = cov[:, others][:, :, paired] @ np.swapaxes(back, -1, -2)  # L of the others, for the pair
        shift = weight[..., others] @ across
        straight = weight[..., paired] @ root + shift  # loadings on the pair's independent parts

        # Half a turn more changes signs only, unless the pair is correlated with another factor.
        n_angles, angle = _angles(rng, whole=bool(np.any(across)))
        first, second = straight[..., 0, None], straight[..., 1, None]
        cos, sin = np.cos(angle), np.sin(angle)
        one = first * cos + second * sin - shift[..., 0, None]
        two = second * cos - first * sin - shift[..., 1, None]
        level = np.zeros((n, n_angles))
        for column, factor in enumerate(pair):
            tried = one * back[:, 0, column, None, None] + two * back[:, 1, column, None, None]
            level += self._log_prior(tried, log_odds[..., factor, None], factor)
        picked = (level + rng.gumbel(size=level.shape)).argmax(1)

        turn = np.stack([cos[picked], sin[picked], -sin[picked], cos[picked]], -1).reshape(n, 2, 2)  # R
        weight = weight.copy()
        weight[..., paired] = (straight @ np.swapaxes(turn, -1, -2) - shift) @ back
        whole = np.tile(np.eye(k), (n, 1, 1))
        whole[:, paired[:, None], paired] = root @ turn @ back
        whole[:, others[:, None], paired] = across @ (turn - np.eye(2)) @ back
        return np.where(self.permitted, weight, 0.0), whole

    def _log_prior(self, weight: Array, log_odds: Array, factor: int) -> Array:
        """log prior of a column of loadings, (chain, feature, angle), edges summed out, over its features."""
        permitted, must = self.permitted[:, factor], self.must[:, factor]
        u = weight[:, permitted] / self.slab_scale
        log_odds = log_odds if log_odds.shape[1] == 1 else log_odds[:, permitted]
        sure = np.where(must[permitted], np.inf, 0.0)[:, None]
        return self.density.log_prob(u, log_odds + sure).sum(1)


def _angles(rng: np.random.Generator, whole: bool = False) -> tuple[int, Array]:
    """How many, and where: equally spaced over half a turn, or a whole one, from 0."""
    n = int(rng.integers(*_ANGLES)) * (2 if whole else 1)
    return n, np.pi * (2 if whole else 1) * np.arange(n) / n


def _matching(pairs: NDArray[np.bool_], rng: np.random.Generator) -> list[tuple[int, int]]:
    """Pairs at random, each factor in one at most."""
    free = list(rng.permutation(len(pairs))) if pairs.any() else []
    matched = []
    while free:
        i = free.pop()
        j = next((j for j in free if pairs[i, j]), None)
        if j is not None:
            free.remove(j)
            matched.append((int(i), int(j)))
    return matched
