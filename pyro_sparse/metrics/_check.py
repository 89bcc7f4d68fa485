"""The checks the metrics share."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

__all__ = ["edges_of", "graph_pair", "levels_and_codes", "matching_of", "rows_and_test_rows", "same_rows"]


def edges_of(values: ArrayLike, name: str) -> np.ndarray:
    """Where a graph has an edge, or a ValueError that names it."""
    numbers = np.asarray(values, dtype=float)
    if np.isnan(numbers).any():
        raise ValueError(f"{name}: want 0 or another number for every edge, got NaN; say which are there")
    edges: np.ndarray = numbers != 0
    return edges


def graph_pair(
    true: ArrayLike, estimated: ArrayLike, name: str = "true", second_name: str = "estimated"
) -> tuple[np.ndarray, np.ndarray]:
    """Where two graphs of one shape have edges, or a ValueError that names them."""
    truth, estimate = edges_of(true, name), edges_of(estimated, second_name)
    if truth.ndim != 2 or truth.shape != estimate.shape:
        raise ValueError(
            f"{name} has shape {truth.shape}, {second_name} {estimate.shape}: want the same two dimensions"
        )
    return truth, estimate


def matching_of(permutation: ArrayLike, k: int, n_estimated: int, noun: str = "latents") -> np.ndarray:
    """The estimated latent of each of k true ones (-1: none), or a ValueError."""
    order = np.asarray(permutation, dtype=int)
    used = order[order >= 0]
    inside = ((order >= -1) & (order < n_estimated)).all()
    if order.shape != (k,) or len(set(used)) < len(used) or not inside:
        raise ValueError(
            f"permutation={order.tolist()} does not match {k} true {noun} to distinct ones of {n_estimated} "
            f"estimated {noun} (-1: none)"
        )
    return order


def same_rows(
    first: ArrayLike, second: ArrayLike, name: str, second_name: str, finite: bool = True
) -> tuple[np.ndarray, np.ndarray]:
    """Both as float tables of shape (N, .), finite where asked for, or a ValueError that names them."""
    a, b = np.asarray(first, dtype=float), np.asarray(second, dtype=float)
    if a.ndim != 2 or b.ndim != 2 or len(a) != len(b) or len(a) == 0:
        raise ValueError(
            f"{name} has shape {a.shape}, {second_name} {b.shape}: want two tables with the same rows"
        )
    for values, argument in ((a, name), (b, second_name)):
        if finite and not np.isfinite(values).all():
            bad = int((~np.isfinite(values)).sum())
            raise ValueError(f"{argument}: want finite numbers, got {bad} that are NaN or infinite")
    return a, b


def rows_and_test_rows(
    z_true: ArrayLike, z_hat: ArrayLike, z_true_test: ArrayLike | None, z_hat_test: ArrayLike | None
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Tables to fit on, then tables to score on: the same ones unless there are others."""
    true, hat = same_rows(z_true, z_hat, "z_true", "z_hat")
    if z_true_test is None and z_hat_test is None:
        return true, hat, true, hat
    if z_true_test is None or z_hat_test is None:
        raise ValueError("z_true_test and z_hat_test go together: give both or neither")
    return true, hat, *same_rows(z_true_test, z_hat_test, "z_true_test", "z_hat_test")


def levels_and_codes(
    levels: ArrayLike, codes: ArrayLike, name: str = "levels", second_name: str = "codes"
) -> tuple[np.ndarray, np.ndarray]:
    """Levels (N, F) counted from 0 without gaps, finite codes (N, K); or a ValueError that names them."""
    level, code = same_rows(levels, codes, name, second_name)
    if not np.array_equal(level, np.rint(level)):
        raise ValueError(f"{name}: want whole numbers, a level for each factor, got others")
    ranks = np.column_stack([np.unique(column, return_inverse=True)[1] for column in level.T])
    if (ranks.max(0) == 0).any():
        k = int(np.argmax(ranks.max(0) == 0))
        raise ValueError(f"{name}: factor {k} has one level only; leave it out")
    return ranks, code
