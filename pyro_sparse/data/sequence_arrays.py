"""Arrays of sequences, stacked or in a list of different lengths, as frames one after the other.

A matrix is one sequence. Actions have the layout of the sequences: ``actions[t]`` leads to frame t. Numbers
stay as they are; text, objects and pandas categories are labels, None where missing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Sized
from typing import Any, TypeAlias, TypeGuard, cast

import numpy as np
import pandas as pd
from torch import Tensor

from .._utils.types import TableLike
from .columns import as_frame
from .long_table import Frames
from .read import read_array

__all__ = ["SequencesLike", "read_arrays"]

SequencesLike: TypeAlias = "TableLike | Sequence[TableLike]"  # one array of all, or one for each


def read_arrays(
    X: SequencesLike,
    actions: SequencesLike | None,
    feature_names: list[str] | None,
    action_names: list[str] | None,
) -> Frames:
    """Put the frames of all sequences one after the other.

    Parameters
    ----------
    X : array_like (sequence, time, feature) or (time, feature), or list of (time, feature)
    actions : array_like or list of the same layout, with or without the last axis, or None
    feature_names, action_names : list of str or None
        By default those of DataFrames in the list, and a1, a2, ...

    Returns
    -------
    Frames

    Raises
    ------
    ValueError, TypeError
        If shapes do not fit each other, or X does not hold numbers.
    """
    # or a list, of which no more is read than of an array
    X = cast(np.ndarray, [as_frame(sequence) for sequence in X] if isinstance(X, list | tuple) else X)
    depth = _depth(X)
    if depth not in (2, 3):
        raise ValueError(
            f"X: {type(X).__name__} has {depth} dimension(s); wanted (sequence, time, feature), "
            "(time, feature), or a list of (time, feature)"
        )
    single = depth == 2
    whole = depth == 3 and _is_stacked(X)  # read at once: sequences may be many
    pieces = [X] if single else [X.reshape(-1, X.shape[2])] if whole else list(X)
    read = [read_array(piece, "X" if single else f"X[{i}]") for i, piece in enumerate(pieces)]
    lengths = np.full(len(X), X.shape[1]) if whole else np.array([len(x) for x, _, _ in read])
    if not lengths.size or not lengths.all():
        fault = (
            f"sequence {str(lengths.argmin())!r} has no frames; drop it" if lengths.size else "no sequence"
        )
        raise ValueError(f"X: {fault}")
    (first, names, _), *_ = read
    for i, (x, features, _) in enumerate(read):
        if x.shape[1] != first.shape[1] or features != names:
            raise ValueError(
                f"X[{i}]: has {x.shape[1]} feature(s) {features or ''}, X[0] has {first.shape[1]} "
                f"{names or ''}; give all sequences the same features in the same order"
            )
    columns = {} if actions is None else _action_columns([actions] if single else actions, lengths)
    if action_names is not None and (len(set(action_names)), len(action_names)) != (len(columns),) * 2:
        raise ValueError(
            f"action_names: are {list(action_names)} for {len(columns)} action(s); give each its own name"
        )
    return Frames(
        x=np.concatenate([x for x, _, _ in read]),
        feature_names=names if feature_names is None else list(feature_names),
        actions=None
        if actions is None
        else dict(zip(action_names or columns, columns.values(), strict=True)),
        sequence_names=[str(i) for i in range(len(lengths))],
        lengths=lengths,
        broken=np.zeros(lengths.sum(), dtype=bool),
    )


def _is_stacked(values: object) -> TypeGuard[np.ndarray | Tensor]:
    """Whether all sequences are one plain array of numbers, and there is something in it."""
    plain = isinstance(values, Tensor) or (type(values) is np.ndarray and values.dtype.kind in "biuf")
    return plain and 0 not in cast(np.ndarray, values).shape


def _depth(values: object) -> int:
    """Dimensions of an array, or of nested lists of arrays, by their first entries."""
    if isinstance(values, list | tuple):
        return 1 + (_depth(values[0]) if values else 0)
    return int(getattr(values, "ndim", 2 if hasattr(values, "X") else 0))  # AnnData has no ndim


def _action_columns(actions: SequencesLike, lengths: np.ndarray) -> dict[str, pd.Series]:
    """A Series per action, over the frames of all sequences."""
    count = len(cast(Sized, actions)) if _depth(actions) else 0
    if count != len(lengths):
        raise ValueError(f"actions: has {count} sequence(s), X has {len(lengths)}; give one per sequence")
    if _is_stacked(actions) and actions.ndim in (2, 3) and (lengths == actions.shape[1]).all():
        lengths = lengths.sum(keepdims=True)  # one long sequence has the same columns
        actions = actions.reshape(1, lengths[0], -1)
    split = [_columns_of(sequence) for sequence in cast("Iterable[TableLike]", actions)]
    for i, (columns, length) in enumerate(zip(split, lengths, strict=True)):
        if len(columns) != len(split[0]) or not columns:
            raise ValueError(
                f"actions: sequence {str(i)!r} has {len(columns)} action(s), sequence '0' "
                f"{len(split[0])}; give all the same, at least one"
            )
        if len(columns[0]) != length:
            raise ValueError(
                f"actions: sequence {str(i)!r} has {len(columns[0])} frame(s), X has {length}; give one row "
                "per frame: actions[t] leads to frame t (NaN if unknown, as it often is in frame 0)"
            )
    return {
        f"a{j + 1}": pd.Series(np.concatenate(column)) for j, column in enumerate(zip(*split, strict=True))
    }


def _columns_of(actions: TableLike) -> list[np.ndarray]:
    """Actions of one sequence, one array each; labels as objects, None where missing."""
    if isinstance(actions, Tensor):
        actions = actions.detach().cpu().double().numpy()
    actions = as_frame(actions)
    if isinstance(actions, pd.DataFrame):
        columns: list[Any] = [actions[name] for name in actions.columns]
    elif _depth(actions) == 1:
        columns = [actions]
    elif _depth(actions) == 2:
        columns = list(np.asarray(actions).T)
    else:
        raise ValueError(
            f"actions: has {_depth(actions)} dimension(s) in one sequence; wanted (time, action) or (time,)"
        )
    arrays = []
    for column in columns:
        is_category = isinstance(getattr(column, "dtype", None), pd.CategoricalDtype)
        array = np.asarray(column, dtype=object if is_category else None)
        if array.dtype.kind in "US":
            array = array.astype(object)
            array[array == "nan"] = None  # what numpy makes of NaN among text
        arrays.append(array)
    return arrays
