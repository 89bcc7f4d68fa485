r"""What a squared loss needs of each task: Gram matrix, moments and square of the (centred) samples.

.. math:: \frac{1}{2n}\lVert y - FW - 1b^\top \rVert_F^2 = \tfrac12 \langle W, GW \rangle - \langle Q, W \rangle
          + \tfrac12 s, \qquad G = F^\top D F,\; Q = F^\top D Y,\; s = \lVert Y \rVert_D^2

after both are centred by their weighted means; D = diag(weights), adding up to one in every task. Ragged tasks
are padded, and padding weighs nothing. The moments themselves carry no gradient: solvers need them only to
find W, and `residual` says what F and Y have to do with it, at the price of two products with a vector.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

__all__ = ["Moments", "moments", "sample_weights"]


class Moments(NamedTuple):
    """Moments of each task, and the centred samples they are of.

    Attributes
    ----------
    gram : Tensor (task, feature, feature)
    moment : Tensor (task, feature, output)
    square : Tensor (task,)
        Of all outputs together.
    features : Tensor (task, sample, feature)
        Centred; 0 where masked.
    targets : Tensor (task, sample, output)
        Centred; 0 where masked.
    share : Tensor (task, sample, 1)
        Weights, adding up to one in every task.
    centre : Tensor (task, feature)
        Weighted means of the features (0 without intercept).
    target_centre : Tensor (task, output)
        Weighted means of the targets (0 without intercept).
    """

    gram: Tensor
    moment: Tensor
    square: Tensor
    features: Tensor
    targets: Tensor
    share: Tensor
    centre: Tensor
    target_centre: Tensor

    def residual(self, weight: Tensor) -> Tensor:
        """G W - Q, shape (task, feature, output), differentiable in features and targets."""
        return self.features.mT @ (self.share * (self.features @ weight - self.targets))

    def intercept(self, weight: Tensor) -> Tensor:
        """The intercepts that belong to weights (task, feature, output): (task, output)."""
        return self.target_centre - (self.centre.unsqueeze(1) @ weight)[:, 0]


def sample_weights(features: Tensor, mask: Tensor | None = None, weights: Tensor | None = None) -> Tensor:
    """Weights of the samples, adding up to one in every task.

    Parameters
    ----------
    features : Tensor (task, sample, feature)
    mask : Tensor of bool (task, sample), optional
        False where a sample is padding or its target is missing.
    weights : Tensor (task, sample), optional
        At least 0; default equal.

    Returns
    -------
    Tensor (task, sample)

    Raises
    ------
    ValueError
        A weight is negative, a shape does not fit, or a task has no weight at all.
    """
    shape = features.shape[:2]
    own = features.new_ones(shape) if weights is None else weights.to(features)
    for name, given in (("mask", mask), ("weights", weights)):
        if given is not None and given.shape != shape:
            raise ValueError(f"{name}: got shape {tuple(given.shape)}, want (task, sample) {tuple(shape)}")
    if not bool((own >= 0).all()):
        raise ValueError(f"weights: want all >= 0, the least is {float(own.min())}")
    if mask is not None:
        own = own * mask
    total = own.sum(1, keepdim=True)
    if not bool((total > 0).all()):
        empty = (total[:, 0] <= 0).nonzero()[:, 0].tolist()
        raise ValueError(f"tasks {empty[:5]} have no sample with a target; drop them")
    return own / total


def moments(
    features: Tensor,
    targets: Tensor,
    mask: Tensor | None = None,
    weights: Tensor | None = None,
    intercept: bool = True,
) -> Moments:
    """Gram matrix, moments and square of every task.

    Parameters
    ----------
    features : Tensor (task, sample, feature)
    targets : Tensor (task, sample, output)
    mask : Tensor of bool (task, sample), optional
        False where a sample is padding or its target is missing (then its values do not matter).
    weights : Tensor (task, sample), optional
        Of the samples; only their ratios within a task matter.
    intercept : bool
        Centre features and targets in each task.

    Returns
    -------
    Moments

    Raises
    ------
    ValueError
        Shapes do not fit, or a task has no sample.
    """
    if features.dim() != 3 or targets.dim() != 3 or features.shape[:2] != targets.shape[:2]:
        raise ValueError(
            f"features {tuple(features.shape)} and targets {tuple(targets.shape)}: want (task, sample, feature) "
            "and (task, sample, output)"
        )
    share = sample_weights(features, mask, weights).unsqueeze(-1)
    if mask is not None:
        features = torch.where(mask.unsqueeze(-1), features, features.new_zeros(()))
        targets = torch.where(mask.unsqueeze(-1), targets, targets.new_zeros(()))
    if intercept:
        centre, target_centre = (share.mT @ features)[:, 0], (share.mT @ targets)[:, 0]
        features, targets = features - centre.unsqueeze(1), targets - target_centre.unsqueeze(1)
    else:
        centre, target_centre = features.new_zeros(features.shape[::2]), targets.new_zeros(targets.shape[::2])
    with torch.no_grad():
        weighted = share * targets
        moment, square = features.mT @ weighted, (weighted * targets).sum((1, 2))
        if mask is None and weights is None:
            gram = (features.mT @ features).div_(features.shape[1])
        else:
            gram = (share * features).mT @ features
    return Moments(gram, moment, square, features, targets, share, centre, target_centre)
