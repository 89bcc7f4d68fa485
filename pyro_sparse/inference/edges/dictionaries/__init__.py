"""Which latent of one dictionary drives which of another? Graphs between sparse autoencoders, over refits.

`latent_graph` measures how strongly each latent before a layer acts on each latent after it, for any trained
pair. `edge_posterior` matches the latents of several such pairs and says how probable it is that another
refit shows an edge.
"""

from __future__ import annotations

from .latent_graph import LatentGraph, latent_graph
from .matching import MatchedLatents, match_latents
from .penalty import latent_jacobian_penalty
from .posterior import edge_posterior
from .replication import Replication, replication

__all__ = [
    "LatentGraph",
    "MatchedLatents",
    "Replication",
    "edge_posterior",
    "latent_graph",
    "latent_jacobian_penalty",
    "match_latents",
    "replication",
]
