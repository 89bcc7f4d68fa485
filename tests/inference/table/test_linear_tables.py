"""Linear decoders on linear tables: a lasso that shrinks loadings must not cost them, or their factors."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.decomposition import FactorAnalysis

import pyro_sparse as ps
from pyro_sparse.inference.table import job
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


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1004, 1005])
def test_no_factor_is_lost(seed, monkeypatch):
    """By training alone: at the maximum of its graph a shrunk restart is as good."""
    monkeypatch.setattr(job, "has_closed_form_maximum", lambda *about: False)
    x, z = table(seed)
    found = fitted(x)
    rotated = FactorAnalysis(K, rotation="varimax").fit_transform(x)
    assert mcc(z, found.transform(x)).value > mcc(z, rotated).value - 0.03
    shrunk = fitted(x, lasso_weight=0.5, relax_lasso_from=1.0, prune_at=())
    assert (found.weights != 0).sum() > (shrunk.weights != 0).sum()
    assert found.heldout_elbo[0] > shrunk.heldout_elbo[0]


def blocks(kind, seed=0, n=600):
    """Two factors of six features each, on the scale of every likelihood; its edges."""
    rng = np.random.default_rng(seed)
    edge = np.kron(np.eye(2), np.ones((6, 1))) > 0
    f = rng.normal(size=(n, 2)) @ edge.T
    draw = {
        "bernoulli": lambda: rng.random(f.shape) < 1 / (1 + np.exp(-2 * f)),
        "poisson": lambda: rng.poisson(0.5 * np.exp(0.8 * f)),
        "negative_binomial": lambda: rng.poisson(2 * np.exp(0.8 * f) * rng.gamma(2.0, 0.5, f.shape)),
        "normal": lambda: 100 * (f + 0.7 * rng.normal(size=f.shape)),
    }
    return draw[kind]().astype(float), edge


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["bernoulli", "poisson", "negative_binomial", "normal"])
def test_the_screen_leaves_the_edges_of_every_likelihood(kind):
    """Weights of yes/no data, of few counts and of large units were all shrunk to zero."""
    x, edge = blocks(kind)
    kinds = ps.likelihoods
    counts = {"poisson": kinds.Poisson(False), "negative_binomial": kinds.NegativeBinomial(False)}
    likelihood = counts.get(kind, kind)
    model = ps.models.SparseDecoder(12, 2, likelihood=likelihood, decoder="linear")
    found = ps.fit(model, x, restarts=2, seed=0, progress=False, standardise=False, steps=600)
    own = found.weights[found.best] != 0
    assert sorted(map(tuple, own.T)) == sorted(map(tuple, edge.T))


def test_the_screen_goes_by_what_a_cell_tells():
    """A quarter of Fisher's information: p (1 - p) of yes and no, the mean of a Poisson count, at most 2."""
    from pyro_sparse.data.read import as_table
    from pyro_sparse.inference.table.schedule import Schedule
    from pyro_sparse.inference.table.screening import pull
    from pyro_sparse.inference.table.sparse_run import SparseRun

    share, rate = np.array([0.1, 0.3, 0.5, 0.8]), np.array([0.3, 1.0, 2.5, 20.0])
    rng = np.random.default_rng(0)
    for kind, x, expected in (
        ("bernoulli", rng.random((4000, 4)) < share, share * (1 - share) / 4),
        ("poisson", rng.poisson(rate, (4000, 4)), np.minimum(rate / 4, 2)),
    ):
        model = ps.models.SparseDecoder(4, 2, likelihood=kind, decoder="linear")
        ones = np.ones(4000) if kind == "poisson" else None
        table_ = as_table(x.astype(float), likelihood=model.likelihood, exposure=ones)
        model.setup(1, n_samples=4000)
        with torch.no_grad():
            model.decoder.intercept.copy_(
                torch.as_tensor(table_.intercept(model.likelihood, np.arange(4000)))
            )
        run = SparseRun(model, table_.batch(), None, Schedule())
        np.testing.assert_allclose(pull(run.information, run.unit)[0, :, 0], expected, rtol=0.25)


@pytest.mark.slow
@pytest.mark.usefixtures("hurried")
def test_what_a_reader_should_know_of_units_lassos_and_numbers_of_factors():
    x, _ = blocks("normal", n=150)
    own = {"seed": 0, "progress": False, "steps": 60, "restarts": 1}

    def said(x, model, **settings):
        return " | ".join(ps.fit(model, x, **own, **settings).warnings)

    decoder = lambda k=2, **of: ps.models.SparseDecoder(12, k, decoder="linear", **of)  # noqa: E731
    plain = said(x, decoder())
    assert "standard deviations from 1" in said(x, decoder(), standardise=False)
    assert "standard deviations from 1" in said(x, decoder(likelihood=ps.likelihoods.Normal(shared=True)))
    assert "standard deviations" not in plain
    assert "standard deviations" not in said(x / 100, decoder(), standardise=False)
    assert "standard deviations" not in said(x > 0, decoder(likelihood="bernoulli"))
    copies = x.copy()
    copies[:, 3], copies[:, 7] = 5.0 - 2.0 * x[:, 0], x[:, 1]
    with pytest.warns(RuntimeWarning, match="'x4' repeats 'x1' but for units"):
        both = said(copies, decoder())
    assert "'x4' repeats 'x1' but for units" in both and "'x8' repeats 'x2' but for units" in both
    assert "repeats" not in plain
    assert "repeats" not in said(ps.open_rows(x), decoder())
    assert "no weight is zero: Laplace is too weak" in said(x, decoder(prior="laplace"))
    assert "no weight is zero" not in plain
