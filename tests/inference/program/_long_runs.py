"""Long runs of one sampler, against numbers that are known; and posteriors of two weights on a grid."""

from __future__ import annotations

import numpy as np
import pyro
import torch
from scipy import integrate

from pyro_sparse.inference.program.recorded import RecordedDensity
from pyro_sparse.programs import Data, Program, edges


def of_copies(x, known, statement, n_factors, copies=100, chains=2, **columns):
    """A density of many copies of one column: each is a draw of its own from one posterior.

    Parameters
    ----------
    x : ndarray (row,)
    known : ndarray (row, factor)
        Under `d.known`.
    statement : callable
        The program.
    """
    data = Data(np.repeat(np.asarray(x, float)[:, None], copies, 1), rows={"known": known, **columns})
    return RecordedDensity(Program(statement, n_factors), data, chains)


def of_weights(slab, spike, log_odds, cells):
    """The program of one column, whose factors are known."""

    def program(d):
        with d.features:
            W = edges("W", log_odds=log_odds, slab=slab, spike=spike, to=d.factors)
        with d.rows, d.features:
            pyro.sample("x", cells(d.known @ W.mT), obs=d.x)

    return program


def run(sampler, u, sweeps, warm_up, look):
    """Means over the sweeps after the warm-up of what `look` sees, (copy, ...)."""
    total = 0.0
    for _ in range(warm_up):
        u = sampler.draw(u, adapts=True)
    sampler.settle()
    for _ in range(sweeps):
        u = sampler.draw(u, adapts=False)
        seen = look(u)
        total = total + seen.reshape(-1, *seen.shape[2:])
    return (total / sweeps).numpy()


def check(means, wanted, least=1e-9, most=0.02):
    """Means of independent runs, within four of their standard errors, which are to be small enough."""
    error = means.std(0, ddof=1) / np.sqrt(len(means))
    assert np.max(error) < most, f"standard errors {error} are too large to say anything"
    off = np.abs(means.mean(0) - wanted)
    assert (off < 4 * error + least).all(), f"{means.mean(0)} is not {wanted}, with standard errors {error}"


def on_grid(log_likelihood, log_slab, log_spike, log_odds, largest=8.0, narrow=0.05, n=601):
    """Of two weights under a log likelihood of both, by Simpson's rule: P(edge), mean, second moment.

    Parameters
    ----------
    log_likelihood : callable
        Of two arrays, elementwise.
    log_slab, log_spike : callable
    log_odds : (float, float)
    largest : float
        End of the grid.
    narrow : float
        Below which it is about evenly spaced; beyond the spaces grow.
    """
    w = narrow * np.sinh(np.linspace(-1, 1, n) * np.arcsinh(largest / narrow))
    there = [log_slab(w) - np.log1p(np.exp(-odds)) for odds in log_odds]
    absent = [log_spike(w) - np.log1p(np.exp(odds)) for odds in log_odds]
    prior = [np.logaddexp(a, b) for a, b in zip(there, absent, strict=True)]
    log_joint = log_likelihood(w[:, None], w[None]) + prior[0][:, None] + prior[1][None]
    joint = np.exp(log_joint - log_joint.max())
    marginal = [integrate.simpson(joint, x=w, axis=1), integrate.simpson(joint, x=w, axis=0)]
    found = []
    for k in range(2):
        p = marginal[k] / integrate.simpson(marginal[k], x=w)
        edge = np.exp(there[k] - prior[k])
        found.append([integrate.simpson(p * value, x=w) for value in (edge, w, w**2)])
    return np.array(found).T  # (edge, mean, second moment) x factor


def double(value):
    return torch.tensor(value, dtype=torch.float64)
