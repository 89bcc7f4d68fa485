r"""Does the fit's own Pyro program have the density that the chains sample? Two points are asked.

What a class declares (`density/requirements.py`) decides; this is the safety net beneath it, for what no
declaration can see: a global hook, a patched class, a parameter that means something else. The program of
the fit is traced on a few rows at two settings of factors and weights, and each site's log density is
compared with what the chains' own formula gives, so that constants cancel.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, cast

import numpy as np
import pyro.distributions as dist
import torch
from pyro import poutine
from torch import Tensor

from ...._utils.torch_state import undisturbed
from ....data.read import Batch
from ....distributions import CorrelatedNormal
from ..density.rates import rate_prior
from .initialise import DecoderPrior, decoder_layers, has_normal_noise, weight_density

if TYPE_CHECKING:
    from pyro.poutine import Trace

    from ....data.read import Table
    from ....likelihoods import Likelihood
    from ....models import SparseDecoder
    from ....priors import SpikeSlabPrior
    from ...table.result import Fit
    from ..density.mixture import WeightDensity

__all__ = ["OtherProgram", "check_program", "program_differences", "refuse_differences"]

_ROWS = 4  # that are looked at: the program says the same of every row
_MOST_WEIGHTS = 2e7  # of all restarts; beyond, a look at them takes as long as many sweeps
# Share of a log density, or of a predictor's range, that single precision may cost: on 98 fits of the
# package's own models (tables from seed 1000; seven likelihoods, four priors, both decoders, with missing
# cells and without) the largest was 3e-7.
_TOLERANCE = 1e-4


class OtherProgram(ValueError):
    """The chains would sample another program than that of the fit."""


def check_program(fit: Fit, table: Table) -> None:
    """Refuse a fit whose program has another density than the chains'.

    Parameters
    ----------
    fit : Fit
    table : Table
        At least one row, in model units.

    Raises
    ------
    OtherProgram
        Naming what differs.
    """
    if fit.model.weights.numel() > _MOST_WEIGHTS:
        return
    like = fit.model.factor_cov
    few = table.rows(np.arange(min(_ROWS, len(table.x)))).batch(like.device, like.dtype)
    refuse_differences(fit.model, few.whole())


def refuse_differences(model: SparseDecoder, batch: Batch) -> None:
    """Refuse a model whose program has another density than the chains'.

    Parameters
    ----------
    model : SparseDecoder
        Set up.
    batch : Batch
        A few rows.

    Raises
    ------
    OtherProgram
        Naming what differs.
    """
    if differences := program_differences(model, batch):
        raise OtherProgram(
            f"model: {differences[0]}: at the same point the model's own program and the chains' have other "
            "log densities, so that the numbers would be probabilities of another model; ask for "
            'method="score"'
        )


@torch.no_grad()
def program_differences(model: SparseDecoder, batch: Batch) -> list[str]:
    """What tells the program of a model from the one that the chains sample, the first cause first.

    Parameters
    ----------
    model : SparseDecoder
        Fitted, and declared to be what the chains sample.
    batch : Batch
        A few rows.
    """
    rng, like, density = np.random.default_rng(0), model.factor_cov, weight_density(model.prior)
    shape = model.n_restarts, model.n_features, model.n_factors

    def tensor(values: np.ndarray) -> Tensor:
        return torch.as_tensor(np.asarray(values)).to(like)

    points = []
    for _ in range(2):
        z = tensor(rng.standard_normal((shape[0], len(batch), shape[2])))
        edge = rng.random(shape) < 0.5
        points.append((z, tensor(density.drawn(edge, rng)) * model.allowed))
    with undisturbed(0):
        differences = _of_prior(model, density, [w for _, w in points])
        traces = [_trace(model, batch, *point) for point in points]
        if more := _other_sites(model, traces[0]):
            differences.append(more)
        else:
            differences += _of_sites(model, batch, points, traces)
    return differences


def _trace(model: SparseDecoder, batch: Batch, z: Tensor, weights: Tensor) -> Trace:
    fixed = poutine.condition(model.model, {"z": z, model.prior.site: weights})
    trace = poutine.trace(fixed).get_trace(batch)
    trace.compute_log_prob()
    return trace


def _other_sites(model: SparseDecoder, trace: Trace) -> str:
    """A site that the chains know nothing of, or one of theirs that is missing."""
    wanted = {model.prior.site, "z", "x", *model.likelihood.priors()}
    sites = {
        name
        for name, site in trace.nodes.items()
        if site["type"] == "sample" and type(site["fn"]).__name__ != "_Subsample"
    }
    if strange := sorted(sites - wanted):
        return f"its program has a site {strange[0]!r}, which the chains do not draw"
    if missing := sorted(wanted - sites):
        return f"its program has no site {missing[0]!r}, which the chains draw"
    return ""


def _of_sites(
    model: SparseDecoder, batch: Batch, points: list[tuple[Tensor, Tensor]], traces: list[Trace]
) -> list[str]:
    """Factors, cells and the noise's prior at the two points."""
    differences = []
    prior = CorrelatedNormal(model.factor_cov.unsqueeze(1))
    wanted = [prior.log_prob(z) for z, _ in points]
    if _differ([trace.nodes["z"]["log_prob"] for trace in traces], wanted):
        differences.append("its factors are not N(0, C) with C = factor_cov")
    curve = DecoderPrior().curve(model)
    trunk, head = decoder_layers(model, curve)
    predictors = [curve.value(z, w, trunk, head).to(z).mT for z, w in points]
    means = [model.decode(z, w) for z, w in points]
    for decoded, theirs in zip(means, predictors, strict=True):
        if decoded.shape != theirs.shape or _apart(
            decoded, theirs, 1 + theirs.abs().amax((1, 2), keepdim=True)
        ):
            differences.append("its decode is not the masked decoder that the chains have")
            break
    wanted = [_log_cells(model.likelihood, f, batch) for f in predictors]
    if not differences and _differ([trace.nodes["x"]["log_prob"] for trace in traces], wanted):
        differences.append("its cells, given factors and weights, have another density")
    return differences


def _log_cells(likelihood: Likelihood, f: Tensor, batch: Batch) -> Tensor:
    """Log density of each row as the chains have it, (restart, row)."""
    if has_normal_noise(likelihood):
        log_prob = dist.Normal(f, likelihood.noise_sd()).log_prob(batch.x)
        return (log_prob if batch.mask is None else log_prob * batch.mask).sum(-1)
    return likelihood.observation(f, batch.mask, batch.per_row).log_prob(batch.x)


def _of_prior(model: SparseDecoder, density: WeightDensity, weights: list[Tensor]) -> list[str]:
    """The prior's density, odds and rates, at the end of its ladder."""
    differences, prior = [], cast("SpikeSlabPrior", copy.deepcopy(model.prior))
    prior.anneal(1.0)
    name = type(prior).__name__
    log_odds = torch.logit(prior.eta) + prior.known if prior.informed else torch.logit(prior.eta)
    never = torch.zeros_like(prior.allowed)
    for w in weights:
        log_prob = density.log_prob(w.double(), log_odds.double(), never)
        if _apart(prior.distribution().log_prob(w).double(), log_prob, 1 + log_prob.abs()):
            differences.append(
                f"{name}.distribution() is not the mixture of slab and spike that the chains sample"
            )
        sums = torch.where(prior.allowed, prior.distribution().log_prob(w), 0.0).sum((1, 2))
        if _apart(prior.log_density(w), sums, 1 + sums.abs()):
            differences.append(f"{name}.log_density() is not the density of its distribution()")
        prob, theirs = prior.edge_log_odds(w).sigmoid(), density.edge(w.double(), log_odds.double())
        if _apart(
            torch.where(prior.allowed, prob, 0.0), torch.where(prior.allowed, theirs, 0.0).to(prob), 1.0
        ):
            differences.append(f"{name}.edge_log_odds() are not the odds of slab and spike")
        if differences:
            return differences
    if prior.column != "ibp":  # whose finite form the chains have
        before, eta = prior.log_hyper(), prior.eta.clone()
        prior.eta.copy_(0.5 * eta + 0.2)  # other rates, and rates still
        a, b = (torch.as_tensor(np.asarray(parameter)).to(eta) for parameter in rate_prior(prior))
        rates = dist.Beta(a, b)
        moved = rates.log_prob(prior.eta) - rates.log_prob(eta)
        wanted = moved[:, 0, 0] if prior.shared else moved.sum((1, 2))
        if _apart(prior.log_hyper() - before, wanted, 1 + before.abs() + wanted.abs()):
            differences.append(f"{name}.log_hyper() is not the Beta distribution of the rates")
    return differences


def _differ(of_program: list[Tensor], theirs: list[Tensor]) -> bool:
    """Whether the change from one point to the other is another."""
    scale = 1 + theirs[0].abs() + theirs[1].abs()
    return _apart(of_program[1] - of_program[0], theirs[1] - theirs[0], scale)


def _apart(of_program: Tensor, theirs: Tensor, scale: Tensor | float) -> bool:
    finite = theirs.isfinite()
    return not bool((((of_program - theirs).abs() <= _TOLERANCE * scale) | ~finite).all())
