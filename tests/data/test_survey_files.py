"""SPSS and Stata: numbers and not labels; what the file declares as missing is."""

from __future__ import annotations

import sys

import numpy as np
import pandas as pd
import pytest
from pandas.testing import assert_frame_equal

from pyro_sparse.data.files import read_table

pyreadstat = pytest.importorskip("pyreadstat")


def test_spss_codes_labels_and_declared_missing_values(tmp_path):
    frame = pd.DataFrame({"q1": [1.0, 2, 9, 97], "q2": [1.5, np.nan, 2.5, 3], "who": ["a", "b", "c", "d"]})
    pyreadstat.write_sav(
        frame,
        str(tmp_path / "t.sav"),
        variable_value_labels={"q1": {1.0: "never", 2.0: "often"}},
        missing_ranges={"q1": [9, {"lo": 90, "hi": 99}]},
    )
    with pytest.warns(UserWarning, match=r"labels are read as their numbers \(q1\); codes .*q1: 9.*90 to 99"):
        found = read_table(tmp_path / "t.sav", index="who")
    wanted = pd.DataFrame({"q1": [1, 2, np.nan, np.nan], "q2": [1.5, np.nan, 2.5, 3]}, index=list("abcd"))
    assert_frame_equal(found, wanted)


@pytest.mark.parametrize(("name", "write"), [("t.dta", "write_dta"), ("t.zsav", "write_sav")])
def test_stata_and_compressed_spss(tmp_path, name, write):
    frame = pd.DataFrame({"a": [1.0, np.nan, 3.0], "größe": [4.0, 5.0, 6.0]})
    more = {"compress": True} if name == "t.zsav" else {}
    getattr(pyreadstat, write)(frame, str(tmp_path / name), **more)
    assert_frame_equal(read_table(tmp_path / name), frame)


def test_user_missing_codes_of_stata_are_missing(tmp_path):
    frame = pd.DataFrame({"a": [1.0, "a", 3.0], "b": [1.0, 2.0, 3.0]})
    pyreadstat.write_dta(frame, str(tmp_path / "t.dta"), missing_user_values={"a": ["a"]})
    assert read_table(tmp_path / "t.dta")["a"].isna().tolist() == [False, True, False]


def test_broken_files_and_a_library_that_is_missing(tmp_path, monkeypatch):
    (tmp_path / "t.sav").write_text("no table")
    with pytest.raises(ValueError, match=r"'.*t.sav' cannot be read as .sav"):
        read_table(tmp_path / "t.sav")
    monkeypatch.setitem(sys.modules, "pyreadstat", None)
    with pytest.raises(ModuleNotFoundError, match=r"pyreadstat; fix: pip install 'pyro-sparse\[files\]'"):
        read_table(tmp_path / "t.sav")
