"""Whether actions and covariates are in the rows that they belong to, and act rather than follow.

The action in a row is taken to act on that row's frame. One that was written down after the frame was seen,
or that knows the next frame, follows from a frame on which it seems to act; one recorded a row late or early
acts on another frame than its own. Each is weighed against the frame of its row, the one before and the one
after (`directions.py`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from ..._utils.wording import listed
from ...data.sequences import Sequences
from ...findings.finding import Finding
from .directions import Accounts, accounts_of, is_usable
from .steps import steps_of

__all__ = ["timing_findings"]

# Tuning seeds 1000 to 2499, 1,389 systems with an action that acts (.3 to 5 sd; by chance, persistent, by
# rules and policies of the past, confounded; normal, skewed and heavy-tailed noise, linear or not): none had
# one that follows by this, and in 3,779 looks at numbers (seeds to 2999) it never had more than 4 of the 12
# nats.
_NEARLY_ALL = 0.8  # of what is not known of an action, what a frame tells
_NATS = 12.0
# Over the account that holds all links, which has some three coefficients more and no other way to be worse.
_NATS_OVER_ALL = 4.0
# Actions of a row too late: random actions explain so many nats more, one of 1,389 systems reached it.
_NATS_LATE = 12.0
_NOTHING = 1e-3  # p-value of what the row's own action adds, of all variables together
# Too early, or of lasting effect: in fits of 160 of these systems the least p-value was 6e-4.
_CHANCE_BEFORE, _SHARE_BEFORE = 1e-5, 0.01  # for each variable and action, and of its unexplained variance
_COPY = 0.999  # share of variance, which a true action of thirty standard deviations of noise has, too
_NAMED = 3
_LEAST_PER_COLUMN = 2  # rows for each coefficient
_MOST_COLUMNS = 60  # actions and covariates that are weighed
_CHANCE = 1e-3  # of all variables together


class _Given(NamedTuple):
    """A column that was given beside the variables.

    Attributes
    ----------
    name : str
    role : {"action", "covariate"}
    values : ndarray (sequence, time)
    others : ndarray (sequence, time, column)
        All else that was given.
    """

    name: str
    role: str
    values: NDArray[np.float64]
    others: NDArray[np.float64]


class _Aligned(NamedTuple):
    """Steps that have all that is weighed.

    Attributes
    ----------
    s, t : ndarray of int (step,)
        Sequence and time of the frames; the frame after each is there, too.
    frame : ndarray (step, variable)
    past : ndarray (step, column)
        Variables at their lags.
    left : ndarray (step, variable)
        What the fit leaves of the frame.
    """

    s: NDArray[np.intp]
    t: NDArray[np.intp]
    frame: NDArray[np.float64]
    past: NDArray[np.float64]
    left: NDArray[np.float64]


def timing_findings(
    sequences: Sequences, values: NDArray[np.float64], lags: int, residual: NDArray[np.float64]
) -> list[Finding]:
    """What actions and covariates follow from, though they are taken to act, and actions in another row.

    Parameters
    ----------
    sequences : Sequences
    values : ndarray (sequence, time, variable)
        From `imputed`.
    lags : int
        Of the model.
    residual : ndarray (step, variable)
        What the fit leaves of its targets, NaN where not seen; steps as of `steps_of`.
    """
    steps = _aligned(sequences, values, lags, residual)
    findings: dict[str, Finding] = {}
    for given in _given_columns(sequences):
        if given.name in findings:
            continue
        finding = _follows(given, steps, sequences) or _of_another_row(given, steps, sequences)
        if finding is not None:
            findings[given.name] = finding
    return list(findings.values())


def _aligned(
    sequences: Sequences, values: NDArray[np.float64], lags: int, residual: NDArray[np.float64]
) -> _Aligned:
    """Steps of which every cell was seen, and that a step follows."""
    steps = steps_of(sequences, values, lags)
    at = {tuple(place) for place in steps.at.tolist()}
    whole = ~np.isnan(steps.targets).any(1)
    use = whole & np.array([(s, t + 1) in at for s, t in steps.at.tolist()], dtype=bool)
    s, t = steps.at[use].T
    past = steps.inputs[use][:, : lags * values.shape[2]]
    return _Aligned(s, t, steps.targets[use], past, residual[use])


def _given_columns(sequences: Sequences) -> Iterator[_Given]:
    """Actions, each level of one that is labels, and covariates that are numbers."""
    shape = sequences.x.shape[:2]
    actions = np.zeros((*shape, 0)) if sequences.actions is None else sequences.actions
    design = None if sequences.design is None else sequences.design.covariates
    known = np.zeros((*shape, 0)) if sequences.covariates is None else sequences.covariates
    n_columns, end = 0, 0
    for name, width in zip(sequences.action_names, sequences.action_widths, strict=True):
        own = actions[:, :, end : end + width]
        others = np.concatenate([np.delete(actions, range(end, end + width), axis=2), known], 2)
        end += width
        for column in _each_level(own):
            if (n_columns := n_columns + 1) <= _MOST_COLUMNS:
                yield _Given(name, "action", column, others)
    if design is None:
        return
    n_before = known.shape[2] - design.n_effects  # trend and season come first
    coded = known[:, :, n_before:] @ np.linalg.pinv(design.basis)
    end = 0
    for term in design.terms:
        own_columns = range(end, end + term.width)
        end += term.width
        if term.levels or (n_columns := n_columns + 1) > _MOST_COLUMNS:
            continue
        beside = [actions, known[:, :, :n_before], np.delete(coded, own_columns, axis=2)]
        yield _Given(term.name, "covariate", coded[:, :, own_columns[0]], np.concatenate(beside, 2))


def _each_level(columns: NDArray[np.float64]) -> list[NDArray[np.float64]]:
    """The column of a number, or 0/1 for each level of labels."""
    if columns.shape[2] == 1:
        return [columns[:, :, 0]]
    flat = columns.reshape(-1, columns.shape[2])
    level = np.unique(flat.round(9), axis=0, return_inverse=True)[1].ravel()
    return [(level == k).reshape(columns.shape[:2]).astype(float) for k in np.unique(level)]


def _follows(given: _Given, steps: _Aligned, sequences: Sequences) -> Finding | None:
    """The doubt about a column that follows from the frame of its row, or from the next one."""
    for ahead in (0, 1):
        if ahead and given.role == "covariate":
            continue  # what a covariate says of the next frame is no edge
        column = given.values[steps.s, steps.t - ahead]
        accounts = _weighed(given, steps, ahead)
        if accounts is None or not _is_told(accounts):
            continue
        variables = _told_by(column, steps.frame, sequences.feature_names)
        return _follows_finding(given, ahead, variables, accounts, sequences)
    return None


def _is_told(accounts: Accounts) -> bool:
    """Whether a frame tells the column nearly without error, and rather than the column the frame."""
    if accounts.copied >= _COPY:
        return True
    return (
        accounts.share >= _NEARLY_ALL
        and accounts.follows - max(accounts.random, accounts.relayed) >= _NATS
        and accounts.follows - accounts.policy >= _NATS_OVER_ALL
    )


def _weighed(given: _Given, steps: _Aligned, ahead: int) -> Accounts | None:
    """Accounts of a column and the frames `ahead` rows after it (-1: the frame of the row before)."""
    s, t = steps.s, steps.t
    column = given.values[s, t - ahead]
    past = [steps.past, given.others[s, t]]
    own_past = given.values[s, t if ahead else t - 1][:, None]
    if ahead:  # the column of the frame's own row acts on it, too
        past.append(given.values[s, t][:, None])
    before = np.concatenate(past, 1)
    if not is_usable(column, 2 * before.shape[1] + 2):
        return None
    return accounts_of(column, steps.frame, before, own_past)


def _told_by(column: NDArray[np.float64], frame: NDArray[np.float64], names: list[str]) -> tuple[str, ...]:
    """Variables of a frame that a column depends on given the others, the first of them the most."""
    centred = (frame - frame.mean(0)) / frame.std(0).clip(1e-12)
    n, d = centred.shape
    design = np.concatenate([np.ones((n, 1)), centred, centred**2], 1)

    def left(columns: NDArray[np.float64]) -> float:
        return float(((column - columns @ np.linalg.lstsq(columns, column, rcond=None)[0]) ** 2).sum())

    full, freedom = max(left(design), 1e-12 * n), max(n - 2 * d - 1, 1)
    gain = np.array([left(np.delete(design, [1 + j, 1 + d + j], axis=1)) for j in range(d)]) - full
    p = stats.f.sf(gain / 2 / (full / freedom), 2, freedom)
    order = np.argsort(-gain, kind="stable")
    return tuple(names[j] for k, j in enumerate(order) if k == 0 or p[j] * d < _CHANCE)


def _follows_finding(
    given: _Given, ahead: int, variables: tuple[str, ...], accounts: Accounts, sequences: Sequences
) -> Finding:
    """What is said of it."""
    shown = listed([*variables[:_NAMED], *([f"{len(variables) - _NAMED} more"] * (len(variables) > _NAMED))])
    row = "next row" if ahead else "same row"
    how = (
        "as if it knew what has not happened yet"
        if ahead
        else "as if it was set after the frame was seen, or computed from it"
    )
    if accounts.copied >= _COPY:
        message = (
            f"{given.name} and {shown} of the {row} say the same, nearly without error: which follows from "
            f"which cannot be told, and {given.name} stands in for their pasts"
        )
    else:
        message = (
            f"{given.name} follows from {shown} of the {row} nearly without error, {how}: "
            "it seems to drive what it follows from"
        )
    remedy = f"leave {given.name} out, or give what was known when it was set"
    if not ahead:
        later = (
            "if it reacts to what it is in a row with, give it one row later "
            f"({_shift_code(given.name, 1, sequences)})"
        )
        remedy = f"{later}; otherwise leave it out"
    sources = [*sequences.feature_names, *sequences.action_names]
    return Finding(
        "timing",
        message,
        remedy,
        "doubt",
        "data",
        factors=(given.name,) if given.role == "action" else (),
        edges=tuple((target, source) for target in variables for source in sources),
        columns=(given.name, *variables),
        size=float(max(accounts.copied, accounts.share)),
    )


def _shift_code(name: str, n_rows: int, sequences: Sequences) -> str:
    """The call that moves a column by so many rows, within each sequence."""
    if len(sequences) == 1:
        return f"X[{name!r}].shift({n_rows})"
    if id_column := sequences.roles.get("id"):
        return f"X.groupby({id_column!r})[{name!r}].shift({n_rows})"
    return f"shift({n_rows}) within each sequence"


def _of_another_row(given: _Given, steps: _Aligned, sequences: Sequences) -> Finding | None:
    """The doubt about an action of which another row's acts on a frame."""
    if given.role != "action":
        return None
    names = sequences.feature_names
    sources = [*names, *sequences.action_names]
    before = _driven_by_row_before(given, steps)
    if len(before):
        driven = tuple(names[j] for j in before)
        shown, seen_as = listed(list(driven[:_NAMED])), "of the row before still predicts"
        meant = "it is recorded a row too early, or acts with a delay"
        later = _shift_code(given.name, 1, sequences)
        remedy = f"give it one row later ({later}), or twice, as it is and one row later"
        edges = tuple((target, source) for target in driven for source in sources)
    elif len(after := _driven_by_row_after(given, steps)):
        driven = tuple(names[j] for j in after)
        shown, seen_as = listed(list(driven[:_NAMED])), "of the row after goes with what the past leaves of"
        meant = "it is recorded a row too late, or reacts to sudden changes alone"
        remedy = f"if it is late, give it one row earlier ({_shift_code(given.name, -1, sequences)})"
        edges = ()
    else:
        return None
    more = f" and {len(driven) - _NAMED} more" if len(driven) > _NAMED else ""
    return Finding(
        "timing",
        f"{given.name} {seen_as} {shown}{more}, given that of its own row: {meant}, "
        "and its edges cannot be told",
        remedy,
        "doubt",
        "data",
        factors=(given.name,),
        edges=edges,
        columns=(given.name, *driven),
    )


def _driven_by_row_before(given: _Given, steps: _Aligned) -> list[int]:
    """Variables of which the fit leaves something that the action of the row before explains.

    Curves of the past, and its products with the row's own action, may explain it first: a fit chooses few.
    """
    own, before = (given.values[steps.s, steps.t - back][:, None] for back in (0, 1))
    past, others = steps.past, given.others[steps.s, steps.t]
    parts = [past, past**2, np.tanh(2 * past), own, own**2, np.tanh(2 * own), own * past, others]
    driven = np.ones(steps.left.shape[1], bool)
    for sequence in _pooled_and_within(steps):
        p, share = _partial(steps.left, before[:, 0], np.concatenate(parts, 1), sequence)
        driven &= (p < _CHANCE_BEFORE) & (share >= _SHARE_BEFORE)
    return np.flatnonzero(driven).tolist()


def _pooled_and_within(steps: _Aligned) -> list[NDArray[np.intp]]:
    """Whose mean is taken out of each step: that of all, and that of its sequence.

    Levels of sequences that the model does not know go with all that differs between them, so that pooled
    steps alone told 127 of 232 tables of 20 sequences without a fault (tuning seeds 1000 to 1079). Means of
    short sequences go with later noise, where actions react to it.
    """
    pooled = np.zeros_like(steps.s)
    return [pooled] if (steps.s == steps.s[:1]).all() else [pooled, steps.s]


def _centred(values: NDArray[np.float64], sequence: NDArray[np.intp]) -> NDArray[np.float64]:
    """Values (step, column) less the mean of their sequence."""
    group, size = np.unique(sequence, return_inverse=True, return_counts=True)[1:]
    sums = np.zeros((len(size), values.shape[1]))
    np.add.at(sums, group, values)
    return np.asarray(values - (sums / size[:, None])[group])


def _driven_by_row_after(given: _Given, steps: _Aligned) -> list[int]:
    """Variables that the action of the row after acts on, as far as can be told from an action that reacts.

    A policy that reacts to a frame has nothing to do with the past once the frame is known. One that comes a
    row late has nothing to do with the past, but has once the frame is known; and that of the frame's own row
    adds nothing.
    """
    for sequence in _pooled_and_within(steps):
        part = steps._replace(frame=_centred(steps.frame, sequence), past=_centred(steps.past, sequence))
        accounts = _weighed(given, part, -1)
        if (
            accounts is None
            or accounts.copied >= _COPY  # the next row's is set by this frame, of two values or few
            or accounts.random - max(accounts.follows, accounts.habit) < _NATS_LATE
            or accounts.random - accounts.policy < _NATS_OVER_ALL
        ):
            return []
    own, after = (given.values[steps.s, steps.t + ahead][:, None] for ahead in (0, 1))
    before = np.concatenate([steps.past, given.others[steps.s, steps.t]], 1)
    adds = _partial(steps.frame, own[:, 0], np.concatenate([before, after], 1))[0]
    if adds.min() * len(adds) < _NOTHING:
        return []
    p = _partial(steps.frame, after[:, 0], np.concatenate([before, own], 1))[0]
    return np.flatnonzero(p * len(p) < _CHANCE).tolist()


def _partial(
    targets: NDArray[np.float64],
    column: NDArray[np.float64],
    beside: NDArray[np.float64],
    sequence: NDArray[np.intp] | None = None,
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """F-tests of a column beside others: p-value, and share of what the others leave, of each target.

    Given a sequence for each step, beside a mean of each, too.
    """
    sequence = np.zeros(len(column), int) if sequence is None else sequence
    design = _centred(beside, sequence)
    both = _centred(np.concatenate([targets, column[:, None]], 1), sequence)
    left = both - design @ np.linalg.lstsq(design, both, rcond=None)[0]
    rest, freedom = left[:, -1], len(column) - design.shape[1] - len(np.unique(sequence)) - 1
    if freedom < len(column) / _LEAST_PER_COLUMN or (rest**2).sum() <= 1e-9 * (column**2).sum():
        return np.ones(targets.shape[1]), np.zeros(targets.shape[1])
    share = (left[:, :-1].T @ rest) ** 2 / (rest**2).sum() / (left[:, :-1] ** 2).sum(0).clip(1e-300)
    p = stats.f.sf(share * freedom / np.maximum(1 - share, 1e-12), 1, freedom)
    return np.asarray(p), np.asarray(share)
