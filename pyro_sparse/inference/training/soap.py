r"""SOAP: Adam in the eigenbasis of Shampoo's preconditioner (Vyas et al. 2024), for batches of matrices.

The covariances of a matrix's gradient along its rows and its columns, L = E[G Gᵀ] and R = E[Gᵀ G], have
eigenbases in which the gradient's entries are nearly uncorrelated; Adam is run there. On the dense fit of a
latent transition it needs a third of Adam's time to the same ELBO. torch has no such optimiser, and those on
PyPI take a parameter of three dimensions for one tensor; here the leading dimensions count restarts, which
must not see each other.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor
from torch.optim.adam import adam

__all__ = ["SOAP"]

_IDLE = 1e-6  # of the largest variance: directions with less keep their place
_COVARIANCE_EVERY = 2  # steps; the covariances change slowly, and each costs two products


class SOAP(torch.optim.Optimizer):
    r"""Adam in a slowly turning basis, one for each matrix of a batch; plain Adam for vectors.

    Parameters
    ----------
    params : iterable of Parameter
        The last two dimensions are a matrix if both exceed 1, what is before them is a batch.
    lr : float
        Step size.
    betas : (float, float)
        Decay of the mean of the gradient, and of its square and covariances.
    eps : float
        Added to the root of the mean square.
    every : int
        Steps between two turns of the basis: one QR iteration each.
    largest : int
        Sides longer than this keep the coordinate basis.
    most : float
        Largest move in a coordinate of the turned basis, in units of `lr`. Adam's is 1 for a gradient that
        never changes; after a turn of the basis a mean square may be far too small for a rare gradient.

    References
    ----------
    Vyas et al. (2024), SOAP: Improving and Stabilizing Shampoo using Adam, arXiv 2409.11321, algorithm 3.

    Examples
    --------
    >>> w = torch.nn.Parameter(torch.ones(1, 3, 2))
    >>> step = SOAP([w], lr=0.1)
    >>> for _ in range(200):
    ...     step.zero_grad()
    ...     (w**2).sum().backward()
    ...     step.step()
    >>> bool(w.abs().max() < 1e-2)
    True
    """

    def __init__(
        self,
        params: Iterable[Tensor] | Iterable[dict[str, Any]],
        lr: float = 1e-2,
        betas: tuple[float, float] = (0.95, 0.95),
        eps: float = 1e-8,
        every: int = 10,
        largest: int = 512,
        most: float = math.inf,
    ):
        if not lr > 0 or every < 1:
            raise ValueError(f"lr={lr}, every={every}: wanted a positive step size and at least 1 step")
        defaults = {"lr": lr, "betas": betas, "eps": eps, "every": every, "largest": largest, "most": most}
        super().__init__(params, defaults)

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        """Update every parameter that has a gradient."""
        for group in self.param_groups:
            parameters = [p for p in group["params"] if p.grad is not None]
            parameters = [p for p in parameters if self._prepare(p, group)]
            states = [self.state[p] for p in parameters]
            moves = [torch.zeros_like(p) for p in parameters]
            first, second = group["betas"]
            adam(  # of a parameter at 0 with step size 1: the move itself
                moves,
                [_into(state, p.grad) for p, state in zip(parameters, states, strict=True)],
                [state["mean"] for state in states],
                [state["square"] for state in states],
                [],
                [state["step"] for state in states],
                fused=True,
                amsgrad=False,
                beta1=first,
                beta2=second,
                lr=1.0,
                weight_decay=0.0,
                eps=group["eps"],
                maximize=False,
            )
            for parameter, state, move in zip(parameters, states, moves, strict=True):
                if group["most"] < math.inf:
                    move.clamp_(-group["most"], group["most"])
                parameter.add_(_back(state, move), alpha=group["lr"])
                if int(state["step"]) % group["every"] == 0:
                    _turn(state)

    def _prepare(self, parameter: Tensor, group: dict[str, Any]) -> bool:
        """Follow the covariances of a gradient; whether there are bases to make a step in."""
        gradient, state = parameter.grad, self.state[parameter]
        assert gradient is not None
        if not state:
            state["step"] = torch.zeros((), device=parameter.device)
            state["mean"], state["square"] = torch.zeros_like(parameter), torch.zeros_like(parameter)
            if parameter.dim() >= 2 and min(parameter.shape[-2:]) > 1:
                for side, size in (("left", parameter.shape[-2]), ("right", parameter.shape[-1])):
                    if size <= group["largest"]:
                        state[side] = parameter.new_zeros(*parameter.shape[:-2], size, size)
        if "left" not in state and "right" not in state:
            return True
        step = int(state["step"]) + 1
        if step % _COVARIANCE_EVERY == 1:
            weight = 1 - group["betas"][1] ** _COVARIANCE_EVERY
            if "left" in state:
                state["left"].lerp_(gradient @ gradient.mT, weight)
            if "right" in state:
                state["right"].lerp_(gradient.mT @ gradient, weight)
        if step > 1:
            return True
        for side in ("left", "right"):  # as published, the first gradient only sets the bases
            if side in state:
                state[side + " basis"] = _directions(state[side])
        state["step"] += 1
        return False


def _directions(covariance: Tensor) -> Tensor:
    """Eigenvectors, largest variance first; those of idle directions single out waves over the coordinates.

    Any basis of directions that no gradient has had would do, and rounding would choose it: but Adam goes
    otherwise in another basis, and a fit would then depend on how many restarts share a product. Waves mix
    all coordinates, as rounding does; with the coordinates themselves dense fits end lower.

    In double precision: in single LAPACK now and then gives up on a matrix of low rank.
    """
    original, covariance = covariance, covariance.double()
    variance, vectors = torch.linalg.eigh(covariance)
    largest, n = variance[..., -1:, None], variance.shape[-1]
    idle = vectors * (variance.unsqueeze(-2) <= _IDLE * largest)
    onto = idle @ idle.mT
    at = torch.arange(1, n + 1, dtype=torch.float64, device=variance.device)
    waves = torch.sin(torch.outer(at, at) * (math.pi / (n + 1))) * math.sqrt(2 / (n + 1))
    told_apart = onto @ ((waves * (1 + at / n)) @ waves) @ onto
    sorted_out = covariance - torch.where(largest > 0, largest, 1.0) * told_apart
    return torch.linalg.eigh(sorted_out)[1].flip(-1).to(original)


def _into(state: dict[str, Any], matrix: Tensor) -> Tensor:
    """Coordinates in the bases."""
    if "left basis" in state:
        matrix = state["left basis"].mT @ matrix
    return matrix @ state["right basis"] if "right basis" in state else matrix


def _back(state: dict[str, Any], matrix: Tensor) -> Tensor:
    """The inverse of `_into`."""
    if "left basis" in state:
        matrix = state["left basis"] @ matrix
    return matrix @ state["right basis"].mT if "right basis" in state else matrix


def _turn(state: dict[str, Any]) -> None:
    """One orthogonal iteration of each basis, its directions sorted by size; the mean turns with it."""
    mean = _back(state, state["mean"])
    for side, dim in (("left", -2), ("right", -1)):
        if side not in state:
            continue
        basis = state[side + " basis"]
        least = _IDLE * state[side].diagonal(dim1=-2, dim2=-1).amax(-1)
        image = state[side] @ basis + least[..., None, None] * basis
        order = (basis * image).sum(-2).argsort(dim=-1, descending=True)
        index = order.unsqueeze(-1) if dim == -2 else order.unsqueeze(-2)
        state["square"] = state["square"].gather(dim, index.expand_as(state["square"]))
        state[side + " basis"] = torch.linalg.qr(image.gather(-1, order.unsqueeze(-2).expand_as(image)))[0]
    state["mean"] = _into(state, mean)
