"""What the tasks of a multi-task fit identify: the criterion on supports, and the assumptions behind it.

A latent is recovered if for every other one some task uses it without the other (assumption 3.6, which is
asked of every posterior draw of the supports); 3.3 to 3.5 are checked on the fitted latents and weights.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from ..findings.finding import findings_of, sentences
from ..graphs.supports import support_failure, support_identifiability
from ..graphs.task_variability import sufficient_representation, sufficient_tasks, sufficient_within_supports
from ..posterior import arviz as _arviz
from ..posterior.draws import graph_draws, pooled
from .certificate import UNCHECKED, Certificate, doubted, verdicts

if TYPE_CHECKING:
    from .._utils.types import ArvizData
    from ..graphs.identifiability import SufficientInfluence
    from ..inference.multitask.task_result import MultiTaskFit

__all__ = ["task_certificate"]

_THEOREM = "sparse tasks, assumption 3.6 on their supports (Lachapelle, Deleu et al. 2023)"
_ADVICE = "more tasks or samples"
_HELP = "a task that uses {name} and not {others}"
_ADAPTED = (
    "the fit was adapted: its latents were learned from the tasks it was trained on, and supports of others "
    "do not say whether those identify them"
)
_OPEN = {
    "one representation for all tasks": "the same inputs mean the same latents in every task",
    "linear in the latents": "a task's target is linear in them, with {outcomes}",
    "weights drawn without preference": "nothing makes the tasks' weights line up (3.5 can be refuted, not "
    "shown)",
}


def task_certificate(fit: MultiTaskFit | None, idata: ArvizData, sure: float) -> Certificate:
    """Say of every latent whether the tasks' supports identify it.

    Parameters
    ----------
    fit : MultiTaskFit or None
        From a fit the assumptions on latents and weights are checked.
    idata : InferenceData or DataTree
        Its edge posterior.
    sure : float
        Probability that a verdict wants.

    Returns
    -------
    Certificate
    """
    draws = pooled(graph_draws(idata))
    identifiability = support_identifiability(draws)
    names = [str(n) for n in _arviz.get_group(idata, "edge_posterior")["latent"].to_numpy()]
    return Certificate(
        theorem=_THEOREM,
        table=doubted(verdicts(names, identifiability, sure, _HELP), findings_of(fit, idata), _ADVICE),
        all_identified=identifiability.all_disentangled,
        assumptions=_assumptions(fit, idata),
        caution=_caution(fit, idata),
    )


def _assumptions(fit: MultiTaskFit | None, idata: ArvizData) -> pd.DataFrame:
    p = _arviz.get_group(idata, "edge_posterior")["probability"].transpose("task", "latent").to_numpy()
    bounds = support_failure(p)
    rows: dict[str, dict[str, object]] = {
        "3.6 supports differ": {
            # as sure as `identify` is by default
            "holds": True if bounds.upper <= 0.05 else False if bounds.lower >= 0.95 else None,
            "figure": f"P(fails) between {bounds.lower:.2g} and {bounds.upper:.2g} were edges independent",
        }
    }
    if fit is not None:
        rows["3.3 latents vary"] = UNCHECKED
        if fit.tasks.lengths.any():
            z = fit.transform()
            spread = sufficient_representation(z[np.isfinite(z).all(-1)])
            rows["3.3 latents vary"] = _row(spread.holds, spread)
        # means given the data: at the mode a weight may be zero that is more probable than not
        draws = _arviz.get_group(idata, "posterior")["weight"].isel(chain=fit.best)
        mean = draws.mean("draw").transpose("task", "latent").to_numpy() / fit.tasks.target_scale[:, None]
        span = sufficient_tasks(mean)
        rows["3.4 tasks vary"] = _row(span.holds, span)
        used = p > 0.5
        several = used.any(1)
        if several.any():
            within = sufficient_within_supports(np.where(used, mean, 0.0)[several], used[several])
            tested = np.isfinite(within.concentration)
            refuted = within.p_value[tested] <= within.level / max(len(within.p_value), 1)
            rows["3.5 weights vary within supports"] = {
                "holds": False if refuted.any() else None,
                "figure": f"{int(tested.sum())} of {len(tested)} supports have tasks enough to look; "
                f"{int(refuted.sum())} concentrate on a plane",
            }
    likelihood = None if fit is None else fit.model.likelihood
    outcomes = (
        "Gaussian noise" if likelihood is None else f"a {likelihood.full_name} likelihood of its outcomes"
    )
    for name, figure in _OPEN.items():
        rows[name] = {"holds": None, "figure": figure.format(outcomes=outcomes)}
    table = pd.DataFrame.from_dict(rows, orient="index", columns=["holds", "figure"])
    table.index.name = "assumption"
    return table


def _row(holds: bool, sufficiency: SufficientInfluence) -> dict[str, object]:
    return {
        "holds": bool(holds),
        "figure": f"rank {int(sufficiency.rank.sum())} of {int(sufficiency.dimension.sum())}, "
        f"condition {sufficiency.condition:.3g}",
    }


def _caution(fit: MultiTaskFit | None, idata: ArvizData) -> list[str]:
    adapted = fit is not None and fit.settings.get("adapted")
    return [*([_ADAPTED] if adapted else []), *sentences(findings_of(fit, idata))]
