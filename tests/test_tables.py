"""Every kind of file comes back as the frame that was written; every broken one says what to do."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from numpy.testing import assert_array_equal
from pandas.testing import assert_frame_equal

from pyro_sparse.tables import read_table


@pytest.fixture
def frame():
    x = np.arange(12, dtype=float).reshape(4, 3)
    x[1, 2] = np.nan
    return pd.DataFrame(x, columns=["A1", "A2", "B1"], index=["p", "q", "r", "s"])


@pytest.mark.parametrize(
    ("name", "separator"), [("t.csv", ","), ("t.tsv", "\t"), ("t.CSV", ","), ("t.csv.gz", ",")]
)
def test_text_with_unnamed_row_names(frame, tmp_path, name, separator):
    frame.to_csv(tmp_path / name, sep=separator)
    assert_frame_equal(read_table(tmp_path / name), frame)


def test_csv_without_row_names_keeps_every_column(frame, tmp_path):
    frame.to_csv(tmp_path / "t.csv", index=False)
    assert_frame_equal(read_table(tmp_path / "t.csv"), frame.reset_index(drop=True))


@pytest.mark.parametrize(("name", "separator"), [("t.csv", ","), ("t.tsv", "\t")])
@pytest.mark.parametrize("rows", [list("pqrs"), [1, 2, 3, 4]], ids=["text", "numbers"])
def test_row_names_without_a_place_in_the_header(frame, tmp_path, name, separator, rows):
    """R's write.table: the header is one field shorter than the rows."""
    frame.index = rows
    body = frame.to_csv(sep=separator, header=False)
    (tmp_path / name).write_text(f"{separator.join(frame.columns)}\n{body}")
    assert_frame_equal(read_table(tmp_path / name), frame)


def test_separators_at_the_ends_of_rows_are_no_field(tmp_path):
    (tmp_path / "t.csv").write_text("a,b\n1,2,\n3,4,\n")
    assert_frame_equal(read_table(tmp_path / "t.csv"), pd.DataFrame({"a": [1.0, 3.0], "b": [2.0, 4.0]}))
    (tmp_path / "t.csv").write_text(",a\np,1,\nq,3,\n")
    assert_frame_equal(read_table(tmp_path / "t.csv"), pd.DataFrame({"a": [1.0, 3.0]}, index=["p", "q"]))


@pytest.mark.parametrize("text", ["a,b\n1,2,3,4\n5,6,7,8\n", "a,b\n1,2,3\n4,5\n", ",a\np,1,2\nq,3,4\n"])
def test_rows_that_do_not_suit_the_header_are_refused(tmp_path, text):
    (tmp_path / "t.csv").write_text(text)
    with pytest.raises(ValueError, match=r"'t.csv' has 2 names in its first line and [12] more field\(s\)"):
        read_table(tmp_path / "t.csv")


def test_index_column(frame, tmp_path):
    frame.rename_axis("who").to_csv(tmp_path / "t.csv")
    assert_frame_equal(read_table(tmp_path / "t.csv", index="who"), frame)
    with pytest.raises(ValueError, match=r"'who' of 't.csv' holds text \('p', 'q', 'r'\).*--drop who"):
        read_table(tmp_path / "t.csv")


def test_parquet(frame, tmp_path):
    pytest.importorskip("pyarrow")
    frame.to_parquet(tmp_path / "t.parquet")
    assert_frame_equal(read_table(tmp_path / "t.parquet"), frame)


def test_h5ad(frame, tmp_path):
    anndata = pytest.importorskip("anndata")
    anndata.AnnData(frame.fillna(0.0)).write_h5ad(tmp_path / "t.h5ad")
    assert_frame_equal(read_table(tmp_path / "t.h5ad"), frame.fillna(0.0), check_names=False)


def test_npz_with_names(frame, tmp_path):
    np.savez(
        tmp_path / "t.npz",
        X=frame,
        other=np.eye(2),
        feature_names=[*frame.columns],
        sample_names=[*frame.index],
    )
    assert_frame_equal(read_table(tmp_path / "t.npz"), frame)


def test_npz_of_one_array_and_of_a_sparse_matrix(frame, tmp_path):
    np.savez(tmp_path / "dense.npz", counts=frame.to_numpy())
    got = read_table(tmp_path / "dense.npz")
    assert list(got.columns) == ["x0", "x1", "x2"]
    assert_array_equal(got, frame)
    sp.save_npz(tmp_path / "sparse.npz", sp.csr_matrix(frame.fillna(0.0)))
    assert_array_equal(read_table(tmp_path / "sparse.npz"), frame.fillna(0.0))


def test_npz_never_unpickles(tmp_path):
    np.savez(tmp_path / "t.npz", X=np.array([[{}, {}]], dtype=object))
    with pytest.raises(ValueError, match="holds Python objects.*save plain numbers"):
        read_table(tmp_path / "t.npz")


def test_npz_with_two_tables_or_wrong_names(tmp_path):
    np.savez(tmp_path / "two.npz", a=np.eye(2), b=np.eye(3))
    with pytest.raises(ValueError, match=r"holds \{'a': \(2, 2\), 'b': \(3, 3\)\}.*name it 'X'"):
        read_table(tmp_path / "two.npz")
    np.savez(tmp_path / "names.npz", X=np.eye(3), feature_names=["a", "b"])
    with pytest.raises(ValueError, match=r"feature_names in 'names.npz' has shape \(2,\), X has \(3, 3\)"):
        read_table(tmp_path / "names.npz")


def test_columns_and_drop_take_names_and_patterns(frame, tmp_path):
    frame.to_csv(tmp_path / "t.csv", index=False)
    assert list(read_table(tmp_path / "t.csv", columns=["B1", "A*"]).columns) == ["A1", "A2", "B1"]
    assert list(read_table(tmp_path / "t.csv", columns=["A*"], drop=["A2"]).columns) == ["A1"]
    with pytest.raises(ValueError, match=r"drop: 'A3' is no column of the file; did you mean one of \['A"):
        read_table(tmp_path / "t.csv", drop=["A3"])
    with pytest.raises(ValueError, match="leave none of the 3 columns"):
        read_table(tmp_path / "t.csv", drop=["*"])


def test_advice_can_be_pasted(tmp_path):
    frame = pd.DataFrame({"a,x": ["u", "v"], "b c": ["u", "v"], "d": [1.0, 2.0]})
    frame.to_csv(tmp_path / "t.csv", index=False)
    with pytest.raises(ValueError, match="--drop '\"a,x\",b c'.* --index a,x"):
        read_table(tmp_path / "t.csv")


def test_a_pattern_is_first_a_name(tmp_path):
    pd.DataFrame({"a[1]": [1.0, 2.0], "a1": [3.0, 4.0]}).to_csv(tmp_path / "t.csv", index=False)
    assert list(read_table(tmp_path / "t.csv", columns=["a[1]"]).columns) == ["a[1]"]


def test_refusals(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"there is no file .*absent.csv"):
        read_table(tmp_path / "absent.csv")
    (tmp_path / "t.xlsx").write_text("")
    with pytest.raises(ValueError, match="'t.xlsx' ends in '.xlsx', wanted .csv"):
        read_table(tmp_path / "t.xlsx")
    (tmp_path / "empty.csv").write_text("")
    with pytest.raises(ValueError, match=r"cannot be read as .csv"):
        read_table(tmp_path / "empty.csv")
    (tmp_path / "twice.csv").write_text("a,b,a\n1,2,3\n")
    with pytest.raises(ValueError, match="column 'a' occurs 2 times in 'twice.csv'"):
        read_table(tmp_path / "twice.csv")
    (tmp_path / "other.csv").write_text("a;b;c\n1,5;2;3\n")
    with pytest.raises(
        ValueError, match="'other.csv' is read with .* ',' and .* 'a;b;c'; .* separated by ';'"
    ):
        read_table(tmp_path / "other.csv")
    (tmp_path / "other.tsv").write_text("a,b\n1,2\n")
    with pytest.raises(ValueError, match="it looks separated by ',', so write it again with '\\\\t'"):
        read_table(tmp_path / "other.tsv")
    (tmp_path / "not.npz").write_text("no archive")
    with pytest.raises(ValueError, match=r"not.npz"):
        read_table(tmp_path / "not.npz")
    (tmp_path / "not.parquet").write_text("no parquet")
    with pytest.raises(ValueError, match=r"not.parquet"):
        read_table(tmp_path / "not.parquet")


def test_a_ragged_row_is_refused(tmp_path):
    (tmp_path / "ragged.csv").write_text("a,b\n1,2\n3,4,5\n")
    with pytest.raises(ValueError, match="cannot be read as .csv"):
        read_table(tmp_path / "ragged.csv")


def test_no_rows_is_left_to_the_fit(tmp_path):
    (tmp_path / "t.csv").write_text("a,b\n")
    assert read_table(tmp_path / "t.csv").shape == (0, 2)
