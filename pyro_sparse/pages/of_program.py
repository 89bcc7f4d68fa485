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
from ..findings.finding import findings_of
from ..graphs._mixing import split_rhat
from ..posterior import arviz as _arviz
from ..posterior.tables import summary
from .conclusion import (
    Words,
    asked_for,
    cautions,
    counted,
    decided,
    in_doubt,
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
    from ..inference.program.result import ProgramFit

__all__ = ["gather", "write_program"]

_WORDS = Words(
    "feature", "factor", "factor", "features", "factors",
    ("{names} depends on {group}", "{names} depend on {group}"), "{row} on {column}",
)  # fmt: skip
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
    word, group = "score" if is_score else "probability", "factor" if declares else "column"
    words, factors = _WORDS._replace(groups=f"{group}s"), list(fit.factor_names)
    chosen = table[table["selected"]]
    certificate = certificate_facts(fit, idata) if declares else None
    site = str(idata.attrs["site"])
    asked = asked_for(table, idata)
    facts = {
        "kind": "program",
        "asked": f"Which feature depends on which {group}",
        "heading": f"{counted(len(chosen), 'edge')} of {len(table):,} possible",
        "size": f"{counted(len(fit.data), 'row')}, {counted(len(fit.feature_names), 'feature')}, "
        f"{counted(fit.model.n_factors, 'factor')}, {counted(fit.n_restarts, 'restart')}; the edges of site "
        f"{site} of a program",
        "limits": "",
        "group_title": group.capitalize(),
        "groups": f"{group}s",
        "word": word,
        "runs": "restarts" if is_score else "the chains",
        "note": str(idata.attrs.get("note", "")),
        "fdr": fdr,
        "n_factors": fit.model.n_factors,
        "n_edges": len(chosen),
        "verdict": _verdict(fit, idata, chosen, fdr),
        "lead": decided(fit, idata),
        "known": _known(table, words, factors, certificate, fdr),
        "open": [*open_edges(table, words, asked), *open_identified(certificate)],
        "cautions": cautions(fit, idata, certificate["caution"] if certificate else ()),
        "tiles": _tiles(table, asked, is_score),
        "edges": _edge_table(table, word, group, factors),
        "certificate": certificate,
        "declares_factors": declares,
        "sites": [] if is_score else _sites(idata),
        "kernels": [how.split(": ", 1) for how in str(idata.attrs.get("kernels", "")).split("; ") if how],
        "card": model_card(
            fit, idata, fdr, [("rows", f"{len(fit.data):,}"), ("features", f"{len(fit.feature_names):,}")]
        ),
        "csv": base64.b64encode(csv_bytes(chosen, index=False)).decode(),
    }
    return {**facts, "words": glossary("program", facts)}


def _verdict(fit: ProgramFit, idata: ArvizData, chosen: pd.DataFrame, fdr: float) -> dict[str, str]:
    """How far to believe the graph: a level, a title and a sentence; the cautions have the reasons."""
    doubt = in_doubt(fit, idata)
    if doubt == "all":
        advice = "A caution below touches all edges: do not rely on single ones."
        return {"level": "poor", "title": "Every edge is in doubt", "advice": advice}
    if not len(chosen):
        advice = f"At a false-discovery rate of {fdr:g} no edge can be selected."
        return {"level": "poor", "title": "No edge stands out", "advice": advice}
    if doubt:
        advice = "Edges that a doubt touches are open and not selected: read the cautions first."
        return {"level": "mixed", "title": "Some edges are in doubt", "advice": advice}
    if findings_of(fit, idata):
        advice = "No edge is in doubt; read the cautions beside the result."
        return {"level": "mixed", "title": "Edges were found, with cautions", "advice": advice}
    if int(idata.attrs.get("is_score", 0)):
        advice = (
            "Scores rank the edges and say nothing of how sure they are; Markov chains give probabilities."
        )
        return {"level": "unknown", "title": "A ranking of edges", "advice": advice}
    advice = "No check of the fit and the chains speaks against an edge."
    return {"level": "good", "title": "Edges were found, and none is in doubt", "advice": advice}


def _known(
    table: pd.DataFrame, words: Words, factors: list[str], certificate: dict[str, Any] | None, fdr: float
) -> list[str]:
    """What is known, a sentence each."""
    said = known_edges(table, words, factors)
    if not said:
        said = [f"No edge is {'selected' if table.attrs['is_score'] else 'present'} (rate {percent(fdr)})."]
    return [*said, *known_identified(certificate)]


def _tiles(table: pd.DataFrame, asked: NDArray[np.bool_], is_score: bool) -> list[tuple[str, str, str]]:
    """Figures at a glance: what is large, what is said of it, and its word in the glossary."""
    tiles = [(f"{int(table['selected'].sum())} / {len(table)}", "selected edges", "selected")]
    if not is_score:
        verdicts = table["verdict"][asked].value_counts()
        tiles += [(str(verdicts.get(name, 0)), name, "verdict") for name in ("present", "absent", "open")]
    return tiles


def _edge_table(table: pd.DataFrame, word: str, group: str, factors: list[str]) -> dict[str, Any]:
    """The edges of a program, as rows of the page's table."""
    common = common_columns(word)
    columns = [
        Column(group.capitalize(), "edge", lambda edge: text(edge["factor"]), False, True),
        verdict_column(word == "score"),
        common[word],
        Column("Weight", "weight", lambda edge: number(edge["weight"], "{:.3g}")),
        common["q"],
        common["gap"],
    ]
    first = Column("Feature", "edge", lambda edge: text(edge["feature"]), False)
    return edge_table(table, first, columns, "factor", factors)


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
