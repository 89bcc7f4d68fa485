"""The sparse decoder's programs, constraints and starts."""

from __future__ import annotations

import numpy as np
import pyro
import pyro.distributions as dist
import pytest
import torch
from pyro import poutine

import pyro_sparse as ps
from pyro_sparse.data.read import Batch
from pyro_sparse.inference.training.elbo import elbo_by_restart
from pyro_sparse.models import SparseDecoder

R, N, G, K = 2, 15, 6, 3
NAMES = list("abcdef")


def made(**options):
    torch.manual_seed(0)
    model = SparseDecoder(G, K, hidden=5, encoder_hidden=4, **options)
    model.setup(R, N, feature_names=NAMES)
    return model


def batch_of(total=None):
    x = torch.randn(N, G, generator=torch.Generator().manual_seed(1))
    return Batch(x, x, None, total or N)


def test_sites_and_shapes():
    model, batch = made(), batch_of()
    trace = poutine.trace(model.model).get_trace(batch)
    trace.compute_log_prob()
    shapes = {
        n: s["log_prob"].shape for n, s in trace.nodes.items() if s["type"] == "sample" and "log_prob" in s
    }
    assert shapes["W"] == shapes["sigma2"] == (R,)
    assert shapes["z"] == shapes["x"] == (R, N)
    assert trace.nodes["W"]["value"].shape == (R, G, K) and trace.nodes["z"]["value"].shape == (R, N, K)
    guide = poutine.trace(model.guide).get_trace(batch)
    assert torch.equal(guide.nodes["W"]["value"], model.weights)
    assert set(guide.stochastic_nodes) >= {"W", "z", "sigma2"}
    assert model.edges[0].site == "W" and model.edges[0].dims == ("feature", "factor")


def test_the_program_is_the_formula():
    """Replayed at the guide's draws, the joint density is the sum of its parts, each computed by torch."""
    model, batch = made(decoder="linear"), batch_of()
    guide = poutine.trace(model.guide).get_trace(batch)
    found = poutine.trace(poutine.replay(model.model, trace=guide)).get_trace(batch)
    z, w = guide.nodes["z"]["value"], model.weights
    f = torch.einsum("rnk,rgk->rng", z, w) + model.decoder.intercept
    sd = model.likelihood.noise_sd()
    expected = torch.distributions.Normal(f, sd).log_prob(batch.x).sum()
    expected = expected + torch.distributions.Normal(0.0, 1.0).log_prob(z).sum()
    expected = expected + model.prior.log_density(w).sum()
    expected = (
        expected + model.likelihood.priors()["sigma2"].log_prob(model.likelihood.values()["sigma2"]).sum()
    )
    torch.testing.assert_close(found.log_prob_sum(), expected)


def test_minibatch_scale():
    model = made()
    trace = poutine.trace(model.model).get_trace(batch_of(total=60))
    assert trace.nodes["x"]["scale"] == trace.nodes["z"]["scale"] == 4.0
    assert trace.nodes["W"]["scale"] == 1.0


def test_the_parameter_store_is_never_touched():
    pyro.get_param_store().clear()
    pyro.param("mine", torch.ones(1))
    one, two = made(), made(decoder="linear")
    for model in (one, two):
        model.guide(batch_of())
        model.model(batch_of())
    assert list(pyro.get_param_store().keys()) == ["mine"]
    pyro.get_param_store().clear()


@pytest.mark.parametrize("by_name", [False, True])
def test_constraints_become_masks(by_name):
    def name(j):
        return NAMES[j] if by_name else j

    model = made(
        anchors={name(0): 1, name(5): 2}, required=[(name(1), 0)], forbidden=[(name(2), 2), (name(2), 1)]
    )
    permitted = torch.ones(G, K, dtype=torch.bool)
    permitted[0] = torch.tensor([False, True, False])
    permitted[5] = torch.tensor([False, False, True])
    permitted[2] = torch.tensor([True, False, False])
    assert torch.equal(model.permitted, permitted) and torch.equal(model.allowed, permitted.expand(R, G, K))
    must = torch.zeros(G, K, dtype=torch.bool)
    must[0, 1] = must[5, 2] = must[1, 0] = True
    assert torch.equal(model.must, must)
    assert torch.equal(model.prior.allowed, permitted)
    model.project()
    assert (model.weights[:, ~permitted] == 0).all() and (model.weights[:, permitted] != 0).all()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"required": [(0, 1)], "forbidden": [(0, 1)]}, r"required: edge \('a', 1\) is also forbidden"),
        (
            {"anchors": {"a": 0}, "required": [("a", 1)]},
            r"edge \('a', 1\) is also forbidden or excluded by an anchor",
        ),
        ({"anchors": {"a": 0}, "forbidden": [("a", 0)]}, r"edge \('a', 0\) is also forbidden"),
        ({"forbidden": [("zz", 0)]}, "forbidden: no feature is called 'zz'"),
        ({"required": [(6, 0)]}, r"required: edge \(6, 0\) lies outside 6 features x 3 factors"),
        ({"anchors": {0: 3}}, r"anchors: edge \(0, 3\) lies outside"),
        ({"anchors": {-1: 0}}, r"anchors: edge \(-1, 0\) lies outside"),
    ],
)
def test_impossible_constraints(options, message):
    with pytest.raises(ValueError, match=message):
        made(**options)


def test_names_need_names():
    model = SparseDecoder(G, K, anchors={"a": 0})
    with pytest.raises(ValueError, match="anchors: no feature is called 'a'"):
        model.setup(R)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_factors": 0}, "n_factors: want a whole number of at least 1, got 0"),
        ({"n_factors": 2.5}, "n_factors: want a whole number of at least 1, got 2.5"),
        ({"n_factors": 6}, "n_factors: got 6 for n_features=6; wanted 1 <= n_factors < n_features"),
        ({"n_factors": 2, "n_features": 6.5}, "n_features: want a whole number of at least 1, got 6.5"),
        ({"n_factors": 2, "hidden": 0}, "^hidden: want a whole number of at least 1, got 0"),
        ({"n_factors": 2, "hidden": -3}, "^hidden: want a whole number of at least 1, got -3"),
        ({"n_factors": 2, "hidden": 5.5}, "^hidden: want a whole number of at least 1, got 5.5"),
        ({"n_factors": 2, "encoder_hidden": 0}, "encoder_hidden: want a whole number of at least 1, got 0"),
        ({"n_factors": 2, "prior": "cauchy"}, "prior is 'cauchy'; it must be one of"),
        ({"n_factors": 2, "decoder": "tree"}, "decoder: got 'tree', wanted 'mlp' or 'linear'"),
        ({"n_factors": 2, "likelihood": "gamma"}, "likelihood='gamma' is not known. Use one of 'normal'"),
    ],
)
def test_impossible_models(options, message):
    with pytest.raises(ValueError, match=message):
        SparseDecoder(**{"n_features": G, **options})


def test_a_prior_by_name_by_instance_and_never_a_class():
    assert isinstance(SparseDecoder(G, K, prior="laplace").prior, ps.priors.Laplace)
    own = ps.priors.Laplace()
    assert SparseDecoder(G, K, prior=own).prior is own
    with pytest.raises(TypeError, match=r"prior is the class Laplace; make an instance of it: Laplace\(\)"):
        SparseDecoder(G, K, prior=ps.priors.Laplace)
    with pytest.raises(
        TypeError, match=r"likelihood is the class Normal; make an instance of it: Normal\(\)"
    ):
        SparseDecoder(G, K, likelihood=ps.likelihoods.Normal)


@pytest.mark.parametrize(
    "options",
    [
        {"required": ["alcohol"]},
        {"required": ["ab"]},
        {"required": 3},
        {"forbidden": [(0, 1, 2)]},
        {"forbidden": {0: 1}},
    ],
)
def test_edges_are_pairs(options):
    with pytest.raises(TypeError, match=r"(required|forbidden): want pairs \(feature, factor\), such as"):
        SparseDecoder(G, K, **options)


@pytest.mark.parametrize(
    "options",
    [
        {"anchors": {0: "factor 1"}},
        {"anchors": {1.5: 0}},
        {"anchors": {0: 1.5}},
        {"anchors": {True: 0}},
        {"required": np.array([[0.0, 1.0]])},
    ],
)
def test_positions_are_whole_numbers(options):
    with pytest.raises(TypeError, match=r"(anchors|required): got the edge \(.*, wanted a feature by"):
        SparseDecoder(G, K, **options).setup(2, 50)


def test_anchors_want_a_mapping():
    with pytest.raises(TypeError, match=r"anchors: want a mapping of feature to factor, .* got \[0, 3\]"):
        SparseDecoder(G, K, anchors=[0, 3])


def begin(model, scores, maps, loadings, intercept, bent=(False,) * R):
    model.start(scores, maps, loadings, intercept, torch.full((R, 1, G), 0.5), torch.tensor(bent))


def start_of(model, seed=0, k=K, bent=(False,) * R):
    generator = torch.Generator().manual_seed(seed)
    scores = torch.randn(R, N, K, generator=generator)
    maps = torch.randn(R, G, K, generator=generator)
    loadings = torch.randn(R, G, K, generator=generator).clamp(-0.9, 0.9)
    for part in (scores, maps, loadings):
        part[..., k:] = 0
    begin(model, scores, maps, loadings, torch.arange(G, dtype=torch.float), bent)
    return scores, maps, loadings


def test_project_keeps_rows_at_a_maximum_of_one():
    model = made()
    with torch.no_grad():
        model.weights.normal_()
        model.weights[:, 3] = 0
    model.project()
    largest = model.weights.abs().amax(-1)
    assert torch.allclose(largest[:, [0, 1, 2, 4, 5]], torch.ones(R, 5))
    assert (largest[:, 3] == 0).all()
    linear = made(decoder="linear")
    with torch.no_grad():
        linear.weights.normal_()
    before = linear.weights.clone()
    linear.project()
    assert torch.equal(linear.weights, before)


@pytest.mark.parametrize(("decoder", "bent"), [("mlp", False), ("mlp", True), ("linear", False)])
def test_a_start_in_other_units_decodes_the_same_in_these_units(decoder, bent):
    unit, guess = torch.tensor([0.1, 1.0, 3.0, 7.0, 20.0, 0.5]), torch.Generator().manual_seed(0)
    x_hat, noise = [], []
    for own in (torch.ones(G), unit):
        torch.manual_seed(1)
        model = made(decoder=decoder)
        guess.manual_seed(0)
        scores, maps, loadings = (torch.randn(R, n, K, generator=guess) for n in (N, G, G))
        model.start(
            scores,
            maps,
            loadings / 3,
            torch.zeros(G),
            torch.full((R, 1, G), 0.9),
            torch.tensor([bent] * R),
            own,
        )
        x_hat.append(model.decode(scores, model.weights).detach() / own)
        noise.append(model.likelihood.noise_sd().detach() / own)
    torch.testing.assert_close(x_hat[1], x_hat[0], rtol=1e-4, atol=1e-5)
    assert x_hat[0].abs().max() > 0.5
    if not bent:  # but for a floor
        torch.testing.assert_close(noise[1][..., 1:5], noise[0][..., 1:5], rtol=0.05, atol=0)


@pytest.mark.parametrize("decoder", ["mlp", "linear"])
def test_start_writes_the_guess(decoder):
    model = made(decoder=decoder)
    _, maps, loadings = start_of(model)
    torch.testing.assert_close(model.encoder.skip.detach(), maps)
    torch.testing.assert_close(model.decoder.intercept[0, 0].detach(), torch.arange(G, dtype=torch.float))
    if decoder == "linear":
        torch.testing.assert_close(model.weights.detach(), loadings)


def test_a_start_is_straight_or_bent():
    """Straight: slope times weight is the loading, half the residual is noise, factors correlate."""
    model = made()
    scores, _, loadings = start_of(model, bent=(False, True))
    effective = (model.weights * model.decoder.slope).detach()
    guess = torch.where(loadings < 0, -1.0, 1.0) * loadings.abs().clamp(min=0.1)
    torch.testing.assert_close(effective[0], guess[0])
    assert (model.decoder.slope[1] == 0).all()
    assert (model.weights[1] > 0).all() and (model.weights.amax(-1)[1] == 1).all()
    torch.testing.assert_close(
        model.weights[1].detach(), guess[1].abs() / guess[1].abs().amax(-1, keepdim=True)
    )
    noise = model.likelihood.noise_sd().detach()
    torch.testing.assert_close(noise[0], torch.full((1, G), 0.25), rtol=0.02, atol=0.0)
    torch.testing.assert_close(noise[1], torch.full((1, G), model.likelihood.init))
    moment = 0.9 * scores[0].T @ scores[0] / N
    torch.testing.assert_close(model.factor_cov[0], moment - torch.diag(moment.diagonal()) + torch.eye(K))
    assert torch.equal(model.factor_cov[1], torch.eye(K))


def test_start_with_fewer_factors_closes_the_others():
    model = made()
    start_of(model, k=2)
    assert (model.weights[..., 2] == 0).all() and not model.allowed[..., 2].any()
    assert model.allowed[..., :2].all()
    model = made(required=[(0, 0), (0, 1), (0, 2)])  # a required edge stays, even to a factor without a guess
    start_of(model, k=2)
    assert (model.allowed.sum(1).sort(1).values == torch.tensor([1, G, G])).all()
    assert model.allowed[:, 0].all()


def test_start_seats_guesses_where_the_constraints_want_them():
    model = made(decoder="linear", anchors={0: 2, 1: 2, 3: 0, 4: 0})
    loadings = torch.zeros(R, G, K)
    loadings[0, [0, 1], 0] = loadings[0, [3, 4], 1] = loadings[0, [2, 5], 2] = 0.9
    loadings[1, [0, 1], 1] = loadings[1, [3, 4], 2] = loadings[1, [2, 5], 0] = -0.9
    scores = torch.arange(1.0, K + 1).expand(R, N, K)
    begin(model, scores, loadings.clone(), loadings, torch.zeros(G))
    expected = torch.zeros(G, K)
    expected[[0, 1], 2] = expected[[3, 4], 0] = expected[[2, 5], 1] = 0.9
    torch.testing.assert_close(model.weights.detach(), torch.stack([expected, -expected]))
    torch.testing.assert_close(model.encoder.skip.detach(), torch.stack([expected, -expected]))


def test_factor_correlation_follows_the_posterior_moments():
    model, batch = made(), batch_of()
    model.factor_cov_rate = 1.0
    model.after_step(batch, progress=0.05)
    assert torch.equal(model.factor_cov, torch.eye(K).expand(R, K, K))  # not at first
    model.after_step(batch, progress=0.5)
    location, sd = (part.detach() for part in model.encode(batch))
    for r in range(R):
        moment = location[r].T @ location[r] / N + torch.diag((sd[r] ** 2).mean(0))
        root = moment.diagonal().sqrt()
        torch.testing.assert_close(model.factor_cov[r], moment / torch.outer(root, root))
    fixed = made(factor_cov=False)
    fixed.after_step(batch, progress=0.5)
    assert torch.equal(fixed.factor_cov, torch.eye(K).expand(R, K, K))


def test_state_dict_round_trip():
    one = made(likelihood="negative_binomial", anchors={0: 1})
    with torch.no_grad():
        one.weights.normal_()
        one.prior.eta.fill_(0.1)
    two = made(likelihood="negative_binomial", anchors={0: 1})
    two.load_state_dict(one.state_dict())
    for (name, a), (_, b) in zip(one.state_dict().items(), two.state_dict().items(), strict=True):
        assert torch.equal(a, b), name


class Scaled(ps.priors.Prior):
    """Laplace weights whose scale is a site of its own: a hierarchical prior as a plain Pyro program."""

    def allocate(self):
        self.log_scale = torch.nn.Parameter(torch.zeros(self.n_restarts))

    def distribution(self):
        scale = self.log_scale.exp().reshape(-1, 1, 1)
        return dist.Laplace(torch.zeros_like(scale), scale)

    def forward(self):
        tau = pyro.sample("tau", dist.HalfCauchy(torch.ones_like(self.log_scale)))
        scale = tau.reshape(-1, 1, 1).expand(self.shape)
        return pyro.sample(self.site, dist.Laplace(0.0, scale).to_event(2))

    def guide(self):
        pyro.sample("tau", dist.LogNormal(self.log_scale, 0.1 * torch.ones_like(self.log_scale)))


def test_a_prior_with_sites_of_its_own():
    model, batch = made(prior=Scaled()), batch_of()
    elbo = elbo_by_restart(model.model, model.guide, batch, R)
    assert elbo.shape == (R,)
    elbo.sum().backward()
    assert (model.prior.log_scale.grad != 0).all()
    data = ps.datasets.sim1(n=100, seed=1)
    model = SparseDecoder(7, 2, prior=Scaled(), hidden=5, encoder_hidden=4)
    fit = ps.fit(model, data.x, restarts=2, n_factors_init=[2, 2], steps=30, progress=False)
    assert (fit.model.prior.log_scale != 0).all() and fit.model.prior.log_scale.shape == (2,)
    assert fit.weights.shape == (2, 7, 2)


class LearnedRate(ps.priors.Prior):
    """Laplace weights whose rate is a parameter with a gamma density; `exact` says how W is shrunk."""

    shape_of_rate, rate_of_rate = 20.0, 5.0

    def __init__(self, exact):
        super().__init__()
        self.exact = exact

    def allocate(self):
        self.log_rate = torch.nn.Parameter(torch.zeros(self.n_restarts))

    def distribution(self):
        scale = (-self.log_rate).exp().reshape(-1, 1, 1)
        return dist.Laplace(torch.zeros_like(scale), scale)

    def log_hyper(self):  # of the rate's logarithm
        return self.shape_of_rate * self.log_rate - self.rate_of_rate * self.log_rate.exp()

    def prox(self, weights, step):
        if not self.exact:
            return None
        shrunk = weights.abs() - step * self.log_rate.exp().reshape(-1, 1, 1)
        return weights.sign() * shrunk.clamp(min=0.0)


@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.slow
def test_a_parameter_of_the_prior_goes_where_its_posterior_is_highest(exact):
    data = ps.datasets.sim1(n=100, seed=1)
    model = SparseDecoder(7, 2, prior=LearnedRate(exact), decoder="linear", encoder_hidden=4)
    settings = dict(restarts=2, n_factors_init=[2, 2], steps=600, progress=False)
    fit = ps.fit(model, data.x, **settings)
    prior, weights = fit.model.prior, fit.model.weights.detach()
    n = weights[0].numel()
    mode = (n + prior.shape_of_rate) / (weights.abs().sum((1, 2)) + prior.rate_of_rate)
    torch.testing.assert_close(prior.log_rate.exp().detach(), mode, rtol=0.03, atol=0.0)


def test_a_prior_that_forgets_its_guide_is_told():
    class Forgetful(Scaled):
        def guide(self):
            return None

    model = made(prior=Forgetful())
    with pytest.raises(ValueError, match="guide: it has no site 'tau'.*does so in Prior.guide"):
        elbo_by_restart(model.model, model.guide, batch_of(), R)


def test_projection_in_one_call_is_that_of_tensors(monkeypatch):
    def projected(compiled):
        torch.manual_seed(0)
        model = SparseDecoder(6, 3, forbidden=[(0, 1)])
        model.setup(2, 20)
        with torch.no_grad():
            for part in model.parameters():
                part.normal_()
            model.weights[1, 2] = 0
            model.held[0, 4] = True
            model.held_weights[0, 4, 1] = 0.5
        monkeypatch.setattr("pyro_sparse.models.sparse_decoder.COMPILED", compiled)
        model.project()
        return model

    by_tensors, by_call = projected(False), projected(True)
    for (name, a), b in zip(by_tensors.named_parameters(), by_call.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=2e-6, atol=1e-7, msg=name)
    assert by_call.weights[0, 4].eq(torch.tensor([0.0, 1.0, 0.0])).all() and by_call.weights[1, 2].eq(0).all()
