"""Edges between observed variables: the posterior of the fit's terms, or evidence of parent sets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray

from ...._utils.options import check_options, options_of
from ...._utils.types import ArvizData
from ....findings.finding import doubted_edges, sentences
from ....posterior.edge_table import attributes, edge_numbers, packed
from ....posterior.verdicts import decided
from ...observed.job import ObservedJob
from ...observed.steps import imputed, steps_of
from .parents import parent_posterior

if TYPE_CHECKING:
    from ...observed.observed_result import ObservedFit

__all__ = ["OBSERVED_METHODS", "edges_by_parent_sets", "edges_of_terms"]

TERMS_NOTE = (
    "Probabilities that a variable's past, or an action, helps to predict a target given all others: lines, "
    "curves and products, rates of edges set by the data."
)
SETS_NOTE = (
    "Probabilities that a variable's past, or an action, helps to predict a target given all others: "
    "Gaussian processes on sets of parents."
)
_NO_RHAT = (
    "not defined: chains are weighted samplers of the sets of terms, from two starts; the `gap` of an edge "
    "compares them"
)


def edges_of_terms(fit: ObservedFit, num_draws: int = 500, seed: int = 0, **options: object) -> ArvizData:
    """The posterior that the fit holds.

    Parameters
    ----------
    fit : ObservedFit
    num_draws : int
        Of each chain; more than the fit kept are drawn from those again.
    seed : int
        Same seed, same draws.
    **options
        None.

    Raises
    ------
    TypeError
        There are options.
    """
    check_options("terms", options)
    kept = fit.draws.shape[1]
    rng = np.random.default_rng(seed)
    chosen = np.arange(kept) if num_draws == kept else np.sort(rng.choice(kept, num_draws, num_draws > kept))
    return _to_arviz(fit, fit.draws[:, chosen], fit.by_chain, "terms", TERMS_NOTE, seed, fit.curved)


def edges_by_parent_sets(
    fit: ObservedFit, num_draws: int = 500, seed: int = 0, **options: object
) -> ArvizData:
    """Evidence of Gaussian processes on sets of parents.

    Parameters
    ----------
    fit : ObservedFit
    num_draws : int
    seed : int
        Same seed, same draws.
    **options
        Passed to `parent_posterior`: `kernel`, `power`, `prior`, `max_rows`, …

    Raises
    ------
    TypeError
        An option is not one of `parent_posterior`.
    ValueError
        The fit was loaded without its sequences, has too few steps with all cells, or has trend, season or
        covariates.
    """
    check_options("parent_sets", options, options_of(parent_posterior))
    if fit.sequences.design is not None:
        raise ValueError(
            f'method: "parent_sets" knows no {", ".join(fit.sequences.design.names)}, which the fit has in '
            'every sum, and would find edges by what they share; use "terms"'
        )
    if not len(fit.sequences):
        raise ValueError("the fit was loaded without its sequences: use fit.with_data(X, ...) first")
    steps = steps_of(fit.sequences, imputed(fit.sequences, np.random.default_rng(seed)), fit.lags)
    whole = ~np.isnan(steps.targets).any(1)
    d = len(fit.feature_names)
    pairs = ObservedJob(fit.model, fit.sequences).forbidden_pairs
    forbidden = np.concatenate([*[pairs[:, :d]] * fit.lags, pairs[:, d:]], 1)
    widths = [1] * (d * fit.lags) + fit.sequences.action_widths
    posterior = parent_posterior(
        steps.inputs[whole],
        steps.targets[whole],
        forbidden=forbidden,
        groups=np.repeat(np.arange(forbidden.shape[1]), widths),
        num_draws=num_draws,
        seed=seed,
        **cast("dict[str, Any]", options),
    )
    draws = np.repeat(posterior.draws[None], fit.n_restarts, 0)
    by_chain = np.repeat(posterior.probability[None], fit.n_restarts, 0)
    return _to_arviz(fit, draws, by_chain, "parent_sets", SETS_NOTE, seed, None)


def _to_arviz(
    fit: ObservedFit,
    draws: NDArray[np.int8],
    by_chain: NDArray[np.float64],
    method: str,
    note: str,
    seed: int,
    curved: NDArray[np.float64] | None,
) -> ArvizData:
    """Pack the edges of all lags, and of the actions, as those of a transition."""
    d, lags = len(fit.feature_names), fit.lags
    sizes = {"strength": fit.strength, **({} if curved is None else {"curved": curved})}
    posterior: dict[str, Any] = {}
    numbers: dict[str, Any] = {}

    def past(array: NDArray) -> NDArray:
        lagged = np.moveaxis(array[..., : lags * d].reshape(*array.shape[:-1], lags, d), -2, -3)
        return lagged[..., 0, :, :] if lags == 1 else lagged

    graphs = {"time": (past, (*(("lag",) if lags > 1 else ()), "target", "source"))}
    if fit.action_names:
        graphs["action"] = (lambda array: array[..., lags * d :], ("target", "action"))
    for name, (of_graph, dims) in graphs.items():
        posterior[f"edge_{name}"] = (("chain", "draw", *dims), of_graph(draws))
        graph_sizes = {size: of_graph(values) for size, values in sizes.items()}
        chains = of_graph(by_chain)
        numbers |= edge_numbers(dims, chains.mean(0), chains, graph_sizes, graph=f"_{name}")
    if lags > 1:
        numbers["probability_any_lag"] = (("target", "source"), past(draws).max(2).mean((0, 1)))
    coords: dict[str, Any] = {
        "target": fit.feature_names,
        "source": fit.feature_names,
        "action": fit.action_names,
        "lag": list(range(1, lags + 1)),
    }
    sources = [*fit.feature_names * lags, *fit.action_names]
    unique = list(dict.fromkeys(sources))
    doubted = doubted_edges(fit.findings, fit.feature_names, unique)[:, [unique.index(s) for s in sources]]
    gap = np.ptp(by_chain, axis=0) if len(by_chain) > 1 else np.full(by_chain.shape[1:], np.nan)
    conclusion = [
        decided(by_chain.mean(0), gap, np.ones(gap.shape, bool), doubted), *sentences(fit.findings),
    ]  # fmt: skip
    about = attributes(
        fit,  # type: ignore[arg-type]
        method, False, note, {"seed": int(seed), "lags": lags, "nodes": "variables"}, (), conclusion,
        kind="transition", rhat=_NO_RHAT,
    )  # fmt: skip
    stats = {name: np.full(len(by_chain), np.nan) for name in ("elbo", "heldout_elbo", "recovered")}
    everyone = np.ones(len(by_chain), bool)
    groups = {"posterior": posterior, "edge_posterior": numbers}
    return packed(fit, groups, stats, "target", coords, about, kept=everyone)


OBSERVED_METHODS = {"terms": edges_of_terms, "parent_sets": edges_by_parent_sets}
