"""`fit`: a model and a table in, a `Fit` out. This file is the order of events; each event has its own file.

Check the table, keep some rows aside, set every restart up from its own seed and a data-driven start, train
them (`loop.py`), choose (`restarts.py`), hand over to `result.py`. Ctrl-C at any time returns the fit so far.
"""

from __future__ import annotations

import copy
import os
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import torch
from tqdm import tqdm

from .._torch import undisturbed
from .._version import __version__
from ..data import Table, as_table
from ..models.dependency import DependencyVAE
from ..models.latent_transition import LatentTransition
from ..models.multitask import MultiTaskRegression
from ..sequences import as_sequences
from ..tasks import as_tasks
from . import checkpoint as files
from .dependency_run import DependencyRun
from .dependency_schedule import DependencySchedule
from .elbo import rowwise_elbo
from .fit_tasks import fit_tasks
from .fit_transition import fit_transition
from .interrupt import Stopped, stopped_between_steps
from .latent_penalty import LatentPenalty, check_penalty
from .loop import Run
from .refine import refined_elbo
from .restarts import bent_starts, best_restart, child_seeds, group_sizes, join, unconfirmed
from .result import Fit
from .schedule import Schedule
from .sparse_run import SparseRun
from .start import cap_grid, find_start, no_start
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
    sequential, tasked = isinstance(model, LatentTransition), isinstance(model, MultiTaskRegression)
    kinds = ((LatentTransition, TransitionSchedule, 2), (MultiTaskRegression, TaskSchedule, 2),
             (DependencyVAE, DependencySchedule, 4), (object, Schedule, 8))  # fmt: skip
    kind, usual = next((kind, usual) for of, kind, usual in kinds if isinstance(model, of))
    plan = _schedule(kind, schedule, settings)
    restarts = usual if restarts is None else restarts
    _refuse(model, sequential, "sequences", actions=actions, id=id, time=time, sparsity=sparsity)
    _refuse(model, tasked, "tasks", y=y, task=task, inner=inner)
    _refuse(model, not tasked, "tables", mask=mask, exposure=exposure, caps=caps, feature_names=feature_names)
    _refuse(model, kind is not DependencySchedule, "priors on weights", caps=caps)
    _refuse(model, not (sequential or tasked), "tables", dependency=dependency)
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
            names = None if feature_names is None else [str(n) for n in feature_names]
            precision = getattr(torch, dtype) if isinstance(dtype, str) else dtype
            if sequential:
                columns = {"actions": actions, "id": id, "time": time, "feature_names": names}
                sequences = as_sequences(X, lag=model.lags, standardise=standardise, **columns)
                return fit_transition(
                    model, sequences, restarts=restarts, seed=int(seed), schedule=plan, holdout=holdout,
                    sparsity=sparsity, progress=progress, checkpoint=checkpoint,
                    checkpoint_every=checkpoint_every, device=device, dtype=precision,
                )  # fmt: skip
            if tasked:
                if y is None:
                    raise TypeError(
                        "y: a MultiTaskRegression wants targets, or the name of their column; got none"
                    )
                tasks = as_tasks(X, y, task, standardise=standardise)
                return fit_tasks(
                    model, tasks, inner=inner or "ssl", restarts=restarts, seed=int(seed), schedule=plan,
                    holdout=holdout, progress=progress, checkpoint=checkpoint,
                    checkpoint_every=checkpoint_every, device=device, dtype=precision,
                )  # fmt: skip
            table = as_table(
                X,
                likelihood=model.likelihood,
                standardise=standardise,
                mask=mask,
                exposure=exposure,
                feature_names=names,
            )
            if table.x.shape[1] != model.n_features:
                raise ValueError(
                    f"X: has {table.x.shape[1]} column(s), the model was made for "
                    f"n_features={model.n_features}; make the model for this table"
                )
            return _fit(
                model, table, restarts, int(seed), plan, holdout, caps, progress,
                checkpoint, checkpoint_every,
                device, precision, dependency,
            )  # fmt: skip
    finally:
        _BUSY.release()


def _fit(
    model: Any,
    table: Table,
    n_restarts: int,
    seed: int,
    schedule: Any,
    holdout: float,
    caps: Sequence[int] | None,
    progress: bool,
    checkpoint: str | os.PathLike[str] | None,
    checkpoint_every: int,
    device: str,
    dtype: torch.dtype,
    dependency: LatentPenalty | None,
) -> Fit:
    n_rows = len(table.x)
    aside = np.sort(np.random.default_rng(seed).permutation(n_rows)[: int(round(holdout * n_rows))])
    if table.mask is not None:  # a column whose every cell lies in the rows aside could not be learned
        lost = ~np.delete(table.mask, aside, 0).any(0)
        aside = aside[~table.mask[aside][:, lost].any(1)]
    kept = np.setdiff1d(np.arange(n_rows), aside)
    if len(kept) < 5:
        raise ValueError(
            f"holdout: {holdout!r} of {n_rows} rows leaves {len(kept)} to learn from, wanted at least 5; "
            "lower it"
        )
    train = table.rows(kept).batch(device, dtype)
    heldout = table.rows(aside).batch(device, dtype) if len(aside) else None
    dense = isinstance(model, DependencyVAE)
    usual = np.full(n_restarts, model.n_factors) if dense else cap_grid(model.n_factors, n_restarts)
    grid = usual if caps is None else np.asarray(caps)
    bent = bent_starts(grid)
    seeds = child_seeds(seed, n_restarts)
    copies = 1 if dependency is None else dependency.copies(model.n_factors)
    sizes = group_sizes(model, n_restarts, schedule.batch_size * copies)
    setup = {
        "n_samples": train.total,
        "missing": table.mask is not None,
        "feature_names": table.feature_names,
    }
    seen = None if table.mask is None else table.mask[kept]
    wanted = [(int(cap), "principal" if curve else "oblique") for cap, curve in zip(grid, bent, strict=True)]
    starts = {
        which: find_start(table.inputs[kept], seen, *which) if model.data_start else no_start(*train.x.shape)
        for which in sorted(set(wanted))
    }

    print_ = files.fingerprint(
        model,
        {
            "seed": seed,
            "restarts": n_restarts,
            "caps": grid.tolist(),
            "groups": sizes,
            "holdout": holdout,
            "dtype": str(dtype),
            "rows": n_rows,
            "data": files.digest(table.x, table.mask, table.exposure),
            "made": files.made(model),
            "version": __version__,
            **({} if dependency is None else {"dependency": dependency.as_dict()}),
            **schedule.as_dict(),
        },
    )
    finished, resumed = files.read_run(checkpoint, print_)
    n_resumed = len(finished)
    notes: list[str] = []
    parts, history, at, interrupted, whole_step = [], [], 0, False, False
    bar = tqdm(total=schedule.steps * len(sizes), disable=not progress, unit="step", mininterval=0.5)
    for number, size in enumerate(sizes):
        part = copy.deepcopy(model)
        torch.manual_seed(seeds[at])
        part.setup(size, **setup)
        part.to(device=device, dtype=dtype)
        mine = slice(at, at + size)
        _start(part, [starts[which] for which in wanted[mine]], bent[mine], table, kept, device, dtype)
        run = (DependencyRun if dense else SparseRun)(part, train, heldout, schedule, at, dependency)
        if number < n_resumed:
            run.load(finished[number])
        elif resumed is not None and number == n_resumed:
            run.load(resumed)
        bar.update(run.step)
        if number >= n_resumed:
            report = _reporter(bar, checkpoint, checkpoint_every, print_, finished)
            try:
                with stopped_between_steps(report) as between:
                    run.finish(between)
            except KeyboardInterrupt as reason:
                interrupted, whole_step = True, isinstance(reason, Stopped)
                notes.append(
                    f"interrupted at step {run.step} of {schedule.steps} (restarts {at} to {at + size - 1}); "
                    "this is the fit so far"
                )
        parts.append(part)
        history.extend(run.history)
        at += size
        if interrupted:
            if checkpoint is not None and whole_step:  # else the last one written still resumes
                files.write_run(checkpoint, print_, finished, run.state())
            break
        if checkpoint is not None and number >= n_resumed:
            finished.append(copy.deepcopy(run.state()))
            files.write_run(checkpoint, print_, finished, None)
    bar.close()
    n_restarts = at
    whole = model
    torch.manual_seed(seeds[0])
    whole.setup(n_restarts, **setup)
    whole.to(device=device, dtype=dtype)
    join(parts, whole)
    whole.kl_weight = 1.0
    whole.eval()
    torch.manual_seed(seeds[0])
    train_rows = rowwise_elbo(whole, train, n_draws=4).cpu().numpy()
    held_rows = refined_elbo(whole, heldout).cpu().numpy() if heldout is not None else None
    edges, active = _sizes(whole)
    best = best_restart(train_rows if held_rows is None else held_rows, active, edges)
    notes.extend(_warnings(whole, best, active, train_rows if held_rows is None else held_rows, train.total))
    columns = ["step", "restart", "elbo", "heldout_elbo", "edges", "stage"]
    columns += ["closed_form"] * any("closed_form" in row for row in history)
    frame = pd.DataFrame(history, columns=columns)
    record = {
        "model": type(model).__name__,
        "decoder": getattr(model, "decoder_kind", ""),
        "likelihood": model.likelihood.name,
        "prior": type(getattr(model, "prior", None)).__name__,
        "n_factors": model.n_factors,
        "restarts": n_restarts,
        "caps": [int(c) for c in grid[:n_restarts]],
        "bent": [bool(b) for b in bent[:n_restarts]],
        "seed": seed,
        "holdout": holdout,
        "rows": n_rows,
        "device": device,
        "dtype": str(dtype).removeprefix("torch."),
        "dependency": None if dependency is None else dependency.as_dict(),
        **schedule.as_dict(),
    }
    found = Fit.build(
        whole,
        table,
        train=train,
        best=best,
        elbo=train_rows.mean(1),
        heldout_elbo=np.full(n_restarts, np.nan) if held_rows is None else held_rows.mean(1),
        history=frame,
        settings=record,
        notes=notes,
    )
    if dense:
        found.warnings.extend(unconfirmed(found.alignment["congruence"], best, found.factor_names))
    return found


def _refuse(model: Any, right: bool, what: str, **given: Any) -> None:
    """Complain of arguments that this kind of model does not read."""
    name = next((n for n, value in given.items() if value is not None), None)
    if name is not None and not right:
        raise TypeError(f"{name}: is for {what}, and {type(model).__name__} reads none; leave it out")


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


def _start(
    part: Any,
    starts: list[Any],
    bent: np.ndarray,
    table: Table,
    kept: np.ndarray,
    device: str,
    dtype: torch.dtype,
) -> None:
    """Write the guesses, widened to K factors, into a group of restarts."""

    def stack(name: str) -> torch.Tensor:
        arrays = [getattr(s, name) for s in starts]
        wide = [a if a.ndim == 1 else np.pad(a, ((0, 0), (0, part.n_factors - a.shape[1]))) for a in arrays]
        return torch.as_tensor(np.stack(wide), dtype=dtype, device=device)

    observed = table.x[kept] if table.mask is None else np.where(table.mask[kept], table.x[kept], np.nan)
    intercept = torch.as_tensor(part.likelihood.start(torch.as_tensor(observed)), dtype=dtype, device=device)
    part.start(
        scores=stack("scores"),
        maps=stack("maps"),
        loadings=stack("loadings"),
        intercept=intercept,
        residual_sd=stack("residual_sd").unsqueeze(1),
        bent=torch.as_tensor(bent, device=device),
    )


def _sizes(model: Any) -> tuple[np.ndarray, np.ndarray]:
    """Edges and active factors of each restart."""
    weights = getattr(model, "weights", None)
    if weights is None:
        full = np.full(model.n_restarts, model.n_factors)
        return full * model.n_features, full
    present = (weights != 0).cpu().numpy()
    return present.sum((1, 2)), present.any(1).sum(1)


def _warnings(model: Any, best: int, active: np.ndarray, rows: np.ndarray, n_train: int) -> list[str]:
    notes = []
    if active[best] == 0:
        notes.append(
            "the best restart has no edge: the data support no shared factor, or the prior is too strong"
        )
    elif (
        active[best] == model.n_factors and model.n_factors > 1 and getattr(model, "prior", None) is not None
    ):
        notes.append(f"all {model.n_factors} factors are in use; more may be hidden, try a larger n_factors")
    if len(rows) == 1:
        notes.append("one restart only: nothing here says whether another start would agree")
    if n_train < 5 * model.n_features:
        notes.append(
            f"{n_train} rows for {model.n_features} features: few rows for so many features, "
            "expect missed edges"
        )
    return notes


def _reporter(
    bar: tqdm, checkpoint: Any, every: int, print_: str, finished: list[dict[str, Any]]
) -> Callable[[Run], None]:
    def report(run: Run) -> None:
        bar.update(1)
        if run.step % run.schedule.evaluate_every == 0 and run.history:
            rows = run.history[-run.model.n_restarts :]
            top = max(rows, key=lambda row: row["elbo"])
            bar.set_postfix_str(f"ELBO {top['elbo']:.3f} nats/row, {top['edges']} edges", refresh=False)
        if checkpoint is not None and run.step % every == 0 and not run.done:
            files.write_run(checkpoint, print_, finished, run.state())

    return report
