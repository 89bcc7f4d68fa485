"""When each part of a multi-task fit happens: one frozen record of the numbers that steer it.

First a representation is learned for `steps` steps with ridge regressions inside, which fixes the latents up
to a linear map; then the sparse axes are found; then everything is trained on for `sparse_steps` steps with
sparse regressions inside.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar

from ..training._settings import NOT_NEGATIVE, POSITIVE, Limits, Settings

__all__ = ["TaskSchedule"]


@dataclass(frozen=True)
class TaskSchedule(Settings):
    r"""Settings of a multi-task fit.

    Attributes
    ----------
    steps : int or None
        Minibatch steps with ridge regressions inside. None: 300 where the encoder is linear and the axes are
        searched for, else 1500.
    batch_size : int
        Tasks in each.
    learning_rate : float or None
        AdamW's step size: reached after `warm_up` steps, then a half cosine down to 1 % of it. None: 0.02
        where `steps` are few because the encoder is linear, else 0.002.
    warm_up : int
        Steps, at most a tenth of all.
    weight_decay : float
        AdamW's.
    ridge : float
        :math:`\kappa` of the inner ridge; latents have unit variance.
    axes : bool
        False: no ridge stage and no search of axes, all `steps` with the sparse regressions inside, as
        published.
    sparse_steps, sparse_rate : int or None, float
        Steps with sparse regressions inside, and their step size. None: a third of `steps`.
    penalty : float
        :math:`\lambda` of the inner lasso, as a share of each task's largest useful one, in (0, 1).
    evaluate_every : int
        Steps between entries of the history.
    patience : int or None
        Stop when held-out tasks have not improved for so many entries.

    Raises
    ------
    ValueError
        A setting is out of its range; the message names it, what is wanted and what was given.
    """

    steps: int | None = None
    batch_size: int = 16
    learning_rate: float | None = None
    warm_up: int = 100
    weight_decay: float = 1e-4
    ridge: float = 1e-3
    axes: bool = True
    sparse_steps: int | None = None
    sparse_rate: float = 5e-4
    penalty: float = 0.05
    evaluate_every: int = 100
    patience: int | None = None

    WHOLE: ClassVar[dict[str, int]] = {
        **dict.fromkeys(("batch_size", "evaluate_every", "patience"), 1),
        **dict.fromkeys(("steps", "sparse_steps", "warm_up"), 0),
    }
    NUMBERS: ClassVar[dict[str, Limits]] = {
        **dict.fromkeys(("learning_rate", "sparse_rate", "ridge"), POSITIVE),
        "weight_decay": NOT_NEGATIVE,
        "penalty": Limits(
            "a share of the largest penalty in (0, 1)", 0, 1, without_low=True, without_high=True
        ),
    }

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.axes, bool):
            raise ValueError(f"axes: want True or False, got {self.axes!r}")

    def for_encoder(self, kind: object) -> TaskSchedule:
        """The same record with numbers for None.

        Ten times the rate takes a linear encoder to the same latents in a fifth of the steps; with sparse
        regressions from the start (``axes=False``) there are many ways to go wrong, and no haste.
        """
        quick = kind == "linear" and self.axes
        steps = (300 if quick else 1500) if self.steps is None else self.steps
        rate = (2e-2 if quick else 2e-3) if self.learning_rate is None else self.learning_rate
        return replace(self, steps=steps, learning_rate=rate)

    def rate(self, step: int) -> float:
        """The optimiser's step size at `step`."""
        assert self.steps is not None and self.learning_rate is not None
        warm_up = min(self.warm_up, self.steps // 10)
        rise = min(1.0, (step + 1) / warm_up) if warm_up else 1.0
        fall = 0.5 * (1 + math.cos(math.pi * min(1.0, step / max(self.steps, 1))))
        return self.learning_rate * rise * (0.01 + 0.99 * fall)

    def kl_weight(self, step: int) -> float:
        """Always 1: the bound itself."""
        return 1.0

    def stage(self, step: int) -> str:
        """Name of the part at hand, for the history."""
        return "dense"

    @property
    def settled(self) -> int:
        """First step after which nothing but the learning rate changes."""
        assert self.steps is not None
        return self.steps // 2

    def of_sparse(self) -> TaskSchedule:
        """The same record for the second part, whose `steps` are `sparse_steps`."""
        assert self.steps is not None
        steps = self.steps // 3 if self.sparse_steps is None else self.sparse_steps
        return replace(self, steps=steps, learning_rate=self.sparse_rate, patience=None)
