"""Pictures of calibration: dots, bands and lines are the numbers, on given axes and on dark ground too."""

from __future__ import annotations

import io
from dataclasses import replace

import numpy as np
import pytest

from pyro_sparse.calibrate import reliability, sbc
from pyro_sparse.plots import plot_reliability, plot_sbc
from tests._pictures import cut_off

matplotlib = pytest.importorskip("matplotlib")
matplotlib.use("Agg")


@pytest.fixture(autouse=True)
def close_figures():
    import matplotlib.pyplot as plt

    yield
    plt.close("all")


def forecast(power=1.0):
    rng = np.random.default_rng(0)
    p = rng.beta(0.6, 1.0, (100, 6, 3))
    truth = rng.random(p.shape) < p
    return reliability(p**power / (p**power + (1 - p) ** power), truth, group=np.arange(100))


@pytest.fixture(scope="module")
def ranks():
    def simulate(rng):
        return rng.random((4, 3)) < 0.3, None

    return sbc(
        simulate, lambda _, rng: rng.random((31, 4, 3)) < 0.5, n_data_sets=40, num_draws=31, progress=False
    )


def test_dots_are_the_curve_and_bands_stand_behind_them():
    result = forecast(2.0)
    ax = plot_reliability(result)
    curve = result.curve
    outside = (curve["frequency"] < curve["band_low"]) | (curve["frequency"] > curve["band_high"])
    dots = {line.get_label(): line.get_xydata() for line in ax.lines if line.get_marker() == "o"}
    np.testing.assert_allclose(dots["outside"], curve.loc[outside, ["mean_probability", "frequency"]])
    np.testing.assert_allclose(
        dots["inside its band"], curve.loc[~outside, ["mean_probability", "frequency"]]
    )
    bands, strip = ax.containers
    for bar, (_, row) in zip(bands, curve.iterrows(), strict=True):
        assert bar.get_x() == pytest.approx(row["low"])
        assert bar.get_y() == pytest.approx(row["band_low"])
        assert bar.get_y() + bar.get_height() == pytest.approx(row["band_high"])
    heights = np.array([bar.get_height() for bar in strip])
    np.testing.assert_allclose(heights / heights.max(), np.sqrt(curve["count"] / curve["count"].max()))
    assert ax.get_title(loc="left").startswith("Too sure")
    assert ax.get_xlabel() == "probability given to 1,800 edges"


def test_lines_are_the_differences_and_what_leaves_is_named(ranks):
    axes = plot_sbc(ranks)
    assert len(axes) == len(ranks.statistics) == 7
    for ax, name, ecdf, inside in zip(axes, ranks.statistics, ranks.ecdf, ranks.inside, strict=True):
        line = ax.lines[-1]
        np.testing.assert_allclose(line.get_xdata()[1:-1], ranks.points)
        np.testing.assert_allclose(line.get_ydata()[1:-1], ecdf - ranks.points)
        assert ax.get_title(loc="left") == (name if inside else f"{name}: outside")
        path = ax.collections[0].get_paths()[0].vertices
        assert path[:, 1].max() == pytest.approx((ranks.band_high - ranks.points).max())
        assert path[:, 1].min() == pytest.approx((ranks.band_low - ranks.points).min())
    outside = (~ranks.inside).sum()
    assert outside and f"{outside} of 7 outside" in axes[0].figure.get_suptitle()


@pytest.mark.parametrize("n", [1, 4])
def test_long_names_of_statistics_are_whole(ranks, n):
    long = replace(
        ranks,
        statistics=tuple(f"how many of all the edges there are {i}" for i in range(n)),
        ranks=np.zeros((40, n), dtype=int),
        pit=np.full((40, n), 0.01),
    )
    axes = plot_sbc(long)
    assert cut_off(axes[0]) == []
    assert axes[0].get_title(loc="left").endswith(": outside")


def test_given_axes_are_drawn_on(ranks):
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(2, 4)
    assert plot_reliability(forecast(), axes[0, 0]) is axes[0, 0]
    drawn = plot_sbc(ranks, axes)
    assert list(drawn) == list(axes.ravel()[:7]) and figure.get_suptitle() == ""
    with pytest.raises(ValueError, match="axes: want one for each of the 7 statistics, got 4"):
        plot_sbc(ranks, axes[0])


@pytest.mark.slow
def test_both_render_on_dark_without_a_warning(ranks):
    with matplotlib.style.context("dark_background"):
        for figure in (
            plot_reliability(forecast()).figure,
            plot_reliability(reliability([0.0, 1.0], [0, 1])).figure,
            plot_sbc(ranks)[0].figure,
        ):
            buffer = io.BytesIO()
            figure.savefig(buffer, format="png", dpi=50)
            assert len(buffer.getvalue()) > 2000


def test_what_they_draw_is_named():
    with pytest.raises(
        TypeError, match=r"result: want a Reliability, got list; calibrate.reliability makes one"
    ):
        plot_reliability([0.1])
    with pytest.raises(TypeError, match=r"result: want a SBC, got list; calibrate.sbc makes one"):
        plot_sbc([0.1])
