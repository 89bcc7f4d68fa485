r"""Rows at a state of the chains: their log densities, factors summed out, and draws of their factors.

.. math:: \log p(x_i \mid \theta) = \log \int \prod_j p(x_{ij} \mid w_j^\top z + c_j, \theta) N(z; 0, C)\, dz

A linear decoder under normal noise has it in closed form. Under any other likelihood a row's factors are
drawn and weighed (`table/row_integrals.py`). Predictive criteria ask for these; `scores` of rows for the
factors.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ...table.row_integrals import proposed, row_modes, sums_of_squares, t_draws
from ..density.cells import Cells
from ..density.decoder_program import DecoderProgram, DecoderState
from .linear import LinearChains, LinearState

__all__ = ["cell_constants", "line_levels", "linear_levels", "linear_scores"]

Array = NDArray[np.float64]
_DRAWS = 16  # of a row's factors: errors of its log density were then some .01 (test)


def linear_levels(kernel: LinearChains, state: LinearState) -> Array:
    """Of linear chains, (chain, row), in nats.

    Parameters
    ----------
    kernel : LinearChains
    state : LinearState
    """
    rows, noise = _rows(kernel, state), state.noise
    log_det = np.linalg.slogdet(rows.inner)[1] + np.linalg.slogdet(state.cov)[1][:, None]
    log_det = log_det + (np.log(noise) + math.log(2 * math.pi)) @ rows.patterns.T
    inverse = np.linalg.inv(rows.inner)[:, rows.which]
    explained = ((inverse @ rows.pull[..., None])[..., 0] * rows.pull).sum(-1)
    left = (rows.left**2 / noise[:, None]).sum(-1)
    levels: Array = -0.5 * (log_det[:, rows.which] + left - explained)
    return levels


def linear_scores(kernel: LinearChains, state: LinearState, rng: np.random.Generator) -> Array:
    """A draw of each row's factors given a state of linear chains, (chain, row, factor).

    Parameters
    ----------
    kernel : LinearChains
    state : LinearState
    rng : numpy.random.Generator
    """
    rows = _rows(kernel, state)
    lower = np.linalg.inv(np.linalg.cholesky(rows.inner))  # of the covariance L'L
    half = (lower[:, rows.which] @ rows.pull[..., None])[..., 0] + rng.standard_normal(rows.pull.shape)
    scores: Array = (np.swapaxes(lower, -1, -2)[:, rows.which] @ half[..., None])[..., 0]
    return scores


class _Rows(NamedTuple):
    """Rows under normal noise, given a state.

    Attributes
    ----------
    left : ndarray (chain, row, feature)
        Cells less their means; 0 where missing.
    pull : ndarray (chain, row, factor)
        What they say of the factors, in units of precision.
    patterns : ndarray (pattern, feature)
        What was seen, as 0 and 1.
    which : ndarray of int (row,)
        The pattern of each row.
    inner : ndarray (chain, pattern, factor, factor)
        Precision of the factors.
    """

    left: Array
    pull: Array
    patterns: Array
    which: NDArray[np.intp]
    inner: Array


def _rows(kernel: LinearChains, state: LinearState) -> _Rows:
    weight, noise, k = state.weight, state.noise, state.weight.shape[-1]
    ones = np.ones((kernel.x.shape[1], 1))
    known = ones if kernel.design is None else np.concatenate([ones, kernel.design], 1)
    left = kernel.x - known @ np.swapaxes(state.coefficients, -1, -2)
    seen = np.ones(left.shape[1:], bool) if kernel.mask is None else kernel.mask[0]
    left = left * seen
    scaled = weight / noise[..., None]
    outer = (weight[..., :, None] * scaled[..., None, :]).reshape(*noise.shape, k * k)
    patterns, which = np.unique(seen, axis=0, return_inverse=True)
    inner = (patterns.astype(float) @ outer).reshape(len(weight), -1, k, k)
    inner = inner + np.linalg.inv(state.cov)[:, None]
    return _Rows(left, left @ scaled, patterns.astype(float), which.reshape(-1), inner)


def line_levels(
    program: DecoderProgram, state: DecoderState, constants: Tensor | None, rng: np.random.Generator
) -> Array:
    """Of straight lines under any likelihood, (chain, row), in nats.

    Parameters
    ----------
    program : DecoderProgram
        Of a linear decoder.
    state : DecoderState
    constants : Tensor (chain or 1, feature, row), optional
        From `cell_constants`; without them levels are known up to a constant.
    rng : numpy.random.Generator
    """
    cells, precision = program.cells_of(state), state.precision
    weight = state.weight.double()
    squares = sums_of_squares(weight)

    def expanded(z: Tensor) -> tuple[Tensor, Tensor]:
        """Slope (chain, row, factor) and minus the curvature of the log joint density."""
        _, slope, bend = cells.expanded(program.value(state, z.to(state.z)), state.noise)
        hessian = squares(bend.double().mT) + precision.unsqueeze(1)
        return slope.double().mT @ weight - z @ precision, hessian

    mode, root = row_modes(state.z.double(), expanded)
    base = _log_base(program, state)
    base = base if constants is None else base + constants.double()
    base = base if cells.mask is None else base * cells.mask
    levels = []
    for draw in t_draws(tuple(mode.shape), _DRAWS, rng):
        z, log_ratio = (of_draw[0] for of_draw in proposed(mode, root, draw.unsqueeze(0), precision))
        log_p = cells.log_prob(program.value(state, z.to(state.z)), state.noise).double()
        levels.append((log_p + base).sum(1) + log_ratio)
    return (torch.stack(levels).logsumexp(0) - math.log(_DRAWS)).cpu().numpy()


def cell_constants(program: DecoderProgram, state: DecoderState) -> Tensor:
    """What the chains leave out of a cell's log density and nothing moves, (chain or 1, feature, row).

    Parameters
    ----------
    program : DecoderProgram
    state : DecoderState
        As the fit left it: the likelihood's own parameters are those of its noise.
    """
    cells = program.cells_of(state)
    f = program.value(state)
    per_row = {name: values.mT for name, values in cells.per_row.items()}
    whole = cells.likelihood(cells.whole(f).mT, per_row).log_prob(cells.x.mT.expand_as(f.mT)).mT.double()
    rest = Cells.log_prob(cells, f, state.noise).double() + _log_base(program, state)
    constants: Tensor = whole - rest
    return constants if cells.mask is None else constants * cells.mask


def _log_base(program: DecoderProgram, state: DecoderState) -> Tensor:
    """Of each cell what `log_prob` leaves out and the noise moves."""
    cells = program.cells_of(state)
    if not cells.overdispersed:
        return torch.zeros_like(cells.x, dtype=torch.float64)
    return cells.likelihood.log_base(cells.x, state.noise).double()
