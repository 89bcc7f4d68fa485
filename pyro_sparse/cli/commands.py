"""The command line: a table in, a folder with the fit, its edges and a report out.

Every command prints for people, or with `--json` one JSON object on standard output; all else goes to
standard error. Exit codes: 0 done, 2 bad input (the message says how to fix it), 3 done but not one edge was
kept, 130 interrupted (what there is has been saved).
"""

from __future__ import annotations

import csv
import os
import shlex
import sys
import time
import warnings
from pathlib import Path
from typing import Annotated, NoReturn

try:
    import typer

    from .._utils.paths import file_to_write
    from .advice import in_options
    from .choices import Decoder, EdgeMeaning, EdgeMethod, Generator, WeightType
    from .edges_asked import model_text
    from .explain import explained
    from .options import (
        BAD_INPUT,
        EXIT_CODES,
        INTERRUPTED,
        NOTHING_FOUND,
        Anchors,
        Decimal,
        Encoding,
        Explore,
        Forbidden,
        Force,
        Layer,
        LearnScales,
        MaxRows,
        Missing,
        ModelText,
        Required,
        Resume,
        Sep,
        Sheet,
        Thousands,
        reading_of,
    )
    from .printing import jsonable, print_doctor, print_edges, print_explanations, print_json, records, say
    from .recipe import (
        Recipe,
        by_halves,
        finish,
        likelihood_of,
        rate_of,
        shown_in_options,
        together,
        train,
        train_restart,
    )
    from .results_folder import CHECKPOINT, refuse_results, results_folder, resumable
except ModuleNotFoundError as error:  # pragma: no cover
    raise SystemExit(f"pyro-sparse needs {error.name}; fix: pip install 'pyro-sparse[cli]'") from None

__all__ = ["BAD_INPUT", "INTERRUPTED", "NOTHING_FOUND", "app", "main"]

app = typer.Typer(
    no_args_is_help=True,
    epilog=EXIT_CODES,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    help="Which feature depends on which latent factor, and how sure you can be.\n\n"
    "Start with [bold]pyro-sparse demo[/bold], then [bold]pyro-sparse fit TABLE[/bold].",
)


Json = Annotated[
    bool, typer.Option("--json", help="Print one JSON object on standard output and nothing else.")
]
Fdr = Annotated[
    float, typer.Option(min=0.0, max=1.0, help="Bayesian false-discovery rate at which edges are kept.")
]
OfFit = Annotated[
    float | None,
    typer.Option("--fdr", min=0.0, max=1.0, help="False-discovery rate; by default what the fit was given."),
]
Salient = Annotated[
    float,
    typer.Option(help="Size of a standardised loading, whose probability stands beside that of the edge."),
]
SalientOnly = Annotated[
    bool, typer.Option("--salient-only", help="Count only loadings of at least that size as edges.")
]
Edges = Annotated[
    EdgeMethod,
    typer.Option(help="Probabilities by Markov chains from the fit (mcmc), or its own scores (score)."),
]
Meaning = Annotated[
    EdgeMeaning,
    typer.Option(
        "--edge",
        help="What an edge is: a weight from the prior's slab (prior), or a standardised loading that small "
        "cross-loadings do not explain (practical; questionnaires; with --decoder linear).",
    ),
]
EdgeSeconds = Annotated[
    float, typer.Option(min=1.0, help="Seconds after which the chains stop, once they have warmed up.")
]
Out = Annotated[
    Path, typer.Option("--out", "-o", help="Folder for the results; created if it does not exist.")
]
Folder = Annotated[Path, typer.Argument(help="Folder that `pyro-sparse fit` wrote.", show_default=False)]
Seed = Annotated[
    int,
    typer.Option(min=0, help="Seed for all random numbers; without time limits it determines the result."),
]
Restarts = Annotated[
    int, typer.Option(min=1, help="Starts trained together; the best is kept, all are compared.")
]
Steps = Annotated[int | None, typer.Option(min=1, help="Gradient steps; by default the library's choice.")]
Threads = Annotated[int, typer.Option(min=1, help="Processor threads; more make small models slower.")]
Factors = Annotated[
    int,
    typer.Option("--factors", "-k", help="Upper bound on the number of factors; surplus ones end up empty."),
]


@app.command(epilog=EXIT_CODES)
def fit(
    table: Annotated[
        Path,
        typer.Argument(
            help=".csv, .tsv, .txt, .xlsx, .sav, .dta, .parquet, .feather, .h5ad, .h5mu or .npz; a row for "
            "each sample, a column for each feature; empty cells are missing."
        ),
    ],
    factors: Annotated[
        int | None,
        typer.Option(
            "--factors",
            "-k",
            help="Upper bound on the number of factors; surplus ones end up empty. By default 5.",
        ),
    ] = None,
    likelihood: Annotated[
        list[str] | None,
        typer.Option(
            "--likelihood",
            "-l",
            metavar="NAME",
            help="normal (measurements, the default), student_t (with outliers), bernoulli (0/1), "
            "ordinal (levels), probit (0/1 or levels, as in polychoric correlations), "
            "beta (shares between 0 and 1), poisson, negative_binomial or "
            "zero_inflated_negative_binomial (counts), hurdle_poisson or hurdle_negative_binomial (counts, "
            "whose zeros the factors do not move), multinomial (counts that share a total), "
            "categorical (0/1, one column for each category: one-hot), auto (by column); or, for columns of "
            "several kinds, "
            '"grade*=ordinal" as often as there are kinds, with "*=normal" or "*=auto" for all others.',
        ),
    ] = None,
    depth: Annotated[
        bool | None,
        typer.Option(
            "--depth/--no-depth",
            help="Whether rows' totals are their depth (poisson, negative_binomial), and no finding; by "
            "default as the table tells.",
        ),
    ] = None,
    exposure: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN",
            help="Column with each row's exposure (time, area, depth), to which its counts are in "
            "proportion.",
        ),
    ] = None,
    covariates: Annotated[
        list[str] | None,
        typer.Option(
            metavar="COLUMNS",
            help="Columns with numbers or categories (age, sex) whose effects on the features are none of "
            "the factors', separated by commas.",
        ),
    ] = None,
    groups: Annotated[
        list[str] | None,
        typer.Option(
            metavar="COLUMNS",
            help="Columns that say which rows belong together (batch, school, person): factors are those "
            "within groups.",
        ),
    ] = None,
    sample_weight: Annotated[
        str | None,
        typer.Option(metavar="COLUMN", help="Column that says how much each row counts."),
    ] = None,
    sample_weight_type: Annotated[
        WeightType | None,
        typer.Option(
            help="What the weights mean: so many identical rows (frequency), or how many members of a "
            "population a row speaks for (survey; with --decoder linear).",
        ),
    ] = None,
    decoder: Annotated[
        Decoder | None,
        typer.Option(help="Curved (mlp) or straight (linear) dependence. By default mlp."),
    ] = None,
    columns: Annotated[
        list[str] | None,
        typer.Option(
            metavar="COLUMNS",
            help='Columns to use: names or patterns, separated by commas ("quoted" as in CSV).',
        ),
    ] = None,
    drop: Annotated[
        list[str] | None, typer.Option(metavar="COLUMNS", help="Columns to leave out, as in --columns.")
    ] = None,
    index: Annotated[str | None, typer.Option(metavar="COLUMN", help="Column with row names.")] = None,
    sep: Sep = None,
    decimal: Decimal = None,
    thousands: Thousands = None,
    encoding: Encoding = None,
    missing: Missing = None,
    sheet: Sheet = None,
    layer: Layer = None,
    anchors: Anchors = None,
    required: Required = None,
    forbidden: Forbidden = None,
    model: ModelText = None,
    explore: Explore = False,
    restarts: Restarts = 8,
    steps: Steps = None,
    seed: Seed = 0,
    fdr: Fdr = 0.1,
    edges: Edges = EdgeMethod.auto,
    edge: Meaning = EdgeMeaning.prior,
    edge_seconds: EdgeSeconds = 120.0,
    learn_scales: LearnScales = False,
    max_rows: MaxRows = None,
    halves: Annotated[
        bool,
        typer.Option(
            "--halves",
            help="Fit halves of the rows, too, and say whether their edge probabilities hold by all rows "
            "(some two to three times as long).",
        ),
    ] = False,
    threads: Threads = 1,
    device: Annotated[
        str, typer.Option(help="Where to compute; `pyro-sparse doctor` lists what there is.")
    ] = "cpu",
    n_jobs: Annotated[
        int, typer.Option(help="Processes that share the restarts; one is quicker for small tables.")
    ] = 1,
    restart_index: Annotated[
        int | None,
        typer.Option(
            min=0, help="Train this restart only, from 0, and write it to --out for `pyro-sparse merge`."
        ),
    ] = None,
    out: Out = Path("fit"),
    resume: Resume = False,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Fit a sparse factor model to a table.

    Writes to --out: [bold]report.html[/bold] (open this), [bold]edges.csv[/bold] (one row per feature and
    factor), [bold]factors.csv[/bold] (one row per sample), [bold]idata.nc[/bold] (for ArviZ) and
    [bold]model.pt[/bold] (the fit, for `pyro-sparse report`, and for Python).

    Examples:

      pyro-sparse fit answers.csv --factors 5 --drop "gender,education,age" --index rownames

      pyro-sparse fit answers.xlsx --sheet "wave 2" --missing 999 --anchors "factor 1=q1,q2"

      pyro-sparse fit cells.h5ad --layer counts -k 20 -l negative_binomial --out cells

      pyro-sparse fit survey.csv -k 4 -l "q*=ordinal" -l "*=auto" --covariates "age,sex" --groups school

      torchrun --nproc-per-node 2 -m pyro_sparse fit cells.h5ad -k 20 --out cells
    """
    from ..inference.training.ranks import first_rank

    known = {"anchors": anchors, "required": required, "forbidden": forbidden}
    _check_model(model, explore, {"factors": factors, "columns": columns, "drop": drop, **known})
    recipe = Recipe(
        str(table), 5 if factors is None else factors, likelihood_of(likelihood),
        str(decoder or (Decoder.mlp if model is None else Decoder.linear)),
        _split(columns), _split(drop), index,
        restarts, steps, seed, device, depth, {} if exposure is None else {"exposure": exposure},
        _split(covariates), _split(groups),
        reading_of(sep, decimal, thousands, encoding, missing, sheet, layer),
        {name: lines for name, lines in known.items() if lines},
        None if model is None else model_text(model), explore, sample_weight,
        None if sample_weight_type is None else str(sample_weight_type),
    )  # fmt: skip
    began = time.perf_counter()
    recipe.check_edge(str(edge), learn_scales)
    if resume and (restart_index is not None or n_jobs != 1):
        other = "--n-jobs" if restart_index is None else "--restart-index"
        raise ValueError(f"--resume: nothing is written before the end with {other}; leave one of them out")
    if restart_index is None:
        refuse_results(out, force, resume)
    frame = recipe.frame()
    checkpoint = out / CHECKPOINT if restart_index is None and n_jobs == 1 else None
    # torchrun's processes share the folder, and their group is not there yet: only the first one locks it
    with results_folder(out, alone=restart_index is None and os.environ.get("RANK", "0") == "0"):
        if restart_index is None:
            first = os.environ.get("RANK", "0") == "0"
            with resumable(out, checkpoint, begin_anew=force and first):
                result = train(recipe, frame, threads, as_json, n_jobs, checkpoint)
                if first_rank():
                    finish(
                        result, recipe.features(frame), out, fdr, began, as_json, str(edges), edge_seconds,
                        recipe.of_rows(frame), str(edge), learn_scales, max_rows,
                        check=by_halves(recipe, frame) if halves else None,
                    )  # fmt: skip
            return
        path, seconds = train_restart(recipe, frame, threads, as_json, restart_index, out)
    if as_json:
        print_json({"restart": restart_index, "part": str(path), "seconds": round(seconds, 2)})
    else:
        to = shlex.quote(str(out))
        say(f"wrote {path}; with those of all restarts: pyro-sparse merge {to}/restart-*.pt -o {to}")


@app.command()
def merge(
    parts: Annotated[
        list[Path], typer.Argument(help="Files that `fit --restart-index` wrote.", show_default=False)
    ],
    table: Annotated[
        Path | None, typer.Option(help="The table, if it has moved since the restarts read it.")
    ] = None,
    fdr: Fdr = 0.1,
    edges: Edges = EdgeMethod.auto,
    edge: Meaning = EdgeMeaning.prior,
    edge_seconds: EdgeSeconds = 120.0,
    learn_scales: LearnScales = False,
    max_rows: MaxRows = None,
    threads: Threads = 1,
    out: Out = Path("fit"),
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Put restarts together that `fit --restart-index` trained one by one, as the jobs of a job array do.

    Writes to --out what `fit` writes: the same numbers, up to rounding. Parts of different tables, models,
    seeds or settings are refused, and so is a restart that is there twice; missing ones are warned of.

    Example:

      pyro-sparse merge fit/restart-*.pt --out fit
    """
    began = time.perf_counter()
    recipe = Recipe.of_parts(parts, table)
    recipe.check_edge(str(edge), learn_scales)
    if not any(out.glob("restart-*.pt")):  # beside its parts a fit may be put together again
        refuse_results(out, force, resume=False)
    frame = recipe.frame()
    with results_folder(out):
        result = together(recipe, frame, parts, threads)
        finish(
            result, recipe.features(frame), out, fdr, began, as_json, str(edges), edge_seconds,
            recipe.of_rows(frame), str(edge), learn_scales, max_rows,
        )  # fmt: skip


@app.command()
def demo(
    factors: Factors = 3,
    restarts: Restarts = 8,
    steps: Steps = None,
    seed: Seed = 0,
    threads: Threads = 1,
    fdr: Fdr = 0.1,
    edges: Edges = EdgeMethod.auto,
    edge_seconds: EdgeSeconds = 120.0,
    out: Out = Path("demo"),
    as_json: Json = False,
) -> None:
    """Fit nine tests of 301 pupils that come with the package, and compare with the known answer.

    Three tests each were made to measure a visual, a verbal and a speed ability (Holzinger and Swineford
    1939). The fit is told nothing of that. Which tests go together?

    Example:

      pyro-sparse demo --out demo
    """
    began = time.perf_counter()
    from ..datasets import holzinger
    from .known_answer import compared

    table = holzinger()
    frame = table.x.rename(columns=table.features["test"])
    scales = dict(zip(frame.columns, table.features["scale"], strict=True))
    recipe = Recipe("", factors, decoder="linear", restarts=restarts, steps=steps, seed=seed)
    with results_folder(out):
        result = train(recipe, frame, threads, as_json)
        finish(
            result, frame, out, fdr, began, as_json, str(edges), edge_seconds,
            conclude=lambda edges: compared(edges, scales),
        )  # fmt: skip


@app.command()
def summary(
    folder: Folder,
    fdr: OfFit = None,
    salient: Salient = 0.3,
    salient_only: SalientOnly = False,
    all_edges: Annotated[bool, typer.Option("--all", help="Also the edges that are not kept.")] = False,
    as_json: Json = False,
) -> None:
    """Print the edges of a fit at a false-discovery rate.

    Example:

      pyro-sparse summary fit --fdr 0.05 --salient 0.4
    """
    import pyro_sparse as ps

    from ..posterior.arviz import from_netcdf
    from ..posterior.verdicts import verdict_of

    idata = from_netcdf(_inside(folder, "idata.nc"))
    rate = rate_of(idata, fdr)
    if salient_only:
        idata = ps.salient_edges(idata, salient)
    edges = ps.summary(idata, fdr=rate, selected_only=not all_edges, salient=salient)
    verdict = [in_options(sentence) for sentence in verdict_of(idata)]
    if as_json:
        about = {"verdict": verdict, "unresolved": int(edges["unresolved"].sum())}
        print_json({"fdr": rate, **jsonable(edges.attrs), **about, "edges": records(edges)})
    else:
        print_edges(edges, verdict=verdict)


@app.command()
def report(
    folder: Folder,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="File to write; by default FOLDER/report.html.")
    ] = None,
    fdr: OfFit = None,
    salient: Salient = 0.3,
    salient_only: SalientOnly = False,
    as_json: Json = False,
) -> None:
    """Write the HTML report of a fit again, for instance after an upgrade.

    Example:

      pyro-sparse report fit --out report.html
    """
    import pyro_sparse as ps

    from ..pages.of_table import write_table
    from ..posterior import arviz as _arviz

    result, idata = ps.load(_inside(folder, "model.pt")), _arviz.from_netcdf(_inside(folder, "idata.nc"))
    kept = "observed_data" in _arviz.group_names(idata)  # large tables are not
    data = _arviz.get_group(idata, "observed_data")["x"].to_numpy() if kept else None
    path = folder / "report.html" if out is None else out
    write_table(
        result, path, idata, data, rate_of(idata, fdr), salient=salient, salient_only=salient_only,
        wording=in_options,
    )  # fmt: skip
    if as_json:
        print_json({"report": str(path)})
    else:
        say(f"wrote {path}")


@app.command()
def simulate(
    generator: Annotated[Generator, typer.Option(help="What to simulate.")] = Generator.sim1,
    rows: Annotated[int, typer.Option(min=2, help="Rows of the table.")] = 1000,
    rho: Annotated[
        float | None, typer.Option(help="Correlation of the factors (sim1, anchored60); by default 0.")
    ] = None,
    noise: Annotated[
        float | None,
        typer.Option(help="Standard deviation of the noise (sim1, anchored60); by default 0.5."),
    ] = None,
    seed: Seed = 0,
    out: Annotated[Path, typer.Option("--out", "-o", help="CSV file to write.")] = Path("simulated.csv"),
    as_json: Json = False,
) -> None:
    """Write a simulated table, and beside it the true graph, to try the method on.

    Example:

      pyro-sparse simulate --generator sim1 --rows 1000 --out sim1.csv && pyro-sparse fit sim1.csv --factors 2
    """
    import pandas as pd

    from .. import datasets
    from .._utils.escaping import write_csv

    out = file_to_write(out, "simulated.csv", "--out")
    settings = {name: value for name, value in {"rho": rho, "noise": noise}.items() if value is not None}
    if generator is Generator.topics:
        if settings:
            raise ValueError(f"--{next(iter(settings))}: topics have no such setting; leave it out")
        drawn = datasets.topic_counts(rows, seed=seed)
    elif generator is Generator.anchored60:
        drawn = datasets.anchored60(rows, n_test=0, seed=seed, **settings)
    else:
        drawn = datasets.sim1(rows, seed=seed, **settings)
    truth = out.with_suffix(".truth.csv")
    x = drawn.frame.iloc[drawn.splits["train"]] if generator is Generator.topics else drawn.frame
    write_csv(x, out, index=False)
    write_csv(pd.DataFrame(drawn.support, index=drawn.feature_names, columns=drawn.factor_names), truth)
    if as_json:
        size = {"rows": x.shape[0], "features": x.shape[1], "factors": len(drawn.factor_names)}
        print_json({"table": str(out), "truth": str(truth), **size, "edges": int(drawn.support.sum())})
    else:
        say(f"wrote {out} ({x.shape[0]} rows, {x.shape[1]} features) and the true graph {truth}")


@app.command()
def doctor(as_json: Json = False) -> None:
    """Say what is installed: versions, threads, devices, extras. Paste this into a bug report.

    Example:

      pyro-sparse doctor --json
    """
    from .environment import installed

    facts = installed()
    if as_json:
        print_json(facts)
    else:
        print_doctor(facts)
    if not facts["ok"]:
        raise typer.Exit(1)


@app.command()
def explain(
    warning: Annotated[
        list[str],
        typer.Argument(
            help="The text of a warning or of the verdict, or a distinctive part of it.", metavar="WARNING"
        ),
    ],
    as_json: Json = False,
) -> None:
    """Say what a warning means, what it touches, and what to do about it.

    Example:

      pyro-sparse explain "no other restart found factor 2"
    """
    explanations = explained(" ".join(warning))
    if as_json:
        print_json({"explanations": [entry._asdict() for entry in explanations]})
        return
    print_explanations(explanations)


def main() -> NoReturn:
    """Run the command line and exit; a complaint about input becomes a message and exit code 2."""
    warnings.showwarning = shown_in_options
    try:
        try:
            app()
        finally:
            _flush()
    except (ValueError, TypeError, OSError, ImportError, KeyError, MemoryError) as error:
        if os.environ.get("PYRO_SPARSE_TRACEBACK"):
            raise
        text = str(error.args[0]) if isinstance(error, KeyError) and error.args else str(error)
        if isinstance(error, MemoryError):
            text = f"not enough memory ({text or 'no more is said'}); give fewer rows, columns or factors"
        say(f"pyro-sparse: {in_options(text) or type(error).__name__}")
        say("(--help after a command shows its options and an example)")
        sys.exit(BAD_INPUT)
    sys.exit(0)


def _flush() -> None:
    """Bring standard output out now: at the exit of Python it is too late for a message."""
    try:
        sys.stdout.flush()
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # what is left has nowhere to go
        raise OSError(f"standard output: could not be written ({error.strerror}); make room") from error


def _split(values: list[str] | None) -> list[str] | None:
    """Options may be repeated, and each may hold several names separated by commas, as a line of CSV."""
    names = [name.strip() for line in csv.reader(values or [], skipinitialspace=True) for name in line]
    return [name for name in names if name] if values else None


def _check_model(model: str | None, explore: bool, others: dict[str, object]) -> None:
    """Complain of options that say what `--model` says."""
    if model is None:
        if explore:
            raise ValueError("--explore: is of what --model expects, and there is none; leave it out")
        return
    if said := [f"--{name}" for name, value in others.items() if value is not None]:
        raise ValueError(f"{said[0]}: --model says that; leave one of them out")


def _inside(folder: Path, name: str) -> Path:
    if not (folder / name).is_file():
        raise FileNotFoundError(
            f"FOLDER: {str(folder)!r} has no {name}; give a folder that `pyro-sparse fit` wrote"
        )
    return folder / name


if __name__ == "__main__":
    main()
