r"""What every spike-and-slab prior shares: inclusion probabilities eta with a prior, and their EM update.

.. math:: w_{jk} \mid \eta_k \sim \eta_k\,p_1 + (1-\eta_k)\,p_0, \qquad \eta_k \sim \mathrm{Beta}(a, b)
          \ \text{or stick-breaking}

A family says its slab p1 and spike p0 in ``components``, and, where it has one, its ladder, on which the two
move apart; the indicators stay summed out. What is known of single edges moves their log odds:
:math:`\operatorname{logit}\eta_{jk} = \operatorname{logit}\eta_k + o_{jk}`.
"""

from __future__ import annotations

import math
from numbers import Real
from typing import Any, Literal, NamedTuple, cast

import torch
from torch import Tensor
from torch.distributions import Beta, Distribution

from .._utils.declared import Declared
from .._utils.torch_state import default_dtype
from ..distributions import SpikeSlab, SpikeSlabMixture
from . import em
from .base import Prior

__all__ = ["AROUND_DENSITY", "Scales", "SpikeSlabPrior", "check_positive"]

# What a subclass may write anew without changing the density at the end of the ladder: sizes, the way there,
# and how a training step shrinks.
AROUND_DENSITY = frozenset({"allocate", "anneal", "prox", "screening_rate", "setup", "site"})


def check_positive(**values: object) -> None:
    """Raise ValueError, naming the argument, unless each value is None or a positive finite number."""
    for name, value in values.items():
        number = isinstance(value, Real) and not isinstance(value, bool)
        if value is not None and not (number and 0 < cast(float, value) < math.inf):
            raise ValueError(f"{name} is {value!r}; it must be a positive finite number.")


class Scales(NamedTuple):
    """Spike and slab of one family, at the end of the ladder.

    Attributes
    ----------
    family : {"laplace", "normal"}
    slab, spike : float
        Scales; of normal densities their standard deviations.
    """

    family: Literal["laplace", "normal"]
    slab: float
    spike: float


class SpikeSlabPrior(Prior):
    """Base of the spike-and-slab priors; it owns eta. A subclass says in :meth:`components` what the two are.

    That is all: E-step, M-step and edge probabilities follow. Markov chains
    (``fit.edge_posterior(method="mcmc")``) take any two densities that are symmetric around zero and the
    same for all weights.

    Parameters
    ----------
    a, b, expected_size, eta, column, alpha
        As in :class:`SpikeSlabLasso`.

    Attributes
    ----------
    eta : Tensor
        Inclusion probabilities, shape (R, 1, K), also when they are all equal.
    b : Tensor
        Second Beta parameter, shape (1, K), worked out by :meth:`setup`.
    known : Tensor
        Log odds :math:`o_{jk}` of single edges beside those of their factor, shape (G, K); (1, 1) and zero
        where :meth:`setup` was given none.

    Examples
    --------
    >>> import torch
    >>> from pyro.distributions import StudentT
    >>> from pyro_sparse.priors import SpikeSlabPrior
    >>> class Heavy(SpikeSlabPrior):
    ...     def components(self):
    ...         return StudentT(3.0, 0.0, 0.5), StudentT(3.0, 0.0, 0.01)
    >>> prior = Heavy(expected_size=2)
    >>> prior.setup(n_features=7, n_factors=5, n_restarts=3)
    >>> prior.edge_log_odds(torch.zeros(3, 7, 5)).shape
    torch.Size([3, 7, 5])
    """

    declares = (Declared("spike and slab", free=AROUND_DENSITY | {"components"}),)
    eta: Tensor
    b: Tensor
    known: Tensor

    def __init__(
        self,
        a: float = 1.0,
        b: float | Literal["auto"] = "auto",
        expected_size: float | None = None,
        eta: Literal["factor", "global"] = "factor",
        column: Literal["none", "ibp"] = "none",
        alpha: float | None = None,
    ) -> None:
        super().__init__()
        check_positive(a=a, b=None if b == "auto" else b, expected_size=expected_size, alpha=alpha)
        if b != "auto" and expected_size is not None:
            raise ValueError(
                f"b={b} and expected_size={expected_size} both set the prior of eta; leave one of them out."
            )
        if eta not in ("factor", "global"):
            raise ValueError(f'eta is {eta!r}; it must be "factor" or "global".')
        if column not in ("none", "ibp"):
            raise ValueError(f'column is {column!r}; it must be "none" or "ibp".')
        if column == "ibp" and (eta == "global" or expected_size is not None or b != "auto" or a != 1):
            raise ValueError(
                'column="ibp" replaces the Beta prior of eta; leave eta="factor" and a, b, expected_size '
                "unset (alpha is its concentration)."
            )
        if column == "none" and alpha is not None:
            raise ValueError(f'alpha is {alpha} without column="ibp", the only use it has; leave it out.')
        self.a, self._b, self.expected_size = float(a), b, expected_size
        self.shared, self.column, self._alpha = eta == "global", column, alpha
        self.register_buffer("eta", torch.full((1, 1, 1), 0.5))
        self.register_buffer("b", torch.ones(1, 1))
        self.register_buffer("known", torch.zeros(1, 1), persistent=False)  # `setup` is given it anew

    def scales(self) -> Scales | None:
        """Slab and spike where they are two Laplace or two normal densities; None (default): any two."""
        return None

    def arguments_of(self, slab: float, spike: float) -> dict[str, float]:
        """Arguments of the constructor that give these `scales`."""
        raise NotImplementedError(f"{type(self).__name__} has no scales")

    def allocate(self) -> None:
        """Allocate eta = 1/2 and work out b."""
        super().allocate()
        self.eta = self.eta.new_full((self.n_restarts, 1, self.n_factors), 0.5)
        free = self.allowed.to(self.b.dtype).sum(-2, keepdim=True)
        if self.expected_size is not None:
            if self.expected_size >= free.max():
                raise ValueError(
                    f"expected_size is {self.expected_size} and a factor has at most {int(free.max())} "
                    "permitted features; expected_size must be smaller than that."
                )
            size = free.mean(-1, keepdim=True) if self.shared else free
            # A column with fewer free features than expected gets the weakest b instead of a negative one.
            b = self.a * (size / self.expected_size - 1).clamp(min=1e-3)
        elif self._b == "auto":
            b = (free.sum(-1, keepdim=True) if self.shared else free).clamp(min=1)
        else:
            b = self.b.new_full((1, 1), self._b)
        self.b = b.expand(1, self.n_factors).clone()

    def setup(self, *args: Any, edge_odds: Tensor | None = None, **sizes: Any) -> None:
        """As :meth:`Prior.setup`; slab and spike are looked at.

        Parameters
        ----------
        *args, **sizes
            Of :meth:`Prior.setup`.
        edge_odds : Tensor, optional
            By how much the odds of each edge differ from those of its factor, positive, shape (G, K).

        Raises
        ------
        TypeError, ValueError
            Also if :meth:`components` does not return two distributions of a number, the wider one first; if
            `edge_odds` are given to an Indian-buffet prior.
        """
        if edge_odds is not None and self.column == "ibp":
            raise ValueError('edge_odds: column="ibp" has one rate for all edges of a factor; leave one out.')
        self.known = self.known.new_zeros(1, 1) if edge_odds is None else edge_odds.to(self.known).log()
        super().setup(*args, **sizes)
        if type(self).distribution is SpikeSlabPrior.distribution:
            self._check_components()

    def _check_components(self) -> None:
        name, components = type(self).__name__, self.components()
        two = isinstance(components, tuple | list) and len(components) == 2
        if components is not None and not (
            two and all(isinstance(component, Distribution) for component in components)
        ):
            raise TypeError(
                f"{name}.components() returns {components!r}; it must return slab and spike, two "
                "distributions of torch or Pyro"
            )
        distribution = self.distribution()
        with torch.no_grad():
            slab, spike = (
                density.log_prob(torch.zeros(())) for density in (distribution.slab, distribution.spike)
            )
        if bool((slab > spike).any()):
            raise ValueError(
                f"{name}.components(): the first density is higher at zero than the second; slab first, then "
                "the spike, which is narrower"
            )

    @property
    def auto_b(self) -> bool:
        """Whether b goes by the table's size, nobody having said how many edges to expect."""
        return self._b == "auto" and self.expected_size is None and self.column == "none"

    @property
    def alpha(self) -> float:
        """Concentration of the Indian-buffet prior."""
        return 1 / self.n_features if self._alpha is None else float(self._alpha)

    @property
    def informed(self) -> bool:
        """Whether single edges have odds of their own."""
        return self.known.numel() > 1

    @property
    def inclusion(self) -> Tensor:
        """Prior probability of each edge, shape (R, 1, K), or (R, G, K) where single ones have their own."""
        return torch.sigmoid(torch.logit(self.eta) + self.known) if self.informed else self.eta

    def distribution(self) -> SpikeSlab:
        """Marginal density of one weight, batch shape that of `inclusion`."""
        with default_dtype(self.eta.dtype):  # densities of plain numbers are as exact as eta
            components = self.components()
        if components is None:
            raise NotImplementedError(
                f"{type(self).__name__} does not define components(); return two densities of one weight, "
                "slab and spike."
            )
        return SpikeSlabMixture(self.inclusion, *components)

    def edge_log_odds(self, weights: Tensor) -> Tensor:
        """E-step as log odds, shape (R, G, K); minus infinity at forbidden edges.

        Raises
        ------
        TypeError
            A subclass has another density, which does not know of spike and slab.
        """
        distribution = self.distribution()
        if not hasattr(distribution, "posterior_log_odds"):
            raise TypeError(
                f"{type(self).__name__}: distribution() returns a {type(distribution).__name__}, which has "
                "no odds of slab and spike; override edge_log_odds(weights) and update(weights, prob) too, "
                "or derive from Prior instead"
            )
        return distribution.posterior_log_odds(weights).masked_fill(~self.allowed, -torch.inf)

    def update(self, weights: Tensor, prob: Tensor | None = None) -> None:
        """M-step for eta; see :func:`~pyro_sparse.priors.em.eta_step` and its two relatives."""
        with torch.no_grad():
            prob = self.edge_log_odds(weights).sigmoid() if prob is None else prob
            if self.column == "ibp":
                eta = em.ordered_eta_step(prob, self.alpha, self.allowed)
            else:
                b = self.b[:, :1] if self.shared else self.b
                settings = (self.a, b, self.allowed, self.shared)
                informed = self.informed
                eta = (
                    em.informed_eta_step(prob, self.known, *settings)
                    if informed
                    else em.eta_step(prob, *settings)
                )
            self.eta.copy_(eta.expand_as(self.eta))

    def log_hyper(self) -> Tensor:
        r"""Log prior density of eta, shape (R,); under "ibp", that of the stick-breaking fractions."""
        if self.column == "ibp":
            return self.n_factors * math.log(self.alpha) + (self.alpha - 1) * self.eta.amin((-2, -1)).log()
        density: Tensor = Beta(torch.full_like(self.b, self.a), self.b).log_prob(self.eta)
        return density[:, 0, 0] if self.shared else density.sum((-2, -1))
