"""Compiled angles with loadings summed out are those of numpy."""

from __future__ import annotations

import numpy as np
import pytest

from pyro_sparse.inference.edges.density._compiled_weight import AVAILABLE
from pyro_sparse.inference.edges.density.weight import SpikeSlab
from pyro_sparse.inference.edges.mcmc.linear import LinearChains, LinearState
from pyro_sparse.inference.edges.moves import marginal_angles
from pyro_sparse.inference.edges.moves.marginal_angles import MarginalAngles
from pyro_sparse.priors import LKJ

N, SLAB = 5, 0.8
needs_numba = pytest.mark.skipif(not AVAILABLE, reason="the extra 'fast' is not installed")


def chains(g, k, laplace, ratio, holes=0, asked="", prior=LKJ(1.0)):  # noqa: B008
    """Chains of a table of which the first rows have holes, and their state."""
    rng = np.random.default_rng(g)
    permitted, must = np.ones((g, k), bool), np.zeros((g, k), bool)
    must[0, 0] = "must" in asked
    permitted[1, :2] = permitted[2, 0] = "forbidden" not in asked
    weight = rng.laplace(size=(N, g, k)) * np.where(rng.random((N, g, k)) < 0.4, 1, ratio) * permitted
    weight[3, 0, -1] = 0.0 if "zero" in asked else weight[3, 0, -1]
    rows, cov, noise = 2 * g + 30, LKJ(2.0).draw(N, k, rng), rng.uniform(0.2, 1.0, (N, g))
    x = rng.standard_normal((rows, k)) @ weight[0].T + rng.standard_normal((rows, g))
    seen = np.ones((1, rows, g), bool)
    seen[0, :holes] = rng.random((holes, g)) < 0.8
    rates = np.ones(1), np.ones(1)
    related = ~np.eye(k, dtype=bool)
    made = LinearChains(
        x * seen, seen if holes else None, permitted, must, SpikeSlab(laplace, np.array(ratio)), SLAB,
        rates, False, (1.0, 1.0), 5.0, related, True, rng.normal(size=(g, k)), correlation_prior=prior,
    )  # fmt: skip
    centre = rng.normal(size=(N, g, 1))
    moments = made.rows.draw(weight, noise, centre, cov, rng)
    state = LinearState(weight, weight != 0, rng.normal(size=(N, 1, k)), noise, centre, cov, moments)
    return made, state


def moved(made, state, available, monkeypatch):
    """All that a sweep's angles change, and what the random numbers go on with."""
    monkeypatch.setattr(marginal_angles, "AVAILABLE", available)
    monkeypatch.setitem(made.__dict__, "_all_axes", False)
    assert made._marginal_angles.compiles == available
    rng = np.random.default_rng(3)
    new, moments = made._angles(state, state.moments, rng)
    return new.weight, new.edge, new.cov, *moments[:5], rng.random()


@needs_numba
@pytest.mark.parametrize(
    ("g", "k", "laplace", "ratio", "holes", "asked", "prior"),
    [
        (9, 3, True, 0.02, 0, "", LKJ(1.0)),
        (9, 3, False, 0.2, 12, "must, forbidden, zero", LKJ((1.0, 50.0), (3.0, 1.0))),
        (25, 5, True, 1e-3, 20, "must, forbidden", LKJ(3.0)),
        (25, 4, False, 1e-3, 0, "must", LKJ(1.0)),
        (120, 8, True, 0.1, 0, "zero", LKJ(2.0)),
    ],
)
def test_the_same_random_numbers_make_the_same_moves(g, k, laplace, ratio, holes, asked, prior, monkeypatch):
    made, state = chains(g, k, laplace, ratio, holes, asked, prior)
    before = [np.array(array) for array in (state.weight, state.edge, state.cov, *state.moments[:5])]
    compiled = moved(made, state, True, monkeypatch)
    for got, want in zip(compiled, moved(made, state, False, monkeypatch), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-9, atol=1e-9)
    assert compiled[1].dtype == bool
    for got, was in zip((state.weight, state.edge, state.cov, *state.moments[:5]), before, strict=True):
        np.testing.assert_array_equal(got, was)
    new, permitted = compiled[0], made.permitted
    assert (new[:, ~permitted] == 0).all()
    assert (new != state.weight)[:, permitted].mean() > 0.1


@needs_numba
def test_a_chain_that_is_not_a_number_stays_and_others_move(monkeypatch):
    made, state = chains(9, 3, True, 0.1)
    state.weight[2, 4] = np.nan
    new, *_ = moved(made, state, True, monkeypatch)
    np.testing.assert_array_equal(new[2], state.weight[2])
    rest = [0, 1, 3, 4]
    assert np.isfinite(new[rest]).all() and (new[rest] != state.weight[rest]).any()


def test_what_is_not_compiled(monkeypatch):
    """Another density of weights or correlations, and a point that no integral is needed for."""
    monkeypatch.setattr(marginal_angles, "AVAILABLE", True)
    all_edges = np.ones((4, 2), bool)

    class Other(LKJ):
        pass

    def compiles(density, prior):
        return MarginalAngles(all_edges, ~all_edges, density, SLAB, prior).compiles

    assert compiles(SpikeSlab(True, np.array(0.1)), LKJ(1.0))
    assert not compiles(SpikeSlab(True, np.array(0.0)), LKJ(1.0))
    assert not compiles(SpikeSlab(True, np.array(0.1)), Other(1.0))
    assert not compiles(object(), LKJ(1.0))
