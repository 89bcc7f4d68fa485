"""The order of events for observed variables: lags, missing cells, the posterior of the parents, checks."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cached_property
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

from ..._utils.version import __version__
from ...data.sequences import Sequences
from ...findings.finding import Finding
from ...models.observed_transition import ObservedTransition
from ..training import checkpoint as files
from ..training.ranks import ALONE
from .augmentation import augmented
from .checks import cut_off, missing_cells, missing_lags, noise_correlation, within_step
from .levels import levels_of_sequences
from .measurement_error import measurement_error
from .observed_result import ObservedFit
from .posterior import TermPosterior, candidates_of, term_posterior
from .schedule import ObservedSchedule
from .steps import LEAST_STEPS, Steps, cells_to_fill, imputed, observed_values, steps_of
from .terms import effects_basis, far_cells, freed, winsorised
from .timing import timing_findings

if TYPE_CHECKING:
    from ..training.loop import Run

__all__ = ["ObservedGroup", "ObservedJob"]

T = TypeVar("T")

_ONE_PASS = "n_jobs: the chains of an ObservedTransition share one pass in one process; leave it out"
_PROBABLE = 0.9  # an edge at a lag, from which "auto" has that lag
_LOOK_STEPS = 200  # of the sampler, for the lags
_LOOK_DRAWS = 10  # of the missing cells, likewise
_BURN = 50  # flips before those that count
_SHARE, _LEAST_FLIPS = 6, 50  # of the sampler's steps, given one draw of the missing cells
_FILLINGS = 5  # draws of the missing cells that forecasts begin from


class ObservedJob:
    """The fit of observed variables.

    Parameters
    ----------
    model : ObservedTransition
    sequences : Sequences
    restarts, seed, schedule
        As in `pyro_sparse.fit`; restarts are chains.
    holdout, device, dtype
        Not read: the evidence of all steps is summed in double precision.

    Raises
    ------
    ValueError
        Too few steps, or a forbidden edge of names that there are not.
    """

    def __init__(
        self,
        model: ObservedTransition,
        sequences: Sequences,
        *,
        restarts: int = 2,
        seed: int = 0,
        schedule: ObservedSchedule | None = None,
        holdout: float = 0.0,
        device: str = "cpu",
        dtype: torch.dtype = torch.float64,
    ):
        self.model, self.sequences, self.n_restarts, self.seed = model, sequences, restarts, seed
        self.schedule = schedule or ObservedSchedule()
        self.n_steps, self.ranks = 1, ALONE
        self.forbidden_pairs = _forbidden(model, sequences)
        least = 1 if model.lags == "auto" else int(model.lags)
        steps = steps_of(sequences, observed_values(sequences), least)
        targets, n_steps = steps.targets, len(steps.targets)
        if n_steps < LEAST_STEPS:
            raise ValueError(
                f"X: has {n_steps} step(s) with {least} frame(s) before them, wanted at least {LEAST_STEPS} "
                "to learn from; give longer or more sequences, with fewer gaps or missing frames"
            )
        seen = (~np.isnan(targets)).sum(0)
        if (few := seen < LEAST_STEPS).any():
            raise ValueError(
                f"X: column {sequences.feature_names[int(few.argmax())]!r} was seen in {seen[few.argmax()]} "
                f"of {n_steps} steps, wanted at least {LEAST_STEPS}; leave it out"
            )
        _check_covariates(sequences, steps)
        self.settings: dict[str, Any] = {
            "model": type(model).__name__,
            "seed": seed,
            "restarts": restarts,
            "sequences": len(sequences),
            "lags_asked": model.lags,
            "curves": model.curves,
            "products": model.products,
            "power": model.power,
            "covariates": [] if sequences.design is None else sequences.design.names,
            **self.schedule.as_dict(),
        }

    @cached_property
    def fingerprint(self) -> str:
        """What must agree for a file to belong to this fit."""
        made = files.made(self.model)
        return json.dumps(
            {**self.settings, "made": made, "data": self._digest, "version": __version__}, sort_keys=True
        )

    @cached_property
    def _digest(self) -> str:
        return files.digest(*self.sequences.content())

    def groups(self) -> list[range]:
        """All chains share a pass."""
        return [range(self.n_restarts)]

    def make(self, group: range) -> ObservedGroup:
        """The fit before its start."""
        return ObservedGroup(self)

    def status(self, run: Run) -> str:
        """What the bar says: nothing, there is one step."""
        return ""

    def conclude(self, trained: list[ObservedGroup], notes: list[str]) -> ObservedFit:
        """The fit."""
        [group] = trained
        assert group.result is not None
        group.result.findings.extend(Finding("training", note) for note in notes)
        return group.result

    def pieces(self, n_jobs: int) -> list[range]:
        """None: chains share one pass, in one process."""
        raise ValueError(_ONE_PASS)

    def part(self, restarts: range) -> dict[str, Any]:
        """None, as `pieces`."""
        raise ValueError(_ONE_PASS)

    def merge(self, trained_parts: list[dict[str, Any]], notes: list[str]) -> ObservedFit:
        """None, as `pieces`."""
        raise ValueError(_ONE_PASS)

    # ---- the fit -------------------------------------------------------------------------------------------
    def fitted(self) -> ObservedFit:
        """Lags, imputations, posterior and checks, one after the other."""
        sequences, names = self.sequences, self.sequences.feature_names
        rng = np.random.default_rng([self.seed, 1])
        start = imputed(sequences, rng)
        lags, by_lag, findings = self._lags(start)
        steps = steps_of(sequences, start, lags)
        if _is_partly_seen(sequences):
            fillings, by_chain = self._augmented(start, lags)
        else:
            fillings, by_chain = [start], [[self._posterior(steps, lags, self.seed)]]
        posteriors = [posterior for chain in by_chain for posterior in chain]
        if sequences.missing:
            observed = observed_values(sequences)
            present = observed if sequences.present is None else observed[sequences.present]
            findings.append(
                missing_cells(
                    int(np.isnan(present).sum()),
                    present.size,
                    steps.n_filled,
                    len(steps.targets),
                    self.schedule.imputations,
                    _seldom_seen(sequences),
                )
            )
        if steps.n_blank:
            findings.append(
                Finding(
                    "gaps",
                    f"{steps.n_blank} of {steps.n_blank + len(steps.targets)} steps are left out, "
                    "since nothing was seen of a frame that they need",
                    source="data",
                )
            )
        findings += levels_of_sequences(sequences, start, lags, self.seed)
        findings += cut_off(far_cells(steps.targets), names)
        residual = np.mean([p.residual for p in posteriors], axis=0)
        residual[np.isnan(steps.targets)] = np.nan
        findings += timing_findings(sequences, start, lags, residual)
        findings += measurement_error(sequences, start)
        correlation, counts = noise_correlation(residual)
        findings += within_step(correlation, counts, names)
        curved, strength = (np.mean([getattr(p, n) for p in posteriors], 0) for n in ("curved", "strength"))
        return ObservedFit(
            model=self.model,
            sequences=sequences,
            lags=lags,
            by_chain=np.concatenate([np.mean([p.by_chain for p in chain], 0) for chain in by_chain]),
            draws=np.concatenate([_kept(chain, self.schedule.num_draws, rng) for chain in by_chain]),
            curved=curved,
            strength=strength,
            noise_correlation=correlation,
            explained=1 - np.nanmean(residual**2, 0),
            lag_evidence=by_lag,
            filled=_filled_cells(sequences, fillings),
            sets=_padded([p.sets for p in _spread(posteriors, len(fillings))]),
            slab=np.stack([p.settled.slab for p in _spread(posteriors, len(fillings))]),
            settings={
                **self.settings,
                "data": self._digest,
                "lags": lags,
                "steps": len(steps.targets),
                "version": __version__,
            },
            findings=findings,
        )

    def _augmented(
        self, start: NDArray[np.float64], lags: int, look: bool = False
    ) -> tuple[list[NDArray[np.float64]], list[list[TermPosterior]]]:
        """Draws of the missing cells, a few of all, and the posteriors given each, by chain."""
        schedule, sequences = self.schedule, self.sequences
        keep = min(_LOOK_DRAWS, schedule.imputations) if look else schedule.imputations
        n_chains = 1 if look else self.n_restarts
        shapes = self.model.curves, self.model.products and not look
        values: list[NDArray[np.float64]] = []
        chains = []
        for chain in range(n_chains):
            rng = np.random.default_rng([self.seed, 2, lags, chain])
            first = start if chain == 0 else imputed(sequences, rng)

            def sample(
                steps: Steps, last: TermPosterior | None, rng: np.random.Generator = rng
            ) -> TermPosterior:
                seed = int(rng.integers(2**31))
                return self._posterior(steps, lags, seed, look, last, max(keep, 1))

            candidates = candidates_of(sequences, lags)
            draws = augmented(sequences, first, lags, candidates, shapes, sample, rng)
            kept = list(islice(draws, keep // 2, keep // 2 + keep))
            values += [filled for filled, _ in kept]
            chains.append([posterior for _, posterior in kept])
        return _spread(values, _FILLINGS), chains

    def _posterior(
        self,
        steps: Steps,
        lags: int,
        seed: int,
        look: bool = False,
        last: TermPosterior | None = None,
        of_draws: int = 0,
    ) -> TermPosterior:
        """Parents of all targets; a brief look has no products and one chain.

        One of several draws of the missing cells has one chain, which goes on from where the last ended.
        """
        d, candidates = len(self.sequences.feature_names), candidates_of(self.sequences, lags)
        forbidden = None
        if self.forbidden_pairs.any():
            past, action = self.forbidden_pairs[:, :d], self.forbidden_pairs[:, d:]
            forbidden = np.concatenate([*[past] * lags, action], 1)
        schedule = self.schedule
        num_draws = 1 if look else schedule.num_draws
        n_steps = min(_LOOK_STEPS, schedule.sampler_steps) if look else schedule.sampler_steps
        if of_draws:
            n_steps = max(n_steps // _SHARE, min(_LEAST_FLIPS, n_steps))
        return term_posterior(
            steps.inputs,
            steps.targets,
            candidates,
            forbidden=forbidden,
            curves=self.model.curves,
            products=self.model.products and not look,
            power=self.model.power,
            steps=n_steps,
            rounds=schedule.rounds if last is None else 0,
            n_chains=1 if look or of_draws else self.n_restarts,
            num_draws=-(-num_draws // max(of_draws, 1)),
            settled=None if last is None else last.updated,
            starts=None if last is None else [row[row >= 0].tolist() for row in last.sets[0, -1]],
            burn=_BURN // 2 if of_draws else _BURN,
            covariates=steps.covariates,
            seed=seed,
        )

    def _lags(self, values: NDArray[np.float64]) -> tuple[int, pd.DataFrame, list[Finding]]:
        """Lags of the model, how probable edges at each are, and whether one more still predicts."""
        model, names, d = self.model, self.sequences.feature_names, len(self.sequences.feature_names)
        auto = model.lags == "auto"
        asked = model.max_lags if auto else int(model.lags)
        looked = asked + 1
        while looked > 1 and len(steps_of(self.sequences, values, looked).targets) < LEAST_STEPS:
            looked -= 1
        if _is_partly_seen(self.sequences):
            [chain] = self._augmented(values, looked, look=True)[1]
            probability = np.mean([posterior.probability for posterior in chain], 0)
        else:
            steps = steps_of(self.sequences, values, looked)
            probability = self._posterior(steps, looked, self.seed + 3, look=True).probability
        p = probability[:, : looked * d].reshape(d, looked, d).transpose(1, 0, 2)
        by_lag = pd.DataFrame(
            {"largest": p.max((1, 2)), "expected_edges": p.sum((1, 2))},
            index=pd.RangeIndex(1, looked + 1, name="lag"),
        )
        within = min(asked, looked)
        probable = np.flatnonzero(by_lag["largest"].to_numpy()[:within] >= _PROBABLE) + 1
        lags = (int(probable.max()) if len(probable) else 1) if auto else asked
        findings = []
        if looked > lags and (not auto or lags == within):
            findings = missing_lags(p[lags], lags, names, [*names, *self.sequences.action_names])
        return lags, by_lag, findings


class ObservedGroup:
    """The one pass of a fit, before and after."""

    is_early = True
    place = "in its one pass"

    def __init__(self, job: ObservedJob):
        self.job = job
        self.result: ObservedFit | None = None

    @property
    def step(self) -> int:
        """Passes made."""
        return int(self.result is not None)

    def load(self, saved: dict[str, Any]) -> None:
        """Nothing: a pass is made again, with the same bits."""

    def state(self) -> dict[str, Any]:
        """Nothing is worth keeping of a pass that takes seconds."""
        return {}

    def finish(self, show: Callable[[Any], None]) -> None:
        """Make the pass."""
        self.result = self.job.fitted()

    def conclude(self, notes: list[str], alone: bool, show: Callable[[Any], None]) -> bool:
        """Nothing follows."""
        return True


def _is_partly_seen(sequences: Sequences) -> bool:
    """Whether a frame has cells that were seen and others that were not."""
    seen = ~np.isnan(observed_values(sequences))
    return bool((seen.any(-1) & ~seen.all(-1)).any())


def _kept(posteriors: list[TermPosterior], num_draws: int, rng: np.random.Generator) -> NDArray[np.int8]:
    """Draws of all imputations, as many from each."""
    if len(posteriors) == 1:
        return posteriors[0].draws
    pool = np.concatenate([p.draws for p in posteriors], 1)
    return np.ascontiguousarray(pool[:, np.sort(rng.choice(pool.shape[1], num_draws, replace=False))])


def _seldom_seen(sequences: Sequences) -> list[str]:
    """Variables that were seen in less than half of the frames of which anything was."""
    seen = ~np.isnan(observed_values(sequences))
    share = seen.sum((0, 1)) / max(int(seen.any(-1).sum()), 1)
    return [name for name, of_all in zip(sequences.feature_names, share, strict=True) if of_all < 0.5]


def _spread(values: list[T], n: int) -> list[T]:
    """At most n of them, at equal distances, the last among them."""
    at = np.unique(np.linspace(len(values) - 1, 0, min(n, len(values))).round().astype(int))
    return [values[k] for k in at]


def _filled_cells(sequences: Sequences, fillings: list[NDArray[np.float64]]) -> NDArray[np.float64]:
    """Missing cells of frames that were seen in part, (filling, cell)."""
    drawn = cells_to_fill(sequences)
    return np.stack([values[drawn] for values in fillings])


def _padded(sets: list[NDArray[np.int16]]) -> NDArray[np.int16]:
    """Sets of terms (filling, draw, target, term) of all chains of each filling together."""
    longest = max(of_chain.shape[-1] for of_chain in sets)
    wide = [
        np.pad(of_chain, [(0, 0)] * 3 + [(0, longest - of_chain.shape[-1])], constant_values=-1)
        for of_chain in sets
    ]
    return np.stack([of_chain.reshape(-1, *of_chain.shape[2:]) for of_chain in wide])


def _forbidden(model: ObservedTransition, sequences: Sequences) -> NDArray[np.bool_]:
    """(variable, variable or action): True where there can be no edge."""
    names, sources = sequences.feature_names, [*sequences.feature_names, *sequences.action_names]
    forbidden = np.zeros((len(names), len(sources)), bool)
    for target, source in model.forbidden:
        for name, known, role in ((target, names, "variable"), (source, sources, "variable or action")):
            if name not in known:
                raise ValueError(
                    f"forbidden: ({target!r}, {source!r}) names {name!r}, which is no {role} of X; "
                    f"there are {known[:8]}"
                )
        forbidden[names.index(target), sources.index(source)] = True
    return forbidden


def _check_covariates(sequences: Sequences, steps: Steps) -> None:
    """Complain where trend, season and covariates leave nothing of a variable or an action."""
    if steps.covariates is None or sequences.design is None:
        return
    names = " and ".join(sequences.design.names)
    for j, name in enumerate(sequences.feature_names):
        seen = ~np.isnan(steps.targets[:, j])
        basis = effects_basis(steps.covariates[seen])
        if (rest := int(seen.sum()) - 1 - basis.shape[1]) < LEAST_STEPS:
            raise ValueError(
                f"trend, season, covariates: have {basis.shape[1]} effects on {name!r}, seen in "
                f"{int(seen.sum())} steps, which leaves {max(rest, 0)}, wanted at least {LEAST_STEPS}; leave "
                "some out, or give longer sequences"
            )
        if not freed(winsorised(steps.targets[seen][:, [j]]), basis).any():
            raise ValueError(f"X: column {name!r} follows from {names}; leave it out, or them")
    if sequences.actions is not None:
        actions = steps.inputs[:, -sequences.actions.shape[-1] :]
        basis = effects_basis(steps.covariates)
        left: NDArray[np.bool_] = np.any(freed(winsorised(actions), basis) != 0, axis=0)
        ends = np.cumsum(sequences.action_widths)
        for name, end, width in zip(sequences.action_names, ends, sequences.action_widths, strict=True):
            if not left[end - width : end].any():
                raise ValueError(f"actions: {name!r} follows from {names}; leave it out, or them")
