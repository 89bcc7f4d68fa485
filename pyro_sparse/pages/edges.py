"""The one table of edges on a page: its columns, its rows as they are read and as they are sorted."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from ..posterior.edge_table import left_open

__all__ = [
    "Cell",
    "Column",
    "common_columns",
    "edge_table",
    "number",
    "share",
    "text",
    "verdict_column",
]

_MOST_ROWS = 500  # a page of more would be too large to send round; `summary` has them all


class Cell(NamedTuple):
    """What stands in a cell, what it is sorted by, and what is drawn beside it."""

    text: str
    sort: str | float
    soft: str = ""  # the interval, behind the number
    bar: float | None = None  # per cent
    points: str | None = None  # of a curve


class Column(NamedTuple):
    """A column: its heading, the anchor of its word in the glossary, and how a row's cell is made."""

    title: str
    word: str
    cell: Callable[[pd.Series], Cell]
    is_number: bool = True
    is_name: bool = False


def text(value: object) -> Cell:
    """A name or a word.

    Parameters
    ----------
    value : object
    """
    return Cell(str(value), str(value))


def number(value: float, form: str = "{:.3f}") -> Cell:
    """A number; a dash where there is none, sorted as if it were the least.

    Parameters
    ----------
    value : float
    form : str
    """
    if not np.isfinite(value):
        return Cell("–", -1e300)
    return Cell(form.format(round(float(value), 6) + 0.0), float(value))  # no "-0.00"


def share(value: float, percent: Callable[[float], str]) -> Cell:
    """A share, with a bar.

    Parameters
    ----------
    value : float
    percent : callable
        To text.
    """
    return Cell(percent(value), float(value), bar=min(max(100 * float(value), 0.0), 100.0))


def edge_table(
    table: pd.DataFrame, first: Column, columns: Sequence[Column], group: str, groups: Sequence[str]
) -> dict[str, Any]:
    """Edges that are selected, by group, then those that are neither selected nor ruled out.

    Parameters
    ----------
    table : DataFrame
        From `summary`.
    first : Column
        Heads each row.
    columns : sequence of Column
        The others.
    group : str
        Column of `table` by which a reader may choose rows.
    groups : sequence of str
        Its names in the fit's order.
    """
    number_of = "score" if table.attrs["is_score"] else "probability"
    size = next(name for name in ("effect", "weight", "strength") if name in table)
    at = {name: i for i, name in enumerate(groups)}
    chosen = table[table["selected"]]
    order = np.lexsort((-chosen[size].abs(), -chosen[number_of].round(3), chosen[group].map(at)))
    known = table[~table["selected"] & (table["verdict"] == "present")]  # at a strict rate
    rows = pd.concat([chosen.iloc[order], known, left_open(table)])
    shown = rows.head(_MOST_ROWS)
    heads = (first, *columns)
    return {
        "columns": [{"title": column.title, "is_number": column.is_number} for column in heads],
        "links": list(dict.fromkeys((column.word, _bare(column.title)) for column in heads)),
        "rows": [_row(edge, first, columns, group) for _, edge in shown.iterrows()],
        "groups": [name for name in groups if name in set(shown[group])],
        "about": _about(len(rows), len(shown), len(table), number_of),
    }


def _row(edge: pd.Series, first: Column, columns: Sequence[Column], group: str) -> dict[str, Any]:
    head, cells = first.cell(edge), [column.cell(edge) for column in columns]
    is_open = edge["verdict"] == "open" and not ("score" in edge and edge["selected"])
    states = {"selected": edge["selected"], "open": is_open, "unresolved": edge["unresolved"]}
    names = [head.text, *(cell.text for cell, column in zip(cells, columns, strict=True) if column.is_name)]
    return {
        "group": str(edge[group]),
        "state": " ".join(name for name, holds in states.items() if holds),
        "names": " ".join(names),
        "unresolved": bool(edge["unresolved"]),
        "head": head,
        "cells": cells,
    }


def _bare(title: str) -> str:
    """A heading without the interval or the size, which the glossary explains with the word."""
    return title.partition(" (")[0].partition(" ≥")[0]


def _about(n: int, n_shown: int, n_all: int, number_of: str) -> str:
    """Which edges the table has, and which it has not."""
    least = ".1" if number_of == "score" else ".05"
    said = "Selected edges first, then those that are neither selected nor ruled out." if n else ""
    if n > n_shown:
        said += f" The first {n_shown:,} of {n:,}; ps.summary has all."
    left = n_all - n
    if left:
        verb = "is" if left == 1 else "are"
        said += f" {left:,} with a {number_of} of at most {least} {verb} not listed."
    return said.strip()


def verdict_column(is_score: bool) -> Column:
    """Whether an edge is present or open; of scores, which have no verdict, whether it is selected.

    Parameters
    ----------
    is_score : bool
    """
    if is_score:
        return Column("Selected", "selected", lambda edge: text("yes" if edge["selected"] else "no"), False)
    return Column("Verdict", "verdict", _verdict, False)


def _verdict(edge: pd.Series) -> Cell:
    said = str(edge["verdict"])
    return text(f"{said}, selected" if edge["selected"] and said == "open" else said)


def common_columns(word: str) -> dict[str, Column]:
    """Columns of every kind of edge: the probability or score, q-value and gap.

    Parameters
    ----------
    word : str
        "probability" or "score".
    """
    columns: Mapping[str, Column] = {
        word: Column(word.capitalize(), word, lambda edge: number(edge[word])),
        "q": Column("q\u2011value", "q-value", lambda edge: number(edge["q_value"])),
        "gap": Column("Gap", "gap", lambda edge: number(edge["gap"], "{:.2f}")),
    }
    return dict(columns)
