"""Where sorted strengths break into edges and zeros: at the widest gap, on a log scale."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

__all__ = ["StrengthGap", "strength_gap"]


class StrengthGap(NamedTuple):
    """Where the sorted strengths break into edges and zeros.

    Parameters
    ----------
    n_edges : int
        Strengths above the gap.
    threshold : float
        Middle of the gap, on a log scale.
    gap : float
        Log ratio of the weakest edge to the strongest zero. Below about 0.7 (a factor of two) the graph is
        a guess.
    """

    n_edges: int
    threshold: float
    gap: float


def strength_gap(strength: ArrayLike, at_least: int = 1, floor: float = 0.05) -> StrengthGap:
    r"""Split strengths into edges and zeros at the largest ratio of consecutive sorted values.

    .. math:: k = \arg\max_{k \ge k_0} \log(r_{(k)} / r_{(k+1)}), \qquad r_{(1)} \ge r_{(2)} \ge \dots

    with all r raised to the floor: ratios among zeros say nothing. After the last comes four times the floor,
    so that a graph without any zero, which noise may imitate, must be the clearer for it.

    Parameters
    ----------
    strength : array_like
        Non-negative strengths, of any shape.
    at_least : int
        Smallest number of edges, for example one per latent.
    floor : float
        Strengths below it are zero.

    Returns
    -------
    StrengthGap
        Number of edges, threshold and gap.

    Raises
    ------
    ValueError
        If fewer than `at_least` strengths lie above `floor`.

    Examples
    --------
    >>> strength_gap([[1.0, 0.8], [0.1, 0.9]]).n_edges
    3
    """
    r = np.sort(np.asarray(strength, dtype=float).ravel())[::-1]
    present = int((r > floor).sum())
    if present < max(at_least, 1):
        raise ValueError(
            f"strength: no edge; {present} of {r.size} values exceed floor={floor}, need {max(at_least, 1)}: "
            "lower floor, or fit the transition better"
        )
    r = np.append(np.maximum(r, floor), 4 * floor)
    ratios = np.log(r[:-1] / r[1:])[max(at_least, 1) - 1 :]
    n_edges = int(ratios.argmax()) + max(at_least, 1)
    return StrengthGap(n_edges, float(np.sqrt(r[n_edges - 1] * r[n_edges])), max(float(ratios.max()), 0.0))
