r"""Edges of a `SparseDecoder`, or of any subclass of it, by the engine that samples programs.

The special chains (`edges/mcmc`) know a few densities and are fast; the engine samples whatever the model's
own `factor_prior`, `observation` and prior say. "auto" takes it where the special chains would sample another
model than the caller's; for others it is the check of them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from itertools import compress
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import logit
from torch import Tensor

from ...._utils.checks import check_whole
from ...._utils.torch_state import default_dtype, undisturbed
from ...._utils.types import ArvizData, TableLike, VectorLike
from ....data.large_table import LargeTable
from ....findings.finding import Finding
from ....graphs.chain_groups import ChainPool, pool_chains
from ....graphs.chain_starts import came_back
from ....graphs.chain_verdict import contradictions
from ....graphs.selection import edge_gap
from ....posterior.tables import to_arviz
from ....programs.data import Data
from ...program.recorded import RecordedDensity
from ...program.result import REACH
from ...program.weights import WeightSampler
from ...table.refine import refine
from ...training.restarts import pick
from ..density.mixture import MixtureDensity
from ..density.requirements import lacks_of_decoder
from ..density.scales import check_scales, unlike_prior
from ..mcmc.density_check import OtherProgram
from ..mcmc.initialise import DecoderPrior, weight_density
from ..mcmc.plan import chain_plan, is_exact, is_free, pivot_of, table_of
from .findings import chain_findings
from .model_program import ModelProgram, model_program, refuse_other_density
from .sampler import ProgramDraws, check_lengths, run_program

if TYPE_CHECKING:
    from ....data.read import Table
    from ...program.recorded import Position
    from ...table.result import Fit

__all__ = ["engine_edges"]

Array = NDArray[np.float64]

_SWEEPS = 800
_LOOKS = 20  # of each chain, at weights that should look like draws of their prior
_NEAR_ZERO = (
    0.02  # standard deviation that starts are spread by: a fit's zeros are exact, and chains' are not
)
_LEAST_RATE = 0.02  # a fit may end at rates of 0 and 1, whose log odds are infinite


def engine_edges(
    fit: Fit,
    num_draws: int = 500,
    seed: int = 0,
    X: TableLike | None = None,
    *,
    per_row: Mapping[str, VectorLike] | None = None,
    chains: int = 4,
    sweeps: int | None = None,
    warm_up: int | None = None,
    time_budget: float | None = None,
    decoder_prior: DecoderPrior | None = None,
    progress: bool = True,
) -> ArvizData:
    """Edge probabilities of the fit of a `SparseDecoder`, or of a subclass of one's own.

    Parameters
    ----------
    fit : Fit
        With a spike-and-slab prior of normal, Laplace or Student densities.
    num_draws : int
        Draws kept of each chain, at most as many as sweeps.
    seed : int
    X : array_like (row, feature), optional
        The data; needed after `load`, otherwise the fit's own.
    per_row : mapping of str to array_like (row,), optional
        What the fit was given of its rows beside their cells, of the rows of X.
    chains : int
        At least two: one alone could not disagree.
    sweeps, warm_up : int, optional
        Of each chain, by default 800; the first include the second, by default a quarter of them.
    time_budget : float, optional
        Seconds after which the chains stop, if they have ten sweeps after the warm-up.
    decoder_prior : DecoderPrior, optional
        Of the layers of the package's decoders.
    progress : bool

    Returns
    -------
    arviz.InferenceData or xarray.DataTree
        As of `mcmc_edges`.

    Raises
    ------
    ValueError
        The model has no density that can be sampled, and why.
    """
    check_whole(1, num_draws=num_draws)
    sweeps = _SWEEPS if sweeps is None else sweeps
    warm_up = check_lengths(chains, sweeps, warm_up)
    table = table_of(fit, X, per_row)
    if isinstance(table, LargeTable):
        raise ValueError(
            'X: the engine holds tables in memory; fit fewer features, or ask for method="score"'
        )
    restarts = chain_plan(fit, chains)[0]
    free = is_free(fit)
    turned = [free and r in restarts[:c] for c, r in enumerate(restarts)]
    with undisturbed(seed):
        made, density = _recorded(fit, table, chains, seed, decoder_prior)
        start = _starts(fit, made, density, table, restarts, turned, decoder_prior)
        draws = run_program(
            density, start, "W", pivot=pivot_of(fit), groups=fit.model.alike_factors(),
            signed=fit.model.decoder_kind == "linear", sweeps=sweeps, warm_up=warm_up, num_draws=num_draws,
            heated=turned, time_budget=time_budget, progress=progress,
            look=_without_constraints(fit, density, table, start, decoder_prior),
        )  # fmt: skip
    pool = pool_chains(draws.prob, draws.prob_error, draws.log_marginal.mean(1), None, REACH)
    began = start["W"].reshape(chains, -1, fit.model.n_factors).cpu().numpy()
    began = np.where(np.array(turned)[:, None, None], began, fit.weights[restarts])
    returned = came_back(draws.weight.mean(1), began, pivot_of(fit), pool)
    confirmed = list(compress(fit.factor_names, returned))
    return _packed(fit, made, draws, pool, table, X, restarts, turned, confirmed, sweeps - warm_up)


def _recorded(
    fit: Fit, table: Table, chains: int, seed: int, prior: DecoderPrior | None
) -> tuple[ModelProgram, RecordedDensity]:
    """The model as a program, and its density.

    Raises
    ------
    OtherProgram
        It cannot be sampled, or is not the model's.
    """
    data = Data(np.asarray(table.x, dtype=float), feature_names=fit.feature_names)
    try:
        model = pick(fit.model, [fit.best]).cpu()  # the engine's chains of models are the processor's
    except (KeyError, RuntimeError) as error:
        why = f"{type(fit.model).__name__}, made anew from its arguments, has other tensors than the fit's"
        raise _not_sampled(why) from error
    except ValueError as error:  # of a prior or a likelihood that is checked when it is set up
        raise _not_sampled(str(error)) from error
    try:
        made = model_program(model, table, prior)
        density = RecordedDensity(made.program, data, chains, seed=seed)
    except (TypeError, ValueError) as error:
        raise _not_sampled(re.sub(r"^(program: |fails on these data: |model: )+", "", str(error))) from error
    try:
        refuse_other_density(made, fit.model, fit.best, table, density)
    except RuntimeError as error:
        why = f"its own program fails in double precision ({str(error).splitlines()[0]})"
        raise _not_sampled(why) from error
    return made, density


def _without_constraints(
    fit: Fit, density: RecordedDensity, table: Table, start: Position, prior: DecoderPrior | None
) -> Callable[[Position], Tensor] | None:
    """Of a position of the chains P(edge) of each edge if it alone were permitted; None where all are."""
    model = pick(fit.model, [fit.best]).cpu()
    permitted = model.permitted.double()  # a copy
    if bool(permitted.all()):
        return None
    for mask in (model.permitted, model.allowed):
        mask.fill_(True)

    def masked(u: Position) -> Position:
        return {**u, "W": u["W"] * permitted.reshape(u["W"].shape[1:])}

    with undisturbed(0):  # a density begins a random stream of its own, and the chains have the caller's
        free = RecordedDensity(model_program(model, table, prior).program, density.data, density.n_chains)
        sampler = WeightSampler(free, free.blocks["W"], masked(start))
    return lambda u: sampler.prob_if_added(masked(u))


def _not_sampled(why: str) -> OtherProgram:
    return OtherProgram(f'model: no chains can sample it: {why}; ask for method="score"')


def _starts(
    fit: Fit,
    made: ModelProgram,
    density: RecordedDensity,
    table: Table,
    restarts: list[int],
    turned: list[bool],
    prior: DecoderPrior | None,
) -> Position:
    """Positions of all chains: at restarts of the fit, some of them in axes turned at random."""
    model = pick(fit.model, restarts)
    batch = table.batch(model.factor_cov.device, model.factor_cov.dtype)
    with torch.enable_grad():
        z = refine(model, batch).mean.detach().cpu().double()
    model = model.cpu()
    weight = model.weights.detach().double()
    covs = model.factor_cov.double().clone()
    for c in np.flatnonzero(turned):
        axes = torch.linalg.qr(torch.randn_like(covs[c]))[0]
        weight[c], z[c] = weight[c] @ axes, z[c] @ axes
        covs[c] = torch.eye(len(axes), dtype=covs.dtype)
    weight = weight + _NEAR_ZERO * torch.randn_like(weight) * model.permitted
    values: dict[str, Tensor] = {
        "W": weight, "z": z, "eta": model.prior.eta[..., 0, :].clamp(_LEAST_RATE, 1 - _LEAST_RATE),
        "correlation": torch.linalg.cholesky(covs), **made.starts(model, table, prior),
    }  # fmt: skip
    start = dict(density.start)
    with default_dtype(torch.float64):
        for name, value in start.items():
            link = density.layout.sites[name].link
            fitted = values[name].double()[..., : value.shape[-1]] if name == "eta" else values[name].double()
            real = fitted if link is None else link.inv(fitted)
            start[name] = real.reshape(value.shape).clone()
    return start


def _packed(
    fit: Fit,
    made: ModelProgram,
    draws: ProgramDraws,
    pool: ChainPool,
    table: Table,
    X: TableLike | None,
    restarts: list[int],
    turned: list[bool],
    confirmed: list[str],
    wanted: int,
) -> ArvizData:
    keep, gap = pool.keep, edge_gap(draws.prob, pool.keep)
    permitted = fit.model.permitted.cpu().numpy()[:, fit.alignment["permutation"][fit.best]]

    def over_chains(values: Array) -> Array:
        """Mean over the chains kept, each with its weight."""
        mean: Array = np.average(values[keep], axis=0, weights=pool.weight[keep])
        return mean

    findings = [
        *_contradictions(fit, draws, pool, permitted),
        *_held(fit, made),
        *_unlike_prior(fit, draws, pool),
    ]
    findings += chain_findings(fit, draws, pool, wanted, is_free(fit))
    plain = is_exact(fit) and not lacks_of_decoder(fit.model)
    squares = draws.weight.astype(float) ** 2
    shares = squares if plain else squares / np.maximum(squares.sum(-1, keepdims=True), 1e-300)
    eta = draws.sites.get("eta")
    k = fit.model.n_factors
    stats = {
        "log_marginal": draws.log_marginal.mean(1), "graph": pool.group, "pool_weight": pool.weight,
        "turned": np.array(turned),
    }  # fmt: skip
    return to_arviz(
        fit,
        edge=draws.edge * permitted.astype(np.int8),
        weight=draws.weight * permitted,
        eta=None if eta is None else np.broadcast_to(eta, (*eta.shape[:2], k)),
        probability=np.where(permitted, over_chains(draws.prob), 0.0).clip(0, 1),
        restart_probability=np.where(permitted, draws.prob, 0.0).clip(0, 1),
        chain_restart=np.array(restarts),
        kept=keep,
        chain_stats=stats,
        edge_weight=over_chains(draws.weight.mean(1)) * permitted,
        edge_effect=over_chains(shares.mean(1)) * permitted,
        method="program",
        is_score=False,
        note=(
            f"Posterior probability of the slab from {len(keep)} Markov chains of {draws.sweeps} sweeps over "
            f"the program of {type(fit.model).__name__}, {sum(turned)} of them begun in other axes."
        ),
        X=X,
        findings=findings,
        confirmed=confirmed,
        attrs={
            "rows_used": len(table.x), "sweeps": draws.sweeps, "sweeps_wanted": wanted,
            "stopped_by": draws.stopped_by, "interrupted": int(draws.stopped_by == "interrupt"),
            "mean_gap": float(np.nanmean(gap)), "graphs": pool.n_graphs, "graph_shares": pool.share.tolist(),
            "weight_unit": "loading" if plain else "model",
            "kernels": "; ".join(f"{name}: {how}" for name, how in draws.methods.items()),
        },
    )  # fmt: skip


def _contradictions(
    fit: Fit, draws: ProgramDraws, pool: ChainPool, permitted: NDArray[np.bool_]
) -> list[Finding]:
    """Edges that a constraint forbids and the data want."""
    if draws.looked is None or "eta" not in draws.sites:
        return []
    keep = pool.keep
    if_permitted = np.average(draws.looked[keep], axis=0, weights=pool.weight[keep])
    rates = np.broadcast_to(draws.sites["eta"][keep].mean((0, 1)), permitted.shape[1:])
    against = contradictions(
        np.where(permitted, np.nan, if_permitted), rates, fit.feature_names, fit.factor_names
    )
    return [Finding("constraints", sentence, source="chains") for sentence in against]


def _unlike_prior(fit: Fit, draws: ProgramDraws, pool: ChainPool) -> list[Finding]:
    """Whether weights look like draws of another scale than the prior's, where all share two scales."""
    prior, eta = fit.model.prior, draws.sites.get("eta")
    try:
        density = weight_density(prior)
    except ValueError:  # scales of each weight's own
        return []
    if eta is None or not isinstance(density, MixtureDensity) or not torch.equal(prior.inclusion, prior.eta):
        return []
    looks = np.linspace(0, draws.weight.shape[1] - 1, _LOOKS).astype(int)
    weight, rate = (
        values[pool.counts][:, looks].reshape(-1, *values.shape[2:]) for values in (draws.weight, eta)
    )
    order = fit.alignment["permutation"][fit.best]
    permitted, must = (mask.cpu().numpy()[:, order] for mask in (fit.model.permitted, fit.model.must))
    offset = prior.known.cpu().double().numpy()[:, order] if prior.informed else None
    check = check_scales(weight, logit(rate)[:, None], density, permitted, must, prior.shared, offset)
    if check is None:
        return []
    sentences = unlike_prior(prior, check)
    return [Finding("scales", sentence, source="chains", size=check.p_value) for sentence in sentences]


def _held(fit: Fit, made: ModelProgram) -> list[Finding]:
    """Parameters of which nothing says what is believed, and effects of covariates."""
    has_effects = fit.table.design is not None
    held = [name for name in made.held if name != "likelihood.effects"]
    held += ["the effects of covariates"] if has_effects else []
    if not held:
        return []
    them = "them" if len(held) > 1 or has_effects else "it"
    message = (
        f"The chains take {', '.join(held)} as the fit left {them}: "
        "edges do not know how uncertain that is, and may be too sure"
    )
    remedy = "write the model as a Program, where each number has a prior"
    return [Finding("parameters", message, remedy, source="chains")]
