"""One process of the benchmark `ranks`, alone or under torchrun: ``_rank.py FOLDER NAME TASK-AS-JSON``.

Leaves ``FOLDER/NAME-<rank>.pt``: parameters, ELBOs and seconds. Where the task says so, it kills itself.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

import pyro_sparse as ps
from pyro_sparse.data.read import as_table
from pyro_sparse.inference.table.job import TableJob
from pyro_sparse.inference.training.elbo import rowwise_elbo
from pyro_sparse.inference.training.loop import Run
from pyro_sparse.inference.training.ranks import ranks_here

RANK = int(os.environ.get("RANK", "0"))
LAUNCHER = os.getppid()  # torchrun, where it started this


def same(folder: Path, task: dict[str, Any]) -> dict[str, Any]:
    """A whole fit of sim1, killed in the middle if asked."""
    kill, advance = task.get("kill"), Run.advance

    def advance_or_die(run: Run) -> None:
        if run.step == task["steps"] // 2 + 7 and (kill == "all" or kill == "one" and RANK == 1):
            if kill == "all" and RANK == 0:
                os.kill(LAUNCHER, signal.SIGKILL)
            os.kill(os.getpid(), signal.SIGKILL)
        advance(run)

    Run.advance = advance_or_die
    fit = ps.fit(
        ps.models.SparseDecoder(7, 5),
        ps.datasets.sim1(n=500, seed=task["seed"]).x,
        restarts=2,
        seed=task["seed"],
        steps=task["steps"],
        dtype=task["dtype"],
        checkpoint=folder / task["checkpoint"] if task.get("checkpoint") else None,
        checkpoint_every=50,
        progress=False,
    )
    state = {name: value for name, value in fit.model.state_dict().items() if value.is_floating_point()}
    return {
        "state": state,
        "elbo": torch.as_tensor(fit.heldout_elbo),
        "weights": torch.as_tensor(fit.weights),
    }


def speed(folder: Path, task: dict[str, Any]) -> dict[str, Any]:
    """Some steps on a wide table, and the judging of held-out rows."""
    g, k, n = task["n_features"], task["n_factors"], task["n_rows"]
    rng = np.random.default_rng(task["seed"])
    loadings = rng.normal(size=(k, g)) * (rng.random((k, g)) < 2 / k)
    x = np.tanh(rng.normal(size=(n, k))) @ loadings + 0.5 * rng.normal(size=(n, g))
    model = ps.models.SparseDecoder(g, k)
    model.data_start = False  # what is done once is not timed
    schedule = ps.inference.Schedule(steps=1000, batch_size=task["batch_size"])
    ranks = ranks_here("cpu")
    torch.set_num_threads(1)
    table = as_table(x, likelihood=model.likelihood)
    job = TableJob(model, table, restarts=1, seed=task["seed"], schedule=schedule, ranks=ranks)
    run = job.run(range(1))
    with torch.no_grad():  # every edge is open, and stays so in the first steps of many
        run.model.allowed.fill_(True)
        run.model.weights.fill_(0.5)
    ranks.level(run.model)
    seconds = [timed(run.advance) for _ in range(task["steps"])]
    assert job.heldout is not None
    found: dict[str, Any] = {"step": np.median(seconds[2:], axis=0).tolist()}  # the first ones allocate
    found["rowwise"] = timed(lambda: rowwise_elbo(run.model, job.heldout, num_draws=4, ranks=ranks))
    found["edges"] = int((run.model.weights != 0).sum())
    return {**found, "state": {name: p.detach() for name, p in run.model.named_parameters()}}


def timed(work: Any) -> tuple[float, float]:
    """CPU and wall seconds."""
    cpu, wall = time.process_time(), time.perf_counter()
    work()
    return time.process_time() - cpu, time.perf_counter() - wall


if __name__ == "__main__":
    place, name, given = Path(sys.argv[1]), sys.argv[2], json.loads(sys.argv[3])
    found = {"same": same, "speed": speed}[given["what"]](place, given)
    torch.save(found, place / f"{name}-{RANK}.pt")
