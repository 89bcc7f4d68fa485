r"""Which task uses which latent: edge probabilities of a multi-task fit, given its learned latents.

In fixed latents every task is a sparse linear row (`rows.py`), so that the posterior over its edges is a
solved problem: expectation propagation, with enumeration and a long Gibbs run for those who want to check
it, and the bootstrap of the program's own mode to compare. What the latents' own uncertainty adds is not in
these numbers; the gap between restarts shows some of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch

from ...._utils.options import check_options, options_of
from ...._utils.types import ArvizData
from ....models.multitask import INTERCEPT_SD
from ....posterior.tasks import task_to_arviz
from ....priors import Prior
from ....priors.spike_slab import Scales, SpikeSlabPrior
from ...multitask.task_run import raw_latents
from ..density.rates import rate_prior
from ..density.requirements import lacks_for_regressions, lacks_of_prior
from .bootstrap import bootstrap_edges
from .enumerate import enumerate_edges
from .ep import ep_edges
from .gibbs import gibbs_edges
from .outcome_edges import lacks_of_outcomes, outcome_edges
from .rows import RowPosterior, RowPrior

if TYPE_CHECKING:
    from ...multitask.task_result import MultiTaskFit

__all__ = ["TASK_METHODS", "method_for", "row_prior", "row_task_edges", "score_task_edges", "task_rows"]

_SOLVERS: dict[str, Callable[..., RowPosterior]] = {
    "ep": ep_edges,
    "enumerate": enumerate_edges,
    "gibbs": gibbs_edges,
    "bootstrap": bootstrap_edges,
}
_NOTES = {
    "ep": "Posterior probability of the slab by expectation propagation, given the learned latents.",
    "gibbs": "Posterior probability of the slab by Gibbs sampling, given the learned latents.",
    "bootstrap": "Average of p* over modes of randomly weighted samples (Bayesian bootstrap), given the "
    "learned latents and with the program's own narrow spike. An approximation, too sure where latents are "
    "correlated or samples few.",
    "enumerate": "Exact posterior over supports (normal slab, point mass), given the learned latents.",
}
_OUTCOME_NOTE = (
    "Posterior probability of the slab by expectation propagation with a site for each outcome ({}), given "
    "the learned latents and averaged over the likelihood's own parameters."
)


def method_for(fit: MultiTaskFit, options: Iterable[str] = ()) -> str:
    """The method that "auto" takes: probabilities, unless the model's regressions are others than theirs.

    Parameters
    ----------
    fit : MultiTaskFit
    options : iterable of str
        What the caller says, of the rows' prior for instance.
    """
    return "score" if _lacks(fit, options) else "ep"


def _lacks(fit: MultiTaskFit, options: Iterable[str] = ()) -> list[str]:
    """Why sparse rows would be other regressions than the fit's."""
    reasons, prior = lacks_for_regressions(fit.model), fit.model.prior
    if not reasons and fit.model.likelihood is not None:
        reasons = lacks_of_outcomes(fit.model.likelihood)
    if _scales(prior) is not None and not {"slab", "slab_scale"} <= {*options}:
        reasons += [why] if (why := lacks_of_prior(prior)) else []
    return reasons


def row_prior(fit: MultiTaskFit, **changes: object) -> RowPrior:
    """The prior of the fit's own program, as sparse linear rows know it, with a point mass for the spike.

    The program's spike is narrow so that its mode has exact zeros; an edge is a weight that is not zero, and
    a small weight is one, which a spike of some width would claim for itself. The Beta distribution of eta is
    the program's, with the b that the fit used; of an Indian buffet it is the finite form.

    Parameters
    ----------
    fit : MultiTaskFit
    **changes
        Fields of `RowPrior` to set otherwise; ``spike_scale=1 / lambda0`` is the program's own spike,
        which the bootstrap takes.

    Raises
    ------
    ValueError
        The program's prior has no scales of slab and spike: give slab and slab_scale yourself.
    """
    prior = fit.model.prior
    scales = _scales(prior)
    if scales is not None:
        fields: dict[str, Any] = {"slab": scales.family, "slab_scale": scales.slab, "spike_scale": 0.0}
        spike_slab = cast(SpikeSlabPrior, prior)
        a, b = rate_prior(spike_slab)  # the same for every latent: no edge of a task is forbidden
        over = "all" if spike_slab.shared else "feature"
        fields |= {"eta_prior": (float(a[0]), float(b[0])), "eta_over": over}
    elif {"slab", "slab_scale"} <= set(changes):
        fields = {}
    else:
        raise ValueError(
            f"prior: a {type(prior).__name__} has no spike and slab; give slab= and slab_scale= (see "
            "RowPrior)"
        )
    about = {
        "eta_over": "feature",
        "noise_prior": fit.model.noise_prior_declared,
        "target_scale": fit.tasks.target_scale,
        "intercept_sd": INTERCEPT_SD,
    }
    return RowPrior(**{**about, **fields, **changes})


def _scales(prior: Prior) -> Scales | None:
    """Of slab and spike, if the prior says that it has some."""
    return prior.scales() if isinstance(prior, SpikeSlabPrior) else None


def task_rows(fit: MultiTaskFit, restart: int) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """Latents (task, sample, latent) in the best restart's frame, targets and mask, all in model units.

    Parameters
    ----------
    fit : MultiTaskFit
    restart : int
    """
    model, tasks = fit.models[restart], fit.tasks
    data = tasks.batch(model.turn.device, model.turn.dtype)
    with torch.no_grad():
        z = (raw_latents(model, data) - model.centre) / model.spread
    turn, sign = fit.alignment["permutation"][restart], fit.alignment["sign"][restart]
    return z.double().cpu().numpy()[..., turn] * sign, tasks.y, tasks.mask


def row_task_edges(fit: MultiTaskFit, method: str, num_draws: int, seed: int, **options: object) -> ArvizData:
    """Edges by one of the methods for sparse linear rows.

    Parameters
    ----------
    fit : MultiTaskFit
    method : {"ep", "enumerate", "gibbs", "bootstrap"}
        "enumerate" takes a normal slab of the same standard deviation, a point mass for a spike, and an eta
        for each task (the Beta prior is the program's), where the others have one for each latent or for all;
        "bootstrap" takes the program's own spike, since a mode wants one of some width.
    num_draws : int
        Draws per restart.
    seed : int
    **options
        Fields of `RowPrior`, and options of the method.

    Raises
    ------
    TypeError
        An option is neither.
    ValueError
        The model's regressions, or its prior, are not those of sparse linear rows.
    """
    solvers = [_SOLVERS[method], outcome_edges] if method == "ep" else [_SOLVERS[method]]
    of_prior: set[str] = {*RowPrior.__dataclass_fields__}
    check_options(method, options, of_prior.union(*map(options_of, solvers)) - {"prior"})
    likelihood = fit.model.likelihood
    if likelihood is not None and method != "ep":
        raise ValueError(
            f'method: {method!r} knows normal outcomes only, and these are {likelihood.name}; ask for "ep", '
            'or "score"'
        )
    solve = _SOLVERS[method] if likelihood is None else outcome_edges
    check_options(method, options, (options_of(solve) | of_prior) - {"prior"})
    if why := _lacks(fit, options):
        raise ValueError(
            f"model: {why[0]}, so that its numbers would be probabilities of another model; ask for "
            'method="score"'
        )
    fields = {k: options.pop(k) for k in list(options) if k in RowPrior.__dataclass_fields__}
    if method == "enumerate":
        if "slab_scale" not in fields:
            # A Laplace of scale 1 has the standard deviation sqrt(2).
            fields["slab_scale"] = np.sqrt(2) * np.asarray(row_prior(fit).slab_scale)
        fields = {"slab": "normal", "eta_over": "row", **fields}
    scales = _scales(fit.model.prior)
    if method == "bootstrap" and scales is not None:
        fields = {"spike_scale": scales.spike, **fields}
    if method == "bootstrap":
        at_mode = fit.model.mode_noise_prior()
        fields = {"noise_prior": (float(at_mode.concentration), float(at_mode.rate)), **fields}
    prior = row_prior(fit, **fields)
    if method in ("gibbs", "bootstrap"):
        options = {"seed": seed, **options}
    posteriors, settings = [], cast("dict[str, Any]", options)
    for r in range(fit.n_restarts):
        z, y, mask = task_rows(fit, r)
        if (of_restart := fit.models[r].likelihood) is not None:
            settings |= {"likelihood": of_restart, "is_set_up": True}
        posteriors.append(solve(z, y, prior, mask, **settings))
    draws = [posterior.draws(num_draws, seed=seed + r) for r, posterior in enumerate(posteriors)]
    return task_to_arviz(
        fit,
        edge=np.stack([d.edge for d in draws]),
        weight=np.stack([d.weight for d in draws]),
        probability=np.stack([posterior.edge_prob for posterior in posteriors]),
        eta=np.stack([posterior.eta.mean(0) for posterior in posteriors]),
        method=method,
        is_score=False,
        note=_NOTES[method] if likelihood is None else _OUTCOME_NOTE.format(likelihood.full_name),
        attrs={"converged": int(all(bool(posterior.converged.all()) for posterior in posteriors))},
    )


def score_task_edges(
    fit: MultiTaskFit, method: str, num_draws: int, seed: int, **options: object
) -> ArvizData:
    """The spike-and-slab lasso's p* of each weight: a score, not a probability.

    Parameters
    ----------
    fit : MultiTaskFit
    method : {"score"}
    num_draws, seed : int
        As in `edge_posterior`.
    **options
        None.

    Raises
    ------
    ValueError
        The prior has no such score.
    TypeError
        There are options.
    """
    check_options(method, options)
    score = fit.edge_score
    if score is None:
        raise ValueError(f"method: the prior {type(fit.model.prior).__name__} gives edges no score")
    rng = np.random.default_rng(seed)
    edge = rng.random((len(score), num_draws, *score.shape[1:])) < score[:, None]
    edges = task_to_arviz(
        fit,
        edge=edge.astype(np.int8),
        weight=np.broadcast_to(fit.model_weights[:, None], edge.shape),
        probability=score,
        eta=None,
        method=method,
        is_score=True,
        note="p* of the spike-and-slab lasso at its mode: it ranks edges, it is not calibrated.",
    )
    if why := _lacks(fit):
        edges.attrs["chosen_because"] = why[0]
        edges.attrs["verdict"] += f"\nWhy scores: {why[0]}."
    return edges


TASK_METHODS: dict[str, Callable[..., ArvizData]] = {
    "ep": row_task_edges,
    "enumerate": row_task_edges,
    "gibbs": row_task_edges,
    "bootstrap": row_task_edges,
    "score": score_task_edges,
}
