r"""Two sparse autoencoders, before and after a layer of a network, that are trained together.

.. math:: \min\; \frac{E\|\tilde x - \hat x\|^2}{d} + \frac{E\|\tilde y - \hat y\|^2}{d'}
          + \alpha \cdot \mathrm{AuxK} + \lambda P(J)

The layer stays as it is. P is a penalty of the Jacobian from the codes before to those after it, and there
only if `pyro_sparse.fit` is given one (`dependency=`): without it the two are ordinary autoencoders. This is
no probabilistic model. Probabilities of edges come from several refits (`AutoencoderFit.edge_posterior`).
"""

from __future__ import annotations

from collections.abc import Callable
from numbers import Real

from torch import Tensor, nn

from .._utils.checks import check_whole
from .._utils.recorded import Recorded
from ..nets.sparse_autoencoder import SELECTIONS, SparseAutoencoder

__all__ = ["AutoencoderPair"]


class AutoencoderPair(Recorded):
    """A sparse autoencoder before a layer and one after it, for `pyro_sparse.fit`.

    Parameters
    ----------
    n_latents_in, n_latents_out : int
        Latents before and after the layer; usually several times the dimensions of the activations.
    k : int
        Latents that a row uses on each side.
    between : Module or callable
        The layer, (row, d_in) to (row, d_out), row by row. It is not trained. A penalty differentiates it
        twice.
    select : {"topk", "batchtopk"}
        Whether each row uses k latents, or rows use k on average and each as many as it needs.
    aux : float
        Weight of the loss by which dead latents learn what the living leave (AuxK); 0 does without.

    Raises
    ------
    ValueError, TypeError
        A size is out of range, `select` is unknown, or `between` cannot be called.

    See Also
    --------
    pyro_sparse.latent_graph : the graph between dictionaries that somebody else trained.

    References
    ----------
    Farnik, Lawson, Houghton, Aitchison (2025), Jacobian sparse autoencoders. Zheng, Li, Fan, Wilson, Zhang
    (2026), Diverse Dictionary Learning, ICLR.

    Examples
    --------
    >>> import torch
    >>> AutoencoderPair(32, 16, k=4, between=torch.nn.Linear(8, 8))
    AutoencoderPair(32, 16, k=4, select='topk', between=Linear)
    """

    n_latents_in: int
    n_latents_out: int
    k: int
    select: str
    aux: float
    between: Callable[[Tensor], Tensor]

    def __init__(
        self,
        n_latents_in: int,
        n_latents_out: int,
        *,
        k: int,
        between: Callable[[Tensor], Tensor],
        select: str = "topk",
        aux: float = 1 / 32,
    ):
        check_whole(1, n_latents_in=n_latents_in, n_latents_out=n_latents_out, k=k)
        if k > min(n_latents_in, n_latents_out):
            raise ValueError(
                f"k: got {k} for {n_latents_in} latents before the layer and {n_latents_out} after it, "
                "wanted at most as many as each side has"
            )
        if select not in SELECTIONS:
            raise ValueError(f"select: got {select!r}, wanted one of {list(SELECTIONS)}")
        if isinstance(between, type) or not callable(between):
            what = f"the class {between.__name__}" if isinstance(between, type) else repr(between)
            raise TypeError(f"between: got {what}, wanted the layer as a module or a function of rows")
        if isinstance(aux, bool) or not isinstance(aux, Real) or not 0 <= aux < float("inf"):
            raise ValueError(f"aux: got {aux!r}, wanted a weight of at least 0")
        self.n_latents_in, self.n_latents_out, self.k = int(n_latents_in), int(n_latents_out), int(k)
        self.between, self.select, self.aux = between, select, float(aux)

    def __repr__(self) -> str:
        layer = type(self.between).__name__ if isinstance(self.between, nn.Module) else "a function"
        return (
            f"AutoencoderPair({self.n_latents_in}, {self.n_latents_out}, k={self.k}, select={self.select!r}, "
            f"between={layer})"
        )

    def build(self, d_in: int, d_out: int) -> tuple[SparseAutoencoder, SparseAutoencoder]:
        """Both autoencoders at a random start.

        Parameters
        ----------
        d_in, d_out : int
            Dimensions of the activations before and after the layer.
        """
        sizes = (d_in, self.n_latents_in), (d_out, self.n_latents_out)
        before, after = (SparseAutoencoder(d, n, self.k, self.select) for d, n in sizes)
        return before, after
