"""Gates, the 0/1 edges of mechanisms: drawn from their conditionals, all features at once."""

from __future__ import annotations

from typing import Any

import torch

from .recorded import Block, Position, RecordedDensity

__all__ = ["GateSampler"]


class GateSampler:
    """Draws the 0/1 gates of a site given the rest, factor by factor, all features at once.

    Parameters
    ----------
    density : RecordedDensity
    block : Block
    u : dict of Tensor
        Not used: gates have no scale to learn.
    """

    method, acceptance = "gibbs", 1.0

    def __init__(self, density: RecordedDensity, block: Block, u: Position):
        self.density, self.block = density, block
        self.prob = self.density.pack(block, u)

    def ascend(self, u: Position) -> Position:
        """As `draw`."""
        return self.draw(u, adapts=True)

    def draw(self, u: Position, adapts: bool) -> Position:
        """Every gate from its conditional; `prob` then has the conditional probabilities."""
        gate = self.density.pack(self.block, u)
        log_odds = self.density.edges(u)[self.block.name].log_odds
        now = self.density.total(self.block, gate, u)
        prob = torch.zeros_like(gate)
        for k in torch.randperm(gate.shape[-1]).tolist():
            flipped = gate.clone()
            flipped[..., k] = 1 - gate[..., k]
            then = self.density.total(self.block, flipped, u)
            gain = torch.where(gate[..., k] > 0.5, now - then, then - now)  # of its being there
            odds = log_odds[..., k] + gain.nan_to_num(nan=0.0)
            prob[..., k] = torch.sigmoid(odds)
            there = (torch.rand_like(odds).logit() < odds).to(gate.dtype)
            changes = there != gate[..., k]
            now = torch.where(changes, then, now)
            gate = torch.where(changes[..., None], flipped, gate)
        self.prob = prob
        return self.density.unpack(self.block, gate, u)

    def settle(self) -> None:
        """End of the warm-up: nothing to tune."""

    def state(self) -> dict[str, Any]:
        """The probabilities of its last sweep."""
        return {"prob": self.prob}

    def load(self, saved: dict[str, Any]) -> None:
        """Go on from a state."""
        self.prob = saved["prob"]
