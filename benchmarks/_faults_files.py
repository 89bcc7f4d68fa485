"""Files with flipped bits, and fits and chains that are killed at random moments.

"bitflips" counts the files of fits and checkpoints with one to three random bits flipped that were accepted,
whatever they then held (right: none), refused by a message of ours, or ended in another error. "kills" counts
runs that were ended by SIGKILL and begun again: "same" where the second run's numbers are those of a run that
nobody disturbed, to the bit, "refused" where it says that it cannot go on, "other" for all else, a file that
is half there among them. Models are tiny and checkpoints follow each other closely, so that many kills fall
into the writing of a file.
"""

from __future__ import annotations

import hashlib
import os
import signal
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

FITS = ("table", "sequences", "tasks")
MOST_BITS = 3


def bitflips(n: int, seed: int) -> dict[str, int]:
    """Files of fits and checkpoints, of tables, sequences and tasks in turn, each with flipped bits.

    Parameters
    ----------
    n : int
        Files with one to three flipped bits.
    seed : int
        Of the bits; of the fits it is always the same.
    """
    import pyro_sparse as ps

    rng = np.random.default_rng(seed)
    counts = {"n": 0, "accepted": 0, "refused": 0, "other": 0}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for kind in FITS:
            _fit(kind, folder / f"{kind}.checkpoint").save(folder / f"{kind}.fit")
        paths = sorted(folder.iterdir())
        contents = [path.read_bytes() for path in paths]
        for i in range(n):
            path, damaged = paths[i % len(paths)], bytearray(contents[i % len(paths)])
            places = rng.choice(8 * len(damaged), rng.integers(1, MOST_BITS + 1), replace=False)
            for bit in places:
                damaged[bit // 8] ^= 1 << bit % 8
            path.write_bytes(damaged)
            read = ps.load if path.suffix == ".fit" else lambda path: _fit(path.stem, path)
            counts["n"] += 1
            counts[_outcome(read, path)] += 1
            path.write_bytes(contents[i % len(paths)])
    return counts


def _outcome(read: Callable[[Path], Any], path: Path) -> str:
    try:
        read(path)
    except ValueError as error:
        return "refused" if str(error).startswith(("checkpoint:", "load:")) else "other"
    except Exception:
        return "other"
    return "accepted"


def kills(n: int, seed: int) -> dict[str, int]:
    """Fits of tables, sequences and tasks, and chains, in turn; each killed once and begun again.

    Parameters
    ----------
    n : int
        Processes to kill.
    seed : int
        Of the moments, uniform over the time that a run takes; of the fits it is always the same.
    """
    rng = np.random.default_rng(seed)
    counts = {"n": 0, "same": 0, "refused": 0, "other": 0}
    with tempfile.TemporaryDirectory() as name:
        folder, known = Path(name), {}
        for i in range(n):
            kind = (*FITS, "chains")[i % 4]
            if kind not in known:
                _warm_up(kind, folder / f"{kind}-warm")
                begun = time.perf_counter()
                known[kind] = _in_child(kind, folder / f"{kind}-whole"), time.perf_counter() - begun
            whole, seconds = known[kind]
            case = folder / str(i)
            _in_child(kind, case, kill_after=rng.uniform(0, seconds))
            again = _in_child(kind, case)
            counts["n"] += 1
            counts["same" if again == whole and again.startswith("numbers") else again.split()[0]] += 1
    return counts


def _warm_up(kind: str, folder: Path) -> None:
    """Import, and load compiled code, so that time goes into what is to be killed.

    In this process, whose children then have it; with a GPU in a child, for autograd's threads do not fork.
    """
    import torch

    if torch.cuda.is_available():
        _in_child(kind, folder)
    else:
        folder.mkdir()
        _run_and_write(kind, folder)


def _in_child(kind: str, folder: Path, kill_after: float | None = None) -> str:
    """What a run in a process of its own says in the end; empty if it was killed.

    "numbers" and a digest of them, "refused" and why, or "other" and why.
    """
    folder.mkdir(exist_ok=True)
    said = folder / "said"
    said.unlink(missing_ok=True)
    child = os.fork()
    if child == 0:
        try:
            said.write_text(_run_and_write(kind, folder))
        finally:
            os._exit(0)
    if kill_after is not None:
        time.sleep(kill_after)
        os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return said.read_text() if kill_after is None and said.exists() else "other died"


def _run_and_write(kind: str, folder: Path) -> str:
    """Read what a run before left, run to the end, write the result, and say what came out."""
    import pyro_sparse as ps
    from pyro_sparse.posterior.arviz import from_netcdf, get_group, to_netcdf

    saved = folder / ("edges.nc" if kind == "chains" else "fit.pt")
    try:
        if saved.exists():
            (from_netcdf if kind == "chains" else ps.load)(saved)
        if kind == "chains":
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                few = {"num_draws": 20, "sweeps": 40, "warm_up": 20, "chains": 2}
                idata = _fit("table").edge_posterior("mcmc", seed=0, **few)
            to_netcdf(idata, saved)
            group = get_group(from_netcdf(saved), "edge_posterior")
            return f"numbers {_digest({name: group[name].to_numpy() for name in group})}"
        fit = _fit(kind, folder / "run.pt")
        fit.save(saved)
        from pyro_sparse.inference.training.checkpoint import read

        meta, tensors = read(saved, "fit", "transition fit", "multi-task fit")
        return f"numbers {_digest({**tensors, 'history': meta['history'], 'best': meta['best']})}"
    except ValueError as error:
        ours = str(error).startswith(("checkpoint:", "load:", "path:"))
        return f"{'refused' if ours else 'other'} {error}"
    except Exception as error:
        return f"other {type(error).__name__}: {error}"


def _digest(found: Any) -> str:
    digest = hashlib.sha256()

    def add(value: Any) -> None:
        if isinstance(value, dict):
            for name in sorted(value):
                digest.update(str(name).encode())
                add(value[name])
        elif isinstance(value, list):
            for one in value:
                add(one)
        else:
            array = np.asarray(value)
            digest.update(f"{array.dtype} {array.shape}".encode() + array.tobytes())

    add(found)
    return digest.hexdigest()


def _fit(kind: str, checkpoint: Path | None = None) -> Any:
    """A tiny fit that writes its state at every fifth step."""
    import torch

    import pyro_sparse as ps
    from pyro_sparse.datasets import transition_data

    torch.set_num_threads(1)
    rng = np.random.default_rng(0)
    common: dict[str, Any] = {"progress": False, "seed": 0, "evaluate_every": 20}
    common |= {"checkpoint": checkpoint, "checkpoint_every": 5}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # such short fits have reason to warn
        if kind == "table":
            model: Any = ps.models.SparseDecoder(7, 2, decoder="linear")
            x = ps.datasets.sim1(n=120, seed=0).x
            return ps.fit(model, x, restarts=2, steps=60, batch_size=40, **common)
        if kind == "sequences":
            x, _, a = transition_data("ActionTimeDiag", n=60, d_z=2, d_x=4, T=4, seed=0).part("train")
            model = ps.models.LatentTransition(4, 2, n_actions=2, hidden=8, units=8, gated_units=4)
            few = {"steps": 40, "polish_steps": 5, "edge_steps": 10, "batch_size": 32}
            return ps.fit(model, x, actions=a, restarts=1, **few, **common)
        x = rng.normal(size=(12, 20, 4))
        y = (x[..., :2] * rng.normal(size=(12, 1, 2))).sum(-1) + 0.1 * rng.normal(size=(12, 20))
        model = ps.models.MultiTaskRegression(4, 2)
        return ps.fit(model, x, y, restarts=1, steps=40, sparse_steps=10, learning_rate=0.03, **common)
