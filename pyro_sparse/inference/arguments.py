"""The arguments of `fit`: which of them a kind of model reads, and what is wrong with those that were given.

Everything here is checked before any data are read. A new argument of `fit` is a field of `Arguments`, and a
word in `_FOR` if it is for one kind of input only.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from numbers import Real
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np
import torch

from .._utils.checks import check_whole
from ..data.design import ROLES
from ..data.row_weights import ARGUMENTS as WEIGHTS
from ..models.autoencoder_pair import AutoencoderPair
from ..models.multitask import MultiTaskRegression
from ..models.observed_transition import ObservedTransition
from ..models.sparse_decoder import SparseDecoder
from ..programs.program import Program
from .registry import PER_ROW, Kind
from .table.latent_penalty import LatentPenalty, check_penalty

if TYPE_CHECKING:
    import datetime

    from .._utils.types import Covariates, TableLike, TaskWeights, VectorLike
    from .autoencoders.schedule import AutoencoderSchedule
    from .multitask.task_schedule import TaskSchedule
    from .observed.schedule import ObservedSchedule
    from .table.dependency_schedule import DependencySchedule
    from .table.schedule import Schedule
    from .training._families import Trainable
    from .training._settings import Settings
    from .transition.constraint import SparsityControl
    from .transition.transition_schedule import TransitionSchedule

__all__ = ["Arguments", "TimeStep", "check_arguments"]

TimeStep: TypeAlias = "float | str | np.timedelta64 | datetime.timedelta"  # the last is also pandas'


@dataclass(frozen=True)
class Arguments:
    """What `fit` was called with."""

    model: Trainable
    X: TableLike
    y: VectorLike | None
    task: VectorLike | None
    task_weight: TaskWeights | None
    inner: str | None
    actions: TableLike | None
    id: str | None
    time: str | None
    time_step: TimeStep | None
    sparsity: str | float | SparsityControl | None
    dependency: LatentPenalty | None
    restarts: int | None
    seed: int
    schedule: (
        Schedule
        | DependencySchedule
        | TransitionSchedule
        | ObservedSchedule
        | TaskSchedule
        | AutoencoderSchedule
        | None
    )
    holdout: float
    mask: TableLike | None
    exposure: VectorLike | None
    covariates: Covariates | None
    groups: Covariates | None
    sample_weight: VectorLike | str | None
    sample_weight_type: Literal["frequency", "survey"] | None
    feature_names: Sequence[str] | None
    standardise: bool
    n_factors_init: Sequence[int] | None
    n_jobs: int
    progress: bool
    checkpoint: str | os.PathLike[str] | None
    checkpoint_every: int
    device: str
    dtype: str | torch.dtype
    threads: int | None
    settings: dict[str, Any]


_FOR = {
    **dict.fromkeys(("actions", "id", "time", "time_step", "sparsity"), "sequences"),
    **dict.fromkeys(("y", "task", "task_weight", "inner"), "tasks"),
    **dict.fromkeys(("mask", *PER_ROW, *ROLES, *WEIGHTS, "feature_names"), "tables"),
    "dependency": "tables and activations",
    "n_factors_init": "tables with a prior on weights",
}


def check_arguments(kind: Kind, arguments: Arguments) -> tuple[Settings, dict[str, Any]]:
    """Refuse arguments that this kind of model does not read, and values that no fit could go on with.

    Parameters
    ----------
    kind : Kind
        Of `arguments.model`.
    arguments : Arguments

    Returns
    -------
    schedule : Settings
        The one that was given, or that of the kind, with single settings replaced.
    per_row : dict
        What a likelihood of the caller's own reads of rows, by name.

    Raises
    ------
    ValueError, TypeError
        "argument: got, wanted; fix".
    """
    per_row, single_settings = _separated(arguments.model, arguments.settings)
    schedule = _schedule(arguments.model, kind.schedule, arguments.schedule, single_settings)
    _refuse_unread(kind, arguments)
    if arguments.dependency is not None:
        check_penalty(arguments.dependency)
    _check_model(arguments.model)
    _check_numbers(kind, arguments)
    _check_precision(arguments.model, arguments.dtype)
    _check_device(arguments.device)
    return schedule, per_row


def _separated(model: object, settings: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """What a likelihood of the caller's own reads of rows, and what is left: settings of the schedule."""
    names = set(getattr(getattr(model, "likelihood", None), "per_row_inputs", ())) & {*settings}
    return {n: settings[n] for n in names}, {n: v for n, v in settings.items() if n not in names}


def _schedule(
    model: object, kind: type[Settings], schedule: Settings | None, settings: Mapping[str, Any]
) -> Settings:
    unknown = sorted(set(settings) - set(kind.names()))
    if unknown:
        raise TypeError(
            f"fit: unknown setting {unknown[0]!r}; wanted an argument of fit or one of {kind.names()}"
        )
    if schedule is not None and not isinstance(schedule, kind):
        raise TypeError(f"schedule: got a {type(schedule).__name__}, this model wants a {kind.__name__}")
    return replace(schedule or kind(**getattr(model, "fit_settings", {})), **settings)


def _refuse_unread(kind: Kind, arguments: Arguments) -> None:
    if isinstance(arguments.model, AutoencoderPair) and arguments.y is not None:
        raise TypeError("y: an AutoencoderPair takes both sides of the layer at once; fit(model, (X, Y))")
    for name, inputs in _FOR.items():
        if getattr(arguments, name) is not None and name not in (*kind.reads, *kind.trains):
            reader = type(arguments.model).__name__
            raise TypeError(f"{name}: is for {inputs}, and {reader} reads none; leave it out")


def _check_model(model: object) -> None:
    """That it has the methods a trainer calls; programs and models with samplers of their own need none."""
    if isinstance(model, Program | ObservedTransition | AutoencoderPair):
        return
    decodes = () if isinstance(model, MultiTaskRegression) else ("decode",)
    for method in ("setup", "model", "guide", *decodes):
        if not hasattr(model, method):
            if inspect.isfunction(model):
                raise TypeError(
                    f"model: got the function {model.__name__}, wanted a model; of a Pyro program make one: "
                    f"ps.Program({model.__name__}, n_factors=…)"
                )
            raise TypeError(
                f"model: {type(model).__name__} has no {method!r}; wanted a FactorModel such as SparseDecoder"
            )


def _check_numbers(kind: Kind, arguments: Arguments) -> None:
    restarts = kind.restarts if arguments.restarts is None else arguments.restarts
    check_whole(1, restarts=restarts)
    check_whole(0, seed=arguments.seed)
    holdout, n_factors_init = arguments.holdout, arguments.n_factors_init
    if not isinstance(holdout, Real) or not 0 <= holdout < 1:
        raise ValueError(f"holdout: got {holdout!r}, wanted a share of rows in [0, 1)")
    if arguments.checkpoint_every < 1:
        raise ValueError(f"checkpoint_every: got {arguments.checkpoint_every!r}, wanted at least 1 step")
    if n_factors_init is not None and (
        np.shape(n_factors_init) != (restarts,)
        or not all(
            isinstance(cap, int | np.integer) and 1 <= cap <= arguments.model.n_factors
            for cap in n_factors_init
        )
    ):
        raise ValueError(
            f"n_factors_init: got {n_factors_init!r}, wanted one whole number per restart ({restarts}), "
            f"each from 1 to n_factors={arguments.model.n_factors}"
        )
    if arguments.threads is not None:
        check_whole(1, threads=arguments.threads)
    if not isinstance(arguments.n_jobs, int | np.integer) or arguments.n_jobs == 0:
        raise ValueError(
            f"n_jobs: got {arguments.n_jobs!r}, wanted a number of processes, or -1 for all there are"
        )


def _check_precision(model: object, dtype: str | torch.dtype) -> None:
    precision = str(dtype).removeprefix("torch.")
    if precision not in ("float32", "float64", "bfloat16"):
        raise ValueError(f"dtype: got {dtype!r}, wanted 'float32', 'float64' or 'bfloat16'")
    can_round = isinstance(model, AutoencoderPair) or (
        isinstance(model, SparseDecoder) and model.decoder_kind == "mlp"
    )
    if precision == "bfloat16" and not can_round:
        decoder = getattr(model, "decoder_kind", None)
        raise ValueError(
            f"dtype: 'bfloat16' rounds the hidden units of a SparseDecoder with decoder='mlp', and this is a "
            f"{type(model).__name__}{'' if decoder is None else f' with decoder={decoder!r}'}; wanted "
            "'float32'"
        )


def _check_device(device: str) -> None:
    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        raise ValueError(
            f"device: {device!r} is not there ({reason}); `pyro-sparse doctor` lists devices"
        ) from error
