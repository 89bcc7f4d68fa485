"""The order of events for a table: starts from the data, groups of restarts, a choice; a `Fit`.

`pyro_sparse.fit` comes here with a `FactorModel`. Some rows are kept aside, every restart is set up from its
own seed and a data-driven start, groups of restarts are trained in one pass (`loop.py`), one is chosen
(`restarts.py`), and `result.py` says what was found.
"""

from __future__ import annotations

import copy
import os
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pandas as pd
import torch
from tqdm import tqdm

from .._version import __version__
from ..data import Table
from ..models.dependency import DependencyVAE
from . import checkpoint as files
from .dependency_run import DependencyRun
from .elbo import rowwise_elbo
from .interrupt import Stopped, stopped_between_steps
from .latent_penalty import LatentPenalty
from .loop import Run
from .refine import refined_elbo
from .restarts import bent_starts, best_restart, child_seeds, group_sizes, join, unconfirmed
from .result import Fit
from .sparse_run import SparseRun
from .start import cap_grid, find_start, no_start

__all__ = ["fit_table"]


def fit_table(
    model: Any,
    table: Table,
    *,
    restarts: int,
    seed: int,
    schedule: Any,
    holdout: float = 0.1,
    caps: Sequence[int] | None = None,
    dependency: LatentPenalty | None = None,
    progress: bool = True,
    checkpoint: str | os.PathLike[str] | None = None,
    checkpoint_every: int = 250,
    device: str = "cpu",
    dtype: torch.dtype = torch.float32,
) -> Fit:
    """Fit a `FactorModel` to a checked table; `pyro_sparse.fit` describes the arguments.

    Parameters
    ----------
    model : FactorModel
    table : Table
    restarts, seed, schedule, holdout, caps, dependency, progress, checkpoint, checkpoint_every, device, dtype
        As in `pyro_sparse.fit`.

    Returns
    -------
    Fit

    Raises
    ------
    ValueError
        The table does not fit the model, or leaves too little to learn from.
    """
    if table.x.shape[1] != model.n_features:
        raise ValueError(
            f"X: has {table.x.shape[1]} column(s), the model was made for "
            f"n_features={model.n_features}; make the model for this table"
        )
    n_restarts = restarts
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
