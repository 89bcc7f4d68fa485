"""What the command line prints of edges."""

from __future__ import annotations

import pandas as pd

from pyro_sparse.cli.printing import print_edges


def edges(**columns):
    shown = {
        "feature": ["a", "b"],
        "factor": ["factor 1", "factor 1"],
        "probability": [1.0, 0.99],
        "weight": [0.9, 0.02],
        "hdi90_lb": [0.8, -0.4],
        "hdi90_ub": [1.0, 0.5],
        "effect": [0.81, 0.16],
        "gap": [0.0, 0.0],
        "unresolved": [False, False],
        "verdict": ["present", "present"],
        **columns,
    }
    frame = pd.DataFrame(shown)
    frame.attrs.update(is_score=False, fdr=0.1, interval_prob=0.9)
    return frame


def test_a_curve_without_one_direction_is_marked(capsys):
    print_edges(edges())
    printed = capsys.readouterr().out
    assert "± 0.40" in printed and "0.90" in printed and "neither rises nor falls" in printed


def test_an_edge_that_may_not_be_there_keeps_its_weight(capsys):
    print_edges(edges(verdict=["present", "open"]))
    printed = capsys.readouterr().out
    assert "±" not in printed and "0.02" in printed


def test_edges_that_the_runs_dispute_are_marked(capsys):
    print_edges(edges())
    assert "?" not in capsys.readouterr().out
    print_edges(edges(unresolved=[False, True], gap=[0.0, 0.4]))
    printed = capsys.readouterr().out
    assert " b ? " in printed and " a ? " not in printed
    assert "?: unresolved, the runs disagree by more than .25" in " ".join(printed.split())


def test_the_verdict_stands_below(capsys):
    print_edges(edges(), verdict=["Two chains disagree on factor 1 [bold].", "Run them longer."])
    lines = capsys.readouterr().out.splitlines()
    assert lines[-2:] == ["Two chains disagree on factor 1 [bold].", "Run them longer."]


def test_no_edges(capsys):
    print_edges(edges().head(0))
    assert "0 edges" in capsys.readouterr().out


def test_how_large_a_loading_is_stands_beside_its_edge_and_takes_the_place_of_the_share(capsys):
    print_edges(edges())
    assert "variance" in capsys.readouterr().out
    drawn = edges(**{"p_salient_0.4": [0.97, 0.5], "hdi90_lb": [0.8, -0.001]})
    drawn.attrs.update(salient=0.4, interval_prob=0.9)
    print_edges(drawn)
    printed = " ".join(capsys.readouterr().out.split())
    assert "│ a │ 1.00 │ 0.97 │ 0.90 │ 0.80…1.00 │ 0.00 │" in printed
    assert "0.00…0.50" in printed and "-0.00" not in printed
    assert "≥ 0.4: probability that the loading is so large" in printed and "variance" not in printed
