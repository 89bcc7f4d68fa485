"""What edge posteriors of all three kinds, and the tables of them, have in common: groups, columns, words."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import pandas as pd
import xarray as xr
from numpy.typing import ArrayLike, NDArray

from .._utils.display import EdgeTable
from ..findings.finding import Finding, doubted_edges, findings_of, sentences, write_findings
from ..graphs.selection import bayesian_fdr, edge_verdicts, q_values, unresolved
from . import arviz as _arviz
from .draws import of_kept_chains
from .method_names import current_name
from .same_fit import fit_mark

if TYPE_CHECKING:
    from .._utils.types import ArvizData
    from ..inference.multitask.task_result import MultiTaskFit
    from ..inference.table.result import Fit
    from ..inference.training.fit_result import FitResult
    from ..inference.transition.transition_result import TransitionFit

__all__ = [
    "NO_RHAT",
    "SCORES",
    "about_edges",
    "agreed",
    "as_sentence",
    "attributes",
    "beside_verdict",
    "check_is_of_table",
    "compared_runs",
    "concluded",
    "decided",
    "edge_numbers",
    "edge_rows",
    "edges_left_empty",
    "has_loadings",
    "holds_scores",
    "judged",
    "latents_said",
    "left_open",
    "of_latents",
    "packed",
    "selected_edges",
    "verdict_of",
    "weight_table",
    "weights_vary",
    "with_doubts",
]


# Dimensions and values of each variable of a group.
Variables: TypeAlias = Mapping[str, tuple[tuple[str, ...], ArrayLike]]
# What a posterior of no table is of, by `attrs["kind"]`.
_KINDS = {"transition": "sequences", "tasks": "tasks", "dictionaries": "two dictionaries"}
# Kinds of findings of a method that leave no room for the sentence that nothing is disputed.
_SILENCING = {"chains", "sweeps"}
# Up to which an edge is as good as ruled out: of probabilities where "absent" begins; scores have no verdict.
_UNLIKELY = {"score": 0.1, "probability": 0.05}
NO_RHAT = (
    "not defined: chains are restarts, each with independent draws given its latents, and no Markov chains; "
    "the `gap` of an edge compares restarts"
)
SCORES = "Scores, no probabilities: they rank the edges, are too sure of them, and leave all of them open."


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


def verdict_of(idata: ArvizData) -> list[str]:
    """What an edge posterior concludes, a sentence each; of files that do not say, what the numbers mean.

    Parameters
    ----------
    idata : InferenceData or DataTree
    """
    verdict = str(idata.attrs.get("verdict", "")).splitlines()
    note = str(idata.attrs.get("note", ""))
    return verdict or ([note] if note else [])


def concluded(
    of_fit: Sequence[Finding], findings: Sequence[Finding], gap: NDArray[np.float64], run: str
) -> list[str]:
    """What the edges of a table come to: findings of the method, doubts of the fit, or that none is disputed.

    Parameters
    ----------
    of_fit, findings : sequence of Finding
        Those of the fit, and of the method.
    gap : ndarray (feature, factor)
        NaN where nothing could be compared.
    run : str
        What is compared, such as "restart".
    """
    doubts = [finding for finding in of_fit if finding.is_doubt]
    conclusions = [as_sentence(finding) for finding in [*findings, *doubts]]
    if doubts or any(finding.is_doubt or finding.kind in _SILENCING for finding in findings):
        return conclusions
    return [*conclusions, *agreed(gap, run)]


def decided(
    probability: NDArray[np.float64],
    gap: NDArray[np.float64],
    asked: NDArray[np.bool_],
    doubted: NDArray[np.bool_],
    of_size: bool = False,
    not_asked: int = 0,
) -> str:
    """How much of a table is decided, in a sentence: edges present or absent as `summary` calls them.

    Parameters
    ----------
    probability, gap : ndarray (feature, factor)
    asked : ndarray of bool (feature, factor)
        Edges that the data were asked for: not those that were given or forbidden.
    doubted : ndarray of bool (feature, factor)
        Edges that a doubt touches.
    of_size : bool
        Whether an edge is a large loading.
    not_asked : int
        From `edges_left_empty`: they are open, too, and no share of what was asked for.
    """
    called = np.where(doubted, "open", edge_verdicts(probability, gap))[asked]
    present, absent, total = int((called == "present").sum()), int((called == "absent").sum()), called.size
    left = total - present - absent
    noun, yes, no = ("loading", "large", "not") if of_size else ("edge", "present", "absent")
    edges = f"1 {noun}" if total == 1 else f"{total} {noun}s"
    rest = f"; so {'is' if not_asked == 1 else 'are'} {not_asked} more, of factors that the fit left empty"
    counts = f"{present + absent} of {edges} decided ({present} {yes}, {absent} {no}), {left} open"
    return f"{counts}{rest if not_asked else ''}."


def edges_left_empty(findings: Sequence[Finding], n_features: int) -> int:
    """Edges that chains did not ask for, since the fit had left their factors empty.

    Parameters
    ----------
    findings : sequence of Finding
        Of an edge posterior.
    n_features : int

    Examples
    --------
    >>> edges_left_empty([Finding("empty", "chains ran over two", factors=("factor 3", "factor 4"))], 9)
    18
    """
    return n_features * len({name for f in findings if f.kind == "empty" for name in f.factors})


def beside_verdict(fit: FitResult, idata: ArvizData) -> list[str]:
    """Findings that the verdict of an edge posterior does not say already.

    Parameters
    ----------
    fit : Fit
    idata : InferenceData or DataTree
        Its edge posterior.
    """
    verdict = set(verdict_of(idata))
    return [
        text
        for finding, text in ((f, str(f)) for f in findings_of(fit, idata))
        if text not in verdict and as_sentence(finding) not in verdict
    ]


def as_sentence(finding: Finding) -> str:
    """A finding with a capital letter and a full stop.

    Parameters
    ----------
    finding : Finding
    """
    text = str(finding)
    return f"{text[:1].upper()}{text[1:]}{'' if text.endswith('.') else '.'}"


def agreed(gap: NDArray[np.float64], run: str) -> list[str]:
    """Whether the runs of a table's fit agree on its edges.

    Parameters
    ----------
    gap : ndarray (feature, factor)
    run : str
        What is compared, such as "restart".
    """
    if np.isnan(gap).all():
        return [f"There is only one {run} to look at: nothing shows whether another would find other edges."]
    n = int(unresolved(gap).sum())
    if not n:
        return [f"No edge is disputed between the {run}s."]
    subject = "1 edge is" if n == 1 else f"{n} edges are"
    return [
        f"{subject} disputed between the {run}s (gap above .25): read the column `unresolved` of the summary."
    ]


def latents_said(fit: TransitionFit | MultiTaskFit, findings: Sequence[Finding] = ()) -> list[str]:
    """`of_latents` as sentences, with the reasons.

    Parameters
    ----------
    fit : TransitionFit or MultiTaskFit
    findings : sequence of Finding
        Of the method.
    """
    about = of_latents(fit)
    return [f"{about['title']}. {about['advice']}", *sentences([*fit.findings, *findings])]


def of_latents(fit: TransitionFit | MultiTaskFit) -> dict[str, str]:
    """How far the latents of sequences or tasks may be believed: a level, a title and what to do.

    Parameters
    ----------
    fit : TransitionFit or MultiTaskFit
    """
    doubts = [finding for finding in fit.findings if finding.is_doubt]
    if any(finding.touches_all for finding in doubts):
        advice = (
            "The probabilities take the latents as given, and the fit itself doubts that these are the ones: "
            "its warnings say why. Do not rely on single edges."
        )
        return {"level": "poor", "title": "The latents are in doubt", "advice": advice}
    if doubts:
        doubted = {name for finding in doubts for name in finding.factors}
        names = [name for name in fit.latent_names if name in doubted]
        advice = "Its warnings say why; edges of other latents stand." if names else "Its warnings say why."
        title = f"In doubt: {', '.join(names)}" if names else "Some edges are in doubt"
        return {"level": "mixed", "title": title, "advice": advice}
    if fit.n_restarts == 1:
        advice = (
            "Another start may find other latents. Fit with several restarts before reading single edges."
        )
        return {"level": "unknown", "title": "One restart only", "advice": advice}
    if fit.findings:
        title = "Another restart found the same latents, and yet there are doubts"
        return {"level": "mixed", "title": title, "advice": "Read the warnings of the fit first."}
    advice = "What they share is a property of the data and the model, not of one lucky start."
    return {"level": "good", "title": "Another restart found the same latents", "advice": advice}


def with_doubts(idata: ArvizData) -> str:
    """The note on the numbers of an edge posterior, with the doubts that leave verdicts open.

    Parameters
    ----------
    idata : InferenceData or DataTree
    """
    note = str(idata.attrs.get("note", ""))
    doubts = [str(finding) for finding in findings_of(idata=idata) if finding.is_doubt]
    if not doubts:
        return note
    scope = "All verdicts are open" if _touches_all(idata) else "Some verdicts are open"
    return f"{note} {scope}, for the fit warns: {'; '.join(doubts)}."


def _touches_all(idata: ArvizData) -> bool:
    return any(finding.is_doubt and finding.touches_all for finding in findings_of(idata=idata))


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
