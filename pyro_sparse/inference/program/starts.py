"""Where restarts of a program begin: factors on the main axes of the table, all else drawn from the prior.

Every second restart has its factors at the table's first principal components, the first of them in the axes
that make the loadings simplest (varimax), others in axes turned at random; the rest begin at draws from the
prior. Columns enter by the normal scores of their ranks, so that it does not matter what they are.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.stats import norm, rankdata

from ..rotation.axes import varimax
from .layout import Layout
from .recorded import Position

__all__ = ["component_scores", "starts_of"]

Array = NDArray[np.float64]

_CONSTANT = 1e-9  # standard deviation of normal scores


def starts_of(layout: Layout, drawn: Position, x: Array, seen: NDArray[np.bool_], seed: int) -> Position:
    """Positions of all restarts.

    Parameters
    ----------
    layout : Layout
    drawn : dict of Tensor
        Draws from the prior, restart first.
    x, seen : ndarray (row, ..., feature)
    seed : int
    """
    rng = np.random.default_rng(seed)
    sites = [site for site in layout.sites.values() if site.kind == "factors"]
    started = dict(drawn)
    for site in sites:
        value = drawn[site.name].clone()
        n_restarts, of_restart = len(value), value.shape[1:]
        rows = int(np.prod(of_restart[:-1]))
        table = x.reshape(-1, x.shape[-1])
        if rows != len(table):
            continue  # its elements are no rows of the table
        scores = component_scores(table, seen.reshape(table.shape), layout.n_factors)
        if scores is None:
            continue
        for r in range(0, n_restarts, 2):
            axes = (
                np.linalg.qr(rng.standard_normal((scores.shape[1],) * 2))[0] if r else np.eye(scores.shape[1])
            )
            value[r, ..., : scores.shape[1]] = (
                torch.as_tensor(scores @ axes).reshape(*of_restart[:-1], -1).to(value)
            )
        started[site.name] = value
    return started


def component_scores(x: Array, seen: NDArray[np.bool_], n_factors: int) -> Array | None:
    """Standardised scores (row, component) on the first components in varimax axes; None of constant columns.

    Parameters
    ----------
    x, seen : ndarray (row, feature)
    n_factors : int
    """
    scores = np.zeros(x.shape)
    for j in range(x.shape[1]):
        rows = seen[:, j]
        scores[rows, j] = norm.ppf((rankdata(x[rows, j]) - 0.5) / max(1, rows.sum()))
    scores -= scores.mean(0)
    spread = scores.std(0)
    scores = scores[:, spread > _CONSTANT] / spread[spread > _CONSTANT]
    k = min(n_factors, *scores.shape)
    if k == 0:
        return None
    left, size, right = np.linalg.svd(scores, full_matrices=False)
    loadings = right[:k].T * size[:k] / np.sqrt(len(x))
    components: Array = left[:, :k] * np.sqrt(len(x)) @ varimax(loadings)
    return components
