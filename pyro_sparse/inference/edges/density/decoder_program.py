"""What a masked decoder's chains draw from: data, prior and density, and the state of every chain.

The moves (`moves/mh_weights.py`, `moves/sir_weights.py`, `moves/layers.py`, `moves/rescaling.py`,
`moves/shifts.py`) know this, and not the sweep of `mcmc/decoder.py`, which makes one after the other.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from ....likelihoods.base import PerRow
from ....priors import LKJ
from .cells import Cells
from .curves import Curve, Trunk
from .likelihood_parameters import LikelihoodParameters
from .mixture import WeightDensity
from .rates import log_density
from .rows_from_totals import drawn_from_totals

__all__ = ["DecoderProgram", "DecoderState"]

_FEW_STEPS = 2  # of Newton's, for a log evidence: off by hundredths at most; a head that is drawn has more
_CACHE = 400_000  # numbers of a hidden layer worked on at a time: few enough to stay near the processor


class DecoderState(NamedTuple):
    """One state of every chain.

    Attributes
    ----------
    z : Tensor (chain, row, factor)
    weight : Tensor (chain, feature, factor)
    edge : Tensor of bool (chain, feature, factor)
    log_odds : Tensor (chain, 1, factor)
    head : Tensor (chain, feature, basis), float64
    noise : Tensor (chain, feature)
        Variance of a normal likelihood, 1 / theta of a negative binomial one, else 1.
    trunk : Trunk
    precision : Tensor (chain, factor, factor), float64
        Inverse of the factors' covariance C.
    per_row : mapping of str to Tensor (chain, 1, row)
        What the likelihood reads of rows; redrawn where only totals speak of it.
    likelihood_parameters : tuple of Tensor
        Parameters of a likelihood that is none of the package's, as `LikelihoodParameters` orders them.
    effects : Tensor (chain, feature, effect), float64, or None
        Of covariates on the predictor.
    """

    z: Tensor
    weight: Tensor
    edge: Tensor
    log_odds: Tensor
    head: Tensor
    noise: Tensor
    trunk: Trunk
    precision: Tensor
    per_row: PerRow
    likelihood_parameters: tuple[Tensor, ...] = ()
    effects: Tensor | None = None


@dataclass(frozen=True, eq=False)
class DecoderProgram:
    """The data and the prior, which stay, and the density of a state under them.

    Parameters
    ----------
    cells : Cells
    curve : Curve
    density : WeightDensity
    permitted, must : Tensor of bool (feature, factor)
    related : ndarray of bool (factor, factor)
        Factors that are correlated.
    eta_prior : tuple of ndarray
        a and b of the rates, each (factor,).
    shared_eta : bool
    noise_prior : tuple of float
        Shape and scale of a variance. A dispersion has that of its likelihood.
    shared_noise : bool
        One variance for all features.
    totals : Tensor (chain or 1, row) or None
        Sums of rows of counts, where they are all that speaks of a number per row (`rows_from_totals.py`):
        multinomial rows, whose features come apart so as Poisson counts, and depths taken from totals.
    likelihood_parameters : LikelihoodParameters or None
        Of the cells' likelihood, where the state holds values for its parameters.
    edge_offset : Tensor (feature, factor) or None
        Log odds of single edges beside those of their factor.
    design : Tensor (effect, row) or None
        Covariates of the rows, where the state holds effects of them.
    effect_sd : float
        Prior standard deviation of effects.
    learn_cov : bool
        Whether C is learned, a correlation matrix; otherwise it stays where it is.
    correlation_prior : LKJ
        Of C, where it is learned.
    unit : float
        Model units in one of the chains', of f and of normal cells.
    weight_unit : Tensor (feature or 1, 1)
        In which spike and slab are of a straight line's weights.
    candidates : int
        New values tried for each weight in a sweep.
    row_steps, whole_steps : int
        Leapfrog steps for the factors, and for layers with weights.
    """

    cells: Cells
    curve: Curve
    density: WeightDensity
    permitted: Tensor
    must: Tensor
    related: np.ndarray
    eta_prior: tuple[np.ndarray, np.ndarray]
    shared_eta: bool
    noise_prior: tuple[float, float]
    shared_noise: bool = False
    totals: Tensor | None = None
    likelihood_parameters: LikelihoodParameters | None = None
    edge_offset: Tensor | None = None
    design: Tensor | None = None
    effect_sd: float = 1.0
    learn_cov: bool = False
    correlation_prior: LKJ = LKJ(1.0)
    unit: float = 1.0
    weight_unit: Tensor = torch.ones(1, 1)
    candidates: int = 6  # with three, chains took four fifths of the time for twice the error (NOTEBOOK.md)
    row_steps: int = 4
    whole_steps: int = 3

    def weight_units(self, features: Tensor | np.ndarray) -> Tensor:
        """`weight_unit` of some features, (some features,)."""
        return self.weight_unit.expand(len(self.permitted), 1)[features, 0]

    def edge_log_odds(self, state: DecoderState) -> Tensor:
        """Prior log odds of edges, (chain, feature or 1, factor)."""
        return state.log_odds if self.edge_offset is None else state.log_odds + self.edge_offset

    def cells_of(self, state: DecoderState) -> Cells:
        """The data, with what the state says of their rows and their likelihood."""
        c = self.shifted(self.cells, state)
        if self.totals is not None:
            return replace(c, per_row=state.per_row)
        return (
            c
            if self.likelihood_parameters is None
            else replace(c, likelihood=self.likelihood_parameters.at(state.likelihood_parameters))
        )

    def shifted(self, cells: Cells, state: DecoderState) -> Cells:
        """The cells given what a state says of covariates."""
        if self.design is None or state.effects is None:
            return cells
        return cells.shifted(state.effects.to(self.design) @ self.design)

    def value(self, state: DecoderState, z: Tensor | None = None) -> Tensor:
        """f of a state, (chain, feature, row), or of other factors in their place."""
        return self.curve.value(state.z if z is None else z, state.weight, state.trunk, state.head)

    def log_joint(self, state: DecoderState, f: Tensor) -> Tensor:
        """log p of data, factors, weights, rates, noise and layers of each chain, up to a constant."""
        cells = self.cells_of(state)
        total = cells.log_prob(f, state.noise).double().sum((-1, -2)) + self._log_factors(state)
        if cells.overdispersed:
            total += cells.log_base(state.noise).sum(-1)
        return total + self.log_parameters(state, f)

    def log_parameters(self, state: DecoderState, f: Tensor) -> Tensor:
        """log p of all but data and factors, (chain,), up to a constant."""
        total = self._log_correlations(state)
        total -= 0.5 * (self.curve.head_precision(f) * state.head**2).sum((-1, -2))
        weight_log_prior = self.density.log_prob(
            state.weight / self.weight_unit, self.edge_log_odds(state), self.must
        )
        total += (weight_log_prior * self.permitted).double().sum((-1, -2))
        rates = state.log_odds.double().cpu().numpy()
        total += torch.as_tensor(log_density(rates, self.eta_prior, self.shared_eta)).to(total)
        if self.cells.normal:
            a, b = self.noise_prior
            noise = state.noise[:, :1] if self.shared_noise else state.noise
            total -= ((a + 1) * noise.log() + b / noise).double().sum(-1)
        if self.cells.overdispersed:
            total += self.log_noise_prior(state.noise).sum(-1)
            if self.totals is not None:  # how much room the number of a row has, which moves with the noise
                bend = self.cells_of(state).expanded(f, state.noise)[2].double().sum(1)
                total -= 0.5 * (bend.clamp(min=1e-30).log() * (self.totals > 0)).sum(-1)
        if self.likelihood_parameters is not None:
            total += sum(
                log_prior.sum(-1)
                for log_prior in self.likelihood_parameters.log_prior(state.likelihood_parameters)
            )
        if state.effects is not None:
            total -= 0.5 * (state.effects / self.effect_sd).square().sum((-1, -2))
        if self.curve.activation is not None:
            total -= 0.5 * sum((layer.double() ** 2).sum((-1, -2)) for layer in state.trunk)
        return total

    def evidence(
        self, state: DecoderState, cells: Cells, tried: Tensor, features: Tensor, near: Tensor | None
    ) -> Tensor:
        """Log evidence (candidate, chain, some features), last layers summed out.

        Parameters
        ----------
        state : DecoderState
        cells : Cells
        tried : Tensor (candidate, chain, some features, factor)
        features : Tensor of int
            Which ones.
        near : Tensor (chain, feature, row), optional
            f of a state near by, where layers are not summed out exactly (`Cells.sum_out`).
        """
        feature_cells, noise, precision = (
            cells.features(features),
            state.noise[:, features],
            self.curve.head_precision(state.z),
        )
        if near is None:
            return feature_cells.evidence(
                self.curve.design(state.z, tried, state.trunk, feature_cells.x), noise, precision
            )
        phi, offset = self.curve.design(state.z, tried, state.trunk), self.curve.offset(state.z, tried)
        return feature_cells.sum_out(
            phi, offset, noise, precision, near[:, features], _FEW_STEPS
        ).log_evidence

    def pieces(self, features: Tensor, n_tried: int, state: DecoderState) -> tuple[Tensor, ...]:
        """Features a few at a time, so that their bases, each tried so often, stay near the processor.

        All that there are, at once, where the likelihood holds parameters for all.
        """
        if not self.cells.separate:
            return (torch.arange(self.cells.x.shape[1], device=features.device),)
        if not len(features):
            return ()
        piece_size = _CACHE // (n_tried * len(state.z) * self.curve.hidden * state.z.shape[1])
        return features.split(max(1, piece_size))

    def with_rows(self, state: DecoderState, f: Tensor, rng: np.random.Generator) -> DecoderState:
        """The state with `per_row` drawn given f, if totals are all that speaks of it."""
        if self.totals is None:
            return state
        cells = self.shifted(self.cells, state)
        per_row = drawn_from_totals(cells, f, state.noise, self.totals, state.per_row, rng)
        return state._replace(per_row=per_row)

    def _log_factors(self, state: DecoderState) -> Tensor:
        """log p of factors, (chain,)."""
        precision, n = state.precision, state.z.shape[1]
        squares = ((state.z @ precision.to(state.z)) * state.z).sum((-1, -2), dtype=torch.float64)
        return 0.5 * (n * torch.linalg.slogdet(precision)[1] - squares)

    def _log_correlations(self, state: DecoderState) -> Tensor:
        """log p of the factors' correlations, (chain,)."""
        log_det = -torch.linalg.slogdet(state.precision)[1]
        if not self.learn_cov:
            return torch.zeros_like(log_det).expand(len(state.z)).clone()
        of_cov = self.correlation_prior.log_density(log_det.cpu().numpy(), state.precision.shape[-1])
        return torch.as_tensor(of_cov).to(log_det)

    def log_noise_prior(self, noise: Tensor) -> Tensor:
        """log prior density of what a dispersion stands for, (chain, feature)."""
        return self.cells.likelihood.log_dispersion_prior(noise)
