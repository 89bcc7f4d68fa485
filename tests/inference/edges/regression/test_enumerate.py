"""Enumeration against sums over supports with densities of scipy, and against Pyro's own enumeration."""

from __future__ import annotations

import numpy as np
import pyro
import pyro.distributions as dist
import pytest
import torch
from pyro.infer import TraceEnum_ELBO
from scipy.special import expit

from pyro_sparse.inference.edges.regression import enumerate as module
from pyro_sparse.inference.edges.regression.enumerate import enumerate_edges
from pyro_sparse.inference.edges.regression.rows import RowPrior
from tests.inference._rows import exact_row, make_rows

KINDS = {
    "known": {"noise_variance": 0.7},
    "student": {"slab_units": "noise"},
    "learned": {"noise_prior": (2.5, 1.5)},
}


@pytest.mark.parametrize(
    ("kind", "eta"), [("known", None), ("known", 0.2), ("student", None), ("student", 0.2), ("learned", 0.2)]
)
def test_every_number_is_the_sum_over_supports(kind, eta):
    x, y, _ = make_rows(1, tasks=2, n=11, m=3, rho=0.7)
    prior = RowPrior(slab_scale=1.3, eta=eta, eta_prior=(1.5, 2.0), **KINDS[kind])
    found = enumerate_edges(x, y, prior)
    for t in range(2):
        p, mean, sd, evidence = exact_row(
            x[t], y[t], kind, 1.3, 0.7, eta, (1.5, 2.0), KINDS[kind].get("noise_prior", (2.0, 1.0))
        )
        np.testing.assert_allclose(found.edge_prob[t], p, atol=1e-7)
        np.testing.assert_allclose(found.weight_mean[t], mean, atol=1e-7)
        np.testing.assert_allclose(found.weight_sd[t], sd, atol=1e-7)
        assert found.log_evidence[t] == pytest.approx(evidence, abs=1e-7)
        want = 0.2 if eta else (1.5 + p.sum()) / (3.5 + 3)
        np.testing.assert_allclose(found.eta[t], want, atol=1e-7)
    assert found.converged.all() and not found.gap.any()


def test_without_intercept_it_is_pyros_enumeration():
    rng = np.random.default_rng(2)
    tasks, n, m, noise, scale, eta = 3, 9, 4, 0.5, 1.2, 0.3
    x = rng.normal(size=(tasks, n, m))
    y = np.einsum("tnm,m->tn", x, [1.0, 0.0, -0.6, 0.2]) + rng.normal(size=(tasks, n))
    prior = RowPrior(slab_scale=scale, eta=eta, noise_variance=noise, intercept=False)
    features, targets = torch.tensor(x), torch.tensor(y)

    def model():
        with pyro.plate("task", tasks):
            edges = [
                pyro.sample(
                    f"edge_{j}",
                    dist.Bernoulli(torch.tensor(eta, dtype=torch.double)),
                    infer={"enumerate": "parallel"},
                )
                for j in range(m)
            ]
            edge = torch.stack(torch.broadcast_tensors(*edges), -1)
            factor = scale * features * edge.unsqueeze(-2)
            diagonal = torch.full((tasks, n), noise, dtype=torch.double)
            zero = torch.zeros(tasks, n, dtype=torch.double)
            pyro.sample("y", dist.LowRankMultivariateNormal(zero, factor, diagonal), obs=targets)

    def guide():
        pass

    elbo = TraceEnum_ELBO(max_plate_nesting=1)
    marginals = elbo.compute_marginals(model, guide)
    want = torch.stack([marginals[f"edge_{j}"].probs.reshape(-1) for j in range(m)], -1).numpy()
    found = enumerate_edges(x, y, prior)
    np.testing.assert_allclose(found.edge_prob, want, atol=1e-8)
    assert found.log_evidence.sum() == pytest.approx(-elbo.loss(model, guide), abs=1e-6)


def test_fifteen_orthogonal_features_are_fifteen_single_ones():
    rng = np.random.default_rng(3)
    q = np.linalg.qr(np.column_stack([np.ones(40), rng.normal(size=(40, 15))]))[0][:, 1:]
    x = 3 * np.broadcast_to(q, (4, 40, 15))
    y = rng.normal(size=(4, 40)) + x @ (rng.normal(size=15) * (rng.random(15) < 0.4))
    found = enumerate_edges(x, y, RowPrior(eta=0.3, noise_variance=0.8))
    gram, cross = 9 / 0.8, 3 * (y @ q) / 0.8
    log_odds = np.log(0.3 / 0.7) - 0.5 * np.log1p(gram) + 0.5 * cross**2 / (1 + gram)
    np.testing.assert_allclose(found.edge_prob, expit(log_odds), atol=1e-10)
    assert ((found.edge_prob > 0.05) & (found.edge_prob < 0.95)).any()


@pytest.mark.parametrize("kind", KINDS)
def test_draws_are_of_the_joint_posterior(kind):
    x, y, _ = make_rows(4, tasks=2, n=14, m=3, rho=0.9)
    found = enumerate_edges(x, y, RowPrior(**KINDS[kind]))
    drawn = found.draws(20_000)
    np.testing.assert_allclose(drawn.edge.mean(0), found.edge_prob, atol=0.02)
    np.testing.assert_allclose(drawn.weight.mean(0), found.weight_mean, atol=0.03)
    np.testing.assert_allclose(drawn.weight.std(0), found.weight_sd, rtol=0.05)
    assert not drawn.weight[drawn.edge == 0].any()
    # Two features together: with the third fixed at absent, from the evidences of the smaller rows.
    alone = [
        enumerate_edges(x[..., list(s)], y, RowPrior(eta=0.999999, **KINDS[kind]))
        for s in [(0,), (1,), (0, 1)]
    ]
    pair = alone[2].log_evidence - alone[0].log_evidence
    without = drawn.edge[..., 2] == 0
    both = (without & (drawn.edge[..., 0] == 1) & (drawn.edge[..., 1] == 1)).sum(0)
    first = (without & (drawn.edge[..., 0] == 1) & (drawn.edge[..., 1] == 0)).sum(0)
    # Beta-binomial over three features, a = b = 1: one edge and two edges are as probable as each other.
    want = expit(pair)
    np.testing.assert_allclose(both / (both + first), want, atol=5 * np.sqrt(0.25 / (both + first).min()))


@pytest.mark.parametrize("kind", KINDS)
def test_pieces_do_not_matter(kind, monkeypatch):
    x, y, _ = make_rows(5, tasks=7, n=12, m=4)
    prior = RowPrior(**KINDS[kind])
    whole = enumerate_edges(x, y, prior)
    monkeypatch.setattr(module, "_BUDGET", 1)
    pieces = enumerate_edges(x, y, prior)
    # Pieces share a grid of the noise, which its finest row sets: the same up to its error.
    np.testing.assert_allclose(pieces.edge_prob, whole.edge_prob, atol=1e-8)
    np.testing.assert_allclose(pieces.log_evidence, whole.log_evidence, atol=1e-8)


def test_the_noise_is_estimated():
    x, y, _ = make_rows(6, tasks=3, n=400, m=3, noise=0.3)
    for units in ("target", "noise"):
        found = enumerate_edges(x, y, RowPrior(slab_units=units))
        np.testing.assert_allclose(found.noise_variance, 0.3, rtol=0.2)


def test_a_copied_column_shares_its_probability():
    x, y, _ = make_rows(7, tasks=2, n=30, m=3)
    doubled = np.concatenate([x, x[..., :1]], axis=-1)
    found = enumerate_edges(1e7 * doubled, y, RowPrior(noise_variance=1.0))
    np.testing.assert_allclose(found.edge_prob[:, 3], found.edge_prob[:, 0], atol=1e-6)


@pytest.mark.parametrize(
    ("m", "settings", "message"),
    [
        (16, {}, "features: enumeration wants at most 15 features, got 16; use expectation propagation"),
        (3, {"slab": "laplace"}, "slab: enumeration wants \"normal\", got 'laplace'; use"),
        (3, {"eta_over": "feature"}, "eta_over: enumeration wants \"row\", got 'feature'; use"),
    ],
)
def test_what_cannot_be_listed_is_refused(m, settings, message):
    x, y, _ = make_rows(0, tasks=2, m=m)
    with pytest.raises(ValueError, match=message):
        enumerate_edges(x, y, RowPrior(**settings))
