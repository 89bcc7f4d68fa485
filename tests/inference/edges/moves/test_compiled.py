"""Compiled moves are those of numpy."""

from __future__ import annotations

import numpy as np
import pytest

from pyro_sparse.inference.edges.density.weight import SpikeSlab
from pyro_sparse.inference.edges.mcmc.row_moments import RowMoments
from pyro_sparse.inference.edges.moves import axes, communalities, correlations, expansion
from pyro_sparse.inference.edges.moves._compiled import AVAILABLE, LARGEST, by_factor
from pyro_sparse.inference.edges.moves.axes import Axes, moved_axes
from pyro_sparse.inference.edges.moves.communalities import Communalities, moved_communalities
from pyro_sparse.inference.edges.moves.correlations import moved_correlations
from pyro_sparse.inference.edges.moves.expansion import Expansion
from pyro_sparse.priors import LKJ

N, G, K, ROWS, SLAB, NOISE = 5, 7, 3, 30, 0.8, (3.0, 1.0)
needs_numba = pytest.mark.skipif(not AVAILABLE, reason="the extra 'fast' is not installed")


def chains(ratio, holes=0, seed=0):
    """Weights, correlations, noise, prior log odds and the likelihood of rows, of which some have holes."""
    rng = np.random.default_rng(seed)
    weight = rng.standard_normal((N, G, K))
    weight[rng.random(weight.shape) < 0.4] *= ratio
    noise, cov = rng.uniform(0.2, 1.0, (N, G)), LKJ(2.0).draw(N, K, rng)
    x = rng.standard_normal((N, ROWS, G)) * 1.5
    seen = np.ones((1, ROWS, G), bool)
    seen[0, :holes, 0] = False
    rows, centre = RowMoments.of(x * seen, seen, K), rng.normal(size=(N, G, 1))
    likelihood = rows.summed_out(centre, cov, rows.draw(weight, noise, centre, cov, rng))
    return weight, cov, noise, rng.normal(size=(N, 1, K)), likelihood


def edges(asked):
    """Which may be and which must be, as asked for."""
    permitted, must = np.ones((G, K), bool), np.zeros((G, K), bool)
    must[0, 0], permitted[1, 2], permitted[4, 0] = "must" in asked, "forbidden" not in asked, True
    return permitted, must


def communality_target(laplace, ratio, holes, asked="", seed=0):
    weight, cov, noise, odds, likelihood = chains(ratio, holes, seed)
    permitted, must = edges(asked)
    weight = np.where(permitted, weight, 0.0)
    explained = ((weight @ cov) * weight).sum(-1)
    unit, total = weight / np.sqrt(explained)[..., None], explained + noise
    there = permitted & (weight != 0) if ratio == 0 else np.broadcast_to(permitted, weight.shape)
    odds = np.where(must, np.inf, odds) if ratio else np.full_like(odds, np.inf)
    moves = np.ones((N, G), bool)
    moves[:, 3] = False
    density = SpikeSlab(laplace, np.array(ratio))
    return Communalities(likelihood, density, SLAB, NOISE, unit, total, there, moves, odds)


def agree(target, *start, n_steps):
    for got, want in zip(target.compiled_orbit(*start, n_steps), target.orbit(*start, n_steps), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-10, atol=1e-9)


@needs_numba
@pytest.mark.parametrize("n_steps", [1, 20])
@pytest.mark.parametrize("asked", ["", "must", "must, forbidden"])
@pytest.mark.parametrize(
    ("laplace", "ratio", "holes"),
    [(False, 0.2, 0), (True, 0.1, 4), (False, 0.0, 4), (True, 0.0, 0), (False, 1e-3, 0), (True, 0.2, ROWS)],
)
def test_communalities(laplace, ratio, holes, asked, n_steps):
    """Of one step the speed holds the slopes at both ends, and the gain the density's."""
    target, rng = communality_target(laplace, ratio, holes, asked), np.random.default_rng(1)
    assert target.compiles
    ratios = np.where(target.moves, rng.normal(size=(N, G)), 0.0)
    agree(target, ratios, np.where(target.moves, rng.normal(size=(N, G)), 0.0), 0.01, n_steps=n_steps)


@needs_numba
@pytest.mark.parametrize("n_steps", [1, 10])
@pytest.mark.parametrize("asked", ["", "must"])
@pytest.mark.parametrize("prior", [LKJ(1.0), LKJ(4.0), LKJ((1.0, 50.0), (3.0, 1.0))])
@pytest.mark.parametrize(("laplace", "ratio"), [(False, 0.2), (True, 0.1), (False, 1e-3)])
def test_axes(laplace, ratio, prior, asked, n_steps):
    weight, cov, _, odds, _ = chains(ratio)
    directions, rng = np.linalg.cholesky(cov), np.random.default_rng(1)
    odds = np.where(edges(asked)[1], np.inf, odds)
    target = Axes(weight @ directions, odds, SpikeSlab(laplace, np.array(ratio)), SLAB, prior)
    assert target.compiles
    speed = axes._tangent(rng.normal(size=(N, K, K)), directions)
    agree(target, directions, speed, rng.uniform(1e-4, 1e-3, (N, 1, 1)) * ratio, n_steps=n_steps)


def moves(ratio, laplace, astray):
    """Both moves of chains, one of them not a number where asked, and what the random numbers go on with."""
    weight, cov, noise, odds, likelihood = chains(ratio, 4)
    if astray:
        weight[2] = np.nan
    permitted, must = edges("")
    density, rng = SpikeSlab(laplace, np.array(ratio)), np.random.default_rng(3)
    new, variance = moved_communalities(
        weight, noise, cov, odds, likelihood, ROWS, permitted, must, density, SLAB, NOISE, rng
    )
    if not ratio:
        return weight, noise, cov, new, variance, cov, rng.random()
    new, other, _ = moved_axes(new, cov, odds, must, density, SLAB, LKJ(1.0), rng)
    return weight, noise, cov, new, variance, other, rng.random()


@needs_numba
@pytest.mark.parametrize(("laplace", "ratio"), [(False, 0.3), (True, 0.2), (True, 0.0)])
def test_the_same_random_numbers_make_the_same_moves(laplace, ratio, monkeypatch):
    compiled = moves(ratio, laplace, False)
    for module in (axes, communalities):
        monkeypatch.setattr(module, "AVAILABLE", False)
    for got, want in zip(compiled, moves(ratio, laplace, False), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-8, atol=1e-10)
    assert (compiled[3] != compiled[0]).any()


@pytest.mark.parametrize("available", [pytest.param(True, marks=needs_numba), False])
def test_a_chain_that_is_not_a_number_stays_and_others_move(available, monkeypatch):
    for module in (axes, communalities):
        monkeypatch.setattr(module, "AVAILABLE", available)
    weight, noise, cov, new, variance, other, _ = moves(0.3, False, True)
    for before, after in ((weight, new), (noise, variance), (cov, other)):
        np.testing.assert_array_equal(after[2], before[2])
        assert np.isfinite(np.delete(after, 2, 0)).all()
    assert (np.delete(new, 2, 0) != np.delete(weight, 2, 0)).any()


@needs_numba
def test_a_path_that_goes_astray_has_no_gain():
    """Singular directions and precisions, and numbers that are none."""
    weight, cov, _, odds, _ = chains(0.2)
    singular = np.linalg.cholesky(cov)
    singular[0, 1] = singular[0, 0]
    target = Axes(weight @ singular, odds, SpikeSlab(False, np.array(0.2)), SLAB, LKJ((1.0, 9.0)))
    _, _, gain = target.compiled_orbit(singular, np.zeros((N, K, K)), np.full((N, 1, 1), 1e-4), 2)
    assert np.isnan(gain[0]) and np.isfinite(gain[1:]).all()
    rows = communality_target(False, 0.2, 0)
    ratio = np.zeros((N, G))
    ratio[1, 2] = np.nan
    ratio[3] = 1e9
    _, _, gain = rows.compiled_orbit(ratio, np.zeros((N, G)), 0.01, 2)
    assert np.isnan(gain[1]) and np.isfinite(gain[[0, 2, 4]]).all()


@needs_numba
@pytest.mark.parametrize("asked", ["", "must, forbidden"])
@pytest.mark.parametrize(("laplace", "ratio"), [(False, 0.2), (True, 0.1), (False, 0.0), (True, 1e-3)])
def test_expansions(laplace, ratio, asked, monkeypatch):
    """One chain is not a number, and stays."""
    weight, cov, _, odds, _ = chains(ratio)
    permitted, must = edges(asked)
    weight = np.where(permitted, weight, 0.0)
    weight[2, 3] = np.nan
    z = np.random.default_rng(2).standard_normal((N, ROWS, K))
    maps = Expansion(permitted, must, SpikeSlab(laplace, np.array(ratio)), SLAB)

    def moved(available):
        monkeypatch.setattr(expansion, "AVAILABLE", available)
        rng = np.random.default_rng(4)
        whole = z.swapaxes(1, 2) @ z
        with np.errstate(all="ignore"):
            moves = maps.moved(weight, odds, whole, ROWS, np.linalg.inv(cov), rng)
        return *moves, rng.random()

    for got, want in zip(moved(True), moved(False), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-10, atol=1e-12)
    new, by, _ = moved(True)
    assert (by[2] == np.eye(K)).all()
    np.testing.assert_array_equal(new[2], weight[2])
    assert (np.delete(new, 2, 0) != np.delete(weight, 2, 0)).any()


@needs_numba
@pytest.mark.parametrize("prior", [LKJ(1.0), LKJ(4.0), LKJ((1.0, 50.0), (3.0, 1.0))])
@pytest.mark.parametrize("n_rows", [2, ROWS])
def test_correlations(prior, n_rows, monkeypatch):
    cov, z = chains(0.2)[1], np.random.default_rng(2).standard_normal((N, n_rows, K))
    pairs, whole = np.array([[0, 1], [1, 2], [0, 2], [0, 1], [1, 2]]), z.swapaxes(1, 2) @ z
    whole[2] = np.nan

    def moved(available):
        monkeypatch.setattr(correlations, "AVAILABLE", available)
        rng = np.random.default_rng(4)
        return moved_correlations(cov, whole, n_rows, pairs, prior, rng), rng.random()

    for got, want in zip(moved(True), moved(False), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-10, atol=1e-12)
    new = moved(True)[0]
    np.testing.assert_array_equal(new[2], cov[2])
    assert (new[[0, 1, 3, 4]] != cov[[0, 1, 3, 4]]).any()


def test_large_chains_are_left_to_numpy():
    target = communality_target(False, 0.2, 0)
    assert not target._replace(unit=np.zeros((1, LARGEST, 2))).compiles
    assert not target._replace(likelihood=lambda weight, noise: (weight, weight, noise)).compiles


def test_features_come_last():
    array = np.arange(24.0).reshape(2, 4, 3)
    turned = by_factor(array)
    assert turned.flags.c_contiguous and turned[1, 2, 3] == array[1, 3, 2]
