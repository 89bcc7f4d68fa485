"""Baselines: the VAE's divergence, the divergence of VSC against sampling, scikit-learn called directly."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.integrate import quad
from sklearn.decomposition import NMF, PCA, FactorAnalysis, LatentDirichletAllocation
from torch.distributions import Normal, kl_divergence

from pyro_sparse.data.read import as_table
from pyro_sparse.inference.training.elbo import elbo_by_restart
from pyro_sparse.models import SparseDecoder
from pyro_sparse.rivals import VAE, VSC, Classical, sparse_factor_analysis
from pyro_sparse.rivals.vsc import PseudoInputPrior, ZeroOrNormal


@pytest.fixture(autouse=True)
def one_thread():
    """Small tensors are slower on several threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def two_blocks(n: int = 400, seed: int = 0, noise: float = 0.3) -> np.ndarray:
    """Six features, three for each of two factors."""
    rng = np.random.default_rng(seed)
    z = rng.normal(size=(n, 2))
    w = np.array([[1.0, 0.8, -1.2, 0, 0, 0], [0, 0, 0, 1.5, -0.7, 1.0]])
    return z @ w + noise * rng.normal(size=(n, 6)) + 5.0


def train(model, x, steps: int = 250, n_restarts: int = 2, seed: int = 0):
    torch.manual_seed(seed)
    table = as_table(x, likelihood=model.likelihood)
    model.setup(n_restarts, len(x), missing=table.mask is not None)
    batch = table.batch()
    optimiser = torch.optim.Adam(model.parameters(), 1e-2)
    for step in range(steps):
        part = batch.rows(torch.randint(0, len(x), (100,)))
        model.kl_weight = min(1.0, 0.1 + 2 * step / steps)
        loss = -elbo_by_restart(model.model, model.guide, part, n_restarts).sum() / len(x)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        model.after_step(part, step / steps)
    return batch


# ---- VAE ------------------------------------------------------------------------------------------
@pytest.mark.slow
def test_vae_reconstructs():
    x = two_blocks()
    model = VAE(6, 2)
    batch = train(model, x)
    with torch.no_grad():
        f = model.decode(model.encoder(batch.x)[0], None)
    assert f.shape == (2, 400, 6)
    assert ((f - batch.x) ** 2).mean((1, 2)).max() < 0.2


def test_vae_lets_every_feature_see_every_factor():
    torch.manual_seed(0)
    model = VAE(5, 3)
    model.setup(1)
    slope = torch.autograd.functional.jacobian(lambda z: model.decode(z, None)[0, 0], torch.randn(1, 1, 3))
    assert slope.shape == (5, 1, 1, 3) and (slope != 0).all()


@pytest.mark.parametrize("beta", [0.5, 4.0])
def test_beta_scales_exactly_the_summed_divergence(beta):
    x = torch.as_tensor(two_blocks(40))
    torch.manual_seed(0)
    model = VAE(6, 3)
    model.setup(2)
    model.double()
    batch = as_table(x.numpy(), likelihood=model.likelihood).batch(dtype=torch.float64)

    def bound(weight: float):
        model.beta = weight
        torch.manual_seed(1)
        with torch.no_grad():
            return elbo_by_restart(model.model, model.guide, batch, 2)

    with torch.no_grad():
        mu, sd = model.encoder(batch.x)
    divergence = 0.5 * (mu**2 + sd**2 - 1 - 2 * sd.log()).sum((1, 2))
    np.testing.assert_allclose(bound(1.0) - bound(beta), (beta - 1) * divergence, rtol=1e-9)


def test_beta_is_taken_and_checked():
    assert VAE(6, 2, beta=4.0).beta == 4.0
    assert VAE(6, 2).beta == 1.0
    with pytest.raises(ValueError, match="beta: got 0"):
        VAE(6, 2, beta=0.0)
    with pytest.raises(ValueError, match="n_factors"):
        VAE(6, 6)


@pytest.mark.parametrize("cls", [VAE, VSC])
@pytest.mark.parametrize("n_restarts", [1, 2, 7])
def test_programs_have_the_shapes_of_their_restarts(cls, n_restarts):
    torch.manual_seed(0)
    x = two_blocks(30)
    x[3, 2] = np.nan
    model = cls(6, 2)
    table = as_table(x, likelihood=model.likelihood)
    model.setup(n_restarts, missing=True)
    batch = table.batch()
    bound = elbo_by_restart(model.model, model.guide, batch, n_restarts)
    assert bound.shape == (n_restarts,) and torch.isfinite(bound).all()
    bound.sum().backward()
    for name, p in model.named_parameters():
        assert p.shape[0] == n_restarts, name
        assert p.grad is None or torch.isfinite(p.grad).all(), name


@pytest.mark.parametrize("cls", [VAE, VSC])
@pytest.mark.parametrize("likelihood", ["bernoulli", "poisson", "multinomial"])
def test_programs_take_any_likelihood(cls, likelihood):
    torch.manual_seed(0)
    x = np.random.default_rng(0).integers(0, 2, (30, 6)).astype(float)
    x[0] = 1.0
    model = cls(6, 2, likelihood=likelihood)
    batch = as_table(x, likelihood=model.likelihood).batch()
    model.setup(2)
    assert torch.isfinite(elbo_by_restart(model.model, model.guide, batch, 2)).all()


@pytest.mark.parametrize("cls", [VAE, VSC])
@pytest.mark.parametrize("data_start", [True, False])
def test_start_is_data_driven_or_random(cls, data_start):
    torch.manual_seed(0)
    model = cls(6, 2, data_start=data_start)
    model.setup(3)
    scores, maps, loadings = torch.randn(3, 50, 2), torch.randn(3, 6, 2), torch.randn(3, 6, 2)
    bent = torch.tensor([False, True, False])
    model.start(scores, maps, loadings, torch.arange(6.0), torch.full((3, 1, 6), 0.6), bent)
    np.testing.assert_allclose(model.encoder.skip[:, :6, :2].detach(), maps if data_start else 0 * maps)
    np.testing.assert_allclose(model.decoder.skip.detach(), (loadings if data_start else 0 * loadings).mT)
    np.testing.assert_allclose(model.decoder.intercept[1, 0].detach(), np.arange(6.0))
    noise = model.likelihood.noise_sd().detach()
    small = bent if data_start else torch.ones(3, dtype=torch.bool)
    torch.testing.assert_close(noise[small], torch.full_like(noise[small], model.likelihood.init))
    assert (noise[~small] > 0.2).all()


@pytest.mark.parametrize("cls", [VAE, VSC])
def test_a_start_in_other_units_decodes_the_same_in_these_units(cls):
    unit, x_hat, found = torch.tensor([0.1, 1.0, 3.0, 7.0, 20.0, 0.5]), [], []
    scores, maps, loadings = torch.randn(3, 50, 2), torch.randn(3, 6, 2), torch.randn(3, 6, 2)
    x = torch.randn(50, 6)
    for own in (torch.ones(6), unit):
        torch.manual_seed(0)
        model = cls(6, 2)
        model.setup(3)
        guess = (scores, maps, loadings, torch.zeros(6), torch.full((3, 1, 6), 0.6), torch.zeros(3).bool())
        model.start(*guess, own)
        line = scores @ model.decoder.skip.detach()
        x_hat.append(line / own)
        read = x * own if cls is VSC else x  # which reads features as they are
        found.append(read @ model.encoder.skip[:, :6, :2].detach())
    torch.testing.assert_close(x_hat[1], x_hat[0])
    torch.testing.assert_close(found[1], found[0], rtol=1e-4, atol=1e-4)


# ---- VSC: the distribution --------------------------------------------------------------------------
def test_zero_or_normal_density_sums_to_one():
    d = ZeroOrNormal(torch.tensor(0.4), torch.tensor(-1.0), torch.tensor(0.7))
    slab = quad(lambda v: float(d.log_prob(torch.tensor(v)).exp()), -12, 10, points=[-1.0])[0]
    assert abs(slab + float(d.log_prob(torch.tensor(0.0)).exp()) - 1) < 1e-5


def test_zero_or_normal_draws_have_its_moments_and_zeros():
    torch.manual_seed(0)
    d = ZeroOrNormal(torch.tensor([-1.0, 2.0]), torch.tensor([1.5, -2.0]), torch.tensor([0.5, 1.0]))
    draws = d.sample((200_000,))
    np.testing.assert_allclose((draws != 0).float().mean(0), torch.sigmoid(d.log_odds), atol=5e-3)
    np.testing.assert_allclose(draws.mean(0), d.mean, atol=1e-2)
    np.testing.assert_allclose(draws.var(0), d.variance, rtol=1e-2)
    assert d.expand((3, 2)).sample().shape == (3, 2)


def test_zero_or_normal_gradient_is_that_of_the_mean():
    torch.manual_seed(0)
    log_odds, loc = torch.tensor(0.3, requires_grad=True), torch.tensor(2.0, requires_grad=True)
    d = ZeroOrNormal(log_odds, loc, torch.tensor(0.5))
    got = torch.autograd.grad(d.rsample((200_000,)).mean(), (log_odds, loc))
    want = torch.autograd.grad(d.mean, (log_odds, loc))
    np.testing.assert_allclose(got, want, rtol=0.03)


@pytest.mark.parametrize("log_odds", [-3.0, 0.0, 4.0])
def test_divergence_against_monte_carlo(log_odds):
    torch.manual_seed(0)
    q = ZeroOrNormal(torch.tensor(log_odds), torch.tensor(0.8), torch.tensor(0.4))
    p = ZeroOrNormal(torch.tensor(-0.5), torch.tensor(-0.3), torch.tensor(1.2))
    z = q.sample((400_000,))
    terms = q.log_prob(z) - p.log_prob(z)
    error = 5 * float(terms.std()) / 400_000**0.5
    assert abs(float(kl_divergence(q, p)) - float(terms.mean())) < error + 1e-4


def test_divergence_limits():
    loc, scale = torch.tensor([0.3, -1.0]), torch.tensor([0.5, 2.0])
    on = torch.full((2,), 30.0)
    q, p = ZeroOrNormal(on, loc, scale), ZeroOrNormal(on, torch.zeros(2), torch.ones(2))
    want = kl_divergence(Normal(loc, scale), Normal(torch.zeros(2), torch.ones(2)))
    np.testing.assert_allclose(kl_divergence(q, p), want, rtol=1e-5)
    np.testing.assert_allclose(kl_divergence(q, q), 0.0, atol=1e-7)
    off = ZeroOrNormal(-on, 9 * loc, scale)
    np.testing.assert_allclose(kl_divergence(off, ZeroOrNormal(-on, loc, scale)), 0.0, atol=1e-5)


def test_divergence_from_the_mixture_is_a_bound():
    torch.manual_seed(0)
    q = ZeroOrNormal(torch.randn(1, 4, 3), torch.randn(1, 4, 3), 0.3 + torch.rand(1, 4, 3)).to_event(1)
    parts = ZeroOrNormal(torch.randn(1, 5, 3), torch.randn(1, 5, 3), 0.3 + torch.rand(1, 5, 3))
    log_weight = torch.log_softmax(torch.randn(1, 5), -1)
    prior = PseudoInputPrior(parts, log_weight)
    assert prior.batch_shape == (1, 1) and prior.event_shape == (3,)
    bound = kl_divergence(q, prior.expand((1, 4)))
    z = q.sample((50_000,))
    density = prior.log_prob(z.reshape(1, -1, 3)).reshape(-1, 1, 4)
    exact = (q.log_prob(z) - density).mean(0)
    each = torch.stack(
        [kl_divergence(q, parts.mapped(lambda t, u=u: t[:, u : u + 1]).to_event(1)) for u in range(5)], -1
    )
    assert bound.shape == (1, 4)
    assert (bound > exact - 0.03).all()
    assert (bound <= (each - log_weight.unsqueeze(1)).min(-1).values + 1e-5).all()
    alone = PseudoInputPrior(parts.mapped(lambda t: t[:, :1]), torch.zeros(1, 1))
    np.testing.assert_allclose(kl_divergence(q, alone), each[..., 0], rtol=1e-5)


def test_mixture_draws_match_its_density():
    torch.manual_seed(0)
    parts = ZeroOrNormal(
        torch.tensor([[[2.0], [-2.0]]]), torch.tensor([[[-3.0], [3.0]]]), torch.full((1, 2, 1), 0.5)
    )
    prior = PseudoInputPrior(parts, torch.tensor([[0.3, 0.7]]).log())
    draws = prior.expand((1, 50_000)).sample()
    assert draws.shape == (1, 50_000, 1)
    gamma = torch.sigmoid(torch.tensor(2.0))
    zero = 0.3 * (1 - gamma) + 0.7 * gamma
    np.testing.assert_allclose((draws == 0).float().mean(), zero, atol=0.01)
    np.testing.assert_allclose(prior.log_prob(torch.zeros(1, 1, 1)).exp()[0, 0], zero, rtol=1e-5)
    np.testing.assert_allclose((draws < -1).float().mean(), 0.3 * gamma, atol=0.01)


# ---- VSC: the model ---------------------------------------------------------------------------------
def test_vsc_prior_charges_dense_pseudo_inputs():
    torch.manual_seed(0)
    model = VSC(6, 3, alpha=0.3, n_pseudo=4)
    model.setup(2)
    prior = model.factor_prior()
    used = model.posterior(model.pseudo_inputs).gamma.mean(-1).detach().numpy()
    cost = used * np.log(used / 0.3) + (1 - used) * np.log((1 - used) / 0.7)
    np.testing.assert_allclose(prior.log_weight.detach(), -np.log(4) - 3 * cost, rtol=1e-4)


def test_vsc_encoder_answers_with_the_moments_of_its_posterior():
    torch.manual_seed(0)
    model = VSC(6, 2)
    model.setup(2)
    x = torch.randn(9, 6)
    mean, sd = model.encoder(x)
    q = model.posterior(x)
    np.testing.assert_allclose(mean.detach(), (q.gamma * q.loc).detach(), rtol=1e-6)
    np.testing.assert_allclose(sd.detach() ** 2, q.variance.detach(), rtol=1e-5)


@pytest.mark.slow
def test_vsc_learns_rows_that_use_few_factors():
    rng = np.random.default_rng(0)
    z = np.where(np.arange(400)[:, None] % 2 == [0, 1], 3 + rng.normal(size=(400, 2)), 0.0)
    x = z @ np.array([[1.0, 0.8, -1.2, 0, 0, 0], [0, 0, 0, 1.5, -0.7, 1.0]]) + 0.2 * rng.normal(size=(400, 6))
    model = VSC(6, 2, alpha=0.5)
    batch = train(model, x, steps=400)
    with torch.no_grad():
        q = model.posterior(batch.x)
        f = model.decode(model.encoder(batch.x)[0], None)
    assert ((f - batch.x) ** 2).mean((1, 2)).min() < 0.15
    assert q.gamma.mean((1, 2)).min() < 0.9


@pytest.mark.parametrize(
    ("options", "message"), [({"alpha": 1.0}, "alpha: got 1"), ({"n_pseudo": 0}, "n_pseudo: got 0")]
)
def test_vsc_refuses_impossible_options(options, message):
    with pytest.raises(ValueError, match=message):
        VSC(6, 2, **options)


# ---- linear spike-and-slab factor analysis ----------------------------------------------------------
def test_sparse_factor_analysis_is_the_linear_sparse_decoder():
    model = sparse_factor_analysis(6, 2, likelihood="poisson", factor_cov=False)
    assert isinstance(model, SparseDecoder) and model.likelihood.name == "poisson"
    model.setup(1)
    z = torch.randn(1, 5, 2)
    want = z @ model.weights.mT + model.decoder.intercept
    np.testing.assert_allclose(model.decode(z, model.weights).detach(), want.detach(), rtol=1e-5)
    with pytest.raises(TypeError, match="decoder"):
        sparse_factor_analysis(6, 2, decoder="mlp")


# ---- scikit-learn -----------------------------------------------------------------------------------
def test_factor_analysis_is_scikit_learns_on_z_scores():
    x = two_blocks()
    z = (x - x.mean(0)) / x.std(0)
    want = FactorAnalysis(2, rotation="varimax", random_state=0).fit(z)
    fit = Classical("factor_analysis", 2).fit(x)
    np.testing.assert_allclose(fit.weights[0], want.components_.T)
    np.testing.assert_allclose(fit.transform(x), want.transform(z))
    np.testing.assert_allclose(fit.log_likelihood(x), want.score_samples(z))
    np.testing.assert_allclose(fit.score(x), want.score(z))
    np.testing.assert_allclose(fit.noise_sd, np.sqrt(want.noise_variance_) * x.std(0))
    scores = want.transform(z)
    np.testing.assert_allclose(fit.predict(x), (scores @ want.components_) * x.std(0) + x.mean(0))
    np.testing.assert_allclose(fit.inverse_transform(scores), fit.predict(x))
    assert fit.weights.shape == fit.effects.shape == (1, 6, 2)
    np.testing.assert_allclose(fit.effects[0].sum(1) + want.noise_variance_, 1.0, atol=0.02)
    assert (fit.effects[0].argmax(1)[:3] != fit.effects[0].argmax(1)[3]).all()
    assert fit.factor_names == ["factor 1", "factor 2"] and fit.feature_names[0] == "x1"
    assert len(fit.sample_names) == 400


def test_pca_is_scikit_learns_on_z_scores():
    x = two_blocks()
    z = (x - x.mean(0)) / x.std(0)
    want = PCA(2, random_state=0).fit(z)
    fit = Classical("pca", 2).fit(x)
    np.testing.assert_allclose(fit.transform(x), want.transform(z))
    back = want.inverse_transform(want.transform(z)) * x.std(0) + x.mean(0)
    np.testing.assert_allclose(fit.predict(x), back)
    np.testing.assert_allclose(fit.score(x), want.score(z))
    np.testing.assert_allclose(fit.effects.sum(), want.explained_variance_ratio_.sum() * 6, rtol=1e-2)


def test_nmf_is_scikit_learns():
    x = np.abs(two_blocks()) * [1, 2, 3, 1, 2, 3]
    want = NMF(2, random_state=0, max_iter=1000).fit(x)
    fit = Classical("nmf", 2, max_iter=1000).fit(x)
    np.testing.assert_allclose(fit.transform(x), want.transform(x), atol=1e-6)
    np.testing.assert_allclose(fit.predict(x), want.inverse_transform(want.transform(x)), atol=1e-6)
    assert fit.noise_sd is None and fit.effects.max() <= 1
    with pytest.raises(NotImplementedError, match="hidden cells"):
        fit.score(x)
    with pytest.raises(ValueError, match="column 'x2'.*wants values >= 0"):
        Classical("nmf", 2).fit(x - [0, 50, 0, 0, 0, 0])


def test_lda_is_scikit_learns():
    x = np.random.default_rng(0).poisson([9, 3, 1, 1, 3, 9], (60, 6)).astype(float)
    x[::2] = x[::2, ::-1]
    want = LatentDirichletAllocation(2, random_state=0).fit(x)
    fit = Classical("lda", 2).fit(x)
    theta = want.transform(x)
    topics = want.components_ / want.components_.sum(1, keepdims=True)
    np.testing.assert_allclose(fit.transform(x), theta)
    np.testing.assert_allclose(fit.predict(x), x.sum(1, keepdims=True) * (theta @ topics))
    np.testing.assert_allclose(fit.inverse_transform(theta).sum(1), 1.0)
    with pytest.raises(ValueError, match="whole numbers"):
        Classical("lda", 2).fit(x + 0.5)


def test_missing_cells_are_filled_by_the_conditional_mean():
    x = two_blocks()
    fit = Classical("factor_analysis", 2).fit(x)
    holes = x[:8].copy()
    holes[:, [1, 4]] = np.nan
    mean, sd = x.mean(0), x.std(0)
    w = fit.weights[0]
    cov = w @ w.T + np.diag(fit.estimator.noise_variance_)
    seen = np.array([0, 2, 3, 5])
    z = ((holes - mean) / sd)[:, seen]
    gain = np.linalg.solve(cov[np.ix_(seen, seen)], z.T).T
    np.testing.assert_allclose(fit.transform(holes), gain @ w[seen], atol=1e-3)
    want = (gain @ cov[np.ix_(seen, [1, 4])]) * sd[[1, 4]] + mean[[1, 4]]
    np.testing.assert_allclose(fit.predict(holes)[:, [1, 4]], want, atol=1e-3)
    part = cov[np.ix_(seen, seen)]
    density = -0.5 * ((z * gain).sum(1) + np.linalg.slogdet(2 * np.pi * part)[1])
    np.testing.assert_allclose(fit.log_likelihood(holes), density, rtol=1e-9)


@pytest.mark.parametrize("method", ["factor_analysis", "pca", "nmf"])
def test_fits_with_missing_cells_beat_the_column_means(method):
    x = two_blocks()
    x = x + 5 * (method == "nmf")
    hidden = np.random.default_rng(1).random(x.shape) < 0.15
    holes = np.where(hidden, np.nan, x)
    fit = Classical(method, 3 if method == "nmf" else 2, max_fill=15).fit(holes)
    error = ((fit.predict(holes) - x)[hidden] ** 2).mean()
    naive = ((np.nanmean(holes, 0) - x)[hidden] ** 2).mean()
    assert error < 0.45 * naive, (error, naive)


def test_classical_messages():
    with pytest.raises(ValueError, match="method: got 'ica'.*'factor_analysis'"):
        Classical("ica", 2)
    with pytest.raises(ValueError, match="n_factors: got 6 for n_features=6"):
        Classical("pca", 6).fit(two_blocks())
    fit = Classical("pca", 2).fit(two_blocks())
    with pytest.raises(ValueError, match="5 feature"):
        fit.transform(np.zeros((3, 5)))
