"""Edges and factors of a table's page: the columns of the list, loadings with their intervals, curves."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pandas as pd
from numpy.typing import NDArray

from ..posterior.salience import goes_both_ways, salience_column
from .curves import NOT_IN_FIT, answers_of, in_words, span_of, sparkline
from .edges import Cell, Column, common_columns, number, share, text, verdict_column
from .page import percent

if TYPE_CHECKING:
    from ..inference.table.result import Fit

__all__ = ["EdgeCurves", "edge_columns", "factors_in_use", "loading_columns"]


class EdgeCurves:
    """Curves of all edges, each drawn when it is asked for; `unfitted` once one was not in the fit.

    Parameters
    ----------
    fit : Fit
    loading : ndarray (feature, factor)
        Mean weights of the edge posterior.
    """

    def __init__(self, fit: Fit, loading: NDArray) -> None:
        self.answers = answers_of(fit, loading)
        self.features = {name: j for j, name in enumerate(fit.feature_names)}
        self.factors = {name: k for k, name in enumerate(fit.factor_names)}
        self.unfitted = False

    def __call__(self, edge: pd.Series) -> dict[str, str]:
        j, k = self.features[edge["feature"]], self.factors[edge["factor"]]
        drawn = sparkline(self.answers[:, j, k], float(span_of(self.answers[:, j])))
        self.unfitted = self.unfitted or drawn["shape"] == NOT_IN_FIT
        return drawn


def factors_in_use(
    chosen: pd.DataFrame, curves: EdgeCurves, effects: NDArray, names: list[str]
) -> list[dict[str, Any]]:
    """Factors in use, what their features do, and their share of all variance.

    Parameters
    ----------
    chosen : DataFrame
        Selected edges of a summary.
    curves : EdgeCurves
    effects : ndarray (feature, factor)
        Shares of variance.
    names : list of str
        Of the factors.
    """
    factors = []
    for k, name in enumerate(names):
        edges = chosen[chosen["factor"] == name].sort_values("effect", ascending=False)
        if len(edges):
            rows = [{"feature": edge["feature"], **curves(edge)} for _, edge in edges.iterrows()]
            share_of_all = float(effects[:, k].mean())
            factors.append(
                {"name": name, "share": share_of_all, "n_edges": len(edges), "groups": in_words(rows)}
            )
    return factors


def edge_columns(table: pd.DataFrame, word: str, columns: dict[str, str], curves: EdgeCurves) -> list[Column]:
    """Columns of the list of edges behind the feature.

    Parameters
    ----------
    table : DataFrame
        A summary.
    word : {"probability", "score"}
    columns : dict
        From `loading_columns`.
    curves : EdgeCurves
    """
    common = common_columns(word)
    loadings = []
    if columns:
        about = table.attrs
        interval = f"{100 * about['interval_prob']:g} % {about['interval_kind'].upper()}"
        loadings.append(
            Column(f"Loading ({interval})", "loading", lambda edge: _loading_cell(_loading_of(edge, columns)))
        )
    if "salience" in columns:
        title = f"Loading ≥ {table.attrs['salient']:g}"
        loadings.append(Column(title, "loading", lambda edge: number(edge[columns["salience"]])))
    return [
        Column("Factor", "factor", lambda edge: text(edge["factor"]), False, True),
        verdict_column(word == "score"),
        common[word],
        *loadings,
        Column("Share of variance", "share-of-variance", lambda edge: share(edge["effect"], percent)),
        Column("As the factor goes up", "shape", lambda edge: _shape_cell(edge, curves), False),
        common["q"],
        common["gap"],
    ]


def _shape_cell(edge: pd.Series, curves: EdgeCurves) -> Cell:
    """What a selected edge does; an edge that may not be there does nothing yet."""
    if not edge["selected"]:
        return text("")
    drawn = curves(edge)
    return Cell(drawn["shape"], drawn["shape"], points=drawn["points"])


def _loading_cell(sizes: dict[str, float | bool]) -> Cell:
    sign = "± " if sizes["both_ways"] else ""
    mean, low, high = (f"{round(float(sizes[name]), 2) + 0.0:.2f}" for name in ("loading", "lower", "upper"))
    return Cell(f"{sign}{mean}", abs(float(sizes["loading"])), soft=f"{low} … {high}")


def loading_columns(table: pd.DataFrame) -> dict[str, str]:
    """Columns of a summary that say how large the loadings are, by what they are; none of scores.

    Parameters
    ----------
    table : DataFrame
    """
    about = table.attrs
    if "salient" not in about:
        return {}
    interval = f"{about['interval_kind']}{100 * about['interval_prob']:g}"
    bounds = {"lower": f"{interval}_lb", "upper": f"{interval}_ub"}
    columns = {"loading": "weight", **bounds, "salience": salience_column(about["salient"])}
    return {name: column for name, column in columns.items() if column in table}


def _loading_of(edge: pd.Series, columns: dict[str, str]) -> dict[str, float | bool]:
    """How large the loading of an edge is, by the names of `loading_columns`, and whether it has no sign."""
    sizes: dict[str, float] = {name: float(edge[column]) for name, column in columns.items()}
    if not sizes or not goes_both_ways(edge["verdict"], sizes["lower"], sizes["upper"]):
        return {**sizes, "both_ways": False}
    return {**sizes, "loading": float(edge["effect"]) ** 0.5, "both_ways": True}
