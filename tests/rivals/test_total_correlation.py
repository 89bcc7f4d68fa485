"""Total correlation by a density ratio: Gaussians of known total correlation, and the gradients' signs."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

import pyro_sparse as ps
from pyro_sparse.data.read import as_table
from pyro_sparse.inference.table.schedule import Schedule
from pyro_sparse.inference.table.sparse_run import SparseRun
from pyro_sparse.rivals import VAE
from pyro_sparse.rivals.total_correlation import DensityRatio, shuffled


@pytest.fixture(autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def drawn(correlation: torch.Tensor, n: int) -> torch.Tensor:
    """Pairs of each restart's correlation, (restart, n, 2), and a third, independent column."""
    one, other, third = torch.randn(3, len(correlation), n)
    slope = correlation.unsqueeze(1)
    return torch.stack([one, slope * one + (1 - slope**2).sqrt() * other, third], -1)


@pytest.mark.slow
def test_the_total_correlation_of_gaussians_and_its_gradient():
    torch.manual_seed(0)
    correlation = torch.tensor([0.8, -0.6, 0.0])
    ratio = DensityRatio(3, 3, hidden=32, depth=2)
    optimiser = torch.optim.Adam(ratio.parameters(), 3e-3)
    for step in range(500):
        optimiser.param_groups[0]["lr"] = 3e-3 * (1 - step / 500)
        optimiser.zero_grad()
        ratio.loss(drawn(correlation, 400)).sum().backward()
        optimiser.step()
    free = correlation.clone().requires_grad_()
    found = ratio.total_correlation(drawn(free, 20_000))
    found.sum().backward()
    truth = -0.5 * torch.log(1 - correlation**2)
    np.testing.assert_allclose(found.detach(), truth, atol=0.06)
    # The ratio held, the gradient is still that of the total correlation: rho / (1 - rho^2)
    np.testing.assert_allclose(free.grad, correlation / (1 - correlation**2), rtol=0.15, atol=0.1)


def test_each_loss_has_its_own_gradient():
    torch.manual_seed(0)
    ratio = DensityRatio(2, 3, hidden=8)
    z = torch.randn(2, 20, 3, requires_grad=True)
    ratio.total_correlation(z).sum().backward()
    assert z.grad.abs().max() > 0 and all(p.grad is None for p in ratio.parameters())
    z.grad = None
    ratio.loss(z).sum().backward()
    assert z.grad is None and all(p.grad.abs().max() > 0 for p in ratio.parameters())


def test_at_first_nothing_is_known():
    torch.manual_seed(0)
    ratio, z = DensityRatio(4, 5), torch.randn(4, 200, 5)
    assert ratio(z).shape == (4, 200) and ratio.total_correlation(z).abs().max() < 0.05
    torch.testing.assert_close(ratio.loss(z), torch.full((4,), 2 * math.log(2)), rtol=0.01, atol=0.01)


def test_shuffling_keeps_columns_and_nothing_else():
    torch.manual_seed(0)
    z = torch.randn(2, 3000, 1).repeat(1, 1, 3) + torch.tensor([0.0, 10.0, 20.0])
    mixed = shuffled(z)
    torch.testing.assert_close(mixed.sort(1).values, z.sort(1).values)  # the same rows of each column
    for r in range(2):
        off = np.corrcoef(mixed[r].numpy(), rowvar=False) - np.eye(3)
        assert np.abs(off).max() < 0.08  # were all 1
    assert not torch.equal(mixed[0].argsort(0), mixed[1].argsort(0))


def table(n: int = 60) -> np.ndarray:
    rng = np.random.default_rng(0)
    return rng.normal(size=(n, 2)) @ rng.normal(size=(2, 6)) + 0.3 * rng.normal(size=(n, 6))


@pytest.mark.parametrize("gamma", [0.0, 7.0])
def test_the_loss_of_a_step_is_the_negative_elbo_of_a_row_and_gamma_times_it(gamma):
    torch.manual_seed(0)
    model = VAE(6, 2, total_correlation=gamma)
    batch = as_table(table(), likelihood=model.likelihood).batch()
    model.setup(3)
    run = SparseRun(model, batch, None, Schedule(steps=10))
    bound = run._bound(batch)
    extra = run._extra_loss()
    if not gamma:
        assert extra == 0 and not hasattr(model, "ratio")
        return
    torch.manual_seed(1)
    run._bound(batch)
    z = run.decoded[0][1]
    torch.manual_seed(2)
    extra = run._extra_loss()
    torch.manual_seed(2)
    ratio = model.ratio
    joint, product = ratio(z), ratio(shuffled(z.detach()))
    own = -torch.sigmoid(joint).log().mean(1) - torch.sigmoid(-product).log().mean(1)
    torch.testing.assert_close(extra, (gamma * joint.mean(1) + own).sum())
    assert bound.shape == (3,)
    wanted = torch.autograd.grad(gamma * joint.mean(1).sum(), model.encoder.skip, retain_graph=True)[0]
    torch.testing.assert_close(torch.autograd.grad(extra, model.encoder.skip)[0], wanted)


def test_reported_elbos_do_not_contain_it():
    fits = [
        ps.fit(VAE(6, 2, total_correlation=g), table(), restarts=1, steps=1, seed=3, progress=False)
        for g in (1e-9, 1e9)
    ]
    np.testing.assert_allclose(fits[0].history["elbo"], fits[1].history["elbo"], rtol=1e-5)
    assert abs(fits[1].elbo).max() < 1e3


@pytest.mark.slow
def test_steps_are_small_unless_asked_for():
    x = np.random.default_rng(0).normal(size=(60, 6))

    def rate(model, **settings):
        fit = ps.fit(model, x, restarts=1, steps=2, progress=False, **settings)
        return fit.settings["learning_rate"]

    assert rate(VAE(6, 2)) == ps.inference.Schedule().learning_rate
    assert rate(VAE(6, 2, total_correlation=1.0)) == 1e-3
    assert rate(VAE(6, 2, total_correlation=1.0), learning_rate=2e-3) == 2e-3
    assert (
        rate(VAE(6, 2, total_correlation=1.0), schedule=ps.inference.Schedule())
        == ps.inference.Schedule().learning_rate
    )


@pytest.mark.slow
def test_it_makes_dependent_factors_less_dependent():
    """Two sources of a ring: a plain fit keeps them dependent."""
    rng = np.random.default_rng(0)
    angle = rng.uniform(0, 2 * np.pi, 2000)
    x = np.column_stack([np.cos(angle), np.sin(angle)]) @ rng.normal(size=(2, 6))
    x += 0.1 * rng.normal(size=x.shape)

    def dependence(gamma: float) -> float:
        model = VAE(6, 2, total_correlation=gamma)
        fit = ps.fit(model, x, restarts=1, steps=1500, seed=0, progress=False)
        z = np.argsort(np.argsort(fit.transform(x, refine=False), 0), 0) * 8 // len(x)
        joint = np.histogram2d(*z.T, bins=8)[0] / len(x)
        apart = joint.sum(0) * joint.sum(1)[:, None]
        seen = joint > 0
        return float((joint[seen] * np.log(joint[seen] / apart[seen])).sum())

    assert dependence(20.0) < 0.7 * dependence(0.0)


def test_a_negative_weight_is_refused():
    with pytest.raises(ValueError, match="total_correlation: got -1.0, wanted a weight of at least 0"):
        VAE(6, 2, total_correlation=-1.0)
    with pytest.raises(ValueError, match="total_correlation: got inf"):
        VAE(6, 2, total_correlation=math.inf)
