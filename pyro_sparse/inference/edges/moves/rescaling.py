r"""Scales that a curved decoder's likelihood does not tell apart, and moves along them.

Curves see :math:`w_j \odot z` only, and :math:`f_j = c_j + u_j w_j^\top z + v_j^\top \phi(b + B \phi(A (w_j
\odot z)))` stays what it is under

.. math:: z_k \to z_k / s, \; W_k \to s W_k; \qquad W \to s W, \; A \to A / s, \; u \to u / s;

with rectified hidden units also where what goes into one is multiplied by s and what comes out is divided.
Only priors ask for s, and with hundreds of rows ordinary sweeps hardly change it, since layers, weights and
factors move one after the other: a chain whose factors are a fifth too wide stays so. Each log s is drawn
from a grid (`grid.py`).
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..density.curves import Trunk
from ..density.decoder_program import DecoderProgram, DecoderState
from .grid import grid, place

__all__ = ["stretched"]

Array = NDArray[np.float64]
_STEPS = 60  # places on a grid
_WIDTHS = (0.01, 3.0)  # of all log s together: least and most


def stretched(program: DecoderProgram, state: DecoderState, rng: np.random.Generator) -> DecoderState:
    """The state of a decoder with layers after a draw of each of these scales.

    Parameters
    ----------
    program : DecoderProgram
    state : DecoderState
    rng : numpy.random.Generator
    """
    state = _weights(program, _factors(program, state, rng), rng)
    return _units(program, state, rng) if program.curve.activation == "relu" else state


def _factors(program: DecoderProgram, state: DecoderState, rng: np.random.Generator) -> DecoderState:
    """Each factor against its weights."""
    z, weight, log_odds = state.z.clone(), state.weight.clone(), program.edge_log_odds(state)
    for k in range(z.shape[-1]):
        log_s = grid((len(z),), _STEPS, _WIDTHS, rng)
        with_all = (z[..., k].double().unsqueeze(1) @ z.double()).squeeze(1)
        with_all *= state.precision[:, k]
        square = with_all[:, k].cpu().numpy()
        others = with_all.sum(1).cpu().numpy() - square
        level = -0.5 * square * np.exp(-2 * log_s) - others * np.exp(-log_s)
        level += (int(program.permitted[:, k].sum()) - z.shape[1]) * log_s
        level += _of_weights(program, weight[..., k : k + 1], log_odds[..., k : k + 1], log_s, [k])
        s = _drawn(level, log_s, rng, z)
        z[..., k] /= s.view(-1, 1)
        weight[..., k] *= s.view(-1, 1)
    return state._replace(z=z, weight=weight)


def _weights(program: DecoderProgram, state: DecoderState, rng: np.random.Generator) -> DecoderState:
    """All weights against the first layer and the slopes."""
    log_s = grid((len(state.z),), _STEPS, _WIDTHS, rng)
    first, slope = state.trunk.first, state.head[..., 1]
    precision = program.curve.head_precision(first)[1]
    squares = first.double().square().sum((-1, -2)) + precision * slope.square().sum(-1)
    level = -0.5 * squares.cpu().numpy() * np.exp(-2 * log_s)
    level += (int(program.permitted.sum()) - first[0].numel() - slope.shape[1]) * log_s
    level += _of_weights(program, state.weight, program.edge_log_odds(state), log_s, slice(None))
    s = _drawn(level, log_s, rng, first).view(-1, 1, 1)
    head = state.head.clone()
    head[..., 1] /= s[..., 0]
    return state._replace(weight=state.weight * s, head=head, trunk=state.trunk._replace(first=first / s))


def _units(program: DecoderProgram, state: DecoderState, rng: np.random.Generator) -> DecoderState:
    """Rectified units of both hidden layers, each by itself."""
    first, second, bias = state.trunk
    precision = program.curve.head_precision(first)[2:]
    s = _of_units([first], [second.mT], rng)
    first, second = first * s, second / s.mT
    head = state.head[..., 2:] * precision.sqrt()
    s = _of_units([second, bias], [head], rng)
    head = state.head.clone()
    head[..., 2:] /= s
    return state._replace(head=head, trunk=Trunk(first, second * s, bias * s))


def _of_units(into: list[Tensor], out: list[Tensor], rng: np.random.Generator) -> Tensor:
    """s (chain, 1, unit) that multiplies what goes in and divides what comes out, standard normal a priori.

    Both (chain, any, unit).
    """
    before, after = (torch.cat(layers, 1).double().square().sum(1) for layers in (into, out))
    more = sum(layer.shape[1] for layer in into) - sum(layer.shape[1] for layer in out)
    log_s = grid(tuple(before.shape), _STEPS, _WIDTHS, rng)
    grown, shrunk = before.cpu().numpy() * np.exp(2 * log_s), after.cpu().numpy() * np.exp(-2 * log_s)
    level = more * log_s - 0.5 * (grown + shrunk)
    return _drawn(level, log_s, rng, into[0]).unsqueeze(1)


def _of_weights(
    program: DecoderProgram, weight: Tensor, log_odds: Tensor, log_s: Array, factors: list[int] | slice
) -> Array:
    """log prior (step, chain) of weights of some factors times s, edges summed out."""
    density, permitted, must = program.density, program.permitted[:, factors], program.must[:, factors]
    tried = weight * torch.as_tensor(np.exp(log_s)).to(weight)[..., None, None]
    log_prior = density.log_prob(tried, log_odds, must)
    return (log_prior * permitted).double().sum((-1, -2)).cpu().numpy()


def _drawn(level: Array, log_s: Array, rng: np.random.Generator, like: Tensor) -> Tensor:
    """s in proportion to its density."""
    taken = np.take_along_axis(log_s, place(level, rng)[None], 0)[0]
    return torch.as_tensor(np.exp(taken)).to(like)
