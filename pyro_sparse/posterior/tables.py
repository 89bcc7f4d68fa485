"""To ArviZ, and from ArviZ to tables.

Every edge method ends in `to_arviz`: 0/1 draws of each edge with dims (chain = aligned restart, draw,
feature, factor), and beside them, in the group `edge_posterior`, one number per edge: its probability,
q-value, weight, effect, and the gap between restarts. `summary` and `edge_prob` read that object. A method
that gives only a score says so in the attrs and its column is called `score`: a probability is a claim.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import compress
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from .._utils.torch_state import isolated
from ..data.design import features_of
from ..data.ordered_categories import labels_of
from ..data.read import read_like
from ..data.stores import store_of
from ..findings.finding import Finding, confirmed_by_chains, doubted_edges
from ..graphs.selection import edge_gap
from ..posterior.rival_restarts import compared_restarts, prescribed_in_fit, rival_restarts
from . import arviz as _arviz
from .draws import graph_numbers
from .edge_table import (
    about_edges,
    attributes,
    edge_numbers,
    has_loadings,
    holds_scores,
    packed,
    weight_table,
    weights_vary,
)
from .salience import SALIENT, check_has_loadings, salience, salience_column
from .tasks import task_summary
from .transitions import transition_summary
from .verdicts import concluded, decided, edges_left_empty

if TYPE_CHECKING:
    import xarray as xr

    from .._utils.types import ArvizData, TableLike
    from ..inference.table.result import Fit

__all__ = ["edge_prob", "given_edges", "summary", "to_arviz"]

_EDGE = ("feature", "factor")
_DRAWS = ("chain", "draw", *_EDGE)
# By kind of edge posterior: its dimensions, and where a fit has their labels.
# Larger tables are left out of the ArviZ object: it would no longer be a small file.
_MAX_OBSERVED_CELLS = 1_000_000


def to_arviz(
    fit: Fit,
    *,
    edge: ArrayLike,
    weight: ArrayLike,
    probability: ArrayLike,
    method: str,
    is_score: bool,
    note: str,
    eta: ArrayLike | None = None,
    restart_probability: ArrayLike | None = None,
    chain_restart: ArrayLike | None = None,
    kept: ArrayLike | None = None,
    chain_stats: Mapping[str, ArrayLike] | None = None,
    edge_weight: ArrayLike | None = None,
    edge_effect: ArrayLike | None = None,
    edge_stats: Mapping[str, ArrayLike] | None = None,
    terms: Mapping[str, tuple[tuple[str, ...], ArrayLike]] | None = None,
    labels: Mapping[str, Sequence[str]] | None = None,
    log_likelihood: ArrayLike | None = None,
    scores: ArrayLike | None = None,
    rows: Sequence[str] | None = None,
    caller_row: ArrayLike | None = None,
    X: TableLike | None = None,
    findings: Sequence[Finding] = (),
    confirmed: Sequence[str] = (),
    attrs: Mapping[str, object] | None = None,
) -> ArvizData:
    """Pack the edge draws of a fit into what the installed ArviZ consumes natively.

    Parameters
    ----------
    fit : Fit
        Supplies names, weights, effects, ELBOs and the alignment.
    edge : array_like of 0/1, shape (chain, draw, feature, factor)
        A chain is a restart, unless `chain_restart` says otherwise.
    weight : array_like, shape (chain, draw, feature, factor)
        Signed loadings; a broadcast view is kept as it is, without a copy.
    probability : array_like, shape (feature, factor)
        The number to report for each edge, in [0, 1].
    method : str
        Name of the edge method, stored as `edge_method`.
    is_score : bool
        True where `probability` is only a score.
    note : str
        One sentence on what the number means.
    eta : array_like, shape (chain, draw, factor), optional
        Inclusion rate of each factor.
    restart_probability : array_like, shape (chain, feature, factor), optional
        The same number from each chain alone, for the gap between them. Default: `fit.edge_score`.
    chain_restart : array_like of int, shape (chain,), optional
        The restart each chain began at. Default: one chain a restart, in order.
    kept : array_like of bool, shape (chain,), optional
        Chains good enough to be compared. Default: by the restarts' ELBOs (`kept_restarts`).
    chain_stats : dict of arrays of shape (chain,), optional
        More for `sample_stats`.
    edge_weight : array_like, shape (feature, factor), optional
        The weight to report. Default: that of the best restart.
    edge_effect : array_like, shape (feature, factor), optional
        The share of each feature's variance due to each factor, of the same source as `edge_weight`. Default:
        `fit.effects` of the best restart.
    edge_stats : dict of arrays of shape (feature, factor), optional
        More for `edge_posterior`.
    terms : dict of (dims, array of shape (chain, draw, *dims)), optional
        More for `posterior`, such as "noise_sd" or "covariate_effect".
    labels : dict of sequence of str, optional
        Coordinates of dimensions of `terms` other than features and factors.
    log_likelihood : array_like, shape (chain, draw, row), optional
        Log density of each row, in nats; of `kept` chains it becomes a group.
    scores : array_like, shape (chain, draw, row, factor), optional
        Draws of the rows' factors; of `kept` chains they become a group.
    rows : sequence of str, optional
        Names of these rows.
    caller_row : array_like of int, shape (row,), optional
        Which row of the caller each of these is, where frequency weights repeat rows.
    X : array_like of shape (sample, feature), optional
        Stored as `observed_data` when it has at most a million cells.
    findings : sequence of Finding
        What the method files against its numbers; those of the fit are added. The attribute `verdict` says
        them in words, or that nothing is disputed.
    confirmed : sequence of str
        Factors that chains from other axes came back to: `findings.confirmed_by_chains`.
    attrs : dict, optional
        More attributes (text and numbers).

    Returns
    -------
    arviz.InferenceData or xarray.DataTree
        Groups `posterior` (edge, weight, eta, and of Markov chains noise_sd and covariate_effect in the
        caller's units and factor_correlation), `edge_posterior` (probability, given, q_value, gap, weight,
        effect and restart_probability), `sample_stats` (elbo and heldout_elbo in nats per row, best, kept,
        restart), `alignment` (permutation, sign, congruence) and, if small, `observed_data`.

    Raises
    ------
    ValueError
        If a shape does not fit the chains, features and factors, or a draw of an edge is not 0 or 1.
    """
    draws, weights = np.asarray(edge), np.asarray(weight)
    p = np.asarray(probability, dtype=float)
    per_restart = np.asarray(
        fit.edge_score if restart_probability is None else restart_probability, dtype=float
    )
    origin = np.arange(len(fit.weights)) if chain_restart is None else np.asarray(chain_restart)
    best = int(fit.best)
    loading = np.asarray(np.asarray(fit.weights)[best] if edge_weight is None else edge_weight)
    effect = np.asarray(np.asarray(fit.effects)[best] if edge_effect is None else edge_effect)
    shape = (len(origin), *np.shape(fit.weights)[1:])
    _check_draws(draws, shape, best)
    _check_shapes(
        weight=(weights, draws.shape),
        probability=(p, shape[1:]),
        restart_probability=(per_restart, shape),
        edge_weight=(loading, shape[1:]),
        edge_effect=(effect, shape[1:]),
    )
    good = compared_restarts(fit, origin)[0] if kept is None else np.asarray(kept, dtype=bool)
    posterior: dict[str, Any] = {"edge": (_DRAWS, draws), "weight": (_DRAWS, weights)}
    if eta is not None:
        posterior["eta"] = (("chain", "draw", "factor"), np.asarray(eta))
    for name, (dims, values) in (terms or {}).items():
        posterior[name] = (("chain", "draw", *dims), np.asarray(values))
    gap = edge_gap(per_restart, good)
    sizes = {"weight": loading, "effect": effect, **dict(edge_stats or {})}
    numbers = edge_numbers(_EDGE, p, per_restart, sizes, prescribed_in_fit(fit)[best], gap)
    groups: dict[str, Any] = {"posterior": posterior, "edge_posterior": numbers}
    elbos = {name: np.asarray(getattr(fit, name), dtype=float)[origin] for name in ("elbo", "heldout_elbo")}
    coords = {"feature": list(fit.feature_names), "factor": list(fit.factor_names)}
    coords |= {"other_factor": coords["factor"], **{dim: list(at) for dim, at in (labels or {}).items()}}
    x = None
    if X is not None and store_of(X) is None:
        x = read_like(features_of(X, fit.table.taken), fit.feature_names, labels_of(fit.model))
    if x is not None and x.size <= _MAX_OBSERVED_CELLS:
        groups["observed_data"] = {"x": (("sample", "feature"), x)}
    if x is not None and x.shape[0] == len(fit.sample_names):
        coords["sample"] = list(fit.sample_names)
    if log_likelihood is not None:
        groups["log_likelihood"] = {"x": (("chain", "draw", "sample"), np.asarray(log_likelihood)[good])}
    if scores is not None:
        groups["scores"] = {"z": (("chain", "draw", "sample", "factor"), np.asarray(scores)[good])}
        if caller_row is not None:
            groups["scores"]["caller_row"] = (("sample",), np.asarray(caller_row))
    if log_likelihood is not None or scores is not None:
        coords["sample"] = list(rows or fit.sample_names)
        if x is not None and len(x) != len(coords["sample"]):
            groups.pop("observed_data", None)
    of_fit = confirmed_by_chains(fit.findings, confirmed, _with_edges(fit, p) if confirmed else ())
    conclusion = concluded(of_fit, findings, gap, "restart" if chain_restart is None else "chain")
    if not is_score:
        # What every run gives no chance at all is forbidden, or of a factor that the runs are not over.
        asked = (per_restart > 0).any(0) & ~prescribed_in_fit(fit)[best]
        doubted = doubted_edges([*of_fit, *findings], fit.feature_names, fit.factor_names)
        # After the rows used, where they are not all: every number is of these.
        first = int(bool(findings) and findings[0].kind == "rows")
        not_asked = edges_left_empty(findings, len(p))
        conclusion.insert(first, decided(p, gap, asked, doubted, not_asked=not_asked))
    about = attributes(fit, method, is_score, note, attrs, findings, conclusion, of_fit)
    return packed(fit, groups, elbos | dict(chain_stats or {}), "factor", coords, about, origin, good)


def _with_edges(fit: Fit, probability: NDArray[np.float64]) -> list[str]:
    """Factors with an edge in the best restart, in one as good, or in the chains."""
    as_good = rival_restarts(fit)[1]
    as_good[int(fit.best)] = True
    there = (np.asarray(fit.weights)[as_good] != 0).any((0, 1)) | (probability > 0.5).any(0)
    return list(compress(fit.factor_names, there))


def _check_draws(draws: NDArray[Any], shape: tuple[int, ...], best: int) -> None:
    """Raise unless they are 0 or 1, (chain, draw, feature, factor) with `shape` but for the draw."""
    if draws.ndim != 4 or (draws.shape[0], *draws.shape[2:]) != shape:
        hint = ""
        if draws.ndim == 4 and draws.shape[2:] == shape[1:]:
            hint = (
                "; chains that are not one for each restart, in order, want chain_restart=, the restart each "
                f"began at (of draws pooled in one chain the best, [{best}])"
            )
        raise ValueError(
            f"edge: want shape (chain, draw, feature, factor) with chain, feature, factor = {shape}, "
            f"got {draws.shape}{hint}"
        )
    if not ((draws == 0) | (draws == 1)).all():
        strange = draws[(draws != 0) & (draws != 1)]
        raise ValueError(
            f"edge: want draws of 0 or 1, got {strange[0]} and {strange.size - 1} more such; draw each edge, "
            "or compare weights with 0"
        )


def _check_shapes(**wanted: tuple[NDArray[Any], tuple[int, ...]]) -> None:
    for name, (values, shape) in wanted.items():
        if values.shape != shape:
            raise ValueError(f"{name}: want shape {shape}, got {values.shape}")


@isolated()
def summary(
    idata: ArvizData,
    fdr: float = 0.1,
    *,
    prob: float = 0.9,
    kind: _arviz.IntervalKind = "hdi",
    selected_only: bool = False,
    sure: float = 0.95,
    include_doubted: bool = False,
    salient: float = SALIENT,
) -> pd.DataFrame:
    """One row per edge, the most probable first.

    Parameters
    ----------
    idata : InferenceData or DataTree
        From `fit.edge_posterior()`.
    fdr : float
        Bayesian false-discovery rate at which `selected` is decided, in [0, 1]. Edges that were
        given to the model, such as anchors, are selected and do not count.
    prob : float
        Probability inside the interval of the weight; edges of a latent transition have none.
    kind : {"hdi", "eti"}
        Shortest interval, or equal tails.
    selected_only : bool
        Leave out the edges that are not selected.
    sure : float
        Probability at which an edge is called present, or absent, in `verdict`; above 1/2 and below 1.
    include_doubted : bool
        Select edges that a doubt touches, too, by their probability alone. Their verdict stays open.
    salient : float
        Size of a standardised loading, in (0, 1), whose probability stands beside that of the edge.

    Returns
    -------
    DataFrame
        For a latent transition see `transition_posterior.transition_summary`, for tasks
        `task_posterior.task_summary`; for a table, or graphs between dictionaries (whose features are output
        latents, factors input latents, and weights relative strengths):
        Index `edge` ("feature -> factor"); columns `feature`, `factor`, `probability` (called `score` where
        the method gives only a score), `p_salient_0.3` (named by `salient`; the posterior probability that
        the standardised loading is at least so large in size, see `posterior.salience`; only where there are
        draws of it, so not of scores, nor of a `DependencyVAE`; of `salient_edges` of that size it is the
        probability), `weight` (signed; of the best restart, or the mean over the Markov chains kept, then a
        standardised loading), `hdi90_lb` and `hdi90_ub` (of the weight; named by kind and prob), `effect`
        (share of the feature's variance due to the factor, in [0, 1]; like the weight of the best restart, or
        the mean over the kept chains' draws), `q_value`, `gap` (largest difference of the probability between
        restarts or chains; NaN for one), `unresolved` (gap > .25), `verdict` ("present", "absent" or "open":
        `graphs.edge_verdicts`; with a score, and where a doubt of `findings.findings_of` touches the edge, it
        is open) and `selected` (of edges in doubt none, unless `include_doubted`). For a score the interval
        is the spread of the weight *between the kept restarts*: there is no other, and it says nothing about
        sampling error. It is NaN for edges of a `DependencyVAE` by strengths, whose restarts have one weight
        of each edge. `DataFrame.attrs` holds `fdr`, `interval_kind`, `interval_prob`, `edge_method`,
        `is_score`, `note` and, where there are draws of loadings, `salient`.

    Raises
    ------
    ValueError
        `fdr`, `prob`, `kind`, `sure` or `salient` is out of range, or another size than the default is asked
        of edges without draws of loadings.
    TypeError
        `prob` or `kind` is given for a latent transition, or `salient` for one or for tasks, whose weights
        have no common scale; or `idata` is no edge posterior.
    """
    _arviz.get_group(idata, "edge_posterior")  # complains of what is none
    if salient != SALIENT:
        check_has_loadings(idata)
    if idata.attrs.get("kind") == "transition":
        for name, value, default in (("prob", prob, 0.9), ("kind", kind, "hdi")):
            if value != default:
                raise TypeError(
                    f"{name}: got {value!r}, and edges of a latent transition have a strength without an "
                    "interval; leave it out"
                )
        return transition_summary(
            idata, fdr, selected_only=selected_only, sure=sure, include_doubted=include_doubted
        )
    if idata.attrs.get("kind") == "tasks":
        return task_summary(
            idata, fdr, prob=prob, kind=kind, selected_only=selected_only, sure=sure,
            include_doubted=include_doubted,
        )  # fmt: skip
    vary = holds_scores(idata) or weights_vary(idata)  # scores vary between restarts
    beside: dict[str, xr.DataArray] = {}
    if has_loadings(idata):
        large = salience(idata, salient)
        if idata.attrs.get("salient_loading") != salient:  # else it is the probability
            beside = {salience_column(salient): large}
    table = weight_table(
        idata, *_EDGE, fdr, prob, kind, selected_only, sure, include_doubted, vary=vary, beside=beside
    )
    if has_loadings(idata):
        table.attrs["salient"] = float(salient)
    return table


def given_edges(edges: xr.Dataset) -> NDArray[np.bool_]:
    """Which edges of a table's `edge_posterior` group were given to the model, (feature, factor).

    Parameters
    ----------
    edges : Dataset
    """
    none = edges["probability"] < 0  # of files that do not say
    given: NDArray[np.bool_] = edges.get("given", none).transpose(*_EDGE).to_numpy() == 1
    return given


def edge_prob(idata: ArvizData, graph: str | None = None) -> pd.DataFrame:
    """Edge probabilities as a table of features by factors, tasks by latents, or targets by sources.

    Parameters
    ----------
    idata : InferenceData or DataTree
        From `fit.edge_posterior()`.
    graph : {"time", "action"}, optional
        Which graph of a latent transition; needed where it has both.

    Returns
    -------
    DataFrame of shape (feature, factor), (task, latent), (target, source) or (target, action)
        Values in [0, 1]; with several lags that the source is there at any of them, as its draws say.
        `DataFrame.attrs["is_score"]` is True where they are only scores.

    Raises
    ------
    ValueError
        There is no such graph, or it is not said which one.
    TypeError
        The object is no edge posterior.
    """
    table = graph_numbers(idata, graph).to_pandas()
    table.attrs = about_edges(idata)
    return table
