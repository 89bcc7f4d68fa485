"""Deletions against brute-force refits and explicit divergences."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.integrate import quad
from torch.distributions import MultivariateNormal, kl_divergence

from pyro_sparse.data.read import Batch
from pyro_sparse.inference.table.deletions import _evidence, edge_gains, factor_costs, prune
from pyro_sparse.models import SparseDecoder
from pyro_sparse.priors import SpikeSlabLasso, get_prior

R, N, G, K = 1, 400, 5, 3
SUPPORT = np.array([[1, 0, 0], [1, 0, 0], [0, 1, 0], [0, 1, 0], [1, 1, 0]])


@pytest.fixture
def problem():
    """A linear model at the truth whose encoder knows the factors; factor 2 is noise with small weights."""
    rng = np.random.default_rng(0)
    z = rng.normal(size=(N, K))
    w = SUPPORT * rng.uniform(0.8, 1.5, SUPPORT.shape)
    x = z @ w.T + 0.3 * rng.normal(size=(N, G))
    w = w + 0.002 * rng.normal(size=w.shape)  # every edge is there, the spurious ones tiny
    torch.manual_seed(0)
    model = SparseDecoder(G, K, decoder="linear", prior=SpikeSlabLasso(lambda0=1000.0), encoder_hidden=4)
    model.setup(R, N)
    model.double()
    with torch.no_grad():
        model.weights.copy_(torch.as_tensor(w))
        model.likelihood.start_noise(torch.full((R, 1, G), 0.6, dtype=torch.float64))
    batch = Batch(torch.as_tensor(x), torch.as_tensor(x), None, N)
    location = torch.as_tensor(z).unsqueeze(0)

    def encode(rows):
        pick = [int((batch.x == row).all(1).nonzero()[0]) for row in rows.x]
        return location[:, pick], torch.full((R, len(pick), K), 1e-9, dtype=torch.float64)

    model.encode = encode
    return model, batch, z, w, x


def test_gain_is_half_n_log_ratio_of_residuals(problem):
    model, batch, z, w, x = problem
    gains = edge_gains(model, batch, chunk=150)[0].numpy()
    for j in range(G):
        full = ((x[:, j] - z @ w[j]) ** 2).sum()
        for k in range(K):
            without = w[j].copy()
            without[k] = 0
            reduced = ((x[:, j] - z @ without) ** 2).sum()
            assert gains[j, k] == pytest.approx(N / 2 * np.log(reduced / full), rel=1e-5, abs=1e-5)


def test_gain_with_missing_cells_counts_what_was_seen(problem):
    model, batch, z, w, x = problem
    mask = np.random.default_rng(1).random((N, G)) > 0.4
    location = torch.as_tensor(z).unsqueeze(0)
    model.encode = lambda rows: (location, torch.zeros_like(location))
    hidden = Batch(torch.as_tensor(x * mask), torch.as_tensor(x * mask), torch.as_tensor(mask), N)
    gains = edge_gains(model, hidden, chunk=N)[0].numpy()
    seen = mask[:, 0]
    full = ((x[seen, 0] - z[seen] @ w[0]) ** 2).sum()
    reduced = ((x[seen, 0] - z[seen][:, 1:] @ w[0, 1:]) ** 2).sum()
    assert gains[0, 0] == pytest.approx(seen.sum() / 2 * np.log(reduced / full), rel=1e-6)


def test_some_rows_stand_for_all(problem):
    model, batch, *_ = problem
    half = edge_gains(model, batch, max_rows=200)
    own = edge_gains(model, batch.rows(torch.arange(200)).whole())
    torch.testing.assert_close(half, 2 * own)


def test_unused_factors_gain_nothing_and_counts_work(problem):
    model, batch, *_ = problem
    with torch.no_grad():
        model.weights[..., 2] = 0
    assert (edge_gains(model, batch)[..., 2] == 0).all()
    torch.manual_seed(0)
    counts = SparseDecoder(G, 2, likelihood="poisson", hidden=4, encoder_hidden=4)
    counts.setup(2, 50)
    x = torch.poisson(torch.ones(50, G))
    table = Batch(x, x, None, 50, per_row={"exposure": torch.ones(50, 1)})
    torch.manual_seed(1)
    gains = edge_gains(counts, table, num_draws=1)
    location, sd = counts.encode(table)
    torch.manual_seed(1)
    z = location + sd * torch.randn_like(sd)
    without = counts.weights.detach().clone()
    without[..., 1] = 0
    for_each = [
        counts.likelihood(counts.decode(z, w), table.per_row).log_prob(x).sum(1)
        for w in (counts.weights, without)
    ]
    torch.testing.assert_close(gains[..., 1], (for_each[0] - for_each[1]).detach(), rtol=1e-3, atol=1e-3)


def test_factor_costs_are_differences_of_divergence():
    torch.manual_seed(0)
    model = SparseDecoder(G, K, encoder_hidden=4, hidden=4)
    model.setup(2, 60)
    model.double()
    model.encoder.skip.data.normal_()
    c = torch.tensor([[1, 0.5, 0.2], [0.5, 1, 0.1], [0.2, 0.1, 1]], dtype=torch.float64)
    model.factor_cov.copy_(c)
    x = torch.randn(60, G, dtype=torch.float64)
    found = factor_costs(model, Batch(x, x, None, 60), max_rows=30)
    location, sd = (part[:, :30] for part in model.encode(Batch(x, x, None, 60)))

    def divergence(keep):
        zero = torch.zeros(len(keep), dtype=torch.float64)
        guide = MultivariateNormal(location[..., keep], torch.diag_embed(sd[..., keep] ** 2))
        return kl_divergence(guide, MultivariateNormal(zero, c[keep][:, keep])).sum(-1)

    expected = torch.stack([divergence([0, 1, 2]) - divergence(k) for k in ([1, 2], [0, 2], [0, 1])], -1)
    torch.testing.assert_close(found, 2 * expected.detach())
    single = SparseDecoder(G, 1, encoder_hidden=4)
    single.setup(2, 60)
    single.double()
    batch = Batch(x, x, None, 60)
    location, sd = single.encode(batch)
    exact = 0.5 * (location**2 + sd**2 - 1 - 2 * sd.log()).sum((1, 2))
    torch.testing.assert_close(factor_costs(single, batch)[:, 0], exact.detach())


def test_prune_keeps_the_true_edges_and_drops_the_noise_factor(problem):
    model, batch, *_ = problem
    location = model.encode(batch)[0]
    model.encode = lambda rows: (
        location[:, : len(rows)],
        torch.full((R, len(rows), K), 0.3, dtype=torch.float64),
    )
    gone = prune(model, batch)
    assert ((model.weights != 0)[0].numpy() == SUPPORT).all()
    assert gone == (SUPPORT == 0).sum()
    with torch.no_grad():
        model.weights.add_(1.0)  # what is deleted stays deleted
    model.project()
    assert ((model.weights != 0)[0].numpy() == SUPPORT).all()


def test_prune_keeps_what_is_required(problem):
    model, batch, *_ = problem
    location = model.encode(batch)[0]
    model.encode = lambda rows: (
        location[:, : len(rows)],
        torch.full((R, len(rows), K), 0.3, dtype=torch.float64),
    )
    model.must[3, 2] = True
    prune(model, batch)
    expected = SUPPORT.copy()
    expected[3, 2] = 1
    assert ((model.weights != 0)[0].numpy() == expected).all()


@pytest.mark.parametrize("prior", ["horseshoe", "laplace"])
def test_a_prior_without_edge_odds_deletes_nothing(prior):
    torch.manual_seed(0)
    model = SparseDecoder(6, 2, decoder="linear", prior=get_prior(prior), encoder_hidden=4)
    model.setup(2, n_samples=40)
    x = torch.randn(40, 6)
    before = model.weights.detach().clone()
    assert prune(model, Batch(x, x, None, 40)) == 0
    assert torch.equal(model.weights, before)


@pytest.mark.parametrize("value", [float("nan"), -float("inf")])
def test_edges_of_unknown_worth_are_not_deleted(problem, value):
    model, batch, *_ = problem
    gain = type(model.likelihood).feature_gain

    class Broken(type(model.likelihood)):
        def feature_gain(self, full, reduced):
            found = gain(self, full, reduced)
            found[:, 3] = value
            return found

    model.likelihood.__class__ = Broken
    before = model.weights.detach().clone()
    with pytest.raises(FloatingPointError, match=r"of Broken is not finite for feature\(s\) \[3\]"):
        prune(model, batch)
    assert torch.equal(model.weights, before)


@pytest.mark.parametrize(("w", "sd"), [(1.2, 0.1), (-0.8, 0.15), (2.0, 0.3)])
def test_an_edge_costs_what_its_weight_integrated_out_costs(w, sd):
    """A parabola of log-likelihood, times the slab, by quadrature."""
    slab = torch.distributions.Laplace(0.0, 1.0)
    gains = torch.tensor(0.5 * (w / sd) ** 2)
    cost = _evidence(torch.tensor(w), gains, slab.log_prob(torch.tensor(w)))

    def density(u):
        return np.exp(-abs(u) - 0.5 * ((u - w) / sd) ** 2) / 2

    exact = -np.log(quad(density, w - 8 * sd, w + 8 * sd, points=[0.0, w])[0])
    assert float(cost) == pytest.approx(exact, abs=0.06)
