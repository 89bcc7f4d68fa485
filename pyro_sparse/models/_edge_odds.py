"""Beliefs about single edges as a caller writes them down, made into one array of odds.

A mapping of edges, a table of features by factors, or an array. Odds are multiples of those that a factor's
edges have anyway: 1 says nothing, 20 that an edge is expected, .05 that it is not.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

__all__ = ["EdgeOdds", "odds_of_edges"]

EdgeOdds: TypeAlias = "Mapping[tuple[int | str, int], float] | pd.DataFrame | ArrayLike"


def odds_of_edges(
    edge_odds: EdgeOdds,
    shape: tuple[int, int],
    names: list[str] | None,
    place: Callable[[int | str, int], tuple[int, int]],
    factor_names: list[str] | None = None,
    argument: str = "edge_odds",
    dims: tuple[str, str] = ("feature", "factor"),
) -> NDArray[np.float64]:
    """Odds of every edge.

    Parameters
    ----------
    edge_odds : mapping (feature, factor) -> odds, DataFrame or array (feature, factor)
        Edges that a mapping does not name have 1.
    shape : tuple of int
        (feature, factor).
    names : list of str or None
        The table's columns.
    place : callable
        Position of the edge between a feature, by position or by name, and a factor.
    factor_names : list of str, optional
        What the columns of a DataFrame are found by; default their position.
    argument : str
        What complaints call the odds.
    dims : tuple of str
        What they call the two ends of an edge, where these are not a feature and a factor.

    Returns
    -------
    ndarray (feature, factor)

    Raises
    ------
    ValueError
        Another shape, other features, odds that are not positive numbers.
    TypeError
        A key of a mapping is no edge, a value no number.
    """
    if isinstance(edge_odds, Mapping):
        odds = np.ones(shape)
        for edge, number in edge_odds.items():
            if np.shape(edge) != (2,) or isinstance(edge, str):
                raise TypeError(f"{argument}: want pairs ({dims[0]}, {dims[1]}) as keys, got {edge!r}")
            odds[place(*edge)] = _number(number, edge, argument)
    else:
        table = edge_odds
        if isinstance(edge_odds, pd.DataFrame):
            table = _in_order(_by_factor(edge_odds, factor_names, argument, dims[1]), names)
        try:
            odds = np.asarray(table, dtype=float).copy()  # pandas 3 lends cells to read only
        except (TypeError, ValueError) as error:
            raise TypeError(
                f"{argument}: want numbers, one for each {dims[0]} and {dims[1]} ({error})"
            ) from error
    if odds.shape != shape:
        raise ValueError(
            f"{argument}: got shape {odds.shape}, wanted ({dims[0]}, {dims[1]}) = {shape}, or a mapping of "
            f"({dims[0]}, {dims[1]}) to odds"
        )
    bad = np.argwhere(~((odds > 0) & np.isfinite(odds)))
    if len(bad):
        j, k = bad[0].tolist()
        raise ValueError(
            f"{argument}: the edge ({names[j] if names else j!r}, {k}) has odds of {odds[j, k]:g}, wanted a "
            "positive number; an edge that cannot be there is `forbidden`, one that has to be `required`"
        )
    return odds


def _number(odds: float, edge: tuple[int | str, int], argument: str) -> float:
    try:
        return float(odds)
    except (TypeError, ValueError) as error:
        raise TypeError(f"{argument}: the edge {edge!r} has odds {odds!r}, wanted a number") from error


def _in_order(table: pd.DataFrame, names: list[str] | None) -> pd.DataFrame:
    """A table of odds with its rows in the order of the table's columns."""
    if names is None:
        return table
    labels = [str(label) for label in table.index]
    if sorted(labels) != sorted(names):
        strange = [f"names {label!r}, which is none of them" for label in labels if label not in names]
        missing = [f"lacks {name!r}" for name in names if name not in labels]
        complaint = [*strange, *missing, "names one of them twice"][0]
        raise ValueError(
            f"edge_odds: its index is to name the table's columns, each once, and {complaint}; "
            "edge_odds.reindex(X.columns, fill_value=1) makes it so"
        )
    return table.iloc[[labels.index(name) for name in names]]


def _by_factor(table: pd.DataFrame, factor_names: list[str] | None, argument: str, dim: str) -> pd.DataFrame:
    """Columns in the order of factors that have names; columns called by numbers go by position."""
    columns = [str(name) for name in table.columns]
    if factor_names is None or pd.api.types.is_numeric_dtype(table.columns):
        return table
    if sorted(columns) != sorted(factor_names):
        raise ValueError(
            f"{argument}: has the columns {columns}, and the {dim}s are called {factor_names}; call them "
            + ("alike, or leave factor_names out" if dim == "factor" else "alike")
        )
    return table.set_axis(columns, axis=1)[factor_names]
