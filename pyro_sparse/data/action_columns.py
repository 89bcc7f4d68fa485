"""Actions of sequences as numbers: one column of each that is a number, contrasts of each that is labels.

An action of two levels is the column 0/1, as a caller would code it. One of L > 2 levels is L - 1 columns,
orthonormal contrasts, in which every two levels are equally far apart: no level is the reference. Contrasts
are taken in the order in which levels are first met, so that what they are called changes nothing.
"""

from __future__ import annotations

from numbers import Real
from typing import NamedTuple

import numpy as np
import pandas as pd
from pandas.api import types as kinds
from scipy.linalg import helmert

from .columns import in_order
from .long_table import Frames, check_finite

__all__ = ["FittedActions", "contrasts", "encode", "n_columns", "orient"]


class FittedActions(NamedTuple):
    """Actions that a model was fitted to.

    Attributes
    ----------
    names : list of str
        As the caller gave them.
    levels : dict of str to list
        Of each categorical action.
    order : dict of str to list of int
        Row of `contrasts` that each level takes, of actions of more than two levels.
    """

    names: list[str]
    levels: dict[str, list]
    order: dict[str, list[int]]


def n_columns(names: list[str], levels: dict[str, list]) -> list[int]:
    """Columns that each action takes: one fewer than its levels, and one of a number.

    Parameters
    ----------
    names : list of str
        Of the actions.
    levels : dict of str to list
        Of those that are categorical.
    """
    return [max(1, len(levels.get(name, ())) - 1) for name in names]


def contrasts(n_levels: int) -> np.ndarray:
    """Columns of every level of a categorical action, (level, column): 0 and 1, or Helmert's contrasts.

    Parameters
    ----------
    n_levels : int
        At least 2.

    Examples
    --------
    >>> contrasts(2).ravel()
    array([0., 1.])
    >>> c = contrasts(4)
    >>> np.round(c @ c.T, 2)[0]
    array([ 0.75, -0.25, -0.25, -0.25])
    """
    return np.array([[0.0], [1.0]]) if n_levels == 2 else helmert(n_levels).T


def encode(frames: Frames, like: FittedActions | None) -> tuple[np.ndarray, FittedActions]:
    """Actions as numbers, NaN where missing, and how labels became numbers.

    Parameters
    ----------
    frames : Frames
        With actions, a Series (frame,) each.
    like : FittedActions, optional
        Of the fit, whose actions and levels these have to be.

    Returns
    -------
    values : ndarray (frame, column)
        One action after the other, `n_columns` of each.
    actions : FittedActions

    Raises
    ------
    TypeError, ValueError
        A column is of times, has one level, or one that the fit does not know; a number is infinite.
    """
    columns: dict[str, np.ndarray] = {}
    levels: dict[str, list] = {}
    order: dict[str, list[int]] = {}
    actions = frames.actions or {}
    if like is not None and set(actions) != set(like.names):
        raise ValueError(f"actions: are {list(actions)}, the model was fitted to {like.names}; give the same")
    for name, values in actions.items():
        kind = values.dtype
        is_number = kinds.is_numeric_dtype(kind) and not kinds.is_bool_dtype(kind)
        if is_number if like is None else name not in like.levels:
            if not is_number:
                raise TypeError(f"actions: column {name!r} holds {kind}, the model was fitted to numbers")
            columns[name] = values.to_numpy(dtype=float, na_value=np.nan)[:, None]
            continue
        if kinds.is_datetime64_any_dtype(kind) or kinds.is_timedelta64_dtype(kind):
            raise TypeError(f"actions: column {name!r} holds {kind}; wanted numbers or labels, so convert it")
        values = _in_words(values)
        if like is None:
            levels[name] = in_order(values)[1].tolist()
            if len(levels[name]) < 2:
                raise ValueError(
                    f"actions: column {name!r} has {len(levels[name])} level(s) "
                    f"{levels[name]}; wanted at least 2 to tell their effects apart, so drop it"
                )
        else:
            levels[name] = like.levels[name]
            new = values[values.notna() & ~values.isin(levels[name])]
            if len(new):
                raise ValueError(
                    f"actions: column {name!r} has level {new.iloc[0]!r} ({new.nunique()} such level(s)), "
                    f"which the model was not fitted to; it knows {levels[name][:8]}; "
                    "leave those sequences out, or fit again with them"
                )
        codes = pd.Index(levels[name], dtype=object).get_indexer(values.astype(object))  # -1: missing
        design = contrasts(len(levels[name]))
        if len(levels[name]) > 2:
            order[name] = _first_met(codes) if like is None else like.order[name]
            design = design[order[name]]
        columns[name] = np.where(codes[:, None] < 0, np.nan, design[codes])
    names = list(columns) if like is None else like.names
    for name, numbers in columns.items():
        check_finite(numbers[:, :1], [name], frames, "actions")
    numbers_of_all = np.concatenate([columns[name] for name in names], 1)
    return numbers_of_all, FittedActions(names, levels, order)


def _first_met(codes: np.ndarray) -> list[int]:
    """Place of each code among all of them by where it first stands; -1 is none."""
    met = list(dict.fromkeys(codes[codes >= 0].tolist()))
    return np.argsort(met).tolist()


def orient(scale: np.ndarray, values: np.ndarray, widths: list[int]) -> np.ndarray:
    """Scales whose sign makes the value that is met first the lower one, of actions of two values.

    Whether a caller says 0 or 1 of one of two states, or calls them so that the one or the other comes first
    in the alphabet, is then no difference.

    Parameters
    ----------
    scale : ndarray (column,)
    values : ndarray (frame, column)
        NaN where missing.
    widths : list of int
        Columns of each action.
    """
    oriented = scale.copy()
    for column in np.flatnonzero(np.repeat(widths, widths) == 1):
        seen = values[~np.isnan(values[:, column]), column]
        if len(np.unique(seen)) == 2 and seen[0] == seen.max():
            oriented[column] *= -1
    return oriented


def _in_words(values: pd.Series) -> pd.Series:
    """Labels that a file can hold: text in place of what is neither text nor number (intervals, dates)."""
    levels = pd.Categorical(values).categories
    if all(isinstance(level, str | Real | np.bool_) for level in levels):
        return values
    return values.astype("category").cat.rename_categories(str)
