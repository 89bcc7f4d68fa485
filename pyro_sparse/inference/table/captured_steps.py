"""Steps on an accelerator as graphs: a few hundred short calls are recorded once, and then are one.

A call takes some ten microseconds to queue and one or two to run, so that a small step waits for its own
program. What operations a step is made of depends on the stage and little else (`SparseRun.kind`). Of each
kind the first step is taken call by call and watched, the second recorded. A step that waits for a value, as
in `if x.any()`, cannot be recorded, and its kind is taken call by call for good. What differs from step to
step of a kind, rows, step size and weight of the divergence, lies in tensors that stay where they are.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor

from ...data.read import Batch
from .sparse_elbo import total

if TYPE_CHECKING:
    from .sparse_run import SparseRun

__all__ = ["CapturedSteps"]

_WATCHED, _REFUSED = "watched", "refused"
_Captured = tuple[Any, dict[str, Tensor]]  # a graph, and the terms of the ELBO that it leaves


class CapturedSteps:
    """The steps of one run, recorded as they come.

    Parameters
    ----------
    run : SparseRun
        Its bound is written out.
    """

    def __init__(self, run: SparseRun):
        self.run = run
        device = run.model.weights.device
        self.rate, self.divergence = torch.zeros((), device=device), torch.ones((), device=device)
        self.batch: Batch | None = None
        self.by_kind: dict[Any, str | _Captured] = {}  # of step: watched, refused, or recorded
        self.pool = torch.cuda.graph_pool_handle() if device.type == "cuda" else None

    def __call__(self, batch: Batch, rate: float) -> Tensor | None:
        """Take a step on this minibatch; the ELBO of each restart, or None where it is not one to record.

        Raises
        ------
        FloatingPointError
            As the run's own step.
        """
        kind = self.run.kind()
        recorded = None if kind is None else self.by_kind.get(kind, _WATCHED)
        if kind is None or recorded == _REFUSED:
            return None
        self._hand_over(batch, rate)
        if kind not in self.by_kind:
            with self._in_tensors(), _watching() as waits:
                terms = self._work()
            self.by_kind[kind] = _REFUSED if waits else _WATCHED
            return total(terms)
        if recorded == _WATCHED:
            recorded = self.by_kind[kind] = self._capture()
        graph, terms = cast(_Captured, recorded)
        graph.replay()
        return total(terms)

    def _hand_over(self, batch: Batch, rate: float) -> None:
        """Put what is this step's own where the graphs read it."""
        self.rate.fill_(rate)
        self.divergence.fill_(float(self.run.model.kl_weight))
        if self.batch is None:
            self.batch = _copy(batch)
            return
        for name, values in self.batch.per_row.items():
            values.copy_(batch.per_row[name])
        for name in ("x", "inputs", "mask"):
            tensor = getattr(self.batch, name)
            if tensor is not None and not (name == "inputs" and tensor is self.batch.x):
                tensor.copy_(getattr(batch, name))

    @contextmanager
    def _in_tensors(self) -> Iterator[None]:
        """Meanwhile step size and weight of the divergence are tensors, as a graph wants them."""
        model, groups = self.run.model, self.run.optimiser.param_groups
        before = model.kl_weight, [(group["lr"], group["capturable"]) for group in groups]
        model.kl_weight = self.divergence
        for group in groups:
            group["lr"], group["capturable"] = self.rate, True
        try:
            yield
        finally:
            model.kl_weight = before[0]
            for group, (rate, capturable) in zip(groups, before[1], strict=True):
                group["lr"], group["capturable"] = rate, capturable

    def _work(self) -> dict[str, Tensor]:
        """The step itself, on the tensors of this object; the terms of the ELBO."""
        assert self.batch is not None
        return self.run.captured_step(self.batch, self.rate)

    def _capture(self) -> _Captured:
        graph = torch.cuda.CUDAGraph()
        with self._in_tensors(), torch.cuda.graph(graph, pool=self.pool):
            terms = self._work()
        for parameter in self.run.model.parameters():
            parameter.grad = None  # they are the graph's: others may use the room
        return graph, terms


def _copy(batch: Batch) -> Batch:
    x = batch.x.clone()
    inputs = x if batch.inputs is batch.x else batch.inputs.clone()
    mask = None if batch.mask is None else batch.mask.clone()
    per_row = {name: values.clone() for name, values in batch.per_row.items()}
    return Batch(x, inputs, mask, batch.total, per_row=per_row)


@contextmanager
def _watching() -> Iterator[list[str]]:
    """What the processor waits for meanwhile: a list that has its complaints afterwards."""
    complaints: list[str] = []
    before = torch.cuda.get_sync_debug_mode()
    torch.cuda.set_sync_debug_mode("warn")
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            yield complaints
        complaints += [str(warning.message) for warning in caught if "synchroniz" in str(warning.message)]
    finally:
        torch.cuda.set_sync_debug_mode(before)
