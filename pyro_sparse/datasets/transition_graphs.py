"""The graphs of the mechanism-sparsity paper, by name: which action, which past latent drives which latent.

A name is a side (Action, Time, or ActionTime for both at once) and a shape (Diag, NonDiag, BlockDiag,
BlockNonDiag, Random(p)). Sizes other than the paper's ten latents follow the same pattern.
"""

from __future__ import annotations

import re
from typing import NamedTuple

import numpy as np

from pyro_sparse._utils.checks import check_whole

__all__ = ["TRANSITION_GRAPHS", "ActionTime", "transition_graph"]

_SHAPES = {
    "Diag": "one parent each: everything is identified",
    "NonDiag": "Action: i and i-1, Time: all j <= i; everything is identified",
    "BlockDiag": "pairs share their parents: identified up to the pairs",
    "BlockNonDiag": "BlockDiag and further edges between blocks: identified up to overlapping groups",
    "Random(p)": "every edge with probability p, Time keeps its diagonal: what is identified varies",
}
TRANSITION_GRAPHS = {
    f"{side}{shape}": identified
    for side in ("Action", "Time", "ActionTime")
    for shape, identified in _SHAPES.items()
}
"""Names that `transition_data` knows, and how far each graph identifies the latents."""
TRANSITION_GRAPHS["ActionTimeCross"] = (
    "actions pair (0,1), (2,3) ..., time pairs (1,2), (3,4) ...: only together do they identify everything"
)


class ActionTime(NamedTuple):
    """What belongs to the actions and what belongs to the past latents: graphs, or Jacobians.

    Parameters
    ----------
    action : ndarray or None
        Last two axes (target, action); None where no action acts.
    time : ndarray or None
        Last two axes (target, source); None where the past does not act.
    """

    action: np.ndarray | None
    time: np.ndarray | None


def streams(seed: int) -> dict[str, np.random.Generator]:
    """Independent generators of the parts of a set, so that changing one part leaves the others as they are.

    Parameters
    ----------
    seed : int

    Returns
    -------
    dict of str to numpy.random.Generator

    Raises
    ------
    ValueError
        If the seed is not a whole number, at least 0.
    """
    check_whole(0, seed=seed)
    names = ("graph", "mechanism", "mixing", "actions", "train", "validation", "test")
    children = np.random.SeedSequence(seed).spawn(len(names))
    return {name: np.random.default_rng(child) for name, child in zip(names, children, strict=True)}


def transition_graph(name: str, d_z: int = 10, seed: int = 0) -> ActionTime:
    r"""The graphs of a set by its name.

    With K = d_z/2 pairs of latents, block k = {2k, 2k+1}:

    ==============  ============================  ===============================================
    shape           latent i sees action j        latent i sees latent j
    ==============  ============================  ===============================================
    Diag            j = i                         j = i
    NonDiag         j = i, i-1 (cyclic)           j <= i
    BlockDiag       j = k, i in block k           i and j in one block
    BlockNonDiag    and block K-1 sees action 0   and blocks (0, K-1), (K-1, 0), (K-1, K//2)
    Random(p)       with probability p            with probability p, and j = i
    ==============  ============================  ===============================================

    Parameters
    ----------
    name : str
        A key of `TRANSITION_GRAPHS`, with a number for p: ``"TimeNonDiag"``, ``"ActionRandom(0.4)"``.
        ``"ActionTime..."`` has both graphs of that shape; ``"ActionTimeCross"`` has the actions' BlockDiag
        and blocks {1, 2}, {3, 4} ... {d_z-1, 0} in time.
    d_z : int
        Latents; even for the block sets, which need 2 blocks (BlockNonDiag in time: 3, Cross: 2).
    seed : int
        Draws the random graphs.

    Returns
    -------
    ActionTime
        0/1 matrices of shape (d_z, d_a) and (d_z, d_z), or None.

    Raises
    ------
    ValueError
        If the name is not known, or the size is impossible for it.

    References
    ----------
    Lachapelle et al. (2024), arXiv 2401.04890, section 8 and its appendix on the synthetic data.

    Examples
    --------
    >>> transition_graph("ActionBlockNonDiag", d_z=4).action
    array([[1, 0],
           [1, 0],
           [1, 1],
           [1, 1]])
    """
    parsed = (
        re.fullmatch(r"(ActionTime|Action|Time)(\w+)(?:\((.*)\))?", name) if isinstance(name, str) else None
    )
    side, shape, inside = parsed.groups() if parsed else ("", "", None)
    if f"{side}{shape}" + ("(p)" if shape == "Random" else "") not in TRANSITION_GRAPHS:
        raise ValueError(f"name={name!r}: want one of {', '.join(TRANSITION_GRAPHS)}")
    if (shape == "Random") != (inside is not None):
        raise ValueError(f"name={name!r}: want a density in brackets for Random sets only: Random(0.4), Diag")
    density = _density(name, inside)
    blocks = {"BlockDiag": 1, "BlockNonDiag": 2 if side == "Action" else 3, "Cross": 2}.get(shape, 0)
    least = max(1, 2 * blocks)
    if not isinstance(d_z, int | np.integer) or d_z < least:
        raise ValueError(f"d_z={d_z!r}: {name} needs a whole number of latents, at least {least}")
    if blocks and d_z % 2:
        raise ValueError(f"d_z={d_z}: {name} has blocks of two latents; want an even number")
    rng = streams(seed)["graph"]
    action = _action_graph(shape, d_z, density, rng) if side != "Time" else None
    return ActionTime(action, _time_graph(shape, d_z, density, rng) if side != "Action" else None)


def _density(name: str, inside: str | None) -> float:
    try:
        density = 0.0 if inside is None else float(inside)
    except ValueError:
        density = np.nan
    if not 0 <= density <= 1:
        raise ValueError(f"name={name!r}: the density in brackets must be a number between 0 and 1")
    return density


def _action_graph(shape: str, d_z: int, density: float, rng: np.random.Generator) -> np.ndarray:
    eye = np.eye(d_z, dtype=int)
    if shape == "Random":
        return (rng.random((d_z, d_z)) < density).astype(int)
    if shape == "Diag":
        return eye
    if shape == "NonDiag":
        return eye | np.roll(eye, 1, axis=0)
    graph = np.repeat(np.eye(d_z // 2, dtype=int), 2, axis=0)
    if shape == "BlockNonDiag":
        graph[-2:, 0] = 1
    return graph


def _time_graph(shape: str, d_z: int, density: float, rng: np.random.Generator) -> np.ndarray:
    eye = np.eye(d_z, dtype=int)
    if shape == "Random":
        return (rng.random((d_z, d_z)) < density).astype(int) | eye
    if shape == "Diag":
        return eye
    if shape == "NonDiag":
        return np.tril(np.ones_like(eye))
    between = np.eye(d_z // 2, dtype=int)
    if shape == "BlockNonDiag":
        between[0, -1] = between[-1, 0] = between[-1, len(between) // 2] = 1
    graph = np.kron(between, np.ones((2, 2), dtype=int))
    return np.roll(graph, 1, axis=(0, 1)) if shape == "Cross" else graph
