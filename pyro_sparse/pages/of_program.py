"""The page about the fit of a program: its edges, its other numbers, and how each was drawn.

`gather` turns a fit into plain facts; the template `templates/program.html.j2` sets them as a page, in the
frame and style of a table's (`of_table.py`). What is left out is what only a ready model has: curves,
salience, checks of its cells.
"""

from __future__ import annotations

import base64
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from .._utils.escaping import csv_bytes
from ..certificates.facts import certificate_facts
from ..findings.finding import findings_of, sentences
from ..graphs._mixing import split_rhat
from ..posterior import arviz as _arviz
from ..posterior.edge_table import left_open
from ..posterior.tables import summary
from .page import Drawing, how_made, inlined, write_page

if TYPE_CHECKING:
    from .._utils.types import ArvizData
    from ..inference.program.result import ProgramFit

__all__ = ["gather", "write_program"]

_NEAR = 12  # edges that are listed as not named and not ruled out
_MOST_NUMBERS = 12  # of a site, that are listed one by one
_INTERVAL = 0.05, 0.95


def write_program(fit: ProgramFit, path: Path, idata: ArvizData, fdr: float) -> Path:
    """Write the page; see `pyro_sparse.report`.

    Parameters
    ----------
    fit : ProgramFit
    path : Path
    idata : InferenceData or DataTree
    fdr : float
    """
    facts = gather(fit, idata, fdr)
    return write_page(path, "program.html.j2", {**facts, "pictures": inlined(_drawings(idata, fdr))})


def gather(fit: ProgramFit, idata: ArvizData, fdr: float) -> dict[str, Any]:
    """Everything the page says, as plain facts.

    Parameters
    ----------
    fit : ProgramFit
    idata : InferenceData or DataTree
    fdr : float
        As in `pyro_sparse.report`.
    """
    table = summary(idata, fdr)
    is_score, declares = bool(table.attrs["is_score"]), bool(idata.attrs.get("declares_factors"))
    word = "score" if is_score else "probability"
    chosen, near = table[table["selected"]], left_open(table)
    return {
        "site": str(idata.attrs["site"]),
        "word": word,
        "method": table.attrs["edge_method"],
        "note": str(idata.attrs.get("note", "")),
        "fdr": fdr,
        "n_rows": len(fit.data),
        "n_features": len(fit.feature_names),
        "n_factors": fit.model.n_factors,
        "n_restarts": fit.n_restarts,
        "n_edges": len(chosen),
        "n_possible": len(table),
        "decided": None if is_score else table["verdict"].value_counts().to_dict(),
        "verdict": str(idata.attrs["verdict"]).splitlines(),
        "warnings": sentences(findings_of(fit, idata)),
        "groups": [
            {"name": name, "edges": _rows(chosen[chosen["factor"] == name], word)}
            for name in fit.factor_names
            if (chosen["factor"] == name).any()
        ],
        "near": _rows(near.head(_NEAR), word),
        "n_near_more": max(len(near) - _NEAR, 0),
        "certificate": certificate_facts(fit, idata) if declares else None,
        "declares_factors": declares,
        "sites": [] if is_score else _sites(idata),
        "kernels": [how.split(": ", 1) for how in str(idata.attrs.get("kernels", "")).split("; ") if how],
        **how_made(fit),
        "csv": base64.b64encode(csv_bytes(chosen, index=False)).decode(),
    }


def _rows(table: pd.DataFrame, word: str) -> list[dict[str, Any]]:
    """Edges as rows of a table, the most probable first."""
    return [
        {
            "name": str(edge["feature"]),
            "to": str(edge["factor"]),
            "value": float(edge[word]),
            "weight": float(edge["weight"]),
            "q_value": float(edge["q_value"]),
            "gap": float(edge["gap"]),
            "verdict": str(edge["verdict"]),
            "unresolved": bool(edge["unresolved"]),
        }
        for _, edge in table.iterrows()
    ]


def _sites(idata: ArvizData) -> list[dict[str, Any]]:
    """Of each site outside of the rows, weights of edges apart: its numbers, or the ends of them."""
    posterior = _arviz.get_group(idata, "posterior")
    kept = np.flatnonzero(_arviz.get_group(idata, "sample_stats")["kept"].to_numpy())
    sites = []
    for name in posterior.data_vars:
        if name in ("edge", "weight"):
            continue
        drawn = posterior[name].transpose("chain", "draw", ...)
        draws = drawn.to_numpy()[kept].astype(float)
        rhat = split_rhat(draws.reshape(*draws.shape[:2], -1)).reshape(draws.shape[2:])
        numbers = _numbers(draws, drawn, rhat) if rhat.size <= _MOST_NUMBERS else []
        moves = rhat[np.isfinite(rhat)]
        largest = float(moves.max()) if moves.size else np.nan
        sites.append({"name": str(name), "size": int(rhat.size), "numbers": numbers, "rhat": largest})
    return sites


def _numbers(draws: NDArray[np.float64], drawn: Any, rhat: NDArray[np.float64]) -> list[dict[str, Any]]:
    low, high = np.quantile(draws, _INTERVAL, axis=(0, 1))
    mean, names = draws.mean((0, 1)), [drawn[dim].to_numpy() for dim in drawn.dims[2:]]
    return [
        {
            "name": ", ".join(str(labels[i]) for labels, i in zip(names, place, strict=True)),
            "mean": float(mean[place]),
            "low": float(low[place]),
            "high": float(high[place]),
            "rhat": float(rhat[place]),
        }
        for place in np.ndindex(mean.shape)
    ]


def _drawings(idata: ArvizData, fdr: float) -> dict[str, Drawing]:
    from .. import plots

    return {
        "edges": lambda: plots.plot_edges(idata, fdr=fdr),
        "graph": lambda: plots.plot_graph(idata, fdr=fdr),
    }
