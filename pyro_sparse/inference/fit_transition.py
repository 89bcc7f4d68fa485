"""The order of events for sequences: dense fits, their axes, their edges, a `TransitionFit`.

`pyro_sparse.fit` comes here with a model that reads sequences. Every restart is a dense fit of its own,
turned to its own axes; then each gets its edges. That restarts end with the same latents and the same graph
is the evidence that neither is an accident of the optimisation.
"""

from __future__ import annotations

import copy
import os
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import torch
from tqdm import tqdm

from .._torch import undisturbed
from .._version import __version__
from ..sequences import SequenceBatch, Sequences
from . import checkpoint as files
from .auto_edges import choose_edges
from .constraint import get_control
from .elbo import rowwise_elbo
from .interrupt import Stopped, stopped_between_steps
from .polish import polish
from .restarts import child_seeds, join
from .transition_axes import FoundAxes, find_axes, fold
from .transition_result import TransitionFit
from .transition_run import EdgeRun, TransitionRun
from .transition_schedule import TransitionSchedule

__all__ = ["fit_transition"]

_LEAST_PIECES = 20
_LEAST_STEPS = 100  # of a dense fit that is worth looking at


def fit_transition(
    model: Any,
    sequences: Sequences,
    *,
    restarts: int = 2,
    seed: int = 0,
    schedule: TransitionSchedule | None = None,
    holdout: float = 0.1,
    sparsity: Any = None,
    progress: bool = True,
    checkpoint: str | os.PathLike[str] | None = None,
    checkpoint_every: int = 250,
    device: str = "cpu",
    dtype: torch.dtype = torch.float32,
) -> TransitionFit:
    """Fit a `LatentTransition` to checked sequences; `pyro_sparse.fit` describes the arguments.

    Parameters
    ----------
    model : LatentTransition
    sequences : Sequences
    restarts, seed, schedule, holdout, progress, checkpoint, checkpoint_every, device, dtype
        As in `pyro_sparse.fit`.
    sparsity : None, "auto", int, float or SparsityControl
        "auto" chooses by held-out sequences (`auto_edges.py`); else see `constraint.get_control`.

    Returns
    -------
    TransitionFit

    Raises
    ------
    ValueError
        The sequences do not fit the model, or leave too little to learn from.
    """
    schedule = (schedule or TransitionSchedule()).for_lags(model.lags)
    assert schedule.steps is not None
    _check(model, sequences)
    data = sequences.batch(device, dtype)
    train, heldout = _split(_pieces(data, model.lags), holdout, seed)
    get_control(sparsity)  # a complaint about it should not wait for a dense fit
    if sparsity == "auto" and heldout is None:
        raise ValueError('sparsity: "auto" asks held-out sequences; got none, raise holdout')
    setup = {"n_samples": train.total, "missing": sequences.mask is not None}
    seeds = child_seeds(seed, restarts)
    print_ = files.fingerprint(
        model,
        {
            "seed": seed,
            "restarts": restarts,
            "holdout": holdout,
            "sparsity": str(sparsity),
            "dtype": str(dtype),
            "data": files.digest(sequences.x, sequences.mask, sequences.actions),
            "made": files.made(model),
            "version": __version__,
            **schedule.as_dict(),
        },
    )
    finished, under_way = files.read_run(checkpoint, print_)
    n_resumed = len(finished)
    parts: list[Any] = []
    answers: list[FoundAxes] = []
    history: list[dict[str, Any]] = []
    notes: list[str] = []
    bar = tqdm(total=restarts * (schedule.steps + schedule.edge_steps), disable=not progress, unit="step")
    for number in range(restarts):
        part = copy.deepcopy(model)
        torch.manual_seed(seeds[number])
        part.setup(1, **setup)
        part.to(device=device, dtype=dtype)
        run = TransitionRun(part, train, heldout, schedule, first_restart=number)
        resumed = finished[number] if number < n_resumed else under_way if number == n_resumed else None
        if resumed is not None:
            run.load(resumed)
        bar.update(run.step)

        def report(run: Any) -> None:
            _show(bar, run)
            if checkpoint is not None and run.step % checkpoint_every == 0 and not run.done:
                files.write_run(checkpoint, print_, finished, run.state())

        try:
            with stopped_between_steps(report) as between:
                run.finish(between)
        except KeyboardInterrupt as reason:
            if checkpoint is not None and isinstance(reason, Stopped):
                files.write_run(checkpoint, print_, finished, run.state())
            if run.step < _LEAST_STEPS and not parts:
                raise
            notes.append(f"interrupted at step {run.step} of {schedule.steps} of restart {number}")
            if run.step < _LEAST_STEPS:
                break
        else:
            if checkpoint is not None and number >= n_resumed:
                finished.append(copy.deepcopy(run.state()))
                files.write_run(checkpoint, print_, finished, None)
        answer = find_axes(part, train, seed=number)
        history += run.history
        try:
            if schedule.polish_steps and not notes:
                answer = polish(part, answer, train, schedule, seed=number)
            fold(part, answer)
            if not notes:
                history += _fit_edges(part, train, heldout, schedule, sparsity, number, bar)
        except KeyboardInterrupt:
            notes.append(f"interrupted after the dense fit of restart {number}")
            fold(part, answer)
        for parameter in part.parameters():
            parameter.requires_grad_(True)
        parts.append(part)
        answers += answer
        if notes:
            break
    bar.close()
    torch.manual_seed(seeds[0])
    model.setup(len(parts), **setup)
    model.to(device=device, dtype=dtype)
    model.dense = False
    join(parts, model)
    model.eval()
    with undisturbed(seed=0, threads=None):
        judged = train if heldout is None else heldout
        # edges that were not fitted, or not to the end, have no ELBO worth comparing
        model.dense = bool(notes) or not schedule.edge_steps
        rows = rowwise_elbo(model, judged, n_draws=4).double().cpu().numpy()
    model.dense = False
    return TransitionFit.build(
        model,
        sequences,
        data=data,
        answers=answers,
        rows=rows,
        heldout=heldout is not None,
        history=pd.DataFrame(history, columns=["step", "restart", "elbo", "heldout_elbo", "edges", "stage"]),
        settings={
            "model": type(model).__name__,
            "likelihood": model.likelihood.name,
            "n_latents": model.n_latents,
            "restarts": len(parts),
            "seed": seed,
            "holdout": holdout,
            "sequences": len(sequences),
            "device": device,
            "dtype": str(dtype).removeprefix("torch."),
            **schedule.as_dict(),
        },
        notes=notes,
    )


def _fit_edges(
    part: Any,
    train: SequenceBatch,
    heldout: SequenceBatch | None,
    schedule: TransitionSchedule,
    sparsity: Any,
    number: int,
    bar: tqdm,
) -> list[dict[str, Any]]:
    """Fit the edges of one folded restart; the history of that."""
    if not schedule.edge_steps:
        return []
    if sparsity == "auto":
        assert heldout is not None
        choose_edges(part, train, heldout, schedule)
        sparsity = None
    run = EdgeRun(part, train, heldout, schedule.of_edges(), get_control(sparsity), first_restart=number)
    run.finish(lambda run: _show(bar, run))
    return [{**row, "stage": "edges"} for row in run.history]


def _show(bar: tqdm, run: Any) -> None:
    bar.update(1)
    if run.history and run.step % run.schedule.evaluate_every == 0:
        bar.set_postfix_str(f"ELBO {run.history[-1]['elbo']:.3f} nats/sequence", refresh=False)


def _check(model: Any, sequences: Sequences) -> None:
    n_actions = 0 if sequences.actions is None else sequences.actions.shape[-1]
    for name, wanted, seen in (
        ("n_features", model.n_features, sequences.x.shape[-1]),
        ("n_actions", model.n_actions, n_actions),
    ):
        if wanted != seen:
            raise ValueError(
                f"X: the sequences have {name[2:]}: {seen}, the model was made for {name}={wanted}; "
                "make the model for these sequences (a categorical action counts once per level)"
            )


def _pieces(data: SequenceBatch, lags: int) -> SequenceBatch:
    """Long sequences in pieces, where there are few: minibatches and rows kept aside need something to draw
    from. A piece forgets what came before it."""
    n, t = data.x.shape[:2]
    length = max(5 * (lags + 1), -(-n * t // _LEAST_PIECES))
    if n >= _LEAST_PIECES or t <= length:
        return data
    count = -(-t // length)

    def cut(tensor: torch.Tensor | None, fill: bool = False) -> torch.Tensor | None:
        if tensor is None:
            return None
        padded = tensor.new_full((n, count * length, *tensor.shape[2:]), fill)
        padded[:, :t] = tensor
        return padded.reshape(n * count, length, *tensor.shape[2:])

    everywhere = torch.ones((n, t), dtype=torch.bool, device=data.x.device)
    present = cut(everywhere if data.present is None else data.present)
    assert present is not None
    x = cut(data.x)
    assert x is not None
    mask = cut(data.mask)
    if data.mask is None and not present.all():
        mask = present.unsqueeze(-1).expand_as(x)
    used = present.any(1)
    whole = replace(
        data,
        x=x,
        mask=mask,
        present=present,
        linked=cut(data.linked),
        actions=cut(data.actions),
        total=len(present),
    )
    return whole.rows(used.nonzero()[:, 0]).whole()


def _split(data: SequenceBatch, holdout: float, seed: int) -> tuple[SequenceBatch, SequenceBatch | None]:
    n = len(data)
    aside = min(int(round(holdout * n)), 5000)
    order = np.random.default_rng(seed).permutation(n)
    if aside < 2:
        return data.whole(), None
    if n - aside < 2:
        raise ValueError(f"holdout: {holdout!r} of {n} sequences leaves {n - aside} to learn from; lower it")

    def part(index: np.ndarray) -> SequenceBatch:
        return data.rows(torch.as_tensor(np.sort(index), device=data.x.device)).whole()

    return part(order[aside:]), part(order[:aside])
