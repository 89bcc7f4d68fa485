"""reading: the films and the genes of each factor of two real tables, as docs/films_and_cells.md shows them.

`--films` is a local copy of MovieLens (`datasets.load_movielens`; the 300 films that most like), `--cells` of
scanpy's PBMC or of the mouse-cortex counts (`cells`; the `--genes` that vary most); `--quick` makes both
tables up. All rows, 15 factors, a linear decoder, yes/no and negative binomial likelihoods, edges that are
more than cross-loadings (`edge="practical"`), otherwise defaults. Prints Markdown: how many edges of each
factor are present, open and absent; and the `--top` features of largest mean loading of each factor, absent
edges left out. P(edge), the standardised loading with its 90 % interval, and P(size >= .3) are those of the
Markov chains. `--keep FOLDER` writes fit and draws there, and makes the tables again from draws that are
there.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import pandas as pd

from benchmarks import cells, films
from benchmarks._common import Row, report_seeds
from benchmarks._peers import QUICK_FIT, QUICK_SWEEPS, cpu

SEEDS, QUICK_SEEDS = 1, 1
N_FACTORS, QUICK_FACTORS = 15, 3
TOP = 5
VERDICTS = ("present", "open", "absent")
LIKELIHOOD = {"films": "bernoulli", "cells": cells.LIKELIHOOD}
FEATURE = {"films": "film", "cells": "gene"}


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--films", help="a local copy of MovieLens (100k, 20M or 25M), folder or archive")
    parser.add_argument("--cells", help="a local copy of PBMC (.h5ad) or of cortex counts (.rda, .csv)")
    parser.add_argument("--users", type=int, default=5000, help="at most as many users (default 5000)")
    parser.add_argument("--genes", type=int, default=cells.N_GENES, help="how many (default 200)")
    parser.add_argument("--factors", type=int, help=f"offered (default {N_FACTORS})")
    parser.add_argument("--top", type=int, default=TOP, help=f"features of a factor (default {TOP})")
    parser.add_argument("--keep", type=Path, help="folder for fits and draws")
    parser.add_argument("--first-seed", type=int, default=0, help="begin at this seed (1000 and up: tuning)")


def tasks(options: argparse.Namespace) -> list[Row]:
    paths = {"films": options.films, "cells": options.cells}
    if not options.quick and not any(paths.values()):
        raise SystemExit("reading: --films FOLDER with MovieLens, --cells FILE with PBMC, or both")
    return [
        {
            "data": data,
            "path": path,
            "seed": options.first_seed + seed,
            "size": options.users if data == "films" else options.genes,
            "n_factors": options.factors or (QUICK_FACTORS if options.quick else N_FACTORS),
            "top": options.top,
            "keep": None if options.keep is None else str(options.keep),
            "quick": options.quick,
        }
        for seed in report_seeds(options.seeds)
        for data, path in paths.items()
        if path or options.quick
    ]


def run(
    data: str, path: str | None, seed: int, size: int, n_factors: int, top: int, keep: str | None, quick: bool
) -> Row:
    import pyro_sparse as ps
    from pyro_sparse.posterior.arviz import from_netcdf, to_netcdf

    x = loaded(data, path, size)
    draws = None if keep is None else Path(keep) / f"{data}_{n_factors}_{seed}.nc"
    cost: Row = {}
    if draws is not None and draws.exists():
        idata = from_netcdf(draws)
    else:
        model = ps.models.SparseDecoder(n_factors=n_factors, decoder="linear", likelihood=LIKELIHOOD[data])
        start = cpu()
        fit = ps.fit(model, x, seed=seed, progress=False, **(QUICK_FIT if quick else {}))
        fitted_at = cpu()
        shorter = {"sweeps": QUICK_SWEEPS, "num_draws": 10} if quick else {}
        idata = fit.edge_posterior("mcmc", edge="practical", progress=False, **shorter)
        cost = {"cpu_fit": fitted_at - start, "cpu_edges": cpu() - fitted_at}
        if draws is not None:
            draws.parent.mkdir(parents=True, exist_ok=True)
            fit.save(draws.with_suffix(".pt"))
            to_netcdf(idata, draws)
    edges = ps.summary(idata)
    return {
        "shape": list(x.shape),
        **cost,
        "verdict": idata.attrs["verdict"],
        "factors": factors_of(edges),
        "features": top_features(edges, top),
    }


def loaded(data: str, path: str | None, size: int) -> pd.DataFrame:
    """A table with the names of its columns; made up without a path."""
    if data == "cells":
        x, _, names = cells.loaded(path, size)
        return pd.DataFrame(x, columns=names)
    likes = pd.DataFrame(films.loaded(path, size)).rename(columns="film {}".format)
    if path is None:
        return likes
    from pyro_sparse.datasets import load_movielens

    return likes.set_axis(load_movielens(path, n_users=size).features.index, axis=1)


def factors_of(edges: pd.DataFrame) -> list[Row]:
    """How many edges of each factor are present, open and absent; and how many are surely large."""
    large = edges.columns[edges.columns.str.startswith("p_salient")][0]
    counts = pd.crosstab(edges["factor"], edges["verdict"]).reindex(columns=VERDICTS, fill_value=0)
    counts["large"] = (edges[large] >= 0.95).groupby(edges["factor"]).sum()
    order = sorted(counts.index, key=lambda name: int(name.rsplit(" ", 1)[-1]))
    rows: list[Row] = counts.loc[order].reset_index().to_dict("records")
    return rows


def top_features(edges: pd.DataFrame, top: int) -> list[Row]:
    """Of each factor with a loading whose edge is not absent, the features with the largest ones."""
    columns = [
        "factor",
        "feature",
        "probability",
        "weight",
        "hdi90_lb",
        "hdi90_ub",
        "p_salient_0.3",
        "verdict",
    ]
    some = edges.loc[(edges["verdict"] != "absent") & (edges["weight"] != 0), columns]
    some = some.loc[some["weight"].abs().sort_values(ascending=False, kind="stable").index]
    some = some.groupby("factor").head(top)
    number = some["factor"].str.rsplit(" ", n=1).str[-1].astype(int)
    rows: list[Row] = some.loc[number.sort_values(kind="stable").index].to_dict("records")
    return rows


def markdown(rows: list[Row]) -> str:
    """What the docs show, one part a table and seed."""
    return "\n\n".join("\n\n".join(_part(row)) for row in rows)


def _part(row: Row) -> list[str]:
    feature = FEATURE[row["data"]]
    lines, columns = row["shape"]
    factors = [[f["factor"], *(str(f[name]) for name in (*VERDICTS, "large"))] for f in row["factors"]]
    features = [
        [
            f["factor"],
            f["feature"].replace("|", "\\|"),
            _number(f["probability"]),
            f"{_number(f['weight'])} [{_number(f['hdi90_lb'])}, {_number(f['hdi90_ub'])}]",
            _number(f["p_salient_0.3"]),
            f["verdict"],
        ]
        for f in row["features"]
    ]
    return [
        f"### {row['data']}, seed {row['seed']}: {lines} rows, {columns} columns",
        _table(["factor", *VERDICTS, "P(size ≥ .3) ≥ .95"], factors),
        _table(["factor", feature, "P(edge)", "loading", "P(size ≥ .3)", "verdict"], features),
        "\n".join(f"> {line}" for line in row["verdict"].splitlines()),
    ]


def _table(head: list[str], rows: list[list[str]]) -> str:
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (head, ["---"] * len(head), *rows))


def _number(value: float) -> str:
    """Two digits without a leading zero, with a minus sign proper; no sign of what is rounded to zero."""
    digits = f"{abs(value):.2f}"
    return "−" * (value < 0 and float(digits) > 0) + digits.removeprefix("0")


def collect(rows: list[Row], options: argparse.Namespace) -> Row:
    """{table: [how many edges of each factor, per seed]}."""
    return {
        data: [row["factors"] for row in rows if row["data"] == data]
        for data in dict.fromkeys(row["data"] for row in rows)
    }


def table(rows: list[Row]) -> list[Row]:
    """One line a table and seed: edges of all factors by verdict."""
    return [
        {"data": row["data"], "seed": row["seed"]}
        | {name: sum(f[name] for f in row["factors"]) for name in (*VERDICTS, "large")}
        | {name: row[name] for name in ("cpu_fit", "cpu_edges") if name in row}
        for row in rows
    ]
