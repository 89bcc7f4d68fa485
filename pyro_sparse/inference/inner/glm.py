r"""Lasso for yes-or-no targets and counts: proximal Newton steps, each a weighted lasso of all tasks at once.

.. math:: \min_{w, b}\; \frac{1}{n} \sum_i f(x_i^\top w + b;\, y_i) + \lambda \lVert w \rVert_1
          + \frac{\kappa}{2} \lVert w \rVert^2

with f the negative log-likelihood of a Bernoulli (log-odds) or a Poisson (log-rate), less its least value, so
that it is half the deviance. At the solution a Newton step leads nowhere, so its gradient is that of the last
weighted lasso with the working response held.
"""

from __future__ import annotations

import warnings
from typing import NamedTuple

import torch
from torch import Tensor
from torch.special import xlogy

from .implicit import attach
from .lasso import sparse_weights
from .moments import moments, sample_weights

__all__ = ["FAMILIES", "Bernoulli", "Family", "GLMWeights", "Poisson", "half_deviance", "sparse_glm"]

_LEAST_VARIANCE = 1e-8


class Family:
    """A likelihood with its canonical link: mean, variance, negative log-likelihood and its conjugate."""

    name: str

    def mean(self, eta: Tensor) -> Tensor:
        """Expected target at linear predictor `eta`."""
        raise NotImplementedError

    def variance(self, mean: Tensor) -> Tensor:
        """Derivative of the mean by the linear predictor."""
        raise NotImplementedError

    def loss(self, eta: Tensor, y: Tensor) -> Tensor:
        """Negative log-likelihood, less a function of `y`."""
        raise NotImplementedError

    def conjugate(self, mean: Tensor) -> Tensor:
        """Convex conjugate of the cumulant, at a mean: the loss of `y` is at least -conjugate(y)."""
        raise NotImplementedError

    def check(self, y: Tensor) -> str:
        """What is wrong with targets, or nothing."""
        raise NotImplementedError


class Bernoulli(Family):
    """Targets 0 or 1, log-odds linear."""

    name = "bernoulli"

    def mean(self, eta: Tensor) -> Tensor:
        """Probability of a one."""
        return torch.sigmoid(eta)

    def variance(self, mean: Tensor) -> Tensor:
        """p (1 - p)."""
        return mean * (1 - mean)

    def loss(self, eta: Tensor, y: Tensor) -> Tensor:
        """log(1 + exp(eta)) - y eta."""
        return torch.nn.functional.softplus(eta) - y * eta

    def conjugate(self, mean: Tensor) -> Tensor:
        """Negative entropy."""
        return xlogy(mean, mean) + xlogy(1 - mean, 1 - mean)

    def check(self, y: Tensor) -> str:
        """Targets must be 0 or 1."""
        return "" if bool(((y == 0) | (y == 1)).all()) else "0 or 1"


class Poisson(Family):
    """Counts, log-rate linear."""

    name = "poisson"

    def mean(self, eta: Tensor) -> Tensor:
        """The rate."""
        return eta.exp()

    def variance(self, mean: Tensor) -> Tensor:
        """Equal to the rate."""
        return mean

    def loss(self, eta: Tensor, y: Tensor) -> Tensor:
        """exp(eta) - y eta."""
        return eta.exp() - y * eta

    def conjugate(self, mean: Tensor) -> Tensor:
        """m log m - m."""
        return xlogy(mean, mean) - mean

    def check(self, y: Tensor) -> str:
        """Targets must not be negative."""
        return "" if bool((y >= 0).all()) else ">= 0"


FAMILIES: dict[str, Family] = {family.name: family for family in (Bernoulli(), Poisson())}


class GLMWeights(NamedTuple):
    """Solutions of one batch of tasks.

    Attributes
    ----------
    weight : Tensor (task, feature, 1)
        With exact zeros.
    intercept : Tensor (task, 1)
    gap : Tensor (task,)
        Primal minus dual value.
    relative_gap : Tensor (task,)
        The gap in units of the objective of the intercept alone.
    steps : int
        Newton steps, of the slowest task.
    """

    weight: Tensor
    intercept: Tensor
    gap: Tensor
    relative_gap: Tensor
    steps: int

    @property
    def active(self) -> Tensor:
        """True where a feature is used, shape (task, feature)."""
        return self.weight[..., 0] != 0


def half_deviance(family: Family, eta: Tensor, y: Tensor) -> Tensor:
    """Negative log-likelihood above its least value for each target; at least 0.

    Parameters
    ----------
    family : Family
    eta, y : Tensor
        Linear predictors and targets, of one shape.
    """
    return family.loss(eta, y) + family.conjugate(y)


def sparse_glm(
    features: Tensor,
    targets: Tensor,
    penalty: float | Tensor,
    family: str = "bernoulli",
    ridge: float = 0.0,
    *,
    mask: Tensor | None = None,
    weights: Tensor | None = None,
    start: Tensor | None = None,
    tol: float = 1e-8,
    max_steps: int = 100,
    compiled: bool | None = None,
) -> GLMWeights:
    r"""Minimise the penalised negative log-likelihood of every task, with an intercept.

    Parameters
    ----------
    features : Tensor (task, sample, feature)
    targets : Tensor (task, sample, 1)
    penalty : float or Tensor
        :math:`\lambda > 0`, shape (), (task,) or (task, feature). The largest useful one is
        ``largest_penalty(moments(features, targets, mask, weights))``, as for a squared loss.
    family : {"bernoulli", "poisson"}
    ridge : float
        :math:`\kappa \ge 0`.
    mask : Tensor of bool (task, sample), optional
        False where a sample is padding or its target is missing.
    weights : Tensor (task, sample), optional
    start : Tensor (task, feature, 1), optional
        Weights to begin at.
    tol : float
        Largest relative duality gap.
    max_steps : int
        Newton steps; what has not converged then is said in a warning.
    compiled : bool, optional
        As in `sparse_weights`.

    Returns
    -------
    GLMWeights
        `weight` and `intercept` have gradients with respect to features and the penalty.

    Raises
    ------
    ValueError
        An unknown family, targets it cannot have, a task with one class or no counts at all (its intercept
        is infinite), or what `sparse_weights` refuses.
    """
    if family not in FAMILIES:
        raise ValueError(f"family: want one of {sorted(FAMILIES)}, got {family!r}")
    if targets.dim() != 3 or targets.shape[-1] != 1 or features.shape[:2] != targets.shape[:2]:
        raise ValueError(
            f"targets: got {tuple(targets.shape)}, want (task, sample, 1) for features {tuple(features.shape)}"
        )
    problem = _Problem(features, targets, FAMILIES[family], mask, weights, ridge)
    lam = torch.as_tensor(penalty, dtype=features.dtype, device=features.device)
    lam = (lam.unsqueeze(1) if lam.dim() == 1 else lam).expand(features.shape[0], features.shape[2])
    with torch.no_grad():
        w, b, gap, steps = problem.solve(lam.detach(), start, tol, max_steps, compiled)
    relative = gap / problem.null.clamp(min=torch.finfo(features.dtype).tiny)
    short = relative > tol
    if bool(short.any()):
        warnings.warn(
            f"{int(short.sum())} of {len(gap)} tasks did not converge in {max_steps} Newton steps: largest relative "
            f"duality gap {float(relative.max()):.2e}, wanted {tol:.2e}; raise the penalty or max_steps",
            RuntimeWarning,
            stacklevel=2,
        )
    w, b = problem.with_gradient(w, b, lam)
    return GLMWeights(w, b, gap, relative, steps)


class _Problem:
    def __init__(
        self,
        features: Tensor,
        targets: Tensor,
        family: Family,
        mask: Tensor | None,
        weights: Tensor | None,
        ridge: float,
    ):
        self.share = sample_weights(features, mask, weights).unsqueeze(-1)
        seen = self.share > 0
        self.x = torch.where(seen, features, features.new_zeros(()))
        average = (self.share * torch.where(seen, targets, targets.new_zeros(()))).sum(1, keepdim=True)
        self.y = torch.where(seen, targets, average)
        wrong = family.check(self.y[seen])
        if wrong:
            raise ValueError(f"targets: the {family.name} family wants values {wrong}")
        self.family, self.ridge = family, float(ridge)
        if self.ridge < 0:
            raise ValueError(f"ridge: want >= 0, got {ridge!r}")
        spread = family.variance(average)
        if bool((spread <= 0).any()):
            which = (spread[:, 0, 0] <= 0).nonzero()[:, 0].tolist()
            raise ValueError(
                f"targets: tasks {which[:5]} have one class only, or no counts at all; their intercept would be "
                "infinite, drop them"
            )
        with torch.no_grad():
            self.start_intercept = (average / (1 - average) if family.name == "bernoulli" else average).log()
            self.null = self._loss(self.start_intercept.expand_as(self.y))

    def _loss(self, eta: Tensor) -> Tensor:
        return (self.share * half_deviance(self.family, eta, self.y)).sum((1, 2))

    def _objective(self, w: Tensor, b: Tensor, lam: Tensor) -> Tensor:
        size = (lam.unsqueeze(-1) * w.abs()).sum((1, 2)) + self.ridge / 2 * (w**2).sum((1, 2))
        return self._loss(self.x @ w + b) + size

    def solve(
        self, lam: Tensor, start: Tensor | None, tol: float, max_steps: int, compiled: bool | None
    ) -> tuple[Tensor, Tensor, Tensor, int]:
        x, y, share = self.x, self.y, self.share
        w = torch.zeros(x.shape[0], x.shape[2], 1).to(x) if start is None else start.to(x).clone()
        b = self._centre(w, self.start_intercept.clone())
        now = self._objective(w, b, lam)
        for step in range(1, max_steps + 1):
            eta = x @ w + b
            mean = self.family.mean(eta)
            variance = self.family.variance(mean).clamp(min=_LEAST_VARIANCE)
            mass = (share * variance).sum(1)
            data = moments(x, eta + (y - mean) / variance, weights=(share * variance)[..., 0])
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", RuntimeWarning)
                found = sparse_weights(
                    data, lam / mass, self.ridge / mass[:, 0], start=w, tol=1e-12, compiled=compiled
                ).weight
            to_w, to_b = found - w, data.intercept(found).unsqueeze(1) - b
            scale = torch.ones_like(mass).unsqueeze(-1)
            for _ in range(40):
                after = self._objective(w + scale * to_w, b + scale * to_b, lam)
                worse = ~(after <= now + 1e-14 * now.abs())
                if not bool(worse.any()):
                    break
                scale = torch.where(worse.reshape(-1, 1, 1), scale / 2, scale)
            w, b = torch.where(scale == 1, found, w + scale * to_w), b + scale * to_b
            b = self._centre(w, b)
            now = self._objective(w, b, lam)
            gap = self._gap(w, b, lam, now)
            if bool((gap <= tol * self.null).all()):
                break
        return w, b[:, 0], gap, step

    def _centre(self, w: Tensor, b: Tensor) -> Tensor:
        """The intercept at which the residuals add up to nothing: the dual point needs it."""
        eta = self.x @ w
        for _ in range(50):
            mean = self.family.mean(eta + b)
            pull = (self.share * (self.y - mean)).sum(1, keepdim=True)
            bend = (self.share * self.family.variance(mean)).sum(1, keepdim=True)
            b = b + (pull / bend.clamp(min=1e-12)).clamp(-2, 2)
            if bool((pull.abs() <= 1e-14 * (1 + self.y.abs().amax())).all()):
                break
        return b

    def _gap(self, w: Tensor, b: Tensor, lam: Tensor, primal: Tensor) -> Tensor:
        mean = self.family.mean(self.x @ w + b)
        pull = (self.x.mT @ (self.share * (self.y - mean)))[..., 0].abs()
        if self.ridge > 0:
            scale = torch.ones_like(primal)
            over = ((pull - lam).clamp(min=0) ** 2).sum(1) / (2 * self.ridge)
        else:
            scale = torch.where(pull > lam, lam / pull.clamp(min=1e-300), torch.ones_like(pull)).amin(1)
            over = torch.zeros_like(primal)
        shifted = scale.reshape(-1, 1, 1) * (mean - self.y) + self.y
        conjugate = self.family.conjugate(shifted) - self.family.conjugate(self.y)
        dual = -(self.share * conjugate).sum((1, 2)) - over
        return (primal - dual).clamp(min=0)

    def with_gradient(self, w: Tensor, b: Tensor, lam: Tensor) -> tuple[Tensor, Tensor]:
        if not (self.x.requires_grad or lam.requires_grad):
            return w, b
        with torch.no_grad():
            variance = self.family.variance(self.family.mean(self.x @ w + b.unsqueeze(1)))
            bend = (self.share * variance).sum(1)  # (task, 1)
            centre = (self.share * variance * self.x).sum(1) / bend
            away = self.x - centre.unsqueeze(1)
            curvature = (self.share * variance * away).mT @ away
            curvature.diagonal(dim1=1, dim2=2).add_(self.ridge)
        error = self.share * (self.family.mean(self.x @ w + b.unsqueeze(1)) - self.y)
        drift = error.sum(1)
        residual = self.x.mT @ error - centre.unsqueeze(-1) * drift.unsqueeze(-1)
        residual = residual + self.ridge * w + lam.unsqueeze(-1) * w.sign()
        found = attach(w, residual, curvature, (w != 0)[..., 0])
        moved = (drift - drift.detach()) / bend + (centre.unsqueeze(1) @ (found - w))[:, 0]
        return found, b - moved
