"""Scores of probabilities against loops, scikit-learn, closed forms and repeats."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import kstest, ttest_1samp
from sklearn.metrics import brier_score_loss, log_loss

from pyro_sparse.calibrate._check import bin_of
from pyro_sparse.calibrate.scores import (
    brier_decomposition,
    cluster_ece,
    cluster_z,
    ece,
    ece_when_calibrated,
    log_score,
    mean_z,
    spiegelhalter_z,
)


def forecast(seed=0, shape=(40, 6, 3)):
    rng = np.random.default_rng(seed)
    p = rng.beta(0.5, 1.0, shape)
    return p, rng.random(shape) < p, rng


@pytest.mark.parametrize("bins", [1, 7, 15])
def test_ece_is_the_loop(bins):
    p, truth, _ = forecast()
    p[0, 0] = [0.0, 1.0, 2 / 7]
    want = 0.0
    for b in range(bins):
        low, high = b / bins, (b + 1) / bins
        inside = (p >= low) & ((p < high) | (b == bins - 1))
        if inside.any():
            want += inside.mean() * abs(p[inside].mean() - truth[inside].mean())
    assert ece(p, truth, bins) == pytest.approx(want, abs=1e-12)


@pytest.mark.parametrize("bins", [3, 15, 100])
def test_a_boundary_belongs_to_the_upper_bin(bins):
    p = np.arange(bins + 1) / bins
    np.testing.assert_array_equal(bin_of(p, bins), [*range(bins), bins - 1])
    np.testing.assert_array_equal(bin_of(np.nextafter(p[1:], 0), bins), range(bins))


def test_floor_of_the_ece_against_brute_force():
    p, _, rng = forecast(shape=(12, 5))
    brute = [ece(p, rng.random(p.shape) < p) for _ in range(2000)]
    found = ece_when_calibrated(p, simulations=2000, seed=1)
    assert found.mean() == pytest.approx(np.mean(brute), rel=0.02)
    assert np.quantile(found, 0.9) == pytest.approx(np.quantile(brute, 0.9), rel=0.04)
    np.testing.assert_array_equal(found, ece_when_calibrated(p, simulations=2000, seed=1))
    assert (ece_when_calibrated(np.array([0.0, 1.0, 1.0])) == 0).all()


def test_ece_of_turned_data_sets_against_all_turns():
    p, truth, _ = forecast(shape=(6, 4))
    turns = np.array(np.meshgrid(*[[-1, 1]] * 6)).reshape(6, -1)
    home = np.minimum((p * 5).astype(int), 4)
    exact = []
    for turn in turns.T:
        gap = turn[:, None] * (truth - p)
        exact.append(sum(abs(gap[home == b].sum()) for b in range(5)) / p.size)
    found = cluster_ece(p, truth, np.arange(6), bins=5, simulations=4000)
    assert set(np.round(found, 9)) == set(np.round(exact, 9))
    assert found.mean() == pytest.approx(np.mean(exact), rel=0.02)


def test_ece_of_turned_data_sets_knows_that_edges_go_together():
    """Four copies of every edge: the chance ECE is that of a quarter of the edges."""
    p, truth, _ = forecast(shape=(200, 1))
    alone = ece_when_calibrated(p, bins=3).mean()
    copies = [np.repeat(a, 4, axis=1) for a in (p, truth)]
    assert cluster_ece(*copies, np.arange(200), bins=3).mean() == pytest.approx(alone, rel=0.15)
    assert ece_when_calibrated(copies[0], bins=3).mean() == pytest.approx(alone / 2, rel=0.15)


@pytest.mark.parametrize("bins", [1, 4, 15])
def test_brier_score_is_the_sum_of_its_parts(bins):
    p, truth, _ = forecast()
    parts = brier_decomposition(p, truth, bins)
    total = parts.reliability - parts.resolution + parts.uncertainty + parts.within_bin
    assert total == pytest.approx(brier_score_loss(truth.ravel(), p.ravel()), abs=1e-12)


def test_brier_parts_of_one_value_per_bin():
    p = np.repeat([0.1, 0.6], [10, 20])
    truth = np.concatenate([np.arange(10) < 3, np.arange(20) < 10])
    found = brier_decomposition(p, truth, 10)
    assert found.within_bin == pytest.approx(0, abs=1e-15)
    assert found.reliability == pytest.approx((10 * 0.2**2 + 20 * 0.1**2) / 30)
    mean = 13 / 30
    assert found.resolution == pytest.approx((10 * (0.3 - mean) ** 2 + 20 * (0.5 - mean) ** 2) / 30)
    assert found.uncertainty == pytest.approx(mean * (1 - mean))


def test_log_score_is_that_of_scikit_learn_and_does_not_forgive():
    p, truth, _ = forecast()
    p = np.clip(p, 1e-6, 1 - 1e-6)
    assert log_score(p, truth) == pytest.approx(log_loss(truth.ravel(), p.ravel()))
    assert log_score([0.0, 1.0, 0.5], [0, 1, 1]) == pytest.approx(np.log(2) / 3)
    assert log_score([0.0, 0.5], [1, 1]) == np.inf


def test_spiegelhalter_z_is_the_brier_score_in_its_own_standard_deviations():
    """Mean and variance of the sum of (truth - p)^2 over all truths, by enumeration."""
    p = np.array([0.1, 0.35, 0.8, 0.93])
    truths = (np.arange(16)[:, None] >> np.arange(4)) & 1
    chance = np.prod(np.where(truths == 1, p, 1 - p), axis=1)
    brier = ((truths - p) ** 2).sum(1)
    mean = chance @ brier
    sd = np.sqrt(chance @ (brier - mean) ** 2)
    for truth, value in zip(truths, brier, strict=True):
        assert spiegelhalter_z(p, truth) == pytest.approx((value - mean) / sd)


def test_spiegelhalter_z_is_standard_normal_if_calibrated():
    p, _, rng = forecast(shape=(400,))
    found = [spiegelhalter_z(p, rng.random(400) < p) for _ in range(1000)]
    assert kstest(found, "norm").pvalue > 0.01
    sure = p**2 / (p**2 + (1 - p) ** 2)
    assert np.mean([spiegelhalter_z(sure, rng.random(400) < p) for _ in range(50)]) > 4
    assert spiegelhalter_z([0, 1, 0.5], [0, 1, 1]) == 0
    assert spiegelhalter_z([0, 1, 0.5], [0, 0, 1]) == np.inf


def test_mean_z_has_the_variance_of_independent_edges():
    rng = np.random.default_rng(4)
    p = rng.random((4, 30))
    drawn = np.array([mean_z(p, rng.random(p.shape) < p) for _ in range(2000)])
    assert abs(drawn.mean()) < 0.08 and drawn.std() == pytest.approx(1, abs=0.05)
    assert mean_z([0.2, 0.5], [0, 1]) == pytest.approx(0.3 / np.sqrt(0.16 + 0.25))
    assert (mean_z([0, 1], [0, 1]), mean_z([1.0], [0])) == (0, -np.inf)


def test_cluster_z_is_student_t_of_the_sums():
    p, truth, rng = forecast()
    labels = np.array([f"set {i}" for i in range(40)])
    want = ttest_1samp((truth - p).sum((1, 2)), 0).statistic
    assert cluster_z(truth - p, labels) == pytest.approx(want)
    shuffled = rng.permutation(p.size)
    each = np.repeat(labels, 18)[shuffled]
    assert cluster_z((truth - p).ravel()[shuffled], each) == pytest.approx(want)
    assert np.isnan(cluster_z(truth - p, np.zeros(p.shape)))
    assert cluster_z([0.1, 0.2, -0.3, 0.1, 0.2, -0.3], [0, 0, 0, 1, 1, 1]) == 0
    assert cluster_z([0.1, 0.2, 0.3, 0.3, 0.2, 0.1], [0, 0, 0, 1, 1, 1]) == np.inf  # but for rounding


@pytest.mark.parametrize("score", [ece, brier_decomposition, log_score, spiegelhalter_z])
@pytest.mark.parametrize(
    ("p", "truth", "message"),
    [
        ([0.5, 0.5], [1], r"truth: want the shape of probability, \(2,\), got \(1,\)"),
        ([], [], "probability: want at least one edge, got none"),
        ([0.5, np.nan], [1, 0], r"probability: want numbers in \[0, 1\], got nan at \(1,\) and 0 more"),
        ([-0.1, 1.1], [1, 0], r"got -0.1 at \(0,\) and 1 more such"),
        ([0.5, 0.5], [1, 0.3], "truth: want 0 or 1 for every edge, got 0.3; compare weights with 0 first"),
        ([0.5, 0.5], [1, np.nan], "truth: want 0 or 1 for every edge, got nan"),
    ],
)
def test_bad_pairs_are_named(score, p, truth, message):
    with pytest.raises(ValueError, match=message):
        score(p, truth)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: ece([0.5], [1], 0), "bins: want a whole number of at least 1, got 0"),
        (lambda: ece([0.5], [1], 2.5), "bins: want a whole number of at least 1, got 2.5"),
        (lambda: ece_when_calibrated([0.5], simulations=0), "simulations: want a whole number of at least 1"),
        (lambda: ece_when_calibrated([1.5]), r"probability: want numbers in \[0, 1\]"),
        (
            lambda: cluster_z(np.zeros((3, 2)), np.zeros(2)),
            r"group: want a label for each edge, shape \(3, 2\), or for the leading axes .* got shape \(2,\)",
        ),
        (lambda: cluster_z(np.zeros(2), 1), r"group: want a label for each edge.*got shape \(\)"),
        (lambda: cluster_z(np.zeros(2), ["a", None]), "group: want a label for every edge, got 1 missing"),
        (lambda: cluster_z([0.0, np.inf], [0, 1]), "deviation: want finite numbers.*got 1 others among 2"),
        (lambda: cluster_ece([0.5], [1], [0], simulations=-1), "simulations: want a whole number"),
    ],
)
def test_bad_settings_are_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()
