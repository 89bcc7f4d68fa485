"""Compiled swivels are those of numpy."""

from __future__ import annotations

import numpy as np
import pytest

from pyro_sparse.inference.edges.density.weight import SpikeSlab
from pyro_sparse.inference.edges.moves import rotations
from pyro_sparse.inference.edges.moves._compiled import AVAILABLE
from pyro_sparse.inference.edges.moves.rotations import Turns
from pyro_sparse.priors import LKJ

N, SLAB = 6, 0.8
pytestmark = pytest.mark.skipif(not AVAILABLE, reason="the extra 'fast' is not installed")


def swivelled(turns, state, available, monkeypatch):
    """Loadings, correlations and maps after two sweeps, and what the random numbers go on with."""
    monkeypatch.setattr(rotations, "AVAILABLE", available)
    assert turns._compiles == available
    weight, cov, odds = state
    rng, whole = np.random.default_rng(3), np.eye(cov.shape[-1])
    for _ in range(2):
        weight, cov, by = turns.swivelled(weight, cov, odds, rng)
        whole = by @ whole
    return weight, cov, whole, rng.random()


@pytest.mark.parametrize(
    ("g", "k", "laplace", "ratio", "asked", "prior"),
    [
        (9, 3, True, 0.2, "", LKJ(1.0)),
        (9, 3, False, 0.2, "must, forbidden, zero", LKJ((1.0, 50.0), (3.0, 1.0))),
        (25, 5, True, 0.1, "must, forbidden", LKJ(3.0)),
        (40, 7, False, 0.3, "must", LKJ(1.0)),
        (900, 4, True, 0.3, "", LKJ(2.0)),
    ],
)
def test_the_same_random_numbers_make_the_same_swivels(g, k, laplace, ratio, asked, prior, monkeypatch):
    rng = np.random.default_rng(g)
    permitted, must = np.ones((g, k), bool), np.zeros((g, k), bool)
    must[0, 0] = "must" in asked
    permitted[1, :2] = permitted[2, 0] = "forbidden" not in asked
    weight = rng.laplace(size=(N, g, k)) * np.where(rng.random((N, g, k)) < 0.4, 1, ratio) * permitted
    weight[3, 0, -1] = 0.0 if "zero" in asked else weight[3, 0, -1]
    odds = rng.normal(size=(N, 1 if laplace else g, k))
    turns = Turns(
        permitted, must, ~np.eye(k, dtype=bool), SpikeSlab(laplace, np.array(ratio)), SLAB,
        round_share=0.5, correlation_prior=prior,
    )  # fmt: skip
    state = weight, LKJ(2.0).draw(N, k, rng), odds
    before = [array.copy() for array in state]
    compiled = swivelled(turns, state, True, monkeypatch)
    for got, want in zip(compiled, swivelled(turns, state, False, monkeypatch), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-9, atol=1e-9)
    for array, was in zip(state, before, strict=True):
        np.testing.assert_array_equal(array, was)
    new, cov, whole, _ = compiled
    assert (new[:, ~permitted] == 0).all()
    assert (cov != state[1]).any((1, 2)).mean() > 0.5
    np.testing.assert_allclose(new @ whole, weight, atol=1e-9)  # what is predicted stays
    np.testing.assert_allclose(whole @ state[1] @ np.swapaxes(whole, -1, -2), cov, atol=1e-9)


@pytest.mark.parametrize("prior", [LKJ(1.0), type("Own", (LKJ,), {})(1.0)])
def test_a_prior_of_ones_own_is_asked_itself(prior):
    permitted = np.ones((4, 2), bool)
    turns = Turns(
        permitted, ~permitted, ~np.eye(2, dtype=bool), SpikeSlab(True, np.array(0.1)), SLAB, 0.0, prior
    )
    assert turns._compiles == (type(prior) is LKJ)
