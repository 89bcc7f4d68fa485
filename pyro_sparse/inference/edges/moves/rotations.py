r"""Axes that a linear decoder's likelihood does not tell apart, and moves from one set of them to another.

:math:`W z` stays what it is under :math:`W \to W A^{-1}, z \to A z`. So only priors ask for axes, and
ordinary sweeps, one loading at a time, hardly get from one set to another. Two moves, of two factors each:

*Turns* keep the factors' density, :math:`A C A^\top = C`: with :math:`C = L L^\top`, the pair (i, j) first,
and :math:`R_\theta` a rotation of that pair, :math:`A_\theta = L R_\theta L^{-1}`; columns i and j change.

*Swivels* move factor i alone in its plane with j, and C with it. As vectors whose cosines are C,
:math:`t_i = \cos\psi\, t_j + \sin\psi\, t_\perp`, and

.. math:: w_i = P / \sin\psi, \quad w_j = Q - P \cot\psi, \qquad
          p(\psi) \propto (\sin\psi)^{K - 1 - G}\, p(w_i)\, p(w_j)\, p(C)

with P and Q what stays, G loadings of factor i, and an `LKJ` prior of C, whose determinant goes with
:math:`\sin^2\psi`.

Either way :math:`p(w_k) = \prod_j [\eta_k \psi_1 + (1 - \eta_k) \psi_0](w_{jk})`. Most moves are a step of
random-walk Metropolis in the angle, of a length drawn from all that may suit, for many pairs in a sweep. Now
and then one pair goes all the way round: of M equally spaced angles, M at random, one is drawn in proportion
to its density; they are the orbit of a finite group, so that is a Gibbs step (Liu and Sabatti 2000,
Biometrika 87(2)).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from ....priors import LKJ
from ..density.weight import Slabs, SpikeSlab
from ._compiled import AVAILABLE, by_factor
from ._compiled_swivels import swivel_steps

__all__ = ["Turns", "related_factors"]

Array = NDArray[np.float64]
_ANGLES = (120, 240)  # of half a turn
_STEPS = (0.01, 0.3)  # radians: what a narrow spike lets loadings move, and a new direction
_ALL_PAIRS = 6  # factors up to which a sweep steps every pair; of more, two for each factor
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
    round_share : float
        Of sweeps, have a pair that goes all the way round; all of them where a sweep takes long anyway.
    correlation_prior : LKJ
        Of C, where factors move with their correlations.
    """

    permitted: NDArray[np.bool_]
    must: NDArray[np.bool_]
    related: NDArray[np.bool_]
    density: Slabs
    slab_scale: float
    round_share: float = 0.2
    correlation_prior: LKJ = LKJ(1.0)

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
        for (i, j), far in self._some(np.triu(self.pairs | self.pairs.T), n, rng):
            weight, turn = self._turned_pair(weight, cov, log_odds, (i, j), far, rng)
            whole = turn @ whole
        return weight, whole

    def swivelled(
        self, weight: Array, cov: Array, log_odds: Array, rng: np.random.Generator
    ) -> tuple[Array, Array, Array]:
        """Loadings and correlations after swivels of factors towards others, and the map of the factors.

        Parameters
        ----------
        weight : ndarray (chain, feature, factor)
        cov : ndarray (chain, factor, factor)
            C, with a diagonal of ones.
        log_odds : ndarray (chain, feature or 1, factor)
        rng : numpy.random.Generator

        Returns
        -------
        weight : ndarray (chain, feature, factor)
        cov : ndarray (chain, factor, factor)
        map : ndarray (chain, factor, factor)
            A: factors become ``z @ A.T``.
        """
        matchings = self._matchings(weight, rng)
        if self._compiles and matchings:
            weight, cov, whole = self._all_stepped(weight, cov, log_odds, matchings, rng)
        else:
            whole = np.tile(np.eye(cov.shape[-1]), (len(cov), 1, 1))
            for pairs in matchings:
                weight, cov, by = self._stepped(weight, cov, log_odds, pairs, rng)
                whole = by @ whole
        weight, cov, by = self.gone_round(weight, cov, log_odds, rng)
        return weight, cov, by @ whole

    def gone_round(
        self, weight: Array, cov: Array, log_odds: Array, rng: np.random.Generator
    ) -> tuple[Array, Array, Array]:
        """The same after one factor's step that may go all the way round, in some sweeps.

        Parameters
        ----------
        weight, cov, log_odds, rng
            As in `swivelled`.
        """
        if self._goes_round(len(weight), rng):
            there = np.argwhere(self.swivels)
            i, j = there[rng.integers(len(there))]
            return self._swivelled_one(weight, cov, log_odds, int(i), int(j), rng)
        return weight, cov, np.tile(np.eye(cov.shape[-1]), (len(cov), 1, 1))

    def _some(
        self, pairs: NDArray[np.bool_], chains: int, rng: np.random.Generator
    ) -> list[tuple[tuple[int, int], bool]]:
        """Pairs of a sweep, as many as time allows, and whether they go all the way round."""
        there = np.argwhere(pairs)
        if not len(there):
            return []
        cells = chains * len(self.permitted)
        most = len(there) if len(pairs) <= _ALL_PAIRS else min(2 * len(pairs), len(there))
        most = min(most, max(1, int(_CELLS / (2 * cells))))
        some = [(pair, False) for pair in rng.permutation(there)[:most]]
        if self._goes_round(chains, rng):
            some.append((there[rng.integers(len(there))], True))
        return [((int(i), int(j)), far) for (i, j), far in some]

    def _goes_round(self, chains: int, rng: np.random.Generator) -> bool:
        """Whether this sweep has a pair that goes all the way round."""
        most = _CELLS / (chains * len(self.permitted) * _ANGLES[1])
        return bool(self.swivels.any()) and rng.random() < min(self.round_share, most)

    def _matchings(self, weight: Array, rng: np.random.Generator) -> list[NDArray[np.intp]]:
        """Sets of pairs (pair, 2) without a factor in common, which step together."""
        n, g, k = weight.shape
        if not self.swivels.any():
            return []
        sets = []
        rounds = 2 * k if k <= _ALL_PAIRS else k
        for _ in range(min(rounds, max(1, int(_CELLS / (4 * n * g * k))))):
            order = rng.permutation(k)
            pairs = order[: k // 2 * 2].reshape(-1, 2)
            backward = self.swivels[pairs[:, 1], pairs[:, 0]] & ~self.swivels[pairs[:, 0], pairs[:, 1]]
            pairs[backward] = pairs[backward][:, ::-1]
            sets.append(pairs[self.swivels[pairs[:, 0], pairs[:, 1]]])
        return [pairs for pairs in sets if len(pairs)]

    @property
    def _compiles(self) -> bool:
        """Whether swivels can be machine code (`_all_stepped`)."""
        known = isinstance(self.density, SpikeSlab) and type(self.correlation_prior) is LKJ
        return AVAILABLE and known

    def _all_stepped(
        self,
        weight: Array,
        cov: Array,
        log_odds: Array,
        matchings: list[NDArray[np.intp]],
        rng: np.random.Generator,
    ) -> tuple[Array, Array, Array]:
        """`_stepped` of all pairs in one call, with the same random numbers."""
        density, (n, g, k) = self.density, weight.shape
        assert isinstance(density, SpikeSlab)
        steps, thresholds = [], []
        for pairs in matchings:
            steps.append(_steps((n, len(pairs)), rng))
            thresholds.append(np.log(rng.random((n, len(pairs)))))
        weight, cov, maps = by_factor(weight), cov.copy(), np.tile(np.eye(k), (n, 1, 1))
        odds = by_factor(np.broadcast_to(log_odds + np.where(self.must, np.inf, 0.0), (n, g, k)))
        prior, spike = self.correlation_prior, float(np.max(density.ratio))
        swivel_steps(
            np.concatenate(matchings), weight, cov, np.linalg.slogdet(cov)[1], maps,
            -np.logaddexp(0, -odds), -np.logaddexp(0, odds) - np.log(spike), by_factor(self.permitted),
            density.laplace, spike, float(self.slab_scale), np.array(prior.concentration),
            prior.log_weights(k), np.concatenate(steps, 1), np.concatenate(thresholds, 1),
        )  # fmt: skip
        return by_factor(weight), cov, maps

    def _stepped(
        self,
        weight: Array,
        cov: Array,
        log_odds: Array,
        pairs: NDArray[np.intp],
        rng: np.random.Generator,
    ) -> tuple[Array, Array, Array]:
        """A swivel by a step of each pair's first factor towards the second, Metropolis."""
        n, _, k = weight.shape
        i, j = pairs.T
        begun = np.arccos(np.clip(cov[:, i, j], -1, 1))  # chain, pair
        angle = (begun + _steps(begun.shape, rng)) % np.pi
        cos, sin, before = np.cos(angle), np.maximum(np.sin(angle), 1e-12), np.maximum(np.sin(begun), 1e-12)
        of_first, of_second = weight[..., i], weight[..., j]
        p, q = of_first * before[:, None], of_second + of_first * np.cos(begun)[:, None]
        first = p / sin[:, None]
        second = q - first * cos[:, None]
        columns = np.concatenate([i, j])
        new, now = np.concatenate([first, second], -1), np.concatenate([of_first, of_second], -1)
        level = self._log_priors(new, log_odds, columns) - self._log_priors(now, log_odds, columns)
        level = level[:, : len(i)] + level[:, len(i) :]
        wider = np.log(sin) - np.log(before)
        level += (k - 1 - self.permitted[:, i].sum(0)) * wider
        zeros = (now == 0) & self.permitted[:, columns]  # of a mode: no draws of the spike
        level[(zeros[..., : len(i)] | zeros[..., len(i) :]).any(1)] = -np.inf
        taken = self._accepted(level, cov, wider, rng)
        weight, cov, by = weight.copy(), cov.copy(), np.tile(np.eye(k), (n, 1, 1))
        weight[..., i] = np.where(taken[:, None], first, of_first)
        weight[..., j] = np.where(taken[:, None], second, of_second)
        for m, (a, b) in enumerate(pairs):
            old = cov[:, a]
            across = (old - np.cos(begun[:, m, None]) * cov[:, b]) / before[:, m, None]
            row = cos[:, m, None] * cov[:, b] + sin[:, m, None] * across
            row[:, a], row[:, b] = 1.0, cos[:, m]
            row = np.where(taken[:, m, None], row, old)
            cov[:, a], cov[:, :, a] = row, row
            stretch = np.where(taken[:, m], sin[:, m] / before[:, m], 1.0)
            by[:, a, a] = stretch
            by[:, a, b] = np.where(taken[:, m], cos[:, m] - stretch * np.cos(begun[:, m]), 0.0)
        return weight, cov, by

    def _accepted(
        self, level: Array, cov: Array, wider: Array, rng: np.random.Generator
    ) -> NDArray[np.bool_]:
        """Which steps are taken, one pair after the other, since all of them change one determinant.

        Parameters
        ----------
        level : ndarray (chain, pair)
            Log of the ratio of densities but for the prior of C.
        cov : ndarray (chain, factor, factor)
        wider : ndarray (chain, pair)
            Change of the logarithm of the sine.
        rng : numpy.random.Generator
        """
        k, threshold, taken = cov.shape[-1], np.log(rng.random(level.shape)), np.zeros(level.shape, bool)
        log_det = np.linalg.slogdet(cov)[1]
        now = self.correlation_prior.log_density(log_det, k)
        for m in range(level.shape[1]):
            tried = log_det + 2 * wider[:, m]
            then = self.correlation_prior.log_density(tried, k)
            taken[:, m] = threshold[:, m] < level[:, m] + then - now
            log_det, now = np.where(taken[:, m], tried, log_det), np.where(taken[:, m], then, now)
        return taken

    def _log_priors(self, weight: Array, log_odds: Array, columns: NDArray[np.intp]) -> Array:
        """log prior of columns of loadings (chain, feature, column), edges summed out: (chain, column)."""
        odds = log_odds[..., columns] + np.where(self.must[:, columns], np.inf, 0.0)
        log_prob = self.density.log_prob(weight / self.slab_scale, odds)
        return np.where(self.permitted[:, columns], log_prob, 0.0).sum(1)

    def _swivelled_one(
        self, weight: Array, cov: Array, log_odds: Array, i: int, j: int, rng: np.random.Generator
    ) -> tuple[Array, Array, Array]:
        n, _, k = weight.shape
        permitted = self.permitted[:, i]
        begun = np.arccos(np.clip(cov[:, i, j], -1, 1))
        turn = _angles(n, True, False, rng)
        angle = (begun[:, None] + turn) % np.pi
        cos, sin = np.cos(angle)[:, None], np.maximum(np.sin(angle), 1e-12)[:, None]
        p = weight[..., i, None] * sin[..., :1]
        q = weight[..., j, None] + weight[..., i, None] * cos[..., :1]
        first, second = p / sin, q - p * cos / sin
        log_sin, log_det = np.log(sin[:, 0]), np.linalg.slogdet(cov)[1][:, None]
        level = (k - 1 - permitted.sum()) * log_sin
        level += self.correlation_prior.log_density(log_det + 2 * (log_sin - log_sin[:, :1]), k)
        level += self._log_prior(first, log_odds[..., i, None], i)
        level += self._log_prior(second, log_odds[..., j, None], j)
        at_mode = (weight[:, permitted, i] == 0).any(1)  # zeros are no draws of the spike
        at_mode |= (weight[:, self.permitted[:, j], j] == 0).any(1)
        picked = (np.arange(n), np.where(at_mode, 0, _picked(level, rng)))

        weight, cov = weight.copy(), cov.copy()
        weight[..., i], weight[..., j] = first[picked[0], :, picked[1]], second[picked[0], :, picked[1]]
        across = (cov[:, i] - cos[:, 0, :1] * cov[:, j]) / sin[:, 0, :1]  # of t with what is perpendicular
        row = cos[:, 0][picked][:, None] * cov[:, j] + sin[:, 0][picked][:, None] * across
        row[:, i] = 1.0
        row[:, j] = cos[:, 0][picked]
        cov[:, i], cov[:, :, i] = row, row
        by = np.tile(np.eye(k), (n, 1, 1))
        stretch = sin[:, 0][picked] / sin[:, 0, 0]
        by[:, i, i], by[:, i, j] = stretch, cos[:, 0][picked] - stretch * cos[:, 0, 0]
        return weight, cov, by

    def _turned_pair(
        self,
        weight: Array,
        cov: Array,
        log_odds: Array,
        pair: tuple[int, int],
        far: bool,
        rng: np.random.Generator,
    ) -> tuple[Array, Array]:
        n, _, k = weight.shape
        paired, others = np.array(pair), np.delete(np.arange(k), pair)
        root = np.linalg.cholesky(cov[:, paired][:, :, paired])  # L of the pair
        back = np.linalg.inv(root)
        across = cov[:, others][:, :, paired] @ np.swapaxes(back, -1, -2)  # L of the others, for the pair
        shift = weight[..., others] @ across
        straight = weight[..., paired] @ root + shift  # loadings on the pair's independent parts

        # Half a turn more changes signs only, unless the pair is correlated with another factor.
        angle = _angles(n, far, bool(np.any(across)), rng)
        first, second = straight[..., 0, None], straight[..., 1, None]
        cos, sin = np.cos(angle)[:, None], np.sin(angle)[:, None]
        new = first * cos + second * sin - shift[..., 0, None]
        other = second * cos - first * sin - shift[..., 1, None]
        level = np.zeros((n, angle.shape[-1]))
        for column, factor in enumerate(pair):
            tried = new * back[:, 0, column, None, None] + other * back[:, 1, column, None, None]
            level += self._log_prior(tried, log_odds[..., factor, None], factor)
        angle = np.broadcast_to(angle, level.shape)[np.arange(n), _picked(level, rng)]
        cos, sin = np.cos(angle), np.sin(angle)
        turn = np.stack([cos, sin, -sin, cos], -1).reshape(n, 2, 2)  # R
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


def _angles(n_chains: int, far: bool, whole: bool, rng: np.random.Generator) -> Array:
    """Angles to choose from, the first of them 0: a step of each chain (chain, 2), or all round (1, angle).

    `whole`: over a whole turn, where half of one is not the same.
    """
    if far:
        n = int(rng.integers(*_ANGLES)) * (2 if whole else 1)
        return (np.pi * (2 if whole else 1) * np.arange(n) / n)[None]
    return np.stack([np.zeros(n_chains), _steps((n_chains,), rng)], -1)


def _steps(shape: tuple[int, ...], rng: np.random.Generator) -> Array:
    """Steps in radians, of lengths that are uniform in their logarithm."""
    low, high = (float(np.log(step)) for step in _STEPS)
    return np.exp(rng.uniform(low, high, shape)) * rng.standard_normal(shape)


def _picked(level: Array, rng: np.random.Generator) -> NDArray[np.intp]:
    """Which angle each chain takes, by its log density (chain, angle): Metropolis of two, Gibbs of many."""
    if level.shape[1] == 2:
        return (np.log(rng.random(len(level))) < level[:, 1] - level[:, 0]).astype(np.intp)
    return (level + rng.gumbel(size=level.shape)).argmax(1)
