"""Compiled angles under any likelihood, loadings summed out along a curve, are those of numpy."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from pyro_sparse.inference.edges.density.cells import Cells
from pyro_sparse.inference.edges.density.loadings import Curve
from pyro_sparse.inference.edges.density.weight import SpikeSlab
from pyro_sparse.inference.edges.moves._compiled_angles import AVAILABLE
from pyro_sparse.inference.edges.moves.marginal_angles import MarginalAngles
from pyro_sparse.likelihoods import Bernoulli, Poisson
from pyro_sparse.priors import LKJ

N, SLAB, FACTOR = 5, 0.8, 1
needs_numba = pytest.mark.skipif(not AVAILABLE, reason="the extra 'fast' is not installed")


def begun(likelihood, g, k, laplace, ratio, asked, prior):
    """The prior, chains as they are, and the likelihood of their loadings on one factor."""
    rng = np.random.default_rng(g)
    permitted, must = np.ones((g, k), bool), np.zeros((g, k), bool)
    must[0, FACTOR] = "must" in asked
    permitted[1, 0] = permitted[1, FACTOR] = permitted[2, 0] = "forbidden" not in asked
    weight = rng.laplace(size=(N, g, k)) * np.where(rng.random((N, g, k)) < 0.4, 1, ratio) * permitted
    weight[3, 0, -1] = 0.0 if "zero" in asked else weight[3, 0, -1]
    angles = MarginalAngles(permitted, must, SpikeSlab(laplace, np.array(ratio)), SLAB, prior)
    z = rng.standard_normal((N, 40, k))
    f = 0.3 * np.einsum("crk,cgk->cgr", z, weight)
    rate = np.exp(f[:1].clip(-2, 2))
    x = rng.random(rate.shape) < rate / (1 + rate) if isinstance(likelihood, Bernoulli) else rng.poisson(rate)
    likelihood.setup(g, 3)
    cells = Cells(torch.as_tensor(x).double(), None, {}, likelihood)
    noise, of_factor = torch.ones(N, g), torch.as_tensor(z[..., FACTOR])
    with torch.no_grad():
        terms = cells.expanded(torch.as_tensor(f), noise)
        loading = weight[..., FACTOR] / SLAB
        curve = Curve.along(cells, torch.as_tensor(f), terms, noise, of_factor, loading, SLAB)
    log_odds = rng.normal(-1, 1, (N, 1, k))
    return angles, (weight, weight != 0, LKJ(2.0).draw(N, k, rng), log_odds), curve


def one_by_one(angles, others, weight, edge, cov, log_odds, curve, rng):
    by = np.eye(cov.shape[-1])
    for other in others:
        weight, edge, cov, step, shift = angles.moved(
            (other, FACTOR), weight, edge, cov, log_odds, curve, rng
        )
        curve, by = curve.translated(shift), step @ by
    return weight, edge, cov, by, curve


SETTINGS = [
    (9, 3, True, 0.02, "", LKJ(1.0)),
    (9, 3, False, 0.2, "must, forbidden, zero", LKJ((1.0, 50.0), (3.0, 1.0))),
    (25, 5, True, 1e-3, "must, forbidden", LKJ(3.0)),
    (25, 4, False, 1e-3, "must", LKJ(1.0)),
    (60, 6, True, 0.1, "zero", LKJ(2.0)),
]


@needs_numba
@pytest.mark.parametrize("likelihood", [Bernoulli(), Poisson(size_factors=False)])
@pytest.mark.parametrize("setting", SETTINGS)
def test_the_same_random_numbers_make_the_same_moves(likelihood, setting):
    angles, state, curve = begun(likelihood, *setting)
    before = [array.copy() for array in (*state, curve.mode)]
    others = np.array([other for other in range(setting[1]) if other != FACTOR] * 2)
    rng, other_rng = np.random.default_rng(3), np.random.default_rng(3)
    assert angles.compiles
    *compiled, curve_then = angles.all_moved_along(FACTOR, others, *state, curve, rng)
    *wanted, curve_wanted = one_by_one(angles, others, *state, curve, other_rng)
    for got, want in zip((*compiled, curve_then.mode), (*wanted, curve_wanted.mode), strict=True):
        np.testing.assert_allclose(got, np.broadcast_to(want, got.shape), rtol=1e-7, atol=1e-8)
    assert rng.random() == other_rng.random() and curve_then.shape is curve.shape
    for now, was in zip((*state, curve.mode), before, strict=True):
        np.testing.assert_array_equal(now, was)
    new, permitted = compiled[0], angles.permitted
    assert (new[:, ~permitted] == 0).all() and compiled[1].dtype == bool
    assert (new != state[0])[:, permitted].mean() > 0.1


@needs_numba
def test_a_chain_that_is_not_a_number_stays_and_others_move():
    angles, state, curve = begun(Bernoulli(), *SETTINGS[0])
    state[0][2, 4] = np.nan
    new, *_ = angles.all_moved_along(FACTOR, np.array([0, 2]), *state, curve, np.random.default_rng(3))
    np.testing.assert_array_equal(new[2], state[0][2])
    rest = [0, 1, 3, 4]
    assert np.isfinite(new[rest]).all() and (new[rest] != state[0][rest]).any()
