"""The repr of a fit: its kind, sizes and best figure on one line, where its arrays would fill pages."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from .fit_result import FitResult

__all__ = ["in_short"]


def in_short(
    fit: FitResult, sizes: dict[str, int], figures: dict[str, np.ndarray], none: str = "which diverged"
) -> str:
    """Kind of model, sizes, restarts, how good the best one is, and how many warnings there are.

    Parameters
    ----------
    fit : Fit, TransitionFit or MultiTaskFit
    sizes : dict of str to int
        What there is of what.
    figures : dict of str to ndarray (restart,)
        What restarts are compared by: the first that is there.
    none : str
        What to say where none is.
    """
    counts = ", ".join(_counted(number, noun) for noun, number in sizes.items())
    restarts = f"best of {fit.n_restarts} restarts" if fit.n_restarts > 1 else "one restart"
    finite = [(name, values[fit.best]) for name, values in figures.items() if np.isfinite(values[fit.best])]
    best = f"{finite[0][0]} {finite[0][1]:.4g}" if finite else none
    return (
        f"{type(fit).__name__}({fit.settings['model']}: {counts}; {restarts}, {best}; "
        f"{_counted(len(fit.warnings), 'warnings')})"
    )


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun.removesuffix('s') if number == 1 else noun}"
