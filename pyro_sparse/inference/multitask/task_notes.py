"""What a fit of tasks says of itself: its error, restarts that disagree, latents mixed up or left out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from scipy import stats

from ...findings.finding import Finding
from ...graphs.alignment import SAME_LATENTS

if TYPE_CHECKING:
    from ...models.multitask import MultiTaskRegression

__all__ = [
    "dispersion_findings",
    "error_findings",
    "latent_findings",
    "linear_map_only",
    "mode_findings",
    "unlikely_findings",
    "unused",
]

_LEAST_ROWS = 4  # two to fit weights to, two to judge them by: `bilevel.left_out_error`
_NAMED = 5  # tasks that a sentence lists
_NOTHING = 1.0  # variances of the target: what the task's mean does
_MANY_AT_ZERO = 0.1  # share of tasks without a weight at the mode that is said
_CHANCE = 0.01  # of gains as large where these tasks use no latent
_WIDER = 10  # by what the spike that a remedy names is wider
_LIKELY = 0.95  # mean probability of the mode's edges: as sure as edges that are called present
_LEAST_EDGES = 20  # at the mode: of fewer the mean is that of a few tasks, and the closed form is a rough one
# Dispersion from which probabilities are too sure, and standard errors that it is from 1. Of forty tasks of
# 80 Poisson counts it was .92 to 1.06; of negative binomial ones of concentration 3 it was 1.68 to 2.48, by
# seven standard errors and more (seeds 1000 to 1019).
_DISPERSED, _LEAST_Z = 1.3, 4.0


def error_findings(error: float, sizes: np.ndarray, normal: bool = True) -> list[Finding]:
    """What the left-out error says against a fit: nothing learned, or nothing to judge by.

    Parameters
    ----------
    error : float
        Of the best restart, in variances of the target.
    sizes : ndarray of int (task,)
        Rows with a target of the tasks that it is of.
    normal : bool
        Whether outcomes are; the error of others is by their likelihood (`outcomes.left_out_ratio`).
    """
    if not np.isfinite(error):
        if (np.asarray(sizes) < _LEAST_ROWS).all():
            message = (
                f"the left-out error cannot be computed: no task has the {_LEAST_ROWS} rows that it wants, "
                "two to fit weights to and two to judge them by"
            )
            remedy = "give more rows a task"
        else:
            message, remedy = (
                "the left-out error is no finite number: the training diverged",
                "lower learning_rate",
            )
        return [Finding("error", message, remedy, "doubt")]
    if error < _NOTHING:
        return []
    return [
        Finding(
            "error",
            f"left-out samples are predicted {_measured(error, normal)}: nothing shows that the latents were "
            "learned",
            "more rows a task, fewer latents, or more steps",
            "doubt",
            size=float(error),
        )
    ]


def dispersion_findings(dispersion: tuple[float, float] | None) -> list[Finding]:
    """Doubt of all edges where outcomes vary more than their likelihood allows.

    Parameters
    ----------
    dispersion : (float, float) or None
        `outcomes.dispersion`.
    """
    if dispersion is None or dispersion[0] < _DISPERSED or dispersion[1] < _LEAST_Z:
        return []
    return [
        Finding(
            "outcomes",
            f"outcomes vary {dispersion[0]:.2g} times as much about their expectations as the likelihood "
            "says: probabilities of edges claim to be surer than they are",
            'for counts likelihood="negative_binomial"; or more latents, if some are left out',
            "doubt",
            size=float(dispersion[0]),
        )
    ]


def _measured(error: float, normal: bool) -> str:
    if normal:
        return f"with an error of {error:.2g} variances of the target, no better than by each task's mean"
    return f"no better than by each task's intercept (error {error:.2g}, where that has 1)"


def latent_findings(
    similarity: np.ndarray, block: np.ndarray, best: int, names: Sequence[str]
) -> list[Finding]:
    """Doubts of latents that no other restart has, and of those that the tasks do not tell apart.

    Parameters
    ----------
    similarity : ndarray (restart, latent)
        Absolute correlation of each restart's latents with those of the best.
    block : ndarray of int (latent,)
        Of the best restart; latents of one number are not told apart by the tasks.
    best : int
    names : sequence of str
        Of the latents.
    """
    findings = []
    others = np.delete(np.asarray(similarity, dtype=float), best, axis=0)
    if len(others):
        nearest = others.max(0)
        lost = np.flatnonzero(~(nearest >= SAME_LATENTS)).tolist()
        if lost:
            lost_names = tuple(names[k] for k in lost)
            figures = ", ".join(f"{nearest[k]:.2f}" for k in lost)
            findings.append(
                Finding(
                    "restarts",
                    f"no other restart found {', '.join(lost_names)}: the nearest has a correlation of only "
                    f"{figures}",
                    "more restarts, or more tasks and rows",
                    "doubt",
                    factors=lost_names,
                    size=float(nearest.min()),
                )
            )
    for number in np.unique(block):
        members = np.flatnonzero(block == number).tolist()
        if len(members) > 1:
            alike = tuple(names[k] for k in members)
            findings.append(
                Finding(
                    "axes",
                    f"latents {', '.join(str(k + 1) for k in members)}: the tasks do not tell them apart; "
                    "their axes rest on independence, or on nothing",
                    f"tasks that use {alike[0]} and not {' or '.join(alike[1:4])}, and the reverse",
                    "doubt",
                    factors=alike,
                )
            )
    return findings


def linear_map_only() -> list[Finding]:
    """What ridge regressions inside the training leave open."""
    message = "inner='ridge' fixes the latents up to a linear map only: single latents mean nothing"
    return [Finding("axes", message, "fit with inner='ssl'", severity="doubt")]


def mode_findings(
    weights: np.ndarray, gains: np.ndarray, rates: tuple[float, float], names: Sequence[str]
) -> list[Finding]:
    """Tasks whose weights are all 0 at the mode, though their rows go with the latents.

    Tasks that use no latent have such a mode, too: it is said where the gains of all of them together are
    beyond chance.

    Parameters
    ----------
    weights : ndarray (task, latent)
        At the mode.
    gains : ndarray (task,)
        Of dense weights over none, twice in log-likelihood (`outcomes.dense_gain`); NaN where unknown.
    rates : (float, float)
        Of slab and spike.
    names : sequence of str
        Of the tasks.
    """
    idle = np.flatnonzero(~(weights != 0).any(1)).tolist()
    known = gains[idle][np.isfinite(gains[idle])]
    chance = stats.chi2.sf(known.sum(), len(known) * weights.shape[1]) if len(known) else 1.0
    if len(idle) < _MANY_AT_ZERO * len(names) or chance > _CHANCE:
        return []
    slab, spike = rates
    listed = ", ".join(names[t] for t in idle[:_NAMED]) + (", …" if len(idle) > _NAMED else "")
    return [
        Finding(
            "mode",
            f"{len(idle)} of {len(names)} tasks ({listed}) have no weight at the mode, while dense weights "
            "explain their rows better than chance: with a spike of rate "
            f"{spike:.3g} a weight is 0 unless it gains some {np.log(spike / slab):.2g} nats of "
            "log-likelihood, and few rows seldom say so much",
            "take edges and weights from edge_posterior(), as predict() does, not from fit.weights; or a "
            f"wider spike, prior=SpikeSlabLasso(lambda0={max(spike / _WIDER, 2 * slab):.3g}, a=1.0, b=1.0)",
            columns=tuple(names[t] for t in idle),
            size=len(idle) / len(names),
        )
    ]


def unlikely_findings(probability: np.ndarray, names: Sequence[str]) -> list[Finding]:
    """Edges at the mode that are, taken together, less probable than edges that are called present.

    Parameters
    ----------
    probability : ndarray (task, latent)
        Of the edges at the mode (`mode_edges.mode_edge_probability`); NaN where there is none.
    names : sequence of str
        Of these tasks.
    """
    there = np.isfinite(probability)
    if there.sum() < _LEAST_EDGES or (mean := float(probability[there].mean())) >= _LIKELY:
        return []
    of_task = np.where(there, probability, 0).sum(1) / np.maximum(there.sum(1), 1)
    tasks = tuple(names[t] for t in np.flatnonzero(there.any(1) & (of_task < _LIKELY)).tolist())
    listed = ", ".join(tasks[:_NAMED]) + (", …" if len(tasks) > _NAMED else "")
    return [
        Finding(
            "mode",
            f"edges at the mode have a mean probability of some {mean:.2g}, given the noise learned from all "
            f"tasks (lower than {_LIKELY} in {len(tasks)} of {len(names)} tasks: {listed}): few rows with "
            "much noise make weights that are chance",
            "take edges and weights from edge_posterior(), as predict() does, not from fit.weights; or give "
            "more rows a task",
            columns=tasks,
            size=mean,
        )
    ]


def unused(model: MultiTaskRegression, at_zero: bool = False) -> list[Finding]:
    """What to say of latents without a task (the best restart's own frame is everyone's).

    Parameters
    ----------
    model : MultiTaskRegression
        Trained.
    at_zero : bool
        Whether there are `mode_findings`: the mode may lack what the tasks use.
    """
    idle = (~(model.weights[0] != 0).any(0)).nonzero()[:, 0].tolist()
    names = ", ".join(f"latent {k + 1}" for k in idle)
    if not idle:
        return []
    message, remedy = "used by no task", "lower n_latents, or give more tasks and rows"
    if at_zero:
        message, remedy = f"{message} at the mode", "look at edge_posterior() before you lower n_latents"
    return [Finding("size", f"{names}: {message}", remedy, factors=tuple(names.split(", ")))]
