"""From a fit to edge probabilities: one method per file, one door.

Each method is a function of a `Fit` that ends in `pyro_sparse.posterior.tables.to_arviz`. `mcmc` runs
Markov chains from the fit: probabilities. `program` runs the engine that samples any program, where the model
is one that the chains of `mcmc` do not know: a subclass with a decoder of its own, say. `jacobian` reads them
off the slopes of a `DependencyVAE`.
`score` is the spike-and-slab-lasso weight p* of the best restart: it ranks edges, is not calibrated, and
says so.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, cast

from ..._utils.checks import check_whole
from ..._utils.options import check_options, options_of
from ..._utils.types import ArvizData, TableLike
from ...data.design import ROLES
from ...data.large_table import LargeTable
from ...models.dependency import DependencyVAE
from ...posterior.method_names import warned_name
from .density.requirements import lacks_for_engine, lacks_of_decoder, lacks_of_likelihood
from .jacobian import jacobian_edges
from .mcmc.density_check import OtherProgram
from .mcmc.initialise import weight_density
from .mcmc.plan import MOST_GB, gigabytes
from .mcmc.sampler import DecoderPrior, mcmc_edges
from .program.model_edges import engine_edges
from .score import score_edges

if TYPE_CHECKING:
    from ..table.result import Fit

__all__ = [
    "METHODS",
    "DecoderPrior",
    "edge_posterior",
    "engine_edges",
    "jacobian_edges",
    "mcmc_edges",
    "score_edges",
]

_NO_DATA = (
    "a loaded fit holds no data; fit.edge_posterior(X=X), X being its table, gives probabilities, which "
    "identify and report take as idata="
)
_INSTEAD = ["mcmc", "program", "score"]  # what "auto" takes where those before would sample another model
_BY_ENGINE = ", so that the engine samples the model's own program"
DRAWN = 20_000_000  # edges drawn for each restart of a large fit, when nobody says how many
METHODS: dict[str, Callable[..., ArvizData]] = {
    "mcmc": mcmc_edges,
    "program": engine_edges,
    "score": score_edges,
    "jacobian": jacobian_edges,
}


def edge_posterior(
    fit: Fit, method: str = "auto", num_draws: int = 500, seed: int = 0, **options: object
) -> ArvizData:
    """Draws of 0/1 edges and one number per edge, as an ArviZ object.

    Parameters
    ----------
    fit : Fit
    method : {"auto", "mcmc", "program", "jacobian", "score"}
        "auto" takes "mcmc" where it can: a spike-and-slab prior, a likelihood whose rows are no more than
        their cells, and data to go by; "program" where these chains would sample another model than the
        fit's, and the engine can sample the fit's own; "jacobian" for a `DependencyVAE`; else "score". The
        object says which, and why; a `RuntimeWarning` too if it is "score" for want of data only.
    num_draws : int
        Draws per restart, or per chain.
    seed : int
        Same seed, same draws.
    **options
        Passed to the method. "auto" leaves out those that its choice does not have, and says so in a
        `RuntimeWarning` and in the object.

    Returns
    -------
    arviz.InferenceData or xarray.DataTree
        See `pyro_sparse.posterior.tables.to_arviz`.

    Raises
    ------
    ValueError
        If the method is unknown, `num_draws` is below 1, or `seed` below 0.
    TypeError
        If an option is unknown: to the method, or with "auto" to all of them.
    """
    check_whole(1, num_draws=num_draws)
    check_whole(0, seed=seed)
    method = warned_name(method)
    if rows := [name for name in options if name in _per_row_inputs(fit)]:
        options["per_row"] = {name: options.pop(name) for name in rows}
    if method == "auto":
        allowed = sorted(set().union(*(options_of(METHODS[candidate]) for candidate in METHODS)))
        if unknown := sorted(set(options) - set(allowed)):
            raise TypeError(f"{unknown[0]}: no method has such an option; want some of {allowed}")
        name, why = _choice(fit, cast("TableLike | None", options.get("X")))
        for candidate in _INSTEAD[_INSTEAD.index(name) :] if name in _INSTEAD else [name]:
            try:
                return _chosen(fit, candidate, why, num_draws, seed, options)
            except OtherProgram as error:  # only a look at the densities themselves shows it
                shown = str(error).removeprefix("model: ").split("; ask for")[0]
                lack = why.removesuffix(_BY_ENGINE)
                why = shown + _BY_ENGINE if candidate == "mcmc" else f"{lack}, and the engine cannot: {shown}"
    if method not in METHODS:
        raise ValueError(f"method: want one of {['auto', *METHODS]}, got {method!r}")
    check_options(method, options, options_of(METHODS[method]))
    return METHODS[method](fit, num_draws=num_draws, seed=seed, **options)


def _per_row_inputs(fit: Fit) -> tuple[str, ...]:
    return *getattr(getattr(fit.model, "likelihood", None), "per_row_inputs", ()), *ROLES, "sample_weight"


def _chosen(
    fit: Fit, name: str, why: str, num_draws: int, seed: int, options: dict[str, object]
) -> ArvizData:
    """The answer of the method that "auto" takes; it says why, and which options are of no use to it."""
    idle = sorted(set(options) - options_of(METHODS[name]))
    if idle:
        why += f"; of no use to {name!r}: {', '.join(idle)}"
        options = {key: value for key, value in options.items() if key not in idle}
    if set(idle) - {"progress"} or why.startswith(_NO_DATA):
        warnings.warn(f"edge_posterior took {name!r}: {why}", RuntimeWarning, stacklevel=5)
    if name == "score" and isinstance(fit.table, LargeTable):  # 300,000 edges and more
        num_draws = min(num_draws, max(10, DRAWN // fit.weights[0].size))
    edges = METHODS[name](fit, num_draws=num_draws, seed=seed, **options)
    edges.attrs["chosen_because"] = why
    if name == "score":
        edges.attrs["verdict"] += f"\nWhy scores: {why.split('; of no use to')[0]}."
    return edges


def _choice(fit: Fit, X: TableLike | None) -> tuple[str, str]:
    """The method for a fit, and the reason."""
    if isinstance(fit.model, DependencyVAE):
        return (
            "jacobian",
            "a DependencyVAE has no prior on weights; its slopes say what depends on what",
        )
    why = _lack_of_chains(fit)
    if why and (lacks_for_engine(fit.model) or isinstance(fit.table, LargeTable)):
        return "score", why
    has_data = X is not None or len(fit.table.x) > 0
    if why:
        return ("program", why + _BY_ENGINE) if has_data else ("score", why)
    if isinstance(fit.table, LargeTable) and (cost := gigabytes(fit)) > MOST_GB:
        return "score", (
            f"Markov chains over {fit.model.n_features} features would take some {cost:.0f} GB; for "
            'probabilities ask for method="mcmc" with a small max_rows, or fit fewer features'
        )
    if not has_data:
        return "score", _NO_DATA
    return "mcmc", "Markov chains from the fit give probabilities"


def _lack_of_chains(fit: Fit) -> str:
    """Why the chains of "mcmc" would sample another model than the fit's; empty if they do not."""
    if why := lacks_of_decoder(fit.model):
        return why[0]
    try:
        weight_density(getattr(fit.model, "prior", None))
    except ValueError as error:
        return str(error).removeprefix("prior: ")
    return next(iter(lacks_of_likelihood(fit.model.likelihood)), "")
