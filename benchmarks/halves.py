"""halves: on real tables, do edges that half of the rows are sure of hold when the other half comes?

No truth is wanted (`ps.calibrate.halves`): what all rows say of an edge has the half's probability as its
mean, where the model holds. Real tables of kinds that no model of the package was made for: questionnaires
(bfi, all rows and 600 of them), tests (Holzinger), measurements (wines, breast cancer, diabetes), surveys of
elections and of marriages, of schools and of health; one normal likelihood for all columns, as a user does
who reads no findings. `prior`: tables of 300 rows drawn from the model, where the figures should be those of
chance. The linear decoder with its defaults, edges of the prior and practical ones. On demand the
personality items again, as the ordered levels that they are (`levels`) and as agreement or not (`answers`).

Summed over the halves of a table: `present`, edges that they call present; `claimed`, how many of these are
expected to be false, and `lost`, how many all rows say are; `e` the mean of lost / claimed; `absent`,
`claimed_absent`, `gained`, `e_absent`, the same of edges that they call absent. `against`: whether
`ps.calibrate.halves` files a doubt; `doubts`: whether the edge posterior of all rows had one before.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import pandas as pd

from benchmarks._common import Row, report_seeds
from benchmarks._questionnaires import edges_with_defaults
from benchmarks.real import DEFAULT

SEEDS, QUICK_SEEDS = 5, 1
# Factors offered: of questionnaires and tests what they were made for, else about a third of the columns.
TABLES = {
    "prior": 3, "bfi": 5, "bfi_600": 5, "holzinger": 3, "wine": 4, "breast_cancer": 6, "diabetes": 4,
    "anes96": 4, "fair": 4, "star98": 4, "randhie_1000": 4,
}  # fmt: skip
# Tables with likelihoods of their own, run where they are named.
LIKELIHOODS = {
    "bfi_levels": "ordinal", "bfi_600_levels": "ordinal",
    "bfi_answers": "bernoulli", "bfi_600_answers": "bernoulli",
}  # fmt: skip
AGREED = 3.5  # of six levels
EDGES = ("prior", "practical")
SUMS = ("present", "claimed", "lost", "absent", "claimed_absent", "gained")
N_PRIOR, FEATURES_PRIOR = 300, 12


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--data", default=str(DEFAULT), help="folder with bfi.csv")
    parser.add_argument("--tables", nargs="+", choices=[*TABLES, *LIKELIHOODS], help="only these")
    parser.add_argument("--edges", nargs="+", choices=EDGES, help="only these")
    parser.add_argument("--first-seed", type=int, default=0, help="begin at this seed (1000 and up: tuning)")


def tasks(options: argparse.Namespace) -> list[Row]:
    tables = options.tables or (("holzinger",) if options.quick else tuple(TABLES))
    return [
        {"table": table, "edge": edge, "seed": options.first_seed + seed, "data": options.data}
        for seed in report_seeds(options.seeds)
        for table in tables
        for edge in options.edges or (EDGES[1:] if options.quick else EDGES)
    ]


def run(table: str, edge: str, seed: int, data: str) -> Row:
    import pyro_sparse as ps
    from pyro_sparse.findings.finding import findings_of

    x = read(table, seed, Path(data))
    likelihood = LIKELIHOODS.get(table, "normal")
    n_factors = TABLES[_source(table)]
    answer = edges_with_defaults(x, n_factors, seed, edge, {"likelihood": likelihood})
    model = ps.models.SparseDecoder(n_factors=n_factors, decoder="linear", likelihood=likelihood)
    of_chains = {"progress": False}
    check = ps.calibrate.halves(model, x, answer.idata, edges=of_chains, seed=seed, progress=False)
    return {
        "present": int(check.n_present.sum()),
        "claimed": float(check.claimed.sum()),
        "lost": float(check.lost.sum()),
        "e": check.e_present,
        "absent": int(check.n_absent.sum()),
        "claimed_absent": float(check.claimed_absent.sum()),
        "gained": float(check.gained.sum()),
        "e_absent": check.e_absent,
        "against": not check.holds,
        "doubts": any(finding.is_doubt for finding in findings_of(answer.fit, answer.idata)),
    }


def read(table: str, seed: int, folder: Path) -> pd.DataFrame:
    """Rows by columns; of `prior` and of parts of tables others with each seed."""
    import pyro_sparse as ps

    if table in LIKELIHOODS:
        x = read(_source(table), seed, folder)
        return x if table.endswith("levels") else (x > AGREED).astype(float).where(x.notna())
    name, _, rows = table.partition("_") if table.endswith(("600", "1000")) else (table, "", "")
    rng = np.random.default_rng([seed, 41])
    if name == "prior":
        model = ps.models.SparseDecoder(FEATURES_PRIOR, TABLES[table], decoder="linear", factor_cov=False)
        return pd.DataFrame(ps.calibrate.experiment(model, N_PRIOR).simulate(rng)[1])
    if name in ("bfi", "holzinger"):
        x = ps.datasets.load_bfi(folder / "bfi.csv").x if name == "bfi" else ps.datasets.holzinger().x
    elif name in ("wine", "breast_cancer", "diabetes"):
        from sklearn import datasets

        x = getattr(datasets, f"load_{name}")(as_frame=True).data
    else:
        from statsmodels.api import datasets

        x = getattr(datasets, name).load_pandas().data
        # A copy of another column, and what schools have beside shares and means.
        x = x.drop(columns="popul") if name == "anes96" else x.iloc[:, 2:14] if name == "star98" else x
    x = x.astype(float)
    return x.iloc[rng.permutation(len(x))[: int(rows)]] if rows else x


def _source(table: str) -> str:
    """The table that another one was made of."""
    return table.rpartition("_")[0] if table in LIKELIHOODS else table


def collect(rows: list[Row], options: argparse.Namespace) -> Row:
    """{table and edges: sums over seeds, mean e-values, how many had a doubt}."""
    result: Row = {}
    for table, edge in dict.fromkeys((row["table"], row["edge"]) for row in rows):
        chosen = [row for row in rows if (row["table"], row["edge"]) == (table, edge)]
        result[f"{table}_{edge}"] = {
            "n": len(chosen),
            **{name: sum(row[name] for row in chosen) for name in SUMS},
            **{name: float(np.mean([row[name] for row in chosen])) for name in ("e", "e_absent")},
            **{name: sum(row[name] for row in chosen) for name in ("against", "doubts")},
            "cpu_s": float(np.median([row["cpu_s"] for row in chosen])),
        }
    return result
