"""Edges of a multi-task fit to ArviZ, and from ArviZ to a table.

As in `posterior/tables.py`: 0/1 draws with dims (chain = aligned restart, draw, task, latent), and one
number per edge in the group `edge_posterior`. Weights are in units of the target per standard deviation of
the latent.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from . import arviz as _arviz
from .edge_table import NO_RHAT, attributes, edge_numbers, packed, weight_table
from .verdicts import latents_said, with_doubts

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
    method, is_score, note, attrs
        As for `to_arviz` of a table.

    Returns
    -------
    arviz.InferenceData or xarray.DataTree
        Groups `posterior` (edge, weight, eta; of eta each restart has one value), `edge_posterior`
        (probability, given, q_value, gap, weight and restart_probability), `sample_stats` (error, best, kept,
        restart) and `alignment`. Numbers are of the best restart, the one that is kept.
    """
    scale = fit.tasks.target_scale[:, None]
    best, dims = int(fit.best), ("chain", "draw", *_EDGE)
    posterior: dict[str, Any] = {"edge": (dims, edge), "weight": (dims, weight * scale)}
    if eta is not None:
        eta_draws = np.broadcast_to(eta[:, None], (len(eta), edge.shape[1], eta.shape[1]))
        posterior["eta"] = (("chain", "draw", "latent"), eta_draws)
    numbers = edge_numbers(_EDGE, probability[best], probability, {"weight": (weight[best] * scale).mean(0)})
    groups = {"posterior": posterior, "edge_posterior": numbers}
    stats = {"error": np.asarray(fit.error, dtype=float)}
    coords = {"task": list(fit.task_names), "latent": fit.latent_names}
    conclusion = latents_said(fit)
    about = attributes(fit, method, is_score, note, attrs, (), conclusion, kind="tasks", rhat=NO_RHAT)
    return packed(fit, groups, stats, "latent", coords, about)


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
    fdr, prob, kind, selected_only, sure, include_doubted
        As for `pyro_sparse.summary`.

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
    note = with_doubts(idata)
    return weight_table(idata, *_EDGE, fdr, prob, kind, selected_only, sure, include_doubted, note=note)
