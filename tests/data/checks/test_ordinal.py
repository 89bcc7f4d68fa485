"""What a cut into levels does to correlations, against closed forms and bivariate normal probabilities."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import multivariate_normal, norm

import pyro_sparse as ps
from pyro_sparse.data.checks.ordinal import correlation_excess, makes_a_factor


def table(first, second, rho, n=400_000):
    """Two items cut at these points, each pair of levels as often as `rho` wants it."""
    joint = multivariate_normal(cov=[[1, rho], [rho, 1]])
    a, b = [-9, *first, 9], [-9, *second, 9]
    below = np.array([[joint.cdf([s, t]) for t in b] for s in a])
    count = np.rint(n * np.diff(np.diff(below, axis=0), axis=1)).astype(int)
    levels = np.indices(count.shape).reshape(2, -1).T
    return np.repeat(levels, count.ravel(), axis=0).astype(float)


@pytest.mark.parametrize("r", [-0.7, -0.2, 0.0, 0.4, 0.8])
def test_medians_have_the_arcsine(r):
    n = 100_000
    same = round(n * (1 + r) / 4)
    x = np.repeat([[0, 0], [1, 1], [0, 1], [1, 0]], [same, same, n // 2 - same, n // 2 - same], axis=0)
    want = r - 2 / np.pi * np.sin(np.pi * r / 2)  # r is 2/pi arcsin(rho), its slope at none 2/pi
    np.testing.assert_allclose(correlation_excess(x.astype(float))[0, 1], want, atol=2e-4)


@pytest.mark.parametrize(
    ("first", "second"), [([0.5], [-0.8]), ([-1, 0, 1], [-1, 0, 1]), ([0.2, 1.1], [-1.5, -0.9, -0.1, 0.7])]
)
@pytest.mark.parametrize("rho", [-0.6, 0.3, 0.7])
def test_any_cuts_against_probabilities_of_rectangles(first, second, rho):
    x = table(first, second, rho)
    kept = [norm.pdf(cuts).sum() / column.std() for cuts, column in zip((first, second), x.T, strict=True)]
    want = np.corrcoef(x.T)[0, 1] - kept[0] * kept[1] * rho
    np.testing.assert_allclose(correlation_excess(x)[0, 1], want, atol=5e-4)


def one_trait(rng, skew, n=500, p=12):
    y = 0.7 * rng.normal(size=(n, 1)) + np.sqrt(0.51) * rng.normal(size=(n, p))
    cuts = np.linspace(-1.2, 1.2, 4)
    sides = np.where(np.arange(p) % 2, skew, -skew)
    return np.stack([np.digitize(y[:, j], cuts + sides[j]) for j in range(p)], 1).astype(float)


@pytest.mark.parametrize("seed", range(1000, 1003))
def test_easy_and_hard_items_of_one_trait_make_a_factor(seed):
    rng = np.random.default_rng(seed)
    assert makes_a_factor(one_trait(rng, 1.5))
    alike = one_trait(rng, 0.0)
    assert not makes_a_factor(alike)
    alike[rng.random(alike.shape) < 0.1] = np.nan
    assert not makes_a_factor(alike)


@pytest.mark.parametrize(("skew", "severity"), [(1.5, "doubt"), (0.6, "note")])
def test_only_piles_that_make_a_factor_are_a_doubt(skew, severity):
    x = one_trait(np.random.default_rng(1000), skew)
    (finding,) = [f for f in ps.check_table(x) if f.kind == "levels"]
    assert finding.severity == severity
    assert ("too slight" in finding.message) == (severity == "note")


def test_of_many_items_some_are_taken():
    assert makes_a_factor(one_trait(np.random.default_rng(1000), 1.5, n=300, p=250))
