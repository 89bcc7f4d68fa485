"""Scores of rows by the chains' draws: what is kept, in which frame, and whether intervals cover."""

from __future__ import annotations

import numpy as np
import pytest

import pyro_sparse as ps


@pytest.fixture(scope="module")
def world():
    rng = np.random.default_rng(0)
    z = rng.normal(size=(150, 2))
    weight = np.kron(np.eye(2), np.ones((4, 1)))
    x = z @ weight.T + 0.4 * rng.normal(size=(150, 8))
    x[rng.random(x.shape) < 0.05] = np.nan
    model = ps.models.SparseDecoder(n_factors=3, decoder="linear")
    fit = ps.fit(model, x, restarts=2, seed=0, progress=False)
    return fit, z, fit.edge_posterior(scores=True)


@pytest.mark.slow
def test_they_are_in_the_frame_of_the_fit_and_cover_the_truth(world):
    fit, z, idata = world
    draws = idata.scores["z"]
    assert draws.dims == ("chain", "draw", "sample", "factor") and draws.shape[2:] == (150, 3)
    table = ps.factor_scores(idata)
    assert len(table) == 450 and list(table.columns[-2:]) == ["eti90_lb", "eti90_ub"]
    mean = table.pivot(index="sample", columns="factor", values="mean").loc[
        fit.sample_names, fit.factor_names
    ]
    used = [0, 1]
    scores, sd = fit.transform(return_std=True)
    np.testing.assert_allclose(mean.to_numpy()[:, used], scores[:, used], atol=0.25)
    assert np.isnan(mean.to_numpy()[:, 2]).all()  # no chain ran over a factor that the fit left empty
    across = np.corrcoef(mean.to_numpy()[:, used].T, z.T)[:2, 2:]
    order = np.abs(across).argmax(0)
    inside = []
    for m, k in enumerate(order):
        of_factor = table[table.factor == fit.factor_names[k]].set_index("sample").loc[fit.sample_names]
        truth = np.sign(across[k, m]) * z[:, m]
        inside.append((truth > of_factor["eti90_lb"]) & (truth < of_factor["eti90_ub"]))
        assert (
            of_factor["sd"].to_numpy() > 0.9 * sd[:, k]
        ).mean() > 0.8  # what loadings leave open comes on top
    assert 0.82 < np.mean(inside) < 0.97


@pytest.mark.slow
def test_without_being_asked_none_are_kept(world):
    fit, *_ = world
    with pytest.raises(ValueError, match=r"idata: holds no scores; wanted fit.edge_posterior\(scores=True\)"):
        ps.factor_scores(fit.edge_posterior(sweeps=40, warm_up=20))


@pytest.mark.slow
def test_other_likelihoods_keep_the_factors_of_their_states():
    rng = np.random.default_rng(1)
    z = rng.normal(size=(150, 1))
    x = rng.poisson(np.exp(z @ np.ones((1, 6)) + 1))
    likelihood = ps.likelihoods.Poisson(size_factors=False)
    model = ps.models.SparseDecoder(n_factors=1, decoder="linear", likelihood=likelihood)
    fit = ps.fit(model, x, restarts=1, seed=0, progress=False)
    table = ps.factor_scores(fit.edge_posterior(scores=True))
    assert abs(np.corrcoef(table["mean"], z[:, 0])[0, 1]) > 0.95
    np.testing.assert_allclose(table["mean"], fit.transform()[:, 0], atol=0.3)


def test_rows_may_share_a_name_and_factors_be_unknown():
    """A made-up posterior of two rows of one name and a factor that no chain ran over."""
    import xarray as xr

    from pyro_sparse.posterior.arviz import from_datasets

    rng = np.random.default_rng(0)
    z = rng.normal(size=(2, 50, 3, 2))
    z[..., 0] = np.nan
    dims = ("chain", "draw", "sample", "factor")
    names = {"sample": ["a", "b", "a"], "factor": ["factor 1", "factor 2"]}
    stats = xr.Dataset({"kept": ("chain", [1, 1])})
    idata = from_datasets({"scores": xr.Dataset({"z": (dims, z)}, names), "sample_stats": stats}, {})
    table = ps.factor_scores(idata, prob=0.8)
    assert table["sample"].tolist() == ["a", "a", "b", "b", "a", "a"] and len(table.columns) == 6
    assert table.loc[::2, "mean"].isna().all()
    np.testing.assert_allclose(table.loc[1::2, "mean"], z[..., 1].mean((0, 1)))
    np.testing.assert_allclose(table.loc[1::2, "eti80_ub"], np.quantile(z[..., 1], 0.9, (0, 1)))
