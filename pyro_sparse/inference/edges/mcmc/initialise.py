r"""From a fit to chains: which program they sample, and where each of them begins.

A fit holds point values of the decoder's layers, the noise and the rates. Chains want a prior for each, and
this file says which (`DecoderPrior`), turns the fitted values into the units of that prior, and picks kernel
and data: `LinearChains` for a linear decoder with normal noise, `DecoderChains` for the rest.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np
import torch
from torch import Tensor

from ...._utils.declared import changes, keeps
from ...._utils.torch_state import undisturbed
from ....likelihoods.adjusted import EFFECT_SD
from ...table.refine import refine
from ...training.restarts import pick
from ..density.cells import Cells
from ..density.curves import Curve, Trunk
from ..density.decoder_program import DecoderState
from ..density.likelihood_parameters import LikelihoodParameters
from ..density.mixture import MixtureDensity, WeightDensity
from ..density.rates import rate_prior
from ..density.requirements import lacks_of_decoder, lacks_of_likelihood, lacks_of_prior
from ..density.user_density import density_of
from ..moves.rotations import related_factors
from .decoder import DecoderChains
from .linear import LinearChains, LinearState
from .starts import in_other_axes

if TYPE_CHECKING:
    from ....data.read import Batch, Table
    from ....likelihoods import Likelihood, Normal
    from ....models import SparseDecoder
    from ....models.base import FactorModel
    from ....priors import Prior, SpikeSlabPrior
    from ...table.result import Fit

__all__ = [
    "ALL_EDGES",
    "DecoderPrior",
    "chains_of",
    "check_scales_can_be_learned",
    "decoder_layers",
    "has_cells",
    "has_normal_noise",
    "origin_of",
    "parameters_of",
    "refuse_other_programs",
    "weight_density",
]

# Steps, and draws of each, towards a row's factors, where chains begin only: of bfi under an MLP decoder they
# are then within .01 of where 60 steps of four draws end, in a fifth of the time, and spread by .48.
_REFINED, _REFINED_BY = 20, 2
ALL_EDGES = 60.0  # log odds at which every permitted edge is there, whatever its weight


@dataclass(frozen=True)
class DecoderPrior:
    r"""Prior of what a fit takes as given: a decoder's layers, in units of the (standardised) features.

    .. math:: c_j \sim N(0, s_c^2), \quad u_j \sim N(0, s_u^2), \quad v_{jh} \sim N(0, s_v^2 / H), \quad
              A_{kh} \sim N(0, s_A^2), \quad B_{gh} \sim N(0, s_B^2 / H), \quad b_h \sim N(0, s_b^2)

    for :math:`f_j(z) = c_j + u_j w_j^\top z + v_j^\top \phi(b + B \phi(A (w_j \odot z)))`. A linear decoder
    has c only. Columns that keep their units (`Normal(shared=True)`, ``standardise=False``) are centred at
    their means first, and where all features share one noise, :math:`s_c, s_u, s_v` are in units of their
    common standard deviation. Under other likelihoods :math:`s_c` grows with the largest fitted intercept, so
    that rare counts are no surprise.

    Parameters
    ----------
    intercept, slope, head, first, second, bias : float
        :math:`s_c, s_u, s_v, s_A, s_B, s_b`.

    Raises
    ------
    ValueError
        One of them is not a positive number.
    """

    intercept: float = 1.0
    slope: float = 0.7
    head: float = 1.0
    first: float = 1.0
    second: float = 1.4
    bias: float = 0.5

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if not 0 < value < math.inf:
                raise ValueError(f"{name}: want a positive number, got {value!r}")

    def curve(self, model: SparseDecoder) -> Curve:
        """The model's decoder under this prior."""
        linear = model.decoder_kind == "linear"
        return Curve(
            activation=None if linear else model.activation,
            hidden=1 if linear else model.hidden,
            first_sd=self.first,
            second_sd=self.second,
            bias_sd=self.bias,
            intercept_sd=self.intercept,
            slope_sd=self.slope,
            head_sd=self.head,
        )


def has_normal_noise(likelihood: Likelihood) -> bool:
    """Whether the noise is normal, its variance inverse gamma."""
    return keeps(likelihood, "normal noise")


def has_cells(likelihood: Likelihood) -> bool:
    """Whether the chains know what it says: `forward` of each cell, or rows that are Poisson given totals."""
    return not lacks_of_likelihood(likelihood)


def parameters_of(likelihood: Likelihood) -> LikelihoodParameters:
    """Parameters that only the likelihood speaks of; the package's are drawn in ways of their own."""
    in_terms = likelihood.dispersion_parameters() if keeps(likelihood, "cell terms") else ()
    return LikelihoodParameters(likelihood, leave_out=in_terms)


def weight_density(prior: Prior | None) -> WeightDensity:
    """Spike and slab of a prior's weights.

    Raises
    ------
    ValueError
        The prior is not a spike and slab, or its two densities are none that chains can take.
    """
    if why := lacks_of_prior(prior):
        raise ValueError(
            "prior: Markov chains (edge_posterior, calibrate.experiment) know the density of spike and slabs "
            f"only, and {why}"
        )
    spike_slab = cast("SpikeSlabPrior", prior)
    scales = spike_slab.scales()
    if scales is None:
        return density_of(spike_slab)
    return MixtureDensity(scales.family == "laplace", scales.slab, scales.spike)


def refuse_other_programs(model: FactorModel) -> None:
    """Complain of a model whose program is not the one that the chains sample, before they do.

    Parameters
    ----------
    model : FactorModel
        Set up.

    Raises
    ------
    ValueError
        Naming what is not theirs.
    """
    if why := lacks_of_decoder(model):
        overridden = [
            change for change in changes(model, "masked decoder") if change.name and not change.on_object
        ]
        name = type(model).__name__
        same = (
            f"; if the density is the same, let {name} say: declares = SparseDecoder.declares"
            if overridden
            else ""
        )
        raise ValueError(
            f"model: {why[0]}, so that their numbers would be probabilities of another model; ask for "
            f'method="score"{same}'
        )
    if why := lacks_of_likelihood(model.likelihood):
        raise ValueError(f'likelihood: {why[0]}; write that density as `forward`, or ask for method="score"')


def check_scales_can_be_learned(prior: Prior) -> None:
    """Complain of `learn_scales` with a prior whose densities may have no scales."""
    if not isinstance(weight_density(prior), MixtureDensity):
        raise ValueError(
            "learn_scales: the scales that can be learned are those of Laplace and normal densities, and "
            f"{type(prior).__name__} has others; leave it out"
        )


def chains_of(
    fit: Fit,
    table: Table,
    restarts: list[int],
    dense: list[bool],
    prior: DecoderPrior,
    seed: int,
    rotated: list[bool] | None = None,
    kept: int | None = None,
    density: WeightDensity | None = None,
    **settings: int,
) -> tuple[LinearChains, LinearState] | tuple[DecoderChains, DecoderState]:
    """The kernel and its first states.

    Parameters
    ----------
    fit : Fit
    table : Table
        Rows to learn from, in model units.
    restarts : list of int
        The fit's restart each chain begins at.
    dense : list of bool
        Whether the chain begins with every permitted edge.
    prior : DecoderPrior
    seed : int
    rotated : list of bool, optional
        Whether the chain, of a linear decoder under normal noise, begins in other axes (`starts.py`).
    kept : int, optional
        Factors of a linear decoder that the chains run over: those with a weight, of which each restart has
        so many. Default all.
    density : WeightDensity, optional
        Of standardised loadings, of a linear decoder; default the prior's, of weights.
    **settings
        Of `DecoderChains`.

    Raises
    ------
    TypeError, ValueError
        `prior` is no `DecoderPrior`; the model's has no spike and slab; its likelihood says more of
        rows than `forward` of their cells.
    """
    if not isinstance(prior, DecoderPrior):
        raise TypeError(f"decoder_prior: want a DecoderPrior, got {prior!r}")
    standardised = density is not None
    density = weight_density(getattr(fit.model, "prior", None)) if density is None else density
    refuse_other_programs(fit.model)
    model = pick(fit.model, restarts)
    like = model.factor_cov
    batch = table.batch(like.device, like.dtype)
    # A fit may end at rates of 0 and 1, whose log odds are infinite.
    log_odds = torch.logit(model.prior.eta.clamp(0.02, 0.98)).expand(len(restarts), 1, model.n_factors)
    full = torch.tensor(dense, device=like.device).view(-1, 1, 1)
    log_odds = torch.where(full, torch.full_like(log_odds, ALL_EDGES), log_odds)
    rates = {"eta_prior": rate_prior(model.prior), "shared_eta": model.prior.shared}
    origin = origin_of(table, model.likelihood)
    if has_normal_noise(model.likelihood) and model.decoder_kind == "linear":
        chains, state = _linear(model, batch, log_odds, density, prior, rates, origin, kept)
        return chains, _rotated(state, rotated or [], model.learn_factor_cov, seed)
    with undisturbed(seed), torch.no_grad():
        with torch.enable_grad():
            q = refine(model, batch, steps=_REFINED, num_draws=_REFINED_BY)
        z = q.mean + q.stddev * torch.randn_like(q.mean)
    made = batch.per_row.keys() - table.row_units.keys()
    kernel, curved = _curved(model, batch, z, log_odds, density, prior, rates, origin, made, kept, settings)
    if standardised:
        kernel = replace(kernel, weight_unit=_predictor_units(kernel, curved))
    return kernel, _line_in_other_axes(curved, rotated or [], model.learn_factor_cov, seed)


def _predictor_units(kernel: DecoderChains, state: DecoderState) -> Tensor:
    """Standard deviation of each feature behind its cells, where the chains begin, (feature, 1).

    That is of predictor and noise, `Likelihood.variance_beside`: what standardised loadings are in units of.
    """
    variance = kernel.value(state).var(-1) + kernel.cells.likelihood.variance_beside(state.noise)
    return variance.mean(0).sqrt().unsqueeze(-1).detach()


def _rotated(state: LinearState, rotated: list[bool], correlated: bool, seed: int) -> LinearState:
    """The same spaces, and for these chains in other axes."""
    weight, cov = state.weight.copy(), state.cov.copy()
    for number, c in enumerate(np.flatnonzero(rotated)):
        weight[c], cov[c] = in_other_axes(weight[c], cov[c], number, correlated, seed)
    return state._replace(weight=weight, cov=cov, edge=weight != 0)


def _line_in_other_axes(
    state: DecoderState, rotated: list[bool], correlated: bool, seed: int
) -> DecoderState:
    """The same predictors, and for these chains of straight lines in other axes.

    Where correlations are learned these chains begin with none. Predictors that all rise together (with the
    depth of a cell, with how many films a person has seen) can have factors next to collinear, and a fit may
    end there: of 700 cells with 200 genes ten factors had correlations up to .96, 1,000 nats below axes whose
    largest is .6, and chains that kept the correlations were still there after 400 sweeps.
    """
    weight, z, precision = state.weight.clone(), state.z.clone(), state.precision.clone()
    covs = torch.linalg.inv(state.precision).cpu().numpy()
    for number, c in enumerate(np.flatnonzero(rotated)):
        now = weight[c].double().cpu().numpy()
        used = np.flatnonzero(now.any(0))  # a factor without a weight stays as it is
        if len(used) < 2:
            continue
        cov = covs[c][np.ix_(used, used)]
        # Varimax, the second time from random axes; from those alone steps of single pairs take long.
        new, _ = in_other_axes(now[:, used], cov, 2 * number, False, seed)
        if correlated:
            precision[c] = torch.eye(len(covs[c])).to(precision)
        else:
            new = new @ np.linalg.inv(np.linalg.cholesky(cov))
        turn = np.linalg.lstsq(new, now[:, used], rcond=None)[0]  # new turn = now
        weight[c, :, used] = torch.as_tensor(new).to(weight)
        z[c, :, used] = z[c, :, used] @ torch.as_tensor(turn).to(z).mT
    return state._replace(weight=weight, z=z, precision=precision, edge=weight != 0)


class _Origin(NamedTuple):
    """Mean and standard deviation of each column in model units, (feature,): 0 and 1 of z-scored ones."""

    centre: np.ndarray
    spread: np.ndarray


def origin_of(table: Table, likelihood: Likelihood) -> _Origin:
    """Of the table that was fitted; 0 and 1 where the noise is not normal, so that columns have no units."""
    if not has_normal_noise(likelihood):
        return _Origin(np.zeros(len(table.scale)), np.ones(len(table.scale)))
    return _Origin((table.input_centre - table.centre) / table.scale, table.input_scale / table.scale)


def _linear(
    model: SparseDecoder,
    batch: Batch,
    log_odds: Tensor,
    density: WeightDensity,
    prior: DecoderPrior,
    rates: dict[str, Any],
    origin: _Origin,
    kept: int | None,
) -> tuple[LinearChains, LinearState]:
    def array(t: Tensor) -> np.ndarray:
        return t.detach().cpu().double().numpy()

    likelihood, weight_prior = cast("Normal", model.likelihood), cast("SpikeSlabPrior", model.prior)
    cov, x = array(model.factor_cov), array(batch.x) - origin.centre
    weight, odds, permitted, must = (
        array(model.weights), array(log_odds), model.permitted.cpu().numpy(), model.must.cpu().numpy(),
    )  # fmt: skip
    if kept is not None:  # of factors that nothing tells apart
        used = np.argsort(~weight.any(1), axis=-1, kind="stable")[:, :kept]  # chain, factor
        weight, odds = (np.take_along_axis(part, used[:, None], -1) for part in (weight, odds))
        cov = np.take_along_axis(np.take_along_axis(cov, used[:, None], -1), used[..., None], -2)
        permitted, must = permitted[:, :kept], must[:, :kept]
        a, b = (np.broadcast_to(part, weight_prior.n_factors)[:kept] for part in rates["eta_prior"])
        rates = {**rates, "eta_prior": (a, b)}
    design = array(batch.per_row["design"]) if "design" in batch.per_row else None
    chains = LinearChains(
        x=(x if batch.mask is None else x * batch.mask.cpu().numpy())[None],
        mask=None if batch.mask is None else batch.mask.cpu().numpy()[None],
        permitted=permitted,
        must=must,
        related=related_factors(cov),
        learn_cov=model.learn_factor_cov,
        correlation_prior=model.correlation_prior,
        density=density.in_slabs(),
        slab_scale=density.stand_in.slab,
        noise_prior=(likelihood.prior_shape, likelihood.prior_scale),
        intercept_sd=prior.intercept * origin.spread,
        design=design,
        shared_noise=likelihood.shared,
        edge_offset=array(weight_prior.known) if weight_prior.informed else None,
        **rates,
    )
    state = LinearState(
        weight=weight,
        edge=weight != 0,
        log_odds=odds,
        noise=array(likelihood.noise_sd()[:, 0] ** 2),
        coefficients=np.pad(
            (array(model.decoder.intercept[:, 0]) - origin.centre)[..., None],
            [(0, 0), (0, 0), (0, 0 if design is None else design.shape[1])],
        ),
        cov=cov,
    )
    return chains, state


def _curved(
    model: SparseDecoder,
    batch: Batch,
    z: Tensor,
    log_odds: Tensor,
    density: WeightDensity,
    prior: DecoderPrior,
    rates: dict[str, Any],
    origin: _Origin,
    made: Collection[str],
    kept: int | None,
    settings: dict[str, Any],
) -> tuple[DecoderChains, DecoderState]:
    curve, likelihood = prior.curve(model), model.likelihood.unadjusted
    weight_prior = cast("SpikeSlabPrior", model.prior)
    weight, cov, permitted, must = model.weights.detach(), model.factor_cov, model.permitted, model.must
    if kept is not None:  # of factors that nothing tells apart, of a linear decoder
        empty = (~weight.bool().any(1)).to(torch.uint8)
        used = empty.argsort(dim=-1, stable=True)[:, :kept].unsqueeze(1)
        weight, z, log_odds = (
            part.gather(-1, used.expand(*part.shape[:2], -1)) for part in (weight, z, log_odds)
        )
        cov = cov.gather(-1, used.expand(-1, cov.shape[1], -1))
        cov = cov.gather(-2, used.mT.expand(-1, -1, kept))
        permitted, must = permitted[:, :kept], must[:, :kept]
        a, b = (np.broadcast_to(part, weight_prior.n_factors)[:kept] for part in rates["eta_prior"])
        rates = {**rates, "eta_prior": (a, b)}
    per_row = {name: values.T[None].to(z) for name, values in batch.per_row.items() if name != "design"}
    design = batch.per_row["design"].T.to(z) if "design" in batch.per_row else None
    apart = likelihood.given_totals(made) if keeps(likelihood, "cell terms", "row totals") else None
    drawn = apart is not None
    if apart is not None:
        likelihood, per_row = apart, {}
    observed = None if batch.mask is None else batch.mask.T[None].to(z)
    normal, as_normal = has_normal_noise(likelihood), cast("Normal", likelihood)
    centre = torch.as_tensor(origin.centre).to(z)
    unit = float(np.sqrt(np.mean(origin.spread**2))) if normal and as_normal.shared else 1.0
    x = ((batch.x - centre) / unit).T[None].to(z)
    x = x if observed is None or not normal else x * observed
    if not normal:
        far = float(model.decoder.intercept.detach().abs().max())
        curve = replace(curve, intercept_sd=curve.intercept_sd * math.hypot(1.0, far))
    parameters = parameters_of(likelihood)
    chains = DecoderChains(
        cells=Cells(x, observed, per_row, likelihood).counted(),
        curve=curve,
        density=density,
        permitted=permitted,
        must=must,
        related=related_factors(cov.detach().cpu().double().numpy()),
        learn_cov=model.learn_factor_cov,
        correlation_prior=model.correlation_prior,
        noise_prior=(as_normal.prior_shape, as_normal.prior_scale / unit**2) if normal else (1.0, 1.0),
        shared_noise=normal and as_normal.shared,
        totals=(x if observed is None else x * observed).sum(1) if drawn else None,
        likelihood_parameters=parameters if parameters.drawn else None,
        edge_offset=weight_prior.known if weight_prior.informed else None,
        design=design,
        effect_sd=prior.intercept if normal else EFFECT_SD,
        unit=unit,
        weight_unit=torch.ones(1, 1).to(z),
        **rates,
        **settings,
    )
    trunk, head = decoder_layers(model, curve)
    head[..., 0] -= centre.double()
    head /= unit
    noise = torch.ones_like(model.weights[..., 0])
    if normal:
        noise = (as_normal.noise_sd()[:, 0] / unit) ** 2
    elif chains.cells.overdispersed:
        noise = likelihood.dispersion()
    state = DecoderState(
        z=z,
        weight=weight.clone(),
        edge=weight != 0,
        log_odds=log_odds,
        head=head,
        noise=noise.detach().clone(),
        trunk=trunk,
        precision=torch.linalg.inv(cov.detach().double()).expand(len(z), -1, -1).clone(),
        per_row=per_row,
        likelihood_parameters=parameters.start(),
        effects=None if design is None else _effects(model, len(design)),
    )
    if drawn:
        with torch.no_grad():
            state = chains.with_rows(state, chains.value(state), np.random.default_rng(0))
    return chains, state


def _effects(model: SparseDecoder, n_effects: int) -> Tensor:
    """Where effects of covariates begin, (restart, feature, effect): of normal noise beside least squares."""
    effects = getattr(model.likelihood, "effects", None)
    if effects is None:
        return torch.zeros(model.n_restarts, model.n_features, n_effects, dtype=torch.float64)
    start: Tensor = effects.detach().mT.double().clone()
    return start


@torch.no_grad()
def decoder_layers(model: SparseDecoder, curve: Curve) -> tuple[Trunk, Tensor]:
    """The decoder's layers in units of their prior; none is a view of the model's.

    Parameters
    ----------
    model : SparseDecoder
    curve : Curve
    """
    decoder = model.decoder
    intercept = decoder.intercept.mT.double().clone()
    if curve.activation is None:
        empty = model.weights.new_zeros(model.n_restarts, 1, 1)
        return Trunk(empty, empty, empty), intercept
    # With relu a first layer of larger entries and a second of smaller ones are the same curve.
    grow = (
        math.sqrt(model.hidden) * curve.first_sd / decoder.column_norm if curve.activation == "relu" else 1.0
    )
    a, b, c = curve.scales
    trunk = Trunk(decoder.first * grow / a, decoder.trunk.weight / grow / b, decoder.trunk.bias / c)
    head = torch.cat([intercept, decoder.slope.double(), decoder.head.double()], -1)
    return Trunk(*(tensor.clone() for tensor in trunk)), head
