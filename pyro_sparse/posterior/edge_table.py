"""What edge posteriors of all three kinds, and the tables of them, have in common: groups and columns."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import pandas as pd
import xarray as xr
from numpy.typing import ArrayLike, NDArray

from .._utils.display import EdgeTable
from ..findings.finding import Finding, doubted_edges, findings_of, write_findings
from ..graphs.selection import bayesian_fdr, edge_verdicts, q_values, unresolved
from . import arviz as _arviz
from .draws import of_kept_chains
from .method_names import current_name
from .same_fit import fit_mark
from .verdicts import SCORES

if TYPE_CHECKING:
    from .._utils.types import ArvizData
    from ..inference.multitask.task_result import MultiTaskFit
    from ..inference.table.result import Fit
    from ..inference.training.fit_result import FitResult
    from ..inference.transition.transition_result import TransitionFit

__all__ = [
    "NO_RHAT",
    "about_edges",
    "attributes",
    "check_is_of_table",
    "compared_runs",
    "edge_numbers",
    "edge_rows",
    "has_loadings",
    "holds_scores",
    "judged",
    "left_open",
    "packed",
    "selected_edges",
    "weight_table",
    "weights_vary",
]


# Dimensions and values of each variable of a group.
Variables: TypeAlias = Mapping[str, tuple[tuple[str, ...], ArrayLike]]
# What a posterior of no table is of, by `attrs["kind"]`.
_KINDS = {"transition": "sequences", "tasks": "tasks", "dictionaries": "two dictionaries"}
# Up to which an edge is as good as ruled out: of probabilities where "absent" begins; scores have no verdict.
_UNLIKELY = {"score": 0.1, "probability": 0.05}
NO_RHAT = (
    "not defined: chains are restarts, each with independent draws given its latents, and no Markov chains; "
    "the `gap` of an edge compares restarts"
)


def holds_scores(idata: ArvizData) -> bool:
    """Whether the numbers of an edge posterior are only scores."""
    return bool(int(idata.attrs.get("is_score", 0)))


def weights_vary(idata: ArvizData) -> bool:
    """Whether draws of a run say how large a weight may be: not where each restart has one weight of an edge.

    Parameters
    ----------
    idata : InferenceData or DataTree
        From `fit.edge_posterior()` of a table.

    Returns
    -------
    bool
        False of scores and of the strengths of a `DependencyVAE`.
    """
    return not holds_scores(idata) and current_name(idata.attrs.get("edge_method", "")) != "jacobian"


def check_is_of_table(idata: ArvizData, why: str) -> None:
    """Raise unless edges are those of a table.

    Parameters
    ----------
    idata : InferenceData or DataTree
    why : str
        End of the message: what only a table has.

    Raises
    ------
    TypeError
        The object is no ArviZ object, or is of sequences, tasks or dictionaries.
    """
    _arviz.group_names(idata)  # complains of what is none
    if kind := str(idata.attrs.get("kind", "")):
        raise TypeError(
            f"idata: got the posterior of {_KINDS.get(kind, kind)}, wanted that of a table; {why}"
        )


def has_loadings(idata: ArvizData) -> bool:
    """Whether draws of weights are standardised loadings: not those of a program, which are in its own units.

    Parameters
    ----------
    idata : InferenceData or DataTree
        From `fit.edge_posterior()` of a table.
    """
    return weights_vary(idata) and idata.attrs.get("weight_unit", "loading") == "loading"


def compared_runs(idata: ArvizData) -> str:
    """What the runs along `chain` are, between which `gap` is taken: Markov chains, or restarts of the fit.

    Parameters
    ----------
    idata : InferenceData or DataTree
        From `fit.edge_posterior()` of a table.

    Returns
    -------
    str
        "chain" or "restart".
    """
    return "chain" if current_name(idata.attrs.get("edge_method", "")) in ("mcmc", "program") else "restart"


def about_edges(idata: ArvizData) -> dict[str, Any]:
    """What `DataFrame.attrs` say of the numbers of an edge posterior."""
    return {
        "edge_method": str(idata.attrs.get("edge_method", "")),
        "is_score": holds_scores(idata),
        "note": str(idata.attrs.get("note", "")),
    }


def attributes(
    fit: Fit | TransitionFit | MultiTaskFit,
    method: str,
    is_score: bool,
    note: str,
    attrs: Mapping[str, object] | None,
    findings: Sequence[Finding],
    conclusion: list[str],
    of_fit: Sequence[Finding] | None = None,
    **more: object,
) -> dict[str, Any]:
    """Attributes of an edge posterior: how it was made, of which fit, and what its numbers mean.

    Parameters
    ----------
    fit : Fit, TransitionFit or MultiTaskFit
    method : str
    is_score : bool
    note : str
    attrs : mapping, optional
        The method's own, among them a verdict if it has one.
    findings : sequence of Finding
        What the method files against its numbers; those of the fit are added.
    conclusion : list of str
        Sentences on what follows.
    of_fit : sequence of Finding, optional
        Those of the fit, as the method leaves them. Default: as they are.
    **more
        Those of the kind of fit.
    """
    return {
        "edge_method": method,
        "is_score": int(is_score),
        "note": note,
        "findings": write_findings([*(fit.findings if of_fit is None else of_fit), *findings]),
        "verdict": "\n".join([*([SCORES] if is_score else []), *conclusion]),
        "best_restart": int(fit.best),
        "fit_mark": fit_mark(fit),
        "settings": json.dumps(dict(fit.settings), default=str),
        "inference_library": "pyro_sparse",
        **more,
        **dict(attrs or {}),
    }


def edge_numbers(
    dims: tuple[str, ...],
    probability: NDArray[np.float64],
    by_chain: NDArray[np.float64],
    sizes: Mapping[str, ArrayLike],
    given: NDArray[np.bool_] | None = None,
    gap: NDArray[np.float64] | None = None,
    graph: str = "",
) -> Variables:
    """What the group `edge_posterior` says of the edges of a graph, under names that end in `graph`.

    Parameters
    ----------
    dims : tuple of str
    probability : ndarray of these dims
    by_chain : ndarray (chain, ...)
        The same number from each chain alone.
    sizes : mapping of array_like
        Weight, effect or strength, and more of each edge.
    given : ndarray of bool, optional
        Edges that the model was told to have. Default: none.
    gap : ndarray, optional
        Default: between all chains, NaN for one.
    graph : str
    """
    prescribed = np.zeros(probability.shape, dtype=bool) if given is None else given
    if gap is None:
        gap = np.ptp(by_chain, axis=0) if len(by_chain) > 1 else np.full(probability.shape, np.nan)
    numbers = {
        "probability": probability,
        "given": prescribed.astype(np.int8),
        "q_value": q_values(probability, prescribed),
        "gap": gap,
        **sizes,
    }
    variables: Variables = {f"{name}{graph}": (dims, np.asarray(values)) for name, values in numbers.items()}
    return {**variables, f"restart_probability{graph}": (("chain", *dims), by_chain)}


def packed(
    fit: FitResult,
    groups: Mapping[str, Variables],
    stats: Mapping[str, ArrayLike],
    latent: str,
    coords: Mapping[str, ArrayLike],
    about: Mapping[str, object],
    chain_restart: NDArray[np.intp] | None = None,
    kept: NDArray[np.bool_] | None = None,
) -> ArvizData:
    """An edge posterior of draws and numbers, with the groups `sample_stats` and `alignment`.

    Parameters
    ----------
    fit : Fit, TransitionFit or MultiTaskFit
    groups : mapping
        The other groups.
    stats : mapping of arrays of shape (chain,)
        What `sample_stats` says besides `best`, `kept` and `restart`.
    latent : str
        Dimension of the factors, or latents, that were aligned.
    coords : mapping
        Labels of the dimensions.
    about : mapping
        From `attributes`.
    chain_restart : ndarray of int, shape (chain,), optional
        The restart each chain began at. Default: one chain a restart, in order.
    kept : ndarray of bool, shape (chain,), optional
        Chains that count. Default: the best restart.
    """
    origin = np.arange(fit.n_restarts) if chain_restart is None else chain_restart
    best = origin == fit.best
    stats = {**stats, "best": best, "kept": best if kept is None else kept, "restart": origin}
    frames = {name: np.asarray(values)[origin] for name, values in fit.alignment.items()}
    of_chains: dict[str, Variables] = {
        "sample_stats": {name: (("chain",), np.asarray(values)) for name, values in stats.items()},
        "alignment": {name: (("chain", latent), values) for name, values in frames.items()},
    }
    return _arviz.from_dict({**groups, **of_chains}, coords, about)


def left_open(table: pd.DataFrame) -> pd.DataFrame:
    """Edges that are neither selected nor ruled out.

    Parameters
    ----------
    table : DataFrame
        From `pyro_sparse.summary`. Where its verdicts are open for another reason than the edge's own number,
        as those of scores are, edges of a low number that nobody disputes are left out.
    """
    number = table["score" if "score" in table else "probability"]
    least = _UNLIKELY["score" if "score" in table else "probability"]
    alive = (number > least) | table["unresolved"]
    return table[~table["selected"] & (table["verdict"] == "open") & alive]


def selected_edges(
    probability: ArrayLike,
    fdr: float,
    doubted: ArrayLike,
    prescribed: ArrayLike | None = None,
    include_doubted: bool = False,
) -> NDArray[np.bool_]:
    """Edges that are named at a false-discovery rate: of those in doubt none, unless they are asked for.

    Parameters
    ----------
    probability : array_like
    fdr : float
    doubted : ndarray of bool, the same shape
    prescribed : array_like of bool, the same shape, optional
        Edges that were given to the model.
    include_doubted : bool
        Whether edges in doubt may be named by their probability.
    """
    p = np.asarray(probability, dtype=float)
    is_prescribed = (
        np.zeros(p.shape, dtype=bool) if prescribed is None else np.asarray(prescribed, dtype=bool)
    )
    if include_doubted:
        return bayesian_fdr(p, fdr, given=is_prescribed)
    selected = np.zeros(p.shape, dtype=bool)
    open_to = ~np.asarray(doubted, dtype=bool) | is_prescribed
    if open_to.any():
        selected[open_to] = bayesian_fdr(p[open_to], fdr, given=is_prescribed[open_to])
    else:
        bayesian_fdr(p, fdr)  # complains of a rate out of range
    return selected


def edge_rows(
    idata: ArvizData, rows: str, columns: str, sizes: Mapping[str, xr.DataArray], graph: str = ""
) -> pd.DataFrame:
    """One row for each edge of a graph: names, numbers, sizes, and whether it was `given` and is `doubted`.

    Parameters
    ----------
    idata : InferenceData or DataTree
    rows, columns : str
        Dimensions of the graph; a row "target" is a latent.
    sizes : mapping of DataArray
        Weight, effect or strength, and more of each edge.
    graph : str
        As for `edge_numbers`.
    """
    numbers = _arviz.get_group(idata, "edge_posterior")
    own = {name: numbers[f"{name}{graph}"] for name in ("probability", "q_value", "gap")}
    p = own["probability"]
    names = [[str(name) for name in p[dim].to_numpy()] for dim in (rows, columns)]
    doubted = doubted_edges(findings_of(idata=idata), *names, targets_are_factors=rows == "target")
    given = numbers.get(f"given{graph}", p < 0) == 1  # files need not say
    edges = xr.Dataset({**own, **sizes, "given": given, "doubted": ((rows, columns), doubted)})
    return edges.to_dataframe(dim_order=list(p.dims)).reset_index()


def judged(
    edges: pd.DataFrame,
    labels: Sequence[str],
    sizes: Sequence[str],
    largest: str,
    idata: ArvizData,
    fdr: float,
    selected_only: bool,
    sure: float,
    include_doubted: bool,
    attrs: Mapping[str, object],
) -> pd.DataFrame:
    """The table of edges with their verdicts, the most probable first.

    Parameters
    ----------
    edges : DataFrame
        From `edge_rows`, under an index of names.
    labels, sizes : sequence of str
        Columns before and behind the probability.
    largest : str
        Column whose absolute value decides among edges as probable.
    idata : InferenceData or DataTree
    fdr, selected_only, sure, include_doubted
        As for `pyro_sparse.summary`.
    attrs : mapping
        More for `DataFrame.attrs`, or in place of what `about_edges` says.
    """
    is_score = holds_scores(idata)
    p, gap, doubted, given = (edges[name].to_numpy() for name in ("probability", "gap", "doubted", "given"))
    edges = edges.assign(
        unresolved=unresolved(gap),
        verdict=np.where(doubted | is_score, "open", edge_verdicts(p, gap, sure)),
        selected=selected_edges(p, fdr, doubted, given, include_doubted),
    )
    columns = [*labels, "probability", *sizes, "q_value", "gap", "unresolved", "verdict", "selected"]
    order = np.lexsort((-edges[largest].abs(), -p))
    table = EdgeTable(edges[columns].iloc[order]).rename_axis("edge")
    if is_score:
        table = table.rename(columns={"probability": "score"})
    if selected_only:
        table = table[table["selected"]]
    table.attrs = {"fdr": float(fdr), **about_edges(idata), **attrs}
    return table


def weight_table(
    idata: ArvizData,
    rows: str,
    columns: str,
    fdr: float,
    prob: float,
    kind: _arviz.IntervalKind,
    selected_only: bool,
    sure: float,
    include_doubted: bool,
    *,
    vary: bool = True,
    beside: Mapping[str, xr.DataArray] | None = None,
    **attrs: object,
) -> pd.DataFrame:
    """The table of edges that have weights, with the interval of each over the chains that were kept.

    Parameters
    ----------
    idata : InferenceData or DataTree
    rows, columns : str
        Dimensions of the graph.
    fdr, prob, kind, selected_only, sure, include_doubted
        As for `pyro_sparse.summary`.
    vary : bool
        Whether draws of a run say how large a weight may be; otherwise the interval is NaN, as of one draw.
    beside : mapping of DataArray, optional
        Columns between the probability and the weight.
    **attrs
        As for `judged`.
    """
    numbers = _arviz.get_group(idata, "edge_posterior")
    kept = np.flatnonzero(_arviz.get_group(idata, "sample_stats")["kept"].to_numpy())
    draws = _arviz.get_group(idata, "posterior")["weight"].isel(chain=kept)
    if holds_scores(idata):  # every draw of a restart carries the same weight
        draws = draws.isel(draw=slice(0, 1))
    lower = upper = xr.full_like(numbers["weight"], np.nan)
    if vary and draws.sizes["chain"] * draws.sizes["draw"] > 1:
        lower, upper = _arviz.interval(of_kept_chains(idata, draws), prob, kind)
    interval = f"{kind}{100 * prob:g}"
    sizes = {**(beside or {}), "weight": numbers["weight"], f"{interval}_lb": lower, f"{interval}_ub": upper}
    largest = "effect" if "effect" in numbers else "weight"  # tasks have no effects
    sizes[largest] = numbers[largest]
    edges = edge_rows(idata, rows, columns, sizes)
    edges.index = pd.Index(edges[rows].astype(str) + " -> " + edges[columns].astype(str))
    about = {"interval_kind": kind, "interval_prob": float(prob), **attrs}
    labels, options = (rows, columns), (selected_only, sure, include_doubted)
    return judged(edges, labels, [*sizes], largest, idata, fdr, *options, about)
