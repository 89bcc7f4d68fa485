r"""Posterior probability of any statement about the whole graph, such as "features 0 and 3 share a factor".

.. math:: \hat p = \frac1N \sum_n 1[\text{predicate}(g^{(n)})], \qquad
    \mathrm{mcse} = \sqrt{\hat p (1 - \hat p) / \mathrm{ESS}},

ESS being the effective sample size of the predicate's own 0/1 draws. Edge probabilities do not give it: they
do not tell which edges come together.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ._draws import graphs_of
from .chains import effective_sample_size

__all__ = ["PredicateProbability", "probability_of"]


class PredicateProbability(NamedTuple):
    """Posterior probability of a statement, and how precisely the draws give it.

    Parameters
    ----------
    probability : float
        Share of draws that satisfy the predicate.
    standard_error : float
        Monte-Carlo standard error; NaN where `effective_sample_size` is.
    effective_sample_size : float
        NaN if all draws answer alike, for then they do not show how fast they move; if chains have fewer than
        four draws; or if no chains are given.
    """

    probability: float
    standard_error: float
    effective_sample_size: float


def probability_of(
    draws: ArrayLike,
    predicate: Callable[[NDArray[np.intp]], bool | np.bool_ | NDArray[np.bool_]],
    *,
    vectorised: bool = False,
) -> PredicateProbability:
    r"""Posterior probability that a predicate of the graph holds: the share of draws in which it does.

    .. math:: \hat p = \frac1N \sum_n 1[\text{predicate}(g^{(n)})], \qquad
        \mathrm{mcse} = \sqrt{\hat p (1 - \hat p) / \mathrm{ESS}}

    Parameters
    ----------
    draws : array_like of 0 and 1, shape (chain, draw, row, column) or (draw, row, column)
        Joint draws of the graph. Without a chain axis the draws are taken to come in no particular order, and
        there is no standard error.
    predicate : callable
        Given one graph, an int array of shape (row, column) with entries 0 and 1, returns True or False. It
        must depend on nothing but the graph: it is called once for each distinct graph.
    vectorised : bool
        Call `predicate` once, with all distinct graphs as an array (graph, row, column); it returns bools of
        shape (graph,).

    Returns
    -------
    PredicateProbability

    Raises
    ------
    TypeError
        If `predicate` is not callable, or returns anything but True or False.
    ValueError
        If `draws` has another shape, no entries, or entries other than 0 and 1, or a vectorised predicate
        returns another shape.

    References
    ----------
    Vehtari et al. (2021), Bayesian Analysis 16(2), section 4, for the standard error.

    Examples
    --------
    Do rows 0 and 1 share a column?

    >>> draws = [[[1, 0], [1, 0]], [[1, 0], [0, 1]], [[0, 1], [0, 1]], [[0, 1], [1, 1]]]
    >>> probability_of(draws, lambda graph: (graph[0] & graph[1]).any()).probability
    0.75
    >>> probability_of(draws, lambda graphs: (graphs[:, 0] & graphs[:, 1]).any(axis=1), vectorised=True)[0]
    0.75
    """
    if not callable(predicate):
        raise TypeError(f"predicate: want a function of a graph, got {type(predicate).__name__}")
    shape = np.shape(draws)
    if len(shape) not in (3, 4):
        raise ValueError(f"draws: want shape (chain, draw, row, column) or (draw, row, column), got {shape}")
    graphs = graphs_of(draws)
    _, first, inverse = np.unique(
        np.packbits(graphs.reshape(len(graphs), -1), axis=1), axis=0, return_index=True, return_inverse=True
    )
    distinct = graphs[first].astype(int)
    answers = _all_at_once(predicate, distinct) if vectorised else _one_by_one(predicate, distinct)
    holds = answers[inverse.reshape(-1)]
    p, ess = float(holds.mean()), np.nan
    if len(shape) == 4 and shape[1] >= 4:
        ess = float(effective_sample_size(holds.reshape(shape[:2])))
    return PredicateProbability(p, float(np.sqrt(p * (1 - p) / ess)), ess)


def _one_by_one(predicate: Callable[..., Any], graphs: NDArray[np.intp]) -> NDArray[np.bool_]:
    answers = np.zeros(len(graphs), dtype=bool)
    for n, graph in enumerate(graphs):
        answer = predicate(graph)
        if not (np.ndim(answer) == 0 and np.asarray(answer).dtype == bool):
            got = f"an array of shape {answer.shape}" if np.ndim(answer) else repr(answer)
            raise TypeError(
                f"predicate: want True or False for a graph, got {got}; compare numbers with something, "
                "close an array with .all() or .any(), or pass vectorised=True"
            )
        answers[n] = answer
    return answers


def _all_at_once(predicate: Callable[..., Any], graphs: NDArray[np.intp]) -> NDArray[np.bool_]:
    answers = np.asarray(predicate(graphs))
    if answers.dtype != bool:
        raise TypeError(
            f"predicate: want True or False per graph, got {answers.dtype}; compare numbers with something"
        )
    if answers.shape != (len(graphs),):
        raise ValueError(
            f"predicate: want one answer per graph, shape ({len(graphs)},), got {answers.shape}; reduce over "
            "the last two axes, or pass vectorised=False"
        )
    return answers
