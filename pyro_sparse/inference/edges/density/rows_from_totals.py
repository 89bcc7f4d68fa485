r"""Exposures of which only the rows' totals speak, drawn given all else.

Counts have rates :math:`s_i e^{f_{ij}}`, and :math:`\log s_i` is flat. Factors move the totals too: were
these held for depth, each feature would be divided by what the factors do to all others, and factors would
get edges to every one. Of Poisson counts

.. math:: s_i \mid f \sim \mathrm{Gamma}\bigl(\textstyle\sum_j x_{ij}, \sum_j e^{f_{ij}}\bigr)

(Baker 1994), which makes the row multinomial given its total. Of negative binomial ones the density is
log-concave in :math:`\log s_i`: a Student t at its mode is proposed, and accepted or not.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from ....likelihoods.base import PerRow
from .cells import Cells

__all__ = ["drawn_from_totals"]

_LEAST = 1e-3  # counts that a row without one is taken to expect
_NEWTON = 4  # steps towards the one mode: eight gave the same draws; what is left costs acceptance only
_LONGEST = 2.0  # step of Newton's, in the logarithm
_FREEDOM = 5.0  # of the proposal, whose tails are to be heavier than the target's


def drawn_from_totals(
    cells: Cells, f: Tensor, noise: Tensor, totals: Tensor, now: PerRow, rng: np.random.Generator
) -> dict[str, Tensor]:
    """The "exposure" of each row, (chain, 1, row), by name.

    Parameters
    ----------
    cells : Cells
        Poisson or negative binomial, without exposures.
    f : Tensor (chain, feature, row)
    noise : Tensor (chain, feature)
        1 / theta of negative binomial cells.
    totals : Tensor (chain or 1, row)
        Sums of the counts seen. A row without one says nothing but that its exposure is small.
    now : mapping of str to Tensor (chain, 1, row)
        Where negative binomial chains stand; without exposures before they do.
    rng : numpy.random.Generator
    """
    whole = cells.whole(f)
    level = (whole if cells.mask is None else whole.masked_fill(cells.mask == 0, -torch.inf)).logsumexp(1)
    level = level.nan_to_num(neginf=0.0)  # of rows of which nothing was seen
    totals = totals.expand_as(level)
    if cells.overdispersed:
        start = (totals.clamp(min=0.5).log() - level).double()
        here = now["exposure"][:, 0].double().log() if "exposure" in now else None
        log_s = _overdispersed(cells, f, noise, start, here, rng)
    else:
        gamma = rng.gamma(totals.cpu().numpy())
        log_s = torch.as_tensor(np.log(np.maximum(gamma, 1e-30))).to(f) - level
    log_s = torch.where(totals > 0, log_s.to(f), np.log(_LEAST) - level)
    return {"exposure": log_s.exp().clamp(min=1e-30).unsqueeze(1)}


def _overdispersed(
    cells: Cells, f: Tensor, noise: Tensor, start: Tensor, now: Tensor | None, rng: np.random.Generator
) -> Tensor:
    """log s (chain, row), by one step of independence Metropolis from `now`; or a draw of the proposal."""

    def summed(log_s: Tensor) -> list[Tensor]:
        return [
            derivative.double().sum(1) for derivative in cells.expanded(f + log_s.to(f).unsqueeze(1), noise)
        ]

    mode = start  # not where a chain stands: its own place must not move the proposal
    for _ in range(_NEWTON):
        _, slope, bend = summed(mode)
        mode = mode + (slope / bend.clamp(min=1e-6)).clamp(-_LONGEST, _LONGEST)
    scale = summed(mode)[2].clamp(min=1e-6).rsqrt()
    off = torch.as_tensor(rng.standard_t(_FREEDOM, size=tuple(mode.shape))).to(mode)
    new = mode + scale * off
    if now is None:
        return new

    def log_ratio(log_s: Tensor) -> Tensor:
        far = ((log_s - mode) / scale).square() / _FREEDOM
        return summed(log_s)[0] + 0.5 * (_FREEDOM + 1) * far.log1p()

    chance = torch.as_tensor(rng.random(tuple(mode.shape))).to(mode).log()
    return torch.where(chance < log_ratio(new) - log_ratio(now), new, now)
