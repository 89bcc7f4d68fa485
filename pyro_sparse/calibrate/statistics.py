r"""Numbers that simulation-based calibration ranks: how many edges, where, how likely; how large the weights.

.. math:: \text{log score} = \sum_e \gamma_e \log \hat p_e + (1 - \gamma_e) \log(1 - \hat p_e)

Each takes a stack of graphs — the truth and its draws, in no order — and returns one number for each, so that
nothing can treat the truth apart: :math:`\hat p` too is the mean over the whole stack. (A mean over the draws
alone fits them better than the truth, and exact draws would fail.)
"""

from __future__ import annotations

import numpy as np

from ._check import Array

__all__ = ["graph_statistics", "value_statistics"]


def graph_statistics(edge: Array, columns: int = 3) -> dict[str, Array]:
    """The default statistics of a stack of graphs.

    Parameters
    ----------
    edge : ndarray of shape (graph, ..., column)
        0 or 1; all axes but the first and last are rows. Of shape (graph, edge), it has no columns.
    columns : int
        How many of the first columns are counted one by one.

    Returns
    -------
    dict of ndarray of shape (graph,)
        "edges", their number; "log score"; and with two columns or more "same parent", the number of pairs
        of rows that share a column, "largest column", and "column 0", "column 1" …, their edges.
    """
    stack = len(edge)
    flat = edge.reshape(stack, -1)
    # Half an edge more, half an edge less: no probability is 0 or 1.
    mean = (flat.sum(0) + 0.5) / (stack + 1)
    statistics = {
        "edges": flat.sum(1),
        "log score": np.where(flat == 1, np.log(mean), np.log1p(-mean)).sum(1),
    }
    if edge.ndim > 2 and edge.shape[-1] > 1:
        count = edge.reshape(stack, -1, edge.shape[-1]).sum(1)
        statistics["same parent"] = (count * (count - 1) / 2).sum(1)
        statistics["largest column"] = count.max(1)
        statistics |= {f"column {k}": count[:, k] for k in range(min(columns, count.shape[1]))}
    return statistics


def value_statistics(name: str, values: Array) -> dict[str, Array]:
    """The default statistics of a stack of values beside the graph: weights, rates, noise.

    Factors may change signs and places from one draw to the next, so that none of these looks at them.

    Parameters
    ----------
    name : str
        What the values are called.
    values : ndarray of shape (graph, ...)
        Real numbers.

    Returns
    -------
    dict of ndarray of shape (graph,)
        One number for each graph is its own statistic, "name". Of more, "name size", the sum of absolute
        values, and "name largest", the largest of them; of none, nothing.
    """
    flat = values.reshape(len(values), -1).astype(float)
    if flat.shape[1] < 2:
        return {name: flat[:, 0]} if flat.shape[1] else {}
    size = np.abs(flat)
    return {f"{name} size": size.sum(1), f"{name} largest": size.max(1)}
