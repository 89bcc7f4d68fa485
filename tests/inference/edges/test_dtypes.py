"""Chains under every likelihood, decoder, dtype and kind of prior: numbers, and a model left as it was."""

from __future__ import annotations

import copy
from dataclasses import replace
from itertools import product

import numpy as np
import pyro.distributions as dist
import pytest
import torch

import pyro_sparse as ps
from pyro_sparse._utils.quiet import ignored
from pyro_sparse.inference.edges.mcmc.initialise import DecoderPrior, chains_of
from pyro_sparse.inference.edges.mcmc.running import LEAST_KEPT
from pyro_sparse.priors import SpikeSlabPrior

pytestmark = pytest.mark.usefixtures("hurried_module")


N, G, K = 24, 5, 2


class Student(SpikeSlabPrior):
    """Densities of a user's own."""

    def components(self):
        return dist.StudentT(3.0, 0.0, 0.8), dist.StudentT(3.0, 0.0, 0.06)


PRIORS = {
    "spike_slab_lasso": ps.priors.SpikeSlabLasso,
    "spike_slab_normal": ps.priors.SpikeSlabNormal,
    "components": Student,
}
LIKELIHOODS = ("normal", "bernoulli", "poisson", "negative_binomial", "multinomial")


def table(likelihood):
    rng = np.random.default_rng(3)
    f = rng.normal(size=(N, K)) @ np.array([[1.5, 1.5, 0, 0, 1], [0, 0, 1.5, 1.5, 1]])
    if likelihood == "normal":
        return f + 0.3 * rng.normal(size=f.shape)
    if likelihood == "bernoulli":
        return (f + rng.logistic(size=f.shape) > 0).astype(float)
    return rng.poisson(np.exp(1 + 0.4 * f)) + 1.0


def fitted(likelihood, decoder, dtype, prior="spike_slab_lasso"):
    model = ps.models.SparseDecoder(
        n_factors=K, hidden=3, encoder_hidden=3, decoder=decoder, likelihood=likelihood, prior=PRIORS[prior]()
    )
    with ignored():  # safe in threads
        return ps.fit(
            model, table(likelihood), restarts=1, steps=4, dtype=dtype, progress=False, patience=None
        )


def combinations():
    """All; of curves, whose sweeps take a second, most are slow."""
    for likelihood, decoder, dtype, prior in product(
        LIKELIHOODS, ("linear", "mlp"), ("float32", "float64"), PRIORS
    ):
        quick = decoder == "linear" or (dtype == "float64" and prior == "spike_slab_lasso")
        yield pytest.param(likelihood, decoder, dtype, prior, marks=[] if quick else pytest.mark.slow)


@pytest.mark.slow
@pytest.mark.parametrize(("likelihood", "decoder", "dtype", "prior"), list(combinations()))
def test_chains_run_and_leave_the_model_as_it_was(likelihood, decoder, dtype, prior):
    fit = fitted(likelihood, decoder, dtype, prior)
    before = copy.deepcopy(fit.model.state_dict())
    with ignored():
        idata = fit.edge_posterior("mcmc", sweeps=LEAST_KEPT + 2, warm_up=2, num_draws=4, chains=2)
    p = ps.edge_prob(idata).to_numpy()
    assert ((p >= 0) & (p <= 1)).all() and 0 < p.mean() < 1
    assert np.isfinite(idata["posterior"]["weight"].to_numpy()).all()
    assert np.isfinite(idata["sample_stats"]["log_joint"].to_numpy()).all()
    for name, value in fit.model.state_dict().items():
        assert torch.equal(value, before[name]), name


@pytest.mark.parametrize("decoder", ["linear", "mlp"])
@pytest.mark.parametrize("likelihood", LIKELIHOODS)
def test_chains_begin_at_one_place_in_either_dtype(likelihood, decoder):
    single = fitted(likelihood, decoder, "float32")
    double = replace(single, model=copy.deepcopy(single.model).double())
    starts = [
        chains_of(fit, fit.table, [0, 0], [False, True], DecoderPrior(), 0)[1] for fit in (single, double)
    ]
    for name in {"weight", "noise", "head", "intercept"} & set(starts[0]._fields):
        one, two = (np.asarray(getattr(start, name)) for start in starts)
        np.testing.assert_allclose(one, two, rtol=2e-5, atol=2e-6, err_msg=name)
