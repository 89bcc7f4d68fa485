r"""Angles between factors with loadings summed out (`marginal_angles.py`), under any likelihood.

Whichever factor i moves in its plane with j, of what is predicted only the loading on j changes, one number
of each feature. Their log-likelihoods are interpolated once (`density/loadings.py`: :math:`\hat\ell_g`), j
moves with every other factor without another look at the cells, and one Metropolis step accepts all of it
with probability

.. math:: \min\Bigl(1, \prod_g e^{\ell_g(u') - \hat\ell_g(u') - \ell_g(u) + \hat\ell_g(u)}\Bigr).

A move looks at the cells five times, the last time where it ends.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from ..density.cells import Cells
from ..density.decoder_program import DecoderProgram, DecoderState
from ..density.loading_curve import loading_curve
from .marginal_angles import MarginalAngles

__all__ = ["LineAngles", "line_angles"]


class LineAngles(NamedTuple):
    """What a move of angles leaves behind.

    Attributes
    ----------
    state : DecoderState
    f : Tensor (chain, feature, row)
    terms : tuple of Tensor (chain, feature, row)
        log p of every cell at f, its slope and minus its second derivative.
    """

    state: DecoderState
    f: Tensor
    terms: tuple[Tensor, ...]


def line_angles(
    program: DecoderProgram,
    angles: MarginalAngles,
    factor: int,
    begun: LineAngles,
    cells: Cells,
    rng: np.random.Generator,
) -> LineAngles:
    """All factors moved, one after the other, in their planes with one, whose loadings are drawn anew.

    Parameters
    ----------
    program : DecoderProgram
        Of a linear decoder.
    angles : MarginalAngles
        In units of the program's slab.
    factor : int
        j.
    begun : LineAngles
        The state, and its cells.
    cells : Cells
    rng : numpy.random.Generator
    """
    state, seen = begun.state, angles.permitted
    weights = state.weight / program.weight_unit
    tensors = weights, program.edge_log_odds(state), torch.linalg.inv(state.precision)
    weight, log_odds, cov = (tensor.double().cpu().numpy() for tensor in tensors)
    edge, unit, by = state.edge.cpu().numpy(), angles.slab_scale, np.eye(weight.shape[-1])
    along = unit * program.weight_unit
    curve = loading_curve(
        cells, begun.f, begun.terms, state.noise, state.z[..., factor], weight[..., factor] / unit, along
    )
    level = curve.log_likelihood(weight[..., factor] / unit)
    # Those that see no feature which j does not see; a random order is as likely backwards.
    inside = (seen <= seen[:, [factor]]).all(0) & (np.arange(len(by)) != factor)
    others = rng.permutation(np.flatnonzero(inside))
    if angles.compiles:
        weight, edge, cov, by, curve = angles.all_moved_along(
            factor, others, weight, edge, cov, log_odds, curve, rng
        )
    else:
        for other in others:
            weight, edge, cov, step, shift = angles.moved(
                (int(other), factor), weight, edge, cov, log_odds, curve, rng
            )
            curve, by = curve.translated(shift), step @ by
    gain = level - curve.log_likelihood(weight[..., factor] / unit)
    tried = state._replace(
        weight=torch.as_tensor(weight).to(state.weight) * program.weight_unit,
        edge=torch.as_tensor(edge, device=state.edge.device),
        precision=torch.as_tensor(np.linalg.inv(cov)).to(state.precision),
        z=(state.z.double() @ torch.as_tensor(by, device=state.z.device).mT).to(state.z),
    )
    f = program.value(tried)
    terms = cells.expanded(f, state.noise)
    gain += (terms[0] - begun.terms[0]).double().sum(-1).cpu().numpy()
    gain = np.where(seen[:, factor], gain, 0.0).sum(-1)
    accepted = np.log(rng.random(len(gain))) < gain
    if accepted.all():
        return LineAngles(tried, f, terms)
    taken = torch.as_tensor(accepted, device=f.device)

    def chosen(new: Tensor, old: Tensor) -> Tensor:
        return torch.where(taken.view(-1, *[1] * (new.ndim - 1)), new, old)

    state = state._replace(
        weight=chosen(tried.weight, state.weight),
        edge=chosen(tried.edge, state.edge),
        precision=chosen(tried.precision, state.precision),
        z=chosen(tried.z, state.z),
    )
    of_terms = zip(terms, begun.terms, strict=True)
    return LineAngles(state, chosen(f, begun.f), tuple(chosen(new, old) for new, old in of_terms))
