"""What edge posteriors of all three kinds, and the tables of them, say in the same words."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from ._narrow import EdgeTable
from ._same_fit import fit_mark
from .graphs.selection import unresolved

__all__ = [
    "SCORES",
    "about_edges",
    "agreed",
    "attributes",
    "finished",
    "latents_said",
    "left_open",
    "of_latents",
    "verdict_of",
]


_UNLIKELY = {"score": 0.1, "probability": 0.05}
SCORES = "Scores, no probabilities: they rank the edges, are too sure of them, and leave all of them open."


def about_edges(idata: Any) -> dict[str, Any]:
    """What `DataFrame.attrs` say of the numbers of an edge posterior."""
    return {
        "edge_method": str(idata.attrs.get("edge_method", "")),
        "is_score": bool(int(idata.attrs.get("is_score", 0))),
        "note": str(idata.attrs.get("note", "")),
    }


def attributes(
    fit: Any,
    method: str,
    is_score: bool,
    note: str,
    attrs: Mapping[str, Any] | None,
    found: list[str],
    **more: Any,
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
    found : list of str
        Sentences on whether what was found may be believed: the verdict of methods without one of their own.
    **more
        Those of the kind of fit.
    """
    return {
        "edge_method": method,
        "is_score": int(is_score),
        "note": note,
        "verdict": "\n".join([*([SCORES] if is_score else []), *found]),
        "best_restart": int(fit.best),
        "fit_mark": fit_mark(fit),
        "settings": json.dumps(dict(fit.settings), default=str),
        "inference_library": "pyro_sparse",
        **more,
        **dict(attrs or {}),
    }


def verdict_of(idata: Any) -> list[str]:
    """What an edge posterior concludes, a sentence each; of files that do not say, what the numbers mean.

    Parameters
    ----------
    idata : InferenceData or DataTree
    """
    said = str(idata.attrs.get("verdict", "")).splitlines()
    note = str(idata.attrs.get("note", ""))
    return said or ([note] if note else [])


def agreed(gap: Any, run: str) -> list[str]:
    """Whether the runs of a table's fit agree on its edges, in a sentence.

    Parameters
    ----------
    gap : ndarray (feature, factor)
        NaN where nothing could be compared.
    run : str
        What they are, such as "restart".
    """
    if np.isnan(gap).all():
        return [f"There is only one {run} to look at: whether another finds other edges, nothing says."]
    n = int(unresolved(gap).sum())
    if not n:
        return [f"No edge is disputed between the {run}s."]
    those = "1 edge is" if n == 1 else f"{n} edges are"
    return [
        f"{those} disputed between the {run}s (gap above .25): read the column `unresolved` of the summary."
    ]


def latents_said(fit: Any) -> list[str]:
    """`of_latents` as sentences, with the fit's own reasons.

    Parameters
    ----------
    fit : TransitionFit or MultiTaskFit
    """
    found = of_latents(fit)
    return [f"{found['title']}. {found['advice']}", *fit.warnings]


def of_latents(fit: Any) -> dict[str, str]:
    """How far the latents of sequences or tasks may be believed: a level, a title and what to do.

    Parameters
    ----------
    fit : TransitionFit or MultiTaskFit
    """
    if fit.unsure:
        advice = (
            "The probabilities take the latents as given, and the fit itself doubts that these are the ones: "
            "its warnings say why. Do not rely on single edges."
        )
        return {"level": "poor", "title": "The latents are in doubt", "advice": advice}
    if fit.n_restarts == 1:
        advice = (
            "Another start may find other latents. Fit with several restarts before reading single edges."
        )
        return {"level": "unknown", "title": "One restart only", "advice": advice}
    if fit.warnings:
        title = "Another restart found the same latents, and yet there are doubts"
        return {"level": "mixed", "title": title, "advice": "Read the warnings of the fit first."}
    advice = "What they share is a property of the data and the model, not of one lucky start."
    return {"level": "good", "title": "Another restart found the same latents", "advice": advice}


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


def finished(
    table: pd.DataFrame, size: str, idata: Any, fdr: float, selected_only: bool, **attrs: Any
) -> pd.DataFrame:
    """The table with the most probable edge first, of those as probable that of the largest `size`.

    Parameters
    ----------
    table : DataFrame
        With a column `probability` or `score`, and `selected`.
    size : str
        Column whose absolute value decides among edges as probable.
    idata : InferenceData or DataTree
        The edge posterior.
    fdr : float
    selected_only : bool
    **attrs
        More for `DataFrame.attrs`, or in place of what `about_edges` says.
    """
    number = table["score" if "score" in table else "probability"]
    table = EdgeTable(table.iloc[np.lexsort((-table[size].abs(), -number))])
    if selected_only:
        table = table[table["selected"]]
    table.attrs = {"fdr": float(fdr), **about_edges(idata), **attrs}
    return table
