"""`DependencySparsity`: the clean loss is reported, the gradient is the ELBO's plus that of the penalty."""

from __future__ import annotations

import math

import pyro
import pyro.distributions as dist
import pytest
import torch
from pyro.infer import (
    SVI,
    JitTrace_ELBO,
    RenyiELBO,
    Trace_ELBO,
    TraceEnum_ELBO,
    TraceGraph_ELBO,
    TraceMeanField_ELBO,
)
from torch import nn

from pyro_sparse.inference import (
    DependencyPenalty,
    DependencySparsity,
    LatentPenalty,
    mean_abs_jacobian,
    strength_mixture,
)

N, K, G = 12, 2, 4
EXACT = DependencyPenalty(weight=0.3, estimator="exact")


@pytest.fixture(autouse=True)
def own_parameters():
    pyro.clear_param_store()
    yield
    pyro.clear_param_store()


class Program:
    """A linear decoder whose penalty is known: mean |W| times the sd of the latents that were drawn."""

    def __init__(self, total=N, kl_weight=1.0):
        torch.manual_seed(0)
        self.decoder = nn.Linear(K, G)
        self.encoder = nn.Linear(G, K)
        self.x = torch.randn(N, G)
        self.total, self.kl_weight = total, kl_weight
        self.guided, self.decoded, self.drawn = 0, 0, []
        self.decoder.register_forward_hook(lambda *_: setattr(self, "decoded", self.decoded + 1))

    def plate(self):
        return pyro.plate("data", self.total, subsample=torch.arange(N))

    def model(self):
        pyro.module("decoder", self.decoder)
        with self.plate():
            with pyro.poutine.scale(scale=self.kl_weight):
                z = pyro.sample("z", dist.Normal(torch.zeros(K), 1.0).to_event(1))
            pyro.sample("x", dist.Normal(self.decoder(z), 1.0).to_event(1), obs=self.x)

    def guide(self):
        self.guided += 1
        pyro.module("encoder", self.encoder)
        with self.plate(), pyro.poutine.scale(scale=self.kl_weight):
            z = pyro.sample("z", dist.Normal(self.encoder(self.x), 0.5).to_event(1))
        self.drawn.append(z)

    @property
    def parameters(self):
        return [*self.decoder.parameters(), *self.encoder.parameters()]

    def gradients(self, loss, seed=1, **settings):
        """Returned loss and the gradients of one training step."""
        for p in self.parameters:
            p.grad = None
        torch.manual_seed(seed)
        returned = loss.loss_and_grads(self.model, self.guide, **settings)
        return returned, [p.grad.clone() for p in self.parameters]

    def penalty(self, z):
        return (self.decoder.weight.abs().sum(0) * z.std(-2, correction=0).reshape(-1, K).mean(0)).sum()


@pytest.mark.parametrize("kind", [Trace_ELBO, TraceMeanField_ELBO, TraceEnum_ELBO])
@pytest.mark.parametrize(("total", "kl_weight"), [(N, 1.0), (100, 0.25)])
def test_the_loss_is_clean_and_the_gradient_is_not(kind, total, kl_weight):
    program = Program(total, kl_weight)
    options = {"max_plate_nesting": 1, "strict_enumeration_warning": False}
    plain, bare = program.gradients(kind(**options))
    loss = DependencySparsity(program.decoder, kind(**options), dependency=EXACT)
    returned, found = program.gradients(loss)
    assert returned == pytest.approx(plain, rel=1e-6)
    z = program.drawn[-1]
    # z hangs on the encoder: draw it again with a graph of its own
    torch.manual_seed(1)
    z = program.encoder(program.x) + (z - program.encoder(program.x)).detach()
    extra = torch.autograd.grad(total * 0.3 * program.penalty(z), program.parameters, allow_unused=True)
    for before, after, own in zip(bare, found, extra, strict=True):
        own = torch.zeros_like(before) if own is None else own
        torch.testing.assert_close(after, before + own, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(loss.last_penalty, program.penalty(z).detach())
    torch.manual_seed(1)
    assert loss.loss(program.model, program.guide) == pytest.approx(plain, rel=1e-6)


def test_neither_guide_nor_decoder_runs_twice():
    program = Program()
    loss = DependencySparsity(program.decoder, Trace_ELBO(max_plate_nesting=1))
    program.gradients(loss)
    assert (program.guided, program.decoded) == (1, 1)
    program.gradients(DependencySparsity(lambda z: program.decoder(z), Trace_ELBO(max_plate_nesting=1)))
    assert (program.guided, program.decoded) == (2, 3)  # what is no module cannot be watched
    assert len(program.decoder._forward_hooks) == 1  # the test's own


@pytest.mark.parametrize("vectorized", [False, True])
def test_particles_are_averaged(vectorized):
    program = Program()
    elbo = Trace_ELBO(num_particles=3, vectorize_particles=vectorized, max_plate_nesting=1)
    loss = DependencySparsity(program.decoder, elbo, dependency=EXACT)
    program.gradients(loss)
    draws = program.drawn[-1] if vectorized else torch.stack(program.drawn[-3:])
    assert draws.shape[0] == 3
    torch.testing.assert_close(loss.last_penalty, program.penalty(draws).detach())


@pytest.mark.slow
def test_svi_trains_with_it_and_the_penalty_tells():
    found = {}
    for weight in (0.0, 3.0):
        pyro.clear_param_store()
        program = Program()
        loss = DependencySparsity(program.decoder, dependency=DependencyPenalty(weight=weight))
        svi = SVI(program.model, program.guide, pyro.optim.Adam({"lr": 0.02}), loss)
        losses = [svi.step() for _ in range(200)]
        assert all(map(math.isfinite, losses)) and loss.step == 200
        assert math.isfinite(svi.evaluate_loss()) and loss.step == 200
        z = program.encoder(program.x)
        found[weight] = program.penalty(z).detach().item()
    assert found[3.0] < 0.1 * found[0.0]


def test_a_module_of_the_elbo_trains_too():
    program = Program()
    loss = DependencySparsity(program.decoder, dependency=EXACT)
    torch.manual_seed(1)
    loss(nn.Module(), nn.Module())  # pyro's constructor
    value = loss.differentiable_loss(program.model, program.guide)
    value.backward()
    assert all(torch.isfinite(p.grad).all() for p in program.parameters)


def test_warm_up_counts_training_steps():
    seen = []

    class Noted(LatentPenalty):
        def __call__(self, fn, z, x_hat=None):
            seen.append(self.weight)
            return z.sum() * 0.0

        def weight_at(self, progress):
            seen.append(progress)
            return super().weight_at(progress)

    program = Program()
    loss = DependencySparsity(program.decoder, dependency=Noted(2.0, (0.25, 0.75)), steps=4)
    for _ in range(5):
        program.gradients(loss)
    assert seen == [0.0, 0.25, 0.5, 2.0, 0.75, 2.0, 1.0, 2.0]


def test_restarts_are_summed():
    weight = torch.nn.Parameter(torch.ones(3, K, G))

    def model():
        with pyro.plate("run", 3, dim=-2), pyro.plate("data", N, dim=-1):
            z = pyro.sample("z", dist.Normal(torch.zeros(K), 1.0).to_event(1))
            pyro.sample("x", dist.Normal(z @ weight, 1.0).to_event(1), obs=torch.zeros(3, N, G))

    def guide():
        with pyro.plate("run", 3, dim=-2), pyro.plate("data", N, dim=-1):
            pyro.sample("z", dist.Normal(torch.zeros(3, N, K), 1.0).to_event(1))

    plain = DependencyPenalty(weight=1.0, scaled=False, estimator="exact")
    loss = DependencySparsity(lambda z: z @ weight, Trace_ELBO(max_plate_nesting=2), dependency=plain)
    loss.differentiable_loss(model, guide)
    torch.testing.assert_close(loss.last_penalty, torch.tensor(3.0 * K * G))


def scaled(program, factor, annealed=1.0):
    """Model and guide under one scale, as for an ELBO of a row; the latents' part annealed besides."""

    def model():
        with pyro.poutine.scale(scale=factor):
            pyro.module("decoder", program.decoder)
            pyro.sample("tau", dist.Normal(0.0, 1.0), obs=torch.zeros(()))  # of no row: its scale is its own
            with program.plate():
                with pyro.poutine.scale(scale=annealed):
                    z = pyro.sample("z", dist.Normal(torch.zeros(K), 1.0).to_event(1))
                pyro.factor("more", torch.zeros(N))
                pyro.sample("x", dist.Normal(program.decoder(z), 1.0).to_event(1), obs=program.x)

    def guide():
        with pyro.poutine.scale(scale=factor):
            pyro.module("encoder", program.encoder)
            with program.plate(), pyro.poutine.scale(scale=annealed):
                pyro.sample("z", dist.Normal(program.encoder(program.x), 0.5).to_event(1))

    return model, guide


def gradient(program, loss, factor, **options):
    for p in program.parameters:
        p.grad = None
    torch.manual_seed(1)
    loss.loss_and_grads(*scaled(program, factor, **options))
    return torch.cat([p.grad.flatten() for p in program.parameters])


@pytest.mark.parametrize("total", [N, 100])
@pytest.mark.parametrize("annealed", [1.0, 0.25])
def test_a_scaled_elbo_has_a_penalty_scaled_alike(total, annealed):
    """The whole gradient shrinks by the factor, so that the strength beside the ELBO of a row stays."""
    program = Program(total)
    loss = DependencySparsity(program.decoder, Trace_ELBO(max_plate_nesting=1), dependency=EXACT)
    whole = gradient(program, loss, 1.0, annealed=annealed)
    last = loss.last_penalty
    part = gradient(program, loss, 1 / total, annealed=annealed)
    torch.testing.assert_close(total * part, whole, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(loss.last_penalty, last)


def test_rows_that_are_scaled_up_by_hand_count_as_a_subsampled_plate():
    subsampled, by_hand = Program(100), Program(N)
    found = []
    for program, factor in ((subsampled, 1.0), (by_hand, 100 / N)):
        pyro.clear_param_store()
        loss = DependencySparsity(program.decoder, Trace_ELBO(max_plate_nesting=1), dependency=EXACT)
        found.append(gradient(program, loss, factor))
    torch.testing.assert_close(*found, rtol=1e-4, atol=1e-4)


def test_a_deterministic_site_has_no_scale_of_its_own():
    program = Program()

    def model():
        pyro.module("decoder", program.decoder)
        with program.plate():
            z = pyro.sample("z", dist.Normal(torch.zeros(K), 1.0).to_event(1))
            mean = pyro.deterministic("mean", program.decoder(z), event_dim=1)
            with pyro.poutine.scale(scale=1 / N):
                pyro.sample("x", dist.Normal(mean, 1.0).to_event(1), obs=program.x)

    elbo = Trace_ELBO(max_plate_nesting=1)
    found = []
    for scale in (None, 1 / N):
        for p in program.parameters:
            p.grad = None
        torch.manual_seed(1)
        DependencySparsity(program.decoder, elbo, dependency=EXACT, scale=scale).loss_and_grads(
            model, program.guide
        )
        found.append(torch.cat([p.grad.flatten() for p in program.parameters]))
    torch.testing.assert_close(*found)


def test_two_scales_want_a_word():
    program = Program()

    def model():
        pyro.module("decoder", program.decoder)
        with program.plate():
            z = pyro.sample("z", dist.Normal(torch.zeros(K), 1.0).to_event(1))
            pyro.sample("x", dist.Normal(program.decoder(z), 1.0).to_event(1), obs=program.x)
            with pyro.poutine.scale(scale=50.0):
                pyro.sample("label", dist.Normal(0.0, 1.0), obs=torch.zeros(N))

    loss = DependencySparsity(program.decoder, Trace_ELBO(max_plate_nesting=1), dependency=EXACT)
    with pytest.raises(ValueError, match=r"scale: observed sites have different ones, .*'label': 50.*scale="):
        loss.differentiable_loss(model, program.guide)
    elbo = Trace_ELBO(max_plate_nesting=1)
    said = DependencySparsity(program.decoder, elbo, dependency=EXACT, scale=1.0)
    wanted = program.gradients(loss)[1]
    for p in program.parameters:
        p.grad = None
    torch.manual_seed(1)
    said.loss_and_grads(model, program.guide)
    for p, other in zip(program.parameters, wanted, strict=True):  # the labels depend on no parameter
        torch.testing.assert_close(p.grad, other, rtol=1e-4, atol=1e-4)


def test_penalties_of_another_shape_or_not_finite_are_refused():
    class Given(LatentPenalty):
        def __call__(self, fn, z, x_hat=None):
            return answers[self.weight](z)

    answers = {
        1.0: lambda z: z.abs().sum(-1),
        2.0: lambda z: z.abs().sum(),
        3.0: lambda z: 3.0,
        4.0: lambda z: z.sum() * torch.nan,
    }
    program = Program()
    for weight, kind, words in (
        (1.0, ValueError, r"Given returned shape \(12,\) for latents \(12, 2\), wanted \(\).*mean over rows"),
        (3.0, TypeError, "Given returned a float, wanted a tensor"),
        (4.0, FloatingPointError, "dependency: the penalty Given is not finite"),
    ):
        loss = DependencySparsity(program.decoder, Trace_ELBO(max_plate_nesting=1), dependency=Given(weight))
        with pytest.raises(kind, match=words):
            program.gradients(loss)
    many = Trace_ELBO(num_particles=3, vectorize_particles=True, max_plate_nesting=1)
    with pytest.raises(ValueError, match=r"returned shape \(\) for latents \(3, 12, 2\), wanted \(3,\)"):
        program.gradients(DependencySparsity(program.decoder, many, dependency=Given(2.0)))


def test_complaints():
    decoder = nn.Linear(K, G)
    for elbo in (JitTrace_ELBO(), TraceGraph_ELBO(), RenyiELBO(num_particles=2), "elbo"):
        with pytest.raises(TypeError, match=rf"elbo: got a {type(elbo).__name__}, wanted an ELBO"):
            DependencySparsity(decoder, elbo)
    with pytest.raises(TypeError, match="dependency: got a float, wanted a LatentPenalty"):
        DependencySparsity(decoder, dependency=0.05)
    with pytest.raises(ValueError, match="steps: got None, and the penalty warms up"):
        DependencySparsity(decoder, dependency=DependencyPenalty(warm_up=(0.1, 0.5)))
    with pytest.raises(ValueError, match="steps: got 0, wanted"):
        DependencySparsity(decoder, steps=0)
    with pytest.raises(ValueError, match="scale: got 0, wanted a positive number"):
        DependencySparsity(decoder, scale=0)
    program = Program()
    with pytest.raises(ValueError, match="site: the guide has no site 'latent'.*'z'"):
        program.gradients(DependencySparsity(decoder, site="latent"))


@pytest.mark.slow
def test_a_program_of_ones_own_ends_with_its_edges():
    """From `SVI` with the penalty to the slopes and their probabilities, as the concepts show it.

    With 400 rows and a weight of 0.3 half of all seeds end in a mixture of the two factors.
    """
    pyro.set_rng_seed(0)
    truth = torch.tensor([[1, 0], [1, 0], [1, 0], [1, 1], [0, 1], [0, 1], [0, 1], [1, 1]])
    weights = truth * (0.6 + torch.rand(8, 2)) * torch.where(torch.rand(8, 2) < 0.5, -1.0, 1.0)
    x = torch.tanh(torch.randn(1000, 2) @ weights.T) + 0.3 * torch.randn(1000, 8)
    decoder = nn.Sequential(nn.Linear(2, 8), nn.Tanh())
    encoder = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 2))

    def model(x):
        pyro.module("decoder", decoder)
        with pyro.plate("rows", len(x)):
            z = pyro.sample("z", dist.Normal(torch.zeros(2), 1.0).to_event(1))
            pyro.sample("x", dist.Normal(decoder(z), 0.3).to_event(1), obs=x)

    def guide(x):
        pyro.module("encoder", encoder)
        with pyro.plate("rows", len(x)):
            pyro.sample("z", dist.Normal(encoder(x), 0.3).to_event(1))

    penalty = DependencyPenalty(weight=1.0)
    svi = SVI(model, guide, pyro.optim.Adam({"lr": 0.05}), DependencySparsity(decoder, dependency=penalty))
    for _ in range(250):
        svi.step(x)
    strength = mean_abs_jacobian(decoder, encoder(x).detach(), scale="sd").numpy()
    found = strength_mixture(strength / strength.max(1, keepdims=True)).probability > 0.5
    assert any((found[:, order] == truth.numpy()).all() for order in ([0, 1], [1, 0]))
