"""False discoveries and power by hand; and calibrated probabilities have the rate that they claim."""

from __future__ import annotations

import numpy as np
import pytest

from pyro_sparse.calibrate import realised_fdr


def test_fdr_and_power_set_by_set():
    p = np.array([[0.95, 0.9, 0.2, 0.1], [0.99, 0.6, 0.3, 0.0], [0.2, 0.1, 0.1, 0.4]])
    truth = np.array([[1, 0, 1, 0], [1, 0, 0, 0], [0, 0, 0, 0]])
    # Named at .1: the first two (mean of 1 - p .075); the first alone (.01; .205 with the second); none.
    found = realised_fdr(p, truth, np.array([7, 3, 5]), fdr=0.1)
    assert found.fdr == pytest.approx((1 / 2 + 0 + 0) / 3)
    assert found.fdr_se == pytest.approx(np.std([0.5, 0, 0], ddof=1) / np.sqrt(3))
    assert found.claimed == pytest.approx((0.075 + 0.01 + 0) / 3)
    assert found.power == pytest.approx((1 / 2 + 1) / 2)
    nothing = realised_fdr(p[2:], truth[2:], [0])
    assert nothing.fdr == 0 and np.isnan([nothing.power, nothing.power_se, nothing.fdr_se]).all()


def test_realised_rate_is_the_claimed_one_if_calibrated():
    rng = np.random.default_rng(0)
    p = rng.beta(0.5, 1.0, (1500, 12))
    truth = rng.random(p.shape) < p
    found = realised_fdr(p, truth, np.arange(1500), fdr=0.2)
    assert abs(found.fdr - found.claimed) < 3 * found.fdr_se
    sure = p**2 / (p**2 + (1 - p) ** 2)
    found = realised_fdr(sure, truth, np.arange(1500), fdr=0.2)
    assert found.fdr > found.claimed + 5 * found.fdr_se


@pytest.mark.parametrize(
    ("group", "fdr", "message"),
    [
        ([0, 0], 2, r"fdr: want a rate in \[0, 1\], got 2"),
        ([0, 0, 0], 0.1, r"group: want a label for each edge, shape \(2,\).*got shape \(3,\)"),
    ],
)
def test_bad_settings_are_named(group, fdr, message):
    with pytest.raises(ValueError, match=message):
        realised_fdr([0.5, 0.2], [1, 0], group, fdr=fdr)
