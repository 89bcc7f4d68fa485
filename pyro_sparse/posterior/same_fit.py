"""Of which fit an edge posterior is: a mark of the trained weights, and a complaint about that of another."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from .._utils.types import ArvizData
    from ..inference.training.fit_result import FitResult

__all__ = ["check_same_fit", "fit_mark"]


def fit_mark(fit: FitResult) -> str:
    """A short hash of all that a fit has learned, the same once saved and loaded; empty without a model.

    Parameters
    ----------
    fit : Fit, TransitionFit or MultiTaskFit
    """
    digest = hashlib.sha256()
    models = getattr(fit, "models", None) or [getattr(fit, "model", None)]
    states = [model.state_dict() for model in models if hasattr(model, "state_dict")]
    learned = [(name, state[name].detach().cpu()) for state in states for name in sorted(state)]
    if not learned and hasattr(fit, "weights"):
        learned = [("weights", np.asarray(fit.weights))]
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
    fit : Fit, TransitionFit or MultiTaskFit
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
