"""Edge scores: the draws follow the scores, the object says what it is, and it survives a file."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from pyro_sparse.inference.edges import edge_posterior, score_edges
from pyro_sparse.posterior.arviz import from_netcdf, get_group, group_names, to_netcdf
from pyro_sparse.priors import Horseshoe
from tests._fake_fit import fake_fit, fit_with_strengths


def test_groups_dims_and_names():
    fit = fake_fit()
    idata = edge_posterior(fit, num_draws=7)
    assert set(group_names(idata)) == {"posterior", "edge_posterior", "sample_stats", "alignment"}
    posterior = get_group(idata, "posterior")
    for name in ("edge", "weight"):
        assert posterior[name].dims == ("chain", "draw", "feature", "factor")
    assert posterior["eta"].dims == ("chain", "draw", "factor")
    assert dict(posterior.sizes) == {"chain": 6, "draw": 7, "feature": 12, "factor": 4}
    assert posterior["feature"].to_numpy().tolist() == fit.feature_names
    assert posterior["factor"].to_numpy().tolist() == fit.factor_names
    edges = get_group(idata, "edge_posterior")
    for name in ("probability", "q_value", "gap", "weight", "effect"):
        assert edges[name].dims == ("feature", "factor")
    np.testing.assert_array_equal(edges["probability"], fit.edge_score[fit.best])
    np.testing.assert_array_equal(edges["weight"], fit.weights[fit.best])
    np.testing.assert_array_equal(get_group(idata, "sample_stats")["heldout_elbo"], fit.heldout_elbo)
    np.testing.assert_array_equal(get_group(idata, "alignment")["sign"], fit.alignment["sign"])


def test_draws_are_bernoulli_of_the_scores():
    fit = fake_fit()
    fit.edge_score = np.random.default_rng(3).uniform(size=fit.edge_score.shape)
    draws = get_group(edge_posterior(fit, num_draws=4000), "posterior")["edge"].to_numpy()
    assert set(np.unique(draws)) == {0, 1}
    z = (draws.mean(axis=1) - fit.edge_score) / np.sqrt(fit.edge_score * (1 - fit.edge_score) / 4000)
    assert np.abs(z).max() < 5
    assert z.std() == pytest.approx(1, abs=0.15)
    sure = fake_fit()
    sure.edge_score = np.round(sure.edge_score)
    draws = get_group(edge_posterior(sure, num_draws=50), "posterior")["edge"].to_numpy()
    np.testing.assert_array_equal(draws, np.repeat(sure.edge_score[:, None], 50, axis=1))


def test_it_says_that_it_is_a_score():
    attrs = edge_posterior(fake_fit(), "auto", num_draws=2).attrs
    assert attrs["edge_method"] == "score"
    assert attrs["is_score"]
    assert "not calibrated probabilities" in attrs["note"]


def test_same_seed_same_draws_and_restarts_do_not_share_them():
    fit = fake_fit()

    def draws(seed, fit=fit):
        return get_group(score_edges(fit, num_draws=20, seed=seed), "posterior")["edge"].to_numpy()

    np.testing.assert_array_equal(draws(1), draws(1))
    assert (draws(1) != draws(2)).any()
    fit.edge_score[:] = 0.5
    assert (draws(1)[0] != draws(1)[1]).any()
    fewer = fake_fit(n_restarts=3)
    fewer.edge_score[:] = 0.5
    np.testing.assert_array_equal(draws(1)[:3], draws(1, fewer))


def test_gap_compares_good_restarts_only():
    fit = fake_fit()
    idata = edge_posterior(fit, num_draws=2)
    gap = get_group(idata, "edge_posterior")["gap"].to_numpy()
    kept = get_group(idata, "sample_stats")["kept"].to_numpy()
    assert kept.tolist() == [True] * 5 + [False]
    np.testing.assert_allclose(gap, fit.edge_score[:5].max(0) - fit.edge_score[:5].min(0))
    assert gap[0, 0] > 0.9  # the disputed edge
    assert np.delete(gap.ravel(), 0).max() < 0.05  # the factor that the poor restart lost is no dispute
    alone = edge_posterior(fake_fit(n_restarts=1), num_draws=2)
    assert np.isnan(get_group(alone, "edge_posterior")["gap"]).all()


def test_observed_data_only_when_small():
    fit = fake_fit()
    X = fit.sample(200)
    X[0, 0] = np.nan
    observed = get_group(edge_posterior(fit, num_draws=2, X=X), "observed_data")["x"]
    np.testing.assert_array_equal(observed, X)
    assert observed["sample"].to_numpy().tolist() == fit.sample_names
    large = np.broadcast_to(0.0, (100_000, 12))
    assert "observed_data" not in group_names(edge_posterior(fit, num_draws=2, X=large))


def test_round_trip_through_netcdf(tmp_path):
    pytest.importorskip("h5py")
    fit = fake_fit()
    idata = edge_posterior(fit, num_draws=5)
    path = to_netcdf(idata, tmp_path / "edges.nc")
    back = from_netcdf(path)
    path.unlink()  # nothing is left to be read
    for group in group_names(idata):
        assert get_group(back, group).equals(get_group(idata, group))
    assert back.attrs["is_score"] == 1
    assert back.attrs["edge_method"] == "score"
    with pytest.raises(FileNotFoundError, match="path: no file .*edges.nc"):
        from_netcdf(path)


@pytest.mark.parametrize("draws", [0, -3, 2.5, "many"])
def test_num_draws_must_be_a_positive_whole_number(draws):
    with pytest.raises(ValueError, match="num_draws: want a whole number of at least 1, got"):
        edge_posterior(fake_fit(), num_draws=draws)


def test_unknown_method():
    known = r"\['auto', 'mcmc', 'program', 'score', 'jacobian'\]"
    with pytest.raises(ValueError, match=rf"method: want one of {known}, got 'magic'"):
        edge_posterior(fake_fit(), "magic")


def test_a_prior_without_edge_odds_is_refused():
    fit = fake_fit()
    fit.edge_score = np.full_like(fit.edge_score, np.nan)
    fit.model = SimpleNamespace(prior=Horseshoe(), weights=torch.zeros(fit.weights.shape))
    with pytest.raises(
        ValueError, match=r"Horseshoe sets no weight to zero.* fit.weights\[fit.best\].*edge_log_odds"
    ):
        edge_posterior(fit)


def test_a_model_without_a_prior_is_told_of_its_probabilities():
    fit = fit_with_strengths()
    fit.edge_score = np.full_like(fit.edge_score, np.nan)
    with pytest.raises(ValueError, match=r'has no prior on weights.*method="jacobian", the default, gives'):
        fit.edge_posterior("score")


def test_auto_refuses_an_option_that_no_method_has():
    with pytest.raises(TypeError, match=r"sweeeps: no method has such an option; want some of \['X', 'cand"):
        edge_posterior(fake_fit(), sweeeps=3)


def test_auto_says_which_options_its_choice_has_no_use_for():
    with pytest.warns(
        RuntimeWarning, match="^edge_posterior took 'score': .*; of no use to 'score': progress, sw"
    ):
        said = edge_posterior(fake_fit(), num_draws=2, sweeps=60, progress=False).attrs["chosen_because"]
    assert said.endswith("; of no use to 'score': progress, sweeps")
    fit = fake_fit()
    said = edge_posterior(fit, num_draws=2, X=fit.sample(200)).attrs["chosen_because"]
    assert "no use" not in said
