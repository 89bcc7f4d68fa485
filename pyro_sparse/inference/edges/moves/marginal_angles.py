r"""The angle between two factors, with the loadings of one of them and their edges summed out.

The correlation-angle move of `rotations.py` moves factor i in its plane with j and holds what is predicted:
loadings of j change by a multiple of those of i, and where i has loadings and j has zeros, a zero is lost for
every one that is gained. So chains cross from one graph to another only by way of graphs that have the edges
of both. Here the loadings of factor j are summed out instead, edges and all, and drawn anew once the angle
has moved. With
:math:`C_{ij} = \cos\psi`, :math:`\alpha = \sin\psi' / \sin\psi` and
:math:`\beta = \cos\psi' - \alpha\cos\psi`,

.. math:: z_i \to \alpha z_i + \beta z_j, \quad w_i \to w_i / \alpha, \qquad
          p(\psi') \propto (\sin\psi')^{K - 1 - G}\, p(w_i / \alpha)\, p(C')\,
          \prod_g \int e^{-A_g (u + d_g)^2 / 2 + B_g (u + d_g)}\, p(u)\, du, \quad
          d_g = \frac{\beta}{\alpha} w_{gi}

where :math:`e^{-A u^2 / 2 + B u}` is the likelihood of a loading of j given factors and other loadings, and G
loadings of factor i are free. The integral is in closed form (`density/weight.py`). Loadings are drawn only
where the angle moved: with the angle they are a draw from both (van Dyk and Park 2008, Journal of the
American Statistical Association 103(482), on summing out in part).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from ....priors import LKJ
from ..density.weight import Slabs
from .grid import grid, place

__all__ = ["MarginalAngles", "Moved"]

Array = NDArray[np.float64]
Bools = NDArray[np.bool_]
# Radians that the angles of a move span, least and most: an edge more or less, and other axes; how many they
# are, and how many loadings at all of them a move may look at.
_WIDTHS, _PLACES, _CELLS = (0.1, 3.0), 16, 4_000


class Moved(NamedTuple):
    """What a move of the angle between factors i and j changes.

    Attributes
    ----------
    weight : ndarray (chain, feature, factor)
    edge : ndarray of bool (chain, feature, factor)
    cov : ndarray (chain, factor, factor)
    map : ndarray (chain, factor, factor)
        A: factors become ``z @ A.T``.
    """

    weight: Array
    edge: Bools
    cov: Array
    map: Array


@dataclass(frozen=True, eq=False)
class MarginalAngles:
    """The prior, and which factors may move.

    Parameters
    ----------
    permitted, must : ndarray of bool (feature, factor)
        Edges that may, and that have to, be there.
    density : Slabs
        Slab and spike in units of the slab's scale, `closed_form`, the spike no point.
    slab_scale : float
    correlation_prior : LKJ
    """

    permitted: Bools
    must: Bools
    density: Slabs
    slab_scale: float
    correlation_prior: LKJ

    def moved(
        self,
        pair: tuple[int, int],
        weight: Array,
        edge: Bools,
        cov: Array,
        log_odds: Array,
        likelihood: tuple[Array, Array],
        rng: np.random.Generator,
    ) -> Moved:
        """Factor i moved in its plane with j, and the loadings of j drawn anew.

        Parameters
        ----------
        pair : (int, int)
            i and j.
        weight : ndarray (chain, feature, factor)
        edge : ndarray of bool (chain, feature, factor)
        cov : ndarray (chain, factor, factor)
            C, with a diagonal of ones.
        log_odds : ndarray (chain, feature or 1, factor)
            Of edges, a priori.
        likelihood : tuple of ndarray (chain, feature)
            A and B of the loadings of j, in units of the slab.
        rng : numpy.random.Generator
        """
        i, j = pair
        n, _, k = weight.shape
        a, b = likelihood
        first = weight[..., i] / self.slab_scale
        cos, sin, alpha, beta = self._angles(cov[:, i, j], first.size, rng)
        odds, free = log_odds + self._sure, self.permitted[:, i]
        scaled, shift = first / alpha[..., None], (beta / alpha)[..., None] * first
        centre = b - shift * a
        log_evidence, log_odds_after = self._summed_out(j, odds[..., j], a, centre)
        level = (shift * (b - 0.5 * shift * a) + log_evidence).sum(-1)
        of_first = self.density.log_prob(scaled, odds[..., i])
        level += of_first.sum(-1, where=free) + (k - 1 - free.sum()) * np.log(sin)
        log_det = np.linalg.slogdet(cov)[1] + 2 * np.log(alpha)
        level += self.correlation_prior.log_density(log_det, k)
        at_mode = (first == 0).any(1, where=free)  # zeros of a start are no draws of the spike
        level = np.where(at_mode & (alpha != 1), -np.inf, level)
        picked = (place(level, rng), np.arange(n))

        weight, edge, cov, by = weight.copy(), edge.copy(), cov.copy(), np.zeros_like(cov)
        weight[..., i] = self.slab_scale * scaled[picked]
        there = rng.random(a.shape) < expit(log_odds_after[picked])
        drawn = self.density.draw(a, centre[picked], there, rng)
        moved = self.permitted[:, j] & (alpha[picked] != 1)[:, None]
        weight[..., j] = np.where(moved, self.slab_scale * drawn, weight[..., j])
        edge[..., j] = np.where(moved, there, edge[..., j])
        by[:, range(k), range(k)] = 1.0
        by[:, i, i], by[:, i, j] = alpha[picked], beta[picked]
        row = by[:, i, i, None] * cov[:, i] + by[:, i, j, None] * cov[:, j]
        row[:, i], row[:, j] = 1.0, cos[picked]
        cov[:, i], cov[:, :, i] = row, row
        return Moved(weight, edge, cov, by)

    def _angles(
        self, correlation: Array, cells: int, rng: np.random.Generator
    ) -> tuple[Array, Array, Array, Array]:
        """Cosines and sines of angles (place, chain), the present among them; alpha and beta."""
        places = int(np.clip(_CELLS / cells, 2, _PLACES))
        begun = np.arccos(np.clip(correlation, -1.0, 1.0))
        by = grid(begun.shape, places, _WIDTHS, rng)
        angle = begun + by
        cos, sin = np.cos(angle), np.sin(angle)
        sign = np.where(
            sin < 0, -1.0, 1.0
        )  # an angle less, or more, than half a turn: factor i the other way
        cos, sin = sign * cos, np.maximum(np.abs(sin), 1e-12)
        alpha = np.where(by == 0, 1.0, sin / np.maximum(np.sin(begun), 1e-12))
        return cos, sin, alpha, np.where(by == 0, 0.0, cos - alpha * np.cos(begun))

    def _summed_out(self, j: int, log_odds: Array, a: Array, b: Array) -> tuple[Array, Array]:
        """log of the integral of exp(-A u^2 / 2 + B u) over loadings of factor j, and edges' log odds there.

        Forbidden loadings have an integral of 1.
        """
        slab, spike = self.density.log_norms(a, b)
        log_odds = log_odds + self._sure[:, j]
        either = np.logaddexp(slab - np.logaddexp(0, -log_odds), spike - np.logaddexp(0, log_odds))
        if not self.permitted[:, j].all():
            either = np.where(self.permitted[:, j], either, 0.0)
        return either, log_odds + slab - spike

    @cached_property
    def _sure(self) -> Array:
        """What is added to log odds where an edge has to be there."""
        return np.where(self.must, np.inf, 0.0)
