"""Pictures: what is drawn is what the arrays say, names are drawn literally, and nothing is shown."""

from __future__ import annotations

import io
import sys
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch

import pyro_sparse as ps
from pyro_sparse import plots
from pyro_sparse.graphs import bayesian_fdr
from pyro_sparse.graphs.alignment import agreement_matrix
from pyro_sparse.inference.multitask.task_result import MultiTaskFit
from pyro_sparse.inference.transition.transition_result import TransitionFit
from pyro_sparse.posterior.tables import summary, to_arviz
from tests._fake_fit import fake_fit, fit_with_strengths
from tests._pictures import cut_off
from tests._tasks import quick_fit, tasks_on_latents

pytestmark = pytest.mark.usefixtures("hurried_module")

matplotlib = pytest.importorskip("matplotlib")
matplotlib.use("Agg")


@pytest.fixture(autouse=True)
def close_figures():
    import matplotlib.pyplot as plt

    yield
    plt.close("all")


@pytest.fixture
def fit():
    return fake_fit()


@pytest.fixture
def idata(fit):
    return fit.edge_posterior(num_draws=5)


def render(artist):
    figure = artist if hasattr(artist, "savefig") else artist.figure
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=50)
    return buffer.getvalue()


def drawings(fit, idata, X):
    return {
        "edges": lambda **kw: plots.plot_edges(idata, **kw),
        "forest": lambda **kw: plots.plot_forest(idata, **kw),
        "graph": lambda **kw: plots.plot_graph(idata, **kw),
        "elbo": lambda **kw: plots.plot_elbo(fit, **kw),
        "agreement": lambda **kw: plots.plot_agreement(idata, **kw),
        "predictive": lambda **kw: plots.plot_predictive(fit, X, **kw),
    }


@pytest.mark.slow
def test_everything_renders_on_dark_without_a_warning(fit, idata):
    with matplotlib.style.context("dark_background"):
        for draw in drawings(fit, idata, fit.sample(60)).values():
            assert len(render(draw())) > 2000


@pytest.mark.parametrize(
    "options",
    [
        {"n_restarts": 1},
        {"n_restarts": 14, "n_features": 70, "n_factors": 9, "n_active": 9},
        {"n_factors": 1, "n_active": 1, "n_features": 2, "n_restarts": 2},
    ],
)
@pytest.mark.slow
def test_small_and_large_fits_render(options):
    fit = fake_fit(**options)
    for draw in drawings(fit, fit.edge_posterior(num_draws=2), fit.sample(30)).values():
        render(draw())


@pytest.mark.slow
def test_names_are_drawn_literally(fit):
    fit.feature_names = ["$\\broken{", "a_b^c $x$", "<i>", "line\nbreak", "x" * 90, *fit.feature_names[5:]]
    idata = fit.edge_posterior(num_draws=2)
    for draw in drawings(fit, idata, fit.sample(40)).values():
        render(draw())
    labels = [label.get_text() for label in plots.plot_edges(idata).get_yticklabels()]
    assert {"$\\broken{", "a_b^c $x$", "<i>", "line break"} <= set(labels)
    assert max(map(len, labels)) == 28  # long names are cut in the middle


def test_given_axes_are_used_and_returned(fit, idata):
    import matplotlib.pyplot as plt

    for name, draw in drawings(fit, idata, fit.sample(40)).items():
        if name == "predictive":
            figure = plt.figure()
            assert draw(fig=figure) is figure
        else:
            _, ax = plt.subplots()
            assert draw(ax=ax) is ax


def test_nothing_is_shown(fit, idata, monkeypatch):
    import matplotlib.pyplot as plt

    monkeypatch.setattr(plt, "show", lambda *a, **k: pytest.fail("plt.show was called"))
    for draw in drawings(fit, idata, fit.sample(40)).values():
        draw()


def test_users_settings_are_left_alone(idata):
    before = dict(matplotlib.rcParams)
    plots.plot_edges(idata)
    assert dict(matplotlib.rcParams) == before


def test_edges_tiles_are_the_probabilities_and_strengths(fit, idata):
    ax = plots.plot_edges(idata)
    tiles = ax.collections[0]
    rows = [label.get_text() for label in ax.get_yticklabels()]
    order = [fit.feature_names.index(name) for name in rows]
    p = fit.edge_score[0][order]
    areas = np.array([np.prod(np.ptp(path.vertices, axis=0)) for path in tiles.get_paths()]).reshape(p.shape)
    np.testing.assert_allclose(areas, np.where(p > 0.02, 0.92**2 * p, 0), atol=1e-12)
    strength = np.sign(fit.weights[0]) * np.sqrt(fit.effects[0])
    np.testing.assert_allclose(tiles.get_array().reshape(p.shape), strength[order])
    home = strength[order].__abs__().argmax(axis=1)
    assert (np.diff(home) >= 0).all()  # ordered by factor
    assert [text.get_text() for text in ax.texts].count("?") == 1  # the disputed edge


@pytest.mark.parametrize(
    ("n", "k", "name"), [(2, 2, "x"), (4, 8, "x"), (8, 2, "a long name of feature number ")]
)
def test_edges_of_few_features_or_long_names_are_whole(n, k, name):
    fit = fake_fit(n, k, 2, feature_names=[f"{name}{j}" for j in range(n)])
    assert cut_off(plots.plot_edges(fit.edge_posterior(num_draws=2))) == []


def test_edges_says_when_features_are_left_out(idata):
    ax = plots.plot_edges(idata, max_features=5)
    assert len(ax.get_yticklabels()) == 5
    assert "5 of 12 features" in ax.get_title(loc="left")
    assert "tile area = score" in ax.get_title(loc="left")


def test_forest_points_are_the_weights(fit, idata):
    ax = plots.plot_forest(idata, top=20)
    (points,) = [c for c in ax.collections if len(c.get_offsets()) == 20 and c.get_offsets()[0, 1] == 0]
    for (x, y), label in zip(points.get_offsets(), ax.get_yticklabels(), strict=True):
        feature, factor = label.get_text().split("  ·  ")
        want = fit.weights[0, fit.feature_names.index(feature), fit.factor_names.index(factor)]
        assert x == pytest.approx(want) and y == label.get_position()[1]
    assert "spread over restarts" in ax.get_xlabel()
    with pytest.raises(ValueError, match="top: want at least 1 edge, got 0"):
        plots.plot_forest(idata, top=0)


def test_forest_of_strengths_has_no_bars():
    ax = plots.plot_forest(fit_with_strengths().edge_posterior("jacobian", num_draws=5))
    assert ax.get_xlabel() == "weight  (marks: other restarts)"


def test_forest_says_how_probable_large_loadings_are(fit):
    rng = np.random.default_rng(0)
    shape = (6, 40, *fit.weights.shape[1:])
    weight = fit.weights[:1, None] + 0.1 * rng.standard_normal(shape)
    idata = to_arviz(
        fit, edge=np.ones(shape, dtype=np.int8), weight=weight, probability=np.ones(shape[2:]),
        method="mcmc", is_score=False, note="",
    )  # fmt: skip
    ax = plots.plot_forest(idata, salient=0.7, top=12)
    p = summary(idata, salient=0.7).set_index(["feature", "factor"])["p_salient_0.7"]
    beside = {text.xy[1]: text.get_text() for text in ax.texts if text.xyann[0] > 30}
    assert beside.pop(-1) == "size ≥ 0.7" and len(beside) == 12
    for row, label in enumerate(ax.get_yticklabels()):
        assert beside[row] == f"{p[tuple(label.get_text().split('  ·  '))]:.2f}"
    assert {line.get_xdata()[0] for line in ax.lines if line.get_linestyle() == ":"} == {-0.7, 0.7}
    assert ax.get_xlabel().startswith("standardised loading")
    render(ax)


def test_forest_marks_each_chain(fit, idata):
    """Of chains all that are kept, for the dots are their mean; of restarts the others."""
    idata["sample_stats"]["best"][:] = True  # as chains are that begin at the best restart
    kept = int(idata["sample_stats"]["kept"].sum())

    def marks(ax):
        return {len(line.get_xdata()) for line in ax.lines if line.get_marker() == "|"}

    assert marks(plots.plot_forest(idata)) == {0}
    idata.attrs["edge_method"] = "mcmc"
    ax = plots.plot_forest(idata)
    assert kept > 1 and marks(ax) == {kept}
    assert "marks: each chain" in ax.get_xlabel()
    assert "Agreement between chains" in plots.plot_agreement(idata).get_title(loc="left")


def test_graph_draws_each_selected_edge_once(fit, idata):
    ax = plots.plot_graph(idata, fdr=0.1)
    selected = bayesian_fdr(fit.edge_score[0], 0.1)
    assert len(ax.patches) == selected.sum()
    widths = sorted(patch.get_linewidth() for patch in ax.patches)
    np.testing.assert_allclose(widths, np.sort(0.4 + 3.0 * fit.edge_score[0][selected]))
    assert sum(patch.get_linestyle() != "-" for patch in ax.patches) == 1  # the disputed edge
    drawn = {text.get_text() for text in ax.texts}
    assert drawn == {*fit.feature_names, *fit.factor_names[:3]}  # the empty factor is left out


def test_graph_without_an_edge_says_so(fit):
    fit.edge_score = np.full_like(fit.edge_score, 0.1)
    ax = plots.plot_graph(fit.edge_posterior(num_draws=2))
    assert "no edge is selected" in ax.texts[0].get_text()
    render(ax)


def test_elbo_lines_are_the_history(fit):
    ax = plots.plot_elbo(fit)
    lines = [line for line in ax.lines if len(line.get_xdata()) == 60]
    assert len(lines) == fit.n_restarts
    best = max(lines, key=lambda line: line.get_linewidth())
    want = fit.history[fit.history["restart"] == fit.best]
    np.testing.assert_array_equal(best.get_ydata(), want["heldout_elbo"])
    fit.history["heldout_elbo"] = np.nan
    ax = plots.plot_elbo(fit)
    assert ax.get_title(loc="left").startswith("Training")
    fit.history = fit.history.drop(columns="stage")
    render(plots.plot_elbo(fit))


def test_agreement_image_is_the_matrix_best_first(fit):
    fit.best = 2
    ax = plots.plot_agreement(fit.edge_posterior(num_draws=2))
    order = [2, 0, 1, 3, 4, 5]
    np.testing.assert_allclose(ax.images[0].get_array(), agreement_matrix(fit.weights)[np.ix_(order, order)])
    assert [label.get_text() for label in ax.get_xticklabels()] == ["2*", "0", "1", "3", "4", "5"]


def test_predictive_shows_correlations_and_the_worst_features_first(fit):
    X = fit.sample(400, seed=9)
    X[:, 7] = np.exp(X[:, 7])  # nothing like the model
    X[3, 2] = np.nan
    figure = plots.plot_predictive(fit, X, max_panels=4)
    assert [ax.get_title() or ax.get_title(loc="left") for ax in figure.axes][:2] == [
        "All correlations",
        "item 8",
    ]
    dots = [line for line in figure.axes[0].lines if line.get_linestyle() == "None"][0]
    upper = np.triu_indices(12, 1)
    np.testing.assert_allclose(dots.get_ydata(), pd.DataFrame(X).corr().to_numpy()[upper])
    simulated = pd.DataFrame(fit.sample(500, seed=0)).corr().to_numpy()
    np.testing.assert_allclose(dots.get_xdata(), simulated[upper])


def test_predictive_finds_columns_by_name(fit):
    X = pd.DataFrame(fit.sample(60, seed=9), columns=fit.feature_names)
    turned, straight = (
        plots.plot_predictive(fit, frame, max_panels=1).axes[0].lines[1] for frame in (X[X.columns[::-1]], X)
    )
    np.testing.assert_allclose(turned.get_xydata(), straight.get_xydata())


def test_predictive_counts_get_a_bar_each(fit):
    X = np.random.default_rng(0).poisson(2, size=(300, 12)).astype(float)
    figure = plots.plot_predictive(fit, pd.DataFrame(X), features=["item 3"])
    assert len(figure.axes) == 2
    bars = figure.axes[1].patches[:-1]
    np.testing.assert_allclose([bar.get_width() for bar in bars], 1)
    heights = {round(bar.get_x() + 0.5): bar.get_height() for bar in bars}
    for value in range(6):
        assert heights[value] == pytest.approx((X[:, 2] == value).mean(), abs=0.02)


@pytest.mark.parametrize("kind", [MultiTaskFit, TransitionFit])
def test_predictive_is_of_tables(kind):
    other = object.__new__(kind)
    with pytest.raises(
        TypeError, match=rf"^fit: want the fit of a table, .* got a {kind.__name__}; of tasks"
    ):
        plots.plot_predictive(other, np.zeros((10, 5)))


def test_predictive_messages(fit):
    with pytest.raises(ValueError, match=r"X: has 5 feature\(s\), the model was fitted to 12"):
        plots.plot_predictive(fit, np.zeros((10, 5)))
    with pytest.raises(ValueError, match=r"features: \['nobody'\] are not among"):
        plots.plot_predictive(fit, fit.sample(10), features=["nobody"])


def test_strengths_between_dictionaries_neither_rise_nor_fall():
    eye = SimpleNamespace(encode=torch.relu, decode=lambda f: f)
    weight = torch.where(torch.arange(144).view(12, 12) % 5 == 0, -1.0, 0.01)
    rows = torch.rand(50, 12) + 0.1
    refits = [
        ps.latent_graph(eye, eye, lambda x, i=i: 2 - x @ (weight + 0.002 * i).T, rows) for i in range(3)
    ]
    ax = plots.plot_graph(ps.edge_posterior(refits), max_features=5)
    assert len({patch.get_edgecolor()[:3] for patch in ax.patches}) == 1
    assert [text.get_text() for text in ax.get_legend().get_texts()] == []
    assert ax.get_title(loc="left").endswith("(5 of 12 latents with an edge)")


@pytest.mark.parametrize("name", ["plot_edges", "plot_forest", "plot_graph", "plot_agreement"])
def test_a_fit_is_no_posterior(fit, name):
    with pytest.raises(
        TypeError, match=r"idata: want an ArviZ object .* got FakeFit; fit.edge_posterior\(\)"
    ):
        getattr(plots, name)(fit)


@pytest.fixture(scope="module")
def fit_of_tasks():
    x, y, *_ = tasks_on_latents(t=8, k=2, g=3)
    return quick_fit(x, y, n_latents=2, restarts=1, steps=5, sparse_steps=2)


@pytest.mark.parametrize("name", ["plot_forest", "plot_agreement"])
def test_edges_of_tasks_are_no_table(fit_of_tasks, name):
    idata = fit_of_tasks.edge_posterior("score", num_draws=2)
    with pytest.raises(TypeError, match=r"idata: holds the edges of tasks, .* draw them with plot_edges"):
        getattr(plots, name)(idata)


def test_tasks_by_latents(fit_of_tasks):
    idata = fit_of_tasks.edge_posterior("ep", num_draws=50)
    ax = plots.plot_edges(idata)
    assert ax.get_title(loc="left").startswith("Which task uses which latent")
    names = [label.get_text() for label in ax.get_yticklabels()]
    assert sorted(names) == sorted(fit_of_tasks.task_names)
    weight = idata["posterior"]["weight"].isel(chain=fit_of_tasks.best).mean("draw").to_pandas()
    wanted = weight / np.sqrt((weight**2).sum(axis=1)).to_numpy()[:, None]
    drawn = ax.collections[0].get_array().reshape(len(names), -1)
    np.testing.assert_allclose(drawn, wanted.loc[names], atol=1e-12)
    assert not plots.plot_graph(idata, fdr=0.3).patches  # the tasks do not tell these latents apart
    idata = replace(fit_of_tasks, findings=[]).edge_posterior("ep", num_draws=50)
    lines = [patch.get_linewidth() for patch in plots.plot_graph(idata, fdr=0.3).patches]
    assert len(lines) == bayesian_fdr(idata["edge_posterior"]["probability"].to_numpy(), 0.3).sum() > 0


def test_a_fit_of_tasks_has_no_elbo(fit_of_tasks):
    with pytest.raises(TypeError, match="history of a MultiTaskFit has no ELBO but .*'objective', 'heldout'"):
        plots.plot_elbo(fit_of_tasks)


def test_a_posterior_has_no_history(idata):
    with pytest.raises(
        TypeError, match=f"fit: want what pyro_sparse.fit returned, got {type(idata).__name__}"
    ):
        plots.plot_elbo(idata)


def test_without_matplotlib_the_extra_is_named(idata, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ImportError, match=r'pip install "pyro-sparse\[plots\]"'):
        plots.plot_edges(idata)
