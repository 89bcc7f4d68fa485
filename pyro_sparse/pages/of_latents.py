"""The page about a fit of sequences or of tasks: which latent drives which, or which task uses which latent.

`gather` turns a fit into plain facts; the template `templates/latents.html.j2` sets them as a page, in the
frame and style of a table's (`of_table.py`).
"""

from __future__ import annotations

import base64
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pandas as pd

from .._utils.escaping import csv_bytes
from ..certificates.facts import certificate_facts
from ..posterior.tables import summary
from ..posterior.verdicts import of_latents
from .conclusion import (
    Words,
    cautions,
    counted,
    known_edges,
    known_identified,
    open_edges,
    open_identified,
)
from .edges import Column, common_columns, edge_table, number, text, verdict_column
from .glossary import glossary
from .model_card import model_card
from .page import Drawing, inlined, percent, write_page

if TYPE_CHECKING:
    from .._utils.types import ArvizData
    from ..inference.multitask.task_result import MultiTaskFit
    from ..inference.transition.transition_result import TransitionFit

__all__ = ["gather", "write_latents"]

_ADVICE = (  # the page calls warnings cautions, and has them below
    ("the fit itself doubts that these are the ones: its warnings say why", "cautions below doubt that"),
    ("Its warnings say why", "The cautions say why"),
    ("Read the warnings of the fit first", "Read the cautions first"),
)
_COLUMNS = {  # of `agreement`, in words
    "similarity": "Agreement with the best",
    "least": "Agreement of the least alike",
    "recovered": "Best latents recovered",
    "edges_differing": "Edges that differ",
    "gap": "Gap of strengths (log)",
    "influence": "Influence spanned",
    "found": "Starts that found it",
    "elbo": "ELBO",
    "error": "Held-out error",
}


_WORDS = {
    "transition": Words(
        "source", "target", "target", "latents", "latents",
        ("{group} is driven by {names}", "{group} is driven by {names}"), "{row} to {column}",
    ),
    "tasks": Words(
        "task", "latent", "latent", "tasks", "latents",
        ("{names} uses {group}", "{names} use {group}"), "{row} on {column}",
    ),
}  # fmt: skip
_ASKED = {"transition": "Which latent drives which", "tasks": "Which task uses which latent"}


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
    is_score = bool(table.attrs["is_score"])
    word = "score" if is_score else "probability"
    chosen, latents = table[table["selected"]], list(fit.latent_names)
    certificate = certificate_facts(fit, idata)
    sizes = _sizes(fit, kind)
    said = ", ".join(counted(n, noun) for noun, n in sizes)
    facts = {
        "kind": kind,
        "asked": _ASKED[kind],
        "heading": f"{counted(len(chosen), 'edge')} of {len(table):,} possible",
        "size": f"{said}; {counted(len(latents), 'latent')}, {counted(fit.n_restarts, 'restart')}",
        "limits": "",
        "group_title": "Target" if kind == "transition" else "Latent",
        "word": word,
        "runs": "restarts",
        "note": str(idata.attrs.get("note", "")),
        "fdr": fdr,
        "n_latents": len(latents),
        "n_edges": len(chosen),
        "verdict": _verdict(fit, chosen, fdr),
        "lead": [],
        "known": _known(table, words, latents, certificate, fdr),
        "open": [*open_edges(table, words), *open_identified(certificate)],
        "cautions": cautions(fit, idata, certificate["caution"] if certificate else ()),
        "tiles": _tiles(table, is_score),
        "edges": _edge_table(table, kind, word, words, latents),
        "certificate": certificate,
        "agreement": _agreement(fit),
        "card": model_card(fit, idata, fdr, [(f"{noun}s", f"{n:,}") for noun, n in sizes]),
        "csv": base64.b64encode(csv_bytes(chosen, index=False)).decode(),
    }
    return {**facts, "words": glossary(kind, facts)}


def _sizes(fit: TransitionFit | MultiTaskFit, kind: str) -> list[tuple[str, int]]:
    """How much data there was: what, in the singular, and how many."""
    if kind == "tasks":
        of_tasks = cast("MultiTaskFit", fit)
        counts = {"task": len(of_tasks.task_names), "sample": int(of_tasks.tasks.lengths.sum())}
    else:
        of_sequences = cast("TransitionFit", fit)
        counts = {"sequence": len(of_sequences.sequences), "frame": of_sequences.sequences.n_frames}
        counts |= {"feature": len(of_sequences.feature_names), "action": len(of_sequences.action_names)}
    return [(noun, n) for noun, n in counts.items() if n]


def _known(
    table: pd.DataFrame, words: Words, latents: list[str], certificate: dict[str, Any] | None, fdr: float
) -> list[str]:
    """What is known, a sentence each."""
    said = known_edges(table, words, latents)
    if not said:
        said = [f"No edge is {'selected' if table.attrs['is_score'] else 'present'} (rate {percent(fdr)})."]
    return [*said, *known_identified(certificate)]


def _verdict(fit: TransitionFit | MultiTaskFit, chosen: pd.DataFrame, fdr: float) -> dict[str, str]:
    """How far to believe the graph: a level, a title and a sentence; the cautions have the reasons."""
    about = of_latents(fit)
    if not len(chosen) and about["level"] != "poor":
        advice = f"At a false-discovery rate of {fdr:g} no edge can be selected. Read the cautions."
        return {"level": "poor", "title": "No edge stands out", "advice": advice}
    advice = about["advice"]
    for theirs, ours in _ADVICE:
        advice = advice.replace(theirs, ours)
    return {**about, "advice": advice}


def _tiles(table: pd.DataFrame, is_score: bool) -> list[tuple[str, str, str]]:
    """Figures at a glance: what is large, what is said of it, and its word in the glossary."""
    chosen = table[table["selected"]]
    tiles = [(f"{len(chosen)} / {len(table)}", "selected edges", "selected")]
    if not is_score:
        verdicts = table["verdict"].value_counts()
        tiles += [(str(verdicts.get(name, 0)), name, "verdict") for name in ("present", "absent", "open")]
    return [*tiles, (str(int(chosen["unresolved"].sum())), "unresolved selected edges", "gap")]


def _edge_table(
    table: pd.DataFrame, kind: str, word: str, words: Words, latents: list[str]
) -> dict[str, Any]:
    """The edges of latents, as rows of the page's table."""
    common, is_transition = common_columns(word), kind == "transition"
    size = "strength" if is_transition else "weight"
    return edge_table(
        table,
        Column("Source" if is_transition else "Task", "edge", lambda edge: text(_named(edge, words)), False),
        [
            Column(
                "Target" if is_transition else "Latent",
                "latent",
                lambda edge: text(edge[words.column]),
                False,
                True,
            ),
            verdict_column(word == "score"),
            common[word],
            Column(size.capitalize(), size, lambda edge: number(edge[size], "{:.3g}")),
            common["q"],
            common["gap"],
        ],
        words.group,
        latents,
    )


def _named(edge: pd.Series, words: Words) -> str:
    """The task or source, with its lag where there are several."""
    lag = f", lag {edge['lag']}" if "lag" in edge and edge["graph"] == "time" else ""
    return f"{edge[words.row]}{lag}"


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
