"""The contract every weight prior keeps: a Pyro program for W, and whatever closed forms it happens to have.

A statistician adds a prior by subclassing :class:`Prior` and writing :meth:`Prior.distribution`, the marginal
density of one weight. Everything else has a default. A prior with more structure also says what it keeps
(:meth:`Prior.allocate`), how its hyper-parameters are updated (:meth:`Prior.update`), how a weight is shrunk
(:meth:`Prior.prox`), and how probable an edge is (:meth:`Prior.edge_log_odds`). A spike and slab has all of
that but for its two densities: it derives from `SpikeSlabPrior` and writes :meth:`Prior.components`. Shapes:
R restarts, G features, K factors; weights are (R, G, K). :class:`pyro_sparse.testing.PriorTestCase` checks
that the pieces agree with each other.
"""

from __future__ import annotations

import inspect
from typing import Any, Self

import pyro
import torch
from pyro.distributions import TorchDistribution
from torch import Tensor, nn
from torch.distributions import Distribution

from .._utils.checks import check_whole
from .._utils.declared import Declared
from .._utils.recorded import Recorded

__all__ = ["Prior"]


class Prior(Recorded, nn.Module):
    r"""A prior over the weights W of shape (restart, feature, factor).

    Only :meth:`distribution` must be written. Hyper-parameters that change during a fit have the restart as
    their leading dimension: buffers that :meth:`update` moves, or an ``nn.Parameter`` (made in
    :meth:`allocate`), which the fit moves along the gradient of :meth:`log_density` plus :meth:`log_hyper`.
    Both follow ``state_dict``, ``.to(device)`` and ``.to(dtype)``.

    Attributes
    ----------
    capturable : bool
        Whether a training step calls nothing here that may differ from step to step, or that waits for an
        accelerator, so that steps may be CUDA graphs. A class says it of itself; it is not inherited.
    site : str
        Name of the Pyro sample site.
    hyper_site : str
        Name of the term that adds `log_hyper` to the joint density, where there are parameters.
    allowed : Tensor
        Boolean mask of shape (G, K): the edges that exist. Forbidden edges carry no prior density and are not
        counted.
    n_features, n_factors, n_restarts : int
        G, K and R, known after :meth:`setup`.
    n_samples : int or None
        N, where it was given to :meth:`setup`.
    """

    declares: tuple[Declared, ...] = (
        Declared("prior sites", rests_on=frozenset({"forward", "guide"}), free=frozenset({"setup"})),
    )
    capturable: bool = False
    site: str = "W"
    allowed: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.n_features = self.n_factors = self.n_restarts = 1
        self.n_samples: int | None = None
        self.register_buffer("allowed", torch.ones(1, 1, dtype=torch.bool))

    @property
    def hyper_site(self) -> str:
        return f"{self.site}_hyper"

    @property
    def shape(self) -> tuple[int, int, int]:
        """Shape (R, G, K) of the weights."""
        return self.n_restarts, self.n_features, self.n_factors

    def setup(
        self,
        n_features: int,
        n_factors: int,
        n_restarts: int = 1,
        n_samples: int | None = None,
        allowed: Tensor | None = None,
    ) -> None:
        """Learn the sizes, then `allocate`; called once before a fit.

        Parameters
        ----------
        n_features, n_factors, n_restarts : int
            G, K and R.
        n_samples : int, optional
            N; scales that are set to "auto" may depend on it.
        allowed : Tensor, optional
            Boolean (G, K); False marks a forbidden edge. Default: every edge is permitted.

        Raises
        ------
        ValueError
            If a size is below one, or the mask has another shape than (G, K).
        """
        sizes = {"n_features": n_features, "n_factors": n_factors, "n_restarts": n_restarts}
        if n_samples is not None:
            sizes["n_samples"] = n_samples
        check_whole(1, **sizes)
        self.n_features, self.n_factors, self.n_restarts = int(n_features), int(n_factors), int(n_restarts)
        self.n_samples = None if n_samples is None else int(n_samples)
        if allowed is None:
            allowed = torch.ones(self.n_features, self.n_factors, dtype=torch.bool)
        allowed = torch.as_tensor(allowed)
        if tuple(allowed.shape) != (self.n_features, self.n_factors):
            raise ValueError(
                f"allowed has shape {tuple(allowed.shape)}; it must be (n_features, n_factors) = "
                f"{(self.n_features, self.n_factors)}, True where an edge may exist."
            )
        self.allowed = allowed.to(device=self.allowed.device, dtype=torch.bool)
        self.allocate()

    def allocate(self) -> None:
        """Make what depends on the sizes, which are attributes by now; default nothing."""

    def rates(self) -> tuple[Tensor, Tensor] | None:
        """Rates of a Laplace slab and a Laplace spike as they are now; None (default): it is not these two.

        The mode of a sparse regression under such a prior has a closed form, coordinate by coordinate.
        """
        return None

    def distribution(self) -> TorchDistribution:
        """Marginal density of one weight at the current hyper-parameters.

        Returns
        -------
        pyro.distributions.TorchDistribution
            Event shape (), batch shape broadcastable to (R, G, K).
        """
        raise NotImplementedError(
            f"{type(self).__name__} does not define distribution(); return the Pyro distribution of one "
            "weight, with a batch shape that broadcasts to (restart, feature, factor)."
        )

    def components(self) -> tuple[Distribution, Distribution] | None:
        """Slab and spike, if a weight comes from one of two densities; None (the default): it does not.

        Returns
        -------
        tuple of two torch.distributions.Distribution, or None
            Of a number each, at the current hyper-parameters.
        """
        return None

    def forward(self) -> Tensor:
        """The Pyro program: draw W of shape (R, G, K) at ``self.site``, inside the caller's restart plate.

        The caller opens ``pyro.plate("restart", R, dim=-1)``; the log density of the site then has shape
        (R,). A program may draw hyper-parameters first; :meth:`guide` then says what is believed of them.
        Hyper-parameters that are an ``nn.Parameter`` have their log density added here, as a factor.
        """
        if any(True for _ in self.parameters()):
            pyro.factor(self.hyper_site, self.log_hyper())
        weight = self.distribution().expand(torch.Size(self.shape))
        if not bool(self.allowed.all()):
            weight = weight.mask(self.allowed)
        drawn: Tensor = pyro.sample(self.site, weight.to_event(2))
        return drawn

    def guide(self) -> None:
        """Variational program of the prior's own sites; default: there are none.

        One distribution of batch shape (R,) for every site that :meth:`forward` draws besides W.
        The weights themselves are a point mass that the model samples at ``self.site``.
        """

    def log_density(self, weights: Tensor) -> Tensor:
        """Log prior density of the permitted weights (R, G, K), summed to shape (R,)."""
        log_probs = self.distribution().log_prob(weights)
        return torch.where(self.allowed, log_probs, torch.zeros_like(log_probs)).sum((-2, -1))

    def log_hyper(self) -> Tensor:
        """Log prior density of the hyper-parameters at their current values, shape (R,); zero by default."""
        device = self.allowed.device
        floating = [b for b in self.buffers() if b.is_floating_point()]
        dtype = floating[0].dtype if floating else torch.get_default_dtype()
        return torch.zeros(self.n_restarts, dtype=dtype, device=device)

    def update(self, weights: Tensor, prob: Tensor | None = None) -> None:
        """Move the hyper-parameters given the weights (R, G, K): one EM step. Default: nothing to update.

        Parameters
        ----------
        weights : Tensor
            Current W, shape (R, G, K).
        prob : Tensor, optional
            Edge probabilities (R, G, K) to use instead of this prior's own E-step.
        """

    def prox(self, weights: Tensor, step: Tensor | float) -> Tensor | None:
        r"""Proximal map of ``step`` times minus the log density, element by element.

        .. math:: \arg\min_w \tfrac12 (w - v)^2 - \text{step}\,\log p(w)

        Parameters
        ----------
        weights : Tensor
            v, shape (R, G, K).
        step : Tensor or float
            Step size, broadcastable to (R, G, K).

        Returns
        -------
        Tensor or None
            None (the default) says there is no closed form; the training loop then follows the gradient.
        """
        return None

    def edge_log_odds(self, weights: Tensor) -> Tensor | None:
        """Log posterior odds that each edge is present given its weight, (R, G, K); None if meaningless."""
        return None

    def anneal(self, progress: float) -> None:
        """Move along the prior's ladder, ``progress`` from 0 (start) to 1 (as specified). Default: none."""

    def screening_rate(self) -> float:
        """Rate of a plain lasso that finds sparse axes before the prior itself acts; 0 (default): none.

        The training loop uses a stated fraction of it (``Schedule.lasso_weight``).
        """
        return 0.0

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Arguments it was made with, those left out at their defaults: what scikit-learn searches over.

        Parameters
        ----------
        deep : bool
            For scikit-learn; no argument has arguments of its own.
        """
        parameters = list(inspect.signature(type(self).__init__).parameters.values())[1:]
        named = (p for p in parameters if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD))
        return {p.name: p.default for p in named} | self._arguments

    def set_params(self, **params: object) -> Self:
        """Become the prior that these arguments make in place of its own; what a fit has moved starts anew.

        Parameters
        ----------
        **params
            Of the constructor.

        Raises
        ------
        ValueError
            It has no such argument, or refuses the value; the prior is then as it was.
        """
        arguments = self.get_params()
        unknown = sorted(set(params) - set(arguments))
        if unknown:
            raise ValueError(
                f"{type(self).__name__} has no argument {unknown[0]!r}; it has {sorted(arguments)}."
            )
        new = type(self)(**(self._arguments | params))
        self.__dict__.clear()
        self.__dict__.update(new.__dict__)
        return self

    def extra_repr(self) -> str:
        """What ``print(prior)`` shows: the arguments it was made with."""
        return ", ".join(f"{name}={value!r}" for name, value in self._arguments.items())
