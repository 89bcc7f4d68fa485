r"""Scales of spike and slab: do the chains' weights look like draws from them, and which suit them better?

.. math:: w_{jk} \mid \eta_k \sim \eta_k\, \psi_{s_1} + (1 - \eta_k)\, \psi_{s_0}

If program and prior are right, a draw of (w, eta) from the posterior is one from the prior, taken over data
sets. Given its rates, the likelihood ratio of the best two scales to the prior's own is then chi-squared with
two degrees of freedom in every single draw. Draws of one table depend on one another: twice the median of
their p values is a valid one whatever they share (Rüger 1978, Metrika 25). The idea is Johnson's (2007,
Bayesian Analysis 2).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, logit
from scipy.stats import chi2

from .mixture import MixtureDensity
from .rates import solved_log_odds
from .weight import SpikeSlab

if TYPE_CHECKING:
    from ....priors import SpikeSlabPrior

__all__ = ["ScaleCheck", "check_scales", "drawn_density", "likeliest_density", "of_one_kind", "unlike_prior"]

Array = NDArray[np.float64]

_STEPS = 100  # of EM, from each start, unless scales stay what they were
_STILL = 1e-6  # relative change of both scales, below which EM has ended
_MOST = 100_000  # weights looked at, of all draws together
_STARTS = (0.3, 0.9)  # quantiles of |w|: of a spike and a slab in case the prior's own are far off
_LEAST = 1e-8  # scale
_RARE = 0.01  # p value
_ALIKE = 3.0  # times the spike's scale: a slab that is no wider says little of any one weight


class ScaleCheck(NamedTuple):
    """What the drawn weights say of their prior.

    Attributes
    ----------
    p_value : float
        Of the prior's two scales, against any other two.
    slab, spike : float
        The scales that fit all draws best, rates being free too (uniform).
    edges, edges_then : float
        Expected number of edges under the prior's scales and, these weights staying as they are, under those;
        anchors left out.
    """

    p_value: float
    slab: float
    spike: float
    edges: float
    edges_then: float

    @property
    def rejected(self) -> bool:
        """Whether the prior's scales are."""
        return self.p_value < _RARE

    @property
    def too_many(self) -> bool:
        """Whether the prior also has more edges than scales that suit better, if these lie apart."""
        return self.rejected and self.edges_then < self.edges and _apart(self.slab, self.spike)


def check_scales(
    weight: Array,
    log_odds: Array,
    density: MixtureDensity,
    permitted: NDArray[np.bool_],
    must: NDArray[np.bool_],
    shared: bool = False,
    edge_offset: Array | None = None,
) -> ScaleCheck | None:
    """Test a prior's scales by weights drawn from the posterior; None where there is nothing to go by.

    Parameters
    ----------
    weight : ndarray (draw, feature, factor)
        Factors as the prior has them: in no common frame.
    log_odds : ndarray (draw, 1, factor)
        Of the rates, drawn with the weights.
    density : MixtureDensity
        The prior.
    permitted, must : ndarray of bool (feature, factor)
        What may be an edge; what is one for certain, and has a weight from the slab.
    shared : bool
        One rate for all factors.
    edge_offset : ndarray (feature, factor), optional
        Log odds of single edges beside those of their factor.
    """
    stride = -(-weight.size // _MOST)
    drawn = _Drawn(np.abs(weight[::stride]), permitted, must & permitted, density.in_slabs(), edge_offset)
    log_odds = log_odds[::stride]
    if drawn.asked.sum() < 2:
        return None
    prior_scales, starts = _Scales.of(density), drawn.starts(density)
    fitted = [drawn.climbed(start, log_odds)[0] for start in starts]
    gain = np.max([drawn.log_prob(s, log_odds) for s in fitted], 0) - drawn.log_prob(prior_scales, log_odds)
    p = np.sort(chi2.sf(2 * gain, 2))
    best, odds = drawn.pooled(starts, log_odds, shared)
    before, then = (drawn.edge(*pair)[:, drawn.asked] for pair in ((prior_scales, log_odds), (best, odds)))
    return ScaleCheck(
        p_value=float(min(1.0, 2 * p[len(p) // 2])),
        slab=best.slab.item(),
        spike=best.spike.item(),
        edges=float(before.sum(-1).mean()),
        edges_then=float(then.sum(-1).mean()),
    )


def likeliest_density(
    weight: Array,
    log_odds: Array,
    density: MixtureDensity,
    permitted: NDArray[np.bool_],
    must: NDArray[np.bool_],
    shared: bool = False,
    edge_offset: Array | None = None,
) -> MixtureDensity:
    """The scales that fit these weights best, edges summed out; `density` where there is nothing to go by.

    Arguments as in `check_scales`.
    """
    some = slice(None, None, -(-weight.size // _MOST))  # features
    permitted, must = permitted[some], must[some]
    edge_offset = None if edge_offset is None else edge_offset[some]
    drawn = _Drawn(np.abs(weight[:, some]), permitted, must & permitted, density.in_slabs(), edge_offset)
    if drawn.asked.sum() < 2:
        return density
    best, _ = drawn.pooled(drawn.starts(density), log_odds, shared)
    return MixtureDensity(density.laplace, best.slab.item(), best.spike.item())


def drawn_density(
    density: MixtureDensity,
    prior_density: MixtureDensity,
    weight: Array,
    edge: NDArray[np.bool_],
    permitted: NDArray[np.bool_],
    rng: np.random.Generator,
) -> MixtureDensity:
    r"""Scales that all chains share, given weights and edges; `prior_density` counts as one weight of each.

    .. math:: s \mid w \sim \mathrm{InvGamma}\Big(1 + n,\; t + \sum |w|\Big) \quad \text{(Laplace)}, \qquad
              s^2 \mid w \sim \mathrm{InvGamma}\Big(\frac{1 + n}2,\; \frac{t^2 + \sum w^2}2\Big)
              \quad \text{(normal)}

    C chains that share what they do not know each see the data: together they are at the maximum of the
    marginal likelihood but for 1/C of the posterior's variance (data cloning: Lele, Dennis and Lutscher 2007,
    Ecology Letters 10). Chains that could not draw a spike below the slab keep what they had.

    Parameters
    ----------
    density, prior_density : MixtureDensity
        As it is, and as the prior has it.
    weight : ndarray (chain, feature, factor)
    edge : ndarray of bool of that shape
        Those that must be there among them.
    permitted : ndarray of bool (feature, factor)
    rng : numpy.random.Generator
    """

    def scale(selected: NDArray[np.bool_], prior_scale: float) -> float:
        n, w = selected.sum(), np.abs(weight[selected])
        if density.laplace:
            return float((prior_scale + w.sum()) / rng.gamma(1 + n))
        return float(np.sqrt((prior_scale**2 + (w**2).sum()) / 2 / rng.gamma((1 + n) / 2)))

    sound = permitted & np.isfinite(weight)
    slab, spike = scale(edge & sound, prior_density.slab), scale(~edge & sound, prior_density.spike)
    return MixtureDensity(density.laplace, slab, spike) if spike < slab else density


def unlike_prior(prior: SpikeSlabPrior, check: ScaleCheck) -> list[str]:
    """A plain sentence if its scales are rejected, else none."""
    if not check.rejected:
        return []
    scales = prior.scales()
    assert scales is not None  # of others no scales are checked
    prior_parameters = prior.arguments_of(scales.slab, scales.spike)
    then = prior.arguments_of(check.slab, check.spike)
    prior_text, fitted = (
        ", ".join(f"{name}={value:.3g}" for name, value in parameters.items())
        for parameters in (prior_parameters, then)
    )
    p = f"p = {check.p_value:.2g}" if check.p_value >= 1e-6 else "p < 1e-6"
    sentence = f"The weights are unlike their prior, {type(prior).__name__}({prior_text}), {p}."
    if not _apart(check.slab, check.spike):
        return [f"{sentence} They look to be of one kind: what an edge is, only the prior says."]
    many, now = f"{check.edges_then:.0f}", f"{check.edges:.0f}"
    change = f": about {many} of these weights would be edges, not {now}" if many != now else ""
    return [
        f"{sentence} {fitted} suit them better{change}. Unless an edge is to be what your prior says it is, "
        "ask with fit.edge_posterior(learn_scales=True)."
    ]


def of_one_kind(slab: float, spike: float) -> list[str]:
    """A plain sentence if learned scales are too near one another to tell edges, else none."""
    if _apart(slab, spike):
        return []
    return [
        f"The weights are hardly of two kinds: the slab has a scale of {slab:.2g}, the spike of {spike:.2g}, "
        "so no edge stands out. Ask for large loadings (salient_edges), or say in the prior what an edge is."
    ]


def _apart(slab: float, spike: float) -> bool:
    return slab >= _ALIKE * spike


class _Scales(NamedTuple):
    """Of slab and spike, (draw or 1, 1, 1)."""

    slab: Array
    spike: Array

    @classmethod
    def of(cls, density: MixtureDensity) -> _Scales:
        return cls(np.full((1, 1, 1), density.slab), np.full((1, 1, 1), density.spike))


@dataclass(frozen=True, eq=False)
class _Drawn:
    """Sizes of weights (draw, feature, factor), and what they may be."""

    size: Array
    permitted: NDArray[np.bool_]
    must: NDArray[np.bool_]
    family: SpikeSlab
    edge_offset: Array | None = None

    @property
    def asked(self) -> NDArray[np.bool_]:
        return self.permitted & ~self.must

    def starts(self, density: MixtureDensity) -> list[_Scales]:
        """Where EM begins: at the prior's scales, and at two the weights suggest."""
        low, high = np.maximum(np.quantile(self.size[:, self.asked], _STARTS), _LEAST)
        return [_Scales.of(density), _Scales.of(MixtureDensity(density.laplace, float(high), float(low)))]

    def pooled(self, starts: list[_Scales], log_odds: Array, shared: bool) -> tuple[_Scales, Array]:
        """Scales and rates that fit all draws best, of those whose spike is the narrower; else the first."""
        rates = (-1, -2) if shared else (-2,)
        fits = [self.climbed(start, log_odds, rates) for start in starts]
        in_order = [fit for fit in fits if fit[0].spike.item() < fit[0].slab.item()]
        return max(in_order or [(starts[0], log_odds)], key=lambda fit: float(self.log_prob(*fit).sum()))

    def _odds(self, log_odds: Array) -> Array:
        """Prior log odds of edges, those of the rates being these."""
        return log_odds if self.edge_offset is None else log_odds + self.edge_offset

    def edge(self, scales: _Scales, log_odds: Array) -> Array:
        """P(slab | w); 0 where forbidden."""
        slab, spike = (self.family.log_density(self.size, scale) for scale in scales)
        p = expit(self._odds(log_odds) + slab - spike)
        return np.where(self.must, 1.0, p) * self.permitted

    def log_prob(self, scales: _Scales, log_odds: Array) -> Array:
        """log p(w | eta) of each draw."""
        slab, spike = (self.family.log_density(self.size, scale) for scale in scales)
        odds = self._odds(log_odds)
        mixed = np.logaddexp(slab - np.logaddexp(0, -odds), spike - np.logaddexp(0, odds))
        return (np.where(self.must, slab, mixed) * self.permitted).sum((-1, -2))

    def climbed(
        self, scales: _Scales, log_odds: Array, rates: tuple[int, ...] | None = None
    ) -> tuple[_Scales, Array]:
        """Scales of each draw by EM, rates held; or of all draws, and uniform rates, each over these axes."""
        axes = (-1, -2) if rates is None else (0, 1, 2)
        laplace = self.family.laplace
        moment = self.size if laplace else self.size**2

        def scale(share: Array) -> Array:
            total, n = (summand.sum(axes, keepdims=True) for summand in (share * moment, share))
            mean_moment = total / np.maximum(n, 1e-9)
            return np.maximum(mean_moment if laplace else np.sqrt(mean_moment), _LEAST)

        for _ in range(_STEPS):
            p = self.edge(scales, log_odds)
            before, scales = scales, _Scales(scale(p), scale(self.permitted - p))
            if rates is not None:
                yes = (p * self.asked).sum(rates, keepdims=True)
                if self.edge_offset is None:
                    odds = logit((yes + 1) / (self.asked.sum(rates, keepdims=True) + 2))
                else:
                    odds = solved_log_odds(yes + 1, self.edge_offset, self.asked, 2.0)
                log_odds = np.broadcast_to(odds, log_odds.shape)
            if all((np.abs(new / old - 1) < _STILL).all() for new, old in zip(scales, before, strict=True)):
                break
        return scales, log_odds
