"""Edges of a multi-task fit to ArviZ, and from ArviZ to a table.

As in `posterior/tables.py`: 0/1 draws with dims (chain = aligned restart, draw, task, latent), and one
number per edge in the group `edge_posterior`. Weights are in units of the target per standard deviation of
the latent.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from ..findings.finding import Finding, doubted_edges, findings_of
from ..graphs.selection import edge_verdicts, q_values, unresolved
from . import arviz as _arviz
from .edge_table import NO_RHAT, attributes, finished, latents_said, selected_edges, with_doubts

if TYPE_CHECKING:
    from .._utils.types import ArvizData
    from ..inference.multitask.task_result import MultiTaskFit

__all__ = ["task_summary", "task_to_arviz"]

_EDGE = ("task", "latent")


def task_to_arviz(
    fit: MultiTaskFit,
    *,
    edge: np.ndarray,
    weight: np.ndarray,
    probability: np.ndarray,
    eta: np.ndarray | None,
    method: str,
    is_score: bool,
    note: str,
    findings: Sequence[Finding] = (),
    attrs: Mapping[str, object] | None = None,
) -> ArvizData:
    """Pack the edge draws of a multi-task fit into what the installed ArviZ consumes natively.

    Parameters
    ----------
    fit : MultiTaskFit
        Supplies names, agreement, errors and the alignment.
    edge : ndarray of 0/1, shape (restart, draw, task, latent)
    weight : ndarray, the same shape
        In standard deviations of the task's target.
    probability : ndarray (restart, task, latent)
    eta : ndarray (restart, latent) or None
        Share of the tasks that use each latent.
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
        Groups `posterior` (edge, weight, eta; of eta each restart has one value), `edge_posterior`
        (probability, given, q_value, gap, weight and restart_probability), `sample_stats` (error, best, kept,
        restart) and `alignment`. Numbers are of the best restart, the one that is kept.
    """
    scale = fit.tasks.target_scale[:, None]
    best = int(fit.best)
    best_probability = probability[best]
    gap = np.ptp(probability, axis=0) if len(probability) > 1 else np.full(best_probability.shape, np.nan)
    numbers: dict[str, Any] = {
        "probability": (_EDGE, best_probability),
        "q_value": (_EDGE, q_values(best_probability)),
        "gap": (_EDGE, gap),
        "given": (_EDGE, np.zeros(best_probability.shape, dtype=np.int8)),
        "weight": (_EDGE, (weight[best] * scale).mean(0)),
        "restart_probability": (("chain", *_EDGE), probability),
    }
    restarts = np.arange(len(probability))
    posterior: dict[str, Any] = {
        "edge": (("chain", "draw", *_EDGE), edge),
        "weight": (("chain", "draw", *_EDGE), weight * scale),
    }
    if eta is not None:
        eta_draws = np.broadcast_to(eta[:, None], (len(eta), edge.shape[1], eta.shape[1]))
        posterior["eta"] = (("chain", "draw", "latent"), eta_draws)
    groups: dict[str, Any] = {
        "posterior": posterior,
        "edge_posterior": numbers,
        "sample_stats": {
            "error": (("chain",), np.asarray(fit.error, dtype=float)),
            "best": (("chain",), restarts == best),
            "kept": (("chain",), restarts == best),
            "restart": (("chain",), restarts),
        },
        "alignment": {
            name: (("chain", "latent"), np.asarray(values)) for name, values in fit.alignment.items()
        },
    }
    coords = {"task": list(fit.task_names), "latent": fit.latent_names}
    conclusion = latents_said(fit, findings)
    about = attributes(fit, method, is_score, note, attrs, findings, conclusion, kind="tasks", rhat=NO_RHAT)
    return _arviz.from_dict(groups, coords, about)


def task_summary(
    idata: ArvizData,
    fdr: float = 0.1,
    *,
    prob: float = 0.9,
    kind: _arviz.IntervalKind = "hdi",
    selected_only: bool = False,
    sure: float = 0.95,
    include_doubted: bool = False,
) -> pd.DataFrame:
    """One row per edge, the most probable first; `pyro_sparse.summary` calls it for tasks.

    Parameters
    ----------
    idata : InferenceData or DataTree
        From `MultiTaskFit.edge_posterior`.
    fdr : float
        Bayesian false-discovery rate at which `selected` is decided, in [0, 1].
    prob : float
        Probability inside the interval of the weight.
    kind : {"hdi", "eti"}
        Shortest interval, or equal tails.
    selected_only : bool
        Leave out the edges that are not selected.
    sure : float
        Probability at which an edge is called present, or absent, in `verdict`; above 1/2 and below 1.
    include_doubted : bool
        Select edges that a doubt touches, too, by their probability alone. Their verdict stays open.

    Returns
    -------
    DataFrame
        Index `edge` ("task -> latent"); columns `task`, `latent`, `probability` (or `score`), `weight` and
        its interval (best restart; a score has none), `q_value`, `gap` (largest difference of the
        probability between restarts; NaN for one restart), `unresolved` (gap > .25), `verdict` ("present",
        "absent" or "open": `graphs.edge_verdicts`; with a score all are open, and so are edges that a doubt
        touches, which ``attrs["note"]`` names) and `selected` (of edges in doubt none, unless
        `include_doubted`).
    """
    numbers = _arviz.get_group(idata, "edge_posterior")
    is_score = bool(int(idata.attrs.get("is_score", 0)))
    p = numbers["probability"].to_numpy()
    weights = _arviz.get_group(idata, "posterior")["weight"].isel(chain=[int(idata.attrs["best_restart"])])
    if is_score:
        lower = upper = np.full(p.shape, np.nan)
    else:
        lower, upper = (end.transpose(*_EDGE).to_numpy() for end in _arviz.interval(weights, prob, kind))
    tasks, latents = numbers["task"].to_numpy(), numbers["latent"].to_numpy()
    t, k = np.indices(p.shape).reshape(2, -1)
    gap = numbers["gap"].to_numpy()
    name = "score" if is_score else "probability"
    doubted = doubted_edges(findings_of(idata=idata), tasks, latents)
    note = with_doubts(str(idata.attrs.get("note", "")), idata)
    table = pd.DataFrame(
        {
            "task": tasks[t],
            "latent": latents[k],
            name: p.ravel(),
            "weight": numbers["weight"].to_numpy().ravel(),
            f"{kind}{100 * prob:g}_lb": lower.ravel(),
            f"{kind}{100 * prob:g}_ub": upper.ravel(),
            "q_value": numbers["q_value"].to_numpy().ravel(),
            "gap": gap.ravel(),
            "unresolved": unresolved(gap).ravel(),
            "verdict": np.where(doubted | is_score, "open", edge_verdicts(p, gap, sure)).ravel(),
            "selected": selected_edges(p, fdr, doubted, include_doubted=include_doubted).ravel(),
        },
        index=pd.Index([f"{tasks[i]} -> {latents[j]}" for i, j in zip(t, k, strict=True)], name="edge"),
    )
    about = {"interval_kind": kind, "interval_prob": float(prob), "note": note}
    return finished(table, "weight", idata, fdr, selected_only, **about)
