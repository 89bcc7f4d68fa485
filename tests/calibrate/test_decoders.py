"""A model as its own simulator: what is drawn follows the prior, and what is inferred has the right shape."""

from __future__ import annotations

import numpy as np
import pytest

import pyro_sparse as ps
from pyro_sparse.calibrate import experiment, sbc
from pyro_sparse.inference import Fit
from pyro_sparse.inference.edges.mcmc.sampler import DecoderPrior, draw_decoder
from pyro_sparse.inference.training.loop import Run

pytestmark = pytest.mark.usefixtures("hurried_module")


SETTINGS = {"steps": 60, "sweeps": 60}


def model(**settings):
    own = {"decoder": "linear", "anchors": {0: 0, 1: 1}, "factor_cov": False, "hidden": 4}
    own["prior"] = ps.priors.SpikeSlabLasso(lambda0=20.0, a=2.0, b=3.0)
    return ps.models.SparseDecoder(7, 2, **(own | settings))


def test_what_is_drawn_follows_the_prior():
    rng = np.random.default_rng(0)
    drawn = [draw_decoder(model(), 12, rng) for _ in range(400)]
    edge, weight = (np.stack([getattr(d, name) for d in drawn]) for name in ("edge", "weight"))
    assert edge[:, :2].mean(0).tolist() == [[1, 0], [0, 1]]
    assert edge[:, 2:].mean() == pytest.approx(2 / 5, abs=0.03)
    own = edge[:, 2:]
    assert np.abs(weight[:, 2:][own]).mean() == pytest.approx(1, rel=0.08)
    assert np.abs(weight[:, 2:][~own]).mean() == pytest.approx(1 / 20, rel=0.08)
    # Edges of a factor share a rate: their number is beta-binomial, wider than binomial.
    assert own.sum(1).var() == pytest.approx(5 * 0.24 * (5 + 5) / (5 + 1), rel=0.15)
    # Without edges a column is its intercept and its noise.
    quiet = np.concatenate([d.x[:, ~d.edge.any(1)].var(0, ddof=1) for d in drawn])
    assert np.median(quiet) < 0.1


@pytest.mark.parametrize(("likelihood", "noise"), [("normal", None), ("poisson", 1.0)])
def test_true_weights_are_standardised_loadings(likelihood, noise):
    """Of a line their square is w^2 over the feature's variance, and the truth has the units of the draws."""
    if likelihood == "poisson":  # what is simulated: rows of one depth
        likelihood = ps.likelihoods.Poisson(size_factors=False)
    drawn = draw_decoder(model(likelihood=likelihood), 4000, np.random.default_rng(3))
    total = drawn.x.var(0) if noise is None else (drawn.weight**2).sum(1) + noise
    np.testing.assert_allclose(drawn.loading, drawn.weight / np.sqrt(total)[:, None], atol=0.05)
    simulate, infer = experiment(model(likelihood=likelihood), n_rows=300, num_draws=20, **SETTINGS)
    truth, x = simulate(np.random.default_rng(2))
    size = np.abs(infer(x, np.random.default_rng(1))["weight"]).mean(0)
    np.testing.assert_allclose(size[[0, 1], [0, 1]], np.abs(truth["weight"])[[0, 1], [0, 1]], atol=0.2)


@pytest.mark.slow
@pytest.mark.parametrize("cut", ["training", "chains"])
def test_what_ctrl_c_cut_short_is_not_ranked(cut, monkeypatch):
    advance, posterior, data_sets = Run.advance, Fit.edge_posterior, []

    def pressed(run):
        advance(run)
        data_sets.extend([True] * (run.step == 1))
        if cut == "training" and len(data_sets) == 3 and run.step == 10:
            raise KeyboardInterrupt

    def chains(fit, *arguments, **options):
        found = posterior(fit, *arguments, **options)
        found.attrs["interrupted"] = int(cut == "chains" and len(data_sets) == 3)
        return found

    monkeypatch.setattr(Run, "advance", pressed)
    monkeypatch.setattr(Fit, "edge_posterior", chains)
    found = sbc(model(), n_data_sets=4, num_draws=9, n_rows=50, progress=False, **SETTINGS)
    assert found.note == "stopped by Ctrl-C after 2 of 4 data sets"


@pytest.mark.parametrize("likelihood", ["bernoulli", "poisson", "negative_binomial"])
@pytest.mark.parametrize("decoder", ["linear", "mlp"])
def test_tables_suit_their_likelihood(likelihood, decoder):
    own = model(likelihood=likelihood, decoder=decoder)
    x = draw_decoder(own, 40, np.random.default_rng(1)).x
    own.likelihood.check(x)
    assert (np.ptp(x, axis=0) > 0).all()


def test_a_dispersion_is_drawn_from_its_prior():
    """Of rates that are all alike, the median extra coefficient of variation is that of the half normal."""
    rng, quiet = np.random.default_rng(2), DecoderPrior(intercept=1e-3, slope=1e-3, head=1e-3)
    own = model(likelihood=ps.likelihoods.NegativeBinomial(False, prior_scale=2.0), decoder="mlp")
    drawn = [draw_decoder(own, 400, rng, quiet).x for _ in range(30)]
    extra = np.concatenate([(x.var(0) / x.mean(0) - 1) / x.mean(0) for x in drawn]).clip(0) ** 0.5
    assert np.median(extra) == pytest.approx(2.0 * 0.6745, rel=0.2)


@pytest.mark.slow
def test_sbc_of_a_model_runs_its_own_simulation_and_chains():
    found = sbc(model(), n_data_sets=3, num_draws=15, progress=False, n_rows=40, **SETTINGS)
    assert found.ranks.shape[0] == 3 and {"edges", "log score"} <= set(found.statistics)
    assert found.num_draws == 15 and found.ranks.max() <= 15


def test_chains_of_a_model_give_as_many_draws_as_are_ranked(monkeypatch):
    asked, posterior = [], Fit.edge_posterior
    monkeypatch.setattr(
        Fit, "edge_posterior", lambda fit, *a, **kw: asked.append(kw["num_draws"]) or posterior(fit, *a, **kw)
    )
    sbc(model(), n_data_sets=1, num_draws=50, progress=False, n_rows=40, **SETTINGS)
    assert asked == [50]


def test_draws_are_of_the_chains_that_are_kept(monkeypatch):
    """As in `summary`: chains that are stuck in a worse mode are left out."""
    seen, ask = [], Fit.edge_posterior

    def first_is_stuck(*arguments, **options):
        found = ask(*arguments, **options)
        found["sample_stats"]["kept"][:] = [False, True, True, True]
        seen.append(found["posterior"]["edge"].to_numpy()[1:])
        return found

    monkeypatch.setattr(Fit, "edge_posterior", first_is_stuck)
    simulate, infer = experiment(model(), n_rows=40, num_draws=20, **SETTINGS)
    draws = infer(simulate(np.random.default_rng(0))[1], np.random.default_rng(1))
    np.testing.assert_array_equal(draws["edge"], seen[0].reshape(-1, 7, 2))
    assert draws["weight"].shape == draws["edge"].shape


@pytest.mark.slow
def test_sbc_passes_with_the_prior_of_the_simulation_and_fails_with_another():
    """Forty tables each: enough to see edges expected six times too rarely."""
    right = model()
    simulate, infer = experiment(right, n_rows=60, steps=100, sweeps=300, num_draws=32)
    wrong = model(prior=ps.priors.SpikeSlabLasso(lambda0=20.0, a=1.0, b=12.0))
    options = {"n_data_sets": 40, "prob": 0.99, "progress": False}
    assert sbc(simulate, infer, **options).passes
    _, sparse = experiment(wrong, n_rows=60, steps=100, sweeps=300, num_draws=32)
    assert not sbc(simulate, sparse, **options).passes


@pytest.mark.parametrize(
    ("arguments", "options", "error", "message"),
    [
        ((1, 2), {"n_rows": 3}, TypeError, "n_rows: only with a model"),
        ((1,), {}, TypeError, "infer: want a function"),
        ((model(), len), {}, TypeError, "infer: a model brings its own"),
        ((model(),), {"n_rows": 3}, ValueError, "n_rows: want at least 10"),
        ((model(),), {"decoder_prior": 3}, TypeError, "decoder_prior: want a DecoderPrior, got 3"),
        ((model(prior=ps.priors.Laplace()),), {}, ValueError, "of spike and slabs only, and this is Laplace"),
    ],
)
def test_what_does_not_go_together_is_refused(arguments, options, error, message):
    with pytest.raises(error, match=message):
        sbc(*arguments, **options)


def test_only_decoders_simulate_themselves():
    with pytest.raises(TypeError, match="model: got a LatentTransition, wanted a SparseDecoder"):
        experiment(ps.models.LatentTransition(6, 2))
