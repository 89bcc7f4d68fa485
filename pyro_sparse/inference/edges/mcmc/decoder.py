r"""Markov chains over everything a masked decoder has: edges, weights, curves, factors, noise, rates.

A sweep, for all chains, features and rows at once:

1. weights of one factor, each sweep another: a few candidates for each :math:`w_{jk}`, weighed with the last
   layer summed out (`density/curves.py`), one of them taken (iterated sampling importance resampling). The
   average over candidates of :math:`P(\gamma_{jk} = 1 \mid w)` is the Rao-Blackwellised edge probability;
2. last layers, noise, edges and rates from their conditionals;
3. factors, row by row, by Hamiltonian Monte Carlo (`moves/rows.py`); all layers with the weights likewise
   (`moves/layers.py`); scales that the likelihood does not tell apart (`moves/rescaling.py`).

A linear decoder has no layer to sum out, and expansions of its cells say where to move: weights of a feature
and its intercept all at once (`moves/mh_weights.py`), then all factors of a row (`moves/rows.py`), then both,
mapped so that what they predict stays (`moves/rotations.py` or `moves/axes.py`, with the factors'
correlations where these are learned, and `moves/expansion.py`). Correlations are drawn given the factors
(`moves/correlations.py`), and with the weights of one factor (`moves/line_angles.py`).

Slab and spike are Laplace or normal, or any two densities (`density/user_density.py`); f depends on w and z
through their product only.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np
import torch
from scipy.special import logsumexp
from torch import Tensor

from ..density.cells import Cells, weighted
from ..density.decoder_program import DecoderProgram, DecoderState
from ..density.rates import drawn_log_odds
from ..moves.adaptation import OFTEN, Tuning
from ..moves.axes import all_axes_move, moved_axes
from ..moves.correlations import moved_correlations
from ..moves.covariates import moved_effects
from ..moves.expansion import Expansion, translation
from ..moves.hmc import adapted
from ..moves.layers import climbed, moved
from ..moves.line_angles import LineAngles, line_angles
from ..moves.marginal_angles import MarginalAngles
from ..moves.metric import information
from ..moves.mh_weights import line_weights
from ..moves.permutation import Anchors, anchors_of, exchanged, prior_of_places
from ..moves.rescaling import stretched
from ..moves.rotations import Turns
from ..moves.rows import curve_rows, line_rows
from ..moves.shifts import levelled, shifted
from ..moves.sir_weights import curve_weights

__all__ = ["DecoderChains"]

_HEADS = 8  # draws of Laplace's normal, of which one is taken by its weight
_NODES = 16  # quantiles of slab or spike over which a weight is summed
_STRIDES = (1.0, 0.3, 0.1, 0.03)  # of log extra_cv, one step of each: some suit, however much the data say
_ANGLES = 2  # factors a sweep towards which all others move, with their loadings summed out
_HELD = 0.25  # share of sweeps that then still move axes with all loadings as they are
_SELDOM, _TIRED = 1 / 30, 0.85  # exchanges of factors a sweep, at least; kept of that after one in vain


class DecoderChains(DecoderProgram):
    """The sweep: every move in turn, of all chains at once."""

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
        rates_fixed: Tensor,
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
        rates_fixed : Tensor of bool (chain,)
            Chains whose rates stay as they are (at "all edges", while a dense start is made).
        warm : bool
        climb : bool
            Move layers and weights uphill and not at random: no draw of anything.
        """
        if self.totals is not None:
            state = levelled(self, state, rng)
        if self.curve.activation is None:
            state = self._in_other_axes(state, rng)
            state = state if self.totals is None else shifted(self, state, rng)
        line = self.curve.activation is None
        state, f, prob = (self._move_line if line else self._move_curve)(state, tuning, rng, warm)
        noise = self._noise(f, state.noise, self.cells_of(state), rng)
        weight = state.weight / self.weight_unit
        p = self.density.edge(weight, self.edge_log_odds(state), self.must) * self.permitted
        edge = torch.as_tensor(rng.random(tuple(p.shape)), device=p.device) < p
        log_odds = torch.where(rates_fixed.view(-1, 1, 1), state.log_odds, self._rates(edge, state, rng))
        state = state._replace(edge=edge, noise=noise, log_odds=log_odds)
        state = moved_effects(self, state, f, rng)
        state = self.with_rows(self._with_parameters(state, f, tuning, rng, warm), f, rng)
        if not line:
            z, accept = curve_rows(self, state, self.cells_of(state), tuning.rows, rng)
            tuning.rows = adapted(tuning.rows, accept) if warm else tuning.rows
            state = state._replace(z=z)
        state = self._expanded(state, rng) if line else stretched(self, state, rng)
        state = self._correlated(state, rng)
        if not line:
            state = climbed(self, state, tuning, rng) if climb else moved(self, state, tuning, rng, warm)
        tuning.sweeps += 1
        return self._relabelled(state, tuning, rng, warm), prob

    def _move_line(
        self, state: DecoderState, tuning: Tuning, rng: np.random.Generator, warm: bool
    ) -> tuple[DecoderState, Tensor, Tensor]:
        """A line's angles, weights and intercepts, then factors: the state, f and edges' probabilities."""
        cells, f = self.cells_of(state), self.value(state)
        at = LineAngles(state, f, cells.expanded(f, state.noise))
        for factor in rng.permutation(self._centres)[:_ANGLES]:
            at = line_angles(self, self._marginal_angles, int(factor), at, cells, rng)
        state, f, terms = at
        new = line_weights(self, state, f, terms, cells, rng)
        state = state._replace(weight=new.weight, head=new.intercept.unsqueeze(-1))
        rows = line_rows(self, state, new.f, new.terms, cells, rng)
        return state._replace(z=rows.z), rows.f, new.prob

    def _move_curve(
        self, state: DecoderState, tuning: Tuning, rng: np.random.Generator, warm: bool
    ) -> tuple[DecoderState, Tensor, Tensor]:
        """A curve's weights and last layers: the state, f and the edges' probabilities."""
        cells = self.cells_of(state)
        weight, prob = curve_weights(self, state, cells, tuning, rng)
        if warm:
            tuning.follow(weight, prob)
        head, f = self._heads(state, weight, cells, rng)
        return state._replace(weight=weight, head=head), f, prob

    @torch.no_grad()
    def if_permitted(self, state: DecoderState) -> Tensor:
        """P(edge | all but last layers) of edges that are not permitted, if each alone were; 0 for others.

        Spike and slab are summed over quantiles, `_NODES` of each.
        """
        prob = torch.zeros_like(state.weight)
        cells = self.cells_of(state)
        near = None if cells.normal else self.value(state)
        quantiles = np.concatenate([self.density.slab_nodes(_NODES), self.density.spike_nodes(_NODES)])
        nodes = torch.as_tensor(quantiles).to(state.weight)
        for k in range(state.weight.shape[-1]):
            for features in self.pieces(torch.nonzero(~self.permitted[:, k])[:, 0], len(nodes), state):
                tried = state.weight[:, features].expand(len(nodes), -1, -1, -1).clone()
                tried[..., k] = nodes.view(-1, 1, 1) * self.weight_units(features)
                slab, spike = self.evidence(state, cells, tried, features, near).split(_NODES)
                prior = self.edge_log_odds(state).expand_as(state.weight)[:, features, k]
                odds = prior + slab.logsumexp(0) - spike.logsumexp(0)
                prob[:, features, k] = torch.sigmoid(odds).to(prob)
        return prob.masked_fill(self.permitted, 0.0)

    @cached_property
    def _turns(self) -> Turns:
        permitted, must = (mask.cpu().numpy() for mask in (self.permitted, self.must))
        related, slab = self.related | self.learn_cov, self.density.stand_in.slab
        return Turns(
            permitted,
            must,
            related,
            self.density.in_slabs(),
            slab,
            round_share=0.2,
            correlation_prior=self.correlation_prior,
        )

    @cached_property
    def _centres(self) -> np.ndarray:
        """Factors towards which others move, with their loadings summed out."""
        moves = self.learn_cov and self.density.in_slabs().closed_form and not self._all_axes
        return np.flatnonzero(self._turns.swivels.any(0)) if moves else np.empty(0, dtype=np.intp)

    @cached_property
    def _all_axes(self) -> bool:
        return self.learn_cov and all_axes_move(self._turns.permitted, self._turns.density)

    @cached_property
    def _marginal_angles(self) -> MarginalAngles:
        turns = self._turns
        return MarginalAngles(
            turns.permitted, turns.must, turns.density, turns.slab_scale, turns.correlation_prior
        )

    def _in_other_axes(self, state: DecoderState, rng: np.random.Generator) -> DecoderState:
        """A line's axes: weights, factors and their correlations together; what it predicts stays."""
        turns = self._turns
        swivels, turning = self.learn_cov and turns.swivels.any(), turns.pairs.any()
        held = len(self._centres) and rng.random() > _HELD
        if held or not (swivels or turning):
            return state
        tensors = (
            state.weight / self.weight_unit,
            self.edge_log_odds(state),
            torch.linalg.inv(state.precision),
        )
        weight, log_odds, cov = (tensor.double().cpu().numpy() for tensor in tensors)
        by = np.eye(cov.shape[-1])
        if self._all_axes:
            weight, cov, by = moved_axes(
                weight,
                cov,
                log_odds,
                turns.must,
                turns.density,
                turns.slab_scale,
                turns.correlation_prior,
                rng,
            )
            weight, cov, step = turns.gone_round(weight, cov, log_odds, rng)
            by = step @ by
        elif swivels:
            weight, cov, by = turns.swivelled(weight, cov, log_odds, rng)
        if turning and not self._all_axes:
            weight, step = turns.turned(weight, cov, log_odds, rng)
            by = step @ by
        if swivels:
            state = state._replace(precision=torch.as_tensor(np.linalg.inv(cov)).to(state.precision))
        z = state.z @ torch.as_tensor(by).to(state.z).mT
        return state._replace(weight=torch.as_tensor(weight).to(state.weight) * self.weight_unit, z=z)

    def _correlated(self, state: DecoderState, rng: np.random.Generator) -> DecoderState:
        """Correlations of factors, where they are learned, as many pairs as there are factors."""
        k = state.z.shape[-1]
        if not self.learn_cov or k == 1:
            return state
        z, pairs = state.z.double(), rng.permutation(np.argwhere(np.triu(np.ones((k, k)), 1)))[:k]
        cov, whole = (part.cpu().numpy() for part in (torch.linalg.inv(state.precision), z.mT @ z))
        cov = moved_correlations(cov, whole, z.shape[1], pairs, self.correlation_prior, rng)
        return state._replace(precision=torch.as_tensor(np.linalg.inv(cov)).to(state.precision))

    @cached_property
    def _expansion(self) -> Expansion:
        permitted, must = (mask.cpu().numpy() for mask in (self.permitted, self.must))
        return Expansion(permitted, must, self.density.in_slabs(), self.density.stand_in.slab)

    def _expanded(self, state: DecoderState, rng: np.random.Generator) -> DecoderState:
        """A line's factors mapped and translated, weights and intercepts likewise; what it predicts stays."""
        maps, precision = self._expansion, state.precision.cpu().numpy()
        moment = state.z.double().mT @ state.z.double()
        tensors = state.weight / self.weight_unit, self.edge_log_odds(state), moment
        weight, log_odds, whole = (tensor.double().cpu().numpy() for tensor in tensors)
        weight, by = maps.moved(weight, log_odds, whole, state.z.shape[1], precision, rng)
        z = state.z @ torch.as_tensor(by).to(state.z).mT
        state = state._replace(weight=torch.as_tensor(weight).to(state.weight) * self.weight_unit, z=z)
        weight = state.weight.double().cpu().numpy()
        intercept = state.head[..., :1].double()
        known, n_rows = z.double().sum(1, keepdim=True).cpu().numpy(), np.array([[float(z.shape[1])]])
        b = translation(
            weight, intercept.cpu().numpy(), self.curve.intercept_sd, known, n_rows, precision, rng
        )
        move = torch.as_tensor(b).to(z)
        head = state.head - (state.weight @ move.mT).to(state.head)
        return state._replace(z=z + move, head=head)

    @cached_property
    def _anchors(self) -> Anchors:
        permitted, must = (mask.cpu().numpy() for mask in (self.permitted, self.must))
        return anchors_of(permitted, must, self.eta_prior, self._offset)

    @cached_property
    def _offset(self) -> np.ndarray | None:
        return None if self.edge_offset is None else self.edge_offset.double().cpu().numpy()

    @cached_property
    def _free(self) -> np.ndarray:
        return (self.permitted & ~self.must).cpu().numpy()

    def _relabelled(
        self, state: DecoderState, tuning: Tuning, rng: np.random.Generator, warm: bool
    ) -> DecoderState:
        """Factors exchanged as far as anchors, odds and rates do not mind; weights of anchors drawn anew.

        Correlations that are learned go with their factors, unless these have anchors: then they are those
        of the places. The weight of an anchor is summed over `_NODES` quantiles of the slab.

        Every third time, on average, for it is the dearest part for few features; where it is in vain, the
        warm-up makes it rare.
        """
        rows, factors, pairs = self._anchors
        if not len(pairs) or (len(rows) and not self.cells.separate):
            return state
        if rng.random() > tuning.exchanges:
            return state
        edge_now, log_odds = state.edge.cpu().numpy(), state.log_odds.double().cpu().numpy()
        evidence = prior_of_places(
            edge_now, log_odds, self._free, self.eta_prior, self.shared_eta, self._offset
        )
        nodes = self.density.slab_nodes(_NODES)
        log_evidence = self._anchor_evidence(state, rows, nodes)  # node, chain, anchor, factor
        k = state.weight.shape[-1]
        for column, factor in enumerate(factors):
            evidence[:, factor] += logsumexp(log_evidence[:, :, column], axis=0)
        precision, cov_goes = state.precision, self.learn_cov and not len(rows)
        moment = (state.z.mT @ state.z).double().cpu().numpy()
        moment = np.zeros_like(moment) if cov_goes else moment
        order = exchanged(evidence, moment, precision.cpu().numpy(), pairs, rng)
        node_logits = np.take_along_axis(log_evidence, order[:, factors][None, ..., None], -1)[..., 0]
        pick = (node_logits + rng.gumbel(size=node_logits.shape)).argmax(0)
        in_vain = bool((order == np.arange(k)).all())
        if warm:
            tuning.exchanges = max(_SELDOM, _TIRED * tuning.exchanges) if in_vain else OFTEN
        if in_vain:
            return state
        turn = torch.as_tensor(order, device=state.z.device).unsqueeze(1)
        weight, edge = (tensor.gather(-1, turn.expand_as(tensor)) for tensor in (state.weight, state.edge))
        changed = torch.as_tensor(order[:, factors] != factors, device=weight.device)
        at = torch.as_tensor(rows, device=weight.device)
        drawn = torch.as_tensor(nodes[pick]).to(weight) * self.weight_units(at)
        kept = state.weight[:, at, factors]
        weight[:, at], edge[:, at] = 0.0, False
        weight[:, at, factors] = torch.where(changed, drawn, kept)
        edge[:, at, factors] = True
        tuning.centre = tuning.centre.gather(-1, turn.expand_as(weight))
        tuning.width = tuning.width.gather(-1, turn.expand_as(weight))
        tuning.metric = tuning.metric.exchanged(turn)
        if cov_goes:
            precision = precision.gather(-1, turn.expand_as(precision))
            precision = precision.gather(1, turn.mT.expand_as(precision))
        first = state.trunk.first
        if self.curve.activation is not None:
            first = first.gather(1, turn.mT.expand_as(first))
        state = state._replace(
            z=state.z.gather(-1, turn.expand_as(state.z)),
            weight=weight,
            edge=edge,
            log_odds=state.log_odds.gather(-1, turn),
            trunk=state.trunk._replace(first=first),
            precision=precision,
        )
        return state._replace(head=self._heads(state, weight, self.cells_of(state), rng)[0])

    def _anchor_evidence(self, state: DecoderState, rows: np.ndarray, nodes: np.ndarray) -> np.ndarray:
        """Log evidence (node, chain, anchor, factor) of anchors with each weight, if they saw each factor."""
        features = torch.as_tensor(rows, device=state.z.device)
        k = state.z.shape[-1]
        if not len(rows):
            return np.zeros((len(nodes), len(state.z), 0, k))
        weights = torch.as_tensor(nodes).to(state.z)
        tried = (weights.view(-1, 1, 1) * torch.eye(k).to(weights)).view(-1, 1, 1, k)
        tried = tried * self.weight_units(features).unsqueeze(-1)
        tried = tried.expand(-1, len(state.z), len(features), k)
        cells = self.cells_of(state)
        near = None if cells.normal else self.value(state)
        log_evidence = self.evidence(state, cells, tried, features, near)
        return log_evidence.unflatten(0, (len(nodes), k)).movedim(1, -1).cpu().numpy()

    # ---- pieces --------------------------------------------------------------------------------------------
    def _normal(self, shape: tuple[int, ...], rng: np.random.Generator) -> Tensor:
        return torch.as_tensor(rng.standard_normal(tuple(shape)), device=self.permitted.device)

    def _heads(
        self, state: DecoderState, weight: Tensor, cells: Cells, rng: np.random.Generator
    ) -> tuple[Tensor, Tensor]:
        """Last layers given these weights and the rest of a state, and f.

        Exact under normal noise, else one of a few draws of Laplace's normal, by weight.
        """
        phi = self.curve.design(state.z, weight, state.trunk)
        offset = self.curve.offset(state.z, weight)
        near = phi if cells.normal else self.value(state)
        summed = cells.sum_out(phi, offset, state.noise, self.curve.head_precision(phi), near)
        n = 1 if cells.normal else _HEADS  # not exact: the layer as it was is not among them
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

    def _noise(self, f: Tensor, noise: Tensor, cells: Cells, rng: np.random.Generator) -> Tensor:
        if cells.overdispersed:
            return self._dispersion(f, noise, cells, rng)
        if not cells.normal:
            return noise
        a, b = self.noise_prior
        left, observed = cells.x - f, cells.mask
        count = float(f.shape[-1]) if observed is None else observed.sum(-1).expand_as(noise).cpu().numpy()
        left = left if observed is None else left * observed
        squares = left.double().square().sum(-1).cpu().numpy()
        if self.shared_noise:
            squares = squares.sum(-1, keepdims=True)
            count = np.broadcast_to(count, noise.shape).sum(-1, keepdims=True)
        drawn = (b + squares / 2) / rng.gamma(a + count / 2, size=squares.shape)
        return torch.as_tensor(drawn).to(noise).expand_as(noise).clone()

    def _dispersion(self, f: Tensor, noise: Tensor, cells: Cells, rng: np.random.Generator) -> Tensor:
        """1 / theta by random walks of log extra_cv, with strides of several lengths: nothing to tune."""

        def level(noise: Tensor) -> Tensor:
            log_p = cells.log_prob(f, noise).double().sum(-1) + cells.log_base(noise)
            jacobian = 0.5 * noise.double().log()  # of the logarithm
            return log_p + self.log_noise_prior(noise) + jacobian

        here = level(noise)
        for stride in _STRIDES:
            # The noise is the square of extra_cv.
            tried = noise * (2 * stride * self._normal(noise.shape, rng)).exp().to(noise)
            there = level(tried)
            u = torch.as_tensor(rng.random(tuple(noise.shape)), device=noise.device)
            yes = u.log() < there - here
            noise, here = torch.where(yes, tried, noise), torch.where(yes, there, here)
        return noise

    def _with_parameters(
        self, state: DecoderState, f: Tensor, tuning: Tuning, rng: np.random.Generator, warm: bool
    ) -> DecoderState:
        """The state with its likelihood's own parameters drawn given f."""
        if self.likelihood_parameters is None:
            return state
        parameters = self.likelihood_parameters.moved(
            state.likelihood_parameters, self.shifted(self.cells, state), f, state.noise, rng,
            tuning.strides, warm,
        )  # fmt: skip
        return state._replace(likelihood_parameters=parameters)

    def _rates(self, edge: Tensor, state: DecoderState, rng: np.random.Generator) -> Tensor:
        now = state.log_odds.double().cpu().numpy()
        log_odds = drawn_log_odds(
            edge.cpu().numpy(), self._free, self.eta_prior, self.shared_eta, self._offset, now, rng
        )
        return torch.as_tensor(log_odds).to(state.log_odds)
