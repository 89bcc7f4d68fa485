"""Names, types and ordered categories of a table's columns: by which a likelihood is chosen for each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from ..likelihoods import Column
from .columns import as_frame, is_numbered, name_features, read_names
from .ordered_categories import with_codes, words_of
from .read import read_array, read_mask
from .views import as_one_table

if TYPE_CHECKING:
    from .._utils.types import TableLike

__all__ = ["columns_of"]


def columns_of(
    data: TableLike, feature_names: Sequence[str] | None = None, mask: TableLike | None = None
) -> list[Column]:
    """What is known of the columns of a table in memory.

    Parameters
    ----------
    data : array_like (row, feature), DataFrame, scipy.sparse matrix or AnnData
    feature_names : sequence of str, optional
    mask : array_like of bool (row, feature), optional
        As for `pyro_sparse.fit`.

    Raises
    ------
    TypeError, ValueError
        As `data.as_table`, of cells that are no numbers and no ordered categories.
    """
    data = as_frame(as_one_table(data))
    labels: dict[int, tuple[str, ...]] = {}
    is_bool: set[int] = set()
    if isinstance(data, pd.DataFrame):
        for j, kind in enumerate(data.dtypes):
            if words := words_of(kind):
                labels[j] = words
            elif pd.api.types.is_bool_dtype(kind) or _holds_bools(data.iloc[:, j]):
                is_bool.add(j)
        names = [str(name) for name in data.columns]
        data = with_codes(data, names, [labels.get(j) for j in range(len(names))])
    x, columns, samples = read_array(data)
    if mask is not None:
        given = list(feature_names) if feature_names is not None and is_numbered(columns) else columns
        x = np.where(read_mask(mask, x.shape, given, samples), x, np.nan)
    names = name_features(read_names(feature_names), columns, x.shape[1])
    return [
        Column(
            name,
            bool if j in is_bool else int if _is_whole(x[:, j]) else float,
            x[:, j],
            labels.get(j, ()),
        )
        for j, name in enumerate(names)
    ]


def _holds_bools(column: pd.Series) -> bool:
    """Whether a column of objects is True, False or missing in every cell."""
    is_object = pd.api.types.is_object_dtype(column.dtype)
    return is_object and pd.api.types.infer_dtype(column, skipna=True) == "boolean"


def _is_whole(values: np.ndarray) -> bool:
    seen = values[~np.isnan(values)]
    return bool((seen == np.rint(seen)).all())
