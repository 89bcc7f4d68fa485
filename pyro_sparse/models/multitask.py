r"""Many sparse regressions on one representation, as a Pyro program.

.. math:: w_{tk} \mid \eta_k \sim \eta_k \psi_{\lambda_1} + (1 - \eta_k) \psi_{\lambda_0}, \qquad
          y_{ti} \sim N\big(w_t^\top f_\theta(x_{ti}) + b_t,\; \sigma_t^2\big)

The representation f is centred and scaled (batch normalisation without scale or offset), so that a weight
says how many standard deviations of the target one of the latent is worth; the intercept is what centring
leaves. As in any batch normalisation a model in training scales by the samples at hand, and after a fit
(`eval`) by the spread over the training samples, which is the unit of the fitted weights. Which task uses
which latent identifies the latents where the tasks differ enough (Lachapelle, Deleu et al. 2023, theorem
3.1).

Outcomes that are not normal (yes/no answers, counts, levels in an order) have the linear predictor
:math:`w_t^\top f_\theta(x_{ti}) + b_t` in their own likelihood, and a normal prior of the intercept.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from numbers import Integral
from typing import Literal, cast

import numpy as np
import pyro
import pyro.distributions as dist
import torch
from pyro import poutine
from torch import Tensor, nn

from .._utils.declared import Declared, keeps
from .._utils.torch_state import undisturbed
from ..data.tasks import TaskBatch
from ..likelihoods import Likelihood, LikelihoodLike, Normal
from ..likelihoods.outcomes import of_tasks, outcome_likelihood
from ..nets.tasks import task_encoder
from ..priors import Prior, SpikeSlabLasso, get_prior
from ..priors._check import check_prior
from ._outcomes import TaskOutcomes
from ._sizes import check_sized, sizes_repr
from ._task_noise import LEVEL, SHAPE, typical_noise
from .base import EdgeSet, Model

__all__ = ["INTERCEPT_SD", "MultiTaskRegression"]

# What a subclass may write anew without changing the density of the targets given the latents.
_FREE = frozenset({
    "_allocate", "declare_outcomes", "declared", "edges", "encode", "encoder", "for_tasks", "guide",
    "likelihood", "setup", "standardised", "take_features", "take_outcomes",
})  # fmt: skip
_TINY = 1e-5  # beside a variance, as in torch's own batch normalisation
_LEAST_VARIANCE = 1e-4
# Shape and scale of the noise's prior at the weights' mode, where the prior of the program is learned. Under
# the learned one the narrow spike takes more weights: of 5 rows with much noise nearly all.
_MODE_NOISE = (1.0, 0.02)
INTERCEPT_SD = 5.0
"""Of outcomes that are not normal, a priori: odds from some 1 : 20,000 to 20,000 : 1, all but sure."""


class MultiTaskRegression(Model):
    r"""Tasks that share an encoder and use few of its latents each.

    Parameters
    ----------
    n_features : int or tuple of int, optional
        Of one sample's inputs: a number, or (channel, row, column); default those of the tasks fitted.
    n_latents : int
        Has to be given.
    encoder : {"linear", "mlp", "conv"} or Module
        Made anew by `setup`; a module of your own is copied, so that all restarts begin at its parameters.
    hidden : int
        Width of its hidden layers.
    prior : Prior, optional
        Of the weights, tasks in the rows and latents in the columns. Default: a spike-and-slab lasso with
        lambda1 = 1, lambda0 = 100 and a uniform prior of each latent's share of tasks.
    normalise : {"task", "global"}
        Whether, in training, the latents have unit variance in every task or over the tasks of a batch. Every
        task is centred either way.
    likelihood : str, mapping or Likelihood
        Of the outcomes, by the names of `pyro_sparse.likelihoods`: "normal", "bernoulli" (0 and 1, logit
        link), "poisson" and "negative_binomial" (counts, log link), "ordinal" (levels in an order, cumulative
        logits), "probit" (answers or levels, probit link), any other of single cells, or one of your own. A
        mapping gives tasks of several kinds theirs: ``{"passed*": "bernoulli", "*": "normal"}``, by names and
        patterns of tasks.
    noise_prior : "learned" or tuple of float
        Inverse gamma of the noise's variance, in variances of the task's target: its shape and scale, or
        "learned": from all tasks, as `models/_task_noise.py` has it. Of normal outcomes only.

    Attributes
    ----------
    weights : Tensor (1, task, latent)
        In standard deviations of the target per standard deviation of the latent; of outcomes that are not
        normal in units of their linear predictor (log odds, logarithms of rates).
    variance : Tensor (task,)
        Of the noise, in variances of the target. Unused where outcomes are not normal.
    noise_shape, noise_level, noise_share : Tensor ()
        a, s and κ of the noise's prior: how alike it is over tasks, how large, and whether it is a share of
        the target's variance (0) or as large in every task (1).
    intercept : Tensor (task,)
        Of a fitted model, where latents are in standard deviations from their mean over all samples.
    likelihood : Likelihood or None
        Of outcomes that are not normal, its columns being the tasks; None where all are normal, the noise of
        which has the prior `noise_prior`.
    level : Tensor (task,)
        Linear predictor of outcomes that are not normal where the latents have the task's own mean.
    centre, spread : Tensor (latent,)
        Mean and standard deviation of the raw latents over the training samples.

    Raises
    ------
    ValueError
        A size below one, an unknown choice, or a linear encoder of fewer inputs than latents; a likelihood of
        whole rows ("multinomial", "categorical"); a `noise_prior` that is not two positive numbers.
    TypeError
        The prior is a name, a class or something else that is no prior.

    References
    ----------
    Lachapelle, Deleu et al. (2023), Synergies between disentanglement and sparsity, equation (4); the prior
    is that of Ročková and George (2018). McCullagh and Nelder (1989), Generalized linear models.

    Examples
    --------
    >>> model = MultiTaskRegression(n_features=6, n_latents=3, likelihood="poisson")
    >>> model.likelihood.name
    'poisson'
    """

    edges = (EdgeSet("weights", ("task", "latent"), "W"),)
    declares = (Declared("sparse regressions", free=_FREE),)
    kl_weight = 1.0
    n_restarts = 1  # every restart is a model of its own
    n_features: int | tuple[int, ...]
    shape: tuple[int, ...]
    encoder: nn.Module
    turn: Tensor
    weights: Tensor
    variance: Tensor
    intercept: Tensor
    centre: Tensor
    spread: Tensor
    level: Tensor
    noise_shape: Tensor
    noise_level: Tensor
    noise_share: Tensor
    likelihood: Likelihood | None

    def __init__(
        self,
        n_features: int | tuple[int, ...] | None = None,
        n_latents: int | None = None,
        encoder: str | nn.Module = "linear",
        hidden: int = 128,
        prior: Prior | None = None,
        normalise: str = "task",
        likelihood: LikelihoodLike = "normal",
        noise_prior: Literal["learned"] | tuple[float, float] = "learned",
    ):
        super().__init__()
        if n_latents is None:
            raise TypeError("MultiTaskRegression: wants n_latents, how many latents; got none")
        sizes = (
            n_features
            if isinstance(n_features, (tuple, list))
            else (1 if n_features is None else n_features,)
        )
        counts = (*sizes, n_latents, hidden)
        if not sizes or not all(isinstance(n, Integral) and n >= 1 for n in counts):
            raise ValueError(
                f"n_features: got {n_features!r}, n_latents {n_latents!r}, hidden {hidden!r}; want whole "
                "numbers, all >= 1"
            )
        if normalise not in ("task", "global"):
            raise ValueError(f"normalise: want 'task' or 'global', got {normalise!r}")
        self.n_latents, self.hidden = int(n_latents), int(hidden)
        self.kind, self.normalise = encoder, normalise
        if prior is not None and not isinstance(prior, Prior):  # a name would not say which rates
            raise TypeError(
                f"prior: got {prior!r}; want a prior itself: SpikeSlabLasso(lambda0=100.0, a=1.0, b=1.0), "
                "the default, with other numbers, or any of pyro_sparse.priors if the fit has inner='ridge'"
            )
        self.prior = SpikeSlabLasso(lambda0=100.0, a=1.0, b=1.0) if prior is None else get_prior(prior)
        self.declare_outcomes(likelihood)
        self.noise_prior_declared = _checked_noise(noise_prior)
        self.n_features = None  # type: ignore[assignment]  # until there are tasks
        if n_features is not None:
            self.take_features(n_features)

    def __repr__(self) -> str:
        encoder = repr(self.kind) if isinstance(self.kind, str) else type(self.kind).__name__
        about = {"encoder": encoder, "prior": f"{type(self.prior).__name__}()"}
        if self.likelihood is not None:
            about["likelihood"] = repr(self.likelihood.full_name)
        return sizes_repr(self, "n_latents", about)

    def take_features(self, n_features: int | tuple[int, ...]) -> None:
        """Be a model of so many features, where it was made without saying how many.

        Parameters
        ----------
        n_features : int or tuple of int

        Raises
        ------
        ValueError
            A linear encoder would have fewer inputs than latents, or the encoder is not made for them.
        """
        sizes = n_features if isinstance(n_features, (tuple, list)) else (n_features,)
        shape = tuple(int(n) for n in sizes)
        if self.kind == "linear" and self.n_latents > math.prod(shape):
            raise ValueError(
                f"n_latents: got {self.n_latents}, and a linear encoder of {math.prod(shape)} inputs has no "
                "more; lower it, or encoder='mlp'"
            )
        with undisturbed():
            task_encoder(self.kind, shape, self.n_latents, self.hidden)  # a complaint should not wait
        self.shape = shape
        self.n_features = shape if isinstance(n_features, (tuple, list)) else shape[0]
        self.__dict__.get("_arguments", {})["n_features"] = self.n_features

    def declare_outcomes(self, likelihood: LikelihoodLike) -> None:
        """Have outcomes of this likelihood, whatever tasks there will be.

        Parameters
        ----------
        likelihood : str, mapping or Likelihood
            As when the model is made.
        """
        self.declared = (outcome_likelihood(likelihood),)  # in a tuple, since it is no part of the model
        self.likelihood = _unless_normal(self.declared[0])

    def take_outcomes(self, names: Sequence[str], outcomes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Be a model of tasks with these outcomes; their centre and scale (task,) in the likelihood's units.

        Parameters
        ----------
        names : sequence of str
            Of the tasks.
        outcomes : ndarray (sample, task)
            As the caller has them; NaN where missing.

        Raises
        ------
        ValueError
            The likelihood cannot have these outcomes.
        """
        bound = of_tasks(self.declared[0], names, outcomes)
        self.likelihood = _unless_normal(bound)
        if self.likelihood is None:
            return np.nanmean(outcomes, 0), np.nanstd(outcomes, 0)
        self.likelihood.calibrate(outcomes)
        self.__dict__.get("_arguments", {})["likelihood"] = self.likelihood  # a saved fit is made again by it
        return self.likelihood.units(outcomes, True)

    def setup(self, n_tasks: int) -> None:
        """Allocate fresh parameters (draws from torch's current random state).

        Parameters
        ----------
        n_tasks : int
            Rows of the weights.
        """
        check_sized(self)
        self.encoder = task_encoder(self.kind, self.shape, self.n_latents, self.hidden)
        self.turn = nn.Parameter(torch.eye(self.n_latents))
        self.register_buffer("centre", torch.zeros(self.n_latents))
        self.register_buffer("spread", torch.ones(self.n_latents))
        self._allocate(n_tasks)

    def _allocate(self, n_tasks: int) -> None:
        """What the tasks have of their own."""
        self.n_tasks = int(n_tasks)
        self.prior.setup(n_features=self.n_tasks, n_factors=self.n_latents, n_restarts=1)
        check_prior(self.prior)
        self.register_buffer("weights", self.turn.detach().new_zeros(1, self.n_tasks, self.n_latents))
        self.register_buffer("variance", self.turn.detach().new_ones(self.n_tasks))
        self.register_buffer("intercept", self.turn.detach().new_zeros(self.n_tasks))
        declared = self.noise_prior_declared
        shape, scale = _MODE_NOISE if isinstance(declared, str) else declared
        for name, value in (("shape", shape), ("level", scale / shape), ("share", 0.0)):
            self.register_buffer(f"noise_{name}", self.turn.detach().new_tensor(value))
        if self.likelihood is not None:
            self.likelihood.setup(n_features=self.n_tasks, n_restarts=1)
            self.likelihood.to(self.turn)
            self.register_buffer("level", self.turn.detach().new_zeros(self.n_tasks))

    def for_tasks(self, n_tasks: int, like: MultiTaskRegression | None = None) -> MultiTaskRegression:
        """A copy with the same representation and prior of the weights, for other tasks; their weights are 0.

        Parameters
        ----------
        n_tasks : int
        like : MultiTaskRegression, optional
            Another that knows these tasks' outcomes (`take_outcomes`); wanted where they are not normal.
        """
        new = copy.deepcopy(self)
        if like is not None:
            new.likelihood = copy.deepcopy(like.likelihood)
        learned = copy.deepcopy(new.prior.state_dict())
        if getattr(new.prior, "column", "none") == "ibp":
            new.prior._alpha = new.prior.alpha  # by default it goes by the number of tasks
        noise = new.noise_shape, new.noise_level, new.noise_share
        new._allocate(n_tasks)
        new.noise_shape, new.noise_level, new.noise_share = noise
        shapes = {name: value.shape for name, value in new.prior.state_dict().items()}
        same = {name: value for name, value in learned.items() if shapes.get(name) == value.shape}
        new.prior.load_state_dict(same, strict=False)  # eta and the rates; not what belongs to single tasks
        return new

    # ---- the representation --------------------------------------------------------------------------------
    def encode(self, inputs: Tensor) -> Tensor:
        """Raw latents (..., latent) of inputs, whose last dimensions are those of one sample."""
        lead = inputs.shape[: inputs.dim() - len(self.shape)]
        return (self.encoder(inputs.reshape(-1, *self.shape)) @ self.turn.mT).reshape(*lead, self.n_latents)

    def standardised(self, inputs: Tensor) -> Tensor:
        """Latents in standard deviations over the training samples, whatever the task."""
        return (self.encode(inputs) - self.centre) / self.spread

    def latents(self, batch: TaskBatch) -> Tensor:
        """Normalised latents (task, sample, latent), centred in every task, 0 where masked."""
        return self.normalised(self.encode(batch.inputs), batch.mask)

    def normalised(self, raw: Tensor, mask: Tensor | None) -> Tensor:
        """Raw latents (task, sample, latent) centred and scaled."""
        if mask is None:
            share = raw.new_full((*raw.shape[:2], 1), 1 / raw.shape[1])
        else:
            observed = mask.to(raw.dtype)
            share = (observed / observed.sum(1, keepdim=True)).unsqueeze(-1)
        centred = raw - (share * raw).sum(1, keepdim=True)
        if self.training:
            variance = (share * centred**2).sum(1, keepdim=True)
            if self.normalise == "global":
                variance = variance.mean(0, keepdim=True)
            scaled = centred / (variance + _TINY).sqrt()
        else:
            scaled = centred / self.spread
        return scaled if mask is None else scaled * mask.unsqueeze(-1)

    # ---- the programs --------------------------------------------------------------------------------------
    def model(self, batch: TaskBatch) -> None:
        """Weights of all tasks, then noise and targets of each task in the batch."""
        with pyro.plate("restart", 1, dim=-1):
            weights = self.prior().reshape(self.prior.shape)[0]  # `Predictive` puts ones before the restart
            noise: dict[str, Tensor] = {}
            if self.likelihood is not None:
                for name, prior in self.likelihood.priors().items():
                    pyro.sample(name, prior)
            elif self.learns_noise:
                noise = {name: pyro.sample(name, prior) for name, prior in self.noise_priors().items()}
        f = self.latents(batch)
        if self.likelihood is not None:
            return self._outcomes(f, weights, batch)
        with self._tasks(batch):
            spread = None if batch.spread is None else batch.spread.unsqueeze(-1)
            variance = pyro.sample("variance", self.noise_prior(spread, **noise))
            mean = (f @ weights[batch.index].unsqueeze(-1))[..., 0]
            with pyro.plate("sample", batch.y.shape[1], dim=-1):
                target = dist.Normal(mean, variance.sqrt())
                self._observe(target, batch)

    def outcome(self, predictor: Tensor, batch: TaskBatch) -> TaskOutcomes:
        """Distribution (..., task, sample) of outcomes that are not normal, given their linear predictors."""
        return TaskOutcomes(cast("Likelihood", self.likelihood), predictor, batch.index, self.n_tasks)

    def _outcomes(self, f: Tensor, weights: Tensor, batch: TaskBatch) -> None:
        """Intercepts and outcomes that are not normal."""
        with self._tasks(batch):
            intercept = pyro.sample("intercept", self.intercept_prior())
            predictor = (f @ weights[batch.index].unsqueeze(-1))[..., 0] + intercept
            with pyro.plate("sample", batch.y.shape[1], dim=-1):
                self._observe(self.outcome(predictor, batch), batch)

    @staticmethod
    def _observe(target: dist.TorchDistribution, batch: TaskBatch) -> None:
        """The site of the targets, the only one that weights of tasks scale."""
        target = target if batch.mask is None else target.mask(batch.mask)
        if batch.weight is None:
            pyro.sample("y", target, obs=batch.y)
            return
        with poutine.scale(scale=batch.weight.unsqueeze(-1)):
            pyro.sample("y", target, obs=batch.y)

    def guide(self, batch: TaskBatch) -> None:
        """Point masses at the weights and the noise, which `fit` keeps at their modes given the latents.

        A prior of the noise that is learned is so at the end of a fit, and the noise then is at its mode
        given the weights; these are at theirs under `mode_noise_prior`.
        """
        with pyro.plate("restart", 1, dim=-1):
            self.prior.guide()
            pyro.sample(self.prior.site, dist.Delta(self.weights).to_event(2))
            if self.likelihood is not None:
                for name, value in self.likelihood.values().items():
                    pyro.sample(name, dist.Delta(value).to_event(1))
            elif self.learns_noise:
                for name in self.noise_priors():
                    pyro.sample(name, dist.Delta(getattr(self, name)))
        with self._tasks(batch):
            if self.likelihood is not None:
                pyro.sample("intercept", dist.Delta(self.level[batch.index].unsqueeze(-1)))
                return
            pyro.sample("variance", dist.Delta(self.variance[batch.index].unsqueeze(-1)))

    @property
    def learns_noise(self) -> bool:
        """Whether the noise's prior has parameters that are learned from all tasks."""
        return self.likelihood is None and self.noise_prior_declared == "learned"

    def noise_priors(self) -> dict[str, dist.Distribution]:
        """Priors of what the noise's prior learns, by site."""
        unit = self.variance.new_ones(())
        (shape, shape_sd), (level, level_sd) = SHAPE, LEVEL
        return {
            "noise_shape": dist.LogNormal(shape * unit, shape_sd * unit),
            "noise_level": dist.LogNormal(level * unit, level_sd * unit),
            "noise_share": dist.Uniform(0 * unit, unit),
        }

    def noise_prior(
        self,
        spread: Tensor | None = None,
        noise_shape: Tensor | None = None,
        noise_level: Tensor | None = None,
        noise_share: Tensor | None = None,
    ) -> dist.Distribution:
        """Inverse gamma of the noise's variance, in variances of the task's target.

        Parameters
        ----------
        spread : Tensor, optional
            Of the targets (`TaskBatch.spread`); default 0, that of a typical task.
        noise_shape, noise_level, noise_share : Tensor, optional
            Default what was learned, or declared.
        """
        shape = self.noise_shape if noise_shape is None else noise_shape
        level = self.noise_level if noise_level is None else noise_level
        share = self.noise_share if noise_share is None else noise_share
        scale = shape * level * (1.0 if spread is None else (-share * spread).exp())
        return dist.InverseGamma(shape.expand_as(scale), scale)

    def learn_noise(self, square: Tensor, dof: Tensor, spread: Tensor | None) -> None:
        """Take what the noise's prior learns from sums of squared residuals, all (task,).

        Parameters
        ----------
        square, dof : Tensor
            Of weights that no prior pulls to 0, and rows that these and the intercept leave.
        spread : Tensor or None
            As for `noise_prior`.
        """
        log_spread = np.zeros(len(square)) if spread is None else spread.double().cpu().numpy()
        known = typical_noise(square.double().cpu().numpy(), dof.double().cpu().numpy(), log_spread)
        for name, value in zip(("shape", "level", "share"), known, strict=True):
            getattr(self, f"noise_{name}").fill_(value)

    def intercept_prior(self) -> dist.Distribution:
        """Normal, of the linear predictor where the latents have the task's own mean."""
        unit = self.variance.new_ones(())
        return dist.Normal(0 * unit, INTERCEPT_SD * unit)

    def mode_noise_prior(self) -> dist.Distribution:
        """What the noise has for a prior while the weights' mode is sought.

        `noise_prior` as declared. Where that is learned, one that expects little noise, so that the mode, and
        with it the latents in training, has weights where the spike would leave none.
        """
        if not self.learns_noise:
            return self.noise_prior()
        unit, (shape, scale) = self.variance.new_ones(()), _MODE_NOISE
        return self.noise_prior(None, shape * unit, scale / shape * unit, 0 * unit)

    def noise_mode(self, square: Tensor, n: Tensor, prior: dist.Distribution | None = None) -> Tensor:
        """Mode of the variance given sums of squared residuals of n samples, all (task,).

        `prior` is an inverse gamma, by default that of a typical task (`noise_prior`).
        """
        prior = self.noise_prior() if prior is None else prior
        return ((prior.rate + square / 2) / (prior.concentration + 1 + n / 2)).clamp(min=_LEAST_VARIANCE)

    @staticmethod
    def _tasks(batch: TaskBatch) -> pyro.plate:
        return pyro.plate(
            "task", batch.total, subsample=torch.arange(len(batch), device=batch.y.device), dim=-2
        )


def _unless_normal(likelihood: Likelihood) -> Likelihood | None:
    """None of a normal one, the noise of which is the model's own."""
    if not keeps(likelihood, "normal noise"):
        return likelihood
    plain = Normal()
    settings = ("init", "floor", "prior_shape", "prior_scale", "shared")
    if any(getattr(likelihood, name) != getattr(plain, name) for name in settings):
        raise ValueError(
            "likelihood: the noise of tasks has a prior of its own (noise_prior), and this Normal has one, "
            'too; want likelihood="normal"'
        )
    return None


def _checked_noise(prior: str | tuple[float, float]) -> Literal["learned"] | tuple[float, float]:
    """What was declared of the noise's prior."""
    if isinstance(prior, str) and prior == "learned":
        return "learned"
    pair = np.asarray([] if isinstance(prior, str) else prior, dtype=float)
    if pair.shape != (2,) or not (np.isfinite(pair) & (pair > 0)).all():
        raise ValueError(
            f"noise_prior: got {prior!r}; want 'learned', or two positive numbers, the shape and the scale "
            "of an inverse gamma"
        )
    return float(pair[0]), float(pair[1])
