"""Chains: draws whose labels were switched come back exactly; R-hat and ESS are ArviZ's where both exist."""

from __future__ import annotations

import numpy as np
import pytest

from pyro_sparse.graphs import (
    align_draws,
    apply_alignment,
    between_chain_gap,
    co_membership_rhat,
    keep_chains,
    unresolved,
)
from pyro_sparse.graphs.chains import effective_sample_size
from pyro_sparse.posterior.arviz import arviz


@pytest.fixture
def rng():
    return np.random.default_rng(0)


def switched(x, rng):
    """Every draw with factors in an order, and with signs, of its own."""
    order = rng.permuted(np.broadcast_to(np.arange(x.shape[3]), (*x.shape[:2], x.shape[3])), axis=-1)
    sign = rng.choice([-1.0, 1.0], size=order.shape)
    return np.take_along_axis(x, order[:, :, None], axis=3) * sign[:, :, None], order


def sparse_weights(rng, rows=12, factors=4, chains=3, draws=150):
    """Draws around one sparse matrix; whether an edge is there varies, too."""
    centre = rng.normal(3, 0.5, size=(rows, factors)) * (
        np.arange(rows)[:, None] % factors == np.arange(factors)
    )
    edges = (centre != 0) ^ (rng.random((chains, draws, rows, factors)) < 0.05)
    return (centre + 0.2 * rng.normal(size=edges.shape)) * edges


def autoregressive(rng, phi, shape):
    x = rng.normal(size=shape)
    x[:, 0] /= np.sqrt(1 - phi**2)
    for t in range(1, shape[1]):
        x[:, t] += phi * x[:, t - 1]
    return x


def test_switched_labels_come_back_exactly(rng):
    weights = sparse_weights(rng)
    draws, order = switched(weights, rng)
    found = align_draws(draws)
    aligned = apply_alignment(draws, found)
    # One permutation for all draws is left, that of the pivot; signs are those of large positive loadings.
    pivot = order[0, -1]
    np.testing.assert_array_equal(aligned, weights[..., pivot])
    edges = apply_alignment(draws != 0, found, signed=False)
    np.testing.assert_array_equal(edges, weights[..., pivot] != 0)
    assert found.permutation.shape == found.sign.shape == found.congruence.shape == (3, 150, 4)


def test_switched_factor_values_come_back_up_to_one_sign_each(rng):
    z = rng.normal(size=(50, 3)) + 0.1 * rng.normal(size=(2, 100, 50, 3)) + 5
    draws, order = switched(z, rng)
    aligned = apply_alignment(draws, align_draws(draws, kind="factors"))
    ratio = aligned / z[..., order[0, -1]]
    np.testing.assert_allclose(ratio, np.broadcast_to(ratio[0, 0, 0], ratio.shape))
    np.testing.assert_allclose(np.abs(ratio), 1)


def test_a_given_pivot_sets_order_and_signs(rng):
    weights = sparse_weights(rng)
    draws, _ = switched(weights, rng)
    pivot = weights[1, 3][:, [2, 0, 3, 1]] * [1, -1, 1, -1]
    aligned = apply_alignment(draws, align_draws(draws, pivot=pivot))
    np.testing.assert_array_equal(aligned, weights[..., [2, 0, 3, 1]] * [1, -1, 1, -1])


def test_fixed_labels_stay(rng):
    draws, _ = switched(sparse_weights(rng), rng)
    found = align_draws(draws, groups=[0, 1, 2, 3])
    assert (found.permutation == np.arange(4)).all()


def test_gap_of_three_chains():
    draws = np.zeros((3, 10, 1, 2))
    draws[0, :9, 0, 0], draws[1, :5, 0, 0], draws[2, :4, 0, 0] = 1, 1, 1
    np.testing.assert_allclose(between_chain_gap(draws), [[0.5, 0]])
    assert unresolved(between_chain_gap(draws)).tolist() == [[True, False]]
    assert np.isnan(between_chain_gap(draws[:1])).all()
    # Rao-Blackwellised draws with the same means say the same.
    smooth = np.broadcast_to(draws.mean(axis=1, keepdims=True), draws.shape)
    np.testing.assert_allclose(between_chain_gap(smooth), between_chain_gap(draws))


@pytest.mark.parametrize("draws", [200, 201])
@pytest.mark.parametrize("as_probability", [False, True])
def test_rhat_is_that_of_arviz(rng, draws, as_probability):
    rate = rng.uniform(0.3, 0.6, size=(3, 1, 4, 2))  # chains differ
    edges = rng.random((3, draws, 4, 2)) < rate
    x = 0.8 * edges + 0.1 * rng.random(edges.shape) if as_probability else edges
    found = co_membership_rhat(x)
    pairs = x.astype(float) @ x.astype(float).swapaxes(-1, -2)
    for i in range(4):
        for j in range(i):
            want = float(np.ravel(arviz().rhat(pairs[..., i, j]))[0])
            assert found.rhat[i, j] == found.rhat[j, i] == pytest.approx(want, rel=1e-9)
    assert np.isnan(np.diag(found.rhat)).all()
    assert found.largest == np.nanmax(found.rhat) > 1.01
    assert (found.n_varying, found.n_constant) == (6, 0)


def test_chains_of_one_law_have_rhat_near_one_and_no_label_matters(rng):
    edges = rng.random((4, 1000, 5, 3)) < 0.5
    found = co_membership_rhat(edges)
    assert 0.999 < np.nanmin(found.rhat) <= found.largest < 1.01
    order = rng.permuted(np.broadcast_to(np.arange(3), (4, 1000, 3)), axis=-1)
    relabelled = np.take_along_axis(edges, order[:, :, None], axis=3)
    np.testing.assert_allclose(co_membership_rhat(relabelled).rhat, found.rhat)


def test_separated_chains_and_entries_that_hardly_vary(rng):
    """Rows 0 and 1 share a column in the first chains only; 2 and 3 in three draws of one chain."""
    edges = np.zeros((4, 400, 4, 2))
    edges[:, :, 0, 0], edges[:2, :, 1, 0], edges[2:, :, 1, 1] = 1, 1, 1
    edges[:, :, 2, 1] = rng.random((4, 400)) < 0.5
    edges[0, 7:10, 2, 0], edges[0, 7:10, 3, 0] = 1, 1
    found = co_membership_rhat(edges)
    assert found.rhat[0, 1] == pytest.approx(np.sqrt(200))  # never moves: the cap, not infinity
    # Two values: ranks change nothing but the scale. Rows 1 and 2 share a column mostly in the last chains.
    halves = (edges[:, :, 1] * edges[:, :, 2]).sum(axis=-1).reshape(8, 200)
    within, between = halves.var(axis=1, ddof=1).mean(), halves.mean(axis=1).var(ddof=1)
    want = np.sqrt(199 / 200 + between / within)
    assert found.rhat[1, 2] == pytest.approx(want)
    assert want > 1.2
    assert np.isnan(found.rhat[2, 3]) and np.isnan(found.rhat[0, 3])
    assert found.n_varying + found.n_constant == 6
    assert found.n_constant == np.isnan(found.rhat[np.triu_indices(4, 1)]).sum() == 4
    assert np.isfinite(found.largest)
    # With a lower bar the three draws count, and are told apart from nothing: still no explosion.
    assert 1 <= co_membership_rhat(edges, rare=0.001).rhat[2, 3] < 1.1


def test_nothing_varies():
    found = co_membership_rhat(np.ones((2, 8, 3, 1)))
    assert np.isnan(found.rhat).all() and np.isnan(found.largest)
    assert (found.n_varying, found.n_constant) == (0, 3)


@pytest.mark.parametrize("phi", [-0.5, 0.0, 0.6, 0.9])
def test_effective_sample_size_of_an_autoregression(rng, phi):
    chains, draws = 4, 2000
    x = autoregressive(rng, phi, (chains, draws, 3))
    found = effective_sample_size(np.exp(x))  # ranks only: a monotone map changes nothing
    np.testing.assert_allclose(found, effective_sample_size(x))
    np.testing.assert_allclose(found, chains * draws * (1 - phi) / (1 + phi), rtol=0.2)
    for k in range(3):
        want = float(np.ravel(arviz().ess(x[..., k], method="bulk"))[0])
        assert found[k] == pytest.approx(want, rel=1e-6)


def test_effective_sample_size_keeps_shapes_and_knows_constants(rng):
    x = rng.normal(size=(2, 50, 2, 3))
    x[..., 1, 2] = 4.0
    found = effective_sample_size(x)
    assert found.shape == (2, 3)
    assert np.isnan(found[1, 2]) and np.isfinite(found[0]).all()
    assert np.ndim(effective_sample_size(x[..., 0, 0])) == 0
    # A chain that sits elsewhere leaves little to trust.
    x[1, :, 0, 0] += 20
    assert effective_sample_size(x)[0, 0] < 5
    middle = np.zeros((1, 9))
    middle[0, 4] = 1.0  # the draw that an odd number leaves out
    assert np.isnan(effective_sample_size(middle))


def test_keep_chains_by_the_second_half():
    log_joint = np.full((4, 10), -100.0)
    log_joint[1, 5:] = -110.0
    log_joint[2, :5], log_joint[2, 5:] = 0.0, -140.0
    log_joint[3, 7] = np.nan
    log_joint[0, 2] = -np.inf  # in the first half, which does not count
    found = keep_chains(log_joint)
    assert found.keep.tolist() == [True, True, False, False]
    np.testing.assert_allclose(found.nats_below, [0, 10, 40, np.nan])
    assert keep_chains(log_joint, tolerance=9).keep.tolist() == [True, False, False, False]
    assert keep_chains(log_joint, tolerance=40).keep.tolist() == [True, True, True, False]


OK = np.zeros((2, 6, 3, 2))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: align_draws(OK[0]),
            r"weights: want shape \(chain, draw, row, factor\) .* use weights\[None\]",
        ),
        (lambda: align_draws(OK[:, :0]), r"weights: want shape .* with entries, got \(2, 0, 3, 2\)"),
        (lambda: align_draws(OK + np.nan), "weights: want finite numbers, got NaN .* leave the failed chain"),
        (lambda: align_draws(OK, pivot=3), r"pivot: want shape \(3, 2\) as in the stack, got \(1,\)"),
        (lambda: align_draws(OK, kind="cosine"), "kind: want"),
        (lambda: align_draws(OK, groups=[0]), "groups: want one label per factor"),
        (lambda: apply_alignment(OK[0], align_draws(OK)), r"values: want shape \(chain, draw, ..., factor\)"),
        (
            lambda: between_chain_gap(OK[0]),
            r"draws: want shape \(chain, draw, row, column\) .* use draws\[None\]",
        ),
        (lambda: between_chain_gap(OK + 2), r"draws: want numbers in \[0, 1\], got values from 2 to 2"),
        (lambda: co_membership_rhat(OK[:, :3]), "draws: want at least 4 draws per chain, got 3; keep more"),
        (lambda: co_membership_rhat(OK[:, :, :1]), "draws: want at least two rows, which can share .* got 1"),
        (lambda: co_membership_rhat(OK, rare=0.5), r"rare: want a share of draws in \[0, 1/2\), got 0.5"),
        (
            lambda: effective_sample_size(np.zeros((2, 3))),
            r"values: want shape .* 4 draws or more per chain, got \(2, 3\)",
        ),
        (lambda: effective_sample_size([1.0, 2.0]), r"values: want shape \(chain, draw, ...\)"),
        (lambda: effective_sample_size([[1, 2, 3, np.inf]]), "values: want finite numbers.*failed chain"),
        (lambda: keep_chains([1.0, 2.0]), r"log_joint: want shape \(chain, draw\) with entries, got \(2,\)"),
        (lambda: keep_chains([[1.0]], tolerance=-1), "tolerance: want a number of nats, 0 or more, got -1"),
        (lambda: keep_chains([[np.nan, np.nan]]), "log_joint: no chain is finite .* start them anew"),
    ],
)
def test_messages(call, message):
    with pytest.raises(ValueError, match=message):
        call()
