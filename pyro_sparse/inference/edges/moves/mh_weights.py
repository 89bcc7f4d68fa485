r"""Weights of a linear decoder under any likelihood: spike and slab under a parabola, then Metropolis.

With :math:`f_{ij} = c_j + w_j^\top z_i` the log-likelihood of one weight, expanded where it stands,

.. math:: L(w) \approx -A w^2 / 2 + B w + \text{const}, \quad A = \sum_i h_i z_{ik}^2,
          \quad B = \sum_i g_i z_{ik} + A w_{jk}

(g, -h: first and second derivatives of log p(x_ij | f)) makes a proposal that is a spike-and-slab posterior
in closed form (`density/weight.py`): it jumps between spike and slab, and is exact where the likelihood is
normal.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..density.cells import Cells
from ..density.decoder_program import DecoderProgram, DecoderState
from ..density.weight import SpikeSlab, Tilted

__all__ = ["line_weights"]

Array = NDArray[np.float64]
_SURE = 60.0  # log odds of an edge that has to be there


class _Parabola(NamedTuple):
    """Quadratic (in units of the slab) and the spike-and-slab posterior under it, of the stand-in's prior."""

    a: Array
    b: Array
    density: Tilted

    def log_proposal(self, u: Array) -> Array:
        """log density of the proposal at u, less that of the prior."""
        return -0.5 * self.a * u**2 + self.b * u - self.density.log_norm


def line_weights(
    program: DecoderProgram, state: DecoderState, cells: Cells, rng: np.random.Generator
) -> tuple[Tensor, Tensor]:
    """New weights, and P(edge | w) averaged over staying and moving, both (chain, feature, factor).

    Parameters
    ----------
    program : DecoderProgram
        Of a linear decoder.
    state : DecoderState
    cells : Cells
    rng : numpy.random.Generator
    """
    weight, prob = state.weight.clone(), torch.zeros_like(state.weight)
    density, target = program.density.stand_in.in_slabs(), program.density.in_slabs()
    unit = program.density.stand_in.slab
    f = program.value(state)
    here = cells.expanded(f, state.noise)
    for k in range(weight.shape[-1]):
        permitted = program.permitted[:, k]
        if not bool(permitted.any()):
            continue
        z = state.z[..., k].unsqueeze(1)
        odds = _array(program.edge_log_odds(state)[..., k].expand_as(weight[..., k]))
        odds = np.where(_array(program.must[:, k]) > 0, _SURE, odds)
        u = _array(weight[..., k]) / unit
        from_here = _parabola(here, z, u, density, odds, unit)
        edge = rng.random(u.shape) < from_here.density.prob
        new_u = density.draw(from_here.a, from_here.b, edge, rng)
        new = torch.as_tensor(unit * new_u).to(weight)
        moved = f + (new - weight[..., k]).unsqueeze(-1) * z
        there = cells.expanded(moved, state.noise)
        from_there = _parabola(there, z, new_u, density, odds, unit)
        gain = _array((there[0] - here[0]).double().sum(-1))
        gain += from_there.log_proposal(u) - from_here.log_proposal(new_u)
        gain += target.excess(new_u, odds) - target.excess(u, odds)
        accept = np.where(np.isfinite(gain), np.exp(np.minimum(gain, 0)), 0.0)
        yes = torch.as_tensor(rng.random(u.shape) < accept).to(weight.device) & permitted
        stay, go = (program.density.edge(w, torch.as_tensor(odds).to(weight)) for w in (weight[..., k], new))
        chance = torch.as_tensor(accept).to(weight)
        prob[..., k] = ((1 - chance) * stay + chance * go) * permitted
        weight[..., k] = torch.where(yes, new, weight[..., k])
        rows = yes.unsqueeze(-1)
        f = torch.where(rows, moved, f)
        here = tuple(torch.where(rows, b, a) for a, b in zip(here, there, strict=True))
    return weight, prob


def _parabola(
    at: tuple[Tensor, ...], z: Tensor, u: Array, density: SpikeSlab, odds: Array, unit: float
) -> _Parabola:
    _, slope, bend = at
    # Above zero, where the closed form of a Laplace slab divides by it.
    a = np.maximum(_array((bend * z**2).double().sum(-1)) * unit**2, 1e-3)
    b = _array((slope * z).double().sum(-1)) * unit + a * u
    return _Parabola(a, b, density.tilted(a, b, odds))


def _array(t: Tensor) -> Array:
    return t.cpu().double().numpy()
