"""Angles with loadings summed out: integrals against quadrature, and what the prior draws stays so."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import integrate, stats

from pyro_sparse.inference.edges.density.loadings import Parabola
from pyro_sparse.inference.edges.density.weight import SpikeSlab
from pyro_sparse.inference.edges.moves.marginal_angles import MarginalAngles
from pyro_sparse.priors import LKJ

SLAB, ROWS, NOISE = 0.8, 15, 0.7
ALL = np.ones((4, 3), bool)
FEWER = np.array(
    [[1, 1, 1], [1, 1, 0], [0, 1, 1], [1, 1, 1]], bool
)  # the middle factor sees whatever the others do
LAST_SURE = np.zeros((4, 3), bool)
LAST_SURE[3] = True


def angles_of(permitted, laplace, ratio):
    must = LAST_SURE & permitted
    return MarginalAngles(permitted, must, SpikeSlab(laplace, np.array(ratio)), SLAB, LKJ(2.0))


def drawn(n, moves, log_odds, rng):
    """Loadings, edges, correlations, factors and a table from the prior."""
    permitted, density = moves.permitted, moves.density
    edge = (rng.random((n, *permitted.shape)) < 1 / (1 + np.exp(-log_odds)) + moves.must) & permitted
    unit = rng.laplace(size=edge.shape) if density.laplace else rng.standard_normal(edge.shape)
    weight = SLAB * unit * np.where(edge, 1.0, density.ratio) * permitted
    cov = lkj(n, rng)
    z = rng.standard_normal((n, ROWS, 3)) @ np.swapaxes(np.linalg.cholesky(cov), 1, 2)
    x = z @ np.swapaxes(weight, 1, 2) + NOISE * rng.standard_normal((n, ROWS, len(permitted)))
    return weight, edge, cov, z, x


def lkj(n, rng, eta=2.0):
    """Correlation matrices of three factors with density |C|^(eta - 1), by rejection."""
    kept = []
    while sum(map(len, kept)) < n:
        r = rng.uniform(-1, 1, (4 * n, 3))
        det = 1 + 2 * r.prod(1) - (r**2).sum(1)
        kept.append(r[rng.random(len(r)) < np.where(det > 0, np.maximum(det, 0) ** (eta - 1), 0)])
    r = np.concatenate(kept)[:n]
    cov = np.tile(np.eye(3), (n, 1, 1))
    for (i, j), values in zip(((0, 1), (0, 2), (1, 2)), r.T, strict=True):
        cov[:, i, j] = cov[:, j, i] = values
    return cov


def step(moves, pair, weight, edge, cov, z, x, log_odds, rng):
    i, j = pair
    others = np.delete(np.arange(3), j)
    left = x - z[..., others] @ np.swapaxes(weight[..., others], 1, 2)
    a = (z[..., j] ** 2).sum(1)[:, None] * SLAB**2 / NOISE**2 * np.ones(weight.shape[1])
    b = (z[..., j, None] * left).sum(1) * SLAB / NOISE**2
    result = moves.moved(pair, weight, edge, cov, np.full((len(z), 1, 3), log_odds), Parabola(a, b), rng)
    return result.weight, result.edge, result.cov, z @ np.swapaxes(result.map, 1, 2)


@pytest.mark.parametrize(("laplace", "ratio"), [(True, 0.1), (False, 0.2), (True, 0.0), (False, 0.0)])
def test_evidence_is_the_integral_over_loadings_and_edges(laplace, ratio):
    moves, odds = angles_of(FEWER, laplace, ratio), -0.4
    a, b = np.array([[3.0, 0.5, 8.0, 2.0]]), np.array([[-1.0, 2.0, 5.0, 0.3]])
    got, odds_after = (
        array[0] for array in moves._summed_out(2, np.full((1, 4), odds), Parabola(a, b), np.zeros_like(a))
    )
    p = 1 / (1 + np.exp(-odds))
    slab = stats.laplace() if laplace else stats.norm()

    def integral(density, g):
        """In two halves, since a Laplace density has a corner."""

        def tilted(u):
            return np.exp(-a[0, g] * u**2 / 2 + b[0, g] * u) * density.pdf(u)

        return sum(integrate.quad(tilted, *ends, limit=200)[0] for ends in ((-12, 0), (0, 12)))

    for g in range(4):
        nonzero = integral(slab, g)
        scaled = stats.laplace(scale=ratio) if laplace else stats.norm(scale=ratio)
        zero = integral(scaled, g) if ratio else 1.0
        wanted = {0: p * nonzero + (1 - p) * zero, 1: 1.0, 2: p * nonzero + (1 - p) * zero, 3: nonzero}[g]
        np.testing.assert_allclose(np.exp(got[g]), wanted, rtol=1e-5)
        if g in (0, 2):
            share = p * nonzero / wanted
            np.testing.assert_allclose(1 / (1 + np.exp(-odds_after[g])), share, rtol=1e-5)


def test_what_other_columns_predict_moves_by_the_factor_that_is_summed_out_and_correlations_stay_so():
    moves, rng = angles_of(ALL, True, 0.1), np.random.default_rng(0)
    weight, edge, cov, z, x = drawn(300, moves, 0.0, rng)
    new, _, new_cov, new_z = step(moves, (0, 1), weight, edge, cov, z, x, 0.0, rng)
    moved = (new_z != z).any((1, 2))
    assert 0.2 < moved.mean() < 1
    np.testing.assert_array_equal(new[~moved], weight[~moved])
    np.testing.assert_array_equal(new_z[..., 1:], z[..., 1:])
    np.testing.assert_array_equal(new[..., 2], weight[..., 2])
    np.testing.assert_allclose(np.diagonal(new_cov, axis1=1, axis2=2), 1.0)
    assert np.linalg.eigvalsh(new_cov).min() > 0
    shift = new_z[..., [0]] * new[:, None, :, 0] - z[..., [0]] * weight[:, None, :, 0]
    along = (shift * z[..., [1]]).sum(1) / (z[..., [1]] ** 2).sum(1)
    np.testing.assert_allclose(shift, along[:, None] * z[..., [1]], atol=1e-8)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("permitted", "laplace", "ratio", "pairs"),
    [
        (ALL, True, 0.05, [(0, 1), (1, 2), (2, 0)]),
        (ALL, False, 0.2, [(0, 1), (1, 0), (0, 2)]),
        (FEWER, True, 0.1, [(0, 1), (2, 1), (1, 0)]),
    ],
)
def test_parameters_factors_and_table_of_the_prior_are_left_alone(permitted, laplace, ratio, pairs):
    """Drawn together, they have the joint density: any function of parameters is distributed as before."""
    moves, rng, odds = angles_of(permitted, laplace, ratio), np.random.default_rng(1), -0.3
    weight, edge, cov, z, x = drawn(20_000, moves, odds, rng)
    now = (weight, edge, cov, z)
    for _ in range(5):
        for pair in pairs:
            now = step(moves, pair, *now, x, odds, rng)
    new, there, correlated, other = now
    assert np.corrcoef(cov[:, 0, 1], correlated[:, 0, 1])[0, 1] < 0.9
    assert (there != edge).any((1, 2)).mean() > 0.3
    for a, b in ((0, 1), (0, 2), (1, 2)):
        assert stats.ks_2samp(cov[:, a, b], correlated[:, a, b]).pvalue > 1e-3
    for j, k in np.argwhere(permitted):
        assert stats.ks_2samp(np.abs(weight[:, j, k]), np.abs(new[:, j, k])).pvalue > 1e-4
        both = edge[:, j, k].mean(), there[:, j, k].mean()
        assert abs(both[0] - both[1]) < 4 * np.sqrt(2 * 0.25 / len(edge))
    for before, after in ((weight, new), (z, other)):
        sizes = [(v**2).sum(1)[:, 0] for v in (before, after)]
        assert stats.ks_2samp(*sizes).pvalue > 1e-3
    joint = [
        c[:, 0, 1] * w[:, 0, 0] * w[:, 0, 1] * (f[..., 0] * f[..., 1]).sum(1)
        for c, w, f in ((cov, weight, z), (correlated, new, other))
    ]
    assert stats.ks_2samp(*joint).pvalue > 1e-3
