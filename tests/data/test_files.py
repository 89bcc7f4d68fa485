"""Every kind of file comes back as the frame that was written; every broken one says what to do."""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from numpy.testing import assert_array_equal
from pandas.testing import assert_frame_equal

from pyro_sparse.data.files import read_table

RNG = np.random.default_rng(0)


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


@pytest.mark.parametrize(
    "ids", [[0, 1, 2], [1, 2, 3], [10, 8, 6], [3, 1, 7], [0.0, 1.0, 2.0], ["p", "q", "r"]]
)
@pytest.mark.parametrize("separator", [",", "\t"])
def test_separators_at_the_ends_of_rows_shift_no_column_whatever_the_first_holds(tmp_path, ids, separator):
    """pandas 3 gives evenly spaced row names a RangeIndex, as a table without row names has."""
    path = tmp_path / f"t{'.csv' if separator == ',' else '.tsv'}"
    rows = [f"{one},{2.5 * j},{j % 2}" for j, one in enumerate(ids)]
    path.write_text("\n".join(["id,a,b", *(f"{row}," for row in rows)]).replace(",", separator))
    found = read_table(path, index="id")
    assert list(found.index) == ids
    assert_frame_equal(found.reset_index(drop=True), pd.DataFrame({"a": [0.0, 2.5, 5.0], "b": [0.0, 1, 0]}))
    path.write_text("\n".join(["a,b", *rows]).replace(",", separator))  # and R's row names stay row names
    assert list(read_table(path).index) == ids
    path.write_text("\n".join(["id,a,b", *rows]).replace(",", separator))
    assert list(read_table(path, columns=["a", "b"]).index) == [0, 1, 2]
    path.write_text("\n".join(["id,a,b,", *rows]).replace(",", separator))  # at the end of the header only
    assert_frame_equal(read_table(path, index="id").iloc[:, :2], found)


@pytest.mark.parametrize("text", ["a,b\n1,2,3,4\n5,6,7,8\n", "a,b\n1,2,3\n4,5\n", ",a\np,1,2\nq,3,4\n"])
def test_rows_that_do_not_suit_the_header_are_refused(tmp_path, text):
    (tmp_path / "t.csv").write_text(text)
    with pytest.raises(ValueError, match=r"'t.csv' has 2 names in its first line and [12] more field\(s\)"):
        read_table(tmp_path / "t.csv")


def test_years_with_a_separator_at_the_end_of_the_line_are_names(tmp_path):
    (tmp_path / "t.csv").write_text("2001,2002,\n1,2,\n3,5,\n")
    assert list(read_table(tmp_path / "t.csv").columns)[:2] == ["2001", "2002"]


@pytest.mark.parametrize("first", ["0.5,1", "1,1", "0.5,", "-1e-3,NA", "0.5,0.7,0.9", "2001,,2003"])
def test_a_first_line_of_numbers_is_no_header(tmp_path, first):
    rows = "\n".join(",".join(map(str, row)) for row in RNG.normal(size=(3, first.count(",") + 1)))
    (tmp_path / "t.csv").write_text(f"{first}\n{rows}\n")
    with pytest.raises(
        ValueError, match=r"the first line of 't.csv' holds numbers \(.*names of columns; write"
    ):
        read_table(tmp_path / "t.csv")


@pytest.mark.parametrize(
    "names", [["2010", "2011"], ["", "0.1", "0.2"], ["a", "0.2"], [f"{400 + j / 2}" for j in range(6)]]
)
def test_columns_may_be_called_by_numbers(tmp_path, names):
    (tmp_path / "t.csv").write_text(f"{','.join(names)}\n{','.join('123456'[: len(names)])}\n")
    assert list(read_table(tmp_path / "t.csv").columns) == [name for name in names if name]


@pytest.mark.parametrize(
    ("cells", "message"),
    [
        (
            ["0.1", "0.2", "", "-", "x"],
            r"text in 2 of 5 cells \('-', 'x'; the first in row 3, counted from 0\).*leave such",
        ),
        (
            ["0.1", "NULL!", "3"],
            r"text in 1 of 3 cells \('NULL!'; the first in row 1, counted from 0\).*missing=\['NULL!'\]$",
        ),
        (['"0,1"', '"2,5"', "3"], r"numbers with a comma \('0,1', '2,5'\).*decimal=',' or thousands=','"),
        (['"3,934.6"', "2.5", "1"], r"numbers with other signs \('3,934.6'\).*thousands=','"),
        (["<0.5", "2.5", "1"], r"numbers beyond a limit \('<0.5'\).*the limit itself, or leave"),
        (["True", "-", "False"], r"text in 1 of 3 cells \('-'; the first in row 1, counted from 0\)"),
        (["True", "0", "1"], r"True or False among numbers.*write 1 and 0"),
    ],
)
def test_cells_that_are_no_numbers_are_named(tmp_path, cells, message):
    (tmp_path / "t.csv").write_text("a,b\n" + "".join(f"1,{cell}\n" for cell in cells))
    with pytest.raises(ValueError, match=f"'b' of 't.csv' holds {message}"):
        read_table(tmp_path / "t.csv")


def test_true_and_false_are_one_and_zero(tmp_path):
    (tmp_path / "t.csv").write_text("a,b\nTrue,true\nFalse,\nTrue,false\n")
    wanted = pd.DataFrame({"a": [1.0, 0, 1], "b": [1.0, np.nan, 0]})
    assert_frame_equal(read_table(tmp_path / "t.csv"), wanted)


def test_dates_and_numbers_as_text_in_parquet(tmp_path):
    pytest.importorskip("pyarrow")
    frame = pd.DataFrame({"day": pd.to_datetime(["2020", "2021"]), "text": ["1", "2"]})
    frame.to_parquet(tmp_path / "t.parquet")
    with pytest.raises(ValueError, match=r"'day' of 't.parquet' holds datetime64.*and so do 1 more: text"):
        read_table(tmp_path / "t.parquet")
    with pytest.raises(ValueError, match=r"'text' of 't.parquet' holds numbers as text"):
        read_table(tmp_path / "t.parquet", drop=["day"])


def test_index_column(frame, tmp_path):
    frame.rename_axis("who").to_csv(tmp_path / "t.csv")
    assert_frame_equal(read_table(tmp_path / "t.csv", index="who"), frame)
    with pytest.raises(ValueError, match=r"'who' of 't.csv' holds text \('p', 'q', 'r'\).*--drop who"):
        read_table(tmp_path / "t.csv")


def test_a_column_of_words_is_names_answers_or_groups(tmp_path):
    """Yes and no were to be dropped, or to name the rows."""
    table = pd.DataFrame({
        "name": list("pqrstu"), "passed": ["yes", "no"] * 3, "school": list("aabbcc"), "x": range(6),
    })  # fmt: skip
    table.to_csv(tmp_path / "t.csv", index=False)

    def complaint(**options):
        with pytest.raises(ValueError, match="wanted numbers") as error:
            read_table(tmp_path / "t.csv", **options)
        return str(error.value)

    text = complaint()
    assert "if it names the rows, make it the index (index='name', --index name)" in text
    assert text.endswith("; two answers, such as 'no' and 'yes' in 'passed', can be 0 and 1")
    assert complaint(index="name").endswith("--drop passed,school), or write 0 for 'no' and 1 for 'yes'")
    assert "name it so (beside=, --groups school)" in complaint(drop=["name", "passed"])


def test_parquet(frame, tmp_path):
    pytest.importorskip("pyarrow")
    frame.to_parquet(tmp_path / "t.parquet")
    assert_frame_equal(read_table(tmp_path / "t.parquet"), frame)


def test_feather(frame, tmp_path):
    pytest.importorskip("pyarrow")
    frame.reset_index(drop=True).to_feather(tmp_path / "t.feather")
    assert_frame_equal(read_table(tmp_path / "t.feather"), frame.reset_index(drop=True))


@pytest.mark.parametrize(
    ("categories", "code", "left"),
    [(["never", "often", "refused"], "refused", ["never", "often"]), ([1, 2, 9], 9, [1, 2])],
)
def test_ordered_categories_are_kept_where_asked_and_codes_are_no_level(tmp_path, categories, code, left):
    pytest.importorskip("pyarrow")
    levels = pd.Categorical.from_codes([0, 1, 2, -1], categories, ordered=True)
    frame = pd.DataFrame({"q": levels, "x": [1.0, 2.0, 3.0, 4.0]})
    frame.to_feather(tmp_path / "t.feather")
    assert_frame_equal(read_table(tmp_path / "t.feather", ordered=True), frame)
    with pytest.raises(ValueError, match="'q' of 't.feather' holds ordered categories"):
        read_table(tmp_path / "t.feather")
    read = read_table(tmp_path / "t.feather", ordered=True, missing=[code])
    assert read["q"].cat.categories.tolist() == left
    assert read["q"].isna().tolist() == [False, False, True, True]


def test_a_layer_of_h5ad_is_read_where_asked(frame, tmp_path):
    anndata = pytest.importorskip("anndata")
    data = anndata.AnnData(frame.fillna(0.0))
    data.layers["counts"] = sp.csr_matrix(2 * data.X)
    data.write_h5ad(tmp_path / "t.h5ad")
    counts = read_table(tmp_path / "t.h5ad", layer="counts")
    assert_frame_equal(counts, 2 * frame.fillna(0.0), check_names=False)
    with pytest.raises(
        ValueError, match="layer: 't.h5ad' has no layer 'raw', its layers: 'counts'; name one"
    ):
        read_table(tmp_path / "t.h5ad", layer="raw")
    frame.to_csv(tmp_path / "t.csv")
    with pytest.raises(ValueError, match=r"layer: is of .h5ad files, and this is a .csv file; leave it out"):
        read_table(tmp_path / "t.csv", layer="counts")


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
    with pytest.raises(FileNotFoundError, match="is a folder; give a .csv"):
        read_table(tmp_path)
    with pytest.raises(FileNotFoundError, match=r"there is no file .*absent.csv"):
        read_table(tmp_path / "absent.csv")
    (tmp_path / "t.ods").write_text("no table")
    with pytest.raises(ValueError, match="'t.ods' ends in '.ods', wanted .csv.*save it as .xlsx"):
        read_table(tmp_path / "t.ods")
    (tmp_path / "empty.csv").write_text("")
    with pytest.raises(ValueError, match=r"empty.csv' is empty \(0 bytes\); give a .csv"):
        read_table(tmp_path / "empty.csv")
    (tmp_path / "twice.csv").write_text("a,b,a\n1,2,3\n")
    with pytest.raises(ValueError, match="column 'a' occurs 2 times in 'twice.csv'"):
        read_table(tmp_path / "twice.csv")
    (tmp_path / "not.npz").write_text("no archive")
    with pytest.raises(ValueError, match=r"not.npz"):
        read_table(tmp_path / "not.npz")
    (tmp_path / "not.parquet").write_text("no parquet")
    with pytest.raises(ValueError, match=r"not.parquet"):
        read_table(tmp_path / "not.parquet")


def test_a_first_line_with_empty_cells_is_no_header(tmp_path):
    (tmp_path / "t.csv").write_text(",1.5,,2.5,\n1,2,3,4,5\n")
    with pytest.raises(ValueError, match="first line of 't.csv' has 3 empty fields, wanted .* in front"):
        read_table(tmp_path / "t.csv")


def test_text_that_is_not_utf8_says_how_to_save_it(tmp_path):
    (tmp_path / "latin.csv").write_bytes("größe,b\n1,2\n".encode("latin-1"))
    with pytest.raises(ValueError, match=r"latin.csv' is not UTF-8 text .*encoding='cp1252'.*save it as"):
        read_table(tmp_path / "latin.csv")
    assert list(read_table(tmp_path / "latin.csv", encoding="cp1252").columns) == ["größe", "b"]
    with pytest.raises(ValueError, match=r"encoding: 'latin.csv' is not utf-16 text"):
        read_table(tmp_path / "latin.csv", encoding="utf-16")


@pytest.mark.parametrize("ending", ["csv", "xlsx", "parquet", "npz"])
def test_codes_for_missing_cells_are_compared_as_numbers(tmp_path, ending):
    pytest.importorskip("openpyxl" if ending == "xlsx" else "pyarrow" if ending == "parquet" else "numpy")
    frame = pd.DataFrame({"a": [1.0, -9.0, 999.0, 4.5], "b": [-9, 2, 3, 999]})
    path = tmp_path / f"t.{ending}"
    if ending == "csv":
        path.write_text("a,b\n1,-9.0\n-9,2\n999,3\n4.5,9.99e2\n")
    elif ending == "npz":
        np.savez(path, X=frame, feature_names=["a", "b"])
    else:
        getattr(frame, {"xlsx": "to_excel", "parquet": "to_parquet"}[ending])(path, index=False)
    wanted = pd.DataFrame({"a": [1.0, np.nan, np.nan, 4.5], "b": [np.nan, 2.0, 3.0, np.nan]})
    assert_frame_equal(read_table(path, missing=[999, "-9"]), wanted)


def test_words_for_missing_cells_and_names_of_rows_that_look_like_them(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("id,a,site\n999,1,x\n2,refused,unknown\n3, 999 ,y\n")
    frame = read_table(path, index="id", beside=["site"], missing=["999", "refused", "unknown"])
    assert list(frame.index) == [999, 2, 3] and frame["a"].isna().tolist() == [False, True, True]
    assert frame["site"].isna().tolist() == [False, True, False]
    with pytest.raises(ValueError, match=r"missing=\['refused'\]"):
        read_table(path, drop=["site"])
    with pytest.raises(TypeError, match="missing: got '999', wanted a list"):
        read_table(path, missing="999")
    with pytest.raises(ValueError, match="missing: an empty cell is missing anyway"):
        read_table(path, missing=[""])


@pytest.mark.parametrize(
    ("name", "arguments", "words"),
    [
        ("t.parquet", {"sep": ";"}, "sep: is of .csv, .tsv, .tab, .txt files, and this is a .parquet file"),
        ("t.csv", {"sheet": 2}, "sheet: is of .xlsx workbooks, and this is a .csv file"),
        ("t.sav", {"decimal": ","}, "decimal: is of .csv, .tsv, .tab, .txt, .xlsx files"),
        ("t.csv", {"sep": ";;"}, "sep: got ';;', wanted what lies between fields"),
        ("t.csv", {"decimal": "x"}, "decimal: got 'x', wanted the mark"),
        ("t.csv", {"decimal": ",", "thousands": ","}, "two different marks"),
        ("t.csv", {"encoding": "utf9"}, "encoding: got 'utf9', which is none that Python knows"),
    ],
)
def test_arguments_that_do_not_suit_the_file(tmp_path, name, arguments, words):
    (tmp_path / name).write_text("a,b\n1,2\n")
    with pytest.raises(ValueError, match=words):
        read_table(tmp_path / name, **arguments)


def test_views_of_a_mudata(tmp_path):
    mudata, anndata = pytest.importorskip("mudata"), pytest.importorskip("anndata")
    rna = anndata.AnnData(pd.DataFrame({"g1": [1.0, 2], "g2": [3.0, 4]}, index=["a", "b"]))
    protein = anndata.AnnData(pd.DataFrame({"p1": [5.0, 6]}, index=["b", "c"]))
    with warnings.catch_warnings():  # of its own next version
        warnings.simplefilter("ignore", FutureWarning)
        views = mudata.MuData({"rna": rna, "protein": protein})
        views.obs["batch"] = pd.Categorical(["x", "y", "x"])
        views.write_h5mu(tmp_path / "t.h5mu")
    frame = read_table(tmp_path / "t.h5mu", beside=["batch"])
    assert list(frame.columns) == ["rna:g1", "rna:g2", "protein:p1", "batch"]
    assert frame.loc["c"].isna().tolist() == [True, True, False, False]
    assert list(read_table(tmp_path / "t.h5mu").columns) == ["rna:g1", "rna:g2", "protein:p1"]


def test_a_ragged_row_is_refused(tmp_path):
    (tmp_path / "ragged.csv").write_text("a,b\n1,2\n3,4,5\n")
    with pytest.raises(ValueError, match="cannot be read as .csv"):
        read_table(tmp_path / "ragged.csv")


def test_no_rows_is_left_to_the_fit(tmp_path):
    (tmp_path / "t.csv").write_text("a,b\n")
    assert read_table(tmp_path / "t.csv").shape == (0, 2)


def test_columns_beside_the_features_may_hold_anything(frame, tmp_path):
    site = ["north", "south"] * (len(frame) // 2) + ["north"] * (len(frame) % 2)
    frame.assign(site=site, grade="a").to_csv(tmp_path / "t.csv")
    table = read_table(tmp_path / "t.csv", columns=[*frame.columns[:2]], beside=["site"])
    assert list(table.columns) == [*frame.columns[:2], "site"] and table["site"].tolist() == site
    with pytest.raises(ValueError, match="'batch'"):
        read_table(tmp_path / "t.csv", beside=["batch"])
    with pytest.raises(ValueError, match="grade"):  # text that is not asked for is an error still
        read_table(tmp_path / "t.csv", beside=["site"])


def test_of_an_anndata_they_are_columns_of_obs(frame, tmp_path):
    anndata = pytest.importorskip("anndata")
    cells = anndata.AnnData(frame.fillna(0.0))
    cells.obs["batch"] = pd.Categorical(["a", "b"] * (len(frame) // 2) + ["a"] * (len(frame) % 2))
    cells.write_h5ad(tmp_path / "t.h5ad")
    table = read_table(tmp_path / "t.h5ad", beside=["batch"])
    assert table["batch"].astype(str).tolist() == cells.obs["batch"].astype(str).tolist()
    assert_frame_equal(table[frame.columns], frame.fillna(0.0), check_names=False)
    with pytest.raises(ValueError, match="'site'"):
        read_table(tmp_path / "t.h5ad", beside=["site"])
