"""What edge posteriors of all three kinds, and the tables of them, say in the same words."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from ._same_fit import fit_mark

__all__ = ["about_edges", "attributes", "finished"]


def about_edges(idata: Any) -> dict[str, Any]:
    """What `DataFrame.attrs` say of the numbers of an edge posterior."""
    return {
        "edge_method": str(idata.attrs.get("edge_method", "")),
        "is_score": bool(int(idata.attrs.get("is_score", 0))),
        "note": str(idata.attrs.get("note", "")),
    }


def attributes(
    fit: Any, method: str, is_score: bool, note: str, attrs: Mapping[str, Any] | None, **more: Any
) -> dict[str, Any]:
    """Attributes of an edge posterior: how it was made, of which fit, and what its numbers mean.

    Parameters
    ----------
    fit : Fit, TransitionFit or MultiTaskFit
    method : str
    is_score : bool
    note : str
    attrs : mapping, optional
        The method's own.
    **more
        Those of the kind of fit.
    """
    return {
        "edge_method": method,
        "is_score": int(is_score),
        "note": note,
        "best_restart": int(fit.best),
        "fit_mark": fit_mark(fit),
        "settings": json.dumps(dict(fit.settings), default=str),
        "inference_library": "pyro_sparse",
        **more,
        **dict(attrs or {}),
    }


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
    table = table.iloc[np.lexsort((-table[size].abs(), -number))]
    if selected_only:
        table = table[table["selected"]]
    table.attrs = {"fdr": float(fdr), **about_edges(idata), **attrs}
    return table
