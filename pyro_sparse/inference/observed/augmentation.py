r"""Missing cells of frames that were seen in part, drawn with the model itself (data augmentation).

.. math:: \gamma, \beta, \sigma^2 \mid x_\mathrm{seen}, x_\mathrm{missing} \qquad \text{and} \qquad
          x_\mathrm{missing} \mid x_\mathrm{seen}, \gamma, \beta, \sigma^2

in turn. The first is a short run of the sampler of terms, and a draw of the effects; the second Metropolis
steps for single cells, each judged by its own step and by those that it leads to. Noises of a step that go
together are taken as correlated, so that a cell is drawn from the others of its frame, too.

Regressions on neighbours that know no zeros (`steps.imputed`), from which the chain begins, make up effects
where many cells are missing: what they put in comes out as edges.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray

from ...data.sequences import Sequences
from .effects import Effects, draw_effects, prepared
from .posterior import Candidates, TermPosterior, classes_of
from .steps import Steps, observed_values, steps_of
from .terms import term_map

__all__ = ["Cells", "augmented"]

_SCALES = 2.0, 1.0, 2.0  # of the proposals of a sweep, in standard deviations of the noise
_STANDARD_ERRORS = 3.0  # of a correlation of two noises, from which it is one

Sampler = Callable[[Steps, TermPosterior | None], TermPosterior]


def augmented(
    sequences: Sequences,
    start: NDArray[np.float64],
    lags: int,
    candidates: Candidates,
    shapes: tuple[bool, bool],
    sample: Sampler,
    rng: np.random.Generator,
) -> Iterator[tuple[NDArray[np.float64], TermPosterior]]:
    """A chain of missing cells and what follows from each draw of them, without end.

    Parameters
    ----------
    sequences : Sequences
    start : ndarray (sequence, time, variable)
        `steps.imputed`.
    lags : int
    candidates : Candidates
    shapes : tuple of bool
        Whether there are curves and products.
    sample : callable
        From the steps, and the posterior of the draw before, to the posterior.
    rng : Generator

    Yields
    ------
    values : ndarray (sequence, time, variable)
    posterior : TermPosterior
        Of these values, those that were drawn among the targets.
    """
    values, last = start.copy(), None
    of_column = np.repeat(np.arange(candidates.total), candidates.widths)
    cells = Cells(sequences, values, lags)
    while True:
        steps = steps_of(sequences, values, lags, filled_targets=True)
        last = sample(steps, last)
        yield values.copy(), last
        of_steps = prepared(term_map(steps.inputs, *shapes, of_column), steps.inputs, steps.covariates)
        effects = [
            draw_effects(
                of_steps, target, last.sets[0, -1:, i],
                last.settled.slab[classes_of(of_steps.terms, i, candidates)], rng,
            )
            for i, target in enumerate(steps.targets.T)
        ]  # fmt: skip
        cells.draw(values, effects, steps, rng)


class Cells:
    """The missing cells of frames that were seen in part, and the steps that judge each.

    Parameters
    ----------
    sequences : Sequences
    values : ndarray (sequence, time, variable)
        With the cells filled in.
    lags : int
    """

    def __init__(self, sequences: Sequences, values: NDArray[np.float64], lags: int) -> None:
        self.lags = lags
        self.actions = sequences.actions
        missing = np.isnan(observed_values(sequences)) & ~np.isnan(values)
        at = steps_of(sequences, values, lags).at
        n, frames, d = values.shape
        number = np.full((n, frames + lags), -1)
        number[at[:, 0], at[:, 1]] = np.arange(len(at))
        self.groups = []  # cells that share no step: of one variable, more than `lags` frames apart
        for j in range(d):
            cell = np.argwhere(missing[..., j])
            for phase in range(lags + 1):
                some = cell[cell[:, 1] % (lags + 1) == phase]
                if len(some):
                    judges = np.stack([number[some[:, 0], some[:, 1] + back] for back in range(lags + 1)], 1)
                    self.groups.append((j, some, judges))
        self.at = at

    def draw(
        self,
        values: NDArray[np.float64],
        effects: list[Effects],
        steps: Steps,
        rng: np.random.Generator,
    ) -> None:
        """Move every cell, in place.

        Parameters
        ----------
        values : ndarray (sequence, time, variable)
        effects : list of Effects
            One draw of each target.
        steps : Steps
            Of the values.
        rng : Generator
        """
        weights = np.stack([of_target.weights[0] for of_target in effects], 1)
        used = np.flatnonzero(weights.any(1))
        weights, terms = weights[used], effects[0].terms
        always = np.stack([of_target.intercept[0] for of_target in effects])[None].repeat(
            len(steps.targets), 0
        )
        if steps.covariates is not None:
            always = always + steps.covariates @ np.stack(
                [of_target.covariates[0] for of_target in effects], 1
            )
        sd = np.array([of_target.noise_sd[0] for of_target in effects])

        def residual(judges: NDArray[np.intp]) -> NDArray[np.float64]:
            place = self.at[judges]
            before = [values[place[:, 0], place[:, 1] - back] for back in range(1, self.lags + 1)]
            if self.actions is not None:
                before.append(self.actions[place[:, 0], place[:, 1]])
            columns = terms.columns(np.concatenate(before, 1), used)
            left = values[place[:, 0], place[:, 1]] - always[judges] - columns @ weights
            return np.asarray(left / sd)

        precision = np.linalg.inv(_correlation(residual(np.arange(len(self.at)))))

        def log_density(judges: NDArray[np.intp], own: NDArray[np.float64]) -> NDArray[np.float64]:
            left = residual(judges[judges >= 0])
            each = np.zeros(judges.shape)
            each[judges >= 0] = -0.5 * np.einsum("ki,ij,kj->k", left, precision, left)
            # of frames that no step leads to: the variables are standardised
            return np.asarray(each.sum(1) - np.where(judges[:, 0] < 0, 0.5 * own**2, 0.0))

        for scale in _SCALES:
            for j, cell, judges in self.groups:
                where = (cell[:, 0], cell[:, 1], np.full(len(cell), j))
                old = values[where]
                before = log_density(judges, old)
                new = old + scale * sd[j] * rng.normal(size=len(old))
                values[where] = new
                better = log_density(judges, new) - before
                values[where] = np.where(np.log(rng.random(len(old))) < better, new, old)


def _correlation(residual: NDArray[np.float64]) -> NDArray[np.float64]:
    """Correlations of noises, those that chance may have made left out."""
    n, d = residual.shape
    if d == 1:
        return np.eye(1)
    r = np.asarray(np.corrcoef(residual.T))
    r[np.abs(np.arctanh(r.clip(-0.999999, 0.999999))) * np.sqrt(max(n - 3, 1)) < _STANDARD_ERRORS] = 0.0
    np.fill_diagonal(r, 1.0)
    value, vector = np.linalg.eigh(r)
    whole = vector * value.clip(0.01) @ vector.T
    size = np.sqrt(np.diag(whole))
    return np.asarray(whole / size / size[:, None])
