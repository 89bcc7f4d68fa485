"""What the warm-up of a decoder's chains learns, and later sweeps leave as it is."""

from __future__ import annotations

from dataclasses import dataclass, field

from torch import Tensor

from .metric import Metric

__all__ = ["OFTEN", "Tuning"]

OFTEN = 1 / 3  # exchanges of factors a sweep, at most


@dataclass(eq=False)
class Tuning:
    """What the warm-up learns: step sizes, where each weight tends to be when it is not small, directions."""

    rows: Tensor
    whole: Tensor
    centre: Tensor
    width: Tensor
    metric: Metric
    damping: Tensor
    strides: dict[str, Tensor] = field(default_factory=dict)  # of the likelihood's parameters
    exchanges: float = OFTEN
    sweeps: int = 0

    def follow(self, weight: Tensor, prob: Tensor) -> None:
        """Centre and width of each weight's proposals: running moments of its values as an edge."""
        rate = 0.1 * prob  # a value counts as far as it was an edge
        move = weight - self.centre
        self.centre += rate * move
        # Half as wide again as the Laplace distribution of these values.
        self.width += rate * (1.5 * move.abs() - self.width)
        self.width.clamp_(min=0.01)
