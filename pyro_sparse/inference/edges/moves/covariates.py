r"""Effects of covariates on the features' predictors: all of a feature's at once, given everything else.

With :math:`f_{ij} + d_i^\top \beta_j` the log-likelihood of a feature, expanded where it stands, makes
:math:`\beta_j \sim N(0, \tau^2 I)` normal: that is the proposal, and the normal of the expansion *there* the
way back (Gamerman 1997, Statistics and Computing 7). Under normal noise both are the conditional itself, and
every proposal is accepted.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from ..density.decoder_program import DecoderProgram, DecoderState

__all__ = ["moved_effects"]


class _Proposal(NamedTuple):
    """Normal of the expansion at a state.

    Attributes
    ----------
    level : Tensor (chain, feature)
        Log-likelihood and log prior there.
    mean : Tensor (chain, feature, effect)
    root : Tensor (chain, feature, effect, effect)
        Cholesky factor of the precision.
    """

    level: Tensor
    mean: Tensor
    root: Tensor

    def log_density(self, effects: Tensor) -> Tensor:
        """At effects (chain, feature, effect), up to a constant, (chain, feature)."""
        away = (self.root.mT @ (effects - self.mean).unsqueeze(-1)).squeeze(-1)
        log_root = self.root.diagonal(dim1=-2, dim2=-1).log().sum(-1)
        return log_root - 0.5 * away.square().sum(-1)


def moved_effects(
    program: DecoderProgram, state: DecoderState, f: Tensor, rng: np.random.Generator
) -> DecoderState:
    """The state with new effects; as it is where there are no covariates.

    Parameters
    ----------
    program : DecoderProgram
    state : DecoderState
    f : Tensor (chain, feature, row)
        Its predictors without effects.
    rng : numpy.random.Generator
    """
    effects = state.effects
    if effects is None or program.design is None:
        return state
    here = _expanded(program, state, f, effects)
    normal = torch.as_tensor(rng.standard_normal(tuple(effects.shape))).to(effects)
    step = torch.linalg.solve_triangular(here.root.mT, normal.unsqueeze(-1), upper=True)
    tried = here.mean + step.squeeze(-1)
    there = _expanded(program, state, f, tried)
    gain = there.level - here.level + there.log_density(effects) - here.log_density(tried)
    chance = torch.as_tensor(rng.random(tuple(gain.shape))).to(gain).log()
    return state._replace(effects=torch.where((chance < gain).unsqueeze(-1), tried, effects))


def _expanded(program: DecoderProgram, state: DecoderState, f: Tensor, effects: Tensor) -> _Proposal:
    design = program.design
    assert design is not None
    cells = program.cells_of(state._replace(effects=effects))
    log_p, slope, bend = cells.expanded(f, state.noise)
    first, second = torch.triu_indices(len(design), len(design), device=design.device)
    pairs = (bend @ (design[first] * design[second]).mT).double()
    information = pairs.new_empty(*pairs.shape[:-1], len(design), len(design))
    information[..., first, second] = information[..., second, first] = pairs
    precision = program.effect_sd**-2
    information.diagonal(dim1=-2, dim2=-1).add_(precision)
    root = torch.linalg.cholesky(information)
    pull = (slope @ design.mT).double() - precision * effects
    mean = effects + torch.cholesky_solve(pull.unsqueeze(-1), root).squeeze(-1)
    level = log_p.double().sum(-1) - 0.5 * precision * effects.square().sum(-1)
    return _Proposal(level, mean, root)
