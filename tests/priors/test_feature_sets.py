"""Sets of features: a GMT file, a table of memberships, the odds that they make, and bad input."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import pyro_sparse as ps
from pyro_sparse.priors import odds_of_sets, read_gmt


def test_a_gmt_file_is_read_line_by_line(tmp_path):
    path = tmp_path / "sets.gmt"
    path.write_text("STRESS\thttp://x\tHSPA1A\tDNAJB1\tHSPA1A\n\nCYCLE\t\tCDK1\t TOP2A \t\n")
    assert read_gmt(path) == {"STRESS": ["HSPA1A", "DNAJB1"], "CYCLE": ["CDK1", "TOP2A"]}


@pytest.mark.parametrize(
    ("text", "words"),
    [("A\tx\tg\nB\tx\n", "line 2 .* has no members"), ("A\tx\tg\nA\tx\th\n", "line 2 .* the set 'A' again")],
)
def test_lines_that_are_no_sets_are_named(tmp_path, text, words):
    (tmp_path / "sets.gmt").write_text(text)
    with pytest.raises(ValueError, match=words):
        read_gmt(tmp_path / "sets.gmt")


def test_odds_of_members_of_others_and_of_free_factors():
    odds = odds_of_sets({"s": ["b", "z"], "t": ["a", "b"]}, ["a", "b", "c"], member=20, other=0.5, free=2)
    assert list(odds.columns) == ["s", "t", "free 1", "free 2"] and list(odds.index) == ["a", "b", "c"]
    np.testing.assert_array_equal(odds.to_numpy(), [[0.5, 20, 1, 1], [20, 20, 1, 1], [0.5, 0.5, 1, 1]])
    table = pd.DataFrame({"s": [0, 1, 0], "t": [True, True, False]}, index=list("abc"))
    pd.testing.assert_frame_equal(odds_of_sets(table, list("abc"), member=20, other=0.5, free=2), odds)


@pytest.mark.parametrize(
    ("sets", "options", "words"),
    [
        ({"s": ["z"]}, {}, "no feature is in 's' .*other names"),
        ({}, {}, "got none"),
        ({"s": ["a"]}, {"member": 0}, "wanted positive odds"),
        ({"s": ["a"]}, {"other": np.inf}, "wanted positive odds"),
        ({"s": ["a"]}, {"free": -1}, "free: want a whole number"),
        ({"free 1": ["a"]}, {"free": 1}, "a set is called 'free 1'"),
    ],
)
def test_sets_that_make_no_odds_are_refused(sets, options, words):
    with pytest.raises((ValueError, TypeError), match=words):
        odds_of_sets(sets, ["a", "b"], **options)


def test_what_is_missing_in_a_table_is_in_no_set():
    table = pd.DataFrame({"s": [1.0, np.nan]}, index=["a", "b"])
    assert odds_of_sets(table, ["a", "b"])["s"].tolist() == [10.0, 0.3]


def test_columns_of_odds_are_found_by_the_names_of_factors():
    odds = odds_of_sets({"left": ["a", "b"], "right": ["c", "d"]}, list("abcd"))
    model = ps.models.SparseDecoder(4, 2, edge_odds=odds, factor_names=["right", "left"], decoder="linear")
    model.setup(feature_names=list("abcd"))
    wanted = odds[["right", "left"]].to_numpy()
    np.testing.assert_allclose(np.exp(model.prior.known.numpy()), wanted, rtol=1e-5)
    model = ps.models.SparseDecoder(4, 2, edge_odds=odds, factor_names=["x", "y"], decoder="linear")
    with pytest.raises(ValueError, match="call them alike"):
        model.setup(feature_names=list("abcd"))


def test_a_decoder_takes_them_and_its_factors_may_be_called_by_the_sets():
    odds = odds_of_sets({"left": ["a", "b"], "right": ["c", "d"]}, list("abcd"))
    model = ps.models.SparseDecoder(4, 2, edge_odds=odds, factor_names=list(odds.columns), decoder="linear")
    model.setup(feature_names=list("abcd"))
    np.testing.assert_allclose(np.exp(model.prior.known.numpy()), odds.to_numpy(), rtol=1e-5)
