"""What speaks against the latents of fitted tasks: an error that shows nothing learned, restarts, blocks."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..findings import Finding
from ..graphs.alignment import SAME_LATENTS

__all__ = ["error_findings", "latent_findings"]

_LEAST_ROWS = 4  # two to fit weights to, two to judge them by: `bilevel.left_out_error`
_NOTHING = 1.0  # variances of the target: what the task's mean does


def error_findings(error: float, sizes: np.ndarray) -> list[Finding]:
    """What the left-out error says against a fit: nothing learned, or nothing to judge by.

    Parameters
    ----------
    error : float
        Of the best restart, in variances of the target.
    sizes : ndarray of int (task,)
        Rows with a target of the tasks that it is of.
    """
    if not np.isfinite(error):
        if (np.asarray(sizes) < _LEAST_ROWS).all():
            message = (
                f"the left-out error cannot be computed: no task has the {_LEAST_ROWS} rows that it wants, two to "
                "fit weights to and two to judge them by"
            )
            remedy = "give more rows a task"
        else:
            message, remedy = (
                "the left-out error is no finite number: the training diverged",
                "lower learning_rate",
            )
        return [Finding("error", message, remedy, "doubt")]
    if error < _NOTHING:
        return []
    return [
        Finding(
            "error",
            f"left-out samples are predicted with an error of {error:.2g} variances of the target, no better than "
            "by each task's mean: nothing shows that the latents were learned",
            "more rows a task, fewer latents, or more steps",
            "doubt",
            size=float(error),
        )
    ]


def latent_findings(
    similarity: np.ndarray, block: np.ndarray, best: int, names: Sequence[str]
) -> list[Finding]:
    """Doubts of latents that no other restart has, and of those that the tasks do not tell apart.

    Parameters
    ----------
    similarity : ndarray (restart, latent)
        Absolute correlation of each restart's latents with those of the best.
    block : ndarray of int (latent,)
        Of the best restart; latents of one number are not told apart by the tasks.
    best : int
    names : sequence of str
        Of the latents.
    """
    found = []
    others = np.delete(np.asarray(similarity, dtype=float), best, axis=0)
    if len(others):
        nearest = others.max(0)
        lost = np.flatnonzero(~(nearest >= SAME_LATENTS))
        if len(lost):
            which = tuple(names[k] for k in lost)
            figures = ", ".join(f"{nearest[k]:.2f}" for k in lost)
            found.append(
                Finding(
                    "restarts",
                    f"no other restart found {', '.join(which)}: the nearest has a correlation of only {figures}",
                    "more restarts, or more tasks and rows",
                    "doubt",
                    factors=which,
                    size=float(nearest.min()),
                )
            )
    for number in np.unique(block):
        members = np.flatnonzero(block == number)
        if len(members) > 1:
            which = tuple(names[k] for k in members)
            found.append(
                Finding(
                    "axes",
                    f"latents {', '.join(str(k + 1) for k in members)}: the tasks do not tell them apart; their axes "
                    "rest on independence, or on nothing",
                    f"tasks that use {which[0]} and not {' or '.join(which[1:4])}, and the reverse",
                    "doubt",
                    factors=which,
                )
            )
    return found
