r"""Ridge regression of many tasks at once: :math:`W = (G + \kappa I)^{-1} Q`, differentiable.

Without a ridge, or with fewer samples than features, a singular task gets its shortest least-squares solution.
"""

from __future__ import annotations

import torch
from torch import Tensor

from .implicit import attach, solve_active
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
        The ridge is negative or has another shape.
    """
    kappa = torch.as_tensor(ridge, dtype=data.gram.dtype, device=data.gram.device)
    if not bool((kappa >= 0).all()) or kappa.dim() > 1:
        raise ValueError(f"ridge: want >= 0, shape () or (task,), got {ridge!r}")
    with torch.no_grad():
        curvature = data.gram.clone()
        curvature.diagonal(dim1=1, dim2=2).add_(kappa.reshape(-1, 1))
        everywhere = torch.ones(data.moment.shape[:2], dtype=torch.bool, device=data.gram.device)
        weight = solve_active(curvature, data.moment, everywhere)
    return attach(weight, data.residual(weight) + kappa.reshape(-1, 1, 1) * weight, curvature, everywhere)
