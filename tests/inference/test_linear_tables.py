"""Linear decoders on linear tables: a lasso that shrinks loadings must not cost them, or their factors."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.decomposition import FactorAnalysis

import pyro_sparse as ps
from pyro_sparse.metrics import mcc

N, G, K = 200, 30, 4


def table(seed):
    """A quarter of the edges, two fifths of every feature noise; z-scored."""
    rng = np.random.default_rng(seed)
    z = rng.normal(size=(N, K))
    edge = rng.random((G, K)) < 0.25
    weight = edge * rng.choice([-1, 1], (G, K)) * rng.uniform(0.5, 1.5, (G, K))
    signal = (weight**2).sum(1)
    noise = np.where(signal > 0, signal * 2 / 3, 1.0)
    x = z @ weight.T + np.sqrt(noise) * rng.normal(size=(N, G))
    return (x - x.mean(0)) / x.std(0), z


def fitted(x, **settings):
    model = ps.models.SparseDecoder(G, K, decoder="linear")
    return ps.fit(model, x, seed=0, restarts=1, progress=False, **settings)


@pytest.mark.parametrize("seed", [pytest.param(1004, marks=pytest.mark.slow), 1005])
def test_no_factor_is_lost(seed):
    x, z = table(seed)
    found = fitted(x)
    rotated = FactorAnalysis(K, rotation="varimax").fit_transform(x)
    assert mcc(z, found.transform(x)).value > mcc(z, rotated).value - 0.03
    shrunk = fitted(x, screen=0.5, relax_from=1.0, prune_at=())
    assert (found.weights != 0).sum() > (shrunk.weights != 0).sum()
    assert found.heldout_elbo[0] > shrunk.heldout_elbo[0]
