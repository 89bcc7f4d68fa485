"""A script: jobs in gloo ranks forked from this one process, one group after the other. See test_ranks.py.

``python _in_ranks.py FOLDER JOB RANKS [JOB RANKS ...]``. Rank i of a job leaves ``FOLDER/JOB-i.pt`` with what
it found, or the message of the error that ended it.
"""

from __future__ import annotations

import functools
import os
import signal
import sys
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist

import pyro_sparse as ps
from pyro_sparse.data.read import Batch
from pyro_sparse.inference.rotation import axes
from pyro_sparse.inference.table.deletions import edge_gains
from pyro_sparse.inference.table.refine import refined_elbo
from pyro_sparse.inference.training.elbo import rowwise_elbo
from pyro_sparse.inference.training.loop import Run
from pyro_sparse.inference.training.ranks import ALONE, ranks_here

torch.set_num_threads(1)
X = ps.datasets.sim1(n=120, seed=1).x
HOLES = np.where(np.random.default_rng(0).random(X.shape) < 0.1, np.nan, X)
COUNTS = np.random.default_rng(0).poisson(3.0, size=(60, 7)) * 1.0
# 21 rows are not even in two or three ranks; prunings at 18, 22 and 25 of 30 steps
SHORT = {"restarts": 2, "steps": 30, "batch_size": 21, "evaluate_every": 6, "seed": 3, "dtype": "float64"}
SHORT["progress"] = False


def decoder(**options):
    return ps.models.SparseDecoder(7, 2, hidden=5, encoder_hidden=4, **options)


CASES = {
    "draws for all rows too": lambda folder: (decoder(prior=ps.priors.Horseshoe()), HOLES),
    "linear counts": lambda folder: (decoder(likelihood="multinomial", decoder="linear"), COUNTS),
    "read by rows": lambda folder: (decoder(), ps.open_rows(folder / "x.npy")),
}


def kept(fit):
    """What a fit found, as one comparable thing."""
    arrays = {name: torch.as_tensor(getattr(fit, name)) for name in ("weights", "elbo", "heldout_elbo")}
    history = torch.as_tensor(fit.history.drop(columns="stage").to_numpy(dtype=float))
    return {**fit.model.state_dict(), **arrays, "history": history, "ranks": fit.settings["ranks"]}


def normal(folder, rank):
    return kept(ps.fit(decoder(), X, **SHORT))


def every_case(folder, rank):
    return {name: kept(ps.fit(*case(folder), **SHORT)) for name, case in CASES.items()}


def pieces(folder, rank):
    """Each thing that ranks share, chunk by chunk; the last chunk has one row, too few for two ranks."""
    ranks = ranks_here("cpu")
    torch.manual_seed(5)
    model = decoder()
    model.setup(2, 16)
    rows = torch.as_tensor(X[:16], dtype=torch.float32)
    batch = Batch(rows, rows, None, 16)
    if rank == 1:  # as if it had drifted
        torch.manual_seed(6)
        model.weights.data += 1.0
    ranks.level(model)
    found = {"rowwise": rowwise_elbo(model, batch, num_draws=2, chunk=5, ranks=ranks)}
    found["gains"] = edge_gains(model, batch, chunk=5, ranks=ranks)
    found["refined"] = refined_elbo(model, batch, steps=3, chunk=5, ranks=ranks)
    found["few"] = rowwise_elbo(model, batch.rows(torch.arange(1)), ranks=ranks)
    found["next"] = torch.rand(3)
    return found


def other_seed(folder, rank):
    ps.fit(decoder(), X, **{**SHORT, "seed": rank})


def bad_checkpoint(folder, rank):
    path = folder / "bad.ckpt" if rank == 0 else None
    if path:
        path.write_text("not ours")
    ps.fit(decoder(), X, **SHORT, checkpoint=path)


def saving(folder, rank):
    """The same fit with a checkpoint every 5 steps; resumes where there is one."""
    return kept(ps.fit(decoder(), X, **SHORT, checkpoint=folder / "fit.ckpt", checkpoint_every=5))


def cut(folder, rank, step, what):
    advance = Run.advance

    def advance_and_die(run):
        if run.step == step:
            os.kill(os.getpid(), what)
        advance(run)

    Run.advance = advance_and_die
    return saving(folder, rank)


def one_killed(folder, rank):
    return cut(folder, rank, 13 if rank == 1 else -1, signal.SIGKILL)


def all_killed(folder, rank):
    return cut(folder, rank, 23, signal.SIGKILL)


def ctrl_c(folder, rank):
    return cut(folder, rank, 7, signal.SIGINT)


def resumed(folder, rank):
    step = torch.load(folder / "fit.ckpt", weights_only=True)["tensors"]["under_way"]["step"]
    dist.barrier()
    return {**saving(folder, rank), "from": step}


def launch(folder, job, size):
    """Fork the ranks, and wait for them."""
    children = []
    for rank in range(size):
        child = os.fork()
        if child:
            children.append(child)
            continue
        store = f"file://{folder / job}.store"
        dist.init_process_group("gloo", init_method=store, rank=rank, world_size=size)
        try:
            found = globals()[job](folder, rank)
        except (Exception, KeyboardInterrupt) as error:
            found = f"{type(error).__name__}: {error}"
        torch.save(found, folder / f"{job}-{rank}.pt")
        os._exit(0)
    for child in children:
        os.waitpid(child, 0)


if __name__ == "__main__":
    assert ranks_here("cpu") is ALONE
    axes.oblique = functools.partial(axes.oblique, steps=10, n_starts=2)  # a rough start will do here
    place = Path(sys.argv[1])
    np.save(place / "x.npy", X)  # here, once: ranks that write one file read it half written
    for name, ranks in zip(sys.argv[2::2], sys.argv[3::2], strict=True):
        if int(ranks):
            launch(place, name, int(ranks))
        else:
            torch.save(globals()[name](place, 0), place / f"{name}-alone.pt")
