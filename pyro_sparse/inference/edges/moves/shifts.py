r"""Loadings and intercepts that move alike, where only totals speak of the rows' exposures.

With :math:`f_{ij} = c_j + w_j^\top z_i` and rates :math:`s_i e^{f_{ij}}`, the likelihood of all features that
factor k may have edges to stays what it is under

.. math:: w_{jk} \to w_{jk} + h, \quad s_i \to s_i e^{-h z_{ik}},

and only priors, and features that are not permitted an edge, ask for h. Loadings moved one at a time hardly
get from one h to another: it is drawn from a grid (`grid.py`). The level of all intercepts is free in the
same way, of any curve, and normal.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from ..density.decoder_program import DecoderProgram, DecoderState
from .grid import grid, place

__all__ = ["levelled", "shifted"]

_SHIFTS = 80  # places on a grid
_WIDTHS = (0.01, 8.0)  # of all of them together, in slabs: least and most
_CELLS, _MOST = 1_000_000, 40_000_000  # of negative binomial others: beyond, few sweeps look at them, or none


def levelled(program: DecoderProgram, state: DecoderState, rng: np.random.Generator) -> DecoderState:
    """The state with all intercepts moved alike, a draw given what stays, which exposures take.

    Parameters
    ----------
    program : DecoderProgram
        With `totals`.
    state : DecoderState
    rng : numpy.random.Generator
    """
    intercept = state.head[..., 0]
    draw = torch.as_tensor(rng.standard_normal(len(intercept))).to(intercept)
    move = program.curve.intercept_sd / math.sqrt(intercept.shape[1]) * draw - intercept.mean(1)
    head = state.head.clone()
    head[..., 0] += move[:, None]
    factor = (-move).exp().to(_exposure(state))
    return state._replace(head=head, per_row={"exposure": _exposure(state) * factor[:, None, None]})


def shifted(program: DecoderProgram, state: DecoderState, rng: np.random.Generator) -> DecoderState:
    """The state after a shift of every factor's loadings, which exposures take.

    Parameters
    ----------
    program : DecoderProgram
        Of a linear decoder, with `totals`.
    state : DecoderState
    rng : numpy.random.Generator
    """
    density, n = program.density, len(state.z)
    chain = torch.arange(n, device=state.z.device)
    for k in range(state.weight.shape[-1]):
        permitted = program.permitted[:, k]
        others = torch.nonzero(~permitted)[:, 0]
        cells = _SHIFTS * n * len(others) * state.z.shape[1] if program.cells.overdispersed else 0
        if not bool(permitted.any()) or cells > _MOST or rng.random() * cells > _CELLS:
            continue
        h = density.stand_in.slab * torch.as_tensor(grid((n,), _SHIFTS, _WIDTHS, rng)).to(state.z).unsqueeze(
            -1
        )
        moved = state.weight[..., k] + h
        in_units = moved / program.weight_unit[:, 0]
        prior = density.log_prob(in_units, program.edge_log_odds(state)[..., k], program.must[:, k])
        level = (prior * permitted).double().sum(-1)
        level += _log_others(program, state, others, h, k)
        to = torch.as_tensor(place(level.cpu().numpy(), rng), device=level.device)
        weight = state.weight.clone()
        weight[..., k] = torch.where(permitted, moved[to, chain], weight[..., k])
        taken = (-h[to, chain] * state.z[..., k]).exp().unsqueeze(1)
        state = state._replace(weight=weight, per_row={"exposure": _exposure(state) * taken})
    return state


def _log_others(program: DecoderProgram, state: DecoderState, others: Tensor, h: Tensor, k: int) -> Tensor:
    """Log-likelihood (shift, chain) of features that factor k cannot have edges to, up to a constant."""
    if not len(others):
        return torch.zeros(h.shape[:2], dtype=torch.float64, device=h.device)
    f = program.curve.value(state.z, state.weight[:, others], state.trunk, state.head[:, others])
    cells = program.shifted(program.cells, state).features(others)
    minus = -h * state.z[..., k]  # shift, chain, row
    log_s = _exposure(state).log()
    if cells.overdispersed:
        log_p = cells.log_prob(f + log_s + minus.unsqueeze(2), state.noise[:, others])
        return log_p.double().sum((-1, -2))
    x, rate = cells.x, (cells.whole(f) + log_s).exp()
    if cells.mask is not None:
        x, rate = x * cells.mask, rate * cells.mask
    return (x.sum(1) * minus - rate.sum(1) * minus.exp()).double().sum(-1)


def _exposure(state: DecoderState) -> Tensor:
    if "exposure" not in state.per_row:
        raise ValueError("state: has no exposures; only those of which totals speak can take a shift")
    return state.per_row["exposure"]
