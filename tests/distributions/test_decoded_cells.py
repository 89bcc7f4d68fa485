"""One sweep through decoder and likelihood against the plain pass: the decoder's forward and autograd."""

from __future__ import annotations

import pyro.distributions as dist
import pytest
import torch
from torch import nn

from pyro_sparse.distributions import _sweep
from pyro_sparse.distributions._sweep import MaskedNet
from pyro_sparse.distributions.decoded_cells import DecodedCells, predictor, recomputed_predictor
from pyro_sparse.likelihoods import Likelihood, get_likelihood
from pyro_sparse.likelihoods.base import NOTHING
from pyro_sparse.nets.layers import MaskedDecoder

R, B, G, K, H = 2, 17, 12, 4, 9


class Slow(Likelihood):
    """A Student likelihood that has no closed form of its derivative, with one scale for each feature."""

    separable = True

    def setup(self, n_features, n_restarts=1):
        self.log_scale = nn.Parameter(torch.randn(n_restarts, 1, n_features, dtype=torch.float64))

    def forward(self, f, per_row=NOTHING):
        return dist.StudentT(5.0, f, self.log_scale.exp())


LIKELIHOODS = ["normal", "bernoulli", "poisson", "negative_binomial", Slow()]


def weights_of_all_kinds():
    """Rows with no edge, with one (up, down, of another size), with zeros that may move, and the rest."""
    w, permitted = torch.randn(R, G, K), torch.ones(R, G, K, dtype=torch.bool)
    for j, k, size in ((0, 0, 1.0), (1, 0, -1.0), (2, 0, 1.0), (3, 2, 1.0), (4, 2, 0.3)):
        w[:, j], permitted[:, j] = 0.0, False
        w[:, j, k], permitted[:, j, k] = size, True
    w[:, 5], permitted[:, 5] = 0.0, False
    w[:, 6] = 0.0
    w[:, 7, 1:] = 0.0
    w[1, 0], permitted[1, 0] = torch.randn(K), True
    return w, permitted


def problem(activation="relu", dtype=torch.float64, seed=1000):
    torch.manual_seed(seed)
    decoder = MaskedDecoder(R, G, K, H, activation)
    w, permitted = weights_of_all_kinds()
    with torch.no_grad():
        for part in decoder.parameters():
            part.add_(0.3 * torch.randn_like(part))
    decoder.to(dtype)
    return decoder, nn.Parameter(w.to(dtype)), permitted, nn.Parameter(torch.randn(R, B, K, dtype=dtype))


def net_of(decoder, w):
    trunk = decoder.trunk
    return MaskedNet(
        w, decoder.first, trunk.weight, trunk.bias, decoder.slope, decoder.head, decoder.intercept
    )


def gradients(total, leaves, permitted):
    """With those of weights that must stay zero left out."""
    found = list(torch.autograd.grad(total, leaves, allow_unused=True))
    found[0] = found[0] * permitted
    return found


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch):
    monkeypatch.setattr(_sweep, "CHUNK_BYTES", 3 * B * H * 8.0)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("missing", [False, True])
@pytest.mark.parametrize("likelihood", LIKELIHOODS, ids=lambda one: one if isinstance(one, str) else "own")
@pytest.mark.parametrize("activation", ["relu", "tanh"])
def test_values_and_gradients_are_those_of_the_plain_pass(activation, likelihood, missing, weighted):
    decoder, w, permitted, z = problem(activation)
    likelihood = get_likelihood(likelihood)
    likelihood.setup(G, R)
    likelihood.double()
    per_row = {name: torch.rand(B, 1, dtype=torch.float64) + 0.5 for name in likelihood.per_row_inputs}
    with torch.no_grad():
        x = likelihood.observation(0.3 * decoder(z, w), None, per_row).sample()[0]
    mask = torch.rand(B, G) < 0.7 if missing else None
    leaves = [w, z, *decoder.parameters(), *likelihood.parameters()]
    share = torch.rand(R, B, dtype=torch.float64) if weighted else torch.tensor([[2.0], [3.0]])
    plain = likelihood.observation(decoder(z, w), mask, per_row).log_prob(x)
    cells = DecodedCells(
        likelihood,
        net_of(decoder, w),
        z,
        mask=mask,
        per_row=per_row,
        permitted=permitted,
        activation=activation,
    )
    swept = cells.log_prob(x)
    torch.testing.assert_close(swept, plain, rtol=1e-10, atol=1e-10)
    expected = gradients((plain * share).sum(), leaves, permitted)
    found = gradients((swept * share).sum(), leaves, permitted)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-10)
    with torch.no_grad():
        torch.testing.assert_close(cells.log_prob(x), plain.detach(), rtol=1e-10, atol=1e-10)


def test_single_precision():
    decoder, w, permitted, z = problem(dtype=torch.float32)
    likelihood = get_likelihood("normal")
    likelihood.setup(G, R)
    x = torch.randn(B, G)
    leaves = [w, z, *decoder.parameters(), *likelihood.parameters()]
    plain = likelihood.observation(decoder(z, w)).log_prob(x).sum()
    swept = DecodedCells(likelihood, net_of(decoder, w), z, permitted=permitted).log_prob(x).sum()
    torch.testing.assert_close(swept, plain, rtol=1e-6, atol=0)
    for one, other in zip(
        gradients(swept, leaves, permitted), gradients(plain, leaves, permitted), strict=True
    ):
        assert (one - other).norm() <= 1e-5 * other.norm()


def test_without_constraints_every_weight_has_its_gradient():
    decoder, w, _, z = problem()
    likelihood = get_likelihood("bernoulli")
    x = (torch.rand(B, G) < 0.5).double()
    plain = likelihood.observation(decoder(z, w)).log_prob(x).sum()
    swept = DecodedCells(likelihood, net_of(decoder, w), z).log_prob(x).sum()
    torch.testing.assert_close(
        torch.autograd.grad(swept, w)[0], torch.autograd.grad(plain, w)[0], rtol=1e-10, atol=1e-10
    )


@pytest.mark.parametrize("activation", ["relu", "tanh"])
def test_recomputed_predictor(activation):
    decoder, w, permitted, z = problem(activation)
    net = net_of(decoder, w)
    plain, found = decoder(z, w), recomputed_predictor(net, z, permitted, activation)
    torch.testing.assert_close(found, plain, rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(predictor(net, z, activation), plain.detach(), rtol=1e-10, atol=1e-10)
    leaves, toward = [w, z, *decoder.parameters()], torch.randn_like(plain)
    pairs = zip(
        gradients((found * toward).sum(), leaves, permitted),
        gradients((plain * toward).sum(), leaves, permitted),
        strict=True,
    )
    for one, other in pairs:
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-10)


def test_factors_in_any_order_of_memory(small_chunks):
    """What comes back from `Fit.transform` lies column by column."""
    decoder, w, _, z = problem()
    columns = z.detach().mT.contiguous().mT
    assert not columns.is_contiguous()
    with torch.no_grad():
        torch.testing.assert_close(predictor(net_of(decoder, w), columns, "relu"), decoder(columns, w))


def test_routes():
    w, permitted = weights_of_all_kinds()
    way = _sweep.routes(w[0], permitted[0], "relu", gradient=True)
    assert way.constant.tolist() == [5, 6]
    assert {(k, round(size, 3)): own.tolist() for k, size, own in way.rays} == {
        (0, 1.0): [0, 2],
        (0, -1.0): [1],
        (2, 1.0): [3],
        (2, 0.3): [4],
    }
    assert way.dense.tolist() == [7, 8, 9, 10, 11]
    free = _sweep.routes(w[0], permitted[0], "relu", gradient=False)
    assert free.dense.tolist() == [8, 9, 10, 11]  # the zeros of feature 7 may move, but nobody asks how
    bent = _sweep.routes(w[0], permitted[0], "tanh", gradient=True)
    assert bent.constant.tolist() == [5] and not bent.rays


def test_a_table_of_one_factor_features_needs_no_dense_pass():
    decoder, w, _, z = problem()
    with torch.no_grad():
        w.zero_()
        w[:, torch.arange(G), torch.arange(G) % K] = 1.0
    permitted, likelihood, x = w != 0, get_likelihood("bernoulli"), torch.zeros(B, G, dtype=torch.float64)
    assert not len(_sweep.routes(w[0], permitted[0], "relu", gradient=True).dense)
    plain = likelihood.observation(decoder(z, w)).log_prob(x).sum()
    swept = DecodedCells(likelihood, net_of(decoder, w), z, permitted=permitted).log_prob(x).sum()
    (one,), (other,) = torch.autograd.grad(swept, z), torch.autograd.grad(plain, z)
    torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-10)


def test_samples_and_shapes():
    decoder, w, _, z = problem()
    likelihood = get_likelihood("normal")
    likelihood.setup(G, R)
    cells = DecodedCells(likelihood.double(), net_of(decoder, w), z)
    assert cells.batch_shape == (R, B) and cells.event_shape == (G,)
    draws = cells.sample(torch.Size([4000]))
    torch.testing.assert_close(draws.mean(0), decoder(z, w).detach(), rtol=0, atol=0.02)
    assert cells.expand((R, B)) is cells
    with pytest.raises(ValueError, match=r"batch_shape: got \(3, 17\).*expand the factors z"):
        cells.expand((3, B))
