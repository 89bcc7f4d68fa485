"""One weight under a spike and a slab: against quadrature, and draws against the distribution function."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.integrate import quad

from pyro_sparse.inference.edges.density.weight import SpikeSlab, edge_summed_out

LAWS = [(False, 0.0), (True, 0.0), (True, 0.1)]
FACTORS = [(0.5, 0.3), (20.0, 8.0), (1e-4, 0.01), (300.0, -500.0), (40.0, 1.5)]


def mixture(laplace, ratio, a, b, eta):
    """Integrals of w^i times both parts, scaled by a common factor, and that factor's log."""
    off = b**2 / 2 / (a if laplace else a + 1)

    def slab(w):
        return 0.5 * np.exp(-abs(w)) if laplace else np.exp(-(w**2) / 2) / np.sqrt(2 * np.pi)

    def spike(w):
        return 0.5 / ratio * np.exp(-abs(w) / ratio)

    def integral(density, power, low=-60.0, high=60.0):
        cuts = [c for c in (-3, -0.3, 0, 0.3, 3) if low < c < high]
        ends = [low, *cuts, high]
        return sum(
            quad(
                lambda w: density(w) * w**power * np.exp(-a * w**2 / 2 + b * w - off),
                *pair,
                epsabs=0,
                limit=500,
            )[0]
            for pair in zip(ends[:-1], ends[1:], strict=True)
        )

    def both(power, **ends):
        one = eta * integral(slab, power, **ends)
        if ratio:
            return one, (1 - eta) * integral(spike, power, **ends)
        return one, (1 - eta) * (power == 0) * np.exp(-off)

    return both, off


@pytest.mark.parametrize(("laplace", "ratio"), LAWS)
@pytest.mark.parametrize(("a", "b"), FACTORS)
def test_moments_are_the_integrals(laplace, ratio, a, b):
    both, off = mixture(laplace, ratio, a, b, 0.4)
    (one, zero), (m1, m0), (s1, s0) = (both(i) for i in range(3))
    total = one + zero
    mean = (m1 + m0) / total
    found = SpikeSlab(laplace, np.array(ratio)).tilted(np.array(a), np.array(b), np.log(0.4 / 0.6))
    assert found.log_norm == pytest.approx(np.log(total) + off, abs=1e-8)
    assert found.prob == pytest.approx(one / total, abs=1e-9)
    assert found.mean == pytest.approx(mean, abs=1e-8)
    assert found.var == pytest.approx((s1 + s0) / total - mean**2, rel=1e-7)
    assert found.slab.mean == pytest.approx(m1 / one, abs=1e-8)


@pytest.mark.parametrize(("laplace", "ratio"), [*LAWS, (False, 0.2)])
def test_without_moments_normaliser_and_probability_are_the_same(laplace, ratio):
    """Of odds that are infinite, too."""
    a, b = (np.array(column) for column in zip(*FACTORS, strict=True))
    for scales in (np.array(ratio), np.full(len(a), ratio)):
        density = SpikeSlab(laplace, scales)
        for log_odds in (np.array([-3.0, 0.4, 60.0, -60.0, 0.0]), np.full(len(a), -1.0)):
            tilted = density.tilted(a, b, log_odds)
            log_norm, prob = edge_summed_out(density, a, b, log_odds)
            np.testing.assert_allclose(log_norm, tilted.log_norm, rtol=1e-12)
            np.testing.assert_allclose(prob, tilted.prob, rtol=1e-12)
        with np.errstate(invalid="ignore"):
            assert (edge_summed_out(density, a, b, np.full(len(a), np.inf))[1] == 1).all()
        assert (edge_summed_out(density, a, b, np.full(len(a), -np.inf))[1] == 0).all()


@pytest.mark.parametrize(("laplace", "ratio"), LAWS)
@pytest.mark.parametrize(("a", "b"), [(3.0, 2.0), (40.0, 1.5)])
def test_draws_follow_the_density(laplace, ratio, a, b):
    density = SpikeSlab(laplace, np.array(ratio))
    rng = np.random.default_rng(0)
    n = 40_000
    at = np.full(n, a), np.full(n, b)
    p = density.tilted(*at, np.log(0.4 / 0.6)).prob
    edge = rng.random(n) < p
    w = density.draw(*at, edge, rng)
    if not ratio:
        assert not w[~edge].any()
    both, _ = mixture(laplace, ratio, a, b, 0.4)
    whole = both(0)
    for part, chosen in zip((0, 1), (edge, ~edge), strict=True):
        if part and not ratio:
            continue
        for cut in (-0.2, 0.02, 0.3):
            want = both(0, high=cut)[part] / whole[part]
            error = np.sqrt(want * (1 - want) / chosen.sum()) + 1e-9
            assert (w[chosen] < cut).mean() == pytest.approx(want, abs=5 * error)


@pytest.mark.parametrize(("laplace", "ratio"), LAWS)
def test_without_data_the_prior_is_left(laplace, ratio):
    density = SpikeSlab(laplace, np.array(ratio))
    found = density.tilted(np.array(1e-10), np.array(0.0), np.log(0.4 / 0.6))
    assert found.prob == pytest.approx(0.4, abs=1e-6)
    assert found.log_norm == pytest.approx(0, abs=1e-6)
    assert found.var == pytest.approx(0.4 * density.variance + 0.6 * 2 * ratio**2, rel=1e-5)
    w = density.draw(
        np.full(20_000, 1e-10), np.zeros(20_000), np.full(20_000, True), np.random.default_rng(1)
    )
    assert w.var() == pytest.approx(density.variance, rel=0.1)
