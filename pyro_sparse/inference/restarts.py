"""Restarts: their seeds, how many share a pass, how their parameters are joined, and which one is best.

Seeds are children of one seed, keyed by the restart's number. Small models train all restarts in one pass (a leading
dimension of every parameter); large ones in groups that fit in memory. Selection is by held-out ELBO, and within its
error by simplicity: of restarts that cannot be told apart, the one with the fewest factors, then the fewest edges.
"""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import torch

__all__ = ["best_restart", "bent_starts", "child_seeds", "group_sizes", "join"]

GROUP_BYTES = 400e6


def child_seeds(seed: int, n_restarts: int) -> list[int]:
    """One seed per restart, keyed by its number: restart 3 has the same seed however many there are.

    >>> child_seeds(0, 2) == child_seeds(0, 5)[:2]
    True
    """
    children = np.random.SeedSequence(seed).spawn(n_restarts)
    return [int(child.generate_state(1, np.uint64)[0] >> 1) for child in children]


def bent_starts(caps: np.ndarray) -> np.ndarray:
    """Which restarts begin as random curves: of those with the same number of factors every second one, and, so that
    one pass over the grid has both kinds, alternately along it.

    >>> bent_starts(np.array([3, 2, 1, 3, 2, 1])).tolist()
    [False, True, False, True, False, True]
    """
    caps = np.asarray(caps)
    turn = [int((caps[:r] == c).sum()) for r, c in enumerate(caps)]
    place = {c: i for i, c in enumerate(dict.fromkeys(caps.tolist()))}
    return np.array([(place[c] + t) % 2 == 1 for c, t in zip(caps.tolist(), turn, strict=True)])


def group_sizes(model: Any, n_restarts: int, batch_size: int) -> list[int]:
    """How many restarts share each pass: all, unless the activations of a step would exceed 400 MB."""
    hidden = max(getattr(model, "hidden", 1), model.n_factors)
    each = 4.0 * 4 * batch_size * model.n_features * hidden
    together = int(max(1, min(n_restarts, GROUP_BYTES // each)))
    return [min(together, n_restarts - at) for at in range(0, n_restarts, together)]


def join(parts: list[Any], whole: Any) -> Any:
    """Write the parameters of several groups into one model set up for all restarts.

    Parameters
    ----------
    parts : list of FactorModel
        In order of their restarts.
    whole : FactorModel
        Set up with as many restarts as all parts have together; returned.
    """
    if len(parts) == 1 and parts[0].n_restarts == whole.n_restarts:
        whole.load_state_dict(parts[0].state_dict())
        return whole
    states = [part.state_dict() for part in parts]
    joined = {}
    for name, target in whole.state_dict().items():
        pieces = [state[name] for state in states]
        same = all(piece.shape == target.shape for piece in pieces)
        joined[name] = copy.deepcopy(pieces[0]) if same else torch.cat(pieces, 0)
    whole.load_state_dict(joined)
    return whole


def best_restart(rows: np.ndarray, active: np.ndarray, edges: np.ndarray) -> int:
    """The simplest restart that the rows cannot tell from the best one.

    Parameters
    ----------
    rows : ndarray (restart, row)
        ELBO of each row, held out if there are such rows.
    active, edges : ndarray (restart,)
        Factors and edges in use.

    Returns
    -------
    int
        Among restarts whose paired difference to the best is within one standard error, the one with the fewest
        factors, then edges, then the highest ELBO.
    """
    mean = np.where(np.isfinite(rows).all(1), rows.mean(1), -np.inf)
    top = int(mean.argmax())
    with np.errstate(invalid="ignore"):
        behind = rows[top] - rows
        error = behind.std(1, ddof=1) / np.sqrt(rows.shape[1]) if rows.shape[1] > 1 else np.zeros(len(rows))
    alike = [
        r for r in range(len(rows)) if r == top or (np.isfinite(mean[r]) and mean[top] - mean[r] <= error[r])
    ]
    return min(alike, key=lambda r: (active[r], edges[r], -mean[r]))
