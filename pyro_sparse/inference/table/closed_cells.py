"""Log densities of cells in the layout of models, by the closed forms that likelihoods have for chains."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ..._utils.declared import keeps

if TYPE_CHECKING:
    from ...data.table import Batch
    from ...likelihoods import Likelihood

__all__ = ["cell_sums", "closed_terms"]


def closed_terms(likelihood: Likelihood, batch: Batch, f: Tensor, order: int) -> tuple[Tensor, ...] | None:
    """`Likelihood.cell_terms`, transposed; 0 where a cell is missing.

    Parameters
    ----------
    likelihood : Likelihood
        Set up.
    batch : Batch
        Rows.
    f : Tensor (any, restart, row, feature)
        Linear predictors.
    order : int
        0, 1 or 2: how many derivatives.

    Returns
    -------
    tuple of Tensor (any, restart, row, feature), or None
        Log density up to what f does not move, its slope, minus its curvature; None where a likelihood has
        no closed form.
    """
    if not keeps(likelihood, "cell terms"):
        return None
    f, x = f.mT, batch.x.mT.unsqueeze(0)
    per_row = {name: values.mT for name, values in batch.per_row.items()}
    if order > 0 and not torch.is_grad_enabled():  # compiled forms want rows side by side
        f, x = f.contiguous(), x.contiguous().to(f)
    if likelihood.has_dispersion:
        dispersion = likelihood.dispersion()
    else:
        dispersion = torch.ones(f.shape[-3:-1], dtype=f.dtype, device=f.device)
    terms = likelihood.cell_terms(f, x, dispersion, per_row, order)
    if terms is None:
        return None
    back = (term.mT for term in terms)
    return tuple(back) if batch.mask is None else tuple(term * batch.mask for term in back)


def cell_sums(likelihood: Likelihood, batch: Batch, f: Tensor) -> Tensor | None:
    """Log densities of rows up to what f does not move, (restart, draw, row), or None as `closed_terms`.

    Cells that share out their row's total have no density of their own.

    Parameters
    ----------
    likelihood : Likelihood
        Set up.
    batch : Batch
        Rows.
    f : Tensor (restart, draw, row, feature)
        Linear predictors.
    """
    if not likelihood.separable:
        return None
    terms = closed_terms(likelihood, batch, f.transpose(0, 1), 0)
    return None if terms is None else terms[0].sum(-1).transpose(0, 1)
