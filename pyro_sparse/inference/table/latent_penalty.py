r"""Penalties on how a decoder uses its latents, beside the ELBO: one record holds all their numbers.

.. math:: \max\; \tfrac1N \mathrm{ELBO} - \alpha(t)\, P(f, z), \qquad z \sim q

A penalty is a frozen record with a `weight`, a warm-up, and a call ``penalty(fn, z, x_hat)``. The same record
goes to ``ps.fit(..., dependency=)`` and to `DependencySparsity` for a Pyro program of one's own. Reported
ELBOs do not contain it. `rivals` has what they are compared with.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from .jacobian_penalty import WIDTH, chosen, jacobian_l1

__all__ = ["DependencyPenalty", "LatentPenalty"]


@dataclass(frozen=True)
class LatentPenalty:
    r"""What a penalty on decoder and latents must offer; subclass it and write ``__call__``.

    Attributes
    ----------
    weight : float
        :math:`\alpha`, in nats of a row per unit of the penalty: it stands beside the ELBO *of a row*, as in
        the papers, whatever the batch size and the number of rows.
    warm_up : tuple of float
        Shares (a, b) of the training: no penalty before a, the full weight from b on, linear in between.

    Raises
    ------
    ValueError
        A negative `weight`, or a `warm_up` that is not two rising shares.

    Examples
    --------
    >>> LatentPenalty(weight=2.0, warm_up=(0.2, 0.6)).weight_at(0.3)
    0.5
    """

    weight: float = 0.05
    warm_up: tuple[float, float] = (0.0, 0.0)

    def __post_init__(self) -> None:
        if not (isinstance(self.weight, int | float) and 0 <= self.weight < math.inf):
            raise ValueError(f"weight: got {self.weight!r}, wanted a number of at least 0")
        try:
            begin, end = self.warm_up
            rising = 0 <= begin <= end <= 1
        except (TypeError, ValueError):
            rising = False
        if not rising:
            raise ValueError(
                f"warm_up: got {self.warm_up!r}, wanted two shares of the training 0 <= begin <= end <= 1, "
                "for instance (0.0, 0.3)"
            )

    def __call__(self, fn: Callable[[Tensor], Tensor], z: Tensor, x_hat: Tensor | None = None) -> Tensor:
        """The penalty P, without its weight: one number for all the rows of a decoder, as their *mean*.

        Parameters
        ----------
        fn : callable
            Decoder, (..., row, K) to (..., row, G).
        z : Tensor (row, K) or (..., row, K)
            Latents as drawn from the guide; what stands before the rows (restarts, particles) is apart.
        x_hat : Tensor (..., row, G), optional
            ``fn(z)`` as the model computed it, with its graph.

        Returns
        -------
        Tensor of shape ``z.shape[:-2]``
            () for latents (row, K), (restart,) for (restart, row, K): no dimension of rows is left. Training
            refuses other shapes, and numbers that are not finite.
        """
        raise NotImplementedError(f"{type(self).__name__}: write __call__(fn, z, x_hat)")

    def weight_at(self, progress: float) -> float:
        """Weight when the share `progress` of the training is done."""
        begin, end = self.warm_up
        if progress >= end:
            return float(self.weight)
        return 0.0 if progress <= begin else self.weight * (progress - begin) / (end - begin)

    def copies(self, n_latents: int) -> int:
        """How many times the activations of a plain step a step with the penalty holds in memory."""
        return 3

    def as_dict(self) -> dict[str, Any]:
        """JSON-able copy, with the penalty's name."""
        fields = {k: list(v) if isinstance(v, tuple) else v for k, v in asdict(self).items()}
        return {"penalty": type(self).__name__, **fields}


@dataclass(frozen=True)
class DependencyPenalty(LatentPenalty):
    r"""Dependency sparsity: few features depend on each latent, :math:`\sum_{ij} \phi(E|J_{ij}|\, s_j)`.

    Attributes
    ----------
    weight, warm_up
        As for `LatentPenalty`; the paper's weight is 0.05.
    estimator, surrogate, width
        As for `jacobian_l1`.
    scaled : bool
        Whether derivatives count in units of each latent's standard deviation. Without it a model escapes by
        stretching its latents (only the Kullback-Leibler term resists).

    Raises
    ------
    ValueError
        Unknown `estimator` or `surrogate`, or one that is biased for the other; as for `LatentPenalty`.

    References
    ----------
    Zheng, Li, Fan, Wilson, Zhang (2026), Diverse Dictionary Learning, ICLR.

    Examples
    --------
    >>> import torch
    >>> double = DependencyPenalty(scaled=False)
    >>> double(lambda z: 2 * z, torch.randn(10, 3))
    tensor(6.)
    """

    estimator: str = "auto"
    surrogate: str = "l1"
    scaled: bool = True
    width: float = WIDTH

    def __post_init__(self) -> None:
        super().__post_init__()
        chosen(self.estimator, self.surrogate, self.width)

    def __call__(self, fn: Callable[[Tensor], Tensor], z: Tensor, x_hat: Tensor | None = None) -> Tensor:
        return jacobian_l1(
            fn,
            z,
            estimator=self.estimator,
            surrogate=self.surrogate,
            scale="sd" if self.scaled else None,
            width=self.width,
            x_hat=x_hat,
        )

    def copies(self, n_latents: int) -> int:
        exact = chosen(self.estimator, self.surrogate, self.width) == "exact"
        return 2 + n_latents if exact else 3


def taken(
    dependency: LatentPenalty, fn: Callable[[Tensor], Tensor], z: Tensor, x_hat: Tensor | None
) -> Tensor:
    """The penalty at latents (..., row, K), shape (...), after a look at whether it is what it should be.

    Parameters
    ----------
    dependency : LatentPenalty
    fn, z, x_hat
        What it is called with.

    Raises
    ------
    TypeError, ValueError
        It returned no tensor, or one of another shape.
    FloatingPointError
        A penalty is not finite.
    """
    name = type(dependency).__name__
    penalty = dependency(fn, z, x_hat)
    if not isinstance(penalty, Tensor):
        raise TypeError(f"dependency: {name} returned a {type(penalty).__name__}, wanted a tensor")
    if penalty.shape != z.shape[:-2]:
        per_row = "; take the mean over rows" if penalty.shape == z.shape[:-1] else ""
        raise ValueError(
            f"dependency: {name} returned shape {tuple(penalty.shape)} for latents {tuple(z.shape)}, wanted "
            f"{tuple(z.shape[:-2])}: one number for all rows, of each restart by itself{per_row}"
        )
    detached = penalty.detach()
    if not torch.isfinite(detached).all():
        bad = (
            f" in restart(s) {(~torch.isfinite(detached)).nonzero()[:, 0].tolist()}" if detached.dim() else ""
        )
        raise FloatingPointError(f"dependency: the penalty {name} is not finite{bad}")
    return penalty


def check_penalty(dependency: object) -> LatentPenalty:
    """The penalty itself, if it is one.

    Raises
    ------
    TypeError
        It is something else.
    """
    if not isinstance(dependency, LatentPenalty):
        raise TypeError(
            f"dependency: got a {type(dependency).__name__}, wanted a LatentPenalty such as "
            "DependencyPenalty(weight=0.05)"
        )
    return dependency
