"""The strongest features of each factor: what is drawn is what the summary says, in its order."""

from __future__ import annotations

import numpy as np
import pytest

from pyro_sparse import plots
from pyro_sparse.posterior.tables import summary, to_arviz
from tests._fake_fit import fake_fit, fit_with_strengths
from tests._pictures import cut_off
from tests.plots.test_transition import transition

matplotlib = pytest.importorskip("matplotlib")
matplotlib.use("Agg")


@pytest.fixture(autouse=True)
def close_figures():
    import matplotlib.pyplot as plt

    yield
    plt.close("all")


def drawn(fit, draws=60):
    """Draws of loadings around the fit's weights, through an imaginary method with probabilities."""
    shape = (fit.n_restarts, draws, *fit.weights.shape[1:])
    weight = fit.weights[:1, None] + 0.05 * np.random.default_rng(0).normal(size=shape)
    return to_arviz(
        fit, edge=np.ones(shape, np.int8), weight=weight, probability=fit.edge_score[0], method="mcmc",
        is_score=False, note="",
    )  # fmt: skip


def labels(ax):
    return [label.get_text() for label in ax.get_yticklabels()]


def test_each_panel_has_the_strongest_features_of_its_factor():
    fit = fake_fit()
    idata = drawn(fit)
    panels = plots.plot_top_weights(idata, n=3)
    assert [ax.get_title(loc="left") for ax in panels] == ["factor 1", "factor 2", "factor 3"]
    table = summary(idata)
    for ax, factor in zip(panels, ("factor 1", "factor 2", "factor 3"), strict=True):
        top = table[table["factor"] == factor].sort_values("effect", ascending=False).head(3)
        assert labels(ax) == top["feature"].to_list()
        dots = ax.collections[-1].get_offsets()
        np.testing.assert_allclose(dots, np.column_stack([top["weight"], [0, 1, 2]]))
        bars = np.array([path.vertices[:, 0] for path in ax.collections[0].get_paths()])
        np.testing.assert_allclose(bars, top[["hdi90_lb", "hdi90_ub"]])
        numbers = [text.get_text().removesuffix(" ?") for text in ax.texts]
        assert numbers == ["probability", *(f"{p:.2f}" for p in top["probability"])]
        assert [text.get_text().endswith(" ?") for text in ax.texts[1:]] == top["unresolved"].to_list()
    assert len({ax.get_xlim() for ax in panels}) == 1
    assert "standardised loading\n(bar: 90 % HDI)" in panels[0].get_xlabel()
    assert (
        panels[0].figure.get_suptitle() == "The strongest features\n1 factor without a selected edge left out"
    )


def test_edges_that_are_not_selected_are_hollow():
    idata = drawn(fake_fit())
    (ax,) = plots.plot_top_weights(idata, "factor 3", n=12)
    selected = summary(idata).set_index(["factor", "feature"])["selected"].loc["factor 3"]
    faces, rims = (getattr(ax.collections[-1], f"get_{what}colors")() for what in ("face", "edge"))
    filled = (faces == rims).all(axis=1)
    assert filled.tolist() == selected.loc[labels(ax)].to_list() and 0 < filled.sum() < 12


def test_factors_by_name_or_position_on_axes_that_are_given():
    import matplotlib.pyplot as plt

    idata = drawn(fake_fit())
    _, axes = plt.subplots(2, 2)
    panels = plots.plot_top_weights(idata, ["factor 2", 0], n=2, prob=0.5, kind="eti", axes=axes)
    assert list(panels) == list(axes.ravel()[:2])
    assert [ax.get_title(loc="left") for ax in panels] == ["factor 2", "factor 1"]
    assert "50 % ETI" in panels[1].get_xlabel() and not panels[0].figure.get_suptitle()
    with pytest.raises(ValueError, match="axes: got 1, wanted one for each of the 2 factors"):
        plots.plot_top_weights(idata, [0, 1], axes=axes.ravel()[:1])


@pytest.mark.parametrize(("name", "n_factors"), [("x", 1), ("a long name of feature number ", 4)])
def test_nothing_is_cut_off(name, n_factors):
    fit = fake_fit(n_factors=n_factors, n_active=n_factors, feature_names=[f"{name}${j}_" for j in range(12)])
    panels = plots.plot_top_weights(drawn(fit))
    assert not cut_off(panels[0])


def test_scores_and_strengths_say_what_they_are():
    panels = plots.plot_top_weights(fake_fit().edge_posterior("score", num_draws=2))
    assert panels[0].texts[0].get_text() == "score"
    assert "weight\n(bar: 90 % HDI over restarts)" == panels[0].get_xlabel()
    assert all(len(labels(ax)) < 10 for ax in panels)  # weights of exactly 0 are left out
    panels = plots.plot_top_weights(fit_with_strengths().edge_posterior("jacobian", num_draws=5))
    assert panels[0].get_xlabel() == "weight"


def test_a_factor_without_weights_is_drawn_where_it_is_asked_for():
    (ax,) = plots.plot_top_weights(fake_fit().edge_posterior("score", num_draws=2), "factor 4")
    assert [text.get_text() for text in ax.texts] == ["no weight"]


def test_what_is_refused():
    idata = fake_fit().edge_posterior("score", num_draws=2)
    for wrong in ("factor 9", 4, -1):
        with pytest.raises(
            ValueError, match=f"factor: got {wrong!r}, wanted a name or a position from 0 to 3"
        ):
            plots.plot_top_weights(idata, wrong)
    with pytest.raises(ValueError, match="factor: got an empty list"):
        plots.plot_top_weights(idata, [])
    with pytest.raises(ValueError, match="n: got 0"):
        plots.plot_top_weights(idata, n=0)
    with pytest.raises(TypeError, match="edges of a latent transition"):
        plots.plot_top_weights(transition())
