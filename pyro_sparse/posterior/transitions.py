"""Edges of a transition to ArviZ, and from ArviZ to a table.

As in `posterior/tables.py`: 0/1 draws with dims (chain = aligned restart, draw, then the graph's own: target
and source, or target and action), and one number per edge in the group `edge_posterior`. With several lags
the time graph has a dimension `lag` before its target.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd

from ..findings.finding import Finding, doubted_edges, findings_of
from ..graphs.selection import edge_verdicts, q_values, unresolved
from . import arviz as _arviz
from .edge_table import NO_RHAT, attributes, finished, latents_said, selected_edges, with_doubts

if TYPE_CHECKING:
    import xarray as xr

    from .._utils.types import ArvizData
    from ..inference.transition.transition_result import TransitionFit

__all__ = ["GraphDraws", "transition_summary", "transition_to_arviz"]

GRAPHS = ("time", "action")


class GraphDraws(NamedTuple):
    """Draws and numbers of one graph, its dimensions last.

    Parameters
    ----------
    draws : ndarray of 0/1, shape (chain, draw, ...)
    probability : ndarray (...)
    by_chain : ndarray (chain, ...)
        The same number from each chain alone.
    strength : ndarray (chain, ...)
        Root mean square derivative.
    given : ndarray of bool (...), optional
        Edges that were given to the model.
    """

    draws: np.ndarray
    probability: np.ndarray
    by_chain: np.ndarray
    strength: np.ndarray
    given: np.ndarray | None = None


def transition_to_arviz(
    fit: TransitionFit,
    graphs: Mapping[str, GraphDraws],
    *,
    method: str,
    is_score: bool,
    note: str,
    findings: Sequence[Finding] = (),
    attrs: Mapping[str, object] | None = None,
) -> ArvizData:
    """Pack the edge draws of a transition into what the installed ArviZ consumes natively.

    Parameters
    ----------
    fit : TransitionFit
        Supplies names, agreement, ELBOs, the alignment, and what the certificate must know of its doubts.
    graphs : mapping of str to GraphDraws
        Under "time", "action", or both.
    method : str
        Name of the edge method.
    is_score : bool
        True where the numbers are only scores.
    note : str
        One sentence on what the number means.
    findings : sequence of Finding
        What the method files against its numbers; those of the fit are added.
    attrs : mapping, optional
        More attributes (text and numbers).

    Returns
    -------
    arviz.InferenceData or xarray.DataTree
        Groups `posterior` (edge_time, edge_action), `edge_posterior` (for each graph: probability, given,
        q_value, gap, strength and restart_probability, as in ``probability_time``), `sample_stats` (elbo,
        heldout_elbo, recovered, best, kept, restart) and `alignment`. Numbers are of the best restart, the
        one that is kept.
    """
    posterior: dict[str, Any] = {}
    numbers: dict[str, Any] = {}
    for name, graph in graphs.items():
        dims: tuple[str, ...] = ("target", "source") if name == "time" else ("target", "action")
        if graph.probability.ndim == 3:
            dims = ("lag", *dims)
        posterior[f"edge_{name}"] = (("chain", "draw", *dims), graph.draws)
        gap = (
            np.ptp(graph.by_chain, axis=0)
            if len(graph.by_chain) > 1
            else np.full(graph.probability.shape, np.nan)
        )
        prescribed = np.zeros(graph.probability.shape, dtype=bool) if graph.given is None else graph.given
        for quantity, values in (
            ("probability", graph.probability),
            ("given", prescribed.astype(np.int8)),
            ("q_value", q_values(graph.probability, prescribed)),
            ("gap", gap),
            ("strength", graph.strength[fit.best]),
        ):
            numbers[f"{quantity}_{name}"] = (dims, values)
        numbers[f"restart_probability_{name}"] = (("chain", *dims), graph.by_chain)
    chains = np.arange(fit.n_restarts)
    groups: dict[str, Any] = {
        "posterior": posterior,
        "edge_posterior": numbers,
        "sample_stats": {
            "elbo": (("chain",), fit.elbo),
            "heldout_elbo": (("chain",), fit.heldout_elbo),
            "recovered": (("chain",), fit.agreement["recovered"].to_numpy()),
            "best": (("chain",), chains == fit.best),
            "kept": (("chain",), chains == fit.best),
            "restart": (("chain",), chains),
        },
        "alignment": {
            name: (("chain", "target"), np.asarray(fit.alignment[name])) for name in ("permutation", "sign")
        },
    }
    coords: dict[str, list[str] | list[int]] = {
        "target": fit.latent_names,
        "source": fit.latent_names,
        "action": fit.action_names,
        "lag": list(range(1, fit.model.lags + 1)),
    }
    conclusion = latents_said(fit, findings)
    about = attributes(
        fit, method, is_score, note, attrs, findings, conclusion, kind="transition", rhat=NO_RHAT
    )
    return _arviz.from_dict(groups, coords, about)


def transition_summary(
    idata: ArvizData,
    fdr: float = 0.1,
    *,
    selected_only: bool = False,
    sure: float = 0.95,
    include_doubted: bool = False,
) -> pd.DataFrame:
    """One row per edge, the most probable first; `pyro_sparse.summary` calls it for a transition.

    Parameters
    ----------
    idata : InferenceData or DataTree
        From `TransitionFit.edge_posterior`.
    fdr : float
        Bayesian false-discovery rate at which `selected` is decided, over all graphs together, in [0, 1].
        Edges that were given are selected, and do not count.
    selected_only : bool
        Leave out the edges that are not selected.
    sure : float
        Probability at which an edge is called present, or absent, in `verdict`; above 1/2 and below 1.
    include_doubted : bool
        Select edges that a doubt touches, too, by their probability alone. Their verdict stays open.

    Returns
    -------
    DataFrame
        Index `edge` ("source -> target", or with several lags "source, lag 2 -> target"); columns `graph`,
        `source`, `target`, (`lag`,) `probability` (or `score`), `strength` (root mean square derivative of
        the target's mean), `q_value`, `gap` (largest difference of the probability between restarts; NaN for
        one restart), `unresolved` (gap > .25), `verdict` ("present", "absent" or "open":
        `graphs.edge_verdicts`; with a score all are open, and so are edges that a doubt touches, and
        ``attrs["note"]`` says why) and `selected` (of edges in doubt none, unless `include_doubted`).
    """
    numbers = _arviz.get_group(idata, "edge_posterior")
    name = "score" if int(idata.attrs.get("is_score", 0)) else "probability"
    findings = findings_of(idata=idata)
    tables = []
    for graph in GRAPHS:
        if f"probability_{graph}" not in numbers:
            continue
        columns = {
            quantity: numbers[f"{quantity}_{graph}"].to_series()
            for quantity in ("probability", "strength", "gap")
        }
        of_graph = numbers[f"probability_{graph}"]
        columns["doubted"] = _doubted(of_graph, findings).to_series()
        none = of_graph < 0  # of files that do not say
        columns["given"] = numbers.get(f"given_{graph}", none).to_series()
        edges = pd.DataFrame(columns).reset_index()
        edges = edges.rename(columns={"action": "source"})
        edges.insert(0, "graph", graph)
        tables.append(edges)
    table = pd.concat(tables, ignore_index=True)
    p = table["probability"].to_numpy()
    prescribed = table["given"].to_numpy() == 1
    table["q_value"] = q_values(p, prescribed)
    table["unresolved"] = unresolved(table["gap"])
    doubted = table["doubted"].to_numpy(dtype=bool)
    table["verdict"] = np.where(doubted | (name == "score"), "open", edge_verdicts(p, table["gap"], sure))
    table["selected"] = selected_edges(p, fdr, doubted, prescribed, include_doubted)
    if "lag" in table and not table["lag"].notna().any():
        table = table.drop(columns="lag")
    lag = ["lag"] if "lag" in table else []
    source = table["source"].astype(str)
    if lag:  # an action has none
        source = source.where(table["lag"].isna(), source + ", lag " + table["lag"].map("{:.0f}".format))
    table.index = pd.Index(source + " -> " + table["target"].astype(str), name="edge")
    order = [
        "graph",
        "source",
        "target",
        *lag,
        "probability",
        "strength",
        "q_value",
        "gap",
        "unresolved",
        "verdict",
        "selected",
    ]
    table = table[order].rename(columns={"probability": name})
    note = with_doubts(str(idata.attrs.get("note", "")), idata)
    return finished(table, "strength", idata, fdr, selected_only, note=note)


def _doubted(probability: xr.DataArray, findings: Sequence[Finding]) -> xr.DataArray:
    """Which edges of a graph a doubt touches, in the shape of its probabilities."""
    inputs = "source" if "source" in probability.dims else "action"
    names = [[str(name) for name in probability[dim].to_numpy()] for dim in ("target", inputs)]
    touched = doubted_edges(findings, *names, targets_are_factors=True)
    plain = probability.transpose(..., "target", inputs)
    return plain.copy(data=np.broadcast_to(touched, plain.shape)).transpose(*probability.dims)
