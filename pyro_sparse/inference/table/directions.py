r"""Features that nothing explains at the start: wait, then search the sparse direction along which they vary.

A feature such as :math:`\sin(w^\top z)` leaves no linear or quadratic trace, and the gradient of a decoder
that looks along a wrong direction does not say where the right one lies: it fits noise instead. So such a
feature waits, seeing no factor, until the factors have been learned from the others. Then its characteristic
function

.. math:: \hat\varphi_j(w) = \tfrac1n \textstyle\sum_i x_{ij}\, e^{\mathrm i\, w^\top z_i}

is large at the right w even where no other regression sees anything. It is evaluated at thousands of sparse w
at once, the best are refined, and what is found must beat the number of directions tried. `admit` writes it
into W; the decoder learns the curve. Features without a direction are let in too, with every edge open.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ..._utils.optimisers import eager
from ...data.large_table import SEARCH_CELLS, LargeBatch
from ...data.read import Batch

if TYPE_CHECKING:
    from ...models.sparse_decoder import SparseDecoder

__all__ = ["Directions", "admit", "find_directions", "release"]

REACH = 5.5  # longest direction tried, in radians per standard deviation of a factor
POINTS = {1: 12, 2: 50, 3: 150}  # per set of factors, so that every peak (of width 1) has a point on it
MOST = 200_000  # sets of three factors are left out where they would make more candidates than this


@dataclass(frozen=True)
class Directions:
    """What `find_directions` found.

    Attributes
    ----------
    weights : Tensor (feature, factor)
        The best direction of each feature, zero but for at most three factors.
    share : Tensor (feature,)
        Share of the feature's variance that a wave along it explains.
    real : Tensor of bool (feature,)
        Whether that is more than the best of so many directions would explain of noise.
    """

    weights: Tensor
    share: Tensor
    real: Tensor


def candidates(n_factors: int) -> Tensor:
    """Directions to try (candidate, factor): points in the ball of every set of one, two or three factors."""
    generator = torch.Generator().manual_seed(0)
    directions, count = [], 0
    for size, points in POINTS.items():
        sets = torch.tensor(list(itertools.combinations(range(n_factors), size)), dtype=torch.long)
        count += len(sets) * points
        if not len(sets) or count > MOST:
            break
        ball = torch.randn(len(sets), points, size, generator=generator)
        radius = REACH * torch.rand(len(sets), points, 1, generator=generator) ** (1 / size)
        place = sets.unsqueeze(1).expand(-1, points, -1)
        w = torch.zeros(len(sets), points, n_factors).scatter_(
            2, place, ball / ball.norm(dim=-1, keepdim=True) * radius
        )
        directions.append(w.flatten(0, 1))
    return torch.cat(directions)


@torch.no_grad()
def find_directions(
    z: Tensor, x: Tensor, mask: Tensor | None = None, *, n_best: int = 3, steps: int = 60, chunk: int = 4000
) -> Directions:
    r"""For each feature the sparse direction w whose wave explains most of it.

    .. math:: \max_w R^2\big(x_j \sim 1 + \cos w^\top z + \sin w^\top z\big)

    Parameters
    ----------
    z : Tensor (row, factor)
    x : Tensor (row, feature)
    mask : Tensor of bool (row, feature), optional
        True where a cell was seen.
    n_best : int
        Candidates of each feature that are refined by `steps` Adam steps.
    chunk : int
        Candidates at a time.

    Returns
    -------
    Directions
        Real if :math:`-\tfrac n2 \log(1 - R^2)` exceeds the log of the number of directions tried, times
        features, plus :math:`\tfrac32 \log n` for three coordinates.

    Examples
    --------
    >>> z = torch.randn(500, 4, generator=torch.Generator().manual_seed(0))
    >>> directions = find_directions(z, torch.sin(2 * z[:, :1] - 3 * z[:, 2:3]))
    >>> directions.weights.abs().round().int().tolist(), directions.real.tolist()
    ([[2, 0, 3, 0]], [True])
    """
    n_features = x.shape[1]
    observed = torch.ones_like(x) if mask is None else mask.to(x)
    count = observed.sum(0).clamp_min(1)
    x = (x - (x * observed).sum(0) / count) * observed
    pool = candidates(z.shape[1]).to(z)
    power = torch.zeros(n_features, n_best).to(z)
    top_candidates = torch.zeros(n_features, n_best, dtype=torch.long, device=z.device)
    for index in torch.arange(len(pool), device=z.device).split(chunk):
        phase = z @ pool[index].T
        new = (x.T @ phase.cos()) ** 2 + (x.T @ phase.sin()) ** 2
        power, order = torch.cat([power, new], 1).topk(n_best, 1)
        top_candidates = torch.cat([top_candidates, index.expand(n_features, -1)], 1).gather(1, order)

    w = pool[top_candidates.flatten()]
    live = (w != 0).to(w)
    target, rows = (cells.T.repeat_interleave(n_best, 0) for cells in (x, observed))
    ridge = 1e-3 * count.repeat_interleave(n_best)[:, None, None] * torch.eye(3).to(z)
    with torch.enable_grad():
        w.requires_grad_(True)
        optimiser = eager(torch.optim.Adam)([w], lr=0.1)
        for _ in range(steps):
            phase = (w * live) @ z.T
            waves = torch.stack([rows, phase.cos() * rows, phase.sin() * rows], 1)
            cross = waves @ target.unsqueeze(-1)
            share = (cross * torch.linalg.solve(waves @ waves.mT + ridge, cross)).sum((1, 2))
            share = share / target.square().sum(1).clamp_min(1e-12)
            optimiser.zero_grad()
            (-share.sum()).backward()
            optimiser.step()
    best, place = share.detach().view(n_features, n_best).max(1)
    weights = (w.detach() * live).view(n_features, n_best, -1)[torch.arange(n_features), place]
    gain = -0.5 * count * torch.log1p(-best.clamp(0, 1 - 1e-6))
    return Directions(weights, best, gain > math.log(len(pool) * n_features) + 1.5 * count.log())


@torch.no_grad()
def admit(model: SparseDecoder, batch: Batch, *, max_rows: int = 2000) -> int:
    """Let the features in that a `SparseDecoder` holds back; return how many got a direction of their own.

    Those with a direction are held along it (until `release`), the others are open to every factor.

    Parameters
    ----------
    model : SparseDecoder
    batch : Batch
        The training rows; at most `max_rows` of them are used.
    """
    if not model.held.any():
        return 0
    if isinstance(batch, LargeBatch):
        max_rows = batch.table.rows_together(500, max_rows, SEARCH_CELLS)
    sample = batch.rows(torch.arange(min(len(batch), max_rows), device=batch.x.device))
    location, _ = model.encode(sample)
    waited = model.held.clone()
    left = torch.ones_like(waited, dtype=location.dtype)
    for r, waits in enumerate(waited):
        names, used = waits.nonzero().flatten(), model.allowed[r].any(0).nonzero().flatten()
        if not len(used):  # every edge is forbidden
            model.held[r] = False
        if not len(names) or not len(used):
            continue
        mask = None if sample.mask is None else sample.mask[:, names]
        directions = find_directions(location[r][:, used], sample.x[:, names], mask)
        rows = torch.zeros(len(names), model.n_factors).to(location)
        rows[:, used] = directions.weights / directions.weights.abs().amax(1, keepdim=True).clamp_min(1e-6)
        # a direction is of no use where it needs an edge that is forbidden
        may = directions.real & ~((rows.abs() > 0.1) & ~model.allowed[r, names]).any(1)
        model.held[r, names] = may
        model.held_weights[r, names] = torch.where(may.unsqueeze(1), rows, 0.0)
        model.weights[r, names] = model.allowed[r, names].to(model.weights)
        model.decoder.slope[r, names] = 0.0
        left[r, names] = torch.where(may, 1 - directions.share, 1.0)
    model.likelihood.start_noise(left.sqrt().unsqueeze(1), waited.unsqueeze(1))
    model.project()
    return int(model.held.sum())


@torch.no_grad()
def release(model: SparseDecoder) -> None:
    """Let every row of W move that `admit` had held along a direction: by now its curve is known."""
    model.held.zero_()
