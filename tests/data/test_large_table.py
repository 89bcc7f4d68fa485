"""A table read by rows says what the same table in memory says; minibatches; complaints."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
import torch

import pyro_sparse as ps
from pyro_sparse import likelihoods
from pyro_sparse.data.large_table import LargeBatch, LargeTable
from pyro_sparse.data.read import as_table
from pyro_sparse.data.stores import PIECE_CELLS, RowStore, open_rows

RNG = np.random.default_rng(0)
RATE = (0.2 + RNG.gamma(1, 0.5, (1, 12))) * RNG.gamma(3, 0.3, (300, 1))
COUNTS = RNG.poisson(RATE).astype(float)
HOLES = np.where(RNG.random(COUNTS.shape) < 0.1, np.nan, COUNTS)
SPARSE = sp.csr_matrix(COUNTS)
COUNT_LIKELIHOODS = ["poisson", "negative_binomial", "multinomial"]


@pytest.fixture
def several_pieces(monkeypatch):
    """So small a table is otherwise one piece."""
    monkeypatch.setattr("pyro_sparse.data.stores.PIECE_CELLS", 70 * 12)
    assert PIECE_CELLS > 300 * 12


def both(name, data, rows=None, **options):
    """The table in memory, the table by rows, and the likelihood each of them calibrated."""
    dense = data.toarray() if sp.issparse(data) else data
    one, two = (likelihoods.get_likelihood(name) for _ in range(2))
    by_rows = as_table(open_rows(data if rows is None else rows), likelihood=two, **options)
    return as_table(dense, likelihood=one, **options), by_rows, one, two


@pytest.mark.parametrize("data", [SPARSE, COUNTS, HOLES], ids=["sparse", "dense", "missing"])
@pytest.mark.parametrize("name", [*COUNT_LIKELIHOODS, "normal"])
def test_it_is_the_table_in_memory(name, data, several_pieces):
    table, large, one, two = both(name, data)
    assert isinstance(large, LargeTable) and large.missing == table.missing
    for part in ("centre", "scale", "input_centre", "input_scale"):
        np.testing.assert_allclose(getattr(large, part), getattr(table, part), rtol=1e-5, atol=1e-6)
    index = np.array([250, 3, 3, 99])
    few, own = table.rows(index), large.rows(index)
    assert few.per_row.keys() == own.per_row.keys()
    for key, values in few.per_row.items():
        np.testing.assert_allclose(own.per_row[key], values, rtol=1e-4, atol=1e-5, err_msg=key)
    for part in ("x", "inputs", "mask"):
        wanted, found = getattr(few, part), getattr(own, part)
        assert (wanted is None) == (found is None)
        if wanted is not None:
            np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5, err_msg=part)
    everything = np.arange(300)
    np.testing.assert_allclose(large.intercept(two, everything), table.intercept(one, everything), atol=1e-7)
    for key, value in one.state_dict().items():
        torch.testing.assert_close(two.state_dict()[key], value)


def test_measurements_far_from_zero_keep_their_digits(several_pieces):
    x = 1e7 + RNG.normal(size=(300, 12))
    _, large, *_ = both("normal", x)
    np.testing.assert_allclose(large.scale, x.std(0), rtol=1e-6)
    batch = large.part(np.arange(300), "cpu", torch.float32)
    found = batch.rows(torch.arange(300)).x.double().numpy()
    np.testing.assert_allclose(found.std(0), 1, atol=1e-5)


def test_standardise_and_exposure_are_the_callers():
    table, large, *_ = both("normal", COUNTS, standardise=False)
    assert (large.centre == 0).all() and (large.scale == 1).all() and (table.scale == 1).all()
    size = np.linspace(0.5, 2, 300)
    table, large, one, _ = both("poisson", SPARSE, exposure=size)
    np.testing.assert_allclose(large.per_row["exposure"][:, 0], size / np.median(size))
    assert large.row_units == table.row_units == large.rows(np.arange(3)).row_units
    np.testing.assert_allclose(large.input_centre, table.input_centre, rtol=1e-5)
    at_risk = size.sum() / np.median(size) + 1
    np.testing.assert_allclose(
        large.intercept(one, np.arange(300)), np.log((COUNTS.sum(0) + 0.5) / at_risk), rtol=1e-10
    )


def test_a_likelihood_of_ones_own_sees_tables():
    class Halved(likelihoods.Normal):
        def start(self, x, mask=None):
            assert x.ndim == 2
            return 0.5 * x.double().mean(0).numpy()

        def encoder_view(self, x, per_row=None):
            return x**2

    own = Halved()
    own.standardise = False
    large = as_table(open_rows(SPARSE), likelihood=own)
    np.testing.assert_allclose(large.intercept(own, np.arange(300)), 0.5 * COUNTS.mean(0), rtol=1e-6)
    np.testing.assert_allclose(large.input_centre, (COUNTS**2).mean(0), rtol=1e-5)
    np.testing.assert_allclose(large.input_scale, (COUNTS**2).std(0), rtol=1e-5)


def test_minibatches_are_rows_in_an_order_that_torch_draws():
    large = as_table(open_rows(SPARSE), likelihood=likelihoods.Poisson())
    kept = np.arange(50, 300)
    batch = large.part(kept, "cpu", torch.float32)
    assert isinstance(batch, LargeBatch) and (len(batch), batch.total) == (250, 250)
    part = batch.rows(torch.tensor([0, 7]))
    np.testing.assert_array_equal(part.x.numpy(), COUNTS[batch.index[[0, 7]]])
    assert part.total == 250 and batch.whole().rows(torch.tensor([1])).total == 250
    torch.manual_seed(3)
    one, two = batch.shuffled(), batch.shuffled()
    torch.manual_seed(3)
    assert torch.equal(one, batch.shuffled()) and not torch.equal(one, two)
    assert sorted(one.tolist()) == list(range(250)) and set(batch.index) == set(kept)
    assert [len(piece.x) for piece in large.split(120)] == [120, 120, 60]


def test_new_rows_find_their_columns_by_name():
    names = [f"gene {j}" for j in range(12)]
    fitted = as_table(open_rows(SPARSE, feature_names=names), likelihood=(poisson := likelihoods.Poisson()))
    turned = open_rows(SPARSE[:40, ::-1].tocsr(), feature_names=names[::-1])
    new = as_table(turned, likelihood=poisson, like=fitted)
    np.testing.assert_array_equal(new.rows(np.arange(40)).x, COUNTS[:40])
    with pytest.raises(ValueError, match="X: column 'gene 1' is absent"):
        renamed = open_rows(SPARSE, feature_names=["gene 0", *(f"x{j}" for j in range(11))])
        as_table(renamed, likelihood=poisson, like=fitted)
    with pytest.raises(ValueError, match=r"X: has 11 feature\(s\), the model was fitted to 12"):
        as_table(open_rows(SPARSE[:, :11].tocsr()), likelihood=poisson, like=fitted)


def changed(i, j, value, matrix=SPARSE):
    found = matrix.copy() if not sp.issparse(matrix) else matrix.tolil()
    found[i, j] = value
    return found.tocsr() if sp.issparse(matrix) else found


def constant(value):
    found = COUNTS.copy()
    found[:, 4] = value
    return sp.csr_matrix(found)


def hollow():
    found = HOLES.copy()
    found[123] = np.nan
    return found


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (changed(200, 3, np.nan), "column 'x4' has nan in row 200; .* a sparse table has no missing cells"),
        (changed(99, 0, np.inf), "column 'x1' has inf in row 99"),
        (changed(250, 2, -np.inf, COUNTS), "column 'x3' has -inf in row 250; .*use NaN"),
        (changed(111, 5, -2.0), r"column 'x6' holds -2 \(row 41\); .* counted from row 70"),
        (changed(111, 5, 0.5, COUNTS), r"column 'x6' holds 0.5 \(row 41\); .* counted from row 70"),
        (constant(0), r"column 'x5' is constant at 0 \(1 such column\(s\)\).*getnnz"),
        (constant(3), r"column 'x5' is constant at 3"),
        (hollow(), "row 123 has no observed value"),
        (np.full((20, 3), np.nan), "column 'x1' has no observed value"),
        (SPARSE[:9], r"has 9 row\(s\), wanted at least 10"),
        (SPARSE[:, :1].tocsr(), r"has 1 column\(s\); wanted at least 2"),
    ],
)
def test_complaints_about_cells(data, message, several_pieces):
    with pytest.raises(ValueError, match=message):
        as_table(open_rows(data), likelihood=likelihoods.Poisson())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"mask": np.ones((300, 12))}, "mask: was given for a table of 300 x 12 that is read by rows"),
        ({"exposure": np.ones(299)}, "exposure: has shape (299,) for 300 rows"),
        (
            {"exposure": pd.Series(1.0, [f"cell {i}" for i in range(300)])[::-1]},
            "exposure: has the rows of X in another order; give exposure.loc[X.index]",
        ),
        ({"feature_names": ["a"] * 12}, "feature_names: 'a' occurs 12 times"),
        ({"feature_names": ["a"]}, "feature_names: has 1 names, X has 12 columns"),
    ],
)
def test_complaints_about_arguments(options, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        store = open_rows(SPARSE, sample_names=[f"cell {i}" for i in range(300)])
        as_table(store, likelihood=likelihoods.Poisson(), **options)


@pytest.mark.filterwarnings("ignore:overflow", "ignore:invalid value")
@pytest.mark.parametrize("unit", [1e-200, 1e200])
def test_columns_beyond_double_precision_are_named(unit):
    with pytest.raises(ValueError, match="column 'x2' has values so large or so small"):
        as_table(open_rows(COUNTS * np.where(np.arange(12) == 1, unit, 1)), likelihood=likelihoods.Normal())


def test_a_store_says_what_its_kind_must_define():
    for call in (lambda s: s.read(0, 1), lambda s: s.rows(np.arange(1))):
        with pytest.raises(NotImplementedError):
            call(RowStore())
    assert ps.open_rows is open_rows
