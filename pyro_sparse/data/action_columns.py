"""Actions of sequences as numbers: a column for each that is one, and for each level of labels."""

from __future__ import annotations

from numbers import Real
from typing import NamedTuple

import numpy as np
import pandas as pd
from pandas.api import types as kinds

from .columns import in_order
from .long_table import Frames, check_finite

__all__ = ["FittedActions", "encode", "level_name"]


class FittedActions(NamedTuple):
    """Actions that a model was fitted to.

    Attributes
    ----------
    columns : list of str
        As the caller gave them.
    names : list of str
        One for each level of a categorical action.
    levels : dict of str to list
        Of each categorical action.
    """

    columns: list[str]
    names: list[str]
    levels: dict[str, list]


def encode(frames: Frames, like: FittedActions | None) -> tuple[np.ndarray, list[str], dict[str, list]]:
    """Actions as numbers, NaN where missing, the names of the columns, and the levels of those of labels.

    Parameters
    ----------
    frames : Frames
        With actions, a Series (frame,) each.
    like : KnownActions, optional
        Of the fit, whose columns and levels these have to be.

    Returns
    -------
    values : ndarray (frame, action)
    names : list of str
    levels : dict of str to list

    Raises
    ------
    TypeError, ValueError
        A column is of times, has one level, or one that the fit does not know; a number is infinite.
    """
    columns: dict[str, np.ndarray] = {}
    levels: dict[str, list] = {}
    actions = frames.actions or {}
    if like is not None and set(actions) != set(like.columns):
        raise ValueError(
            f"actions: are {list(actions)}, the model was fitted to {like.columns}; give the same"
        )
    for name, values in actions.items():
        kind = values.dtype
        is_number = kinds.is_numeric_dtype(kind) and not kinds.is_bool_dtype(kind)
        if is_number if like is None else name not in like.levels:
            if not is_number:
                raise TypeError(f"actions: column {name!r} holds {kind}, the model was fitted to numbers")
            columns[name] = values.to_numpy(dtype=float, na_value=np.nan)
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
        for j, level in enumerate(levels[name]):
            columns[level_name(name, level)] = np.where(codes < 0, np.nan, codes == j)
    names = list(columns) if like is None else like.names
    check_finite(np.stack(list(columns.values()), 1), list(columns), frames, "actions")
    return np.stack([columns[name] for name in names], 1), names, levels


def _in_words(values: pd.Series) -> pd.Series:
    """Labels that a file can hold: text in place of what is neither text nor number (intervals, dates)."""
    levels = pd.Categorical(values).categories
    if all(isinstance(level, str | Real | np.bool_) for level in levels):
        return values
    return values.astype("category").cat.rename_categories(str)


def level_name(column: str, level: object) -> str:
    """What the column of a level is called."""
    return f"{column}={level}"
