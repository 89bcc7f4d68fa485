"""Networks of images: every restart is the stack of torch's own layers with its weights."""

from __future__ import annotations

import torch
from torch import nn

from pyro_sparse.nets.images import BatchConv, ConvolutionalDecoder, ConvolutionalEncoder

SHAPE = (2, 32, 16)


def own(layer: BatchConv, restart: int) -> nn.Module:
    """One restart's convolution as a layer of torch."""
    weight = layer.weight[restart]
    kind = nn.ConvTranspose2d if layer.up else nn.Conv2d
    n_in, n_out = weight.shape[:2] if layer.up else weight.shape[:2][::-1]
    made = kind(n_in, n_out, 4, stride=2, padding=1).double()
    made.load_state_dict({"weight": weight, "bias": layer.bias[restart]})
    return made


def dense(layer, restart: int, h: torch.Tensor) -> torch.Tensor:
    return h @ layer.weight[restart] + layer.bias[restart]


def shaken(net: nn.Module) -> nn.Module:
    for parameter in net.parameters():  # biases that differ, so that a mixed-up one shows
        nn.init.normal_(parameter, std=0.2)
    return net.double()


def test_the_encoder_by_hand():
    torch.manual_seed(0)
    net = shaken(ConvolutionalEncoder(3, SHAPE, 5, width=4, hidden=6))
    x = torch.randn(7, 2 * 32 * 16, dtype=torch.float64)
    location, sd = net(x)
    assert location.shape == sd.shape == (3, 7, 5)
    for r in range(3):
        h = x.view(7, *SHAPE)
        for layer in net.convolutions:
            h = torch.relu(own(layer, r)(h))
        assert h.shape == (7, 8, 2, 1)
        h = torch.relu(dense(net.dense, r, h.flatten(1)))
        torch.testing.assert_close(location[r], dense(net.location, r, h))
        torch.testing.assert_close(sd[r], dense(net.log_sd, r, h).clamp(-4.5, 1.5).exp())


def test_the_decoder_by_hand():
    torch.manual_seed(0)
    net = shaken(ConvolutionalDecoder(3, SHAPE, 5, width=4, hidden=6))
    z = torch.randn(3, 7, 5, dtype=torch.float64)
    x = net(z)
    for r in range(3):
        h = torch.relu(dense(net.dense[0], r, z[r]))
        h = torch.relu(dense(net.dense[1], r, h)).view(7, 8, 2, 1)
        for layer in net.convolutions[:-1]:
            h = torch.relu(own(layer, r)(h))
        h = own(net.convolutions[-1], r)(h)
        assert h.shape == (7, *SHAPE)
        torch.testing.assert_close(x[r], h.flatten(1) + net.intercept[r])


def test_missing_pixels_are_not_read():
    torch.manual_seed(0)
    net = ConvolutionalEncoder(2, (1, 16, 16), 3, width=4, hidden=6, missing=True).double()
    x, mask = torch.randn(5, 256, dtype=torch.float64), torch.rand(5, 256) > 0.3
    torch.testing.assert_close(net(x, mask)[0], net(torch.where(mask, x, 9.0), mask)[0])
    assert (net(x, mask)[0] - net(x * mask)[0]).abs().max() > 1e-4  # unseen is not zero
    torch.testing.assert_close(net(x)[0], net(x, torch.ones_like(mask))[0])


def test_signals_keep_their_size_through_the_layers():
    """Initial weights neither blow an image up nor fade it out."""
    torch.manual_seed(0)
    x = torch.randn(50, 3 * 32 * 32)
    encoder = ConvolutionalEncoder(1, (3, 32, 32), 8)
    assert 0.03 < encoder(x)[0].std() < 0.3  # the last layer's gain is .1
    decoder = ConvolutionalDecoder(1, (3, 32, 32), 8)
    assert 0.02 < decoder(torch.randn(1, 50, 8)).std() < 0.3  # so is its
