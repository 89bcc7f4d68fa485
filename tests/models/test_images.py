"""The VAE of images: its program, its fit, its place beside the penalties."""

from __future__ import annotations

import importlib

import numpy as np
import pytest
import torch

import pyro_sparse as ps
from pyro_sparse.data.read import as_table
from pyro_sparse.inference import DependencyPenalty, jacobian_l1
from pyro_sparse.inference.table.schedule import Schedule
from pyro_sparse.inference.table.sparse_run import SparseRun
from pyro_sparse.inference.training.elbo import elbo_by_restart
from pyro_sparse.inference.training.loop import Run
from pyro_sparse.inference.training.restarts import pick
from pyro_sparse.rivals import VAE, ImageVAE

pytestmark = pytest.mark.usefixtures("hurried_module")


SHAPE = (1, 16, 16)
QUICK = {
    "restarts": 2,
    "steps": 6,
    "evaluate_every": 3,
    "batch_size": 20,
    "learning_rate": 1e-3,
    "progress": False,
}


def images(n: int = 60, seed: int = 0) -> np.ndarray:
    """A floor and a wall, each of some shade, (row, pixel); no pixel nearly a copy of another."""
    rng = np.random.default_rng(seed)
    x = 0.1 * rng.normal(size=(n, *SHAPE))
    x[:, 0, :6] += rng.random((n, 1, 1))
    x[:, 0, 6:] += rng.random((n, 1, 1))
    return x.reshape(n, -1)


def small(k: int = 3, **options) -> ImageVAE:
    return ImageVAE(SHAPE, k, width=4, hidden=8, **options)


def test_the_bound_by_hand():
    """One noise for all pixels, in the images' own units; the divergence summed and weighed."""
    torch.manual_seed(0)
    model = small(beta=3.0)
    batch = as_table(images(), likelihood=model.likelihood).batch()
    np.testing.assert_allclose(batch.x, images(), rtol=1e-5)
    model.setup(2)
    drawn = []
    decode, model.decode = model.decode, lambda z, w: drawn.append(z) or decode(z, w)
    bound = elbo_by_restart(model.model, model.guide, batch, 2)
    location, sd = model.encoder(batch.inputs)
    sigma = model.likelihood.noise_sd()
    assert sigma.shape == (2, 1, 256) and (sigma == sigma[..., :1]).all()
    rows = torch.distributions.Normal(decode(drawn[0], None), sigma).log_prob(batch.x).sum((1, 2))
    divergence = 0.5 * (location**2 + sd**2 - 1 - 2 * sd.log()).sum((1, 2))
    variance = sigma[:, 0, 0] ** 2
    hyper = torch.distributions.InverseGamma(torch.tensor(1.5), torch.tensor(0.015)).log_prob(variance)
    torch.testing.assert_close(bound, rows - 3 * divergence + hyper)


@pytest.mark.parametrize("gamma", [0.0, 2.0])
def test_parameters_have_a_leading_restart_and_one_can_be_picked(gamma):
    torch.manual_seed(0)
    model = small(total_correlation=gamma)
    model.setup(3)
    assert all(p.shape[0] == 3 for p in model.parameters())
    z = torch.randn(3, 5, 3)
    torch.testing.assert_close(pick(model, [2]).decode(z[2:], None), model.decode(z, None)[2:])


@pytest.mark.slow
def test_a_fit_learns_images_and_is_the_same_again(tmp_path):
    settings = {"steps": 400, "batch_size": 32, "learning_rate": 1e-2, "evaluate_every": 400}
    model = ImageVAE(SHAPE, 2, width=8, hidden=16)
    fit = ps.fit(model, images(200), restarts=1, seed=1, progress=False, **settings)
    new = images(100, seed=1)
    assert (new - fit.inverse_transform(fit.transform(new, refine=False))).var() < 0.4 * new.var()
    assert fit.noise_sd.shape == (256,) and np.ptp(fit.noise_sd) == 0
    fit.save(tmp_path / "fit.pt")
    again = ps.load(tmp_path / "fit.pt")
    np.testing.assert_array_equal(again.transform(new, refine=False), fit.transform(new, refine=False))


@pytest.mark.slow
def test_a_fit_resumes_to_the_bit_with_its_total_correlation(tmp_path, monkeypatch):
    def fitted(**options):
        return ps.fit(small(total_correlation=5.0), images(), **QUICK, **options)

    whole, advance, steps = fitted(), Run.advance, []

    def dying(run):
        steps.append(1)
        if len(steps) == 5:
            raise MemoryError
        advance(run)

    with monkeypatch.context() as patch:
        patch.setattr(Run, "advance", dying)
        with pytest.raises(MemoryError):
            fitted(checkpoint=tmp_path / "run.pt", checkpoint_every=2)
    resumed = fitted(checkpoint=tmp_path / "run.pt")
    for (name, a), (_, b) in zip(
        whole.model.state_dict().items(), resumed.model.state_dict().items(), strict=True
    ):
        assert torch.equal(a, b), name


def test_nothing_is_guessed_and_the_encoder_learns_at_once(monkeypatch):
    module = importlib.import_module("pyro_sparse.inference.table.job")
    monkeypatch.setattr(module, "start_of", lambda *a: pytest.fail("a start was sought"))
    ps.fit(small(), images(), **QUICK)
    for model, held in ((small(), 0), (VAE(256, 3), 9), (VAE(256, 3, data_start=False), 0)):
        batch = as_table(images(), likelihood=model.likelihood).batch()
        model.setup(1)
        assert len(SparseRun(model, batch, None, Schedule())._held()) == held


def test_a_penalty_goes_beside_both():
    for model in (small(), small(total_correlation=2.0)):
        fit = ps.fit(model, images(), dependency=DependencyPenalty(weight=1.0), **QUICK)
        assert np.isfinite(fit.elbo).all() and fit.settings["dependency"]["weight"] == 1.0


@pytest.mark.parametrize("likelihood", ["bernoulli", "normal"])
@pytest.mark.filterwarnings("ignore:X. ")
def test_other_likelihoods(likelihood):
    x = (images() > 0.5 + 0.1 * np.random.default_rng(2).normal(size=(60, 256))).astype(float)
    x[:2] = [[0.0], [1.0]]
    fit = ps.fit(small(likelihood=likelihood), x, **QUICK)
    assert np.isfinite(fit.elbo).all()


def test_missing_pixels():
    x = images()
    x[np.random.default_rng(0).random(x.shape) < 0.2] = np.nan
    fit = ps.fit(small(), x, **QUICK)
    assert np.isfinite(fit.elbo).all() and fit.transform(x, refine=False).shape == (60, 3)


# ---- the penalty at the size of images -------------------------------------------------------------------
def test_the_penalty_of_thousands_of_pixels_most_of_which_depend_on_nothing():
    """Of a random column the mean is the exact sum, silent pixels add nothing and have no gradient."""
    torch.manual_seed(0)
    loadings = torch.zeros(3072, 6, dtype=torch.float64)
    loadings[:500] = torch.randn(500, 6, dtype=torch.float64)
    loadings.requires_grad_()
    z = torch.randn(64, 6, dtype=torch.float64) * torch.tensor([1.0, 2.0, 0.5, 1.0, 1.0, 1.0])
    exact = (loadings.detach().abs() * z.std(0, correction=0)).sum()
    found = jacobian_l1(lambda z: z @ loadings.T, z, estimator="exact")
    found.backward()
    torch.testing.assert_close(found.detach(), exact)
    assert torch.isfinite(loadings.grad).all() and (loadings.grad[500:] == 0).all()
    drawn = torch.stack([jacobian_l1(lambda z: z @ loadings.T, z).detach() for _ in range(30)])
    torch.testing.assert_close(drawn.mean(), exact, rtol=0.03, atol=0.0)


def test_the_penalty_of_a_convolutional_decoder_is_safe_from_its_scale():
    """Latents stretched before a decoder that shrinks them: the same penalty; and finite gradients."""
    torch.manual_seed(0)
    model = ImageVAE((2, 16, 16), 4, width=4, hidden=16)
    model.setup(1)
    model.double()
    z = torch.randn(1, 32, 4, dtype=torch.float64)
    plain = jacobian_l1(lambda z: model.decode(z, None), z, estimator="exact")
    stretched = jacobian_l1(lambda z: model.decode(z / 10, None), 10 * z, estimator="exact")
    torch.testing.assert_close(plain, stretched)
    jacobian = torch.autograd.functional.jacobian(lambda z: model.decode(z, None).sum(1), z)[0, :, 0]
    strength = jacobian.abs().mean(1) * z.std(1, correction=0)
    torch.testing.assert_close(plain, strength.sum().unsqueeze(0))
    jacobian_l1(lambda z: model.decode(z, None), z).sum().backward()
    assert all(torch.isfinite(p.grad).all() for p in model.decoder.parameters() if p.grad is not None)
    assert model.decoder.convolutions[0].weight.grad.abs().max() > 0


@pytest.mark.parametrize("shape", [(3, 32), (3, 30, 32), (3, 32, 8), (0, 32, 32)])
def test_images_of_another_shape_are_refused(shape):
    with pytest.raises(ValueError, match=r"shape: got .*, wanted \(channel, row, column\)"):
        ImageVAE(shape, 4)


def test_wrong_settings_are_refused():
    with pytest.raises(ValueError, match="beta: got 0"):
        small(beta=0)
    with pytest.raises(ValueError, match="n_factors"):
        small(0)
    with pytest.raises(ValueError, match="total_correlation: got -2"):
        small(total_correlation=-2)
