"""Whether sequences differ in their levels by more than their pasts explain."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ...data.sequences import Sequences
from ...findings.finding import Finding
from .steps import Steps, steps_of

__all__ = ["levels_of_sequences"]

_SIMULATED = 59  # panels without levels
_LEAST_SHARE = 0.02  # of what pasts leave of a variable, beyond chance
_FAR = 3.0  # standard deviations of the simulated shares above their mean, beside being above all of them
_LEAST_PER_SEQUENCE = 3  # steps, on average
_MOST_CELLS = 4_000_000  # of the simulated panels
_NAMED = 3
_STABLE = 0.999  # largest modulus of an eigenvalue of the transition that is simulated


def levels_of_sequences(
    sequences: Sequences, values: NDArray[np.float64], lags: int, seed: int
) -> list[Finding]:
    r"""Whether a mean for each sequence explains more than chance of what pasts and covariates leave.

    If it does, the past of a variable tells which sequence a frame is of, and so does that of every other
    variable with levels of its own: edges between all of them look certain. The share that means explain is
    compared with that in panels of the same shape, simulated by the linear transition that all sequences
    share, for means explain much by chance where sequences are short and change slowly (Nickell 1981).

    Parameters
    ----------
    sequences : Sequences
    values : ndarray (sequence, time, variable)
        From `imputed`.
    lags : int
    seed : int

    References
    ----------
    Nickell (1981), *Biases in dynamic models with fixed effects*, Econometrica 49(6).
    """
    steps = steps_of(sequences, values, lags, filled_targets=True)
    owner, d = steps.at[:, 0], steps.targets.shape[1]
    n_owners = len(np.unique(owner))
    n_sequences, frames = values.shape[:2]
    n_simulated = min(_SIMULATED, _MOST_CELLS // max(n_sequences * frames * d, 1))
    n_regressors = steps.inputs.shape[1] + 2 * d * lags + n_owners
    n_regressors += 1 + (0 if steps.covariates is None else steps.covariates.shape[1])
    if (
        n_owners < 2
        or len(owner) < _LEAST_PER_SEQUENCE * n_owners
        or len(owner) < 2 * n_regressors
        or n_simulated < 20
    ):
        return []
    regressors = _regressors(steps, d * lags)
    seen_share = _shares(_with_curves(regressors, d * lags), steps.targets, owner)
    chance = _shares_by_chance(values, steps, regressors, lags, n_simulated, seed)
    above = seen_share - chance.mean(0)
    differs = (above >= _LEAST_SHARE) & (seen_share > chance.max(0)) & (above > _FAR * chance.std(0))
    if not differs.any():
        return []
    names = sequences.feature_names
    order = [j for j in np.argsort(-above) if differs[j]]
    columns = tuple(names[j] for j in order)
    listed = ", ".join(columns[:_NAMED]) + (f" and {len(columns) - _NAMED} more" * (len(columns) > _NAMED))
    id_column = sequences.roles.get("id")
    how = f"covariates=[{id_column!r}]" if id_column else "a covariate that says which sequence a row is of"
    sources = [*names, *sequences.action_names]
    return [
        Finding(
            "sequences",
            f"sequences have levels of their own in {listed}, which their pasts do not explain: what tells "
            "sequences apart then passes for an influence",
            f"give {how}, which takes each sequence's level out, or give differences",
            "doubt",
            "data",
            # all of them: where one variable shows its levels, less does to show that another has some
            edges=tuple((target, source) for target in names for source in sources),
            columns=columns,
            size=float(above.max()),
        )
    ]


def _regressors(steps: Steps, n_past: int) -> NDArray[np.float64]:
    """An intercept, actions and covariates, then the past."""
    parts = [np.ones((len(steps.inputs), 1)), steps.inputs[:, n_past:]]
    parts += [] if steps.covariates is None else [steps.covariates]
    return np.concatenate([*parts, steps.inputs[:, :n_past]], 1)


def _with_curves(regressors: NDArray[np.float64], n_past: int) -> NDArray[np.float64]:
    """Saturating functions of the past beside it: two places where it rests are no levels."""
    past = regressors[:, -n_past:]
    return np.concatenate([regressors, np.tanh(past), np.tanh(2 * past)], 1)


def _shares(
    regressors: NDArray[np.float64], targets: NDArray[np.float64], owner: NDArray[np.intp]
) -> NDArray[np.float64]:
    """Of what a regression leaves of each target, the share that means of owners explain beside it."""
    number, place = np.unique(owner, return_inverse=True)
    count = np.bincount(place)
    left = []
    for within in (False, True):
        x, y = regressors, targets
        if within:
            both = np.concatenate([x, y], 1)
            sums = np.zeros((len(number), both.shape[1]))
            np.add.at(sums, place, both)
            both = both - (sums / count[:, None])[place]
            x, y = both[:, : x.shape[1]], both[:, x.shape[1] :]
        left.append(((y - x @ np.linalg.lstsq(x, y, rcond=None)[0]) ** 2).sum(0))
    of_all, within_each = left
    return np.asarray(1 - within_each / np.maximum(of_all, 1e-300))


def _shares_by_chance(
    values: NDArray[np.float64],
    steps: Steps,
    regressors: NDArray[np.float64],
    lags: int,
    n_simulated: int,
    seed: int,
) -> NDArray[np.float64]:
    """Shares (panel, variable) in panels that the transition shared by all sequences makes."""
    rng = np.random.default_rng([seed, 7])
    d = values.shape[2]
    targets = steps.targets
    coefficients = np.linalg.lstsq(regressors, targets, rcond=None)[0]
    residual = targets - regressors @ coefficients
    residual *= np.sqrt(len(residual) / (len(residual) - regressors.shape[1]))
    n_past = d * lags
    past = coefficients[-n_past:].reshape(lags, d, d) * _shrinkage(coefficients[-n_past:], d, lags)
    base = np.zeros(values.shape)
    base[tuple(steps.at.T)] = regressors[:, :-n_past] @ coefficients[:-n_past]
    panels = np.repeat(np.nan_to_num(values)[None], n_simulated, 0)
    is_step = np.zeros(values.shape[:2], bool)
    is_step[tuple(steps.at.T)] = True
    for t in range(lags, values.shape[1]):  # frames that are no steps stay as they were seen
        here = np.flatnonzero(is_step[:, t])
        if not len(here):
            continue
        drawn = base[here, t] + residual[rng.integers(len(residual), size=(n_simulated, len(here)))]
        for back in range(1, lags + 1):
            drawn = drawn + panels[:, here, t - back] @ past[back - 1]
        panels[:, here, t] = drawn
    shares = []
    for panel in panels:
        at, when = steps.at.T
        pasts = [panel[at, when - back] for back in range(1, lags + 1)]
        x = np.concatenate([regressors[:, :-n_past], *pasts], 1)
        shares.append(_shares(_with_curves(x, n_past), panel[at, when], at))
    return np.stack(shares)


def _shrinkage(past: NDArray[np.floating], d: int, lags: int) -> float:
    """What makes an explosive transition a stable one."""
    companion = np.zeros((d * lags, d * lags))
    companion[:d] = past.T
    companion[d:, :-d] = np.eye(d * (lags - 1))
    radius = float(np.abs(np.linalg.eigvals(companion)).max())
    return min(1.0, _STABLE / max(radius, 1e-12))
