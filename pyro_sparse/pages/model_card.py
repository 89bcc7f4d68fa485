"""The model card at the end of a page: data, model, inference, versions, and the call that repeats it."""

from __future__ import annotations

import hashlib
import json
import platform
from collections.abc import Mapping
from dataclasses import MISSING, fields
from importlib import metadata
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

from .. import likelihoods, models, priors
from .._utils.recorded import Recorded
from ..data.design import features_of
from ..data.ordered_categories import labels_of
from ..data.read import read_like
from ..data.stores import store_of
from ..inference.registry import kind_of
from ..posterior.arviz import get_group, group_names
from .conclusion import counted

if TYPE_CHECKING:
    from .._utils.types import ArvizData, TableLike
    from ..inference.training.fit_result import FitResult

__all__ = ["model_card"]

Facts: TypeAlias = list[tuple[str, str]]

_LIBRARIES = ("pyro-sparse", "pyro-ppl", "torch", "numpy", "scipy", "scikit-learn", "arviz", "matplotlib")
_MOST_HASHED = 20_000_000  # cells, about a tenth of a second
_ARRAY_LIMIT = 20  # numbers of an array that are written out in the call


def model_card(
    fit: FitResult, idata: ArvizData, fdr: float, size: Facts, X: TableLike | None = None
) -> dict[str, Any]:
    """All that the next reader needs to judge the result, or to make it again.

    Parameters
    ----------
    fit : Fit, ProgramFit, TransitionFit or MultiTaskFit
    idata : InferenceData or DataTree
    fdr : float
    size : list of (str, str)
        How much data there was, in the terms of the kind of fit.
    X : array_like of shape (sample, feature), optional
        The data of a table, for their hash.

    Returns
    -------
    dict
        `sections`, each a title with its facts; `settings`, all of the fit's; `code`, the call that repeats
        it, empty where the fit does not know it; and `beside`, what that call leaves out.
    """
    code, beside = _call(fit)
    sections = [
        ("Data", [*size, *_cells(fit, idata, X)]),
        ("Model", _model(fit)),
        ("Inference", _inference(fit, idata, fdr)),
        ("Versions", [("Python", platform.python_version()), *_versions()]),
    ]
    return {
        "sections": [{"title": title, "facts": facts} for title, facts in sections],
        "settings": [(key, _plain(value)) for key, value in dict(fit.settings).items()],
        "code": code,
        "beside": beside,
    }


def _plain(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, default=str)


def _cells(fit: Any, idata: ArvizData, X: TableLike | None) -> Facts:
    """The share of missing cells and a hash, where the cells are at hand in the caller's units."""
    cells = _in_units(fit, idata, X)
    if cells is None:
        mask, known = _mask(fit)
        if not known:
            return [("missing cells", "not known here: the fit was loaded without its data")]
        missing = 0.0 if mask is None else 1 - float(np.mean(mask))
        return [("missing cells", _share(missing))]
    facts = [("missing cells", _share(float(np.isnan(cells).mean())))]
    if cells.size <= _MOST_HASHED:
        numbers = np.ascontiguousarray(np.where(np.isnan(cells), np.nan, cells), dtype="<f8")
        digest = hashlib.sha256(numbers.tobytes()).hexdigest()
        facts.append(("SHA-256 of the cells", f"{digest} (as 64-bit floats, row by row)"))
    return facts


def _in_units(fit: Any, idata: ArvizData, X: TableLike | None) -> NDArray[np.float64] | None:
    table, data = getattr(fit, "table", None), getattr(fit, "data", None)
    if X is not None and table is not None and store_of(X) is None:
        return np.asarray(read_like(features_of(X, table.taken), fit.feature_names, labels_of(fit.model)))
    if data is not None and hasattr(data, "seen"):
        return np.where(data.seen, data.x, np.nan)
    if "observed_data" in group_names(idata):
        return get_group(idata, "observed_data")["x"].to_numpy()
    return None


def _mask(fit: Any) -> tuple[NDArray[np.bool_] | None, bool]:
    """Which cells were seen (None: all), and whether the data are here to be asked."""
    names = ("table", "sequences", "tasks")
    data: Any = next((getattr(fit, name) for name in names if hasattr(fit, name)), None)
    here = data is not None and len(getattr(data, "x", ())) > 0 and hasattr(data, "mask")
    mask = getattr(data, "mask", None)
    if mask is not None and hasattr(data, "lengths"):  # rows that only fill up a sequence are none
        lengths = np.asarray(data.lengths)
        real = np.arange(np.shape(mask)[1])[None, :] < lengths[:, None]
        if np.shape(mask)[:2] == real.shape:
            mask = np.asarray(mask)[real]
    return mask, here


def _share(value: float) -> str:
    return "none" if value == 0 else f"{100 * value:.2g} %"


def _model(fit: Any) -> Facts:
    model = fit.model
    if model is None:  # of a fit that was put together by hand
        known = {
            name: str(fit.settings[name]) for name in ("model", "likelihood", "prior") if name in fit.settings
        }
        return list(known.items())
    facts = [("model", repr(model))]
    likelihood, prior = getattr(model, "likelihood", None), getattr(model, "prior", None)
    if likelihood is not None:
        facts.append(("likelihood", str(getattr(likelihood, "name", type(likelihood).__name__))))
    if prior is not None:
        facts.append(("prior of the weights", _of_prior(prior)))
        facts += _learned(fit, prior)
    if hasattr(fit, "factor_cov"):
        independent = np.allclose(fit.factor_cov, np.diag(np.diag(fit.factor_cov)))
        facts.append(("factors", "independent" if independent else "correlated"))
    return facts


def _of_prior(prior: Any) -> str:
    if not hasattr(prior, "get_params"):
        return repr(prior)
    given = {name: value for name, value in prior.get_params().items() if value is not None}
    return f"{type(prior).__name__}({', '.join(f'{name}={value!r}' for name, value in given.items())})"


def _learned(fit: Any, prior: Any) -> Facts:
    """Numbers of the prior that the fit found: its rates, and the spike where the ladder chose it."""
    facts = []
    state = dict(prior.named_buffers()) if hasattr(prior, "named_buffers") else {}
    scale = state.get("lambda0")
    if scale is not None and scale.numel() == 1:
        facts.append(("rate of the spike, as fitted", f"{float(scale):.4g}"))
    eta = np.asarray(getattr(fit, "eta", np.nan), dtype=float)
    if eta.ndim and np.isfinite(eta).any():
        rates = eta[int(fit.best)]
        facts.append(
            ("share of edges of each factor, as fitted", ", ".join(f"{value:.2f}" for value in rates[:30]))
        )
    return facts


def _inference(fit: Any, idata: ArvizData, fdr: float) -> Facts:
    about, settings = idata.attrs, dict(fit.settings)
    posterior, stats = get_group(idata, "posterior"), get_group(idata, "sample_stats")
    runs = int(posterior.sizes["chain"])
    observed = hasattr(fit, "lag_evidence")  # nothing is trained: chains, and steps of time
    facts = [("restarts", f"{fit.n_restarts}, the best is {int(fit.best)}")]
    if observed:
        facts = [
            ("chains", f"{fit.n_restarts}, each with {_plain(settings['sampler_steps'])} steps a target")
        ]
    for name, label in (
        ("steps", "steps of time" if observed else "training steps"),
        ("batch_size", "rows in a step"),
        ("holdout", "held-out share"),
    ):
        if name in settings:
            facts.append((label, _plain(settings[name])))
    facts.append(("seed", _plain(settings.get("seed", "not recorded"))))
    facts.append(("edge method", str(about.get("edge_method", ""))))
    if "sweeps" in about:
        kept = int(stats["kept"].to_numpy().sum())
        facts.append(("Markov chains", f"{runs}, of which {kept} used; {int(about['sweeps']):,} sweeps"))
    facts.append(("draws of the graph", f"{counted(int(posterior.sizes['draw']), 'draw')} of each chain"))
    if "rows_used" in about:
        facts.append(("rows used for the edges", f"{int(about['rows_used']):,}"))
    facts.append(("false-discovery rate", f"{fdr:g}"))
    return facts


def _versions() -> Facts:
    versions = []
    for library in _LIBRARIES:
        try:
            versions.append((library, metadata.version(library)))
        except metadata.PackageNotFoundError:
            continue
    return versions


def _call(fit: Any) -> tuple[str, list[str]]:
    """The call that makes the fit again from the same data, and what a reader must add to it.

    Settings that are the schedule's own are left out. Empty where the model was not made of plain arguments.
    """
    settings, model = dict(fit.settings), fit.model
    if model is None:
        return "", []
    beside: list[str] = []
    made = _made(model)
    if made is None and hasattr(model, "program"):
        made = f"ps.{model!r}"
        beside.append(f"the program {getattr(model.program, '__name__', 'itself')} and its ps.Data")
    if made is None:
        return "", []
    given: dict[str, object] = {}
    for field in fields(kind_of(model).schedule):
        default = field.default if field.default is not MISSING else None
        if field.name in settings and _plain(settings[field.name]) != _plain(default):
            given[field.name] = settings[field.name]
    given = {"restarts": fit.n_restarts, "seed": settings.get("seed", 0), **given}
    for name, default in (("holdout", 0.1), ("inner", "ssl"), ("dtype", "float32")):
        if settings.get(name, default) != default:
            given[name] = settings[name]
    data, observed = ["X"], hasattr(fit, "lag_evidence")
    if hasattr(fit, "tasks"):
        data = ["X", "y"]
        beside.append("the tasks, if a column names them")
        if "task_weight" in settings:
            data.append("task_weight=task_weight")
            beside.append("the weights of tasks")
    if getattr(fit, "action_names", None):
        named = roles.get("actions") if (roles := getattr(fit.sequences, "roles", {})) else None
        data.append(f"actions={named!r}" if named and observed else "actions=actions")
    roles = getattr(getattr(fit, "sequences", None), "roles", {})
    data += [f"{name}={roles[name]!r}" for name in ("id", "time") if name in roles and observed]
    design = fit.sequences.design if observed else None
    if design is not None and design.covariates is not None:
        taken = list(design.covariates.taken)
        data += [f"covariates={taken}"] if taken else []
        beside += [] if taken else ["the covariates"]
    table = getattr(fit, "table", None)
    if table is not None and getattr(table, "design", None) is not None:
        beside.append("the covariates and groups")
    if (weights := getattr(table, "weights", None)) is not None and weights.kind != "equal":
        data.append(f"sample_weight={weights.column!r}" if weights.column else "sample_weight=sample_weight")
        data.append(f"sample_weight_type={weights.kind!r}")
        beside += [] if weights.column else ["the weights of rows"]
    per_row = sorted(
        set(getattr(table, "per_row", ())) - {"design"}
    )  # which is made of covariates and groups
    if per_row:
        beside.append(f"what rows have beside their cells ({', '.join(per_row)})")
    arguments = ", ".join([*data, *(f"{name}={value!r}" for name, value in given.items())])
    return f"import pyro_sparse as ps\n\nmodel = {made}\nfit = ps.fit(model, {arguments})\n", beside


def _made(thing: object) -> str | None:
    """The constructor's call, where all arguments can be written down and the class is public."""
    if thing is None or isinstance(thing, bool | int | float | str):
        return repr(thing)
    if isinstance(thing, Recorded):
        room = next((room for room in (models, priors, likelihoods) if _is_in(thing, room)), None)
        arguments = {name: _made(value) for name, value in getattr(thing, "_arguments", {}).items()}
        if room is None or None in arguments.values():
            return None
        inside = ", ".join(f"{name}={value}" for name, value in arguments.items())
        return f"ps.{room.__name__.rpartition('.')[2]}.{type(thing).__name__}({inside})"
    if isinstance(thing, list | tuple):
        parts = [_made(value) for value in thing]
        if None in parts:
            return None
        inside = ", ".join(cast("list[str]", parts))
        return f"[{inside}]" if isinstance(thing, list) else f"({inside}{',' if len(parts) == 1 else ''})"
    if isinstance(thing, Mapping):
        pairs = [(_made(key), _made(value)) for key, value in thing.items()]
        if any(None in pair for pair in pairs):
            return None
        return "{" + ", ".join(f"{key}: {value}" for key, value in pairs) + "}"
    if isinstance(thing, np.ndarray) and thing.size <= _ARRAY_LIMIT:
        return _made(thing.tolist())
    return None


def _is_in(thing: object, room: Any) -> bool:
    return getattr(room, type(thing).__name__, None) is type(thing)
