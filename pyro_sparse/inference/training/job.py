"""One loop over restarts for every family: checkpoint, Ctrl-C, bar and other ranks, each in one place.

A family brings a `Job`: which restarts are trained together, how such a group is made, and what the trained
ones amount to. A `Group` is trained step by step, can be written to a file between two steps, and is
concluded by what follows its training (a search for axes, say). `train` does the rest, so that a family says
nothing of files, signals or bars.
"""

from __future__ import annotations

import copy
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypeVar

from ..._utils.progress import Progress
from . import checkpoint as files
from .interrupt import Stopped
from .ranks import Ranks

if TYPE_CHECKING:
    from .fit_result import FitResult
    from .loop import Run

__all__ = ["Group", "Job", "train"]

Show: TypeAlias = "Callable[[Run], None]"  # called after each step of a run
GroupT = TypeVar("GroupT", bound="Group")
FitT = TypeVar("FitT", bound="FitResult", covariant=True)


class Group(Protocol):
    """Restarts that are trained together."""

    @property
    def step(self) -> int:
        """Steps that it has made, of all its stages."""

    @property
    def is_early(self) -> bool:
        """Whether there is nothing yet that is worth a look."""

    @property
    def place(self) -> str:
        """Where it is, for somebody who interrupted it: "at step 8 of 30 of restart 0"."""

    def load(self, saved: dict[str, Any]) -> None:
        """Go on from a state."""

    def state(self) -> dict[str, Any]:
        """All that a resumed group needs to end at the same bits."""

    def finish(self, show: Show) -> None:
        """Train to the end. Ctrl-C between two steps raises `Stopped`: the state is whole."""

    def conclude(self, notes: list[str], alone: bool, show: Show) -> bool:
        """What follows training; briefly where `notes` say that it was interrupted.

        Another Ctrl-C adds a note. False: nothing came of this group, and others (`alone` is False) did.
        """


class Job(Protocol[GroupT, FitT]):
    """The fit of one family's data."""

    n_restarts: int
    n_steps: int  # of all groups, for the bar
    ranks: Ranks

    @property
    def fingerprint(self) -> str:
        """What must agree for a file to belong to this fit."""

    def groups(self) -> list[range]:
        """The restarts that are trained together."""

    def make(self, group: range) -> GroupT:
        """A `Group` at its start."""

    def status(self, run: Run) -> str:
        """What the bar says of a run."""

    def conclude(self, trained: list[GroupT], notes: list[str]) -> FitT:
        """The fit of trained groups."""

    # ---- in parts (`parts.py`) -----------------------------------------------------------------------------
    def pieces(self, n_jobs: int) -> list[range]:
        """Restarts to train in each of so many processes."""

    def part(self, restarts: range) -> dict[str, Any]:
        """Some restarts, trained by themselves."""

    def merge(self, trained_parts: list[dict[str, Any]], notes: list[str]) -> FitT:
        """The fit of restarts that were trained in parts."""


def train(
    job: Job[GroupT, FitT],
    *,
    progress: bool = True,
    checkpoint: str | os.PathLike[str] | None = None,
    checkpoint_every: int = 250,
    more: Callable[[list[GroupT]], list[range]] | None = None,
) -> FitT:
    """Train all groups of a job, or those that there was time for, and conclude them.

    Parameters
    ----------
    job : Job
    progress, checkpoint, checkpoint_every
        As in `pyro_sparse.fit`.
    more : callable, optional
        Asked of the trained groups when no other is left: restarts that are to be trained in addition.

    Raises
    ------
    KeyboardInterrupt
        Before there was anything worth a look; of several ranks, at any time: the others may be a step ahead.
    """
    ranks = job.ranks
    fingerprint = "" if checkpoint is None and ranks.size == 1 else job.fingerprint
    ranks.check(fingerprint)
    finished, under_way = ranks.first(lambda: files.read_run(checkpoint, fingerprint))
    saved = [*finished, *([] if under_way is None else [under_way])]
    file = checkpoint if ranks.rank == 0 else None  # the others' next step waits for its being written
    trained: list[GroupT] = []
    notes: list[str] = []
    counted = Progress("fit", job.n_steps, "step", shown=progress and ranks.rank == 0)

    def show(run: Run) -> None:
        looked = run.history and run.step % run.schedule.evaluate_every == 0
        counted.advance(status=job.status(run) if looked else "")

    groups = job.groups()
    for number, restarts in enumerate(groups):  # to which `more` may add
        try:
            group = job.make(restarts)
            if number < len(saved):
                with files.explained("checkpoint", checkpoint):
                    group.load(saved[number])
        except KeyboardInterrupt:
            if not trained or ranks.size > 1:
                raise
            notes.append(f"interrupted when {_named(restarts)} set up")
            break
        counted.resume(group.step)

        def report(run: Run, group: Group = group) -> None:
            show(run)
            # the last step of a run is written with what ends it
            if file is not None and run.step % checkpoint_every == 0 and not run.done:
                files.write_run(file, fingerprint, finished, group.state())

        try:
            group.finish(report)
        except KeyboardInterrupt as reason:
            if file is not None and isinstance(reason, Stopped):  # else the last one written still resumes
                files.write_run(file, fingerprint, finished, group.state())
            if ranks.size > 1:  # the others may be a step before or behind
                raise KeyboardInterrupt(f"interrupted {group.place}") from None
            if group.is_early and not trained:
                raise
            notes.append(f"interrupted {group.place}")
            if group.is_early:
                break
        else:
            if file is not None and number >= len(finished):
                finished.append(copy.deepcopy(group.state()))
                files.write_run(file, fingerprint, finished, None)
        if not group.conclude(notes, not trained, show):
            break
        trained.append(group)
        if notes:
            break
        try:
            added = [] if more is None or number + 1 < len(groups) else more(trained)
        except KeyboardInterrupt:
            notes.append("interrupted when the trained restarts were compared, before any was added")
            break
        if added:
            counted.extend(job.n_steps // job.n_restarts * sum(map(len, added)))
            groups += added
    counted.close()
    return job.conclude(trained, notes)


def _named(restarts: range) -> str:
    first, last = restarts.start, restarts.stop - 1
    return f"restart {first} was" if first == last else f"restarts {first} to {last} were"
