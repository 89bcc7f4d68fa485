"""Every container and every complaint of `as_table`."""

from __future__ import annotations

import re
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
import torch

from pyro_sparse.data.columns import match_features
from pyro_sparse.data.read import as_table, read_array, read_like
from pyro_sparse.likelihoods import Bernoulli, Multinomial, Normal, Poisson
from tests._framed import Convertible

RNG = np.random.default_rng(0)
X = RNG.normal(size=(20, 3)) * [1, 10, 100] + [0, 5, -7]
COUNTS = RNG.poisson(3.0, size=(20, 4)).astype(float)


def table(x, likelihood=None, **options):
    return as_table(x, likelihood=likelihood or Normal(), **options)


def anndata(x, var, obs=None):
    return SimpleNamespace(X=x, var_names=pd.Index(list(var)), obs_names=pd.Index(obs or range(x.shape[0])))


# ---- containers


@pytest.mark.parametrize("nothing", [None, pd.NA, pd.NaT, np.nan])
def test_what_pandas_takes_for_missing_is_missing_in_an_array_of_objects(nothing):
    cells = X.astype(object)  # what DataFrame.to_numpy() makes of nullable columns
    cells[3, 1] = nothing
    wanted = X.copy()
    wanted[3, 1] = np.nan
    np.testing.assert_array_equal(read_array(cells)[0], wanted)
    assert cells[3, 1] is nothing  # the caller's own is left alone


@pytest.mark.parametrize(
    ("column", "message"),
    [
        (["-"] + ["1.5"] * 19, r"text in 1 of 20 cells \('-'; the first in row 0, .*; set such cells to NaN"),
        (["1.5"] * 20, "numbers as text, .*pandas.to_numeric"),
        (["1,5"] * 20, r"numbers with a comma \('1,5'\), .*with a point for decimals"),
        (["39%", "7.5 %"] * 10, r"numbers with other signs \('39%', '7.5 %'\), .*the numbers alone"),
        (["$1,234.50", "-€3"] * 10, r"numbers with other signs \('\$1,234.50', '-€3'\), "),
        (["1.234.567", "12"] * 10, r"numbers with other signs \('1.234.567'\), "),
        (["<0.5", "0.7"] * 10, r"numbers beyond a limit \('<0.5'\), .*the limit itself .*CensoredNormal"),
        (["12:30", "555-1234"] * 10, r"text \('12:30', '555-1234'\), "),
        (["m", "f"] * 10, r"text \('m', 'f'\), .*pandas.get_dummies"),
        (
            pd.Categorical(["m", "f"] * 10),
            r"categories \('f', 'm'\), .*0 and 1 for each of more .*get_dummies",
        ),
        (
            pd.Categorical(["lo", "hi"] * 10, ["lo", "hi"], ordered=True),
            r"ordered categories \('lo', 'hi'\), wanted .*\.cat\.codes",
        ),
        (pd.Categorical([1, 2] * 10), r"categories \(1, 2\), wanted .*\.astype\(float\)"),
        (pd.date_range("2020", periods=20), r"datetime64\[[nu]s\], wanted numbers"),
        ([pd.Timestamp("2020").date()] * 20, "date values, wanted numbers"),
    ],
)
def test_a_column_that_holds_no_numbers_is_named_with_what_it_holds_and_the_mend(column, message):
    with pytest.raises(TypeError, match=f"^X: column 'odd' holds {message}"):
        table(pd.DataFrame(X).assign(odd=column))


@pytest.mark.parametrize(
    "made",
    [
        X.tolist(),
        pd.DataFrame(X),
        pd.DataFrame(X.astype(object)),
        X.astype(object),
        sp.csr_matrix(X),
        sp.coo_array(X),
        torch.as_tensor(X),
        torch.as_tensor(X).requires_grad_(),
        anndata(X, "abc"),
        anndata(sp.csc_matrix(X), "abc"),
    ],
    ids=[
        "list",
        "frame",
        "frame of objects",
        "objects",
        "csr",
        "coo",
        "tensor",
        "grad",
        "anndata",
        "sparse anndata",
    ],
)
def test_containers_hold_the_same_numbers(made):
    np.testing.assert_allclose(read_array(made)[0], X)


def arrow(frame):
    return pytest.importorskip("pyarrow").Table.from_pandas(frame)


@pytest.mark.parametrize("made", [Convertible, arrow])
def test_columns_of_tables_of_other_libraries_are_found_by_name(made):
    frame = pd.DataFrame(X, columns=list("abc"))
    old = table(made(frame))
    assert old.feature_names == ["a", "b", "c"]
    turned = made(frame[list("cab")])
    np.testing.assert_array_equal(table(turned, like=old).x, old.x)
    np.testing.assert_array_equal(read_like(turned, list("abc")), X)
    seen = pd.DataFrame(X > -1e9, columns=list("abc"))
    seen.loc[2, "a"] = False
    np.testing.assert_array_equal(table(frame, mask=made(seen[list("bca")])).mask, seen)


def test_tables_with_names_that_are_none_of_pandas_are_refused():
    made = SimpleNamespace(__dataframe__=lambda: None, __array__=lambda *_: X)
    with pytest.raises(
        TypeError, match=r"got a SimpleNamespace with names of columns and no to_pandas\(\); give it as"
    ):
        table(made)


def test_half_precision_tensor():
    np.testing.assert_allclose(read_array(torch.ones(2, 2, dtype=torch.bfloat16))[0], 1.0)


def test_names_come_from_the_container():
    frame = pd.DataFrame(X, columns=["a", "b", 3], index=[f"row {i}" for i in range(20)])
    found = table(frame)
    assert found.feature_names == ["a", "b", "3"] and found.sample_names[:2] == ["row 0", "row 1"]
    assert table(X).feature_names == ["x1", "x2", "x3"] and table(X).sample_names[1] == "1"
    assert table(X, feature_names=["u", "v", "w"]).feature_names == ["u", "v", "w"]
    assert table(anndata(X, "abc", [f"cell{i}" for i in range(20)])).sample_names[3] == "cell3"


def test_real_anndata():
    library = pytest.importorskip("anndata")
    made = library.AnnData(X, var=pd.DataFrame(index=list("abc")))
    assert table(made).feature_names == ["a", "b", "c"]


def test_nullable_integers_booleans_and_missing():
    frame = pd.DataFrame(
        {
            "i": pd.array([1, None, 3, 4] * 3, dtype="Int64"),
            "b": pd.array([True, False, None, True] * 3, dtype="boolean"),
            "plain": [True, False, True, True] * 3,
            "f": pd.array([0.5, None, 2.0, 1.0] * 3, dtype="Float32"),
        }
    )
    found = table(frame, standardise=False)
    np.testing.assert_array_equal(found.mask[:3], [[1, 1, 1, 1], [0, 1, 1, 0], [1, 0, 1, 1]])
    np.testing.assert_array_equal(found.x[:2], [[1, 1, 1, 0.5], [0, 0, 0, 0]])


def test_objects_that_are_numbers_are_read_as_such():
    frame = pd.DataFrame({"yes": [True, False, None, np.nan], "n": [1, None, 3, pd.NA]}, dtype=object)
    wanted = [[1, 1], [0, np.nan], [np.nan, 3], [np.nan, np.nan]]
    np.testing.assert_array_equal(read_array(frame)[0], wanted)
    twice = pd.concat([frame, frame], axis=1)
    np.testing.assert_array_equal(read_array(twice)[0], np.tile(wanted, 2))
    assert (frame.dtypes == "object").all()  # the caller's own is left alone
    with pytest.raises(TypeError, match="'yes' holds text in 1 of 4 cells .'yes'; the first in row 0"):
        read_array(frame.replace({"yes": {True: "yes"}}))


@pytest.mark.parametrize("layout", [torch.sparse_coo, torch.sparse_csr])
@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support:UserWarning")
def test_sparse_tensors_are_refused_with_what_to_do(layout):
    with pytest.raises(TypeError, match=rf"X: got a tensor of layout {layout}, .*X\.to_dense"):
        table(torch.as_tensor(X).to_sparse(layout=layout))


@pytest.mark.parametrize(
    "made",
    [
        pd.DataFrame(X * 1j),
        pd.DataFrame(X * 1j).astype(object),
        X * 1j,
        (X * 1j).astype(object),
        sp.csr_matrix(X * 1j),
        torch.as_tensor(X * 1j),
    ],
    ids=["frame", "frame of objects", "array", "objects", "csr", "tensor"],
)
def test_complex_numbers_are_refused(made):
    with pytest.raises(TypeError, match=r"complex"):
        read_array(made)


# ---- standardising


def test_columns_are_z_scored_over_what_was_seen():
    holes = X.copy()
    holes[0, 1] = holes[5, 2] = np.nan
    found = table(holes)
    np.testing.assert_allclose(found.centre, np.nanmean(holes, 0))
    np.testing.assert_allclose(found.scale, np.nanstd(holes, 0))
    seen = ~np.isnan(holes)
    np.testing.assert_allclose((found.x * found.scale + found.centre)[seen], holes[seen])
    assert (found.x[~seen] == 0).all() and (found.inputs[~seen] == 0).all()
    np.testing.assert_array_equal(found.mask, seen)
    assert table(X).mask is None
    np.testing.assert_allclose(table(X, standardise=False).x, X)


def test_new_rows_use_the_fits_scale():
    old = table(X)
    new = table(X[:2] * 3, like=old)
    np.testing.assert_allclose(new.x, (X[:2] * 3 - X.mean(0)) / X.std(0))


def test_counts_keep_their_values_and_the_encoder_reads_logarithms():
    found = table(COUNTS, Poisson(size_factors=True))
    np.testing.assert_array_equal(found.x, COUNTS)
    assert (found.centre == 0).all() and (found.scale == 1).all()
    size = COUNTS.sum(1, keepdims=True) / np.median(COUNTS.sum(1))
    logs = np.log1p(COUNTS / found.per_row["exposure"])
    np.testing.assert_allclose(found.inputs, (logs - logs.mean(0)) / logs.std(0), rtol=1e-5, atol=1e-6)
    assert np.corrcoef(found.per_row["exposure"][:, 0], size[:, 0])[0, 1] > 0.999
    given = table(COUNTS, own := Poisson(size_factors=True), exposure=np.arange(1, 21))
    assert not own.shares  # there is nothing to share out
    np.testing.assert_allclose(given.per_row["exposure"][:, 0], np.arange(1, 21) / 10.5)  # whatever the unit
    assert given.row_units["exposure"] == 10.5
    again = table(COUNTS[:3], Poisson(), exposure=[21.0, 1, 2], like=given)
    np.testing.assert_allclose(again.per_row["exposure"][:, 0], np.array([21, 1, 2]) / 10.5)
    with pytest.raises(ValueError, match="exposure: got none, and the fit was given its rows'"):
        table(COUNTS, Poisson(), like=given)
    with pytest.raises(ValueError, match="exposure: got some, and the fit was made without"):
        table(COUNTS, Poisson(), exposure=np.arange(1, 21), like=found)


def test_a_constant_share_is_no_division_by_zero():
    totals = np.arange(1, 21)
    counts = np.column_stack([5 * totals, 2 * totals, 3 * totals]).astype(float)
    assert np.isfinite(table(counts, Poisson()).inputs).all()


# ---- matching features of new rows


@pytest.mark.parametrize("kind", ["frame", "anndata"])
def test_reordered_columns_are_found_by_name(kind):
    old = table(pd.DataFrame(X, columns=list("abc")))
    turned = X[:4, [2, 0, 1]]
    new = pd.DataFrame(turned, columns=list("cab")) if kind == "frame" else anndata(turned, "cab")
    np.testing.assert_allclose(table(new, like=old).x, old.x[:4])
    mask = np.ones((4, 3), dtype=bool)
    mask[:, 0] = False  # column c, as the data stand
    np.testing.assert_array_equal(table(new, like=old, mask=mask).mask, [[True, True, False]] * 4)


def test_names_of_one_side_only_go_by_position():
    old = table(X)
    np.testing.assert_allclose(table(pd.DataFrame(X[:3], columns=list("abc")), like=old).x, old.x[:3])
    named = table(pd.DataFrame(X, columns=list("abc")))
    for new in (X[:3], pd.DataFrame(X[:3])):
        np.testing.assert_allclose(table(new, like=named).x, old.x[:3])


def test_absent_columns_are_named():
    old = table(pd.DataFrame(X, columns=list("abc")))
    for columns in ("abz", "ab", "abxyz"):
        frame = pd.DataFrame(RNG.normal(size=(3, len(columns))), columns=list(columns))
        with pytest.raises(
            ValueError, match=r"X: column 'c' is absent \(1 in all\); give the columns of the fit"
        ):
            table(frame, like=old)
    with pytest.raises(ValueError, match=r"X: column 'a' is absent \(3 in all\)"):
        table(pd.DataFrame(X, columns=list("uvw")), like=old)
    with pytest.raises(ValueError, match=r"X: has 2 feature\(s\), the model was fitted to 3 \('a' … 'c'\)"):
        table(X[:, :2], like=old)
    with pytest.raises(ValueError, match=r"X: has 4 feature\(s\), the model was fitted to 3"):
        table(np.c_[X, X[:, 0]], like=old)


@pytest.mark.parametrize("columns", ["abca", "aab"])
def test_of_columns_with_one_name_none_is_taken(columns):
    """Which is that of the fit cannot be known, also where one of each name would do."""
    old = table(pd.DataFrame(X, columns=list("abc")))
    new = pd.DataFrame(np.c_[X, X[:, 0]][:, : len(columns)], columns=list(columns))
    with pytest.raises(
        ValueError, match=r"X: column 'a' occurs 2 times, and which of them is that of the fit"
    ):
        table(new, like=old)
    with pytest.raises(ValueError, match=r"mask: column 'b' occurs 2 times, and which of them is that of X"):
        match_features(3, list("bab"), list("ab"), "mask", "X")


# ---- complaints

DATES = pd.DataFrame({"a": range(12), "when": pd.date_range("2020", periods=12)})
TEXT = pd.DataFrame({"a": range(12), "b": ["x"] * 12})
TWINS = pd.DataFrame([["x", "y", 1]] * 12, columns=["t", "t", "n"])


def changed(value, at=(3, 1)):
    x = X.copy()
    x[at] = value
    return x


def test_all_columns_that_cannot_be_used_are_named_at_once():
    """A table of a spreadsheet took one try for each."""
    good = pd.DataFrame(X, columns=list("abc"))
    with pytest.raises(TypeError) as said:
        table(good.assign(who=["Ann"] * 20, sex=pd.Categorical(["m", "f"] * 10), site=3, empty=np.nan))
    assert str(said.value) == (
        "X: 4 columns cannot be used: 'who' holds text ('Ann'); 'sex' holds categories ('f', 'm'); 'site' is "
        "constant at 3; 'empty' has no observed value; drop them: ['who', 'sex', 'site', 'empty'], or what "
        "holds no numbers: make one column of 0 and 1 of two answers, and 0 and 1 for each of more "
        "(pandas.get_dummies)"
    )
    wanted = (
        r"^X: 2 columns cannot be used: 'site' is constant at 3; 'empty' has no observed value; drop them"
    )
    with pytest.raises(ValueError, match=wanted):
        table(good.assign(site=3, empty=np.nan))
    mask = np.tile([True, False, True, False], (20, 1))
    with pytest.raises(
        ValueError, match=wanted.replace("'site' is constant at 3", "'b' has no observed value")
    ):
        table(good.assign(empty=1.0), mask=mask)


def test_columns_that_the_fit_does_not_know_are_named_as_such():
    like = table(pd.DataFrame(X, columns=list("abc")))
    new = pd.DataFrame(X, columns=list("abc")).assign(note="text", z=1)
    for read in (lambda: table(new, like=like), lambda: read_like(new, like.feature_names)):
        with pytest.raises(
            ValueError, match=r"has 2 column\(s\) that the fit does not know, \['note', 'z'\]"
        ):
            read()
    np.testing.assert_array_equal(table(new[list("cab")], like=like).x, like.x)


@pytest.mark.parametrize(
    ("x", "error", "message"),
    [
        (np.empty((0, 3)), ValueError, "X: has no rows, shape (0, 3); wanted at least 10"),
        (X[:5], ValueError, "X: has 5 row(s), wanted at least 10"),
        (X[:, :1], ValueError, "X: has 1 column(s); wanted at least 2 features"),
        (X[:, 0], ValueError, "X: has 1 dimension(s), shape (20,); wanted (row, feature)"),
        (X[None], ValueError, "X: has 3 dimension(s), shape (1, 20, 3)"),
        (changed(2.0, np.s_[:, 1]), ValueError, "X: column 'x2' is constant at 2"),
        (changed(np.nan, np.s_[1:, 1]), ValueError, "X: column 'x2' is constant"),
        (changed(np.nan, np.s_[:, 1]), ValueError, "X: column 'x2' has no observed value; drop it"),
        (changed(np.nan, np.s_[4]), ValueError, "X: row 4 has no observed value (1 such row(s)); drop it"),
        (changed(np.inf), ValueError, "X: column 'x2' has inf in row 3; wanted finite numbers (use NaN"),
        (changed(-np.inf), ValueError, "X: column 'x2' has -inf in row 3"),
        (TEXT, TypeError, "X: column 'b' holds"),
        (TWINS, TypeError, "X: column 't' holds"),
        (DATES, TypeError, "X: column 'when' holds datetime64"),
        ([["a", "b"]] * 12, TypeError, "X: cannot be read as numbers"),
        (X.astype(str), TypeError, "X: cannot be read as numbers (it holds text); wanted a numeric table"),
        (X.astype(str).astype(object), TypeError, "X: cannot be read as numbers (it holds text)"),
        (
            pd.DataFrame(X.astype(str)),
            TypeError,
            "X: 3 columns cannot be used: '0' holds numbers as text",
        ),
        (
            np.full((12, 3), "2020", dtype="M8[D]"),
            TypeError,
            "X: cannot be read as numbers (it holds datetime",
        ),
        ([[1, 2], [3]], TypeError, "X: cannot be read as numbers"),
        (pd.DataFrame(X, columns=list("aba")), ValueError, "feature_names: 'a' occurs 2 times; rename"),
    ],
)
def test_bad_tables_are_refused(x, error, message):
    with pytest.raises(error, match="^" + re.escape(message)):
        table(x)


@pytest.mark.parametrize("unit", [1e-200, 1e200])
def test_columns_beyond_double_precision_are_named(unit):
    with pytest.raises(ValueError, match="column 'x2' has values so large or so small .* give it in other"):
        table(X * [1, unit, 1])


def test_names_go_by_position():
    frame = pd.DataFrame(X, columns=list("abc"))
    renamed = table(frame, feature_names=["u", "b", "w"])
    assert renamed.feature_names == ["u", "b", "w"]
    with pytest.raises(ValueError, match=r"'u' is absent \(2 in all\); give .* under the same names, or"):
        table(frame, like=renamed)
    with pytest.raises(ValueError, match="feature_names: 'b' is given to another column of X than the one"):
        table(frame, feature_names=["b", "a", "c"])


def test_bad_arguments_are_refused():
    with pytest.raises(ValueError, match="feature_names: has 2 names, X has 3 columns; give one per column"):
        table(X, feature_names=["a", "b"])
    with pytest.raises(ValueError, match=r"mask: has shape \(3, 20\), X has \(20, 3\)"):
        table(X, mask=np.ones((3, 20)))
    for what, bad in {
        "is 0 in row 0": np.zeros(20),
        "is nan in row 0": np.full(20, np.nan),
        "is inf in row 19": np.append(np.ones(19), np.inf),
    }.items():
        with pytest.raises(ValueError, match=re.escape(f"exposure: {what}, wanted one positive number per")):
            table(COUNTS, Poisson(), exposure=bad)
    with pytest.raises(ValueError, match=r"has shape \(3,\) for 20 rows, wanted one number per row"):
        table(COUNTS, Poisson(), exposure=np.ones(3))
    with pytest.raises(TypeError, match=r"exposure: got the name 'size', .*, such as adata.obs\['size'\]"):
        table(COUNTS, Poisson(), exposure="size")
    with pytest.raises(ValueError, match="exposure: got some, and Normal has no use for them"):
        table(X, exposure=np.ones(20))
    with pytest.raises(ValueError, match="exposure: got some, and Bernoulli has no use"):
        table(X > 0, Bernoulli(), exposure=np.ones(20))


@pytest.mark.parametrize(
    ("likelihood", "value", "message"),
    [
        (Poisson(), -1, "column 'x2' holds -1 .*whole numbers >= 0"),
        (Poisson(), 1.5, "column 'x2' holds 1.5"),
        (Multinomial(), 0.3, "column 'x2' holds 0.3"),
        (Bernoulli(), 2, 'likelihood="bernoulli" wants 0, 1 or NaN'),
    ],
)
def test_the_likelihood_has_the_last_word(likelihood, value, message):
    x = (COUNTS > 2).astype(float)
    x[3, 1] = value
    with pytest.raises(ValueError, match=message):
        table(x, likelihood)


# ---- batches


def test_batches_and_rows():
    holes = changed(np.nan)
    found = table(holes)
    part = found.rows(np.array([3, 5]))
    assert part.sample_names == ["3", "5"] and part.mask.shape == (2, 3) and part.x.shape == (2, 3)
    batch = found.batch(dtype=torch.float64)
    small = batch.rows(torch.tensor([3, 0]))
    assert len(small) == 2 and small.total == 20 and small.whole().total == 2
    assert batch.x.dtype == torch.float64 and not small.mask[0, 1]
    np.testing.assert_array_equal(small.x.numpy(), found.x[[3, 0]])
    counts = table(COUNTS, Poisson(size_factors=True))
    assert counts.batch().rows(torch.tensor([1])).per_row["exposure"].shape == (1, 1)
    assert counts.rows(np.array([1, 2])).per_row["exposure"].shape == (2, 1)


@pytest.mark.parametrize("given", ["f", 3, b"ab"])
def test_feature_names_that_are_no_list_of_names(given):
    with pytest.raises(TypeError, match=f"feature_names: got {given!r}, wanted a list of names"):
        as_table(np.random.default_rng(1000).normal(size=(12, 2)), likelihood=Normal(), feature_names=given)


def test_feature_names_are_text_whatever_they_are_given_as():
    cells = np.random.default_rng(1000).normal(size=(12, 2))
    assert as_table(cells, likelihood=Normal(), feature_names=np.array([7, 9])).feature_names == ["7", "9"]


def test_what_is_not_standardised_may_not_be_too_large_for_single_precision():
    cells = np.random.default_rng(1000).normal(size=(12, 2)) * [1, 1e20]
    with pytest.raises(ValueError, match=r"X: column 'x2' has a standard deviation of .*other units"):
        as_table(cells, likelihood=Normal(), standardise=False)
    assert as_table(cells, likelihood=Normal()).scale[1] > 1e19


def test_counts_that_no_rate_reaches_are_refused():
    counts = np.random.default_rng(1000).poisson(5.0, (12, 2)).astype(float)
    counts[3, 1] = 7e10
    as_table(counts, likelihood=Poisson())
    counts[3, 1] = 1e11
    with pytest.raises(
        ValueError, match=r"X: column 'x2' holds 1e\+11 \(row 3\); .* knows counts up to 7.2e\+10"
    ):
        as_table(counts, likelihood=Poisson())
