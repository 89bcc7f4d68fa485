"""What the graph of a transition identifies: the criterion on who drives whom, and what it assumes.

(a, z)-consistency (`graphs/identifiability.py`) is asked of every posterior draw of the graphs; from a fit,
sufficient influence is measured on the Jacobian of its transition.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
import xarray as xr

from ..findings.finding import Finding, doubted_edges, findings_of, sentences
from ..graphs.identifiability import identifiability_probability
from ..inference.transition.influence import fitted_influence
from ..posterior import arviz as _arviz
from ..posterior.draws import graph_draws, pooled
from .certificate import UNCHECKED, Certificate, doubted, verdicts

if TYPE_CHECKING:
    from .._utils.types import ArvizData
    from ..inference.transition.transition_result import TransitionFit

__all__ = ["transition_certificate"]

_THEOREM = "mechanism sparsity, (a, z)-consistency (Lachapelle et al. 2024)"
_ADVICE = "more restarts, or more sequences"
_HELP = "an action or a past latent that drives {name} and not {others}"
_OPEN = {
    "one-to-one mixing": "two different latents never make the same frame",
    "all that drives is there": "no hidden common cause; what drove the latents is in the table",
    "Gaussian noise": "noise of the transition is Gaussian and independent between latents",
}


def transition_certificate(fit: TransitionFit | None, idata: ArvizData, sure: float) -> Certificate:
    """Say of every latent whether the transition's graph identifies it.

    Parameters
    ----------
    fit : TransitionFit or None
        From a fit the influences are checked.
    idata : InferenceData or DataTree
        Its edge posterior.
    sure : float
        Probability that a verdict wants.

    Returns
    -------
    Certificate
    """
    findings = findings_of(fit, idata)
    time, action = (
        _open_draws(graph_draws(idata, name), findings)
        if f"edge_{name}" in _arviz.get_group(idata, "posterior")
        else None
        for name in ("time", "action")
    )
    identifiability = identifiability_probability(action, time)
    edges = _arviz.get_group(idata, "edge_posterior")
    names = [str(n) for n in edges["target"].to_numpy()]
    return Certificate(
        theorem=_THEOREM,
        table=doubted(verdicts(names, identifiability, sure, _HELP), findings, _ADVICE),
        all_identified=identifiability.all_disentangled,
        assumptions=_assumptions(fit),
        caution=sentences(findings),
    )


def _open_draws(draws: xr.DataArray, findings: Sequence[Finding]) -> np.ndarray:
    """Draws (draw, target, input) in which edges that are in doubt one by one are as likely as not.

    Nothing is known of such an edge, whatever its probability, and a verdict must hold with and without it.
    Doubts of latents, or of the whole graph, are not of the graph's draws: `doubted` has them.
    """
    values = pooled(draws)
    targets, inputs = ([str(n) for n in draws[dim].to_numpy()] for dim in draws.dims[2:])
    of_edges = [finding for finding in findings if finding.edges and not finding.factors]
    is_open = doubted_edges(of_edges, targets, inputs)
    coin = np.random.default_rng(0).random(values.shape) < 0.5
    return np.where(is_open, coin, values)


def _assumptions(fit: TransitionFit | None) -> pd.DataFrame:
    rows: dict[str, dict[str, object]] = {}
    if fit is not None and not len(fit.sequences):
        asked = {"time": fit.graph_time if fit.model.lags == 1 else None, "actions": fit.graph_action}
        for kind, graph in asked.items():
            if graph is not None and graph[fit.best].any():
                rows[f"sufficient influence ({kind})"] = UNCHECKED
    elif fit is not None:
        from ..inference.transition.transition_axes import believed, turned_jacobian
        from ..inference.transition.transition_checks import MIXED, axis_checks

        like, best = fit.model.axes, fit.best
        turn = fit.alignment["permutation"][best]
        d, lags = fit.model.n_latents, fit.model.lags
        batch = fit.sequences.batch(like.device, like.dtype)
        jacobian = turned_jacobian(fit.model, batch)[best][:, turn]
        inputs = [turn + lag * d for lag in range(lags)] + [np.arange(lags * d, jacobian.shape[2])]
        graphs = [] if fit.graph_time is None else list(fit.graph_time[best])
        graphs += [] if fit.graph_action is None else [fit.graph_action[best]]
        beyond = fit.agreement.get("beyond_linear", {best: np.nan})[best]
        jacobian, graph = believed(jacobian, beyond), np.concatenate(graphs, 1)
        columns, widths = np.concatenate(inputs), fit.model.action_widths
        influences = fitted_influence(jacobian[:, :, columns], graph, d, lags, widths)
        checks = axis_checks(fit.model, batch, best, turn, graph, beyond)
        # a sufficient condition: with independent noise only rotations are left, which less rules out
        enough = bool(lags) and checks.independent_noise and bool(checks.mixing.max() < MIXED)
        for kind, (influence, error) in influences.items():
            rows[f"sufficient influence ({kind})"] = {
                "holds": True if influence.holds else None if enough else False,
                "figure": f"rank {int(influence.rank.sum())} of {int(influence.dimension.sum())}, least "
                f"direction {float(np.nanmin(influence.smallest)):.3g}, error of the Jacobian {error:.3g}"
                + (f"; noise fixes the axes but for mixing of {checks.mixing.max():.2g}" if enough else ""),
            }
    for name, figure in _OPEN.items():
        rows[name] = {"holds": None, "figure": figure}
    table = pd.DataFrame.from_dict(rows, orient="index", columns=["holds", "figure"])
    table.index.name = "assumption"
    return table
