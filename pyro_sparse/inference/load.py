"""Reading a fit of any kind from its file: the model is made again, then each result restores its own."""

from __future__ import annotations

import os
from typing import Any

import torch

from .._recorded import rebuild
from .._torch import undisturbed
from . import checkpoint as files
from . import result, task_result, transition_result

__all__ = ["load"]


def load(path: str | os.PathLike[str], model: Any = None) -> Any:
    """Read a fit written by `Fit.save`, `TransitionFit.save` or `MultiTaskFit.save`.

    Parameters
    ----------
    path : path
    model : FactorModel, LatentTransition or MultiTaskRegression, optional
        Needed when the model, its prior or its likelihood is a class of your own: made as it was for the fit.

    Returns
    -------
    Fit, TransitionFit or MultiTaskFit

    Raises
    ------
    FileNotFoundError, ValueError
        No such file, not a fit, or of another model or format.
    """
    meta, tensors = files.read(path, "fit", "transition fit", "multi-task fit")
    if model is None:
        if meta["made"] is None:
            raise ValueError(
                f"load: {str(path)!r} was made with a model of your own; pass model=, made the same way"
            )
        model = rebuild(meta["made"])
    differs = files.differences(meta["fingerprint"], files.fingerprint(model, {}))
    if differs:
        raise ValueError(
            f"load: {str(path)!r} is a fit of another model ({differs}); pass a model made the same way"
        )
    arrays = {name: value.numpy() for name, value in tensors["arrays"].items()}
    if meta["kind"] == "multi-task fit":
        return task_result.restore(model, meta, tensors["models"], arrays)
    with undisturbed():
        model.setup(**{name: meta[name] for name in ("n_restarts", "n_samples", "missing", "feature_names")})
    model.to(getattr(torch, meta["dtype"]))
    try:
        model.load_state_dict(tensors["model"])
    except RuntimeError as error:
        raise ValueError(
            f"load: {str(path)!r} holds other tensors than this model has, so it was written by another "
            f"version of pyro_sparse; fit again ({str(error).splitlines()[-1].strip()})"
        ) from error
    model.eval()
    kind = transition_result if meta["kind"] == "transition fit" else result
    return kind.restore(model, meta, arrays)
