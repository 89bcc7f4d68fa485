"""Which latents a learned graph identifies, and which may still be mixed, in words and with probabilities.

The criterion is asked of every posterior draw of the graph, so an uncertain edge makes an uncertain verdict.
What the theorem assumes is listed beside it: with the figure found where a fit can be asked, and as an open
assumption where it cannot. One file for each kind of graph; this one only finds the right one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Literal, cast

from .._utils.torch_state import isolated
from ..posterior import arviz as _arviz
from ..posterior.same_fit import check_labels
from .certificate import Certificate
from .dictionaries import dictionary_certificate
from .table import table_certificate
from .tasks import task_certificate
from .transition import transition_certificate

if TYPE_CHECKING:
    from .._utils.types import ArvizData
    from ..inference.autoencoders.pair_result import AutoencoderFit
    from ..inference.multitask.task_result import MultiTaskFit
    from ..inference.program.result import ProgramFit
    from ..inference.table.result import Fit
    from ..inference.transition.transition_result import TransitionFit

__all__ = ["identify"]

_KINDS: dict[str, Callable[..., Certificate]] = {
    "dictionaries": dictionary_certificate,
    "table": table_certificate,
    "tasks": task_certificate,
    "transition": transition_certificate,
}
_BETTER = {"table": "mcmc", "transition": "parent_sets"}


@isolated()
def identify(
    result: Fit | ProgramFit | TransitionFit | MultiTaskFit | AutoencoderFit | ArvizData,
    *,
    sure: float = 0.95,
    idata: ArvizData | None = None,
    mode: Literal["support", "paper"] = "support",
) -> Certificate:
    """Say of every latent whether the learned graph identifies it.

    Parameters
    ----------
    result : Fit, ProgramFit, TransitionFit, MultiTaskFit, AutoencoderFit, InferenceData or DataTree
        A fit of a table, of sequences, of tasks or of activations, or what its `edge_posterior` returned.
        From a fit the assumptions that can be checked are checked too. Of a program, which declares its
        factors, only the criteria are asked that hold whatever its features do with them: anchors and zeros.
        Of graphs between dictionaries it says which latents at least two refits have, which is no theorem.
    sure : float
        A verdict wants at least this probability, in (.5, 1).
    idata : InferenceData or DataTree, optional
        Edge posterior of the fit, if it has been computed already.
    mode : {"support", "paper"}
        Of a table: "paper" also asks what diverse dictionary learning publishes, which claims more than the
        default is ready to (see `graphs.may_depend`).

    Returns
    -------
    Certificate
        Print it.

    Raises
    ------
    TypeError
        The result is neither a fit nor its edge posterior, or of a program without factors, or `idata` is
        of another kind of fit.
    ValueError
        `idata` is of a fit with other names or another order of them, `sure` is out of range, the
        numbers are only scores or of salient edges, or `mode` is another, or is given for anything
        but a table.

    References
    ----------
    Tables: Moran, Sridhar, Wang, Blei (2022), arXiv 2110.10804; Zheng, Ng, Zhang (2022), arXiv 2206.07751;
    Zheng et al. (2026), arXiv 2604.17568. Sequences: Lachapelle et al. (2024), arXiv 2401.04890. Tasks:
    Lachapelle, Deleu et al. (2023), arXiv 2211.14666.
    """
    if not 0.5 < sure < 1:
        raise ValueError(f"sure: got {sure!r}, wanted a probability above .5 and below 1")
    if mode not in ("support", "paper"):
        raise ValueError(f'mode: got {mode!r}, wanted "support" or "paper"')
    fit = result if callable(getattr(result, "edge_posterior", None)) else None
    if idata is None:
        idata = cast("ArvizData", fit.edge_posterior() if fit is not None else result)
    kind = _kind(idata)
    if kind is None:
        raise TypeError(
            f"result: got a {type(result).__name__}, wanted a fit of a table, of sequences or of tasks, "
            "or its edge posterior"
        )
    if idata.attrs.get("nodes") == "variables":
        raise TypeError(
            "result: is of an ObservedTransition, whose variables are measured: there are no latents to "
            "identify; its findings say what speaks against an edge"
        )
    if fit is not None:
        check_labels(fit, idata)
    if idata.attrs.get("weight_unit") == "program" and not idata.attrs.get("declares_factors"):
        raise TypeError(
            "result: is the posterior of a program without ps.factors, and has no latents whose axes the "
            "graph could identify; its verdict says what its chains agree on"
        )
    if int(idata.attrs.get("is_score", 0)):
        why = str(idata.attrs.get("chosen_because", ""))
        better = f'use fit.edge_posterior(method="{_BETTER.get(kind, "ep")}")'
        raise ValueError(f"result: these edges are scores, not probabilities; {why or better}")
    if "salient_loading" in idata.attrs:
        raise ValueError(
            f"{'result' if idata is result else 'idata'}: got salient edges, loadings of at least "
            f"{idata.attrs['salient_loading']:g}, and a certificate is about zeros; pass the object of "
            "fit.edge_posterior() itself"
        )
    if mode != "support" and kind != "table":
        raise ValueError(f'mode: got {mode!r} for {kind}, wanted "support"; other modes are of tables')
    return _KINDS[kind](fit, idata, sure, **({"mode": mode} if kind == "table" else {}))


def _kind(idata: ArvizData) -> str | None:
    """What the graph is of, or None if this is no edge posterior."""
    try:
        edges = _arviz.get_group(idata, "edge_posterior")
    except (KeyError, TypeError):
        return None
    kind = str(idata.attrs.get("kind", ""))
    if kind in _KINDS:
        return kind
    return "table" if {"feature", "factor"} <= set(edges.dims) and "probability" in edges else None
