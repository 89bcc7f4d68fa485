"""Actions that lead to the frames of a forecast, in the units of the fit."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import numpy as np
import numpy.typing as npt
import pandas as pd

from .columns import as_frame, text_columns
from .sequences import Sequences, as_sequences

if TYPE_CHECKING:
    from .._utils.types import TableLike

__all__ = ["actions_ahead"]


def actions_ahead(
    like: Sequences, past: Sequences, steps: int, actions: TableLike | None
) -> np.ndarray | None:
    """Actions to come in the fit's units, (sequence, step, column).

    Parameters
    ----------
    like : Sequences
        Of the fit.
    past : Sequences
        That are to go on.
    steps : int
    actions : array_like (sequence, step, action), list of such by sequence, or DataFrame, or None

    Raises
    ------
    ValueError, TypeError
        Actions that are wanted and not there, or the other way round; of another shape; missing; of
        unknown levels.
    """
    if (actions is None) != (like.actions is None):
        had = "without actions; leave them out"
        if like.actions is not None:
            had = f"with actions {like.action_names}; give those that lead to each step"
        raise ValueError(f"future_actions: the model was fitted {had}")
    if actions is None:
        return None
    columns = like.action_names
    wanted = (len(past), steps, len(columns))
    actions = as_frame(actions)
    if isinstance(actions, pd.DataFrame):
        split = _by_sequence(actions, like, past, steps)
    else:
        split = (
            [as_frame(table) for table in cast("list[TableLike]", actions)]
            if hasattr(actions, "__len__")
            else []
        )
        if len(split) == wanted[0] == 1 and np.ndim(split[0]) < 2 and steps > 1:
            split = [actions]  # (step, action) for the only sequence
        shapes = [_shape(table) for table in split]
        odd = next((i for i, shape in enumerate(shapes) if shape != wanted[1:]), None)
        if len(split) != wanted[0] or odd is not None:
            if not isinstance(actions, list | tuple):
                got = f"shape {np.shape(cast(npt.ArrayLike, actions))}"
            else:
                got = f"{len(split)} sequence(s)" if odd is None else f"{shapes[odd]} in sequence {odd}"
            raise ValueError(
                f"future_actions: want (sequence, step, action) = {wanted}, got {got}; give for every "
                f"sequence the actions {columns} that lead to each of the {steps} step(s)"
            )
    blank = np.zeros((len(past), steps, len(like.feature_names)))
    try:
        future = as_sequences(blank, actions=split, like=like, lag=0)
    except (TypeError, ValueError) as error:
        raise type(error)(f"future_{error}" if str(error).startswith("actions: ") else str(error)) from None
    assert future.actions is not None
    if future.linked is not None:
        s, h = np.argwhere(~future.linked)[0]
        raise ValueError(
            f"future_actions: an action is missing in sequence {past.sequence_names[s]!r}, step {h + 1} "
            f"({int((~future.linked).sum())} such step(s)); say what it will be"
        )
    return future.actions


def _shape(actions: TableLike) -> tuple[int, ...] | None:
    """Of one sequence's actions, (step, action); None of what is ragged."""
    try:
        shape = np.shape(cast(npt.ArrayLike, actions))
    except ValueError:
        return None
    return (*shape, 1) if len(shape) == 1 else shape


def _by_sequence(table: pd.DataFrame, like: Sequences, past: Sequences, steps: int) -> list[pd.DataFrame]:
    """The actions of each sequence in a long table with the fit's columns: rows by time, if it has that."""
    id, time, columns = like.roles.get("id"), like.roles.get("time"), like.action_names
    names = [name for name in (id, time, *columns) if name is not None]
    table = text_columns(table.reset_index([n for n in table.index.names if n is not None and n in names]))
    absent = [str(name) for name in (id, *columns) if name is not None and str(name) not in table]
    if absent:
        raise ValueError(
            f"future_actions: has no column {absent[0]!r}; want those of the fit: {names}, one row for every "
            "sequence and step"
        )
    if time is not None and str(time) in table:
        table = table.sort_values(str(time), kind="stable")
    rows = np.zeros(len(table), str) if id is None else table[str(id)].astype(str).to_numpy()
    wanted = [""] if id is None else past.sequence_names
    if len(wanted) != len(past):  # the fit's table was one sequence, X are arrays of several
        raise ValueError(f"future_actions: is one table, X has {len(past)} sequences; give an array for each")
    places = pd.Index(wanted).get_indexer(rows)
    counts = np.bincount(places[places >= 0], minlength=len(wanted))
    if (counts != steps).any():
        s = int((counts != steps).argmax())
        raise ValueError(
            f"future_actions: has {counts[s]} row(s) of sequence {past.sequence_names[s]!r} "
            f"({int((counts != steps).sum())} such sequence(s)), want {steps}, one for each step"
        )
    return [table.loc[places == s, columns] for s in range(len(wanted))]
