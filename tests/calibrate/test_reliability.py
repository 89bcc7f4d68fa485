"""A forecaster calibrated by construction passes; one too sure, too timid or too generous is named."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import expit, logit
from scipy.stats import norm, t, ttest_1samp

from pyro_sparse.calibrate import realised_fdr, reliability
from pyro_sparse.calibrate.scores import ece, ece_when_calibrated, mean_z, spiegelhalter_z
from pyro_sparse.inference.edges.regression.enumerate import enumerate_edges
from pyro_sparse.inference.edges.regression.rows import RowPrior

SETS = np.arange(120)


def forecast(seed=0):
    rng = np.random.default_rng(seed)
    p = rng.beta(0.6, 1.0, (120, 6, 3))
    return p, rng.random(p.shape) < p


@pytest.mark.parametrize("group", [None, SETS])
def test_calibrated_passes_and_others_are_told_what_is_wrong(group):
    p, truth = forecast()
    assert reliability(p, truth, group=group).passes
    for change, words in (
        (lambda x: 2 * x, "too sure"),
        (lambda x: x / 2, "not sure enough"),
        (lambda x: x + 1.0, "claims too many edges"),
        (lambda x: x - 1.0, "claims too few edges"),
    ):
        found = reliability(expit(change(logit(p))), truth, group=group)
        assert not found.passes and words in found.verdict


def test_the_direction_is_said_without_data_sets_too():
    rng = np.random.default_rng(5)
    p = rng.beta(0.6, 1.0, 2000)
    truth = rng.random(2000) < p
    assert reliability(p, truth).passes
    assert "claims too many edges" in reliability(np.sqrt(p), truth).verdict
    assert "claims too few edges" in reliability(p**2, truth).verdict


def nearly_certain(sets, seed):
    """Calibrated probabilities of small sparse graphs, most next to 0: few data sets deviate at all."""
    rng = np.random.default_rng(seed)
    p = rng.beta(0.02, 0.2, (sets, 4, 2))
    return p, rng.random(p.shape) < p


def test_nearly_certain_probabilities_pass_at_the_nominal_rate():
    found = []
    for seed in range(120):
        p, truth = nearly_certain(20, seed)
        found.append(reliability(p, truth, group=np.arange(20), simulations=100))
    assert np.mean([not one.passes for one in found]) <= 0.05
    clustered = [[one.cluster_ece_p, 2 * t.sf(abs(one.cluster_z), 19)] for one in found]
    assert np.mean(np.min(clustered, axis=1) < 0.05 / 3) > 0.12  # which alone are too strict
    few = found[0]
    both = norm.sf(abs(few.mean_z)), t.sf(abs(few.cluster_z), 19)
    assert few.p_values["mean"] == pytest.approx(2 * max(both))
    assert few.p_values["ece"] == max(few.ece_p, few.cluster_ece_p)
    assert f"as informative as {few.n_informative:.0f} data sets" in str(few)


def test_nearly_certain_probabilities_that_claim_too_much_fail():
    for seed in range(10):
        p, truth = nearly_certain(120, seed)
        found = reliability(np.sqrt(p), truth, group=np.arange(120), simulations=100)
        assert "claims too many edges" in found.verdict
    assert found.n_informative < 80


@pytest.mark.parametrize("sets", [2, 3, 7])
def test_few_data_sets_that_deviate_alike_may_do_so_by_chance(sets):
    p, group = np.full((sets, 6), 0.3), np.arange(sets)
    found = reliability(p, [[1, 1, 1, 0, 0, 0]] * sets, group=group)
    assert found.p_values["mean"] == found.p_values["sharpness"] == 2.0 ** (1 - sets)
    rng = np.random.default_rng(0)
    passed = [reliability(p, rng.random(p.shape) < p, group=group, simulations=50).passes for _ in range(100)]
    assert np.mean(passed) >= 0.95


def test_a_forecast_that_errs_without_a_direction_fails_too():
    rng = np.random.default_rng(1)
    p = rng.choice([0.4, 0.6], (400, 10))
    found = reliability(p, rng.random(p.shape) < 1 - p, group=np.arange(400))
    assert not found.passes
    assert "says 0.60, is right 0.4" in str(found) and "on the wrong side of .5" in str(found)
    # Neither the mean nor the sharpness is wrong on average.
    p = rng.choice([0.2, 0.5, 0.8], (400, 12))
    so = np.select([p == 0.2, p == 0.5], [0.35, 0.2], 0.95)
    found = reliability(p, rng.random(p.shape) < so, group=np.arange(400))
    assert found.verdict == "says one thing, and another is so"


def test_numbers_are_those_of_the_pieces():
    p, truth = forecast()
    found = reliability(p, truth, group=SETS, bins=10, fdr=0.2, prob=0.9, simulations=300, seed=4)
    null = ece_when_calibrated(p, bins=10, simulations=300, seed=4)
    assert found.ece == ece(p, truth, 10)
    assert (found.ece_null, found.ece_upper) == (null.mean(), np.quantile(null, 0.9))
    assert found.ece_p == (1 + (null >= found.ece).sum()) / 301
    assert found.spiegelhalter_z == spiegelhalter_z(p, truth)
    assert found.mean_z == mean_z(p, truth)
    each = (p * (1 - p)).sum((1, 2))
    assert found.n_informative == pytest.approx(120 * each.mean() ** 2 / (each**2).mean())
    assert found.n_informative > 60 and "as informative as" not in str(found)
    assert found.cluster_z == pytest.approx(ttest_1samp((truth - p).sum((1, 2)), 0).statistic)
    assert found.p_values["mean"] == pytest.approx(ttest_1samp((truth - p).sum((1, 2)), 0).pvalue)
    sums = ((truth - p) * (1 - 2 * p)).sum((1, 2))
    assert found.p_values["sharpness"] == pytest.approx(ttest_1samp(sums, 0).pvalue)
    assert found.realised == realised_fdr(p, truth, SETS, fdr=0.2)
    assert found.brier == pytest.approx(((p - truth) ** 2).mean())
    row = found.to_series()
    assert row["realised_fdr"] == found.realised.fdr and row["resolution"] == found.decomposition.resolution
    alone = reliability(p, truth)
    assert alone.realised is None and np.isnan([alone.cluster_z, alone.cluster_ece_p]).all()
    assert alone.n_informative == 0 and set(alone.p_values) == {"ece", "sharpness", "mean"}
    assert alone.p_values["mean"] == pytest.approx(2 * norm.sf(abs(mean_z(p, truth))))
    certain = reliability(np.eye(2), np.eye(2), group=[0, 1])
    assert certain.passes and certain.n_informative == 0


def test_curve_counts_every_edge_once():
    p, truth = forecast()
    p[p > 0.9] = 0.85
    curve = reliability(p, truth, bins=20).curve
    assert len(curve) == 18 and curve["count"].sum() == p.size
    assert (curve["count"] * curve["frequency"]).sum() == pytest.approx(truth.sum())
    row = curve.iloc[3]
    inside = (p >= 0.15) & (p < 0.2)
    assert (row["low"], row["high"]) == pytest.approx((0.15, 0.2))
    assert row["mean_probability"] == pytest.approx(p[inside].mean())
    assert row["frequency"] == pytest.approx(truth[inside].mean())


def test_bands_hold_what_they_promise():
    rng = np.random.default_rng(2)
    p = rng.beta(0.6, 1.0, 3000)
    inside = []
    for _ in range(300):
        curve = reliability(p, rng.random(3000) < p, prob=0.8, simulations=1).curve
        inside.append((curve["frequency"] >= curve["band_low"]) & (curve["frequency"] <= curve["band_high"]))
    share = np.mean(inside, axis=0)
    assert share.min() > 0.76 and share.mean() < 0.87  # binomials are steps: a little more than .8


def test_bands_shrink_to_a_point_for_certain_claims():
    curve = reliability(np.repeat([0.0, 1.0], 20), np.repeat([0, 1], 20), simulations=1).curve
    assert curve[["band_low", "band_high"]].to_numpy().tolist() == [[0, 0], [1, 1]]


def exact_rows(sets, eta_prior, seed=0):
    """Rows whose edges share an unknown rate and whose features are alike: dependent edges."""
    rng = np.random.default_rng(seed)
    lower = np.linalg.cholesky(0.8 ** np.abs(np.subtract.outer(np.arange(6), np.arange(6))))
    edge = rng.random((sets, 6)) < rng.beta(1, 1, (sets, 1))
    x = rng.normal(size=(sets, 12, 6)) @ lower.T
    y = np.einsum("dnm,dm->dn", x, rng.normal(size=edge.shape) * edge) + rng.normal(size=(sets, 12))
    return enumerate_edges(x, y, RowPrior(noise_variance=1.0, eta_prior=eta_prior)).edge_prob, edge


@pytest.mark.slow
def test_exact_posteriors_pass_at_the_nominal_rate_though_edges_depend_on_each_other():
    p, truth = exact_rows(60 * 100, (1.0, 1.0))
    found = [
        reliability(p[i : i + 60], truth[i : i + 60], group=np.arange(60), simulations=200)
        for i in range(0, 6000, 60)
    ]
    rejected = np.mean([not one.passes for one in found])
    assert rejected < 0.12  # .05 wanted; four standard errors of 100 repeats above
    naive = np.mean([one.ece_p <= 0.05 for one in found])
    assert naive > rejected


def test_the_wrong_prior_fails():
    p, truth = exact_rows(400, (1.0, 8.0))
    found = reliability(p, truth, group=np.arange(400))
    assert not found.passes and "claims too few edges" in found.verdict


def test_verdict_in_words():
    rng = np.random.default_rng(3)
    p = np.repeat([0.2, 0.8], 500).reshape(100, 10)
    text = str(reliability(p, rng.random(p.shape) < np.where(p > 0.5, 0.62, 0.2), group=np.arange(100)))
    assert text.startswith("1000 edge probabilities in 100 data sets: too sure")
    assert "says 0.80, is right 0.6" in text and "too sure (500 edges; if calibrated 0.7" in text
    assert "named at a rate of 10%" in text and "Spiegelhalter's z" in text
    fine = str(reliability([0.3, 0.6], [0, 1]))
    assert fine.startswith("2 edge probabilities: no sign of miscalibration")
    assert "named" not in fine


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"prob": 1.0}, "prob: want a probability strictly between 0 and 1, got 1.0; 95 % is 0.95"),
        ({"fdr": -0.1}, r"fdr: want a rate in \[0, 1\], got -0.1"),
        ({"bins": 0}, "bins: want a whole number of at least 1, got 0"),
        ({"simulations": 0}, "simulations: want a whole number of at least 1, got 0"),
        ({"group": np.arange(3)}, r"group: want a label for each edge, shape \(120, 6, 3\)"),
    ],
)
def test_bad_settings_are_named(options, message):
    with pytest.raises(ValueError, match=message):
        reliability(*forecast(), **options)
