"""Sparse linear rows drawn from their prior, and posteriors by sums over supports and quadrature."""

from __future__ import annotations

import itertools

import numpy as np
from scipy.integrate import quad_vec
from scipy.linalg import null_space
from scipy.special import betaln, logsumexp
from scipy.stats import invgamma, laplace, multivariate_normal, multivariate_t


def make_rows(seed, tasks=20, n=25, m=5, rho=0.0, noise=1.0, eta=0.3, heavy=False, ratio=0.0):
    """Features (AR(1) columns), targets, edges."""
    rng = np.random.default_rng(seed)
    lower = np.linalg.cholesky(rho ** np.abs(np.subtract.outer(np.arange(m), np.arange(m))))
    x = rng.normal(size=(tasks, n, m)) @ lower.T
    edge = rng.random((tasks, m)) < eta
    w = (rng.laplace if heavy else rng.normal)(size=(tasks, m)) * np.where(edge, 1, ratio)
    y = np.einsum("tnm,tm->tn", x, w) + np.sqrt(noise) * rng.normal(size=(tasks, n)) + 3.0
    return x, y, edge


def exact_row(x, y, kind, scale=1.0, noise=1.0, eta=None, eta_prior=(1.0, 1.0), noise_prior=(2.0, 1.0)):
    """P(edge), E[w], sd of w and log evidence of one row with a normal slab, support by support.

    kind: "known" noise, "student" (learned, slab in its units) or "learned" (by quadrature).
    """
    n, m = x.shape
    contrast = null_space(np.ones((1, n)))
    yz, xz = contrast.T @ y, contrast.T @ x
    (a, b), (a0, b0) = eta_prior, noise_prior
    log_joint, mean, square = [], [], []
    supports = np.array(list(itertools.product([0, 1], repeat=m)))
    for g in supports:
        k = g.sum()
        log_p = betaln(a + k, b + m - k) - betaln(a, b)
        if eta is not None:
            log_p = k * np.log(eta) + (m - k) * np.log1p(-eta)
        xs = xz * g * scale
        cov = xs @ xs.T

        def moments(v, gain=1.0, xs=xs, g=g):  # of the weights given the noise v and the slab's variance gain
            s = np.linalg.inv(xs.T @ xs / v + np.eye(m) / gain)
            mu = s @ xs.T @ yz / v
            return scale * g * mu, scale**2 * g * (np.diag(s) + mu**2)

        if kind == "known":
            fit = multivariate_normal.logpdf(yz, cov=cov + noise * np.eye(n - 1))
            first, second = moments(noise)
        elif kind == "student":
            fit = multivariate_t.logpdf(yz, shape=b0 / a0 * (cov + np.eye(n - 1)), df=2 * a0)
            shape = a0 + (n - 1) / 2
            v = (b0 + yz @ np.linalg.solve(cov + np.eye(n - 1), yz) / 2) / (shape - 1)
            first, second = moments(1.0)
            second = first**2 + v * (second - first**2)
        else:
            value, vector = np.linalg.eigh(cov)
            turned = vector.T @ yz

            def integrand(t, value=value, turned=turned, moments=moments):
                v = value + np.exp(t)
                log_like = -0.5 * (np.log(2 * np.pi * v) + turned**2 / v).sum()
                density = np.exp(log_like + invgamma.logpdf(np.exp(t), a0, scale=b0) + t + n)
                return density * np.concatenate([[1.0], *moments(np.exp(t))])

            total, *rest = quad_vec(integrand, -6, 9, epsabs=0, epsrel=1e-9)[0]
            fit = np.log(total) - n
            first, second = np.array(rest).reshape(2, m) / total
        log_joint.append(log_p + fit - 0.5 * np.log(n))
        mean.append(first)
        square.append(second)
    evidence = logsumexp(log_joint)
    p = np.exp(np.array(log_joint) - evidence)
    first = p @ mean
    return p @ supports, first, np.sqrt(p @ square - first**2), evidence


def laplace_pair(x, y, noise, eta, slab=1.0, spike=0.0, size=801, reach=7.0):
    """P(edge) and E[w] of a row of one or two features under Laplace densities, known noise: a fine grid."""
    x, y = x - x.mean(0), y - y.mean()
    m = x.shape[1]
    w = np.linspace(-reach, reach, size)
    step = w[1] - w[0]

    def density(s):
        # A cell's mass, not its midpoint's density: the spike may be narrower than the grid.
        edges = np.concatenate([w - step / 2, [w[-1] + step / 2]])
        return np.diff(laplace.cdf(edges, scale=s))

    zero = density(spike) if spike else (np.arange(size) == size // 2).astype(float)
    prior = np.stack([(1 - eta) * zero, eta * density(slab)])  # edge, weight
    gram, cross = x.T @ x / noise, x.T @ y / noise
    if m == 1:
        log_like = cross[0] * w - 0.5 * gram[0, 0] * w**2
        joint = prior * np.exp(log_like - log_like.max())
        return np.array([joint[1].sum() / joint.sum()]), np.array([(joint * w).sum() / joint.sum()])
    u, v = w[:, None], w[None, :]
    quadratic = gram[0, 0] * u**2 + 2 * gram[0, 1] * u * v + gram[1, 1] * v**2
    log_like = cross[0] * u + cross[1] * v - 0.5 * quadratic
    like = np.exp(log_like - log_like.max())
    joint = prior @ like @ prior.T  # edge, edge
    either = prior.sum(0)
    mean = np.array([(either * w) @ like @ either, either @ like @ (either * w)])
    return np.array([joint[1].sum(), joint[:, 1].sum()]) / joint.sum(), mean / joint.sum()


def exact_shared(x, y, noise, prior=(1.0, 1.0), over="feature"):
    """P(edge) of two or more rows whose rate is shared, known noise, normal slab: all graphs."""
    tasks, n, m = x.shape
    contrast = null_space(np.ones((1, n)))
    a, b = prior
    log_joint, graphs = [], np.array(list(itertools.product([0, 1], repeat=tasks * m))).reshape(-1, tasks, m)
    fits = {}
    for t in range(tasks):
        for g in itertools.product([0, 1], repeat=m):
            xs = contrast.T @ x[t] * g
            fits[t, g] = multivariate_normal.logpdf(contrast.T @ y[t], cov=xs @ xs.T + noise * np.eye(n - 1))
    for g in graphs:
        counts = g.sum(0) if over == "feature" else np.array([g.sum()])
        size = tasks if over == "feature" else tasks * m
        prior_log = (betaln(a + counts, b + size - counts) - betaln(a, b)).sum()
        log_joint.append(prior_log + sum(fits[t, tuple(int(i) for i in g[t])] for t in range(tasks)))
    p = np.exp(np.array(log_joint) - logsumexp(log_joint))
    return np.tensordot(p, graphs, 1)
