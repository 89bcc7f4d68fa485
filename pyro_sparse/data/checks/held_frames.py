"""Variables whose frames were filled from their neighbours: a number carried on, or a line between two.

Such a frame says nothing new of its variable and much of the one before or, of a line and of a number carried
back, of the one after: its past then predicts it without noise, and other variables seem to be driven by what
has not happened yet.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ...findings.finding import Finding
from ..sequences import Sequences
from ._cells import naming

__all__ = ["held_variables"]

# Steps of a stretch without a step at least, and the share of them from which they are no chance: numbers
# that are measured hardly repeat. Of the numbers of all runs, how many have to be different: levels and
# rounded numbers that move slowly come back to where they were.
_LEAST_STEPS, _LEAST_SHARE, _LEAST_DIFFERENT = 40, 0.25, 0.8
_STRAIGHT = 1e-6  # of the standard deviation: a second difference that is rounding


def held_variables(sequences: Sequences, columns: list[int]) -> list[Finding]:
    """Variables that repeat the frame before, or lie on a line with their neighbours, in many of the steps.

    Parameters
    ----------
    sequences : Sequences
    columns : list of int
        Variables to look at.
    """
    carried: dict[str, float] = {}
    straight: dict[str, float] = {}
    for j in columns:
        runs = _stretches(sequences, j)
        held, bent = _share_held(runs), _share_straight(runs)
        name = sequences.feature_names[j]
        if held >= _LEAST_SHARE:
            carried[name] = held
        elif bent >= _LEAST_SHARE:
            straight[name] = bent
    kinds = (
        (carried, "{} the number of the frame before in up to {:.0%} of the steps", ("repeats", "repeat")),
        (straight, "{} on a line with the frames around it in up to {:.0%} of them", ("lies", "lie")),
    )
    return [
        Finding(
            "cells",
            f"{naming(list(shares), 'variable')} "
            f"{what.format(verbs[len(shares) > 1], max(shares.values()))}, "
            "as if frames without a measurement had been filled from their neighbours: edges into and out of "
            "what was filled cannot be told",
            "leave frames that were not measured empty (NaN): they are drawn",
            "doubt",
            "data",
            factors=tuple(shares),
            columns=tuple(shares),
            size=max(shares.values()),
        )
        for shares, what, verbs in kinds
        if shares
    ]


def _stretches(sequences: Sequences, column: int) -> list[NDArray[np.float64]]:
    """Numbers of frames that follow one another, all of them seen."""
    seen = np.ones(sequences.x.shape[:2], bool) if sequences.present is None else sequences.present
    if sequences.mask is not None:
        seen = seen & sequences.mask[:, :, column]
    gap = np.zeros(seen.shape, bool) if sequences.gap is None else sequences.gap
    stretches = []
    for values, there, broken in zip(sequences.x[:, :, column], seen, gap, strict=True):
        ends = np.flatnonzero(~there[1:] | ~there[:-1] | broken[1:]) + 1
        stretches += [part for part in np.split(values, ends) if len(part) > 1]
    return stretches


def _share_held(stretches: list[NDArray[np.float64]]) -> float:
    """Steps without a change, of variables whose numbers are otherwise all different."""
    same = np.concatenate([np.diff(part) == 0 for part in stretches] or [np.zeros(0, bool)])
    runs = len(stretches) + int((~same).sum())
    different = len(np.unique(np.concatenate(stretches or [np.zeros(0)])))
    if len(same) < _LEAST_STEPS or different < _LEAST_DIFFERENT * runs:
        return 0.0
    return float(same.mean())


def _share_straight(stretches: list[NDArray[np.float64]]) -> float:
    """Frames that lie on a line with the one before and the one after."""
    bends = np.concatenate([np.abs(np.diff(part, 2)) for part in stretches] or [np.zeros(0)])
    if len(bends) < _LEAST_STEPS:
        return 0.0
    values = np.concatenate(stretches)
    if len(np.unique(values)) < _LEAST_DIFFERENT * len(values):  # levels lie on a line by chance
        return 0.0
    return float((bends <= _STRAIGHT * values.std()).mean())
