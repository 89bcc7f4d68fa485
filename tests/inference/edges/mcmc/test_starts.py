"""Other axes for linear chains: the same covariance of what is predicted, by another criterion."""

from __future__ import annotations

import warnings
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from scipy.stats import betabinom

import pyro_sparse as ps
from pyro_sparse.inference.edges.density.decoder_program import DecoderState
from pyro_sparse.inference.edges.mcmc import plan
from pyro_sparse.inference.edges.mcmc.initialise import _line_in_other_axes, chains_of
from pyro_sparse.inference.edges.mcmc.sampler import DecoderPrior
from pyro_sparse.inference.edges.mcmc.starts import in_other_axes

COV = np.array([[1.0, 0.3, 0.0], [0.3, 1.0, 0.0], [0.0, 0.0, 1.0]])


def loadings(n_factors=3):
    rng = np.random.default_rng(0)
    weight = np.kron(np.eye(n_factors), np.full((5, 1), 0.7)) + 0.02 * rng.standard_normal((15, n_factors))
    return weight[: 5 * n_factors]


@pytest.mark.parametrize("number, correlated", [(0, True), (1, True), (2, True), (3, True), (2, False)])
def test_they_predict_the_same_covariance(number, correlated):
    weight = loadings()
    new, cov = in_other_axes(weight, COV, number, correlated, seed=0)
    np.testing.assert_allclose(new @ cov @ new.T, weight @ COV @ weight.T, atol=1e-6)
    np.testing.assert_allclose(np.diagonal(cov), 1.0)
    assert np.linalg.eigvalsh(cov).min() > 0.01
    assert (cov == np.eye(3)).all() or (correlated and number > 1)


def test_the_first_are_those_of_varimax():
    weight = loadings()
    new, _ = in_other_axes(weight, np.eye(3), 0, True, seed=0)

    def criterion(w):
        return ((w**2).var(0)).sum()

    assert criterion(new) >= criterion(weight) - 1e-9
    turn = np.linalg.qr(np.random.default_rng(1).standard_normal((3, 3)))[0]
    again, _ = in_other_axes(weight @ turn, np.eye(3), 0, True, seed=0)
    assert criterion(again) == pytest.approx(criterion(new), rel=1e-6)


def test_the_second_are_random_and_not_simple():
    weight, least = loadings(), []
    size = np.linalg.norm(weight, axis=0)
    for seed in range(20):
        new, _ = in_other_axes(weight, np.eye(3), 1, True, seed=seed)
        congruence = np.abs(new.T @ weight) / np.outer(np.linalg.norm(new, axis=0), size)
        least.append(congruence.max(0).min())
    assert np.mean(np.array(least) < 0.9) > 0.5  # congruence from which two columns are one factor


def test_factors_without_a_loading_stay_without():
    weight = np.concatenate([loadings(), np.zeros((15, 2))], 1)[:, [0, 3, 1, 4, 2]]
    new, cov = in_other_axes(weight, np.eye(5), 1, True, seed=0)
    assert not new[:, [1, 3]].any() and new[:, [0, 2, 4]].any(0).all()
    assert (cov[[1, 3]] == np.eye(5)[[1, 3]]).all()
    alone, _ = in_other_axes(weight * [1, 0, 0, 0, 0], np.eye(5), 1, True, seed=0)
    np.testing.assert_array_equal(alone, weight * [1, 0, 0, 0, 0])


def test_other_numbers_and_seeds_are_other_axes_and_the_same_are_the_same():
    weight = np.random.default_rng(0).standard_normal((15, 3))
    first, again = (in_other_axes(weight, COV, 1, False, seed=0)[0] for _ in range(2))
    np.testing.assert_array_equal(first, again)
    assert not np.allclose(first, in_other_axes(weight, COV, 2, False, seed=0)[0], atol=1e-3)


@pytest.mark.parametrize("correlated", [False, True])
def test_chains_of_counts_in_other_axes_predict_what_they_did(correlated):
    """Factors and weights turn together, and factors without a loading stay without.

    Correlations stay where they are fixed, and begin at none where they are learned.
    """
    rng = np.random.default_rng(0)
    weight = loadings() * [1, 1, 0] * np.ones((3, 1, 1))
    cov = np.array([[1.0, 0.4, 0.0], [0.4, 1.0, 0.0], [0.0, 0.0, 1.0]])
    z = rng.multivariate_normal(np.zeros(3), cov, size=(3, 4000))
    state = DecoderState(
        torch.as_tensor(z), torch.as_tensor(weight), torch.as_tensor(weight != 0), None, None, None, None,
        torch.linalg.inv(torch.as_tensor(cov)).expand(3, -1, -1), {},
    )  # fmt: skip
    new = _line_in_other_axes(state, [False, True, True], correlated, seed=0)
    before, after = (s.weight @ s.z.mT for s in (state, new))
    torch.testing.assert_close(after, before, rtol=1e-6, atol=1e-6)
    assert torch.equal(new.z[0], state.z[0]) and torch.equal(new.edge, new.weight != 0)
    turned = (new.weight - state.weight).abs().amax((1, 2))
    assert turned[0] == 0 and (turned[1:] > 0.05).all() and (turned[1] != turned[2])
    for c in range(3):  # still draws from their prior
        prior = np.eye(3) if correlated and c else cov
        np.testing.assert_allclose(np.linalg.inv(new.precision[c].numpy()), prior, atol=1e-6)
        np.testing.assert_allclose(np.cov(new.z[c].numpy().T), prior, atol=0.08)
    assert not new.weight[..., 2].any()


@pytest.mark.slow
def test_chains_of_counts_run_over_the_factors_that_the_fit_kept():
    rng = np.random.default_rng(0)
    z = rng.standard_normal((200, 2))
    x = rng.poisson(np.exp(0.5 + z @ np.kron(np.eye(2), np.ones((4, 1))).T * 0.7)).astype(float)
    model = ps.models.SparseDecoder(n_features=8, n_factors=4, decoder="linear", likelihood="poisson")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fit = ps.fit(model, x, seed=0, restarts=1, steps=400, progress=False)
    with torch.no_grad():
        weights = np.kron(np.eye(2), np.ones((4, 1)))[:, [0, 0, 1, 1]] * [0, 1, 0, 1]
        fit.model.weights.copy_(torch.as_tensor(weights))
    kernel, state = chains_of(fit, fit.table, [0, 0], [False] * 2, DecoderPrior(), 0, [False, True], 2)
    whole, all_factors = chains_of(fit, fit.table, [0, 0], [False] * 2, DecoderPrior(), 0)
    assert state.weight.shape == (2, 8, 2) and all_factors.weight.shape == (2, 8, 4)
    torch.testing.assert_close(kernel.value(state), whole.value(all_factors), rtol=1e-4, atol=1e-4)
    assert kernel.permitted.shape == (8, 2) and state.log_odds.shape[-1] == 2
    assert state.precision.shape[-2:] == (2, 2) and len(kernel.eta_prior[0]) == 2


@pytest.mark.parametrize(("a", "b"), [(1.0, 12.0), (8.0, 2.0), (1.0, 1.0)])
def test_chains_leave_factors_out_only_where_the_prior_may_have_empty_ones(a, b):
    """P(no edge of G) is that of a beta-binomial distribution; below a twentieth all factors stay."""
    model = ps.models.SparseDecoder(9, 2, decoder="linear", prior=ps.priors.SpikeSlabLasso(a=a, b=b))
    model.setup(n_restarts=1, n_samples=50)
    fit = SimpleNamespace(model=model)
    assert plan.may_be_empty(fit) == (betabinom.pmf(0, 9, a, b) >= 0.05)
