"""Tables, sequences and tasks by Hypothesis: is any fault obscure, silent or fatal?

Cases of `pyro_sparse.testing.strategies` are read; one in `FIT_EVERY` is fitted, with few steps, and asked
for scores, predictions and imputed cells; some tables are new rows for a fit of a sound one. `outcome` judges
each. They run in processes of `CHUNK` cases, so that one that dies is a crash and the next goes on.
Asked: 0 obscure, 0 silent, 0 crashes of at least 5,000.
"""

from __future__ import annotations

import json
import math
import tempfile
from collections.abc import Callable
from functools import cache
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks._common import Row

CASES = 5000
CHUNK = 250  # cases in a process
SHARES = {"tables": 0.6, "sequences": 0.2, "tasks": 0.2}
FIT_EVERY = 8  # a case that is fitted costs as much as a hundred that are read
SHOWN = 5  # of each kind of fault
KINDS = ("obscure", "silent", "crash")


def fuzz(n: int = CASES, seed: int = 0) -> Row:
    """Counts of what came of `n` cases or a few more, the first faults printed.

    Parameters
    ----------
    n, seed : int

    Returns
    -------
    dict
        cases, right, refused, obscure, silent, crash; "fitted", how many of them were trained on, and
        "first", the first faults.
    """
    lines: list[Row] = []
    for chunk in range(math.ceil(n / CHUNK)):
        lines += in_a_process(examine, CHUNK if n >= CHUNK else n, seed * 100_000 + chunk)
    faults = [line for line in lines if line["kind"] in KINDS]
    first = [line for kind in KINDS for line in faults if line["kind"] == kind][: SHOWN * len(KINDS)]
    for line in first:
        print(f"{line['kind']}: {line['why']} at {line['where']}; {line['case']}", flush=True)
    counts = {kind: sum(line["kind"] == kind for line in lines) for kind in ("right", "refused", *KINDS)}
    return {"cases": len(lines), **counts, "fitted": sum(line["fitted"] for line in lines), "first": first}


def in_a_process(work: Callable[[int, int, Path], None], n: int, seed: int) -> list[Row]:
    """What `work` wrote, a line for each case; the last one is a crash if the process died.

    Parameters
    ----------
    work : callable
        (cases, seed, file): writes a line when a case begins, and one when it ends.
    n, seed : int
    """
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "cases.jsonl"
        path.touch()
        process = get_context("fork").Process(target=work, args=(n, seed, path))
        process.start()
        process.join()
        lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    ended = [line for line in lines if line["kind"] != "begun"]
    if process.exitcode and lines and lines[-1]["kind"] == "begun":
        why = f"the process ended with {process.exitcode}"
        return [*ended, {**lines[-1], "kind": "crash", "why": why, "where": ""}]
    if process.exitcode:
        raise RuntimeError(f"the fuzz itself failed, seed {seed}: exit status {process.exitcode}")
    return ended


def examine(n: int, seed: int, path: Path) -> None:
    """Judge `n` cases and write what came of each; see `in_a_process`."""
    import hypothesis
    import torch
    from hypothesis import strategies as st

    torch.set_num_threads(1)
    with path.open("w", encoding="utf-8") as file:
        for kind, share in SHARES.items():
            judge = _judge_of(kind, file)
            plan = hypothesis.settings(
                max_examples=max(1, round(n * share)), deadline=None, database=None,
                phases=[hypothesis.Phase.generate], suppress_health_check=list(hypothesis.HealthCheck),
            )  # fmt: skip
            hypothesis.seed(seed)(
                plan(hypothesis.given(_strategy(kind), st.integers(0, FIT_EVERY - 1))(judge))
            )()


def _strategy(kind: str) -> Any:
    from pyro_sparse.testing import strategies

    return getattr(strategies, kind)()


def _judge_of(kind: str, file: Any) -> Callable[[Any, int], None]:
    from pyro_sparse.testing import outcome

    def judge(case: Any, turn: int) -> None:
        fits = turn == FIT_EVERY - 1
        is_new = turn == FIT_EVERY - 2 and _is_fitted(kind, case)
        about = {"case": f"{kind}: {case!r}", "fitted": False}
        _write(file, {**about, "kind": "begun"})
        if is_new:
            found = outcome(lambda: _new_rows(case))
        else:
            found = outcome(lambda: (_fit if fits else _read)(kind, case), case)
        _write(file, {**about, "fitted": fits and found.kind == "right", **found._asdict()})

    return judge


def _write(file: Any, line: Row) -> None:
    file.write(json.dumps(line) + "\n")
    file.flush()


def _read(kind: str, case: Any) -> Any:
    from pyro_sparse.data.read import as_table
    from pyro_sparse.data.sequences import as_sequences
    from pyro_sparse.data.tasks import as_tasks
    from pyro_sparse.likelihoods import get_likelihood

    if kind == "tables":
        return as_table(case.arguments["X"], likelihood=get_likelihood(case.likelihood), **_beside(case))
    if kind == "sequences":
        return as_sequences(case.arguments["X"], **_beside(case))
    return as_tasks(case.arguments["X"], case.arguments.get("y"), case.arguments.get("task"))


def _is_fitted(kind: str, case: Any) -> bool:
    """Whether there is a fit that the case may be new rows for; there are few, for each takes a while."""
    return kind == "tables" and case.likelihood in ("normal", "poisson") and "mask" not in case.arguments


@cache
def _sound_fit(likelihood: str) -> Any:
    import pyro_sparse as ps

    rng = np.random.default_rng(0)
    X = rng.poisson(5.0, (40, 3)) if likelihood == "poisson" else rng.normal(size=(40, 3))
    model = ps.models.SparseDecoder(n_factors=1, decoder="linear", likelihood=likelihood)
    return ps.fit(model, X, restarts=1, steps=3, progress=False)


def _new_rows(case: Any) -> None:
    """Scores and imputed cells of new rows: of the fit's columns, or of others, which is to be refused."""
    from pyro_sparse.inference.registry import PER_ROW

    given = {name: value for name, value in case.arguments.items() if name in PER_ROW}
    X, fit = case.arguments["X"], _sound_fit(case.likelihood)
    z = fit.transform(X, refine=False, **given)
    if case.refuse and "names" not in case.refuse:
        raise RuntimeError(f"took what nobody could read: {case.refuse}")
    if z.shape != (len(case.cells[0]), 1) or not np.isfinite(z).all():
        raise RuntimeError(f"scores of shape {z.shape}, finite: {np.isfinite(z).all()}")
    if not np.isfinite(np.asarray(fit.impute(X, num_draws=1, **given), dtype=float)).all():
        raise RuntimeError("an imputed cell is not finite")


def _beside(case: Any) -> Row:
    return {name: value for name, value in case.arguments.items() if name != "X"}


def _fit(kind: str, case: Any) -> Any:
    import pyro_sparse as ps

    few: Row = {"restarts": 1, "progress": False, "steps": 3}
    if kind == "tables":
        decoder = "mlp" if case.likelihood == "bernoulli" else "linear"
        model: Any = ps.models.SparseDecoder(n_factors=1, decoder=decoder, likelihood=case.likelihood)
    elif kind == "sequences":
        columns = len(_read(kind, case).action_names)  # a model of other actions would refuse all there are
        model = ps.models.LatentTransition(n_latents=2, n_actions=columns, hidden=4, units=4, gated_units=2)
        few |= {"edge_steps": 2, "polish_steps": 1}
    else:
        model = ps.models.MultiTaskRegression(n_latents=2)
        few |= {"sparse_steps": 2}
    return ps.fit(model, **case.arguments, **few)
