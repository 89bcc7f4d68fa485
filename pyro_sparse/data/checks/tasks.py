"""What tasks show before any fit: too few rows for their weights, codes, outcomes without normal noise."""

from __future__ import annotations

import numpy as np

from ...findings.finding import Finding
from ..tasks import Tasks
from .kinds import CODE_GAP, SENTINELS
from .labels import alike_labels

__all__ = [
    "coded_outcomes",
    "outcome_kinds",
    "outcomes_among_features",
    "row_counts",
    "task_findings",
    "units_of_features",
]

_NAMED = 5  # tasks that a sentence lists before it counts the rest
_TWO_VALUED = 8  # rows with two values only: of a number with noise that never happens, of four rows it may
_COUNT_ROWS = 20
_FEW_COUNTS = 10.0  # mean of a count from which normal noise is near enough
_MEMBERS = 0.1  # share of the tasks from which a kind of outcome is more than a rounded column
_LEAST_CODED = 3  # outcomes in all that are a code
# Correlation of an outcome and a feature that is it, but for rounding, and rows that show it. Outcomes that
# one of two features dominates, without noise, correlate .999 with it in half of the tasks.
_COPY, _COPY_ROWS = 0.99999, 6
_MOSTLY, _LEAST_TASKS = 0.8, 3  # of the tasks
# Standard deviations of a feature in two sets of tasks, each a tenth of them, a factor of 3 apart and less
# within each: other units are 10 or more, tasks with half of a feature's range 2.
_OTHER_UNITS, _UNIT_SHARE, _UNIT_ROWS, _UNIT_TASKS = 3.0, 0.1, 8, 10
_SPARE_ROWS = 1  # rows that weights and an intercept leave for the noise


def task_findings(tasks: Tasks, n_latents: int, normal: bool = True) -> list[Finding]:
    """All that tasks show against a `MultiTaskRegression` of them.

    Parameters
    ----------
    tasks : Tasks
    n_latents : int
        Of the model.
    normal : bool
        Whether the model takes all outcomes for normal.

    Returns
    -------
    list of Finding
        Of source "data".
    """
    findings = [*row_counts(tasks, n_latents), *coded_outcomes(tasks)]
    findings += [*outcomes_among_features(tasks), *units_of_features(tasks)]
    findings += alike_labels([str(name) for name in tasks.task_names], "tasks", "weights of its own")
    return [*findings, *(outcome_kinds(tasks) if normal else ())]


def row_counts(tasks: Tasks, n_latents: int) -> list[Finding]:
    """Tasks with no more rows than weights, an intercept and the noise need.

    Weights of such a task fit its rows exactly, whatever the latents are. Where half of the tasks are of that
    kind the latents rest on nothing, and all edges are in doubt; of a few among others their own edges are.

    Parameters
    ----------
    tasks : Tasks
    n_latents : int
    """
    least = n_latents + 1 + _SPARE_ROWS
    few = np.flatnonzero(tasks.sizes < least)
    if not len(few):
        return []
    names = [tasks.task_names[t] for t in few]
    half = 2 * len(few) >= len(tasks)
    follows = "the latents rest on nothing" if half else "nothing but the prior says which latents they use"
    return [
        Finding(
            "rows",
            f"{len(few)} of {len(tasks)} tasks ({_listed(names)}) have fewer than {least} rows with a "
            f"target: weights of {n_latents} latents and an intercept fit those exactly, so that {follows}",
            f"give at least {least} rows a task, or lower n_latents",
            "doubt",
            "data",
            edges=()
            if half
            else tuple((task, f"latent {k + 1}") for task in names for k in range(n_latents)),
            columns=tuple(names),
            size=len(few) / len(tasks),
        )
    ]


def coded_outcomes(tasks: Tasks) -> list[Finding]:
    """Numbers such as -999 among the outcomes, far from all others of their task: codes for missing ones.

    A task of few rows has such a code once or twice; all tasks together have it three times or more.

    Parameters
    ----------
    tasks : Tasks
    """
    outcomes = _outcomes(tasks)
    for code in SENTINELS:
        coded = [np.isclose(values, code, rtol=1e-9, atol=0.0) for values in outcomes]
        at = [
            t for t, (values, here) in enumerate(zip(outcomes, coded, strict=True)) if _is_apart(values, here)
        ]
        count = int(sum(coded[t].sum() for t in at))
        if count < _LEAST_CODED:
            continue
        names = [tasks.task_names[t] for t in at]
        return [
            Finding(
                "outcomes",
                f"{count} outcomes of {len(names)} task(s) ({_listed(names)}) are {code:g}, far from all "
                "others: if that stands for missing, the fit takes it for a measurement",
                "set them to NaN, and the rows are left out",
                "doubt",
                "data",
                columns=tuple(names),
                size=count / max(int(tasks.sizes.sum()), 1),
            )
        ]
    return []


def _is_apart(values: np.ndarray, coded: np.ndarray) -> bool:
    """Whether a code lies beyond all other outcomes of a task, and far from them."""
    others = values[~coded]
    if not coded.any() or len(others) < _LEAST_CODED:
        return False
    code = values[coded][0]
    gap = others.min() - code if code < 0 else code - others.max()
    return bool(gap > CODE_GAP * others.std())


def _outcomes(tasks: Tasks) -> list[np.ndarray]:
    """Outcomes that were seen, task by task, in the caller's units."""
    y = tasks.y * tasks.target_scale[:, None] + tasks.target_centre[:, None]
    observed = np.ones(y.shape, dtype=bool) if tasks.mask is None else tasks.mask
    return [values[seen] for values, seen in zip(y, observed, strict=True)]


def outcomes_among_features(tasks: Tasks) -> list[Finding]:
    """A feature that is the outcome, in most tasks the same one: latents then describe it and nothing else.

    Parameters
    ----------
    tasks : Tasks
    """
    if tasks.x.ndim != 3:
        return []
    copied = np.zeros((len(tasks), tasks.x.shape[2]), bool)
    n_judged = 0
    for t, (x, y) in enumerate(_rows(tasks)):
        if len(y) < _COPY_ROWS or np.ptp(y) == 0:
            continue
        n_judged += 1
        copied[t] = np.abs(_correlations(x, y)) > _COPY
    count = copied.sum(0)
    if n_judged < _LEAST_TASKS or count.max(initial=0) < _MOSTLY * n_judged:
        return []
    j = int(count.argmax())
    name = tasks.feature_names[j]
    return [
        Finding(
            "outcomes",
            f"feature {name!r} is the outcome in {count[j]} of {n_judged} tasks (a correlation above "
            f"{_COPY:g}): latents describe it, and all tasks seem to use the same",
            "leave it out of the features; what is known only once the outcome is known says nothing of it",
            "doubt",
            "data",
            columns=(name,),
            size=float(count[j] / n_judged),
        )
    ]


def units_of_features(tasks: Tasks) -> list[Finding]:
    """Features whose standard deviations are many times larger in some tasks than in the others.

    Parameters
    ----------
    tasks : Tasks
    """
    if tasks.x.ndim != 3:
        return []
    rows = [x for x, _ in _rows(tasks) if len(x) >= _UNIT_ROWS]
    if len(rows) < _UNIT_TASKS:
        return []
    sd = np.array([x.std(0) for x in rows])
    findings = []
    for j in np.flatnonzero((sd > 0).all(0)).tolist():
        log = np.sort(np.log(sd[:, j]))
        step = np.diff(log)
        fewest = max(2, int(_UNIT_SHARE * len(log)))
        middle = step[fewest - 1 : len(log) - fewest]
        at = fewest - 1 + int(middle.argmax())
        within = max(log[at] - log[0], log[-1] - log[at + 1])
        if step[at] < np.log(_OTHER_UNITS) or step[at] < within:
            continue
        times = np.exp(np.median(log[at + 1 :]) - np.median(log[: at + 1]))
        name = tasks.feature_names[j]
        findings.append(
            Finding(
                "outcomes",
                f"feature {name!r} varies some {times:.2g} times as much in {len(log) - at - 1} of "
                f"{len(log)} tasks as in the others: in other units one latent means two things",
                "give it in one unit, or standardise it within tasks if it has none",
                "doubt",
                "data",
                columns=(name,),
                size=float(times),
            )
        )
    return findings


def _rows(tasks: Tasks) -> list[tuple[np.ndarray, np.ndarray]]:
    """Features and outcomes of the rows that have an outcome, task by task."""
    seen = np.ones(tasks.y.shape, bool) if tasks.mask is None else tasks.mask
    return [(x[of], y[of]) for x, y, of in zip(tasks.x, tasks.y, seen, strict=True)]


def _correlations(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Of each column with y; 0 of a constant one."""
    centred, other = x - x.mean(0), y - y.mean()
    size = np.sqrt((centred**2).sum(0) * (other**2).sum())
    together = centred.T @ other
    return np.divide(together, size, out=np.zeros(len(together)), where=size > 0)


def outcome_kinds(tasks: Tasks) -> list[Finding]:
    """Tasks whose outcomes are yes/no answers or small counts, which are fitted as numbers with normal noise.

    Parameters
    ----------
    tasks : Tasks
    """
    binary, counts = [], []
    columns = zip(tasks.task_names, _outcomes(tasks), tasks.target_scale, strict=True)
    for name, outcomes, scale in columns:
        tolerance = 1e-6 * max(float(np.abs(outcomes).max(initial=0.0)), float(scale))
        n_values = 1 + int((np.diff(np.sort(outcomes)) > tolerance).sum())
        whole = bool((np.abs(outcomes - np.round(outcomes)) <= tolerance).all())
        if n_values == 2 and len(outcomes) >= _TWO_VALUED:
            binary.append(name)
        elif (
            whole
            and len(outcomes) >= _COUNT_ROWS
            and outcomes.min() >= -tolerance
            and n_values > 2
            and outcomes.mean() < _FEW_COUNTS
        ):
            counts.append(name)
    findings = []
    if len(binary) >= _MEMBERS * len(tasks):
        findings.append(
            Finding(
                "outcomes",
                f"{len(binary)} task(s) ({_listed(binary)}) have outcomes of two values, which are fitted as "
                "numbers with normal noise: predictions leave the range of the answers",
                'MultiTaskRegression(..., likelihood="bernoulli"), with outcomes 0 and 1; for classes alone '
                "see SparseTaskSVM",
                "note",
                "data",
                columns=tuple(binary),
                size=len(binary) / len(tasks),
            )
        )
    if len(counts) >= _MEMBERS * len(tasks):
        findings.append(
            Finding(
                "outcomes",
                f"{len(counts)} task(s) ({_listed(counts)}) have small counts as outcomes, which are fitted "
                "as numbers with one noise for all: predictions may be negative, and large counts weigh too "
                "much",
                'MultiTaskRegression(..., likelihood="poisson"), or "negative_binomial" if counts vary more',
                "note",
                "data",
                columns=tuple(counts),
                size=len(counts) / len(tasks),
            )
        )
    return findings


def _listed(names: list[str]) -> str:
    first = ", ".join(names[:_NAMED])
    return first if len(names) <= _NAMED else f"{first} and {len(names) - _NAMED} more"
