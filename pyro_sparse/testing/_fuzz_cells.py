"""Cells of tables as people have them: values that a likelihood allows, and one oddity or two among them.

Each step takes what Hypothesis draws, so that a failing table shrinks to the least that fails.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from ..likelihoods.beta import NEAREST
from ..likelihoods.ordinal import MOST_LEVELS
from ._cases import require_hypothesis

__all__ = ["COUNTS", "LIKELIHOODS", "is_allowed", "odd_cells", "values_for"]

LIKELIHOODS = (
    *("normal", "student_t", "beta", "bernoulli", "ordinal", "probit", "poisson", "negative_binomial"),
    *("zero_inflated_negative_binomial", "hurdle_poisson", "hurdle_negative_binomial"),
    *("multinomial", "categorical"),
)
COUNTS = (
    *("poisson", "negative_binomial", "zero_inflated_negative_binomial"),
    *("hurdle_poisson", "hurdle_negative_binomial", "multinomial"),
)


def is_allowed(likelihood: str, cells: np.ndarray) -> np.ndarray:
    """Which cells (row, feature) are finite, or missing, and within the likelihood's support.

    Parameters
    ----------
    likelihood : str
    cells : ndarray (row, feature)
    """
    if likelihood in ("bernoulli", "categorical"):
        return np.isin(cells, (0, 1)) | np.isnan(cells)
    if likelihood in ("ordinal", "probit"):
        with np.errstate(invalid="ignore", over="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # a column without cells
            near = cells - np.nanmin(cells, axis=0, initial=np.inf) < MOST_LEVELS
            return np.isnan(cells) | (near & (cells == np.rint(cells)) & ~np.isinf(cells))
    if likelihood == "beta":
        return np.isnan(cells) | ((cells >= NEAREST) & (cells <= 1 - NEAREST))
    if likelihood in COUNTS:
        return np.isnan(cells) | ((cells >= 0) & (cells == np.rint(cells)) & (cells < np.inf))
    return ~np.isinf(cells)


def values_for(likelihood: str, n_rows: int, n_features: int, seed: int) -> np.ndarray:
    """Cells (row, feature) that the likelihood allows, one factor behind them.

    Parameters
    ----------
    likelihood : str
    n_rows, n_features, seed : int
    """
    rng = np.random.default_rng(seed)
    f = rng.normal(size=(n_rows, 1)) * rng.choice([-1, 0, 1], n_features) + 0.5 * rng.normal(
        size=(n_rows, n_features)
    )
    if likelihood == "bernoulli":
        return (f > 0).astype(float)
    if likelihood in ("ordinal", "probit"):
        return 1.0 + np.digitize(f, [-1.0, 0.0, 1.0])
    if likelihood == "categorical":
        return (f == f.max(1, keepdims=True, initial=-np.inf)).astype(float)
    if likelihood == "beta":
        return 1 / (1 + np.exp(-f))
    if likelihood in COUNTS:
        return rng.poisson(np.exp(1 + 0.5 * f)).astype(float)
    return f * rng.choice([0.3, 1.0, 20.0], n_features) + rng.choice([0.0, 5.0], n_features)


def _places(draw: Callable[..., Any], cells: np.ndarray) -> tuple[int, int]:
    st = require_hypothesis()
    return draw(st.integers(0, cells.shape[0] - 1)), draw(st.integers(0, cells.shape[1] - 1))


def _some_missing(draw: Callable[..., Any], cells: np.ndarray) -> np.ndarray:
    st = require_hypothesis()
    share, seed = draw(st.sampled_from([0.05, 0.3, 0.8])), draw(st.integers(0, 99))
    cells[np.random.default_rng(seed).random(cells.shape) < share] = np.nan
    return cells


def _one_cell(*values: float) -> Callable[..., np.ndarray]:
    def change(draw: Callable[..., Any], cells: np.ndarray) -> np.ndarray:
        i, j = _places(draw, cells)
        cells[i, j] = draw(require_hypothesis().sampled_from(values))
        return cells

    return change


def _one_column(change_column: Callable[[np.ndarray, int], np.ndarray | float]) -> Callable[..., np.ndarray]:
    def change(draw: Callable[..., Any], cells: np.ndarray) -> np.ndarray:
        j = _places(draw, cells)[1]
        cells[:, j] = change_column(cells, j)
        return cells

    return change


def _one_row(value: float) -> Callable[..., np.ndarray]:
    def change(draw: Callable[..., Any], cells: np.ndarray) -> np.ndarray:
        cells[_places(draw, cells)[0]] = value
        return cells

    return change


def _times(*factors: float) -> Callable[..., np.ndarray]:
    def change(draw: Callable[..., Any], cells: np.ndarray) -> np.ndarray:
        return cells * draw(require_hypothesis().sampled_from(factors))

    return change


def _column_times(*factors: float) -> Callable[..., np.ndarray]:
    def change(draw: Callable[..., Any], cells: np.ndarray) -> np.ndarray:
        j = _places(draw, cells)[1]
        cells[:, j] *= draw(require_hypothesis().sampled_from(factors))
        return cells

    return change


def _shifted(draw: Callable[..., Any], cells: np.ndarray) -> np.ndarray:
    j = _places(draw, cells)[1]
    cells[:, j] += draw(require_hypothesis().sampled_from([1e6, 1e9, 1e15, -1e12]))
    return cells


_CELLS: dict[str, Callable[..., np.ndarray]] = {
    "cells missing": _some_missing,
    "a cell infinite": _one_cell(np.inf, -np.inf),
    "a cell huge": _one_cell(1e6, 1e18, 1e38, 1e155, 1e300, -1e308),
    "a cell tiny": _one_cell(1e-12, 1e-38, 1e-300, 5e-324),
    "a cell negative": _one_cell(-1.0, -0.0),
    "a cell a fraction": _one_cell(0.5, 1.000001),
    "a cell of an overflow": _one_cell(255.0, 65504.0, 2.0**31, 2.0**63),
    "a column missing": _one_column(lambda cells, j: np.nan),
    "a column constant": _one_column(lambda cells, j: 1.0),
    "a column zero": _one_column(lambda cells, j: 0.0),
    "a column twice": _one_column(lambda cells, j: cells[:, j - 1]),
    "a column all but missing": _one_column(
        lambda cells, j: np.where(np.arange(len(cells)) < 1, cells[:, j], np.nan)
    ),
    "a column that one cell makes": _one_column(lambda cells, j: np.arange(len(cells)) == 0),
    "a column of indices": _one_column(lambda cells, j: np.arange(len(cells))),
    "a column huge or tiny": _column_times(1e-300, 1e-30, 1e-12, 1e12, 1e20, 1e40, 1e200),
    "a column far from 0": _shifted,
    "a row missing": _one_row(np.nan),
    "a row zero": _one_row(0.0),
    "a row of 1e6": _one_row(1e6),
    "all in other units": _times(1e-300, 1e-20, 1e-12, 1e-6, 1e6, 1e12, 1e18, 1e30, 1e100),
    "rows repeated": lambda draw, cells: cells[np.arange(len(cells)) // 2 * 2 % len(cells)],
}


def odd_cells(draw: Callable[..., Any], cells: np.ndarray, most: int = 2) -> tuple[np.ndarray, list[str]]:
    """Cells with up to `most` oddities, and their names.

    Parameters
    ----------
    draw : callable
        Hypothesis' own.
    cells : ndarray (row, feature)
    most : int
    """
    st = require_hypothesis()
    if not cells.size or draw(st.integers(0, 9)) < 3:
        return cells, []
    done = draw(st.lists(st.sampled_from(list(_CELLS)), max_size=most, unique=True))
    with np.errstate(all="ignore"):
        for name in done:
            cells = _CELLS[name](draw, cells.copy())
    return cells, done
