"""Counts whose rows share out a total: what a feature's edge is worth counts what it leaves to the others."""

from __future__ import annotations

import pytest
import torch

import pyro_sparse as ps


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize(
    ("kind", "n_features"), [("Poisson", 12), ("NegativeBinomial", 12), ("NegativeBinomial", 40)]
)
@torch.no_grad()
def test_gain_of_a_feature_is_the_log_likelihood_that_is_lost(kind, n_features, masked):
    """Exact, but for the others' part of many features, which is interpolated."""
    generator, n_rows = torch.Generator().manual_seed(0), 40
    f = torch.randn(2, n_rows, n_features, dtype=torch.float64, generator=generator)
    f[..., 0] += 3  # most of a row
    x = torch.poisson(f[0].exp(), generator=generator)
    mask = torch.rand(n_rows, n_features, generator=generator) < 0.8 if masked else None
    likelihood = getattr(ps.likelihoods, kind)(size_factors=True)
    likelihood.setup(n_features, 2)
    likelihood.double().calibrate(x, mask)
    likelihood.from_totals.fill_(True)
    assert likelihood.shares
    exposure = likelihood.default_per_row(x, mask)
    other = f + 0.7 * torch.randn(f.shape, dtype=f.dtype, generator=generator)
    other[..., 0] -= 2
    full, reduced = (likelihood.feature_statistic(at, f, x, mask, exposure) for at in (f, other))
    gain, whole = likelihood.feature_gain(full, reduced), likelihood.log_prob(f, x, mask, exposure).sum(-1)
    assert gain[:, 0].min() > 50 and full.abs().max() < whole.abs().max()
    for j in range(n_features):
        alone = torch.where(torch.arange(n_features) == j, other, f)
        lost = whole - likelihood.log_prob(alone, x, mask, exposure).sum(-1)
        torch.testing.assert_close(gain[:, j], lost, atol=1e-3 if n_features > 14 else 1e-6, rtol=0)


@torch.no_grad()
def test_rows_that_nobody_saw_count_for_nothing():
    likelihood = ps.likelihoods.NegativeBinomial(size_factors=True)
    x = torch.poisson(torch.full((6, 4), 3.0), generator=torch.Generator().manual_seed(0))
    likelihood.setup(4, 1)
    likelihood.calibrate(x)
    likelihood.from_totals.fill_(True)
    f = torch.randn(1, 6, 4, generator=torch.Generator().manual_seed(1))
    mask = torch.ones(6, 4, dtype=torch.bool)
    mask[2] = False
    seen = likelihood.feature_statistic(f + 0.3, f, x, mask, likelihood.default_per_row(x, mask))
    kept = torch.arange(6) != 2
    few = x[kept], None, likelihood.default_per_row(x[kept])
    torch.testing.assert_close(seen, likelihood.feature_statistic(f[:, kept] + 0.3, f[:, kept], *few))
