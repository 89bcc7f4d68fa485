"""Edge probabilities of tables in units of their own: where columns lie must not matter, nor a hole."""

from __future__ import annotations

import numpy as np
import pytest

import pyro_sparse as ps

pytestmark = pytest.mark.usefixtures("hurried_module")

EDGES = np.kron(np.eye(2, dtype=bool), np.ones((3, 1), dtype=bool))


def table(seed=0, n_rows=150):
    rng = np.random.default_rng(seed)
    w = EDGES * np.tile([1.0, 0.8, 0.9], 2)[:, None]
    return rng.normal(size=(n_rows, 2)) @ w.T + 0.4 * rng.normal(size=(n_rows, 6))


def fitted(x, decoder="linear", shared=False, **options):
    model = ps.models.SparseDecoder(
        6,
        2,
        likelihood=ps.likelihoods.Normal(shared=shared),
        decoder=decoder,
        prior=ps.priors.SpikeSlabLasso(lambda0=20.0),
    )
    return ps.fit(model, x, restarts=1, seed=0, steps=300, progress=False, **options)


@pytest.mark.usefixtures("hurried")
@pytest.mark.parametrize(
    ("decoder", "options"),
    [
        ("linear", {"shared": True}),
        pytest.param("linear", {"standardise": False}, marks=pytest.mark.slow),
        pytest.param("mlp", {"shared": True}, marks=pytest.mark.slow),
        pytest.param("mlp", {"standardise": False}, marks=pytest.mark.slow),
    ],
)
def test_where_columns_lie_does_not_matter(decoder, options):
    """128 is the middle of a pixel's range."""
    fit = fitted(table() + 128.0, decoder, **options)
    p = fit.edge_posterior("mcmc", sweeps=150, seed=0)["edge_posterior"]["probability"].to_numpy()
    p = p if p[EDGES].mean() > 0.5 else p[:, ::-1]
    assert p[EDGES].min() > 0.9 and p[~EDGES].max() < 0.2, p.round(2)


@pytest.mark.usefixtures("hurried")
def test_one_noise_for_all_features_is_one_in_chains_too():
    from pyro_sparse.inference.edges.mcmc.sampler import DecoderPrior, chains_of

    fit = fitted(table(), shared=True)
    chains, state = chains_of(fit, fit.table, [0], [False], DecoderPrior(), 0)
    state, _ = chains.sweep(state, np.random.default_rng(0))
    assert np.ptp(state.noise) == 0 and 0.3 < state.noise[0, 0] ** 0.5 < 0.5


@pytest.mark.slow(hurried=True)
@pytest.mark.usefixtures("hurried")
def test_a_column_that_the_rows_asked_about_never_have():
    x = table()
    new = table(seed=1)
    new[:, 5] = np.nan
    idata = fitted(x).edge_posterior("mcmc", X=new, sweeps=120, seed=0)
    p = idata["edge_posterior"]["probability"].to_numpy()
    assert np.isfinite(p).all() and 0 < p[5].min() and p[5].max() < 0.9  # the prior has the say
