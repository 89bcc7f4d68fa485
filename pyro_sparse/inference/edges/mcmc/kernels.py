r"""One interface over linear and nonlinear chains: sweep, rescale, and what a sweep looks like from outside.

Two runs, one for each kernel, hold the state and what the warm-up learned; what they show is numpy and in
signed standardised loadings, :math:`\pm\sqrt{\mathrm{share}_{jk}}`: the share of a feature's variance that
goes with a factor is the same thing for a line and for a curve.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from ...table.effects import evened
from ..density.decoder_program import DecoderState
from ..density.mixture import MixtureDensity
from ..density.scales import drawn_density, likeliest_density
from .decoder import DecoderChains
from .linear import LinearChains, LinearState
from .row_levels import cell_constants, line_levels, linear_levels, linear_scores

__all__ = ["CurvedRun", "LinearRun", "Seen", "curve_loadings", "follow"]

Array = NDArray[np.float64]
_LOOKED_AT = 700  # rows, at most, of which shares of variance are taken: to some per cent of each
_JOINT_EVERY = 20  # sweeps, of straight lines: to sum factors out of all rows costs as much as two
_WIDE, _NARROWED = 0.1, 0.9  # slabs that a spike is wide at first, and what it is multiplied by each time


class Seen(NamedTuple):
    """One sweep of every chain.

    Attributes
    ----------
    prob : ndarray (chain, feature, factor)
        P(edge | the rest).
    edge : ndarray of bool (chain, feature, factor)
    loading : ndarray (chain, feature, factor) or None
        None where nobody asked for it.
    eta : ndarray (chain, factor)
    """

    prob: Array
    edge: NDArray[np.bool_]
    loading: Array | None
    eta: Array


def follow(
    kernel: LinearChains | DecoderChains, state: LinearState | DecoderState, dense: list[bool]
) -> LinearRun | CurvedRun:
    """The run of a kernel from a state; `dense` says which chains may be held at all edges."""
    kind: Any = LinearRun if isinstance(kernel, LinearChains) else CurvedRun
    return kind(kernel, state, np.array(dense))


def curve_loadings(
    value: Callable[[torch.Tensor], torch.Tensor],
    z: torch.Tensor,
    f: torch.Tensor,
    noise: torch.Tensor | float,
    rng: np.random.Generator,
) -> torch.Tensor:
    """Signed roots of the shares of variance, by exchanging one factor's values between rows at random.

    Parameters
    ----------
    value : callable
        Predictors (chain, feature, row) of factors.
    z : Tensor (chain, row, factor)
    f : Tensor (chain, feature, row)
        ``value(z)``.
    noise : Tensor (chain, feature) or float
        Variance beside that of the predictors.
    rng : numpy.random.Generator
    """
    variance = (f.var(-1) + noise).clamp(min=1e-12)
    permutation = torch.as_tensor(rng.permutation(z.shape[1]), device=z.device)
    loadings = []
    for k in range(z.shape[-1]):
        moved = z.clone()
        moved[..., k] = moved[:, permutation, k]
        change = f - value(moved)
        slope = (change * (z - moved)[..., k].unsqueeze(1)).mean(-1)
        even = evened(z[..., k], moved[..., k]).unsqueeze(-1)
        # Half, since the difference of two rows has twice the variance of one.
        effect = (0.5 * even * change.square().mean(-1) / variance).clamp(0, 1)
        loadings.append(slope.sign() * effect.sqrt())
    return torch.stack(loadings, -1)


def _line_loadings(z: torch.Tensor, weight: torch.Tensor, noise: torch.Tensor | float) -> torch.Tensor:
    """`curve_loadings` of straight lines, to which the exchange of rows makes no difference."""
    z = z.double() - z.double().mean(1, keepdim=True)
    moment, weight = z.mT @ z, weight.double()
    of_f = ((weight @ moment) * weight).sum(-1) / (z.shape[1] - 1)
    share = moment.diagonal(dim1=-2, dim2=-1).unsqueeze(1) / z.shape[1]
    loading = weight * share.sqrt() / (of_f + noise).clamp(min=1e-12).sqrt().unsqueeze(-1)
    return loading.clamp(-1, 1)


class LinearRun:
    """Chains of `LinearChains`."""

    signed = True  # whether the signs of loadings say which factor is which
    joint_every = 2  # sweeps between two values of `log_joint`, of which two neighbours are much alike

    def __init__(self, kernel: LinearChains, state: LinearState, dense: NDArray[np.bool_]):
        self.kernel, self.state, self.dense = kernel, state, dense
        self.prob = np.zeros(state.weight.shape)
        self.density = self.prior_density = MixtureDensity(
            kernel.density.laplace, kernel.slab_scale, kernel.slab_scale * float(kernel.density.ratio)
        )

    def sweep(self, rng: np.random.Generator, hold: bool, warm: bool) -> None:
        """Next state; `hold` keeps the rates of dense chains where they are."""
        self.state, self.prob = self.kernel.sweep(self.state, rng, self.dense & hold)

    def rescale(self, rng: np.random.Generator, leap: bool) -> None:
        """Draw the scales of spike and slab given the edges; or leap to the likeliest, edges summed out."""
        state, kernel = self.state, self.kernel
        if leap:
            permitted, must = kernel.permitted, kernel.must
            self.density = likeliest_density(
                *self.weights(), self.density, permitted, must, kernel.shared_eta, kernel.edge_offset
            )
        else:
            self.density = drawn_density(
                self.density, self.prior_density, state.weight, state.edge, kernel.permitted, rng
            )
        self.kernel = replace(kernel, density=self.density.in_slabs(), slab_scale=self.density.slab)

    def release(self) -> None:
        """Let the dense chains go: an edge more or less is as likely."""
        odds = np.where(self.dense[:, None, None], 0.0, self.state.log_odds)
        self.state = self.state._replace(log_odds=odds)

    def seen(self, rng: np.random.Generator, loading: bool = True) -> Seen:
        """The last sweep; loadings cost next to nothing here."""
        state = self.state
        return Seen(
            prob=self.prob,
            edge=state.edge,
            loading=self.loadings(rng),
            eta=1 / (1 + np.exp(-state.log_odds[:, 0])),
        )

    def log_joint(self, rng: np.random.Generator) -> Array:
        """Log density of data and parameters, factors summed out, (chain,)."""
        return self.kernel.log_evidence(self.state)

    def loadings(self, rng: np.random.Generator) -> Array:
        """Of the state as it is."""
        state, spread = self.state, self.state.cov
        factor_sd = np.sqrt(np.diagonal(spread, axis1=-2, axis2=-1))[:, None]
        total = ((state.weight @ spread) * state.weight).sum(-1) + state.noise
        return state.weight * factor_sd / np.sqrt(total)[..., None]

    def terms(self) -> dict[str, Array]:
        """What else a state has that is reported, chain first, in model units; see `Terms`."""
        state = self.state
        effects = np.swapaxes(state.coefficients[..., 1:], -1, -2)
        return {
            "noise_sd": np.sqrt(state.noise),
            "factor_correlation": state.cov,
            **({} if self.kernel.design is None else {"covariate_effect": effects}),
        }

    def if_permitted(self) -> Array:
        """P(edge | the rest) of what is forbidden, (chain, feature, factor)."""
        return self.kernel.if_permitted(self.state)

    def weights(self) -> tuple[Array, Array]:
        """Weights (chain, feature, factor) as they are, and the rates' log odds (chain, 1, factor)."""
        return self.state.weight, self.state.log_odds

    def row_levels(self, rng: np.random.Generator) -> Array:
        """Log density of each row, factors summed out, (chain, row)."""
        return linear_levels(self.kernel, self.state)

    def scores(self, rng: np.random.Generator) -> Array:
        """A draw of the rows' factors, (chain, row, factor)."""
        return linear_scores(self.kernel, self.state, rng)

    def volume(self) -> Array:
        """Nothing to add: the factors are summed out."""
        return np.zeros(len(self.dense))


class CurvedRun:
    """Chains of `DecoderChains`."""

    def __init__(self, kernel: DecoderChains, state: DecoderState, dense: NDArray[np.bool_]):
        self.kernel, self.state = kernel, state
        self.dense = torch.as_tensor(dense, device=state.weight.device)
        # Scales are learned of the built-in densities only.
        self.density = self.prior_density = kernel.density.stand_in
        self.tuning = kernel.tuning(state)
        self.spike = _WIDE * self.density.slab
        self.prob = torch.zeros_like(state.weight)
        self.count, self.first, self.second = 0, torch.zeros_like(state.z), torch.zeros_like(state.z)
        self.begin = state
        # Whether the signs of loadings say which factor is which: a feature that is even in the factor of a
        # curve has a loading of either sign.
        self.signed = self.is_line = kernel.curve.activation is None
        self.joint_every = _JOINT_EVERY if self.is_line else 1

    def sweep(self, rng: np.random.Generator, hold: bool, warm: bool) -> None:
        """Next state; `hold`: dense chains keep their rates and layers climb; `warm` tunes the steps."""
        rates_fixed, kernel = self.dense & hold, self._with_wide_spike() if hold else self.kernel
        self.state, self.prob = kernel.sweep(self.state, self.tuning, rng, rates_fixed, warm, climb=hold)

    @cached_property
    def constants(self) -> torch.Tensor:
        """Of `row_levels`."""
        with torch.no_grad():
            return cell_constants(self.kernel, self.begin)

    def _with_wide_spike(self) -> DecoderChains:
        """The kernel of straight lines, whose spike narrows from sweep to sweep as far as the prior's.

        Under a narrow spike nearly every pair of axes is a mode, and chains stay in those they begin in.
        """
        kernel, density = self.kernel, self.kernel.density
        if not self.is_line or not isinstance(density, MixtureDensity):
            return kernel
        self.spike *= _NARROWED
        return replace(kernel, density=replace(density, spike=max(density.spike, self.spike)))

    def rescale(self, rng: np.random.Generator, leap: bool) -> None:
        """Draw the scales of spike and slab given the edges; or leap to the likeliest, edges summed out."""
        state, kernel = self.state, self.kernel
        weight, log_odds = self.weights()
        permitted, must = kernel.permitted.cpu().numpy(), kernel.must.cpu().numpy()
        edge_offset = None if kernel.edge_offset is None else _array(kernel.edge_offset)
        if leap:
            self.density = likeliest_density(
                weight, log_odds, self.density, permitted, must, kernel.shared_eta, edge_offset
            )
        else:
            edge = state.edge.cpu().numpy() | must
            self.density = drawn_density(self.density, self.prior_density, weight, edge, permitted, rng)
        self.kernel = replace(kernel, density=self.density)

    def release(self) -> None:
        """Let the dense chains go: an edge more or less is as likely."""
        odds = self.state.log_odds
        self.state = self.state._replace(
            log_odds=torch.where(self.dense.view(-1, 1, 1), torch.zeros_like(odds), odds)
        )

    @torch.no_grad()
    def seen(self, rng: np.random.Generator, loading: bool = True) -> Seen:
        """The last sweep, with a curve's loadings if they are wanted: they cost as many passes as factors."""
        kernel, state = self.kernel, self.state
        self.count += 1
        self.first, self.second = self.first + state.z, self.second + state.z**2
        f = kernel.value(state)
        return Seen(
            prob=_array(self.prob),
            edge=state.edge.cpu().numpy(),
            loading=self._loading(f, rng) if loading else None,
            eta=_array(torch.sigmoid(state.log_odds[:, 0])),
        )

    @torch.no_grad()
    def log_joint(self, rng: np.random.Generator) -> Array:
        """Log density of data and parameters, (chain,): of straight lines with factors summed out."""
        kernel, state = self.kernel, self.state
        f = kernel.value(state)
        if not self.is_line:
            return _array(kernel.log_joint(state, f))
        return line_levels(kernel, state, None, rng).sum(1) + _array(kernel.log_parameters(state, f))

    @torch.no_grad()
    def loadings(self, rng: np.random.Generator) -> Array:
        """Of the state as it is."""
        return self._loading(self.kernel.value(self.state), rng)

    def _loading(self, f: torch.Tensor, rng: np.random.Generator) -> Array:
        kernel, state = self.kernel, self.state
        noise = kernel.cells.likelihood.variance_beside(state.noise)
        if self.is_line:
            return _array(_line_loadings(state.z, state.weight, noise))
        some = slice(None, None, -(-f.shape[-1] // _LOOKED_AT))
        z, f = state.z[:, some], f[..., some]
        return _array(curve_loadings(lambda z: kernel.value(state, z), z, f, noise, rng))

    def terms(self) -> dict[str, Array]:
        """What else a state has that is reported, chain first, in model units; see `Terms`."""
        kernel, state = self.kernel, self.state
        terms = {"factor_correlation": _array(torch.linalg.inv(state.precision))}
        if kernel.cells.normal:
            terms["noise_sd"] = _array(state.noise.sqrt()) * kernel.unit
        if state.effects is not None:
            terms["covariate_effect"] = _array(state.effects.mT) * kernel.unit
        return terms

    def if_permitted(self) -> Array:
        """P(edge | the rest) of what is forbidden, (chain, feature, factor)."""
        return _array(self.kernel.if_permitted(self.state))

    def weights(self) -> tuple[Array, Array]:
        """Weights (chain, feature, factor) as they are, and the rates' log odds (chain, 1, factor)."""
        return _array(self.state.weight), _array(self.state.log_odds)

    @torch.no_grad()
    def row_levels(self, rng: np.random.Generator) -> Array:
        """Log density of each row of straight lines, factors summed out, (chain, row)."""
        return line_levels(self.kernel, self.state, self.constants, rng)

    def scores(self, rng: np.random.Generator) -> Array:
        """The rows' factors as they are, (chain, row, factor)."""
        return _array(self.state.z)

    def volume(self) -> Array:
        """Sum over rows and factors of the log standard deviation of z within each chain; 0 of lines."""
        if self.is_line:
            return np.zeros(len(self.dense))
        mean = self.first / self.count
        var = (self.second / self.count - mean**2).clamp(min=1e-8)
        return _array(0.5 * var.log().double().sum((-1, -2)))


def _array(t: torch.Tensor) -> Array:
    return t.cpu().double().numpy()
