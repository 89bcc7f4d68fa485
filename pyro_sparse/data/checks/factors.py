"""From columns to factors: which factors of a fit are made by columns that say the same."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from ...findings.finding import Finding

__all__ = ["doubted_by_columns"]

_MOSTLY = 0.75  # of a factor's effects: two copies beside two other items of their factor have some .65


def doubted_by_columns(
    findings: Sequence[Finding], effects: ArrayLike, feature_names: Sequence[str], factor_names: Sequence[str]
) -> list[Finding]:
    """A doubt on each factor that stands mostly on columns which copy or follow from one another.

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
