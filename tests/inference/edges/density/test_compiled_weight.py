"""Compiled loadings are those of numpy, and the functions they are made of those of SciPy."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import erfcx, log_ndtr, ndtri_exp

from pyro_sparse.inference.edges.density._compiled_weight import AVAILABLE, scaled_tail, truncated_normal
from pyro_sparse.inference.edges.density.weight import SpikeSlab
from pyro_sparse.inference.edges.mcmc import linear
from pyro_sparse.inference.edges.mcmc.linear import LinearChains, LinearState
from pyro_sparse.priors import LKJ

N, SLAB = 4, 0.8
needs_numba = pytest.mark.skipif(not AVAILABLE, reason="the extra 'fast' is not installed")


def chains(laplace, ratio, holes, asked, g=12, k=3):
    """Chains of a table of which the first rows may have holes, and their state."""
    rng = np.random.default_rng(g)
    permitted, must = np.ones((g, k), bool), np.zeros((g, k), bool)
    must[0, 0] = "must" in asked
    permitted[1, :2] = permitted[2, 0] = "forbidden" not in asked
    weight = rng.laplace(size=(N, g, k)) * np.where(rng.random((N, g, k)) < 0.4, 1, ratio) * permitted
    rows, cov, noise = 2 * g + 30, LKJ(2.0).draw(N, k, rng), rng.uniform(0.2, 1.0, (N, g))
    x = rng.standard_normal((rows, k)) @ weight[0].T + rng.standard_normal((rows, g))
    seen = np.ones((1, rows, g), bool)
    seen[0, :holes] = rng.random((holes, g)) < 0.8
    offsets = rng.normal(size=(g, k)) if "odds" in asked else None
    made = LinearChains(
        x * seen, seen if holes else None, permitted, must, SpikeSlab(laplace, np.array(ratio)), SLAB,
        (np.ones(1), np.ones(1)), False, (1.0, 1.0), 5.0, ~np.eye(k, dtype=bool), True, offsets,
    )  # fmt: skip
    centre = rng.normal(size=(N, g, 1))
    moments = made.rows.draw(weight, noise, centre, cov, rng)
    return made, LinearState(weight, weight != 0, rng.normal(size=(N, 1, k)), noise, centre, cov, moments)


@needs_numba
@pytest.mark.parametrize("laplace", [True, False])
@pytest.mark.parametrize(
    ("ratio", "holes", "asked"),
    [(0.02, 0, ""), (0.2, 12, "must, forbidden"), (1e-3, 0, "odds, must"), (0.14, 20, "odds, forbidden")],
)
def test_the_same_random_numbers_make_the_same_loadings(laplace, ratio, holes, asked, monkeypatch):
    made, state = chains(laplace, ratio, holes, asked)
    before = state.weight.copy()
    drawn = []
    for compiled in (True, False):
        monkeypatch.setattr(linear, "COMPILED", compiled)
        assert made._loadings_compile == compiled
        rng = np.random.default_rng(3)
        drawn.append([*made._loadings(state, state.moments, rng), rng.random()])
    for got, want in zip(*drawn, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-9, atol=1e-12)
    weight, edge, prob, _ = drawn[0]
    assert edge.dtype == bool and 0.05 < edge[:, made.permitted].mean() < 0.95
    assert (prob[:, made.must] == 1).all() and not weight[:, ~made.permitted].any()
    np.testing.assert_array_equal(state.weight, before)


@needs_numba
def test_a_chain_that_is_not_a_number_leaves_the_others_alone():
    made, state = chains(True, 0.1, 0, "")
    weight = made._loadings(state, state.moments, np.random.default_rng(0))[0]
    state.weight[2, 4] = np.nan
    with_nan = made._loadings(state, state.moments, np.random.default_rng(0))[0]
    rest = [0, 1, 3]
    np.testing.assert_array_equal(with_nan[rest], weight[rest])


def test_a_point_is_no_density():
    assert not chains(True, 0.0, 0, "")[0]._loadings_compile


def test_the_table_is_erfcx():
    x = np.concatenate([[0.0], np.linspace(0, 12, 2001), np.geomspace(1e-9, 1e15, 2001)])
    np.testing.assert_allclose([scaled_tail(one) for one in x], erfcx(x), rtol=1e-13)


def test_truncated_normals_are_the_quantiles():
    rng = np.random.default_rng(0)
    x = np.concatenate([rng.uniform(-59, 36, 2000), 2 * rng.standard_normal(2000)])
    uniform = rng.random(4000) ** np.where(rng.random(4000) < 0.3, 8, 1)
    want = x - ndtri_exp(np.log1p(-uniform) + log_ndtr(x))
    got = [truncated_normal(*pair) for pair in zip(x, uniform, strict=True)]
    np.testing.assert_allclose(got, want, rtol=1e-10, atol=1e-12)
    assert truncated_normal(40.0, 0.0) == truncated_normal(-40.0, 0.0) == 0.0
    assert truncated_normal(50.0, 0.5) == pytest.approx(50.0, abs=1e-12)
    assert truncated_normal(50.0, 1 - 2.0**-53) == pytest.approx(50 - float(ndtri_exp(-53 * np.log(2))))
    for far in (-60.0001, -1e6):
        assert truncated_normal(far, 0.5) == pytest.approx(np.log(2) / -far, rel=1e-3)
