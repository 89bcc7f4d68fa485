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

where :math:`e^{-A u^2 / 2 + B u}` is the likelihood of a loading of j given factors and other loadings, here
under normal noise, and G loadings of factor i are free (`density/loadings.py`: integrals, and other
likelihoods, under which angle and loadings are a Metropolis proposal). Loadings are drawn only
where the angle moved: with the angle they are a draw from both (van Dyk and Park 2008, Journal of the
American Statistical Association 103(482), on summing out in part).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from ....priors import LKJ
from ..density.loadings import Curve, LoadingLikelihood
from ..density.weight import Slabs, SpikeSlab
from ._compiled import by_factor
from ._compiled_angles import AVAILABLE, angle_steps
from ._compiled_curve_angles import curve_steps
from .grid import drawn_grid, grid, moves, place

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
    shift : ndarray (chain, feature)
        d, in units of the slab.
    """

    weight: Array
    edge: Bools
    cov: Array
    map: Array
    shift: Array


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
        likelihood: LoadingLikelihood,
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
        likelihood : LoadingLikelihood
            Of the loadings of j. What it cannot draw exactly is proposed.
        rng : numpy.random.Generator
        """
        i, j = pair
        n, g, k = weight.shape
        by = grid((n,), self._places(n, g), _WIDTHS, rng)  # one of them 0
        first, second = weight[..., i] / self.slab_scale, weight[..., j] / self.slab_scale
        cos, sin, alpha, beta = _angles(cov[:, i, j], by)
        odds, free = log_odds + self._sure, self.permitted[:, i]
        shift = (beta / alpha)[..., None] * first
        log_evidence, odds_after = self._summed_out(j, log_odds[..., j], likelihood, shift)
        level = log_evidence.sum(-1) + (k - 1 - free.sum()) * np.log(sin)
        level += self.density.log_prob(first / alpha[..., None], odds[..., i]).sum(-1, where=free)
        log_det = np.linalg.slogdet(cov)[1] + 2 * np.log(alpha)
        level += self.correlation_prior.log_density(log_det, k)
        at_mode = (first == 0).any(1, where=free)  # zeros of a start are no draws of the spike
        level = np.where(at_mode & (alpha != 1), -np.inf, level)

        places, chains = place(level, rng), np.arange(n)
        there = rng.random((n, g)) < expit(odds_after[places, chains])
        drawn = likelihood.draw(shift[places, chains], there, self.density, rng)
        gain = likelihood.excess(shift[places, chains], drawn, odds[..., j], self.density)
        gain = gain - likelihood.excess(np.zeros_like(second), second, odds[..., j], self.density)
        gain = np.where(self.permitted[:, j], gain, 0.0).sum(-1)
        places = np.where(np.log(rng.random(n)) < gain, places, (by == 0).argmax(0))

        picked = (places, chains)
        weight, edge, cov, matrix = weight.copy(), edge.copy(), cov.copy(), np.zeros_like(cov)
        weight[..., i] /= alpha[picked][:, None]
        moved = self.permitted[:, j] & (alpha[picked] != 1)[:, None]
        weight[..., j] = np.where(moved, self.slab_scale * drawn, weight[..., j])
        edge[..., j] = np.where(moved, there, edge[..., j])
        matrix[:, range(k), range(k)] = 1.0
        matrix[:, i, i], matrix[:, i, j] = alpha[picked], beta[picked]
        row = alpha[picked][:, None] * cov[:, i] + beta[picked][:, None] * cov[:, j]
        row[:, i], row[:, j] = 1.0, cos[picked]
        cov[:, i], cov[:, :, i] = row, row
        return Moved(weight, edge, cov, matrix, shift[picked])

    @property
    def compiles(self) -> bool:
        """Whether moves can be machine code (`all_moved`, `all_moved_along`)."""
        return AVAILABLE and self._has_compiled_densities

    @cached_property
    def _has_compiled_densities(self) -> bool:
        known = isinstance(self.density, SpikeSlab) and type(self.correlation_prior) is LKJ
        return known and bool(np.any(self.density.ratio))

    def all_moved(
        self,
        pairs: NDArray[np.intp],
        weight: Array,
        edge: Bools,
        cov: Array,
        log_odds: Array,
        gram: Array,
        centred: Array,
        noise: Array,
        rng: np.random.Generator,
    ) -> tuple[Array, Bools, Array, Array]:
        """`moved` of pairs in turn under normal noise, in one call and with the same random numbers.

        Parameters
        ----------
        pairs : ndarray of int (pair, 2)
        weight, edge, cov, log_odds
            As in `moved`.
        gram : ndarray (chain, feature or 1, factor, factor)
            Z'Z over the rows in which the feature was seen.
        centred : ndarray (chain, feature, factor)
            (x - mean)'Z over the same rows.
        noise : ndarray (chain, feature)
        rng : numpy.random.Generator

        Returns
        -------
        weight, edge, cov, map
            As in `Moved`, the map of all pairs together.
        """
        density, (n, g, k) = self.density, weight.shape
        assert isinstance(density, SpikeSlab)
        widths, present, gumbel, thresholds, sizes = [], [], [], [], []
        n_uniform, places = 3 if density.laplace else 1, self._places(n, g)
        for _ in pairs:
            of_pair = drawn_grid((n,), places, _WIDTHS, rng)
            widths.append(of_pair[0])
            present.append(of_pair[1])
            gumbel.append(rng.gumbel(size=(places, n)))
            thresholds.append(rng.random((n_uniform, n, g)))
            if not density.laplace:
                sizes.append(rng.standard_normal((1, n, g)))
            rng.random(n)  # proposals that are exact are taken
        by = np.swapaxes(moves(np.array(widths), np.array(present), places), 0, 1)
        uniform = np.array(thresholds)
        drawn = uniform[:, 1:].copy() if density.laplace else np.array(sizes)
        log_slab, log_spike = self._log_rates(log_odds, weight.shape)
        weight, edge, cov = by_factor(weight), by_factor(edge), cov.copy()
        maps = np.tile(np.eye(k), (n, 1, 1))
        prior, spike = self.correlation_prior, float(np.max(density.ratio))
        angle_steps(
            np.ascontiguousarray(pairs), weight, edge, cov, np.linalg.slogdet(cov)[1], maps,
            np.moveaxis(gram, 1, -1).copy(), by_factor(centred), np.ascontiguousarray(noise),
            log_slab, log_spike, by_factor(self.permitted),
            density.laplace, spike, float(self.slab_scale),
            np.array(prior.concentration), prior.log_weights(k), np.ascontiguousarray(by), np.array(gumbel),
            uniform[:, 0].copy(), drawn,
        )  # fmt: skip
        return by_factor(weight), by_factor(edge), cov, maps

    def all_moved_along(
        self,
        factor: int,
        others: NDArray[np.intp],
        weight: Array,
        edge: Bools,
        cov: Array,
        log_odds: Array,
        curve: Curve,
        rng: np.random.Generator,
    ) -> tuple[Array, Bools, Array, Array, Curve]:
        """`moved` of each of others and a factor in turn, in one call and with the same random numbers.

        Parameters
        ----------
        factor : int
            j, whose loadings are summed out.
        others : ndarray of int (other,)
        weight, edge, cov, log_odds
            As in `moved`.
        curve : Curve
            The likelihood of the loadings of j.
        rng : numpy.random.Generator

        Returns
        -------
        weight, edge, cov, map
            As in `Moved`, the map of all pairs together.
        curve : Curve
            Of the loadings of j then.
        """
        density, (n, g, k) = self.density, weight.shape
        assert isinstance(density, SpikeSlab)
        places, n_uniform = self._places(n, g), 5 if density.laplace else 3
        by, gumbel, uniform = (
            np.empty((len(others), *shape)) for shape in ((places, n), (places, n), (n_uniform, n, g))
        )
        sizes, log_uniform = np.empty((len(others), 1, n, g)), np.empty((len(others), n))
        for m in range(len(others)):
            by[m] = grid((n,), places, _WIDTHS, rng)
            gumbel[m] = rng.gumbel(size=(places, n))
            uniform[m] = rng.random((n_uniform, n, g))
            if not density.laplace:
                sizes[m] = rng.standard_normal((n, g))
            log_uniform[m] = np.log(rng.random(n))
        drawn = np.ascontiguousarray(uniform[:, 3:]) if density.laplace else sizes
        log_slab, log_spike = self._log_rates(log_odds, weight.shape)
        weight, edge, cov = by_factor(weight), by_factor(edge), cov.copy()
        maps, mode, shape = np.tile(np.eye(k), (n, 1, 1)), curve.mode.copy(), curve.shape
        prior, spike = self.correlation_prior, float(np.max(density.ratio))
        curve_steps(
            np.ascontiguousarray(others), factor, weight, edge, cov, np.linalg.slogdet(cov)[1], maps, mode,
            np.ascontiguousarray(shape.sd), np.moveaxis(shape.power, 0, -1).copy(),
            np.moveaxis(shape.end, (0, 1), (-2, -1)).copy(), np.ascontiguousarray(shape.likelihood),
            log_slab, log_spike, by_factor(self.permitted), density.laplace, spike, float(self.slab_scale),
            np.array(prior.concentration), prior.log_weights(k), by, gumbel, uniform[:, :3].copy(), drawn,
            log_uniform,
        )  # fmt: skip
        return by_factor(weight), by_factor(edge), cov, maps, replace(curve, mode=mode)

    def _log_rates(self, log_odds: Array, shape: tuple[int, ...]) -> tuple[Array, Array]:
        """log of P(edge) a priori, and of P(no edge) over the spike's scale, (chain, factor, feature)."""
        assert isinstance(self.density, SpikeSlab)
        spike = float(np.max(self.density.ratio))
        odds = log_odds + self._sure if self.must.any() else log_odds
        log_slab, log_spike = -np.logaddexp(0, -odds), -np.logaddexp(0, odds) - math.log(spike)
        return by_factor(np.broadcast_to(log_slab, shape)), by_factor(np.broadcast_to(log_spike, shape))

    @staticmethod
    def _places(n: int, g: int) -> int:
        """How many angles each chain may move to, one of them its present one."""
        return int(np.clip(_CELLS / (n * g), 2, _PLACES))

    def _summed_out(
        self, j: int, log_odds: Array, likelihood: LoadingLikelihood, shift: Array
    ) -> tuple[Array, Array]:
        """log of the integral of the likelihood over loadings of factor j, and edges' log odds there.

        Forbidden loadings have an integral of 1.
        """
        log_odds = log_odds + self._sure[:, j]
        slab, spike = likelihood.log_norms(shift, self.density)
        either = np.logaddexp(slab - np.logaddexp(0, -log_odds), spike - np.logaddexp(0, log_odds))
        if not self.permitted[:, j].all():
            either = np.where(self.permitted[:, j], either, 0.0)
        return either, log_odds + slab - spike

    @cached_property
    def _sure(self) -> Array:
        """What is added to log odds where an edge has to be there."""
        return np.where(self.must, np.inf, 0.0)


def _angles(correlation: Array, by: Array) -> tuple[Array, Array, Array, Array]:
    """Cosines and sines (place, chain) of the present angle and `by`; alpha and beta."""
    begun = np.arccos(np.clip(correlation, -1.0, 1.0))
    cos, sin = np.cos(begun + by), np.sin(begun + by)
    sign = np.where(sin < 0, -1.0, 1.0)  # an angle less, or more, than half a turn: factor i the other way
    cos, sin = sign * cos, np.maximum(np.abs(sin), 1e-12)
    alpha = np.where(by == 0, 1.0, sin / np.maximum(np.sin(begun), 1e-12))
    return cos, sin, alpha, np.where(by == 0, 0.0, cos - alpha * np.cos(begun))
