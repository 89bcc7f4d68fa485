"""Sums over rows that linear chains need: drawn without the rows' factors, from the same distribution."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from pyro_sparse.inference.edges.mcmc import row_moments
from pyro_sparse.inference.edges.mcmc._compiled_row_moments import AVAILABLE
from pyro_sparse.inference.edges.mcmc.row_moments import Moments, RowMoments, _inverse_root

N, G, K, DRAWS = 40, 5, 2, 20_000


DESIGN = np.random.default_rng(9).normal(size=(N, 2))


def problem(missing, design=None):
    rng = np.random.default_rng(0)
    weight, noise = rng.normal(size=(G, K)), rng.uniform(0.5, 2, G)
    level, cov = rng.normal(size=(G, 1)), np.array([[1.0, 0.4], [0.4, 1.0]])
    if design is not None:
        level = np.concatenate([level, np.random.default_rng(8).normal(size=(G, design.shape[1]))], 1)
    z = rng.standard_normal((N, K)) @ np.linalg.cholesky(cov).T
    x = known(design) @ level.T + z @ weight.T + np.sqrt(noise) * rng.standard_normal((N, G))
    seen = rng.random((N, G)) < 0.9 if missing else None
    return (x if seen is None else x * seen), seen, weight, noise, level, cov


def known(design):
    return np.ones((N, 1)) if design is None else np.concatenate([np.ones((N, 1)), design], 1)


def drawn(x, seen, weight, noise, level, cov, seed=1, rows=None, design=None):
    """Moments of many chains in one state."""
    rows = rows or RowMoments.of(x[None], None if seen is None else seen[None], K, design)
    state = (np.broadcast_to(part, (DRAWS, *part.shape)) for part in (weight, noise, level, cov))
    return rows.draw(*state, np.random.default_rng(seed))


def by_rows(x, seen, weight, noise, level, cov, design=None):
    """The same by drawing every row's factors."""
    rng, observed = np.random.default_rng(2), np.ones((N, G), bool) if seen is None else seen
    z = np.empty((DRAWS, N, K))
    for i in range(N):
        at = observed[i]
        scaled = weight[at] / noise[at, None]
        spread = np.linalg.inv(np.linalg.inv(cov) + weight[at].T @ scaled)
        mean = spread @ scaled.T @ (x[i, at] - (known(design)[i] @ level.T)[at])
        z[:, i] = mean + rng.standard_normal((DRAWS, K)) @ np.linalg.cholesky(spread).T
    gram = np.einsum("dnk,dnl,ng->dgkl", z, z, observed.astype(float))
    total = np.einsum("dnk,ng,nq->dgqk", z, observed.astype(float), known(design))
    of_known = known(design).T @ z
    return Moments(gram, np.einsum("dnk,ng->dgk", z, x), total, z.swapaxes(1, 2) @ z, of_known)


def assert_same_distribution(one, other):
    for name in ("gram", "cross", "total", "whole", "known"):
        a, b = (np.broadcast_to(getattr(m, name), getattr(other, name).shape) for m in (one, other))
        a, b = a.reshape(DRAWS, -1), b.reshape(DRAWS, -1)
        error = np.sqrt((a.var(0) + b.var(0)) / DRAWS)
        assert (np.abs(a.mean(0) - b.mean(0)) < 4.5 * error).all(), f"{name}: means"
        np.testing.assert_allclose(np.cov(a.T), np.cov(b.T), atol=0.06 * np.cov(b.T).max(), err_msg=name)


@pytest.mark.parametrize("design", [None, DESIGN], ids=["plain", "covariates"])
@pytest.mark.parametrize("missing", [False, True])
def test_they_are_those_of_factors_drawn_row_by_row(missing, design):
    given = problem(missing, design)
    assert_same_distribution(drawn(*given, design=design), by_rows(*given, design=design))


@pytest.mark.parametrize("design", [None, DESIGN], ids=["plain", "covariates"])
@pytest.mark.parametrize("missing", [False, True])
def test_moments_of_mapped_and_translated_factors_are_those_sums(missing, design):
    """Against sums over rows whose factors are at hand."""
    x, seen, *_ = problem(missing, design)
    rng, observed = np.random.default_rng(4), np.ones((N, G), bool) if seen is None else seen
    z, by, b = (
        rng.normal(size=(2, N, K)),
        rng.normal(size=(2, K, K)),
        rng.normal(size=(2, known(design).shape[1], K)),
    )
    rows = RowMoments.of(x[None], None if seen is None else seen[None], K, design)

    def moments(z, at=slice(None)):
        part = observed[at].astype(float)
        gram = np.einsum("dnk,dnl,ng->dgkl", z[:, at], z[:, at], part)
        total = np.einsum("dnk,ng,nq->dgqk", z[:, at], part, known(design)[at])
        cross = np.einsum("dnk,ng->dgk", z[:, at], x[at])
        return Moments(
            gram, cross, total, np.swapaxes(z[:, at], 1, 2) @ z[:, at], known(design)[at].T @ z[:, at]
        )

    holes = np.flatnonzero(~observed.all(1))
    given = moments(z)._replace(rows_drawn=moments(z, holes) if len(holes) else None)
    new = rows.translated(given.mapped(by), b)
    moved = z @ np.swapaxes(by, 1, 2) + known(design) @ b
    pairs = [(new, moments(moved))]
    if len(holes):
        pairs += [(new.rows_drawn, moments(moved, holes))]
    for got, want in pairs:
        for name in ("gram", "cross", "total", "whole", "known"):
            np.testing.assert_allclose(getattr(got, name), getattr(want, name), atol=1e-8, err_msg=name)


def test_few_rows_have_their_factors_drawn():
    x, seen, *state = problem(False)
    few = RowMoments.of(x[None, : G + K], None, K)
    assert few.root is None and few.n == 0 and few.x.shape == (1, G + K, G)
    enough = RowMoments.of(x[None, : G + 1 + K], None, K)
    assert enough.root is not None and enough.n == G + 1 + K and not len(enough.pattern)
    twice = RowMoments.of(np.repeat(x[None], 2, -1), None, K)  # columns that depend on one another
    assert twice.root is None and (twice.count == N).all()
    explicit = RowMoments(
        0, np.zeros((1, G + 1, G + 1)), None, x[None], np.ones((1, G), bool), np.zeros(N, dtype=np.intp),
        np.ones((N, 1)),
    )  # fmt: skip
    assert_same_distribution(drawn(x, seen, *state), drawn(x, seen, *state, seed=3, rows=explicit))


def test_sums_and_counts_are_those_of_the_cells():
    x, seen, *_ = problem(True)
    rows = RowMoments.of(x[None], seen[None], K, DESIGN)
    assert 0 < rows.n < N and len(rows.seen) < N - rows.n + 1
    np.testing.assert_allclose(rows.count[0], seen.sum(0))
    np.testing.assert_allclose(rows.sums[0][0], x.T @ known(DESIGN))
    of_each = [known(DESIGN)[at].T @ known(DESIGN)[at] for at in seen.T]
    np.testing.assert_allclose(rows.gram, of_each)
    np.testing.assert_allclose(rows.sums[1][0], (x**2).sum(0))


@pytest.mark.parametrize("design", [None, DESIGN], ids=["plain", "covariates"])
@pytest.mark.parametrize("missing", [False, True])
def test_evidence_is_that_of_a_normal_distribution(missing, design):
    x, seen, weight, noise, level, cov = problem(missing, design)
    rows, levels = RowMoments.of(x[None], None if seen is None else seen[None], K, design), []
    for shift in (0.0, 0.3):
        w, c = weight + shift, level + shift
        mean = known(design) @ c.T
        observed = np.ones((N, G), bool) if seen is None else seen
        whole = w @ cov @ w.T + np.diag(noise)
        want = sum(
            stats.multivariate_normal(mean[i, at], whole[np.ix_(at, at)]).logpdf(x[i, at])
            for i, at in enumerate(observed)
        )
        levels.append((rows.log_evidence(w[None], noise[None], c[None], cov[None])[0], want))
    (a, wanted_a), (b, wanted_b) = levels
    assert a - b == pytest.approx(wanted_a - wanted_b, rel=1e-9)


def test_factors_in_another_order_have_their_sums_in_another_order():
    given = problem(True)
    rows = RowMoments.of(given[0][None], given[1][None], K)
    moments = rows.draw(*(part[None] for part in given[2:]), np.random.default_rng(0))
    turned = moments.exchanged(np.array([[1, 0]]))
    np.testing.assert_array_equal(turned.gram, moments.gram[..., ::-1, ::-1])
    np.testing.assert_array_equal(turned.cross, moments.cross[..., ::-1])
    np.testing.assert_array_equal(turned.whole, moments.whole[..., ::-1, ::-1])
    np.testing.assert_array_equal(turned.centred(given[4][None]), moments.centred(given[4][None])[..., ::-1])


def test_the_inverse_of_a_root_is_that_of_its_matrix():
    a = np.random.default_rng(0).normal(size=(2, 7, 5, 5))
    precision = a @ np.swapaxes(a, -1, -2) + np.eye(5)
    inverse = _inverse_root(precision)
    np.testing.assert_allclose(np.swapaxes(inverse, -1, -2) @ inverse, np.linalg.inv(precision), atol=1e-12)
    np.testing.assert_array_equal(np.triu(inverse, 1), 0.0)


@pytest.mark.skipif(not AVAILABLE, reason="the extra 'fast' is not installed")
@pytest.mark.parametrize("at_once", [20_000, 17])
@pytest.mark.parametrize(
    ("rows", "g", "k", "q", "with_holes"),
    [(60, 5, 2, 0, 30), (60, 9, 7, 2, 60), (8, 6, 3, 1, 0), (40, 4, 1, 0, 5)],
)
def test_compiled_rows_are_those_of_numpy(rows, g, k, q, with_holes, at_once, monkeypatch):
    """Some have holes, all have, or all are drawn since there are few."""
    monkeypatch.setattr(row_moments, "_ROWS_AT_ONCE", at_once)
    rng, n = np.random.default_rng(k), 3
    x, seen = rng.standard_normal((1, rows, g)), np.ones((1, rows, g), bool)
    seen[0, :with_holes] = rng.random((with_holes, g)) < 0.6
    made = RowMoments.of(x * seen, seen, k, rng.normal(size=(rows, q)) if q else None)
    assert len(made.pattern)
    weight, noise = rng.normal(size=(n, g, k)), rng.uniform(0.1, 1, (n, g))
    coefficients, cov = rng.normal(size=(n, g, 1 + q)), np.tile(0.7 * np.eye(k) + 0.3, (n, 1, 1))

    def moments(available):
        monkeypatch.setattr(row_moments, "AVAILABLE", available)
        rng = np.random.default_rng(4)
        drawn = made.draw(weight, noise, coefficients, cov, rng)
        evidence = made.log_evidence(weight, noise, coefficients, cov)
        return *drawn[:5], *drawn.rows_drawn[:5], evidence, rng.random()

    for got, want in zip(moments(True), moments(False), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-10, atol=1e-10)
