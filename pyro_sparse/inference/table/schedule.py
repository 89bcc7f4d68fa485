"""When each part of the objective acts: one frozen record of every number that steers a fit.

Times are fractions of `steps`. The defaults were chosen on tuning seeds; ``python -m benchmarks ablation``
takes them away one at a time.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from ..training._settings import NOT_NEGATIVE, POSITIVE, SHARE, Limits, Settings

__all__ = ["LEAST_STEPS", "Schedule"]

LEAST_STEPS = 500
"""Of training, before anything is searched or said of what restarts found: a shorter fit is a trial."""

_MEMORY = Limits("two numbers from 0 to below 1", 0, 1, without_high=True)


@dataclass(frozen=True)
class Schedule(Settings):
    """Settings of the training loop.

    Attributes
    ----------
    steps, batch_size : int
        Number of minibatch steps (at most `steps_to_graphs` or `steps_to_compare` where these are enough),
        rows in each.
    steps_to_graphs : int or None
        Steps, at most, where training only leads to graphs: a search improves them, and restarts are put at
        their maxima in closed form (`linear_maximum.py`: linear decoders with normal noise, 30 to 1,000 rows,
        up to 100 columns, any edge possible, `steps` of 500 or more). None: `steps`.
    steps_to_compare : int or None
        Steps, at most, of each restart of a linear decoder under other likelihoods, where restarts are
        compared at the maxima of their graphs, those that begin at graphs of a search among them
        (`graph_restarts.py`, up to 5,000 rows). The best is then trained further, by as many again at most,
        within `steps`. None: `steps` of each.
    learning_rate : float
        Adam's step size: reached after `warm_up` steps, constant until `decay_from`, then falling linearly
        to the share `decay_to` of it.
    betas : (float, float)
        Adam's memory of the mean gradient and of its square. The usual second one, .999, remembers a thousand
        steps: most of a fit, in which the objective changes several times.
    kl_start, kl_until : float
        Weight of the divergence at the start, and when it reaches 1.
    encoder_frozen_until : float
        Until then the encoder stays at the data-driven start, while the decoder learns what that start means.
    reintroduce_at : float
        When features that nothing explained at the start are let in, by `directions.admit`.
    lasso_weight, lasso_from, lasso_until : float
        A plain lasso at the share `lasso_weight` of the prior's screening rate; it rotates the axes to sparse
        ones. None: half of it, a quarter for a linear decoder, whose loadings it shrinks. The latter is of
        standardised columns: it is weaker, the less a cell tells (yes or no, few counts) or the larger its
        unit, and up to twice as strong where cells tell much (high counts).
    relax_lasso_from : float
        From then on the lasso of a linear decoder holds the edges near zero only, as the relaxed lasso does:
        loadings that it has shrunk would not pass the prior's threshold, and their factors would be lost.
    prune_at : tuple of float
        When `deletions.prune` deletes edges and factors that cost more than they explain.
    em_every : int
        Steps between closed-form updates of the prior.
    weight_decay : float
        Decoupled decay of the decoder's trunk and heads: the Gaussian prior of theta.
    evaluate_every : int
        Steps between entries of the history.
    patience : int or None
        Stop when no restart's held-out ELBO has improved for so many entries, after the last deletion.

    Raises
    ------
    ValueError
        A setting is out of its range; the message names it, what is wanted and what was given.
    """

    # Warm-ups, decay and stages are those of a prototype that worked; what each part is worth: RESULTS.md,
    # ablation. 1,000 steps, or a step size of 1.5e-2, are a little worse (NOTEBOOK.md, same_elbo).
    steps: int = 1250
    batch_size: int = 100
    # 150, 300, 500 and 1,250 steps lead to the same graph on 30 of 30 tables of blocks (tuning seeds from
    # 1000) and on all of six other kinds, real and dense ones among them (NOTEBOOK.md, steps to a graph).
    steps_to_graphs: int | None = 150
    # 400, and 400 more of the best, lead to as many factors as 1,250 of all on 46 of 48 tables (seeds 1200 to
    # 1211; 45 right both ways) and to levels -4 to +6 nats apart (median -.06), in .68 of the time.
    steps_to_compare: int | None = 400
    learning_rate: float = 1e-2
    betas: tuple[float, float] = (0.9, 0.99)
    warm_up: int = 50
    decay_from: float = 0.6
    decay_to: float = 0.02
    kl_start: float = 0.1
    kl_until: float = 0.3
    encoder_frozen_until: float = 0.1
    reintroduce_at: float = 0.25
    lasso_weight: float | None = None
    lasso_from: float = 0.3
    lasso_until: float = 0.75
    relax_lasso_from: float = 0.5
    prune_at: tuple[float, ...] = (0.6, 0.75, 0.85)
    em_every: int = 10  # code published for the sparse VAE updates after every minibatch
    weight_decay: float = 0.2
    evaluate_every: int = 50
    patience: int | None = 6

    WHOLE: ClassVar[dict[str, int]] = {
        **dict.fromkeys(
            (
                "steps",
                "steps_to_graphs",
                "steps_to_compare",
                "batch_size",
                "em_every",
                "evaluate_every",
                "patience",
            ),
            1,
        ),
        "warm_up": 0,
    }
    NUMBERS: ClassVar[dict[str, Limits]] = {
        "learning_rate": POSITIVE,
        **dict.fromkeys(("kl_start", "lasso_weight", "weight_decay"), NOT_NEGATIVE),
        **dict.fromkeys(
            (
                "decay_from",
                "decay_to",
                "kl_until",
                "encoder_frozen_until",
                "reintroduce_at",
                "lasso_from",
                "lasso_until",
            ),
            SHARE,
        ),
        "relax_lasso_from": SHARE,
    }

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.prune_at, tuple) or not all(at in SHARE for at in self.prune_at):
            raise ValueError(
                f"prune_at: want shares of the steps, such as (0.6, 0.75), got {self.prune_at!r}"
            )
        two = isinstance(self.betas, tuple) and len(self.betas) == 2
        if not two or not all(beta in _MEMORY for beta in self.betas):
            raise ValueError(f"betas: want {_MEMORY.wanted}, got {self.betas!r}")

    def to_graphs(self) -> Schedule:
        """This schedule with at most `steps_to_graphs` steps."""
        return self._of_at_most(self.steps_to_graphs)

    def to_compare(self) -> Schedule:
        """This schedule with at most `steps_to_compare` steps."""
        return self._of_at_most(self.steps_to_compare)

    def _of_at_most(self, steps: int | None) -> Schedule:
        return self if steps is None else replace(self, steps=min(self.steps, steps))

    def rate(self, step: int) -> float:
        """Adam's step size at `step`."""
        rise = min(1.0, (step + 1) / self.warm_up) if self.warm_up else 1.0
        done = step / self.steps
        fall = 1.0 if done <= self.decay_from else max(self.decay_to, (1 - done) / (1 - self.decay_from))
        return self.learning_rate * rise * fall

    def kl_weight(self, step: int) -> float:
        """Weight of the divergence at `step`."""
        if self.kl_until <= 0:
            return 1.0
        return self.kl_start + (1 - self.kl_start) * min(1.0, step / self.steps / self.kl_until)

    def screening(self, linear: bool) -> float:
        """Share of the prior's screening rate, for a linear decoder or another."""
        if self.lasso_weight is not None:
            return self.lasso_weight
        # No layer behind linear weights makes up for what is shrunk: with .5, not relaxed, small noisy tables
        # lost whole factors (tuning tables: MCC .50 to .73, and .90 to .93 now).
        return 0.25 if linear else 0.5

    def stage(self, step: int) -> str:
        """ "start", "dense", "lasso" or "sparse"."""
        done = step / self.steps
        if done < self.encoder_frozen_until:
            return "start"
        if done < self.lasso_from:
            return "dense"
        return "lasso" if done < self.lasso_until else "sparse"

    def ladder(self, step: int) -> float:
        """Progress on the prior's ladder at `step`: climbed while the lasso screens, then it stays at 1."""
        done = step / self.steps
        if done >= self.lasso_until:
            return 1.0
        return min(1.0, max(0.0, (done - self.lasso_from) / max(self.lasso_until - self.lasso_from, 1e-9)))

    def admits(self, step: int) -> bool:
        """Whether waiting features are let in after `step`."""
        return step == int(self.reintroduce_at * self.steps)

    def releases(self, step: int) -> bool:
        """Whether rows held along a direction are let go after `step`: when the lasso stage ends."""
        return step == int(self.lasso_until * self.steps)

    def prunes(self, step: int) -> bool:
        """Whether deletions are made after `step`."""
        return step in {int(at * self.steps) for at in self.prune_at}

    @property
    def settled(self) -> int:
        """First step after which nothing but the learning rate changes."""
        last = max((self.lasso_until, self.kl_until, *self.prune_at))
        return int(last * self.steps) + 1
