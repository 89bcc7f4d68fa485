"""Edges of a transition: parent-set evidence over the learned latents, or the relaxed edges as a score.

`parents_of_latents` asks, given each restart's latents, which past latents and actions explain each next one
(`parents.py`). That the latents and their axes are themselves estimates is not in these probabilities, except
through the differences between restarts: hence the gap.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch

from ...._utils.options import check_options, options_of
from ...._utils.torch_state import undisturbed
from ...._utils.types import ArvizData
from ....posterior.transitions import GraphDraws, transition_to_arviz
from ...transition.transition_axes import latents, seen_steps
from ...transition.transition_checks import evidence_findings, failed_restarts
from ..density.requirements import lacks_for_parent_sets
from .parents import parent_posterior

if TYPE_CHECKING:
    from ....findings.finding import Finding
    from ...transition.transition_result import TransitionFit

__all__ = ["TRANSITION_METHODS", "method_for", "parents_of_latents", "relaxed_scores", "steps_of"]

_SURE = 0.95  # probability from which `summary` calls an edge present, and its complement absent
RELAXED_NOTE = (
    "These numbers are relaxed Bernoulli edges of one fit: scores that rank the edges, not probabilities."
)
PARENTS_NOTE = (
    "Probabilities that an input helps to explain a latent, given each restart's latents and axes; where "
    "restarts disagree (gap) they are of little worth."
)


def method_for(fit: TransitionFit) -> str:
    """The method that "auto" takes: probabilities, unless the model's transition is another than theirs.

    Parameters
    ----------
    fit : TransitionFit
    """
    return "gate_probability" if lacks_for_parent_sets(fit.model) else "parent_sets"


def steps_of(fit: TransitionFit) -> tuple[np.ndarray, np.ndarray]:
    """Inputs and outcomes of all steps between seen frames, in the frame of the best restart.

    Parameters
    ----------
    fit : TransitionFit

    Returns
    -------
    inputs : ndarray (restart, step, input)
        Past latents (lag 1, 2, …) and then the actions' columns, in standard deviations.
    targets : ndarray (restart, step, latent)
        The latents they led to.
    """
    model, like = fit.model, fit.model.axes
    with undisturbed(), torch.no_grad():
        batch = fit.sequences.batch(like.device, like.dtype)
        z = latents(model, batch)
        turn = torch.as_tensor(fit.alignment["permutation"], device=z.device)
        sign = torch.as_tensor(fit.alignment["sign"], device=z.device, dtype=z.dtype)
        z = z.gather(-1, turn[:, None, None].expand_as(z)) * sign[:, None, None]
        inputs, use = seen_steps(model, batch, z)
        targets = z[:, :, model.lags :][:, use]
    return inputs.double().cpu().numpy(), targets.double().cpu().numpy()


def parents_of_latents(
    fit: TransitionFit, num_draws: int = 500, seed: int = 0, **options: object
) -> ArvizData:
    """Posterior of the parents of every latent, each restart by itself.

    Parameters
    ----------
    fit : TransitionFit
    num_draws : int
        Draws of the graph per restart, at least 1.
    seed : int
        Same seed, same draws.
    **options
        Passed to `parent_posterior`: `kernel`, `power`, `prior`, `max_rows`, …

    Returns
    -------
    arviz.InferenceData or xarray.DataTree
        See `transition_to_arviz`. The number to report is that of the best restart.

    Raises
    ------
    TypeError
        An option is not one of `parent_posterior`.
    ValueError
        The model's transition is not the one that the evidence has in mind.
    """
    check_options("parent_sets", options, options_of(parent_posterior))
    if why := lacks_for_parent_sets(fit.model):
        raise ValueError(
            f"model: {why[0]}, so that its numbers would be probabilities of another model; ask for "
            'method="gate_probability"'
        )
    inputs, targets = steps_of(fit)
    options.setdefault("prior", fit.model.concentration)
    masks: dict[str, Any] = {
        "required": fit.model.must.cpu().numpy() if bool(fit.model.must.any()) else None,
        "forbidden": None if bool(fit.model.allowed.all()) else ~fit.model.allowed.cpu().numpy(),
        "odds": fit.model.log_odds.double().exp().cpu().numpy() if fit.model.has_odds else None,
        "groups": fit.model.parent_of_input.cpu().numpy(),
    }
    posteriors = [
        parent_posterior(x, y, num_draws=num_draws, seed=seed + r, **masks, **cast("dict[str, Any]", options))
        for r, (x, y) in enumerate(zip(inputs, targets, strict=True))
    ]
    by_chain = np.stack([f.probability for f in posteriors])
    draws = np.stack([f.draws for f in posteriors])
    graphs = _graphs(fit, draws, by_chain)
    return transition_to_arviz(
        fit,
        graphs,
        method="parent_sets",
        is_score=False,
        note=PARENTS_NOTE,
        findings=_disputed(fit, graphs),
        attrs={"seed": int(seed), "sets": posteriors[fit.best].method},
    )


def relaxed_scores(fit: TransitionFit, num_draws: int = 500, seed: int = 0, **options: object) -> ArvizData:
    """Relaxed Bernoulli edges of the gated program, as scores, with Bernoulli draws from them.

    Parameters
    ----------
    fit : TransitionFit
    num_draws : int
        Draws per restart, at least 1.
    seed : int
        Same seed, same draws.
    **options
        None.

    Returns
    -------
    arviz.InferenceData or xarray.DataTree
        See `transition_to_arviz`; `is_score` is 1.

    Raises
    ------
    TypeError
        There are options.
    """
    check_options("gate_probability", options)
    scores = []
    if fit.relaxed_time is not None:
        r, lags, d, _ = fit.relaxed_time.shape
        scores.append(fit.relaxed_time.transpose(0, 2, 1, 3).reshape(r, d, lags * d))
    if fit.relaxed_action is not None:
        scores.append(fit.relaxed_action)
    p = np.concatenate(scores, -1)
    rng = np.random.default_rng(seed)
    draws = (rng.random((len(p), num_draws, *p.shape[1:])) < p[:, None]).astype(np.int8)
    edges = transition_to_arviz(
        fit,
        _graphs(fit, draws, p),
        method="gate_probability",
        is_score=True,
        note=RELAXED_NOTE,
        attrs={"seed": int(seed)},
    )
    if why := lacks_for_parent_sets(fit.model):
        edges.attrs["chosen_because"] = why[0]
        edges.attrs["verdict"] += f"\nWhy scores: {why[0]}."
    return edges


def _graphs(fit: TransitionFit, draws: np.ndarray, by_chain: np.ndarray) -> dict[str, GraphDraws]:
    """(…, latent, parent) taken apart into the time and the action graph."""
    d, lags = fit.model.n_latents, fit.model.lags

    compared = by_chain[~failed_restarts(fit.agreement)]
    gap = np.ptp(compared, axis=0) if len(compared) > 1 else np.full(by_chain.shape[1:], np.nan)

    def past(array: np.ndarray) -> np.ndarray:
        lagged = np.moveaxis(array[..., : lags * d].reshape(*array.shape[:-1], lags, d), -2, -3)
        return lagged[..., 0, :, :] if lags == 1 else lagged

    must = fit.model.must.cpu().numpy()
    graphs = {}
    if fit.strength_time is not None:
        strength = fit.strength_time[:, 0] if lags == 1 else fit.strength_time
        graphs["time"] = GraphDraws(
            past(draws), past(by_chain[fit.best]), past(by_chain), strength, past(must), past(gap)
        )
    if fit.strength_action is not None:
        graphs["action"] = GraphDraws(
            draws[..., lags * d :],
            by_chain[fit.best][:, lags * d :],
            by_chain[..., lags * d :],
            fit.strength_action,
            must[:, lags * d :],
            gap[:, lags * d :],
        )
    return graphs


def _disputed(fit: TransitionFit, graphs: dict[str, GraphDraws]) -> list[Finding]:
    """A doubt of the edges that are sure, by the probabilities, and that the fit's graph has otherwise."""
    edges, strength, probability = [], [], []
    names = {"time": fit.latent_names, "action": fit.action_names}
    decided = {"time": fit.graph_time, "action": fit.graph_action}
    for name, graph in graphs.items():
        of_fit = decided[name]
        assert of_fit is not None
        present = of_fit[fit.best] == 1
        present = present[0] if present.ndim > graph.probability.ndim else present
        differs = np.where(present, graph.probability <= 1 - _SURE, graph.probability >= _SURE)
        for place in np.argwhere(differs):
            edges.append((fit.latent_names[place[-2]], names[name][place[-1]]))
            strength.append(graph.strength[fit.best][tuple(place)])
            probability.append(graph.probability[tuple(place)])
    return evidence_findings(edges, strength, probability)


TRANSITION_METHODS = {"parent_sets": parents_of_latents, "gate_probability": relaxed_scores}
