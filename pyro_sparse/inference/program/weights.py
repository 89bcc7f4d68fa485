r"""Edges of all features at once: a spike-and-slab sweep under a quadratic, corrected by one Metropolis step.

The log likelihood of feature j's weights is replaced by its quadratic :math:`b^\top w - \tfrac12 w^\top A w`
at a point that does not depend on them. Under it each pair :math:`(\gamma_{jk}, w_{jk})` has a closed
conditional; a sweep over the factors in random order is reversible, so that the ratio of the true likelihood
to the quadratic, of the last state to the first, is all that Metropolis has to ask. Slabs and spikes that are
no normal distributions are such with scales that are drawn first (`edge_densities.py`).

Every third time weights also walk: a scan under the quadratic at where they are, whose way back is the
opposite scan under the quadratic at where they would be.

References
----------
Gamerman (1997), Sampling from the posterior distribution in generalized linear mixed models, Statistics and
Computing 7
Neal (2011), MCMC using Hamiltonian dynamics, section 5.4.3 (surrogate transitions: Liu 2001, section 9.4.3)
"""

from __future__ import annotations

from typing import Any, TypeAlias

import torch
import torch.nn.functional as F
from torch import Tensor

from .blocks import accepted, is_quadratic
from .edge_densities import drawn_variance, edge_prob, log_evidence, summed_evidence
from .recorded import Block, EdgeTerms, Position, RecordedDensity

__all__ = ["WeightSampler"]

_AVERAGE = 0.02  # least weight of the newest sweep in running means
_WANTED = 0.65  # acceptance, below which a sweep is over fewer factors at a time
_REPEATS = 3  # sweeps over the weights of one quadratic, which costs as much as three of them
_WALK_EVERY = 3  # sweeps
_PATIENCE = 20  # sweeps of the warm-up between two decisions


class WeightSampler:
    """Draws the weights of a site of edges given the rest.

    Parameters
    ----------
    density : RecordedDensity
    block : Block
    u : dict of Tensor

    Attributes
    ----------
    acceptance : float
    drawn : (Tensor, Tensor) or None
        Of the last sweep, (chain, feature, factor) both: the weights, and the mean over its draws of the
        probability of each edge, its own weight summed out where the likelihood is a quadratic (Rao and
        Blackwell), else given it.
    """

    def __init__(self, density: RecordedDensity, block: Block, u: Position):
        self.density, self.block = density, block
        self.drawn: tuple[Tensor, Tensor] | None = None
        self.families = density.families[block.name]
        self.is_exact = is_quadratic(density, block, u)
        self.centre: Tensor | None = None
        self.acceptance, self.n_parts, self.since, self.tuned = 1.0, 1, 0, 0
        self.walks, self.walked, self.swept = not self.is_exact and "point" not in self.families, 1.0, 0

    @property
    def method(self) -> str:
        """How edges are drawn: "exact" where the likelihood is a quadratic of the weights."""
        return "exact" if self.is_exact else f"surrogate in {self.n_parts} part(s)"

    def ascend(self, u: Position) -> Position:
        """As `draw`, around where the weights are, without the correction: for the first sweeps."""
        weight = self.density.pack(self.block, u)
        factors = torch.randperm(weight.shape[-1]).tolist()
        moved, _, _ = self._swept(weight, self._quadratic(weight, u), factors, u)
        if not self.is_exact:  # a step that loses more than its noise can is left out
            change = self.density.total(self.block, moved, u) - self.density.total(self.block, weight, u)
            worse = change.nan_to_num(nan=-torch.inf) < -2.0 * weight.shape[-1] - 2
            moved = torch.where(worse[..., None], weight, moved)
        self.centre = moved.clone()
        return self.density.unpack(self.block, moved, u)

    def draw(self, u: Position, adapts: bool) -> Position:
        """A step that leaves the posterior invariant: some factors at a time, where all are too many."""
        weight = self.density.pack(self.block, u)
        if self.centre is None:
            self.centre = weight.clone()
        level = weight[..., 0] if self.is_exact else self.density.total(self.block, weight, u)
        self.swept += 1
        if self.walks and self.swept % _WALK_EVERY == 0:
            weight, level = self._walked(weight, level, u)
        probs = []
        quadratic = self._quadratic(self.centre, u) if self.n_parts == 1 else None
        for _ in range(_REPEATS if quadratic else 1):
            weight, level, prob = self._drawn_around(self.centre, weight, level, quadratic, u)
            probs.append(prob)
        self.drawn = (weight, torch.stack(probs).mean(0))
        if adapts:
            self.tuned += 1
            self.centre = self.centre + max(_AVERAGE, 1 / self.tuned) * (weight - self.centre)
            self._adapt(weight.shape[-1])
        return self.density.unpack(self.block, weight, u)

    def _drawn_around(
        self,
        point: Tensor,
        weight: Tensor,
        level: Tensor,
        quadratic: tuple[Tensor, Tensor] | None,
        u: Position,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Weights after a sweep under quadratics at a point, part by part, their level, probabilities."""
        order = torch.randperm(weight.shape[-1]).tolist()
        for first in range(self.n_parts):
            factors = order[first :: self.n_parts]
            if quadratic is None or self.n_parts > 1:
                centre = weight.clone()  # of factors that stay where they are
                centre[..., factors] = point[..., factors]
                quadratic = self._quadratic(centre, u)
            moved, surrogate, prob = self._swept(weight, quadratic, factors, u)
            if self.is_exact:
                return moved, level, prob
            there = self.density.total(self.block, moved, u)
            ok, rate = accepted(there - level - surrogate)
            self.acceptance += _AVERAGE / self.n_parts * (rate.mean().item() - self.acceptance)
            weight, level = torch.where(ok[..., None], moved, weight), torch.where(ok, there, level)
        return weight, level, edge_prob(weight, self.density.edges(u)[self.block.name], self.families)

    def _walked(self, weight: Tensor, level: Tensor, u: Position) -> tuple[Tensor, Tensor]:
        """Weights after a scan under the quadratic at where they are, Metropolis.

        The way back is the opposite scan under the quadratic at where they would be. From a place that
        the quadratic at the mean knows nothing of, sweeps under that one are refused for a long time.
        """
        order = torch.randperm(weight.shape[-1]).tolist()
        slab, spike, log_odds = scales = self._normal_scales(weight, self.density.edges(u)[self.block.name])
        moved, forth = _scanned(weight, None, self._quadratic(weight, u), order, scales)
        _, back = _scanned(moved, weight, self._quadratic(moved, u), order[::-1], scales)

        def prior(w: Tensor) -> Tensor:
            return _log_mixture(log_odds, w, (0.0, slab), (0.0, spike)).sum(-1)

        there = self.density.total(self.block, moved, u)
        ok, rate = accepted(there - level + prior(moved) - prior(weight) + back - forth)
        self.walked += _AVERAGE * (rate.mean().item() - self.walked)
        return torch.where(ok[..., None], moved, weight), torch.where(ok, there, level)

    def prob_if_added(self, u: Position) -> Tensor:
        """P(edge) of each edge given all other weights, its own summed out under the quadratic there.

        Parameters
        ----------
        u : dict of Tensor
        """
        weight = self.density.pack(self.block, u)
        terms = self.density.edges(u)[self.block.name]
        linear, precision = self._quadratic(weight, u)
        diagonal = precision.diagonal(dim1=-2, dim2=-1)
        pull = linear - (precision @ weight[..., None])[..., 0] + diagonal * weight
        slab = summed_evidence(self.families[0], terms.slab, terms.slab_df, pull, diagonal)
        spike = summed_evidence(self.families[1], terms.spike, terms.spike_df, pull, diagonal)
        return torch.sigmoid(terms.log_odds + slab - spike)

    def _adapt(self, n_factors: int) -> None:
        """More parts where too few proposals are accepted."""
        self.since += 1
        if self.since >= _PATIENCE and self.acceptance < _WANTED and self.n_parts < n_factors:
            self.n_parts, self.since, self.acceptance = min(2 * self.n_parts, n_factors), 0, 1.0

    def settle(self) -> None:
        """End of the warm-up: nothing to tune."""

    def state(self) -> dict[str, Any]:
        """All that its next steps depend on."""
        names = ("centre", "acceptance", "n_parts", "since", "tuned", "walked", "swept")
        return {name: getattr(self, name) for name in names}

    def load(self, saved: dict[str, Any]) -> None:
        """Go on from a state."""
        for name, value in saved.items():
            setattr(self, name, value)

    def _quadratic(self, centre: Tensor, u: Position) -> tuple[Tensor, Tensor]:
        """Linear term and precision of the log likelihood's quadratic at a point."""
        gradient, precision = self.density.curvature(self.block, centre, u)
        # A view: where the likelihood is no hill, it is made flat. In which units weights are is not known.
        diagonals = precision.diagonal(dim1=-2, dim2=-1)
        diagonals.copy_(diagonals.clamp(min=0.0))
        return gradient + (precision @ centre[..., None])[..., 0], precision

    def _swept(
        self, weight: Tensor, quadratic: tuple[Tensor, Tensor], factors: list[int], u: Position
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Weights after a sweep over some factors in this order, the quadratic's gain, and probabilities."""
        linear, precision = quadratic
        terms = self.density.edges(u)[self.block.name]
        slab, spike, log_odds = self._normal_scales(weight, terms)
        moved, prob = weight.clone(), torch.zeros_like(weight)
        for k in factors:
            odds, there, absent = _conditional(k, moved, quadratic, (slab, spike, log_odds))
            prob[..., k] = torch.sigmoid(odds)
            moved[..., k] = _draw(odds, there, absent)

        def level(w: Tensor) -> Tensor:
            return (linear * w).sum(-1) - 0.5 * (w * (precision @ w[..., None])[..., 0]).sum(-1)

        return moved, level(moved) - level(weight), prob

    def _normal_scales(self, weight: Tensor, terms: EdgeTerms) -> tuple[Tensor, Tensor, Tensor]:
        """Variances of slab and spike, drawn given edges and weights where they are scale mixtures."""
        slab, spike = terms.slab**2, terms.spike**2
        if set(self.families) <= {"normal", "point"}:
            return slab, spike, terms.log_odds
        there = torch.rand_like(weight) < edge_prob(weight, terms, self.families)
        slab = drawn_variance(self.families[0], terms.slab, terms.slab_df, weight, there)
        spike = drawn_variance(self.families[1], terms.spike, terms.spike_df, weight, ~there)
        return slab, spike, terms.log_odds


Normal: TypeAlias = "tuple[Any, Tensor]"  # mean and variance


def _conditional(
    k: int, weight: Tensor, quadratic: tuple[Tensor, Tensor], scales: tuple[Tensor, Tensor, Tensor]
) -> tuple[Tensor, Normal, Normal]:
    """Of factor k's weights given the others: log odds of its edges, and the normal distributions of both."""
    (linear, precision), (slab, spike, log_odds) = quadratic, scales
    diagonal = precision[..., k, k]
    pull = linear[..., k] - (precision[..., k, :] * weight).sum(-1) + diagonal * weight[..., k]
    wide, narrow = slab[..., k], spike[..., k]
    odds = log_odds[..., k] + log_evidence(pull, diagonal, wide) - log_evidence(pull, diagonal, narrow)
    variances = [variance / (1 + diagonal * variance) for variance in (wide, narrow)]
    there, absent = ((variance * pull, variance) for variance in variances)
    return odds, there, absent


def _draw(odds: Tensor, there: Normal, absent: Normal) -> Tensor:
    is_edge = torch.rand_like(odds).logit() < odds
    mean, variance = (torch.where(is_edge, *pair) for pair in zip(there, absent, strict=True))
    return mean + variance.sqrt() * torch.randn_like(odds)


def _log_mixture(odds: Tensor, weight: Tensor, there: Normal, absent: Normal) -> Tensor:
    """Log density of weights that are edges with these odds, up to a constant."""

    def log_normal(normal: Normal) -> Tensor:
        mean, variance = normal
        return -0.5 * ((weight - mean) ** 2 / variance + variance.log())

    return torch.logaddexp(F.logsigmoid(odds) + log_normal(there), F.logsigmoid(-odds) + log_normal(absent))


def _scanned(
    weight: Tensor,
    end: Tensor | None,
    quadratic: tuple[Tensor, Tensor],
    order: list[int],
    scales: tuple[Tensor, Tensor, Tensor],
) -> tuple[Tensor, Tensor]:
    """Weights after one factor after the other, drawn or as `end` has them, and the log density of that."""
    moved, log_density = weight.clone(), torch.zeros_like(weight[..., 0])
    for k in order:
        odds, there, absent = _conditional(k, moved, quadratic, scales)
        drawn = _draw(odds, there, absent) if end is None else end[..., k]
        log_density = log_density + _log_mixture(odds, drawn, there, absent)
        moved[..., k] = drawn
    return moved, log_density
