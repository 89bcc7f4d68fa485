"""The transition's program: its sites, its scale, the fold, what it refuses."""

from __future__ import annotations

import pyro
import pytest
import torch
from pyro import poutine
from torch.distributions import Bernoulli, Normal

from pyro_sparse.data.sequences import as_sequences
from pyro_sparse.inference.training.elbo import elbo_by_restart
from pyro_sparse.likelihoods import Normal as NormalNoise
from pyro_sparse.models import LatentTransition

R, S, T, G, D, A = 2, 12, 4, 6, 3, 2


def batch_of(actions=True, missing=False, seed=0):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(S, T, G, generator=generator).numpy()
    if missing:
        x[0, 1, 2] = float("nan")
        x[1, 2] = float("nan")
    a = torch.randn(S, T, A, generator=generator).numpy() if actions else None
    return as_sequences(x, actions=a).batch()


def model_of(batch, folded=False, **options):
    torch.manual_seed(0)
    shape = {"n_actions": 0 if batch.actions is None else A, "hidden": 8, "units": 8, "gated_units": 4}
    model = LatentTransition(G, D, **{**shape, **options})
    model.setup(R, S, missing=batch.mask is not None)
    if folded:
        axes = torch.linalg.qr(torch.randn(R, D, D))[0] * 1.5
        model.fold(axes, torch.randn(R, D, model.n_inputs))
    return model


@pytest.mark.parametrize("folded", [False, True])
@pytest.mark.parametrize("missing", [False, True])
@pytest.mark.parametrize(("lags", "actions"), [(1, True), (0, True), (2, False)])
def test_model_and_guide_have_the_same_sites(folded, missing, lags, actions):
    batch = batch_of(actions, missing)
    model = model_of(batch, folded, lags=lags)
    with pyro.validation_enabled(True):
        elbo = elbo_by_restart(model.model, model.guide, batch, R)
    assert elbo.shape == (R,)
    guide = poutine.trace(model.guide).get_trace(batch)
    sites = {n for n, s in guide.nodes.items() if s["type"] == "sample"} - {"restart", "run", "data"}
    assert sites == {"z", "sigma2"} | ({"G"} if folded else set())
    assert guide.nodes["z"]["value"].shape == (R, S, T, D)
    assert len(pyro.get_param_store()) == 0


def test_the_dense_bound_by_hand():
    """Likelihood, chain and entropy added up frame by frame, at the guide's own draw."""
    batch = batch_of()
    model = model_of(batch)
    torch.manual_seed(1)
    elbo = elbo_by_restart(model.model, model.guide, batch, R, skip=("sigma2",))
    torch.manual_seed(1)
    q = model.posterior(batch)
    z = q.rsample()
    total = q.entropy().sum(1)
    for s in range(S):
        for t in range(T):
            mean, sd = torch.zeros(R, D), torch.ones(R, D)
            if t:
                inputs = torch.cat([z[:, s, t - 1], batch.actions[s, t].expand(R, A)], -1)
                mean = model.transition(inputs.unsqueeze(1))[:, 0]
                sd = model.log_sd[:, 0].exp()
            total = total + Normal(mean, sd).log_prob(z[:, s, t]).sum(-1)
            f = model.decoder(z[:, s, t].unsqueeze(1))
            total = total + Normal(f, model.likelihood.noise_sd()).log_prob(batch.x[s, t]).sum((1, 2))
    torch.testing.assert_close(elbo, total, rtol=1e-4, atol=1e-2)


def test_a_minibatch_is_scaled_to_all_sequences():
    batch = batch_of()
    model = model_of(batch, folded=True)
    skip = ("G", "sigma2")
    parts = [batch.rows(torch.arange(i, i + 4)) for i in range(0, S, 4)]
    for part in parts:
        assert part.total == S
    with torch.no_grad():
        model.encoder.layers.out.weight[..., D:] = 0  # nearly a point mass: draws do not matter
        model.encoder.layers.out.bias[..., D : 2 * D] = -9
        model.encoder.layers.out.bias[..., 2 * D :] = 0
        model.logits.copy_(torch.where(model.logits > 0, 40.0, -40.0))
    whole = elbo_by_restart(model.model, model.guide, batch, R, skip)
    mean = sum(elbo_by_restart(model.model, model.guide, p, R, skip) for p in parts) / len(parts)
    torch.testing.assert_close(whole, mean, rtol=1e-2, atol=1.0)


def test_the_graph_counts_once():
    """Every sequence draws its own relaxed edges; their divergence is that of one graph."""
    batch = batch_of()
    model = model_of(batch, folded=True)
    with_graph = elbo_by_restart(model.model, model.guide, batch, R, skip=("x", "z", "sigma2"))
    p, eta = torch.sigmoid(model.logits), model.eta.view(-1, 1, 1)
    kl = torch.distributions.kl_divergence(Bernoulli(p), Bernoulli(eta.expand_as(p))).sum((1, 2))
    torch.testing.assert_close(with_graph, -kl, rtol=1e-4, atol=1e-3)
    torch.testing.assert_close(
        elbo_by_restart(model.model, model.guide, batch.rows(torch.arange(3)), R, ("x", "z", "sigma2")),
        -kl,
        rtol=1e-4,
        atol=1e-3,
    )


def test_folding_turns_the_latents_and_nothing_else():
    """Decoder, posterior and entropy: the same frames from latents in other axes."""
    batch = batch_of()
    model = model_of(batch)
    before = model.posterior(batch)
    axes = torch.randn(R, D, D) + 2 * torch.eye(D)
    f = model.decode(before.loc.flatten(1, 2))
    model.fold(axes, torch.zeros(R, D, model.n_inputs))
    after = model.posterior(batch)
    torch.testing.assert_close(after.loc, torch.einsum("rij,rstj->rsti", axes, before.loc))
    cov = before.factor @ before.factor.mT
    turned = axes[:, None, None] @ cov @ axes[:, None, None].mT
    torch.testing.assert_close(after.factor @ after.factor.mT, turned, rtol=1e-3, atol=1e-4)
    torch.testing.assert_close(
        after.entropy(),
        before.entropy() + T * torch.linalg.slogdet(axes)[1].unsqueeze(1),
        rtol=1e-4,
        atol=1e-4,
    )
    torch.testing.assert_close(model.decode(after.loc.flatten(1, 2)), f, rtol=1e-3, atol=1e-3)


def test_constraints_hold_the_gates():
    batch = batch_of(actions=False)
    model = model_of(
        batch, folded=True, lags=1, required_time=[(0, 1)], forbidden_time=[(1, 2)], self_loops="required"
    )
    gates = poutine.trace(model.guide).get_trace(batch).nodes["G"]["value"]
    assert (gates[..., 0, 1] == 1).all()
    assert (gates[..., 1, 2] == 0).all()
    assert (gates.diagonal(dim1=-2, dim2=-1) == 1).all()
    assert ((gates[..., 2, 0] > 0) & (gates[..., 2, 0] < 1)).all()
    assert (model.edge_probability[:, 0, 1] == 1).all()
    assert (model.edge_probability[:, 1, 2] == 0).all()


def test_with_several_lags_edges_are_forbidden_at_each_and_required_at_the_first():
    model = LatentTransition(G, 3, 1, 2, required_time=[(0, 1)], forbidden_time=[(1, 2)])
    assert model.must.nonzero().tolist() == [[0, 1]]
    assert (~model.allowed).nonzero().tolist() == [[1, 2], [1, 5]]
    model = LatentTransition(G, 3, 1, 2, self_loops="forbidden")
    assert (~model.allowed).nonzero().tolist() == [[i, j] for i in range(3) for j in (i, i + 3)]
    assert LatentTransition(G, 3, 1, 2, self_loops="required").must.nonzero().tolist() == [
        [i, i] for i in range(3)
    ]


def test_hard_gates_are_zero_or_one_and_have_slopes():
    batch = batch_of()
    model = model_of(batch, folded=True, hard_gates=True)
    gates = poutine.trace(model.guide).get_trace(batch).nodes["G"]["value"]
    assert set(gates.detach().unique().tolist()) == {0.0, 1.0}
    elbo_by_restart(model.model, model.guide, batch, R).sum().backward()
    assert (model.logits.grad != 0).all()


def test_eta_is_the_mode_of_its_beta_posterior():
    batch = batch_of()
    model = model_of(batch, folded=True, concentration=(2.0, 5.0))
    model.after_step(batch, 0.5)
    p = torch.sigmoid(model.logits.detach())
    grid = torch.linspace(1e-4, 1 - 1e-4, 20_001, dtype=torch.float64)
    for r in range(R):
        s, n = float(p[r].sum()), p[r].numel()
        log = (1 + s) * grid.log() + (4 + n - s) * torch.log1p(-grid)
        assert float(model.eta[r]) == pytest.approx(float(grid[log.argmax()]), abs=1e-3)


def test_the_parts_are_all_parameters_once():
    model = model_of(batch_of())
    parts = {name: {id(p) for p in model.part(name)} for name in ("frames", "dense", "gated", "edges")}
    assert sum(len(own) for own in parts.values()) == len(list(model.parameters()))
    assert set.union(*parts.values()) == {id(p) for p in model.parameters()}
    assert {id(p) for p in model.encoder.parameters()} <= parts["frames"]
    assert parts["edges"] == {id(model.logits)}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_latents": 7}, "n_latents: got 7"),
        ({"n_latents": 0}, "n_latents: want a whole number of at least 1, got 0"),
        ({"n_latents": 2.5}, "n_latents: want a whole number of at least 1, got 2.5"),
        ({"hidden": 0}, "hidden: want"),
        ({"units": 0}, "units: want"),
        ({"gated_units": 1.5}, "gated_units: want"),
        ({"lags": 1.5}, "lags: want a whole number of at least 0, got 1.5"),
        ({"n_actions": -1}, "n_actions: want"),
        ({"lags": 0}, "nothing drives"),
        ({"lags": -1, "n_actions": 1}, "lags: want"),
        ({"self_loops": "some"}, "self_loops: got 'some'"),
        ({"concentration": (0.0, 1.0)}, "concentration"),
        ({"concentration": (1.0, 1.0, 1.0)}, "concentration: got .* wanted two positive numbers"),
        ({"likelihood": "poisson"}, "likelihood: got 'poisson', which reads rows' totals"),
        ({"likelihood": "categorical"}, "likelihood: got 'categorical'"),
        ({"required_time": [(0, 9)]}, r"required_time: edge \(0, 9\)"),
        ({"forbidden_time": [(0, 1)], "lags": 0, "n_actions": 1}, "forbidden_time"),
        ({"required_time": [(0, 0)], "self_loops": "forbidden"}, "also forbidden"),
    ],
)
def test_bad_settings(options, message):
    with pytest.raises(ValueError, match=message):
        LatentTransition(**{"n_features": G, "n_latents": D, **options})


def test_the_default_noise_may_be_smaller_than_that_of_its_name():
    def least(**given):
        likelihood = LatentTransition(4, 2, **given).likelihood
        likelihood.setup(4, 1)
        with torch.no_grad():
            likelihood.log_sigma.fill_(-20.0)
        return likelihood.noise_sd().min().item()

    assert least() == least(likelihood=None) == pytest.approx(0.002, rel=0.05)
    plain = least(likelihood="normal")
    assert plain == least(likelihood=NormalNoise()) == pytest.approx(0.02, rel=0.05)
