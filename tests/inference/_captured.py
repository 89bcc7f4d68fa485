"""Runs of which most steps are recorded on an accelerator, one of each kind of model."""

from __future__ import annotations

import numpy as np
import torch

import pyro_sparse as ps
from pyro_sparse.data.read import Batch
from pyro_sparse.inference.table.schedule import Schedule
from pyro_sparse.inference.table.sparse_run import SparseRun
from pyro_sparse.models import SparseDecoder

STEPS = 60
X = ps.datasets.sim1(n=80, seed=2).x
COUNTS = np.random.default_rng(0).poisson(2.0, (80, 7)).astype(float)
MODELS = [
    {},
    {"decoder": "linear"},
    {"activation": "tanh"},
    {"factor_cov": False},
    {"prior": "laplace"},
    {"prior": "spike_slab_normal"},
    {"likelihood": "poisson"},
    {"likelihood": "negative_binomial"},
    {"likelihood": "bernoulli"},
    {"likelihood": "multinomial"},
]


def run_of(options, device="cpu", missing=False):
    """A run at its beginning: 80 rows, two restarts."""
    torch.manual_seed(3)
    model = SparseDecoder(7, 2, hidden=5, encoder_hidden=4, **options)
    name = options.get("likelihood", "normal")
    x = torch.as_tensor({"normal": X, "bernoulli": COUNTS > 2}.get(name, COUNTS), dtype=torch.float32)
    inputs = x if name in ("normal", "bernoulli") else torch.log1p(x)
    per_row = {"exposure": x.sum(1, keepdim=True).to(device)} if name == "multinomial" else {}
    mask = torch.rand(x.shape) < 0.9 if missing else None
    model.missing = missing
    model.setup(2, len(x))
    parts = [None if part is None else part.to(device) for part in (x, inputs, mask)]
    if inputs is x:
        parts[1] = parts[0]
    schedule = Schedule(steps=STEPS, batch_size=20, evaluate_every=100, prune_at=(), warm_up=10)
    return SparseRun(model.to(device), Batch(*parts, len(x), per_row=per_row), None, schedule)


def trained(run, steps=STEPS):
    """What a run has come to after so many steps."""
    torch.manual_seed(4)
    for _ in range(steps):
        run.advance()
    return [value.clone() for value in run.model.state_dict().values()] + [run.smooth]
