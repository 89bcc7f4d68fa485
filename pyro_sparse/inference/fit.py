"""`fit`: a model and a table in, a `Fit` out. This file is the order of events; each event has its own file.

Check the arguments, read the data, and go on with the order of events of the model's kind (`kinds.py`):
`fit_table.py`, `fit_transition.py` or `fit_tasks.py`. Ctrl-C at any time returns the fit so far.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch

from .._torch import undisturbed
from ..models.multitask import MultiTaskRegression
from .dependency_schedule import DependencySchedule
from .kinds import Kind, kind_of
from .latent_penalty import LatentPenalty, check_penalty
from .schedule import Schedule
from .task_schedule import TaskSchedule
from .transition_schedule import TransitionSchedule

__all__ = ["fit"]

_BUSY = threading.Lock()


def fit(
    model: Any,
    X: Any,
    y: Any = None,
    *,
    task: Any = None,
    inner: str | None = None,
    actions: Any = None,
    id: str | None = None,
    time: str | None = None,
    sparsity: Any = None,
    dependency: LatentPenalty | None = None,
    restarts: int | None = None,
    seed: int = 0,
    schedule: Schedule | DependencySchedule | TransitionSchedule | TaskSchedule | None = None,
    holdout: float = 0.1,
    mask: Any = None,
    exposure: Any = None,
    feature_names: Sequence[str] | None = None,
    standardise: bool = True,
    caps: Sequence[int] | None = None,
    progress: bool = True,
    checkpoint: str | os.PathLike[str] | None = None,
    checkpoint_every: int = 250,
    device: str = "cpu",
    dtype: str | torch.dtype = "float32",
    threads: int | None = 1,
    **settings: Any,
) -> Any:
    r"""Fit a model to a table, sequences or tasks: several restarts, the best chosen on rows kept aside.

    .. math:: \max_{\theta, \phi, W}\; \sum_i \big( E_q[\log p(x_i|z_i,W)] - KL(q(z_i|x_i) \| p(z_i)) \big)
              + \log p(W)

    One nat is one nat: the minibatch is scaled to all rows, the prior to none.

    Parameters
    ----------
    model : FactorModel, LatentTransition or MultiTaskRegression
        For instance `SparseDecoder(n_features, n_factors)`; its parameters are made anew.
    X : array_like (row, feature), DataFrame, scipy.sparse matrix or AnnData
        NaN marks a missing cell. For a `LatentTransition`: array (sequence, time, feature) or (time,
        feature), list of arrays (time, feature), or a DataFrame with one row per frame.
        Fewer than twenty long sequences are cut into pieces, and ELBOs are then per piece.
        For a `MultiTaskRegression`: one row per sample with `task`, or see `pyro_sparse.tasks.as_tasks`.
    y : array_like, list of arrays or str, optional
        For a `MultiTaskRegression`: targets, or the name of their column. NaN is a missing target.
    task : array_like or str, optional
        For a `MultiTaskRegression`: which task each row belongs to, or the name of that column.
    inner : {"lasso", "ssl", "outer", "ridge"}, optional
        For a `MultiTaskRegression`: the regressions inside the training; default "ssl".
    actions : array_like (sequence, time, action), list of arrays, or list of column names, optional
        For a `LatentTransition`: the action in a row leads to that row's frame; text is a categorical action.
    id, time : str, optional
        For a `LatentTransition` and a DataFrame: the columns that tell sequences and frames apart.
    sparsity : None, "auto", int, float or SparsityControl, optional
        For a `LatentTransition`: how many edges the relaxed graph may have. A whole number is a budget, a
        float a price per edge in nats, "auto" asks held-out sequences; the default leaves it to the Bernoulli
        prior. The graph read from the axes is not touched.
    dependency : LatentPenalty, optional
        For a table: a penalty on how the decoder uses the latents, beside the ELBO of a row, for instance
        `DependencyPenalty(weight=0.05)`. Reported ELBOs do not contain it.
    restarts : int, optional
        Starts, by default 8, 4 for a `DependencyVAE`, 2 for sequences and tasks. On a table each begins with
        its own number of factors, from K down to 1 and again (a `DependencyVAE` with all of them).
    seed : int
        All randomness follows from it; the same seed gives the same bits on the same machine.
    schedule : Schedule, DependencySchedule, TransitionSchedule or TaskSchedule, optional
        Settings of the loop; single ones can be given by name in `settings`.
    holdout : float
        Share of rows kept aside for choosing a restart, in [0, 1).
    mask : array_like of bool (row, feature), optional
        True where a cell was seen, beside NaN.
    exposure : array_like (row,), optional
        Size factors of counts.
    feature_names : sequence of str, optional
        Names for an array.
    standardise : bool
        z-score the columns (normal likelihood only); results come back in the caller's units.
    caps : sequence of int, optional
        Number of factors each restart begins with; default a neutral grid.
    progress : bool
        Show a progress bar with the ELBO and the number of edges.
    checkpoint : path, optional
        File to write the run to; if it exists the fit resumes from it, bit for bit.
    checkpoint_every : int
        Steps between two writes.
    device, dtype : str
        Where and in which precision to compute.
    threads : int or None
        torch threads during the fit; one is fastest for all but very wide models. None leaves them alone.
    **settings
        Any field of the schedule: ``steps=3000``, ``batch_size=200``, ``learning_rate=…``.

    Returns
    -------
    Fit, TransitionFit or MultiTaskFit

    Raises
    ------
    ValueError, TypeError
        Bad data or settings; the message names the argument, what was seen, what is wanted and the mend.
    RuntimeError
        Another fit is running in a thread of this process (Pyro's handlers are not thread-safe).

    Examples
    --------
    >>> import pyro_sparse as ps
    >>> data = ps.datasets.sim1(n=200, seed=1)
    >>> result = ps.fit(ps.models.SparseDecoder(7, 2), data.x, restarts=2, steps=60, progress=False)
    >>> result.weights.shape
    (2, 7, 2)
    """
    kind = kind_of(model)
    plan = _schedule(kind.schedule, schedule, settings)
    restarts = kind.restarts if restarts is None else restarts
    own = {
        "y": y, "task": task, "inner": inner,
        "actions": actions, "id": id, "time": time, "sparsity": sparsity,
        "mask": mask, "exposure": exposure, "feature_names": feature_names,
        "caps": caps, "dependency": dependency,
    }  # fmt: skip
    _refuse(model, kind, own)
    if dependency is not None:
        check_penalty(dependency)
    _check_arguments(model, restarts, holdout, caps, dtype, checkpoint_every)
    if not _BUSY.acquire(blocking=False):
        raise RuntimeError(
            "fit: another fit is running in this process; Pyro is not thread-safe, "
            "so run fits one after the other, or in processes (joblib with loky)"
        )
    try:
        with undisturbed(threads=threads):
            return kind.train(
                model,
                kind.read(model, X, {**own, "standardise": standardise}),
                restarts=restarts,
                seed=int(seed),
                schedule=plan,
                holdout=holdout,
                progress=progress,
                checkpoint=checkpoint,
                checkpoint_every=checkpoint_every,
                device=device,
                dtype=getattr(torch, dtype) if isinstance(dtype, str) else dtype,
                **{name: own[name] for name in kind.trains},
            )
    finally:
        _BUSY.release()


_FOR = {
    **dict.fromkeys(("actions", "id", "time", "sparsity"), "sequences"),
    **dict.fromkeys(("y", "task", "inner"), "tasks"),
    **dict.fromkeys(("mask", "exposure", "feature_names", "dependency"), "tables"),
    "caps": "tables with a prior on weights",
}


def _refuse(model: Any, kind: Kind, own: dict[str, Any]) -> None:
    """Complain of arguments that this kind of model does not read."""
    for name, value in own.items():
        if value is not None and name not in (*kind.reads, *kind.trains):
            raise TypeError(
                f"{name}: is for {_FOR[name]}, and {type(model).__name__} reads none; leave it out"
            )


def _schedule(kind: Any, schedule: Any, settings: dict[str, Any]) -> Any:
    unknown = sorted(set(settings) - set(kind.names()))
    if unknown:
        raise TypeError(
            f"fit: unknown setting {unknown[0]!r}; wanted an argument of fit or one of {kind.names()}"
        )
    if schedule is not None and not isinstance(schedule, kind):
        raise TypeError(f"schedule: got a {type(schedule).__name__}, this model wants a {kind.__name__}")
    return replace(schedule or kind(), **settings)


def _check_arguments(
    model: Any,
    restarts: int,
    holdout: float,
    caps: Sequence[int] | None,
    dtype: str | torch.dtype,
    checkpoint_every: int,
) -> None:
    decodes = () if isinstance(model, MultiTaskRegression) else ("decode",)
    for method in ("setup", "model", "guide", *decodes):
        if not hasattr(model, method):
            raise TypeError(
                f"model: {type(model).__name__} has no {method!r}; wanted a FactorModel such as SparseDecoder"
            )
    if int(restarts) != restarts or restarts < 1:
        raise ValueError(f"restarts: got {restarts!r}, wanted a whole number of at least 1")
    if not 0 <= holdout < 1:
        raise ValueError(f"holdout: got {holdout!r}, wanted a share of rows in [0, 1)")
    if str(dtype).removeprefix("torch.") not in ("float32", "float64"):
        raise ValueError(f"dtype: got {dtype!r}, wanted 'float32' or 'float64'")
    if checkpoint_every < 1:
        raise ValueError(f"checkpoint_every: got {checkpoint_every!r}, wanted at least 1 step")
    if caps is not None and (len(caps) != restarts or min(caps) < 1 or max(caps) > model.n_factors):
        raise ValueError(
            f"caps: got {list(caps)}, wanted one number per restart ({restarts}), "
            f"each from 1 to n_factors={model.n_factors}"
        )
