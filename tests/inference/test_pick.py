"""A few restarts of a model, and the expectation of cells under their refined guides."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import pyro_sparse as ps
from pyro_sparse.data.read import Batch
from pyro_sparse.inference.table.refine import expected_cells
from pyro_sparse.inference.training.restarts import pick, put


def linear_model(n_restarts: int, n_features: int, n_factors: int):
    torch.manual_seed(0)
    model = ps.models.SparseDecoder(n_features, n_factors, decoder="linear", factor_cov=False)
    model.setup(n_restarts, n_samples=50, missing=True)
    with torch.no_grad():
        model.weights.copy_(torch.randn_like(model.weights))
        model.decoder.intercept.copy_(torch.randn_like(model.decoder.intercept))
    return model.double()


@pytest.mark.parametrize("restarts", [[1], [2, 0], [0, 1, 2], [2, 1, 0]])
def test_picked_restarts_answer_as_in_the_whole_model(restarts):
    model = linear_model(3, 3, 2)  # as many features as restarts: shapes alone do not tell the two apart
    few = pick(model, restarts)
    z = torch.randn(3, 4, 2, dtype=torch.double)
    whole = model.decode(z, model.weights)[restarts]
    assert torch.equal(few.decode(z[restarts], few.weights), whole)
    assert few.n_restarts == len(restarts)
    assert torch.equal(few.permitted, model.permitted)


@pytest.mark.slow
def test_expected_cells_of_a_linear_model_are_the_gaussian_conditional_mean():
    model = linear_model(2, 6, 2)
    rng = np.random.default_rng(0)
    x = torch.as_tensor(rng.standard_normal((8, 6)))
    mask = torch.as_tensor(rng.random((8, 6)) < 0.8)
    mask[:, 0] = True
    x = torch.where(mask, x, torch.zeros_like(x))
    found = expected_cells(model, Batch(x, x, mask, 8), steps=600, num_draws=64)
    for r in range(2):
        w = model.weights[r].detach().numpy()
        c = model.decoder.intercept[r, 0].detach().numpy()
        noise = model.likelihood.noise_sd()[r, 0].detach().numpy() ** 2
        for i in range(8):
            seen = mask[i].numpy()
            covariance = w[seen] @ w[seen].T + np.diag(noise[seen])
            z = w[seen].T @ np.linalg.solve(covariance, x[i].numpy()[seen] - c[seen])
            np.testing.assert_allclose(found[r, i].numpy(), c + w @ z, atol=0.02)


def test_put_is_the_inverse_of_pick():
    model = ps.models.DependencyVAE(6, 2)
    torch.manual_seed(0)
    model.setup(n_restarts=3, n_samples=10)
    whole = {name: value.clone() for name, value in model.state_dict().items()}
    one = pick(model, [1])
    with torch.no_grad():
        one.decoder.first.add_(1.0)
    put(one, model, 2)
    for name, value in model.state_dict().items():
        kept = slice(2) if len(value) == 3 else slice(None)
        torch.testing.assert_close(value[kept], whole[name][kept], rtol=0, atol=0)
    torch.testing.assert_close(model.decoder.first[2], whole["decoder.first"][1] + 1)
    torch.testing.assert_close(model.decoder.head[2], whole["decoder.head"][1])
