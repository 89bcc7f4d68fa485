"""The page about a fit of sequences or of tasks: which latent drives which, or which task uses which latent.

`gather` turns a fit into plain facts; the template `templates/latents.html.j2` sets them as a page, in the
frame and style of a table's (`of_table.py`).
"""

from __future__ import annotations

import base64
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np
import pandas as pd

from .._utils.escaping import csv_bytes
from ..certificates.facts import certificate_facts
from ..findings.finding import findings_of, sentences
from ..posterior.edge_table import left_open, of_latents
from ..posterior.tables import summary
from .page import Drawing, how_made, inlined, write_page

if TYPE_CHECKING:
    from .._utils.types import ArvizData
    from ..inference.multitask.task_result import MultiTaskFit
    from ..inference.transition.transition_result import TransitionFit

__all__ = ["gather", "write_latents"]

_NEAR = 12  # edges that are listed as not named and not ruled out
_COLUMNS = {  # of `agreement`, in words
    "similarity": "Likeness of its latents",
    "least": "Likeness of the least alike",
    "recovered": "Best latents recovered",
    "edges_differing": "Other edges",
    "gap": "Gap of strengths (log)",
    "influence": "Influence spanned",
    "found": "Starts that found it",
    "elbo": "ELBO",
    "error": "Left-out error",
}


class _Words(NamedTuple):
    """What the page calls things."""

    asked: str
    row: str  # what has edges
    group: str  # a heading, of a latent
    strength: str


_WORDS = {
    "transition": _Words("Which latent drives which", "source", "What drives {}", "strength"),
    "tasks": _Words("Which task uses which latent", "task", "Tasks that use {}", "weight"),
}


def write_latents(fit: TransitionFit | MultiTaskFit, path: Path, idata: ArvizData, fdr: float) -> Path:
    """Write the page; see `pyro_sparse.report`.

    Parameters
    ----------
    fit : TransitionFit or MultiTaskFit
    path : Path
    idata : InferenceData or DataTree
    fdr : float
    """
    facts = gather(fit, idata, fdr)
    return write_page(path, "latents.html.j2", {**facts, "pictures": inlined(_drawings(fit, idata, fdr))})


def gather(fit: TransitionFit | MultiTaskFit, idata: ArvizData, fdr: float) -> dict[str, Any]:
    """Everything the page says, as plain facts.

    Parameters
    ----------
    fit : TransitionFit or MultiTaskFit
    idata : InferenceData or DataTree
    fdr : float
        As in `pyro_sparse.report`.
    """
    kind = str(idata.attrs["kind"])
    words, table = _WORDS[kind], summary(idata, fdr)
    word = "score" if table.attrs["is_score"] else "probability"
    chosen, latents = table[table["selected"]], list(fit.latent_names)
    of = "target" if kind == "transition" else "latent"
    near = left_open(table)
    return {
        "asked": words.asked,
        "kind": kind,
        "row": words.row,
        "strength": words.strength,
        "word": word,
        "method": table.attrs["edge_method"],
        "note": str(idata.attrs.get("note", "")),
        "fdr": fdr,
        "size": _size(fit, kind),
        "n_restarts": fit.n_restarts,
        "n_edges": len(chosen),
        "n_possible": len(table),
        "n_latents": len(latents),
        "n_unresolved": int(chosen["unresolved"].sum()),
        "decided": None if table.attrs["is_score"] else table["verdict"].value_counts().to_dict(),
        "verdict": _verdict(fit, chosen, fdr),
        "warnings": sentences(findings_of(fit, idata)),
        "groups": [
            {"name": words.group.format(name), "edges": _rows(chosen[chosen[of] == name], kind, word)}
            for name in latents
            if (chosen[of] == name).any()
        ],
        "near": _rows(near.head(_NEAR), kind, word),
        "n_near_more": max(len(near) - _NEAR, 0),
        "certificate": certificate_facts(fit, idata),
        "agreement": _agreement(fit),
        **how_made(fit),
        "csv": base64.b64encode(csv_bytes(chosen, index=False)).decode(),
    }


def _size(fit: TransitionFit | MultiTaskFit, kind: str) -> str:
    """How much data there was, in words."""
    if kind == "tasks":
        of_tasks = cast("MultiTaskFit", fit)
        counts = {"task": len(of_tasks.task_names), "sample": int(of_tasks.tasks.lengths.sum())}
    else:
        of_sequences = cast("TransitionFit", fit)
        counts = {"sequence": len(of_sequences.sequences), "frame": of_sequences.sequences.n_frames}
        counts |= {"feature": len(of_sequences.feature_names), "action": len(of_sequences.action_names)}
    return ", ".join(f"{n:,} {noun}{'' if n == 1 else 's'}" for noun, n in counts.items() if n)


def _verdict(fit: TransitionFit | MultiTaskFit, chosen: pd.DataFrame, fdr: float) -> dict[str, str]:
    """How far the graph may be believed: a level, a title and what to do."""
    about = of_latents(fit)
    if not len(chosen) and about["level"] != "poor":
        advice = f"At a false-discovery rate of {fdr:g} no edge can be named. Check the warnings below."
        return {"level": "poor", "title": "No edge stands out", "advice": advice}
    return about


def _rows(table: pd.DataFrame, kind: str, word: str) -> list[dict[str, Any]]:
    """Edges as rows of a table, the most probable first."""
    rows = []
    for _, edge in table.iterrows():
        name = str(edge["source" if kind == "transition" else "task"])
        lag = f", lag {edge['lag']}" if "lag" in table and edge["graph"] == "time" else ""
        rows.append(
            {
                "name": name + lag,
                "to": str(edge["target" if kind == "transition" else "latent"]),
                "value": float(edge[word]),
                "q_value": float(edge["q_value"]),
                "strength": float(edge["strength" if kind == "transition" else "weight"]),
                "gap": float(edge["gap"]),
                "verdict": str(edge["verdict"]),
                "unresolved": bool(edge["unresolved"]),
            }
        )
    return rows


def _agreement(fit: TransitionFit | MultiTaskFit) -> dict[str, Any]:
    """Restarts beside the best one."""
    table = fit.agreement[[name for name in _COLUMNS if name in fit.agreement]]
    return {
        "columns": [_COLUMNS[name] for name in table],
        "rows": [
            {
                "name": f"{r} (best)" if r == int(fit.best) else str(r),
                "values": ["–" if not np.isfinite(value) else f"{value:.4g}" for value in row],
            }
            for r, row in zip(table.index, table.to_numpy(dtype=float), strict=True)
        ],
    }


def _drawings(fit: TransitionFit | MultiTaskFit, idata: ArvizData, fdr: float) -> dict[str, Drawing]:
    from .. import plots

    if idata.attrs["kind"] == "transition":
        return {
            "graph": lambda: plots.plot_transition(idata, fdr=fdr),
            "elbo": lambda: plots.plot_elbo(cast("TransitionFit", fit)),
        }
    return {
        "edges": lambda: plots.plot_edges(idata, fdr=fdr),
        "graph": lambda: plots.plot_graph(idata, fdr=fdr),
    }
