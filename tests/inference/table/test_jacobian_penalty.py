"""The Jacobian penalty against `torch.autograd.functional.jacobian`, closed forms and finite differences."""

from __future__ import annotations

import copy
import math

import pytest
import torch
from torch import nn
from torch.autograd.functional import jacobian
from torch.nn import functional as F

from pyro_sparse.inference.table._rowwise import reusable
from pyro_sparse.inference.table.jacobian_penalty import (
    column,
    deal,
    difference,
    jacobian_l1,
    mean_abs_jacobian,
    relative_step,
)
from pyro_sparse.nets.layers import DenseDecoder

B, K, G = 7, 3, 5


def slope(network, z, which, x_hat=None):
    step = torch.full((B, 1), relative_step(z), dtype=z.dtype)
    return difference(network, z, which, step, x_hat) / step


def value(penalty):
    return penalty.detach().item()


class Tokens(nn.Module):
    """Every latent is a token; `core` mixes them."""

    def __init__(self, core):
        super().__init__()
        self.into, self.core, self.out = nn.Linear(1, 8), core, nn.Linear(8 * K, G)

    def forward(self, z):
        return self.out(self.core(self.into(z.unsqueeze(-1))).flatten(1))


class MultiHead(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True, dropout=0.2)

    def forward(self, h):
        return self.attention(h, h, h, need_weights=False)[0]


class Fused(nn.Module):
    def forward(self, h):
        heads = h.unflatten(-1, (2, 4)).transpose(1, 2)
        return F.scaled_dot_product_attention(heads, heads, heads).transpose(1, 2).flatten(2)


def networks():
    linear = nn.Linear
    return {
        "mlp": nn.Sequential(linear(K, 8), nn.ReLU(), linear(8, 8), nn.Softplus(), linear(8, G)),
        "batch norm": nn.Sequential(
            linear(K, 8), nn.BatchNorm1d(8), nn.Tanh(), linear(8, 6), nn.BatchNorm1d(6), linear(6, G)
        ),
        "dropout": nn.Sequential(linear(K, 8), nn.Dropout(0.4), nn.Tanh(), nn.Dropout(0.4), linear(8, G)),
        "multi-head attention": Tokens(MultiHead()),
        "fused attention": Tokens(Fused()),
        "transformer": Tokens(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, norm_first=True)),
        "convolution": nn.Sequential(
            linear(K, 16),
            nn.Unflatten(1, (4, 2, 2)),
            nn.ConvTranspose2d(4, 3, 4, 2, 1),
            nn.BatchNorm2d(3),
            nn.LeakyReLU(0.2),
            nn.Conv2d(3, 2, 3, padding=1),
        ),
        "recurrent": Tokens(nn.Sequential(nn.GRU(8, 8, batch_first=True), _First())),
    }


class _First(nn.Module):
    def forward(self, pair):
        return pair[0]


CASES = [(name, train) for name in networks() for train in (False, True)]


def made(name, train):
    """A network in double precision, its running averages not those of the batch, and latents."""
    torch.manual_seed(1)
    network = networks()[name].double()
    for part in network.modules():
        if isinstance(part, nn.modules.batchnorm._BatchNorm):
            part.running_mean.normal_()
            part.running_var.uniform_(0.5, 2)
            nn.init.normal_(part.weight)
            nn.init.normal_(part.bias)
    return network.train(train), torch.randn(B, K, dtype=torch.float64, requires_grad=True)


def frozen(network, z):
    """A copy in which batch norm has the batch's statistics as its running averages."""
    network = copy.deepcopy(network)
    parts = [p for p in network.modules() if isinstance(p, nn.modules.batchnorm._BatchNorm) and p.training]
    for part in parts:
        part.momentum = 1.0
    seen = {}
    hooks = [
        p.register_forward_hook(lambda p, x, _: seen.update({p: x[0].numel() / len(p.bias)})) for p in parts
    ]
    with torch.no_grad():
        network(z)
    for part, hook in zip(parts, hooks, strict=True):
        part.running_var *= (seen[part] - 1) / seen[part]  # the running average is the unbiased one
        part.eval()
        hook.remove()
    return network


def exact(network, z, seed):
    """J of every row, (row, feature, latent), by torch."""
    network = frozen(network, z)

    def summed(own):
        torch.manual_seed(seed)
        return network(own).flatten(1).sum(0)

    return jacobian(summed, z.detach()).transpose(0, 1)


@pytest.mark.parametrize(("name", "train"), CASES)
def test_every_module_has_the_jacobian_that_torch_finds(name, train):
    network, z = made(name, train)
    wanted = exact(network, z, seed=3)
    before = copy.deepcopy({k: v for k, v in network.state_dict().items() if "num_batches" not in k})
    torch.manual_seed(3)
    torch.testing.assert_close(mean_abs_jacobian(network, z), wanted.abs().mean(0))
    for key, value in before.items():
        torch.testing.assert_close(network.state_dict()[key], value, msg=key)

    torch.manual_seed(3)
    total = jacobian_l1(network, z, estimator="exact")
    scaled = wanted.abs().mean(0) * z.detach().std(0, correction=0)
    torch.testing.assert_close(total.detach(), scaled.sum())

    which = (torch.arange(B) % K).unsqueeze(-1)
    own = wanted.gather(-1, which.unsqueeze(-1).expand(-1, wanted.shape[1], 1)).squeeze(-1)
    torch.manual_seed(3)
    torch.testing.assert_close(column(network, z, which).detach(), own)
    torch.manual_seed(3)
    found = slope(network, z, which).detach()
    torch.testing.assert_close(found, own, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("name", ["mlp", "batch norm", "dropout", "fused attention"])
def test_an_answer_that_is_there_already_changes_nothing(name):
    network, z = made(name, True)
    wanted = exact(network, z, seed=3)
    which = (torch.arange(B) % K).unsqueeze(-1)
    own = wanted.gather(-1, which.unsqueeze(-1).expand(-1, G, 1)).squeeze(-1)
    torch.manual_seed(3)
    x_hat = network(z)
    if name != "dropout":  # else the masks of x_hat are right, those of any other evaluation are not
        torch.manual_seed(3)
        torch.testing.assert_close(column(network, z, which, x_hat).detach(), own)
        torch.testing.assert_close(slope(network, z, which, x_hat).detach(), own, atol=1e-5, rtol=1e-5)
        return
    torch.testing.assert_close(column(network, z, which, x_hat).detach(), own)
    found = slope(network, z, which, x_hat)  # of masks of its own, but the same ones twice
    assert found.abs().max() < 100


@pytest.mark.parametrize(
    "network",
    [lambda z: torch.tanh(z.detach()), lambda z: torch.tanh(z.data) + torch.ones(1, requires_grad=True)],
)
def test_a_network_cut_off_from_its_latents_is_no_zero(network):
    z = torch.randn(B, K)
    for ask in (jacobian_l1, mean_abs_jacobian):
        with pytest.raises(ValueError, match="^fn: its features change with z, but their graph does not"):
            ask(network, z)
    assert jacobian_l1(network, z, estimator="difference") > 0
    assert jacobian_l1(lambda z: torch.ones_like(z), z) == 0.0  # in earnest


def test_an_answer_that_is_there_is_not_computed_again():
    calls = []
    network, z = made("mlp", True)

    def counted(own):
        calls.append(1)
        return network(own)

    x_hat = network(z)
    for estimator, wanted in {"column": 0, "exact": 0, "difference": 1}.items():
        calls.clear()
        jacobian_l1(counted, z, estimator=estimator, x_hat=x_hat)
        assert len(calls) == wanted, estimator
    jacobian_l1(counted, z)
    assert len(calls) == 2  # one more
    network, z = made("batch norm", True)
    assert not reusable(network(z), z)


def test_latents_without_a_gradient():
    network, z = made("mlp", True)
    free = jacobian_l1(network, z, estimator="exact")
    for estimator in ("exact", "difference"):
        torch.manual_seed(0)
        alone = jacobian_l1(network, z.detach(), estimator=estimator, x_hat=network(z).detach())
        torch.manual_seed(0)
        torch.testing.assert_close(alone, jacobian_l1(network, z, estimator=estimator))
    alone = jacobian_l1(network, z.detach(), estimator="exact")
    theirs, mine = (torch.autograd.grad(p, list(network.parameters())[:-1]) for p in (free, alone))
    for a, b in zip(theirs, mine, strict=True):
        torch.testing.assert_close(a, b)
    with torch.no_grad():
        again = jacobian_l1(network, z, estimator="exact")
    assert not again.requires_grad
    torch.testing.assert_close(again, free.detach())


# ---- the estimator


@pytest.mark.parametrize("estimator", [pytest.param("column", marks=pytest.mark.slow), "difference"])
def test_a_random_column_is_unbiased(estimator):
    network, z = made("mlp", True)
    z = z.detach() * torch.tensor([0.3, 1.0, 4.0])
    wanted = value(jacobian_l1(network, z, estimator="exact"))
    torch.manual_seed(5)
    with torch.no_grad():
        draws = torch.stack([jacobian_l1(network, z, estimator=estimator) for _ in range(1500)])
    score = (draws.mean() - wanted) / (draws.std() / math.sqrt(len(draws)))
    assert abs(float(score)) < 3.5
    assert draws.std() / math.sqrt(len(draws)) < 0.02 * wanted  # and the test can see a bias


def test_columns_are_dealt_evenly_and_at_random():
    torch.manual_seed(2)
    dealt = torch.stack([deal(torch.zeros(2, B, K))[..., 0] for _ in range(3000)])  # (draw, group, row)
    counts = F.one_hot(dealt, K).sum(-2)
    assert counts.min() == B // K and counts.max() == -(-B // K)
    share = F.one_hot(dealt, K).double().mean(0)  # (group, row, latent)
    assert (share - 1 / K).abs().max() < 4 * math.sqrt(1 / K * (1 - 1 / K) / 3000)
    assert (dealt[:, 0] != dealt[:, 1]).any()


def test_restarts_are_groups_of_their_own():
    torch.manual_seed(0)
    decoder = DenseDecoder(2, G, K, hidden=6).double()
    z = torch.randn(2, B, K, dtype=torch.float64) * torch.tensor([1.0, 3.0]).view(2, 1, 1)
    both = jacobian_l1(decoder, z, estimator="exact")
    each = mean_abs_jacobian(decoder, z, scale="sd", chunk=2)
    assert both.shape == (2,) and each.shape == (2, G, K)
    for r in range(2):

        def alone(own, r=r):
            return decoder(torch.stack([own, own]))[r]

        torch.testing.assert_close(each[r], mean_abs_jacobian(alone, z[r], scale="sd"))
        torch.testing.assert_close(both[r].detach(), each[r].sum())
    assert jacobian_l1(decoder, z).shape == (2,)


# ---- gradients


def closed_form(weights, z, which=None):
    """The penalty of W2 tanh(W1 z), scaled by the sd, written out."""
    first, second = weights
    slope = 1 - torch.tanh(z @ first.T) ** 2
    each = torch.einsum("gh,bh,hk->bgk", second, slope, first).abs().sum(1) * z.std(0, correction=0)
    return each.sum(1).mean() if which is None else K * each.gather(1, which).mean()


@pytest.mark.parametrize("estimator", ["exact", "column", "difference"])
def test_gradients_are_those_of_the_closed_form(estimator):
    torch.manual_seed(4)
    weights = [torch.randn(6, K).double().requires_grad_(), torch.randn(G, 6).double().requires_grad_()]
    z = torch.randn(B, K, dtype=torch.float64, requires_grad=True)

    def network(own):
        return torch.tanh(own @ weights[0].T) @ weights[1].T

    for x_hat in (None, network(z)):
        torch.manual_seed(8)
        which = None if estimator == "exact" else deal(z)
        wanted = closed_form(weights, z, which)
        torch.manual_seed(8)
        found = jacobian_l1(network, z, estimator=estimator, x_hat=x_hat)
        tolerance = {"atol": 1e-5, "rtol": 1e-5} if estimator == "difference" else {}
        torch.testing.assert_close(found, wanted, **tolerance)
        pairs = zip(
            torch.autograd.grad(found, [z, *weights], retain_graph=True),
            torch.autograd.grad(wanted, [z, *weights]),
            strict=True,
        )
        for mine, theirs in pairs:
            torch.testing.assert_close(mine, theirs, **tolerance)


def test_a_gradient_of_the_gradient():
    torch.manual_seed(4)
    second, z = (torch.randn(s, dtype=torch.float64, requires_grad=True) for s in ((2, 4), (3, 2)))
    first = torch.randn(4, 2, dtype=torch.float64)

    def penalty(own, weight):
        return jacobian_l1(lambda at: torch.tanh(at @ first.T) @ weight.T, own, estimator="exact")

    assert torch.autograd.gradcheck(penalty, (z, second))
    assert torch.autograd.gradgradcheck(penalty, (z, second))


def test_batch_statistics_are_constants_of_a_row_but_not_of_the_parameters():
    network, z = made("batch norm", True)
    weight = network[0].weight
    found = torch.autograd.grad(jacobian_l1(network, z, estimator="exact"), [weight, z])
    for tensor, gradient in zip((weight, z), found, strict=True):
        for place in ((0, 0), (3, 1)):
            sides = []
            for sign in (1, -1):
                with torch.no_grad():
                    tensor[place] += sign * 1e-6
                    sides.append(value(jacobian_l1(network, z, estimator="exact")))
                    tensor[place] -= sign * 1e-6
            assert float(gradient[place]) == pytest.approx((sides[0] - sides[1]) / 2e-6, rel=1e-4, abs=1e-6)


def test_stretching_the_latents_is_no_way_out():
    network, z = made("mlp", True)
    for scale, slope in {"sd": 0.0, None: -1.0}.items():
        stretch = torch.ones((), dtype=torch.float64, requires_grad=True)

        def stretched(own, by=stretch):
            return network(own / by)

        penalty = jacobian_l1(stretched, z * stretch, estimator="exact", scale=scale)
        (found,) = torch.autograd.grad(penalty, stretch)
        torch.testing.assert_close(found, slope * penalty.detach(), atol=1e-9, rtol=1e-9)
    given = jacobian_l1(network, z, estimator="exact", scale=z.detach().std(0, correction=0))
    torch.testing.assert_close(given, jacobian_l1(network, z, estimator="exact"))


def test_a_latent_that_is_constant_has_a_finite_gradient():
    network, z = made("mlp", True)
    z = (z * torch.tensor([1.0, 0.0, 1.0])).detach().requires_grad_()
    (found,) = torch.autograd.grad(jacobian_l1(network, z, estimator="exact"), z)
    assert torch.isfinite(found).all()


# ---- concave surrogates


@pytest.mark.parametrize("surrogate", ["log", "l0"])
def test_concave_surrogates_act_on_the_mean_over_rows(surrogate):
    network, z = made("mlp", True)
    strength = exact(network, z, 0).abs().mean(0) * z.detach().std(0, correction=0)
    if surrogate == "log":
        wanted = (torch.log(1 + strength / 0.2) / math.log(6)).sum()
    else:
        wanted = torch.sigmoid(2 * torch.log(strength / 0.2)).sum()  # a gate of these log-odds is open
    torch.testing.assert_close(jacobian_l1(network, z, surrogate=surrogate, width=0.2).detach(), wanted)


def test_the_smooth_count_counts():
    loadings = torch.tensor([[5.0, 0.0], [0.0, 3.0], [4.0, 2.0], [0.0, 0.0]])
    z = torch.randn(100, 2)
    assert value(jacobian_l1(lambda own: own @ loadings.T, z, surrogate="l0")) == pytest.approx(4, abs=0.02)


# ---- single precision, a network that ignores latents, complaints


def test_single_precision():
    network, z = made("mlp", True)
    wanted = value(jacobian_l1(network, z, estimator="exact"))
    network, z = network.float(), z.float()
    assert value(jacobian_l1(network, z, estimator="exact")) == pytest.approx(wanted, rel=1e-5)
    which = deal(z)
    error = slope(network, z, which) - column(network, z, which)
    assert error.abs().mean() < 2e-3 * column(network, z, which).abs().mean()


@pytest.mark.parametrize("estimator", ["column", "exact", "difference"])
def test_cumulative_averages_of_batch_norm_count_the_models_own_batches(estimator):
    """The mean over k batches, and not over the evaluations in between."""
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(K, 5), nn.BatchNorm1d(5, momentum=None), nn.Tanh(), nn.Linear(5, G))
    batches = torch.randn(4, B, K)
    for z in batches:
        z = z.clone().requires_grad_()
        jacobian_l1(network, z, estimator=estimator, x_hat=network(z)).backward()
        jacobian_l1(network, z, estimator=estimator).backward()
    assert network[1].num_batches_tracked == 4
    with torch.no_grad():
        wanted = network[0](batches).mean((0, 1))
    torch.testing.assert_close(network[1].running_mean, wanted)


def test_a_network_that_does_not_look():
    z = torch.randn(B, K, requires_grad=True)
    constant = nn.Parameter(torch.ones(B, G))
    for estimator in ("column", "exact", "difference"):
        assert value(jacobian_l1(lambda own: constant * 1.0, z, estimator=estimator)) == 0
    for network in (torch.sign, lambda own: torch.sign(own) @ torch.ones(K, K, requires_grad=True)):
        assert value(jacobian_l1(network, z)) == 0
    assert mean_abs_jacobian(lambda own: torch.ones(len(own), G), z).shape == (G, K)


class Once(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return 2 * x

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, gradient):
        return 2 * gradient


def test_a_network_that_can_be_differentiated_once_only():
    z = torch.randn(B, K, dtype=torch.float64, requires_grad=True)
    linear = nn.Linear(K, K).double()
    for network in (Once.apply, lambda own: linear(Once.apply(linear(own)))):
        with pytest.raises(RuntimeError, match="differentiated twice.*estimator='difference'"):
            jacobian_l1(network, z)
    assert value(jacobian_l1(Once.apply, z, estimator="difference", scale=None)) == pytest.approx(2 * K)


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ({"estimator": "columns"}, ValueError, "estimator: got 'columns', wanted one of"),
        ({"surrogate": "l2"}, ValueError, "surrogate: got 'l2', wanted one of"),
        ({"surrogate": "log", "estimator": "column"}, ValueError, "biased for the concave surrogate 'log'"),
        ({"surrogate": "l0", "estimator": "difference"}, ValueError, "wanted 'exact' or 'auto'"),
        ({"width": 0.0}, ValueError, "width: got 0.0"),
        ({"scale": "iqr"}, ValueError, "scale: got 'iqr', wanted 'sd'"),
        ({"scale": torch.ones(K + 1)}, ValueError, r"scale: got shape \(4,\)"),
        ({"z": torch.zeros(1, K)}, ValueError, "z: has one row"),
        ({"z": torch.zeros(K)}, ValueError, r"z: got shape \(3,\), wanted \(row, latent\)"),
        ({"z": torch.zeros(0, K)}, ValueError, r"z: got shape \(0, 3\)"),
        ({"z": torch.zeros(B, K, dtype=torch.long)}, TypeError, "z: got a torch.int64"),
        ({"z": [[1.0]]}, TypeError, "z: got a list"),
        ({"fn": lambda z: z.sum()}, ValueError, r"fn: returned shape \(\)"),
        ({"fn": lambda z: z.T}, ValueError, r"fn: returned shape \(3, 7\).*wanted \(7, 'feature'\)"),
        ({"fn": lambda z: [z]}, TypeError, "fn: returned a list"),
        ({"x_hat": torch.zeros(B, K)}, ValueError, "x_hat: was not computed from this z"),
    ],
)
def test_complaints(change, error, words):
    given = {"fn": lambda z: 2 * z, "z": torch.randn(B, K, requires_grad=True), **change}
    with pytest.raises(error, match=words):
        jacobian_l1(given.pop("fn"), given.pop("z"), **given)
    if "chunk" not in given:
        with pytest.raises(ValueError, match="chunk: got 0"):
            mean_abs_jacobian(lambda z: z, torch.randn(B, K), chunk=0)


def test_only_active_latents_count_and_the_draw_is_unbiased_for_them():
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(6, 9), torch.nn.Tanh(), torch.nn.Linear(9, 4)).double()
    z, active = torch.randn(30, 6, dtype=torch.float64), torch.rand(30, 6) < 0.3
    active[0] = False
    whole = torch.stack([torch.autograd.functional.jacobian(net, row) for row in z])  # (row, feature, latent)
    wanted = (whole.abs() * active.unsqueeze(1)).sum((1, 2)).mean().item()
    exact = jacobian_l1(net, z, estimator="exact", scale=None, active=active).item()
    assert exact == pytest.approx(wanted, rel=1e-10)
    drawn = [jacobian_l1(net, z, scale=None, active=active).item() for _ in range(500)]
    error = torch.tensor(drawn).std().item() / 500**0.5
    assert abs(sum(drawn) / 500 - wanted) < 4 * error < 0.05 * wanted
    everything = jacobian_l1(net, z, estimator="exact", active=torch.ones_like(active)).item()
    assert everything == pytest.approx(jacobian_l1(net, z, estimator="exact").item())
    with pytest.raises(ValueError, match=r"active: got torch.bool of shape \(30, 5\)"):
        jacobian_l1(net, z, active=active[:, :5])
