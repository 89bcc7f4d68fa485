"""Scores of expected counts, by hand."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks._count_scores import AVERAGE, Profiles, average_profile, correlation, deviance, thinned


def test_the_two_halves_are_independent_and_make_up_the_counts():
    rng = np.random.default_rng(0)
    counts = rng.poisson(4.0, size=(20_000, 1)).astype(float)
    given = thinned(counts, rng)
    assert (given <= counts).all() and given.mean() == pytest.approx(2, abs=0.05)
    assert np.corrcoef(given[:, 0], (counts - given)[:, 0])[0, 1] == pytest.approx(0, abs=0.03)


def test_profiles_are_on_the_level_of_each_feature_and_never_zero():
    seen = np.array([[6.0, 2, 2], [2, 6, 2]])
    expected = seen * [1, 0.5, 1]  # the second feature at half of its level
    profiles = Profiles(seen, expected)
    shares = profiles.shares(expected)
    np.testing.assert_allclose(shares.sum(1), 1)
    np.testing.assert_allclose(shares[:, 1] / shares[:, 2], [1, 3], rtol=0.1)
    # Of nothing expected the average remains, and a zero is never certain.
    np.testing.assert_allclose(profiles.shares(np.array([[0.0, 0, 0]])).sum(), 1)
    assert profiles.shares(np.array([[-1.0, 0, 5]]))[0, 0] == pytest.approx(AVERAGE * 0.4)


def test_deviance_by_hand():
    counts, shares = np.array([[3.0, 1, 0]]), np.array([[0.5, 0.25, 0.25]])
    by_hand = 2 * (3 * np.log(3 / 2) + 1 * np.log(1 / 1) - 0) / 3
    assert deviance(counts, shares) == pytest.approx(by_hand)
    assert deviance(counts, counts / 4) == 0


def test_correlation_is_one_of_what_was_seen_and_none_of_a_constant():
    counts = np.random.default_rng(1).poisson(5.0, size=(30, 4)).astype(float)
    counts[:, 3] = 0  # never seen: no correlation to speak of
    shares = counts / counts.sum(1, keepdims=True)
    assert correlation(counts, shares) == pytest.approx(1)
    assert correlation(counts, np.full((30, 4), 0.25)) == 0


def test_the_average_profile_knows_no_row():
    answer = average_profile(np.array([[3.0, 1], [1, 3]]))
    np.testing.assert_allclose(answer.predict(np.zeros((2, 2))), 0.5)
    assert not answer.transform(np.ones((4, 2))).any()
