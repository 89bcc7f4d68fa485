"""What every factor model here is: an encoder, a decoder, a likelihood, and two readable Pyro programs.

A subclass builds its nets in `build` and says how `z` becomes a linear predictor in `decode`; `model` and
`guide` below are the whole probabilistic program of an ordinary VAE, and `SparseDecoder` adds its weights to
them. Parameters are attributes; the global parameter store is never touched.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyro
import pyro.distributions as dist
import torch
from pyro import poutine
from torch import Tensor, nn

from .._utils.checks import check_whole
from .._utils.recorded import Recorded
from ..data.table import Batch
from ..distributions import CorrelatedNormal
from ..likelihoods import Column, Likelihood, LikelihoodLike, get_likelihood
from ..nets.layers import Encoder
from ..priors import LKJ
from ._sizes import check_sized, sizes_repr

__all__ = ["CORRELATION_PRIOR", "EdgeSet", "FactorModel", "Model"]

# A little less than any correlation, as is usual. Mean Brier scores of 12 tables of `benchmarks ppl` without
# correlations (seeds 1000 to 1011), and the largest gaps of bfi (1000 to 1002): flat .032, .09 to .11; this
# .029, .11 to .15; a ladder of concentrations up to 100 .022, .14 to .35.
CORRELATION_PRIOR = LKJ(2.0)

_DIMS = 3  # of factors: restart, row, factor


@dataclass(frozen=True)
class EdgeSet:
    """A graph a model carries: its name, the dimensions of its matrix and the Pyro site it lives on."""

    name: str
    dims: tuple[str, str]
    site: str


class Model(Recorded, nn.Module):
    """What training asks of every model: two Pyro programs whose parameters lead with the restart.

    Attributes
    ----------
    n_restarts : int
        Restarts that are trained together; 0 before `setup`.
    kl_weight : float
        What KL divergences count for; below 1 while a fit warms up.
    edges : tuple of EdgeSet
        The graphs that it carries.
    """

    n_restarts: int = 0
    kl_weight: float = 1.0
    edges: tuple[EdgeSet, ...] = ()


class FactorModel(Model):
    r"""Latent factors :math:`z_i \sim N(0, C)`, an amortised Gaussian guide, and any likelihood.

    Parameters
    ----------
    n_features : int or None
        Number of features G (columns of the table); None leaves it to the table that is fitted.
    n_factors : int
        Number of factors K, at least 1 and fewer than `n_features`.
    likelihood : str or Likelihood
        Distribution of a cell given its linear predictor.
    encoder_hidden : int
        Width of the encoder's two hidden layers.
    factor_cov : bool or LKJ
        Learn the correlation of the factors (unit diagonal) instead of fixing C = I. An `LKJ` is the prior
        that Markov chains have of it (a fit does not penalise it); True is `CORRELATION_PRIOR`.

    Attributes
    ----------
    learn_factor_cov : bool
    correlation_prior : LKJ

    Raises
    ------
    ValueError
        A size that is no whole number of at least 1, or ``n_factors >= n_features``.
    TypeError
        `factor_cov` is neither a bool nor an `LKJ`.
    """

    n_features: int
    likelihood: Likelihood
    beta: float = 1.0
    factor_cov_rate = 0.02
    encoder: Any  # callable (inputs, mask) -> location and standard deviation of the guide
    decoder: Any  # callable (z, weights) -> linear predictor, with an `intercept` and a `project`
    factor_cov: Tensor
    square = False  # whether there may be as many factors as features
    data_start = True  # False: nothing is guessed from the data, and the encoder learns from the first step
    total_correlation = 0.0  # weight; other than 0 asks for a `latent_loss`
    trainer: type | None = None  # a `Run` (inference/training/loop.py) of one's own that trains this model
    gaussian_guide = True  # False: rows keep the encoder's answer, refining it would need another family

    def __init__(
        self,
        n_features: int | None,
        n_factors: int | None,
        likelihood: LikelihoodLike = "normal",
        encoder_hidden: int = 64,
        factor_cov: bool | LKJ = True,
    ):
        super().__init__()
        if not isinstance(factor_cov, bool | LKJ):
            raise TypeError(
                f"factor_cov: got {factor_cov!r}, wanted True, False, or a prior of the correlations such as "
                "priors.LKJ(2.0)"
            )
        if n_factors is None:
            raise TypeError(f"{type(self).__name__}: wants n_factors, at most how many factors; got none")
        check_whole(1, n_factors=n_factors, encoder_hidden=encoder_hidden)
        self.n_factors = int(n_factors)
        self.n_features = None  # type: ignore[assignment]  # until there is a table
        if n_features is not None:
            check_whole(1, n_features=n_features)
            self.take_features(int(n_features))
        self.encoder_hidden, self.learn_factor_cov = int(encoder_hidden), factor_cov is not False
        self.correlation_prior = factor_cov if isinstance(factor_cov, LKJ) else CORRELATION_PRIOR
        self.likelihood = get_likelihood(likelihood)

    def __repr__(self) -> str:
        about = {"likelihood": repr(self.likelihood.full_name)}
        if decoder := getattr(self, "decoder_kind", ""):
            about = {"decoder": repr(decoder), **about}
        if (prior := getattr(self, "prior", None)) is not None:
            about["prior"] = f"{type(prior).__name__}()"
        return sizes_repr(self, "n_factors", about)

    # ---- building ------------------------------------------------------------------------------------------
    def take_features(self, n_features: int) -> None:
        """Be a model of so many features, where it was made without saying how many.

        Parameters
        ----------
        n_features : int

        Raises
        ------
        ValueError
            Too few for the factors.
        """
        if self.n_factors >= n_features + self.square:
            most = "n_factors <= n_features" if self.square else "n_factors < n_features"
            raise ValueError(
                f"n_factors: got {self.n_factors} for n_features={n_features}; wanted 1 <= {most} "
                "(a factor must be shared by features; lower n_factors)"
            )
        self.n_features = n_features
        if "n_features" in inspect.signature(type(self)).parameters:  # a model of images has a shape instead
            self.__dict__.get("_arguments", {})["n_features"] = n_features

    def take_columns(self, columns: Sequence[Column]) -> None:
        """Have the likelihood of a table with these columns, where it was made before they were known.

        Parameters
        ----------
        columns : sequence of Column

        Raises
        ------
        ValueError
            From `Likelihood.for_columns`.
        """
        self.take_likelihood(self.likelihood.for_columns(columns))

    def take_likelihood(self, likelihood: Likelihood) -> None:
        """Have this likelihood, before `setup`.

        Parameters
        ----------
        likelihood : Likelihood
        """
        self.likelihood = likelihood
        if "likelihood" in inspect.signature(type(self)).parameters:
            self.__dict__.get("_arguments", {})["likelihood"] = likelihood

    def setup(
        self,
        n_restarts: int = 1,
        n_samples: int = 1000,
        missing: bool = False,
        feature_names: list[str] | None = None,
    ) -> None:
        """Allocate fresh parameters for `n_restarts` restarts (draws from torch's current random state).

        Parameters
        ----------
        n_restarts : int
            Leading dimension of every parameter.
        n_samples : int
            Rows of the data (some priors scale with it).
        missing : bool
            Whether the encoder reads a mask.
        feature_names : list of str, optional
            Lets edge constraints be given by name.
        """
        check_sized(self)
        self.n_restarts, self.n_samples, self.missing = n_restarts, n_samples, missing
        self.feature_names = feature_names
        self.likelihood.setup(self.n_features, n_restarts)
        if missing:
            self.likelihood.check_filler(torch.zeros(n_restarts, 1, self.n_features))
        self.encoder = Encoder(n_restarts, self.n_features, self.n_factors, self.encoder_hidden, missing)
        self.register_buffer("factor_cov", torch.eye(self.n_factors).repeat(n_restarts, 1, 1))
        self.build(feature_names)

    def build(self, feature_names: list[str] | None) -> None:
        """Make the decoder and whatever else the subclass needs."""
        raise NotImplementedError

    def start(
        self,
        scores: Tensor,
        maps: Tensor,
        loadings: Tensor,
        intercept: Tensor,
        residual_sd: Tensor,
        bent: Tensor,
        unit: Tensor | float = 1.0,
    ) -> None:
        """Begin at a data-driven guess.

        Parameters
        ----------
        scores : Tensor (restart, row, factor)
            Guessed factors, unit variance; zero columns where there are fewer.
        maps : Tensor (restart, feature, factor)
            ``scores = inputs @ maps``, written into the encoder's linear part; inputs are z-scored.
        loadings : Tensor (restart, feature, factor)
            Correlation of features and guessed factors.
        intercept : Tensor (feature,)
            Linear predictor of a typical row.
        residual_sd : Tensor (restart, 1, feature)
            What the guessed factors leave unexplained, of a variance of 1.
        bent : Tensor of bool (restart,)
            True where the decoder begins as a random curve with little noise, False where as the straight
            lines of `loadings`. A table of curves is found from the first, a table of nearly straight lines
            from the second.
        unit : Tensor (feature,) or 1
            Standard deviation of each feature in the model's units.
        """
        with torch.no_grad():
            self.encoder.skip[:, : self.n_features] = maps
            self.decoder.intercept.copy_(intercept.expand_as(self.decoder.intercept))
            self.likelihood.start_noise(torch.where(bent.view(-1, 1, 1), 0.0, residual_sd * unit))
            if self.learn_factor_cov:
                correlation = scores.mT @ scores / scores.shape[1]
                off = ~torch.eye(self.n_factors, dtype=torch.bool, device=correlation.device)
                self.factor_cov.add_(
                    torch.where(off, 0.9 * correlation, torch.zeros_like(correlation)) * ~bent.view(-1, 1, 1)
                )

    # ---- the programs --------------------------------------------------------------------------------------
    def model(self, batch: Batch) -> None:
        """The generative program: global sites (restart,), then the factors and cells of each row."""
        with pyro.plate("restart", self.n_restarts, dim=-1):
            weights = self.global_sites()
        with pyro.plate("run", self.n_restarts, dim=-2), self.rows(batch):
            with poutine.scale(scale=self.kl_weight * self.beta):
                z = pyro.sample("z", self.factor_prior())
            pyro.sample("x", self.observation(z, weights, batch), obs=batch.x)

    def guide(self, batch: Batch) -> None:
        """The variational program: point masses at global parameters, Gaussian factors from the encoder."""
        with pyro.plate("restart", self.n_restarts, dim=-1):
            self.global_guide()
        with pyro.plate("run", self.n_restarts, dim=-2), self.rows(batch):
            with poutine.scale(scale=self.kl_weight * self.beta):
                pyro.sample("z", self.factor_posterior(batch))

    def global_sites(self) -> Tensor | None:
        """Sample what all rows share; return the weights (restart, feature, factor), if the model has any."""
        for name, prior in self.likelihood.priors().items():
            pyro.sample(name, prior)
        return None

    def global_guide(self) -> None:
        """Point masses for `global_sites`."""
        for name, value in self.likelihood.values().items():
            pyro.sample(name, dist.Delta(value).to_event(1))

    def decode(self, z: Tensor, weights: Tensor | None) -> Tensor:
        """Linear predictor (restart, row, feature) of factors (restart, row, factor).

        Pyro's vectorised particles stand to the left of the restarts.
        """
        if z.dim() > _DIMS:
            return torch.vmap(self.decode, in_dims=(0, None if weights is None else 0))(z, weights)
        predictor: Tensor = self.decoder(z, weights)
        return predictor

    def observation(self, z: Tensor, weights: Tensor | None, batch: Batch) -> dist.Distribution:
        """Distribution of the rows' seen cells given their factors: the likelihood of what `decode` says."""
        return self.likelihood.observation(self.decode(z, weights), batch.mask, batch.per_row)

    def factor_prior(self) -> dist.Distribution:
        """N(0, C), event (factor,), batch (restart, 1)."""
        return CorrelatedNormal(self.factor_cov.unsqueeze(1))

    def factor_posterior(self, batch: Batch) -> Any:
        """q(z | x) of each row, event (factor,), batch (restart, row): independent Gaussians here."""
        location, sd = self.encode(batch)
        return dist.Normal(location, sd).to_event(1)

    def encode(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Location and standard deviation of the guide's factors, both (restart, row, factor)."""
        return self.encoder(batch.inputs, batch.mask)

    @staticmethod
    def rows(batch: Batch) -> Any:
        """The data plate with its minibatch scale."""
        return pyro.plate(
            "data", batch.total, subsample=torch.arange(len(batch), device=batch.x.device), dim=-1
        )

    @property
    def fit_settings(self) -> dict[str, Any]:
        """Where `ps.fit` leaves the defaults of its schedule for this model's sake.

        A total correlation is a game against a second network. At the usual step size the two chase each
        other; FactorVAE's own is 1e-4.
        """
        return {"learning_rate": 1e-3} if self.total_correlation else {}

    def latent_loss(self, z: Tensor) -> Tensor:
        """What stands beside the negative ELBO of a row where `total_correlation` is not 0, (restart,)."""
        raise NotImplementedError

    # ---- between steps -------------------------------------------------------------------------------------
    def project(self) -> None:
        """Return constrained parameters to their constraints."""
        self.decoder.project()

    @torch.no_grad()
    def after_step(self, batch: Batch, progress: float) -> None:
        """Project constrained parameters and follow the factors' correlation (a running posterior moment)."""
        self.project()
        if self.learn_factor_cov and progress > 0.1:
            location, sd = self.encode(batch)
            moment = location.mT @ location / len(batch) + torch.diag_embed((sd**2).mean(1))
            moment = batch.mean(moment)
            root = moment.diagonal(dim1=1, dim2=2).sqrt()
            moment = moment / root.unsqueeze(1) / root.unsqueeze(2)
            self.factor_cov.mul_(1 - self.factor_cov_rate).add_(self.factor_cov_rate * moment)
