r"""What puts a number on every edge of a `Data`: the package's methods, a long Gibbs run, modes as scores.

A method is ``f(data, quick, seed) -> ndarray (set, row, column)``, numbers in [0, 1]. A mode's number is
:math:`p^*_{tk} = P(\gamma_{tk} = 1 \mid w_{tk} = \hat w_{tk}, \hat\eta_k)`: it takes the fitted weight for
the true one, and is here as what a test of calibration has to turn down.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks._calibration_data import ETA_PRIOR, ROW_NOISE_PRIOR, Array, Data, RowLaw, two_frames

SWEEPS, BURN_IN, QUICK_SWEEPS, QUICK_BURN_IN, CHAINS = 1500, 300, 150, 50, 2
QUICK_REPLICATES = 15
RANKED_DRAWS = 63
RANKED = {"sweeps": 150, "burn_in": 200, "chains": 8}  # many short chains: draws far apart, and few sweeps
LINEAR_SPIKE_RATE = 20.0  # of standardised targets on standardised inputs
FIT_SEQUENCES, FIT_STEPS, QUICK_FIT_STEPS = 10_000, 700, 80


def row_prior(law: RowLaw) -> Any:
    """The law of the rows, as the package states it."""
    from pyro_sparse.inference.edges.regression.rows import RowPrior

    return RowPrior(
        slab="laplace",
        slab_scale=1 / law.slab_rate,
        spike_scale=1 / law.spike_rate,
        eta_prior=ETA_PRIOR,
        eta_over="feature",
        noise_prior=ROW_NOISE_PRIOR,
        intercept=False,
    )


def ep(data: Data, quick: bool, seed: int) -> Array:
    from pyro_sparse.inference.edges.regression.ep import ep_edges

    given = data.given
    return ep_edges(given["features"], given["targets"], row_prior(given["law"])).edge_prob


def gibbs(data: Data, quick: bool, seed: int, sweeps: int = SWEEPS) -> Array:
    from pyro_sparse.inference.edges.regression.gibbs import gibbs_edges

    given = data.given
    sweeps, burn_in = (QUICK_SWEEPS, QUICK_BURN_IN) if quick else (sweeps, BURN_IN)
    run = {"sweeps": sweeps, "burn_in": burn_in, "chains": CHAINS, "seed": seed}
    return gibbs_edges(given["features"], given["targets"], row_prior(given["law"]), **run).edge_prob


def bootstrap(data: Data, quick: bool, seed: int) -> Array:
    from pyro_sparse.inference.edges.regression.bootstrap import bootstrap_edges

    given, run = data.given, {"replicates": QUICK_REPLICATES} if quick else {}
    prior = row_prior(given["law"])
    return bootstrap_edges(given["features"], given["targets"], prior, seed=seed, **run).edge_prob


def row_mode(data: Data, quick: bool, seed: int) -> Array:
    given = data.given
    law: RowLaw = given["law"]
    sets = zip(given["features"], given["targets"], strict=True)
    return np.stack([ssl_mode(x, y, law.slab_rate, law.spike_rate) for x, y in sets])


def ssl_mode(features: Array, targets: Array, slab_rate: float, spike_rate: float) -> Array:
    """p* (task, feature) at a mode; features (task, sample, feature), targets (task, sample)."""
    from pyro_sparse.priors import em

    weight, eta, _ = ssl_fit(features, targets, slab_rate, spike_rate)
    return em.edge_probability(weight, eta, slab_rate, spike_rate).numpy()


def ssl_fit(features: Array, targets: Array, slab_rate: float, spike_rate: float) -> tuple[Any, Any, Any]:
    """Weights, inclusion rates and noise variances at a joint mode, the spike rate coming up a ladder."""
    import torch

    from pyro_sparse.inference.edges.regression.row_mode import Mode, row_mode
    from pyro_sparse.inference.multitask.inner import moments

    data = moments(torch.as_tensor(features), torch.as_tensor(targets)[..., None], intercept=False)
    tasks, samples, m = features.shape
    a, b = ETA_PRIOR
    ridge = 0.1 / samples * torch.eye(m, dtype=torch.float64)
    weight = torch.linalg.solve(data.gram + ridge, data.moment)[..., 0]
    noise = torch.ones(tasks, dtype=torch.float64)
    start = Mode(weight, torch.full_like(weight, a / (a + b)), noise, weight)
    count = torch.full_like(noise, samples)
    law = RowLaw(m, samples, 0.0, spike_rate, slab_rate)
    found = row_mode(data, count, count, row_prior(law), start)
    return found.weight, found.eta[:1], found.noise


def gibbs_draws(data: Data, rng: np.random.Generator) -> dict[str, Array]:
    """Joint draws of edges and weights of one data set, some nineteen states apart."""
    from pyro_sparse.inference.edges.regression.gibbs import gibbs_edges

    given = data.given
    seed = int(rng.integers(2**31))
    prior = row_prior(given["law"])
    found = gibbs_edges(given["features"], given["targets"], prior, seed=seed, **RANKED)
    return _joint(found, RANKED_DRAWS, rng)


def enumerate_draws(data: Data, rng: np.random.Generator, num_draws: int = RANKED_DRAWS) -> dict[str, Array]:
    """Exact joint draws of edges and weights of one data set of `normal_rows`."""
    from pyro_sparse.inference.edges.regression.enumerate import enumerate_edges
    from pyro_sparse.inference.edges.regression.rows import RowPrior

    prior = RowPrior(eta_prior=ETA_PRIOR, noise_prior=ROW_NOISE_PRIOR, slab_units="noise", intercept=False)
    return _joint(enumerate_edges(data.given["features"], data.given["targets"], prior), num_draws, rng)


def _joint(found: Any, num_draws: int, rng: np.random.Generator) -> dict[str, Array]:
    drawn = found.draws(num_draws, seed=int(rng.integers(2**31)))
    return {"edge": drawn.edge[:, 0], "weight": drawn.weight[:, 0]}


def likeliest_graph(data: Data, quick: bool, seed: int) -> Array:
    """1 for the edges of each task's most probable set, as seen in 500 exact draws; else 0."""
    rng = np.random.default_rng(seed)
    found = np.empty(data.edge.shape)
    for s in range(len(found)):
        given = {name: data.given[name][s : s + 1] for name in ("features", "targets")}
        drawn = enumerate_draws(Data(data.edge[s : s + 1], given), rng, 500)["edge"]
        for t in range(found.shape[1]):
            sets, count = np.unique(drawn[:, t], axis=0, return_counts=True)
            found[s, t] = sets[count.argmax()]
    return found


def parents(data: Data, quick: bool, seed: int) -> Array:
    """Of the latents as they are."""
    return _parents(data.given["inputs"], data.given["targets"], seed)


def parents_unit(data: Data, quick: bool, seed: int) -> Array:
    """Of latents and actions in their standard deviations, as a fit has them."""
    x, y = data.given["inputs"], data.given["targets"]
    return _parents(x / x.std(1, keepdims=True), y / y.std(1, keepdims=True), seed)


def _parents(inputs: Array, targets: Array, seed: int) -> Array:
    from pyro_sparse.inference.edges.parents.parents import parent_posterior

    sets = zip(inputs, targets, strict=True)
    return np.stack([parent_posterior(x, y, num_draws=1, seed=seed).probability for x, y in sets])


def linear_mode(data: Data, quick: bool, seed: int) -> Array:
    """p* of a spike-and-slab lasso of every latent on all that may drive it, both standardised."""
    found = []
    for x, y in zip(data.given["inputs"], data.given["targets"], strict=True):
        x, y = (x - x.mean(0)) / x.std(0), ((y - y.mean(0)) / y.std(0)).T
        found.append(ssl_mode(np.repeat(x[None], len(y), axis=0), y, 1.0, LINEAR_SPIKE_RATE))
    return np.stack(found)


def fit_parents(data: Data, quick: bool, seed: int) -> Array:
    return _of_fits(data, "parent_sets", seed)


def fit_relaxed(data: Data, quick: bool, seed: int) -> Array:
    return _of_fits(data, "gate_probability", seed)


def _of_fits(data: Data, method: str, seed: int) -> Array:
    """What fits say of their edges, in the order of the true latents."""
    found = []
    for fit, order in zip(data.given["fits"], data.given["orders"], strict=True):
        numbers = fit.edge_posterior(method=method, num_draws=1, seed=seed)["edge_posterior"]
        time, action = (numbers[f"probability_{graph}"].to_numpy() for graph in ("time", "action"))
        found.append(np.concatenate([time[order][:, order], action[order]], -1))
    return np.stack(found)


def fitted(n_sets: int, rng: np.random.Generator, steps: int = FIT_STEPS) -> Data:
    """Fits of `LatentTransition` to `two_frames`, few and short, and the order of their latents."""
    import pyro_sparse as ps
    from pyro_sparse.metrics import mcc

    short = {"restarts": 1, "steps": steps, "polish_steps": 150, "edge_steps": 100, "batch_size": 256}
    edges, fits, orders = [], [], []
    for _ in range(n_sets):
        data = two_frames(FIT_SEQUENCES, rng)
        x, z, actions = (data.given[name] for name in ("x", "z", "actions"))
        model = ps.models.LatentTransition(x.shape[-1], z.shape[-1], n_actions=actions.shape[-1])
        fit = ps.fit(model, x, actions=actions, seed=int(rng.integers(2**31)), progress=False, **short)
        latents = fit.transform().reshape(-1, z.shape[-1])
        edges.append(data.edge[0])
        fits.append(fit)
        orders.append(mcc(z.reshape(latents.shape), latents).permutation)
    return Data(np.stack(edges), {"fits": fits, "orders": orders})
