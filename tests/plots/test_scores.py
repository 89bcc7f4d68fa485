"""Scores of rows by group: every row is drawn where its scores are, in the colour of its group."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import pyro_sparse as ps
from pyro_sparse import plots
from pyro_sparse.data.design import Design, Term
from pyro_sparse.plots.scores import _PALETTE
from tests._fake_fit import fake_fit
from tests._pictures import cut_off

matplotlib = pytest.importorskip("matplotlib")
matplotlib.use("Agg")
to_hex = pytest.importorskip("matplotlib.colors").to_hex

N = 90
ARMS = np.array(["control", "treated"])[np.arange(N) % 2]


@pytest.fixture(autouse=True)
def close_figures():
    import matplotlib.pyplot as plt

    yield
    plt.close("all")


@pytest.fixture
def fit():
    """Its scores are known, and it keeps what `transform` was called with."""
    fit = fake_fit(n_samples=N)
    fit.scores = np.random.default_rng(0).normal(size=(N, 4))
    fit.calls = []

    def transform(X=None, **per_row):
        fit.calls.append((X, per_row))
        return fit.scores[: N if X is None else len(X)]

    fit.transform = transform
    return fit


def dots(ax):
    """Places and colours of all dots."""
    places = np.concatenate([dots.get_offsets() for dots in ax.collections])
    shades = [
        to_hex(colour)
        for dots in ax.collections
        for colour in np.broadcast_to(dots.get_facecolors(), (len(dots.get_offsets()), 4))
    ]
    return {(round(x, 9), round(y, 9)): shade for (x, y), shade in zip(places, shades, strict=True)}


def legend(ax):
    return {t.get_text(): to_hex(h.get_color())
            for t, h in zip(ax.get_legend().texts, ax.get_legend().legend_handles, strict=True)}  # fmt: skip


def test_every_row_where_its_scores_are_in_the_colour_of_its_group(fit):
    ax = plots.plot_scores(fit, factors=("factor 3", 0), groups=pd.Series(ARMS, name="arm"))
    colour = dict(zip(("control", "treated"), _PALETTE, strict=False))
    wanted = {(round(z[2], 9), round(z[0], 9)): colour[arm] for z, arm in zip(fit.scores, ARMS, strict=True)}
    assert dots(ax) == wanted
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("factor 3", "factor 1")
    assert legend(ax) == {f"{arm} (45)": shade for arm, shade in colour.items()}
    assert ax.get_legend().get_title().get_text() == "arm"
    assert ax.get_title(loc="left") == "Scores of 90 rows"


def test_without_groups_there_is_one_colour_and_no_legend(fit):
    ax = plots.plot_scores(fit)
    assert len(dots(ax)) == N and len(set(dots(ax).values())) == 1 and ax.get_legend() is None


def test_more_groups_than_colours_and_missing_ones_are_grey(fit):
    groups = np.array([f"g{i % 9}" for i in range(N)], dtype=object)
    groups[:3] = None  # of g0, g1 and g2, which have 9 rows then and the others 10
    ax = plots.plot_scores(fit, groups=groups)
    assert list(legend(ax)) == [
        *(f"g{i} ({9 if i < 1 else 10})" for i in (0, *range(3, 9))), "2 smaller groups (18)", "missing (3)"
    ]  # fmt: skip
    shades = dots(ax)
    grey = legend(ax)["missing (3)"]
    for z, group in zip(fit.scores, groups, strict=True):
        assert (shades[round(z[0], 9), round(z[1], 9)] == grey) == (group in (None, "g1", "g2"))


def test_amounts_are_a_scale_of_colours(fit):
    ages = pd.Series(np.linspace(20, 70, N), name="age")
    ages[4] = np.nan
    ax = plots.plot_scores(fit, groups=ages)
    bar = ax.figure.axes[-1]
    assert bar.get_ylabel() == "age" and len(dots(ax)) == N
    by_place = {tuple(p): v for p, v in zip(ax.collections[1].get_offsets().round(9).tolist(),
                                            ax.collections[1].get_array(), strict=True)}  # fmt: skip
    assert by_place[tuple(fit.scores[7, :2].round(9))] == ages[7] and len(by_place) == N - 1
    few = plots.plot_scores(fit, groups=np.arange(N) % 3)  # whole numbers of few levels are groups
    assert list(legend(few)) == ["0 (30)", "1 (30)", "2 (30)"]


def test_one_factor_is_a_strip_for_each_group_over_a_box(fit):
    ax = plots.plot_scores(fit, factors=1, groups=pd.Categorical(ARMS, ["treated", "control", "nobody"]))
    assert [t.get_text() for t in ax.get_yticklabels()] == ["treated (45)", "control (45)"]
    for place, arm in enumerate(("treated", "control")):
        own = fit.scores[ARMS == arm, 1]
        at = ax.collections[2 * place].get_offsets()
        np.testing.assert_allclose(np.sort(at[:, 0]), np.sort(own))
        assert np.abs(at[:, 1] - place).max() < 0.3
        box = ax.patches[place].get_bbox()
        assert (box.x0, box.x1) == pytest.approx(tuple(np.quantile(own, [0.25, 0.75])))
        line = ax.collections[2 * place + 1].get_paths()[0].vertices
        assert line[:, 0] == pytest.approx([np.median(own)] * 2)
    assert ax.get_xlabel() == "factor 2"
    alone = plots.plot_scores(fit, factors="factor 2")
    assert [t.get_text() for t in alone.get_yticklabels()] == ["all rows (90)"]


def test_one_factor_against_an_amount(fit):
    ages = pd.Series(np.linspace(20, 70, N), name="age")
    ax = plots.plot_scores(fit, factors=(0,), groups=ages)
    assert set(dots(ax)) == {(round(a, 9), round(z, 9)) for a, z in zip(ages, fit.scores[:, 0], strict=True)}
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("age", "factor 1")


def test_a_column_that_only_names_groups_is_not_given_to_the_fit(fit):
    X = pd.DataFrame(np.zeros((20, 12)), columns=fit.feature_names)
    ax = plots.plot_scores(fit, X.assign(arm=ARMS[:20]), groups="arm")
    assert list(legend(ax)) == ["control (10)", "treated (10)"]
    assert list(fit.calls[-1][0].columns) == fit.feature_names
    plots.plot_scores(fit, X, groups="item 3")  # a feature stays
    assert list(fit.calls[-1][0].columns) == fit.feature_names


def test_a_fit_with_groups_by_value_gets_those_of_the_rows(fit):
    X = np.zeros((20, 12))
    fit.table.design = Design((Term("batch", "groups", ("a", "b")),), np.zeros(2), np.eye(2), N)
    plots.plot_scores(fit, X, groups=ARMS[:20])
    assert list(fit.calls[-1][1]) == ["groups"]
    plots.plot_scores(fit, X, groups=ARMS[:20], batch=np.full(20, "a"))
    assert list(fit.calls[-1][1]) == ["batch"]
    plots.plot_scores(fit, groups=ARMS)  # its own rows it knows
    assert fit.calls[-1] == (None, {})


def test_axes_that_are_given_are_used(fit):
    import matplotlib.pyplot as plt

    for options in ({}, {"factors": 0}, {"groups": ARMS}, {"factors": 0, "groups": np.linspace(0, 1, N)}):
        _, ax = plt.subplots()
        assert plots.plot_scores(fit, ax=ax, **options) is ax


@pytest.mark.parametrize("factors", [0, (0, 1)])
def test_nothing_is_cut_off(fit, factors):
    fit.factor_names[0] = "a factor with a name that is far too long for the side of a picture"
    groups = pd.Series(ARMS, name="what was done to the rows $x_1$").replace("treated", "t" * 60)
    assert not cut_off(plots.plot_scores(fit, factors=factors, groups=groups))


def test_what_is_refused(fit):
    for wrong in ("factor 9", 4):
        with pytest.raises(
            ValueError, match=f"factors: got {wrong!r}, wanted a name or a position from 0 to 3"
        ):
            plots.plot_scores(fit, factors=(0, wrong))
    with pytest.raises(ValueError, match="factors: got 3, wanted one or two"):
        plots.plot_scores(fit, factors=(0, 1, 2))
    with pytest.raises(ValueError, match="groups: got 5 values for 90 rows"):
        plots.plot_scores(fit, groups=ARMS[:5])
    with pytest.raises(
        ValueError, match="groups: got 'arm', the name of a column, and X has no columns by name"
    ):
        plots.plot_scores(fit, groups="arm")
    with pytest.raises(ValueError, match="groups: got 'arm', .*X has the columns"):
        plots.plot_scores(fit, pd.DataFrame(np.zeros((3, 12)), columns=fit.feature_names), groups="arm")
    shuffled = pd.Series(ARMS, index=fit.sample_names[::-1])
    with pytest.raises(ValueError, match="groups: has the rows of X in another order"):
        plots.plot_scores(fit, groups=shuffled)
    with pytest.raises(TypeError, match="fit: got a FakeFit, wanted the fit of a table"):
        plots.plot_scores(fake_fit())


@pytest.mark.slow
def test_scores_of_a_fit_with_groups():
    rng = np.random.default_rng(0)
    z = rng.normal(size=(80, 1))
    X = pd.DataFrame(
        z @ rng.uniform(0.8, 1.2, (1, 5)) + 0.4 * rng.normal(size=(80, 5)), columns=list("abcde")
    )
    X["site"] = np.repeat(["north", "south"], 40)
    model = ps.models.SparseDecoder(n_factors=1, decoder="linear")
    fit = ps.fit(model, X, groups="site", restarts=1, steps=60, progress=False)
    ax = plots.plot_scores(fit, X, factors=0, groups="site")
    assert [t.get_text() for t in ax.get_yticklabels()] == ["north (40)", "south (40)"]
    np.testing.assert_allclose(
        np.sort(ax.collections[0].get_offsets()[:, 0]), np.sort(fit.transform(X)[:40, 0])
    )
