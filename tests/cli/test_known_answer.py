"""Sentences of the demo, on tables of edges that are written here."""

from __future__ import annotations

import pandas as pd

from pyro_sparse.cli.known_answer import compared

SCALES = {"words": "verbal", "texts": "verbal", "dots": "speed", "capitals": "speed"}


def edges(*present):
    rows = [(f, k) for f in SCALES for k in ("factor 1", "factor 2")]
    table = pd.DataFrame(rows, columns=["feature", "factor"])
    there = [row in present for row in rows]
    return table.assign(verdict=["present" if yes else "open" for yes in there])


def test_factors_are_named_by_the_scale_that_they_share_most_with():
    said = compared(
        edges(("words", "factor 2"), ("texts", "factor 2"), ("dots", "factor 1"), ("capitals", "factor 1")),
        SCALES,
    )
    assert said == [
        "4 of 4 tests depend on the factor of the ability that they were made for "
        "(factor 1 is speed, factor 2 is verbal)"
    ]


def test_other_edges_are_named_and_lost_ones_are_not_counted():
    said = compared(
        edges(("words", "factor 1"), ("texts", "factor 1"), ("dots", "factor 2"), ("dots", "factor 1")),
        SCALES,
    )
    assert said[0].startswith("3 of 4 tests")
    assert said[1:] == ["dots depends on the verbal ability, too"]


def test_nothing_present_is_said():
    assert "nothing to compare" in compared(edges(), SCALES)[0]
