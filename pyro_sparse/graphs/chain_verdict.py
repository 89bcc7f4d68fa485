"""What the diagnostics of several chains come to, in sentences a person can act on.

A column with an edge whose probability differs by more than .25 between chains is named, with the rows it
concerns; chains that were left out are named; and where they disagree on nothing, that is said. So are rows
that a constraint keeps from a column which they depend on.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .chain_groups import ChainPool
from .chains import CoMembershipRhat, KeptChains
from .selection import unresolved

__all__ = [
    "UNDISPUTED",
    "alternative_graphs",
    "contradictions",
    "disputed_columns",
    "left_out",
    "uneven",
    "verdict",
]

UNDISPUTED = "No edge is disputed between the chains."

_LISTED = 5  # rows named in one sentence
# Bayes factor (Jeffreys 1961, appendix B). In 53 simulated tables with right anchors no edge was named; of
# 19 wrong anchors that forbid an edge 12 were noticed (benchmarks/RESULTS.md, calibration).
_STRONG = 10.0


def verdict(
    gap: ArrayLike,
    rhat: CoMembershipRhat | None = None,
    kept: KeptChains | None = None,
    *,
    rows: Sequence[str] | None = None,
    columns: Sequence[str] | None = None,
    words: tuple[str, str] = ("feature", "factor"),
    rhat_limit: float = 1.05,
) -> list[str]:
    r"""Plain sentences on whether the chains agree on the graph.

    First the chains that were left out; then every column with unresolved edges,
    :math:`\max_c p_{ce} - \min_c p_{ce} > .25`; then R-hat if the largest is above `rhat_limit`. Where there
    is nothing of either to complain of, that no edge is disputed.

    Parameters
    ----------
    gap : array_like of shape (row, column)
        From `between_chain_gap`, over the kept chains; NaN where nothing could be compared.
    rhat : CoMembershipRhat, optional
        From `co_membership_rhat`, over the kept chains.
    kept : KeptChains, optional
        From `keep_chains`.
    rows, columns : sequence of str, optional
        Names. Default: numbers from 0, as chains are numbered.
    words : (str, str)
        What a row and a column are called, in the singular.
    rhat_limit : float
        Vehtari et al. (2021) ask for 1.01 of one quantity; the largest of many pairs is higher by chance.

    Returns
    -------
    list of str

    Raises
    ------
    ValueError
        If `gap` is no matrix, holds a value outside of [0, 1], or the names do not fit.

    Examples
    --------
    >>> print(*verdict([[0.0, 0.4], [0.1, 0.1], [0.0, 0.9]], rows=["age", "size", "weight"]), sep="\n")
    At least two chains disagree on factor 1 (features age, weight): add an anchor for it, more rows, or fewer
    factors.
    >>> verdict([[0.0, 0.1]])
    ['No edge is disputed between the chains.']
    """
    table = np.asarray(gap, dtype=float)
    if table.ndim != 2:
        raise ValueError(f"gap: want shape (row, column), got {table.shape}")
    if ((table < 0) | (table > 1)).any():
        low, high = np.nanmin(table), np.nanmax(table)
        raise ValueError(f"gap: want differences of probabilities in [0, 1], got {low:.4g} to {high:.4g}")
    row_names = _names(rows, table.shape[0], "rows")
    column_names = _names(columns, table.shape[1], "columns")
    n_chains = None if kept is None else int(np.sum(kept.keep))
    sentences = [] if kept is None else left_out(kept)
    n_out = len(sentences)
    if n_chains == 1 or (table.size and np.isnan(table).all()):
        return [*sentences, "There is only one chain to look at: run more, to see whether they agree."]
    disputed = disputed_columns(table, row_names, column_names, n_chains, words)
    sentences += [f"{message}: {remedy}." for message, remedy in disputed.values()]
    if rhat is not None and rhat.largest > rhat_limit:
        sentences.append("{}: {}.".format(*uneven(rhat, row_names, words)))
    if len(sentences) == n_out:
        sentences.append(UNDISPUTED)
    return sentences


def disputed_columns(
    gap: ArrayLike,
    rows: Sequence[str],
    columns: Sequence[str],
    n_chains: int | None = None,
    words: tuple[str, str] = ("feature", "factor"),
    more: str = "more rows",
) -> dict[int, tuple[str, str]]:
    """Of each column with an unresolved edge what to say, and what would help.

    Parameters
    ----------
    gap : array_like of shape (row, column)
    rows, columns : sequence of str
        Names.
    n_chains : int, optional
        How many chains are compared.
    words : (str, str)
        What a row and a column are called, in the singular.
    more : str
        What more data would be.
    """
    flagged = unresolved(gap)
    row, column = words
    who = _who(n_chains)
    return {
        int(k): (
            f"{who} disagree on {column} {columns[int(k)]} "
            f"({_listed([rows[int(j)] for j in np.flatnonzero(flagged[:, k])], row)})",
            f"add an anchor for it, {more}, or fewer {column}s",
        )
        for k in np.flatnonzero(flagged.any(axis=0))
    }


def uneven(
    rhat: CoMembershipRhat, rows: Sequence[str], words: tuple[str, str] = ("feature", "factor")
) -> tuple[str, str]:
    """What to say of the pair of rows with the largest R-hat, and what would help.

    Parameters
    ----------
    rhat : CoMembershipRhat
    rows : sequence of str
        Names.
    words : (str, str)
        What a row and a column are called, in the singular.
    """
    row, column = words
    i, j = divmod(int(np.nanargmax(rhat.rhat)), len(rhat.rhat))
    message = (
        f"Chains differ in how often {row}s share a {column}, most of all {rows[i]} and {rows[j]} "
        f"(R-hat {rhat.largest:.2f})"
    )
    return message, "run them longer"


def contradictions(
    if_permitted: ArrayLike, rate: ArrayLike, rows: Sequence[str], columns: Sequence[str]
) -> list[str]:
    r"""Plain sentences on edges that a constraint forbids and the data want.

    Which constraint is wrong they cannot tell: a wrong anchor makes its factor another, and a right one of
    that factor may then be named. Named are edges that would be more probable than not if they were
    permitted, and whose odds the data raise tenfold at least:
    :math:`\frac{p (1 - \eta)}{(1 - p)\, \eta} \ge 10`.

    Parameters
    ----------
    if_permitted : array_like of shape (row, column)
        Probability of an edge if it alone were permitted; NaN where it is.
    rate : array_like of shape (column,)
        Inclusion rates, between 0 and 1.
    rows, columns : sequence of str
        Names.

    Returns
    -------
    list of str

    Raises
    ------
    ValueError
        Shapes or names do not fit.

    Examples
    --------
    >>> found = contradictions([[np.nan, 0.97], [0.2, np.nan]], [0.2, 0.3], ["age", "size"], ["f 1", "f 2"])
    >>> print(*found)
    Anchors or constraints contradict the data: without them f 2 would have edges to age (p 0.97). Look at
    these again, and at the other anchors of the same factors.
    """
    p, prior = np.asarray(if_permitted, dtype=float), np.asarray(rate, dtype=float)
    if p.ndim != 2 or prior.shape != p.shape[1:]:
        raise ValueError(
            f"if_permitted: want shape (row, column), rate (column,), got {p.shape}, {prior.shape}"
        )
    row_names, column_names = _names(rows, p.shape[0], "rows"), _names(columns, p.shape[1], "columns")
    p = np.nan_to_num(p)
    wanted = (p > 0.5) & (p * (1 - prior) >= _STRONG * (1 - p) * prior)
    sentences = []
    for k in np.flatnonzero(wanted.any(axis=0)):
        wanted_rows = [j for j in np.argsort(-p[:, k], kind="stable") if wanted[j, k]]
        wanted_edges = _listed([f"{row_names[j]} (p {p[j, k]:.2f})" for j in wanted_rows], "")
        sentences.append(
            f"Anchors or constraints contradict the data: without them {column_names[k]} would have edges to "
            f"{wanted_edges}. Look at these again, and at the other anchors of the same factors."
        )
    return sentences


def left_out(kept: KeptChains | ChainPool) -> list[str]:
    """What to say of chains that are not compared.

    Parameters
    ----------
    kept : KeptChains or ChainPool
    """
    what = "holds another graph, " if isinstance(kept, ChainPool) else "is "
    end = "," if isinstance(kept, ChainPool) else ""
    return [
        f"Chain {c} {what}{below:.0f} nats below the best{end} and was left out."
        if np.isfinite(below)
        else f"Chain {c} failed, its log joint is not finite, and was left out."
        for c, (keep, below) in enumerate(zip(kept.keep, kept.nats_below, strict=True))
        if not keep
    ]


def alternative_graphs(pool: ChainPool, probability: ArrayLike) -> tuple[str, NDArray[np.bool_]]:
    """Which graphs the chains hold, with their shares, and which edges differ between them.

    Parameters
    ----------
    pool : ChainPool
    probability : array_like of shape (chain, row, column)
        Of each chain.

    Returns
    -------
    message : str
        Empty where all chains kept hold one graph.
    edges : ndarray of bool (row, column)
        Whose probability differs by more than .25 between two chains that hold other graphs.

    Examples
    --------
    >>> from pyro_sparse.graphs.chain_groups import pool_chains
    >>> p = np.array([[[0.99, 0.01]], [[0.98, 0.02]], [[0.02, 0.02]]])
    >>> pool = pool_chains(p, np.zeros(p.shape), [0.0, 0.0, -1.0], uncertainty=0.0)
    >>> print(alternative_graphs(pool, p)[0])
    The chains hold 2 graphs, 1 edge apart: chains 0 and 1 (share 0.73), chain 2 (0.27)
    """
    p, differ = np.asarray(probability, dtype=float), np.zeros(np.shape(probability)[1:], dtype=bool)
    held = [np.flatnonzero(pool.keep & (pool.group == g)) for g in np.unique(pool.group[pool.keep])]
    if len(held) < 2:
        return "", differ
    for number, chains in enumerate(held):
        for others in held[:number]:
            differ |= unresolved(np.abs(p[chains][:, None] - p[others]).max((0, 1)))
    named = [
        f"chain{'s' if len(chains) > 1 else ''} {' and '.join(_series(chains))} "
        f"({'' if number else 'share '}{pool.weight[chains].sum():.2f})"
        for number, chains in enumerate(held)
    ]
    n = int(differ.sum())
    edges = "1 edge" if n == 1 else f"{n} edges"
    return f"The chains hold {len(held)} graphs, {edges} apart: {', '.join(named)}", differ


def _series(chains: NDArray[np.intp]) -> list[str]:
    """Numbers with commas between all but the last two."""
    numbers = [str(c) for c in chains]
    return numbers if len(numbers) < 3 else [", ".join(numbers[:-1]), numbers[-1]]


def _who(n_chains: int | None) -> str:
    if n_chains == 2:
        return "Two chains"
    return "At least two chains" if n_chains is None else f"At least two of {n_chains} chains"


def _listed(names: list[str], word: str) -> str:
    more = len(names) - _LISTED
    text = ", ".join(names[:_LISTED]) + (f" and {more} more" if more > 0 else "")
    return f"{word}{'s' if len(names) > 1 else ''} {text}" if word else text


def _names(names: Sequence[str] | None, n: int, argument: str) -> list[str]:
    if names is None:
        return [str(i) for i in range(n)]
    if len(names) != n:
        raise ValueError(f"{argument}: want {n} names, as in gap, got {len(names)}")
    return [str(name) for name in names]
