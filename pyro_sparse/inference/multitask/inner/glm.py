r"""Lasso for yes-or-no targets and counts: proximal Newton steps, each a weighted lasso of all tasks at once.

.. math:: \min_{w, b}\; \frac{1}{n} \sum_i f(x_i^\top w + b;\, y_i) + \lambda \lVert w \rVert_1
          + \frac{\kappa}{2} \lVert w \rVert^2

with f the negative log-likelihood of a Bernoulli (log-odds) or a Poisson (log-rate), less its least value, so
that it is half the deviance. At the solution a Newton step leads nowhere, so its gradient is that of the last
weighted lasso with the working response held.
"""

from __future__ import annotations

import math
import warnings
from typing import NamedTuple

import torch
from torch import Tensor
from torch.special import xlogy

from .implicit import attach
from .lasso import check_penalty, solve
from .moments import moments, sample_weights

__all__ = ["FAMILIES", "Bernoulli", "Family", "GLMWeights", "Poisson", "half_deviance", "sparse_glm"]

_LEAST_VARIANCE = 1e-8  # the working response divides by it, and a mean at its bound has none
_LEAST_NULL = 1e-12  # counts that are all equal leave nothing to explain


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
        `weight` and `intercept` have gradients with respect to features, targets and the penalty.

    Raises
    ------
    ValueError
        An unknown family, targets it cannot have, a task with one class or no counts at all (its intercept
        is infinite), or what `sparse_weights` refuses.
    """
    if family not in FAMILIES:
        raise ValueError(f"family: want one of {sorted(FAMILIES)}, got {family!r}")
    if targets.dim() != 3 or targets.shape[-1] != 1:
        raise ValueError(f"targets: got {tuple(targets.shape)}, want (task, sample, 1)")
    if not 0 <= ridge < math.inf:
        raise ValueError(f"ridge: want finite and >= 0, got {ridge!r}")
    data = moments(features.detach(), targets.detach(), mask, weights)  # which also checks them
    lam = check_penalty(penalty, data)
    problem = _Problem(features.double(), targets.double(), FAMILIES[family], mask, weights, float(ridge))
    if start is not None and start.shape != data.moment.shape:
        raise ValueError(f"start: want shape {tuple(data.moment.shape)}, got {tuple(start.shape)}")
    w, b, gap, steps = problem.solve(lam.detach(), start, tol, max_steps, compiled)
    relative = gap / problem.null
    short = int((relative > tol).sum())
    if short:
        warnings.warn(
            f"{short} of {len(gap)} tasks did not converge in {max_steps} Newton steps: largest relative "
            f"duality gap {float(relative.max()):.2e}, wanted {tol:.2e}; raise the penalty or max_steps",
            RuntimeWarning,
            stacklevel=2,
        )
    w, b = problem.with_gradient(w, b, lam)
    return GLMWeights(w.to(data.dtype), b.to(data.dtype), gap, relative, steps)


class _Problem:
    """One batch of tasks, in float64, with what is masked set to values that do no harm."""

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
        self.family, self.ridge = family, ridge
        observed = self.share > 0
        self.x = torch.where(observed, features, features.new_zeros(()))
        filled = torch.where(observed, targets, targets.new_zeros(())).detach()
        average = (self.share * filled).sum(1, keepdim=True)
        self.y = torch.where(observed, targets, average)
        wanted = family.check(self.y[observed])
        if wanted:
            raise ValueError(f"targets: the {family.name} family wants values {wanted}")
        none = (family.variance(average)[:, 0, 0] <= 0).nonzero()[:, 0].tolist()
        if none:
            raise ValueError(
                f"targets: tasks {none[:5]} have one class only, or no counts at all; their intercept would "
                "be infinite, drop them"
            )
        with torch.no_grad():
            self.start_intercept = (average / (1 - average) if family.name == "bernoulli" else average).log()
            self.null = self._loss(self.start_intercept.expand_as(self.y)).clamp(min=_LEAST_NULL)

    def _loss(self, eta: Tensor) -> Tensor:
        return (self.share * half_deviance(self.family, eta, self.y)).sum((1, 2))

    def _objective(self, w: Tensor, b: Tensor, lam: Tensor) -> Tensor:
        size = (lam.unsqueeze(-1) * w.abs()).sum((1, 2)) + self.ridge / 2 * (w**2).sum((1, 2))
        return self._loss(self.x @ w + b) + size

    @torch.no_grad()
    def solve(
        self, lam: Tensor, start: Tensor | None, tol: float, max_steps: int, compiled: bool | None
    ) -> tuple[Tensor, Tensor, Tensor, int]:
        """Weights, intercepts, gaps, and the Newton steps that were taken."""
        x, y, share = self.x, self.y, self.share
        w = x.new_zeros(x.shape[0], x.shape[2], 1) if start is None else start.to(x).clone()
        b = self._centre(w, self.start_intercept.clone())
        now = self._objective(w, b, lam)
        gap, step = self._gap(w, b, lam, now), 0
        while step < max_steps and bool((gap > tol * self.null).any()):
            step += 1
            eta = x @ w + b
            mean = self.family.mean(eta)
            variance = self.family.variance(mean).clamp(min=_LEAST_VARIANCE)
            mass = (share * variance).sum(1)
            data = moments(x, eta + (y - mean) / variance, weights=(share * variance)[..., 0])
            solution = solve(data, lam / mass, self.ridge / mass[:, 0], w, 1e-12, 10_000, compiled)[0]
            to_w, to_b = solution - w, data.intercept(solution).unsqueeze(1) - b
            scale = torch.ones_like(b)
            for _ in range(40):
                after = self._objective(w + scale * to_w, b + scale * to_b, lam)
                worse = ~(after <= now + 1e-14 * now.abs())
                if not bool(worse.any()):
                    break
                scale = torch.where(worse.reshape(-1, 1, 1), scale / 2, scale)
            w, b = torch.where(scale == 1, solution, w + scale * to_w), b + scale * to_b
            b = self._centre(w, b)
            now = self._objective(w, b, lam)
            gap = self._gap(w, b, lam, now)
        return w, b[:, 0], gap, step

    def _centre(self, w: Tensor, b: Tensor) -> Tensor:
        """The intercept at which the residuals add up to nothing: the dual point needs it."""
        eta = self.x @ w
        for _ in range(50):
            mean = self.family.mean(eta + b)
            pull = (self.share * (self.y - mean)).sum(1, keepdim=True)
            bend = (self.share * self.family.variance(mean)).sum(1, keepdim=True)
            # Where the mean is nearly flat Newton's own step is far too long.
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
            scale = torch.where(pull > lam, lam / pull, torch.ones_like(pull)).amin(1)
            over = torch.zeros_like(primal)
        shifted = scale.reshape(-1, 1, 1) * (mean - self.y) + self.y
        conjugate = self.family.conjugate(shifted) - self.family.conjugate(self.y)
        dual = -(self.share * conjugate).sum((1, 2)) - over
        return (primal - dual).clamp(min=0)

    def with_gradient(self, w: Tensor, b: Tensor, lam: Tensor) -> tuple[Tensor, Tensor]:
        """The solution, with its gradient by the implicit function theorem, the intercept's included."""
        if not (self.x.requires_grad or self.y.requires_grad or lam.requires_grad):
            return w, b
        mean = self.family.mean(self.x @ w + b.unsqueeze(1))
        with torch.no_grad():
            curved = self.share * self.family.variance(mean)
            bend = curved.sum(1)  # (task, 1)
            centre = (curved * self.x).sum(1) / bend
            away = self.x - centre.unsqueeze(1)
            curvature = (curved * away).mT @ away
            curvature.diagonal(dim1=1, dim2=2).add_(self.ridge)
        error = self.share * (mean - self.y)
        drift = error.sum(1)
        residual = self.x.mT @ error - centre.unsqueeze(-1) * drift.unsqueeze(-1)
        residual = residual + self.ridge * w + lam.unsqueeze(-1) * w.sign()
        solution = attach(w, residual, curvature, (w != 0)[..., 0])
        moved = (drift - drift.detach()) / bend + (centre.unsqueeze(1) @ (solution - w))[:, 0]
        return solution, b - moved
