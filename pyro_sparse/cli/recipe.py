"""What the commands that fit share: the recipe of a fit, its training whole or in parts, what is written.

A recipe is all that the command line said of table, model and settings. A part of a fit carries its recipe,
so that `merge` needs the parts only.
"""

from __future__ import annotations

import difflib
import json
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

import typer

from .advice import in_options
from .edges_asked import read_edges
from .options import BAD_INPUT, INTERRUPTED, NOTHING_FOUND
from .printing import jsonable, print_edges, print_json, say
from .results_folder import absent_for_report

if TYPE_CHECKING:
    import pandas as pd

    from .._utils.types import ArvizData
    from ..inference import Fit
    from ..likelihoods import Likelihood
    from ..models import SparseDecoder

__all__ = [
    "Recipe",
    "by_halves",
    "finish",
    "likelihood_of",
    "rate_of",
    "shown_in_options",
    "together",
    "train",
    "train_restart",
]

_RATE = "fit_fdr"  # attribute that says at which rate edges of a fit are kept where none is asked for


@dataclass(frozen=True)
class Recipe:
    """Table, model and settings as the command line has them."""

    table: str
    factors: int
    likelihood: str | dict[str, str] = "normal"
    decoder: str = "mlp"
    columns: list[str] | None = None
    drop: list[str] | None = None
    index: str | None = None
    restarts: int = 8
    steps: int | None = None
    seed: int = 0
    device: str = "cpu"
    depth: bool | None = None
    per_row: dict[str, str] = field(default_factory=dict)  # columns that are no features, by what they are
    covariates: list[str] | None = None
    groups: list[str] | None = None
    reading: dict[str, Any] = field(default_factory=dict)  # arguments of `data.files.read_table`
    edges: dict[str, list[str]] = field(default_factory=dict)  # "anchors", "required", "forbidden"
    measured: str | None = None  # as lavaan writes it
    explore: bool = False
    sample_weight: str | None = None
    sample_weight_type: str | None = None

    @classmethod
    def of_parts(cls, paths: list[Path], table: Path | None = None) -> Recipe:
        """The recipe that all parts carry, of a table that may have moved."""
        from ..inference.training.checkpoint import differences, read

        recipes: list[dict[str, Any]] = []
        for path in paths:
            recipes.append(read(path, "part")[0]["recipe"])
            if not recipes[-1]:
                raise ValueError(
                    f"PARTS: {str(path)!r} was written by the library and does not say of which table; "
                    "put it together there, from Python"
                )
            # one fit may have been trained on machines that see the table under several paths
            here, first = ({**recipe, "table": ""} for recipe in (recipes[-1], recipes[0]))
            differs = differences(json.dumps(here), json.dumps(first))
            if differs:
                raise ValueError(
                    f"PARTS: {str(path)!r} is of another fit than {str(paths[0])!r} ({differs}); "
                    "give parts of one fit"
                )
        recipe = cls(**recipes[0])
        return recipe if table is None else replace(recipe, table=str(table))

    def frame(self) -> pd.DataFrame:
        """The table, what is no feature among its columns."""
        from ..data.files import read_table

        wanted = self.columns
        if self.measured is not None:
            from ..models import read_lavaan

            wanted = read_lavaan(self.measured).items
        columns = None if wanted is None else [*wanted, *self.per_row.values()]
        beside = list(dict.fromkeys(self.taken))
        with warnings.catch_warnings(record=True) as notes:
            warnings.simplefilter("always", UserWarning)
            frame = read_table(
                self.table, columns=columns, drop=self.drop, index=self.index, beside=beside, ordered=True,
                **self.reading,
            )  # fmt: skip
        for note in notes:
            say(in_options(str(note.message)).removeprefix("TABLE: "))
        if self.measured is not None:  # as the model has them
            items = list(wanted or [])
            frame = frame[[*items, *(name for name in frame.columns if name not in set(items))]]
        for name, column in self.per_row.items():
            if column not in frame.columns:
                raise ValueError(
                    f"--{name}: the table has no column {column!r}; its columns: "
                    + ", ".join(map(str, frame.columns[:8]))
                    + (" …" if frame.shape[1] > 8 else "")
                )
        return frame

    @property
    def taken(self) -> list[str]:
        """Columns that the fit takes out of the table: covariates, groups and weights."""
        weight = [] if self.sample_weight is None else [self.sample_weight]
        return [*(self.covariates or []), *(self.groups or []), *weight]

    def check_edge(self, edge: str, learn_scales: bool = False) -> None:
        """Complain of what an edge is to mean, where it cannot be asked, before anything is trained."""
        if edge == "practical" and learn_scales:
            raise ValueError("--learn-scales: learns what an edge is, and --edge practical says it; take one")
        if edge == "practical" and self.decoder != "linear":
            raise ValueError(
                f"--edge: practical is of standardised loadings, and this is --decoder {self.decoder}; "
                "wanted --decoder linear"
            )

    def features(self, frame: pd.DataFrame) -> pd.DataFrame:
        """The table without what is no feature."""
        return frame.drop(columns=list(self.per_row.values())) if self.per_row else frame

    def of_rows(self, frame: pd.DataFrame) -> dict[str, pd.Series]:
        """What is no feature, by the name that `pyro_sparse.fit` has for it."""
        return {name: frame[column] for name, column in self.per_row.items()}

    def call(self, frame: pd.DataFrame) -> tuple[SparseDecoder, dict[str, Any]]:
        """The model, and what else `pyro_sparse.fit` is to be given beside `features`."""
        import pyro_sparse as ps

        from ..data.design import ROLES
        from ..data.row_weights import ARGUMENTS

        n_features = self.features(frame).shape[1] - len(self.taken)
        if n_features < 2:
            raise ValueError(f"TABLE: has {n_features} column(s); want at least 2 that may share a factor")
        likelihood = self.likelihood if self.depth is None else self._of_depth(self.depth)
        if self.measured is None:
            model = ps.models.SparseDecoder(
                n_features=n_features, n_factors=self.factors, likelihood=likelihood, decoder=self.decoder,
                **self._known_edges(frame),
            )  # fmt: skip
        else:
            model = ps.models.from_lavaan(
                self.measured, explore=self.explore, likelihood=likelihood, decoder=self.decoder
            )
        settings: dict[str, Any] = {"restarts": self.restarts, "seed": self.seed, "device": self.device}
        settings |= {name: values for name in (*ROLES, *ARGUMENTS) if (values := getattr(self, name))}
        if self.steps is not None:
            settings["steps"] = self.steps
        return model, {**settings, **self.of_rows(frame)}

    def _known_edges(self, frame: pd.DataFrame) -> dict[str, Any]:
        """What is said of single edges, as `SparseDecoder` takes it."""
        columns = [str(name) for name in self.features(frame).columns if name not in set(self.taken)]
        edges = {
            name: read_edges(f"--{name}", lines, columns, self.factors) for name, lines in self.edges.items()
        }
        anchors = dict(edges.pop("anchors", []))
        lines = self.edges.get("anchors", [])
        if len(anchors) < len(read_edges("--anchors", lines, columns, self.factors)):
            raise ValueError("--anchors: a column is an anchor of one factor only, and one is given twice")
        return {"anchors": anchors, **edges}

    def _of_depth(self, taken: bool) -> Likelihood:
        from ..likelihoods import NegativeBinomial, Poisson

        kinds = {kind.name: kind for kind in (Poisson, NegativeBinomial)}
        if not isinstance(self.likelihood, str) or self.likelihood not in kinds:
            raise ValueError(
                f"--{'' if taken else 'no-'}depth: goes with --likelihood {' or '.join(kinds)}, whose rows "
                f"may differ in depth; got {self.likelihood}"
            )
        return kinds[self.likelihood](size_factors=taken)


def likelihood_of(options: list[str] | None) -> str | dict[str, str]:
    """What `--likelihood` says: a name, or the likelihood of columns of several kinds.

    Parameters
    ----------
    options : list of str or None
        One name, or "columns=name" any number of times.

    Raises
    ------
    ValueError
        Names and columns together, a name twice, or columns twice.
    """
    if not options:
        return "normal"
    for option in options:
        _check_likelihood(option.rpartition("=")[2])
    if len(options) == 1 and "=" not in options[0]:
        return options[0]
    plain = [option for option in options if "=" not in option]
    if plain:
        raise ValueError(
            f'--likelihood: {plain[0]!r} names no columns, and others do; write "*={plain[0]}" for all that '
            "no other one means"
        )
    pairs = [option.rpartition("=") for option in options]  # a column's name may have an equals sign
    columns = [name for name, _, _ in pairs]
    if again := next((name for name in columns if columns.count(name) > 1), None):
        raise ValueError(f"--likelihood: {again!r} is given {columns.count(again)} times; leave one of them")
    return {name: kind for name, _, kind in pairs}


def _check_likelihood(name: str) -> None:
    from ..likelihoods import known_likelihoods

    known = known_likelihoods()
    if name not in known:
        close = difflib.get_close_matches(name.lower().replace("-", "_"), known, n=2, cutoff=0.7)
        meant = f"did you mean {' or '.join(close)}? " if close else ""
        raise ValueError(f"--likelihood: {name!r} is none; {meant}There are {', '.join(known)}")


def train(
    recipe: Recipe,
    frame: pd.DataFrame,
    threads: int,
    quiet: bool,
    n_jobs: int = 1,
    checkpoint: Path | None = None,
) -> Fit:
    """The fit; from a checkpoint where there is one."""
    import pyro_sparse as ps

    model, settings = _begin(recipe, frame, threads, quiet)
    with _left_to_finish():
        result: Fit = ps.fit(
            model, recipe.features(frame), n_jobs=n_jobs, progress=not quiet, checkpoint=checkpoint,
            **settings,
        )  # fmt: skip
    return result


def train_restart(
    recipe: Recipe, frame: pd.DataFrame, threads: int, quiet: bool, index: int, out: Path
) -> tuple[Path, float]:
    """Write one restart to `out`; the file, and the seconds it took."""
    import pyro_sparse as ps

    model, settings = _begin(recipe, frame, threads, quiet)
    begun = time.perf_counter()
    path = out / f"restart-{index}.pt"
    kept = asdict(replace(recipe, table=str(Path(recipe.table).resolve())))
    ps.fit_restart(index, path, model, recipe.features(frame), recipe=kept, **settings)
    return path, time.perf_counter() - begun


def together(recipe: Recipe, frame: pd.DataFrame, paths: list[Path], threads: int) -> Fit:
    """The fit of restarts that `train_restart` wrote."""
    import pyro_sparse as ps

    model, settings = _begin(recipe, frame, threads, quiet=True)
    with _left_to_finish():
        result: Fit = ps.merge(paths, model, recipe.features(frame), **settings)
    return result


@contextmanager
def _left_to_finish() -> Iterator[None]:
    """Leave it to `finish` to say that a fit was interrupted, and what a table looks like."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "interrupted|X: ", RuntimeWarning)
        yield


def _begin(
    recipe: Recipe, frame: pd.DataFrame, threads: int, quiet: bool
) -> tuple[SparseDecoder, dict[str, Any]]:
    import torch

    torch.set_num_threads(threads)
    model_and_settings = recipe.call(frame)
    if not quiet:
        features = recipe.features(frame).drop(columns=recipe.taken)
        missing = int(features.isna().sum().sum())
        say(f"{features.shape[0]} rows, {features.shape[1]} features, {missing} missing cells")
        if features.shape[1] > features.shape[0]:
            rows, columns = (", ".join(map(str, names[:2])) for names in (features.index, features.columns))
            say(
                f"more columns than rows: rows are samples ({rows}, …) and columns features ({columns}, …); "
                "where it is the other way round, transpose the table"
            )
    return model_and_settings


def finish(
    result: Fit,
    frame: pd.DataFrame,
    out: Path,
    fdr: float,
    began: float,
    as_json: bool,
    method: str,
    edge_seconds: float,
    per_row: Mapping[str, pd.Series] | None = None,
    edge: str = "prior",
    learn_scales: bool = False,
    max_rows: int | None = None,
    conclude: Callable[[pd.DataFrame], list[str]] | None = None,
    check: Callable[[ArvizData, dict[str, Any]], ArvizData] | None = None,
) -> None:
    """Write everything the fit gives into `out`, say so, and exit with what the fit deserves.

    `frame` has the features only, `per_row` what goes with its rows; `began` is when the command did, by
    `time.perf_counter`; `conclude` makes of the table of edges what else is to be said; `check` looks at edge
    probabilities, and at the options of their chains, once more, and returns them with what it finds.
    """
    import pandas as pd

    import pyro_sparse as ps

    from .._utils.escaping import write_csv
    from ..inference.training.interrupt import cut_short
    from ..pages.of_table import write_table
    from ..posterior.arviz import to_netcdf
    from ..posterior.verdicts import beside_verdict, verdict_of

    of_rows = per_row or {}
    files = {"model": out / "model.pt", "edges": out / "edges.csv"}
    result.save(files["model"])  # first, so that nothing after it can lose the fit
    training_cut = bool(cut_short(result))
    if training_cut and method != "score":
        say("interrupted; edge probabilities of the fit so far come now (Ctrl-C again: its scores instead)")
    asked: dict[str, Any] = {"edge": edge} if edge != "prior" else {}
    asked |= {"learn_scales": True} if learn_scales else {}
    asked |= {} if max_rows is None else {"max_rows": max_rows}
    idata, chains_cut = _edges(result, {"X": frame, **of_rows}, method, edge_seconds, as_json, asked)
    interrupted = training_cut or chains_cut
    if check is not None and not interrupted:
        idata = check(idata, {**asked, "time_budget": edge_seconds})
    idata.attrs[_RATE] = fdr
    edges = ps.summary(idata, fdr=fdr)
    write_csv(edges, files["edges"])
    files["factors"] = out / "factors.csv"
    scores = pd.DataFrame(result.transform(frame, **of_rows), frame.index, result.factor_names)
    write_csv(scores, files["factors"])
    if not absent_for_report():  # `folder` has said so if not
        files["report"] = out / "report.html"
        write_table(result, files["report"], idata, frame, fdr, wording=in_options)
    unwritten: str | None = None
    try:  # last: what it does costs neither table nor report
        files["idata"] = to_netcdf(idata, out / "idata.nc")
    except (ImportError, OSError, ValueError, TypeError) as error:
        unwritten = f"idata.nc could not be written ({error}); all else was"
    seconds = time.perf_counter() - began
    kept, verdict = edges[edges["selected"]], [in_options(sentence) for sentence in verdict_of(idata)]
    if as_json:
        print_json(
            {
                "rows": frame.shape[0],
                "features": len(result.feature_names),
                "factors": result.weights.shape[2],
                "active_factors": int(kept["factor"].nunique()),
                "edges": len(kept),
                "unresolved": int(kept["unresolved"].sum()),
                "fdr": fdr,
                "edge_method": edges.attrs["edge_method"],
                "is_score": edges.attrs["is_score"],
                "best_restart": int(result.best),
                "elbo": jsonable(result.elbo),
                "heldout_elbo": jsonable(result.heldout_elbo),
                "seconds": round(seconds, 2),
                "verdict": verdict,
                "warnings": [in_options(warning) for warning in result.warnings],
                "interrupted": interrupted,
                "unwritten": unwritten,
                "files": {name: str(path) for name, path in files.items()},
            }
        )
    else:
        print_edges(kept, per_factor=8, verdict=verdict)
        for sentence in [] if conclude is None else conclude(edges):
            say(sentence)
        if idata.attrs.get("stopped_by") == "time":
            done, wanted = idata.attrs["sweeps"], idata.attrs["sweeps_wanted"]
            count = f"{done} of {wanted} sweeps"
            say(f"the time limit stopped the chains after {count}; --edge-seconds allows more")
        say(f"done in {seconds:.0f} s; wrote " + ", ".join(str(path) for path in files.values()))
    beside = beside_verdict(result, idata)
    for warning in beside:
        say(f"warning: {in_options(warning)}")
    if beside and not as_json:
        say('pyro-sparse explain "words of a warning" says what it means and what to do')
    if unwritten:
        say(f"pyro-sparse: {unwritten}")
        raise typer.Exit(BAD_INPUT)
    if interrupted:
        raise typer.Exit(INTERRUPTED)
    if kept.empty:
        raise typer.Exit(NOTHING_FOUND)


def by_halves(recipe: Recipe, frame: pd.DataFrame) -> Callable[[ArvizData, dict[str, Any]], ArvizData]:
    """A check of edge probabilities by fits of halves of the rows, as `finish` takes it."""

    def check(idata: ArvizData, of_chains: dict[str, Any]) -> ArvizData:
        import pyro_sparse as ps

        from ..posterior.edge_table import holds_scores

        if holds_scores(idata):
            say("--halves: edges have scores, and there are no probabilities to compare")
            return idata
        say("halves of the rows: two fits more, and their chains")
        model, settings = recipe.call(frame)
        try:
            with _left_to_finish():
                halves = ps.calibrate.halves(
                    model, recipe.features(frame), idata, edges={**of_chains, "progress": False},
                    progress=False, **settings,
                )  # fmt: skip
        except (RuntimeError, ValueError) as error:  # what all rows say is not lost by that
            say(f"--halves: {in_options(str(error)).removeprefix('TABLE: ')}")
            return idata
        except KeyboardInterrupt:
            say("--halves: interrupted, and nothing is said of halves")
            return idata
        say(in_options(str(halves)))
        return halves.idata

    return check


def rate_of(idata: ArvizData, asked: float | None) -> float:
    """The false-discovery rate that is asked for, or that of the fit whose edges these are."""
    return float(idata.attrs.get(_RATE, 0.1)) if asked is None else asked


def shown_in_options(message: Warning | str, *_: object, **__: object) -> None:
    """How a command shows a warning: the sentence, in words of the command line.

    Parameters
    ----------
    message : Warning or str
    """
    say(f"warning: {in_options(str(message))}")


def _edges(
    result: Fit, rows: dict[str, Any], method: str, edge_seconds: float, quiet: bool, asked: dict[str, Any]
) -> tuple[ArvizData, bool]:
    """Edges as an ArviZ object, and whether Ctrl-C cut their chains short: then scores, or fewer sweeps."""
    budget: dict[str, Any] = {}
    if method == "score":
        rows = {"X": rows["X"]}
    else:
        budget = {"time_budget": edge_seconds, "progress": not quiet, **asked}
    try:
        with warnings.catch_warnings():  # the budget has a default, so that many did not ask for one
            warnings.filterwarnings("ignore", ".*; of no use to .*: .*time_budget$", RuntimeWarning)
            warnings.filterwarnings("always", "edge_posterior: time_budget=", RuntimeWarning)
            warnings.showwarning = shown_in_options
            name = cast(Literal["auto", "mcmc", "score"], method)
            idata = result.edge_posterior(name, **rows, **budget)
    except KeyboardInterrupt:
        say("interrupted before there were edge probabilities; edges have the fit's scores instead")
        return result.edge_posterior("score", X=rows["X"]), True
    return idata, bool(idata.attrs.get("interrupted", 0))
