"""The smoother against exact inference: a linear-Gaussian model whose path and frames are jointly normal."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.stats import multivariate_normal

from pyro_sparse.data.sequences import as_sequences
from pyro_sparse.inference.training.elbo import elbo_by_restart, rowwise_elbo
from pyro_sparse.models import LatentTransition

D, G, T = 2, 3, 5
A = np.array([[0.9, 0.3], [-0.3, 0.9]])
C = np.array([[1.0, 0.2], [0.3, -0.8], [0.5, 0.5]])
STEP, NOISE = 0.2, 0.7  # standard deviations: one frame says little, the sequence much


def joint():
    """Covariance of a path's latents, (T D, T D), and the matrix from them to its frames."""
    root = np.zeros((T * D, T * D))
    for t in range(T):
        for s in range(t + 1):
            own = np.linalg.matrix_power(A, t - s) * (STEP if s else 1.0)
            root[t * D : (t + 1) * D, s * D : (s + 1) * D] = own
    return root @ root.T, np.kron(np.eye(T), C)


def simulated(n, missing=0.0, seed=1000):
    rng = np.random.default_rng(seed)
    cov, out = joint()
    z = rng.multivariate_normal(np.zeros(T * D), cov, n)
    x = (z @ out.T + NOISE * rng.standard_normal((n, T * G))).reshape(n, T, G)
    gone = rng.random((n, T)) < missing
    gone[:, 0] &= ~gone.all(1)
    x[gone] = np.nan
    return x


def exact(x):
    """Log-likelihood of each sequence, and the posterior mean of its latents."""
    cov, out = joint()
    likelihood, means = [], []
    for row in x.reshape(len(x), -1):
        own = out[~np.isnan(row)]
        seen = row[~np.isnan(row)]
        around = own @ cov @ own.T + NOISE**2 * np.eye(len(seen))
        likelihood.append(multivariate_normal.logpdf(seen, cov=around))
        means.append(cov @ own.T @ np.linalg.solve(around, seen))
    return np.array(likelihood), np.array(means).reshape(len(x), T, D)


def true_model(smoother, missing):
    """The program with the truth in its decoder, transition and noise; only the guide is to be learned."""
    torch.manual_seed(0)
    model = LatentTransition(G, D, hidden=16, units=2, smoother=smoother)
    model.setup(1, 1, missing=missing)
    both = np.kron([[1.0, -1.0]], np.eye(D))  # u to (u, -u)
    back = both.T / 1.2  # and back: leaky(u) - leaky(-u) = 1.2 u
    layers = model.decoder.layers
    maps = [both, back @ both, back @ both, back @ C.T]
    with torch.no_grad():
        for p in [*model.decoder.parameters(), *model.transition.parameters()]:
            p.zero_()
        for layer, weight in zip([*layers.hidden, layers.out], maps, strict=True):
            layer.weight[0, : len(weight), : weight.shape[1]] = torch.as_tensor(weight, dtype=torch.float32)
        model.transition.line.weight[0] = torch.tensor(A.T, dtype=torch.float32)
        model.log_sd.fill_(np.log(STEP))
        model.likelihood.start_noise(torch.full((1, 1, G), 2 * NOISE))  # it begins at half
    return model


def trained(model, batch, steps):
    own = list(model.encoder.parameters())
    adam = torch.optim.Adam(own)
    rate = torch.optim.lr_scheduler.OneCycleLR(adam, 2e-2, total_steps=steps)
    for _ in range(steps):
        part = batch.rows(torch.randint(len(batch), (128,)))
        loss = -elbo_by_restart(model.model, model.guide, part, 1, ("sigma2",)).sum() / batch.total
        for p, slope in zip(own, torch.autograd.grad(loss, own), strict=True):
            p.grad = slope
        adam.step()
        rate.step()
    return model.eval()


@pytest.mark.slow
@pytest.mark.parametrize("missing", [0.0, 0.3])
def test_the_bound_comes_near_the_exact_likelihood(missing):
    """Within a tenth of a nat a sequence without missing frames; the guide by frame is nats away."""
    x = simulated(600, missing)
    batch = as_sequences(x, standardise=False).batch()
    held = batch.rows(torch.arange(500, 600)).whole()
    likelihood, means = exact(x[500:])
    gap, error = [], []
    for smoother, steps in ((False, 100), (True, 300)):
        model = trained(true_model(smoother, missing > 0), batch.rows(torch.arange(500)).whole(), steps)
        with torch.no_grad():
            bound = rowwise_elbo(model, held, num_draws=10)[0].double().numpy()
            loc = model.posterior(held).loc[0].double().numpy()
        gap.append((likelihood - bound).mean())
        error.append(np.sqrt(((loc - means) ** 2).mean()))
    assert -0.05 < gap[1] < 0.1 * gap[0]  # a bound from below, but for its draws
    assert error[1] < 0.3 * error[0]


def smoother_of(batch, restarts=2):
    torch.manual_seed(0)
    actions = 0 if batch.actions is None else batch.actions.shape[-1]
    model = LatentTransition(G, D, n_actions=actions, hidden=8, units=4, gated_units=4, smoother=True)
    model.setup(restarts, len(batch), missing=True)
    with torch.no_grad():  # far from where it begins, so that everything counts
        model.encoder.answer.weight.normal_()
    return model


@pytest.mark.parametrize("actions", [False, True])
def test_padding_is_not_read(actions):
    """A sequence's latents are the same whether longer ones stand beside it or not."""
    rng = np.random.default_rng(0)
    x = [rng.standard_normal((t, G)) for t in (3, 6, 2)]
    x[1][2] = np.nan
    a = [rng.standard_normal((len(own), 2)) for own in x] if actions else None
    together = as_sequences([*x, *x, *x, *x], actions=a and [*a, *a, *a, *a]).batch()
    model = smoother_of(together)
    q = model.posterior(together)
    assert q.batch_shape == (2, 12) and q.event_shape == (6, D)
    for i, t in enumerate((3, 6, 2)):
        alone = replace(
            together,
            **{
                name: None if (value := getattr(together, name)) is None else value[i : i + 1, :t]
                for name in ("x", "mask", "present", "linked", "actions")
            },
        )
        own = model.posterior(replace(alone, present=None))
        torch.testing.assert_close(q.loc[:, i, :t], own.loc[:, 0], rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(q.entropy()[:, i], own.entropy()[:, 0], rtol=1e-4, atol=1e-4)


def test_every_frame_and_action_is_heard_from_everywhere():
    """Moving one frame, or one action, moves the latents of the first frame and of the last."""
    rng = np.random.default_rng(0)
    batch = as_sequences(rng.standard_normal((4, T, G)), actions=rng.standard_normal((4, T, 1))).batch()
    model = smoother_of(batch)
    before = model.posterior(batch).loc
    for name in ("x", "actions"):
        moved = getattr(batch, name).clone()
        moved[0, 2] += 1
        away = (model.posterior(replace(batch, **{name: moved})).loc - before).abs().sum(-1)
        assert (away[:, 0] > 1e-5).all() and (away[:, 1:] == 0).all()


def test_frames_that_nothing_leads_to_have_no_link():
    rng = np.random.default_rng(0)
    batch = as_sequences(rng.standard_normal((4, T, G))).batch()
    linked = torch.ones(4, T, dtype=torch.bool)
    linked[1, 3] = False
    link = smoother_of(batch).posterior(replace(batch, linked=linked)).link
    assert (link[:, 1, 3] == 0).all() and (link[:, 1, 2] != 0).all() and (link[:, 0, 3] != 0).all()


def test_the_fold_turns_a_smoothed_posterior():
    """Frames decoded from turned draws are those of the draws, and the bound keeps its latents' part."""
    rng = np.random.default_rng(0)
    batch = as_sequences(rng.standard_normal((12, T, G))).batch()
    model = smoother_of(batch)
    before = model.posterior(batch)
    torch.manual_seed(1)
    z = before.rsample()
    f = model.decode(z.flatten(1, 2))
    axes = torch.randn(2, D, D) + 2 * torch.eye(D)
    model.fold(axes, torch.zeros(2, D, model.n_inputs))
    after = model.posterior(batch)
    torch.manual_seed(1)
    turned = after.rsample()
    torch.testing.assert_close(turned, torch.einsum("rij,rstj->rsti", axes, z), rtol=1e-3, atol=1e-3)
    torch.testing.assert_close(model.decode(turned.flatten(1, 2)), f, rtol=1e-3, atol=1e-3)
    grown = T * torch.linalg.slogdet(axes)[1].unsqueeze(1)
    torch.testing.assert_close(after.entropy(), before.entropy() + grown, rtol=1e-4, atol=1e-3)


def test_without_a_past_there_is_nothing_to_smooth():
    with pytest.raises(ValueError, match=r"smoother: got True with lags=0.*set lags=1"):
        LatentTransition(G, D, n_actions=1, lags=0, smoother=True)
