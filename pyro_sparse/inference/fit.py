"""`fit`: a model and a table in, a `Fit` out. This file is the order of events; each event has its own file.

Check the arguments (`arguments.py`), read the data, and go on with the order of events of the kind of model
(`registry.py`): `table/job.py`, `transition/job.py`, `observed/job.py`, `multitask/job.py` or
`autoencoders/job.py`; in several processes, or one restart at a time, by `training/parts.py`. Ctrl-C at any
time returns the fit so far, with a warning.
"""

from __future__ import annotations

import copy
import inspect
import os
import threading
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, cast, overload

import numpy as np
import torch

from .._utils.torch_state import undisturbed
from ..models.autoencoder_pair import AutoencoderPair
from ..models.multitask import MultiTaskRegression
from ..models.observed_transition import ObservedTransition
from .arguments import Arguments, check_arguments
from .autoencoders.schedule import AutoencoderSchedule
from .multitask.task_schedule import TaskSchedule
from .observed.schedule import ObservedSchedule
from .registry import Kind, kind_of, n_features_of
from .table.dependency_schedule import DependencySchedule
from .table.latent_penalty import LatentPenalty
from .table.schedule import Schedule
from .training.interrupt import Stopped, cut_short, warns
from .training.job import train
from .training.parts import read_parts, train_in_processes, write_part
from .training.ranks import ranks_here, refuse_ranks
from .transition.transition_schedule import TransitionSchedule
from .user_models import refuse_bound_functions, refuse_broken_models

if TYPE_CHECKING:
    from numpy.typing import ArrayLike
    from torch import Tensor

    from .._utils.types import Covariates, TableLike, TaskWeights, VectorLike
    from ..models.base import FactorModel
    from ..models.latent_transition import LatentTransition
    from .arguments import TimeStep
    from .autoencoders.pair_result import AutoencoderFit
    from .multitask.task_result import MultiTaskFit
    from .observed.observed_result import ObservedFit
    from .table.result import Fit
    from .training._families import Data, Trainable
    from .training.fit_result import FitResult
    from .training.job import Job
    from .transition.constraint import SparsityControl
    from .transition.transition_result import TransitionFit

__all__ = ["fit", "fit_restart", "merge"]

Sides: TypeAlias = "tuple[ArrayLike | Tensor, ArrayLike | Tensor]"  # activations before a layer and after it
Paths: TypeAlias = "str | os.PathLike[str] | Iterable[str | os.PathLike[str]]"
_BUSY = threading.Lock()


@overload
def fit(
    model: FactorModel, X: TableLike, y: None = None, *,
    dependency: LatentPenalty | None = ..., restarts: int | None = ..., seed: int = ...,
    schedule: Schedule | DependencySchedule | None = ..., holdout: float = ..., mask: TableLike | None = ...,
    exposure: VectorLike | None = ..., covariates: Covariates | None = ...,
    groups: Covariates | None = ..., sample_weight: VectorLike | str | None = ...,
    sample_weight_type: Literal["frequency", "survey"] | None = ...,
    feature_names: Sequence[str] | None = ..., standardise: bool = ...,
    n_factors_init: Sequence[int] | None = ..., n_jobs: int = ..., progress: bool = ...,
    checkpoint: str | os.PathLike[str] | None = ..., checkpoint_every: int = ...,
    device: str = ..., dtype: str | torch.dtype = ..., threads: int | None = ...,
    task: None = ..., task_weight: None = ..., inner: None = ...,
    actions: None = ..., id: None = ..., time: None = ...,
    time_step: None = ..., sparsity: None = ..., **settings: object,
) -> Fit: ...  # fmt: skip
@overload
def fit(
    model: LatentTransition, X: TableLike, y: None = None, *,
    actions: TableLike | None = ..., id: str | None = ..., time: str | None = ...,
    time_step: TimeStep | None = ..., sparsity: str | float | SparsityControl | None = ...,
    restarts: int | None = ..., seed: int = ..., schedule: TransitionSchedule | None = ...,
    holdout: float = ..., feature_names: Sequence[str] | None = ..., standardise: bool = ...,
    n_jobs: int = ..., progress: bool = ...,
    checkpoint: str | os.PathLike[str] | None = ..., checkpoint_every: int = ...,
    device: str = ..., dtype: str | torch.dtype = ..., threads: int | None = ...,
    task: None = ..., task_weight: None = ..., inner: None = ...,
    dependency: None = ..., mask: None = ..., n_factors_init: None = ...,
    exposure: None = ..., covariates: None = ..., groups: None = ..., sample_weight: None = ...,
    sample_weight_type: None = ..., **settings: object,
) -> TransitionFit: ...  # fmt: skip
@overload
def fit(
    model: ObservedTransition, X: TableLike, y: None = None, *,
    actions: TableLike | None = ..., id: str | None = ..., time: str | None = ...,
    time_step: TimeStep | None = ..., restarts: int | None = ..., seed: int = ...,
    schedule: ObservedSchedule | None = ..., feature_names: Sequence[str] | None = ...,
    standardise: bool = ..., holdout: float = ..., n_jobs: int = ..., progress: bool = ...,
    checkpoint: str | os.PathLike[str] | None = ..., checkpoint_every: int = ...,
    device: str = ..., dtype: str | torch.dtype = ..., threads: int | None = ...,
    task: None = ..., task_weight: None = ..., inner: None = ...,
    dependency: None = ..., mask: None = ..., n_factors_init: None = ...,
    exposure: None = ..., covariates: Covariates | None = ..., groups: None = ..., sparsity: None = ...,
    sample_weight: None = ..., sample_weight_type: None = ...,
    **settings: object,
) -> ObservedFit: ...  # fmt: skip
@overload
def fit(
    model: MultiTaskRegression, X: TableLike, y: VectorLike, *,
    task: VectorLike | None = ..., task_weight: TaskWeights | None = ..., inner: str | None = ...,
    restarts: int | None = ..., seed: int = ..., schedule: TaskSchedule | None = ...,
    holdout: float = ..., standardise: bool = ..., n_jobs: int = ..., progress: bool = ...,
    checkpoint: str | os.PathLike[str] | None = ..., checkpoint_every: int = ...,
    device: str = ..., dtype: str | torch.dtype = ..., threads: int | None = ...,
    actions: None = ..., id: None = ..., time: None = ..., time_step: None = ..., sparsity: None = ...,
    dependency: None = ..., mask: None = ..., feature_names: None = ..., n_factors_init: None = ...,
    exposure: None = ..., covariates: None = ..., groups: None = ..., sample_weight: None = ...,
    sample_weight_type: None = ..., **settings: object,
) -> MultiTaskFit: ...  # fmt: skip
@overload
def fit(
    model: AutoencoderPair, X: Sides, y: None = None, *,
    dependency: LatentPenalty | None = ..., restarts: int | None = ..., seed: int = ...,
    schedule: AutoencoderSchedule | None = ..., holdout: float = ..., standardise: bool = ...,
    n_jobs: int = ..., progress: bool = ...,
    checkpoint: str | os.PathLike[str] | None = ..., checkpoint_every: int = ...,
    device: str = ..., dtype: str | torch.dtype = ..., threads: int | None = ...,
    task: None = ..., task_weight: None = ..., inner: None = ...,
    actions: None = ..., id: None = ..., time: None = ...,
    time_step: None = ..., sparsity: None = ..., mask: None = ..., feature_names: None = ...,
    n_factors_init: None = ..., exposure: None = ..., covariates: None = ..., groups: None = ...,
    sample_weight: None = ..., sample_weight_type: None = ..., **settings: object,
) -> AutoencoderFit: ...  # fmt: skip


def fit(
    model: Trainable | ObservedTransition | AutoencoderPair,
    X: TableLike | Sides,
    y: VectorLike | None = None,
    *,
    task: VectorLike | None = None,
    task_weight: TaskWeights | None = None,
    inner: str | None = None,
    actions: TableLike | None = None,
    id: str | None = None,
    time: str | None = None,
    time_step: TimeStep | None = None,
    sparsity: str | float | SparsityControl | None = None,
    dependency: LatentPenalty | None = None,
    restarts: int | None = None,
    seed: int = 0,
    schedule: Schedule
    | DependencySchedule
    | TransitionSchedule
    | ObservedSchedule
    | TaskSchedule
    | AutoencoderSchedule
    | None = None,
    holdout: float = 0.1,
    mask: TableLike | None = None,
    exposure: VectorLike | None = None,
    covariates: Covariates | None = None,
    groups: Covariates | None = None,
    sample_weight: VectorLike | str | None = None,
    sample_weight_type: Literal["frequency", "survey"] | None = None,
    feature_names: Sequence[str] | None = None,
    standardise: bool = True,
    n_factors_init: Sequence[int] | None = None,
    n_jobs: int = 1,
    progress: bool = True,
    checkpoint: str | os.PathLike[str] | None = None,
    checkpoint_every: int = 250,
    device: str = "cpu",
    dtype: str | torch.dtype = "float32",
    threads: int | None = 1,
    **settings: object,
) -> FitResult:
    r"""Fit a model to a table, sequences or tasks: several restarts, the best chosen on held-out rows.

    .. math:: \max_{\theta, \phi, W}\; \sum_i \big( E_q[\log p(x_i|z_i,W)] - KL(q(z_i|x_i) \| p(z_i)) \big)
              + \log p(W)

    One nat is one nat: the minibatch is scaled to all rows, the prior to none.

    Under torchrun, or within a process group of `torch.distributed`, every process of it calls `fit` with the
    same arguments; they share the rows of each minibatch of a `SparseDecoder` and all return the same fit.

    Parameters
    ----------
    model : FactorModel, LatentTransition, ObservedTransition, MultiTaskRegression or AutoencoderPair
        For instance `SparseDecoder(n_factors=5)`. It stays as it is: a copy of it is trained.
    X : array_like (row, feature), DataFrame, Arrow or polars table, scipy.sparse matrix, AnnData or RowStore
        NaN marks a missing cell. Sparse or on disk with over 25 million cells: read by rows (`open_rows`).
        For a `LatentTransition` or `ObservedTransition`: array (sequence, time, feature) or (time,
        feature), list of arrays (time, feature), or a DataFrame with one row per frame.
        Fewer than twenty long sequences are cut into pieces, and ELBOs are then per piece.
        For a `MultiTaskRegression`: one row per sample with `task`, or see `pyro_sparse.data.tasks.as_tasks`.
        For an `AutoencoderPair`: two arrays, (before, after), activations (row, d) on both sides of a layer.
    y : array_like, list of arrays or str, optional
        For a `MultiTaskRegression`: targets, or the name of their column. NaN is a missing target.
    task : array_like or str, optional
        For a `MultiTaskRegression`: which task each row belongs to, or the name of that column.
    task_weight : mapping or Series by names of tasks, or array_like (task,) in their order, optional
        For a `MultiTaskRegression`: how much each task counts in learning the representation that all share
        and its axes, and in choosing a restart; positive, scaled to mean 1. Default: all alike. Given the
        representation a task's weights, noise and edge probabilities are as without it. Arrays go by sorted
        labels (`as_tasks`), or by the order of a list or of the columns of `y`.
    inner : {"lasso", "ssl", "outer", "ridge"}, optional
        For a `MultiTaskRegression`: the regressions inside the training; default "ssl".
    actions : array_like (sequence, time, action), list of arrays, or list of column names, optional
        For a `LatentTransition` or `ObservedTransition`: the action in a row leads to that row's frame; text
        is a categorical action, with one edge to each latent or variable.
    id, time : str, optional
        For a `LatentTransition` or `ObservedTransition` and a DataFrame: the columns or index levels that
        tell sequences and frames apart. Rows may come in any order; sequences are sorted by id.
    time_step : number or time difference, optional
        For a `LatentTransition` and `time`: from one frame to the next; default the most common difference.
        Where more time lies between two frames (a weekend, in days) the later is not predicted from the one
        before, and a warning of the fit counts such gaps.
    sparsity : None, "auto", int, float or SparsityControl, optional
        For a `LatentTransition`: how many edges the relaxed graph may have. A whole number is a budget, a
        float a price per edge in nats, "auto" asks held-out sequences; the default leaves it to the Bernoulli
        prior. The graph read from the axes is not touched.
    dependency : LatentPenalty, optional
        For a table: a penalty on how the decoder uses the latents, beside the ELBO of a row, for instance
        `DependencyPenalty(weight=0.05)`. Reported ELBOs do not contain it. For an `AutoencoderPair`: a
        `DependencyPenalty` of surrogate "l1" or "ratio", on the slopes between active latents, beside the
        fractions of variance unexplained.
    restarts : int, optional
        Starts, by default 8, 4 for a `DependencyVAE`, 3 for an `AutoencoderPair` (whose edges are taken over
        them), 2 for sequences and tasks (of an `ObservedTransition`: chains of its sampler). On a table each
        begins with its own number of factors, from K down to 1 and again (a `DependencyVAE` with all of
        them). A `LatentTransition` gets up to two
        more if none agrees with the best, where `restarts` and `steps` are left open and one process trains.
    seed : int
        All randomness follows from it; the same seed gives the same bits on the same machine.
    schedule : Schedule, DependencySchedule, TransitionSchedule, ObservedSchedule, TaskSchedule, optional
        Or an `AutoencoderSchedule`: of the model's kind. Settings of the loop; single ones can be given by
        name in `settings`.
    holdout : float
        Share of rows held out for choosing a restart, in [0, 1); at most 2,000 rows, and fewer
        of a wide table that is read by rows. A fit of sequences also goes back to the state that was best on
        held-out ones (at most 5,000), if that was better than its last. Of activations the last rows are held
        out: bring them, or the texts they are of, in random order.
    mask : array_like of bool (row, feature), optional
        True where a cell was seen, beside NaN. Columns of a DataFrame are found by name.
    exposure : array_like (row,), optional
        Size factors of counts.
    covariates : DataFrame, Series, mapping or array (row, covariate), or names of columns, optional
        Numbers, or categories (text, booleans, a pandas categorical), whose effects on the features are none
        of the factors': factors, edges and loadings are net of them. Named columns of X are no features; of
        an AnnData or a MuData names are those of `obs`, whose rows are found by name. Each covariate has an
        effect on every feature's linear predictor, under a wide prior in the chains.
        For an `ObservedTransition`: of every frame; no edges, and always in the sum of every variable.
    groups : as `covariates`, optional
        Categories whatever they hold: batches, schools, persons with several rows. Each group has an effect
        of its own on every feature (fixed effects), so that factors are those within groups.
    sample_weight : array_like (row,) or name of a column, optional
        How much each row counts, above 0. A named column of X is no feature.
    sample_weight_type : {"frequency", "survey"}, optional
        What weights mean; wanted unless all are 1. "frequency": a row of weight 3 counts as three identical
        rows, under any model of a table. "survey": rows were sampled with unequal probabilities, and weights
        are in proportion to the inverse of these; the likelihood is that of the weighted moments, counted as
        often as there are effective rows, for a linear decoder and normal noise (`docs/weights.md`).
    feature_names : sequence of str, optional
        Names for an array, in the order of its columns.
    standardise : bool
        z-score the columns (normal likelihood only); results come back in the caller's units. Activations are
        brought to mean 0, and one standard deviation for all dimensions to 1.
    n_factors_init : sequence of int, optional
        Number of factors each restart begins with; default a neutral grid.
    n_jobs : int
        Processes that the restarts are divided among; -1 is one for each core, or what the backend of
        `joblib.parallel_config` has. Each restart ends where it ends in one process, but for rounding. On a
        small table one process, which takes all restarts in one pass, is the quicker.
    progress : bool
        Show a progress bar with the ELBO and the number of edges.
    checkpoint : path, optional
        File to write the run to; if it exists the fit resumes from it, bit for bit. With `n_jobs=1` only. Of
        a process group the first process reads and writes it, and any number of processes may resume it.
    checkpoint_every : int
        Steps between two writes.
    device : str
        Where to compute.
    dtype : {"float32", "float64", "bfloat16"}
        In which precision. "bfloat16", for a `SparseDecoder` with an MLP decoder, is single precision but for
        the hidden units of training steps and what they are multiplied with: on processors that multiply such
        numbers (AVX512-BF16, AMX, recent GPUs) a wide decoder's step takes less than half of the time. Steps
        of an `AutoencoderPair` are rounded likewise.
    threads : int or None
        torch threads during the fit; one is fastest for all but very wide models. None leaves them alone.
    **settings
        Any field of the schedule: ``steps=3000``, ``batch_size=200``, ``learning_rate=…``; and what a
        likelihood of your own reads of rows (`Likelihood.per_row_inputs`), array_like (row,), by name.

    Returns
    -------
    Fit, TransitionFit, ObservedFit, MultiTaskFit or AutoencoderFit

    Raises
    ------
    ValueError, TypeError
        Bad data or settings; the message names the argument, what was seen, what is wanted and the fix.
    RuntimeError
        Another fit is running in a thread of this process (Pyro's handlers are not thread-safe), or another
        process of the group has ended.

    Examples
    --------
    >>> import pyro_sparse as ps
    >>> data = ps.datasets.sim1(n=200, seed=1)
    >>> result = ps.fit(ps.models.SparseDecoder(7, 2), data.x, restarts=2, steps=60, progress=False)
    >>> result.weights.shape
    (2, 7, 2)
    """
    arguments = Arguments(
        model=cast("Trainable", model), X=X, y=y, task=task, task_weight=task_weight, inner=inner,
        actions=actions, id=id, time=time, time_step=time_step, sparsity=sparsity, dependency=dependency,
        restarts=restarts, seed=seed, schedule=schedule, holdout=holdout, mask=mask,
        exposure=exposure, covariates=covariates, groups=groups,
        sample_weight=sample_weight, sample_weight_type=sample_weight_type,
        feature_names=feature_names, standardise=standardise, n_factors_init=n_factors_init, n_jobs=n_jobs,
        progress=progress, checkpoint=checkpoint, checkpoint_every=checkpoint_every, device=device,
        dtype=dtype, threads=threads, settings=settings,
    )  # fmt: skip
    with _prepared(arguments) as plan:
        ranks = ranks_here(device)
        refuse_ranks(ranks, plan.model, plan.settings["schedule"], dependency, n_jobs)
        if n_jobs == 1:
            job = plan.job(**({"ranks": ranks} if ranks.size > 1 else {}))
            result = train(
                job, progress=progress, checkpoint=checkpoint, checkpoint_every=checkpoint_every,
                more=getattr(job, "more", None) if plan.goes_on else None,
            )  # fmt: skip
        else:
            _refuse_checkpoint(arguments, f"with n_jobs={n_jobs} nothing is written before the end")
            result = train_in_processes(
                plan.kind.job, plan.model, plan.data, plan.settings,
                n_jobs=n_jobs, threads=threads, progress=progress,
            )  # fmt: skip
    return _concluded(result, plan)


def fit_restart(
    index: int,
    path: str | os.PathLike[str],
    model: Trainable | AutoencoderPair,
    X: TableLike | Sides,
    y: VectorLike | None = None,
    *,
    recipe: dict[str, Any] | None = None,
    **arguments: object,
) -> None:
    """Train one restart of a fit by itself and write it to a file, for `merge`: one job of a job array.

    Parameters
    ----------
    index : int
        Which of the `restarts`, from 0.
    path : path
        File to write.
    model, X, y
        As for `fit`.
    recipe : dict, optional
        A note to keep in the file, of what JSON knows.
    **arguments
        As for `fit`. All arguments are the same in every job, also `restarts`, the number of all.

    Raises
    ------
    ValueError, TypeError
        As `fit`; `index` is not one of the restarts.

    Examples
    --------
    >>> import tempfile, pyro_sparse as ps
    >>> data = ps.datasets.sim1(n=200, seed=1)
    >>> model = ps.models.SparseDecoder(7, 2)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     paths = [f"{folder}/{i}.pt" for i in range(2)]
    ...     for i, path in enumerate(paths):
    ...         ps.fit_restart(i, path, model, data.x, restarts=2, steps=60)
    ...     result = ps.merge(paths, model, data.x, restarts=2, steps=60)
    >>> result.n_restarts
    2
    """

    bound = _given(model, X, y, arguments)
    with _prepared(bound) as plan:
        restarts = plan.settings["restarts"]
        if not isinstance(index, int | np.integer) or not 0 <= index < restarts:
            raise ValueError(
                f"index: got {index!r}, wanted a whole number from 0 to restarts - 1 = {restarts - 1}"
            )
        _refuse_checkpoint(bound, "a restart by itself is written when it has ended")
        job = plan.job()
        write_part(path, job.fingerprint, job.part(range(int(index), int(index) + 1)), recipe or {})


@overload
def merge(paths: Paths, model: FactorModel, X: TableLike, y: None = None, **arguments: object) -> Fit: ...
@overload
def merge(
    paths: Paths, model: LatentTransition, X: TableLike, y: None = None, **arguments: object
) -> TransitionFit: ...
@overload
def merge(
    paths: Paths, model: MultiTaskRegression, X: TableLike, y: VectorLike, **arguments: object
) -> MultiTaskFit: ...
@overload
def merge(
    paths: Paths, model: AutoencoderPair, X: Sides, y: None = None, **arguments: object
) -> AutoencoderFit: ...
def merge(
    paths: Paths,
    model: Trainable | AutoencoderPair,
    X: TableLike | Sides,
    y: VectorLike | None = None,
    **arguments: object,
) -> FitResult:
    """The fit of restarts that `fit_restart` wrote: what `fit` gives with the same arguments, up to rounding.

    Parameters
    ----------
    paths : path or iterable of path
        Files of `fit_restart`; a warning of the fit names restarts that are missing.
    model, X, y
        As for `fit`.
    **arguments
        As for `fit_restart`.

    Returns
    -------
    Fit, TransitionFit, MultiTaskFit or AutoencoderFit

    Raises
    ------
    FileNotFoundError, ValueError, TypeError
        As `fit`; no file, a file of another model, table, seed or setting, or a restart that is there twice.
    """

    with _prepared(_given(model, X, y, arguments)) as plan:
        job = plan.job()
        result = job.merge(*read_parts(paths, job.fingerprint, job.n_restarts))
    return _concluded(result, plan)


def _given(
    model: Trainable | AutoencoderPair,
    X: TableLike | Sides,
    y: VectorLike | None,
    arguments: dict[str, object],
) -> Arguments:
    """All arguments of `fit`, of those given."""
    bound = inspect.signature(fit).bind(model, X, y, **arguments)
    bound.apply_defaults()
    return Arguments(**bound.arguments)


def _refuse_checkpoint(arguments: Arguments, why: str) -> None:
    if arguments.checkpoint is not None:
        raise ValueError(
            f"checkpoint: got {os.fspath(arguments.checkpoint)!r}, but {why}; leave it out and write "
            "restarts one by one (fit_restart, merge), or fit in one process (n_jobs=1)"
        )


@dataclass(frozen=True)
class _Plan:
    """What is to be trained: the model's kind, a copy of the model, the data as read, settings of the job."""

    kind: Kind
    model: Trainable
    data: Data
    settings: dict[str, Any]
    goes_on: bool  # the caller left restarts and steps open, so that a job may add restarts

    def job(self, **more: object) -> Job[Any, FitResult]:
        """The job of all restarts."""
        return self.kind.job(self.model, self.data, **self.settings, **more)


@contextmanager
def _prepared(arguments: Arguments) -> Iterator[_Plan]:
    """Check the arguments and read the data; nothing else is fitted in this process meanwhile."""
    model, dtype = arguments.model, arguments.dtype
    kind = kind_of(model)
    restarts = kind.restarts if arguments.restarts is None else arguments.restarts
    schedule, per_row = check_arguments(kind, arguments)
    if not _BUSY.acquire(blocking=False):
        raise RuntimeError(
            "fit: another fit is running in this process; Pyro is not thread-safe, "
            "so run fits one after the other, or in processes (joblib with loky)"
        )
    try:
        with undisturbed(threads=arguments.threads):
            settings = {
                "restarts": int(restarts),
                "seed": int(arguments.seed),
                "schedule": schedule,
                "holdout": float(arguments.holdout),
                "device": arguments.device,
                "dtype": getattr(torch, dtype) if isinstance(dtype, str) else dtype,
                **{name: getattr(arguments, name) for name in kind.trains},
            }
            refuse_bound_functions(model)
            model = copy.deepcopy(model)  # the caller may use it, or its prior, for other fits
            data = kind.read(model, arguments.X, {**vars(arguments), **per_row})
            if getattr(model, "n_features", 0) is None:  # a program has those of its data
                model.take_features(cast("int", n_features_of(data)))
            refuse_broken_models(model, data, settings["restarts"])
            goes_on = arguments.restarts is None and getattr(schedule, "steps", 0) is None
            yield _Plan(kind, model, data, settings, goes_on)
    except Stopped:
        raise KeyboardInterrupt("interrupted before there was a fit to return") from None
    finally:
        _BUSY.release()


def _concluded(result: FitResult, plan: _Plan) -> FitResult:
    """The result with what the data gave rise to; says if it was cut short."""
    of_data = getattr(plan.data, "findings", ())
    result.findings.extend(finding for finding in of_data if finding not in result.findings)
    if warns() and (how := cut_short(result)):
        warnings.warn(f"{how}; this is the fit so far", RuntimeWarning, stacklevel=3)
    return result
