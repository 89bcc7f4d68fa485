r"""Which latents does a sparse transition pin down? The theory of mechanism sparsity, computed on its graphs.

Two models that explain the data equally well with graphs of the same sparsity have latents related by
:math:`z = v(\hat z)`. If the influences vary enough (`sufficient_influence`), then up to a permutation the
Jacobian of v is zero wherever `consistency` is False: what is left is who may be mixed with whom, a question
about 0/1 matrices. Row *target*, column *source*: ``graph_z[i, k]`` says that latent i at time t sees latent
k at time t - 1, and ``graph_a[i, l]`` that it sees action l.

Lachapelle et al. (2024), *Nonparametric partial disentanglement via mechanism sparsity*, arXiv 2401.04890.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse.csgraph import connected_components

from ._draws import zero_one

__all__ = [
    "Blocks",
    "IdentifiabilityProbability",
    "SufficientInfluence",
    "blocks",
    "completely_disentangled",
    "consistency",
    "identifiability_probability",
    "sufficient_influence",
]

Bools = NDArray[np.bool_]
Floats = NDArray[np.float64]


def consistency(graph_a: ArrayLike | None = None, graph_z: ArrayLike | None = None) -> Bools:
    r"""Which entries of the Jacobian of :math:`z = v(\hat z)` the theory leaves free.

    .. math::

        C_{ij} = 1 \iff G^a_{i\cdot} \subseteq G^a_{j\cdot}, \quad
        G^z_{i\cdot} \subseteq G^z_{j\cdot} \ \text{and}\ G^z_{\cdot i} \subseteq G^z_{\cdot j}

    with the conditions of the graphs that are given: a-, z- or (a,z)-consistency. **Direction**: row i lists
    the learned latents that the true latent i may be a function of, those whose parents and children include
    all of i's. C is reflexive and transitive, so maps with this support are closed under products and
    inverses: the learned latent i, too, is a function of the true latents in row i only.

    Parameters
    ----------
    graph_a : array_like of shape (..., latent, action), optional
        1 where the action drives the latent.
    graph_z : array_like of shape (..., latent, latent), optional
        1 where the latent of the column drives that of the row at the next step. With several lags give the
        stack of their graphs and combine the results by ``.all(axis=0)``.

    Returns
    -------
    ndarray of bool, shape (..., latent, latent)
        One matrix for each graph of a stack.

    Raises
    ------
    ValueError
        If no graph is given, an entry is not 0 or 1, `graph_z` is not square, or the shapes do not fit.

    References
    ----------
    Lachapelle et al. (2024), definitions of a-consistency and z-consistency and theorems 1 to 3.

    Examples
    --------
    The first action drives both latents, the second only latent 1: latent 1 is recovered, and latent 0 up to
    what may be added of latent 1.

    >>> consistency(graph_a=[[1, 0], [1, 1]]).astype(int)
    array([[1, 1],
           [0, 1]])
    """
    a, z = _graphs(graph_a, graph_z)
    free = np.array(True)
    if a is not None:
        free = free & _row_in_row(a)
    if z is not None:
        free = free & _row_in_row(z) & _row_in_row(z.swapaxes(-1, -2))
    return free


def completely_disentangled(graph_a: ArrayLike | None = None, graph_z: ArrayLike | None = None) -> Bools:
    r"""Which latents are recovered on their own, up to an invertible function of one variable.

    Latent i is, when no other latent shares all its children and parents:

    .. math::

        \bigcap_{j \in \mathrm{Ch}^z_i} \mathrm{Pa}^z_j \cap \bigcap_{j \in \mathrm{Pa}^z_i} \mathrm{Ch}^z_j
        \cap \bigcap_{\ell \in \mathrm{Pa}^a_i} \mathrm{Ch}^a_\ell = \{i\},

    an empty intersection being everything. That is: row i of `consistency` holds i alone. The model is
    completely disentangled when all latents are: ``completely_disentangled(...).all()``.

    Parameters
    ----------
    graph_a, graph_z : array_like, optional
        As in `consistency`.

    Returns
    -------
    ndarray of bool, shape (..., latent)

    Raises
    ------
    ValueError
        As in `consistency`.

    References
    ----------
    Lachapelle et al. (2024), proposition on the graphical criterion for complete disentanglement.

    Examples
    --------
    Each action drives two of three latents, each pair a different two:

    >>> completely_disentangled(graph_a=[[1, 1, 0], [1, 0, 1], [0, 1, 1]])
    array([ True,  True,  True])
    """
    recovered: Bools = consistency(graph_a, graph_z).sum(axis=-1) == 1
    return recovered


class Blocks(NamedTuple):
    """Groups of latents between which nothing, or something only one way, may be mixed.

    Parameters
    ----------
    connected : tuple of tuple of int
        The finest partition without any mixing between its parts: connected components of `consistency`.
    equivalent : tuple of tuple of int
        Latents that the graphs do not tell apart, so that any invertible map of a class of them is possible:
        strong components. They refine `connected`.
    leak : ndarray of bool, shape (latent, latent)
        What is left between classes, one way only: True at (i, j) where latent i may contain some of j, and j
        nothing of i.
    """

    connected: tuple[tuple[int, ...], ...]
    equivalent: tuple[tuple[int, ...], ...]
    leak: Bools


def blocks(graph_a: ArrayLike | None = None, graph_z: ArrayLike | None = None) -> Blocks:
    r"""Partition the latents into blocks that the graphs separate.

    Where v is affine and the transition noise of both models is homoscedastic, with a diagonal covariance,
    the Jacobian of v is orthogonal up to scales. Its inverse has the support of `consistency` as well, and is
    here its transpose: `leak` vanishes, and only mixing inside `equivalent` is left.

    Parameters
    ----------
    graph_a : array_like of shape (latent, action), optional
        As in `consistency`; one graph, not a stack.
    graph_z : array_like of shape (latent, latent), optional
        Likewise.

    Returns
    -------
    Blocks
        Each partition sorted by its first member.

    Raises
    ------
    ValueError
        As in `consistency`, and if a stack of graphs is given.

    Examples
    --------
    >>> groups = blocks(graph_a=[[1, 0], [1, 0], [1, 1], [0, 1]])
    >>> groups.connected, groups.equivalent
    (((0, 1, 2, 3),), ((0, 1), (2,), (3,)))
    >>> groups.leak.astype(int)  # latents 0, 1 and 3 may contain some of 2
    array([[0, 0, 1, 0],
           [0, 0, 1, 0],
           [0, 0, 0, 0],
           [0, 0, 1, 0]])
    """
    free = consistency(graph_a, graph_z)
    if free.ndim != 2:
        raise ValueError(
            f"graph_a, graph_z: want one graph, got a stack of shape {free.shape[:-2]}; loop over it"
        )
    labels = (connected_components(free, connection=kind)[1] for kind in ("weak", "strong"))
    connected, equivalent = (
        tuple(sorted(tuple(np.flatnonzero(label == k).tolist()) for k in np.unique(label)))
        for label in labels
    )
    return Blocks(connected, equivalent, free & ~free.T)


@dataclass(frozen=True, eq=False)
class IdentifiabilityProbability:
    """How probable each statement of the theory is, given draws of the graphs.

    Parameters
    ----------
    consistency : ndarray of shape (latent, latent)
        Probability that the true latent i may be a function of the learned latent j.
    disentangled : ndarray of shape (latent,)
        Probability that latent i is recovered on its own.
    all_disentangled : float
        Probability that all are at once.
    mixed : ndarray of shape (latent, latent)
        Probability that two latents may be mixed, in either direction; symmetric, 1 on the diagonal.
    """

    consistency: Floats
    disentangled: Floats
    all_disentangled: float
    mixed: Floats


def identifiability_probability(
    graph_a: ArrayLike | None = None, graph_z: ArrayLike | None = None
) -> IdentifiabilityProbability:
    r"""Probability that the criteria hold, as the share of draws in which they do.

    Thresholding edge probabilities first and asking afterwards would hide how often the answer changes: one
    uncertain edge can decide about several latents.

    Parameters
    ----------
    graph_a : array_like of shape (..., latent, action), optional
        0/1 draws from the posterior over edges; all leading axes, such as (chain, draw), are averaged over.
        The latents must be in one frame (`align`).
    graph_z : array_like of shape (..., latent, latent), optional
        Likewise, with the same leading axes: the two graphs of one draw belong together.

    Returns
    -------
    IdentifiabilityProbability
        Its Monte Carlo standard error is at most :math:`1 / (2\sqrt{\text{draws}})` for independent draws.

    Raises
    ------
    ValueError
        As in `consistency`, and if there is no draw or the leading axes differ.

    Examples
    --------
    >>> draws = [[[1, 0], [1, 1]], [[1, 0], [0, 1]]]
    >>> latents = identifiability_probability(graph_a=draws)
    >>> latents.disentangled, latents.all_disentangled
    (array([0.5, 1. ]), 0.5)
    """
    leading = {np.shape(g)[:-2] for g in (graph_a, graph_z) if g is not None}
    if len(leading) > 1 or any(len(axes) == 0 or 0 in axes for axes in leading):
        shapes = " and ".join(str(np.shape(g)) for g in (graph_a, graph_z) if g is not None)
        raise ValueError(
            f"graph_a, graph_z: want at least one draw, with the same leading axes for both graphs, "
            f"got shape {shapes}; use graph[None] for a single graph"
        )
    free = consistency(graph_a, graph_z)
    return shares_of(free.reshape(-1, *free.shape[-2:]))


def shares_of(free: Bools, used: Bools | bool = True) -> IdentifiabilityProbability:
    """Shares of draws, from what each leaves free, (draw, latent, latent), and the latents that it uses."""
    alone = (free.sum(axis=-1) == 1) & used
    return IdentifiabilityProbability(
        consistency=free.mean(axis=0),
        disentangled=alone.mean(axis=0),
        all_disentangled=float(alone.all(axis=-1).mean()),
        mixed=(free | free.swapaxes(-1, -2)).mean(axis=0),
    )


@dataclass(frozen=True, eq=False)
class SufficientInfluence:
    """Whether, and how comfortably, the influences along the edges vary independently of each other.

    Each array has one entry per action, or a single one for time.

    Parameters
    ----------
    rank : ndarray of int
        Directions in which the Jacobian moves.
    dimension : ndarray of int
        Directions that it must move in: the number of edges concerned.
    smallest : ndarray of float
        Root mean square of the Jacobian in its least visited direction, ``sigma_min / sqrt(samples)``; NaN
        where there is no edge. An error of that size in the learned Jacobian can undo the identification.
    largest : ndarray of float
        The same in its most visited direction.
    """

    rank: NDArray[np.intp]
    dimension: NDArray[np.intp]
    smallest: Floats
    largest: Floats

    @property
    def holds(self) -> bool:
        """Whether every rank reaches its dimension."""
        return bool((self.rank == self.dimension).all())

    @property
    def condition(self) -> float:
        """Worst ratio of `largest` to `smallest`; infinite where a direction is missing, 1 without edges."""
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = self.largest / self.smallest
        return float(np.max(ratio, initial=1.0, where=~np.isnan(ratio)))


def sufficient_influence(
    jacobian: ArrayLike, graph: ArrayLike, kind: Literal["actions", "time"], tolerance: float = 1e-4
) -> SufficientInfluence:
    r"""Rank and conditioning of the influences, for homoscedastic Gaussian transitions with mean :math:`\mu`.

    The theory wants the samples of the Jacobian to span everything that the graph allows:

    .. math::

        \operatorname{rank}\Bigl(\frac{\partial \mu}{\partial a_\ell}(s)\Bigr)_s = |\mathrm{Ch}^a_\ell|
        \ \text{for each action } \ell; \qquad
        \operatorname{rank}\bigl(\mathrm{vec}\, D_z\mu(s)\bigr)_s = \|G^z\|_0 \ \text{for time.}

    A linear mean has one Jacobian, of rank one, and fails unless that is all there is to span. The rank alone
    is a poor guide: on the paper's lower triangular graph of ten latents (TimeNonDiag) it is full, with
    singular values a factor of several hundred apart.

    Parameters
    ----------
    jacobian : array_like of shape (sample, latent, source)
        Of the mean with respect to the actions or to the previous latents, at many observed points; finite
        differences :math:`\mu(a + e_\ell) - \mu(a)` for categorical actions. Singular values are in its
        units: give standardised latents. Entries off the graph are ignored.
    graph : array_like of shape (latent, source)
        0/1 edges.
    kind : {"actions", "time"}
        Whether each source has its own condition, or all share one.
    tolerance : float
        Singular values below this share of the largest count as zero. For a *fitted* mean give its relative
        error: noise in a learned Jacobian always has full rank.

    Returns
    -------
    SufficientInfluence
        Arrays with an entry per action, or a single entry for time.

    Raises
    ------
    ValueError
        If shapes do not fit, a number is not finite, there are fewer samples than directions, or `kind` or
        `tolerance` is not as above.

    References
    ----------
    Lachapelle et al. (2024), assumptions of sufficient influence, exponential family with a fixed variance.

    Examples
    --------
    >>> a = np.linspace(-2, 2, 50)
    >>> curved = np.stack([np.cos(a), np.cos(2 * a)], axis=1)[:, :, None]  # mean: sin(a), sin(2 a) / 2
    >>> influence = sufficient_influence(curved, [[1], [1]], "actions")
    >>> influence.rank, influence.dimension, influence.holds
    (array([2]), array([2]), True)
    >>> sufficient_influence(np.ones_like(curved), [[1], [1]], "actions").holds
    False
    """
    edges, samples = _edges(graph, "graph"), np.asarray(jacobian, dtype=float)
    if edges.ndim != 2 or samples.ndim != 3 or samples.shape[1:] != edges.shape:
        raise ValueError(
            f"jacobian: want shape (sample, latent, source) over a graph (latent, source), "
            f"got {samples.shape} over {edges.shape}"
        )
    if not np.isfinite(samples).all():
        raise ValueError("jacobian: want finite numbers, got NaN or infinity; leave those samples out")
    if kind not in ("actions", "time"):
        raise ValueError(f'kind: want "actions" or "time", got {kind!r}')
    if kind == "time" and edges.shape[0] != edges.shape[1]:
        raise ValueError(f'graph: want (latent, latent) with kind="time", got {edges.shape}')
    tables = (
        [samples[:, edges]] if kind == "time" else [samples[:, on, k] for k, on in enumerate(edges.T)]
    )  # each of shape (sample, edges concerned)
    needed = max([1, *(table.shape[1] for table in tables)])
    if len(samples) < needed:
        raise ValueError(
            f"jacobian: want at least {needed} samples to span as many directions, got {len(samples)}; "
            "evaluate it at more points"
        )
    return SufficientInfluence(*spans(tables, tolerance))


def spans(
    tables: list[Floats], tolerance: float
) -> tuple[NDArray[np.intp], NDArray[np.intp], Floats, Floats]:
    """What the rows of each table span: the fields of `SufficientInfluence`."""
    if not 0 < tolerance < 1:
        raise ValueError(f"tolerance: want a share between 0 and 1, got {tolerance}")
    rank, dimension, smallest, largest = [], [], [], []
    for table in tables:
        n, m = table.shape
        sigma = np.zeros(m)
        values = np.linalg.svd(table, compute_uv=False) / np.sqrt(n)
        sigma[: len(values)] = values
        rank.append(int((sigma > tolerance * sigma.max(initial=0.0)).sum()))
        dimension.append(m)
        smallest.append(sigma[-1] if m else np.nan)
        largest.append(sigma[0] if m else np.nan)
    return np.array(rank), np.array(dimension), np.array(smallest), np.array(largest)


def _row_in_row(graph: Bools) -> Bools:
    """True at (i, j) where row i is a subset of row j."""
    return ~(graph @ ~graph.swapaxes(-1, -2))


def _edges(values: ArrayLike, name: str) -> Bools:
    x = np.asarray(values)
    if x.ndim < 2:
        raise ValueError(f"{name}: want shape (..., latent, source), got {x.shape}")
    remedy = "give draws of the graph to `identifiability_probability`, or choose edges first"
    return zero_one(x, name, remedy)


def _graphs(graph_a: ArrayLike | None, graph_z: ArrayLike | None) -> tuple[Bools | None, Bools | None]:
    if graph_a is None and graph_z is None:
        raise ValueError("graph_a, graph_z: want at least one graph, got neither")
    a = None if graph_a is None else _edges(graph_a, "graph_a")
    z = None if graph_z is None else _edges(graph_z, "graph_z")
    if z is not None and z.shape[-1] != z.shape[-2]:
        raise ValueError(f"graph_z: want a square (target latent, source latent), got {z.shape[-2:]}")
    if a is not None and z is not None and (a.shape[:-2], a.shape[-2]) != (z.shape[:-2], z.shape[-2]):
        raise ValueError(
            f"graph_a, graph_z: want the same latents and leading axes in both, got {a.shape} and {z.shape}"
        )
    return a, z
