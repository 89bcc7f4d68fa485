"""How much each factor matters to each feature: what is lost when it is shuffled, and the mean slope."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch

from ...data.large_table import LargeBatch
from ...data.read import Batch
from ..training.restarts import pick

if TYPE_CHECKING:
    from ...models.base import FactorModel

__all__ = ["evened", "total_effects"]

ROWS, CELLS = 2000, 10_000_000  # looked at; the latter of a table read by rows, but not below 200 rows


@torch.no_grad()
def total_effects(model: FactorModel, train: Batch, max_rows: int = ROWS) -> tuple[np.ndarray, np.ndarray]:
    r"""Total effect of each factor on each feature's linear predictor, and its mean slope.

    .. math:: \tfrac12 E[(f_j(z) - f_j(z_{-k}, z_k'))^2] \,/\, \mathrm{Var}(x_j)

    with ``z`` from the guide and ``z_k'`` another row's value; the variance is that of the predictor plus
    the noise (`Likelihood.variance_beside`: a constant for likelihoods without one). How far apart the rows
    happen to be that are paired is taken out (`evened`), so that of straight lines nothing is left to chance
    but z.

    Parameters
    ----------
    model : FactorModel
        Of all restarts.
    train : Batch
    max_rows : int
        At most so many rows are looked at.

    Returns
    -------
    effects, slopes : ndarray (restart, feature, factor)
    """
    if isinstance(train, LargeBatch):
        return _by_rows(model, train)
    batch = train.rows(torch.arange(min(len(train), max_rows), device=train.x.device)).whole()
    location, sd = model.encode(batch)
    z = location + sd * torch.randn_like(sd)
    weights = getattr(model, "weights", None)
    f = model.decode(z, weights)
    variance = f.var(1) + model.likelihood.variance_beside()
    effects, slopes = [], []
    for k in range(z.shape[-1]):
        exchanged = z.clone()
        exchanged[..., k] = z[:, torch.randperm(z.shape[1], device=z.device), k]
        change = f - model.decode(exchanged, weights)
        even = evened(z[..., k], exchanged[..., k]).unsqueeze(-1)
        effects.append((0.5 * even * (change**2).mean(1) / variance).clamp(0, 1))
        slopes.append((change * (z - exchanged)[..., k : k + 1]).mean(1))
    return torch.stack(effects, -1).cpu().double().numpy(), torch.stack(slopes, -1).cpu().double().numpy()


def evened(values: torch.Tensor, exchanged: torch.Tensor) -> torch.Tensor:
    """What squares of changes are multiplied by when a factor's values (..., row) are exchanged for others.

    That is twice the variance of the values over their mean squared distance, which is 1 on average.
    """
    apart = (values - exchanged).square().mean(-1)
    return torch.where(apart > 0, 2 * values.var(-1, correction=0) / apart, 0.0)


def _by_rows(model: FactorModel, train: LargeBatch) -> tuple[np.ndarray, np.ndarray]:
    """The same of a sample of rows, one restart and a few rows at a time."""
    table = train.table
    n_rows = min(len(train), table.rows_together(200, ROWS, CELLS))
    together = table.rows_together(1, n_rows)
    effects, slopes = np.zeros((2, model.n_restarts, model.n_features, model.n_factors))
    for r in range(model.n_restarts):
        restart = pick(model, [r])
        weights = getattr(restart, "weights", None)
        read = [restart.encode(train.rows(i).whole()) for i in torch.arange(n_rows).split(together)]
        location, sd = (torch.cat(chunks, 1) for chunks in zip(*read, strict=True))
        z = location + sd * torch.randn_like(sd)
        used = [k for k in range(z.shape[-1]) if weights is None or weights[..., k].any()]
        others = {k: z[:, torch.randperm(n_rows, device=z.device), k] for k in used}
        total, squares = torch.zeros(2, model.n_features, dtype=torch.float64, device=z.device)
        change2, slope = torch.zeros(2, model.n_features, z.shape[-1], dtype=torch.float64, device=z.device)
        for i in torch.arange(n_rows, device=z.device).split(together):
            latents = z[:, i]
            f = restart.decode(latents, weights)
            total += f[0].sum(0)
            squares += f[0].double().square().sum(0)
            for k in used:
                exchanged = latents.clone()
                exchanged[..., k] = others[k][:, i]
                change = (f - restart.decode(exchanged, weights))[0]
                change2[:, k] += change.square().sum(0)
                slope[:, k] += (change * (latents - exchanged)[0, :, k : k + 1]).sum(0)
        for k in used:
            change2[:, k] *= evened(z[0, :, k], others[k][0])
        noise = restart.likelihood.variance_beside()
        variance = (squares - total**2 / n_rows) / max(n_rows - 1, 1)
        variance = variance + (noise if isinstance(noise, float) else noise[0].double())
        effects[r] = (0.5 * change2 / n_rows / variance.unsqueeze(-1)).clamp(0, 1).cpu().numpy()
        slopes[r] = (slope / n_rows).cpu().numpy()
    return effects, slopes
