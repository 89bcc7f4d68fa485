"""Integrals over rows' factors: modes, sums over cells, and the density that draws come from."""

from __future__ import annotations

import numpy as np
import torch
from scipy import optimize, stats

from pyro_sparse.inference.table.row_integrals import proposed, row_modes, sums_of_squares, t_draws

R, N, G, K = 2, 5, 7, 3


def normal(*shape, seed=0):
    return torch.as_tensor(np.random.default_rng(seed).standard_normal(shape))


def test_sums_are_those_of_every_cell():
    weight, bend = normal(R, G, K), normal(R, N, G, seed=1)
    want = torch.einsum("rnj,rjk,rjl->rnkl", bend, weight, weight)
    torch.testing.assert_close(sums_of_squares(weight)(bend), want)


def test_modes_are_those_of_an_optimiser_and_no_step_is_taken_in_vain():
    weight, x = 1.5 * normal(R, G, K), (normal(N, G, seed=1) > 0).double()
    squares, looks = sums_of_squares(weight), []

    def expanded(z):
        p = torch.sigmoid(z @ weight.mT)
        looks.append(z)
        return (x - p) @ weight - z, squares(p * (1 - p)) + torch.eye(K)

    mode, root = row_modes(torch.zeros(R, N, K).double(), expanded)
    assert 3 < len(looks) < 8  # nine, were it to go on
    for r in range(R):
        for i in range(N):
            w, y = weight[r].numpy(), 2 * x[i].numpy() - 1

            def energy(z, w=w, y=y):
                return 0.5 * z @ z + np.logaddexp(0, -y * (w @ z)).sum()

            want = optimize.minimize(energy, np.zeros(K), tol=1e-10).x
            np.testing.assert_allclose(mode[r, i], want, atol=1e-5)
    torch.testing.assert_close(root @ root.mT, expanded(mode)[1])


def test_ratios_are_those_of_prior_and_proposal():
    mode, root = (
        normal(R, N, K),
        torch.linalg.cholesky(sums_of_squares(normal(R, G, K))(torch.ones(R, N, G).double())),
    )
    cov = np.array([[[1.0, 0.5, 0.0], [0.5, 1.0, 0.2], [0.0, 0.2, 1.0]]] * R)
    draws = torch.stack([*t_draws((1, N, K), 4, np.random.default_rng(2))])
    z, log_ratio = proposed(mode, root, draws, torch.linalg.inv(torch.as_tensor(cov)))
    assert z.shape == (4, R, N, K) and log_ratio.shape == (4, R, N)
    torch.testing.assert_close(z[1] - mode, mode - z[0])  # mirror images
    for d in range(4):
        for r in range(R):
            for i in range(N):
                shape = torch.linalg.inv(root[r, i] @ root[r, i].mT).numpy()
                log_t = stats.multivariate_t(mode[r, i].numpy(), shape, df=8).logpdf(z[d, r, i])
                want = stats.multivariate_normal(np.zeros(K), cov[r]).logpdf(z[d, r, i]) - log_t
                np.testing.assert_allclose(log_ratio[d, r, i], want, rtol=1e-8)
