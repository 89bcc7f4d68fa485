"""Refined rows against the exact posterior of a linear-Gaussian model."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.optimize import minimize
from scipy.stats import multivariate_normal

from pyro_sparse.data.read import Batch
from pyro_sparse.distributions import FullNormal
from pyro_sparse.inference.table.refine import balanced_draws, expected_cells, refine, refined_elbo
from pyro_sparse.inference.training.elbo import rowwise_elbo
from pyro_sparse.inference.training.restarts import pick
from pyro_sparse.models import SparseDecoder

R, N, G, K = 2, 12, 6, 2


@pytest.fixture
def linear():
    torch.manual_seed(0)
    model = SparseDecoder(G, K, decoder="linear", encoder_hidden=6)
    model.setup(R, N, missing=True)
    model.double()
    with torch.no_grad():
        model.weights.normal_()
        model.factor_cov[:, 0, 1] = model.factor_cov[:, 1, 0] = 0.3
        model.likelihood.start_noise(torch.full((R, 1, G), 0.9, dtype=torch.float64))
    x = torch.randn(N, G, dtype=torch.float64)
    mask = torch.rand(N, G) > 0.3
    return model, Batch(x=x * mask, inputs=x * mask, mask=mask, total=N)


def test_refine_reaches_the_exact_posterior_mean(linear):
    model, batch = linear
    torch.manual_seed(0)
    q = refine(model, batch, steps=120, rate=0.1, num_draws=16)
    w, cov = model.weights.detach().numpy(), model.factor_cov.numpy()
    noise = model.likelihood.noise_sd().detach().numpy()[:, 0]
    ratio = []
    for r in range(R):
        for i in range(N):
            seen = batch.mask[i].numpy()
            a = w[r][seen] / noise[r][seen, None]
            precision = np.linalg.inv(cov[r]) + a.T @ a
            mean = np.linalg.solve(precision, a.T @ (batch.x[i].numpy()[seen] / noise[r][seen]))
            np.testing.assert_allclose(q.mean[r, i].numpy(), mean, atol=0.02)
            ratio.append(q.stddev[r, i].numpy() * np.diag(precision) ** 0.5)
    # the best diagonal Gaussian has the precision's diagonal
    assert abs(np.log(ratio)).mean() < 0.2 and abs(np.log(ratio).mean()) < 0.05


def test_refine_raises_the_elbo_and_leaves_the_model_alone(linear):
    model, batch = linear
    before = {name: value.clone() for name, value in model.state_dict().items()}
    torch.manual_seed(0)
    q = refine(model, batch)
    assert all(p.requires_grad and p.grad is None for p in model.parameters())
    for name, value in model.state_dict().items():
        assert torch.equal(value, before[name]), name
    rough = rowwise_elbo(model, batch, num_draws=50)
    model.encode = lambda rows: (q.mean, q.stddev)
    better = rowwise_elbo(model, batch, num_draws=100)
    assert (better > rough - 0.3).all()
    assert (better.mean(1) > rough.mean(1) + 1).all()


def log_evidence(model, batch):
    """log p(x) of each restart and row: the observed cells of x ~ N(0, W C W' + noise)."""
    w, cov = model.weights.detach().numpy(), model.factor_cov.numpy()
    noise = model.likelihood.noise_sd().detach().numpy()[:, 0]
    out = np.zeros((R, len(batch)))
    for r in range(R):
        implied = w[r] @ cov[r] @ w[r].T + np.diag(noise[r] ** 2)
        for i in range(len(batch)):
            seen = batch.mask[i].numpy()
            if seen.any():
                cell = implied[np.ix_(seen, seen)]
                out[r, i] = multivariate_normal(cov=cell).logpdf(batch.x[i].numpy()[seen])
    return out


def test_refined_elbo_is_just_below_the_evidence(linear):
    model, batch = linear
    exact = log_evidence(model, batch)
    torch.manual_seed(0)
    found = refined_elbo(model, batch, num_draws=2000).numpy()
    rough = rowwise_elbo(model, batch, num_draws=200).numpy()
    assert found.shape == (R, N)
    assert (found <= exact + 0.1).all()  # 2000 draws
    assert (found.mean(1) <= exact.mean(1)).all()
    # the diagonal costs a third of a nat here
    assert (found.mean(1) >= exact.mean(1) - 0.5).all()
    assert (found >= rough - 0.3).all()
    assert (found.mean(1) >= rough.mean(1) + 1).all()


def test_refined_elbo_of_a_model_whose_guide_is_not_gaussian_is_the_encoders(linear):
    model, batch = linear
    model.gaussian_guide = False
    torch.manual_seed(0)
    found = refined_elbo(model, batch, num_draws=3)
    torch.manual_seed(0)
    torch.testing.assert_close(found, rowwise_elbo(model, batch, num_draws=3))


def test_no_steps_is_the_encoder(linear):
    model, batch = linear
    q = refine(model, batch, steps=0)
    expected = model.encode(batch)
    torch.testing.assert_close(q.mean, expected[0])
    torch.testing.assert_close(q.stddev, expected[1])


@pytest.mark.slow
def test_a_full_guide_keeps_its_shape_and_comes_nearer_to_the_exact_posterior(linear):
    """Given a root of the exact covariance times a number, the refinement finds mean and number."""
    model, batch = linear
    w, cov = model.weights.detach(), model.factor_cov
    noise = model.likelihood.noise_sd().detach()[:, 0]
    seen = batch.mask.double()
    scaled = w / noise.unsqueeze(-1)
    precision = torch.linalg.inv(cov).unsqueeze(1) + torch.einsum("rja,nj,rjb->rnab", scaled, seen, scaled)
    exact = torch.linalg.inv(precision)
    mean = (exact @ torch.einsum("rja,nj,rj->rna", scaled, seen * batch.x, 1 / noise).unsqueeze(-1)).squeeze(
        -1
    )
    root = 1.5 * torch.linalg.cholesky(exact)
    log_det = root.diagonal(dim1=-2, dim2=-1).log().sum(-1)
    model.factor_posterior = lambda rows: FullNormal(torch.zeros_like(mean), root, log_det)
    torch.manual_seed(0)
    q = refine(model, batch, steps=200, rate=0.1, num_draws=32)
    assert isinstance(q, FullNormal)
    torch.testing.assert_close(q.mean, mean, atol=0.02, rtol=0)
    found = (q.factor @ q.factor.mT).diagonal(dim1=-2, dim2=-1) / exact.diagonal(dim1=-2, dim2=-1)
    assert abs(found.log().mean()) < 0.1
    torch.testing.assert_close(q.log_det, torch.linalg.slogdet(q.factor)[1])
    bound = torch.as_tensor(log_evidence(model, batch))
    model.factor_posterior = lambda rows: q
    reached = rowwise_elbo(model, batch, num_draws=400)
    assert ((bound - reached).abs() < 0.4).all() and (bound - reached).mean() < 0.1


def test_rows_of_many_hidden_units_go_a_few_at_a_time_with_the_same_draws(monkeypatch):
    torch.manual_seed(0)
    model = SparseDecoder(G, K, hidden=8, encoder_hidden=6)
    model.setup(R, N)
    model.double()
    x = torch.randn(N, G, dtype=torch.float64)
    batch = Batch(x=x, inputs=x, mask=None, total=N)

    def found(most):
        monkeypatch.setattr("pyro_sparse.inference.table.refine.MOST_UNITS", most)
        seen = []
        decode = model.decode
        monkeypatch.setattr(model, "decode", lambda z, w: (seen.append(z.shape[1]), decode(z, w))[1])
        torch.manual_seed(1)
        q = refine(model, batch, steps=5)
        monkeypatch.undo()
        return q, seen

    together, all_rows = found(1e9)
    apart, rows = found(5 * R * G * 8)
    assert set(all_rows) == {N} and set(rows) == {5, 2}
    torch.testing.assert_close(apart.mean, together.mean, rtol=0, atol=1e-12)
    torch.testing.assert_close(apart.stddev, together.stddev, rtol=0, atol=1e-12)
    assert set(found(1.0)[1]) == {1}, "a row at least"


@pytest.fixture
def yes_no():
    """Yes/no cells of a straight decoder, whose guides no closed form gives."""
    torch.manual_seed(3)
    model = SparseDecoder(G, K, decoder="linear", likelihood="bernoulli", encoder_hidden=6)
    model.setup(R, N)
    model.double()
    with torch.no_grad():
        model.weights.normal_().mul_(2)
        model.factor_cov[:, 0, 1] = model.factor_cov[:, 1, 0] = 0.3
    x = (torch.rand(N, G, dtype=torch.float64) < 0.5).double()
    return model, Batch(x=x, inputs=x, mask=None, total=N)


@pytest.mark.parametrize(
    "answer", [lambda m, b: refine(m, b).mean, lambda m, b: refine(m, b).stddev, expected_cells]
)
def test_a_rows_answer_is_its_own(yes_no, answer):
    """Whatever rows, restarts and random numbers there are beside it."""
    model, batch = yes_no
    whole = answer(model, batch)
    index = torch.tensor([7, 2, 2, 11])
    torch.testing.assert_close(answer(model, batch.rows(index)), whole[:, index], rtol=0, atol=1e-9)
    torch.testing.assert_close(answer(pick(model, [1]), batch)[0], whole[1], rtol=0, atol=1e-9)


def test_refine_reaches_the_best_gaussian_of_yes_no_rows(yes_no):
    """The maximum of each row's ELBO, its expectation by Gauss-Hermite quadrature."""
    model, batch = yes_no
    node, share = np.polynomial.hermite_e.hermegauss(20)
    z = np.stack(np.meshgrid(node, node), -1).reshape(-1, K)
    share = np.outer(share, share).ravel() / share.sum() ** 2
    q = refine(model, batch, steps=120)
    for r in range(R):
        w, c = model.weights[r].detach().numpy(), model.decoder.intercept[r, 0].detach().numpy()
        precision = np.linalg.inv(model.factor_cov[r].numpy())
        for i in range(N):
            sign = 2 * batch.x[i].numpy() - 1

            def loss(at, w=w, c=c, sign=sign, precision=precision):
                m, sd = at[:K], np.exp(at[K:])
                seen = -np.logaddexp(0, -sign * ((m + sd * z) @ w.T + c)).sum(1)
                kl = 0.5 * (m @ precision @ m + np.diag(precision) @ sd**2) - at[K:].sum()
                return kl - share @ seen

            best = minimize(loss, np.zeros(2 * K)).x
            np.testing.assert_allclose(q.mean[r, i].numpy(), best[:K], atol=0.02)
            np.testing.assert_allclose(np.log(q.stddev[r, i].numpy()), best[K:], atol=0.05)


def test_balanced_draws_are_normal_and_always_the_same():
    draws = balanced_draws(4096, 4, torch.zeros(2, 3, dtype=torch.float64))
    torch.rand(5)
    assert torch.equal(balanced_draws(6, 4, draws[:1]), draws[:6])
    squares = draws.unflatten(0, (-1, 4)).square().mean(1)
    torch.testing.assert_close(squares, torch.ones_like(squares))
    apart = balanced_draws(4096, 4096, draws[:1]).numpy()
    assert np.isfinite(apart).all()
    np.testing.assert_allclose(np.cov(apart.T), np.eye(3), atol=0.01)
    a = np.array([0.5, -1.0, 0.7])
    assert abs(np.cos(apart @ a).mean() - np.exp(-0.5 * a @ a)) < 0.003  # 4096 random ones: .01
