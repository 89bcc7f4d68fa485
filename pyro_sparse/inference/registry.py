"""The kinds of model that `fit` knows, one row each: its schedule, what it reads, and its job.

A new kind of model is a row of `KINDS` and a folder with its job (`training/job.py` says what that is).
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, cast

import pandas as pd

from .._utils.declared import keeps
from ..data.activations import Activations, read_activations
from ..data.checks.check import check_read_table
from ..data.checks.frames import frame_findings
from ..data.checks.held_frames import held_variables
from ..data.checks.kinds import chosen_kinds
from ..data.checks.sequences import counter_columns, moving_means, sequence_findings
from ..data.checks.tasks import task_findings
from ..data.column_types import columns_of
from ..data.columns import as_frame
from ..data.design import ROLES, design_of, taken_out
from ..data.frame_covariates import as_designed_sequences
from ..data.read import read_table
from ..data.row_weights import ARGUMENTS as WEIGHTS
from ..data.row_weights import counted, read_weights, weights_findings
from ..data.sequences import as_sequences
from ..data.stores import store_of
from ..data.task_weights import read_task_weight
from ..data.tasks import Tasks, as_tasks
from ..data.views import as_one_table
from ..findings.finding import Finding
from ..likelihoods import Columns, get_likelihood, known_likelihoods
from ..likelihoods.adjusted import Adjusted
from ..models._positions import check_positions
from ..models.autoencoder_pair import AutoencoderPair
from ..models.dependency import DependencyVAE
from ..models.latent_transition import LatentTransition
from ..models.multitask import MultiTaskRegression
from ..models.observed_transition import ObservedTransition
from ..programs.data import Data as ProgramData
from ..programs.program import Program
from .autoencoders.job import AutoencoderJob
from .autoencoders.schedule import AutoencoderSchedule
from .multitask.job import TaskJob
from .multitask.task_schedule import TaskSchedule
from .observed.job import ObservedJob
from .observed.schedule import ObservedSchedule
from .program.job import ProgramJob
from .program.schedule import ProgramSchedule
from .table.dependency_job import DependencyJob
from .table.dependency_schedule import DependencySchedule
from .table.job import TableJob
from .table.normal_rows import has_normal_rows
from .table.schedule import Schedule
from .transition.job import TransitionJob
from .transition.transition_schedule import TransitionSchedule

if TYPE_CHECKING:
    from .._utils.types import TableLike
    from ..data.row_weights import Reader, RowWeights
    from ..data.sequences import Sequences
    from ..data.table import Table
    from ..models.base import FactorModel
    from .training._families import Data
    from .training._settings import Settings
    from .training.fit_result import FitResult
    from .training.job import Job


__all__ = ["KINDS", "PER_ROW", "Kind", "kind_of", "n_features_of"]

DataT = TypeVar("DataT", "Sequences", Tasks)


class Kind(NamedTuple):
    """One kind of model.

    Parameters
    ----------
    models : type
        Its class.
    schedule : type
        Of its settings.
    restarts : int
        How many there are unless the caller says otherwise.
    read : callable
        (model, X, arguments) to checked data; `standardise` is among the arguments.
    reads : tuple of str
        Arguments of `fit` for `read` that not every kind has.
    job : type
        A `Job`, of the model, data and arguments of the training.
    trains : tuple of str
        Arguments of `fit` for `job` that not every kind has.
    """

    models: type
    schedule: type[Settings]
    restarts: int
    read: Callable[[Any, TableLike, Mapping[str, Any]], Data]
    reads: tuple[str, ...]
    job: Callable[..., Job[Any, FitResult]]
    trains: tuple[str, ...]


def kind_of(model: object) -> Kind:
    """The row of a model; whatever is no other kind reads tables.

    Parameters
    ----------
    model : Module

    Raises
    ------
    TypeError
        The model is a class.
    """
    if isinstance(model, type):
        raise TypeError(
            f"model: got the class {model.__name__}, wanted a model; make an instance, such as "
            "SparseDecoder(n_factors=5)"
        )
    return next(kind for kind in KINDS if isinstance(model, kind.models))


def n_features_of(data: Data) -> int | tuple[int, ...]:
    """Features of a table or of sequences, shape of a sample's inputs of tasks (a number for vectors).

    Parameters
    ----------
    data : Table, Sequences or Tasks
        Checked.
    """
    assert not isinstance(data, Activations)
    shape = data.shape if isinstance(data, Tasks) else data.x.shape[-1:]
    return tuple(shape) if len(shape) > 1 else int(shape[0])


def _table(model: FactorModel, X: TableLike, arguments: Mapping[str, Any]) -> Table:
    X, weights = read_weights(as_frame(as_one_table(X)), *(arguments[name] for name in WEIGHTS))
    covariates = {role: arguments[role] for role in ROLES if arguments[role] is not None}
    names = ("mask", *PER_ROW, *model.likelihood.per_row_inputs)
    beside = {**{name: arguments.get(name) for name in names}, **covariates}
    findings = _columns_of_kinds(model, taken_out(X, covariates)[0], arguments)
    if weights is None:
        table = _read(model, arguments)(X, beside, None)
    else:
        _refuse_weights(model, weights, covariates, arguments)
        table = counted(X, weights, beside, _read(model, arguments))
    findings += check_read_table(table.of_caller, model.likelihood)
    for finding in findings:  # before the time it takes to fit it
        warnings.warn(f"X: {finding}", RuntimeWarning, stacklevel=5)
    return replace(table, findings=(*findings, *weights_findings(weights, table.of_caller.x)))


def _columns_of_kinds(model: FactorModel, features: TableLike, arguments: Mapping[str, Any]) -> list[Finding]:
    """Tell the model of the table's columns; what was chosen for them."""
    if isinstance(features, pd.DataFrame):
        check_positions(model, features.columns)
    if isinstance(model.likelihood, Columns) and store_of(features) is not None:
        raise ValueError(
            "likelihood: a table that is read by rows has one likelihood for all columns; give that, or "
            "fewer rows, so that the table is held in memory"
        )
    if not model.likelihood.reads_columns or store_of(features) is not None:
        return []
    columns = columns_of(features, arguments["feature_names"], arguments["mask"])
    findings = chosen_kinds(model.likelihood.chosen(columns))
    model.take_columns(columns)
    return findings


def _read(model: FactorModel, arguments: Mapping[str, Any]) -> Reader:
    """What makes a `Table` for a model of rows, what goes with these, and a table whose units to take."""

    def read(X: TableLike, beside: Mapping[str, Any], like: Table | None) -> Table:
        per_row = dict(beside)
        mask = per_row.pop("mask", None)
        covariates = {role: per_row[role] for role in ROLES if per_row.get(role) is not None}
        of_rows = taken_out(X, covariates)[1]
        if of_rows and store_of(X) is None and not keeps(model.likelihood, "normal noise"):
            n_rows = X.shape[0] if hasattr(X, "shape") else len(cast(list[Any], X))
            n_effects = design_of(of_rows, n_rows, None)[0].n_effects
            model.take_likelihood(Adjusted(model.likelihood, n_effects))
        return read_table(
            X,
            per_row,
            likelihood=model.likelihood,
            standardise=arguments["standardise"],
            mask=mask,
            feature_names=arguments["feature_names"] if like is None else None,
            like=like,
        )

    return read


def _refuse_weights(
    model: FactorModel, weights: RowWeights, covariates: Mapping[str, Any], arguments: Mapping[str, Any]
) -> None:
    """Complain of survey weights where the likelihood knows more of rows than their mean and covariance."""
    if weights.kind != "survey":
        return
    others = (
        "keep each row with a probability of its weight over the largest one and fit these without weights"
    )
    if not has_normal_rows(model):
        raise ValueError(
            "sample_weight: survey weights want a linear decoder and normal noise in all columns, under "
            "which a table is known by its weighted mean and covariance; elsewhere factors are drawn for "
            f"each row, and a power of their density is another model; {others}"
        )
    if covariates or arguments["dependency"] is not None:
        name = next(iter(covariates), "dependency")
        raise ValueError(
            f"{name}: cannot be had together with survey weights; leave one of them out, or {others}"
        )


def _sequences(model: LatentTransition, X: TableLike, arguments: Mapping[str, Any]) -> Sequences:
    options = {name: arguments[name] for name in ("standardise", *_OF_SEQUENCES)}
    data = as_sequences(
        X, lag=model.lags, likelihood=model.likelihood, feature_names=arguments["feature_names"], **options
    )
    model.take_actions(data.action_names, data.action_widths)
    return _warned(data, sequence_findings(data, model))


def _observed(model: ObservedTransition, X: TableLike, arguments: Mapping[str, Any]) -> Sequences:
    options = {name: arguments[name] for name in ("standardise", "covariates", *_OF_SEQUENCES)}
    data = as_designed_sequences(
        X, lag=1, feature_names=arguments["feature_names"], trend=model.trend, season=model.seasons, **options
    )
    counters = counter_columns(data)
    counted = {name for finding in counters for name in finding.columns}
    others = [j for j, name in enumerate(data.feature_names) if name not in counted]
    of_frames = [*frame_findings(data, others, is_measured=True), *held_variables(data, others)]
    return _warned(data, [*counters, *moving_means(data, others, _TERMS_AGAINST), *of_frames])


def _tasks(model: MultiTaskRegression, X: TableLike, arguments: Mapping[str, Any]) -> Tasks:
    if arguments["y"] is None:
        raise TypeError("y: a MultiTaskRegression wants targets, or the name of their column; got none")
    beside = () if model.likelihood is None else model.likelihood.per_row_inputs
    if given := [name for name in beside if arguments.get(name) is not None]:
        raise TypeError(
            f"{given[0]}: tasks read nothing of a sample but its inputs and its outcome; leave it out"
        )
    data = as_tasks(
        X,
        arguments["y"],
        arguments["task"],
        standardise=arguments["standardise"],
        units=None if model.likelihood is None else model.take_outcomes,
        filler=0.0 if model.likelihood is None else model.likelihood.filler,
    )
    data = replace(data, weight=read_task_weight(arguments["task_weight"], data.task_names))
    return _warned(data, task_findings(data, model.n_latents, model.likelihood is None))


def _program(model: Program, X: TableLike | ProgramData, arguments: Mapping[str, Any]) -> ProgramData:
    if isinstance(X, ProgramData):
        if arguments["feature_names"] is not None:
            raise TypeError("feature_names: X has its names; give them to ps.Data")
        return X
    return ProgramData(X, feature_names=arguments["feature_names"])


def _activations(model: AutoencoderPair, X: object, arguments: Mapping[str, Any]) -> Activations:
    return read_activations(X, arguments["standardise"])


def _warned(data: DataT, findings: list[Finding]) -> DataT:
    """The data with what was found against them, which is said before the time it takes to fit."""
    for finding in findings:
        warnings.warn(f"X: {finding}", RuntimeWarning, stacklevel=6)
    return replace(data, checks=tuple(findings))


_TERMS_AGAINST = {  # of an `ObservedTransition`, by what is found
    "trend": 'give the model trend="linear", or "spline"',
    "season": "give the model its season: so many steps that {period:g} divides them, or a word ('month')",
}
_OF_SEQUENCES = ("actions", "id", "time", "time_step")
PER_ROW = tuple(  # what the likelihoods read of rows beside their cells
    dict.fromkeys(name for kind in known_likelihoods() for name in get_likelihood(kind).per_row_inputs)
)
_OF_TABLES = ("mask", *PER_ROW, *ROLES, *WEIGHTS, "feature_names")
KINDS = (
    Kind(
        LatentTransition, TransitionSchedule, 2, _sequences, (*_OF_SEQUENCES, "feature_names"),
        TransitionJob, ("sparsity",),
    ),
    Kind(
        ObservedTransition, ObservedSchedule, 2, _observed,
        (*_OF_SEQUENCES, "feature_names", "covariates"),
        ObservedJob, (),
    ),
    Kind(AutoencoderPair, AutoencoderSchedule, 3, _activations, (), AutoencoderJob, ("dependency",)),
    Kind(Program, ProgramSchedule, 8, _program, ("feature_names",), ProgramJob, ()),
    Kind(MultiTaskRegression, TaskSchedule, 2, _tasks, ("y", "task", "task_weight"), TaskJob, ("inner",)),
    Kind(DependencyVAE, DependencySchedule, 4, _table, _OF_TABLES, DependencyJob, ("dependency",)),
    Kind(object, Schedule, 8, _table, _OF_TABLES, TableJob, ("n_factors_init", "dependency")),
)  # fmt: skip
