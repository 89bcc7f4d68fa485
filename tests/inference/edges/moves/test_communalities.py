"""What factors explain of features, factors summed out: the prior stays, directions and variances stay."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from pyro_sparse.inference.edges.density.weight import SpikeSlab
from pyro_sparse.inference.edges.mcmc.row_moments import RowMoments
from pyro_sparse.inference.edges.moves import communalities
from pyro_sparse.inference.edges.moves.communalities import moved_communalities

G, K, ROWS, SLAB, NOISE = 5, 2, 12, 0.8, (3.0, 1.0)
COV = np.array([[1.0, 0.3], [0.3, 1.0]])


def joint(n, laplace, ratio, holes, seed=0):
    """Weights, noise and tables drawn together, and the likelihood given factors of rows with holes."""
    rng = np.random.default_rng(seed)
    edge = rng.random((n, G, K)) < 0.5
    unit = rng.laplace(size=edge.shape) if laplace else rng.standard_normal(edge.shape)
    weight = SLAB * unit * np.where(edge, 1.0, ratio)
    noise = NOISE[1] / rng.gamma(NOISE[0], size=(n, G))
    z = rng.standard_normal((n, ROWS, K)) @ np.linalg.cholesky(COV).T
    x = z @ weight.swapaxes(1, 2) + np.sqrt(noise)[:, None] * rng.standard_normal((n, ROWS, G))
    seen = np.ones((1, ROWS, G), bool)
    seen[0, :holes, 0] = False
    rows = RowMoments.of(x * seen, seen, K)
    cov, centre = np.tile(COV, (n, 1, 1)), np.zeros((n, G, 1))
    moments = rows.draw(weight, noise, centre, cov, rng)
    return weight, noise, cov, rows.summed_out(centre, cov, moments), rng


def moved(weight, noise, cov, likelihood, ratio, laplace, rng, must=None):
    return moved_communalities(
        weight,
        noise,
        cov,
        np.zeros((len(weight), 1, K)),
        likelihood,
        ROWS,
        np.ones((G, K), bool),
        np.zeros((G, K), bool) if must is None else must,
        SpikeSlab(laplace, np.array(ratio)),
        SLAB,
        NOISE,
        rng,
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("laplace", "ratio", "holes"), [(False, 0.2, 0), (True, 0.1, 4), (False, 0.0, 4), (True, 0.2, ROWS)]
)
def test_weights_and_noise_of_the_prior_are_left_alone(laplace, ratio, holes):
    weight, noise, cov, likelihood, rng = joint(3000, laplace, ratio, holes)
    new, variance = weight, noise
    for _ in range(12):
        new, variance = moved(new, variance, cov, likelihood, ratio, laplace, rng)
    assert np.corrcoef(np.log(noise[:, 1]), np.log(variance[:, 1]))[0, 1] < 0.98
    for j in range(3):
        assert stats.ks_2samp(noise[:, j], variance[:, j]).pvalue > 1e-3
        before, after = (((w @ COV) * w).sum(-1)[:, j] for w in (weight, new))
        assert stats.ks_2samp(before, after).pvalue > 1e-3
    assert ((new == 0) == (weight == 0)).all()


def test_directions_and_variances_stay_and_features_without_a_loading():
    weight, noise, cov, likelihood, rng = joint(20, False, 0.2, 0)
    weight[:, 2] = 0.0
    new, variance = moved(weight, noise, cov, likelihood, 0.2, False, rng)
    assert (new != weight).any()
    np.testing.assert_array_equal(new[:, 2], 0.0)
    np.testing.assert_array_equal(variance[:, 2], noise[:, 2])
    np.testing.assert_allclose(new[..., 0] * weight[..., 1], new[..., 1] * weight[..., 0], atol=1e-12)
    total, now = (((w @ COV) * w).sum(-1) + v for w, v in ((weight, noise), (new, variance)))
    np.testing.assert_allclose(now, total)


@pytest.mark.parametrize("holes", [0, 4, ROWS])
def test_the_likelihood_is_that_of_its_rows_and_its_slopes_are_derivatives(holes):
    weight, noise, cov, likelihood, rng = joint(6, False, 0.2, holes)
    level, by_weight, by_noise = likelihood(weight, noise)
    for array, slope, at in ((0, by_weight, (slice(None), 3, 1)), (1, by_noise, (slice(None), 0))):
        sides = []
        for sign in (1, -1):
            both = [weight.copy(), noise.copy()]
            both[array][at] += sign * 1e-6
            sides.append(likelihood(*both)[0])
        np.testing.assert_allclose((sides[0] - sides[1]) / 2e-6, slope[at], rtol=1e-4, atol=1e-4)


def test_without_holes_factors_are_summed_out_exactly():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(1, ROWS, G))
    design, centre = rng.normal(size=(ROWS, 1)), rng.normal(size=(1, G, 2))
    rows, cov = RowMoments.of(x, None, K, design), COV[None]
    means = centre[0, :, 0] + design @ centre[0, :, 1:].T
    weight, noise = rng.normal(size=(1, G, K)), rng.uniform(0.5, 2.0, (1, G))
    at = rows.summed_out(centre, cov, rows.draw(weight, noise, centre, cov, rng))
    other = weight + 0.3, noise * 1.5
    want = [
        stats.multivariate_normal.logpdf(x[0] - means, cov=w[0] @ COV @ w[0].T + np.diag(v[0])).sum()
        for w, v in ((weight, noise), other)
    ]
    got = at(*other)[0] - at(weight, noise)[0]
    np.testing.assert_allclose(got, want[1] - want[0], atol=1e-8)


def test_a_path_that_goes_astray_leaves_everything_where_it_was(monkeypatch):
    monkeypatch.setattr(communalities, "_LENGTH", 1e4)
    weight, noise, cov, likelihood, rng = joint(50, False, 0.2, 0)
    new, variance = moved(weight, noise, cov, likelihood, 0.2, False, rng)
    same = (variance == noise).all(1)
    assert same.mean() > 0.8 and np.isfinite(new).all() and (variance > 0).all()
    np.testing.assert_array_equal(new[same], weight[same])
