r"""What a squared loss needs of each task: Gram matrix, moments and square of the (centred) samples.

.. math:: \frac{1}{2n}\lVert y - FW - 1b^\top \rVert_F^2
          = \tfrac12 \langle W, GW \rangle - \langle Q, W \rangle + \tfrac12 s,
          \qquad G = F^\top D F,\; Q = F^\top D Y,\; s = \lVert Y \rVert_D^2

after both are centred by their weighted means; D = diag(weights), adding up to one in every task. Ragged
tasks are padded, and padding weighs nothing. The moments themselves carry no gradient: solvers need them only
to find W, and `residual` says what F and Y have to do with it, at the price of two products with a vector.
All is in float64, whatever comes in: residuals much smaller than the targets are differences of moments.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from .implicit import GradientContext

__all__ = ["Moments", "moments", "sample_weights"]

_CONSTANT = 1e-13  # standard deviation, in units of the mean, that is rounding only


class Moments(NamedTuple):
    """Moments of each task, and the centred samples they are of, in float64.

    Attributes
    ----------
    gram : Tensor (task, feature, feature)
    moment : Tensor (task, feature, output)
    square : Tensor (task,)
        Of all outputs together.
    features : Tensor (task, sample, feature)
        Centred; what is masked has no weight.
    targets : Tensor (task, sample, output)
        Centred.
    share : Tensor (task, sample, 1)
        Weights, adding up to one in every task.
    centre : Tensor (task, feature)
        Weighted means of the features (0 without intercept).
    target_centre : Tensor (task, output)
        Weighted means of the targets (0 without intercept).
    given : (Tensor, Tensor)
        Features and targets before they were centred, 0 where masked.
    dtype : torch.dtype
        Of the features that were given, and of the weights that solvers return.
    """

    gram: Tensor
    moment: Tensor
    square: Tensor
    features: Tensor
    targets: Tensor
    share: Tensor
    centre: Tensor
    target_centre: Tensor
    given: tuple[Tensor, Tensor]
    dtype: torch.dtype

    def residual(self, weight: Tensor) -> Tensor:
        """G W - Q, shape (task, feature, output), differentiable in features, targets and W."""
        return _Residual.apply(*self.given, weight, self)

    def intercept(self, weight: Tensor) -> Tensor:
        """The intercepts that belong to weights (task, feature, output): (task, output)."""
        return (self.target_centre - (self.centre.unsqueeze(1) @ weight.to(self.centre))[:, 0]).to(weight)


class _Residual(torch.autograd.Function):
    """The gradient with respect to centred samples adds up to nothing: it is that of the given ones, too."""

    @staticmethod
    def forward(
        ctx: GradientContext, features: Tensor, targets: Tensor, weight: Tensor, data: Moments
    ) -> Tensor:
        ctx.save_for_backward(weight, data.gram, data.features, data.targets, data.share)
        return data.gram @ weight - data.moment

    @staticmethod
    @once_differentiable
    def backward(ctx: GradientContext, grad: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:
        weight, gram, features, targets, share = ctx.saved_tensors
        fitted, along = (features @ torch.cat([weight, grad], -1)).tensor_split(2, -1)
        of_targets = -share * along
        left = torch.cat([share * (fitted - targets), -of_targets], -1)
        return left @ torch.cat([grad, weight], -1).mT, of_targets, gram @ grad, None


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
        A weight is negative or not finite, a shape does not fit, a mask is not bool, or a task has no weight.
    """
    shape = features.shape[:2]
    for name, tensor in (("mask", mask), ("weights", weights)):
        if tensor is not None and tensor.shape != shape:
            raise ValueError(f"{name}: got shape {tuple(tensor.shape)}, want (task, sample) {tuple(shape)}")
    if mask is not None and mask.dtype != torch.bool:
        raise ValueError(f"mask: want bool, True where there is a target, got {mask.dtype}; use mask > 0")
    raw = features.new_ones(shape) if weights is None else weights.to(features)
    if weights is not None and not bool(((raw >= 0) & raw.isfinite()).all()):
        raise ValueError(
            f"weights: want finite and >= 0, got {float(raw.min())} to {float(raw.max())}; mask what has none"
        )
    if mask is not None:
        raw = raw * mask
    total = raw.sum(1, keepdim=True)
    if not bool((total > 0).all()):
        empty = (total[:, 0] <= 0).nonzero()[:, 0].tolist()
        raise ValueError(f"tasks {empty[:5]} have no sample with a target; drop them")
    return raw / total


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
        Shapes do not fit, a task has no sample, or a sample that is not masked is not finite.
    """
    if (
        features.dim() != 3
        or targets.dim() != 3
        or features.shape[:2] != targets.shape[:2]
        or 0 in (features.shape[2], targets.shape[2])
    ):
        raise ValueError(
            f"features {tuple(features.shape)} and targets {tuple(targets.shape)}: want (task, sample, "
            "feature) and (task, sample, output), with at least one feature and output"
        )
    dtype = features.dtype if features.is_floating_point() else torch.float64
    features, targets = features.to(torch.float64), targets.to(torch.float64)
    share = sample_weights(features, mask, weights).unsqueeze(-1)
    if mask is not None:
        features = torch.where(mask.unsqueeze(-1), features, features.new_zeros(()))
        targets = torch.where(mask.unsqueeze(-1), targets, targets.new_zeros(()))
    raw = features, targets
    if intercept:
        centre, target_centre = (share.mT @ features)[:, 0], (share.mT @ targets)[:, 0]
        features, targets = features - centre.unsqueeze(1), targets - target_centre.unsqueeze(1)
    else:
        centre, target_centre = features.new_zeros(features.shape[::2]), targets.new_zeros(targets.shape[::2])
    even = None if mask is not None or weights is not None else 1 / features.shape[1]
    gram, moment, spread = _products(features, targets, share, even)
    _check_finite(gram, spread)
    flat = _rounding_only(gram.diagonal(dim1=1, dim2=2), centre), _rounding_only(spread, target_centre)
    if bool(flat[0].any() | flat[1].any()):
        # exactly zero, with the gradient they have
        features = torch.where(flat[0].unsqueeze(1), features - features.detach(), features)
        targets = torch.where(flat[1].unsqueeze(1), targets - targets.detach(), targets)
        gram, moment, spread = _products(features, targets, share, even)
    return Moments(gram, moment, spread.sum(1), features, targets, share, centre, target_centre, raw, dtype)


@torch.no_grad()
def _products(
    features: Tensor, targets: Tensor, share: Tensor, even: float | None
) -> tuple[Tensor, Tensor, Tensor]:
    """Gram matrix, moments, and the variance of each output."""
    weighted = share * targets
    if even is None:
        gram = (share * features).mT @ features
    else:  # without a second pass over it
        gram = torch.baddbmm(features.new_zeros(1, 1, 1), features.mT, features, beta=0, alpha=even)
    return gram, features.mT @ weighted, (weighted * targets).sum(1)


def _rounding_only(variance: Tensor, centre: Tensor) -> Tensor:
    """Whether a column is constant, and what is left of it after centring is rounding."""
    return (variance > 0) & (variance <= (_CONSTANT * centre.detach()) ** 2)


def _check_finite(gram: Tensor, spread: Tensor) -> None:
    squares = gram.diagonal(dim1=1, dim2=2)
    if bool((squares.sum() + spread.sum()).isfinite()):
        return
    for name, sums in (("features", squares), ("targets", spread)):
        bad = (~sums.isfinite()).any(1).nonzero()[:, 0].tolist()
        if bad:
            raise ValueError(
                f"{name}: tasks {bad[:5]} have values that are NaN, infinite or too large to square; mask a "
                "sample whose target is missing"
            )
