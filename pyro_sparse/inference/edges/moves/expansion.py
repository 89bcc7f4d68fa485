r"""Parameter expansion: factors mapped by a matrix and loadings by its inverse, one entry after another.

:math:`W z` stays what it is under :math:`W \to W A^{-1}, z \to A z`. Rotations are free of the factors'
density (`rotations.py`); scales and shears are not: N rows say how wide each factor is, to one part in
:math:`\sqrt{2 N}`, and how it goes with the others. Where cells have little noise, factors given loadings are
next to known, and loadings given factors: chains that draw one after the other took hundreds of sweeps to get
from one end of that part to the other. With :math:`A = I + a\,e_i e_j^\top`, :math:`S = Z^\top Z` and
:math:`P = C^{-1}`,

.. math:: w_j \to w_j - a\,w_i, \quad z_i \to z_i + a\,z_j, \qquad
          p(a) \propto \exp\big(-a (S P)_{ji} - \tfrac12 a^2 S_{jj} P_{ii}\big)\; p(w_j - a\,w_i)

is a shear, and with i = j, s = 1 + a, a scale, :math:`w_i \to w_i / s`, whose density by :math:`\log s` has
:math:`s^{N - G_i}` beside it, :math:`G_i` loadings of factor i being free (Liu and Sabatti 2000, Biometrika
87(2); Ghosh and Dunson 2009, Journal of Computational and Graphical Statistics 18(2), expand by scales).
A translation, :math:`z \to z + b^\top d, c_g \to c_g - b\,w_g`, of rows with covariates d (1 among them) and
coefficients c, has a normal density.
Edges are summed out: :math:`p(w_j) = \prod_g [\eta_j \psi_1 + (1 - \eta_j) \psi_0](w_{gj})`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from ..density.weight import Slabs, SpikeSlab
from ._compiled import AVAILABLE, by_factor, expansion_steps

__all__ = ["Expansion", "translation"]

Array = NDArray[np.float64]
Bools = NDArray[np.bool_]
# Factors up to which a sweep tries all shears; of more, as many for each factor as there would be of so many.
_ALL = 6
# Logarithms of the shortest and longest step, in standard deviations of what the factors say. Of the shears
# the share _STEPPED are such steps, which a zero under a narrow spike wants short; the others are drawn from
# what the factors say.
_SHEAR, _SCALE, _STEPPED = (np.log(0.003), np.log(1.0)), (np.log(0.5), np.log(4.0)), 0.5


@dataclass(frozen=True, eq=False)
class Expansion:
    """The prior that chooses among the maps, and which maps there are.

    Parameters
    ----------
    permitted, must : ndarray of bool (feature, factor)
        Edges that may, and that have to, be there.
    density : Slabs
        Slab and spike in units of the slab's scale.
    slab_scale : float
    """

    permitted: Bools
    must: Bools
    density: Slabs
    slab_scale: float

    @cached_property
    def shears(self) -> NDArray[np.intp]:
        """Pairs (i, j): loadings of factor i are added to those of j, which sees whatever i does."""
        p = self.permitted
        inside = (p[:, :, None] <= p[:, None]).all(0) & ~np.eye(p.shape[1], dtype=bool)
        return np.argwhere(inside)

    def moved(
        self,
        weight: Array,
        log_odds: Array,
        whole: Array,
        n_rows: int,
        precision: Array,
        rng: np.random.Generator,
    ) -> tuple[Array, Array]:
        """The next loadings, and what the factors are multiplied by; edges are to be drawn anew.

        Parameters
        ----------
        weight : ndarray (chain, feature, factor)
        log_odds : ndarray (chain, feature or 1, factor)
            Of edges, a priori.
        whole : ndarray (chain, factor, factor)
            Z'Z.
        n_rows : int
        precision : ndarray (chain or 1, factor, factor)
            Of the factors a priori, the inverse of C.
        rng : numpy.random.Generator

        Returns
        -------
        weight : ndarray (chain, feature, factor)
        map : ndarray (chain, factor, factor)
            A: factors become ``z @ A.T``.
        """
        n, _, k = weight.shape
        weight, whole, by = weight.copy(), whole.copy(), np.tile(np.eye(k), (n, 1, 1))
        odds, maps = log_odds + self._sure, self._some(rng)
        size = (len(maps), n)
        normal, threshold = rng.standard_normal(size), np.log(rng.random(size))
        scales = np.exp(rng.uniform(*_SCALE, len(maps))) / np.sqrt(2.0 * n_rows)
        steps = np.where(rng.random(len(maps)) < _STEPPED, np.exp(rng.uniform(*_SHEAR, len(maps))), 0.0)
        if AVAILABLE and isinstance(self.density, SpikeSlab):
            drawn = normal, threshold, scales, steps
            return self._compiled(weight, odds, whole, by, n_rows, precision, maps, *drawn)
        level = self._log_prior(weight, odds, self.permitted)
        for m, (i, j) in enumerate(maps):
            pull = (whole[:, j] * precision[:, i]).sum(-1)
            sharp = whole[:, j, j] * precision[:, i, i]
            now = weight[..., j]
            if i == j:
                log_s = scales[m] * normal[m]
                a, tried = np.expm1(log_s), now * np.exp(-log_s)[:, None]
                gain = (n_rows - self._there(now, self.permitted[:, j]).sum(-1)) * log_s
                gain = gain - a * (pull + 0.5 * a * sharp)
            else:
                sd = 1 / np.sqrt(sharp)
                a = sd * normal[m] * steps[m] if steps[m] else sd * normal[m] - pull / sharp
                gain = -a * (pull + 0.5 * a * sharp) if steps[m] else 0.0  # drawn from what factors say
                tried = now - a[:, None] * weight[..., i]
            new = self._log_prior(tried, odds[..., j], self.permitted[:, j])
            taken = threshold[m] < new - level[:, j] + gain
            if self._point:
                taken &= ((now == 0) == (tried == 0)).all(-1)
            if not taken.any():
                continue
            a = np.where(taken, a, 0.0)[:, None]
            weight[..., j] = np.where(taken[:, None], tried, now)
            level[:, j] = np.where(taken, new, level[:, j])
            by[:, i] += a * by[:, j]
            whole[:, i] += a * whole[:, j]
            whole[:, :, i] += a * whole[:, :, j]
        return weight, by

    def _compiled(
        self,
        weight: Array,
        odds: Array,
        whole: Array,
        by: Array,
        n_rows: int,
        precision: Array,
        maps: NDArray[np.intp],
        *drawn: Array,
    ) -> tuple[Array, Array]:
        """The same in one call."""
        density, columns = self.density, by_factor(weight)
        assert isinstance(density, SpikeSlab)
        sure = np.inf if self._point else odds
        odds = by_factor(np.where(self.permitted, np.broadcast_to(sure, weight.shape), np.inf))
        # in C order, as each layout in memory would be compiled anew
        precision = np.array(np.broadcast_to(precision, whole.shape), dtype=float, order="C")
        expansion_steps(
            columns, whole, by, precision, maps, n_rows, self.permitted.sum(0), self._point, odds,
            -np.logaddexp(0, -odds), density.laplace, float(np.max(density.ratio)), float(self.slab_scale),
            *drawn,
        )  # fmt: skip
        return by_factor(columns), by

    def _some(self, rng: np.random.Generator) -> NDArray[np.intp]:
        """Every scale, and shears of this sweep, in random order."""
        k = self.permitted.shape[1]
        shears = rng.permutation(self.shears)[: k * (min(k, _ALL) - 1)]
        return rng.permutation(np.concatenate([np.repeat(np.arange(k), 2).reshape(-1, 2), shears]))

    @cached_property
    def _point(self) -> bool:
        """Whether loadings are zero without an edge, and stay so."""
        return not np.any(self.density.ratio)

    @cached_property
    def _sure(self) -> Array:
        """What is added to log odds where an edge has to be there."""
        return np.where(self.must, np.inf, 0.0)

    def _there(self, weight: Array, permitted: Bools) -> Bools:
        """Which loadings have a density."""
        there = np.broadcast_to(permitted, weight.shape)
        return there & (weight != 0) if self._point else there

    def _log_prior(self, weight: Array, log_odds: Array, permitted: Bools) -> Array:
        """log prior of loadings (chain, feature) or (chain, feature, factor), summed over features."""
        u = weight / self.slab_scale
        log_prior = self.density.log_density(u) if self._point else self.density.log_prob(u, log_odds)
        return log_prior.sum(1, where=self._there(weight, permitted))


def translation(
    weight: Array,
    coefficients: Array,
    sd: Array | float,
    known: Array,
    known_gram: Array,
    precision: Array,
    rng: np.random.Generator,
) -> Array:
    r"""A draw of b (chain, coefficient, factor): factors become z + b'd, coefficients c - W b'.

    .. math:: p(b) \propto \exp\Big(-\tfrac12 \sum_i (z_i + b^\top d_i)^\top C^{-1} (z_i + b^\top d_i)
              - \tfrac12 \sum_g |c_g - b\,w_g|^2 / s_g^2\Big)

    Parameters
    ----------
    weight : ndarray (chain, feature, factor)
    coefficients : ndarray (chain, feature, coefficient)
    sd : float or ndarray (feature,)
        s, of coefficients a priori.
    known : ndarray (chain, coefficient, factor)
        D'Z.
    known_gram : ndarray (coefficient, coefficient)
        D'D; with missing cells over all rows nevertheless.
    precision : ndarray (chain or 1, factor, factor)
        The inverse of C.
    rng : numpy.random.Generator
    """
    values, vectors = np.linalg.eigh(known_gram)  # in its axes coefficients are independent of each other
    weighted = weight / np.broadcast_to(sd, weight.shape[1:2])[:, None] ** 2
    inner = np.swapaxes(weight, -1, -2) @ weighted
    pull = np.swapaxes(coefficients @ vectors, -1, -2) @ weighted - vectors.T @ known @ precision
    of_each = np.maximum(values, 0.0)[:, None, None] * precision[:, None] + inner[:, None]
    lower: Array = np.linalg.cholesky(of_each).astype(float)
    half = np.linalg.solve(lower, pull[..., None]) + rng.standard_normal((*pull.shape, 1))
    drawn = np.linalg.solve(np.swapaxes(lower, -1, -2), half)[..., 0].astype(float)
    translated: Array = vectors @ drawn
    return translated
