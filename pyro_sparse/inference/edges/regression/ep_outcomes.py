r"""Sites of outcomes that are not normal, so that their sparse rows are a joint normal, too.

.. math:: y_{ti} \sim p(\cdot \mid f_{ti}), \qquad f_{ti} = b_t + \sum_j w_{tj} F_{tij}

Of the likelihood only :math:`\log p(y \mid f)` is asked. Each outcome has a normal site in its own linear
predictor, :math:`e^{-t f^2/2 + h f}`; with the cavity (A, B) the tilted density
:math:`e^{-A f^2/2 + B f} p(y \mid f)` is integrated by Gauss-Hermite quadrature about the joint normal's own
marginal of f, to which it comes closer the nearer the sites are to where they settle. The intercept is one
more weight, which is always there.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.polynomial.hermite_e import hermegauss
from numpy.typing import NDArray
from scipy.special import logsumexp

from ....likelihoods import Likelihood
from ..density.cells import Cells
from ..density.weight import LEAST_PRECISION
from .ep_draws import Target
from .ep_sites import Fit, Odds, OutcomeSites, State, View, log_norm, weight_sites
from .row_checks import Rows
from .rows import RowPrior

__all__ = ["OutcomeProblem", "Outcomes", "nodes"]

_NODES = 15  # of the quadrature: with 31, no P(edge) of answers, Poisson counts or levels moved by 5e-5
_LEAST_SITE, _MOST_SITE = 1e-8, 1e8
_LEAST_VARIANCE = 1e-12  # of a predictor: what is masked has none
_NEWTON, _LONGEST = 12, 2.0  # steps towards the first sites; how far one may move a predictor
_LOG_2PI = np.log(2 * np.pi)

Array = NDArray[np.float64]


class Outcomes(NamedTuple):
    """Outcomes of flat rows and their density given the linear predictor.

    Attributes
    ----------
    cells : Cells
        A row is a feature of theirs, a sample a row.
    noise : Tensor (1, row)
        Of a likelihood with a dispersion; else unused.
    observed : ndarray of bool (row, sample)
    """

    cells: Cells
    noise: torch.Tensor
    observed: NDArray[np.bool_]

    @classmethod
    def of(cls, likelihood: Likelihood, targets: Array, observed: NDArray[np.bool_]) -> Outcomes:
        """Outcomes (row, sample) under a likelihood that has a column for each row.

        Parameters
        ----------
        likelihood : Likelihood
            Set up.
        targets : ndarray (row, sample)
            In the likelihood's units.
        observed : ndarray of bool (row, sample)
        """
        x = torch.as_tensor(np.where(observed, targets, likelihood.filler))
        mask = None if observed.all() else torch.as_tensor(observed, dtype=torch.float64)[None]
        cells = Cells(x[None], mask, {}, likelihood)
        noise = (
            likelihood.dispersion()[:1].detach().double() if cells.overdispersed else torch.zeros(1, len(x))
        )
        return cls(cells, noise, observed)

    def take(self, index: NDArray[np.intp]) -> Outcomes:
        """Those of some rows."""
        at = torch.as_tensor(index)
        return Outcomes(self.cells.features(at), self.noise[:, at], self.observed[index])

    def log_prob(self, f: Array) -> Array:
        """log p(y | f) of predictors (..., row, sample), 0 where nothing was observed."""
        flat = torch.as_tensor(f.reshape(-1, *f.shape[-2:]))
        with torch.no_grad():
            return self.cells.log_prob(flat, self.noise).numpy().reshape(f.shape)

    def expanded(self, f: Array) -> tuple[Array, Array]:
        """Slope and curvature of it, which is at least 0, at predictors (row, sample)."""
        _, slope, curvature = self.cells.expanded(torch.as_tensor(f)[None], self.noise)
        return slope[0].detach().numpy(), np.maximum(curvature[0].detach().numpy(), 0.0)


def nodes(mean: Array, var: Array) -> tuple[Array, Array]:
    """Gauss-Hermite nodes (node, ...) of normals, and log weights (node, 1, ...) that add up to one."""
    x, mass = hermegauss(_NODES)
    shape = (-1, *[1] * mean.ndim)
    return mean + np.sqrt(var) * x.reshape(shape), (np.log(mass) - 0.5 * _LOG_2PI).reshape(shape)


class OutcomeProblem(NamedTuple):
    """Flat rows of outcomes with a density of their own, and their prior.

    Attributes
    ----------
    rows : Rows
        Sums over samples are not used.
    prior : RowPrior
    design : ndarray (row, sample, feature or feature + 1)
        Centred features in units of the slab; last, if there is an intercept, ones. 0 where no sample is.
    outcomes : Outcomes
    """

    rows: Rows
    prior: RowPrior
    design: Array
    outcomes: Outcomes

    @property
    def entries(self) -> int:
        """Of the design, and of the predictors at the nodes."""
        n, m = self.design.shape[1:]
        return m**2 + n * (m + 4 * _NODES)

    def take(self, index: NDArray[np.intp]) -> OutcomeProblem:
        """Some of the rows; one may be taken several times."""
        return OutcomeProblem(
            self.rows.take(index), self.prior, self.design[index], self.outcomes.take(index)
        )

    def start(self, tau: Array, log_odds: Array) -> State:
        """Sites of the outcomes by Newton steps to the mode under normal priors of the weights."""
        f, sites = np.zeros(self.design.shape[:2]), (np.zeros(self.design.shape[:2]),) * 2
        state = State(tau, np.zeros_like(tau), np.ones(len(tau)), log_odds, *sites)
        for _ in range(_NEWTON):
            slope, curvature = self.outcomes.expanded(f)
            # Where the density is nearly flat Newton's own step is far too long.
            bent = np.where(self.outcomes.observed, np.maximum(curvature, 1e-3 + 0.1 * np.abs(slope)), 0.0)
            state = state._replace(outcome_tau=bent, outcome_nu=slope + bent * f)
            full, linear = self._joint(state)
            new = (self.design @ np.linalg.solve(full, linear[..., None]))[..., 0]
            f = f + np.clip(new - f, -_LONGEST, _LONGEST)
        return state

    def _joint(self, state: State) -> tuple[Array, Array]:
        """Precision of the joint normal, and that times its mean."""
        m, diagonal = state.tau.shape[1], np.arange(self.design.shape[-1])
        full = np.swapaxes(self.design * state.outcome_tau[..., None], 1, 2) @ self.design
        full[:, diagonal[:m], diagonal[:m]] += state.tau
        full[:, diagonal[m:], diagonal[m:]] += self.prior.intercept_sd**-2
        linear = (np.swapaxes(self.design, 1, 2) @ state.outcome_nu[..., None])[..., 0]
        linear[:, :m] += state.nu
        return full, linear

    def view(self, state: State) -> View:
        """The joint normal, and every weight and outcome with its own density put back."""
        m, (full, linear) = state.tau.shape[1], self._joint(state)
        cov: Any = np.linalg.inv(full)
        mean: Array = (cov @ linear[..., None])[..., 0]
        v = np.diagonal(cov, axis1=1, axis2=2)[:, :m]
        a = np.maximum(1 / v - state.tau, LEAST_PRECISION)
        b = mean[:, :m] / v - state.nu
        tilted = self.rows.density.tilted(a, b, state.log_odds)
        f = (self.design @ mean[..., None])[..., 0]
        var = np.maximum(((self.design @ cov) * self.design).sum(-1), _LEAST_VARIANCE)
        return View(full, linear, mean, cov, a, b, tilted, self._tilted(f, var, state))

    def _tilted(self, mean: Array, var: Array, state: State) -> OutcomeSites:
        """Linear predictors with their outcome's density in place of its site."""
        a = np.maximum(1 / var - state.outcome_tau, _LEAST_SITE)
        b = mean / var - state.outcome_nu
        f, log_mass = nodes(mean, var)
        # The tilted density over the marginal that the nodes are of: sites out, the outcome's density in.
        ratio = self.outcomes.log_prob(f) + 0.5 * (1 / var - a) * f**2 - (mean / var - b) * f
        log_w = log_mass + ratio
        log_norm = logsumexp(log_w, axis=0)
        w = np.exp(log_w - log_norm)
        first = (w * f).sum(0)
        second = (w * (f - first) ** 2).sum(0)
        log_norm = np.where(self.outcomes.observed, log_norm, 0.0)
        return OutcomeSites(a, b, first, np.maximum(second, _LEAST_VARIANCE), log_norm)

    def moved(self, state: State, view: View, step: Array, odds: Odds | None) -> State:
        """The next state: some way towards the sites that match."""
        tau, nu, log_odds = weight_sites(state, view, step, odds)
        t, s = view.outcomes, step[:, None]
        new_tau = np.clip(1 / t.var - t.a, _LEAST_SITE, _MOST_SITE)
        new_nu = t.mean * (new_tau + t.a) - t.b
        new_tau, new_nu = (np.where(self.outcomes.observed, site, 0.0) for site in (new_tau, new_nu))
        return state._replace(
            tau=tau,
            nu=nu,
            log_odds=log_odds,
            outcome_tau=state.outcome_tau + s * (new_tau - state.outcome_tau),
            outcome_nu=state.outcome_nu + s * (new_nu - state.outcome_nu),
        )

    def log_evidence(self, fit: Fit) -> Array:
        """log p(y | eta) of each row, up to what the predictors do not move."""
        evidence = log_norm(fit) + fit.view.outcomes.log_norm.sum(-1)
        return evidence - np.log(self.prior.intercept_sd) if self.prior.intercept else evidence

    def target(self, fit: Fit) -> Target:
        """What draws go by: the sites of the outcomes; what they are weighed by: the outcomes themselves."""
        state, m = fit.state, fit.state.tau.shape[1]
        full, linear = self._joint(state._replace(tau=0 * state.tau, nu=0 * state.nu))
        evidence, features = self.log_evidence(fit), self.design[..., :m]
        beside = full[:, m:, :m]  # of the intercept and the weights: no row without an intercept
        corner, pull = full[:, m:, m:], linear[:, m:]
        gram, of_weights = full[:, :m, :m], linear[:, :m]
        if self.prior.intercept:
            gram = gram - np.swapaxes(beside, 1, 2) @ beside / corner
            of_weights = of_weights - beside[:, 0] * pull / corner[:, 0]

        def log_likelihood(w: Array, fit: NDArray[np.intp], rng: np.random.Generator) -> Array:
            n_rows = w.shape[1]
            f = np.einsum("drm,rnm->drn", w, features[:n_rows])
            beyond = 0.0
            if self.prior.intercept:  # drawn from its normal given the weights, and weighed by its prior
                precision = corner[fit, 0, 0]
                mean = (pull[fit, 0] - (beside[fit, 0] * w).sum(-1)) / precision
                z, sd = rng.standard_normal(mean.shape), self.prior.intercept_sd
                b = mean + z / np.sqrt(precision)
                f = f + b[..., None] * self.design[:n_rows, :, m]
                beyond = 0.5 * z**2 - 0.5 * np.log(precision) - 0.5 * (b / sd) ** 2 - np.log(sd)
            row = np.arange(n_rows)
            return self.outcomes.take(row).log_prob(f).sum(-1) + beyond - evidence[fit]

        return Target(gram, of_weights, np.ones(len(evidence)), log_likelihood)
