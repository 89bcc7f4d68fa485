"""Strengths between dictionaries, against the whole Jacobian and ablations by definition."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn

import pyro_sparse as ps
from pyro_sparse.inference.edges.dictionaries import effects

from ._pairs import pair


def by_definition(sae_in, sae_out, layer, x, y=None):
    """E[|J_ij| f_j] from the full Jacobian of every row's pre-activations in the input codes, by autograd."""
    total = torch.zeros(len(sae_out.enc), len(sae_in.dec), dtype=torch.float64)
    recorded = layer(x) if y is None else y
    for row, out in zip(x, recorded, strict=True):
        f = sae_in.encode(row[None])[0]
        on = sae_out.encode(out[None])[0] > 0

        def pre(codes, row=row, f=f):
            return sae_out.scores(layer(row + (codes - f) @ sae_in.dec))

        jacobian = torch.autograd.functional.jacobian(pre, f)
        total += jacobian.abs() * f * on[:, None] * (f > 0)
    return (total / len(x)).detach().numpy()


def ablated(sae_in, sae_out, layer, x):
    """Mean change of each active output latent's pre-activation when an active input latent is taken out."""
    total = np.zeros((len(sae_out.enc), len(sae_in.dec)))
    with torch.no_grad():
        for row in x:
            f, whole = sae_in.encode(row[None])[0], layer(row)
            on = (sae_out.encode(whole[None])[0] > 0).numpy()
            for j in torch.nonzero(f).flatten().tolist():
                change = sae_out.scores(whole) - sae_out.scores(layer(row - f[j] * sae_in.dec[j]))
                total[:, j] += change.abs().numpy() * on
    return total / len(x)


@pytest.mark.parametrize("in_closed_form", [True, False])
@pytest.mark.parametrize("recorded", [True, False])
def test_slopes_are_those_of_the_full_jacobian(in_closed_form, recorded):
    sae_in, sae_out, layer, x = pair()
    y = layer(x).detach() + 0.3 * torch.randn(40, 4, dtype=torch.float64) if recorded else None
    mlp = layer if in_closed_form else lambda x: layer(x)
    found = ps.latent_graph(sae_in, sae_out, mlp, x, y, batch_size=7)
    wanted = by_definition(sae_in, sae_out, layer, x, y)
    assert (wanted > 0).mean() > 0.5
    np.testing.assert_allclose(found.strength.toarray(), wanted, rtol=1e-9, atol=1e-12)


def test_slopes_of_a_linear_layer_are_one_matrix(monkeypatch):
    sae_in, sae_out, _, x = pair(6)
    layer = nn.Linear(x.shape[1], 4).double()
    y = layer(x).detach() + 0.3 * torch.randn(40, 4, dtype=torch.float64)
    monkeypatch.setattr(effects, "_in_reverse", None)  # some 30 times as slow with 1,500 neurons before it
    found = ps.latent_graph(sae_in, sae_out, layer, x, y, batch_size=7)
    wanted = by_definition(sae_in, sae_out, layer, x, y)
    assert (wanted > 0).mean() > 0.5
    np.testing.assert_allclose(found.strength.toarray(), wanted, rtol=1e-9, atol=1e-12)


def test_ablations_are_those_of_the_definition():
    sae_in, sae_out, layer, x = pair(1)
    found = ps.latent_graph(sae_in, sae_out, layer, x, effect="ablation", batch_size=16)
    wanted = ablated(sae_in, sae_out, layer, x)
    np.testing.assert_allclose(found.strength.toarray(), wanted, rtol=1e-9, atol=1e-12)
    slopes = by_definition(sae_in, sae_out, layer, x)
    assert (
        np.abs(wanted - slopes).max() > 0.01 * slopes.max()
    )  # the layer bends, and the two can be told apart


def test_an_encoder_without_fixed_rows_is_differentiated_as_it_is():
    sae_in, sae_out, layer, x = pair(2, soft=True)
    found = ps.latent_graph(sae_in, sae_out, layer, x).strength.toarray()
    total = np.zeros_like(found)
    for row in x:
        f = sae_in.encode(row[None])[0]

        def codes_out(codes, row=row, f=f):
            return sae_out.encode(layer(row + (codes - f) @ sae_in.dec)[None])[0]

        total += (torch.autograd.functional.jacobian(codes_out, f).abs() * f).detach().numpy()
    np.testing.assert_allclose(found, total / len(x), rtol=1e-9, atol=1e-12)
    with torch.no_grad():
        taken = ps.latent_graph(sae_in, sae_out, layer, x, effect="ablation").strength.toarray()
        wanted = np.zeros_like(taken)
        for row in x.split(1):
            f, whole = sae_in.encode(row)[0], sae_out.encode(layer(row))[0]
            for j in torch.nonzero(f).flatten().tolist():
                less = sae_out.encode(layer(row - f[j] * sae_in.dec[j]))[0]
                wanted[:, j] += ((whole - less).abs() * (whole > 0)).numpy()
    np.testing.assert_allclose(taken, wanted / len(x), rtol=1e-9, atol=1e-12)


def test_rates_names_and_dead_latents():
    sae_in, sae_out, layer, x = pair(3)
    with torch.no_grad():
        sae_in.enc[2] = 0.0
        sae_in.scores = lambda x: (x - sae_in.bias) @ sae_in.enc.T - 0.001
    found = ps.latent_graph(sae_in, sae_out, layer, x.numpy(), names_in=list("abcdefgh"), batch_size=9)
    np.testing.assert_allclose(found.rate_in, (sae_in.encode(x) > 0).double().mean(0))
    assert found.dead_in.tolist() == [j == 2 for j in range(8)] and not found.strength.toarray()[:, 2].any()
    assert found.names_in[2] == "c" and found.names_out[0] == "out 0" and found.n_rows == 40
    np.testing.assert_allclose(found.directions_in, sae_in.dec.detach(), atol=1e-6)
    assert "8 input latents (1 dead)" in repr(found)
    assert found.relative().max(axis=1).toarray().max() == 1.0


def test_latents_that_only_late_rows_have_are_measured(monkeypatch):
    module = sys.modules[ps.latent_graph.__module__]
    sae_in, sae_out, layer, x = pair(4)
    whole = ps.latent_graph(sae_in, sae_out, layer, x)
    monkeypatch.setattr(module, "_ROWS_LOOKED_AT", 1)
    late = ps.latent_graph(sae_in, sae_out, layer, x, batch_size=4)
    assert (whole.strength.toarray() > 0).sum() > 9
    np.testing.assert_allclose(late.strength.toarray(), whole.strength.toarray(), atol=1e-12)


def test_modules_are_used_as_they_will_be_and_left_as_they_were():
    sae_in, sae_out, layer, x = pair(5)
    dropped = nn.Sequential(layer, nn.Dropout(0.5))
    found = ps.latent_graph(sae_in, sae_out, dropped, x)
    np.testing.assert_allclose(
        found.strength.toarray(), ps.latent_graph(sae_in, sae_out, layer, x).strength.toarray(), atol=1e-12
    )
    assert dropped.training and dropped[1].training
    assert all(p.grad is None and p.requires_grad for p in layer.parameters())


def test_bad_input_is_refused():
    sae_in, sae_out, layer, x = pair()

    def refused(match, *parts, kind=ValueError, **options):
        with pytest.raises(kind, match=match):
            ps.latent_graph(*parts, **options)

    refused("sae_in: a object lacks encode", object(), sae_out, layer, x, kind=TypeError)
    refused("mlp: got a int", sae_in, sae_out, 3, x, kind=TypeError)
    refused("effect: got 'both'", sae_in, sae_out, layer, x, effect="both")
    refused(r"X: got shape \(5,\)", sae_in, sae_out, layer, x[0])
    refused("Y: has 39 rows, and X has 40", sae_in, sae_out, layer, x, x[:39, :4])
    bad = x.clone()
    bad[30, 1] = torch.nan
    refused("X: has values that are not finite", sae_in, sae_out, layer, bad)
    refused("names_in: got 2 names", sae_in, sae_out, layer, x, names_in=["a", "b"])
    refused("rows meet in it", sae_in, sae_out, lambda x: layer(x) - layer(x).mean(0), x)
    refused("mlp: autograd does not reach", sae_in, sae_out, lambda x: layer(x).detach(), x)
    squared = SimpleNamespace(encode=sae_in.encode, decode=lambda f: sae_in.decode(f) ** 2)
    refused("sae_in: decode is not affine", squared, sae_out, layer, x)
    tuples = SimpleNamespace(encode=lambda x: (x,), decode=sae_in.decode)
    refused("sae_in: encode returned a tuple", tuples, sae_out, layer, x, kind=TypeError)
