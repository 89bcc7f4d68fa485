r"""How many edges there may be: a budget, a price per edge, or a prior on each edge.

With :math:`S = \sum_e p_e` the expected number of edges, each control adds to the negative ELBO one of

.. math:: N \lambda\,(S - \text{budget}), \qquad \text{rate} \cdot S, \qquad
          \sum_e \mathrm{KL}[\mathrm{Bernoulli}(p_e) \,\|\, \mathrm{Bernoulli}(\eta)]

in nats of the whole data set, one number per restart. `edge_path.py` needs no level: it asks held-out rows.

cooper-optim 1.0.1 (PyPI, April 2025) offers dual ascent with a multiplier per constraint, which could be one
per restart, and state dicts to checkpoint it. It is not used: its optimisers take over the training step, the
dual restart that earlier versions had is gone, and the whole update is `dual_step` below.
"""

from __future__ import annotations

import math
from numbers import Integral, Real
from typing import TypeAlias

import torch
from torch import Tensor, nn
from torch.distributions import Beta
from torch.distributions.utils import clamp_probs

from ..._utils.checks import check_whole
from ..._utils.recorded import Recorded
from ...distributions.relaxed_edges import bernoulli_kl
from ...priors.em import eta_step

__all__ = [
    "BernoulliKL",
    "Budget",
    "Penalty",
    "Sparsity",
    "SparsityControl",
    "dual_step",
    "get_control",
]


class SparsityControl(Recorded, nn.Module):
    """What a control of the number of edges must offer; on its own, one that controls nothing.

    `setup` once, then every step `loss`, added to the negative ELBO of the whole data set, and `after_step`.
    What changes during a fit is a buffer, so that a ``state_dict`` resumes it bit for bit. Probabilities have
    shape (restart, ...), any edge dimensions: 1 at required edges, 0 at forbidden ones, which may be absent.

    Attributes
    ----------
    n_edges_possible, n_required, n_restarts, n_samples : int
        As given to :meth:`setup`; `n_edges_possible` is 0 before.
    """

    def __init__(self) -> None:
        super().__init__()
        self.n_edges_possible = self.n_required = 0
        self.n_restarts = self.n_samples = 1

    def setup(
        self, n_edges_possible: int, n_required: int = 0, n_restarts: int = 1, n_samples: int = 1
    ) -> None:
        """Learn the sizes; called once before a fit.

        Parameters
        ----------
        n_edges_possible : int
            Edges that are not forbidden, the required ones included.
        n_required : int
            Edges that are there whatever the data say.
        n_restarts, n_samples : int
            R, and the rows (or sequences) of the whole data set.

        Raises
        ------
        ValueError
            If a count is impossible, or the control asks for fewer edges than are required.
        """
        counts = {"n_edges_possible": n_edges_possible, "n_restarts": n_restarts, "n_samples": n_samples}
        check_whole(1, **counts)
        check_whole(0, n_required=n_required)
        if n_required > n_edges_possible:
            raise ValueError(
                f"n_required: got {n_required!r}, wanted at most the n_edges_possible={n_edges_possible} "
                "that are not forbidden"
            )
        self.n_edges_possible, self.n_required = int(n_edges_possible), int(n_required)
        self.n_restarts, self.n_samples = int(n_restarts), int(n_samples)
        self.allocate()

    def allocate(self) -> None:
        """Make what depends on the sizes, which are attributes by now; default nothing."""

    def loss(self, probabilities: Tensor) -> Tensor:
        """What is added to the negative ELBO, in nats of the whole data set, shape (restart,)."""
        return torch.zeros_like(self.expected_edges(probabilities))

    def after_step(self, probabilities: Tensor, progress: float) -> None:
        """Move the control's own state when the share `progress` of the fit is done; default nothing."""

    def expected_edges(self, probabilities: Tensor) -> Tensor:
        """Expected number of edges S, shape (restart,).

        Raises
        ------
        ValueError
            If the probabilities do not have the sizes given to :meth:`setup`.
        """
        shape = tuple(probabilities.shape)
        if not self.n_edges_possible:
            raise ValueError(f"{type(self).__name__}: sizes are not known yet; call setup first")
        if len(shape) < 2 or shape[0] != self.n_restarts or math.prod(shape[1:]) < self.n_edges_possible:
            raise ValueError(
                f"probabilities: got shape {shape}, wanted (restart={self.n_restarts}, ...) with room for "
                f"{self.n_edges_possible} edges; call setup again if the sizes have changed"
            )
        return probabilities.flatten(1).sum(1)


def dual_step(multiplier: Tensor, violation: Tensor, rate: float, restart: bool = True) -> Tensor:
    r"""One projected step of dual ascent for constraints violation <= 0.

    .. math:: \lambda \leftarrow \max(0, \lambda + \text{rate} \cdot v), \qquad
              \text{with restart: } \lambda \leftarrow 0 \text{ where } v \le 0

    Parameters
    ----------
    multiplier, violation : Tensor
        Of one shape, elementwise independent.
    rate : float
        Step size.
    restart : bool
        Forget the multiplier as soon as its constraint holds.

    Returns
    -------
    Tensor
        Of the same shape, at least 0.

    References
    ----------
    Gallego-Posada et al. (2022), Controlled sparsity via constrained optimization, for the restart.

    Examples
    --------
    >>> dual_step(torch.tensor([1.0, 1.0]), torch.tensor([2.0, -2.0]), rate=0.1)
    tensor([1.2000, 0.0000])
    """
    ascended = (multiplier + rate * violation).clamp(min=0)
    return ascended.masked_fill(violation <= 0, 0.0) if restart else ascended


class Budget(SparsityControl):
    r"""At most so many expected edges, by dual ascent.

    .. math:: \min_\theta \max_{\lambda \ge 0}\ -\mathrm{ELBO}(\theta) + N \lambda\,(S - \text{level})

    A fit under a restarting multiplier ends in gates that are open or shut, which stay so without a price.
    Where gates settle in between, the restart lets go of them again and again: switch it off to reach the
    saddle point, at the cost of overshooting the budget for as long as the multiplier takes to fall.

    Parameters
    ----------
    edges : float, optional
        The budget, at least the number of required edges. Default: all that are possible, until
        :meth:`set_edges` is called, as a driver of `decreasing_path` does.
    dual_rate : float
        Step of the multiplier per excess edge, in nats per row and edge.
    restart : bool
        Dual restart: the multiplier returns to zero when the budget is kept.
    anneal_until : float
        The level falls linearly from all possible edges, to reach the budget at this share of the fit.

    Attributes
    ----------
    multiplier : Tensor
        :math:`\lambda` of each restart, shape (R,): the price of an edge in nats per row.
    level, target : Tensor
        Edges permitted now, and in the end; scalars.

    References
    ----------
    Lachapelle et al. (2024), arXiv 2401.04890: rate 5e-4 on the ELBO per row, dual restart, the level falling
    over the first half of the fit.

    Examples
    --------
    >>> budget = Budget(2, dual_rate=0.5)
    >>> budget.setup(n_edges_possible=4)
    >>> budget.after_step(torch.full((1, 2, 2), 0.75), progress=0.1)
    >>> budget.multiplier, budget.loss(torch.ones(1, 2, 2))
    (tensor([0.5000]), tensor([1.]))
    """

    multiplier: Tensor
    level: Tensor
    target: Tensor

    def __init__(
        self,
        edges: float | None = None,
        dual_rate: float = 1e-3,
        restart: bool = True,
        anneal_until: float = 0.0,
    ) -> None:
        super().__init__()
        if edges is not None:
            _check_number("edges", edges)
        _check_number("dual_rate", dual_rate, strict=True)
        if not 0 <= anneal_until <= 1:
            raise ValueError(f"anneal_until: got {anneal_until!r}, wanted a share of the fit in [0, 1]")
        self.edges, self.dual_rate = edges, float(dual_rate)
        self.restart, self.anneal_until = bool(restart), float(anneal_until)
        self.register_buffer("multiplier", torch.zeros(1))
        self.register_buffer("level", torch.tensor(0.0))
        self.register_buffer("target", torch.tensor(0.0))

    def allocate(self) -> None:
        """Start with free edges."""
        self.multiplier = self.multiplier.new_zeros(self.n_restarts)
        self.set_edges(self.n_edges_possible if self.edges is None else self.edges)
        self._move(0.0)

    def set_edges(self, edges: float) -> None:
        """Change the budget.

        Parameters
        ----------
        edges : float
            From the number of required edges to that of possible ones.

        Raises
        ------
        ValueError
            If the budget lies outside that range.
        """
        if edges < self.n_required:
            raise ValueError(
                f"edges: the budget is {edges:g} and {self.n_required} edges are required; "
                f"raise it to at least {self.n_required}, or require fewer"
            )
        if edges > self.n_edges_possible:
            raise ValueError(
                f"edges: the budget is {edges:g} and only {self.n_edges_possible} edges are possible; "
                "lower it, forbid fewer, or pass None for no limit"
            )
        self.target.fill_(float(edges))
        if self.anneal_until == 0:
            self.level.copy_(self.target)

    def loss(self, probabilities: Tensor) -> Tensor:
        r""":math:`N \lambda\,(S - \text{level})`, shape (restart,)."""
        return self.n_samples * self.multiplier * (self.expected_edges(probabilities) - self.level)

    @torch.no_grad()
    def after_step(self, probabilities: Tensor, progress: float) -> None:
        """Move the level, then the multiplier."""
        self._move(progress)
        violation = (self.expected_edges(probabilities) - self.level).to(self.multiplier.dtype)
        self.multiplier.copy_(dual_step(self.multiplier, violation, self.dual_rate, self.restart))

    def _move(self, progress: float) -> None:
        share = min(1.0, progress / self.anneal_until) if self.anneal_until > 0 else 1.0
        self.level.copy_(self.n_edges_possible + share * (self.target - self.n_edges_possible))


class Penalty(SparsityControl):
    r"""A price for every expected edge, :math:`\text{rate} \cdot S`.

    Parameters
    ----------
    rate : float
        Nats of the whole data set for one edge, at least 0; :math:`\tfrac12 \log N` for each parameter that
        an edge brings is the price of the Bayesian information criterion.

    Examples
    --------
    >>> penalty = Penalty(3.0)
    >>> penalty.setup(n_edges_possible=4)
    >>> penalty.loss(torch.full((1, 2, 2), 0.5))
    tensor([6.])
    """

    def __init__(self, rate: float) -> None:
        super().__init__()
        _check_number("rate", rate)
        self.rate = float(rate)

    def loss(self, probabilities: Tensor) -> Tensor:
        r""":math:`\text{rate} \cdot S`, shape (restart,)."""
        return self.rate * self.expected_edges(probabilities)


class BernoulliKL(SparsityControl):
    r"""Independent Bernoulli(eta) edges a priori; eta is given, or learned under a Beta(a, b) prior.

    .. math:: \sum_e \mathrm{KL}[\mathrm{Bernoulli}(p_e) \,\|\, \mathrm{Bernoulli}(\eta)] - \log
              \mathrm{Beta}(\eta; a, b), \qquad \eta \leftarrow \frac{\sum_e p_e + a - 1}{E + a + b - 2}

    over the E edges that are neither required nor forbidden. The second term is there when eta is learned;
    its update then minimises the loss exactly.

    Parameters
    ----------
    eta : float, optional
        Prior probability of an edge, in (0, 1). Default: learned.
    a, b : float
        Of the Beta prior, positive; not used where eta is given.

    Attributes
    ----------
    eta : Tensor
        Shape (R,).

    Examples
    --------
    >>> prior = BernoulliKL()
    >>> prior.setup(n_edges_possible=4)
    >>> probabilities = torch.tensor([[[1.0, 0.5], [0.0, 0.0]]])
    >>> prior.after_step(probabilities, progress=0.5)
    >>> prior.eta
    tensor([0.3750])
    """

    eta: Tensor

    def __init__(self, eta: float | None = None, a: float = 1.0, b: float = 1.0) -> None:
        super().__init__()
        if eta is not None and not 0 < eta < 1:
            raise ValueError(f"eta: got {eta!r}, wanted a probability in (0, 1), or None to learn it")
        _check_number("a", a, strict=True)
        _check_number("b", b, strict=True)
        self.learned, self.a, self.b = eta is None, float(a), float(b)
        self._start = self.a / (self.a + self.b) if eta is None else float(eta)
        self.register_buffer("eta", torch.tensor([self._start]))

    def allocate(self) -> None:
        """Start eta at its prior mean."""
        self.eta = self.eta.new_full((self.n_restarts,), self._start)

    def loss(self, probabilities: Tensor) -> Tensor:
        """Divergence, and the negative log density of a learned eta, shape (restart,)."""
        self.expected_edges(probabilities)
        eta = self.eta.to(probabilities.dtype)
        divergence = bernoulli_kl(torch.logit(clamp_probs(probabilities.flatten(1))), eta[:, None])
        # Forced edges stand in the sum as -log(eta) and -log(1 - eta): they are no news, take them out.
        total = (
            divergence.sum(1)
            + self.n_required * eta.log()
            + self._n_forbidden(probabilities) * (-eta).log1p()
        )
        if self.learned:
            total = total - Beta(torch.full_like(eta, self.a), torch.full_like(eta, self.b)).log_prob(eta)
        return total

    @torch.no_grad()
    def after_step(self, probabilities: Tensor, progress: float) -> None:
        """The closed-form update of a learned eta."""
        self.expected_edges(probabilities)
        if self.learned:
            a, b = self.a - self.n_required, self.b - self._n_forbidden(probabilities)
            self.eta.copy_(eta_step(probabilities.flatten(1)[..., None], a, b).flatten())

    def _n_forbidden(self, probabilities: Tensor) -> int:
        return math.prod(probabilities.shape[1:]) - self.n_edges_possible


Sparsity: TypeAlias = "str | float | SparsityControl | None"  # as callers say how many edges there may be


def get_control(control: Sparsity) -> SparsityControl:
    """The control meant by a setting.

    Parameters
    ----------
    control : {"auto"}, None, int, float or SparsityControl
        A whole number is a budget of so many edges, another number a price per edge in nats; None controls
        nothing; "auto" is a budget without a level, for a driver of `decreasing_path` to lower.

    Returns
    -------
    SparsityControl

    Raises
    ------
    ValueError, TypeError
        Negative numbers, other words, other things.

    Examples
    --------
    >>> get_control(20).edges, get_control(2.5).rate
    (20, 2.5)
    """
    if isinstance(control, SparsityControl):
        return control
    if control is None:
        return SparsityControl()
    if isinstance(control, str) and control == "auto":
        return Budget()
    if isinstance(control, Integral) and not isinstance(control, bool):
        return Budget(int(control))
    if isinstance(control, Real) and not isinstance(control, bool):
        return Penalty(float(control))
    kind = ValueError if isinstance(control, str) else TypeError
    raise kind(
        f'sparsity: got {control!r}, wanted "auto", None, a whole number of edges, a price per edge (float), '
        "or a SparsityControl"
    )


def _check_number(name: str, value: float, strict: bool = False) -> None:
    number = isinstance(value, Real) and not isinstance(value, bool) and math.isfinite(value)
    if not number or value < 0 or (strict and value == 0):
        wanted = "above 0" if strict else "of at least 0"
        raise ValueError(f"{name}: got {value!r}, wanted a finite number {wanted}")
