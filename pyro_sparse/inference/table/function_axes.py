r"""Sparse axes of any function: the rotation of its whitened latents in which its Jacobian has most zeros.

With C the covariance of the latents over rows and J the Jacobian, the search (`rotation/jacobian_axes.py`)
sees of each feature the share :math:`S_j = C^{1/2} E[J_j^\top J_j]\, C^{1/2}`, divided by its trace.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, Unpack

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..._utils.torch_state import undisturbed
from ..rotation.axes import SILENT
from ..rotation.jacobian_axes import AxisSearch, jacobian_axes
from .jacobian_penalty import columns

__all__ = ["SparseAxes", "axes_of_moments", "sparse_jacobian_axes"]


class SparseAxes(NamedTuple):
    """Axes of a function's latents.

    Parameters
    ----------
    map : ndarray (factor, factor)
        ``z_old = map @ z_new``, new latents white.
    effect : ndarray (factor,)
        Root mean square of the Jacobian's column over rows and features, for each new latent.
    objective : float
        Smooth number of edges.
    found : float
        Share of the search's starts that ended at its optimum.
    """

    map: NDArray[np.float64]
    effect: NDArray[np.float64]
    objective: float
    found: float

    def codes(self, z: NDArray[np.floating]) -> NDArray[np.float64]:
        """Latents (row, factor) in the new axes, each in units of its effect (of the largest).

        White latents without an effect are noise as wide as the others; here they are near 0.

        Parameters
        ----------
        z : ndarray (row, factor)
            In the old axes.
        """
        codes: NDArray[np.float64] = np.linalg.solve(self.map, np.asarray(z, dtype=float).T).T
        return codes * (self.effect / self.effect.max())


def sparse_jacobian_axes(
    fn: Callable[..., Tensor],
    z: Tensor,
    *context: Tensor,
    chunk: int = 100,
    seed: int = 0,
    **options: Unpack[AxisSearch],
) -> SparseAxes:
    r"""Rotation of a function's whitened latents in which features depend on the fewest of them.

    Training finds the space of the latents and leaves their axes to chance; this looks for them afterwards,
    and trains nothing. The strength with which feature j depends on latent k,

    .. math:: r_{jk}^2 = E[(\partial f_j / \partial z_k)^2]\,\mathrm{Var}(z_k) \Big/
              \sum_l E[(\partial f_j / \partial z_l)^2]\,\mathrm{Var}(z_l),

    is between 0 and 1 whatever the units of features and latents, and
    :math:`\sum_{jk} r_{jk}^2 / (r_{jk}^2 + \epsilon^2)` is made small.

    Parameters
    ----------
    fn : callable
        ``fn(z, *context)``, latents (row, K) to features (row, ...), row by row; autograd must reach through
        it twice.
    z : Tensor (row, K)
        Latents of a few hundred rows or more, as the function meets them.
    *context : Tensor (row, ...)
        What else it is given, with the same rows: noise levels of a diffusion model, conditions.
    chunk : int
        Rows whose Jacobian is taken at once.
    seed : int
        Of the search.
    **options
        `n_starts`, `steps`, `max_hops` and `floor` of
        `pyro_sparse.inference.rotation.jacobian_axes.jacobian_axes`.

    Returns
    -------
    SparseAxes

    Raises
    ------
    ValueError
        `z` has not two dimensions or fewer rows than latents and one more; `context` of other rows; a chunk
        less than 1; no feature depends on a latent.

    References
    ----------
    Zheng, Li, Fan, Wilson, Zhang (2026), Diverse Dictionary Learning, ICLR: what a sparse Jacobian
    identifies. The search in place of a penalty is this package's.

    Examples
    --------
    >>> import torch
    >>> rotation = torch.tensor([[0.8, -0.6], [0.6, 0.8]])
    >>> _ = torch.manual_seed(0)
    >>> axes = sparse_jacobian_axes(lambda z: torch.tanh(z @ rotation), torch.randn(500, 2), n_starts=8)
    >>> between = abs(rotation.T.numpy() @ axes.map)  # of the function's own latents and those axes
    >>> bool((between.max(0) > 2 * between.min(0)).all())
    True
    """
    if z.dim() != 2 or len(z) <= z.shape[1]:
        raise ValueError(f"z: got shape {tuple(z.shape)}, wanted (row, K) with more rows than latents")
    for values in context:
        if len(values) != len(z):
            raise ValueError(f"context: got {len(values)} rows beside {len(z)} of z, wanted as many")
    if int(chunk) != chunk or chunk < 1:
        raise ValueError(f"chunk: got {chunk!r}, wanted a whole number of rows, at least 1")
    z = z.detach()
    moment = torch.zeros((), dtype=torch.float64, device=z.device)
    for rows, *others in zip(*(values.split(int(chunk)) for values in (z, *context)), strict=True):
        with torch.enable_grad():
            jacobian = columns(_given(fn, others), rows).detach().double()
        moment = moment + torch.einsum("anj,bnj->jab", jacobian, jacobian)
    if not moment.any():
        raise ValueError("fn: no feature depends on a latent, so that no axes are sparser than others")
    centred = (z - z.mean(0)).double()
    return axes_of_moments(centred.mT @ centred / len(z), moment / len(z), seed, **options)


def _given(fn: Callable[..., Tensor], context: Sequence[Tensor]) -> Callable[[Tensor], Tensor]:
    """The function of the latents alone, for rows whose context is known."""
    return lambda z: fn(z, *context)


def axes_of_moments(cov: Tensor, moment: Tensor, seed: int = 0, **options: Unpack[AxisSearch]) -> SparseAxes:
    """Sparse axes from second moments alone.

    Parameters
    ----------
    cov : Tensor (factor, factor)
        Covariance of the latents.
    moment : Tensor (feature, factor, factor)
        E[J_j' J_j].
    seed : int
        Of the search.
    **options
        Passed to `jacobian_axes`.
    """
    settings: AxisSearch = {"floor": 1e-9, **options}  # strengths of a decoder are graded: none passes for 0
    values, vectors = torch.linalg.eigh(cov)
    values = values.clamp_min(1e-8 * values[-1].clamp_min(1e-12))
    root = (vectors * values.sqrt()) @ vectors.mT
    share = root @ moment @ root
    total = share.diagonal(dim1=-2, dim2=-1).sum(-1)
    loud = total > SILENT * total.max()
    stack = (share[loud] / total[loud, None, None]).cpu().numpy()
    with undisturbed(threads=1):
        axes = jacobian_axes(
            actions=(stack + stack.transpose(0, 2, 1)) / 2, orthogonal=True, seed=seed, **settings
        )
    to_old = root.cpu().numpy() @ axes.map.T
    effect = np.sqrt(np.einsum("ak,ab,bk->k", to_old, moment.mean(0).cpu().numpy(), to_old).clip(0))
    return SparseAxes(to_old, effect, axes.objective, axes.agreement / axes.n_starts)
