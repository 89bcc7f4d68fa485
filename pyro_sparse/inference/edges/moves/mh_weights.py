r"""Weights and intercepts of a linear decoder under any likelihood: all of a feature's at once, Metropolis.

With :math:`f_{ij} = \theta_j^\top d_i`, :math:`\theta_j = (c_j, w_j)` and :math:`d_i = (1, z_i)` the
log-likelihood of a feature, expanded where it stands,

.. math:: L(\theta') \approx B^\top (\theta' - \theta) - \tfrac12 (\theta' - \theta)^\top H (\theta' -
          \theta), \quad B = \sum_i g_i d_i, \quad H = \sum_i h_i d_i d_i^\top

(g, -h: first and second derivatives of log p(x_ij | f)), makes one entry after the other a spike-and-slab
posterior in closed form (`density/weight.py`). A Gibbs scan of that target from here is the proposal, and
the scan of the expansion *there*, in the opposite order, the way back: were both expansions the same, the two
would balance, and every proposal be accepted (Gamerman 1997, Statistics and Computing 7, with the scan in
place of a normal). Cells are looked at twice, whatever the number of factors.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..density.cells import Cells
from ..density.decoder_program import DecoderProgram, DecoderState
from ..density.weight import Slabs, edge_summed_out

__all__ = ["LineWeights", "line_weights"]

Array = NDArray[np.float64]
_SURE = 60.0  # log odds of an edge that has to be there
_INTERCEPT = -1  # its number in the order of a scan


class LineWeights(NamedTuple):
    """What a move of weights and intercepts leaves behind.

    Attributes
    ----------
    weight : Tensor (chain, feature, factor)
    intercept : Tensor (chain, feature), float64
    prob : Tensor (chain, feature, factor)
        P(edge | w), averaged over staying and moving.
    f : Tensor (chain, feature, row)
    terms : tuple of Tensor (chain, feature, row)
        log p of every cell at f, its slope and minus its second derivative.
    """

    weight: Tensor
    intercept: Tensor
    prob: Tensor
    f: Tensor
    terms: tuple[Tensor, ...]


def line_weights(
    program: DecoderProgram,
    state: DecoderState,
    f: Tensor,
    terms: tuple[Tensor, ...],
    cells: Cells,
    rng: np.random.Generator,
) -> LineWeights:
    """New weights and intercepts.

    Parameters
    ----------
    program : DecoderProgram
        Of a linear decoder.
    state : DecoderState
    f : Tensor (chain, feature, row)
        Of the state.
    terms : tuple of Tensor (chain, feature, row)
        log p of every cell at f, its slope and minus its second derivative.
    cells : Cells
    rng : numpy.random.Generator
    """
    density, target = program.density.stand_in.in_slabs(), program.density.in_slabs()
    weight_unit = program.weight_unit
    unit = program.density.stand_in.slab * _array(weight_unit)
    must = _array(program.must) > 0
    odds = np.where(must, _SURE, _array(program.edge_log_odds(state).expand_as(state.weight)))
    scan = _Scan(
        density=density,
        odds=odds,
        precision=program.curve.intercept_sd**-2,
        order=_order(program.permitted, rng),
        permitted=program.permitted.cpu().numpy(),
    )
    u, c = _array(state.weight) / unit, _array(state.head[..., 0])
    there_u, there_c, log_forth = scan.draw(_expanded(terms, state.z, unit), u, c, rng)

    tried_weight = torch.as_tensor(unit * there_u).to(state.weight)
    tried_intercept = torch.as_tensor(there_c).to(state.head)
    moved = program.curve.value(state.z, tried_weight, state.trunk, tried_intercept.unsqueeze(-1))
    there = cells.expanded(moved, state.noise)
    log_back = scan.reversed().log_density(_expanded(there, state.z, unit), there_u, there_c, u, c)

    gain = _array((there[0] - terms[0]).double().sum(-1)) + log_back - log_forth
    free = scan.permitted
    gain += ((target.excess(there_u, odds) - target.excess(u, odds)) * free).sum(-1)
    accept = np.where(np.isfinite(gain), np.exp(np.minimum(gain, 0)), 0.0)
    yes = torch.as_tensor(rng.random(gain.shape) < accept).to(state.weight.device)
    log_odds = torch.as_tensor(odds).to(state.weight)
    stay, go = (
        program.density.edge(w / weight_unit, log_odds, program.must) for w in (state.weight, tried_weight)
    )
    chance, rows = torch.as_tensor(accept).to(state.weight).unsqueeze(-1), yes.unsqueeze(-1)
    return LineWeights(
        weight=torch.where(rows, tried_weight, state.weight),
        intercept=torch.where(yes, tried_intercept, state.head[..., 0]),
        prob=((1 - chance) * stay + chance * go) * program.permitted,
        f=torch.where(rows, moved, f),
        terms=tuple(torch.where(rows, b, a) for a, b in zip(terms, there, strict=True)),
    )


class _Parabola(NamedTuple):
    """Slope (chain, feature, entry) and information (chain, feature, entry, entry); the intercept is last."""

    slope: Array
    information: Array


def _expanded(terms: tuple[Tensor, ...], z: Tensor, unit: Array) -> _Parabola:
    """In weights in units (feature or 1, 1) of the slab, then the intercept."""
    _, slope, bend = terms
    design = torch.cat([z.mT, torch.ones_like(z[..., :1]).mT], 1)  # chain, entry, row: entries are vectors
    n = design.shape[1]
    first, second = np.triu_indices(n)
    pairs = bend @ (design[:, first] * design[:, second]).mT
    information = np.empty((*pairs.shape[:2], n, n))
    information[..., first, second] = information[..., second, first] = _array(pairs)
    units = np.concatenate([np.broadcast_to(unit, (len(unit), n - 1)), np.ones((len(unit), 1))], -1)
    return _Parabola(_array(slope @ design.mT) * units, information * units[..., None] * units[:, None])


@dataclass(frozen=True, eq=False)
class _Scan:
    """One entry after the other, in this order, each from its posterior under a parabola.

    Parameters
    ----------
    density : Slabs
    odds : ndarray (chain, feature, factor)
        Prior log odds of edges.
    precision : float
        Of the intercepts' prior.
    order : tuple of int
        Factors, and `_INTERCEPT`.
    permitted : ndarray of bool (feature, factor)
    """

    density: Slabs
    odds: Array
    precision: float
    order: tuple[int, ...]
    permitted: NDArray[np.bool_]

    def reversed(self) -> _Scan:
        return _Scan(self.density, self.odds, self.precision, self.order[::-1], self.permitted)

    def draw(self, at: _Parabola, u: Array, c: Array, rng: np.random.Generator) -> tuple[Array, Array, Array]:
        """Weights and intercepts after a scan from those of the expansion, and the log of its density.

        The log leaves out the prior's density of what is drawn.
        """
        now, level = np.concatenate([u, c[..., None]], -1), np.zeros(c.shape)
        start = now.copy()
        for entry in self.order:
            a, b = self._conditional(at, start, now, entry)
            if entry == _INTERCEPT:
                scale = 1 / (a + self.precision)
                new = scale * b + np.sqrt(scale) * rng.standard_normal(b.shape)
                level += _log_normal(a, b, new, self.precision)
            else:
                free = self.permitted[:, entry]
                log_norm, prob = edge_summed_out(self.density, a, b, self.odds[..., entry])
                new = self.density.draw(a, b, rng.random(b.shape) < prob, rng)
                new = np.where(free, new, 0.0)
                level += np.where(free, b * new - 0.5 * a * new**2 - log_norm, 0.0)
            now[..., entry] = new
        return now[..., :-1], now[..., -1], level

    def log_density(self, at: _Parabola, u: Array, c: Array, to_u: Array, to_c: Array) -> Array:
        """Of a scan from u, c, where the expansion is, to others, less the prior's log density of these."""
        now, level = np.concatenate([u, c[..., None]], -1), np.zeros(c.shape)
        start, to = now.copy(), np.concatenate([to_u, to_c[..., None]], -1)
        for entry in self.order:
            a, b = self._conditional(at, start, now, entry)
            new = to[..., entry]
            if entry == _INTERCEPT:
                level += _log_normal(a, b, new, self.precision)
            else:
                log_norm, _ = edge_summed_out(self.density, a, b, self.odds[..., entry])
                level += np.where(self.permitted[:, entry], b * new - 0.5 * a * new**2 - log_norm, 0.0)
            now[..., entry] = new
        return level

    @staticmethod
    def _conditional(at: _Parabola, start: Array, now: Array, entry: int) -> tuple[Array, Array]:
        """The parabola of an entry that is still where it started, exp(-a w^2/2 + b w), given the others."""
        row = at.information[..., entry, :]
        # Above zero, where the closed form of a Laplace slab divides by it.
        a = np.maximum(row[..., entry], 1e-3)
        return a, at.slope[..., entry] - (row * (now - start)).sum(-1) + a * start[..., entry]


def _log_normal(a: Array, b: Array, new: Array, precision: float) -> Array:
    """log density of exp(-a c^2/2 + b c) times the prior, normalised, less that of the prior."""
    whole = a + precision
    log_norm = 0.5 * (b**2 / whole - np.log(whole / precision))
    return b * new - 0.5 * a * new**2 - log_norm


def _order(permitted: Tensor, rng: np.random.Generator) -> tuple[int, ...]:
    """Factors that may have an edge, and the intercept, at random."""
    factors = torch.nonzero(permitted.any(0))[:, 0].tolist()
    return tuple(int(entry) for entry in rng.permutation([*factors, _INTERCEPT]))


def _array(t: Tensor) -> Array:
    return t.cpu().double().numpy()
