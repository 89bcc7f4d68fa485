r"""Rows at a state of the chains: their log densities, factors summed out, and draws of their factors.

.. math:: \log p(x_i \mid \theta) = \log \int \prod_j p(x_{ij} \mid w_j^\top z + c_j, \theta) N(z; 0, C)\, dz

A linear decoder under normal noise has it in closed form. Under any other likelihood a row's factors are
drawn from a Student t distribution at the mode, with Laplace's spread, and weighed (importance sampling;
Geweke 1989, Econometrica 57(6)). Predictive criteria ask for these; `scores` of rows for the factors.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..density.cells import Cells
from ..density.decoder_program import DecoderProgram, DecoderState
from .linear import LinearChains, LinearState

__all__ = ["cell_constants", "line_levels", "linear_levels", "linear_scores"]

Array = NDArray[np.float64]
_NEWTON, _LONGEST = 8, 2.0  # steps towards a row's mode, and the length of one in a factor's prior units
_FREEDOM, _DRAWS = 8.0, 16  # of the proposal; errors of a row's log density were then some .01 (test)


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
    program: DecoderProgram, state: DecoderState, constants: Tensor, rng: np.random.Generator
) -> Array:
    """Of straight lines under any likelihood, (chain, row), in nats.

    Parameters
    ----------
    program : DecoderProgram
        Of a linear decoder.
    state : DecoderState
    constants : Tensor (chain or 1, feature, row)
        From `cell_constants`.
    rng : numpy.random.Generator
    """
    cells, precision = program.cells_of(state), state.precision
    weight, k = state.weight.double(), state.weight.shape[-1]
    pairs = (weight.unsqueeze(-1) * weight.unsqueeze(-2)).flatten(-2)

    def parabola(z: Tensor) -> tuple[Tensor, Tensor]:
        """Slope (chain, row, factor) and minus the curvature of the log joint density."""
        _, slope, bend = cells.expanded(program.value(state, z.to(state.z)), state.noise)
        hessian = (bend.double().mT @ pairs).unflatten(-1, (k, k)) + precision.unsqueeze(1)
        return slope.double().mT @ weight - z @ precision, hessian

    z = state.z.double()
    for _ in range(_NEWTON):
        slope, hessian = parabola(z)
        step = torch.linalg.solve(hessian, slope.unsqueeze(-1)).squeeze(-1)
        z = z + step * (_LONGEST / step.abs().amax(-1, keepdim=True).clamp(min=_LONGEST))
    root = torch.linalg.cholesky(parabola(z)[1])
    log_root = root.diagonal(dim1=-2, dim2=-1).log().sum(-1)
    base = 0.5 * torch.linalg.slogdet(precision)[1].unsqueeze(-1) - 0.5 * k * math.log(2 * math.pi)
    of_t = math.lgamma((_FREEDOM + k) / 2) - math.lgamma(_FREEDOM / 2)
    of_t -= 0.5 * k * math.log(_FREEDOM * math.pi)
    base_of_cells = constants.double() + _log_base(program, state)
    base_of_cells = base_of_cells if cells.mask is None else base_of_cells * cells.mask
    weights = []
    for _ in range(_DRAWS):
        normal = torch.as_tensor(rng.standard_normal(tuple(z.shape))).to(z)
        chi = torch.as_tensor(rng.chisquare(_FREEDOM, tuple(z.shape[:2]))).to(z)
        off = normal * (_FREEDOM / chi).sqrt().unsqueeze(-1)
        drawn = z + torch.linalg.solve_triangular(root.mT, off.unsqueeze(-1), upper=True).squeeze(-1)
        log_p = cells.log_prob(program.value(state, drawn.to(state.z)), state.noise).double()
        joint = (log_p + base_of_cells).sum(1) + base - 0.5 * ((drawn @ precision) * drawn).sum(-1)
        proposal = of_t + log_root - 0.5 * (_FREEDOM + k) * (off.square().sum(-1) / _FREEDOM).log1p()
        weights.append(joint - proposal)
    return (torch.stack(weights).logsumexp(0) - math.log(_DRAWS)).cpu().numpy()


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
