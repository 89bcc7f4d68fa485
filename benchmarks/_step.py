"""A training step of the sparse decoder whose CPU time is measured: its sizes, the run, the stopwatch."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np


class Sizes(NamedTuple):
    """Of a model, whose encoder is as wide as its decoder, and of its minibatches."""

    features: int
    factors: int
    width: int
    rows: int


SIZES = {
    "tiny": Sizes(7, 2, 50, 100),
    "ml": Sizes(300, 20, 300, 128),
    "zeisel": Sizes(558, 15, 100, 512),
    "big": Sizes(2000, 50, 300, 128),
}


def started(
    sizes: Sizes,
    one_factor: float,
    restarts: int,
    seed: int,
    chunked: bool = True,
    n_rows: int = 0,
    device: str = "cpu",
) -> Any:
    """A run of `ps.fit` under way, in the stage where W has its own prior; two minibatches of rows, or n."""
    import torch

    from pyro_sparse.data.read import Batch
    from pyro_sparse.inference import Schedule
    from pyro_sparse.inference.table.sparse_run import SparseRun
    from pyro_sparse.models import SparseDecoder

    torch.manual_seed(seed)
    x = torch.randn(n_rows or 2 * sizes.rows, sizes.features)
    model = SparseDecoder(sizes.features, sizes.factors, hidden=sizes.width, encoder_hidden=sizes.width)
    model.setup(restarts, len(x))
    model.chunked = chunked
    n_single = round(one_factor * sizes.features)
    with torch.no_grad():
        model.weights.normal_()
        single = torch.zeros(n_single, sizes.factors, dtype=torch.bool)
        single[torch.arange(n_single), torch.randint(sizes.factors, (n_single,))] = True
        model.allowed[:, :n_single] = single
        model.project()
    at_once = {
        "encoder_frozen_until": 0.0,
        "kl_until": 0.0,
        "lasso_from": 0.0,
        "lasso_until": 0.0,
        "warm_up": 0,
    }
    schedule = Schedule(steps=10**9, batch_size=sizes.rows, evaluate_every=10**9, prune_at=(), **at_once)
    model, x = model.to(device), x.to(device)
    return SparseRun(model, Batch(x, x, None, len(x)), None, schedule)


def usual(once: Callable[[], Any], least: float, at_least: int = 2) -> float:
    """CPU seconds of one call, the median of those that fit `least` seconds."""
    each: list[float] = []
    while sum(each) < least or len(each) < at_least:
        start = time.process_time()
        once()
        each.append(time.process_time() - start)
    return float(np.median(each))
