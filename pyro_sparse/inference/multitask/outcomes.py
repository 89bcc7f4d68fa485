r"""Regressions of outcomes that are not normal, all tasks at once: Newton's method on their likelihood.

.. math:: \max_{w_t, b_t}\; \sum_i \log p(y_{ti} \mid F_{ti} w_t + b_t) + \log p(w_t) + \log N(b_t; 0, s^2)

with a normal prior of the weights while the representation is learned, and the spike-and-slab lasso after.
Every step is a weighted least-squares problem, solved by what solves those of normal outcomes, and halved
where it does not gain. The gradient of the representation is that of the likelihood at the mode, for there
what the weights do to the objective vanishes.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple, TypeAlias, cast

import torch
from torch import Tensor
from torch.nn.functional import pad

from ..._utils.declared import keeps
from ..._utils.optimisers import eager
from ..._utils.torch_state import undisturbed
from ...data.tasks import TaskBatch
from ...likelihoods import Likelihood
from ...likelihoods.base import NOTHING
from ...models.multitask import INTERCEPT_SD
from ...priors.em import edge_log_odds
from .inner import moments, ridge_weights, sparse_weights
from .inner.ssl import ssl_sweeps
from .task_means import weighted_mean

if TYPE_CHECKING:
    from ...models.multitask import MultiTaskRegression
    from ...priors import SpikeSlabPrior

__all__ = [
    "OutcomeWeights",
    "centred",
    "dense_gain",
    "dense_model",
    "dense_weights",
    "dispersion",
    "left_out_ratio",
    "levels_given",
    "likelihood_step",
    "outcome_loss",
    "outcome_mode_step",
    "present",
]

_SLAB_PRECISION = 0.5  # of the normal with the variance of a Laplace slab of rate 1
_FLAT = 0.1  # least curvature, in units of the slope: beyond, Newton's own step is far too long
_HALVINGS = 12
_STILL = 1e-6  # move of a predictor at which Newton's method has arrived
_STEPS = 20  # of the optimiser of a likelihood's parameters
_MOST_RATIO = 1e6  # of a left-out error

# Log density of weights (task, latent) up to a constant, (task,).
LogPrior: TypeAlias = Callable[[Tensor], Tensor]


class OutcomeWeights(NamedTuple):
    """Weights (task, latent), and predictors (task,) where the latents have their task's mean."""

    weight: Tensor
    level: Tensor


def present(batch: TaskBatch) -> Tensor:
    """Where there is a sample with an outcome, bool (task, sample)."""
    return torch.ones_like(batch.y, dtype=torch.bool) if batch.mask is None else batch.mask


def centred(raw: Tensor, observed: Tensor) -> Tensor:
    """Latents (task, sample, latent) less their task's mean, 0 where nothing was observed."""
    share = (observed / observed.sum(1, keepdim=True)).unsqueeze(-1).to(raw)
    return (raw - (share * raw).sum(1, keepdim=True)) * observed.unsqueeze(-1)


class _Outcomes:
    """Outcomes of some tasks under their likelihood, restricted to these: log density, slope, curvature."""

    def __init__(self, model: MultiTaskRegression, batch: TaskBatch, observed: Tensor):
        likelihood = cast("Likelihood", model.likelihood)
        restricted = likelihood.of_features(batch.index)
        if restricted is None:
            raise ValueError(
                f"likelihood: {type(likelihood).__name__} has parameters and no of_features, so that tasks "
                "cannot be solved by themselves; write it (see Likelihood.of_features)"
            )
        self.likelihood, self.observed = restricted, observed
        self.y = torch.where(observed, batch.y, torch.full_like(batch.y, likelihood.filler)).double()
        self.closed = keeps(restricted, "cell terms")
        if self.closed and restricted.has_dispersion:
            self.dispersion = restricted.dispersion().detach().double()
        else:
            self.dispersion = torch.zeros_like(self.y[None, :, 0])

    @torch.no_grad()
    def derivatives(self, f: Tensor, order: int) -> list[Tensor]:
        """log p of each outcome up to what f does not move, and its slope and curvature; 0 where masked."""
        terms = None
        if self.closed:
            terms = self.likelihood.cell_terms(f[None], self.y[None], self.dispersion, NOTHING, order)
        if terms is None:
            values = self._by_autograd(f, order)
        else:
            values = [term[0].detach() for term in terms]
        if order == 2:
            values[2] = torch.maximum(values[2].clamp(min=1e-3), _FLAT * values[1].abs())
        return [torch.where(self.observed, term, torch.zeros_like(term)) for term in values]

    def _by_autograd(self, f: Tensor, order: int) -> list[Tensor]:
        at = f.detach().requires_grad_(order > 0)
        with torch.set_grad_enabled(order > 0):
            value = self.likelihood(at.mT[None], NOTHING).log_prob(self.y.mT)[0].mT
            values = [value]
            for n in range(order):
                (value,) = torch.autograd.grad(value.sum(), at, create_graph=n + 1 < order)
                values.append(-value if n else value)
        return [term.detach() for term in values]


class _Problem:
    """Where weights stand, what they are worth, and the weighted least squares of the next step."""

    def __init__(self, outcomes: _Outcomes, f: Tensor, start: OutcomeWeights):
        self.outcomes, self.f = outcomes, f
        self.weight, self.level = start.weight.double(), start.level.double()

    def predictor(self, weight: Tensor, level: Tensor) -> Tensor:
        return (self.f @ weight.unsqueeze(-1))[..., 0] + level.unsqueeze(-1)

    def log_prob(self, weight: Tensor, level: Tensor) -> Tensor:
        """Of outcomes and level, (task,)."""
        fit = self.outcomes.derivatives(self.predictor(weight, level), 0)[0].sum(1)
        return fit - 0.5 * (level / INTERCEPT_SD) ** 2

    def least_squares(self) -> tuple[Tensor, Tensor]:
        """Curvatures (task, sample), and the targets that they weigh."""
        predictor = self.predictor(self.weight, self.level)
        _, slope, curvature = self.outcomes.derivatives(predictor, 2)
        return curvature, predictor + slope / curvature.clamp(min=1e-12)

    def move(self, weight: Tensor, level: Tensor, log_prior: LogPrior) -> Tensor:
        """Go there, or part of the way, where that gains; how far predictors moved at most, (task,)."""
        before = self.log_prob(self.weight, self.level) + log_prior(self.weight)
        share = torch.ones_like(level)
        for _ in range(_HALVINGS):
            new_weight = torch.where(
                share.unsqueeze(-1) == 1, weight, self.weight + share.unsqueeze(-1) * (weight - self.weight)
            )
            new_level = self.level + share * (level - self.level)
            after = self.log_prob(new_weight, new_level) + log_prior(new_weight)
            worse = ~(after >= before - 1e-10 * before.abs() - 1e-12)
            if not bool(worse.any()):
                break
            share = torch.where(worse, share / 2, share)
        new_weight = torch.where(worse.unsqueeze(-1), self.weight, new_weight)
        new_level = torch.where(worse, self.level, new_level)
        gap = self.predictor(new_weight, new_level) - self.predictor(self.weight, self.level)
        self.weight, self.level = new_weight, new_level
        return (gap.abs() * self.outcomes.observed).amax(1)


def _normal(precision: Tensor) -> LogPrior:
    return lambda weight: -0.5 * precision * (weight**2).sum(1)


def _spike_and_slab(eta: Tensor, *rates: Tensor) -> LogPrior:
    eta = eta.double().clamp(1e-12, 1 - 1e-12)

    def log_prior(weight: Tensor) -> Tensor:
        slab, spike = (rate.log() - rate * weight.abs() for rate in rates)
        return torch.logaddexp(eta.log() + slab, (1 - eta).log() + spike).sum(1)

    return log_prior


@torch.no_grad()
def dense_weights(
    model: MultiTaskRegression,
    batch: TaskBatch,
    f: Tensor,
    ridge: float,
    *,
    start: OutcomeWeights | None = None,
    observed: Tensor | None = None,
    steps: int = 30,
) -> OutcomeWeights:
    r"""The mode under normal priors, in double precision.

    Parameters
    ----------
    model : MultiTaskRegression
    batch : TaskBatch
    f : Tensor (task, sample, latent)
        Centred in each task.
    ridge : float
        :math:`\kappa`: the weights have the precision :math:`n_t \kappa + 1/2`, that of the slab and as much
        as the inner ridge of normal outcomes adds.
    start : OutcomeWeights, optional
    observed : Tensor of bool (task, sample), optional
        Default where the batch has outcomes.
    steps : int
        Most steps of Newton's method.
    """
    observed = present(batch) if observed is None else observed
    f = f.double()
    if start is None:
        start = OutcomeWeights(f.new_zeros(len(f), f.shape[-1]), f.new_zeros(len(f)))
    problem = _Problem(_Outcomes(model, batch, observed), f, start)
    precision = observed.sum(1).double() * ridge + _SLAB_PRECISION
    log_prior = _normal(precision)
    design = torch.cat([f, observed.unsqueeze(-1).to(f)], -1)
    penalty = torch.cat(
        [
            precision.unsqueeze(-1).expand(-1, f.shape[-1]),
            torch.full_like(precision[:, None], INTERCEPT_SD**-2),
        ],
        -1,
    )
    for _ in range(steps):
        curvature, target = problem.least_squares()
        weighted = design * curvature.unsqueeze(-1)
        full = weighted.mT @ design + torch.diag_embed(penalty)
        solution = torch.linalg.solve(full, weighted.mT @ target.unsqueeze(-1))[..., 0]
        moved = problem.move(solution[:, :-1], solution[:, -1], log_prior)
        if float(moved.max()) < _STILL:
            break
    return OutcomeWeights(problem.weight, problem.level)


@torch.no_grad()
def outcome_mode_step(model: MultiTaskRegression, batch: TaskBatch, f: Tensor, sweeps: int = 2) -> None:
    """Bring weights and levels of a batch's tasks towards their mode under the spike-and-slab lasso.

    Parameters
    ----------
    model : MultiTaskRegression
        Its `weights` and `level` are changed.
    batch : TaskBatch
    f : Tensor (task, sample, latent)
        Centred in each task.
    sweeps : int

    Raises
    ------
    TypeError
        The prior is not a spike-and-slab lasso.
    """
    rates = model.prior.rates()
    if rates is None:
        raise TypeError(f"prior: inner='ssl' wants a SpikeSlabLasso, got a {type(model.prior).__name__}")
    eta, observed, f = cast("SpikeSlabPrior", model.prior).eta[0, 0], present(batch), f.double()
    start = OutcomeWeights(model.weights[0, batch.index], model.level[batch.index])
    problem = _Problem(_Outcomes(model, batch, observed), f, start)
    curvature, target = problem.least_squares()
    # The prior of the level is one more sample: latents 0, target 0, and its precision for a weight.
    curvature = pad(curvature, (0, 1), value=INTERCEPT_SD**-2)
    data = moments(pad(f, (0, 0, 0, 1)), pad(target, (0, 1)).unsqueeze(-1), weights=curvature)
    slab, spike = (torch.as_tensor(rate).to(f) for rate in rates)
    mass = curvature.sum(1)
    weight = ssl_sweeps(data, problem.weight, 1 / mass, eta.double(), slab, spike, sweeps=sweeps)
    level = data.intercept(weight.unsqueeze(-1))[:, 0]
    log_prior = _spike_and_slab(eta, slab, spike)
    stuck = problem.move(weight, level, log_prior) < _STILL
    if bool(stuck.any()):
        # The prior has many modes, and the least squares may see a better one where the outcomes do not. A
        # lasso with its slopes at the weights as they are bounds it, and leads uphill.
        share = torch.sigmoid(edge_log_odds(problem.weight, eta.double(), slab, spike))
        rate = share * slab + (1 - share) * spike
        weight = sparse_weights(data, rate / mass.unsqueeze(-1), start=problem.weight.unsqueeze(-1)).weight
        level = data.intercept(weight)[:, 0]
        weight = torch.where(stuck.unsqueeze(-1), weight[..., 0], problem.weight)
        problem.move(weight, torch.where(stuck, level, problem.level), log_prior)
    model.weights[0, batch.index] = problem.weight.to(model.weights)
    model.level[batch.index] = problem.level.to(model.level)


@torch.no_grad()
def levels_given(model: MultiTaskRegression, batch: TaskBatch, f: Tensor, steps: int = 30) -> Tensor:
    """The mode of each task's level, given the model's weights.

    Parameters
    ----------
    model : MultiTaskRegression
        Its `level` is where Newton's method begins.
    batch : TaskBatch
    f : Tensor (task, sample, latent)
        Centred in each task.
    steps : int
        Most steps of Newton's method.

    Returns
    -------
    Tensor (task,)
    """
    f = f.double()
    start = OutcomeWeights(model.weights[0, batch.index], model.level[batch.index])
    problem = _Problem(_Outcomes(model, batch, present(batch)), f, start)
    for _ in range(steps):
        curvature, target = problem.least_squares()
        left = target - (f @ problem.weight.unsqueeze(-1))[..., 0]
        level = (curvature * left).sum(1) / (curvature.sum(1) + INTERCEPT_SD**-2)
        if float(problem.move(problem.weight, level, _normal(torch.zeros_like(level))).max()) < _STILL:
            break
    return problem.level


def outcome_loss(model: MultiTaskRegression, batch: TaskBatch, f: Tensor, ridge: float) -> Tensor:
    """Mean over tasks of minus the mean log density of their outcomes at the dense mode, differentiable.

    Tasks count by the weights of the batch, which their modes do not know.

    Parameters
    ----------
    model : MultiTaskRegression
        Its `weights` and `level`, where Newton's method begins, are brought to the mode.
    batch : TaskBatch
    f : Tensor (task, sample, latent)
        Normalised; may ask for a gradient.
    ridge : float
        As for `dense_weights`.

    Returns
    -------
    Tensor of shape ()
    """
    observed = present(batch)
    start = OutcomeWeights(model.weights[0, batch.index], model.level[batch.index])
    weight, level = dense_weights(model, batch, f.detach(), ridge, start=start, steps=5)
    with torch.no_grad():
        model.weights[0, batch.index] = weight.to(model.weights)
        model.level[batch.index] = level.to(model.level)
    predictor = (f @ weight.to(f).unsqueeze(-1))[..., 0] + level.to(f).unsqueeze(-1)
    log_probs = model.outcome(predictor, batch).log_prob(batch.y)
    n = observed.sum(1)
    fit = torch.where(observed, log_probs, torch.zeros_like(log_probs)).sum(1) / n
    likelihood = cast("Likelihood", model.likelihood)
    priors = likelihood.priors()
    log_priors = [priors[name].log_prob(value).sum() for name, value in likelihood.values().items()]
    about = sum(log_priors) / (model.n_tasks * n.to(f).mean()) if log_priors else 0.0
    return -(weighted_mean(fit, batch.weight) + about)


def likelihood_step(model: MultiTaskRegression, data: TaskBatch, f: Tensor) -> None:
    """Bring the likelihood's own parameters to their mode, given weights and levels of all tasks.

    Parameters
    ----------
    model : MultiTaskRegression
        Those of its likelihood are changed.
    data : TaskBatch
        All its tasks.
    f : Tensor (task, sample, latent)
        Centred in each task.
    """
    likelihood = cast("Likelihood", model.likelihood)
    parameters = [p for p in likelihood.parameters() if p.requires_grad]
    if not parameters:
        return
    predictor = (f.to(model.weights) @ model.weights[0].unsqueeze(-1))[..., 0] + model.level.unsqueeze(-1)
    predictor, observed = predictor.detach(), present(data)
    optimiser = eager(torch.optim.LBFGS)(parameters, max_iter=_STEPS, line_search_fn="strong_wolfe")

    def loss() -> Tensor:
        optimiser.zero_grad()
        log_probs = model.outcome(predictor, data).log_prob(data.y)
        total = torch.where(observed, log_probs, torch.zeros_like(log_probs)).sum()
        priors = likelihood.priors()
        log_priors = [priors[name].log_prob(value).sum() for name, value in likelihood.values().items()]
        value = -(total + sum(log_priors))
        value.backward()
        return value

    with torch.enable_grad():
        optimiser.step(loss)
    optimiser.zero_grad()


@torch.no_grad()
def dense_model(model: MultiTaskRegression, batch: TaskBatch, ridge: float) -> MultiTaskRegression:
    """A copy with dense weights of a batch's tasks: what is 0 at the mode alone leaves no variation behind.

    Parameters
    ----------
    model : MultiTaskRegression
        Trained.
    batch : TaskBatch
    ridge : float
        As for `dense_weights`.
    """
    with undisturbed():
        dense = copy.deepcopy(model)
    weight, level = dense_weights(dense, batch, dense.latents(batch), ridge)
    dense.weights[0, batch.index] = weight.to(dense.weights)
    dense.level[batch.index] = level.to(dense.level)
    return dense


@torch.no_grad()
def dense_gain(model: MultiTaskRegression, batch: TaskBatch, ridge: float) -> Tensor:
    r"""By how much dense weights explain the rows of each task better than none: twice the log-likelihood.

    Without an effect it is some chi-squared with as many degrees of freedom as latents, or less, since the
    weights are shrunk; of normal outcomes with Bartlett's factor, :math:`n - 1 - (d + 2) / 2` in place of n.

    Parameters
    ----------
    model : MultiTaskRegression
        Trained.
    batch : TaskBatch
    ridge : float
        As for `dense_weights`.

    Returns
    -------
    Tensor (task,)
        NaN where a task has too few rows to tell.

    References
    ----------
    Bartlett (1938), Further aspects of the theory of multiple regression.
    """
    f, observed = model.latents(batch).double(), present(batch)
    if model.likelihood is None:
        y = torch.where(observed, batch.y, torch.zeros_like(batch.y)).double().unsqueeze(-1)
        data = moments(f, y, batch.mask)
        weight = ridge_weights(data, ridge)
        left = (data.share * (data.targets - data.features @ weight) ** 2).sum((1, 2))
        none = (data.share * data.targets**2).sum((1, 2))
        factor = observed.sum(1) - 1 - (f.shape[-1] + 2) / 2
        gain = factor * (none.clamp(min=1e-12) / left.clamp(min=1e-12)).log()
        return torch.where(factor > 0, gain, torch.full_like(gain, torch.nan))
    outcomes = _Outcomes(model, batch, observed)
    fitted = dense_weights(model, batch, f, ridge)
    level = dense_weights(model, batch, torch.zeros_like(f), ridge).level.unsqueeze(-1)
    predictor = (f @ fitted.weight.unsqueeze(-1))[..., 0] + fitted.level.unsqueeze(-1)
    alone = outcomes.derivatives(level.expand_as(predictor), 0)[0]
    return 2 * (outcomes.derivatives(predictor, 0)[0] - alone).sum(1)


@torch.no_grad()
def dispersion(model: MultiTaskRegression, batch: TaskBatch) -> tuple[float, float] | None:
    r"""By how much outcomes vary more than their likelihood says, and how many standard errors that is.

    .. math:: \hat\varphi = \frac{1}{\nu} \sum_{ti} \frac{(y_{ti} - \mu_{ti})^2}{V(\mu_{ti})}, \qquad
              \nu = \sum_t n_t - |\hat w_t|_0 - 1

    Parameters
    ----------
    model : MultiTaskRegression
        With the weights of these tasks.
    batch : TaskBatch

    Returns
    -------
    (float, float) or None
        None where the likelihood has no variance, or no rows are left for one.

    References
    ----------
    McCullagh and Nelder (1989), Generalized Linear Models, 2nd edition, section 4.5.2.
    """
    likelihood = cast("Likelihood", model.likelihood).of_features(batch.index)
    if likelihood is None:
        return None
    observed, weights = present(batch), model.weights[0][batch.index]
    predictor = (model.latents(batch) @ weights.unsqueeze(-1))[..., 0]
    predictor = predictor + model.level[batch.index].unsqueeze(-1)
    outcome = likelihood(predictor.mT[None], NOTHING)
    try:
        mean, variance = outcome.mean[0].mT, outcome.variance[0].mT
    except NotImplementedError:
        return None
    left = observed.sum(1) - (weights != 0).sum(1) - 1
    used = observed & (left > 0).unsqueeze(-1) & torch.isfinite(variance) & (variance > 0)
    ratio = ((batch.y - mean) ** 2 / variance.clamp(min=1e-12)).double()
    ratio = torch.where(used, ratio, torch.zeros_like(ratio))
    freedom = float(left.clamp(min=0).sum())
    count = int(used.sum())
    if freedom < 1 or count < 2:
        return None
    spread = float(ratio[used].std())
    phi = float(ratio.sum()) / freedom
    return phi, (phi - 1) / max(spread * count**0.5 / freedom, 1e-12)


@torch.no_grad()
def left_out_ratio(
    model: MultiTaskRegression, batch: TaskBatch, f: Tensor, first: Tensor, second: Tensor, ridge: float
) -> Tensor:
    r"""How much worse than nothing left-out outcomes are predicted: below 1, better than by a level alone.

    .. math:: \exp\Big(-\frac2n \sum_i \log \frac{p(y_i \mid F_i \hat w + \hat b)}{p(y_i \mid \hat b_0)}\Big)

    Of normal outcomes that is the mean squared error in variances of the target: one less the R² of Cox and
    Snell.

    Parameters
    ----------
    model : MultiTaskRegression
    batch : TaskBatch
    f : Tensor (task, sample, latent)
        Any frame.
    first, second : Tensor of bool (task, sample)
        Samples to fit weights to, and samples to judge them by.
    ridge : float

    Returns
    -------
    Tensor (task,)

    References
    ----------
    Cox and Snell (1989), Analysis of binary data.
    """
    share = (first / first.sum(1, keepdim=True)).unsqueeze(-1).double()
    f = f.double()
    f = f - (share * f).sum(1, keepdim=True)
    fitted = dense_weights(model, batch, f * first.unsqueeze(-1), ridge, observed=first)
    level = dense_weights(model, batch, torch.zeros_like(f), ridge, observed=first).level
    judged = _Outcomes(model, batch, second)
    with_weights = (f @ fitted.weight.unsqueeze(-1))[..., 0] + fitted.level.unsqueeze(-1)
    alone = level.unsqueeze(-1).expand_as(with_weights)
    gain = (judged.derivatives(with_weights, 0)[0] - judged.derivatives(alone, 0)[0]).sum(1)
    return (-2 * gain / second.sum(1)).exp().clamp(max=_MOST_RATIO)
