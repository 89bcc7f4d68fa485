"""Shares of variance within groups of rows, beside those of factors that are known."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import pyro_sparse as ps
from pyro_sparse.data.groups import rows_by_group
from pyro_sparse.posterior.group_variance import covariances_within
from pyro_sparse.posterior.tables import to_arviz
from tests._fake_fit import fake_fit

NOISE = 0.6


def _world(n: int = 300, draws: int = 200, seed: int = 0):
    """Two factors, the first active in group "a" only; scores drawn from their posterior under the model."""
    rng = np.random.default_rng(seed)
    group = np.repeat(["a", "b"], n // 2)
    z = rng.normal(size=(n, 2)) * np.where((group == "a")[:, None], np.sqrt([2.0, 1.0]), [0.0, 1.0])
    weight = np.zeros((12, 2))
    weight[:6, 0], weight[6:, 1], weight[0, 1] = 0.8, -0.7, 0.5
    x = z @ weight.T + NOISE * rng.normal(size=(n, 12)) + (group == "b")[:, None]  # means differ, too
    means = np.stack([x[group == level].mean(0) for level in group])
    cov = np.linalg.inv(np.eye(2) + weight.T @ weight / NOISE**2)
    centre = (x - means) @ weight @ cov / NOISE**2
    scores = centre + rng.normal(size=(2, draws, n, 2)) @ np.linalg.cholesky(cov).T
    return z, x, weight, group, scores


def _idata(weight: np.ndarray, scores: np.ndarray | None, **attrs: object):
    g, k = weight.shape
    fit = fake_fit(n_features=g, n_factors=k + 1, n_active=k, n_samples=300)
    wide = np.pad(weight, [(0, 0), (0, 1)])  # a factor that no chain ran over
    loading = np.tile(wide / np.sqrt((weight**2).sum(1) + NOISE**2)[:, None], (2, 200, 1, 1))
    every = np.full((2, g, k + 1), 0.5)
    if scores is not None:
        scores = np.pad(scores, [(0, 0)] * 3 + [(0, 1)], constant_values=np.nan)
    return fit, to_arviz(
        fit, edge=(loading != 0).astype(int), weight=loading, probability=every[0], restart_probability=every,
        chain_restart=np.zeros(2, int), kept=np.ones(2, bool), method="mcmc", is_score=False, note="a fake",
        scores=scores, rows=[f"s{i}" for i in range(300)], attrs=attrs,
    )  # fmt: skip


def test_shares_are_those_computed_from_factors_and_cells():
    z, x, weight, group, scores = _world()
    fit, idata = _idata(weight, scores)
    views = {"first": fit.feature_names[:6], "second": fit.feature_names[6:]}
    table = ps.variance_explained(idata, views, groups=group)
    assert list(table.columns) == [
        "group", "view", "factor", "variance", "eti90_lb", "eti90_ub", "p_active"
    ]  # fmt: skip
    assert len(table) == 2 * 2 * 4
    got = table.set_index(["group", "view", "factor"])
    for level in "ab":
        rows = group == level
        of_rows, cells = np.cov(z[rows].T), x[rows] - x[rows].mean(0)
        total = ((weight @ of_rows) * weight).sum(1) + NOISE**2
        explained = 1 - NOISE**2 / total
        residual = 1 - ((cells - (z[rows] - z[rows].mean(0)) @ weight.T) ** 2).sum(0) / (cells**2).sum(0)
        for view, at in (("first", slice(6)), ("second", slice(6, None))):
            for k in range(2):
                share = (weight[at, k] ** 2 * of_rows[k, k] / total[at]).mean()
                line = got.loc[(level, view, fit.factor_names[k])]
                assert line["variance"] == pytest.approx(share, abs=0.025)
                assert line["eti90_lb"] <= line["variance"] <= line["eti90_ub"]
            whole = got.loc[(level, view, "all factors"), "variance"]
            assert whole == pytest.approx(explained[at].mean(), abs=0.025)
            assert whole == pytest.approx(residual[at].mean(), abs=0.05)  # R² as MOFA counts it
    assert got.loc[("a", "first", fit.factor_names[0]), "p_active"] == 1
    assert got.loc[("b", "first", fit.factor_names[0]), "variance"] < 0.03  # draws alone would say .19
    assert got.loc[("b", "first", fit.factor_names[2]), "variance"] == 0


def test_one_group_of_all_rows_has_about_the_shares_without_groups():
    _, _, weight, _, scores = _world()
    _, idata = _idata(weight, scores)
    without = ps.variance_explained(idata)
    one = ps.variance_explained(idata, groups=["all"] * 300)
    assert one.pop("group").eq("all").all()
    assert one["factor"].tolist() == without["factor"].tolist()
    np.testing.assert_allclose(one["variance"], without["variance"], atol=0.03)


def test_covariance_is_undone_of_the_prior_and_covers_that_of_the_rows():
    """With little information draws are half prior; what is solved for is not."""
    inside, errors, naive = [], [], []
    for seed in range(30):
        rng = np.random.default_rng(seed)
        z = rng.normal(size=(100, 1)) * np.sqrt(2)
        cov = 0.25  # of the posterior: three measurements' worth of the prior
        y = z + rng.normal(size=z.shape) / np.sqrt(3)
        draws = 0.75 * y + np.sqrt(cov) * rng.normal(size=(200, 100, 1))
        within, measured = covariances_within(draws, np.ones((200, 1, 1)))
        assert measured.all()
        truth = z.var(ddof=1)
        lower, upper = np.quantile(within, [0.05, 0.95])
        inside.append(lower < truth < upper)
        errors.append(within.mean() - truth)
        naive.append(draws.var(1, ddof=1).mean() - truth)
    assert np.mean(inside) > 0.8
    assert abs(np.mean(errors)) < 0.1 < abs(np.mean(naive))


def test_a_factor_that_a_group_does_not_have_is_not_called_active():
    called = []
    for seed in range(12):
        _, _, weight, group, scores = _world(n=120, seed=seed)
        within, _ = covariances_within(scores[0][:, group == "b"], np.tile(np.eye(2), (200, 1, 1)))
        explained = within[:, 0, 0] * weight[1, 0] ** 2
        called.append((explained / (explained + NOISE**2) >= 0.01).mean() >= 0.95)
    assert sum(called) <= 1


def test_what_a_group_does_not_measure_is_not_known():
    _, _, weight, group, scores = _world()
    rng = np.random.default_rng(1)
    scores[:, :, group == "b", 0] = rng.normal(size=(2, 200, 150))  # as of rows without these features
    fit, idata = _idata(weight, scores)
    table = ps.variance_explained(idata, groups=group).set_index(["group", "factor"])
    assert table.loc["b", "variance"].isna().tolist() == [True, False, False, True]
    assert np.isnan(table.loc[("b", fit.factor_names[0]), "p_active"])
    assert table.loc["a"].notna().all(axis=None)
    second = {"second": fit.feature_names[6:]}
    assert ps.variance_explained(idata, second, groups=group)["variance"].notna().all()


def test_rows_of_groups_come_in_the_order_of_categories():
    names = ["a", "b", "c", "d"]
    kind = pd.Categorical(["y", "x", "x", "y"], ["y", "x", "never"])
    rows = rows_by_group(kind, names)
    assert list(rows) == ["y", "x"] and rows["y"].tolist() == [0, 3]
    assert list(rows_by_group(np.array([[2.0], [1], [1], [2]]), names)) == ["1", "2"]
    assert list(rows_by_group(pd.DataFrame({"site": list("vuuv")}, names), names)) == ["u", "v"]


@pytest.mark.parametrize(
    ("groups", "error", "says"),
    [
        ("batch", TypeError, r"got the name 'batch'.*such as table\['batch'\]"),
        (list("aab"), ValueError, "has 3 values, wanted one for each of the 4 rows of the scores"),
        (["a", "a", None, "b"], ValueError, "is missing in row 2"),
        (list("aaab"), ValueError, "'b' has one row, row 3"),
        (pd.Series(list("aabb"), list("ponm")), ValueError, "rows of the scores in another order"),
        (pd.DataFrame(np.ones((4, 2))), ValueError, "has 2 columns, wanted one"),
        (np.ones((4, 2)), ValueError, r"has shape \(4, 2\), wanted a level for each row"),
    ],
)
def test_groups_that_are_none_are_refused(groups, error, says):
    with pytest.raises(error, match=says):
        rows_by_group(groups, list("mnop"))


def test_without_scores_or_with_curves_the_message_says_what_to_ask_for():
    _, _, weight, group, scores = _world()
    _, idata = _idata(weight, None)
    with pytest.raises(ValueError, match=r"no draws of scores.*wanted fit.edge_posterior\(scores=True\)"):
        ps.variance_explained(idata, groups=group)
    _, idata = _idata(weight, scores, decoder="mlp")
    with pytest.raises(ValueError, match="of a decoder 'mlp'.*leave groups out"):
        ps.variance_explained(idata, groups=group)


def test_groups_are_panels_of_one_scale():
    pytest.importorskip("matplotlib")
    from matplotlib.figure import Figure

    _, _, weight, group, scores = _world()
    scores[:, :, group == "b", 0] = np.random.default_rng(1).normal(size=(2, 200, 150))
    fit, idata = _idata(weight, scores)
    views = {"first": fit.feature_names[:6], "second": fit.feature_names[6:]}
    panels = ps.plots.plot_variance_explained(idata, views, groups=group)
    assert panels.shape == (2,) and panels[0].figure is panels[1].figure
    assert [ax.get_title(loc="left").split(":")[0] for ax in panels] == ["a", "b"]
    share = ps.variance_explained(idata, views, groups=group)["variance"].to_numpy().reshape(2, -1)
    for ax, numbers in zip(panels, share, strict=True):
        wanted = ["?" if np.isnan(number) else f"{100 * number:.1f}" for number in numbers]
        assert [text.get_text() for text in ax.texts] == wanted
    assert "?" in wanted
    given = Figure().subplots(1, 2)
    assert (ps.plots.plot_variance_explained(idata, groups=group, ax=given) == given).all()
    with pytest.raises(ValueError, match="ax: has 1 axes, wanted one for each of the 2 groups"):
        ps.plots.plot_variance_explained(idata, groups=group, ax=given[:1])


@pytest.mark.slow
def test_a_fit_finds_the_group_that_a_factor_is_active_in():
    _, x, weight, group, _ = _world(n=200)
    x -= np.stack([x[group == level].mean(0) for level in group])
    model = ps.models.SparseDecoder(n_factors=2, decoder="linear")
    fit = ps.fit(model, x, restarts=2, seed=0, progress=False)
    idata = fit.edge_posterior(scores=True, sweeps=300, warm_up=100, seed=0, progress=False)
    first = int(np.abs(fit.weights[fit.best][:6]).sum(0).argmax())
    views = {"first": fit.feature_names[:6], "second": fit.feature_names[6:]}
    table = ps.variance_explained(idata, views, groups=group).set_index(["group", "view", "factor"])
    share = table["variance"].xs(fit.factor_names[first], level="factor")
    assert share["a", "first"] == pytest.approx(2 * 0.64 / (2 * 0.64 + 0.36), abs=0.1)
    assert share["b", "first"] < 0.05
    other = table["variance"].xs(fit.factor_names[1 - first], level="factor")
    assert other["a", "second"] == pytest.approx(0.49 / 0.85, abs=0.1)
    assert other["b", "second"] == pytest.approx(0.49 / 0.85, abs=0.1)
