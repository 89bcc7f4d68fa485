"""Sheets of workbooks come back as the tables that were written."""

from __future__ import annotations

import sys

import numpy as np
import pandas as pd
import pytest
from pandas.testing import assert_frame_equal

from pyro_sparse.data.files import read_table

pytest.importorskip("openpyxl")


@pytest.fixture
def frame():
    return pd.DataFrame({"a": [1.5, np.nan, 3.0], "b": [4.0, 5.0, 6.0]}, index=["p", "q", "r"])


def test_row_names_missing_cells_and_formatted_rows_below(frame, tmp_path):
    import openpyxl

    path = tmp_path / "t.xlsx"
    frame.to_excel(path)
    book = openpyxl.load_workbook(path)
    book.active["F40"].font = openpyxl.styles.Font(bold=True)
    book.save(path)
    assert_frame_equal(read_table(path), frame)


def test_which_sheet(frame, tmp_path):
    path = tmp_path / "t.xlsx"
    with pd.ExcelWriter(path) as book:
        frame.to_excel(book, sheet_name="wave 1")
        (frame + 10).to_excel(book, sheet_name="wave 2")
        pd.DataFrame().to_excel(book, sheet_name="notes", index=False)
    with pytest.warns(UserWarning, match=r"3 sheets \('wave 1', 'wave 2', 'notes'\), and the first is read"):
        assert_frame_equal(read_table(path), frame)
    for sheet in ("wave 2", "2", 2):
        assert_frame_equal(read_table(path, sheet=sheet), frame + 10)
    with pytest.raises(ValueError, match=r"sheet: 't.xlsx' has no sheet 'wave2'; did you mean .*'wave 2'"):
        read_table(path, sheet="wave2")
    with pytest.raises(ValueError, match="sheet 'notes' of 't.xlsx' is empty"):
        read_table(path, sheet="notes")


def test_numbers_that_are_text(tmp_path):
    pd.DataFrame({"a": ["1.234,5", "-"], "b": [1, 2]}).to_excel(tmp_path / "t.xlsx", index=False)
    found = read_table(tmp_path / "t.xlsx", decimal=",", thousands=".", missing=["-"])
    assert found["a"].iloc[0] == 1234.5 and np.isnan(found["a"].iloc[1])


def test_what_is_no_table(tmp_path):
    path = tmp_path / "t.xlsx"
    rows = [["Survey of 2019", None, None], ["a", "b", "c"], [1, 2, 3]]
    pd.DataFrame(rows).to_excel(path, index=False, header=False)
    with pytest.raises(ValueError, match="holds 'Survey of 2019' and nothing else.*take titles"):
        read_table(path)
    pd.DataFrame([["a", "a"], [1, 2]]).to_excel(path, index=False, header=False)
    with pytest.raises(ValueError, match="column 'a' occurs 2 times"):
        read_table(path)
    path.write_text("a,b\n1,2\n")
    with pytest.raises(ValueError, match="is no .xlsx workbook, or has a password"):
        read_table(path)


def test_years_are_names(tmp_path):
    pd.DataFrame([[2019, 2020], [1.5, 2]]).to_excel(tmp_path / "t.xlsx", index=False, header=False)
    assert list(read_table(tmp_path / "t.xlsx").columns) == ["2019", "2020"]


def test_without_the_library_the_fix_is_named(frame, tmp_path, monkeypatch):
    frame.to_excel(tmp_path / "t.xlsx")
    monkeypatch.setitem(sys.modules, "openpyxl", None)
    with pytest.raises(ModuleNotFoundError, match=r"needs openpyxl; fix: pip install 'pyro-sparse\[files\]'"):
        read_table(tmp_path / "t.xlsx")
