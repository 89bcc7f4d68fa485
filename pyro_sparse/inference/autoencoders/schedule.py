"""When and how fast a pair of autoencoders learns: one frozen record of the numbers that steer it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from ..training._settings import POSITIVE, Limits, Settings

__all__ = ["AutoencoderSchedule"]

_LEAST_STEPS = 2000  # a small table is read more than once
_DEAD_SHARE, _LEAST_DEAD, _MOST_DEAD = 1 / 30, 2000, 20_000


@dataclass(frozen=True)
class AutoencoderSchedule(Settings):
    """Settings of the training of an `AutoencoderPair`.

    Attributes
    ----------
    steps : int or None
        Minibatch steps; None is one pass over the rows, and at least 2,000.
    batch_size : int
        Rows of a step.
    learning_rate : float
        Of Adam, reached after the first 2 % of the steps, falling linearly to 0 over the last 20 %. It
        decides how many latents die: at a quarter of it hardly any does, and it takes twice the rows to come
        as far.
    dead_after : int or None
        Rows since a latent was last active after which it counts as dead and learns from what the others
        leave. None is a thirtieth of the rows of this training, from 2,000 to 20,000: what matters is that
        it is short.
    penalty_share : float
        Share of each minibatch from whose rows a penalty is computed.
    evaluate_every : int
        Steps between entries of the history.

    Raises
    ------
    ValueError
        A setting is out of its range; the message names it, what is wanted and what was given.
    """

    steps: int | None = None
    batch_size: int = 512
    learning_rate: float = 4e-3
    dead_after: int | None = None
    penalty_share: float = 0.25
    evaluate_every: int = 100

    WHOLE: ClassVar[dict[str, int]] = dict.fromkeys(
        ("steps", "batch_size", "dead_after", "evaluate_every"), 1
    )
    NUMBERS: ClassVar[dict[str, Limits]] = {
        "learning_rate": POSITIVE,
        "penalty_share": Limits("a share in (0, 1]", 0, 1, without_low=True),
    }

    def decided(self, n_rows: int) -> AutoencoderSchedule:
        """The same with all numbers, for so many rows to learn from.

        Parameters
        ----------
        n_rows : int
        """
        size = min(self.batch_size, n_rows)
        steps = self.steps or max(-(-n_rows // size), _LEAST_STEPS)
        window = int(min(max(_DEAD_SHARE * steps * size, _LEAST_DEAD), _MOST_DEAD))
        return replace(self, batch_size=size, steps=steps, dead_after=self.dead_after or window)

    def rate(self, step: int) -> float:
        """Adam's step size at `step`.

        Parameters
        ----------
        step : int
        """
        assert self.steps is not None
        rise, left = (step + 1) / (0.02 * self.steps), (1 - step / self.steps) / 0.2
        return self.learning_rate * min(1.0, rise, left)
