"""What a fit asks of its model at the end, for tables too large to be asked at once.

Restarts one at a time, rows a few at a time, samples of rows where a sample will do, and a decoder whose
hidden units are computed again for the gradient instead of kept. For a table in memory, the usual functions.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar, cast

import numpy as np
import torch
from torch import Tensor

from ..._utils.torch_state import first_rows
from ...data.large_table import JUDGED_CELLS, LargeBatch, LargeTable
from ...data.read import Batch, Table
from ...distributions.decoded_cells import recomputed_predictor
from ..training.elbo import rowwise_elbo
from ..training.interrupt import BRIEF
from ..training.ranks import ALONE, Ranks
from ..training.restarts import pick
from .refine import refined_elbo

if TYPE_CHECKING:
    from ...models.base import FactorModel
    from ...models.sparse_decoder import SparseDecoder

CLIMB = 20  # steps of a row's own guide; each costs as much as four of training on that row

__all__ = ["frugal", "judge", "pieces"]

ModelT = TypeVar("ModelT", bound="FactorModel")


def judge(
    model: FactorModel,
    train: Batch,
    heldout: Batch | None,
    ranks: Ranks = ALONE,
    brief: bool = False,
    exact: bool = False,
) -> tuple[np.ndarray, np.ndarray | None]:
    """ELBO of each row under every restart, (restart, row): rows trained on, and held-out rows (refined).

    Of a table read by rows: a sample of those trained on.

    Parameters
    ----------
    model : FactorModel
        Of all restarts.
    train : Batch
    heldout : Batch, optional
    ranks : Ranks
        Who shares the rows; every rank gets the same answer.
    brief : bool
        A few rows only, and none refined.
    exact : bool
        The encoder gives each row's best guide, so that there is nothing to refine.
    """
    if brief and heldout is not None:
        heldout = first_rows(heldout, BRIEF)
    if not isinstance(train, LargeBatch):
        train = first_rows(train, BRIEF) if brief else train
        rows = rowwise_elbo(model, train, num_draws=4, ranks=ranks).cpu().numpy()
        if heldout is None:
            return rows, None
        elbo_of_rows = rowwise_elbo if brief or exact else refined_elbo
        heldout_rows = elbo_of_rows(model, heldout, num_draws=16, ranks=ranks)
        return rows, heldout_rows.cpu().numpy()
    most = train.table.most_judged
    few = first_rows(train, min(most, BRIEF) if brief else most)
    trained, aside = [], []
    for r in range(model.n_restarts):
        with frugal(pick(model, [r])) as restart:
            trained.append(rowwise_elbo(restart, few, num_draws=4, ranks=ranks))
            if heldout is None:
                continue
            climbed = None if brief else refined_elbo(restart, heldout, steps=CLIMB, ranks=ranks)
            plain = rowwise_elbo(restart, heldout, num_draws=16, ranks=ranks)
            # a climb too short to be sure of: each row keeps the better bound
            aside.append(plain if climbed is None else torch.maximum(climbed, plain))
    return torch.cat(trained).cpu().numpy(), torch.cat(aside).cpu().numpy() if aside else None


@contextmanager
def frugal(model: ModelT) -> Iterator[ModelT]:
    """The model, meanwhile without keeping hidden units of a masked decoder for gradients by the factors.

    Parameters
    ----------
    model : FactorModel
        Its parameters get no gradient meanwhile, if there are many hidden units.
    """
    usual = model.decode

    def decode(z: Tensor, weights: Tensor | None) -> Tensor:
        if weights is None or not getattr(model, "in_chunks", lambda z: False)(z):
            return usual(z, weights)
        sparse = cast("SparseDecoder", model)
        return recomputed_predictor(sparse.net(weights), z, None, sparse.activation)

    cast(Any, model).decode = decode
    try:
        yield model
    finally:
        del model.decode


def pieces(
    table: Table, device: str | torch.device, dtype: torch.dtype, cells: int = JUDGED_CELLS
) -> Iterator[Batch]:
    """All rows of a table in order: at once, or a few at a time where it is read by rows.

    Parameters
    ----------
    table : Table
    device, dtype
        As in `Table.batch`.
    cells : int
        In a piece.
    """
    if not isinstance(table, LargeTable):
        yield table.batch(device, dtype)
        return
    for piece in table.split(table.rows_together(1, 20_000, cells)):
        yield piece.batch(device, dtype)
