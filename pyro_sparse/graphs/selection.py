"""From edge probabilities to a graph: how many edges may be named at a chosen false-discovery rate.

If the edge probabilities are right, naming a set of edges S makes a share mean_{S}(1 - p) of false
discoveries. So: sort the edges by probability and go down the list as long as that mean stays below the rate
asked for. Whether the probabilities *are* right is a question this file cannot answer.

Sure edges leave room in that mean: after forty edges with p = 1, a rate of .1 admits four more whatever they
are. So an edge must also be at least as likely present as absent, unless the caller lowers that floor. And
edges that were given to the model, such as anchors, are certain: they are named, and leave no room.
"""

from __future__ import annotations

from numbers import Real
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ._draws import ROUNDING, probabilities, zero_one

__all__ = [
    "UNRESOLVED_GAP",
    "Consensus",
    "bayesian_fdr",
    "consensus",
    "edge_gap",
    "edge_verdicts",
    "expected_fdr",
    "kept_restarts",
    "median_probability_graph",
    "q_values",
    "stability_bound",
    "unresolved",
]

# Between-restart gap above which an edge is called unresolved. In trials with nonlinear decoders such edges
# had a Brier score of .251, no better than one half said of each; edges with a gap below .1 had .107.
UNRESOLVED_GAP = 0.25


def q_values(probability: ArrayLike, given: ArrayLike | None = None) -> NDArray[np.float64]:
    r"""Smallest Bayesian false-discovery rate at which each edge would be named.

    :math:`q_e = \operatorname{mean}\{1 - p_f : p_f \ge p_e\}`; edges of equal probability share one value.

    Parameters
    ----------
    probability : array_like of any shape
        Edge probabilities in [0, 1].
    given : array_like of bool, same shape, optional
        Edges that were given to the model, not found: their q-value is 0, that of the others is of the others
        alone.

    Returns
    -------
    ndarray of the same shape, in [0, 1]

    References
    ----------
    Newton, Noueiry, Sarkar and Ahlquist (2004), Biostatistics 5(2), section 3; Müller, Parmigiani, Robert and
    Rousseau (2004), JASA 99(468).
    """
    p = probabilities(probability)
    q, free = np.zeros_like(p), ~_prescribed(given, p)
    if free.any():
        values, inverse, counts = np.unique(-p[free], return_inverse=True, return_counts=True)
        running = np.cumsum((1 + values) * counts) / np.cumsum(counts)
        q[free] = running[inverse]
    return q


def bayesian_fdr(
    probability: ArrayLike, fdr: float = 0.1, floor: float = 0.5, given: ArrayLike | None = None
) -> NDArray[np.bool_]:
    """Largest set of most probable edges whose expected share of false ones is at most `fdr`.

    Parameters
    ----------
    probability : array_like of any shape
        Edge probabilities in [0, 1].
    fdr : float
        Rate in [0, 1].
    floor : float
        Smallest probability that may be named, in [0, 1]. The default, 1/2, keeps the room that sure edges
        leave from being filled with edges that are more likely absent; 0 gives the textbook rule.
    given : array_like of bool, same shape, optional
        Edges that were given to the model, not found, such as anchors. They are named; the rate is that of
        the others.

    Returns
    -------
    ndarray of bool, same shape
        Edges of equal probability are named together or not at all.

    References
    ----------
    As for `q_values`; the floor is that of `median_probability_graph`.
    """
    if not isinstance(fdr, Real) or not 0 <= fdr <= 1:
        raise ValueError(f"fdr: want a rate in [0, 1], got {fdr!r}; ten per cent is 0.1")
    if not isinstance(floor, Real) or not 0 <= floor <= 1:
        raise ValueError(f"floor: want a probability in [0, 1], got {floor!r}")
    p = probabilities(probability)
    prescribed = _prescribed(given, p)
    return prescribed | ((q_values(p, prescribed) <= fdr + ROUNDING) & (p >= floor - ROUNDING))


def _prescribed(given: ArrayLike | None, p: NDArray[np.float64]) -> NDArray[np.bool_]:
    prescribed = np.zeros(p.shape, dtype=bool) if given is None else np.asarray(given, dtype=bool)
    if prescribed.shape != p.shape:
        raise ValueError(f"given: want the shape of probability, {p.shape}, got {prescribed.shape}")
    return prescribed


def expected_fdr(probability: ArrayLike, selected: ArrayLike) -> float:
    """Expected share of false edges in a given set: the mean of 1 - p over it.

    Parameters
    ----------
    probability : array_like of any shape
        Edge probabilities in [0, 1].
    selected : array_like of bool, same shape

    Returns
    -------
    float
        0 for the empty set.

    Raises
    ------
    ValueError
        If `selected` has another shape, or more than two values.
    """
    p, chosen = probabilities(probability), np.asarray(selected)
    if p.shape != chosen.shape:
        raise ValueError(f"selected: want the shape of probability, {p.shape}, got {chosen.shape}")
    chosen = zero_one(chosen, "selected", "choose edges with bayesian_fdr first")
    return float((1 - p[chosen]).mean()) if chosen.any() else 0.0


def median_probability_graph(probability: ArrayLike) -> NDArray[np.bool_]:
    """Edges that are at least as likely present as absent, p >= 1/2.

    Parameters
    ----------
    probability : array_like of any shape
        Edge probabilities in [0, 1].

    Returns
    -------
    ndarray of bool, same shape

    References
    ----------
    Barbieri and Berger (2004), Annals of Statistics 32(3), definition 1.
    """
    return probabilities(probability) >= 0.5 - ROUNDING


def edge_gap(probability: ArrayLike, keep: ArrayLike | None = None) -> NDArray[np.float64]:
    """Largest minus smallest probability of each edge over restarts; NaN when there is only one to look at.

    Above .25 an edge is called *unresolved*: equally good answers disagree about it.

    Parameters
    ----------
    probability : array_like of shape (restart, ...)
        Aligned edge probabilities.
    keep : array_like of bool, shape (restart,), optional
        Restarts to compare; see `kept_restarts`. Default: all.

    Returns
    -------
    ndarray of shape (...)
    """
    p = probabilities(probability)
    if p.ndim < 1:
        raise ValueError("probability: want shape (restart, ...), got a single number")
    if keep is not None:
        kept = np.asarray(keep, dtype=bool)
        if kept.shape != p.shape[:1]:
            raise ValueError(f"keep: want shape {p.shape[:1]}, one flag per restart, got {kept.shape}")
        p = p[kept]
    return np.ptp(p, axis=0) if len(p) > 1 else np.full(p.shape[1:], np.nan)


def unresolved(gap: ArrayLike) -> NDArray[np.bool_]:
    """Edges about which equally good answers disagree: those whose gap is above .25.

    Parameters
    ----------
    gap : array_like of any shape
        From `edge_gap`. NaN, where there was nothing to compare, is not unresolved.

    Returns
    -------
    ndarray of bool, same shape
    """
    above: NDArray[np.bool_] = np.nan_to_num(np.asarray(gap, dtype=float)) > UNRESOLVED_GAP
    return above


def edge_verdicts(
    probability: ArrayLike, gap: ArrayLike | None = None, sure: float = 0.95
) -> NDArray[np.str_]:
    r"""What may be said of each edge: "present", "absent", or "open" where the data do not decide.

    Present where :math:`p \ge s`, absent where :math:`p \le 1 - s`, open between, and wherever equally good
    answers disagree (`unresolved`). An edge that is not selected need not be absent: with few rows most are
    open. Of the edges called present, and of those called absent, at most :math:`1 - s` are expected to be
    wrong.

    Parameters
    ----------
    probability : array_like of any shape
        Edge probabilities in [0, 1].
    gap : array_like of the same shape, optional
        From `edge_gap`; NaN where there was nothing to compare.
    sure : float
        s, above 1/2 and below 1.

    Returns
    -------
    ndarray of str, same shape

    Raises
    ------
    ValueError
        If `sure` or a probability is out of range, or `gap` has another shape.

    References
    ----------
    Chow (1970), IEEE Transactions on Information Theory 16(1): deciding with an option not to.

    Examples
    --------
    >>> edge_verdicts([0.99, 0.99, 0.6, 0.02], gap=[0.0, 0.4, 0.1, 0.0]).tolist()
    ['present', 'open', 'open', 'absent']
    """
    if not isinstance(sure, Real) or not 0.5 < sure < 1:
        raise ValueError(f"sure: got {sure!r}, wanted a probability above .5 and below 1")
    p = probabilities(probability)
    disputed = np.zeros(p.shape, dtype=bool) if gap is None else unresolved(gap)
    if disputed.shape != p.shape:
        raise ValueError(f"gap: want the shape of probability, {p.shape}, got {disputed.shape}")
    verdicts = np.where(p >= sure - ROUNDING, "present", np.where(p <= 1 - sure + ROUNDING, "absent", "open"))
    return np.where(disputed, "open", verdicts)


def kept_restarts(
    elbo: ArrayLike,
    n_samples: int,
    best: int | None = None,
    tolerance: float = 15.0,
    at_least: int = 2,
    rivals: ArrayLike | None = None,
) -> NDArray[np.bool_]:
    """Which restarts are good enough for their disagreement to mean something.

    A restart stuck in a worse optimum disagrees for a reason that says nothing about the edge. Kept are those
    whose total ELBO is at most `tolerance` nats below the best restart's, and in any case the `at_least`
    highest among rivals, so that there is something to compare. Failed restarts (NaN) are never kept.

    Parameters
    ----------
    elbo : array_like of shape (restart,)
        Evidence lower bound in nats per row.
    n_samples : int
        Number of rows, which turns nats per row into nats.
    best : int, optional
        The chosen restart, always kept. Default: that with the highest ELBO.
    tolerance : float
        Nats.
    at_least : int
    rivals : array_like of bool, shape (restart,), optional
        Restarts that could have found what the best one did. Default: all.

    Returns
    -------
    ndarray of bool, shape (restart,)

    Raises
    ------
    ValueError
        There is no restart, `n_samples` is negative, or `best` is none of the restarts.
    """
    values = np.asarray(elbo, dtype=float)
    if values.ndim != 1 or len(values) == 0:
        raise ValueError(f"elbo: want shape (restart,) with at least one restart, got {values.shape}")
    if not n_samples >= 0:
        raise ValueError(f"n_samples: want a number of rows, 0 or more, got {n_samples!r}")
    if best is not None and best not in range(len(values)):
        raise ValueError(f"best: want a restart from 0 to {len(values) - 1}, got {best!r}")
    ranked = np.where(np.isnan(values), -np.inf, values)
    if best is None:
        best = int(ranked.argmax())
    order = np.argsort(-ranked, kind="stable")
    keep = (
        n_samples * (ranked - ranked[best]) >= -tolerance if np.isfinite(ranked[best]) else ranked > -np.inf
    )
    keep[best] = True
    others = order[(order != best) & (True if rivals is None else np.asarray(rivals, dtype=bool)[order])]
    keep[others[: max(at_least - 1, 0)]] = True
    kept: NDArray[np.bool_] = keep & ((ranked > -np.inf) | (np.arange(len(values)) == best))
    return kept


class Consensus(NamedTuple):
    """What several runs (restarts, folds, subsets of the rows) say about each edge together.

    Parameters
    ----------
    mean : ndarray of float, shape (...)
        Mean probability over runs.
    minimum : ndarray of float, shape (...)
        Smallest probability over runs.
    share : ndarray of float, shape (...)
        Share of the runs that name the edge.
    agreed : ndarray of bool, shape (...)
        Edges that every run names.
    disputed : ndarray of bool, shape (...)
        Edges that some runs name and others do not.
    """

    mean: NDArray[np.float64]
    minimum: NDArray[np.float64]
    share: NDArray[np.float64]
    agreed: NDArray[np.bool_]
    disputed: NDArray[np.bool_]


def consensus(probability: ArrayLike, fdr: float = 0.1, floor: float = 0.5) -> Consensus:
    r"""Edge probabilities of several runs combined, and the edges that all of them name.

    With :math:`p_{re}` from run r and :math:`S_r` what `bayesian_fdr` names in that run alone,

    .. math::

        \bar p_e = \frac1R \sum_r p_{re}, \qquad \min_r p_{re}, \qquad
        \pi_e = \frac1R \sum_r 1[e \in S_r].

    Parameters
    ----------
    probability : array_like of shape (run, ...)
        Aligned edge probabilities.
    fdr, floor : float
        As in `bayesian_fdr`, applied to each run.

    Returns
    -------
    Consensus

    Raises
    ------
    ValueError
        If there is no run, or a value is out of range.
    """
    p = probabilities(probability)
    if p.ndim < 2 or len(p) == 0:
        raise ValueError(f"probability: want shape (run, ...) with at least one run, got {p.shape}")
    named = np.stack([bayesian_fdr(run, fdr, floor) for run in p])
    share = named.mean(axis=0)
    return Consensus(p.mean(axis=0), p.min(axis=0), share, share == 1, (share > 0) & (share < 1))


def stability_bound(named: ArrayLike, threshold: float = 0.9) -> float:
    r"""Bound on the expected number of false edges among those that most runs on half the rows name.

    .. math:: E[V] \le \frac{q^2}{(2 \pi - 1)\, p}

    with q the mean number of edges that a run names, p the number of candidates and :math:`\pi` the share of
    runs that must name an edge for it to count. It holds for runs on random halves of the rows, if a false
    edge is as likely to be named as any other and no run does worse than guessing; not for restarts.

    Parameters
    ----------
    named : array_like of bool, shape (run, ...)
        Edges that each run names.
    threshold : float
        The share :math:`\pi`, in (1/2, 1].

    Returns
    -------
    float
        A number of edges. Above the number of edges that count, it says nothing.

    Raises
    ------
    ValueError
        If `threshold` is out of range, or `named` holds no run, no edge, or more than two values.

    References
    ----------
    Meinshausen and Bühlmann (2010), Journal of the Royal Statistical Society B 72(4), theorem 1.
    """
    if not 0.5 < threshold <= 1:
        raise ValueError(f"threshold: want a share of runs above 1/2 and at most 1, got {threshold!r}")
    chosen = np.asarray(named)
    if chosen.ndim < 2 or chosen.size == 0:
        raise ValueError(f"named: want shape (run, ...) with runs and edges, got {chosen.shape}")
    chosen = zero_one(chosen, "named", "choose edges with bayesian_fdr first").reshape(len(chosen), -1)
    return float(chosen.sum(axis=1).mean() ** 2 / ((2 * threshold - 1) * chosen.shape[1]))
