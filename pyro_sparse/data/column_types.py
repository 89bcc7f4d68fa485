"""Names, types and ordered categories of a table's columns: by which a likelihood is chosen for each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from ..likelihoods import Column
from .columns import as_frame, name_features, read_names
from .ordered_categories import with_codes, words_of
from .read import read_array

if TYPE_CHECKING:
    from .._utils.types import TableLike

__all__ = ["columns_of"]


def columns_of(data: TableLike, feature_names: Sequence[str] | None = None) -> list[Column]:
    """What is known of the columns of a table in memory.

    Parameters
    ----------
    data : array_like (row, feature), DataFrame, scipy.sparse matrix or AnnData
    feature_names : sequence of str, optional
        As for `pyro_sparse.fit`.

    Raises
    ------
    TypeError, ValueError
        As `data.as_table`, of cells that are no numbers and no ordered categories.
    """
    data = as_frame(data)
    labels: dict[int, tuple[str, ...]] = {}
    is_bool: set[int] = set()
    if isinstance(data, pd.DataFrame):
        for j, kind in enumerate(data.dtypes):
            if words := words_of(kind):
                labels[j] = words
            elif pd.api.types.is_bool_dtype(kind):
                is_bool.add(j)
        names = [str(name) for name in data.columns]
        data = with_codes(data, names, [labels.get(j) for j in range(len(names))])
    x, columns, _ = read_array(data)
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


def _is_whole(values: np.ndarray) -> bool:
    seen = values[~np.isnan(values)]
    return bool((seen == np.rint(seen)).all())
