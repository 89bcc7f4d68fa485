r"""The Sparse VAE (Moran, Sridhar, Wang, Blei 2022): which feature depends on which factor.

.. math:: z_i \sim N(0, C), \quad w_{jk} \sim \mathrm{prior}, \quad
          x_{ij} \sim \mathrm{likelihood}\big(f_\theta(w_j \odot z_i)_j\big)

The program is `FactorModel`'s with one more site: the weights W, drawn from a `Prior` and held as a point
mass. An edge is a weight that is not zero. Anchors, required and forbidden edges are constraints on W; odds
of single edges are beliefs about them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import pyro
import pyro.distributions as dist
import torch
from scipy.optimize import linear_sum_assignment
from torch import Tensor, nn

from .._utils.arrays import COMPILED, arrays, compiled
from .._utils.checks import check_whole
from .._utils.declared import Declared, keeps
from ..data.table import Batch
from ..distributions._sweep import MaskedNet, routes
from ..distributions.decoded_cells import DecodedCells, predictor, recomputed_predictor
from ..likelihoods import LikelihoodLike
from ..nets.layers import LinearDecoder, MaskedDecoder
from ..priors import LKJ, Prior, SpikeSlabLasso, SpikeSlabPrior, get_prior
from ..priors._check import check_prior
from ._edge_odds import EdgeOdds, odds_of_edges
from .base import EdgeSet, FactorModel

__all__ = ["SparseDecoder"]

Feature = int | str
Edge = tuple[Feature, int | str]

CHUNKED_FROM = 2e6  # hidden units of a layer in a pass; below, calls cost more than memory
CHUNKED_THERE = 1e8  # the same on an accelerator, where chunks save memory, not time
WITHOUT_GRADIENT = 0.5  # share of it where no gradient is wanted: calls cost less

# What a subclass may write anew without changing the density of the program: how the model is made, where a
# fit starts, the guide, and how fast a pass is. What `build` made is looked at itself.
_FREE = frozenset({
    "alike_factors", "build", "chunked", "closed_form", "compiled", "data_start", "edges", "encode",
    "factor_cov_rate", "factor_posterior", "fit_settings", "gaussian_guide", "global_guide", "guide",
    "in_chunks", "setup", "square", "start", "take_features",
})  # fmt: skip
# What the closed form of the ELBO (`inference/table/sparse_elbo.py`) is made of, and what it has no part in.
_PROGRAMS = frozenset({
    "decode", "encode", "factor_posterior", "factor_prior", "global_guide", "global_sites", "guide",
    "in_chunks", "model", "net", "observation", "rows",
})  # fmt: skip
_BETWEEN_STEPS = frozenset({
    "after_step", "build", "fit_settings", "latent_loss", "project", "setup", "start", "take_features",
})  # fmt: skip


class SparseDecoder(FactorModel):
    r"""Masked decoder with a sparse prior on which factor each feature sees.

    .. math:: E[x_{ij}] = g\big(f_\theta(w_j \odot z_i)_j\big),
              \qquad f_\theta \text{ an MLP shared by all features}

    Parameters
    ----------
    n_features : int, optional
        G; default the number of columns of the table that is fitted.
    n_factors : int
        K; has to be given.
    prior : str or Prior, optional
        Prior of the weights: a name that `priors.get_prior` knows, or an instance; default
        `SpikeSlabLasso()`.
    likelihood : str, mapping or Likelihood
        "normal", "student_t", "bernoulli", "ordinal", "probit", "beta", "poisson", "negative_binomial",
        "zero_inflated_negative_binomial", "hurdle_poisson", "hurdle_negative_binomial", "multinomial" or
        "categorical"; for columns of several kinds a mapping such as
        ``{"height": "normal", "q*": "ordinal"}`` (`likelihoods.Columns`), or "auto", by type and cells; or an
        instance.
    decoder : {"mlp", "linear"}
        "linear" is sparse factor analysis.
    hidden, encoder_hidden : int
        Widths of the decoder's and the encoder's two hidden layers.
    factor_cov : bool or LKJ
        Learn the correlation C of the factors. An `LKJ` is the prior that Markov chains of a linear decoder
        under normal noise have of it; True is `CORRELATION_PRIOR`. False: C = I.
    anchors : mapping feature -> factor, optional
        Features that depend on that factor only (an anchor feature of the paper, known in advance).
    required, forbidden : iterable of (feature, factor), optional
        Edges that must, or must not, be there. Features by position or by name, factors by position from 0.
    edge_odds : mapping (feature, factor) -> odds, DataFrame or array (feature, factor), optional
        What is believed of single edges before the data, where a spike-and-slab prior stands on the weights:
        the odds of the edge are this multiple of its factor's,
        :math:`\operatorname{logit}\eta_{jk} = \operatorname{logit}\eta_k + \log o_{jk}`. Edges that are not
        named have 1. A DataFrame has the features' names as its index and a column for each factor.
    activation : {"relu", "tanh"}
        Of the MLP decoder's hidden layers.
    factor_names : sequence of str, optional
        What factors are called in every table, picture and page, and in `anchors`, `required` and
        `forbidden`; default factor 1, factor 2, … Each has to have constraints or odds of its own, for
        factors that can change places have no names.

    Attributes
    ----------
    weights : Parameter (restart, feature, factor)
        W. With the MLP decoder each row is scaled to a largest absolute value of 1 during a fit, for scale
        could be traded with the curve (so an edge's strength is its `Fit.effects`); with the linear decoder W
        is the loading matrix.
    allowed : buffer (restart, feature, factor) of bool
        Edges that may be there: the caller's constraints, and the support found so far during a fit.
    held : buffer (restart, feature) of bool
        Features whose row of W stays at `held_weights` for the time being: at zero while nothing explains
        them, then along a direction found by a search (`inference/table/directions.py`).
    chunked : bool
        Whether passes through many hidden units go a few features at a time (`DecodedCells`), which changes
        numbers by rounding only. True by default; set it to False for the plain pass at every size.
    compiled : bool
        Whether the steps of a small model on the processor are machine code where numba is installed (the
        extra "fast"), which changes numbers by rounding only. True by default.
    rounded : bool
        Whether passes with gradients keep the MLP decoder's hidden units as bfloat16; False by default.
        ``ps.fit(dtype="bfloat16")`` sets it for the training steps and not for what a fit is judged by.

    Raises
    ------
    ValueError
        Impossible sizes, unknown prior, decoder or activation, an edge outside the table, an edge both
        required and forbidden; odds that are not positive, of another shape or other features, or under a
        prior that has no spike and slab.
    TypeError
        The prior is a class, `anchors` no mapping, or an edge no pair.

    Examples
    --------
    >>> model = SparseDecoder(n_features=7, n_factors=2, anchors={0: 0, 3: 1})
    >>> model.setup(n_restarts=3)
    >>> model.weights.shape
    torch.Size([3, 7, 2])
    """

    edges = (EdgeSet("edge", ("feature", "factor"), "W"),)
    declares = (
        Declared("masked decoder", free=_FREE),
        Declared("closed-form ELBO", rests_on=_PROGRAMS, free=_BETWEEN_STEPS),
        Declared("captured steps", rests_on=frozenset({"after_step", "project"})),
    )
    allowed: Tensor
    permitted: Tensor
    must: Tensor
    chunked: bool = True
    compiled: bool = True
    rounded: bool = False
    held: Tensor
    held_weights: Tensor

    def __init__(
        self,
        n_features: int | None = None,
        n_factors: int | None = None,
        prior: str | Prior | None = None,
        likelihood: LikelihoodLike = "normal",
        decoder: str = "mlp",
        hidden: int = 50,
        encoder_hidden: int = 64,
        factor_cov: bool | LKJ = True,
        anchors: Mapping[Feature, int | str] | None = None,
        required: Iterable[Edge] | None = None,
        forbidden: Iterable[Edge] | None = None,
        edge_odds: EdgeOdds | None = None,
        activation: str = "relu",
        factor_names: Sequence[str] | None = None,
    ):
        super().__init__(n_features, n_factors, likelihood, encoder_hidden, factor_cov)
        if decoder not in ("mlp", "linear"):
            raise ValueError(f"decoder: got {decoder!r}, wanted 'mlp' or 'linear'")
        if activation not in ("relu", "tanh"):
            raise ValueError(f"activation: got {activation!r}, wanted 'relu' or 'tanh'")
        check_whole(1, hidden=hidden)
        if anchors is not None and not isinstance(anchors, Mapping):
            raise TypeError(
                f"anchors: want a mapping of feature to factor, such as {{0: 0, 3: 1}}, got {anchors!r}; "
                "say of each anchor which factor is its own"
            )
        self.activation = activation
        self.prior = SpikeSlabLasso() if prior is None else get_prior(prior)
        if edge_odds is not None and not isinstance(self.prior, SpikeSlabPrior):
            raise ValueError(
                f"edge_odds: {type(self.prior).__name__} has no probabilities of edges that odds could move; "
                "take a spike-and-slab prior, or leave them out"
            )
        self.decoder_kind, self.hidden = decoder, int(hidden)
        self.factor_names = _read_factor_names(factor_names, self.n_factors)
        self.edge_odds = edge_odds
        self.anchors, self.required, self.forbidden = (
            {} if anchors is None else dict(anchors),
            _pairs("required", required),
            _pairs("forbidden", forbidden),
        )

    def build(self, feature_names: list[str] | None) -> None:
        shape = (self.n_restarts, self.n_features, self.n_factors)
        kind = MaskedDecoder if self.decoder_kind == "mlp" else LinearDecoder
        self.decoder = kind(*shape, self.hidden, self.activation)
        self.weights = nn.Parameter(torch.full(shape, 0.5))
        permitted, required = self._constraints(feature_names)
        self.register_buffer("allowed", permitted.expand(shape).clone())
        self.register_buffer("permitted", permitted)
        self.register_buffer("must", required)
        self.register_buffer("held", torch.zeros(shape[:2], dtype=torch.bool))
        self.register_buffer("held_weights", torch.zeros(shape))
        beliefs: dict[str, Any] = {}
        if self.edge_odds is not None:
            size = self.n_features, self.n_factors
            place = partial(self._edge, "edge_odds", names=feature_names)
            odds = odds_of_edges(self.edge_odds, size, feature_names, place, self.factor_names)
            beliefs["edge_odds"] = torch.as_tensor(odds)
        self.prior.setup(
            n_features=self.n_features,
            n_factors=self.n_factors,
            n_restarts=self.n_restarts,
            n_samples=self.n_samples,
            allowed=permitted,
            **beliefs,
        )
        check_prior(self.prior)
        if self.factor_names is not None and (alike := [k for k in self.alike_factors() if len(k) > 1]):
            both = " and ".join(self.factor_names[k] for k in alike[0][:2])
            raise ValueError(
                f"factor_names: nothing tells {both} apart, so that a fit may exchange them; give each an "
                "anchor, a required edge or odds, or leave the names out"
            )

    def start(
        self,
        scores: Tensor,
        maps: Tensor,
        loadings: Tensor,
        intercept: Tensor,
        residual_sd: Tensor,
        bent: Tensor,
        unit: Tensor | float = 1.0,
    ) -> None:
        scores, maps, loadings = self._seated(scores, maps, loadings)
        super().start(scores, maps, loadings, intercept, residual_sd, bent, unit)
        with torch.no_grad():
            row = torch.as_tensor(unit).reshape(-1, 1)
            used = (scores != 0).any(1, keepdim=True)
            self.allowed &= used | self.must
            if self.decoder_kind == "mlp":  # rows of W at a maximum of 1, the head carries their scale
                signs = torch.where(bent.view(-1, 1, 1) | (loadings >= 0), 1.0, -1.0)
                if self.likelihood.noise_sd() is not None:
                    self.held.copy_((residual_sd[:, 0] ** 2 > 0.9) & ~self.must.any(-1))
                loadings = signs * loadings.abs().clamp(0.1, 1.0)
                scale = loadings.abs().amax(-1, keepdim=True)
                self.decoder.start(scale, bent, row)
                self.weights.copy_(loadings / scale)
            else:
                self.weights.copy_(loadings * row)
            self.project()

    def global_sites(self) -> Tensor:
        super().global_sites()
        weights = self.prior()
        # `Predictive` puts dimensions of one before the restart, a plate of particles one of their number.
        particles = weights.shape[:1] if weights.numel() > math.prod(self.prior.shape) else ()
        return weights.reshape(*particles, *self.prior.shape)

    def global_guide(self) -> None:
        super().global_guide()
        self.prior.guide()
        pyro.sample(self.prior.site, dist.Delta(self.weights).to_event(2))

    def decode(self, z: Tensor, weights: Tensor | None) -> Tensor:
        if weights is None or torch.is_grad_enabled() or not self.in_chunks(z, WITHOUT_GRADIENT):
            return super().decode(z, weights)
        return predictor(self.net(weights), z, self.activation)

    def observation(self, z: Tensor, weights: Tensor | None, batch: Batch) -> dist.Distribution:
        """What `FactorModel.observation` says; through many hidden units a few features at a time."""
        if weights is None or not self.in_chunks(z, 1.0 if torch.is_grad_enabled() else WITHOUT_GRADIENT):
            return super().observation(z, weights, batch)
        net, mask, per_row = self.net(weights), batch.mask, batch.per_row
        if self.likelihood.separable:
            return DecodedCells(
                self.likelihood, net, z,
                mask=mask, per_row=per_row, permitted=self.allowed, activation=self.activation,
                rounded=self.rounded,
            )  # fmt: skip
        f = recomputed_predictor(net, z, self.allowed, self.activation, self.rounded)
        return self.likelihood.observation(f, mask, per_row)

    def in_chunks(self, z: Tensor, share: float = 1.0) -> bool:
        """Whether a pass of factors (restart, row, factor) goes a few features at a time.

        Parameters
        ----------
        z : Tensor (restart, row, factor)
        share : float
            Of the size from which a training step does.
        """
        least = CHUNKED_FROM if z.device.type == "cpu" else CHUNKED_THERE
        large = z[..., 0].numel() * self.n_features * self.hidden >= share * least
        plain = z.dim() > 3  # Pyro's vectorised particles
        return self.chunked and large and not plain and keeps(self.decoder, "masked decoder network")

    @torch.no_grad()
    def closed_form(self, n_rows: int) -> list[int]:
        """Features of each restart that training on so many rows evaluates without hidden units of their own.

        They follow one factor or none and have no other edge that may come back; 0 where a pass is plain.
        """
        if not self.in_chunks(self.weights.new_empty(self.n_restarts, n_rows, 1)):
            return [0] * self.n_restarts
        ways = [
            routes(w, permitted, self.activation, gradient=True)
            for w, permitted in zip(self.weights, self.allowed, strict=True)
        ]
        return [self.n_features - len(way.dense) for way in ways]

    def net(self, weights: Tensor) -> MaskedNet:
        """The tensors of the MLP decoder with these weights, for passes that go a few features at a time."""
        decoder = self.decoder
        trunk = decoder.trunk
        return MaskedNet(
            weights, decoder.first, trunk.weight, trunk.bias, decoder.slope, decoder.head, decoder.intercept
        )

    @torch.no_grad()
    def project(self) -> None:
        """Return to the constraints: held rows, `allowed` edges, first layer's norm, rows of W at most 1."""
        decoder, weights = self.decoder, self.weights
        if COMPILED and weights.device.type == "cpu" and keeps(decoder, "masked decoder network"):
            tensors = weights, self.held, self.held_weights, self.allowed, decoder.first, decoder.slope
            _project(*arrays(*tensors)[1:], decoder.column_norm)
            return
        weights.copy_(torch.where(self.held.unsqueeze(-1), self.held_weights, weights) * self.allowed)
        decoder.project()
        if self.decoder_kind == "mlp":
            scale = weights.abs().amax(-1)
            scale = torch.where(scale > 1e-6, scale, torch.ones_like(scale))
            weights.div_(scale.unsqueeze(-1))
            decoder.rescale(scale)

    def alike_factors(self) -> list[np.ndarray]:
        """Sets of factors that can change places: same constraints and odds (one set if there are none)."""
        columns = torch.cat([self.permitted, self.must, *self._beliefs()]).cpu().numpy()
        kind = np.unique(columns, axis=1, return_inverse=True)[1].reshape(self.n_factors)
        return [np.flatnonzero(kind == label) for label in np.unique(kind)]

    def _seated(self, scores: Tensor, *others: Tensor) -> tuple[Tensor, ...]:
        """The guessed factors in the order that suits the constraints, which name factors by number, best."""
        believed = self._beliefs()
        if self.permitted.all() and not self.must.any() and not believed:
            return scores, *others
        suits = sum(
            (constraint.to(scores) for constraint in (self.must, *believed)), self.permitted.to(scores)
        )
        turned: list[list[Tensor]] = []
        for r, share in enumerate(others[-1] ** 2):
            agreement = share.mT @ suits  # (guess, seat)
            seat = linear_sum_assignment(-agreement.cpu().numpy())[1].argsort()
            turned.append([tensor[r][:, seat.tolist()] for tensor in (scores, *others)])
        return tuple(torch.stack(tensors) for tensors in zip(*turned, strict=True))

    def _beliefs(self) -> list[Tensor]:
        """Log odds of single edges (feature, factor), if there are any."""
        prior = self.prior
        return [prior.known] if isinstance(prior, SpikeSlabPrior) and prior.informed else []

    def _constraints(self, names: list[str] | None) -> tuple[Tensor, Tensor]:
        permitted = torch.ones(self.n_features, self.n_factors, dtype=torch.bool)
        required = torch.zeros_like(permitted)
        for feature, factor in self.forbidden:
            permitted[self._edge("forbidden", feature, factor, names)] = False
        for feature, factor in self.required:
            required[self._edge("required", feature, factor, names)] = True
        for feature, factor in self.anchors.items():
            j, k = self._edge("anchors", feature, factor, names)
            keep = permitted[j, k].clone()
            permitted[j] = False
            permitted[j, k] = keep
            required[j, k] = True
        clash = (required & ~permitted).nonzero()
        if len(clash):
            j, k = clash[0].tolist()
            label = names[j] if names else j
            raise ValueError(
                f"required: edge ({label!r}, {k}) is also forbidden or excluded by an anchor; "
                "remove one of the two constraints"
            )
        return permitted, required

    def _edge(
        self, argument: str, feature: Feature, factor: int | str, names: list[str] | None
    ) -> tuple[int, int]:
        if isinstance(factor, str) and self.factor_names is not None:
            if factor not in self.factor_names:
                raise ValueError(
                    f"{argument}: no factor is called {factor!r}; wanted one of {self.factor_names}, or a "
                    "position"
                )
            factor = self.factor_names.index(factor)
        if isinstance(feature, str):
            if not names or feature not in names:
                raise ValueError(
                    f"{argument}: no feature is called {feature!r}; "
                    "wanted one of the table's columns, or a position"
                )
            j = names.index(feature)
        else:
            j = feature
        if not all(isinstance(at, int | np.integer) and not isinstance(at, bool) for at in (j, factor)):
            raise TypeError(
                f"{argument}: got the edge ({feature!r}, {factor!r}), wanted a feature by position or "
                "by name and a factor by position, both from 0"
            )
        if not (0 <= j < self.n_features and 0 <= int(factor) < self.n_factors):
            raise ValueError(
                f"{argument}: edge ({feature!r}, {factor}) lies outside {self.n_features} features x "
                f"{self.n_factors} factors (both count from 0)"
            )
        return int(j), int(factor)


def _read_factor_names(names: Sequence[str] | None, n_factors: int) -> list[str] | None:
    """Names of factors, refused unless there is one for each and no two are alike."""
    if names is None:
        return None
    if isinstance(names, str) or not all(isinstance(name, str) and name for name in names):
        raise TypeError(f"factor_names: got {names!r}, wanted a list of texts, one for each factor")
    if len(names) != n_factors or len(set(names)) != len(names):
        raise ValueError(
            f"factor_names: got {list(names)}, wanted {n_factors} names, one for each factor and each once"
        )
    return list(names)


def _pairs(argument: str, edges: Iterable[Edge] | None) -> list[Edge]:
    """Edges as a list, refused unless each has a feature and a factor."""
    pairs = list(edges) if isinstance(edges, Iterable) else [] if edges is None else [edges]
    strange = [edge for edge in pairs if isinstance(edge, str) or np.shape(edge) != (2,)]
    if strange:
        raise TypeError(
            f"{argument}: want pairs (feature, factor), such as [(0, 1), (3, 2)], got {strange[0]!r}"
        )
    return pairs


@compiled
def _project(weights, held_rows, held_weights, permitted, first, slope, norm):
    """`SparseDecoder.project` of an MLP decoder in one call."""
    for r in range(weights.shape[0]):
        for k in range(first.shape[1]):
            total = 0.0
            for i in range(first.shape[2]):
                total += float(first[r, k, i]) ** 2
            factor = norm / max(np.sqrt(total), 1e-12)
            for i in range(first.shape[2]):
                first[r, k, i] *= factor
        for g in range(weights.shape[1]):
            scale = 0.0
            for k in range(weights.shape[2]):
                w = held_weights[r, g, k] if held_rows[r, g] else weights[r, g, k]
                weights[r, g, k] = w * permitted[r, g, k]
                scale = max(scale, abs(weights[r, g, k]))
            if scale > 1e-6:
                for k in range(weights.shape[2]):
                    weights[r, g, k] /= scale
                slope[r, g, 0] *= scale
