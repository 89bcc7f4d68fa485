"""What a sparse decoder is measured against, behind the same front: fit a table, transform, predict, effects.

`VAE` (with ``beta`` a β-VAE, with ``total_correlation`` a FactorVAE), `ImageVAE`, the same for images, and
`VSC` are Pyro programs for `pyro_sparse.fit`, like `SparseDecoder`; `sparse_factor_analysis` is its linear
case; `Classical` is scikit-learn's FA with varimax, PCA, NMF and LDA.
`SequenceBaseline` is what a `LatentTransition` is measured against, `LatentL1`, `HessianPenalty` and
`OrthogonalJacobian` what a `DependencyPenalty` is.
"""

from __future__ import annotations

from .classical import Classical
from .images import ImageVAE
from .penalties import HessianPenalty, LatentL1, OrthogonalJacobian
from .sequences import SequenceBaseline
from .vae import VAE, sparse_factor_analysis
from .vsc import VSC

__all__ = [
    "VAE",
    "VSC",
    "Classical",
    "HessianPenalty",
    "ImageVAE",
    "LatentL1",
    "OrthogonalJacobian",
    "SequenceBaseline",
    "sparse_factor_analysis",
]
