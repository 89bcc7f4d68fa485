"""Of which fit an edge posterior is: its names, a mark of the weights, complaints about that of another."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import numpy as np

from . import arviz as _arviz

if TYPE_CHECKING:
    from .._utils.types import ArvizData
    from ..inference.training.fit_result import FitResult

__all__ = ["check_labels", "check_same_fit", "fit_mark"]

_LABELS = {
    "table": {"feature": "feature_names", "factor": "factor_names"},
    "tasks": {"task": "task_names", "latent": "latent_names"},
    "transition": {"target": "latent_names", "action": "action_names"},
    "dictionaries": {},  # latents are matched anew each time, and only the mark tells fits apart
}


def fit_mark(fit: FitResult) -> str:
    """A short hash of all that a fit has learned, the same once saved and loaded; empty without a model.

    Parameters
    ----------
    fit : Fit, TransitionFit, MultiTaskFit or AutoencoderFit
    """
    digest = hashlib.sha256()
    pairs = getattr(fit, "pairs", ())  # of autoencoders, which their model only describes
    models = getattr(fit, "models", None) or [sae for pair in pairs for sae in pair]
    models = models or [getattr(fit, "model", None)]
    states = [model.state_dict() for model in models if hasattr(model, "state_dict")]
    learned = [(name, state[name].detach().cpu()) for state in states for name in sorted(state)]
    if not learned and hasattr(fit, "weights"):
        learned = [("weights", np.asarray(fit.weights))]
    if not learned and isinstance(getattr(fit, "by_chain", None), np.ndarray):  # of observed variables
        learned = [(name, np.asarray(getattr(fit, name))) for name in ("by_chain", "strength")]
    if not learned:
        return ""
    for name, tensor in learned:
        # NumPy has no bfloat16, and float32 holds each of its numbers.
        array = np.asarray(tensor.float() if str(tensor.dtype) == "torch.bfloat16" else tensor)
        digest.update(f"{name} {array.shape} {array.dtype}".encode())
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()[:16]


def check_same_fit(fit: FitResult, idata: ArvizData) -> None:
    """Complain of an edge posterior that was made of another fit.

    Parameters
    ----------
    fit : Fit, TransitionFit, MultiTaskFit or AutoencoderFit
    idata : InferenceData or DataTree
        What its `edge_posterior` returned; one without a mark, of an earlier version, is taken.

    Raises
    ------
    ValueError
        The marks differ.
    """
    theirs = str(idata.attrs.get("fit_mark", ""))
    mark = fit_mark(fit)
    if theirs and mark and theirs != mark:
        raise ValueError(
            f"idata: is the edge posterior of another fit (its mark is {theirs}, this fit's {mark}), perhaps "
            "of an earlier run of the notebook; give fit.edge_posterior() of this one"
        )


def check_labels(fit: FitResult, idata: ArvizData) -> None:
    """Raise unless an edge posterior can be of this fit: the same names in the same order.

    Parameters
    ----------
    fit : Fit, TransitionFit, MultiTaskFit or AutoencoderFit
    idata : InferenceData or DataTree
        An edge posterior, of whatever fit.

    Raises
    ------
    TypeError
        It is of another kind of fit.
    ValueError
        Its features and factors (latents, tasks, actions) have other names than the fit's, or another order.
    """
    edges, kind = _arviz.get_group(idata, "edge_posterior"), str(idata.attrs.get("kind", "table"))
    fix = "give what edge_posterior() of this fit returned"
    if not all(hasattr(fit, names) for names in _LABELS[kind].values() or ["pairs"]):
        noun = {"table": "a table", "transition": "a latent transition"}.get(kind, kind)
        raise TypeError(f"idata: holds the edges of {noun}, and the fit is a {type(fit).__name__}; {fix}")
    for dim, names in _LABELS[kind].items():
        expected = [str(name) for name in getattr(fit, names)]
        got = [str(name) for name in edges[dim].to_numpy()] if dim in edges.dims else []
        if got == expected:
            continue
        strange, missing = ([n for n in a if n not in set(b)] for a, b in ((got, expected), (expected, got)))
        if strange or missing:
            differences = ("in idata only: ", strange), ("in the fit only: ", missing)
            how = "; ".join(place + _some(names) for place, names in differences if names)
        else:
            first = next(i for i, (a, b) in enumerate(zip(got, expected, strict=False)) if a != b)
            how = f"in another order, number {first + 1} is {got[first]!r} and in the fit {expected[first]!r}"
        word = "latent" if dim == "target" else dim
        raise ValueError(f"idata: it is of another fit, its {word}s are not this one's ({how}); {fix}")
    check_same_fit(fit, idata)


def _some(names: list[str]) -> str:
    """The first three of some names."""
    return ", ".join(map(repr, names[:3])) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
