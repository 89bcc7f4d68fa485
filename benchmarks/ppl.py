r"""ppl: edge probabilities of the defaults beside NumPyro's NUTS, which is given what they have to learn.

200 x 15 tables of three factors, 40 % of the edges there, of sizes .4 to 1 and either sign, noise of standard
deviation .6; factors `uncorrelated`, or `correlated` .4. The defaults are `SparseDecoder(15, 3,
decoder="linear")`, `ps.fit`, `edge_posterior()`: they have to learn whether factors are correlated. NUTS is
given that: C = I, or LKJ(1). Its model is the one that the chains have, with factors and edges summed out,

.. math:: x_i \sim N(0, W C W^\top + \Psi), \quad w_{jk} \sim \eta_k \psi_1 + (1 - \eta_k) \psi_0,
          \quad \eta_k \sim \mathrm{Beta}(1, b), \quad \Psi_{jj} \sim \mathrm{InvGamma}

with two slabs and spikes: `laplace`, those of the package's prior, and `normal`, N(0, .5²) and N(0, .03²)
under Beta(1, 1), which NUTS finds easier. Two chains begin at factor analysis with varimax, 500 draws each
after 500 of warm-up; P(edge) is the mean over the draws of :math:`\eta \psi_1 / (\eta \psi_1 + (1 - \eta)
\psi_0)`, each draw's factors put in the order of the start's. All of them are then matched to the true
factors by the congruence of their loadings.

`brier_default`, `brier_numpyro_true`: means over the tables of a cell, the peer's of the better of its two
priors; `ratio` of them; `cpu_ratio`: median over tables of the defaults' CPU seconds (fit and chains) by
those of that peer (compiling included, as a user pays for it; without it `cpu_ratio_compiled`). NumPyro is in
the extra "peers"; where it is not installed, only the defaults run.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from importlib.util import find_spec
from itertools import permutations
from typing import Any

import numpy as np
from scipy.optimize import linear_sum_assignment

from benchmarks._common import Row, report_seeds
from benchmarks._peers import zscored
from benchmarks._questionnaires import Array, edges_with_defaults

SEEDS, QUICK_SEEDS = 50, 1
N, FEATURES, FACTORS, SHARE = 200, 15, 3, 0.4
SIZES, NOISE = (0.4, 1.0), 0.6
CORRELATIONS = {"uncorrelated": 0.0, "correlated": 0.4}
# Family, scale of the slab and of the spike, b of the rates.
PRIORS = {"laplace": ("laplace", 1.0, 1 / N, float(FEATURES)), "normal": ("normal", 0.5, 0.03, 1.0)}
NOISE_PRIOR = (1.5, 0.015)  # of the package's normal noise
CHAINS, WARM_UP, DRAWS = 2, 500, 500
QUICK_DRAWS, QUICK_PRIORS = 50, ("laplace",)
QUICK_FIT = {"restarts": 2, "steps": 300, "sweeps": 120, "num_draws": 20}
DEFAULTS = "default"


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--cells", nargs="+", choices=list(CORRELATIONS), help="only these")
    parser.add_argument("--methods", nargs="+", choices=[DEFAULTS, *PRIORS], help="only these")
    parser.add_argument("--first-seed", type=int, default=0, help="begin at this seed (1000 and up: tuning)")


def tasks(options: argparse.Namespace) -> list[Row]:
    installed = find_spec("numpyro") is not None
    asked = options.methods or [DEFAULTS, *(QUICK_PRIORS if options.quick else PRIORS)]
    methods = [name for name in asked if installed or name == DEFAULTS]
    if not installed:
        print("left out: NumPyro is not installed (pip install numpyro)", file=sys.stderr)
    return [
        {"cell": cell, "method": name, "seed": options.first_seed + seed, "quick": options.quick}
        for seed in report_seeds(options.seeds)
        for cell in options.cells or CORRELATIONS
        for name in methods
    ]


def simulated(cell: str, seed: int) -> tuple[Array, Array]:
    """A table (row, feature) and its true weights (feature, factor)."""
    r = CORRELATIONS[cell]
    rng = np.random.default_rng([seed, round(100 * r), 77])
    edge = rng.random((FEATURES, FACTORS)) < SHARE
    weight = edge * rng.uniform(*SIZES, edge.shape) * rng.choice([-1, 1], edge.shape)
    root = np.linalg.cholesky((1 - r) * np.eye(FACTORS) + r)
    z = rng.normal(size=(N, FACTORS)) @ root.T
    return z @ weight.T + NOISE * rng.normal(size=(N, FEATURES)), weight


def run(cell: str, method: str, seed: int, quick: bool = False) -> Row:
    x, weight = simulated(cell, seed)
    if method == DEFAULTS:
        answer = edges_with_defaults(x, FACTORS, seed, "prior", QUICK_FIT if quick else None)
        own = answer.idata["edge_posterior"]
        p, loading = (
            own[name].transpose("feature", "factor").to_numpy() for name in ("probability", "weight")
        )
        seconds = answer.fit_cpu_s + answer.chains_cpu_s
        used = int(np.any(answer.fit.weights[answer.fit.best] != 0, axis=0).sum())
        rest = {"gap": float(np.nanmax(own["gap"].to_numpy())), "factors": used}
    else:
        p, loading, seconds = numpyro_edges(x, method, CORRELATIONS[cell] != 0, seed, quick)
        rest = {"gap": float(np.ptp(p, axis=0).max()), "factors": FACTORS}
        p, loading = p.mean(0), loading.mean(0)
    return {"brier": brier(p, loading, weight), "method_cpu_s": seconds, **rest}


def brier(probability: Array, loading: Array, weight: Array) -> float:
    """Mean squared error of edge probabilities (feature, factor), factors matched to the true ones."""
    order = linear_sum_assignment(-np.abs(congruence(weight, loading)))[1]
    return float(np.mean((probability[:, order] - (weight != 0)) ** 2))


def congruence(one: Array, other: Array) -> Array:
    """Cosines between the columns of two loading matrices, (factor, factor); 0 for an empty column."""
    sizes = np.linalg.norm(one, axis=0)[:, None] * np.linalg.norm(other, axis=0)
    return one.T @ other / np.maximum(sizes, 1e-12)


def log_likelihood(second: Any, n: int, weight: Any, root: Any, noise: Any, xp: Any = np) -> Any:
    r"""log p(x | W, C, Psi) of centred rows, factors summed out, by Woodbury's identity.

    .. math:: -\tfrac n2 \big[G \log 2\pi + \log|\Psi| + \log|M| + \operatorname{tr} \Psi^{-1} S
              - \operatorname{tr} M^{-1} V^\top \Psi^{-1} S \Psi^{-1} V\big], \quad V = W L, \quad
              M = I + V^\top \Psi^{-1} V

    Parameters
    ----------
    second : array (feature, feature)
        S, X'X / n.
    n : int
    weight : array (feature, factor)
    root : array (factor, factor)
        L, Cholesky factor of C.
    noise : array (feature,)
        Variances.
    xp : module
        numpy, or jax.numpy.
    """
    straight = weight @ root
    scaled = straight / noise[:, None]
    m = xp.eye(straight.shape[1]) + straight.T @ scaled
    explained = xp.trace(xp.linalg.solve(m, scaled.T @ second @ scaled))
    log_det = xp.log(noise).sum() + xp.linalg.slogdet(m)[1]
    constant = len(noise) * np.log(2 * np.pi)
    return -0.5 * n * (constant + log_det + (xp.diagonal(second) / noise).sum() - explained)


def numpyro_edges(
    x: Array, prior: str, correlated: bool, seed: int, quick: bool
) -> tuple[Array, Array, float]:
    """Edge probabilities and mean loadings (chain, feature, factor) by NUTS, and its CPU seconds."""
    flags = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
    os.environ.setdefault("XLA_FLAGS", flags)
    import jax
    import jax.numpy as jnp
    import numpyro
    import numpyro.distributions as dist
    from numpyro.infer import MCMC, NUTS, init_to_value
    from sklearn.decomposition import FactorAnalysis

    jax.config.update("jax_enable_x64", True)
    family, slab, spike, b = PRIORS[prior]
    shape, scale = NOISE_PRIOR
    density = dist.Laplace if family == "laplace" else dist.Normal
    x = zscored(x)
    second = jnp.asarray(x.T @ x / len(x))

    def parts(weight: Any, rate: Any) -> tuple[Any, Any]:
        """log eta psi_1 and log (1 - eta) psi_0."""
        return (
            jnp.log(rate) + density(0.0, slab).log_prob(weight),
            jnp.log1p(-rate) + density(0.0, spike).log_prob(weight),
        )

    def model() -> None:
        rate = numpyro.sample("rate", dist.Beta(1.0, b).expand([FACTORS]).to_event(1))
        noise = numpyro.sample("noise", dist.InverseGamma(shape, scale).expand([FEATURES]).to_event(1))
        flat = dist.ImproperUniform(dist.constraints.real, (), (FEATURES, FACTORS))
        weight = numpyro.sample("weight", flat)
        root = numpyro.sample("root", dist.LKJCholesky(FACTORS, 1.0)) if correlated else jnp.eye(FACTORS)
        numpyro.factor("edges", jnp.logaddexp(*parts(weight, rate)).sum())
        numpyro.factor("rows", log_likelihood(second, len(x), weight, root, noise, jnp))

    start = time.process_time()
    analysis = FactorAnalysis(FACTORS, rotation="varimax", random_state=seed).fit(x)
    begun = {
        "weight": jnp.asarray(analysis.components_.T),
        "noise": jnp.asarray(np.maximum(analysis.noise_variance_, 0.01)),
        "rate": jnp.full(FACTORS, 0.3),
    }
    if correlated:
        begun["root"] = jnp.eye(FACTORS)
    draws = QUICK_DRAWS if quick else DRAWS
    kernel = NUTS(model, init_strategy=init_to_value(values=begun))
    mcmc = MCMC(
        kernel,
        num_warmup=QUICK_DRAWS if quick else WARM_UP,
        num_samples=draws,
        num_chains=CHAINS,
        chain_method="sequential",
        progress_bar=False,
    )
    mcmc.run(jax.random.PRNGKey(seed))
    kept = mcmc.get_samples(group_by_chain=True)
    weight = np.asarray(kept["weight"])
    on, off = (np.asarray(part) for part in parts(kept["weight"], kept["rate"][:, :, None]))
    p = 1 / (1 + np.exp(np.clip(off - on, -700, 700)))
    seconds = time.process_time() - start
    p, loading = aligned(p, weight, np.asarray(begun["weight"]))
    return p, loading, seconds


def aligned(probability: Array, weight: Array, reference: Array) -> tuple[Array, Array]:
    """Means over draws (chain, draw, feature, factor), each in the reference's order and signs."""
    orders = np.array(list(permutations(range(reference.shape[1]))))
    cosine = np.stack(
        [np.abs(np.einsum("gk,cdgk->cdk", reference, weight[..., order])).sum(-1) for order in orders]
    )
    order = orders[cosine.argmax(0)][:, :, None]
    weight, probability = (np.take_along_axis(part, order, -1) for part in (weight, probability))
    sign = np.sign((weight * reference).sum(-2, keepdims=True))
    return probability.mean(1), (weight * sign).mean(1)


def collect(rows: list[Row], options: argparse.Namespace) -> Row:
    """{cell: figures}, the peer's of the prior under which it does better."""
    result: Row = {}
    for cell in dict.fromkeys(row["cell"] for row in rows):
        own = [row for row in rows if row["cell"] == cell]
        by_method = {name: [row for row in own if row["method"] == name] for name in (DEFAULTS, *PRIORS)}
        by_method = {name: found_rows for name, found_rows in by_method.items() if found_rows}
        line: Row = {"n": len({row["seed"] for row in own})}
        for name, found_rows in by_method.items():
            line |= _figures(name, found_rows)
        peers = [name for name in PRIORS if name in by_method]
        if peers and DEFAULTS in by_method:
            best = min(peers, key=lambda name: line[f"brier_{name}"])
            line |= {"numpyro_prior": best, "brier_numpyro_true": line[f"brier_{best}"]}
            line["ratio"] = line["brier_default"] / line["brier_numpyro_true"]
            seconds = {row["seed"]: row["method_cpu_s"] for row in by_method[best]}
            line["cpu_ratio"] = float(
                np.median([row["method_cpu_s"] / seconds[row["seed"]] for row in by_method[DEFAULTS]])
            )
        result[cell] = line
    return result


def _figures(name: str, rows: list[Row]) -> Row:
    """Mean, median and largest Brier score of a method, its CPU seconds, the Brier score of each table."""
    scores, seconds = ([row[key] for row in rows] for key in ("brier", "method_cpu_s"))
    return {
        f"brier_{name}": float(np.mean(scores)),
        f"median_{name}": float(np.median(scores)),
        f"max_{name}": float(np.max(scores)),
        f"cpu_s_{name}": float(np.median(seconds)),
        f"gap_{name}": float(np.median([row["gap"] for row in rows])),
        f"of_table_{name}": [round(score, 5) for score in scores],
    }


def table(rows: list[Row]) -> list[Row]:
    """One line per cell and method."""
    lines = []
    for cell, line in collect(rows, argparse.Namespace()).items():
        for name in (DEFAULTS, *PRIORS):
            if f"brier_{name}" in line:
                figures = {key: line[f"{key}_{name}"] for key in ("brier", "median", "max", "cpu_s", "gap")}
                lines.append({"cell": cell, "method": name, "n": line["n"], **figures})
    return lines
