"""The smoother against exact inference: a linear-Gaussian model whose path and frames are jointly normal."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.stats import multivariate_normal

from pyro_sparse.inference.elbo import elbo_by_restart, rowwise_elbo
from pyro_sparse.models import LatentTransition
from pyro_sparse.sequences import as_sequences

D, G, T = 2, 3, 5
A = np.array([[0.9, 0.3], [-0.3, 0.9]])
C = np.array([[1.0, 0.2], [0.3, -0.8], [0.5, 0.5]])
STEP, NOISE = 0.2, 0.7  # standard deviations: one frame says little, the sequence much


def joint():
    """Covariance of a path's latents, (T D, T D), and the matrix from them to its frames."""
    root = np.zeros((T * D, T * D))
    for t in range(T):
        for s in range(t + 1):
            own = np.linalg.matrix_power(A, t - s) * (STEP if s else 1.0)
            root[t * D : (t + 1) * D, s * D : (s + 1) * D] = own
    return root @ root.T, np.kron(np.eye(T), C)


def simulated(n, missing=0.0, seed=1000):
    rng = np.random.default_rng(seed)
    cov, out = joint()
    z = rng.multivariate_normal(np.zeros(T * D), cov, n)
    x = (z @ out.T + NOISE * rng.standard_normal((n, T * G))).reshape(n, T, G)
    gone = rng.random((n, T)) < missing
    gone[:, 0] &= ~gone.all(1)
    x[gone] = np.nan
    return x


def exact(x):
    """Log-likelihood of each sequence, and the posterior mean of its latents."""
    cov, out = joint()
    likelihood, means = [], []
    for row in x.reshape(len(x), -1):
        own = out[~np.isnan(row)]
        seen = row[~np.isnan(row)]
        around = own @ cov @ own.T + NOISE**2 * np.eye(len(seen))
        likelihood.append(multivariate_normal.logpdf(seen, cov=around))
        means.append(cov @ own.T @ np.linalg.solve(around, seen))
    return np.array(likelihood), np.array(means).reshape(len(x), T, D)


def true_model(smoother, missing):
    """The program with the truth in its decoder, transition and noise; only the guide is to be learned."""
    torch.manual_seed(0)
    model = LatentTransition(G, D, hidden=16, units=2, smoother=smoother)
    model.setup(1, 1, missing=missing)
    both = np.kron([[1.0, -1.0]], np.eye(D))  # u to (u, -u)
    back = both.T / 1.2  # and back: leaky(u) - leaky(-u) = 1.2 u
    layers = model.decoder.layers
    maps = [both, back @ both, back @ both, back @ C.T]
    with torch.no_grad():
        for p in [*model.decoder.parameters(), *model.transition.parameters()]:
            p.zero_()
        for layer, weight in zip([*layers.hidden, layers.out], maps, strict=True):
            layer.weight[0, : len(weight), : weight.shape[1]] = torch.as_tensor(weight, dtype=torch.float32)
        model.transition.line.weight[0] = torch.tensor(A.T, dtype=torch.float32)
        model.log_sd.fill_(np.log(STEP))
        model.likelihood.start_noise(torch.full((1, 1, G), 2 * NOISE))  # it begins at half
    return model


def trained(model, batch, steps=300):
    own = list(model.encoder.parameters())
    adam = torch.optim.Adam(own, lr=1e-2)
    rate = torch.optim.lr_scheduler.OneCycleLR(adam, 2e-2, total_steps=steps)
    for _ in range(steps):
        part = batch.rows(torch.randint(len(batch), (128,)))
        loss = -elbo_by_restart(model.model, model.guide, part, 1, ("sigma2",)).sum() / batch.total
        grads = torch.autograd.grad(loss, own, allow_unused=True)
        for p, g in zip(own, grads, strict=True):
            p.grad = g
        adam.step()
        rate.step()
    return model.eval()


@pytest.mark.parametrize("missing", [0.0, 0.3])
def test_the_bound_comes_near_the_exact_likelihood(missing):
    x = simulated(600, missing)
    data = as_sequences(x, standardise=False)
    batch = data.batch()
    held = batch.rows(torch.arange(500, 600)).whole()
    likelihood, means = exact(x[500:])
    gap, error = [], []
    for smoother in (False, True):
        model = trained(true_model(smoother, missing > 0), batch.rows(torch.arange(500)).whole())
        with torch.no_grad():
            bound = rowwise_elbo(model, held, n_draws=20)[0].double().numpy()
            loc = model.posterior(held).loc[0].double().numpy()
        gap.append((likelihood - bound).mean())
        error.append(np.sqrt(((loc - means) ** 2).mean()))
    print(gap, error)
    assert gap[1] > -0.05  # a bound from below, but for its draws
    assert gap[1] < 0.3 * gap[0]
    assert error[1] < 0.5 * error[0]
