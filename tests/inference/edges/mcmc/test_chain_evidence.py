"""Evidence of what a chain explored: of normal densities it is known."""

from __future__ import annotations

import numpy as np

from pyro_sparse.inference.edges.mcmc.chain_evidence import explored_evidence

G, K, DRAWS = 12, 2, 4000


def draws(rng, axes_sd, noise_sd, mean):
    """Loadings that vary by common axes and each for itself, and the logarithm of their normal density."""
    axes = axes_sd * rng.standard_normal((DRAWS, K, K))
    weight = mean + mean @ axes + noise_sd * rng.standard_normal((DRAWS, G, K))
    design = np.kron(mean, np.eye(K))
    cov = axes_sd**2 * design @ design.T + noise_sd**2 * np.eye(G * K)
    flat = (weight - mean).reshape(DRAWS, -1)
    inside = (flat * np.linalg.solve(cov, flat.T).T).sum(1)
    return weight, -0.5 * inside - 0.5 * np.linalg.slogdet(cov)[1]


def test_normal_densities_have_equal_evidence_however_wide():
    rng, mean = np.random.default_rng(0), np.zeros((G, K))
    mean[:6, 0] = mean[6:, 1] = 0.7
    sets = [draws(rng, *scales, mean) for scales in ((0.05, 0.05), (0.2, 0.05), (0.05, 0.15))]
    weight, level = (np.stack(part) for part in zip(*sets, strict=True))
    evidence, error = explored_evidence(weight, level + np.array([[0.0], [0.0], [-9.0]]))
    assert np.ptp(level.mean(1)) > 5
    np.testing.assert_allclose(evidence - evidence[0], [0.0, 0.0, -9.0], atol=1.0)
    assert error is not None and 2.0 <= error < 2.3


def test_few_draws_and_failed_chains():
    rng = np.random.default_rng(0)
    weight, level = rng.normal(size=(3, 40, G, K)), np.zeros((3, 40))
    level[1, 3] = np.nan
    evidence, error = explored_evidence(weight, level)
    assert np.isfinite(evidence).tolist() == [True, False, True] and error is not None
    evidence, error = explored_evidence(weight[:, :12], level)
    assert error is None and evidence.tolist()[::2] == [0.0, 0.0]
    evidence, error = explored_evidence(weight, level[:, :1])  # one level, of which there is no error
    assert error is None and evidence.tolist() == [0.0, 0.0, 0.0]
    wide = np.concatenate([weight, np.zeros((3, 40, G, 2))], -1)  # factors that the chains do not run over
    np.testing.assert_allclose(explored_evidence(wide, level)[0], explored_evidence(weight, level)[0])
