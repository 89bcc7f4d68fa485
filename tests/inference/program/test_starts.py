"""Where restarts begin: components against an eigendecomposition, and which restart has them."""

from __future__ import annotations

import numpy as np
import pyro
import pyro.distributions as dist
import pytest
import torch
from scipy import stats

from pyro_sparse.inference.program.layout import read_layout
from pyro_sparse.inference.program.starts import component_scores, starts_of
from pyro_sparse.programs import Data, edges, factors
from tests._programs import PROGRAMS

rng = np.random.default_rng(5)
LOADING = np.array([[1, 0], [1, 0], [0.8, 0], [0, 1], [0, -1], [0, 0.8]], float)
TRUE = rng.standard_normal((60, 2))
X = TRUE @ LOADING.T + 0.2 * rng.standard_normal((60, 6))
SEEN = np.ones(X.shape, bool)


def normal_scores(x):
    """Standardised, by SciPy."""
    scores = stats.norm.ppf((stats.rankdata(x, axis=0) - 0.5) / len(x))
    return (scores - scores.mean(0)) / scores.std(0)


def span(columns):
    """Projection onto them."""
    base = np.linalg.qr(columns)[0]
    return base @ base.T


@pytest.mark.parametrize("k", [1, 2, 3])
def test_components_span_the_leading_eigenvectors(k):
    scores = component_scores(X, SEEN, k)
    np.testing.assert_allclose(scores.T @ scores / len(X), np.eye(k), atol=1e-8)
    standard = normal_scores(X)
    vectors = np.linalg.eigh(standard.T @ standard)[1][:, ::-1][:, :k]
    np.testing.assert_allclose(span(scores), span(standard @ vectors), atol=1e-8)


def test_components_are_in_the_axes_of_simplest_loadings():
    """No turn has a varimax criterion larger by a hundredth; the factors that made the table are found."""
    scores = component_scores(X, SEEN, 2)
    loading = normal_scores(X).T @ scores / len(X)

    def criterion(angle):
        turn = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
        return np.var((loading @ turn) ** 2, axis=0).sum()

    assert all(criterion(angle) <= 1.01 * criterion(0) for angle in np.linspace(-1.5, 1.5, 61))
    found = np.abs(np.corrcoef(scores.T, TRUE.T)[:2, 2:])
    assert (found.max(1) > 0.95).all() and set(found.argmax(1)) == {0, 1}


def test_only_the_order_of_a_columns_values_counts():
    np.testing.assert_allclose(
        component_scores(np.exp(3 * X), SEEN, 2), component_scores(X, SEEN, 2), atol=1e-8
    )


def test_missing_cells_are_in_the_middle():
    seen = SEEN.copy()
    seen[4, 1] = seen[9, 5] = False
    x = X.copy()
    x[~seen] = 1e6  # what stands there is not read
    scores = component_scores(x, seen, 2)
    again = component_scores(np.where(seen, X, -3.0), seen, 2)
    np.testing.assert_allclose(scores, again, atol=1e-12)
    found = np.abs(np.corrcoef(scores.T, component_scores(X, SEEN, 2).T)[:2, 2:])
    assert (found.max(1) > 0.99).all()


def test_there_are_no_more_components_than_columns_that_vary():
    x = X.copy()
    x[:, 2:] = 7.0
    assert component_scores(x, SEEN, 5).shape == (60, 2)
    assert component_scores(np.full(X.shape, 7.0), SEEN, 2) is None


def drawn_from(program, data, n_factors, restarts):
    torch.manual_seed(0)
    drawn = [read_layout(program, data.view(n_factors)) for _ in range(restarts)]
    layout = drawn[0][0]
    return layout, {name: torch.stack([values[name] for _, values in drawn]) for name in drawn[0][1]}


def test_every_second_restart_has_its_factors_at_the_components():
    layout, drawn = drawn_from(PROGRAMS["linear"], Data(X), 2, 5)
    started = starts_of(layout, drawn, X, SEEN, seed=1)
    scores = component_scores(X, SEEN, 2)
    z = started["z"].squeeze(-2).double().numpy()
    np.testing.assert_allclose(z[0], scores, atol=1e-5)
    for r in (2, 4):  # in other axes of the same space
        turn = scores.T @ z[r] / len(X)
        np.testing.assert_allclose(turn @ turn.T, np.eye(2), atol=1e-5)
        assert np.abs(turn).max() < 0.999
    for r in (1, 3):
        assert torch.equal(started["z"][r], drawn["z"][r])
    for name in set(drawn) - {"z"}:
        assert torch.equal(started[name], drawn[name])
    assert not np.allclose(z[2], z[4])


def test_starts_are_those_of_the_seed_and_leave_the_draws_as_they_are():
    layout, drawn = drawn_from(PROGRAMS["linear"], Data(X), 2, 3)
    before = drawn["z"].clone()
    one, again, other = (starts_of(layout, drawn, X, SEEN, seed=s)["z"] for s in (1, 1, 2))
    assert torch.equal(one, again) and not torch.equal(one[2], other[2])
    assert torch.equal(drawn["z"], before)


def test_factors_beyond_the_columns_keep_their_draws():
    layout, drawn = drawn_from(PROGRAMS["linear"], Data(X[:, :3]), 4, 1)
    started = starts_of(layout, drawn, X[:, :3], SEEN[:, :3], seed=0)
    assert not torch.equal(started["z"][..., :3], drawn["z"][..., :3])
    assert torch.equal(started["z"][..., 3], drawn["z"][..., 3])


def in_frames(d):
    with d.features:
        slab, spike = dist.Normal(0.0, 1.0), dist.Normal(0.0, 0.1)
        W = edges("W", log_odds=0.0, slab=slab, spike=spike, to=d.factors)
    with d.rows:
        z = factors("z", dist.Normal(torch.zeros(*d.x.shape[1:-1], d.n_factors), 1.0).to_event(d.x.dim() - 1))
        pyro.factor("x", -(d.x - z @ W.mT).square().flatten(1).sum(1, keepdim=True))


def test_frames_of_sequences_are_rows_of_the_table():
    x = X.reshape(12, 5, 6)
    layout, drawn = drawn_from(in_frames, Data(x), 2, 1)
    started = starts_of(layout, drawn, x, SEEN.reshape(x.shape), seed=0)
    found = started["z"][0].reshape(60, 2).double().numpy()
    np.testing.assert_allclose(found, component_scores(X, SEEN, 2), atol=1e-5)


def test_factors_that_are_not_of_the_tables_rows_keep_their_draws():
    x = X.reshape(12, 5, 6)

    def one_for_all_frames(d):
        with d.features:
            slab, spike = dist.Normal(0.0, 1.0), dist.Normal(0.0, 0.1)
            W = edges("W", log_odds=0.0, slab=slab, spike=spike, to=d.factors)
        with d.rows:
            z = factors("z", dist.Normal(torch.zeros(d.n_factors), 1.0))
            pyro.factor("x", -(d.x - (z @ W.mT)[:, None]).square().flatten(1).sum(1, keepdim=True))

    layout, drawn = drawn_from(one_for_all_frames, Data(x), 2, 1)
    started = starts_of(layout, drawn, x, SEEN.reshape(x.shape), seed=0)
    assert torch.equal(started["z"], drawn["z"])


def test_a_table_of_constants_has_no_components_to_begin_at():
    constant = np.full((5, 3), 2.0)
    layout, drawn = drawn_from(PROGRAMS["linear"], Data(constant), 2, 1)
    started = starts_of(layout, drawn, constant, np.ones((5, 3), bool), seed=0)
    assert torch.equal(started["z"], drawn["z"])
