r"""Many regressions under the spike-and-slab lasso at once: coordinate descent to a mode.

.. math:: \min_W\; \sum_t \frac{n_t}{2\sigma_t^2} \big( w_t^\top G_t w_t - 2 q_t^\top w_t \big)
          - \sum_{tk} \log[\eta_k \psi_{\lambda_1}(w_{tk}) + (1 - \eta_k) \psi_{\lambda_0}(w_{tk})]

in the moments of `moments.py`. Each weight goes to its global minimum given the others, which is the proximal
map of the penalty (`priors.em.ssl_prox`) with step :math:`\sigma_t^2 / (n_t G_{tkk})`. `_compiled_ssl.py`
does the same task by task.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ....priors import em
from . import _compiled_ssl
from .moments import Moments

__all__ = ["ssl_sweeps"]


@torch.no_grad()
def ssl_sweeps(
    data: Moments,
    start: Tensor,
    temper: Tensor,
    eta: Tensor,
    lambda1: Tensor | float,
    lambda0: Tensor | float,
    *,
    sweeps: int = 2,
    compiled: bool | None = None,
) -> Tensor:
    r"""Weights after some sweeps over the coordinates of every task.

    Parameters
    ----------
    data : Moments
        With one output.
    start : Tensor (task, feature)
    temper : Tensor (task,)
        :math:`\sigma_t^2 / n_t`: the noise's variance over the number of samples.
    eta : Tensor (feature,) or (task, feature)
    lambda1, lambda0 : Tensor or float
        Broadcastable to (task, feature).
    sweeps : int
    compiled : bool, optional
        Use numba (CPU; the extra "fast"). Default: where it is installed.

    Returns
    -------
    Tensor (task, feature)
        With exact zeros. A feature that does not vary in a task gets zero.

    Raises
    ------
    ValueError
        `compiled` where there is no numba, or on another device.
    """
    on_cpu = data.gram.device.type == "cpu"
    if compiled and not (_compiled_ssl.AVAILABLE and on_cpu):
        raise ValueError("compiled: numba is not installed or the data is not on the CPU; pip install numba")
    shape, device = start.shape, start.device
    low, high = (torch.as_tensor(r, dtype=torch.float64, device=device) for r in (lambda1, lambda0))
    if compiled or (compiled is None and _compiled_ssl.AVAILABLE and on_cpu):
        tensors = (data.gram, data.moment[..., 0], start, temper)
        gram, moment, begun, tempers = (tensor.detach().double().contiguous().numpy() for tensor in tensors)
        odds = em.edge_log_odds(torch.zeros_like(eta), eta, low.to(eta), high.to(eta))
        terms = (
            tensor.detach().double().broadcast_to(shape).contiguous().numpy() for tensor in (odds, low, high)
        )
        solution = begun.copy()
        _compiled_ssl.descend(gram, moment, solution, tempers, *terms, sweeps)
        return torch.as_tensor(solution).to(start)
    weight = start.clone()
    diagonal = data.gram.diagonal(dim1=1, dim2=2)
    safe = diagonal.clamp(min=torch.finfo(diagonal.dtype).tiny ** 0.5)
    eta, low, high = (tensor.broadcast_to(shape) for tensor in (eta, low, high))
    for _ in range(sweeps):
        for j in range(weight.shape[1]):
            user_density = eta[:, j], low[:, j], high[:, j]
            pull = data.moment[:, j, 0] - (data.gram[:, j] * weight).sum(1)
            new = em.ssl_prox(weight[:, j] + pull / safe[:, j], temper / safe[:, j], *user_density)
            weight[:, j] = torch.where(diagonal[:, j] > 0, new, torch.zeros_like(new))
    return weight
