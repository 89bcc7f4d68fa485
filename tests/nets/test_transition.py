"""Networks of a transition: shapes, restarts apart, Jacobians, gates."""

from __future__ import annotations

import pytest
import torch
from torch.func import jacrev, vmap

from pyro_sparse.nets.transition import FrameDecoder, FrameEncoder, GatedTransition, SineTransition

R, N, G, D = 2, 5, 6, 3


def test_the_encoder_gives_a_location_and_a_cholesky_factor():
    torch.manual_seed(0)
    location, factor, log_det = FrameEncoder(R, G, D, hidden=8)(torch.randn(N, G))
    assert location.shape == (R, N, D)
    assert factor.shape == (R, N, D, D)
    assert torch.equal(factor, factor.tril())
    torch.testing.assert_close(torch.linalg.slogdet(factor)[1], log_det)


def test_a_draw_is_the_location_and_the_factor_times_noise():
    torch.manual_seed(0)
    for k in (1, D):
        encoder, x, noise = FrameEncoder(R, G, k, hidden=8), torch.randn(N, G), torch.randn(R, N, k)
        location, factor, log_det = encoder(x)
        drawn, log_det_of_draw = encoder.draw(x, None, noise)
        torch.testing.assert_close(drawn, location + (factor @ noise.unsqueeze(-1)).squeeze(-1))
        torch.testing.assert_close(log_det_of_draw, log_det)


def test_a_missing_cell_is_not_a_cell_at_the_mean():
    torch.manual_seed(0)
    encoder = FrameEncoder(R, G, D, hidden=8, missing=True)
    x, mask = torch.randn(N, G), torch.ones(N, G, dtype=torch.bool)
    mask[0, 0] = False
    other = x.clone()
    other[0, 0] = 7.0
    torch.testing.assert_close(encoder(x, mask)[0], encoder(other, mask)[0])
    at_mean = x.clone()
    at_mean[0, 0] = 0.0
    assert not torch.allclose(encoder(x, mask)[0][:, 0], encoder(at_mean)[0][:, 0])
    torch.testing.assert_close(encoder(x, mask)[0][:, 1:], encoder(x)[0][:, 1:])


def test_restarts_do_not_see_each_other():
    torch.manual_seed(0)
    z = torch.randn(R, N, D, requires_grad=True)
    for net, out in (
        (FrameDecoder(R, D, G, hidden=8), G),
        (SineTransition(R, D, D, units=8), D),
    ):
        y = net(z)
        assert y.shape == (R, N, out)
        (slope,) = torch.autograd.grad(y[0].sum(), z)
        assert slope[0].abs().sum() > 0
        assert slope[1].abs().sum() == 0
    assert FrameDecoder(R, D, G).intercept.shape == (R, 1, G)


def test_the_layers_gradient_is_that_of_finite_differences():
    """Of the input and of every parameter."""
    torch.manual_seed(0)
    net = FrameDecoder(R, D, G, hidden=5).double()
    z = torch.randn(R, 4, D, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda *_: net(z), (z, *net.parameters()))


def test_the_sines_jacobian_is_autograds():
    torch.manual_seed(0)
    net = SineTransition(R, 4, D, units=16).double()
    u = torch.randn(R, N, 4, dtype=torch.float64)

    def mean(one):
        return net(one.expand(R, 1, 4))[:, 0]

    for r in range(R):
        wanted = vmap(jacrev(mean))(u[r])[:, r]
        torch.testing.assert_close(net.jacobian(u)[r], wanted)


def test_a_closed_gate_shuts_an_input_out():
    torch.manual_seed(0)
    net = GatedTransition(R, 4, D, units=8, heteroscedastic=True)
    torch.nn.init.normal_(net.line)
    u = torch.randn(R, N, 4, requires_grad=True)
    gates = torch.ones(R, D, 4)
    gates[0, 1, 2] = 0.0
    mean, log_sd = net(u, gates)
    assert mean.shape == log_sd.shape == (R, N, D)
    for part in (mean, log_sd):
        (slope,) = torch.autograd.grad(part[0, :, 1].sum(), u, retain_graph=True)
        assert (slope[0, :, 2] == 0).all()
        assert (slope[0, :, 0] != 0).all()
        (slope,) = torch.autograd.grad(part[0, :, 0].sum(), u, retain_graph=True)
        assert (slope[0, :, 2] != 0).all()


@pytest.mark.parametrize("heteroscedastic", [False, True])
def test_gates_of_all_rows_are_those_of_each(heteroscedastic):
    """The same gates given once, and given for every row."""
    torch.manual_seed(0)
    net = GatedTransition(R, 4, D, units=8, heteroscedastic=heteroscedastic)
    for part in (net.line, net.constant):
        torch.nn.init.normal_(part)
    u, gates = torch.randn(R, N, 4), torch.rand(R, D, 4)
    for once, each in zip(net(u, gates), net(u, gates.unsqueeze(1).expand(R, N, D, 4)), strict=True):
        torch.testing.assert_close(once, each)


def test_gates_may_differ_between_rows():
    torch.manual_seed(0)
    net = GatedTransition(R, 4, D, units=8)
    torch.nn.init.normal_(net.line)
    u, gates = torch.randn(R, N, 4), torch.rand(R, N, D, 4)
    together = net(u, gates)[0]
    for i in range(N):
        torch.testing.assert_close(together[:, i], net(u[:, i : i + 1], gates[:, i])[0][:, 0])
    same = net(u, torch.ones(R, D, 4))[1]
    torch.testing.assert_close(same, net.log_sd.expand(R, N, D))
