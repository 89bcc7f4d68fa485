"""Tables of edges and restarts print what matters in a narrow terminal, and are data frames in all else."""

from __future__ import annotations

import pickle

import numpy as np
import pandas as pd
import pytest

import pyro_sparse as ps
from pyro_sparse._utils.display import AgreementTable
from tests._fake_fit import fake_fit, fit_with_strengths


@pytest.fixture(autouse=True)
def narrow(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")


@pytest.fixture(scope="module")
def table():
    return ps.summary(fit_with_strengths().edge_posterior("jacobian", num_draws=5))


def columns_of(printed):
    return printed.splitlines()[0].split()


def test_a_table_of_edges_prints_what_matters(table):
    printed = str(table)
    assert printed == repr(table)
    assert columns_of(printed)[:4] == ["probability", "weight", "verdict", "gap"]
    assert max(map(len, printed.splitlines())) <= 80
    assert "[48 rows; more columns: feature, factor" in printed and "selected" in columns_of(printed)
    assert "selected" not in columns_of(str(table[table["selected"]]))


def test_long_names_leave_fewer_columns(table, monkeypatch):
    long = table.rename(index=lambda name: f"worst fractal dimension of {name}")
    assert columns_of(str(long)) == ["probability", "weight", "verdict", "gap"]
    monkeypatch.setenv("COLUMNS", "20")
    assert columns_of(str(long)) == ["probability", "weight", "verdict"]


def test_it_is_a_data_frame_in_all_else(table):
    assert list(table.columns)[:3] == ["feature", "factor", "probability"]
    some = table[table["probability"] > 0.5].sort_values("effect").head(2)
    assert some.attrs == table.attrs and columns_of(str(some))[0] == "probability"
    assert str(pickle.loads(pickle.dumps(some))) == str(some)
    assert str(table[["feature", "factor"]]) == str(pd.DataFrame(table[["feature", "factor"]]))
    assert str(table.reset_index()) == str(pd.DataFrame(table).reset_index())
    assert len(str(pd.concat([table, table])).splitlines()) < 20  # pandas cuts it, too
    assert "Empty" in str(table.head(0))
    pd.testing.assert_frame_equal(pd.DataFrame(table), table.copy(), check_frame_type=False)


def test_scores_are_called_so():
    printed = str(ps.summary(fake_fit().edge_posterior("score", num_draws=5)))
    assert columns_of(printed)[:3] == ["score", "weight", "verdict"]


def test_very_large_and_small_weights_keep_their_digits(table):
    assert " 1234321 " in str(table.assign(weight=1234321.0))
    assert " 1.23e-05 " in str(table.assign(weight=1.2344e-5)) and "e-" not in str(table)
    assert "NaN" in str(table.assign(gap=np.nan))


def test_agreement_fits_as_well():
    names = [
        "similarity",
        "recovered",
        "edges_differing",
        "gap",
        "found",
        "influence",
        "beyond_linear",
        "elbo",
    ]
    agreement = AgreementTable(
        {name: [1.0, 0.123456] for name in names}, index=pd.RangeIndex(2, name="restart")
    )
    printed = str(agreement)
    assert max(map(len, printed.splitlines())) <= 80 and "0.123" in printed
    assert columns_of(printed)[:3] == ["similarity", "recovered", "edges_differing"]
    assert "elbo" in columns_of(printed) and "more columns: beyond_linear" in printed
