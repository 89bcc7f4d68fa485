"""The scree plot: what it draws is the table of numbers, and what it refuses."""

from __future__ import annotations

import matplotlib
import numpy as np
import pytest

import pyro_sparse as ps
from pyro_sparse import plots

pytestmark = pytest.mark.usefixtures("hurried_module")


@pytest.fixture(scope="module")
def fit():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(200, 2)) @ np.kron(np.eye(2), np.full((1, 4), 0.7)) + 0.6 * rng.normal(size=(200, 8))
    model = ps.models.SparseDecoder(n_factors=3, decoder="linear")
    return ps.fit(model, x, restarts=2, steps=500, seed=0, progress=False)


def test_points_are_eigenvalues_and_lines_those_of_noise(fit):
    table = fit.number_of_factors().loc[1:]
    ax = plots.plot_number_of_factors(fit.number_of_factors())
    by_label = {line.get_label(): line for line in ax.lines}
    np.testing.assert_allclose(by_label["tables of noise"].get_ydata(), table["noise"])
    drawn = np.concatenate([container[0].get_xydata() for container in ax.containers])
    np.testing.assert_allclose(drawn, np.c_[table.index, table["eigenvalue"]])
    assert ax.get_title(loc="left") == "2 factors kept" and len(ax.containers[0][0].get_xdata()) == 2
    likely = [text.get_text() for text in ax.texts]
    assert len(likely) == (table["probability"] >= 0.005).sum() and likely[0].startswith("P = ")


def test_the_axis_speaks_of_probabilities_only_where_there_are_some(fit):
    table = fit.number_of_factors()
    for probability, label in (
        (table["probability"], "factors (P: probability of the number)"),
        (np.nan, "factors"),
    ):
        _, ax = matplotlib.pyplot.subplots()
        ax = plots.plot_number_of_factors(table.assign(probability=probability), ax=ax)
        assert ax.get_xlabel() == label and bool(ax.texts) == (label != "factors")


def test_it_draws_on_given_axes_and_on_dark(fit):
    with matplotlib.style.context("dark_background"):
        _, ax = matplotlib.pyplot.subplots()
        assert plots.plot_number_of_factors(fit, ax=ax) is ax
        ax.figure.canvas.draw()


def test_a_fit_is_wanted(fit):
    for wrong in (fit.number_of_factors()[["noise"]], fit.weights):
        with pytest.raises(TypeError, match=rf"want what pyro_sparse\.fit .* got {type(wrong).__name__}"):
            plots.plot_number_of_factors(wrong)
