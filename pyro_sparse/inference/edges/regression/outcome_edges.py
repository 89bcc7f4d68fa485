"""Edge probabilities of sparse rows whose outcomes are yes/no answers, counts, levels, or of any density.

Expectation propagation as in `ep.py`, with a site for each outcome (`ep_outcomes.py`). What the likelihood
has as parameters of its own (cuts between levels, an overdispersion) is brought to its mode by EM, and
averaged over about it (`outcome_parameters.py`).
"""

from __future__ import annotations

import copy
import warnings
from typing import TypedDict, cast

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from scipy.special import logit

from ...._utils.optimisers import eager
from ...._utils.torch_state import undisturbed
from ....likelihoods import Likelihood, LikelihoodLike
from ....likelihoods.base import NOTHING
from ....likelihoods.outcomes import of_tasks, outcome_likelihood, set_up_for
from .ep import check_sweeps, row_posterior
from .ep_outcomes import OutcomeProblem, Outcomes, nodes
from .ep_rate import collapsed
from .ep_sites import settle
from .outcome_parameters import Coordinates, averaged, located, node_rule
from .row_checks import Rows, rows_of, tables
from .rows import RowPosterior, RowPrior

__all__ = ["lacks_of_outcomes", "outcome_edges"]

_ROUNDS, _SWEEPS = 4, 15  # of EM for the likelihood's parameters, and of the sites in each
_STEPS = 20  # of the optimiser in each

Array = NDArray[np.float64]


def outcome_edges(
    features: ArrayLike,
    targets: ArrayLike,
    prior: RowPrior,
    mask: ArrayLike | None = None,
    *,
    likelihood: LikelihoodLike,
    is_set_up: bool = False,
    average: bool = True,
    correct: bool = True,
    max_sweeps: int = 200,
    damping: float = 0.5,
    tol: float = 1e-3,
) -> RowPosterior:
    """Approximate edge probabilities of sparse rows with outcomes of any density, all rows at once.

    Parameters
    ----------
    features : array_like of shape (task, sample, feature)
    targets : array_like of shape (task, sample)
        0 and 1, counts, levels, …
    prior : RowPrior
        In units of the linear predictor per unit of the feature. What it says of noise is not used.
    mask : array_like of bool, shape (task, sample), optional
        Samples that exist; what stands elsewhere is not looked at.
    likelihood : str, mapping or Likelihood
        As for `MultiTaskRegression`.
    is_set_up : bool
        The likelihood is one of a fit, set up for these tasks: targets are in its units (levels counted from
        0), and its parameters are where the search for their mode begins.
    average : bool
        Average over what is not known of the likelihood's own parameters (cuts, overdispersion); else they
        are held at their mode, which costs less, and is too sure in tasks of few samples.
    correct, max_sweeps, damping, tol
        As for `ep_edges`.

    Returns
    -------
    RowPosterior
        As `ep_edges` has it; `noise_variance` is NaN, and `log_evidence` leaves out what neither weights nor
        intercept move.

    Raises
    ------
    ValueError
        If an input does not fit, outcomes are none of the likelihood's, or the likelihood is not one of
        single outcomes; `slab_units` or `noise_variance` speak of a noise.

    Warns
    -----
    RuntimeWarning
        If a row has not converged: how many, and how large the last change was.

    Notes
    -----
    Features are centred in each task, and the intercept has a normal prior there, `RowPrior.intercept_sd`.
    Parameters that several tasks share, or of which the likelihood's `priors` say nothing task by task, are
    held at their mode whatever `average` says.

    References
    ----------
    Minka (2001), Expectation propagation for approximate Bayesian inference, UAI. Hernández-Lobato,
    Hernández-Lobato and Suárez (2015), Machine Learning 99, for the sites of spike and slab. Rasmussen and
    Williams (2006), Gaussian processes for machine learning, section 3.6, for those of the outcomes.
    """
    check_sweeps(max_sweeps, damping, tol)
    if prior.slab_units == "noise" or prior.noise_variance is not None:
        raise ValueError(
            "prior: outcomes that are not normal have no noise; want slab_units='target' and "
            "noise_variance=None"
        )
    x, y, observed = tables(features, targets, mask)
    if x.ndim != 3:
        raise ValueError(f"features: want shape (task, sample, feature), got {x.shape}")
    if is_set_up:
        ready = copy.deepcopy(cast("Likelihood", likelihood)).double()
    else:
        ready, y = _ready(likelihood, y, observed)
    if why := lacks_of_outcomes(ready):
        raise ValueError(f"likelihood: {why[0]}; give another, or ask for scores")
    rows = rows_of(x, y, prior, observed)
    rows = rows._replace(noise=np.ones(len(y)))  # sites of outcomes take its place
    problem = OutcomeProblem(rows, prior, _design(x, observed, rows, prior), Outcomes.of(ready, y, observed))
    if next(ready.parameters(), None) is not None:
        problem = _with_parameters_learned(problem, ready, damping)
    settings: _Settings = {"max_sweeps": max_sweeps, "damping": damping, "tol": tol}
    posterior = row_posterior(problem, rows, correct=correct, **settings)
    if average and (coordinates := Coordinates(ready, len(y))).count:
        posterior = _over_parameters(problem, rows, coordinates, posterior, settings)
    return posterior._replace(noise_variance=np.full(len(y), np.nan))


class _Settings(TypedDict):
    """Of the sweeps."""

    max_sweeps: int
    damping: float
    tol: float


def _over_parameters(
    problem: OutcomeProblem, rows: Rows, coordinates: Coordinates, at_mode: RowPosterior, settings: _Settings
) -> RowPosterior:
    """Edges averaged over the likelihood's parameters; a rate that tasks share is that of the mode.

    What the average changes is found without holding edges in and out, which changes it little.
    """
    shared = at_mode.log_evidence is None
    if shared:
        rows = rows._replace(log_odds=logit(np.clip(at_mode.eta, 1e-9, 1 - 1e-9)))
        problem = problem._replace(rows=rows)
    n_tasks, outcomes = len(rows.cross), problem.outcomes

    def given(shift: Array) -> tuple[RowPosterior, Array]:
        likelihood = coordinates.at(shift)
        prior = cast("Array", coordinates.log_prior())
        there = Outcomes.of(likelihood, outcomes.cells.x[0].numpy(), outcomes.observed)
        base = there.cells.log_base(there.noise)[0].detach().numpy()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # of the sweeps, which the mode has given
            posterior = row_posterior(problem._replace(outcomes=there), rows, correct=False, **settings)
        return posterior, cast("Array", posterior.log_evidence) + base + prior

    centre, sd = located(lambda shift: given(shift)[1], coordinates.count, n_tasks)
    nodes, log_mass = node_rule(coordinates.count)
    posteriors, log_weight = [], []
    for node, log_share in zip(nodes, log_mass, strict=True):
        posterior, log_density = given(centre + sd * node[:, None])
        posteriors.append(posterior)
        # Over the density of the normal that the rule is of.
        log_weight.append(log_share + log_density + 0.5 * (node**2).sum() + np.log(sd).sum(0))
    constant = 0.5 * coordinates.count * np.log(2 * np.pi)
    mixed = averaged(posteriors, np.array(log_weight) + constant)
    mode, _ = given(np.zeros((coordinates.count, n_tasks)))
    return mixed._replace(
        edge_prob=np.clip(at_mode.edge_prob + mixed.edge_prob - mode.edge_prob, 0, 1),
        weight_mean=at_mode.weight_mean + mixed.weight_mean - mode.weight_mean,
        eta=at_mode.eta if shared else mixed.eta,
        log_evidence=None if shared else mixed.log_evidence,
        converged=at_mode.converged & mixed.converged,
        gap=np.maximum(at_mode.gap, mixed.gap),
    )


def lacks_of_outcomes(likelihood: Likelihood) -> list[str]:
    """Why outcomes of a likelihood cannot have sites of their own, each the end of a sentence.

    Parameters
    ----------
    likelihood : Likelihood
        Set up.
    """
    name = type(likelihood).__name__
    coupled = [type(part).__name__ for part, _ in likelihood.families() if not part.separable]
    if coupled:
        return [f"{coupled[0]} does not say that an outcome goes by its own predictor alone (separable)"]
    if likelihood.of_features(torch.arange(0)) is None:
        return [f"{name} has parameters and no of_features, so that tasks cannot be looked at by themselves"]
    return []


def _ready(likelihood: LikelihoodLike, y: Array, observed: NDArray[np.bool_]) -> tuple[Likelihood, Array]:
    """A likelihood with a column for each task, in double precision, and outcomes in its units."""
    cells = np.where(observed, y, np.nan).T
    ready = of_tasks(outcome_likelihood(likelihood), [f"{t}" for t in range(len(y))], cells)
    centre, scale = ready.units(cells, True)
    with undisturbed():
        set_up_for(ready, cells)
    return ready.double(), np.where(observed, ((cells - centre) / scale).T, 0.0)


def _design(x: Array, observed: NDArray[np.bool_], rows: Rows, prior: RowPrior) -> Array:
    """Centred features in units of the slab and, where there is an intercept, ones; 0 where no sample is."""
    there = observed[..., None]
    if prior.intercept:
        raw = np.abs(x).max(1, initial=0)
        x = np.where(there, x - (x.sum(1) / rows.samples[:, None])[:, None], 0.0)
        x = np.where((np.abs(x).max(1) <= 64 * np.finfo(float).eps * raw)[:, None], 0.0, x)
    x = x * rows.scale[:, None]
    return np.concatenate([x, there.astype(float)], -1) if prior.intercept else x


def _with_parameters_learned(
    problem: OutcomeProblem, likelihood: Likelihood, damping: float
) -> OutcomeProblem:
    """The problem at the mode of the likelihood's parameters, given what EM knows of the predictors."""
    rows, prior = problem.rows, problem.prior
    a, b = prior.eta_prior
    tau = np.full(rows.cross.shape, 1 / rows.density.variance)
    log_odds = np.full(rows.cross.shape, np.log(a / b)) if rows.log_odds is None else rows.log_odds
    odds = None if rows.log_odds is not None else collapsed(prior, rows.cross.shape)
    state = problem.start(tau, log_odds)
    for _ in range(_ROUNDS):
        fit = settle(problem, state, _SWEEPS, damping, -1.0, odds)  # all sweeps, whatever changes
        state, sites = fit.state, fit.view.outcomes
        _maximise(likelihood, problem.outcomes, *nodes(sites.mean, sites.var))
        outcomes = problem.outcomes
        learned = Outcomes.of(likelihood, outcomes.cells.x[0].numpy(), outcomes.observed)
        problem = problem._replace(outcomes=learned)
    return problem


def _maximise(likelihood: Likelihood, outcomes: Outcomes, f: Array, log_mass: Array) -> None:
    """M step: parameters at the mode of their prior times the likelihood's expectation over the nodes."""
    predictor, mass = torch.as_tensor(f).mT, torch.as_tensor(np.exp(log_mass))
    x, seen = outcomes.cells.x[0].mT, torch.as_tensor(outcomes.observed).mT
    parameters = [p for p in likelihood.parameters() if p.requires_grad]
    optimiser = eager(torch.optim.LBFGS)(parameters, max_iter=_STEPS, line_search_fn="strong_wolfe")

    def loss() -> torch.Tensor:
        optimiser.zero_grad()
        log_p = likelihood(predictor, NOTHING).log_prob(x.expand_as(predictor))
        total = (mass * torch.where(seen, log_p, 0.0)).sum()
        priors = likelihood.priors()
        total = total + sum(priors[q].log_prob(value).sum() for q, value in likelihood.values().items())
        (-total).backward()
        return -total

    with torch.enable_grad():
        optimiser.step(loss)
