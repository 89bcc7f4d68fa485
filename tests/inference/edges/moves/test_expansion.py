"""Maps of factors: what is predicted stays, and so do loadings and factors drawn from the prior."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from pyro_sparse.inference.edges.density.weight import SpikeSlab
from pyro_sparse.inference.edges.moves import expansion
from pyro_sparse.inference.edges.moves.expansion import Expansion, translation

SLAB, ROWS = 0.8, 12
COV = np.array([[1.0, 0.3, 0.0], [0.3, 1.0, -0.2], [0.0, -0.2, 1.0]])
SAME = np.ones((5, 3), bool)
ANCHORS = np.array([[1, 0, 0], [0, 1, 1], [1, 1, 1], [1, 1, 1], [1, 1, 1]], bool)  # the last two are alike


def drawn(n, permitted, must, laplace, ratio, rng):
    """Loadings and factors from their prior, rates of a half."""
    edge = ((rng.random((n, *permitted.shape)) < 0.5) | must) & permitted
    unit = rng.laplace(size=edge.shape) if laplace else rng.standard_normal(edge.shape)
    weight = SLAB * unit * np.where(edge, 1.0, ratio) * permitted
    return weight, rng.standard_normal((n, ROWS, 3)) @ np.linalg.cholesky(COV).T


def maps_of(permitted, ratio, laplace=False, must=None):
    must = np.zeros_like(permitted) if must is None else must
    return Expansion(permitted, must, SpikeSlab(laplace, np.array(ratio)), SLAB)


def step(maps, weight, z, rng):
    whole, odds = np.swapaxes(z, 1, 2) @ z, np.zeros((len(weight), 1, 3))
    weight, by = maps.moved(weight, odds, whole, ROWS, np.linalg.inv(COV)[None], rng)
    return weight, z @ np.swapaxes(by, 1, 2)


@pytest.mark.parametrize(("permitted", "ratio"), [(SAME, 0.2), (ANCHORS, 0.2), (ANCHORS, 0.0)])
def test_what_is_predicted_stays_and_edges_that_may_not_be_there_stay_out(permitted, ratio):
    rng = np.random.default_rng(0)
    weight, z = drawn(40, permitted, np.zeros_like(permitted), False, ratio, rng)
    new, other = step(maps_of(permitted, ratio), weight, z, rng)
    assert (np.abs(other - z).max((1, 2)) > 0.1).mean() > 0.5
    np.testing.assert_array_equal(new == 0, weight == 0)
    np.testing.assert_allclose(other @ np.swapaxes(new, 1, 2), z @ np.swapaxes(weight, 1, 2), atol=1e-9)


def test_a_factor_is_added_to_those_that_see_whatever_it_does():
    assert len(maps_of(SAME, 0.2).shears) == 6
    assert maps_of(ANCHORS, 0.2).shears.tolist() == [[1, 2], [2, 1]]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("permitted", "laplace", "ratio"),
    [(SAME, False, 0.2), (SAME, True, 0.1), (ANCHORS, False, 0.3), (SAME, False, 0.01), (SAME, True, 0.0)],
)
def test_loadings_and_factors_of_the_prior_are_left_alone(permitted, laplace, ratio):
    """Without data the prior is the density, of any function of both."""
    rng, must = np.random.default_rng(1), np.zeros_like(permitted)
    must[4, 2] = True
    weight, z = drawn(12_000, permitted, must, laplace, ratio, rng)
    maps, new, other = maps_of(permitted, ratio, laplace, must), weight, z
    for _ in range(15):
        new, other = step(maps, new, other, rng)
    sizes = [(a**2).sum(1) for a in (z, other)]
    assert np.corrcoef(sizes[0][:, 1], sizes[1][:, 1])[0, 1] < 0.8
    for k in range(3):
        assert stats.ks_2samp(sizes[0][:, k], sizes[1][:, k]).pvalue > 1e-3
        rows = np.flatnonzero(permitted[:, k])
        for j in rows[[0, -1]]:
            before, after = np.abs(weight[:, j, k]), np.abs(new[:, j, k])
            assert stats.ks_2samp(before, after).pvalue > 1e-3
    across = [(a[..., 1] * a[..., 2]).sum(1) for a in (z, other)]
    assert stats.ks_2samp(*across).pvalue > 1e-3
    joint = [(a**2).sum((1, 2)) * (b**2).sum((1, 2)) for a, b in ((weight, z), (new, other))]
    assert stats.ks_2samp(*joint).pvalue > 1e-3


@pytest.mark.parametrize("steps", ["_SHEAR", "_SCALE"])
def test_a_step_too_long_is_not_taken(monkeypatch, steps):
    for which in ("_SHEAR", "_SCALE"):
        monkeypatch.setattr(expansion, which, (-60.0, -60.0))
    longest = {"_SHEAR": 9.0, "_SCALE": 4.0}[steps]
    monkeypatch.setattr(expansion, steps, (longest, longest))
    monkeypatch.setattr(expansion, "_STEPPED", 1.0)
    rng = np.random.default_rng(0)
    weight, z = drawn(3, SAME, np.zeros_like(SAME), False, 0.2, rng)
    new, other = step(maps_of(SAME, 0.2), weight, z, rng)
    np.testing.assert_allclose(new, weight, rtol=1e-9)
    np.testing.assert_allclose(other, z, rtol=1e-9)


def translated(weight, coefficients, sd, z, design, rng):
    known, precision = design.T @ z, np.linalg.inv(COV)[None]
    b = translation(weight, coefficients, sd, known, design.T @ design, precision, rng)
    return coefficients - weight @ np.swapaxes(b, 1, 2), z + design @ b


@pytest.mark.parametrize("sd", [2.0, np.array([0.5, 1.0, 2.0, 3.0, 1.5])])
def test_translations_leave_predictions_and_the_prior_as_they_are(sd):
    rng, n = np.random.default_rng(0), 4000
    weight, z = drawn(n, SAME, np.zeros_like(SAME), False, 0.2, rng)
    design = np.column_stack([np.ones(ROWS), rng.normal(size=ROWS)])
    coefficients = np.broadcast_to(sd, 5)[:, None] * rng.standard_normal((n, 5, 2))
    new, other = translated(weight, coefficients, sd, z, design, rng)
    before, after = (
        d @ np.swapaxes(c, 1, 2) + f @ np.swapaxes(weight, 1, 2)
        for d, c, f in ((design, coefficients, z), (design, new, other))
    )
    np.testing.assert_allclose(after, before, atol=1e-9)
    for k in range(3):
        means, slopes = ([(f[..., k] * design[:, q]).mean(1) for f in (z, other)] for q in (0, 1))
        for one, two in (means, slopes):
            assert stats.ks_2samp(one, two).pvalue > 1e-3
            assert abs(np.corrcoef(one, two)[0, 1]) < 0.95
    for j in (0, 4):
        assert stats.ks_2samp(coefficients[:, j, 1], new[:, j, 1]).pvalue > 1e-3


def test_translations_of_rows_that_say_all_forget_where_they_were():
    """Without loadings the mean of the factors is that of its prior, whatever it was."""
    rng, n = np.random.default_rng(1), 4000
    z = np.broadcast_to(5 + rng.standard_normal((1, ROWS, 3)), (n, ROWS, 3))
    nothing, design = np.zeros((n, 5, 3)), np.ones((ROWS, 1))
    new, other = translated(nothing, np.ones((n, 5, 1)), 1.0, z, design, rng)
    np.testing.assert_array_equal(new, 1.0)
    np.testing.assert_allclose(np.cov(other.mean(1).T), COV / ROWS, atol=0.01)
    np.testing.assert_allclose(other.mean((0, 1)), 0.0, atol=0.02)
