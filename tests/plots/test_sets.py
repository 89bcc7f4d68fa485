"""The UpSet picture: its stacks and dots are the atoms, from graphs, draws and edge posteriors."""

from __future__ import annotations

import io

import numpy as np
import pandas as pd
import pytest

from benchmarks.certificates import table_idata, transition_idata
from pyro_sparse.graphs import atom_probability, atoms
from pyro_sparse.plots import plot_sets
from tests._pictures import cut_off

matplotlib = pytest.importorskip("matplotlib")
matplotlib.use("Agg")

GRAPH = np.array([[1, 0, 0], [1, 0, 0], [1, 1, 0], [0, 1, 1], [0, 0, 0]])


@pytest.fixture(autouse=True)
def close_figures():
    import matplotlib.pyplot as plt

    yield
    plt.close("all")


def texts(ax):
    ax.figure.savefig(io.BytesIO(), format="png", dpi=40)
    return [t.get_text() for t in ax.texts], [t.get_text() for t in ax.get_yticklabels()]


def stacks(ax):
    """Height of each column, and its colour."""
    heights, colour = {}, {}
    for bar in ax.patches:
        if bar.get_width() == pytest.approx(0.8):
            x = round(bar.get_x() + 0.4)
            heights[x] = heights.get(x, 0.0) + bar.get_height()
            colour[x] = bar.get_facecolor()[:3]
    return [heights[x] for x in sorted(heights)], [colour[x] for x in sorted(colour)]


def dots(ax):
    """Which sets each column is in, from the shade of its dots."""
    columns = [c for c in ax.collections if isinstance(c, matplotlib.collections.PathCollection)]
    shades = [[tuple(s[:3]) for s in c.get_facecolors()] for c in columns]
    from pyro_sparse.plots._style import colours

    on = matplotlib.colors.to_rgb(colours()["muted"])
    return [[shade == pytest.approx(on) for shade in one] for one in shades]


def test_features_by_their_factors():
    ax = plot_sets(GRAPH)
    written, rows = texts(ax)
    heights, colour = stacks(ax)
    assert heights == pytest.approx([2, 1, 1, 1])
    assert dots(ax) == [[True, False, False], [True, True, False], [False, True, True], [False] * 3]
    assert rows == ["z1  3", "z2  2", "z3  1"]
    assert {"x1", "x2", "x3", "x4", "x5"} <= set(written)
    assert colour[0] != colour[1] and colour[1] == colour[2] != colour[3]
    assert "regions" not in ax.get_title(loc="left")


def test_the_title_of_few_sets_is_whole():
    for graph in (np.ones((5, 1), dtype=int), np.eye(2, dtype=int)):
        assert cut_off(plot_sets(graph)) == []


def test_factors_by_groups_of_features_are_atoms():
    frame = pd.DataFrame(GRAPH, index=list("abcde"), columns=["mood", "sleep", "work"])
    groups = {"left": ["a", "c"], "right": ["d"]}
    ax = plot_sets(frame, groups)
    written, rows = texts(ax)
    assert rows == ["left  2", "right  2"]
    parts = atoms(frame, groups).parts
    found = {
        tuple(name for name, on in zip(groups, column, strict=True) if on): height
        for column, height in zip(dots(ax), stacks(ax)[0], strict=True)
    }
    assert found == pytest.approx({key: len(names) for key, names in parts.items()})
    assert {"mood", "sleep", "work"} <= set(written)


def test_draws_and_edge_posteriors_are_the_same():
    rng = np.random.default_rng(0)
    draws = rng.random((2, 50, 6, 3)) < rng.uniform(0.1, 0.9, (6, 3))
    groups = {"A": [0, 1], "B": [4]}
    wanted = atom_probability(draws, groups)
    sizes = sorted(size for size in wanted.expected_size if size >= 0.1)
    for graph in (draws, table_idata(draws)):
        heights, _ = stacks(plot_sets(graph, groups))
        assert sorted(heights) == pytest.approx(sizes, abs=0.05)  # slivers below .01 are not drawn
    _, rows = texts(plot_sets(table_idata(draws)))
    assert rows[0].startswith("factor 1  ")


def test_many_regions_are_cut_and_it_is_said():
    rng = np.random.default_rng(1)
    graph = rng.random((80, 6)) < 0.4
    ax = plot_sets(graph, max_regions=5)
    assert len(stacks(ax)[0]) == 5
    assert "5 of" in ax.get_title(loc="left")
    assert not {"x1", "x2"} & set(texts(ax)[0])  # too many to name
    with matplotlib.style.context("dark_background"):
        texts(plot_sets(graph))


def test_it_draws_on_the_axes_it_is_given_and_when_there_is_nothing():
    import matplotlib.pyplot as plt

    _, ax = plt.subplots()
    assert plot_sets(GRAPH, [[0], [3]], ax=ax) is ax
    assert "no factor reaches a feature" in texts(plot_sets(np.zeros((3, 2))))[0]
    texts(plot_sets(np.zeros((3, 2)), [[0], [1]]))
    assert texts(plot_sets([[1], [0]]))[1] == ["z1  1"]


def test_complaints():
    with pytest.raises(ValueError, match="graph: want edges of 0 or 1, got 0.4"):
        plot_sets([[0.4, 1]])
    with pytest.raises(ValueError, match="max_regions: want at least 1, got 0"):
        plot_sets(GRAPH, max_regions=0)
    with pytest.raises(ValueError, match="no feature is called 'q'"):
        plot_sets(GRAPH, {"A": ["q"]}, feature_names=list("abcde"))
    with pytest.raises(TypeError, match="graph: holds no edges of a table"):
        plot_sets(transition_idata(np.eye(2), np.eye(2)))
