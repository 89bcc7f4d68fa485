"""Which networks do models and guides use? Plain modules, batched over restarts; none knows a model."""

from __future__ import annotations

from .layers import BatchLinear, DenseDecoder, Encoder, LinearDecoder, MaskedDecoder
from .sparse_autoencoder import SparseAutoencoder

__all__ = ["BatchLinear", "DenseDecoder", "Encoder", "LinearDecoder", "MaskedDecoder", "SparseAutoencoder"]
