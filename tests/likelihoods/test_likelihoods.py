"""Every shipped likelihood passes the battery; the rest is checked against scipy."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import stats

from pyro_sparse.likelihoods import (
    Bernoulli,
    Categorical,
    Likelihood,
    Multinomial,
    NegativeBinomial,
    Normal,
    Poisson,
    get_likelihood,
)
from pyro_sparse.likelihoods.base import NOTHING
from pyro_sparse.likelihoods.counts import MultinomialCounts
from pyro_sparse.testing.likelihood import LikelihoodTestCase

COUNTS = (-1.0, 2.5)


class TestNormal(LikelihoodTestCase):
    def make(self):
        return Normal()


class TestNormalOfOneNoise(LikelihoodTestCase):
    def make(self):
        return Normal(shared=True)


class TestBernoulli(LikelihoodTestCase):
    bad_values = (2.0, -1.0, 0.5)

    def make(self):
        return Bernoulli()


class TestPoisson(LikelihoodTestCase):
    bad_values = COUNTS

    def make(self):
        return Poisson()


class TestPoissonWithoutSizeFactors(TestPoisson):
    def make(self):
        return Poisson(size_factors=False)


class TestNegativeBinomial(LikelihoodTestCase):
    bad_values = COUNTS

    def make(self):
        return NegativeBinomial()


class TestMultinomial(LikelihoodTestCase):
    bad_values = COUNTS

    def make(self):
        return Multinomial()


class TestCategorical(LikelihoodTestCase):
    bad_values = (2.0, -1.0, 0.5)

    def make(self):
        return Categorical()

    def per_row(self, likelihood, n_rows=None):
        return {"exposure": torch.ones(n_rows or self.n_rows, 1, dtype=torch.float64)}


# ---- against scipy ---------------------------------------------------------------------------------------
def test_normal_log_prob_is_scipys():
    likelihood = Normal()
    likelihood.setup(3)
    x, f = torch.randn(5, 3), torch.randn(1, 5, 3)
    want = stats.norm.logpdf(x.numpy(), f[0].numpy(), 0.1).sum(1)
    np.testing.assert_allclose(likelihood.log_prob(f, x)[0].detach(), want, rtol=1e-4)


def test_normal_noise_starts_small_is_floored_and_recovers():
    likelihood = Normal(init=0.1, floor=0.02)
    likelihood.setup(4, 3)
    assert likelihood.log_sigma.shape == (3, 1, 4)
    np.testing.assert_allclose(likelihood.noise_sd().detach(), 0.1, rtol=1e-5)
    with torch.no_grad():
        likelihood.log_sigma.fill_(-20.0)
    noise = likelihood.noise_sd()
    assert (noise > 0.02).all() and (noise < 0.0202).all()
    noise.sum().backward()
    assert (likelihood.log_sigma.grad > 1e-5 * 0.02).all()
    with torch.no_grad():
        likelihood.log_sigma.fill_(1.0)
    np.testing.assert_allclose(likelihood.noise_sd().detach(), np.exp(1.0), rtol=5e-3)


def test_normal_starts_below_a_rough_fits_residual():
    likelihood = Normal(init=0.1)
    likelihood.setup(3, 2)
    rough = torch.tensor([[[0.05, 0.6, 1.0]], [[0.9, 0.15, 0.3]]])
    likelihood.start_noise(rough)
    noise = likelihood.noise_sd()
    assert (noise >= 0.0999).all() and (noise <= rough.clamp(min=0.1001)).all()
    assert noise.grad_fn is not None and noise[0, 0, 1] > noise[0, 0, 0]


def test_normal_starts_at_half_the_residual_where_asked():
    likelihood = Normal(init=0.1)
    likelihood.setup(4)
    likelihood.start_noise(torch.tensor([[[0.05, 0.5, 0.9, 1.0]]]))
    np.testing.assert_allclose(likelihood.noise_sd().detach()[0, 0], [0.1, 0.25, 0.45, 0.5], rtol=0.01)
    likelihood.start_noise(torch.full((1, 1, 4), 0.6), torch.tensor([[[False, True, False, True]]]))
    np.testing.assert_allclose(likelihood.noise_sd().detach()[0, 0], [0.1, 0.3, 0.45, 0.3], rtol=0.01)


def test_normal_of_one_noise_starts_at_half_the_root_mean_square():
    likelihood = Normal(shared=True)
    likelihood.setup(2, 2)
    assert likelihood.log_sigma.shape == (2, 1, 1) and not likelihood.standardise and Normal().standardise
    rough = torch.tensor([[[0.6, 0.8]], [[0.3, 0.3]]])
    likelihood.start_noise(rough)
    noise = likelihood.noise_sd().detach()
    np.testing.assert_allclose(noise, [[[0.25 * 2**0.5] * 2], [[0.15] * 2]], rtol=0.02)
    likelihood.start_noise(2 * rough, torch.tensor([[[True, False]], [[True, True]]]))
    np.testing.assert_allclose(likelihood.noise_sd().detach()[:, 0, 0], [noise[0, 0, 0], 0.3], rtol=0.02)


def test_normal_prior_is_the_documented_penalty():
    likelihood = Normal()
    likelihood.setup(3, 2)
    likelihood.double()  # a log density may be near zero, where single precision has no digits to compare
    with torch.no_grad():
        likelihood.log_sigma.add_(torch.randn(2, 1, 3))
    s2 = likelihood.values()["sigma2"]
    got = likelihood.priors()["sigma2"].log_prob(s2).detach().numpy()
    s2 = s2.detach().numpy().astype(float)
    penalty = (2.5 * np.log(s2) + 0.015 / s2).sum(1)
    assert np.ptp(got + penalty) < 1e-3 * abs(penalty).max()
    np.testing.assert_allclose(got, stats.invgamma.logpdf(s2, 1.5, scale=0.015).sum(1), rtol=1e-4)


@pytest.mark.parametrize("floor, init", [(0.0, 0.1), (0.2, 0.1)])
def test_normal_refuses_impossible_floors(floor, init):
    with pytest.raises(ValueError, match="floor"):
        Normal(init=init, floor=floor)


def test_poisson_uses_the_exposure():
    likelihood = Poisson()
    likelihood.setup(2)
    f = torch.tensor([[[0.3, -0.2], [1.0, 0.5]]], dtype=torch.float64)
    exposure = torch.tensor([[2.0], [0.5]], dtype=torch.float64)
    per_row = {"exposure": exposure}
    x = torch.tensor([[3.0, 0.0], [1.0, 4.0]], dtype=torch.float64)
    rate = exposure.numpy() * np.exp(f[0].numpy())
    want = stats.poisson.logpmf(x.numpy(), rate).sum(1)
    np.testing.assert_allclose(likelihood.log_prob(f, x, None, per_row)[0], want, rtol=1e-9)
    np.testing.assert_allclose(likelihood.mean(f, per_row)[0], rate, rtol=1e-9)


def test_negative_binomial_is_scipys_and_has_the_stated_variance():
    likelihood = NegativeBinomial(init=0.5)
    likelihood.setup(2)
    likelihood.double()
    f = torch.tensor([[[1.0, 2.0]]], dtype=torch.float64)
    x = torch.tensor([[0.0, 11.0]], dtype=torch.float64)
    mu, theta = np.exp([1.0, 2.0]), 1 / likelihood.values()["extra_cv"].detach().numpy()[0] ** 2
    np.testing.assert_allclose(theta, 4.0, rtol=1e-2)  # 1 / 0.5²; the soft range moves it a little
    want = stats.nbinom.logpmf(x.numpy()[0], theta, theta / (theta + mu)).sum()
    np.testing.assert_allclose(likelihood.log_prob(f, x).detach(), want, rtol=1e-9)
    np.testing.assert_allclose(likelihood(f).variance[0, 0].detach(), mu + mu**2 / theta, rtol=1e-9)


def test_negative_binomial_prior_prefers_poisson():
    likelihood = NegativeBinomial(prior_scale=2.0)
    likelihood.setup(3, 2)
    cv = likelihood.values()["extra_cv"]
    got = likelihood.priors()["extra_cv"].log_prob(cv).detach()
    np.testing.assert_allclose(got, stats.halfnorm.logpdf(cv.detach().numpy(), scale=2.0).sum(1), rtol=1e-5)
    with pytest.raises(ValueError, match="prior_scale"):
        NegativeBinomial(prior_scale=0.0)


def test_multinomial_log_prob_is_scipys():
    likelihood = Multinomial()
    likelihood.setup(4)
    f, x = (
        torch.randn(1, 3, 4, dtype=torch.float64),
        torch.tensor([[1, 2, 0, 3], [0, 0, 0, 1], [4, 4, 4, 4.0]]).double(),
    )
    p = torch.softmax(f[0], -1).numpy()
    want = [stats.multinomial.logpmf(row, row.sum(), q) for row, q in zip(x.numpy(), p, strict=True)]
    np.testing.assert_allclose(likelihood.log_prob(f, x)[0], want, rtol=1e-9)


def test_multinomial_counts_draws_whole_rows_of_unequal_totals():
    torch.manual_seed(0)
    logits = torch.tensor([[0.0, 1.0, -1.0], [2.0, 0.0, 0.0]])
    totals = torch.tensor([5.0, 40.0])
    draws = MultinomialCounts(logits, totals).sample((2000,))
    assert (draws == draws.round()).all() and (draws >= 0).all()
    np.testing.assert_array_equal(draws.sum(-1), np.tile(totals, (2000, 1)))
    p = torch.softmax(logits, -1)
    want = totals[:, None] * p * (1 - p)
    np.testing.assert_allclose(draws.var(0), want, rtol=0.15)
    wide = MultinomialCounts(logits, totals).expand((7, 2))
    assert wide.sample().shape == (7, 2, 3)
    np.testing.assert_allclose(wide.mean[3], MultinomialCounts(logits, totals).mean)


def test_categorical_says_how_levels_become_columns():
    levels = np.array([[1.0, 2.0], [3.0, 1.0]])
    message = r"'pet' holds 3 \(row 1\);.*one column for each category \(one-hot\).*one softmax.*get_dummies"
    with pytest.raises(ValueError, match=message) as caught:
        Categorical().check(levels, ["pet", "home"])
    assert "poisson" not in str(caught.value)


def test_categorical_row_of_one_item_is_a_cross_entropy():
    likelihood = get_likelihood("categorical")
    likelihood.setup(5)
    f, which = torch.randn(1, 6, 5), torch.arange(6) % 5
    x = torch.nn.functional.one_hot(which, 5).float()
    want = -torch.nn.functional.cross_entropy(f[0], which, reduction="none")
    np.testing.assert_allclose(likelihood.log_prob(f, x)[0], want, rtol=1e-5)


@pytest.mark.parametrize("cls", [Bernoulli, Poisson, NegativeBinomial, Multinomial])
def test_feature_statistic_is_the_gain_of_changing_one_feature(cls):
    torch.manual_seed(1)
    likelihood = cls()
    likelihood.setup(3)
    likelihood.double()
    reference, f = torch.randn(2, 1, 8, 3, dtype=torch.float64)
    x, mask = (torch.rand(8, 3) < 0.5).double(), torch.rand(8, 3) < 0.8
    exposure = {"exposure": torch.rand(8, 1, dtype=torch.float64) + 0.5}
    with torch.no_grad():
        gain = likelihood.feature_gain(
            likelihood.feature_statistic(f, reference, x, mask, exposure),
            likelihood.feature_statistic(reference, reference, x, mask, exposure),
        )
        for j in range(3):
            changed = reference.clone()
            changed[..., j] = f[..., j]
            want = (
                likelihood.log_prob(changed, x, mask, exposure)
                - likelihood.log_prob(reference, x, mask, exposure)
            ).sum()
            np.testing.assert_allclose(gain[0, j], want, rtol=1e-9)


def test_normal_feature_gain_refits_the_noise():
    torch.manual_seed(1)
    likelihood = Normal()
    likelihood.setup(2)
    x, f, g = torch.randn(3, 1, 50, 2)
    gain = likelihood.feature_gain(
        likelihood.feature_statistic(f, f, x[0]), likelihood.feature_statistic(g, f, x[0])
    )

    def best(prediction):
        r = (x[0] - prediction[0]).numpy()
        return stats.norm.logpdf(r, 0, np.sqrt((r**2).mean(0))).sum(0)

    np.testing.assert_allclose(gain[0], best(f) - best(g), rtol=1e-4)


# ---- exposures and starts --------------------------------------------------------------------------------
def test_size_factors_are_row_totals_over_their_median():
    x = np.array([[1.0, 3.0], [4.0, 4.0], [0.0, 2.0], [0.0, 0.0]])
    likelihood = Poisson(size_factors=True)
    got = likelihood.default_per_row(x)["exposure"]
    assert isinstance(got, np.ndarray) and got.shape == (4, 1)
    np.testing.assert_allclose(got[:3, 0] / got[0, 0], [1.0, 2.0, 0.5])
    np.testing.assert_allclose(got[0, 0], 4 / np.median([4, 8, 2]))
    assert 0 < got[3, 0] < got[2, 0]


def test_size_factors_of_new_rows_use_the_training_yardstick():
    rng = np.random.default_rng(0)
    x = rng.poisson(5.0, (200, 6)).astype(float)
    likelihood = Poisson(size_factors=True)
    likelihood.setup(6)
    whole = likelihood.default_per_row(x)["exposure"]
    np.testing.assert_allclose(likelihood.default_per_row(3 * x[:7])["exposure"], 3 * whole[:7])
    likelihood.setup(6)
    np.testing.assert_allclose(likelihood.default_per_row(x[:7])["exposure"], whole[:7])
    likelihood.calibrate(3 * x)
    np.testing.assert_allclose(likelihood.default_per_row(3 * x)["exposure"], whole)


@pytest.mark.parametrize("missing", [False, True])
def test_a_poisson_row_is_multinomial_given_its_total(missing):
    """Exposures from totals: what f says of a row differs from the multinomial's by a constant."""
    rng = np.random.default_rng(0)
    x = rng.poisson(4.0 * rng.gamma(2, 1 / 2, (30, 1)), (30, 5)).astype(float)
    if missing:
        x[rng.random(x.shape) < 0.2] = np.nan
    x = x[np.nansum(x, 1) > 0]
    f = torch.as_tensor(rng.standard_normal((2, len(x), 5)))
    poisson, multinomial = Poisson(size_factors=True), Multinomial()
    levels = []
    for likelihood in (poisson, multinomial):
        likelihood.setup(5)
        likelihood.double().calibrate(x)
        likelihood.note_per_row([])
        exposure = likelihood.default_per_row(torch.as_tensor(x))
        levels.append(likelihood.log_prob(f, torch.as_tensor(x), None, exposure).numpy())
    difference = levels[0] - levels[1]
    total = np.nansum(x, 1)
    want = np.broadcast_to(stats.poisson.logpmf(total, total), difference.shape)
    np.testing.assert_allclose(difference, want, rtol=1e-6)
    exposure = poisson.default_per_row(torch.as_tensor(x))
    np.testing.assert_allclose(poisson.mean(f, exposure).sum(-1)[0], poisson.totals(x)[:, 0], rtol=1e-6)


def test_rates_that_share_a_total_are_scipys():
    rng = np.random.default_rng(1)
    x = rng.poisson(5.0, (20, 3)).astype(float)
    f, g = torch.as_tensor(rng.standard_normal((2, 1, 20, 3)))
    likelihood = NegativeBinomial(size_factors=True, init=0.5)
    likelihood.setup(3)
    likelihood.double().calibrate(x)
    likelihood.note_per_row([])
    exposure = likelihood.default_per_row(torch.as_tensor(x))
    theta = 1 / likelihood.values()["extra_cv"].detach().numpy()[0] ** 2

    def each(f):
        rate = x.sum(1, keepdims=True) * np.exp(f) / np.exp(f).sum(1, keepdims=True)
        return stats.nbinom.logpmf(x, theta, theta / (theta + rate))

    found = likelihood.log_prob(f, torch.as_tensor(x), None, exposure).detach()
    np.testing.assert_allclose(found[0], each(f[0].numpy()).sum(1), rtol=1e-9)
    given = f, torch.as_tensor(x), None, exposure
    gain = (likelihood.feature_statistic(f, *given) - likelihood.feature_statistic(g, *given)).detach()
    for j in range(3):  # one feature moved, which moves the others' shares too
        moved = f[0].numpy().copy()
        moved[:, j] = g[0, :, j]
        np.testing.assert_allclose(gain[0, j], each(f[0].numpy()).sum() - each(moved).sum(), rtol=1e-9)


def test_totals_are_shared_out_by_few_features_that_plain_counts_fill():
    class Other(Poisson):
        def forward(self, f, per_row=NOTHING):
            return super().forward(2 * f, per_row)

    rng = np.random.default_rng(2)
    narrow, wide = (rng.poisson(3.0, (10, g)).astype(float) for g in (4, 301))
    cases = [(Poisson(True), narrow), (Poisson(True), wide), (Poisson(False), narrow), (Other(True), narrow)]
    for (likelihood, x), shares in zip(cases, [True, False, False, False], strict=True):
        likelihood.setup(x.shape[1])
        likelihood.calibrate(x)
        likelihood.note_per_row(["exposure"])
        assert not likelihood.shares and likelihood.separable
        likelihood.note_per_row([])
        assert likelihood.shares == shares and likelihood.separable != shares


def test_size_factors_survive_missing_cells():
    rng = np.random.default_rng(0)
    mean = np.array([2.0, 50.0, 100.0, 7.0])
    x = rng.poisson(mean * rng.gamma(9.0, 1 / 9.0, (500, 1))).astype(float)
    likelihood = NegativeBinomial()
    whole = likelihood.default_per_row(x)["exposure"]
    holes = x.copy()
    holes[::2, 2] = np.nan
    ratio = likelihood.default_per_row(holes)["exposure"] / whole
    assert 0.97 < np.median(ratio[::2]) < 1.03
    np.testing.assert_allclose(ratio[1::2], 1.0)
    assert Multinomial().default_per_row(x)["exposure"][0, 0] == x[0].sum()


def test_no_size_factors_where_none_are_wanted():
    x = np.array([[1.0, 0.0], [1.0, 1.0]])
    for likelihood in (Normal(), Bernoulli(), Poisson(size_factors=False)):
        assert likelihood.default_per_row(x) == {}
    with pytest.raises(ValueError, match='size_factors: got 2, wanted True, False or "auto"'):
        Poisson(size_factors=2)


def test_starts_are_the_obvious_intercepts():
    rng = np.random.default_rng(0)
    x = rng.poisson([1.0, 10.0], (2000, 2)).astype(float)
    np.testing.assert_allclose(Poisson(size_factors=False).start(x), np.log(x.mean(0)), atol=1e-2)
    share = Multinomial().start(x)
    np.testing.assert_allclose(np.exp(share) / np.exp(share).sum(), x.mean(0) / x.mean(0).sum(), rtol=1e-2)
    y = (x > [0.0, 9.0]).astype(float)
    np.testing.assert_allclose(Bernoulli().start(y), np.log(y.mean(0) / (1 - y.mean(0))), atol=1e-2)
    x[:, 0] -= 3.0
    np.testing.assert_allclose(Normal().start(x), x.mean(0))
    assert np.isfinite(Poisson().start(np.array([[0.0, 3.0], [0.0, 1.0]]))).all()


# ---- by name, and messages -------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("name", "cls"),
    [
        ("normal", Normal),
        ("bernoulli", Bernoulli),
        ("poisson", Poisson),
        ("negative_binomial", NegativeBinomial),
        ("multinomial", Multinomial),
        ("categorical", Categorical),
    ],
)
def test_get_likelihood(name, cls):
    likelihood = get_likelihood(name)
    assert type(likelihood) is cls and likelihood.name == name
    assert likelihood.standardise == (name == "normal")
    assert get_likelihood(likelihood) is likelihood
    assert repr(likelihood) == f"{cls.__name__}({name})"


def test_unknown_likelihood_lists_the_known():
    with pytest.raises(ValueError, match="'gauss' is not known.*'normal'.*'multinomial'"):
        get_likelihood("gauss")


@pytest.mark.parametrize(
    ("name", "value", "fix"),
    [
        ("poisson", -1.0, "raw counts"),
        ("poisson", 0.5, r'raw counts, .* may be a layer: adata.to_df\("counts"\)'),
        ("bernoulli", 3.0, "Recode"),
        ("normal", np.inf, "NaN"),
    ],
)
def test_messages_name_column_value_row_and_mend(name, value, fix):
    x = np.ones((4, 3))
    x[2, 1] = value
    with pytest.raises(ValueError, match=rf"column 'b' holds {value:g} \(row 2\).*{fix}"):
        get_likelihood(name).check(x, ["a", "b", "c"])


def test_objects_that_are_numbers_pass_and_others_do_not():
    Normal().check(np.array([[1, None], [2.0, 3]], dtype=object))
    with pytest.raises(ValueError, match="column 1 holds 'x'.*not a number"):
        Normal().check(np.array([[1, 2], [2.0, "x"]], dtype=object))
    with pytest.raises(ValueError, match="shape"):
        Normal().check(np.ones(3))


def test_the_contract_must_be_filled_in():
    with pytest.raises(NotImplementedError):
        Likelihood()(torch.zeros(1, 1, 1))
    with pytest.raises(NotImplementedError):
        Likelihood().mean(torch.zeros(1, 1, 1))
