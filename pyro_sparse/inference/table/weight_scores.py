"""What a prior says of fitted weights as they stand: a score of every edge, and whether it makes zeros."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import numpy as np
import torch

if TYPE_CHECKING:
    from ...models.base import FactorModel
    from ...models.sparse_decoder import SparseDecoder
    from ...priors import Prior

__all__ = ["has_zeros", "weight_scores"]


def has_zeros(prior: Prior, weights: torch.Tensor) -> bool:
    """Whether the prior sets weights to zero, and does not only make them small.

    Parameters
    ----------
    prior : Prior
    weights : Tensor
        Of any fit: their shape and type are what is asked for.
    """
    shrunk = prior.prox(torch.full_like(weights, 1e-9), 1.0)
    return shrunk is not None and bool((shrunk == 0).all())


@torch.no_grad()
def weight_scores(model: FactorModel) -> tuple[np.ndarray, np.ndarray]:
    """p* of every edge and eta of every factor; NaN where the prior has none.

    Of a prior that has zeros but no odds (a lasso) the score is 1 where a weight is not zero.

    Parameters
    ----------
    model : FactorModel
        Trained.

    Returns
    -------
    ndarray (restart, feature, factor)
    ndarray (restart, factor)
    """
    prior, weighted = getattr(model, "prior", None), cast("SparseDecoder", model)  # if there is a prior
    shape = (model.n_restarts, model.n_features, model.n_factors)
    odds = None if prior is None else prior.edge_log_odds(model.weights)
    score = np.full(shape, np.nan)
    if odds is not None:
        score = (torch.sigmoid(odds) * weighted.permitted).cpu().double().numpy()
    elif prior is not None and has_zeros(prior, weighted.weights):
        score = ((weighted.weights != 0) & weighted.permitted).cpu().double().numpy()
    eta = getattr(prior, "eta", None)
    if eta is None:
        return score, np.full((shape[0], shape[2]), np.nan)
    return score, eta.expand(shape[0], 1, shape[2])[:, 0].cpu().double().numpy().copy()
