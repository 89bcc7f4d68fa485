"""How good a pair of dictionaries is: what it leaves unexplained, what is dead, how concentrated slopes are.

Nothing here depends on the units of codes or activations.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..edges.dictionaries.effects import Pair, active_latents, closed_form, effects_of
from ..edges.dictionaries.matching import match_latents

if TYPE_CHECKING:
    from collections.abc import Callable

    from ...data.activations import Activations
    from ...nets.sparse_autoencoder import SparseAutoencoder

__all__ = ["agreement", "figures_of", "slope_figures"]

RARE = 1e-4  # share of rows below which a latent that is not dead counts as rare
_ROWS = 2048  # at a time
_FOR_SLOPES = 2000  # rows whose slopes are computed
_MOST_OF_SUM = 0.9


@torch.no_grad()
def figures_of(
    before: SparseAutoencoder,
    after: SparseAutoencoder,
    between: Callable[[Tensor], Tensor],
    rows: Activations,
    device: str,
) -> tuple[dict[str, float], list[NDArray[np.bool_]]]:
    """Of one pair, on rows that it was not trained on, if there are any.

    Parameters
    ----------
    before, after : SparseAutoencoder
    between : callable
        The layer.
    rows : Activations
    device : str

    Returns
    -------
    figures : dict of str to float
        fvu (fraction of variance unexplained), l0 (active latents of a row), dead (share of latents that no
        row has), rare (share that fewer than one row in 10,000 has, dead ones not counted), each with _in and
        _out; and those of `slope_figures`.
    living : list of ndarray of bool (latent,)
        Which latents before and after the layer some row has.
    """
    dtype = before.dec.dtype
    sides = before, after
    error, total = np.zeros(2), [0.0, 0.0]
    fires = [np.zeros(sae.n_latents) for sae in sides]
    shift = [sae.centre.double() for sae in sides]
    sums = [torch.zeros_like(centre) for centre in shift]
    for batch in rows.batches(_ROWS, dtype, device):
        for side, (sae, x) in enumerate(zip(sides, batch, strict=True)):
            codes = sae.encode(x)
            error[side] += float((x - sae.decode(codes)).double().square().sum())
            away = x.double() - shift[side]  # sums of squares of what lies far from 0 would lose digits
            sums[side] += away.sum(0)
            total[side] += float(away.square().sum())
            fires[side] += (codes > 0).sum(0).cpu().numpy()
    figures: dict[str, float] = {}
    for side, name in enumerate(("in", "out")):
        variance = total[side] - float(sums[side].square().sum()) / len(rows)
        rate = fires[side] / len(rows)
        figures[f"fvu_{name}"] = float(error[side] / variance) if variance > 0 else float("nan")
        figures[f"l0_{name}"] = float(rate.sum())
        figures[f"dead_{name}"] = float((rate == 0).mean())
        figures[f"rare_{name}"] = float(((rate > 0) & (rate < RARE)).mean())
    living = [of_side > 0 for of_side in fires]
    return figures | slope_figures(before, after, between, rows, device), living


@torch.no_grad()
def slope_figures(
    before: SparseAutoencoder,
    after: SparseAutoencoder,
    between: Callable[[Tensor], Tensor],
    rows: Activations,
    device: str,
) -> dict[str, float]:
    """How large and how concentrated the slopes between active latents are, at single rows.

    Parameters
    ----------
    before, after, between, rows, device
        As for `figures_of`; at most 2,000 of the rows are looked at.

    Returns
    -------
    dict of str to float
        mean_abs_slope: in standardised units. l1_over_l2: mean over root mean square of the block of a row's
        active latents, 1 where all slopes are equal. entries_90: share of the block's entries that make up
        90 % of its sum. NaN where no row has active latents on both sides.
    """
    x, y = rows.some(slice(0, _FOR_SLOPES)).rows(slice(None), before.dec.dtype, device)
    pair = Pair(after, between, before.dec * before.scale, after.enc / after.scale)
    active = [active_latents(codes) for codes in (before.encode(x), after.encode(y))]
    if not all(side.number.shape[1] for side in active):
        return dict.fromkeys(("mean_abs_slope", "l1_over_l2", "entries_90"), float("nan"))
    effect = effects_of(pair, x, y, active[0], active[1], "slope", closed_form(pair))
    code = torch.where(active[0].there, active[0].code, 1.0).unsqueeze(1)
    there = (active[1].there.unsqueeze(2) & active[0].there.unsqueeze(1)).flatten(1)
    size = (effect / code).abs().flatten(1).double() * there
    n = there.sum(1)
    kept = (n > 0) & (size.sum(1) > 0)
    size, n = size[kept], n[kept].double()
    mean = size.sum(1) / n
    ratio = mean / (size.square().sum(1) / n).sqrt()
    ranked = size.sort(1, descending=True).values.cumsum(1)
    entries = ((ranked < _MOST_OF_SUM * ranked[:, -1:]).sum(1) + 1) / n
    return {
        "mean_abs_slope": float(mean.mean()),
        "l1_over_l2": float(ratio.mean()),
        "entries_90": float(entries.mean()),
    }


def agreement(
    directions: list[NDArray[np.float32]], living: list[NDArray[np.bool_]]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """How much of each restart's dictionary the others have.

    Parameters
    ----------
    directions : list of ndarray (latent, d)
        Of unit length, of each restart.
    living : list of ndarray of bool (latent,)

    Returns
    -------
    cosine : ndarray (restart,)
        Greatest cosine of a living latent with one of another restart, averaged over latents and restarts.
        NaN of a single one.
    shared : ndarray (restart,)
        Share of living latents that another restart has: each the other's best, with a cosine above .8.
    """
    n = len(directions)
    if n == 1:
        return np.full(1, np.nan), np.full(1, np.nan)
    cosine = np.zeros(n)
    for a in range(n):
        mine = directions[a][living[a]]
        others = [directions[b][living[b]] for b in range(n) if b != a and living[b].any()]
        best = [float((mine @ theirs.T).max(1).mean()) for theirs in others if len(mine)]
        cosine[a] = np.mean(best) if best else np.nan
    number = match_latents(directions, living).number
    alive = np.array([of_restart.sum() for of_restart in living])
    return cosine, (number >= 0).sum(0) / np.maximum(alive, 1)
