"""What a table is given beside its cells: masks and exposures, and every complaint about them."""

from __future__ import annotations

import re
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from pyro_sparse.data.read import as_table
from pyro_sparse.likelihoods import Normal, Poisson

RNG = np.random.default_rng(0)
X = RNG.normal(size=(20, 3)) * [1, 10, 100] + [0, 5, -7]
COUNTS = RNG.poisson(3.0, size=(20, 4)).astype(float)


def anndata(x, var, obs=None):
    return SimpleNamespace(X=x, var_names=pd.Index(list(var)), obs_names=pd.Index(obs or range(x.shape[0])))


def table(x, likelihood=None, **options):
    return as_table(x, likelihood=likelihood or Normal(), **options)


def test_a_mask_hides_cells_beside_nan():
    mask = np.ones_like(X, dtype=bool)
    mask[2, 0] = False
    holes = X.copy()
    holes[3, 1] = np.nan
    found = table(holes, mask=mask)
    assert not found.mask[2, 0] and not found.mask[3, 1] and found.mask.sum() == X.size - 2
    changed = holes.copy()
    changed[2, 0] = 1e6  # what stands in a hidden cell does not matter
    np.testing.assert_array_equal(table(changed, mask=mask).x, found.x)


def test_columns_of_a_mask_are_found_by_name():
    seen = np.ones(X.shape, dtype=bool)
    seen[2, 0] = False
    frame, mask = (pd.DataFrame(part, columns=list("abc")) for part in (X, seen))
    nullable = mask.astype("boolean")[list("bca")]
    for given in (mask[list("cab")], mask.astype(int), nullable, seen, seen.tolist()):
        np.testing.assert_array_equal(table(frame, mask=given).mask, seen)
    np.testing.assert_array_equal(table(frame, mask=pd.DataFrame(seen)).mask, seen)
    np.testing.assert_array_equal(table(X, feature_names=list("abc"), mask=mask[list("cab")]).mask, seen)
    np.testing.assert_array_equal(table(frame, feature_names=list("uvw"), mask=mask[list("cab")]).mask, seen)
    turned = table(frame[list("bca")], like=table(frame), mask=mask)
    np.testing.assert_array_equal(turned.mask, seen)


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        (["one"] * 20, TypeError, "exposure: cannot be read as numbers .*wanted one per row"),
        ([1e40, *[1.0] * 19], ValueError, r"exposure: is 1e\+40 in row 0, and 1 in a typical one; wanted"),
        ([2.0] * 19 + [1e-40], ValueError, "exposure: is 1e-40 in row 19, and 2 in a typical one; wanted"),
    ],
)
def test_exposures_that_are_no_numbers_or_too_far_apart_are_refused(given, error, message):
    with pytest.raises(error, match=message):
        table(COUNTS, Poisson(), exposure=given)
    size = np.full(20, 1e-200)  # their unit does not matter
    np.testing.assert_allclose(table(COUNTS, Poisson(), exposure=size).per_row["exposure"], 1.0)


@pytest.mark.parametrize(
    ("mask", "error", "message"),
    [
        (np.where(X > 0, 1.0, np.nan), ValueError, "mask: holds nan; wanted True where a cell was seen"),
        (np.full(X.shape, 0.5), ValueError, "mask: holds 0.5; wanted True"),
        ((X > 0).astype(str), TypeError, "mask: cannot be read as numbers (it holds text)"),
        (pd.DataFrame(X > 0, columns=list("abd")), ValueError, "mask: column 'c' is absent (1 in all); give"),
        (pd.DataFrame(X > 0)[::-1], ValueError, "mask: has the rows of X in another order"),
        (np.ones((20, 2)), ValueError, "mask: has shape (20, 2), X has (20, 3)"),
    ],
)
def test_masks_that_cannot_be_read(mask, error, message):
    with pytest.raises(error, match="^" + re.escape(message)):
        table(pd.DataFrame(X, columns=list("abc")), mask=mask)


@pytest.mark.parametrize("given", [pd.Series, lambda *of: pd.Series(*of).to_frame()])
def test_exposures_are_refused_where_their_labels_are_those_of_x_in_another_order(given):
    rows = [f"cell {i}" for i in range(20)]
    size = given(np.arange(1.0, 21), rows)
    counts = pd.DataFrame(COUNTS, rows)
    plain = table(COUNTS, Poisson(), exposure=np.arange(1, 21))
    for x in (counts, anndata(COUNTS, "abcd", rows)):
        with pytest.raises(ValueError, match=r"^exposure: .* in another order; give exposure.loc\[X.index\]"):
            table(x, Poisson(), exposure=size[::-1])
        again = table(x, Poisson(), exposure=size)
        np.testing.assert_array_equal(again.per_row["exposure"], plain.per_row["exposure"])
    with pytest.raises(ValueError, match="exposure: has the rows of X in another order"):
        table(counts.tail(3), Poisson(), exposure=size[::-1][:3], like=plain)
    for x, other in ((counts, size.set_axis(range(20))[::-1]), (COUNTS, size[::-1])):  # no labels of X
        turned = table(x, Poisson(), exposure=other).per_row["exposure"]
        np.testing.assert_array_equal(turned, plain.per_row["exposure"][::-1])


def test_what_a_masked_array_hides_is_missing():
    hidden = RNG.random(X.shape) < 0.1
    found = table(np.ma.masked_array(np.where(hidden, -999.0, X), hidden))
    want = table(np.where(hidden, np.nan, X))
    np.testing.assert_array_equal(found.x, want.x)
    np.testing.assert_array_equal(found.mask, want.mask)


def test_exposure_of_a_reversed_view():
    size = np.arange(1.0, 21)
    found = table(COUNTS, Poisson(), exposure=size[::-1]).per_row["exposure"][:, 0]
    np.testing.assert_allclose(found, size[::-1] / np.median(size))
