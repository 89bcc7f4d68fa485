"""Groups of rows for questions that are asked after a fit: the rows of each level."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from .columns import as_frame, check_order, row_names
from .design import level_names

__all__ = ["rows_by_group"]


def rows_by_group(values: Any, samples: list[str]) -> dict[str, NDArray[np.intp]]:
    """Rows of each group, in the order of categories or of the alphabet.

    Parameters
    ----------
    values : Series, array_like or DataFrame of one column, (row,)
        A level for each row.
    samples : list of str
        Names of the rows of scores.

    Raises
    ------
    TypeError
        The name of a column: there is no table here to take it from.
    ValueError
        Not one level for each row, a missing one, rows in another order, or a group of one row.
    """
    if isinstance(values, str):
        raise TypeError(
            f"groups: got the name {values!r}, and the scores have no columns beside their rows; wanted a "
            f"level for each row, such as table[{values!r}]"
        )
    values = as_frame(values)
    n = len(samples)
    if isinstance(values, pd.DataFrame):
        if values.shape[1] != 1:
            raise ValueError(f"groups: has {values.shape[1]} columns, wanted one; give that column")
        values = values.iloc[:, 0]
    if not isinstance(values, pd.Series | pd.Categorical | pd.Index):
        values = np.asarray(values)
        values = values[:, 0] if values.ndim == 2 and values.shape[1] == 1 else values
        if values.ndim != 1:
            raise ValueError(f"groups: has shape {values.shape}, wanted a level for each row")
    if len(values) != n:
        raise ValueError(
            f"groups: has {len(values)} values, wanted one for each of the {n} rows of the scores "
            f"({', '.join(map(repr, samples[:2]))}, …); pick the same rows"
        )
    check_order("groups", row_names(values), samples, "the scores")
    column = pd.Series(values).reset_index(drop=True)
    missing = column.isna().to_numpy()
    if missing.any():
        raise ValueError(
            f"groups: is missing in row {int(missing.argmax())}, {missing.sum()} row(s) in all; wanted a "
            "level for each: give such rows one of their own"
        )
    words = level_names(column)
    order = sorted(words.unique())
    if isinstance(column.dtype, pd.CategoricalDtype):
        order = list(dict.fromkeys(level_names(pd.Series(column.cat.categories))))
    rows = {level: np.flatnonzero((words == level).to_numpy()) for level in order}
    for level, at in rows.items():
        if len(at) == 1:
            raise ValueError(
                f"groups: {level!r} has one row, row {at[0]}, and one row has no variance; wanted two of "
                "each group at least: join it with another"
            )
    return {level: at for level, at in rows.items() if len(at)}
