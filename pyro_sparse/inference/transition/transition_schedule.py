"""When each part of a latent transition is fitted: one frozen record of the numbers that steer it.

First the dense program for `steps` steps; then the axes are found and the edges' own networks are fitted for
`edge_steps` steps, all else frozen. Times are fractions of the part at hand. How large a minibatch is depends
on how many sequences there are: networks that see the same few too often overfit them. A short fit
does not come to that, and wants large ones.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar

from ..training._settings import POSITIVE, SHARE, Limits, Settings

__all__ = ["TransitionSchedule"]

# Sequences in a minibatch; passes over them all in the dense program. With 170 passes over 10,000 sequences
# networks of the default size learned them by heart, and the held-out ELBO fell.
_LARGEST, _PASSES = 512, 60
_UNDECIDED = "steps are left open: call decided() first"


@dataclass(frozen=True)
class TransitionSchedule(Settings):
    """Settings of the two parts of a fit.

    Attributes
    ----------
    steps : int or None
        Minibatch steps of the dense program. None: 3,000, or 4,000 where only actions drive, for then a
        sequence says less.
    batch_size : int or None
        Sequences in each. None: 512, but of a fit with as many `steps` as None means, or more, so few that
        its dense program sees each 60 times at most.
    learning_rate : float
        SOAP's step size: reached after `warm_up` steps, constant until `decay_from`, then a half cosine down
        to 0.2 % of it.
    warm_up : int
        Steps, at most a tenth of all.
    decay_from : float
        Fraction of the steps.
    polish_steps, polish_rate : int or None, float
        Steps of frames and networks together with the gates fixed at the graph found, and their step size;
        after them the axes are sought again. None: half of `steps`; 0: no polish.
    edge_steps, edge_rate : int, float
        Steps of the gated program and their step size.
    temperature_start, temperature_end : float
        Temperature of the relaxed edges, falling exponentially.
    evaluate_every : int
        Steps between entries of the history, and between the states that a fit may go back to: it ends with
        the best on the held-out sequences, where these say that the last one is worse.
    patience : int or None
        Stop when the held-out ELBO has not improved for so many entries.

    Raises
    ------
    ValueError
        A setting is out of its range; the message names it, what is wanted and what was given.
    """

    steps: int | None = None
    batch_size: int | None = None
    learning_rate: float = 1.2e-2  # SOAP reaches with it in 80 CPU seconds what Adam does not in ten minutes
    warm_up: int = 300
    decay_from: float = 0.3
    polish_steps: int | None = None
    polish_rate: float = 6e-3
    edge_steps: int = 1000
    edge_rate: float = 1e-2
    temperature_start: float = 1.0
    temperature_end: float = 0.3
    evaluate_every: int = 100
    patience: int | None = None

    WHOLE: ClassVar[dict[str, int]] = {
        **dict.fromkeys(("steps", "batch_size", "evaluate_every", "patience"), 1),
        **dict.fromkeys(("edge_steps", "polish_steps", "warm_up"), 0),
    }
    NUMBERS: ClassVar[dict[str, Limits]] = {
        **dict.fromkeys(
            ("learning_rate", "polish_rate", "edge_rate", "temperature_start", "temperature_end"), POSITIVE
        ),
        "decay_from": SHARE,
    }

    def decided(self, lags: int, n_sequences: int) -> TransitionSchedule:
        """The same record with nothing left open, for a model with so many lags and so many sequences."""
        usual = 3000 if lags else 4000
        steps = usual if self.steps is None else self.steps
        polish_steps = steps // 2 if self.polish_steps is None else self.polish_steps
        size = _LARGEST if self.batch_size is None else self.batch_size
        if self.batch_size is None and steps >= usual:
            size = min(size, max(1, round(_PASSES * n_sequences / steps)))
        return replace(self, steps=steps, polish_steps=polish_steps, batch_size=size)

    def rate(self, step: int) -> float:
        """The optimiser's step size at `step`."""
        assert self.steps is not None, _UNDECIDED
        warm_up = min(self.warm_up, self.steps // 10)
        rise = min(1.0, (step + 1) / warm_up) if warm_up else 1.0
        past = max(0.0, (step / self.steps - self.decay_from) / max(1 - self.decay_from, 1e-9))
        return self.learning_rate * rise * (0.5 * (1 + math.cos(math.pi * min(1.0, past))) + 0.002)

    def kl_weight(self, step: int) -> float:
        """Always 1: the bound itself."""
        return 1.0

    def temperature(self, step: int) -> float:
        """Temperature of the relaxed edges at `step`."""
        assert self.steps is not None, _UNDECIDED
        return self.temperature_start * (self.temperature_end / self.temperature_start) ** (step / self.steps)

    def stage(self, step: int) -> str:
        """Name of the part at hand, for the history."""
        return "dense"

    @property
    def settled(self) -> int:
        """First step after which nothing but the learning rate changes."""
        assert self.steps is not None, _UNDECIDED
        return int(self.decay_from * self.steps) + 1

    def of_edges(self) -> TransitionSchedule:
        """The same record for the second part, whose `steps` are `edge_steps`."""
        return replace(
            self,
            steps=max(self.edge_steps, 1),
            learning_rate=self.edge_rate,
            warm_up=min(self.warm_up, 50),
            patience=None,
        )

    def of_polish(self, steps: int) -> TransitionSchedule:
        """The same record for `steps` of the polish, or of the refit after it: a falling step size."""
        return replace(
            self,
            steps=max(steps, 1),
            learning_rate=self.polish_rate,
            warm_up=min(self.warm_up, 50),
            decay_from=0.0,
            patience=None,
        )
