r"""Weights of a curve: a few candidates each, weighed with the last layer summed out, and one of them taken.

.. math:: P(w_{jk} = c_m) \propto \frac{p(x_j \mid c_m, w_{j,-k}, z)\, p(c_m \mid \eta_k)}{q(c_m)}, \qquad
          c_0 = w_{jk}, \quad c_m \sim q

(iterated sampling importance resampling: Andrieu, Lee and Vihola 2018, Bernoulli 24(2)). q is a mixture in
equal parts of spike, slab and a Laplace distribution where the warm-up saw the weight as an edge. The average
of P(edge | c_m) over the candidates is the Rao-Blackwellised edge probability.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from ..density.cells import Cells
from ..density.decoder_program import DecoderProgram, DecoderState
from ..density.mixture import MixtureDensity
from .adaptation import Tuning

__all__ = ["curve_weights"]

_FACTORS = 1  # of a sweep: each costs as many looks at all cells as there are candidates, all else some ten


def curve_weights(
    program: DecoderProgram, state: DecoderState, cells: Cells, tuning: Tuning, rng: np.random.Generator
) -> tuple[Tensor, Tensor]:
    """New weights, and P(edge | w) averaged over candidates, both (chain, feature, factor).

    Parameters
    ----------
    program : DecoderProgram
        Of an MLP decoder.
    state : DecoderState
    cells : Cells
    tuning : Tuning
    rng : numpy.random.Generator
    """
    weight, density = state.weight.clone(), program.density
    prob = density.edge(weight, program.edge_log_odds(state), program.must) * program.permitted
    here = None  # log evidence at `weight`, (chain, feature)
    near = None if cells.normal else program.value(state)
    log_prior_odds = program.edge_log_odds(state)
    for k in _some(program, rng):
        free = program.permitted[:, k]
        centre, width = tuning.centre[..., k], tuning.width[..., k]
        tried = torch.cat([weight[None, ..., k], _candidates(program, centre, width, rng)])
        log_odds = log_prior_odds[..., k].expand_as(centre)
        log_prior = density.log_prob(tried, log_odds, program.must[:, k])
        level = _evidence(program, state, cells, weight, tried, k, near, here)
        chance = torch.softmax(level + (log_prior - _log_proposal(density.stand_in, tried, centre, width)), 0)
        edge = density.edge(tried, log_odds, program.must[:, k])
        prob[..., k] = (chance * edge).sum(0).to(prob) * free
        u = torch.as_tensor(rng.random(tuple(centre.shape)), device=weight.device)
        pick = (chance.cumsum(0) < u).sum(0, keepdim=True).clamp(max=len(tried) - 1)
        weight[..., k] = torch.where(free, tried.gather(0, pick)[0], weight[..., k])
        if cells.normal:
            here = torch.where(free, level.gather(0, pick)[0], level[0] if here is None else here)
    return weight, prob


def _some(program: DecoderProgram, rng: np.random.Generator) -> list[int]:
    """Factors of this sweep: of the others' edges their weights speak as they are."""
    there = torch.nonzero(program.permitted.any(0))[:, 0].cpu().numpy()
    return [int(k) for k in rng.permutation(there)[:_FACTORS]]


def _evidence(
    program: DecoderProgram,
    state: DecoderState,
    cells: Cells,
    weight: Tensor,
    tried: Tensor,
    k: int,
    near: Tensor | None,
    here: Tensor | None,
) -> Tensor:
    """Log evidence (candidate, chain, feature) with the last layer summed out.

    `near` is f as it was, if the likelihood is not normal. `here` is that of the first candidate, if known.
    Features that do not see factor k are left at 0 if it is, or if the likelihood is not normal.
    """
    log_evidence = torch.zeros(tried.shape, dtype=torch.float64, device=tried.device)
    at = torch.arange(weight.shape[1], device=weight.device)
    asked = not cells.normal or here is not None  # else the first candidates' levels are kept
    for features in program.pieces(at[program.permitted[:, k]] if asked else at, len(tried), state):
        full = weight[:, features].expand(len(tried), -1, -1, -1).clone()
        full[..., k] = tried[..., features]
        if not cells.normal or here is None:
            log_evidence[:, :, features] = program.evidence(state, cells, full, features, near)
        else:
            log_evidence[1:, :, features] = program.evidence(state, cells, full[1:], features, near)
            log_evidence[0][:, features] = here[:, features]
    return log_evidence


def _candidates(program: DecoderProgram, centre: Tensor, width: Tensor, rng: np.random.Generator) -> Tensor:
    """From the spike, from the slab, and around where the weight has been; in equal parts."""
    density, shape = program.density.stand_in, (program.candidates, *centre.shape)
    unit = density.draw(shape, rng)
    near = rng.laplace(size=shape)
    component = rng.integers(3, size=shape)
    around = centre.cpu().numpy() + width.cpu().numpy() * near
    value = np.where(
        component == 0, density.spike * unit, np.where(component == 1, density.slab * unit, around)
    )
    return torch.as_tensor(value).to(centre)


def _log_proposal(density: MixtureDensity, w: Tensor, centre: Tensor, width: Tensor) -> Tensor:
    near = -(w - centre).abs() / width - (2 * width).log()
    log_densities = [density.log_density(w, density.spike), density.log_density(w, density.slab), near]
    return torch.logsumexp(torch.stack(log_densities), 0) - math.log(3)
