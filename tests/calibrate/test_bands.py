"""The band of the distribution function holds what it promises: enumeration, simulation, ArviZ's own."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from scipy.stats import binom

from pyro_sparse.calibrate.bands import ecdf_band


def test_probability_by_enumeration():
    """Four ranks on 0 … 3: all 256 outcomes, and no wider quantile pair would do with less."""
    outcomes = np.array(list(itertools.product(range(4), repeat=4)))
    counts = (outcomes[:, :, None] < [1, 2, 3]).sum(1)
    z = np.array([0.25, 0.5, 0.75])

    def coverage(low, high):
        return ((counts >= low) & (counts <= high)).all(1).mean()

    for prob in (0.3, 0.6, 0.9):
        low, high = (np.rint(4 * end) for end in ecdf_band(4, z, prob))
        achieved = [
            coverage(binom.ppf(level / 2, 4, z), binom.isf(level / 2, 4, z))
            for level in np.geomspace(1e-3, 1, 500)
        ]
        want = min(value for value in achieved if value >= prob)
        assert coverage(low, high) == pytest.approx(want)


@pytest.mark.parametrize(("n", "prob"), [(50, 0.8), (200, 0.95)])
def test_coverage_by_simulation(n, prob):
    rng = np.random.default_rng(0)
    z = np.arange(1, 32) / 32
    low, high = ecdf_band(n, z, prob)
    inside = 0
    for _ in range(10):
        ecdf = (rng.random((500, n, 1)) < z).mean(1)
        inside += ((ecdf >= low - 1e-9) & (ecdf <= high + 1e-9)).all(1).sum()
    assert inside / 5_000 == pytest.approx(prob, abs=0.018)


@pytest.mark.slow
def test_agrees_with_arviz_to_one_count():
    utils = pytest.importorskip("arviz.stats.ecdf_utils")
    z = np.arange(1, 64) / 64
    ours = ecdf_band(200, z, 0.95)
    theirs = utils.ecdf_confidence_band(200, z, z, prob=0.95, method="optimized")
    np.testing.assert_allclose(np.array(ours), np.array(theirs), atol=1 / 200 + 1e-9)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((0, [0.5]), "n: want a whole number of at least 1, got 0"),
        ((5, [0.5, 0.2]), r"points: want rising numbers strictly between 0 and 1.*got shape \(2,\)"),
        ((5, [0.0, 0.2]), "points: want rising numbers"),
        ((5, []), r"points: want rising numbers.*got shape \(0,\)"),
        ((5, [0.5], 0), "prob: want a probability strictly between 0 and 1, got 0"),
    ],
)
def test_bad_settings_are_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        ecdf_band(*arguments)
