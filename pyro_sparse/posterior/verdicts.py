"""What an edge posterior comes to, in sentences: how much is decided, what is disputed, what is in doubt."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ..findings.finding import Finding, doubted_edges, findings_of, sentences
from ..graphs.selection import edge_verdicts, unresolved
from . import arviz as _arviz

if TYPE_CHECKING:
    from .._utils.types import ArvizData
    from ..inference.multitask.task_result import MultiTaskFit
    from ..inference.training.fit_result import FitResult
    from ..inference.transition.transition_result import TransitionFit

__all__ = [
    "SCORES",
    "agreed",
    "as_sentence",
    "beside_verdict",
    "concluded",
    "counts_of",
    "decided",
    "edges_left_empty",
    "latents_said",
    "of_latents",
    "verdict_of",
    "with_doubts",
]


# Kinds of findings of a method that leave no room for the sentence that nothing is disputed.
_SILENCING = {"chains", "sweeps"}
SCORES = "Scores, no probabilities: they rank the edges, are too sure of them, and leave all of them open."


def verdict_of(idata: ArvizData) -> list[str]:
    """What an edge posterior concludes, a sentence each; of files that do not say, what the numbers mean.

    Parameters
    ----------
    idata : InferenceData or DataTree
    """
    verdict = str(idata.attrs.get("verdict", "")).splitlines()
    note = str(idata.attrs.get("note", ""))
    return verdict or ([note] if note else [])


def concluded(
    of_fit: Sequence[Finding], findings: Sequence[Finding], gap: NDArray[np.float64], run: str
) -> list[str]:
    """What the edges of a table come to: findings of the method, doubts of the fit, or that none is disputed.

    Parameters
    ----------
    of_fit, findings : sequence of Finding
        Those of the fit, and of the method.
    gap : ndarray (feature, factor)
        NaN where nothing could be compared.
    run : str
        What is compared, such as "restart".
    """
    doubts = [finding for finding in of_fit if finding.is_doubt]
    conclusions = [as_sentence(finding) for finding in [*findings, *doubts]]
    if doubts or any(finding.is_doubt or finding.kind in _SILENCING for finding in findings):
        return conclusions
    return [*conclusions, *agreed(gap, run)]


def decided(
    probability: NDArray[np.float64],
    gap: NDArray[np.float64],
    asked: NDArray[np.bool_],
    doubted: NDArray[np.bool_],
    of_size: bool = False,
    not_asked: int = 0,
) -> str:
    """How much of a table is decided, in a sentence: edges present or absent as `summary` calls them.

    Parameters
    ----------
    probability, gap : ndarray (feature, factor)
    asked : ndarray of bool (feature, factor)
        Edges that the data were asked for: not those that were given or forbidden.
    doubted : ndarray of bool (feature, factor)
        Edges that a doubt touches.
    of_size : bool
        Whether an edge is a large loading.
    not_asked : int
        From `edges_left_empty`: they are open, too, and no share of what was asked for.
    """
    called = np.where(doubted, "open", edge_verdicts(probability, gap))[asked]
    present, absent, total = int((called == "present").sum()), int((called == "absent").sum()), called.size
    left = total - present - absent
    if total == 0 and not not_asked and not of_size:
        return "All edges were given or forbidden: the data say how large they are, not which there are."
    noun, yes, no = ("loading", "large", "not") if of_size else ("edge", "present", "absent")
    edges = f"1 {noun}" if total == 1 else f"{total} {noun}s"
    rest = f"; so {'is' if not_asked == 1 else 'are'} {not_asked} more, of factors that the fit left empty"
    counts = f"{present + absent} of {edges} decided ({present} {yes}, {absent} {no}), {left} open"
    return f"{counts}{rest if not_asked else ''}."


def counts_of(idata: ArvizData, findings: Sequence[Finding]) -> str:
    """`decided` of an edge posterior of a table, as its verdict has it with these findings.

    Parameters
    ----------
    idata : InferenceData or DataTree
        From `fit.edge_posterior()`.
    findings : sequence of Finding
    """
    edges = _arviz.get_group(idata, "edge_posterior")
    names = [[str(name) for name in edges[dim].to_numpy()] for dim in ("feature", "factor")]
    p, gap = edges["probability"].to_numpy(), edges["gap"].to_numpy()
    by_chain, given = edges["restart_probability"].to_numpy(), edges["given"].to_numpy().astype(bool)
    asked = (by_chain > 0).any(0) & ~given
    return decided(
        p, gap, asked, doubted_edges(findings, *names), not_asked=edges_left_empty(findings, len(p))
    )


def edges_left_empty(findings: Sequence[Finding], n_features: int) -> int:
    """Edges that chains did not ask for, since the fit had left their factors empty.

    Parameters
    ----------
    findings : sequence of Finding
        Of an edge posterior.
    n_features : int

    Examples
    --------
    >>> edges_left_empty([Finding("empty", "chains ran over two", factors=("factor 3", "factor 4"))], 9)
    18
    """
    return n_features * len({name for f in findings if f.kind == "empty" for name in f.factors})


def beside_verdict(fit: FitResult, idata: ArvizData) -> list[str]:
    """Findings that the verdict of an edge posterior does not say already.

    Parameters
    ----------
    fit : Fit
    idata : InferenceData or DataTree
        Its edge posterior.
    """
    verdict = set(verdict_of(idata))
    return [
        text
        for finding, text in ((f, str(f)) for f in findings_of(fit, idata))
        if text not in verdict and as_sentence(finding) not in verdict
    ]


def as_sentence(finding: Finding) -> str:
    """A finding with a capital letter and a full stop.

    Parameters
    ----------
    finding : Finding
    """
    text = str(finding)
    return f"{text[:1].upper()}{text[1:]}{'' if text.endswith('.') else '.'}"


def agreed(gap: NDArray[np.float64], run: str) -> list[str]:
    """Whether the runs of a table's fit agree on its edges.

    Parameters
    ----------
    gap : ndarray (feature, factor)
    run : str
        What is compared, such as "restart".
    """
    if np.isnan(gap).all():
        return [f"There is only one {run} to look at: nothing shows whether another would find other edges."]
    n = int(unresolved(gap).sum())
    if not n:
        return [f"No edge is disputed between the {run}s."]
    subject = "1 edge is" if n == 1 else f"{n} edges are"
    return [
        f"{subject} disputed between the {run}s (gap above .25): read the column `unresolved` of the summary."
    ]


def latents_said(fit: TransitionFit | MultiTaskFit, findings: Sequence[Finding] = ()) -> list[str]:
    """`of_latents` as sentences, with the reasons.

    Parameters
    ----------
    fit : TransitionFit or MultiTaskFit
    findings : sequence of Finding
        Of the method.
    """
    about = of_latents(fit)
    return [f"{about['title']}. {about['advice']}", *sentences([*fit.findings, *findings])]


def of_latents(fit: TransitionFit | MultiTaskFit) -> dict[str, str]:
    """How far the latents of sequences or tasks may be believed: a level, a title and what to do.

    Parameters
    ----------
    fit : TransitionFit or MultiTaskFit
    """
    doubts = [finding for finding in fit.findings if finding.is_doubt]
    if any(finding.touches_all for finding in doubts):
        advice = (
            "The probabilities take the latents as given, and the fit itself doubts that these are the ones: "
            "its warnings say why. Do not rely on single edges."
        )
        return {"level": "poor", "title": "The latents are in doubt", "advice": advice}
    if doubts:
        doubted = {name for finding in doubts for name in finding.factors}
        names = [name for name in fit.latent_names if name in doubted]
        advice = "Its warnings say why; edges of other latents stand." if names else "Its warnings say why."
        title = f"In doubt: {', '.join(names)}" if names else "Some edges are in doubt"
        return {"level": "mixed", "title": title, "advice": advice}
    if fit.n_restarts == 1:
        advice = (
            "Another start may find other latents. Fit with several restarts before reading single edges."
        )
        return {"level": "unknown", "title": "One restart only", "advice": advice}
    if fit.findings:
        title = "Another restart found the same latents, and yet there are doubts"
        return {"level": "mixed", "title": title, "advice": "Read the warnings of the fit first."}
    advice = "What they share is a property of the data and the model, not of one lucky start."
    return {"level": "good", "title": "Another restart found the same latents", "advice": advice}


def with_doubts(idata: ArvizData) -> str:
    """The note on the numbers of an edge posterior, with the doubts that leave verdicts open.

    Parameters
    ----------
    idata : InferenceData or DataTree
    """
    note = str(idata.attrs.get("note", ""))
    doubts = [str(finding) for finding in findings_of(idata=idata) if finding.is_doubt]
    if not doubts:
        return note
    scope = "All verdicts are open" if _touches_all(idata) else "Some verdicts are open"
    return f"{note} {scope}, for the fit warns: {'; '.join(doubts)}."


def _touches_all(idata: ArvizData) -> bool:
    return any(finding.is_doubt and finding.touches_all for finding in findings_of(idata=idata))
