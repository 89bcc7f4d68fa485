"""Files into DataFrames (row = sample, column = feature): text, workbooks, SPSS, Stata and arrays.

The reader decides which columns are features and which are row names; whether the numbers suit a likelihood
is for `pyro_sparse.fit` to say. Nothing is ever unpickled.
"""

from __future__ import annotations

import csv
import difflib
import io
import shlex
import warnings
import zipfile
from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import scipy.sparse as sp

from .._utils.sources import check_archive, check_dense, check_file, check_hdf5, check_sparse, reading
from .columns import sort_out, strangers
from .ordered_categories import words_of
from .spreadsheets import read_sheet
from .survey_files import read_survey
from .text_files import SEPARATORS, TextFormat, read_text, refuse_repeats
from .views import join_views

__all__ = ["read_table"]

KINDS = ".csv, .tsv, .tab, .txt, .xlsx, .sav, .dta, .parquet, .feather, .h5ad, .h5mu or .npz"
# What else than dropping it may be done with a column, by the sort of what it holds (`strangers`).
_FIXES = {
    "kind": "encode it",
    "nominal": "make a column of 0 and 1 for each (pandas.get_dummies)",
    "ordinal": "write the numbers of its categories",
    "levels": "write them as numbers",
    "mixed": "write 1 and 0 for them",
    "quoted": "write them without quotes",
    "comma": "say what the comma is: decimal=',' or thousands=','",
    "limits": "write the limit itself, or leave such cells empty",
    "marked": "write the numbers alone; where only digits are in groups, say by what: thousands=','",
    "cells": "leave such cells empty",
}
# What else people have tables in, and how to bring it here.
_FOREIGN = {
    ".xls": "open it in a spreadsheet and save it as .xlsx",
    ".xlsm": "open it in a spreadsheet and save it as .xlsx, without macros",
    ".xlsb": "open it in a spreadsheet and save it as .xlsx",
    ".ods": "open it in a spreadsheet and save it as .xlsx",
    ".numbers": "export it as CSV",
    ".rds": "in R: write.csv(x, 'table.csv')",
    ".rdata": "in R: write.csv(x, 'table.csv')",
    ".sas7bdat": "export it as CSV, or as .sav or .dta",
    ".json": "write it as CSV, a row for each sample",
    ".zip": "unpack it, and give the table that is in it",
}
_FEW_WORDS = 3  # in a column of numbers, that may stand for missing
_SHORT_WORD = 20  # characters
_COMPRESSED = {".gz", ".bz2", ".xz", ".zst"}


def read_table(
    path: str | Path,
    *,
    columns: Sequence[str] | None = None,
    drop: Sequence[str] | None = None,
    index: str | None = None,
    beside: Sequence[str] = (),
    sep: str | None = None,
    decimal: str | None = None,
    thousands: str | None = None,
    encoding: str | None = None,
    missing: Sequence[str | float] = (),
    sheet: str | int | None = None,
    layer: str | None = None,
    ordered: bool = False,
) -> pd.DataFrame:
    """Read a table of measurements.

    Parameters
    ----------
    path : str or Path
        ``.csv``; ``.tsv``, ``.tab``, ``.txt`` (tab separated); each also compressed (``.gz``, ``.bz2``,
        ``.xz``, ``.zst``); ``.xlsx``; SPSS's ``.sav``, ``.zsav`` and Stata's ``.dta`` (numbers, not their
        labels; what the file declares as missing is); ``.parquet``, ``.feather``; ``.h5ad`` (its ``X``);
        ``.h5mu`` (its views, joined as by `pyro_sparse.data.views.join_views`); ``.npz`` (a sparse matrix
        that scipy saved, or arrays of which one is two-dimensional or named ``X``; optional
        ``feature_names``, ``sample_names``).
    columns : sequence of str, optional
        Names or shell patterns (``"A*"``) of the columns to keep, in the order of the file; by default all.
    drop : sequence of str, optional
        Names or shell patterns of columns to leave out.
    index : str, optional
        The column with row names. By default a first column without a name, or without a place in the header,
        as pandas and R write it.
    beside : sequence of str
        Columns that are no features and may hold anything (batches, sites); of an AnnData those of `obs`.
    sep : str, optional
        Of text: what lies between fields, a character, "tab" or "space" (any white space). By default what
        the name of the file says; where the first lines allow another reading only, that one, with a warning.
    decimal, thousands : str, optional
        Marks in numbers that stand as text. By default "." and none; where fields are not separated by
        commas and numbers have some, as the first lines tell, with a warning.
    encoding : str, optional
        Of text, and of texts in ``.sav`` and ``.dta``; default UTF-8, or UTF-16 where a text is marked so.
    missing : sequence of str or number
        What stands for a missing cell, beside an empty one: codes (compared as numbers where cells are
        numbers: "-9" is -9.0) and words. Not in the column of row names.
    sheet : str or int, optional
        Of a workbook: the name of a sheet, or its number from 1; default the first.
    layer : str, optional
        Of an ``.h5ad`` file: the layer that holds the cells; default its ``X``.
    ordered : bool
        Keep columns of ordered categories, which Parquet and Feather files can hold, as they are.

    Returns
    -------
    DataFrame (row, feature)
        Numeric columns, and those that `ordered` keeps; an empty cell is NaN, True is 1 and False 0. Those of
        `beside` stand at the end, as they are.

    Raises
    ------
    FileNotFoundError
        There is no such file.
    ValueError
        Unknown kind of file, a broken one, one that can be read in several ways; repeated or unknown columns,
        numbers where names are wanted or text where numbers are; an argument that the kind of file has not.
    ModuleNotFoundError
        The kind of file needs an extra that is not installed.

    Warns
    -----
    UserWarning
        How a file was read where that is not what its name says; the first of several sheets; value labels
        that are read as numbers.
    """
    path = Path(path)
    check_file(path, "path", KINDS)
    kind = _kind(path)
    text_format = TextFormat(sep, decimal, thousands, encoding)
    _refuse_arguments(kind, text_format, sheet)
    if layer is not None and kind != ".h5ad":
        raise ValueError(f"layer: is of .h5ad files, and this is a {kind} file; leave it out")
    codes = _codes_of(missing)
    try:
        with reading(path, kind):
            frame, text_format, notes = _read(
                path, kind, text_format, codes, None if sheet is None else str(sheet), index, layer
            )
    except ValueError as error:
        if isinstance(error.__cause__, UnicodeError):
            raise ValueError(_not_decoded(path, encoding, error.__cause__)) from error
        raise
    for note in notes:  # here, where a warning that is made an error is no error of the file
        warnings.warn(note, stacklevel=2)

    names = [str(name) for name in frame.columns]
    refuse_repeats(names, path)
    frame.columns = pd.Index(names)
    if kind in (".h5ad", ".h5mu") and beside:
        frame = frame.join(_observations(path, beside))
    if index is not None:
        frame = frame.set_index(_match([index], names, "index")[0])
    elif kind in {*SEPARATORS, ".xlsx"} and names and names[0] == "":
        frame = frame.set_index("")
    frame = _without_codes(frame, codes)
    names = list(frame.columns)
    frame.index.name = None
    others = frame[[_match([name], names, "covariates, groups, sample_weight")[0] for name in beside]]
    names = [name for name in names if name not in set(beside)]
    kept = names if columns is None else _match(columns, names, "columns")
    dropped = [] if drop is None else _match(drop, names, "drop")
    frame = frame[[name for name in kept if name not in set(dropped)]]
    if frame.shape[1] == 0:
        raise ValueError(
            f"columns, drop: leave none of the {len(names)} columns of {str(path)!r}; choose fewer to drop"
        )
    kept_as_they_are = [name for name in frame.columns if ordered and words_of(frame[name].dtype)]
    numbers = _numeric(frame.drop(columns=kept_as_they_are), path, text_format)
    features = numbers.join(frame[kept_as_they_are])[list(frame.columns)]
    return features.join(others) if len(beside) else features


def _kind(path: Path) -> str:
    suffixes = [s.lower() for s in path.suffixes]
    if suffixes and suffixes[-1] in _COMPRESSED:
        suffixes.pop()
    kind = suffixes[-1] if suffixes else ""
    kind = {".pq": ".parquet", ".zsav": ".sav"}.get(kind, kind)
    if kind not in {*SEPARATORS, *_READERS, ".xlsx", ".sav", ".dta"}:
        fix = _FOREIGN.get(kind, "rename the file to what it is, or convert it to CSV")
        raise ValueError(f"path: {path.name!r} ends in {kind!r}, wanted {KINDS}; {fix}")
    return kind


def _refuse_arguments(kind: str, text_format: TextFormat, sheet: str | int | None) -> None:
    """Complain of arguments that this kind of file cannot have."""
    has = {
        **dict.fromkeys(SEPARATORS, {"sep", "decimal", "thousands", "encoding"}),
        ".xlsx": {"decimal", "thousands"},
    }
    has |= {".sav": {"encoding"}, ".dta": {"encoding"}}
    for name in text_format.given:
        if name not in has.get(kind, set()):
            kinds = ", ".join(key for key, arguments in has.items() if name in arguments)
            raise ValueError(f"{name}: is of {kinds} files, and this is a {kind} file; leave it out")
    if sheet is not None and kind != ".xlsx":
        raise ValueError(f"sheet: is of .xlsx workbooks, and this is a {kind} file; leave it out")


def _read(
    path: Path,
    kind: str,
    text_format: TextFormat,
    codes: list[str],
    sheet: str | None,
    index: str | None,
    layer: str | None,
) -> tuple[pd.DataFrame, TextFormat, list[str]]:
    """The table as the file has it, how a text was read, and what to say of that."""
    if kind in SEPARATORS:
        return read_text(path, SEPARATORS[kind], text_format, codes, index)
    notes: list[str] = []
    if kind == ".xlsx":
        frame, notes = read_sheet(path, sheet)
        frame = _with_marks(frame, text_format)
    elif kind in (".sav", ".dta"):
        frame, notes = read_survey(path, text_format.encoding)
    elif kind == ".h5ad":
        frame = _read_h5ad(path, layer)
    else:
        frame = _READERS[kind](path)
    return frame, text_format, notes


def _not_decoded(path: Path, encoding: str | None, error: BaseException) -> str:
    if encoding is not None:
        return (
            f"encoding: {path.name!r} is not {encoding} text ({error}); give the one that it was saved with"
        )
    return (
        f"path: {str(path)!r} is not UTF-8 text ({error}); give encoding='cp1252' (Windows, Western Europe) "
        "or encoding='latin-1', or save it as UTF-8 ('CSV UTF-8' in a spreadsheet)"
    )


def _codes_of(missing: Sequence[str | float]) -> list[str]:
    """Codes for missing cells as texts: 999.0 is "999"."""
    if isinstance(missing, str | bytes) or not isinstance(missing, Sequence):
        raise TypeError(f"missing: got {missing!r}, wanted a list of codes or words, such as [999, '-9']")
    texts = [code.strip() if isinstance(code, str) else f"{code:.15g}" for code in missing]
    if "" in texts:
        raise ValueError("missing: an empty cell is missing anyway; leave it out")
    return texts


def _without_codes(frame: pd.DataFrame, codes: Sequence[str]) -> pd.DataFrame:
    """The table with NaN in place of codes; those of columns of words may leave numbers behind."""
    if not codes:
        return frame
    numbers = pd.to_numeric(pd.Series(codes), errors="coerce").dropna().to_list()
    for j, kind in enumerate(frame.dtypes):
        column = frame.iloc[:, j]
        if pd.api.types.is_bool_dtype(kind):
            continue
        if pd.api.types.is_numeric_dtype(kind):
            is_code = column.isin(numbers)
        else:
            words = column.astype("string").str.strip()
            is_code = words.isin(codes) | (pd.to_numeric(words, errors="coerce").isin(numbers))
        if isinstance(kind, pd.CategoricalDtype):  # a code is no level
            labels = column.cat.categories
            words = labels.astype(str).str.strip()
            is_label = words.isin(codes) | pd.to_numeric(words, errors="coerce").isin(numbers)
            frame.isetitem(j, column.cat.remove_categories(labels[is_label]))
        elif is_code.fillna(False).any():
            cells = column.astype(float) if pd.api.types.is_integer_dtype(kind) else column
            frame.isetitem(j, cells.mask(is_code.fillna(False).astype(bool)).infer_objects())
    return frame


def _words(column: pd.Series) -> list[str]:
    """What is no number in a column and may stand for missing."""
    cells = column.dropna().astype(str).str.strip()
    words = cells[pd.to_numeric(cells, errors="coerce").isna()].unique().tolist()
    return words if len(words) <= _FEW_WORDS and all(len(word) <= _SHORT_WORD for word in words) else []


def _with_marks(frame: pd.DataFrame, text_format: TextFormat) -> pd.DataFrame:
    """Numbers that stand as text in a sheet, by the marks that the caller names."""
    decimal, thousands = text_format.decimal, text_format.thousands
    if decimal is None and thousands is None:
        return frame
    for j, kind in enumerate(frame.dtypes):
        if not (pd.api.types.is_object_dtype(kind) or pd.api.types.is_string_dtype(kind)):
            continue
        column = frame.iloc[:, j]
        words = column.where(column.map(lambda cell: isinstance(cell, str)))
        words = words.str.replace(thousands, "") if thousands else words
        words = words.str.replace(decimal, ".", regex=False) if decimal else words
        numbers = pd.to_numeric(words, errors="coerce")
        frame.isetitem(j, column.where(numbers.isna(), numbers).infer_objects())
    return frame


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


def _read_feather(path: Path) -> pd.DataFrame:
    try:
        import pyarrow  # noqa: F401, which pandas reads with
    except ImportError as error:
        raise ModuleNotFoundError(
            "path: .feather needs pyarrow; fix: pip install 'pyro-sparse[data]'"
        ) from error
    return pd.read_feather(path)


def _read_h5ad(path: Path, layer: str | None = None) -> pd.DataFrame:
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
    if layer is not None and layer not in data.layers:
        # since anndata 0.13 X is one of the layers, and called None
        names = ", ".join(repr(name) for name in data.layers if name is not None) or "none"
        raise ValueError(
            f"layer: {path.name!r} has no layer {layer!r}, its layers: {names}; name one of them"
        )
    cells = data.X if layer is None else data.layers[layer]
    if sp.issparse(cells):
        check_sparse(cells, f"path: {layer or 'X'} in {str(path)!r}")
    return data.to_df(layer)


def _read_h5mu(path: Path) -> pd.DataFrame:
    try:
        import h5py
        import mudata  # noqa: F401, which `_mudata` reads with
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            "path: .h5mu needs mudata; fix: pip install 'pyro-sparse[single-cell]'"
        ) from error
    with h5py.File(path, "r") as file:
        check_hdf5(path, file)
    views = _mudata(path)
    for name, view in views.mod.items():
        if sp.issparse(view.X):
            check_sparse(view.X, f"path: X of view {name!r} in {str(path)!r}")
    shape = (views.n_obs, sum(view.n_vars for view in views.mod.values()))
    check_dense(shape, f"path: the views of {str(path)!r} together")
    return join_views(dict(views.mod))


def _mudata(path: Path, backed: bool = False) -> Any:
    import mudata

    with warnings.catch_warnings():  # of how later versions will bring tables of rows together
        warnings.simplefilter("ignore", FutureWarning)
        return mudata.read_h5mu(path, backed=backed)


def _observations(path: Path, names: Sequence[str]) -> pd.DataFrame:
    """What an AnnData or a MuData says of its rows beside their cells."""
    if path.suffix.lower() == ".h5mu":
        obs = _mudata(path, backed=True).obs
    else:
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
    ".npz": _read_npz, ".h5ad": _read_h5ad, ".h5mu": _read_h5mu, ".parquet": _read_parquet,
    ".feather": _read_feather,
}  # fmt: skip


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


def _numeric(frame: pd.DataFrame, path: Path, text_format: TextFormat) -> pd.DataFrame:
    frame, text = sort_out(frame)
    if text and len(frame):
        names = [name for name, _ in text]
        holds, sort = strangers(frame[names[0]])
        as_index = f"index={names[0]!r}, --index {shlex.quote(names[0])}"
        fix = _fix_of_text(frame[names[0]], as_index) if sort == "text" else _FIXES[sort]
        if sort == "quoted" and text_format.decimal == ",":
            fix = "as they have a point, and the table is read with a comma for decimals, say decimal='.'"
        if sort == "cells" and (words := _words(frame[names[0]])):
            fix += f", or say what stands for missing: missing={words}"
        more = f" (and so do {len(text) - 1} more: {', '.join(names[1:6])})" if len(text) > 1 else ""
        line = io.StringIO()
        csv.writer(line, lineterminator="").writerow(names[:6])
        raise ValueError(
            f"columns: {names[0]!r} of {path.name!r} holds {holds}{more}, wanted numbers; drop it "
            f"(drop={names[:6]}, on the command line --drop {shlex.quote(line.getvalue())}), or {fix}"
            f"{_of_two_answers(frame[names[1:]])}"
        )
    return frame.astype(float)


def _fix_of_text(column: pd.Series, as_index: str) -> str:
    """What a column of words may be: names of rows, two answers, or groups."""
    words = _answers(column)
    if len(words) == column.notna().sum():
        return f"if it names the rows, make it the index ({as_index})"
    if len(words) == 2:
        return f"write 0 for {words[0]!r} and 1 for {words[1]!r}"
    name = shlex.quote(str(column.name))
    return f"if it says of which batch, site or person a row is, name it so (beside=, --groups {name})"


def _of_two_answers(others: pd.DataFrame) -> str:
    """That columns of two words can be kept, of those that are named beside the first."""
    for name, column in others.items():
        words = _answers(column) if not pd.api.types.is_numeric_dtype(column.dtype) else []
        if len(words) == 2 and column.notna().sum() > 2:
            return f"; two answers, such as {words[0]!r} and {words[1]!r} in {str(name)!r}, can be 0 and 1"
    return ""


def _answers(column: pd.Series) -> list[str]:
    words = column.dropna().astype(str).str.strip()
    return sorted(words[words != ""].unique())
