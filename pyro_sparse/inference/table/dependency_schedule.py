"""When each part of a `DependencyVAE` is fitted: one frozen record of the numbers that steer it.

First the dense program, amid which folded factors are unfolded; at `axes_at` of the steps the axes are found
and the inputs without an edge are cut; then the sparse program to the end.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ..training._settings import POSITIVE, SHARE, Limits, Settings

__all__ = ["MAY_BE", "MOST_MOVE", "DependencySchedule"]

MOST_MOVE = 2.0  # of SOAP: without it some dense fits run away, for little noise makes rare gradients huge
MAY_BE = 0.1  # least probability of an edge that is passed on to the sparse program, which cannot add one


@dataclass(frozen=True)
class DependencySchedule(Settings):
    """Settings of the two parts of a fit.

    Attributes
    ----------
    steps, batch_size : int
        Number of minibatch steps, rows in each.
    axes_at : float or None
        When the axes are found, as a fraction of the steps; at 1 they are found and nothing more is trained.
        None keeps the axes that the fit ends in, and the decoder dense (for a penalty to choose them).
    unfold_at : float or None
        When factors that look folded are fitted anew (`unfold.py`), as a fraction of the dense steps; None
        never. Only with normal noise, and if axes are found.
    learning_rate : float
        SOAP's step size: reached after `warm_up` steps, constant for half of the dense part, then falling
        linearly to the share `decay_to` of it; the sparse part begins at half of it and falls likewise.
    evaluate_every : int
        Steps between entries of the history.
    patience : int or None
        Stop when the held-out ELBO of the sparse program has not improved for so many entries; improbable
        edges are cut then, as at the last step.

    Raises
    ------
    ValueError
        A setting is out of its range; the message names it, what is wanted and what was given.
    """

    steps: int = 3500
    batch_size: int = 256
    axes_at: float | None = 0.75
    unfold_at: float | None = 0.5
    learning_rate: float = 6e-3
    warm_up: int = 50
    decay_to: float = 0.02
    evaluate_every: int = 100
    patience: int | None = None

    WHOLE: ClassVar[dict[str, int]] = {
        **dict.fromkeys(("steps", "batch_size", "evaluate_every", "patience"), 1),
        "warm_up": 0,
    }
    NUMBERS: ClassVar[dict[str, Limits]] = {
        "axes_at": Limits("a share of the steps in (0, 1]", 0, 1, without_low=True),
        "unfold_at": Limits(
            "a share of the dense steps in (0, 1)", 0, 1, without_low=True, without_high=True
        ),
        "learning_rate": POSITIVE,
        "decay_to": SHARE,
    }

    @property
    def dense_steps(self) -> int:
        """Steps of the dense program."""
        return self.steps if self.axes_at is None else max(1, round(self.axes_at * self.steps))

    @property
    def axes_step(self) -> int:
        """Step after which the axes are found; 0 is never."""
        return 0 if self.axes_at is None else self.dense_steps

    @property
    def unfold_step(self) -> int:
        """Step after which folded factors are sought; 0 is never."""
        if self.axes_at is None or self.unfold_at is None:
            return 0
        return round(self.unfold_at * self.dense_steps)

    @property
    def settled(self) -> int:
        """First step after which nothing but the learning rate changes."""
        return self.dense_steps + 1

    def rate(self, step: int) -> float:
        """SOAP's step size at `step`."""
        if step < self.dense_steps:
            done, top, rise = step / self.dense_steps, self.learning_rate, (step + 1) / max(self.warm_up, 1)
        else:
            step, n = step - self.dense_steps, self.steps - self.dense_steps
            done, top, rise = step / n, self.learning_rate / 2, (step + 1) / max(self.warm_up, 1)
        return top * min(1.0, rise) * max(self.decay_to, min(1.0, 2 * (1 - done)))

    def kl_weight(self, step: int) -> float:
        """Weight of the divergence at `step`: always 1."""
        return 1.0

    def stage(self, step: int) -> str:
        """ "dense" or "sparse"."""
        return "dense" if step < self.dense_steps else "sparse"
