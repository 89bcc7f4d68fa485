r"""Ridge regression of many tasks at once: :math:`W = (G + \kappa I)^{-1} Q`, differentiable.

Without a ridge a singular task (fewer samples than features, say) gets its shortest least-squares solution.
"""

from __future__ import annotations

import torch
from torch import Tensor

from .implicit import attach, solve_active
from .lasso import check_ridge
from .moments import Moments

__all__ = ["ridge_weights"]


def ridge_weights(data: Moments, ridge: float | Tensor = 0.0) -> Tensor:
    r"""Minimise :math:`\frac12\langle W, (G+\kappa I)W\rangle - \langle Q, W\rangle` in every task.

    Parameters
    ----------
    data : Moments
    ridge : float or Tensor
        :math:`\kappa \ge 0`, shape () or (task,).

    Returns
    -------
    Tensor (task, feature, output)
        With gradients with respect to features, targets and the ridge.

    Raises
    ------
    ValueError
        The ridge is negative, not finite, or has another shape.
    """
    kappa = check_ridge(ridge, data)
    with torch.no_grad():
        curvature = data.gram.clone()
        curvature.diagonal(dim1=1, dim2=2).add_(kappa.reshape(-1, 1))
        everywhere = torch.ones(data.moment.shape[:2], dtype=torch.bool, device=data.gram.device)
        weight = solve_active(curvature, data.moment, everywhere)
    residual = data.residual(weight) + kappa.reshape(-1, 1, 1) * weight
    return attach(weight, residual, curvature, everywhere).to(data.dtype)
