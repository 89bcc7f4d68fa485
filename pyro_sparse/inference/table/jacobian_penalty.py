r"""How much the features depend on the latents: the L1 norm of a decoder's Jacobian, cheap enough to train.

.. math:: P = \sum_{ij} \mathrm{mean}_b\, |J_{ij}(z_b)|\; \mathrm{sd}(z_j), \qquad
          J_{ij}(z) = \partial f_i / \partial z_j

A column of J is all a step needs: one for each row, drawn at random, times K, has P as its mean. It is taken
by differentiating twice in reverse (:math:`J v` is the derivative in u of :math:`u^\top J v`), which is
linear in u: no step size, and the graph of :math:`\hat x = f(z)` that the model made already is used again.
Forward derivatives (`torch.func.jvp`, dual numbers) give the same numbers at a higher price
(``python -m benchmarks jacobian_cost``).

The sd is no ornament. Latents made c times larger with a decoder made c times flatter are the same model,
with J divided by c: without the sd that is the cheapest way down, and no edge has gone.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ._rowwise import Rowwise, around, by_row, leads_to, nodes, reusable

__all__ = ["ESTIMATORS", "SURROGATES", "jacobian_l1", "l1_over_l2", "mean_abs_jacobian"]

ESTIMATORS = ("auto", "column", "exact", "difference")
SURROGATES = ("l1", "log", "l0", "ratio")
WIDTH = 0.1  # a mean derivative of so much counts half an edge under "l0"

Network = Callable[[Tensor], Tensor]


def jacobian_l1(
    fn: Network,
    z: Tensor,
    *,
    estimator: str = "auto",
    surrogate: str = "l1",
    scale: str | Tensor | None = "sd",
    width: float = WIDTH,
    x_hat: Tensor | None = None,
    active: Tensor | None = None,
) -> Tensor:
    r"""Dependency sparsity: how much all features depend on all latents, differentiable.

    .. math:: P = \sum_{ij} \phi(A_{ij}), \qquad A_{ij} = \mathrm{mean}_b\,|\partial f_i(z_b) / \partial z_j|
              \; s_j

    where :math:`\phi(a)` is a for "l1"; :math:`\log(1 + a/w) / \log(1 + 1/w)` for "log", which is 1 at a = 1;
    :math:`a^2 / (a^2 + w^2)` for "l0", a smooth count (it is the probability with which a hard-concrete gate
    of log-odds :math:`2 \log(a/w)` is open). Under "ratio" a column of J counts, at each row by itself, as
    its L1 norm over its L2 norm: :math:`P = \sum_j \mathrm{mean}_b\, \|J_{\cdot j}\|_1 / \|J_{\cdot j}\|_2`,
    which is free of scale, and 1 for a latent that one feature depends on.

    Parameters
    ----------
    fn : callable
        Network from latents (..., row, K) to features (..., row, G); more dimensions behind the rows are
        flattened. Any module: dropout uses one mask throughout, statistics of batch norm in training mode
        are held as constants of the row.
    z : Tensor (row, K) or (restart, row, K)
        Latents. All dimensions before the rows are groups of their own.
    estimator : {"auto", "column", "exact", "difference"}
        "column": one random column for each row, times K; unbiased for "l1" and "ratio". "exact": all K
        columns. "difference": the random column by a difference of two evaluations, a little cheaper, with a
        small bias at kinks and, in single precision, at zeros. "auto": "column" where it is unbiased, else
        "exact".
    surrogate : {"l1", "log", "l0", "ratio"}
        What is summed over features and latents. S asks whether a feature depends on a latent *anywhere*, so
        a concave :math:`\phi` belongs on the mean over rows; a random column then has a bias (Jensen) and is
        refused. "ratio" does not ask this: different rows may use different features. It ignores `scale`.
    scale : {"sd"}, None or Tensor (..., K)
        :math:`s_j`: standard deviation of each latent over the rows, with its gradient; nothing; or given.
    width : float
        w of a concave surrogate, in units of A: far below it an edge is being closed, above it is left alone.
    x_hat : Tensor (..., row, G), optional
        ``fn(z)`` with the graph it was computed in: saves an evaluation where rows do not meet in it, else
        it is not used.
    active : Tensor of bool, the shape of `z`, optional
        Latents that count in each row, of sparse codes say; derivatives in the others count as 0. The random
        column is one of the row's active ones, times their number, so that of 16 active among 1,536 latents
        the estimate has a fraction of the noise. Default: all.

    Returns
    -------
    Tensor of shape () or (restart,)
        In units of the features. Its gradient reaches `z` and the network's parameters.

    Raises
    ------
    ValueError
        Unknown `estimator`, `surrogate` or `scale`; a concave surrogate of random columns; shapes that do not
        fit; one row with ``scale="sd"``; `x_hat` of another `z`; `active` of another shape; features that are
        detached from `z` (but for "difference", which needs no derivative).
    TypeError
        `z` or what `fn` returns is no tensor of floating point numbers.

    Notes
    -----
    The objective of the paper is the ELBO *of a row* minus :math:`\alpha P`: multiply P by the number of rows
    beside an ELBO of all rows. Columns are dealt to the rows evenly, so the difference between latents is no
    part of the estimator's noise.

    References
    ----------
    Zheng, Li, Fan, Wilson, Zhang (2026), Diverse Dictionary Learning, ICLR, the regularised estimator
    (L1 in place of L0).

    Examples
    --------
    >>> import torch
    >>> loadings = torch.tensor([[2.0, 0.0], [1.0, -1.0], [0.0, 3.0]])
    >>> z = torch.randn(500, 2)
    >>> float(jacobian_l1(lambda z: z @ loadings.T, z, scale=None))
    7.0
    >>> stretched = jacobian_l1(lambda z: z @ loadings.T / 10, 10 * z)  # the same model
    >>> bool(torch.isclose(stretched, jacobian_l1(lambda z: z @ loadings.T, z)))
    True
    """
    estimator = chosen(estimator, surrogate, width)
    _check_latents(z)
    _check_active(active, z)
    training = torch.is_grad_enabled()
    with torch.enable_grad():
        sd = _scale(z, scale)
        if surrogate == "ratio":
            total = _ratios(fn, z, estimator, x_hat, active)
        elif estimator == "exact":
            slopes = columns(fn, z, x_hat).abs()
            if active is not None:
                slopes = slopes * active.movedim(-1, 0).unsqueeze(-1)
            strength = slopes.mean(-2)  # (latent, ..., feature)
            scaled = strength if sd is None else strength * sd.movedim(-1, 0).unsqueeze(-1)
            total = _surrogate(scaled, surrogate, width).sum((0, -1))
        else:
            latent = deal(z) if active is None else deal_active(active)
            unit = None if sd is None else _of_row(sd, latent)
            if estimator == "column":
                size = column(fn, z, latent, x_hat).abs().sum(-1)
                size = size if unit is None else size * unit.squeeze(-1)
            else:
                step = relative_step(z) * (_of_row(_sd(z.detach()), latent) if unit is None else unit)
                size = difference(fn, z, latent, step, x_hat).abs().sum(-1)
                size = size / (step.squeeze(-1) if unit is None else relative_step(z))
            total = z.shape[-1] * size.mean(-1) if active is None else (active.sum(-1) * size).mean(-1)
    return total if training else total.detach()


def mean_abs_jacobian(
    fn: Network, z: Tensor, *, scale: str | Tensor | None = None, chunk: int = 1000
) -> Tensor:
    r"""How strongly each feature depends on each latent, to read the structure S from.

    .. math:: A_{ij} = \mathrm{mean}_b\, |\partial f_i(z_b) / \partial z_j| \; s_j

    Parameters
    ----------
    fn : callable
        As for `jacobian_l1`.
    z : Tensor (row, K) or (restart, row, K)
        Latents.
    scale : None, {"sd"} or Tensor (..., K)
        :math:`s_j`, as for `jacobian_l1`; here nothing by default. With "sd" columns can be compared.
    chunk : int
        Rows at a time.

    Returns
    -------
    Tensor of shape (G, K) or (restart, G, K)
        Without a gradient.

    Raises
    ------
    ValueError, TypeError
        As for `jacobian_l1`; `chunk` less than 1.

    Examples
    --------
    >>> import torch
    >>> loadings = torch.tensor([[2.0, 0.0], [1.0, -1.0], [0.0, 3.0]])
    >>> mean_abs_jacobian(lambda z: z @ loadings.T, torch.randn(50, 2))
    tensor([[2., 0.],
            [1., 1.],
            [0., 3.]])
    """
    _check_latents(z)
    if int(chunk) != chunk or chunk < 1:
        raise ValueError(f"chunk: got {chunk!r}, wanted a whole number of rows, at least 1")
    sd = _scale(z.detach(), scale)
    with torch.enable_grad():
        strengths = [columns(fn, rows.detach()).detach().abs().sum(-2) for rows in z.split(int(chunk), -2)]
    strength = torch.stack(strengths).sum(0).movedim(0, -1) / z.shape[-2]
    return strength if sd is None else strength * sd.detach().unsqueeze(-2)


# ---- columns of the Jacobian ---------------------------------------------------------------------------
def deal(z: Tensor) -> Tensor:
    """A random column for each row, (..., row, 1): uniform for every row, and all columns equally often."""
    *groups, n_rows, n_latents = z.shape
    order = torch.randperm(n_rows, device=z.device)
    first = torch.randint(n_latents, (*groups, 1), device=z.device)
    return ((order + first) % n_latents).unsqueeze(-1)


def deal_active(active: Tensor) -> Tensor:
    """A random active column for each row, (..., row, 1); the first where a row has none."""
    weight = active.to(torch.float32)
    weight = torch.cat([weight[..., :1] + ~active.any(-1, keepdim=True), weight[..., 1:]], -1)
    drawn: Tensor = torch.multinomial(weight.flatten(0, -2), 1).view(*active.shape[:-1], 1)
    return drawn


def column(fn: Network, z: Tensor, latent: Tensor, x_hat: Tensor | None = None) -> Tensor:
    """Derivative of each row in its own `latent`, (..., row, G)."""
    x, inputs = graph(fn, z, x_hat)
    return directional(x, inputs, torch.zeros_like(z).scatter_(-1, latent, 1.0))


def columns(fn: Network, z: Tensor, x_hat: Tensor | None = None) -> Tensor:
    """Derivatives of each row in every latent, (latent, ..., row, G)."""
    x, inputs = graph(fn, z, x_hat)
    n = z.shape[-1]
    unit = torch.eye(n, dtype=z.dtype, device=z.device).view(n, *[1] * (z.dim() - 1), n).expand(n, *z.shape)
    return directional(x, inputs, unit, batched=True)


def directional(x: Tensor, z: Tensor, direction: Tensor, batched: bool = False) -> Tensor:
    """J v by differentiating twice in reverse; `batched` takes many directions, in a first dimension.

    Parameters
    ----------
    x : Tensor (..., row, G)
        Computed from `z`.
    z : Tensor (..., row, K)
    direction : Tensor (..., row, K), or (n, ..., row, K) when `batched`
    batched : bool
    """
    options: dict[str, Any] = {"create_graph": True, "allow_unused": True}
    product, reason = None, None
    u = torch.zeros_like(x, requires_grad=True)
    try:
        pulled = torch.autograd.grad(x, z, u, **options)[0] if x.requires_grad else None
        if pulled is not None and pulled.requires_grad:
            product = torch.autograd.grad(pulled, u, direction, is_grads_batched=batched, **options)[0]
            if product is None and any(node.name() == "torch::autograd::Error" for node, _ in nodes(pulled)):
                reason = "once_differentiable"
    except RuntimeError as error:
        if "derivative" not in str(error):
            raise
        reason = str(error)
    if reason is not None:
        raise RuntimeError(
            f"fn: a part of it cannot be differentiated twice ({reason}); use estimator='difference'"
        )
    if product is not None:
        return product
    return x.new_zeros(*direction.shape[: direction.dim() - z.dim()], *x.shape)  # x does not depend on z


def difference(fn: Network, z: Tensor, latent: Tensor, step: Tensor, x_hat: Tensor | None = None) -> Tensor:
    """`column` times a step (..., row, 1), by a forward difference."""
    here, (there,) = around(fn, z, [torch.zeros_like(z).scatter(-1, latent, step)], x_hat)
    return there - here


def relative_step(z: Tensor) -> float:
    """Step of a difference, in units of the latent: rounding and curvature err about equally."""
    return float(4 * torch.finfo(z.dtype).eps ** 0.5)


def _of_row(figures: Tensor, latent: Tensor) -> Tensor:
    """Of a figure per latent (..., K), that of each row's own latent, (..., row, 1)."""
    return figures.unsqueeze(-2).expand(*latent.shape[:-1], figures.shape[-1]).gather(-1, latent)


def graph(fn: Network, z: Tensor, x_hat: Tensor | None) -> tuple[Tensor, Tensor]:
    """Features of each row and the latents to differentiate them in."""
    if x_hat is not None and z.requires_grad and reusable(x_hat, z):
        return by_row(x_hat, z), z
    network = Rowwise(fn)
    # An input of its own: the batch's statistics, if there are any, hang on the first evaluation's
    inputs = _differentiable(z)
    x = network(inputs)
    if network.meets:
        inputs = _differentiable(z)
        x = network(inputs)
    if not leads_to(x, inputs) and not torch.equal(network(inputs.detach() + 1.0), x):
        raise ValueError(
            "fn: its features change with z, but their graph does not lead there, so that all derivatives "
            "would read 0; want no detach(), torch.no_grad() or .data between z and the features"
        )
    return x, inputs


def _differentiable(z: Tensor) -> Tensor:
    return z.clone() if z.requires_grad else z.detach().requires_grad_()


# ---- what is made of them ------------------------------------------------------------------------------
def chosen(estimator: str, surrogate: str, width: float = WIDTH) -> str:
    """The estimator that is meant, after a look at whether it suits the surrogate.

    Raises
    ------
    ValueError
        An unknown name, a pair that would be biased, or a width that is not positive.
    """
    if estimator not in ESTIMATORS:
        raise ValueError(f"estimator: got {estimator!r}, wanted one of {ESTIMATORS}")
    if surrogate not in SURROGATES:
        raise ValueError(f"surrogate: got {surrogate!r}, wanted one of {SURROGATES}")
    if not width > 0:
        raise ValueError(f"width: got {width!r}, wanted a positive number")
    by_column = surrogate in ("l1", "ratio")
    if estimator == "auto":
        return "column" if by_column else "exact"
    if not by_column and estimator != "exact":
        raise ValueError(
            f"estimator: {estimator!r} is biased for the concave surrogate {surrogate!r} (a mean over few "
            "rows stands inside the curve); wanted 'exact' or 'auto', or surrogate='l1'"
        )
    return estimator


def l1_over_l2(slopes: Tensor) -> Tensor:
    """L1 norm of each column of slopes (..., feature) over its L2 norm, (...); 0 of a column of zeros.

    Parameters
    ----------
    slopes : Tensor (..., feature)
    """
    return slopes.abs().sum(-1) / (slopes.square().sum(-1) + torch.finfo(slopes.dtype).eps).sqrt()


def _ratios(fn: Network, z: Tensor, estimator: str, x_hat: Tensor | None, active: Tensor | None) -> Tensor:
    """Sum over latents of the mean ratio of norms of their columns, (...)."""
    if estimator == "exact":
        of_latent = l1_over_l2(columns(fn, z, x_hat))  # (latent, ..., row)
        return (of_latent if active is None else of_latent * active.movedim(-1, 0)).mean(-1).sum(0)
    latent = deal(z) if active is None else deal_active(active)
    if estimator == "column":
        slope = column(fn, z, latent, x_hat)
    else:
        step = relative_step(z) * _sd(z.detach())
        of_row = _of_row(step, latent)
        slope = difference(fn, z, latent, of_row, x_hat) / of_row
    ratio = l1_over_l2(slope)
    return z.shape[-1] * ratio.mean(-1) if active is None else (active.sum(-1) * ratio).mean(-1)


def _surrogate(strength: Tensor, surrogate: str, width: float) -> Tensor:
    if surrogate == "l1":
        return strength
    if surrogate == "log":
        return torch.log1p(strength / width) / math.log1p(1.0 / width)
    return strength**2 / (strength**2 + width**2)


def _scale(z: Tensor, scale: str | Tensor | None) -> Tensor | None:
    if scale is None:
        return None
    if isinstance(scale, Tensor):
        try:
            return scale.to(z).expand(*z.shape[:-2], z.shape[-1])
        except RuntimeError as error:
            raise ValueError(
                f"scale: got shape {tuple(scale.shape)} for latents {tuple(z.shape)}, wanted one positive "
                f"number per latent, ({z.shape[-1]},)"
            ) from error
    if scale != "sd":
        raise ValueError(f"scale: got {scale!r}, wanted 'sd', None or a tensor with one number per latent")
    if z.shape[-2] < 2:
        raise ValueError("z: has one row, and scale='sd' wants at least 2; give scale a tensor, or None")
    return _sd(z)


def _check_active(active: Tensor | None, z: Tensor) -> None:
    if active is not None and (active.shape != z.shape or active.dtype != torch.bool):
        raise ValueError(
            f"active: got {active.dtype} of shape {tuple(active.shape)}, wanted bool of the shape of z, "
            f"{tuple(z.shape)}; codes != 0, say"
        )


def _sd(z: Tensor) -> Tensor:
    # of a latent that is constant the root has no derivative; the clamp gives it 0
    return z.var(-2, correction=0).clamp_min(torch.finfo(z.dtype).tiny).sqrt()


def _check_latents(z: Tensor) -> None:
    if not isinstance(z, Tensor) or not z.is_floating_point():
        kind = z.dtype if isinstance(z, Tensor) else type(z).__name__
        raise TypeError(f"z: got a {kind}, wanted a tensor of floating point numbers (..., row, latent)")
    if z.dim() < 2 or not z.numel():
        raise ValueError(f"z: got shape {tuple(z.shape)}, wanted (row, latent) or (restart, row, latent)")
