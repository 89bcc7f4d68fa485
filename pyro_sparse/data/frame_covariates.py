"""Covariates of frames: columns of a long table, or one row of values for each frame."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pandas as pd

from .columns import as_frame, row_names
from .design import design_of, names_of, rows_of, taken_out
from .frame_design import clock_of, frame_design
from .long_table import read_long
from .sequences import Sequences, as_sequences

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from .._utils.types import TableLike

__all__ = ["as_designed_sequences", "future_columns"]

_ROW = "row of the table"


def as_designed_sequences(
    X: TableLike,
    *,
    covariates: Any = None,
    trend: str | None = None,
    season: tuple[int | str, ...] = (),
    like: Sequences | None = None,
    **options: Any,
) -> Sequences:
    """Sequences with trend, season and covariates beside them.

    Parameters
    ----------
    X : sequences
        As in `as_sequences`.
    covariates : names of columns, DataFrame, Series, mapping or array (frame, covariate), optional
        Of a DataFrame, in the order of its rows; of arrays, one sequence after the other.
    trend, season
        Of the model; read from `like` where that is given.
    like : Sequences, optional
        Of the fit.
    **options
        Of `as_sequences`.

    Raises
    ------
    ValueError, TypeError
        As `as_sequences` and `frame_design`; a covariate that is missing in a row, is constant, follows from
        the others, or was given for other rows than there are.
    """
    X = as_frame(X)
    known = None if like is None else like.design
    wanted = None if known is None else known.covariates
    if covariates is not None and like is not None and wanted is None:
        raise ValueError("covariates: the model was fitted without; leave them out")
    _refuse_used_twice(covariates, options)
    id = options.get("id") or (None if like is None else like.roles.get("id"))
    taken = () if wanted is None else wanted.taken
    if isinstance(X, pd.DataFrame) and id in X.index.names and id in (*(names_of(covariates) or ()), *taken):
        X = X.reset_index(id)
    features, given, taken = taken_out(X, {"covariates": covariates}, taken)
    if isinstance(features, pd.DataFrame) and id in taken:
        features = features.assign(**{str(id): cast(pd.DataFrame, X)[id]})
    data = as_sequences(features, like=like, **options)
    if not given and known is None and trend is None and not season:
        return data
    design, rows = None, None
    if given or wanted is not None:
        rows_in = X.shape[0] if isinstance(X, pd.DataFrame) else data.n_frames
        names = row_names(X)
        given = {name: _flat(_of_categories(values, id)) for name, values in given.items()}
        if wanted is None:
            design, rows = design_of(given, rows_in, names, taken)
        else:
            _refuse_missing(given)
            design, rows = wanted, rows_of(wanted, given, rows_in, names)
        if isinstance(features, pd.DataFrame):
            rows = rows[_order(features, data, options, like)]
    known = known or frame_design(trend, season, data, design)
    columns = known.columns(clock_of(data, known.origin), rows)
    return replace(data, covariates=_folded(columns, data), design=known)


def future_columns(
    sequences: Sequences, steps: int, covariates: Any, name: str
) -> NDArray[np.float64] | None:
    """Trend, season and covariates of the frames that follow each sequence, (sequence, step, column).

    Parameters
    ----------
    sequences : Sequences
    steps : int
    covariates : DataFrame, Series, mapping, array or None
        A row for each step, one sequence after the other.
    name : str
        Of that argument.

    Raises
    ------
    ValueError, TypeError
        Covariates that are wanted and not there, or there and not wanted; as `design_of`.
    """
    known = sequences.design
    wanted = None if known is None else known.covariates
    id = sequences.roles.get("id")
    of_id = wanted is not None and str(id) in [term.name for term in wanted.terms]
    if covariates is None and of_id and wanted is not None and len(wanted.terms) == 1:
        covariates = pd.DataFrame(index=range(len(sequences) * steps))
    if (covariates is None) != (wanted is None):
        had = "without covariates; leave them out"
        if wanted is not None:
            had = (
                f"with the covariates {[term.name for term in wanted.terms]}; give those of each step to come"
            )
        raise ValueError(f"{name}: the model was fitted {had}")
    if known is None:
        return None
    rows = None
    if wanted is not None:
        values = _flat(as_frame(covariates))
        if isinstance(values, pd.DataFrame):
            values = _by_sequence(values, sequences, steps, [term.name for term in wanted.terms], name)
            if of_id:  # whose level it is, is known
                values = values.assign(**{str(id): np.repeat(sequences.sequence_names, steps)})
        try:
            _refuse_missing({"covariates": values})
            rows = rows_of(wanted, {"covariates": values}, len(sequences) * steps, None)
        except (TypeError, ValueError) as error:
            raise type(error)(str(error).replace("covariates:", f"{name}:", 1)) from None
    columns = known.columns(clock_of(sequences, known.origin, steps), rows)
    return columns.reshape(len(sequences), steps, columns.shape[1])


def _by_sequence(
    table: pd.DataFrame, sequences: Sequences, steps: int, names: list[str], argument: str
) -> pd.DataFrame:
    """Rows in the order of the sequences, and of time within each, where the table has the fit's columns."""
    roles = {role: str(sequences.roles[role]) for role in ("id", "time") if role in sequences.roles}
    table = table.reset_index([n for n in table.index.names if n in roles.values()])
    if (time := roles.get("time")) in table:
        table = table.sort_values(time, kind="stable")
    if (id_column := roles.get("id")) in table:
        place = pd.Index(sequences.sequence_names).get_indexer(table[id_column].astype(str))
        counts = np.bincount(place[place >= 0], minlength=len(sequences))
        if (counts != steps).any():
            first = int((counts != steps).argmax())
            raise ValueError(
                f"{argument}: has {counts[first]} row(s) of sequence {sequences.sequence_names[first]!r}, "
                f"wanted {steps}, one for each step"
            )
        table = table.iloc[np.argsort(np.where(place < 0, len(sequences), place), kind="stable")]
        table = table.iloc[: len(sequences) * steps]
    return table[[name for name in table.columns if str(name) in names]]


def _flat(values: Any) -> Any:
    """Arrays (sequence, time, covariate) with one row for each frame."""
    if isinstance(values, np.ndarray) and values.ndim == 3:
        return values.reshape(-1, values.shape[-1])
    return values


def _refuse_missing(given: Mapping[str, Any]) -> None:
    """A table's missing covariate stands for the average row; of frames nothing is left out."""
    for role, values in given.items():
        frame = pd.DataFrame(values)
        missing = frame.isna().to_numpy()
        if missing.any():
            row, column = np.argwhere(missing)[0]
            raise ValueError(
                f"{role}: {str(frame.columns[column])!r} is missing in row {row}; give every row its value"
            )


def _refuse_used_twice(covariates: Any, options: Mapping[str, Any]) -> None:
    names = [covariates] if isinstance(covariates, str) else covariates
    if not isinstance(names, list | tuple) or not all(isinstance(name, str) for name in names):
        return
    for role in ("time", "actions", "feature_names"):  # the id may be one: a level of each sequence
        used = options.get(role)
        used = used if isinstance(used, list | tuple) else [used]
        for name in names:
            if any(isinstance(other, Hashable) and other == name for other in used):
                raise ValueError(f"covariates: column {name!r} is already in {role}; use it once")


def _of_categories(values: Any, id: Any) -> Any:
    """Covariates, the id among them as text: numbers of sequences are names."""
    if isinstance(values, pd.Series) and values.name == id:
        return values.astype(str)
    is_there = isinstance(values, pd.DataFrame) and id in values.columns
    return values.assign(**{str(id): values[id].astype(str)}) if is_there else values


def _order(
    table: pd.DataFrame, data: Sequences, options: Mapping[str, Any], like: Sequences | None
) -> NDArray[np.intp]:
    """Row of the table that each frame came from."""
    roles = {"id": None, "time": None} if like is None else like.roles
    id, time = (roles.get(name) if options.get(name) is None else options[name] for name in ("id", "time"))
    step = options.get("time_step")
    if step is None and time is not None:
        step = data.step
    numbered = table.assign(**{_ROW: np.arange(len(table))})
    frames = read_long(numbered, id, time, step, [_ROW], list(data.feature_names))
    assert frames.actions is not None
    return frames.actions[_ROW].to_numpy(dtype=int)


def _folded(columns: NDArray[np.float64], data: Sequences) -> NDArray[np.float64]:
    present = np.ones(data.x.shape[:2], bool) if data.present is None else data.present
    folded = np.zeros((*present.shape, columns.shape[1]))
    folded[present] = columns
    return folded
