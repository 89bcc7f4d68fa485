"""Files into DataFrames (row = sample, column = feature): CSV, Parquet, AnnData (.h5ad), NumPy (.npz).

The reader decides which columns are features and which are row names; whether the numbers suit a likelihood
is for `pyro_sparse.fit` to say. Nothing is ever unpickled.
"""

from __future__ import annotations

import csv
import difflib
import io
import re
import shlex
import zipfile
from collections import Counter
from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import scipy.sparse as sp
from pandas.io.common import get_handle

from .._utils.sources import (
    check_archive,
    check_dense,
    check_file,
    check_hdf5,
    check_sparse,
    check_text,
    reading,
)
from .columns import sort_out, strangers

__all__ = ["read_table"]

_SEPARATORS = {".csv": ",", ".tsv": "\t", ".tab": "\t", ".txt": "\t"}
# What else than dropping it may be done with a column, by the sort of what it holds (`strangers`).
_FIXES = {
    "kind": "encode it",
    "nominal": "make a column of 0 and 1 for each (pandas.get_dummies)",
    "ordinal": "write the numbers of its categories",
    "levels": "write them as numbers",
    "mixed": "write 1 and 0 for them",
    "quoted": "write them without quotes",
    "comma": "write them with a point for decimals and no comma, as 1234.5",
    "cells": "leave such cells empty",
}
_COMPRESSED = {".gz", ".bz2", ".xz", ".zst"}
_LONGEST_FIELD = 2**31 - 1  # characters; the limit of the csv module, 131,072, is no error of the file
_LEAST_GRID = 6  # names in order that are taken for wavelengths or the like, not for a row of numbers


def read_table(
    path: str | Path,
    *,
    columns: Sequence[str] | None = None,
    drop: Sequence[str] | None = None,
    index: str | None = None,
    beside: Sequence[str] = (),
) -> pd.DataFrame:
    """Read a table of measurements.

    Parameters
    ----------
    path : str or Path
        ``.csv``; ``.tsv``, ``.tab``, ``.txt`` (tab separated); each also compressed (``.gz``, ``.bz2``,
        ``.xz``, ``.zst``); ``.parquet``; ``.h5ad`` (its ``X``); ``.npz`` (a sparse matrix that scipy saved,
        or arrays of which one is two-dimensional or named ``X``; optional ``feature_names``,
        ``sample_names``).
    columns : sequence of str, optional
        Names or shell patterns (``"A*"``) of the columns to keep, in the order of the file; by default all.
    drop : sequence of str, optional
        Names or shell patterns of columns to leave out.
    index : str, optional
        The column with row names. By default a first column without a name, or without a place in the header,
        as pandas and R write it.
    beside : sequence of str
        Columns that are no features and may hold anything (batches, sites); of an AnnData those of `obs`.

    Returns
    -------
    DataFrame (row, feature)
        Numeric columns; an empty cell is NaN, True is 1 and False 0. Those of `beside` stand at the end, as
        they are.

    Raises
    ------
    FileNotFoundError
        There is no such file.
    ValueError
        Unknown kind of file, a broken one, repeated or unknown columns, numbers where names are wanted or
        text where numbers are.
    ModuleNotFoundError
        The kind of file needs an extra that is not installed.
    """
    path = Path(path)
    check_file(path, "path", ".csv, .tsv, .parquet, .h5ad or .npz")
    kind = _kind(path)
    try:
        with reading(path, kind):
            frame = _read_text(path, _SEPARATORS[kind]) if kind in _SEPARATORS else _READERS[kind](path)
    except ValueError as error:
        if isinstance(error.__cause__, UnicodeError):
            raise ValueError(
                f"path: {str(path)!r} is not UTF-8 text ({error.__cause__}); save it as such "
                "('CSV UTF-8' in a spreadsheet)"
            ) from error
        raise

    names = [str(name) for name in frame.columns]
    _refuse_repeats(names, path)
    frame.columns = pd.Index(names)
    if kind == ".h5ad" and beside:
        frame = frame.join(_observations(path, beside))
    if index is not None:
        frame = frame.set_index(_match([index], names, "index")[0])
    elif kind in _SEPARATORS and names and names[0] == "":
        frame = frame.set_index("")
    names = list(frame.columns)
    frame.index.name = None
    others = frame[[_match([name], names, "covariates, groups")[0] for name in beside]]
    names = [name for name in names if name not in set(beside)]
    kept = names if columns is None else _match(columns, names, "columns")
    dropped = [] if drop is None else _match(drop, names, "drop")
    frame = frame[[name for name in kept if name not in set(dropped)]]
    if frame.shape[1] == 0:
        raise ValueError(
            f"columns, drop: leave none of the {len(names)} columns of {str(path)!r}; choose fewer to drop"
        )
    return _numeric(frame, path).join(others) if len(beside) else _numeric(frame, path)


def _kind(path: Path) -> str:
    suffixes = [s.lower() for s in path.suffixes]
    if suffixes and suffixes[-1] in _COMPRESSED:
        suffixes.pop()
    kind = suffixes[-1] if suffixes else ""
    kind = {".pq": ".parquet"}.get(kind, kind)
    if kind not in {*_SEPARATORS, ".parquet", ".h5ad", ".npz"}:
        raise ValueError(
            f"path: {path.name!r} ends in {kind!r}, wanted .csv, .tsv, .tab, .txt, .parquet, .h5ad or .npz; "
            "rename the file to what it is, or convert it to CSV"
        )
    return kind


def _read_text(path: Path, separator: str) -> pd.DataFrame:
    check_text(path)
    _refuse_separator(path, separator)
    # pandas renames a repeated column without a word, so the header is read as data first.
    header = pd.read_csv(path, sep=separator, header=None, nrows=1, dtype=str, keep_default_na=False).iloc[0]
    names = header.str.strip().tolist()
    _refuse_numbers(names, path)
    _refuse_repeats(names, path)
    read = partial(pd.read_csv, path, sep=separator, skipinitialspace=True)
    frame = read(header=0, names=names)

    def widened(**rows: int) -> pd.DataFrame:
        """One column more than the header names, as text; the python engine reads absent fields as NaN."""
        limit = csv.field_size_limit(_LONGEST_FIELD)  # of that engine only
        try:
            return read(
                header=None, names=range(len(names) + 1), dtype=str, keep_default_na=False, engine="python",
                **rows,
            )  # fmt: skip
        finally:
            csv.field_size_limit(limit)

    # The kind of index does not say whether rows begin with a name: since pandas 3, names that are evenly
    # spaced numbers make a RangeIndex as well. The first row's fields are counted instead.
    if isinstance(frame.index, pd.RangeIndex) and not widened(nrows=2).iloc[1:, -1].notna().any():
        return frame
    # What rows have beyond the header pandas takes for row names, which R's write.table gives no name.
    more = frame.index.nlevels
    if more == 1:
        last = widened().iloc[1:, -1]  # separators at the ends of rows are no fields
        if not last.any():
            return read(header=0, names=names, index_col=False, usecols=range(len(names)))
        if last.notna().all() and names[0] != "":
            return frame
    raise ValueError(
        f"path: {path.name!r} has {len(names)} names in its first line and {more} more field(s) in the "
        "second; wanted as many in every line, or in front of every row one more, its name"
    )


def _read_parquet(path: Path) -> pd.DataFrame:
    try:
        import pyarrow.parquet
    except ImportError as error:
        raise ModuleNotFoundError(
            "path: .parquet needs pyarrow; fix: pip install 'pyro-sparse[data]'"
        ) from error
    about = pyarrow.parquet.read_metadata(path)
    check_dense((about.num_rows, about.num_columns), f"path: {str(path)!r}")
    return pd.read_parquet(path)


def _read_h5ad(path: Path) -> pd.DataFrame:
    try:
        import anndata
        import h5py
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            "path: .h5ad needs anndata; fix: pip install 'pyro-sparse[single-cell]'"
        ) from error
    with h5py.File(path, "r") as file:
        check_hdf5(path, file)
    data = anndata.read_h5ad(path)
    if sp.issparse(data.X):
        check_sparse(data.X, f"path: X in {str(path)!r}")
    return data.to_df()


def _observations(path: Path, names: Sequence[str]) -> pd.DataFrame:
    """What an AnnData says of its rows beside their cells."""
    import anndata

    obs = anndata.read_h5ad(path, backed="r").obs
    return obs[[_match([name], [str(c) for c in obs.columns], "covariates, groups")[0] for name in names]]


def _read_npz(path: Path) -> pd.DataFrame:
    try:
        with zipfile.ZipFile(path) as packed:
            check_archive(path, packed)
    except zipfile.BadZipFile as error:
        raise ValueError(
            f"path: {path.name!r} is no NumPy archive, or cut short; write it with numpy.savez or "
            "scipy.sparse.save_npz"
        ) from error
    with np.load(path, allow_pickle=False) as archive:
        keys = list(archive.files)
        if {"format", "shape", "data"} <= set(keys):
            matrix = sp.load_npz(path)
            check_sparse(matrix, f"path: {str(path)!r}")
            check_dense(matrix.shape, f"path: {str(path)!r}")
            return pd.DataFrame(matrix.toarray()).add_prefix("x")
        try:
            arrays = {key: archive[key] for key in keys}
        except ValueError as error:
            if "allow_pickle" not in str(error):
                raise
            raise ValueError(
                f"path: {path.name!r} holds Python objects ({error}); save plain numbers and strings instead"
            ) from error
    tables = [key for key in keys if arrays[key].ndim == 2]
    key = "X" if "X" in tables else tables[0] if len(tables) == 1 else None
    if key is None:
        shapes = {k: v.shape for k, v in arrays.items()}
        raise ValueError(
            f"path: {path.name!r} holds {shapes}; wanted one array (row, feature), or name it 'X'"
        )
    x = arrays[key]
    names: dict[str, Any] = {}
    for label, length in (("feature_names", x.shape[1]), ("sample_names", x.shape[0])):
        names[label] = arrays.get(label)
        if names[label] is not None and names[label].shape != (length,):
            shape = names[label].shape
            raise ValueError(
                f"path: {label} in {path.name!r} has shape {shape}, {key} has {x.shape}; want ({length},)"
            )
    if names["feature_names"] is None:
        names["feature_names"] = [f"x{j}" for j in range(x.shape[1])]
    return pd.DataFrame(x, columns=names["feature_names"], index=names["sample_names"])


_READERS: dict[str, Callable[[Path], pd.DataFrame]] = {
    ".npz": _read_npz, ".h5ad": _read_h5ad, ".parquet": _read_parquet,
}  # fmt: skip


def _refuse_separator(path: Path, separator: str) -> None:
    """Complain of a first line that another separator divides: of spreadsheets with commas for decimals."""
    with get_handle(path, "r", compression="infer", encoding="utf-8-sig") as opened:
        first = opened.handle.readline().strip("\r\n")
        second = opened.handle.readline()
    try:
        fields = {
            delimiter: len(next(csv.reader([first], delimiter=delimiter), []))
            for delimiter in (";", "\t", "|", ",")
        }
    except csv.Error as error:
        raise ValueError(
            f"path: a field of the first line of {path.name!r}, {first[:20]!r} …, has over "
            f"{csv.field_size_limit():,} characters; wanted names of columns, is a quote left open?"
        ) from error
    likely = max(fields, key=fields.__getitem__)
    if (
        fields[likely] < 2
        or fields[separator] > 1
        and not (likely == ";" and fields[";"] > fields[separator])
    ):
        return
    comma = likely == ";" and re.search(r"\d,\d", second)
    how = f"sep={likely!r}" + (", decimal=','" if comma else "")
    out = "" if separator == "," else f", sep={separator!r}"
    raise ValueError(
        f"path: {path.name!r} is read with the separator {separator!r}, and its first line {first[:40]!r} "
        f"looks separated by {likely!r}{' (with commas for decimals)' if comma else ''}; write it again: "
        f"pandas.read_csv({path.name!r}, {how}).to_csv('new-{path.name}', index=False{out})"
    )


def _refuse_numbers(names: list[str], path: Path) -> None:
    """Complain of a first line that is one of the table: numbers, and not whole ones (years) or in order."""
    numbers = pd.to_numeric(pd.Series(names), errors="coerce").to_numpy(dtype=float)
    empty = np.array([name.lower() in ("", "na", "nan") for name in names])
    if names[0] == "" or empty.all() or not (np.isfinite(numbers) | empty).all():
        return
    last = np.flatnonzero(~empty)[-1] + 1  # separators at the end of the line are no names
    numbers, empty = numbers[:last][~empty[:last]], empty[:last]
    steps, whole = np.diff(numbers), (numbers == np.round(numbers)).all()
    if empty.any() or len(set(numbers)) < len(numbers):
        named = False
    else:
        named = whole or (len(numbers) >= _LEAST_GRID and ((steps > 0).all() or (steps < 0).all()))
    if not named:
        shown = ", ".join(map(repr, names[:3]))
        raise ValueError(
            f"path: the first line of {path.name!r} holds numbers ({shown}), wanted names of columns; write "
            "a line with names in front of it"
        )


def _refuse_repeats(names: list[str], path: Path) -> None:
    repeated = sorted(name for name, count in Counter(names).items() if count > 1)
    if repeated and repeated[0] == "":
        raise ValueError(
            f"path: the first line of {path.name!r} has {names.count('')} empty fields, wanted a name for "
            "every column; write them, or if it is a row of the table, a line with names in front of it"
        )
    if repeated:
        raise ValueError(
            f"path: column {repeated[0]!r} occurs {names.count(repeated[0])} times in {path.name!r}"
            f"{f' ({len(repeated)} such names)' if len(repeated) > 1 else ''}; give every column its own name"
        )


def _match(wanted: Sequence[str], names: list[str], argument: str) -> list[str]:
    """Names that `wanted` (names or shell patterns) picks, in the order of `names`."""
    picked: set[str] = set()
    for pattern in wanted:
        matches = [pattern] if pattern in names else [name for name in names if fnmatchcase(name, pattern)]
        if not matches:
            close = difflib.get_close_matches(pattern, names, n=3) or names[:5]
            raise ValueError(
                f"{argument}: {pattern!r} is no column of the file; did you mean one of {close}?"
            )
        picked.update(matches)
    return [name for name in names if name in picked]


def _numeric(frame: pd.DataFrame, path: Path) -> pd.DataFrame:
    frame, text = sort_out(frame)
    if text and len(frame):
        names = [name for name, _ in text]
        holds, sort = strangers(frame[names[0]])
        as_index = f"index={names[0]!r}, --index {shlex.quote(names[0])}"
        fix = f"if it names the rows, make it the index ({as_index})" if sort == "text" else _FIXES[sort]
        more = f" (and so do {len(text) - 1} more: {', '.join(names[1:6])})" if len(text) > 1 else ""
        line = io.StringIO()
        csv.writer(line, lineterminator="").writerow(names[:6])
        raise ValueError(
            f"columns: {names[0]!r} of {path.name!r} holds {holds}{more}, wanted numbers; drop it "
            f"(drop={names[:6]}, on the command line --drop {shlex.quote(line.getvalue())}), or {fix}"
        )
    return frame.astype(float)
