"""misspecified: are present edges true on tables that load a little on everything, as questionnaires do?

Five factors, correlated .25, of five items each: main loadings .4 to .8, every other loading N(0, sd^2) with
sd .05 or .1, four pairs of items whose residuals correlate .25, answers of five points; and continuous ones
without such pairs. 300 or 2,800 rows; five factors offered, or eight. No prior of the package contains these:
zeros are not zero, noise is not independent, answers are not normal. The linear decoder as it is and
`edge_posterior(edge="practical")`. Two more kinds, of 1,000 rows and sd .1, are fitted as what they are:
answers of five points as ordered levels, and yes/no answers, easy and hard (a normal variable cut at -1 to
1); noise behind them is normal, and that of the models is logistic.

Factors are matched to the true ones by the congruence of their loadings. Summed over the tables of a cell:
`present`, edges that `ps.summary` calls present, `present_false`, those of them that are no main edge,
`claimed_false`, how many of them their probabilities say are false; `salient`, edges with
P(|loading| >= .3) >= .95, `salient_false`, those of them whose true standardised loading is below .3; `true`,
main edges, `true_present`, those called present. `cover`: share of the main loadings inside their 90 %
intervals. True loadings are those of the answers (cutting a normal item at points multiplies its correlations
by one number, .95 here), or of levels and yes/no answers those of what is cut.
"""

from __future__ import annotations

import argparse
from typing import NamedTuple

import numpy as np
from scipy.special import ndtr

from benchmarks._common import Row, report_seeds
from benchmarks._questionnaires import (
    SALIENT,
    SURE,
    Array,
    Edges,
    Mask,
    edges_of,
    edges_with_defaults,
    main_edges,
)

SEEDS, QUICK_SEEDS = 50, 1
N_FACTORS, PER_FACTOR, N_PAIRS = 5, 5, 4
MAIN, BETWEEN_FACTORS, BETWEEN_RESIDUALS, LEAST_NOISE = (0.4, 0.8), 0.25, 0.25, 0.1
CUTS = (-1.5, -0.5, 0.5, 1.5)  # standard deviations, between five points
EASY = 1.0  # standard deviation, at most, between no and yes, on either side
OFFERED = (5, 8)
COUNTS = (
    "present", "present_false", "claimed_false", "salient", "salient_false", "true", "true_present"
)  # fmt: skip


class Cell(NamedTuple):
    """A kind of table.

    Attributes
    ----------
    sd : float
        Of the loadings that are not main ones.
    n : int
        Rows.
    is_rough : bool
        Whether residuals of pairs correlate and answers have five points, or two.
    likelihood : str
        Of the fit.
    """

    sd: float
    n: int
    is_rough: bool = True
    likelihood: str = "normal"


CELLS = {
    "sd05_n300": Cell(0.05, 300),
    "sd10_n300": Cell(0.1, 300),
    "sd05_n2800": Cell(0.05, 2800),
    "sd10_n2800": Cell(0.1, 2800),
    "sd05_n300_continuous": Cell(0.05, 300, False),
    "sd05_n2800_continuous": Cell(0.05, 2800, False),
    "sd10_n1000_ordinal": Cell(0.1, 1000, likelihood="ordinal"),
    "sd10_n1000_bernoulli": Cell(0.1, 1000, likelihood="bernoulli"),
}
QUICK_CELLS = ("sd05_n300", "sd10_n300")


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--cells", nargs="+", choices=list(CELLS), help="only these kinds of table")
    parser.add_argument("--offered", nargs="+", type=int, choices=OFFERED, help="only with so many factors")
    parser.add_argument("--first-seed", type=int, default=0, help="begin at this seed (1000 and up: tuning)")


def tasks(options: argparse.Namespace) -> list[Row]:
    cells = options.cells or (QUICK_CELLS if options.quick else CELLS)
    offered = options.offered or (OFFERED[:1] if options.quick else OFFERED)
    return [
        {"cell": cell, "k": k, "seed": options.first_seed + seed}
        for seed in report_seeds(options.seeds)
        for cell in cells
        for k in offered
    ]


def run(cell: str, k: int, seed: int, settings: Row | None = None) -> Row:
    x, loading, main = simulate(CELLS[cell], seed)
    given = {**(settings or {}), "likelihood": CELLS[cell].likelihood}
    answer = edges_with_defaults(x, k, seed, "practical", given)
    edges = edges_of(answer.idata)
    seconds = {"chains_cpu_s": answer.chains_cpu_s, "fit_cpu_s": answer.fit_cpu_s}
    return {**figures(edges, salience(answer.idata), loading, main), **seconds}


def simulate(cell: Cell, seed: int) -> tuple[Array, Array, Mask]:
    """Rows (n, item), their true standardised loadings (item, factor), and which are main ones."""
    rng = np.random.default_rng([seed, 40])
    items = N_FACTORS * PER_FACTOR
    main = main_edges(np.repeat(np.arange(N_FACTORS), PER_FACTOR), N_FACTORS)
    weight = np.where(main, rng.uniform(*MAIN, main.shape), cell.sd * rng.normal(size=main.shape))
    cov = np.where(np.eye(N_FACTORS, dtype=bool), 1.0, BETWEEN_FACTORS)
    common = np.einsum("jk,kl,jl->j", weight, cov, weight)
    noise_var = np.clip(1 - common, LEAST_NOISE, None)
    z = rng.normal(size=(cell.n, N_FACTORS)) @ np.linalg.cholesky(cov).T
    noise = rng.normal(size=(cell.n, items))
    pairs = rng.permutation(items)[: 2 * N_PAIRS].reshape(N_PAIRS, 2)
    if cell.is_rough:
        first, second = pairs.T
        r = BETWEEN_RESIDUALS
        noise[:, second] = r * noise[:, first] + np.sqrt(1 - r**2) * noise[:, second]
    sd = np.sqrt(common + noise_var)
    x = (z @ weight.T + np.sqrt(noise_var) * noise) / sd
    loading = weight / sd[:, None]
    if cell.likelihood == "bernoulli":
        return (x > rng.uniform(-EASY, EASY, items)) * 1.0, loading, main
    if cell.likelihood == "ordinal":
        return np.digitize(x, CUTS) + 1.0, loading, main
    if cell.is_rough:
        return np.digitize(x, CUTS) + 1.0, loading * kept_of_correlation(CUTS), main
    return x, loading, main


def kept_of_correlation(cuts: tuple[float, ...]) -> float:
    """Correlation of a standard normal variable with its points 0, 1, ... between cuts.

    With a variable that is jointly normal with it, the points correlate so many times as much as it does.
    """
    at = np.array(cuts)
    share = np.diff(ndtr(np.concatenate([[-np.inf], at, [np.inf]])))
    points = np.arange(len(share))
    variance = share @ points**2 - (share @ points) ** 2
    return float(np.exp(-(at**2) / 2).sum() / np.sqrt(2 * np.pi * variance))


def salience(idata) -> Array:
    """P(|loading| >= .3), (item, factor)."""
    import pyro_sparse as ps

    return ps.edge_prob(ps.salient_edges(idata, SALIENT)).to_numpy()


def figures(edges: Edges, salient: Array, loading: Array, main: Mask) -> Row:
    """Counts of one table.

    Parameters
    ----------
    edges : Edges
    salient : ndarray (item, factor)
        P(|loading| >= .3).
    loading : ndarray (item, true factor)
    main : ndarray of bool (item, true factor)
    """
    from pyro_sparse.graphs.alignment import match_columns, similarity

    place, sign = match_columns(similarity(loading, edges.draws.mean((0, 1))))
    truth, is_main = np.zeros(edges.probability.shape), np.zeros(edges.probability.shape, dtype=bool)
    truth[:, place], is_main[:, place] = loading * sign, main
    present, large = edges.verdict == "present", salient >= SURE
    inside = (edges.lower <= truth) & (truth <= edges.upper)
    return {
        "present": int(present.sum()),
        "present_false": int((present & ~is_main).sum()),
        "claimed_false": float((1 - edges.probability[present]).sum()),
        "salient": int(large.sum()),
        "salient_false": int((large & (np.abs(truth) < SALIENT)).sum()),
        "cover": float(inside[is_main].mean()),
        "true": int(main.sum()),
        "true_present": int((present & is_main).sum()),
    }


def collect(rows: list[Row], options: argparse.Namespace) -> Row:
    """{cell and K: counts summed over tables, mean coverage, median seconds}."""
    result: Row = {}
    for cell, k in dict.fromkeys((row["cell"], row["k"]) for row in rows):
        own = [row for row in rows if (row["cell"], row["k"]) == (cell, k)]
        result[f"{cell}_k{k}"] = {
            "n": len(own),
            **{name: sum(row[name] for row in own) for name in COUNTS},
            "cover": float(np.mean([row["cover"] for row in own])),
            **{name: float(np.median([row[name] for row in own])) for name in ("chains_cpu_s", "fit_cpu_s")},
        }
    return result


def table(rows: list[Row]) -> list[Row]:
    """One line per cell and K."""
    return [{"cell": cell, **line} for cell, line in collect(rows, argparse.Namespace()).items()]
