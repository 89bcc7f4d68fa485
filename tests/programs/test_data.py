"""Tables with what is known of their rows and features: by hand, and every complaint."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import torch

from pyro_sparse.programs import Data
from pyro_sparse.programs.data import FactorAxis

X = np.arange(12.0).reshape(4, 3) ** 1.5


def test_missing_cells_are_marked_and_filled_with_the_median_of_their_column():
    x = X.copy()
    x[1, 0] = x[3, 0] = x[0, 2] = np.nan
    data = Data(x)
    np.testing.assert_array_equal(data.seen, ~np.isnan(x))
    assert data.x[1, 0] == data.x[3, 0] == (X[0, 0] + X[2, 0]) / 2
    assert data.x[0, 2] == X[2, 2]
    np.testing.assert_array_equal(data.x[data.seen], X[data.seen])
    assert len(data) == 4


def test_names_are_those_of_a_frame_or_given_or_numbers():
    frame = pd.DataFrame(X, index=list("pqrs"), columns=["a", "b", "c"])
    assert (Data(frame).sample_names, Data(frame).feature_names) == (list("pqrs"), ["a", "b", "c"])
    assert Data(X, feature_names=["u", "v", "w"]).feature_names == ["u", "v", "w"]
    assert Data(X).sample_names == ["0", "1", "2", "3"]
    assert len(set(Data(X).feature_names)) == 3


def test_labels_become_their_numbers_in_natural_order():
    data = Data(
        X,
        rows={"site": ["site 10", "site 2", "site 10", "site 1"]},
        features={"kind": pd.Categorical(["low", "high", "low"], categories=["low", "high"], ordered=True)},
    )
    assert data.labels["site"] == ["site 1", "site 2", "site 10"]
    assert data.rows["site"].tolist() == [2, 1, 2, 0] and data.rows["site"].dtype == np.int64
    assert data.labels["kind"] == ["low", "high"]
    assert data.features["kind"].tolist() == [0, 1, 0]
    view = data.view(2)
    assert (view.levels("site"), view.levels("kind")) == (3, 2)
    assert view.site.dtype == torch.int64


def test_numbers_stay_numbers():
    dose = np.array([[1, 2], [3, 4], [5, 6], [7, 8]])
    data = Data(X, rows={"dose": dose, "age": torch.arange(4), "old": [True, False, True, True]})
    np.testing.assert_array_equal(data.rows["dose"], dose)
    assert data.rows["age"].tolist() == [0.0, 1.0, 2.0, 3.0]
    assert data.rows["old"].tolist() == [1.0, 0.0, 1.0, 1.0]
    assert data.labels == {}


def test_series_and_frames_are_matched_by_their_labels():
    frame = pd.DataFrame(X, index=list("pqrs"), columns=["a", "b", "c"])
    age = pd.Series([4.0, 1.0, 3.0, 2.0], index=list("sprq"))
    dose = pd.DataFrame({"one": [4.0, 1.0, 3.0, 2.0], "two": [8.0, 5.0, 7.0, 6.0]}, index=list("sprq"))
    family = pd.Series(["y", "z", "y"], index=["c", "a", "b"])
    data = Data(frame, rows={"age": age, "dose": dose}, features={"family": family})
    assert data.rows["age"].tolist() == [1.0, 2.0, 3.0, 4.0]
    np.testing.assert_array_equal(data.rows["dose"], [[1, 5], [2, 6], [3, 7], [4, 8]])
    assert data.features["family"].tolist() == [1, 0, 0]


def test_labels_beyond_those_of_the_table_are_left_out():
    frame = pd.DataFrame(X, index=list("pqrs"))
    age = pd.Series([4.0, 9.0, 1.0, 3.0, 2.0], index=list("sxprq"))
    assert Data(frame, rows={"age": age}).rows["age"].tolist() == [1.0, 2.0, 3.0, 4.0]


def test_given_names_of_features_match_too():
    size = pd.Series([3.0, 1.0, 2.0], index=["c", "a", "b"])
    assert Data(X, features={"size": size}, feature_names=["a", "b", "c"]).features["size"].tolist() == [
        1,
        2,
        3,
    ]


def test_without_labels_of_the_table_position_counts():
    age = pd.Series([4.0, 1.0, 3.0, 2.0], index=list("sprq"))
    assert Data(X, rows={"age": age}).rows["age"].tolist() == [4.0, 1.0, 3.0, 2.0]
    frame = pd.DataFrame(X, index=list("pqrs"))
    assert Data(frame, rows={"age": age.reset_index(drop=True)}).rows["age"].tolist() == [4.0, 1.0, 3.0, 2.0]


def test_sequences_have_their_features_last():
    x = np.arange(24.0).reshape(3, 4, 2)
    x[0, 1, 1] = np.nan
    data = Data(torch.as_tensor(x))
    assert data.x.shape == (3, 4, 2) and not data.seen[0, 1, 1] and data.seen.sum() == 23
    assert data.x[0, 1, 1] == np.nanmedian(x[..., 1])
    assert (data.view(2).n_rows, data.view(2).n_features) == (3, 2)


def test_tensors_have_the_precision_asked_for():
    data = Data(X, rows={"site": list("abab"), "age": [1.0, 2.0, 3.0, 4.0]})
    tensors = data.tensors(dtype=torch.float64)
    assert {n: t.dtype for n, t in tensors.items()} == {
        "x": torch.float64, "seen": torch.bool, "site": torch.int64, "age": torch.float64,
    }  # fmt: skip
    assert data.tensors()["x"].dtype == torch.get_default_dtype()


def test_a_program_sees_all_by_name():
    view = Data(X, rows={"age": [1.0, 2.0, 3.0, 4.0]}).view(2)
    assert view.factors == FactorAxis("factor", 2)
    assert (view.n_factors, view.n_rows, view.n_features) == (2, 4, 3)
    assert (view.rows.name, view.rows.size, view.rows.dim) == ("rows", 4, -2)
    assert (view.features.name, view.features.size, view.features.dim) == ("features", 3, -1)
    torch.testing.assert_close(view.x, torch.as_tensor(X).to(view.x))
    assert view.age.tolist() == [1.0, 2.0, 3.0, 4.0]
    other = Data(X).view(2, {"x": torch.zeros(4, 3)})
    assert other.x.sum() == 0


def test_another_table_keeps_what_is_missing_and_what_is_known():
    x = X.copy()
    x[2, 1] = np.nan
    data = Data(x, rows={"site": list("abab")}, feature_names=["a", "b", "c"])
    other = data.with_table(np.full(X.shape, 7.0))
    assert other.x[2, 1] == data.x[2, 1] and (other.x[data.seen] == 7).all()
    assert (other.feature_names, other.labels) == (["a", "b", "c"], {"site": ["a", "b"]})
    np.testing.assert_array_equal(data.x[data.seen], X[data.seen])  # the first one is as it was


def broken(cell, value):
    x = X.copy()
    x[cell] = value
    return x


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"X": X[:2]}, r"X: has 2 row\(s\), wanted at least 3"),
        ({"X": broken((2, 1), np.inf)}, "X: row 2, feature 1 is infinite; wanted a number, or NaN"),
        ({"X": broken((slice(None), 1), np.nan)}, "X: column 1 has no value; leave it out"),
        ({"rows": {"age": [1.0, 2.0]}}, r"rows\['age'\]: has 2 entries, wanted 4"),
        ({"rows": {"age": 2.0}}, r"rows\['age'\]: has 1 entries, wanted 4"),
        ({"features": {"size": np.ones(4)}}, r"features\['size'\]: has 4 entries, wanted 3"),
        (
            {"rows": {"age": [1.0, np.nan, 2.0, 3.0]}},
            r"\['age'\]: entry 1 is missing or infinite; wanted a number",
        ),
        ({"rows": {"age": [1.0, 2.0, np.inf, 3.0]}}, r"\['age'\]: entry 2 is missing or infinite"),
        ({"rows": {"site": ["a", None, "b", "a"]}}, r"rows\['site'\]: entry 1 is missing; wanted a label"),
        (
            {"rows": {"site": np.array([["a", "b"]] * 4)}},
            r"\['site'\]: has labels of shape \(4, 2\), wanted \(4,\)",
        ),
        ({"rows": {"x": [1.0] * 4}}, r"rows\['x'\]: the program would read it as d.x, which is no free name"),
        ({"rows": {"my age": [1.0] * 4}}, "would read it as d.my age, which is no free name; choose another"),
        ({"rows": {"_age": [1.0] * 4}}, "which is no free name"),
        ({"features": {"levels": [1.0] * 3}}, r"features\['levels'\]: the program would read it as d.levels"),
        (
            {"rows": {"a": [1.0] * 4}, "features": {"a": [1.0] * 3}},
            "features: 'a' is a name of rows, too; the program reads both as d.a",
        ),
        ({"feature_names": ["a", "b"]}, "feature_names: has 2 names, X has 3 columns"),
    ],
)
def test_what_cannot_be_read_is_refused(arguments, words):
    with pytest.raises(ValueError, match=words):
        Data(**{"X": X, **arguments})


def test_labels_that_do_not_match_are_refused():
    frame = pd.DataFrame(X, index=list("pqrs"))
    with pytest.raises(
        ValueError, match=r"rows\['age'\]: has no entry for 'q'; wanted the labels of X, or an arr"
    ):
        Data(frame, rows={"age": pd.Series([1.0, 2.0, 3.0, 4.0], index=list("psrx"))})
    with pytest.raises(ValueError, match=r"rows\['age'\]: has a label twice"):
        Data(frame, rows={"age": pd.Series([1.0, 2.0, 3.0, 4.0, 5.0], index=list("ppqrs"))})


def test_text_is_no_table():
    with pytest.raises(TypeError, match="X: holds <U1, wanted numbers"):
        Data(np.full((3, 2, 2), "a"))
    with pytest.raises(TypeError, match=r"rows\['dose'\]"):
        Data(X, rows={"dose": pd.DataFrame({"a": list("wxyz"), "b": [1.0] * 4})})


def test_what_there_is_not_is_said():
    view = Data(X, rows={"site": list("abab")}).view(2)
    with pytest.raises(
        AttributeError, match=r"data: holds no 'dose'; the program can read \['seen', 'site', 'x'\]"
    ):
        view.dose  # noqa: B018
    with pytest.raises(ValueError, match=r"age: no labels of that name; there are \['site'\]"):
        view.levels("age")
    with pytest.raises(ValueError, match="age: no labels of that name; there are none"):
        Data(X).view(2).levels("age")
