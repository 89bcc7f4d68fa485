"""jacobian_cost: what a penalty on the decoder's Jacobian costs in a training step, and how exact it is.

Two steps of a VAE: "bare", a page of plain torch (encoder, decoder, ELBO, backward, AdamW), and "fit", that
of `ps.fit` with one restart. A ratio is CPU time with the penalty over CPU time without: all runs take turns,
and the median over turns of the ratio within a turn counts. "column", "difference" and "exact" are our
estimators; "forward" takes the same random column by dual numbers (`torch.autograd.forward_ad`) and
"exact_forward" all columns by `torch.func.jvp` under `vmap`, for comparison; then the rival penalties.
"sd_percent" is the standard deviation of an estimate at one batch of a trained decoder, in percent of the
exact penalty, and "bias_percent" how far the mean of its estimates lies from it.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks._common import Row, report_seeds

SEEDS, QUICK_SEEDS = 3, 1
# factors, features, width, rows of a minibatch
SIZES = {"reference": (10, 500, 128, 128), "small": (5, 25, 50, 100)}
TRAINED = 150  # steps before anything is measured
TURNS, QUICK_TURNS, TURN = 15, 5, 0.1  # CPU seconds of each run in a turn, at least
DRAWS, QUICK_DRAWS = 400, 100


def tasks(options: argparse.Namespace) -> list[Row]:
    return [
        {"size": size, "seed": seed, "quick": options.quick}
        for seed in report_seeds(options.seeds)
        for size in SIZES
    ]


def run(size: str, seed: int, quick: bool) -> Row:
    n_factors, n_features, width, n_rows = SIZES[size]
    x = made_up(n_factors, n_features, 10 * n_rows, seed)
    turns, draws = (QUICK_TURNS, QUICK_DRAWS) if quick else (TURNS, DRAWS)
    return {**costs(x, n_factors, width, n_rows, turns), **errors(x, n_factors, width, n_rows, draws)}


def made_up(n_factors: int, n_features: int, n: int, seed: int) -> np.ndarray:
    """Standardised features of a random network with a third of the dependencies."""
    rng = np.random.default_rng(seed)
    z = rng.normal(size=(n, n_factors))
    sees = rng.random((n_features, n_factors)) < 1 / 3
    x = np.stack([np.tanh(z[:, own] @ rng.normal(size=own.sum())) for own in sees], 1)
    x = x + 0.1 * rng.normal(size=x.shape)
    return (x - x.mean(0)) / x.std(0)


def penalties() -> dict[str, Any]:
    """What is measured: a name to a penalty, None for the step without."""
    import torch
    from torch.autograd import forward_ad

    from pyro_sparse.inference import DependencyPenalty, LatentPenalty
    from pyro_sparse.inference.table.jacobian_penalty import deal
    from pyro_sparse.rivals import HessianPenalty, LatentL1, OrthogonalJacobian

    class Forward(LatentPenalty):
        def __call__(self, fn: Any, z: Any, x_hat: Any = None) -> Any:
            which = deal(z)
            unit = torch.zeros_like(z).scatter_(-1, which, 1.0)
            with forward_ad.dual_level():
                tangent = forward_ad.unpack_dual(fn(forward_ad.make_dual(z, unit))).tangent
            sd = z.std(-2, correction=0, keepdim=True).expand_as(z)
            size = tangent.abs().sum(-1) * sd.gather(-1, which)[..., 0]
            return z.shape[-1] * size.mean(-1)

    class ExactForward(LatentPenalty):
        def __call__(self, fn: Any, z: Any, x_hat: Any = None) -> Any:
            unit = torch.eye(z.shape[-1]).view(-1, *[1] * (z.dim() - 1), z.shape[-1])
            unit = unit.expand(-1, *z.shape)
            each = torch.func.vmap(lambda v: torch.func.jvp(fn, (z,), (v,))[1])(unit).abs().sum(-1).mean(-1)
            return (each * z.std(-2, correction=0).movedim(-1, 0)).sum(0)

    own = {name: DependencyPenalty(estimator=name) for name in ("column", "difference", "exact")}
    others = {"forward": Forward(), "exact_forward": ExactForward()}
    rivals = {"latent_l1": LatentL1(), "hessian": HessianPenalty(), "orthogonal": OrthogonalJacobian()}
    return {"none": None, **own, **others, **rivals}


def started(x: np.ndarray, n_factors: int, width: int, n_rows: int, penalty: Any) -> Any:
    """A run of `ps.fit` under way, of a VAE that began at random."""
    import torch

    from pyro_sparse.data.read import Batch
    from pyro_sparse.inference import Schedule
    from pyro_sparse.inference.table.sparse_run import SparseRun
    from pyro_sparse.rivals import VAE

    torch.manual_seed(1)
    rows = torch.as_tensor(x, dtype=torch.float32)
    model = VAE(x.shape[1], n_factors, hidden=width, encoder_hidden=width)
    model.setup(1, len(rows))
    never = 10**9
    schedule = Schedule(
        steps=never, batch_size=n_rows, evaluate_every=never, encoder_frozen_until=0.0, kl_until=0.0
    )
    return SparseRun(model, Batch(rows, rows, None, len(rows)), None, schedule, 0, penalty)


def bare(x: np.ndarray, n_factors: int, width: int, n_rows: int, penalty: Any) -> Callable[[], None]:
    """A training step of a VAE in plain torch."""
    import torch
    from torch import nn

    torch.manual_seed(1)
    rows, n_features = torch.as_tensor(x, dtype=torch.float32), x.shape[1]

    def network(n_in: int, n_out: int) -> nn.Module:
        hidden = [nn.Linear(n_in, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU()]
        return nn.Sequential(*hidden, nn.Linear(width, n_out))

    encoder, decoder = network(n_features, 2 * n_factors), network(n_factors, n_features)
    optimiser = torch.optim.AdamW([*encoder.parameters(), *decoder.parameters()], 1e-3, fused=True)

    def advance() -> None:
        batch = rows[torch.randint(len(rows), (n_rows,))]
        location, log_sd = encoder(batch).chunk(2, -1)
        z = location + log_sd.exp() * torch.randn_like(location)
        x_hat = decoder(z)
        divergence = (location**2 + (2 * log_sd).exp() - 1) / 2 - log_sd
        loss = ((batch - x_hat) ** 2).sum(-1).mean() / 2 + divergence.sum(-1).mean()
        if penalty is not None:
            loss = loss + penalty.weight * penalty(decoder, z, x_hat)
        optimiser.zero_grad(set_to_none=True)
        loss.backward()
        optimiser.step()

    return advance


def costs(x: np.ndarray, n_factors: int, width: int, n_rows: int, n_turns: int) -> Row:
    """CPU time of a step with each penalty, as a ratio to the step without."""
    sizes = (n_factors, width, n_rows)
    figures: Row = {}
    for step in ("bare", "fit"):
        runs = {
            name: bare(x, *sizes, one) if step == "bare" else started(x, *sizes, one).advance
            for name, one in penalties().items()
        }
        for one in runs.values():
            usual(one, TURN / 2)
        turns = [{name: usual(one, TURN) for name, one in runs.items()} for _ in range(n_turns)]
        figures[f"ms_{step}"] = 1e3 * float(np.median([turn["none"] for turn in turns]))
        for name in runs:
            if name != "none":
                ratio = float(np.median([turn[name] / turn["none"] for turn in turns]))
                figures[f"{step}_{name}"] = ratio
    return figures


def usual(once: Callable[[], Any], least: float) -> float:
    """CPU seconds of one call, the median of those that fit `least` seconds (three, at least)."""
    times: list[float] = []
    while sum(times) < least or len(times) < 3:
        start = time.process_time()
        once()
        times.append(time.process_time() - start)
    return float(np.median(times))


def errors(x: np.ndarray, n_factors: int, width: int, n_rows: int, draws: int) -> Row:
    """Standard deviation and bias of each estimate at one batch of a trained decoder, in percent."""
    import torch

    from pyro_sparse.inference import jacobian_l1
    from pyro_sparse.inference.table.jacobian_penalty import difference, relative_step

    trained = started(x, n_factors, width, n_rows, None)
    for _ in range(TRAINED):
        trained.advance()
    with torch.no_grad():
        location, sd = trained.model.encode(trained._next_batch())
        z = location + sd * torch.randn_like(sd)

    def fn(own: Any) -> Any:
        return trained.model.decode(own, None)

    figures: Row = {}
    with torch.no_grad():
        exact = float(jacobian_l1(fn, z, estimator="exact"))
        for name in ("column", "difference"):
            found = np.array([float(jacobian_l1(fn, z, estimator=name)) for _ in range(draws)]) / exact
            figures[f"sd_percent_{name}"] = 100 * float(found.std(ddof=1))
            figures[f"bias_percent_{name}"] = 100 * float(found.mean() - 1)
            figures[f"bias_se_percent_{name}"] = 100 * float(found.std(ddof=1) / np.sqrt(draws))
        small, sd, total = relative_step(z), z.std(-2, correction=0), 0.0
        for k in range(n_factors):  # every column by differences: their bias without the noise of drawing
            which = torch.full((*z.shape[:-1], 1), k)
            moved = difference(fn, z, which, small * sd[..., k].view(1, 1, 1).expand_as(which))
            total += float(moved.abs().sum(-1).mean()) / small
    figures["all_differences_bias_percent"] = 100 * (total / exact - 1)
    return figures


def collect(rows: list[Row], options: argparse.Namespace) -> Row:
    """Medians over seeds, by size; and, of the bare step, the two figures that are asked about."""
    result: Row = {}
    for size in SIZES:
        own = [row for row in rows if row["size"] == size]
        keys = [key for key in own[0] if key.startswith(("ms_", "bare_", "fit_", "sd_", "bias_", "all_"))]
        result[size] = {key: float(np.median([row[key] for row in own])) for key in keys}
    result["default_ratio"] = result["reference"]["bare_column"]
    result["difference_ratio"] = result["reference"]["bare_difference"]
    return result


def table(rows: list[Row]) -> list[Row]:
    """One line per size and penalty: medians over seeds."""
    lines: list[Row] = []
    for size in SIZES:
        own = [row for row in rows if row["size"] == size]
        for key in own[0]:
            if key.startswith("bare_"):
                name = key.removeprefix("bare_")
                line: Row = {"size": size, "penalty": name}
                for figure in ("bare", "fit", "sd_percent", "bias_percent"):
                    values = [row[f"{figure}_{name}"] for row in own if f"{figure}_{name}" in row]
                    line[figure] = float(np.median(values)) if values else float("nan")
                lines.append(line)
    return lines
