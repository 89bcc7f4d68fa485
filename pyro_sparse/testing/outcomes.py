"""What came of a call on fuzzed input: right, refused, obscure, silent; the verdict that a fuzz counts.

A result is held against the `Case` that it was made of: names, numbers read back in the caller's units,
finite weights, scores and predictions in the range of the likelihood, and the same answer with columns in
another order.
"""

from __future__ import annotations

import re
import traceback
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np
import pandas as pd

from ..data.sequences import Sequences
from ..data.table import Table
from ..data.tasks import Tasks
from ..inference import Fit, MultiTaskFit, TransitionFit
from ..inference.registry import PER_ROW
from ._cases import Case
from ._fuzz_cells import COUNTS, is_allowed

if TYPE_CHECKING:
    import numpy.typing as npt

__all__ = ["Outcome", "outcome"]

_FORM = re.compile(r"([A-Za-z_][\w.]*)(\[\d+\])?(=[^:]{1,80})?: \S")  # "argument: …", "X[3]: …", "lag=0: …"
_ARGUMENTS = {
    "X", "y", "task", "actions", "id", "time", "time_step", "mask", *PER_ROW, "feature_names",
    "action_names", "holdout", "likelihood", "n_factors", "n_latents", "n_features", "lag", "standardise",
    "dtype",
}  # fmt: skip
_OURS = str(Path(__file__).resolve().parents[1])
_ROUNDING = 1e-9  # of a column's largest number: to model units and back in double precision
_SINGLE = 1e-3  # of a score: the same rows with their columns in another order, in single precision


class Outcome(NamedTuple):
    """What came of a call.

    Attributes
    ----------
    kind : {"right", "refused", "obscure", "silent"}
        "refused": a ValueError or TypeError in the form "argument: what was found, what is wanted".
        "obscure": any other exception, or message, or a library's own warning. "silent": a
        result that is wrong.
        (A process that dies cannot say so: run cases in a process of their own to count crashes.)
    why : str
        The message, or what is wrong with the result.
    where : str
        File and line that raised.
    """

    kind: Literal["right", "refused", "obscure", "silent"]
    why: str = ""
    where: str = ""


def outcome(
    call: Callable[[], object], case: Case | None = None, *, ask: bool = True, sources: tuple[str, ...] = ()
) -> Outcome:
    """Make a call and judge what comes of it.

    Parameters
    ----------
    call : callable
        Without arguments, returning a fit, or what `as_table`, `as_sequences` or `as_tasks` read.
    case : Case, optional
        What the input was; without it only what the result says of itself is looked at.
    ask : bool
        Ask a fit for scores, predictions and imputed cells, too. A refusal there is obscure: `fit` took them.
    sources : tuple of str
        Folders besides this package whose errors count as refusals, if they have the form: of your model.

    Returns
    -------
    Outcome

    Examples
    --------
    >>> import pyro_sparse as ps
    >>> outcome(lambda: ps.fit(ps.models.SparseDecoder(n_factors=2), [["a", "b"]] * 12)).kind
    'refused'
    >>> outcome(lambda: [][0])
    Outcome(kind='obscure', why='IndexError: list index out of range', where='...')
    """
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            result = call()
        except Exception as error:  # whatever comes is to be judged
            return _judged(error, sources)
        try:
            wrong = list(_faults(result, case or Case({}), ask))
        except Exception as error:
            return Outcome("obscure", f"after it was taken: {type(error).__name__}: {error}", _place(error))
    if wrong:
        return Outcome("silent", "; ".join(wrong))
    for warning in caught:
        if not _speaks(str(warning.message)):
            text = f"{warning.category.__name__}: {warning.message}"
            return Outcome("obscure", text, f"{warning.filename}:{warning.lineno}")
    return Outcome("right")


def _judged(error: Exception, sources: tuple[str, ...]) -> Outcome:
    where = _place(error)
    ours = where.startswith((_OURS, *sources)) and isinstance(error, ValueError | TypeError)
    kind: Literal["refused", "obscure"] = "refused" if ours and _speaks(str(error)) else "obscure"
    return Outcome(kind, f"{type(error).__name__}: {error}", where)


def _place(error: Exception) -> str:
    frame = traceback.extract_tb(error.__traceback__)[-1]
    return f"{frame.filename}:{frame.lineno}"


def _speaks(message: str) -> bool:
    """Whether it names an argument and says something of it."""
    match = _FORM.match(message)
    return match is not None and match.group(1) in _ARGUMENTS


# ---- results -----------------------------------------------------------------------------------------------
def _faults(result: object, case: Case, ask: bool) -> Iterator[str]:
    """What is wrong with a result."""
    if case.refuse:
        yield f"accepted, and nobody could fit {case.refuse}"
    elif isinstance(result, Fit):
        yield from _table_faults(result.table, case)
        yield from _fit_faults(result, case, ask)
    elif isinstance(result, Table):
        yield from _table_faults(result, case)
    elif isinstance(result, TransitionFit):
        yield from _transition_faults(result, case, ask)
    elif isinstance(result, Sequences):
        yield from _sequence_faults(result, case)
    elif isinstance(result, MultiTaskFit):
        yield from _task_faults(result.tasks, case)
        yield from _regression_faults(result, case, ask)
    elif isinstance(result, Tasks):
        yield from _task_faults(result, case)


def _not_finite(**arrays: npt.ArrayLike | None) -> Iterator[str]:
    for name, values in arrays.items():
        if values is not None and not np.isfinite(np.asarray(values, dtype=float)).all():
            yield f"{name} is not finite"


def _named(label: str, got: list[str], wanted: list[str] | None) -> Iterator[str]:
    if wanted is not None and list(got) != list(wanted):
        yield f"{label} are {list(got)[:8]}, wanted {list(wanted)[:8]}"


def _differs(quantity: str, got: np.ndarray, wanted: np.ndarray) -> Iterator[str]:
    """Whether numbers were read otherwise than given, but for rounding."""
    if got.shape != wanted.shape:
        yield f"{quantity} has shape {got.shape}, wanted {wanted.shape}"
    elif (np.isnan(got) != np.isnan(wanted)).any():
        yield f"{quantity} has other missing cells than were given"
    elif got.size:
        largest = np.nanmax(np.abs(wanted), axis=0, initial=0.0)
        if not (np.isnan(got) | (np.abs(got - wanted) <= _ROUNDING * largest)).all():
            yield f"{quantity} holds other numbers than were given"


def _table_faults(table: Table, case: Case) -> Iterator[str]:
    yield from _named("feature names", table.feature_names, case.features)
    yield from _not_finite(x=table.x, inputs=table.inputs, scale=table.scale)
    if case.cells is None:
        return
    if not is_allowed(case.likelihood, case.cells[0]).all():
        yield f"accepted cells that are not of {case.likelihood}"
    cells = table.x * table.scale + table.centre
    yield from _differs(
        "X", cells if table.mask is None else np.where(table.mask, cells, np.nan), case.cells[0]
    )
    as_single = np.abs(np.asarray(table.x, dtype=np.float32))
    if not np.isfinite(as_single).all():
        yield "X in model units is too large for single precision"


def _fit_faults(fit: Fit, case: Case, ask: bool) -> Iterator[str]:
    yield from _not_finite(
        weights=fit.weights[fit.best], effects=fit.effects[fit.best], elbo=fit.elbo[fit.best]
    )
    yield from _not_finite(noise_sd=fit.noise_sd, factor_cov=fit.factor_cov)
    if fit.weights.shape[1] != len(fit.feature_names):
        yield f"weights have shape {fit.weights.shape} for {len(fit.feature_names)} features"
    if not ask or "X" not in case.arguments:
        return
    if "feature_names" in case.arguments and hasattr(case.arguments["X"], "columns"):
        return  # new rows are to have the names that the fit was given, and these have their own
    X, beside = case.arguments["X"], {n: case.arguments[n] for n in PER_ROW if n in case.arguments}
    n, k = len(fit.sample_names), fit.weights.shape[2]
    z = fit.transform(X, refine=False, **beside)
    yield from _not_finite(scores=z)
    if z.shape != (n, k):
        yield f"scores have shape {z.shape}, wanted {(n, k)}"
    if isinstance(X, pd.DataFrame) and not _close(z, fit.transform(X.iloc[:, ::-1], refine=False, **beside)):
        yield "other scores with the columns in another order"
    yield from _not_finite(score=fit.score(X, **beside))
    cells = fit.predict(X, num_draws=2, **beside)
    yield from _not_finite(predictions=cells)
    if case.likelihood in ("bernoulli", "categorical", *COUNTS) and (cells < 0).any():
        yield f"predictions below 0 under {case.likelihood}"
    if case.likelihood == "bernoulli" and (cells > 1).any():
        yield "predictions above 1 under bernoulli"
    if case.cells is not None:
        filled = np.asarray(fit.impute(X, num_draws=2, **beside), dtype=float)
        yield from _not_finite(imputed=filled)
        observed = ~np.isnan(case.cells[0]) & (
            "mask" not in case.arguments
        )  # impute knows nothing of a fit's mask
        if filled.shape != observed.shape or not _close(filled[observed], case.cells[0][observed], _ROUNDING):
            yield "imputing changed cells that were seen"


def _close(got: np.ndarray, wanted: np.ndarray, tolerance: float = _SINGLE) -> bool:
    return got.shape == wanted.shape and bool(np.allclose(got, wanted, rtol=tolerance, atol=tolerance))


def _sequence_faults(sequences: Sequences, case: Case) -> Iterator[str]:
    yield from _named("feature names", sequences.feature_names, case.features)
    yield from _named("sequences", sequences.sequence_names, case.groups)
    yield from _not_finite(x=sequences.x, scale=sequences.scale, actions=sequences.actions)
    if case.cells is None:
        return
    if len(sequences) != len(case.cells):
        yield f"{len(sequences)} sequences, wanted {len(case.cells)}"
        return
    if np.isinf(np.concatenate(case.cells)).any():
        yield "accepted infinite cells"
    cells = sequences.x * sequences.scale + sequences.centre
    cells = cells if sequences.mask is None else np.where(sequences.mask, cells, np.nan)
    read = [x[:length] for x, length in zip(cells, sequences.lengths, strict=True)]
    if [len(x) for x in read] != [len(x) for x in case.cells]:
        yield f"sequences of {[len(x) for x in read]} frames, wanted {[len(x) for x in case.cells]}"
        return
    yield from _differs("X", np.concatenate(read), np.concatenate(case.cells))
    if not np.isfinite(sequences.x.astype(np.float32)).all():
        yield "X in model units is too large for single precision"


def _transition_faults(fit: TransitionFit, case: Case, ask: bool) -> Iterator[str]:
    best = fit.best
    yield from _named("feature names", fit.feature_names, case.features)
    yield from _not_finite(elbo=fit.elbo[best])
    for name in ("strength_time", "strength_action", "relaxed_time", "relaxed_action"):
        values = getattr(fit, name)
        yield from _not_finite(**{name: None if values is None else values[best]})
    if ask and "X" in case.arguments:
        beside = {name: value for name, value in case.arguments.items() if name in ("actions", "id", "time")}
        z = np.asarray(fit.transform(case.arguments["X"], **beside), dtype=float)
        frames = sum(map(len, case.cells)) if case.cells is not None else None
        got = int((~np.isnan(z)).all(-1).sum())
        if frames is not None and got != frames:
            yield f"latents of {got} frames, wanted {frames}"


def _task_faults(tasks: Tasks, case: Case) -> Iterator[str]:
    yield from _named("feature names", tasks.feature_names, case.features)
    yield from _named("tasks", tasks.task_names, case.groups)
    yield from _not_finite(x=tasks.standardised(tasks.x), y=tasks.batch().y, target_scale=tasks.target_scale)
    if case.cells is None or case.targets is None:
        return
    if len(tasks) != len(case.cells):
        yield f"{len(tasks)} tasks, wanted {len(case.cells)}"
        return
    y = tasks.y * tasks.target_scale[:, None] + tasks.target_centre[:, None]
    y = y if tasks.mask is None else np.where(tasks.mask, y, np.nan)
    for t, (x, target) in enumerate(zip(case.cells, case.targets, strict=True)):
        length = tasks.lengths[t]
        yield from _differs(f"X of task {t}", np.asarray(tasks.x[t, :length], dtype=float), x)
        yield from _differs(f"y of task {t}", y[t, :length], target)


def _regression_faults(fit: MultiTaskFit, case: Case, ask: bool) -> Iterator[str]:
    yield from _not_finite(
        weights=fit.weights[fit.best], intercept=fit.intercept[fit.best], noise=fit.noise[fit.best]
    )
    if ask:
        present = np.arange(fit.tasks.x.shape[1]) < fit.tasks.lengths[:, None]
        z, y = fit.transform(), fit.predict()
        yield from _not_finite(latents=z[present], predictions=y[present])
        if z.shape[:2] != present.shape or y.shape != present.shape:
            yield f"latents have shape {z.shape}, predictions {y.shape}, tasks {present.shape}"
