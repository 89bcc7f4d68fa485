"""One number in many cells of columns whose numbers are otherwise all different.

Such cells were filled in (a mean, a zero), or they lie at a limit: the most a scale has, the least a device
detects. Neither is a draw from a normal distribution around a factor's value: what is filled in weakens all
correlations, and makes a factor of its own where the same rows were filled in several columns.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ...findings.finding import Finding
from ._cells import Cells, naming

__all__ = ["LEAST_LEVELS", "filled_cells"]

_LEAST_ROWS = 40
_LEAST_CELLS, _LEAST_SHARE = 5, 0.03  # with the same number
_TIMES = 5  # as often as any other number in the column, as the sentence says
LEAST_LEVELS = 12  # below are the levels of a scale


def filled_cells(cells: Cells) -> list[Finding]:
    """Columns of measurements in which one number, or one at either end, has a share of the cells.

    Parameters
    ----------
    cells : Cells
    """
    if not cells.is_normal or len(cells.values) < _LEAST_ROWS:
        return []
    repeated = [(j, _repeated(column)) for j, column in enumerate(cells.columns)]
    inside = [(j, *pile[:2]) for j, pile in repeated if pile is not None and not pile[2]]
    at_end = [(j, *pile[:2]) for j, pile in repeated if pile is not None and pile[2]]
    kinds = (
        (
            inside,
            "five times as often as any other: cells that were filled in",
            "leave missing cells empty (NaN): they need no imputation",
        ),
        (
            at_end,
            "the least or the largest there is, five times as often as any other: a limit of what could be "
            "measured, or cells that were filled in",
            "if they stand for missing cells, set them to NaN; a limit is for "
            "likelihood=CensoredNormal(left=…, right=…)",
        ),
    )
    return [
        Finding(
            "cells",
            f"{naming([cells.features[j] for j, _, _ in piles], 'column')} "
            f"{'have' if len(piles) > 1 else 'has'} one number in up to {max(s for _, _, s in piles):.0%} of "
            f"the cells ({piles[0][1]:.6g} in {cells.features[piles[0][0]]!r}), {what}",
            remedy,
            source="data",
            columns=tuple(cells.features[j] for j, _, _ in piles),
            size=max(share for _, _, share in piles),
        )
        for piles, what, remedy in kinds
        if piles
    ]


def _repeated(column: NDArray[np.float64]) -> tuple[float, float, bool] | None:
    """The number that many cells have, their share, and whether it lies at an end of all."""
    values, count = np.unique(column, return_counts=True)
    if len(values) < LEAST_LEVELS:
        return None
    ends = {0, len(values) - 1}
    first, second = np.argsort(-count)[:2]
    n_others = np.delete(count, [first, second] if {first, second} == ends else [first]).max()
    if count[first] < max(_LEAST_CELLS, _LEAST_SHARE * len(column)) or count[first] < _TIMES * n_others:
        return None
    return float(values[first]), float(count[first] / len(column)), int(first) in ends
