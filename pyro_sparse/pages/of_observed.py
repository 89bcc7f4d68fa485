"""The page about a fit of variables that drive each other themselves: the graph by lag, within a step, ahead.

`gather` turns a fit into plain facts; the template `templates/observed.html.j2` sets them as a page, in the
frame and style of a table's (`of_table.py`).
"""

from __future__ import annotations

import base64
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from .._utils.escaping import csv_bytes
from ..inference.observed.forecast import check_own_sequences
from ..plots._style import colours, new_figure, shorten, styled
from ..posterior.tables import summary
from .conclusion import Words, cautions, counted, in_doubt, joined, known_edges, open_edges, short
from .edges import Column, common_columns, edge_table, number, text, verdict_column
from .glossary import glossary
from .model_card import model_card
from .page import Drawing, inlined, percent, write_page

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from .._utils.types import ArvizData
    from ..inference.observed.observed_result import ObservedFit

__all__ = ["gather", "write_observed"]

_WORDS = Words(
    "cause", "target", "target", "variables", "variables",
    ("{group} is driven by {names}", "{group} is driven by {names}"), "{row} to {column}",
)  # fmt: skip
_WITHIN = 0.1  # correlations within a step that are listed
_MOST_PAIRS, _MOST_DRAWN = 12, 6
_STEPS, _FRAMES = 12, 48  # ahead, and before, of the picture of a forecast
_SCORED = 3  # steps ahead whose scores are listed
_DISAGREE = 0.25


def write_observed(fit: ObservedFit, path: Path, idata: ArvizData, fdr: float) -> Path:
    """Write the page; see `pyro_sparse.report`.

    Parameters
    ----------
    fit : ObservedFit
    path : Path
    idata : InferenceData or DataTree
    fdr : float
    """
    facts = gather(fit, idata, fdr)
    return write_page(path, "observed.html.j2", {**facts, "pictures": inlined(_drawings(fit, idata, fdr))})


def gather(fit: ObservedFit, idata: ArvizData, fdr: float) -> dict[str, Any]:
    """Everything the page says, as plain facts.

    Parameters
    ----------
    fit : ObservedFit
    idata : InferenceData or DataTree
    fdr : float
        As in `pyro_sparse.report`.
    """
    table = summary(idata, fdr)
    table["cause"] = [_cause(edge) for _, edge in table.iterrows()]
    chosen, names = table[table["selected"]], fit.feature_names
    sizes = _sizes(fit)
    said = ", ".join(counted(n, noun) for noun, n in sizes)
    covariates = list(fit.settings.get("covariates", []))
    facts = {
        "kind": "variables",
        "asked": "Which variable drives which, and when",
        "heading": f"{counted(len(chosen), 'edge')} of {len(table):,} possible",
        "size": f"{said}; {counted(fit.lags, 'lag')}, {counted(fit.n_restarts, 'chain')}",
        "limits": f"Always in the model, and no edges: {joined(covariates)}." if covariates else "",
        "group_title": "Target",
        "word": "probability",
        "runs": "the chains",
        "note": str(idata.attrs.get("note", "")),
        "fdr": fdr,
        "n_edges": len(chosen),
        "verdict": _verdict(fit, idata, chosen, fdr),
        "lead": [],
        "known": known_edges(table, _WORDS, names) or [f"No edge is present (rate {percent(fdr)})."],
        "open": open_edges(table, _WORDS),
        "cautions": cautions(fit, idata),
        "tiles": _tiles(table),
        "edges": _edge_table(table, names),
        "covariates": joined(covariates) if covariates else "",
        "lags": _lags(fit),
        "within": _within(fit),
        "explained": [
            (name, percent(float(share))) for name, share in zip(names, fit.explained, strict=True)
        ],
        "forecast": _forecast_scores(fit),
        "card": model_card(fit, idata, fdr, [(f"{noun}s", f"{n:,}") for noun, n in sizes]),
        "csv": base64.b64encode(csv_bytes(chosen.drop(columns="cause"), index=False)).decode(),
    }
    return {**facts, "words": glossary("variables", facts)}


def _cause(edge: pd.Series) -> str:
    """The source, with how long before."""
    if edge["graph"] != "time":
        return str(edge["source"])
    lag = int(edge["lag"]) if "lag" in edge else 1
    return f"{edge['source']} ({counted(lag, 'step')} before)"


def _sizes(fit: ObservedFit) -> list[tuple[str, int]]:
    """How much data there was: what, in the singular, and how many."""
    counts = {"variable": len(fit.feature_names), "action": len(fit.action_names)}
    if len(fit.sequences):
        counts |= {"sequence": len(fit.sequences), "frame": fit.sequences.n_frames}
    else:
        counts["step"] = int(fit.settings["steps"])
    return [(noun, n) for noun, n in counts.items() if n]


def _verdict(fit: ObservedFit, idata: ArvizData, chosen: pd.DataFrame, fdr: float) -> dict[str, str]:
    """How far to believe the graph: a level, a title and a sentence; the cautions have the reasons."""
    touched = in_doubt(fit, idata)
    if touched == "all":
        advice = "A doubt touches all edges: read the cautions, and do not rely on any."
        return {"level": "poor", "title": "The graph is in doubt", "advice": advice}
    if not len(chosen):
        advice = f"At a false-discovery rate of {fdr:g} no edge can be selected. Read the cautions."
        return {"level": "poor", "title": "No edge stands out", "advice": advice}
    if touched:
        advice = "Edges that a doubt touches are open; the cautions name them. Others stand."
        return {"level": "mixed", "title": "Some edges are in doubt", "advice": advice}
    if fit.n_restarts == 1:
        return {
            "level": "unknown", "title": "One chain only",
            "advice": "Fit with restarts=2: the second chain begins elsewhere, and shows what one misses.",
        }  # fmt: skip
    gap = float(np.ptp(fit.by_chain, axis=0).max())
    if gap > _DISAGREE:
        advice = "Edges that the chains disagree about are marked unresolved; more sampler_steps settle them."
        return {"level": "mixed", "title": "The chains disagree about some edges", "advice": advice}
    advice = (
        "An edge says that the past of a variable, or an action, helps to predict its target, given all "
        "others in the table. A cause that was not measured can look like one."
    )
    if fit.findings:
        return {"level": "mixed", "title": "The chains agree, with cautions", "advice": advice}
    return {"level": "good", "title": "The chains agree, and no check objects", "advice": advice}


def _tiles(table: pd.DataFrame) -> list[tuple[str, str, str]]:
    """Figures at a glance: what is large, what is said of it, and its word in the glossary."""
    verdicts = table["verdict"].value_counts()
    return [
        (f"{int(table['selected'].sum())} / {len(table)}", "selected edges", "selected"),
        *((str(verdicts.get(name, 0)), name, "verdict") for name in ("present", "absent", "open")),
    ]


def _edge_table(table: pd.DataFrame, names: list[str]) -> dict[str, Any]:
    """The edges, as rows of the page's table."""
    common = common_columns("probability")
    lag = Column("Lag", "lag", lambda edge: number(edge["lag"] if "lag" in edge else np.nan, "{:.0f}"), True)
    one_lag = table.assign(lag=np.where(table["graph"] == "time", 1.0, np.nan))
    return edge_table(
        table if "lag" in table else one_lag,
        Column("Source", "edge", lambda edge: text(edge["source"]), False),
        [
            Column("Target", "edge", lambda edge: text(edge["target"]), False, True),
            lag,
            verdict_column(False),
            common["probability"],
            Column("Strength", "strength", lambda edge: number(edge["strength"], "{:.3g}")),
            common["q"],
            common["gap"],
        ],
        "target",
        names,
    )


def _lags(fit: ObservedFit) -> list[dict[str, str]]:
    """What speaks for each lag."""
    return [
        {
            "lag": str(lag),
            "largest": short(float(row["largest"])),
            "expected": f"{row['expected_edges']:.1f}",
            "used": "in the model" if int(str(lag)) <= fit.lags else "not in the model",
        }
        for lag, row in fit.lag_evidence.iterrows()
    ]


def _within(fit: ObservedFit) -> dict[str, Any]:
    """Pairs of variables whose noises go together, the strongest first."""
    first, second = np.triu_indices(len(fit.feature_names), 1)
    r = fit.noise_correlation[first, second]
    order = [k for k in np.argsort(-np.abs(r), kind="stable") if abs(r[k]) >= _WITHIN]
    rows = [
        (fit.feature_names[first[k]], fit.feature_names[second[k]], f"{r[k]:+.2f}".replace("-", "−"))
        for k in order[:_MOST_PAIRS]
    ]
    return {"rows": rows, "more": len(order) - len(rows)}


def _whole(fit: ObservedFit) -> str:
    """Why there is no forecast, "" where there is one."""
    try:
        check_own_sequences(fit)
    except ValueError:
        return "the fit was loaded without its sequences (fit.with_data gives them back)"
    return ""


def _forecast_scores(fit: ObservedFit) -> dict[str, Any]:
    """How good forecasts of the last frames would have been, or why that is not said."""
    why = _whole(fit)
    if why:
        return {"rows": [], "why": why}
    try:
        scores = fit.forecast_scores(_SCORED, origins=20, num_draws=100)
    except ValueError as error:
        return {"rows": [], "why": str(error)}
    rows = [
        {
            "variable": row["feature"], "step": str(row["step"]), "coverage": percent(float(row["coverage"])),
            "crps": f"{row['crps']:.3g}",
            "persistence": f"{row['crps_persistence']:.3g}" if np.isfinite(row["crps_persistence"]) else "–",
        }
        for _, row in scores.sort_values(["feature", "step"], kind="stable").iterrows()
    ]  # fmt: skip
    return {"rows": rows, "why": ""}


# ---- pictures ----------------------------------------------------------------------------------------------
def _drawings(fit: ObservedFit, idata: ArvizData, fdr: float) -> dict[str, Drawing]:
    from .. import plots

    drawings: dict[str, Drawing] = {"graph": lambda: plots.plot_transition(idata, fdr=fdr)}
    design = fit.sequences.design
    known = not fit.action_names and (design is None or design.covariates is None)
    if known and not _whole(fit):
        try:
            ahead = fit.forecast(_STEPS).to_numpy()[:, -1]
        except ValueError:
            return drawings
        drawings["forecast"] = lambda: _draw_forecast(fit, ahead)
    return drawings


@styled
def _draw_forecast(fit: ObservedFit, ahead: np.ndarray) -> Figure:
    """The last frames of the last sequence, and draws (draw, step, variable) of those to come."""
    c, names = colours(), fit.feature_names[:_MOST_DRAWN]
    sequences = fit.sequences
    length = int(sequences.lengths[-1])
    values = np.where(
        np.ones(sequences.x.shape[1:], bool) if sequences.mask is None else sequences.mask[-1],
        sequences.x[-1], np.nan,
    )[:length] * sequences.scale + sequences.centre  # fmt: skip
    shown = values[-_FRAMES:]
    figure = new_figure(6.4, 0.5 + 1.05 * len(names))
    axes = np.atleast_1d(figure.subplots(len(names), 1, sharex=True))
    labels = shorten(names, 14)
    past, future = np.arange(1 - len(shown), 1), np.arange(1, ahead.shape[1] + 1)
    for j, (label, ax) in enumerate(zip(labels, axes, strict=True)):
        low, lower, middle, upper, high = np.quantile(ahead[..., j], [0.05, 0.25, 0.5, 0.75, 0.95], axis=0)
        ax.plot(past, shown[:, j], color=c["muted"], linewidth=1.2, marker=".", markersize=3)
        ax.fill_between(future, low, high, color=c["negative"], alpha=0.2, linewidth=0)
        ax.fill_between(future, lower, upper, color=c["negative"], alpha=0.35, linewidth=0)
        ax.plot(future, middle, color=c["negative"], linewidth=1.4)
        ax.set_ylabel(label, rotation=0, ha="right", va="center")
    axes[-1].set_xlabel("frames from the last one")
    return figure
