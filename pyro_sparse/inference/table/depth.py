r"""Warns when size factors, taken from totals, are explained by the factors: then they were no depth.

Counts may be divided by size factors :math:`s_i` from the rows' totals, by default where the table itself
says that rows differ in depth (`likelihoods.row_depth`). Where they do, factors say little of the
totals. Where they do not, the totals are a sum of what the factors do, every feature is divided by it, and
each factor gets edges to features that it does not move. The two are told apart by

.. math:: R^2 = 1 - V(\log s_i - a - b^\top z_i - c^\top z_i^2) / V(\log s_i),

V a variance, corrected for the number of coefficients. On simulated tables of 300 rows, 40 or 150 features
and 4 factors it was .50 to .78 without any depth, .26 to .42 with depths of standard deviation .3, and below
.2 with .6. Where totals are shared out (`Poisson.shares`) nothing is divided by what the factors do.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch

from ...data.large_table import LargeBatch
from ...data.read import MOST_JUDGED, Batch
from ...findings.finding import Finding
from ...likelihoods import Poisson

if TYPE_CHECKING:
    from ...models.base import FactorModel

__all__ = ["depth_of_factors", "explained_by_factors"]

MOST = 0.45  # between tables with depths of sd .3 and tables without, see above
# Share of depth in totals that are not taken for it. Simulated tables without depth, of 20 features and more,
# had .15 at most (NOTEBOOK.md, calibration).
SOME = 0.25


def depth_of_factors(model: FactorModel, batch: Batch, best: int) -> list[Finding]:
    """What to say of a fit whose size factors, made of totals, go along with its factors; or nothing.

    Parameters
    ----------
    model : FactorModel
        Trained.
    batch : Batch
        Rows that it was trained on.
    best : int
        Restart.
    """
    if not isinstance(model.likelihood, Poisson):
        return []
    most = batch.table.most_judged if isinstance(batch, LargeBatch) else MOST_JUDGED
    few = batch.rows(torch.arange(min(len(batch), most), device=batch.x.device)).whole()
    exposure = few.per_row.get("exposure")
    if exposure is None:
        return _left_alone(model.likelihood)
    if model.likelihood.shares or not model.likelihood.takes_totals:
        return []  # or they were given
    from_totals = model.likelihood.default_per_row(few.x, few.mask)["exposure"]
    if not torch.allclose(from_totals.to(exposure), exposure, rtol=1e-3):
        return []  # they were given
    with torch.no_grad():
        z = model.factor_posterior(few).mean[best]
    share = explained_by_factors(exposure.squeeze(-1).double().cpu().numpy(), z.double().cpu().numpy())
    if share < MOST:
        return []
    message = (
        f"the factors tell most of the rows' totals (R2 {share:.2f}), which were taken for their depth: if "
        "rows do not differ in depth, features get weights that are not theirs; then give likelihood="
        f"{type(model.likelihood).__name__}(size_factors=False), or --no-depth"
    )
    return [Finding("depth", message, size=share)]


def _left_alone(likelihood: Poisson) -> list[Finding]:
    """What to say where totals were not taken for depth, though some of what moves them may be."""
    share = float(likelihood.depth)
    if share < SOME:
        return []
    message = (
        f"rows may differ in depth (it is {100 * share:.0f} % of what moves their totals), and totals were "
        "not taken for it, as factors move them more"
    )
    remedy = f"give exposures if you know them, or likelihood={type(likelihood).__name__}(size_factors=True)"
    return [Finding("depth", message, remedy, size=share)]


def explained_by_factors(size: np.ndarray, z: np.ndarray) -> float:
    """Adjusted R squared of log size factors on factors and their squares; 0 where rows are too few.

    Parameters
    ----------
    size : ndarray (row,)
    z : ndarray (row, factor)
    """
    z = z[:, z.std(0) > 1e-6]
    design = np.column_stack([np.ones(len(z)), z, z**2])
    n, p = design.shape
    log_size = np.log(size)
    if n < 3 * p or log_size.var() < 1e-12:
        return 0.0
    left = log_size - design @ np.linalg.lstsq(design, log_size, rcond=None)[0]
    return float(max(0.0, 1 - (left @ left / (n - p)) / log_size.var(ddof=1)))
