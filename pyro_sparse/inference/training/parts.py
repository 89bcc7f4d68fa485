"""A fit in parts: restarts trained in processes, on a cluster or by a job array, put together again.

A job (`TableJob`, `TransitionJob`, `TaskJob`) knows from the seed, the data and the settings alone what
restart i is, so any process can train it. `train_in_processes` sends ranges of restarts to joblib, whose
backend may be loky's processes, dask or ray; `write_part` and `read_parts` are for jobs that share a folder.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import joblib
import numpy as np

from ..._utils.progress import Progress
from ..._utils.torch_state import others_may_run, undisturbed
from . import checkpoint as files

if TYPE_CHECKING:
    from ._families import Data, Trainable
    from .fit_result import FitResult
    from .job import Job

__all__ = ["read_parts", "renumbered", "split", "train_in_processes", "write_part"]

FitT = TypeVar("FitT", bound="FitResult")


def split(groups: list[range], n_jobs: int) -> list[range]:
    """Ranges of restarts for so many processes, as even as can be; none reaches over two groups.

    Parameters
    ----------
    groups : list of range
        Restarts that share a pass.
    n_jobs : int

    Examples
    --------
    >>> split([range(0, 6), range(6, 8)], 3)
    [range(0, 3), range(3, 6), range(6, 8)]
    """
    n = groups[-1].stop
    size = math.ceil(n / min(n_jobs, n))
    ranges = []
    for group in groups:
        pieces = np.array_split(np.array(group), math.ceil(len(group) / size))
        ranges += [range(int(piece[0]), int(piece[-1]) + 1) for piece in pieces]
    return ranges


def train_in_processes(
    make: Callable[..., Job[Any, FitT]],
    model: Trainable,
    data: Data,
    settings: dict[str, Any],
    *,
    n_jobs: int,
    threads: int | None,
    progress: bool,
) -> FitT:
    """Train all restarts in processes and put them together.

    Parameters
    ----------
    make : callable
        The job, of `model`, `data` and `settings`.
    model : Module
    data : Table, Sequences or Tasks
    settings : dict
    n_jobs : int
        As joblib has it; -1 is as many as there are.
    threads : int or None
        torch threads of each process.
    progress : bool
        Show a bar that counts restarts.

    Returns
    -------
    Fit, TransitionFit or MultiTaskFit
        After Ctrl-C, of the restarts that had ended.
    """
    job = make(model, data, **settings)
    pieces = job.pieces(n_jobs if n_jobs > 0 else joblib.effective_n_jobs(n_jobs))
    calls = [joblib.delayed(_train)(make, model, data, settings, restarts, threads) for restarts in pieces]
    trained_parts: list[dict[str, Any]] = []
    notes: list[str] = []
    with Progress("fit", job.n_restarts, "restart", shown=progress) as counted:
        try:
            with others_may_run():  # joblib may be told to use threads
                for trained_part in _pool(n_jobs)(calls):
                    trained_parts.append(trained_part)
                    counted.advance(len(trained_part["restarts"]))
        except KeyboardInterrupt:
            if not trained_parts:
                raise
            ended = sum(len(trained_part["restarts"]) for trained_part in trained_parts)
            notes.append(
                f"interrupted when {ended} of {job.n_restarts} restarts had ended; these are in the fit"
            )
    return job.merge(sorted(trained_parts, key=lambda trained_part: trained_part["restarts"]), notes)


def _pool(n_jobs: int) -> Any:
    """joblib's pool, which gives parts as they end where its backend can (ray's gives all at the end)."""
    options = {"n_jobs": n_jobs, "max_nbytes": None}  # torch warns of memory maps: they are read-only
    try:
        return joblib.Parallel(return_as="generator_unordered", **options)
    except ValueError:
        return joblib.Parallel(**options)


def _train(
    make: Callable[..., Job[Any, FitT]],
    model: Trainable,
    data: Data,
    settings: dict[str, Any],
    restarts: range,
    threads: int | None,
) -> dict[str, Any]:
    """One part, in a process of its own; threads of one process take turns."""
    with undisturbed(threads=threads), _said_of(restarts):
        return make(model, data, **settings).part(restarts)


@contextmanager
def _said_of(restarts: range) -> Iterator[None]:
    """Let errors say which restarts they are of."""
    try:
        yield
    except Exception as error:
        label = (
            f"restart {restarts.start}"
            if len(restarts) == 1
            else f"restarts {restarts.start} to {restarts.stop - 1}"
        )
        error.add_note(f"in the part of the fit that trains {label}")
        raise


def write_part(
    path: str | os.PathLike[str], fingerprint: str, trained_part: dict[str, Any], recipe: dict[str, Any]
) -> None:
    """Write trained restarts to a file that loads with ``weights_only=True``.

    Parameters
    ----------
    path : path
    fingerprint : str
        Of the job.
    trained_part : dict
    recipe : dict
        JSON-able; whatever the caller needs to make the job again.
    """
    meta = {"fingerprint": fingerprint, "restarts": trained_part["restarts"], "recipe": recipe}
    files.write(path, "part", meta, trained_part)


def read_parts(
    paths: str | os.PathLike[str] | Iterable[str | os.PathLike[str]], fingerprint: str, n_restarts: int
) -> tuple[list[dict[str, Any]], list[str]]:
    """Parts in the order of their restarts, and what to say of those that are missing.

    Parameters
    ----------
    paths : path or iterable of path
    fingerprint : str
        Of the job they must belong to.
    n_restarts : int

    Raises
    ------
    FileNotFoundError, ValueError
        No file, not a part, a part of another fit, or a restart that is in two parts.
    """
    names = [os.fspath(path) for path in ([paths] if isinstance(paths, str | os.PathLike) else paths)]
    if not names:
        raise ValueError("parts: got none; give the files that the restarts were written to")
    trained_parts: list[dict[str, Any]] = []
    path_of: dict[int, str] = {}
    for path in names:
        meta, trained_part = files.read(path, "part")
        differs = files.differences(meta["fingerprint"], fingerprint)
        if differs:
            raise ValueError(
                f"parts: {path!r} is of another fit ({differs}); "
                "give parts of one model, one table, one seed and the same settings"
            )
        for restart in trained_part["restarts"]:
            if restart in path_of:
                raise ValueError(
                    f"parts: restart {restart} is in {path_of[restart]!r} and in {path!r}; give each once"
                )
            path_of[restart] = path
        trained_parts.append(trained_part)
    missing = [str(r) for r in range(n_restarts) if r not in path_of]
    notes = [
        f"{len(missing)} of {n_restarts} restarts are missing, number {', '.join(missing)} counted from 0: "
        "their parts were not given"
    ]
    return sorted(trained_parts, key=lambda trained_part: trained_part["restarts"]), notes if missing else []


def renumbered(history: list[dict[str, Any]], numbers: list[int]) -> list[dict[str, Any]]:
    """A history whose restarts are counted among those that are there.

    Parameters
    ----------
    history : list of dict
    numbers : list of int
        The restarts that are there.

    Examples
    --------
    >>> renumbered([{"step": 5, "restart": 7}], [2, 7])
    [{'step': 5, 'restart': 1}]
    """
    place = {number: i for i, number in enumerate(numbers)}
    return [{**row, "restart": place[row["restart"]]} for row in history]
