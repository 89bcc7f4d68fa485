"""Effects of covariates on the predictor: the density is that of the likelihood at the whole predictor."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import optimize

import pyro_sparse as ps
from pyro_sparse.likelihoods.adjusted import EFFECT_SD, Adjusted

N, G, P = 40, 3, 2
RNG = np.random.default_rng(0)
DESIGN = torch.as_tensor(RNG.normal(size=(N, P)))
ROWS = {"design": DESIGN}


def adjusted(base, cells):
    likelihood = Adjusted(base, P)
    likelihood.calibrate(cells)
    likelihood.setup(G, 2)
    likelihood.double()
    with torch.no_grad():
        likelihood.effects.copy_(torch.as_tensor(np.random.default_rng(1).normal(size=(2, P, G))))
    return likelihood


def cells_of(kind):
    rng = np.random.default_rng(2)
    return torch.as_tensor(rng.poisson(3, (N, G)) if kind == "poisson" else rng.random((N, G)) < 0.5).double()


BASES = {
    "bernoulli": ps.likelihoods.Bernoulli,
    "poisson": lambda: ps.likelihoods.Poisson(size_factors=False),
    "mixed": lambda: ps.likelihoods.Columns({0: "normal", (1, 2): "bernoulli"}),
}


@pytest.mark.parametrize("kind", BASES)
def test_density_mean_and_statistics_are_those_at_the_whole_predictor(kind):
    x = cells_of(kind)
    likelihood = adjusted(BASES[kind](), x)
    f = torch.as_tensor(RNG.normal(size=(2, N, G)))
    whole, base = f + DESIGN @ likelihood.effects, likelihood.unadjusted
    mask = torch.as_tensor(np.random.default_rng(3).random((N, G)) < 0.8)
    torch.testing.assert_close(likelihood.log_prob(f, x, mask, ROWS), base.log_prob(whole, x, mask))
    torch.testing.assert_close(likelihood.mean(f, ROWS), base.mean(whole))
    full = likelihood.feature_statistic(f, f, x, mask, ROWS)
    torch.testing.assert_close(full, base.feature_statistic(whole, whole, x, mask))
    torch.testing.assert_close(likelihood.log_prob(f, x), base.log_prob(f, x))  # of average rows


@pytest.mark.parametrize("kind", BASES)
def test_slopes_are_those_of_autograd(kind):
    x = cells_of(kind)
    likelihood = adjusted(BASES[kind](), x)
    f = torch.as_tensor(RNG.normal(size=(2, N, G)))
    ours = likelihood.closed_slopes()(f, x, None, ROWS, 1.7, 0.3)
    plain = ps.likelihoods.Likelihood.slopes(likelihood, f, x, None, ROWS, 1.7, 0.3)
    torch.testing.assert_close(ours.by_f, plain.by_f)
    assert [name for name, _ in likelihood.named_parameters()][0] == "effects"
    for one, other in zip(ours.by_parameters, plain.by_parameters, strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize("kind", ["bernoulli", "poisson"])
def test_effects_begin_at_the_mode_of_a_regression(kind):
    """By scipy, column by column."""
    x = cells_of(kind)
    x[3, 0] = torch.nan
    likelihood = Adjusted(BASES[kind](), P)
    likelihood.calibrate_effects(x, ROWS)
    likelihood.setup(G, 2)
    framed = np.column_stack([np.ones(N), DESIGN])
    for j in range(G):
        seen = ~np.isnan(x[:, j].numpy())

        def loss(theta, j=j, seen=seen):
            f, y = framed[seen] @ theta, x[seen, j].numpy()
            level = y * f - (np.logaddexp(0, f) if kind == "bernoulli" else np.exp(f))
            return -level.sum() + 0.5 * (theta[1:] ** 2).sum() / EFFECT_SD**2

        want = optimize.minimize(loss, np.zeros(1 + P), method="BFGS", options={"gtol": 1e-8}).x
        np.testing.assert_allclose(likelihood.effects[1, :, j].detach(), want[1:], atol=1e-3)
        assert float(likelihood.start(x)[j]) == pytest.approx(want[0], abs=1e-3)


def test_columns_under_normal_noise_begin_at_zero():
    likelihood = Adjusted(BASES["mixed"](), P)
    likelihood.calibrate_effects(cells_of("mixed"), ROWS)
    likelihood.setup(G)
    assert not likelihood.effects[..., 0].any() and likelihood.effects[..., 1:].all()


def test_it_can_be_made_again_from_a_record():
    from pyro_sparse._utils.recorded import describe, rebuild

    again = rebuild(describe(Adjusted(BASES["mixed"](), P)))
    assert isinstance(again, Adjusted) and again.n_effects == P and again.name == "columns"
