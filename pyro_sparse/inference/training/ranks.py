"""Processes that share one fit: each takes some rows of every minibatch, and what they find is put together.

Every rank draws the rows and the random numbers that one process would, keeps those of its own rows, and
means over rows (gradients, ELBO, the factors' moments) are taken over all ranks. So parameters move alike
everywhere, and as in one process at the same minibatch, up to the rounding of sums. `Ranks` does all the
talking; for `ALONE`, one process, its methods do nothing. torchrun, or a process group of the caller's, says
who there is: `ranks_here`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, TypeVar, cast

import torch
import torch.distributed as dist
from pyro.poutine.messenger import Messenger
from torch import Tensor

from ...data.read import Batch
from ...models.sparse_decoder import SparseDecoder
from .checkpoint import differences
from .group_draws import GroupDraws

if TYPE_CHECKING:
    from ._families import Minibatch
    from .loop import Plan

__all__ = ["ALONE", "RankRows", "Ranks", "first_rank", "ranks_here", "refuse_ranks"]

BatchT = TypeVar("BatchT", bound="Minibatch")
T = TypeVar("T")


@dataclass(frozen=True)
class RankRows(Batch):
    """The rows of a minibatch that are one rank's, still scaled to all rows.

    Attributes
    ----------
    ranks : Ranks
    places : list of int
        Where they stand in the minibatch.
    n_rows : int
        Rows of the minibatch.
    """

    ranks: Ranks
    places: list[int]
    n_rows: int

    def mean(self, mean_of_rows: Tensor) -> Tensor:
        average = mean_of_rows.clone()
        self.ranks.mean([average], self)
        return average


@dataclass(frozen=True)
class Ranks:
    """The processes of a fit.

    Attributes
    ----------
    rank, size : int
        Which of how many.
    device : device
        What this one computes on.
    """

    rank: int = 0
    size: int = 1
    device: torch.device = torch.device("cpu")

    # ---- whose rows ----------------------------------------------------------------------------------------
    def rows(self, data: BatchT, index: Tensor) -> BatchT:
        """The rank's rows of the minibatch with these rows: neighbours, as many as others have, or one more.

        All of them where there is not one for everyone.

        Parameters
        ----------
        data : Batch
        index : Tensor of int

        Returns
        -------
        Batch
            An `RankRows` if the rows are shared.
        """
        n = len(index)
        if self.size == 1 or n < self.size:
            return cast("BatchT", data.rows(index))
        places = list(range(n * self.rank // self.size, n * (self.rank + 1) // self.size))
        rows = data.rows(index[places])
        cells: dict[str, Any] = {f.name: getattr(rows, f.name) for f in fields(Batch)}
        return cast("BatchT", RankRows(**cells, ranks=self, places=places, n_rows=n))

    def share(self, data: Batch) -> Batch:
        """The rank's rows of a table, as `rows` gives them; of one process the table itself, not a copy.

        Parameters
        ----------
        data : Batch
        """
        return data if self.size == 1 else self.rows(data, torch.arange(len(data), device=data.x.device))

    def kept(self, draws: Tensor, batch: Minibatch) -> Tensor:
        """Of what was drawn for all rows, (..., row, factor), that of the rank's rows.

        Parameters
        ----------
        draws : Tensor (..., row, factor)
        batch : Batch
            The rank's rows.
        """
        return draws[..., batch.places, :] if isinstance(batch, RankRows) else draws

    def sites(self, batch: Minibatch) -> AbstractContextManager:
        """Within it, sites of rows draw the whole minibatch's numbers and keep those of the rank's rows.

        Parameters
        ----------
        batch : Batch
            The rank's rows.
        """
        return _Sites(batch) if isinstance(batch, RankRows) else nullcontext()

    # ---- together ------------------------------------------------------------------------------------------
    def mean(self, tensors: Iterable[Tensor], batch: Minibatch) -> None:
        """Turn means over the rank's rows into those over the minibatch, in place.

        Parameters
        ----------
        tensors : iterable of Tensor
        batch : Batch
            The rank's rows.
        """
        if isinstance(batch, RankRows):
            self._added(list(tensors), len(batch) / batch.n_rows)

    def sum(self, tensors: Iterable[Tensor], batch: Minibatch) -> None:
        """Turn sums over the rank's rows into those over all ranks' rows, in place.

        Parameters
        ----------
        tensors : iterable of Tensor
        batch : Batch
            The rank's rows.
        """
        if isinstance(batch, RankRows):
            self._added(list(tensors), 1.0)

    def joined(self, rank_rows: Tensor, batch: Minibatch) -> Tensor:
        """What each rank found of its rows, (..., row), in the order of the minibatch.

        Parameters
        ----------
        rank_rows : Tensor (..., row of the rank)
        batch : Batch
            The rank's rows.
        """
        if not isinstance(batch, RankRows):
            return rank_rows
        all_rows = rank_rows.new_zeros(*rank_rows.shape[:-1], batch.n_rows)
        all_rows[..., batch.places] = rank_rows
        self._added([all_rows], 1.0)
        return all_rows

    def _added(self, tensors: list[Tensor], share: float) -> None:
        """Sums of `share` times these over the ranks, in place and in one message."""
        flat = torch.cat([t.reshape(-1) for t in tensors]).mul_(share)
        with self._in_touch():
            dist.all_reduce(flat)
        for tensor, flat_sum in zip(tensors, flat.split([t.numel() for t in tensors]), strict=True):
            tensor.copy_(flat_sum.view_as(tensor))

    # ---- alike ---------------------------------------------------------------------------------------------
    def first(self, work: Callable[[], T]) -> T:
        """What the first rank gets of it, an error included; the others do not do it.

        Parameters
        ----------
        work : callable
        """
        if self.size == 1:
            return work()
        outcome: list[Any] = [None, None]
        if self.rank == 0:
            try:
                outcome[0] = work()
            except Exception as error:
                outcome[1] = error
        with self._in_touch():
            dist.broadcast_object_list(outcome, device=self.device)
        if outcome[1] is not None:
            raise outcome[1]
        return cast("T", outcome[0])

    def level(self, model: torch.nn.Module) -> None:
        """Parameters, buffers and random stream of the first rank everywhere: processors may round otherwise.

        Parameters
        ----------
        model : Module
        """
        if self.size == 1:
            return
        cuda = self.device.type == "cuda"
        with self._in_touch():
            for value in model.state_dict().values():
                dist.broadcast(value, 0)
        streams = self.first(lambda: (torch.get_rng_state(), torch.cuda.get_rng_state() if cuda else None))
        torch.set_rng_state(streams[0])
        if cuda:
            torch.cuda.set_rng_state(cast("Tensor", streams[1]))

    def check(self, fingerprint: str) -> None:
        """Complain unless every rank was given the same model, table, seed and settings.

        Parameters
        ----------
        fingerprint : str
            Of the fit, as for a checkpoint.

        Raises
        ------
        ValueError
            Names a rank that differs from the first one, and in what.
        """
        if self.size == 1:
            return
        fingerprints: list[Any] = [None] * self.size
        with self._in_touch():
            dist.all_gather_object(fingerprints, fingerprint)
        for rank, theirs in enumerate(fingerprints):
            if theirs != fingerprints[0]:
                raise ValueError(
                    f"ranks: rank {rank} was given another fit than rank 0 "
                    f"({differences(theirs, fingerprints[0])}, rank 0 being here); "
                    "give all ranks the same table, model, seed and settings"
                )

    @contextmanager
    def _in_touch(self) -> Iterator[None]:
        """Let a message that does not get through say so."""
        try:
            yield
        except RuntimeError as error:
            reason = str(error).splitlines()[0].split(". ")[0]
            raise RuntimeError(
                f"ranks: rank {self.rank} of {self.size} cannot reach the others ({reason}); "
                "one of them has ended, and its own messages may say why; start all again, with the same "
                "checkpoint= they go on from what was last written"
            ) from error


ALONE = Ranks()


class _Sites(Messenger):
    """Draws the sites of the "data" plate for all rows of a minibatch, and keeps the rank's."""

    def __init__(self, batch: RankRows):
        super().__init__()
        self.places, self.n_rows = batch.places, batch.n_rows

    def _pyro_sample(self, msg: dict[str, Any]) -> None:
        of_rows = any(frame.name == "data" for frame in msg["cond_indep_stack"])
        if of_rows and msg["value"] is None and not msg["is_observed"]:
            with GroupDraws(self.places, self.n_rows, dim=-1 - len(msg["fn"].event_shape)):
                msg["value"] = msg["fn"]()


def ranks_here(device: str) -> Ranks:
    """The ranks of this process: of the group that the caller has initialised, or of torchrun's, or `ALONE`.

    torchrun's group is made here, gloo for the processor and nccl for CUDA, and stays for later fits.

    Parameters
    ----------
    device : str
        Where to compute; "cuda" is then each rank's own.
    """
    if not dist.is_available():
        return ALONE
    cuda = torch.device(device).type == "cuda"
    if not dist.is_initialized():
        if not dist.is_torchelastic_launched() or int(os.environ.get("WORLD_SIZE", "1")) == 1:
            return ALONE
        if cuda:
            torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
        dist.init_process_group("nccl" if cuda else "gloo")
    if dist.get_world_size() == 1:
        return ALONE
    rank_device = torch.device("cuda", torch.cuda.current_device()) if cuda else torch.device("cpu")
    return Ranks(dist.get_rank(), dist.get_world_size(), rank_device)


def first_rank() -> bool:
    """Whether this process is to write files and talk: always, but for the other ranks of a process group."""
    return not (dist.is_available() and dist.is_initialized()) or dist.get_rank() == 0


def refuse_ranks(ranks: Ranks, model: object, schedule: Plan, dependency: object, n_jobs: int) -> None:
    """Complain of what several ranks cannot share.

    Parameters
    ----------
    ranks : Ranks
    model : Module
    schedule : Schedule
    dependency : LatentPenalty or None
    n_jobs : int

    Raises
    ------
    TypeError
        Not a `SparseDecoder`.
    ValueError
        `dependency`, `n_jobs`, or fewer rows in a minibatch than ranks.
    """
    if ranks.size == 1:
        return
    if not isinstance(model, SparseDecoder):
        raise TypeError(
            f"model: got a {type(model).__name__} in {ranks.size} ranks, which can share the rows of a "
            "SparseDecoder only; start one process, and divide its restarts (n_jobs=, fit_restart)"
        )
    if dependency is not None:
        raise ValueError(
            f"dependency: got a {type(dependency).__name__} in {ranks.size} ranks, wanted none, for it need "
            "be no mean over rows; start one process"
        )
    if n_jobs != 1:
        raise ValueError(
            f"n_jobs: got {n_jobs} in {ranks.size} ranks, wanted 1; divide either the rows (ranks) or the "
            "restarts (n_jobs)"
        )
    if schedule.batch_size < ranks.size:
        raise ValueError(
            f"batch_size: got {schedule.batch_size} for {ranks.size} ranks, wanted a row for each at least; "
            "raise batch_size or start fewer ranks"
        )
