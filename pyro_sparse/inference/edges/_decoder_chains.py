r"""Markov chains over everything a masked decoder has: edges, weights, curves, factors, noise, rates.

A sweep, for all chains, features and rows at once:

1. weights, factor by factor: a few candidates for each :math:`w_{jk}`, weighed with the last layer summed out
   (`_curves.py`), one of them taken (iterated sampling importance resampling). The average over candidates of
   :math:`P(\gamma_{jk} = 1 \mid w)` is the Rao-Blackwellised edge probability. A linear decoder has no last
   layer to sum out and a better proposal (`_line_weights.py`);
2. last layers, noise, edges and rates from their conditionals;
3. factors, row by row, by Hamiltonian Monte Carlo; all layers with the weights likewise (`_layers.py`);
   scales that the likelihood does not tell apart (`_stretches.py`).

Slab and spike are Laplace or normal, or any two densities (`_own_law.py`); f depends on w and z through their
product only.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import torch
from scipy.special import logsumexp
from torch import Tensor

from ...models.likelihoods.counts import LOG_THETA_RANGE
from ._cells import Cells, Summed, weighted
from ._curve_weights import curve_weights
from ._curves import Curve, Trunk
from ._hmc import adapted, hmc
from ._layers import climbed, moved
from ._line_weights import line_weights
from ._metric import Metric, information
from ._mixture_law import WeightLaw
from ._own_parameters import OwnParameters
from ._relabel import Anchors, anchors_of, exchanged
from ._row_exposures import drawn_exposures
from ._shifts import levelled, shifted
from ._stretches import stretched
from ._turns import Turns, related_factors

__all__ = ["DecoderChains", "DecoderState", "Tuning"]

_HEADS = 8
_NODES = 16
_FEW_STEPS = 2  # of Newton's, for a log evidence: off by hundredths at most; a head that is drawn has more
_CACHE = 400_000  # numbers of a hidden layer worked on at a time: few enough to stay near the processor
_STRIDES = (1.0, 0.3, 0.1, 0.03)
_OFTEN, _SELDOM, _TIRED = 1 / 3, 1 / 30, 0.85  # exchanges of factors a sweep; kept of that after one in vain


class DecoderState(NamedTuple):
    """One state of every chain.

    Attributes
    ----------
    z : Tensor (chain, row, factor)
    weight : Tensor (chain, feature, factor)
    edge : Tensor of bool (chain, feature, factor)
    log_odds : Tensor (chain, 1, factor)
    head : Tensor (chain, feature, basis), float64
    noise : Tensor (chain, feature)
        Variance of a normal likelihood, 1 / theta of a negative binomial one, else 1.
    trunk : Trunk
    exposure : Tensor (chain, 1, row) or None
        Of counts; redrawn where only totals speak of them.
    own : tuple of Tensor
        Parameters of a likelihood that is none of the package's, as `OwnParameters` orders them.
    """

    z: Tensor
    weight: Tensor
    edge: Tensor
    log_odds: Tensor
    head: Tensor
    noise: Tensor
    trunk: Trunk
    exposure: Tensor | None
    own: tuple[Tensor, ...] = ()


@dataclass(eq=False)
class Tuning:
    """What the warm-up learns: step sizes, where each weight tends to be when it is not small, directions."""

    rows: Tensor
    whole: Tensor
    centre: Tensor
    width: Tensor
    metric: Metric
    damping: Tensor
    exchanges: float = _OFTEN
    sweeps: int = 0


@dataclass(frozen=True, eq=False)
class DecoderChains:
    """The data and the prior, which stay, and the sweep.

    Parameters
    ----------
    cells : Cells
    curve : Curve
    law : WeightLaw
    permitted, must : Tensor of bool (feature, factor)
    precision : Tensor (chain or 1, factor, factor)
        Inverse of the factors' covariance.
    eta_prior : tuple of ndarray
        a and b of the rates, each (factor,).
    shared_eta : bool
    noise_prior : tuple of float
        Shape and scale of a variance. A dispersion has that of its likelihood.
    totals : Tensor (chain or 1, row) or None
        Sums of rows of counts, where they are all that speaks of the exposures (`_row_exposures.py`):
        multinomial rows, whose features come apart so as Poisson counts, and depths taken from totals.
    own : OwnParameters or None
        Of the cells' likelihood, where the state holds values for its parameters.
    candidates : int
        New values tried for each weight in a sweep.
    row_steps, whole_steps : int
        Leapfrog steps for the factors, and for layers with weights.
    """

    cells: Cells
    curve: Curve
    law: WeightLaw
    permitted: Tensor
    must: Tensor
    precision: Tensor
    eta_prior: tuple[np.ndarray, np.ndarray]
    shared_eta: bool
    noise_prior: tuple[float, float]
    totals: Tensor | None = None
    own: OwnParameters | None = None
    candidates: int = 6
    row_steps: int = 4
    whole_steps: int = 6

    @torch.no_grad()
    def tuning(self, state: DecoderState) -> Tuning:
        """Where the warm-up begins."""
        return Tuning(
            rows=torch.full(state.z.shape[:2], 0.15).to(state.z),
            whole=torch.full(state.z.shape[:1], 0.1).to(state.z),
            centre=state.weight.clone(),
            width=torch.full_like(state.weight, 0.3),
            metric=information(self, state, np.random.default_rng(0)),
            damping=torch.ones(len(state.z), dtype=torch.float64, device=state.z.device),
        )

    @torch.no_grad()
    def sweep(
        self,
        state: DecoderState,
        tuning: Tuning,
        rng: np.random.Generator,
        held: Tensor,
        warm: bool,
        climb: bool = False,
    ) -> tuple[DecoderState, Tensor]:
        """The next state and the Rao-Blackwellised edge probabilities (chain, feature, factor).

        Parameters
        ----------
        state : DecoderState
        tuning : Tuning
            Changed in place while `warm`.
        rng : numpy.random.Generator
        held : Tensor of bool (chain,)
            Chains whose rates stay as they are (at "all edges", while a dense start is made).
        warm : bool
        climb : bool
            Move layers and weights uphill and not at random: no draw of anything.
        """
        if self.totals is not None:
            state = levelled(self, state, rng)
        if self.curve.activation is None:
            state = self._turned(state, rng)
            state = state if self.totals is None else shifted(self, state, rng)
        cells = self.cells_of(state)
        if self.curve.activation is None:
            weight, prob = line_weights(self, state, cells, rng)
        else:
            weight, prob = curve_weights(self, state, cells, tuning, rng)
            if warm:
                self._follow(tuning, weight, prob)
        phi = self.curve.design(state.z, weight, state.trunk)
        offset = self.curve.offset(state.z, weight)
        near = phi if cells.likelihood is None else self.value(state)
        summed = cells.sum_out(phi, offset, state.noise, self.curve.head_precision(phi), near)
        head, f = self._heads(summed, phi, offset, cells, state, rng)
        noise = self._noise(f, state.noise, cells, rng)
        p = self.law.edge(weight, state.log_odds, self.must) * self.permitted
        edge = torch.as_tensor(rng.random(tuple(p.shape)), device=p.device) < p
        log_odds = torch.where(held.view(-1, 1, 1), state.log_odds, self._rates(edge, rng))
        state = state._replace(weight=weight, edge=edge, head=head, noise=noise, log_odds=log_odds)
        state = self.with_exposures(self._with_own(state, f, rng), f, rng)
        state = self._rows(state, tuning, rng, warm)
        state = stretched(self, state, rng)
        state = climbed(self, state, tuning, rng) if climb else moved(self, state, tuning, rng, warm)
        tuning.sweeps += 1
        return self._relabelled(state, tuning, rng, warm), prob

    @torch.no_grad()
    def if_permitted(self, state: DecoderState) -> Tensor:
        """P(edge | all but last layers) of edges that are not permitted, if each alone were; 0 for others.

        Spike and slab are summed over quantiles, `_NODES` of each.
        """
        found = torch.zeros_like(state.weight)
        cells = self.cells_of(state)
        near = None if cells.likelihood is None else self.value(state)
        both = np.concatenate([self.law.slab_nodes(_NODES), self.law.spike_nodes(_NODES)])
        nodes = torch.as_tensor(both).to(state.weight)
        for k in range(state.weight.shape[-1]):
            for part in self.pieces(torch.nonzero(~self.permitted[:, k])[:, 0], len(nodes), state):
                tried = state.weight[:, part].expand(len(nodes), -1, -1, -1).clone()
                tried[..., k] = nodes.view(-1, 1, 1)
                slab, spike = self.evidence(state, cells, tried, part, near).split(_NODES)
                odds = state.log_odds[:, 0, k, None] + slab.logsumexp(0) - spike.logsumexp(0)
                found[:, part, k] = torch.sigmoid(odds).to(found)
        return found.masked_fill(self.permitted, 0.0)

    def pieces(self, features: Tensor, n_tried: int, state: DecoderState) -> tuple[Tensor, ...]:
        """Features a few at a time, so that their bases, each tried so often, stay near the processor.

        All that there are, at once, where the likelihood holds parameters for all.
        """
        if not self.cells.separate:
            return (torch.arange(self.cells.x.shape[1], device=features.device),)
        if not len(features):
            return ()
        each = _CACHE // (n_tried * len(state.z) * self.curve.hidden * state.z.shape[1])
        return features.split(max(1, each))

    def value(self, state: DecoderState, z: Tensor | None = None) -> Tensor:
        """f of a state, (chain, feature, row), or of other factors in their place."""
        return self.curve.value(state.z if z is None else z, state.weight, state.trunk, state.head)

    def log_joint(self, state: DecoderState, f: Tensor) -> Tensor:
        """log p of data, factors, weights, noise and last layers of each chain, up to a constant."""
        total = self.cells_of(state).log_prob(f, state.noise).double().sum((-1, -2))
        total -= 0.5 * self._squares(state.z).double().sum(-1)
        total -= 0.5 * (self.curve.head_precision(f) * state.head**2).sum((-1, -2))
        own = self.law.log_prob(state.weight, state.log_odds, self.must)
        total += (own * self.permitted).double().sum((-1, -2))
        if self.cells.likelihood is None:
            a, b = self.noise_prior
            total -= ((a + 1) * state.noise.log() + b / state.noise).double().sum(-1)
        if self.cells.overdispersed:
            total += (self.cells_of(state).log_base(state.noise) + self._log_extra(state.noise)).sum(-1)
            if self.totals is not None:  # how much room a row's exposure has, which moves with the noise
                bend = self.cells_of(state).expanded(f, state.noise)[2].double().sum(1)
                total -= 0.5 * (bend.clamp(min=1e-30).log() * (self.totals > 0)).sum(-1)
        if self.own is not None:
            total += sum(part.sum(-1) for part in self.own.log_prior(state.own))
        if self.curve.activation is not None:
            total -= 0.5 * sum((part.double() ** 2).sum((-1, -2)) for part in state.trunk)
        return total

    @cached_property
    def _turns(self) -> tuple[Turns, np.ndarray]:
        """Moves of the axes, and the factors' covariance."""
        permitted, must = (part.cpu().numpy() for part in (self.permitted, self.must))
        cov = torch.linalg.inv(self.precision.double()).cpu().numpy()
        return Turns(permitted, must, related_factors(cov), self.law.in_slabs(), self.law.stand_in.slab), cov

    def _turned(self, state: DecoderState, rng: np.random.Generator) -> DecoderState:
        """A line's axes, weights and factors together; what it predicts stays."""
        turns, cov = self._turns
        if not turns.pairs.any():
            return state
        weight, log_odds = (part.double().cpu().numpy() for part in (state.weight, state.log_odds))
        weight, whole = turns.turned(weight, cov, log_odds, rng)
        z = state.z @ torch.as_tensor(whole).to(state.z).mT
        return state._replace(weight=torch.as_tensor(weight).to(state.weight), z=z)

    @cached_property
    def _anchors(self) -> Anchors:
        permitted, must = (part.cpu().numpy() for part in (self.permitted, self.must))
        return anchors_of(permitted, must, self.eta_prior)

    def _relabelled(
        self, state: DecoderState, tuning: Tuning, rng: np.random.Generator, warm: bool
    ) -> DecoderState:
        """Factors exchanged as far as their anchors do not mind, and the anchors' weights drawn anew.

        The weight of an anchor is summed over `_NODES` quantiles of the slab. Every third time, on average,
        for it is the dearest part for few features; where it is in vain, the warm-up makes it rare.
        """
        rows, factors, pairs = self._anchors
        if not len(pairs) or not self.cells.separate:
            return state
        if rng.random() > tuning.exchanges:
            return state
        nodes = self.law.slab_nodes(_NODES)
        each = self._anchor_evidence(state, rows, nodes)  # node, chain, anchor, factor
        n, k = each.shape[1], state.weight.shape[-1]
        evidence = np.zeros((n, k, k))
        for column, own_factor in enumerate(factors):
            evidence[:, own_factor] += logsumexp(each[:, :, column], axis=0)
        moment = (state.z.mT @ state.z).double().cpu().numpy()
        order = exchanged(evidence, moment, self.precision.double().cpu().numpy(), pairs, rng)
        own = np.take_along_axis(each, order[:, factors][None, ..., None], -1)[..., 0]
        pick = (own + rng.gumbel(size=own.shape)).argmax(0)
        in_vain = bool((order == np.arange(k)).all())
        if warm:
            tuning.exchanges = max(_SELDOM, _TIRED * tuning.exchanges) if in_vain else _OFTEN
        if in_vain:
            return state
        turn = torch.as_tensor(order, device=state.z.device).unsqueeze(1)
        weight, edge = (part.gather(-1, turn.expand_as(part)) for part in (state.weight, state.edge))
        changed = torch.as_tensor(order[:, factors] != factors, device=weight.device)
        drawn = torch.as_tensor(nodes[pick]).to(weight)
        at = torch.as_tensor(rows, device=weight.device)
        kept = state.weight[:, at, factors]
        weight[:, at], edge[:, at] = 0.0, False
        weight[:, at, factors] = torch.where(changed, drawn, kept)
        edge[:, at, factors] = True
        tuning.centre = tuning.centre.gather(-1, turn.expand_as(weight))
        tuning.width = tuning.width.gather(-1, turn.expand_as(weight))
        tuning.metric = tuning.metric.exchanged(turn)
        first = state.trunk.first
        if self.curve.activation is not None:
            first = first.gather(1, turn.mT.expand_as(first))
        return state._replace(
            z=state.z.gather(-1, turn.expand_as(state.z)),
            weight=weight,
            edge=edge,
            log_odds=state.log_odds.gather(-1, turn),
            trunk=state.trunk._replace(first=first),
        )

    def _anchor_evidence(self, state: DecoderState, rows: np.ndarray, nodes: np.ndarray) -> np.ndarray:
        """Log evidence (node, chain, anchor, factor) of anchors with each weight, if they saw each factor."""
        part = torch.as_tensor(rows, device=state.z.device)
        k = state.z.shape[-1]
        each = torch.as_tensor(nodes).to(state.z)
        tried = (each.view(-1, 1, 1) * torch.eye(k).to(each)).view(-1, 1, 1, k)
        tried = tried.expand(-1, len(state.z), len(part), k)
        cells = self.cells_of(state)
        near = None if cells.likelihood is None else self.value(state)
        found = self.evidence(state, cells, tried, part, near)
        return found.unflatten(0, (len(nodes), k)).movedim(1, -1).cpu().numpy()

    def evidence(
        self, state: DecoderState, cells: Cells, tried: Tensor, part: Tensor, near: Tensor | None
    ) -> Tensor:
        """Log evidence (candidate, chain, some features), last layers summed out.

        Parameters
        ----------
        state : DecoderState
        cells : Cells
        tried : Tensor (candidate, chain, some features, factor)
        part : Tensor of int
            The features.
        near : Tensor (chain, feature, row), optional
            f of a state near by, where layers are not summed out exactly (`Cells.sum_out`).
        """
        own, noise, precision = cells.features(part), state.noise[:, part], self.curve.head_precision(state.z)
        if near is None:
            return own.evidence(self.curve.design(state.z, tried, state.trunk, own.x), noise, precision)
        phi, offset = self.curve.design(state.z, tried, state.trunk), self.curve.offset(state.z, tried)
        return own.sum_out(phi, offset, noise, precision, near[:, part], _FEW_STEPS).log_evidence

    # ---- pieces --------------------------------------------------------------------------------------------
    def _normal(self, shape: tuple[int, ...], rng: np.random.Generator) -> Tensor:
        return torch.as_tensor(rng.standard_normal(tuple(shape)), device=self.precision.device)

    def cells_of(self, state: DecoderState) -> Cells:
        c = self.cells
        if self.totals is not None:
            return Cells(c.x, c.seen, state.exposure, c.likelihood)
        return c if self.own is None else Cells(c.x, c.seen, c.exposure, self.own.at(state.own))

    def _squares(self, z: Tensor) -> Tensor:
        return ((z @ self.precision.to(z)) * z).sum(-1)

    def _heads(
        self,
        summed: Summed,
        phi: Tensor,
        offset: Tensor | float,
        cells: Cells,
        state: DecoderState,
        rng: np.random.Generator,
    ) -> tuple[Tensor, Tensor]:
        """Last layers given the rest, and f: exact under normal noise, else one of a few draws by weight."""
        n = 1 if cells.likelihood is None else _HEADS
        normal = self._normal((n, *state.head.shape), rng)
        heads = summed.draw(normal)
        f = weighted(heads, phi) + offset
        if n == 1:
            return heads[0], f[0]
        precision = self.curve.head_precision(phi)
        weight = cells.log_prob(f, state.noise).double().sum(-1)
        weight -= 0.5 * (precision * heads**2 - normal**2).sum(-1)
        gumbel = torch.as_tensor(rng.gumbel(size=tuple(weight.shape))).to(weight)
        best = (weight + gumbel).argmax(0)
        pick = best.view(1, *best.shape, 1)
        return (
            heads.gather(0, pick.expand(1, *heads.shape[1:]))[0],
            f.gather(0, pick.expand(1, *f.shape[1:]))[0],
        )

    @staticmethod
    def _follow(tuning: Tuning, weight: Tensor, prob: Tensor) -> None:
        """Centre and width of each weight's proposals: running moments of its values as an edge."""
        rate = 0.1 * prob
        move = weight - tuning.centre
        tuning.centre += rate * move
        tuning.width += rate * (1.5 * move.abs() - tuning.width)
        tuning.width.clamp_(min=0.01)

    def _noise(self, f: Tensor, noise: Tensor, cells: Cells, rng: np.random.Generator) -> Tensor:
        if cells.overdispersed:
            return self._dispersion(f, noise, cells, rng)
        if cells.likelihood is not None:
            return noise
        a, b = self.noise_prior
        left, seen = cells.x - f, cells.seen
        count = float(f.shape[-1]) if seen is None else seen.sum(-1).expand_as(noise).cpu().numpy()
        left = left if seen is None else left * seen
        squares = left.double().square().sum(-1).cpu().numpy()
        drawn = (b + squares / 2) / rng.gamma(a + count / 2, size=squares.shape)
        return torch.as_tensor(drawn).to(noise)

    def _log_extra(self, noise: Tensor) -> Tensor:
        """log prior density of a negative binomial's extra_cv, whose square the noise is."""
        scale, (low, high) = self.cells.likelihood.prior_scale, LOG_THETA_RANGE
        inside = (noise.log() >= -high) & (noise.log() <= -low)
        return torch.where(inside, -0.5 * noise.double() / scale**2, -torch.inf)

    def _dispersion(self, f: Tensor, noise: Tensor, cells: Cells, rng: np.random.Generator) -> Tensor:
        """1 / theta by random walks of log extra_cv, with strides of several lengths: nothing to tune."""

        def level(noise: Tensor) -> Tensor:
            seen = cells.log_prob(f, noise).double().sum(-1) + cells.log_base(noise)
            return seen + self._log_extra(noise) + 0.5 * noise.double().log()  # the last: of the logarithm

        here = level(noise)
        for stride in _STRIDES:
            tried = noise * (2 * stride * self._normal(noise.shape, rng)).exp().to(noise)
            there = level(tried)
            u = torch.as_tensor(rng.random(tuple(noise.shape)), device=noise.device)
            yes = u.log() < there - here
            noise, here = torch.where(yes, tried, noise), torch.where(yes, there, here)
        return noise

    def _with_own(self, state: DecoderState, f: Tensor, rng: np.random.Generator) -> DecoderState:
        """The state with its likelihood's own parameters drawn given f."""
        if self.own is None:
            return state
        c = self.cells

        def log_cells(likelihood: Any) -> Tensor:
            return Cells(c.x, c.seen, c.exposure, likelihood).log_prob(f, state.noise).double().sum(-1)

        return state._replace(own=self.own.moved(state.own, log_cells, rng))

    def _rates(self, edge: Tensor, rng: np.random.Generator) -> Tensor:
        free = self.permitted & ~self.must
        a, b = self.eta_prior
        found = (edge & free).sum(-2).cpu().numpy()
        size = np.broadcast_to(free.sum(-2).cpu().numpy(), found.shape)
        if self.shared_eta:
            found, size, a, b = found.sum(-1, keepdims=True), size.sum(-1, keepdims=True), a[:1], b[:1]
        yes = np.maximum(rng.gamma(a + found), 1e-30)
        no = np.maximum(rng.gamma(b + size - found), 1e-30)
        odds = np.broadcast_to(np.log(yes) - np.log(no), (edge.shape[0], edge.shape[-1]))
        return torch.as_tensor(odds[:, None].copy()).to(self.precision)

    def with_exposures(self, state: DecoderState, f: Tensor, rng: np.random.Generator) -> DecoderState:
        """The state with exposures drawn given f, if totals are all that speaks of them."""
        if self.totals is None:
            return state
        found = drawn_exposures(self.cells, f, state.noise, self.totals, state.exposure, rng)
        return state._replace(exposure=found)

    def _rows(
        self, state: DecoderState, tuning: Tuning, rng: np.random.Generator, warm: bool
    ) -> DecoderState:
        cells, rest = self.cells_of(state), (state.weight, state.trunk, state.head.to(state.z))

        def energy(z: Tensor) -> tuple[Tensor, Tensor]:
            run = self.curve.forwards(z, *rest)
            each, slope = cells.slope(run.f, state.noise)
            pull = z @ self.precision.to(z)
            return 0.5 * (pull * z).sum(-1) - each.sum(1), pull - self.curve.to_factors(run, slope, z, *rest)

        moved = hmc(energy, state.z, tuning.rows, self.row_steps, rng)
        if warm:
            tuning.rows = adapted(tuning.rows, moved.accept)
        return state._replace(z=moved.position)
