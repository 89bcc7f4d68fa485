"""The bound written out against the same bound traced from the two Pyro programs."""

from __future__ import annotations

from dataclasses import replace

import pyro
import pytest
import torch

from pyro_sparse.data.sequences import as_sequences
from pyro_sparse.inference.training.elbo import elbo_by_restart
from pyro_sparse.inference.transition.transition_elbo import has_closed_form, transition_elbo
from pyro_sparse.inference.transition.transition_run import TransitionRun
from pyro_sparse.inference.transition.transition_schedule import TransitionSchedule
from pyro_sparse.models import LatentTransition

R, S, T, G, D, A = 2, 12, 4, 6, 3, 2


def batch_of(actions, missing):
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(S, T, G, generator=generator).numpy()
    if missing:
        x[0, 1, 2] = float("nan")
        x[1, 2] = float("nan")
        x = [x[0, :3], *x[1:]]
    a = torch.randn(S, T, A, generator=generator).numpy() if actions else None
    if actions and missing:
        a = [a[0, :3], *a[1:]]
    return as_sequences(x, actions=a).batch().rows(torch.arange(5))


def model_of(batch, folded, **options):
    torch.manual_seed(0)
    shape = {"n_actions": 0 if batch.actions is None else A, "hidden": 8, "units": 8, "gated_units": 4}
    model = LatentTransition(G, D, **{**shape, **options})
    model.setup(R, S, missing=batch.mask is not None)
    model.kl_weight = 0.7
    if folded:
        axes = torch.linalg.qr(torch.randn(R, D, D))[0] * 1.5
        model.fold(axes, torch.randn(R, D, model.n_inputs))
    return model


def both(model, batch, skip=()):
    """Value and gradients, traced and written out, from the same random state."""
    found = []
    for bound in (
        lambda: elbo_by_restart(model.model, model.guide, batch, R, skip),
        lambda: transition_elbo(model, batch, skip),
    ):
        torch.manual_seed(1)
        value = bound()
        slopes = torch.autograd.grad(value.sum(), list(model.parameters()), allow_unused=True)
        found.append((value.detach(), [torch.zeros(1) if s is None else s.detach() for s in slopes]))
    return found


@pytest.mark.parametrize("folded", [False, True])
@pytest.mark.parametrize("missing", [False, True])
@pytest.mark.parametrize(
    ("actions", "options"),
    [
        (True, {"lags": 1, "required_time": [(0, 1)], "forbidden_time": [(1, 2)]}),
        (True, {"lags": 0, "heteroscedastic": True}),
        (False, {"lags": 2, "likelihood": "bernoulli"}),
        (False, {"lags": 1, "hard_gates": True}),
    ],
)
def test_it_is_the_bound_of_the_programs(folded, missing, actions, options):
    batch = batch_of(actions, missing)
    if options.get("likelihood") == "bernoulli":
        batch.x.copy_(batch.x > 0)
    model = model_of(batch, folded, **options)
    for skip in ((), ("x", "sigma2"), ("z", "G")):
        (traced, slopes), (direct, own) = both(model, batch, skip)
        torch.testing.assert_close(direct, traced, rtol=1e-5, atol=1e-3)
        for a, b in zip(own, slopes, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4 * float(b.abs().max()) + 1e-6)


def test_fixed_gates_need_no_draw():
    """A graph that is forced is the same in every sequence: the programs draw it all the same."""
    batch = batch_of(actions=False, missing=False)
    model = model_of(batch, folded=True)
    graph = torch.rand(D, D) < 0.5
    model.allowed.copy_(graph)
    model.must.copy_(graph)
    out = model.encoder.layers.out
    with torch.no_grad():  # nearly a point mass: the other draws do not matter
        out.weight[..., D:] = 0
        out.bias[..., D : 2 * D] = -9
        out.bias[..., 2 * D :] = 0
    (traced, slopes), (direct, own) = both(model, batch)
    torch.testing.assert_close(direct, traced, rtol=1e-3, atol=0.5)
    for part in model.part("gated"):
        i = next(i for i, p in enumerate(model.parameters()) if p is part)
        torch.testing.assert_close(own[i], slopes[i], rtol=1e-2, atol=1e-2 * float(slopes[i].abs().max()))


def test_what_is_not_finite_is_named():
    batch = batch_of(actions=False, missing=False)
    model = model_of(batch, folded=False)
    with torch.no_grad():
        model.decoder.layers.out.bias[1] = float("nan")
    with (
        pyro.validation_enabled(False),
        pytest.raises(FloatingPointError, match=r"site 'x' .* in restart\(s\) \[1\]"),
    ):
        transition_elbo(model, batch)


def test_programs_of_a_subclass_are_traced():
    class Own(LatentTransition):
        def guide(self, batch):
            self.traced = True
            super().guide(batch)

    batch = batch_of(actions=False, missing=False)
    torch.manual_seed(0)
    model = Own(G, D, hidden=8, units=8, gated_units=4)
    model.setup(1, S)
    assert not has_closed_form(model)
    other = model_of(batch, folded=False)
    assert has_closed_form(other)
    other.encoder = torch.nn.Identity()
    assert not has_closed_form(other)
    data = batch.whole()
    TransitionRun(model, data, None, TransitionSchedule(steps=1, batch_size=4)).advance()
    assert model.traced


def test_frames_after_the_end_of_a_sequence_count_for_nothing():
    """The guide's entropy and density of a short sequence, beside a longer one and by itself."""
    generator = torch.Generator().manual_seed(0)
    short, long = (torch.randn(t, G, generator=generator).numpy() for t in (3, 5))
    together = as_sequences([short, *[long] * 4]).batch().rows(torch.arange(2))
    alone = as_sequences([short] * 8).batch().rows(torch.arange(2))
    x = together.x[:1, :3]
    alone = replace(alone, x=x.expand(2, -1, -1))  # in the units of both
    model = model_of(together, folded=True)
    padded, whole = model.posterior(together), model.posterior(alone)
    assert padded.batch_shape == (R, 2) and whole.event_shape == (3, D)
    assert torch.allclose(padded.entropy()[:, 0], whole.entropy()[:, 0])
    z = torch.randn(R, 2, 5, D, generator=generator)
    assert torch.allclose(padded.log_prob(z)[:, 0], whole.log_prob(z[:, :, :3])[:, 0])
    assert torch.allclose(padded.expand([R, 2]).entropy(), padded.entropy())
    last = model.posterior(together.rows(torch.tensor([1])))
    assert torch.allclose(padded.entropy()[:, 1], last.entropy()[:, 0])
