"""Sequence baselines: every loss against a second computation, the front against what it promises."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy import integrate, stats
from torch.distributions import Independent, Normal, kl_divergence

from pyro_sparse.datasets import transition_data
from pyro_sparse.metrics import mcc, r_score
from pyro_sparse.models import LatentTransition
from pyro_sparse.rivals import SequenceBaseline
from pyro_sparse.rivals import _sequence_losses as losses
from pyro_sparse.rivals.sequences import SEQUENCE_BASELINES

S, T, G, D, A = 40, 3, 6, 3, 2


def draw(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def arrays(time=T, seed=0):
    return (draw(S, time, width, seed=seed + width).double().numpy() for width in (G, A, D))


# ---- losses ------------------------------------------------------------------------------------------------
def test_gaussian_divergence_is_that_of_torch():
    loc, log_sd, prior_loc, prior_log_sd = draw(4, 5, 2, D)
    q = Independent(Normal(loc, log_sd.exp()), 1)
    p = Independent(Normal(prior_loc, prior_log_sd.exp()), 1)
    found = losses.gaussian_divergence(loc, log_sd, prior_loc, prior_log_sd)
    torch.testing.assert_close(found, kl_divergence(q, p))


def test_gaussian_divergence_by_monte_carlo():
    loc, log_sd, prior_loc, prior_log_sd = 0.5 * draw(4, D, seed=1)
    q, p = Normal(loc, log_sd.exp()), Normal(prior_loc, prior_log_sd.exp())
    z = loc + log_sd.exp() * draw(400_000, D, seed=2)
    wanted = (q.log_prob(z) - p.log_prob(z)).sum(-1).mean().item()
    found = losses.gaussian_divergence(loc, log_sd, prior_loc, prior_log_sd)
    assert found.item() == pytest.approx(wanted, rel=0.01)


def test_the_decomposition_by_loops():
    z, loc, log_sd = draw(3, 7, D).double().numpy()
    total, m = 90, 7
    information = correlation = dimensionwise = 0.0
    for i in range(m):
        joint, own, prior = 0.0, 1.0, 1.0
        marginal = np.zeros(D)
        for j in range(m):
            density = [stats.norm.pdf(z[i, k], loc[j, k], math.exp(log_sd[j, k])) for k in range(D)]
            joint += math.prod(density) / (total * m)
            marginal += np.array(density) / (total * m)
        for k in range(D):
            own *= stats.norm.pdf(z[i, k], loc[i, k], math.exp(log_sd[i, k]))
            prior *= stats.norm.pdf(z[i, k])
        information += math.log(own / joint) / m
        correlation += math.log(joint / marginal.prod()) / m
        dimensionwise += math.log(marginal.prod() / prior) / m
    found = losses.decomposed_divergence(*map(torch.tensor, (z, loc, log_sd)), total)
    assert [part.item() for part in found] == pytest.approx([information, correlation, dimensionwise])


def test_total_correlation_sees_dependent_latents():
    """Beside the constant that the weights leave, it is that of a correlated Gaussian."""
    n, rho = 1000, 0.9
    base = draw(n, 2, seed=3).double()
    mixed = torch.stack([base[:, 0], rho * base[:, 0] + math.sqrt(1 - rho**2) * base[:, 1]], 1)
    log_sd = torch.full_like(base, math.log(0.2))

    def correlation(loc):
        z = loc + 0.2 * draw(n, 2, seed=4)
        return losses.decomposed_divergence(z, loc, log_sd, n).total_correlation.item()

    rho_z = rho / (1 + 0.2**2)
    assert correlation(mixed) - correlation(base) == pytest.approx(-0.5 * math.log(1 - rho_z**2), abs=0.1)


@pytest.mark.parametrize(("apart", "sd"), [(0.0, 1.0), (0.7, 0.3), (-2.0, 1.5), (3.0, 0.01)])
def test_expected_distance_by_integration(apart, sd):
    edges = sorted({apart - 12 * sd, *([0.0] if abs(apart) < 12 * sd else []), apart + 12 * sd})
    wanted = sum(
        integrate.quad(lambda d: abs(d) * stats.norm.pdf(d, apart, sd), a, b)[0]
        for a, b in zip(edges[:-1], edges[1:], strict=True)
    )
    found = losses.expected_distance(torch.tensor(apart).double(), torch.tensor(sd).double())
    assert found.item() == pytest.approx(wanted, rel=1e-6)


def test_laplace_divergence_by_integration():
    """Over the earlier frame's posterior and the later one's, on a grid."""
    rate = 6.0
    loc, log_sd = torch.tensor([[[0.3], [0.1]]]).double(), torch.tensor([[[-1.0], [-0.5]]]).double()
    before, after = (stats.norm(loc[0, t, 0].item(), log_sd[0, t, 0].exp().item()) for t in (0, 1))
    past, now = (q.ppf((np.arange(800) + 0.5) / 800) for q in (before, after))
    log_prior = stats.laplace.logpdf(now[:, None], past, 1 / rate)
    wanted = np.mean(after.logpdf(now)) - log_prior.mean()
    assert losses.laplace_divergence(loc, log_sd, rate).item() == pytest.approx(wanted, abs=5e-3)


def test_laplace_divergence_adds_up_latents_and_keeps_steps_apart():
    loc, log_sd = draw(2, 4, T, D).double()
    found = losses.laplace_divergence(loc, log_sd, 2.0)
    assert found.shape == (4, T - 1)
    one = losses.laplace_divergence(loc[1:2, 1:, :1], log_sd[1:2, 1:, :1], 2.0)
    rest = losses.laplace_divergence(loc[1:2, 1:, 1:], log_sd[1:2, 1:, 1:], 2.0)
    torch.testing.assert_close(found[1, 1:], (one + rest)[0])


def test_contrast_is_the_logistic_loss_of_labelled_pairs():
    now, past = draw(2, 9, D).double()
    permutation = torch.tensor([3, 1, 0, 2, 8, 7, 6, 5, 4])
    regression = lambda a, b: (a * b).sum(-1)  # noqa: E731
    total = 0.0
    for i in range(9):
        total += math.log(1 + math.exp(-float(now[i] @ past[i])))
        total += math.log(1 + math.exp(float(now[i] @ past[permutation[i]])))
    found = losses.permutation_contrast(now, past, permutation, regression)
    assert found.item() == pytest.approx(total / 9)


def test_contrast_is_least_at_the_log_density_ratio():
    """Of a Gaussian autoregression, whose ratio p(z_t | z_{t-1}) / p(z_t) is known."""
    past, noise = draw(2, 50_000, 1, seed=5).double()
    now = 0.8 * past + 0.6 * noise
    permutation = torch.randperm(len(now), generator=torch.Generator().manual_seed(6))

    def loss(scale, shift):
        def regression(a, b):
            ratio = Normal(0.8 * b, 0.6).log_prob(a) - Normal(0.0, 1.0).log_prob(a)
            return scale * ratio[:, 0] + shift

        return losses.permutation_contrast(now, past, permutation, regression)

    best = loss(1.0, 0.0)
    assert all(best < loss(*other) for other in ((0.8, 0.0), (1.2, 0.0), (1.0, 0.15), (1.0, -0.15)))


# ---- methods -----------------------------------------------------------------------------------------------
def rows_of(time=T, actions=True):
    x, a, z = (torch.tensor(part).float() for part in arrays(time))
    return losses.Rows(x, a if actions else None, z)


def network_of(method, rows, **options):
    torch.manual_seed(0)
    kind, defaults = losses.METHODS[method]
    return kind(rows, D, 8, **{**defaults, **options})


def sure(network):
    """Posterior sd nearly 0, so that the draw in a loss does not matter."""
    with torch.no_grad():
        network.encoder.layers.out.weight[..., D : 2 * D] = 0
        network.encoder.layers.out.bias[..., D : 2 * D] = -8
    return network


def misfit_of(network, rows):
    loc, log_sd = network.posterior(rows.x)
    f = network.decoder(loc.reshape(1, -1, D)).reshape(rows.x.shape)
    noise = 0.002 + network.log_noise.exp()
    return loc, log_sd, -Normal(f, noise).log_prob(rows.x).sum((1, 2)).mean()


@pytest.mark.parametrize(("time", "actions", "inputs"), [(T, True, G + A), (T, False, G), (1, True, A)])
def test_ivae_bound_frame_by_frame(time, actions, inputs):
    rows = rows_of(time, actions)
    network = sure(network_of("ivae", rows, units=5))
    loc, log_sd, total = misfit_of(network, rows)
    for s in range(S):
        for t in range(time):
            prior = Normal(torch.zeros(D), torch.ones(D))
            if t or time == 1:
                u = torch.cat(([rows.x[s, t - 1]] if t else []) + ([rows.actions[s, t]] if actions else []))
                assert len(u) == inputs
                out = network.prior(u.view(1, 1, -1))[0, 0]
                prior = Normal(out[:D], out[D:].exp())
            total = total + kl_divergence(Normal(loc[s, t], log_sd[s, t].exp()), prior).sum() / S
    torch.testing.assert_close(network.loss(rows), total, rtol=1e-3, atol=1e-2)


def test_beta_tcvae_is_the_vae_at_one_and_adds_total_correlation():
    rows = rows_of().frames()
    network = sure(network_of("beta_tcvae", rows, beta=1.0))
    loc, log_sd, misfit = misfit_of(network, rows)
    torch.manual_seed(1)
    plain = network.loss(rows)
    torch.manual_seed(1)
    z = loc + log_sd.exp() * torch.randn_like(loc)
    gain = Normal(loc, log_sd.exp()).log_prob(z) - Normal(0.0, 1.0).log_prob(z)
    torch.testing.assert_close(plain, misfit + gain.sum((1, 2)).mean(), rtol=1e-3, atol=1e-2)
    network.beta = 3.0
    torch.manual_seed(1)
    parts = losses.decomposed_divergence(z[:, 0], loc[:, 0], log_sd[:, 0], S * T)
    torch.testing.assert_close(network.loss(rows) - plain, 2 * parts.total_correlation, rtol=1e-3, atol=1e-3)


def test_slow_vae_weighs_first_frame_and_steps():
    rows = rows_of()
    network = sure(network_of("slow_vae", rows, beta=2.0, gamma=3.0, rate=4.0))
    loc, log_sd, misfit = misfit_of(network, rows)
    first = kl_divergence(Normal(loc[:, 0], log_sd[:, 0].exp()), Normal(0.0, 1.0)).sum(-1)
    steps = losses.laplace_divergence(loc, log_sd, 4.0).sum(-1)
    torch.testing.assert_close(
        network.loss(rows), misfit + (2 * first + 3 * steps).mean(), rtol=1e-3, atol=1e-2
    )


def test_pcl_regression_is_a_sum_over_latents():
    """A mixed second difference across latents vanishes, one within a latent does not."""
    network = network_of("pcl", rows_of(), units=8).double()
    now, past = draw(2, 5, D, seed=7).double()

    def mixed(i, j):
        total = 0.0
        for a in (0, 1):
            for b in (0, 1):
                moved, before = now.clone(), past.clone()
                moved[:, i] += a
                before[:, j] += b
                total = total + (-1) ** (a + b) * network.regression(moved, before)
        return total.abs().max().item()

    assert mixed(0, 1) < 1e-9 and mixed(2, 0) < 1e-9
    assert mixed(0, 0) > 1e-4 and mixed(2, 2) > 1e-4


@pytest.mark.parametrize("method", SEQUENCE_BASELINES)
def test_the_same_seed_gives_the_same_latents(method):
    x, a, z = arrays()
    truth = z if method == "supervised" else None
    fits = [
        SequenceBaseline(method, D, seed=s, steps=4, batch_size=16, hidden=8).fit(x, a, truth)
        for s in (0, 0, 1)
    ]
    first, again, other = (fit.transform(x, a) for fit in fits)
    assert first.shape == (S, T, D) and np.isfinite(first).all()
    np.testing.assert_array_equal(first, again)
    assert np.abs(first - other).max() > 1e-3
    history = fits[0].history
    assert list(history.columns) == ["step", "loss"]
    assert len(history) == (0 if method == "random" else 1) and np.isfinite(history["loss"]).all()


def test_a_fit_leaves_the_random_stream_alone():
    x, _, _ = arrays()
    before = torch.get_rng_state()
    SequenceBaseline("beta_tcvae", D, steps=2, hidden=8).fit(x).transform(x)
    assert torch.equal(before, torch.get_rng_state())


@pytest.mark.slow
@pytest.mark.parametrize("method", ["ivae", "slow_vae", "pcl", "beta_tcvae", "mask_off"])
def test_training_lowers_the_loss(method):
    x, _, _ = transition_data("TimeDiag", n=500, d_z=D, d_x=G, seed=0).part("train")
    small = {"batch_size": 64, "hidden": 8, "learning_rate": 0.01}
    fits = [SequenceBaseline(method, D, steps=steps, **small).fit(x) for steps in (1, 100)]
    first, last = (fit.history["loss"].iloc[-1] for fit in fits)
    assert last < first - 0.1


def test_supervised_reads_the_latents_from_a_frame():
    data = transition_data("TimeDiag", n=2000, n_test=500, d_z=D, d_x=G, seed=0)
    x, z, _ = data.part("train")
    fit = SequenceBaseline("supervised", D, steps=200, hidden=32).fit(x, latents=3 * z + 1)
    x, z, _ = data.part("test")
    found = fit.transform(x)
    assert r_score(z.reshape(-1, D), found.reshape(-1, D)) > 0.95
    assert mcc(z.reshape(-1, D), found.reshape(-1, D)).value > 0.95
    truth = 3 * z + 1  # in the units that were given
    assert ((found - truth) ** 2).mean() < 0.1 * truth.var()


def test_mask_off_is_the_dense_program():
    x, a, _ = arrays()
    fit = SequenceBaseline("mask_off", D, steps=3, hidden=8, units=8).fit(x, a)
    assert isinstance(fit.network, LatentTransition) and fit.network.dense
    assert (fit.network.n_actions, fit.network.lags) == (A, 1)
    scaled = torch.tensor((x - x.mean((0, 1))) / x.std((0, 1))).float()
    wanted = fit.network.encoder(scaled.flatten(0, 1))[0][0].reshape(S, T, D)
    np.testing.assert_allclose(fit.transform(x, a), wanted.detach().numpy(), rtol=1e-4, atol=1e-5)
    assert SequenceBaseline("mask_off", D, steps=3, hidden=8).fit(x[:, :1], a[:, :1]).network.lags == 0


# ---- what is refused ---------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"method": "tcvae"}, ValueError, "method: got 'tcvae', wanted one of 'ivae'"),
        ({"method": "slow_vae", "speed": 2}, TypeError, "speed: is no option of 'slow_vae'; it has"),
        ({"method": "random", "beta": 2}, TypeError, "beta: is no option of 'random'; it has none"),
        ({"method": "beta_tcvae", "beta": 0}, ValueError, "beta: got 0, wanted a positive"),
        (
            {"method": "pcl", "n_latents": 0},
            ValueError,
            "n_latents: want a whole number of at least 1, got 0",
        ),
        ({"method": "pcl", "hidden": 2.5}, ValueError, "hidden: want a whole number of at least 1, got 2.5"),
        ({"method": "pcl", "steps": 0}, ValueError, "steps: want a whole number of at least 1, got 0"),
        ({"method": "pcl", "steps": None}, ValueError, "steps: want a whole number of at least 1, got None"),
        ({"method": "pcl", "learning_rate": -1}, ValueError, "learning_rate: want a positive number, got -1"),
    ],
)
def test_bad_settings(options, error, message):
    with pytest.raises(error, match=message):
        SequenceBaseline(**{"n_latents": D, **options})


@pytest.mark.parametrize(
    ("method", "change", "message"),
    [
        ("slow_vae", {"X": lambda x: x[:, :1]}, "X: has T=1, method 'slow_vae' wants T >= 2"),
        ("pcl", {"X": lambda x: x[:, :1]}, "X: has T=1, method 'pcl' wants T >= 2"),
        ("ivae", {"X": lambda x: x[:, :1]}, "X: has T=1, method 'ivae' wants T >= 2 or actions"),
        ("mask_off", {"X": lambda x: x[:, :1]}, "X: has T=1, method 'mask_off' wants T >= 2 or actions"),
        ("pcl", {"X": lambda x: x[0]}, r"X: got shape \(3, 6\), wanted \(sequence, time, column\)"),
        ("pcl", {"X": lambda x: [x[0], x[1, :2]]}, "X: not an array of numbers"),
        ("pcl", {"X": lambda x: np.where(x > 2, np.nan, x)}, r"X: holds nan at \("),
        ("pcl", {"X": lambda x: np.where(np.arange(G) == 2, 1.5, x)}, "X: column 2 is constant"),
        ("ivae", {"actions": lambda x: x[:5]}, r"actions: got shape \(5, 3, 6\), X has \(40, 3, 6\)"),
        ("ivae", {"actions": lambda x: np.full(x.shape, "a")}, "actions: not an array of numbers"),
        ("supervised", {}, "latents: none, method 'supervised' wants the true ones"),
        ("supervised", {"latents": lambda x: x}, "latents: has 6 columns, wanted n_latents=3"),
        ("pcl", {"latents": lambda x: x[..., :D]}, "latents: given, method 'pcl' does not look at them"),
    ],
)
def test_bad_data(method, change, message):
    x, _, _ = arrays()
    data = {"X": x, **{name: make(x) for name, make in change.items()}}
    with pytest.raises(ValueError, match=message):
        SequenceBaseline(method, D, steps=2, hidden=8).fit(**data)


def test_bad_new_data():
    x, a, _ = arrays()
    fit = SequenceBaseline("random", D, hidden=8).fit(x)
    with pytest.raises(ValueError, match="X: has 4 features, the fit had 6"):
        fit.transform(x[..., :4])
    with pytest.raises(ValueError, match=r"actions: got shape \(5, 3, 2\)"):
        fit.transform(x, a[:5])


def test_a_loss_that_runs_away_is_reported():
    x, _, _ = arrays()
    with pytest.raises(FloatingPointError, match="slow_vae: the loss is .* at step .*; lower learning_rate"):
        SequenceBaseline("slow_vae", D, steps=200, hidden=8, learning_rate=1e30).fit(x)
