"""Encoders of tasks: what they compute, and what they refuse."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from pyro_sparse.nets.tasks import ConvEncoder, task_encoder


def test_linear_and_mlp_by_hand():
    torch.manual_seed(0)
    x = torch.randn(7, 5)
    linear = task_encoder("linear", (5,), 3)
    weight, bias = linear.parameters()
    torch.testing.assert_close(linear(x), x @ weight.mT + bias)
    mlp = task_encoder("mlp", (5,), 3, hidden=4)
    w1, b1, w2, b2, w3, b3 = mlp.parameters()
    assert w1.shape == (4, 5)
    h = F.leaky_relu(x @ w1.mT + b1, 0.1)
    torch.testing.assert_close(mlp(x), F.leaky_relu(h @ w2.mT + b2, 0.1) @ w3.mT + b3)
    assert task_encoder("mlp", (2, 3, 4), 6)(torch.randn(2, 2, 3, 4)).shape == (2, 6)


def test_convolutions_by_hand():
    torch.manual_seed(0)
    x = torch.randn(3, 2, 20, 17)
    net = task_encoder("conv", (2, 20, 17), 5, hidden=8)
    assert isinstance(net, ConvEncoder)
    parts = list(net.parameters())
    h = x
    for weight, bias in zip(parts[:8:2], parts[1:8:2], strict=True):
        h = F.relu(F.conv2d(h, weight, bias, stride=2, padding=1))
    assert h.shape == (3, 64, 1, 1)
    h = F.relu(h.flatten(1) @ parts[8].mT + parts[9])
    torch.testing.assert_close(net(x), h @ parts[10].mT + parts[11], rtol=1e-4, atol=1e-5)


def test_the_last_layer_is_linear():
    """A linear map of the latents can be folded behind it, so it must not be bent."""
    for kind, shape in (("linear", (4,)), ("mlp", (4,)), ("conv", (1, 16, 16))):
        assert isinstance(list(task_encoder(kind, shape, 2).modules())[-1], nn.Linear)


def test_a_module_is_copied():
    own = nn.Sequential(nn.Linear(4, 2)).double()
    copy = task_encoder(own, (4,), 2)
    assert copy is not own
    with torch.no_grad():
        own[0].weight.zero_()
    assert (copy[0].weight != 0).all()


@pytest.mark.parametrize(
    ("kind", "shape", "message"),
    [
        ("resnet", (4,), "encoder: want linear, mlp, conv or a Module, got 'resnet'"),
        (7, (4,), "encoder: want linear, mlp, conv or a Module, got 7"),
        ("conv", (4,), r"encoder: 'conv' wants n_features=\(channel, row, column\)"),
        ("conv", (64, 64, 3), "at least 16 rows and columns, got"),
        (
            nn.Linear(4, 3),
            (4,),
            r"encoder: it takes \(2, 4\) to \(2, 3\); want \(2, 2\), one number per latent",
        ),
        (
            nn.Linear(5, 2),
            (4,),
            r"encoder: it takes no inputs of shape \(2, 4\) \(.*\); make it for n_features",
        ),
    ],
)
def test_bad_encoders(kind, shape, message):
    with pytest.raises(ValueError, match=message):
        task_encoder(kind, shape, 2)
