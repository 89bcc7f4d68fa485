"""Reading a fit of any kind from its file: the model is made again, then each result restores its own."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, cast, overload

import numpy as np
import torch

from .._utils.recorded import rebuild
from .._utils.torch_state import isolated, undisturbed
from ..models.autoencoder_pair import AutoencoderPair
from ..models.observed_transition import ObservedTransition
from ..programs.program import Program
from .autoencoders import pair_result
from .multitask import task_file
from .observed import observed_result
from .program import saved
from .table import result
from .training import checkpoint as files
from .transition import transition_result

if TYPE_CHECKING:
    from ..models.base import FactorModel
    from ..models.latent_transition import LatentTransition
    from ..models.multitask import MultiTaskRegression
    from ..programs.data import Data
    from .autoencoders.pair_result import AutoencoderFit
    from .multitask.task_result import MultiTaskFit
    from .observed.observed_result import ObservedFit
    from .program.result import ProgramFit
    from .table.result import Fit
    from .training._families import Trainable
    from .transition.transition_result import TransitionFit

__all__ = ["load"]


@overload
def load(path: str | os.PathLike[str], model: FactorModel) -> Fit: ...
@overload
def load(path: str | os.PathLike[str], model: LatentTransition) -> TransitionFit: ...
@overload
def load(path: str | os.PathLike[str], model: ObservedTransition) -> ObservedFit: ...
@overload
def load(path: str | os.PathLike[str], model: MultiTaskRegression) -> MultiTaskFit: ...
@overload
def load(path: str | os.PathLike[str], model: AutoencoderPair) -> AutoencoderFit: ...
@overload
def load(path: str | os.PathLike[str], model: Program, data: Data) -> ProgramFit: ...
@overload
def load(path: str | os.PathLike[str], model: None = None) -> Any: ...  # the file says which


@isolated()
def load(
    path: str | os.PathLike[str],
    model: Trainable | ObservedTransition | AutoencoderPair | Program | None = None,
    data: Data | None = None,
) -> Fit | TransitionFit | ObservedFit | MultiTaskFit | AutoencoderFit | ProgramFit:
    """Read a fit written by its `save`.

    Parameters
    ----------
    path : path
    model : FactorModel, LatentTransition, ObservedTransition, MultiTaskRegression, AutoencoderPair, Program
        Needed when the model, its prior or its likelihood is a class of your own: made as it was for the fit.
        Of a program always, and of a pair of autoencoders, whose layer a file does not hold.
    data : Data, optional
        Of a program, and needed there.

    Returns
    -------
    Fit, TransitionFit, ObservedFit, MultiTaskFit, AutoencoderFit or ProgramFit

    Raises
    ------
    FileNotFoundError, ValueError
        No such file, not a fit, or of another model or format.
    """
    meta, tensors = files.read(
        path, "fit", "transition fit", "observed fit", "multi-task fit", "program fit", "autoencoder fit"
    )
    with files.explained("load", path):
        if meta["kind"] == "program fit":
            return saved.restore(path, model, data, meta, tensors)
        if data is not None or isinstance(model, Program):
            raise ValueError(f"load: {str(path)!r} holds no fit of a program; leave out data and program")
        if meta["kind"] == "autoencoder fit":
            return pair_result.restore(path, model, meta, tensors)
        if meta["kind"] == "observed fit":
            return _observed(path, model, meta, tensors)
        return _restored(path, cast("Trainable | None", model), meta, tensors)


def _observed(
    path: str | os.PathLike[str], model: object, meta: dict[str, Any], tensors: dict[str, Any]
) -> ObservedFit:
    made = None if meta["made"] is None else rebuild(meta["made"])
    if model is None:
        model = made
    if not isinstance(model, ObservedTransition) or made is not None and files.made(model) != meta["made"]:
        raise ValueError(
            f"load: {str(path)!r} is a fit of {made!r}; leave out model=, or pass a model made the same way"
        )
    arrays = {name: value.numpy() for name, value in tensors["arrays"].items()}
    return observed_result.restore(meta, arrays, model)


def _restored(
    path: str | os.PathLike[str], model: Trainable | None, meta: dict[str, Any], tensors: dict[str, Any]
) -> Fit | TransitionFit | MultiTaskFit:
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
    _check_shapes(model, meta, arrays)
    if meta["kind"] == "multi-task fit":
        with _refusing_other_tensors(path):
            return task_file.restore(cast("MultiTaskRegression", model), meta, tensors["models"], arrays)
    if meta["kind"] == "transition fit":
        transition_result.take_actions(cast("LatentTransition", model), meta["sequences"])
    with undisturbed():
        model.setup(**{name: meta[name] for name in ("n_restarts", "n_samples", "missing", "feature_names")})
    model.to(getattr(torch, meta["dtype"]))
    with _refusing_other_tensors(path):
        model.load_state_dict(tensors["model"])
    model.eval()
    kind = transition_result if meta["kind"] == "transition fit" else result
    return kind.restore(model, meta, arrays)


@contextmanager
def _refusing_other_tensors(path: str | os.PathLike[str]) -> Iterator[None]:
    """What torch says of a state that does not fit a model, in the words of a file."""
    try:
        yield
    except RuntimeError as error:
        raise ValueError(
            f"load: {str(path)!r} holds other tensors than this model has, so it was written by another "
            f"version of pyro_sparse; fit again ({str(error).splitlines()[-1].strip()})"
        ) from error


# Sizes of the axes of an array, a letter each: r restarts, g features, k factors or latents, t tasks, l lags,
# a actions.
_SHAPES: Mapping[str, Mapping[str, str]] = {
    "fit": {
        **dict.fromkeys(("weights", "effects", "edge_score"), "rgk"),
        **dict.fromkeys(("elbo", "heldout_elbo"), "r"),
        **dict.fromkeys(("eta", "alignment.permutation", "alignment.sign", "alignment.congruence"), "rk"),
        **dict.fromkeys(("table.centre", "table.scale", "table.input_centre", "table.input_scale"), "g"),
        "factor_cov": "kk",
    },
    "transition fit": {
        **dict.fromkeys(("gap", "elbo", "heldout_elbo"), "r"),
        **dict.fromkeys(("alignment.permutation", "alignment.sign"), "rk"),
        **dict.fromkeys(("sequences.centre", "sequences.scale"), "g"),
    },
    "multi-task fit": {
        **dict.fromkeys(("error", "found"), "r"),
        **dict.fromkeys(("tasks.target_centre", "tasks.target_scale"), "t"),
    },
}
_IF_THERE: Mapping[str, str] = {
    "noise_sd": "g",
    "tasks.weight": "t",
    "excess_cov": "gg",
    **dict.fromkeys(("strength_time", "graph_time", "relaxed_time"), "rlkk"),
    **dict.fromkeys(("strength_action", "graph_action", "relaxed_action"), "rka"),
}
_TYPES: Mapping[str, type] = {
    "best": int, "dtype": str, "feature_names": list, "history": dict, "settings": dict, "findings": str,
}  # fmt: skip


def _check_shapes(model: Trainable, meta: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
    """Compare what a file holds beside the model with the model's sizes and with each other."""
    for name, kind in _TYPES.items():
        if not isinstance(meta[name], kind):
            raise TypeError(f"{name} is a {type(meta[name]).__name__}, wanted a {kind.__name__}")
    shapes = _SHAPES[meta["kind"]]
    r = arrays["elbo" if "elbo" in shapes else "error"].shape[0]
    sizes = {"r": r, "g": model.n_features, "k": getattr(model, "n_factors", None) or model.n_latents}
    sizes["t"] = len(meta["task_names"]) if meta["kind"] == "multi-task fit" else 0
    sizes |= {"l": getattr(model, "lags", 0), "a": getattr(model, "n_actions", 0)}
    for name, axes in [*shapes.items(), *((n, axes) for n, axes in _IF_THERE.items() if n in arrays)]:
        wanted = tuple(sizes[axis] for axis in axes)
        if arrays[name].shape != wanted:
            raise ValueError(f"{name} has shape {arrays[name].shape}, wanted {wanted}")
    if meta.get("n_restarts", r) != r or not 0 <= meta["best"] < r:
        raise ValueError(f"best is {meta['best']} of {meta.get('n_restarts', r)} restarts, arrays are of {r}")
    names = meta["feature_names"]
    if meta["kind"] != "multi-task fit" and len(names) != model.n_features:
        raise ValueError(f"feature_names has {len(names)} entries, wanted {model.n_features}")
