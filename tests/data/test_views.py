"""Views joined into one table: rows by name, columns that say where they are from."""

from __future__ import annotations

from contextlib import nullcontext
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from scipy import stats

import pyro_sparse as ps
from pyro_sparse.data.design import taken_out
from pyro_sparse.data.views import as_one_table, join_views, views_of

# rough axes and posteriors of rows: none of these tests is about how good they are
pytestmark = pytest.mark.usefixtures("hurried_module")

RNA = pd.DataFrame({"g1": [1, 2, 3], "g2": [4, 5, 6]}, index=["a", "b", "c"])
PROTEIN = pd.DataFrame({"g1": [7.0, 8.0]}, index=["d", "b"])


def test_rows_are_matched_by_name_and_missing_where_a_view_has_not_seen_them():
    table = join_views({"rna": RNA, "protein": PROTEIN})
    assert list(table.columns) == ["rna:g1", "rna:g2", "protein:g1"] and list(table.index) == list("abcd")
    np.testing.assert_array_equal(table.loc["b"], [2, 5, 8])
    assert table.loc["d"].isna().tolist() == [True, True, False] and np.isnan(table.loc["a", "protein:g1"])
    assert list(RNA.columns) == ["g1", "g2"]  # as it was


def test_rows_that_were_cut_out_of_a_table_keep_their_numbers():
    a, b = (pd.DataFrame({"x": np.arange(9.0) + shift}) for shift in (0, 100))
    joined = join_views({"a": a[3:8], "b": b[4:9]})
    assert joined.index.tolist() == [3, 4, 5, 6, 7, 8]
    assert joined.loc[5].tolist() == [5.0, 105.0] and joined.loc[3].isna().tolist() == [False, True]


def test_containers_of_views_are_read():
    annotated = SimpleNamespace(mod={"rna": RNA, "protein": PROTEIN}, obs_names=list("abcd"))
    pd.testing.assert_frame_equal(as_one_table(annotated), join_views({"rna": RNA, "protein": PROTEIN}))
    arrays = join_views({"a": np.ones((3, 2)), "b": np.zeros((3, 1))})
    assert list(arrays.columns) == ["a:x1", "a:x2", "b:x1"] and len(arrays) == 3
    assert as_one_table(RNA) is RNA
    dictionary = sp.dok_matrix(np.eye(3))  # a mapping, too, and one table
    assert as_one_table(dictionary) is dictionary
    assert list(join_views({"a": sp.csr_matrix(np.eye(3))}).columns) == ["a:x1", "a:x2", "a:x3"]


def test_kinds_of_columns_survive():
    grade = pd.Series(pd.Categorical(["low", "high", "low"], ["low", "high"], ordered=True), list("abc"))
    table = join_views({"school": grade.to_frame("grade"), "protein": PROTEIN})
    assert table["school:grade"].dtype == grade.dtype


def test_features_go_by_what_stands_before_the_colon():
    assert views_of(["rna:a:1", "protein:b", "rna:c"]) == {"rna": [0, 2], "protein": [1]}
    assert views_of(["rna:a", "b"]) == {"all": [0, 1]}


@pytest.mark.parametrize(
    ("views", "error", "says"),
    [
        ({}, TypeError, "wanted a mapping of names to tables"),
        ({"a:b": RNA}, ValueError, "a view is called 'a:b', wanted a name without ':'"),
        ({"a": RNA, "b": np.ones((3, 1))}, ValueError, "view 'b' has no names of rows, and others have"),
        ({"a": np.ones((3, 1)), "b": np.ones((2, 1))}, ValueError, r"views have 3 \(a\), 2 \(b\) rows"),
        ({"a": np.ones(3)}, ValueError, r"view 'a' has shape \(3,\), wanted a table"),
        ({"a": RNA.iloc[[0, 0]]}, ValueError, "view 'a' has the row 'a' twice"),
        ({"a": RNA, "b": RNA.iloc[:, :0]}, ValueError, "view 'b' has no columns; leave it out"),
    ],
)
def test_what_cannot_be_joined_is_refused(views, error, says):
    with pytest.raises(error, match=says):
        join_views(views)


def _mudata(obs: pd.DataFrame, views=None) -> SimpleNamespace:
    """What is read of a MuData, whose package need not be installed."""
    return SimpleNamespace(mod=views or {"rna": RNA, "protein": PROTEIN}, obs_names=obs.index, obs=obs)


SITES = pd.DataFrame({"site": list("xuvw"), "age": [40, 10, 20, 30]}, list("dabc"))


def test_names_are_looked_for_in_obs_of_all_rows_and_matched_by_row():
    data, given, taken = taken_out(_mudata(SITES), {"groups": "site", "covariates": ["age"]})
    assert list(data.columns) == ["rna:g1", "rna:g2", "protein:g1"] and taken == ("site", "age")
    assert given["groups"]["site"].tolist() == ["u", "v", "w", "x"]  # rows of the join are a, b, c, d
    assert given["covariates"]["age"].tolist() == [10, 20, 30, 40]
    _, both, _ = taken_out(_mudata(SITES), {"covariates": ["age", "protein:g1"]})
    assert both["covariates"].columns.tolist() == ["age", "protein:g1"]
    _, again, _ = taken_out(_mudata(SITES), {}, ("site",))  # as of new rows, where the fit took it
    assert again["site"].tolist() == ["u", "v", "w", "x"]
    joined = as_one_table(_mudata(SITES))
    few = joined.iloc[[2, 0]].drop(columns="rna:g1").copy()  # as reading a table does
    assert taken_out(few, {"groups": "site"})[1]["groups"]["site"].tolist() == ["w", "u"]
    assert not join_views(_mudata(SITES)).attrs  # what a user holds can be written as it is


@pytest.mark.parametrize(
    ("obs", "name", "says"),
    [
        (SITES[:2], "site", "groups: obs has no row 'b', which a view has, 2 such row"),
        (SITES.iloc[[0, 0, 1, 2, 3]], "site", "groups: obs has the row 'd' twice"),
        (SITES, "batch", "no column 'batch'; it has rna:g1.*; obs has site, age; obs of single views"),
        (SITES.rename(columns={"site": "rna:site"}), "site", "called by both names: 'rna:site'"),
        (
            SITES.rename(columns={"site": "rna:g1"}), "rna:g1",
            r"'rna:g1' is a column of the joined views and of obs; give the values, mdata.obs\['rna:g1'\]",
        ),
    ],
)  # fmt: skip
def test_names_that_obs_cannot_answer_are_refused(obs, name, says):
    with pytest.raises(ValueError, match=says):
        taken_out(_mudata(obs), {"groups": name})


def test_obs_of_one_view_is_refused_with_what_to_give():
    anndata = pytest.importorskip("anndata")
    site = pd.DataFrame({"site": ["u", "v"]}, ["a", "b"])
    views = {"rna": anndata.AnnData(np.ones((2, 3)), obs=site)}
    with pytest.raises(ValueError, match=r"no column 'site'.*in the order of pyro_sparse.join_views"):
        taken_out(views, {"groups": "site"})
    assert taken_out(views["rna"], {"groups": "site"})[1]["groups"]["site"].tolist() == ["u", "v"]


def test_a_fit_takes_groups_and_weights_from_obs():
    """The same as with the values by row, in the fit and for new rows."""
    rng = np.random.default_rng(0)
    names = [f"s{i}" for i in range(60)]
    batch = rng.choice(["u", "v"], 60)
    x = rng.normal(size=(60, 1)) + 0.5 * rng.normal(size=(60, 6)) + (batch == "v")[:, None]
    rna = pd.DataFrame(x[:, :3], names, ["g1", "g2", "g3"])
    views = {"rna": rna, "protein": pd.DataFrame(x[:50, 3:], names[:50], ["p1", "p2", "p3"])}
    obs = pd.DataFrame({"batch": batch, "times": 1 + np.arange(60) % 2}, names)
    mdata = _mudata(obs[::-1], views)
    options = {"restarts": 1, "steps": 40, "seed": 0, "progress": False}

    def model():
        return ps.models.SparseDecoder(n_factors=1, decoder="linear")

    by_name = ps.fit(model(), mdata, groups="batch", **options)
    by_row = ps.fit(model(), views, groups=obs["batch"], **options)
    np.testing.assert_array_equal(by_name.weights, by_row.weights)
    assert by_name.feature_names == by_row.feature_names and by_name.table.design.taken == ("batch",)
    np.testing.assert_array_equal(by_name.transform(mdata), by_row.transform(views, groups=obs["batch"]))
    with pytest.raises(ValueError, match="'batch' is not there"):
        by_name.transform(views)
    counted = ps.fit(
        model(), mdata, sample_weight="times", sample_weight_type="frequency", groups="batch", **options
    )
    assert counted.table.design.n_rows == 90
    mudata, anndata = pytest.importorskip("mudata"), pytest.importorskip("anndata")
    # before 0.4 it warns of an option that it has no more since
    alone = mudata.set_options(pull_on_update=False) if hasattr(mudata, "set_options") else nullcontext()
    with alone:
        real = mudata.MuData({name: anndata.AnnData(frame) for name, frame in views.items()})
    real.obs["batch"] = obs.loc[real.obs_names, "batch"]
    of_real = ps.fit(model(), real, groups="batch", **options)
    np.testing.assert_allclose(of_real.weights, by_row.weights, atol=1e-4)


@pytest.mark.slow
def test_a_fit_of_views_says_where_factors_are_active(tmp_path):
    """One factor of both views, one of each; a third of each view's rows is not there."""
    rng = np.random.default_rng(0)
    n, active = 400, np.array([[1, 1, 0], [1, 0, 1]])
    z, names = rng.normal(size=(n, 3)), np.array([f"s{i}" for i in range(n)])
    views, truth = {}, {}
    for view, on in zip(("rna", "clinic"), active, strict=True):
        weight = np.zeros((9, 3))
        weight[np.arange(9), np.flatnonzero(on)[np.arange(9) % 2]] = rng.choice([-1, 1], 9) * rng.uniform(
            0.8, 1.3, 9
        )
        weight[0] = 0.5 * on
        f = z @ weight.T
        if view == "rna":
            x, share = (
                f + 0.8 * rng.normal(size=f.shape),
                weight**2 / ((weight**2).sum(1, keepdims=True) + 0.64),
            )
        else:
            x = (rng.random(f.shape) < 1 / (1 + np.exp(-2 * f))).astype(float)
            share = 4 * weight**2 / (4 * (weight**2).sum(1, keepdims=True) + stats.logistic.var())
        rows = np.sort(rng.permutation(n)[:280])
        views[view], truth[view] = (
            pd.DataFrame(x[rows], names[rows], [f"x{j}" for j in range(9)]),
            share.mean(0),
        )
    model = ps.models.SparseDecoder(
        n_factors=4, decoder="linear", likelihood={"rna:*": "normal", "clinic:*": "bernoulli"}
    )
    fit = ps.fit(model, views, restarts=2, seed=0, progress=False)
    assert fit.feature_names[0] == "rna:x0" and set(fit.sample_names) <= set(names)
    idata = fit.edge_posterior()
    table = ps.variance_explained(idata)
    assert list(table["view"].unique()) == ["rna", "clinic"] and table["factor"].iloc[-1] == "all factors"
    share = table.pivot(index="view", columns="factor", values="variance").loc[
        ["rna", "clinic"], fit.factor_names
    ]
    sure = table.pivot(index="view", columns="factor", values="p_active").loc[
        ["rna", "clinic"], fit.factor_names
    ]
    at = [list(names).index(name) for name in fit.sample_names]
    used = np.flatnonzero((fit.weights[fit.best] != 0).any(0))
    across = np.abs(np.corrcoef(fit.transform()[:, used].T, z[at].T))[: len(used), len(used) :]
    order = used[across.argmax(0)]
    np.testing.assert_allclose(share.to_numpy()[0, order], truth["rna"], atol=0.06)
    np.testing.assert_allclose(share.to_numpy()[1, order], truth["clinic"], atol=0.12)
    assert ((sure.to_numpy()[:, order] > 0.9) == (active > 0)).all()
    few = {view: frame[:4] for view, frame in views.items()}
    assert fit.transform(few).shape[1] == 4 and fit.predict(few).shape[1] == 18


def test_posterior_of_variance_is_that_of_the_draws():
    """A made-up posterior: means and shares by numpy."""
    from pyro_sparse.posterior.tables import to_arviz
    from tests._fake_fit import fake_fit

    fit, rng = fake_fit(), np.random.default_rng(0)
    shape = (2, 40, *fit.weights.shape[1:])
    loading = np.clip(0.3 * rng.normal(size=shape), -0.5, 0.5)
    every = np.full((2, *shape[2:]), 0.5)
    idata = to_arviz(
        fit, edge=loading != 0, weight=loading, probability=every[0], restart_probability=every,
        chain_restart=np.zeros(2, int), kept=np.ones(2, bool), method="mcmc", is_score=False, note="a fake",
    )  # fmt: skip
    members = fit.feature_names[:3]
    table = ps.variance_explained(idata, {"few": members}, active=0.1)
    draws = (loading[:, :, :3] ** 2).mean(2)
    got = table[table.factor != "all factors"]
    np.testing.assert_allclose(got["variance"], draws.mean((0, 1)))
    np.testing.assert_allclose(got["p_active"], (draws >= 0.1).mean((0, 1)))
    np.testing.assert_allclose(got["eti90_lb"], np.quantile(draws, 0.05, (0, 1)))
    whole = np.clip((loading[:, :, :3] ** 2).sum(-1), 0, 1).mean(2)
    assert table["variance"].iloc[-1] == pytest.approx(whole.mean())
    with pytest.raises(ValueError, match="views: 'few' names 'nobody'"):
        ps.variance_explained(idata, {"few": ["nobody"]})
    with pytest.raises(ValueError, match="active: got 1, wanted a share"):
        ps.variance_explained(idata, active=1)
    matplotlib = pytest.importorskip("matplotlib")
    ax = ps.plots.plot_variance_explained(idata, {"few": members, "rest": fit.feature_names[3:]})
    assert [t.get_text() for t in ax.get_yticklabels()] == ["few", "rest"]
    matplotlib.pyplot.close(ax.figure)


def test_shares_of_numbers_in_a_mixed_table_are_of_their_own_noise():
    """Under one likelihood for each column, a column of numbers has the noise that it has, and not 1."""
    import torch

    likelihood = ps.likelihoods.Columns({(0, 1): "normal", 2: "bernoulli"})
    likelihood.setup(3, 2)
    beside = likelihood.variance_beside()
    torch.testing.assert_close(beside[:, :2], likelihood.parts[0].noise_sd()[:, 0] ** 2)
    logistic = float(stats.logistic.var())
    torch.testing.assert_close(beside[:, 2], torch.full((2,), logistic))
    given = torch.tensor([[0.3, 0.5, 9.0]])
    torch.testing.assert_close(likelihood.variance_beside(given), torch.tensor([[0.3, 0.5, logistic]]))


SPELT = {"case": ["P1", "P2", "P3"], "spaces": ["p1 ", " p2", "p3"], "zeros": ["p001", "p002", "p3"]}


@pytest.mark.parametrize("names", SPELT.values(), ids=SPELT)
def test_rows_that_are_spelt_in_two_ways_are_refused(names):
    """They were taken for other people, each with half of the columns missing."""
    views = {"rna": RNA.set_axis(["p1", "p2", "p3"]), "protein": RNA.set_axis(names)}
    n = len(set(names) - {"p3"})
    with pytest.raises(ValueError, match=rf"{n} rows of views 'rna' and 'protein' .* same but for spaces"):
        join_views(views)


def test_spelling_that_tells_rows_apart_is_left_alone():
    views = {"rna": RNA.set_axis(["p1", "P1", "p2"]), "protein": RNA.set_axis(["p01", "q", "r"])}
    assert len(join_views(views)) == 6
    decimals = {"rna": RNA.set_axis([1.05, 1.5, 2.0]), "protein": RNA.set_axis([1.005, 3.0, 4.0])}
    assert len(join_views(decimals)) == 6
