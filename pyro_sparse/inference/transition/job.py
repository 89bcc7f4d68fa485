"""The order of events for sequences: dense fits, their axes, their edges, a `TransitionFit`.

`pyro_sparse.fit` comes here with a model that reads sequences. Every restart is a dense fit of its own,
turned to its own axes; then each gets its edges. That restarts end with the same latents and the same graph
is the evidence that neither is an accident of the optimisation.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import torch

from ..._utils.torch_state import first_rows, undisturbed
from ..._utils.version import __version__
from ...data.sequences import SequenceBatch, Sequences
from ...findings.finding import Finding
from ...models.latent_transition import LatentTransition
from ..rotation.jacobian_axes import AxisSearch
from ..training import checkpoint as files
from ..training.elbo import rowwise_elbo
from ..training.interrupt import BRIEF, stopped_between_steps
from ..training.loop import Run
from ..training.parts import renumbered, split
from ..training.ranks import ALONE
from ..training.restarts import child_seeds, join
from .auto_edges import choose_edges
from .constraint import BernoulliKL, Sparsity, get_control
from .transition_axes import FoundAxes, find_axes, fold
from .transition_polish import polish
from .transition_result import TransitionFit
from .transition_run import EdgeRun, TransitionRun
from .transition_schedule import TransitionSchedule

__all__ = ["TransitionGroup", "TransitionJob"]

_LEAST_PIECES = 20  # of which a tenth, held out, is two: `_split` wants as many
_LEAST_ASIDE, _FEW = 2, 8  # least sequences or pieces held out, wherever there are so many
_LEAST_STEPS = 100  # of a dense fit that is worth looking at
_BRIEF: AxisSearch = {"n_starts": 8, "steps": 50, "max_hops": 1}  # a search that Ctrl-C cut short
_MOST_ADDED = 2  # restarts, where none of the others agrees with the best
_LEAST_ROWS = 20  # steps of the sequences: edge probabilities want as many


class TransitionJob:
    """The fit of sequences: what all restarts share, what trains one, the `TransitionFit` of those trained.

    Parameters
    ----------
    model : LatentTransition
    sequences : Sequences
    restarts, seed, schedule, holdout, device, dtype
        As in `pyro_sparse.fit`.
    sparsity : None, "auto", int, float or SparsityControl
        "auto" chooses by held-out sequences (`auto_edges.py`); else see `constraint.get_control`.

    Attributes
    ----------
    n_restarts : int
    fingerprint : str
        What must agree for a file with restarts to belong to this fit.

    Raises
    ------
    ValueError
        The sequences do not fit the model, or leave too little to learn from.
    """

    def __init__(
        self,
        model: LatentTransition,
        sequences: Sequences,
        *,
        restarts: int = 2,
        seed: int = 0,
        schedule: TransitionSchedule | None = None,
        holdout: float = 0.1,
        sparsity: Sparsity = None,
        device: str = "cpu",
        dtype: torch.dtype = torch.float32,
    ):
        _check(model, sequences)
        model.take_actions(sequences.action_names, sequences.action_widths)
        self.model, self.sequences, self.n_restarts, self.sparsity = model, sequences, restarts, sparsity
        self.device, self.dtype = device, dtype
        self.data = sequences.batch(device, dtype)
        _check_steps(self.data, model.lags)
        self.train, self.heldout = _split(_pieces(self.data, model.lags), holdout, seed)
        self.schedule = (schedule or TransitionSchedule()).decided(model.lags, self.train.total)
        _check_sparsity(sparsity, model)  # a complaint should not wait for a dense fit
        if sparsity == "auto" and self.heldout is None:
            raise ValueError('sparsity: "auto" asks held-out sequences; got none, raise holdout')
        self.setup: dict[str, Any] = {
            "n_samples": self.train.total,
            "missing": sequences.missing,
            "feature_names": None,  # no constraint names a feature
        }
        self.ranks = ALONE
        self.n_steps = restarts * ((self.schedule.steps or 0) + self.schedule.edge_steps)
        self.seeds = child_seeds(seed, restarts + _MOST_ADDED)
        self.record = {"seed": seed, "holdout": holdout, **self.schedule.as_dict()}
        self.fingerprint = files.fingerprint(
            model,
            {
                **self.record,
                "restarts": restarts,
                "sparsity": str(sparsity),
                "dtype": str(dtype),
                "data": files.digest(*sequences.content()),
                "made": files.made(model),
                "version": __version__,
            },
        )

    def pieces(self, n_jobs: int) -> list[range]:
        """Restarts to train in each of so many processes."""
        return split([range(self.n_restarts)], n_jobs)

    def run(self, number: int) -> TransitionRun:
        """The dense run of a restart, at its start."""
        model = copy.deepcopy(self.model)
        torch.manual_seed(self.seeds[number])
        model.setup(n_restarts=1, **self.setup)
        model.to(device=self.device, dtype=self.dtype)
        return TransitionRun(model, self.train, self.heldout, self.schedule, first_restart=number)

    def groups(self) -> list[range]:
        """Restarts are trained one by one."""
        return [range(number, number + 1) for number in range(self.n_restarts)]

    def more(self, trained: list[TransitionGroup]) -> list[range]:
        """One restart more where none agrees with the best, up to two; none after Ctrl-C.

        A start that failed, its held-out ELBO tens of nats lower, neither confirms the best nor speaks
        against it.

        Raises
        ------
        KeyboardInterrupt
            While the trained ones are compared.
        """
        if len(trained) >= self.n_restarts + _MOST_ADDED or not all(group.has_edges for group in trained):
            return []
        so_far = self._result(*_of_groups(trained), [], dense=False, most=len(self.data) + len(self.train))
        doubted = any(finding.kind == "restarts" and finding.is_doubt for finding in so_far.findings)
        return [range(len(trained), len(trained) + 1)] if doubted else []

    def make(self, group: range) -> TransitionGroup:
        """A restart at its start."""
        return TransitionGroup(self.run(group.start), self, group.start)

    def status(self, run: Run) -> str:
        """What the bar says of a run."""
        return f"ELBO {run.history[-1]['elbo']:.3f} nats/sequence"

    def conclude(self, trained: list[TransitionGroup], notes: list[str]) -> TransitionFit:
        """The fit of trained restarts."""
        return self.result(*_of_groups(trained), notes, dense=bool(trained) and not trained[-1].has_edges)

    def edges(
        self, model: LatentTransition, number: int, show: Callable[[Run], None]
    ) -> list[dict[str, Any]]:
        """Fit the edges of a folded restart; the history of that."""
        return _fit_edges(model, self.train, self.heldout, self.schedule, self.sparsity, number, show)

    def part(self, restarts: range) -> dict[str, Any]:
        """Train restarts, one after the other; each has its own random numbers."""
        states, answers, history = [], [], []
        for number in restarts:
            run = self.run(number)
            run.finish()
            axes = find_axes(run.model, self.train, number, self.heldout)
            if self.schedule.polish_steps:
                axes = polish(run.model, axes, self.train, self.schedule, number, self.heldout)
            fold(run.model, axes)
            rows = self.edges(run.model, number, lambda run: None)
            states.append(run.model.state_dict())
            answers += [
                [*(torch.as_tensor(a) for a in answer[:3]), *(float(v) for v in answer[3:])]
                for answer in axes
            ]
            history += [*run.history, *rows]
        return {"restarts": list(restarts), "states": states, "answers": answers, "history": history}

    def merge(self, trained_parts: list[dict[str, Any]], notes: list[str]) -> TransitionFit:
        """The fit of restarts that were trained in parts, in the order of their numbers."""
        numbers = [r for trained in trained_parts for r in trained["restarts"]]
        answers = [
            FoundAxes(*(t.numpy() for t in answer[:3]), *answer[3:])
            for trained in trained_parts
            for answer in trained["answers"]
        ]
        states = [state for trained in trained_parts for state in trained["states"]]
        history = renumbered([row for trained in trained_parts for row in trained["history"]], numbers)
        return self.result(states, answers, history, notes)

    def result(
        self,
        states: list[dict[str, torch.Tensor]],
        answers: list[FoundAxes],
        history: list[dict[str, Any]],
        notes: list[str],
        dense: bool = False,
    ) -> TransitionFit:
        """The `TransitionFit` of trained restarts; Ctrl-C lets few sequences judge them.

        Parameters
        ----------
        states : list of dict of str to Tensor
        answers : list of FoundAxes
        history : list of dict
        notes : list of str
            Warnings so far.
        dense : bool
            Judge by the dense program: edges that were not fitted, or not to the end, have no ELBO worth
            comparing.
        """
        try:
            return self._result(states, answers, history, notes, dense, most=len(self.data) + len(self.train))
        except KeyboardInterrupt:
            pass
        note = f"interrupted when the trained restarts were judged: {BRIEF} sequences at most told them apart"
        return self._result(states, answers, history, [*notes, note], dense, most=BRIEF)

    def _result(
        self,
        states: list[dict[str, torch.Tensor]],
        answers: list[FoundAxes],
        history: list[dict[str, Any]],
        notes: list[str],
        dense: bool,
        most: int,
    ) -> TransitionFit:
        model = self.model
        torch.manual_seed(self.seeds[0])
        model.setup(n_restarts=len(states), **self.setup)
        model.to(device=self.device, dtype=self.dtype)
        model.dense = False
        join(states, model)
        model.eval()
        with undisturbed(seed=0, threads=None):
            judged = first_rows(self.train if self.heldout is None else self.heldout, most)
            model.dense = dense or not self.schedule.edge_steps
            rows = rowwise_elbo(model, judged, num_draws=4).double().cpu().numpy()
        model.dense = False
        columns = ["step", "restart", "elbo", "heldout_elbo", "edges", "stage"]
        return TransitionFit.build(
            model,
            self.sequences,
            data=first_rows(self.data, most),
            answers=answers,
            rows=rows,
            heldout=self.heldout is not None,
            least=model.n_latents * float(judged.seen.sum()) / len(judged),  # a nat each
            history=pd.DataFrame(history, columns=columns),
            settings={
                "model": type(model).__name__,
                "likelihood": model.likelihood.full_name,
                "n_latents": model.n_latents,
                "restarts": len(states),
                "sequences": len(self.sequences),
                "device": self.device,
                "dtype": str(self.dtype).removeprefix("torch."),
                **self.record,
            },
            findings=[Finding("training", note) for note in notes],
        )


class TransitionGroup:
    """One restart: its dense run, then its axes and its edges."""

    def __init__(self, run: TransitionRun, job: TransitionJob, number: int):
        self.run, self.job, self.number = run, job, number
        self.answers: list[FoundAxes] = []
        self.history: list[dict[str, Any]] = []
        self.has_edges = False

    @property
    def step(self) -> int:
        """Steps that the dense run has made."""
        return self.run.step

    @property
    def is_early(self) -> bool:
        """Whether the dense run is too short to look at."""
        return self.run.step < _LEAST_STEPS

    @property
    def place(self) -> str:
        """Where it is."""
        return f"at step {self.run.step} of {self.job.schedule.steps} of restart {self.number}"

    def load(self, saved: dict[str, Any]) -> None:
        """Go on from a state of the dense run; what follows it is done again."""
        self.run.load(saved)

    def state(self) -> dict[str, Any]:
        """All that a resumed run needs."""
        return self.run.state()

    def finish(self, show: Callable[[Run], None]) -> None:
        """Train the dense program to the end."""
        with stopped_between_steps(show) as between:
            self.run.finish(between)

    def conclude(self, notes: list[str], alone: bool, show: Callable[[Run], None]) -> bool:
        """Find the axes, straighten the latents along them and fit the edges, as far as there is time."""
        job, number, model = self.job, self.number, self.run.model
        if notes:
            self.run.settle()
        try:
            answers = find_axes(model, job.train, number, job.heldout)
        except KeyboardInterrupt:
            notes.append(f"interrupted in the search for the axes of restart {number}")
            if not alone:
                return False
            answers = find_axes(model, job.train, number, job.heldout, **_BRIEF)
        self.history = list(self.run.history)
        try:
            if job.schedule.polish_steps and not notes:
                answers = polish(model, answers, job.train, job.schedule, number, job.heldout)
            fold(model, answers)
            if not notes:
                self.history += job.edges(model, number, show)
        except KeyboardInterrupt:
            notes.append(f"interrupted after the dense fit of restart {number}")
            fold(model, answers)
        self.answers, self.has_edges = answers, not notes
        return True


def _of_groups(
    trained: list[TransitionGroup],
) -> tuple[list[dict[str, torch.Tensor]], list[FoundAxes], list[dict[str, Any]]]:
    """States, axes and history of trained restarts."""
    return (
        [group.run.model.state_dict() for group in trained],
        [answer for group in trained for answer in group.answers],
        [row for group in trained for row in group.history],
    )


def _fit_edges(
    model: LatentTransition,
    train: SequenceBatch,
    heldout: SequenceBatch | None,
    schedule: TransitionSchedule,
    sparsity: Sparsity,
    number: int,
    show: Callable[[Run], None],
) -> list[dict[str, Any]]:
    """Fit the edges of one folded restart; the history of that."""
    if not schedule.edge_steps:
        return []
    if sparsity == "auto":
        assert heldout is not None
        choose_edges(model, train, heldout, schedule)
        sparsity = None
    run = EdgeRun(model, train, heldout, schedule.of_edges(), get_control(sparsity), first_restart=number)
    run.finish(show)
    return [{**row, "stage": "edges"} for row in run.history]


def _check(model: LatentTransition, sequences: Sequences) -> None:
    size = sequences.x.shape[-1]
    if model.n_features != size:
        raise ValueError(
            f"X: the sequences have features: {size}, the model was made for n_features={model.n_features}; "
            "make the model for these sequences"
        )


def _check_sparsity(sparsity: Sparsity, model: LatentTransition) -> None:
    control = copy.deepcopy(get_control(sparsity))
    if sparsity is not None:
        try:
            control.setup(int(model.allowed.sum()), int(model.must.sum()))
        except ValueError as reason:
            raise ValueError(f"sparsity: {str(reason).removeprefix('edges: ')}") from None
    if model.has_odds and isinstance(control, BernoulliKL):
        raise ValueError(
            "sparsity: got BernoulliKL, which has one rate for all edges, and the model has odds of single "
            "ones; leave sparsity out, where the model's own rate counts with the odds"
        )


def _check_steps(data: SequenceBatch, lags: int) -> None:
    steps = int(data.steps(lags).sum())
    if steps < _LEAST_ROWS:
        raise ValueError(
            f"X: has {steps} step(s) from {lags} frame(s) that were seen to one that was, wanted at least "
            f"{_LEAST_ROWS} to learn from; give longer or more sequences, with fewer gaps or missing frames"
        )


def _pieces(data: SequenceBatch, lags: int) -> SequenceBatch:
    """Long sequences in pieces, where there are few: minibatches and held-out rows need something to draw
    from. A piece forgets what came before it."""
    n, t = data.x.shape[:2]
    # The first frames of a piece have no past: of so many frames they are less than a fifth.
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
    if holdout and n >= _FEW:  # nothing else notices that networks follow the noise of few frames
        aside = max(aside, _LEAST_ASIDE)
    order = np.random.default_rng(seed).permutation(n)
    if aside < _LEAST_ASIDE:
        return data.whole(), None
    if n - aside < 2:
        raise ValueError(f"holdout: {holdout!r} of {n} sequences leaves {n - aside} to learn from; lower it")

    def part(index: np.ndarray) -> SequenceBatch:
        return data.rows(torch.as_tensor(np.sort(index), device=data.x.device)).whole()

    return part(order[aside:]), part(order[:aside])
