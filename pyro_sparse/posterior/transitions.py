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

from ..findings.finding import Finding
from ..graphs.selection import q_values
from . import arviz as _arviz
from .edge_table import NO_RHAT, attributes, edge_numbers, edge_rows, judged, packed
from .verdicts import latents_said, with_doubts

if TYPE_CHECKING:
    from .._utils.types import ArvizData
    from ..inference.transition.transition_result import TransitionFit

__all__ = ["GraphDraws", "transition_summary", "transition_to_arviz"]

# By graph: the dimension of its inputs.
_INPUTS = {"time": "source", "action": "action"}


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
    gap : ndarray (...), optional
        Largest difference between chains; default of all of them.
    """

    draws: np.ndarray
    probability: np.ndarray
    by_chain: np.ndarray
    strength: np.ndarray
    given: np.ndarray | None = None
    gap: np.ndarray | None = None


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
    method, is_score, note, findings, attrs
        As for `to_arviz` of a table.

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
        dims: tuple[str, ...] = ("target", _INPUTS[name])
        if graph.probability.ndim == 3:
            dims = ("lag", *dims)
        posterior[f"edge_{name}"] = (("chain", "draw", *dims), graph.draws)
        of_graph, sizes = (graph.probability, graph.by_chain), {"strength": graph.strength[fit.best]}
        numbers |= edge_numbers(dims, *of_graph, sizes, graph.given, graph.gap, graph=f"_{name}")
    groups = {"posterior": posterior, "edge_posterior": numbers}
    stats = {"elbo": fit.elbo, "heldout_elbo": fit.heldout_elbo, "recovered": fit.agreement["recovered"]}
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
    return packed(fit, groups, stats, "target", coords, about)


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
    fdr, selected_only, sure, include_doubted
        As for `pyro_sparse.summary`; the rate is over all graphs together.

    Returns
    -------
    DataFrame
        Index `edge` ("source -> target", or with several lags "source, lag 2 -> target"); columns `graph`,
        `source`, `target`, (`lag`,) `probability` (or `score`), `strength` (root mean square derivative of
        the target's mean), `q_value`, `gap` (largest difference of the probability between restarts, those
        that failed apart: `behind` in `fit.agreement`; NaN for one restart), `unresolved` (gap > .25),
        `verdict` ("present", "absent" or "open": `graphs.edge_verdicts`; with a score all are open, and so
        are edges that a doubt touches, and ``attrs["note"]`` says why) and `selected` (of edges in doubt
        none, unless `include_doubted`).
    """
    numbers = _arviz.get_group(idata, "edge_posterior")
    graphs = []
    for graph, inputs in _INPUTS.items():
        if f"probability_{graph}" in numbers:
            sizes = {"strength": numbers[f"strength_{graph}"]}
            edges = edge_rows(idata, "target", inputs, sizes, f"_{graph}")
            graphs.append(edges.rename(columns={"action": "source"}).assign(graph=graph))
    edges = pd.concat(graphs, ignore_index=True)
    edges["q_value"] = q_values(edges["probability"], edges["given"])  # of all graphs together
    labels, source = ["graph", "source", "target"], edges["source"].astype(str)
    if "lag" in edges and edges["lag"].notna().any():  # an action has none
        labels.append("lag")
        source = source.where(edges["lag"].isna(), source + ", lag " + edges["lag"].map("{:.0f}".format))
    edges.index = pd.Index(source + " -> " + edges["target"].astype(str))
    options = (selected_only, sure, include_doubted)
    return judged(edges, labels, ["strength"], "strength", idata, fdr, *options, {"note": with_doubts(idata)})
