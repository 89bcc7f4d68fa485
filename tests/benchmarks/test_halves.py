"""Tables of the benchmark of halves, and sums over their seeds."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from benchmarks import halves


@pytest.mark.parametrize(
    ("table", "shape"),
    [("prior", (300, 12)), ("holzinger", (301, 9)), ("wine", (178, 13)), ("diabetes", (442, 10))],
)
def test_tables_are_those_that_are_named(table, shape):
    x = halves.read(table, 1000, Path())
    assert x.shape == shape and x.to_numpy().dtype.kind == "f"
    assert np.array_equal(x, halves.read(table, 1000, Path()))
    assert np.array_equal(x, halves.read(table, 1001, Path())) == (table != "prior")


def test_the_same_rows_as_levels_and_as_answers(monkeypatch):
    """Of items with holes: levels as they are, answers where they are beyond the middle."""
    items = pd.DataFrame({"A1": [1.0, 6.0, np.nan, 4.0], "A2": [3.0, np.nan, 4.0, 2.0]})
    loaded = type("Loaded", (), {"x": items})
    monkeypatch.setattr("pyro_sparse.datasets.load_bfi", lambda path: loaded)
    levels, answers = (halves.read(f"bfi_{kind}", 1000, Path()) for kind in ("levels", "answers"))
    pd.testing.assert_frame_equal(levels, items)
    np.testing.assert_array_equal(answers, [[0, 0], [1, np.nan], [np.nan, 1], [1, 0]])
    options = Namespace(tables=None, edges=["prior"], quick=False, seeds=1, first_seed=1000, data="")
    assert not {task["table"] for task in halves.tasks(options)} & set(halves.LIKELIHOODS)


def test_seeds_of_a_table_are_summed_and_e_values_averaged():
    numbers = {name: 2.0 for name in halves.SUMS}
    rows = [
        {
            "table": "wine",
            "edge": "prior",
            **numbers,
            "e": e,
            "e_absent": 1.0,
            "against": e > 20,
            "doubts": True,
            "cpu_s": e,
        }
        for e in (1.0, 40.0)
    ]
    summed = halves.collect(rows, Namespace())["wine_prior"]
    assert all(summed[name] == 4.0 for name in halves.SUMS)
    assert (summed["n"], summed["e"], summed["against"], summed["doubts"], summed["cpu_s"]) == (
        2,
        20.5,
        1,
        2,
        20.5,
    )


def test_quick_is_one_table_and_practical_edges():
    options = Namespace(tables=None, edges=None, quick=True, seeds=1, first_seed=1000, data="folder")
    assert halves.tasks(options) == [
        {"table": "holzinger", "edge": "practical", "seed": 1000, "data": "folder"}
    ]
