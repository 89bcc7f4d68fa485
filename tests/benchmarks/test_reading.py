"""What the factors of real tables are: rows in the order of the docs, numbers as they write them, files."""

from __future__ import annotations

from argparse import ArgumentParser

import pandas as pd
import pytest

from benchmarks import reading

EDGES = pd.DataFrame(
    {
        "factor": ["factor 10", "factor 2", "factor 2", "factor 2", "factor 10"],
        "feature": ["a", "b", "c", "d", "e"],
        "probability": [1.0, 0.99, 0.4, 0.01, 0.0],
        "weight": [0.5, 0.3, -0.8, 0.9, 0.0],
        "hdi90_lb": [0.4, -0.001, -0.9, 0.0, 0.0],
        "hdi90_ub": [0.6, 0.5, -0.1, 1.0, 0.0],
        "p_salient_0.3": [0.97, 0.996, 0.95, 0.0, 0.0],
        "verdict": ["present", "present", "open", "absent", "open"],
    }
)


def options_of(*words):
    parser = ArgumentParser()
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--seeds", type=int, default=1)
    reading.arguments(parser)
    return parser.parse_args(words)


def test_factors_are_in_their_order_and_their_largest_loadings_first():
    rows = reading.top_features(EDGES, top=2)
    assert [(row["factor"], row["feature"]) for row in rows] == [
        ("factor 2", "c"), ("factor 2", "b"), ("factor 10", "a"),
    ]  # fmt: skip
    assert [row["feature"] for row in reading.top_features(EDGES, top=1)] == ["c", "a"]


def test_edges_are_counted_by_verdict():
    assert reading.factors_of(EDGES) == [
        {"factor": "factor 2", "present": 1, "open": 1, "absent": 1, "large": 2},
        {"factor": "factor 10", "present": 1, "open": 1, "absent": 0, "large": 1},
    ]


@pytest.mark.parametrize(
    ("value", "text"), [(0.5, ".50"), (-0.5, "−.50"), (1.0, "1.00"), (0.995, ".99"), (-0.001, ".00")]
)
def test_numbers_are_written_as_in_the_docs(value, text):
    assert reading._number(value) == text


def test_without_a_table_it_says_what_is_wanted():
    with pytest.raises(SystemExit, match="--films"):
        reading.tasks(options_of())
    assert [task["data"] for task in reading.tasks(options_of("--cells", "cells.h5ad"))] == ["cells"]


@pytest.mark.slow
def test_tables_are_made_again_from_what_was_kept(tmp_path, monkeypatch):
    (task, _) = reading.tasks(options_of("--quick", "--keep", str(tmp_path), "--top", "1"))
    row = {**task, **reading.run(**task)}
    assert row["shape"] == [200, 30] and row["cpu_fit"] > 0
    text = reading.markdown([row])
    assert text.startswith("### films, seed 0: 200 rows, 30 columns\n\n| factor | present | open | absent |")
    assert "\n| factor 1 | film " in text
    monkeypatch.setattr("pyro_sparse.fit", None)
    again = {**task, **reading.run(**task)}
    assert "cpu_fit" not in again and reading.markdown([again]) == text
    (line,) = reading.table([row])
    assert line["present"] + line["open"] + line["absent"] == 90
    assert reading.collect([row], None) == {"films": [row["factors"]]}
