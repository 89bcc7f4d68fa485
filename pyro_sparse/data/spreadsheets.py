"""Sheets of .xlsx workbooks into DataFrames. Formulas are read as the values that were saved with them."""

from __future__ import annotations

import difflib
import warnings
import zipfile
from pathlib import Path

import pandas as pd

from .._utils.sources import check_archive, check_dense
from .text_files import refuse_numbers, refuse_repeats

__all__ = ["read_sheet"]


def read_sheet(path: Path, sheet: str | None = None) -> tuple[pd.DataFrame, list[str]]:
    """A sheet of a workbook, whose first row has the names of the columns, and what to say of the choice.

    Parameters
    ----------
    path : Path
    sheet : str, optional
        Its name, or its number from 1; default the first.

    Raises
    ------
    ModuleNotFoundError
        openpyxl is not installed.
    ValueError
        It is no workbook, has no such sheet, or the sheet has no names of columns.
    """
    try:
        import openpyxl
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            "path: .xlsx needs openpyxl; fix: pip install 'pyro-sparse[files]'"
        ) from error
    try:
        with zipfile.ZipFile(path) as packed:
            check_archive(path, packed)
    except zipfile.BadZipFile as error:
        raise ValueError(
            f"path: {path.name!r} is no .xlsx workbook, or has a password; save it as .xlsx without one, or "
            "as CSV"
        ) from error
    book = openpyxl.load_workbook(path, read_only=True, data_only=True)
    try:
        titles = [worksheet.title for worksheet in book.worksheets]
        name = _sheet_name(path, titles, sheet)
        size = (book[name].max_row or 0, book[name].max_column or 0)
    finally:
        book.close()
    if 0 in size:
        size = (1, 1)
    try:
        check_dense(size, f"path: sheet {name!r} of {str(path)!r}")
    except ValueError:  # formatting to the last row counts as well, and is no table
        if size[0] < 1_000_000 and size[1] < 16_000:
            raise
    with warnings.catch_warnings():  # of formats and drop-down lists that openpyxl does not keep
        warnings.simplefilter("ignore", UserWarning)
        cells = pd.read_excel(path, sheet_name=name, header=None, dtype=object, engine="openpyxl")
    cells = cells.dropna(how="all").dropna(how="all", axis=1)
    if cells.empty:
        raise ValueError(
            f"path: sheet {name!r} of {path.name!r} is empty; give sheet=, the one with the table"
        )
    head = cells.iloc[0]
    names = ["" if pd.isna(cell) else _as_name(cell) for cell in head]
    if len(names) > 2 and sum(name != "" for name in names) == 1:
        raise ValueError(
            f"path: the first row of sheet {name!r} of {path.name!r} holds {next(filter(None, names))!r} and "
            "nothing else, wanted names of columns; take titles and empty rows out above them"
        )
    refuse_numbers(names, path)
    refuse_repeats(names, path)
    frame = cells.iloc[1:].set_axis(names, axis=1).reset_index(drop=True)
    listed = ", ".join(map(repr, titles[:6])) + (", …" if len(titles) > 6 else "")
    several = f"{len(titles)} sheets ({listed}), and the first is read; sheet= names another"
    notes = [f"path: {path.name!r} has {several}"] if sheet is None and len(titles) > 1 else []
    return frame.infer_objects(), notes


def _sheet_name(path: Path, names: list[str], wanted: str | None) -> str:
    if not names:
        raise ValueError(f"path: {path.name!r} has no sheet with cells; save the table in one")
    if wanted is None:
        return names[0]
    if wanted in names:
        return wanted
    if wanted.isdecimal() and 1 <= int(wanted) <= len(names):
        return names[int(wanted) - 1]
    close = difflib.get_close_matches(wanted, names, n=3) or names[:6]
    raise ValueError(f"sheet: {path.name!r} has no sheet {wanted!r}; did you mean one of {close}?")


def _as_name(cell: object) -> str:
    """The name that a cell is; 2019 is read as 2019.0 where others in its row are numbers."""
    whole = isinstance(cell, float) and cell.is_integer()
    return str(int(cell) if whole else cell).strip()  # type: ignore[call-overload]
