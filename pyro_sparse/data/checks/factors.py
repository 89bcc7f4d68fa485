"""From columns to factors: which factors and edges are made by columns that say the same, or repeat."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from ...findings.finding import Finding
from ._cells import naming
from .level_order import MUCH_LOST

__all__ = ["doubted_by_columns"]

# What makes all edges of the columns that it names doubtful: kind, what is said of them, and what to do.
_OF_ALL_EDGES = {
    "joined": (
        "edges of {columns} are judged by more rows than these columns have ({size:.0f} different "
        "combinations)",
        "fit them by themselves in a table with one row for each combination",
    ),
    "answers": (
        "edges of {columns} are in part those of rows with one answer to all of them ({size:.0%} of the "
        "rows)",
        "leave out the rows that were careless, fit again, and compare",
    ),
    "order": (
        "edges of {columns} are found by levels that are in another order than what they mean ({size:.0%} of "
        "what the levels share with the other columns is lost)",
        "put the levels in their order, or give columns of 0 and 1 for levels that have none",
    ),
    "signs": (
        "edges of {columns} have one sign in some rows and the other in the rest (correlations of {size:.2f} "
        "and more), and cancel over all rows",
        "reverse these columns in the rows of one side, or fit the two sides by themselves",
    ),
}
_MOSTLY = 0.75  # of a factor's effects: two copies beside two other items of their factor have some .65


def doubted_by_columns(
    findings: Sequence[Finding], effects: ArrayLike, feature_names: Sequence[str], factor_names: Sequence[str]
) -> list[Finding]:
    """A doubt on each factor that stands mostly on columns which copy or follow from one another.

    Columns that repeat together ("joined") have a doubt on all their edges, and on such a factor, and so have
    questions to which some rows have one answer ("answers"): false edges come on any of their factors; and
    columns whose sign changes ("signs"), or whose levels are out of order ("order"): their own edges cancel,
    or are weak.

    Parameters
    ----------
    findings : sequence of Finding
        Of `check_table`.
    effects : array_like (feature, factor)
        Shares of variance, of the chosen restart.
    feature_names, factor_names : sequence of str

    Examples
    --------
    >>> note = Finding("columns", "column 'b' repeats 'a'", source="data", columns=("a", "b"))
    >>> effects = [[0.9, 0.0], [0.9, 0.0], [0.0, 0.5], [0.0, 0.5]]
    >>> doubts = doubted_by_columns([note], effects, list("abcd"), ["factor 1", "factor 2"])
    >>> [doubt.factors for doubt in doubts]
    [('factor 1',)]
    """
    effect = np.asarray(effects, dtype=float)
    total = effect.sum(0)
    at = {name: j for j, name in enumerate(feature_names)}
    doubts: list[Finding] = []
    doubted: set[int] = set()
    for finding in findings:
        if finding.kind == "order" and (finding.size or 0.0) < MUCH_LOST:
            continue  # loadings are a little small for it
        if finding.kind in _OF_ALL_EDGES:
            share = effect[[at[name] for name in finding.columns if name in at]].sum(0)
            mostly = (share >= _MOSTLY * total) & (total > 0)
            doubts.append(
                _of_all_edges(
                    finding, [factor_names[k] for k in np.flatnonzero(mostly).tolist()], factor_names
                )
            )
            continue
        if finding.kind != "columns" or len(finding.columns) < 2:
            continue
        share = effect[[at[name] for name in finding.columns if name in at]].sum(0) / np.maximum(
            total, 1e-300
        )
        for k in np.flatnonzero((share >= _MOSTLY) & (total > 0)).tolist():
            if k in doubted:
                continue
            doubted.add(k)
            names = ", ".join(repr(name) for name in finding.columns[:4])
            more = f" and {len(finding.columns) - 4} more" if len(finding.columns) > 4 else ""
            doubts.append(
                Finding(
                    "columns",
                    f"{factor_names[int(k)]} stands on {names}{more} ({share[k]:.0%} of its effects), which "
                    "copy or follow from one another: it may be their common noise",
                    "drop one of them and fit again",
                    severity="doubt",
                    factors=(factor_names[int(k)],),
                    columns=finding.columns,
                    size=float(share[k]),
                )
            )
    return doubts


def _of_all_edges(finding: Finding, factors: Sequence[str], factor_names: Sequence[str]) -> Finding:
    """The doubt on all edges of columns that a finding names, and on factors that stand on them."""
    kind = finding.kind
    says, remedy = _OF_ALL_EDGES[kind]
    return Finding(
        kind,
        says.format(columns=naming(list(finding.columns), "column"), size=finding.size),
        remedy,
        severity="doubt",
        factors=tuple(factors),
        edges=tuple((column, factor) for column in finding.columns for factor in factor_names),
        columns=finding.columns,
        size=finding.size,
    )
