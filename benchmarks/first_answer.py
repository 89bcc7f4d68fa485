"""first_answer: CPU seconds from the start of Python to a table of edges, on two real tables.

Each answer is a process of its own that runs what the README shows: import, fit, chains, summary; its CPU
time is all of that process (interpreter, imports, compiling). Nine tests of three abilities (Holzinger), and
25 items of five traits (bfi, edges that small cross-loadings do not explain), with a linear decoder. Beside
the time, what was answered: edges *present* from each test to its own ability, and others; doubts that were
filed. `import` is the process that only imports `pyro_sparse`, as a user's first line does; `import_fit`
also imports what fits.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks._common import Row, report_seeds

SEEDS, QUICK_SEEDS = 5, 1
DEFAULT = Path(__file__).resolve().parents[2] / "shared" / "data" / "bfi.csv"
FACTORS = {"holzinger": 3, "bfi": 5}
IMPORTS = {"import": "import pyro_sparse as ps", "import_fit": "import pyro_sparse as ps; ps.fit"}
ANSWER = """
import json, sys
import pyro_sparse as ps
table, path, n_factors, seed = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
loaded = ps.datasets.holzinger() if table == "holzinger" else ps.datasets.load_bfi(path)
model = ps.models.SparseDecoder(n_factors=n_factors, decoder="linear")
fit = ps.fit(model, loaded.x, seed=seed, progress=False)
meaning = "practical" if table == "bfi" else "prior"  # items of a questionnaire load a little on everything
idata = fit.edge_posterior(edge=meaning, progress=False)
edges = ps.summary(idata, fdr=0.1)
present = edges[edges["verdict"] == "present"]
doubts = sum(finding.is_doubt for finding in ps.findings.findings_of(fit, idata))
print(json.dumps({"edges": present[["feature", "factor"]].to_numpy().tolist(), "doubts": doubts}))
"""


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--path", default=str(DEFAULT) if DEFAULT.exists() else None, help="a local bfi.csv")


def tasks(options: argparse.Namespace) -> list[Row]:
    names = [*IMPORTS, "holzinger", *(["bfi"] if options.path else [])]
    return [
        {"table": name, "seed": seed, "path": options.path}
        for seed in report_seeds(options.seeds)
        for name in names
    ]


def run(table: str, seed: int, path: str | None) -> Row:
    if table in IMPORTS:
        return {"answer_cpu_s": process([IMPORTS[table]])[0]}
    seconds, printed = process([ANSWER, table, str(path), str(FACTORS[table]), str(seed)])
    answer = json.loads(printed.splitlines()[-1])
    return {
        "answer_cpu_s": seconds,
        **counts(answer["edges"], scales_of(table, path)),
        "doubts": answer["doubts"],
    }


def process(arguments: list[str]) -> tuple[float, str]:
    """CPU seconds of a Python that runs this, and what it printed."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", *arguments], check=True, capture_output=True, text=True
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, done.stdout


def scales_of(table: str, path: str | None) -> dict[str, str]:
    """Each feature's known scale."""
    from pyro_sparse.datasets import holzinger, load_bfi

    loaded = holzinger() if table == "holzinger" else load_bfi(path)
    return loaded.features["scale"].to_dict()


def counts(edges: list[list[str]], scales: dict[str, str]) -> Row:
    """Edges to the factor of a feature's own scale, the one with most of its edges, and others."""
    from scipy.optimize import linear_sum_assignment

    names, factors = sorted(set(scales.values())), sorted({factor for _, factor in edges})
    table = np.zeros((len(names), max(len(factors), 1)), dtype=int)
    for feature, factor in edges:
        table[names.index(scales[feature]), factors.index(factor)] += 1
    own = int(table[linear_sum_assignment(-table)].sum())
    return {"own_present": own, "of": len(scales), "others_present": len(edges) - own}


def collect(rows: list[Row], options: argparse.Namespace) -> dict[str, Any]:
    """Medians over seeds of CPU seconds; of the answers the worst seed."""
    result: dict[str, Any] = {}
    for name in (*IMPORTS, *FACTORS):
        here = [row for row in rows if row["table"] == name]
        if not here:
            continue
        result[name] = round(float(np.median([row["answer_cpu_s"] for row in here])), 2)
        if name in FACTORS:
            result[f"{name}_answers"] = {
                "own_present_least": min(row["own_present"] for row in here),
                "of": here[0]["of"],
                "others_present_most": max(row["others_present"] for row in here),
                "with_doubts": sum(row["doubts"] > 0 for row in here),
                "n": len(here),
            }
    return result
