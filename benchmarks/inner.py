"""inner: many small lassos at once: gap, support, gradient of the answer, CPU time against other solvers.

Gaussian features, 50 samples a task, weights Bernoulli(1/2) times normal (1 of 10 at 100 features), noise of
a tenth of the signal, penalty a tenth of each task's largest. Gaps come from residuals, supports from
scikit-learn at tol 1e-14, gradients from central differences in every entry of a task's features (where the
support stays). Speed is CPU time of 100 tasks, one thread, machine code made before; solvers take turns and
the least of each counts. Ours builds Gram matrices in that time and ends at rounding; the others end at a
relative gap of 1e-6 (in the rows), each in a loop over tasks. --peer PATH adds the outer step of the
published code (a checkout of tristandeleu/synergies-disentanglement-sparsity, run by --peer-python, which has
what it requires): linear encoder, standardisation of every task, inner lasso, gradient of the encoder.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks._common import Row, report_seeds

SEEDS, QUICK_SEEDS = 5, 1
SAMPLES, SHARE = 50, 0.1
TASKS, FEATURES = (8, 100, 500), (6, 20, 100)
SPEED_SIZES, STEP_SIZES = ((100, 20), (100, 100)), ((8, 6), (100, 6), (100, 20), (100, 100))
ROUNDS, TURN = 7, 0.15  # CPU seconds of a turn, at least
STEP = 1e-5  # of a central difference
# with which each ends at a relative gap of at most 1e-6, chosen on seed 1000
TOLERANCE = {"sklearn": 5e-7, "celer": 5e-7, "skglm": 3e-7}


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--peer", help="a checkout of the published code")
    parser.add_argument("--peer-python", default=sys.executable, help="a Python that has its requirements")


def tasks(options: argparse.Namespace) -> list[Row]:
    counts, features = (TASKS[:2], FEATURES[:2]) if options.quick else (TASKS, FEATURES)
    rows: list[Row] = []
    for seed in report_seeds(options.seeds):
        rows += [{"what": "accuracy", "n_tasks": t, "d": d, "seed": seed} for t in counts for d in features]
        sizes = SPEED_SIZES[:1] if options.quick else SPEED_SIZES
        rows += [{"what": "speed", "n_tasks": t, "d": d, "seed": seed} for t, d in sizes]
        if options.peer:
            peer = {"peer": options.peer, "peer_python": options.peer_python}
            sizes = STEP_SIZES[2:3] if options.quick else STEP_SIZES
            rows += [{"what": "step", "n_tasks": t, "d": d, "seed": seed, **peer} for t, d in sizes]
    return rows


def problem(n_tasks: int, d: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Features (task, sample, feature) and targets (task, sample, 1)."""
    rng = np.random.default_rng(seed)
    features = rng.normal(size=(n_tasks, SAMPLES, d))
    weight = rng.normal(size=(n_tasks, d, 1)) * (rng.random((n_tasks, d, 1)) < (0.5 if d < 100 else 0.1))
    signal = features @ weight
    noise = rng.normal(size=signal.shape)
    size = np.linalg.norm(signal, axis=1, keepdims=True) / np.linalg.norm(noise, axis=1, keepdims=True)
    return features, signal + 0.1 * np.where(size > 0, size, 1.0) * noise


def run(what: str, n_tasks: int, d: int, seed: int, peer: str = "", peer_python: str = "") -> Row:
    if what == "accuracy":
        return accuracy(n_tasks, d, seed)
    if what == "speed":
        return speed(n_tasks, d, seed)
    return step(n_tasks, d, seed, peer, peer_python)


def solve(features: Any, targets: Any) -> tuple[Any, Any]:
    """Our weights, and the penalties they are of."""
    from pyro_sparse.inference.multitask.inner import moments, sparse_weights
    from pyro_sparse.inference.multitask.inner.lasso import largest_penalty

    data = moments(features, targets)
    penalty = SHARE * largest_penalty(data)
    return sparse_weights(data, penalty).weight, penalty


def relative_gap(x: np.ndarray, y: np.ndarray, penalty: float, weight: np.ndarray) -> float:
    """Primal minus dual value of one task in units of the objective at 0, from residuals."""
    x, y = x - x.mean(0), y - y.mean()
    left = y - x @ weight
    scale = min(penalty * len(y) / np.abs(x.T @ left).max(), (y @ left) / (left @ left))
    primal = left @ left / 2 + len(y) * penalty * np.abs(weight).sum()
    # y.y/2 - |y - s left|^2/2, without the difference of two large numbers
    dual = scale * (y @ left) - scale**2 * (left @ left) / 2
    return (primal - dual) / (y @ y / 2)


def accuracy(n_tasks: int, d: int, seed: int) -> Row:
    import torch
    from sklearn.linear_model import Lasso

    features, targets = problem(n_tasks, d, seed)
    weight, penalty = solve(torch.as_tensor(features), torch.as_tensor(targets))
    w, lam, gaps, wrong, apart = weight[..., 0].numpy(), penalty.numpy(), [], 0, 0.0
    for t in range(n_tasks):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # 1e-14 may be out of its reach
            fit = Lasso(lam[t], tol=1e-14, max_iter=10**5).fit(features[t], targets[t, :, 0])
        gaps.append(relative_gap(features[t], targets[t, :, 0], lam[t], w[t]))
        wrong += int(((fit.coef_ != 0) != (w[t] != 0)).sum())
        apart = max(apart, float(np.abs(fit.coef_ - w[t]).max()))
    figures = {"gap": float(np.max(gaps)), "support_errors": wrong, "weight_difference": apart}
    if n_tasks == min(TASKS):
        figures["hypergrad_err"], figures["kinks"] = gradient_error(features[:1], targets[:1], lam[:1], seed)
    return figures


def gradient_error(
    features: np.ndarray, targets: np.ndarray, lam: np.ndarray, seed: int
) -> tuple[float, int]:
    """Largest error of one task's gradient, in units of its largest entry; how many entries were left out.

    The outer loss is the squared error of 50 other samples, the penalty is held.
    """
    import torch

    from pyro_sparse.inference.multitask.inner import moments, sparse_weights

    rng = np.random.default_rng([seed, 1])
    others, wanted = (torch.as_tensor(rng.normal(size=part.shape[1:])) for part in (features, targets))

    def outer(x: Any) -> tuple[Any, Any]:
        data = moments(x, torch.as_tensor(targets).expand(len(x), -1, -1))
        weight = sparse_weights(data, float(lam[0])).weight
        left = others @ weight + data.intercept(weight).unsqueeze(1) - wanted
        return (left**2).mean((1, 2)) / 2, (weight != 0)[..., 0]

    x = torch.as_tensor(features).requires_grad_()
    loss, active = outer(x)
    slope = torch.autograd.grad(loss.sum(), x)[0].reshape(-1)
    entries = x.detach().reshape(-1)
    found, same = torch.zeros_like(slope), torch.ones_like(slope, dtype=torch.bool)
    for first in range(0, len(entries), 250):
        own = torch.arange(first, min(first + 250, len(entries)))
        for sign in (1, -1):
            moved = entries.repeat(len(own), 1)
            moved[torch.arange(len(own)), own] += sign * STEP
            value, support = outer(moved.reshape(-1, *features.shape[1:]))
            found[own] += sign * value / (2 * STEP)
            same[own] &= (support == active).all(1)
    return float((found - slope)[same].abs().max() / slope.abs().max()), int((~same).sum())


def speed(n_tasks: int, d: int, seed: int) -> Row:
    import torch

    features, targets = problem(n_tasks, d, seed)
    x, y = torch.as_tensor(features), torch.as_tensor(targets)
    lam = solve(x, y)[1].tolist()
    columns = [np.asfortranarray(part) for part in features]
    flat = [np.ascontiguousarray(part[:, 0]) for part in targets]

    def loop(make: Callable[[float], Any]) -> Callable[[], list[Any]]:
        return lambda: [make(a).fit(own, of).coef_ for own, of, a in zip(columns, flat, lam, strict=True)]

    runs: dict[str, Callable[[], Any]] = {"ours": lambda: solve(x, y)}
    runs |= {name: loop(make) for name, make in peers().items()}
    figures: Row = {"missing": [name for name in TOLERANCE if name not in runs]}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name, once in runs.items():
            answer = once()  # and the machine code is made
            weights = answer[0][..., 0].numpy() if name == "ours" else np.stack(answer)
            gaps = map(relative_gap, features, flat, lam, weights)
            figures[f"gap_{name}"] = float(max(gaps))
        times = in_turns({name: turn(once) for name, once in runs.items()})
    figures |= {f"ms_{name}": 1e3 * value for name, value in times.items()}
    return {**figures, **{f"speedup_{name}": times[name] / times["ours"] for name in runs if name != "ours"}}


def peers() -> dict[str, Callable[[float], Any]]:
    """The solvers that are installed: a penalty to an estimator."""
    from sklearn.linear_model import Lasso

    found: dict[str, Callable[[float], Any]] = {
        "sklearn": lambda a: Lasso(a, tol=TOLERANCE["sklearn"], max_iter=10**5)
    }
    for name in ("celer", "skglm"):
        if importlib.util.find_spec(name) is not None:
            estimator = importlib.import_module(name).Lasso
            found[name] = lambda a, name=name, estimator=estimator: estimator(a, tol=TOLERANCE[name])
    return found


def turn(once: Callable[[], Any]) -> Callable[[], float]:
    """CPU seconds of a run, the median of those that fit a turn: the first ones find the caches cold."""

    def usual() -> float:
        times: list[float] = []
        while sum(times) < TURN:
            start = time.process_time()
            once()
            times.append(time.process_time() - start)
        return float(np.median(times))

    return usual


def in_turns(turns: dict[str, Callable[[], float]]) -> dict[str, float]:
    """CPU seconds of a run of each, the least of rounds in which every one has its turn."""
    rounds = [{name: usual() for name, usual in turns.items()} for _ in range(ROUNDS)]
    return {name: min(times[name] for times in rounds) for name in turns}


def step(n_tasks: int, d: int, seed: int, peer: str, peer_python: str) -> Row:
    """One outer step of ours and of the published code, in single precision, from one encoder."""
    import torch

    features, targets = problem(n_tasks, d, seed)
    encoder = np.linalg.qr(np.random.default_rng([seed, 2]).normal(size=(d, d)))[0]
    single = [part.astype(np.float32) for part in (features, targets, encoder)]
    x, y, theta = map(torch.as_tensor, single)
    theta.requires_grad_()

    def ours() -> Any:
        return torch.autograd.grad(outer_loss(x, y, theta), theta)

    exact = torch.as_tensor(encoder).requires_grad_()
    (wanted,) = torch.autograd.grad(
        outer_loss(torch.as_tensor(features), torch.as_tensor(targets), exact), exact
    )
    with tempfile.TemporaryDirectory() as folder:
        given, found = Path(folder, "given.npz"), Path(folder, "found.npy")
        np.savez(given, features=single[0], targets=single[1], encoder=single[2], share=SHARE)
        script = Path(__file__).with_name("_published_step.py")
        words = [peer_python, str(script), peer, str(given), str(found)]
        with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdin is not None and process.stdout is not None

            def published() -> float:
                process.stdin.write(f"{TURN}\n")
                process.stdin.flush()
                return float(process.stdout.readline())

            if not process.stdout.readline():
                raise RuntimeError(f"peer: {' '.join(words[:3])} did not run; its own words are above")
            ours()
            times = in_turns({"ours": turn(ours), "peer": published})
            process.stdin.close()
        gradient = np.load(found)
    errors = [
        float(np.linalg.norm(own - wanted.numpy()) / wanted.norm()) for own in (ours()[0].numpy(), gradient)
    ]
    return {
        "ms_ours": 1e3 * times["ours"],
        "ms_peer": 1e3 * times["peer"],
        "speedup_peer": times["peer"] / times["ours"],
        "gradient_error_ours": errors[0],
        "gradient_error_peer": errors[1],
    }


def outer_loss(x: Any, y: Any, theta: Any) -> Any:
    """Half the mean squared error at the lasso weights of a linear encoder, standardised in each task."""
    import torch

    from pyro_sparse.inference.multitask.inner import moments, sparse_weights
    from pyro_sparse.inference.multitask.inner.lasso import largest_penalty

    z = x @ theta
    z = z - z.mean(1, keepdim=True)
    z = z * torch.rsqrt((z * z).mean(1, keepdim=True) + 1e-5)
    data = moments(z, y, intercept=False)
    weight = sparse_weights(data, SHARE * largest_penalty(data)).weight
    return ((z @ weight - y) ** 2).mean() / 2


def collect(rows: list[Row], options: argparse.Namespace) -> Row:
    exact = [row for row in rows if row["what"] == "accuracy"]
    result: Row = {
        "gap_max": max(row["gap"] for row in exact),
        "support_errors": sum(row["support_errors"] for row in exact),
        "hypergrad_err_max": max(row["hypergrad_err"] for row in exact if "hypergrad_err" in row),
        "kinks": sum(row.get("kinks", 0) for row in exact),
    }
    for name in (*TOLERANCE, "peer"):
        key, sizes = f"speedup_{name}", {}
        for row in rows:
            if key in row:
                sizes.setdefault(f"{row['n_tasks']},{row['d']}", []).append(row[key])
        medians = {size: float(np.median(values)) for size, values in sizes.items()}
        # the hardest size, but for the published step the one that was asked about
        result[key] = medians.get("100,20") if name == "peer" else min(medians.values(), default=None)
        result[f"{key}_by_size"] = medians
    result["missing"] = sorted({name for row in rows for name in row.get("missing", [])})
    if result["missing"]:
        print(f"not installed, so not measured: {json.dumps(result['missing'])}", file=sys.stderr)
    return result


def table(rows: list[Row]) -> list[Row]:
    """One line per kind and size: the worst of the accuracies, the medians of the times."""
    lines: list[Row] = []
    for what, n_tasks, d in dict.fromkeys((row["what"], row["n_tasks"], row["d"]) for row in rows):
        own = [row for row in rows if (row["what"], row["n_tasks"], row["d"]) == (what, n_tasks, d)]
        line: Row = {"what": what, "n_tasks": n_tasks, "d": d, "n": len(own)}
        for key in own[0]:
            if isinstance(own[0][key], float) and key not in ("cpu_s", "wall_s"):
                worst = key.startswith("gap") or "err" in key or "difference" in key
                value = float((np.max if worst else np.median)([row[key] for row in own]))
                line[key] = f"{value:.1e}" if worst else f"{value:.2f}"
        lines.append(line)
    return [{key: line.get(key, "") for key in {k: 0 for other in lines for k in other}} for line in lines]
