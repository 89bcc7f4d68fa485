"""Data to try the models on: generators with a known graph, and loaders of public tables.

Generators return a `Simulated` (table, factors, true support, splits) or `Transitions` (sequences, actions,
latents, true graphs, splits); a stream of tasks gives a `TaskBatch` at every step; loaders return a `Loaded`
(values, per-feature facts, per-row facts). Generators need numpy and scipy only; loaders download nothing
unless asked to, check every download against a checksum, and take a local path instead.
"""

from __future__ import annotations

from pyro_sparse.datasets.abstracts import load_peerread
from pyro_sparse.datasets.cells import load_cortex_counts, load_pbmc, load_zeisel
from pyro_sparse.datasets.dependency import dependency_data
from pyro_sparse.datasets.entangled import fig1_data
from pyro_sparse.datasets.episodes import Episodes, as_episode, load_image_folders, split_classes
from pyro_sparse.datasets.factor_images import load_cars3d, load_mpi3d
from pyro_sparse.datasets.handwriting import glyphs
from pyro_sparse.datasets.movielens import load_movielens
from pyro_sparse.datasets.multitask import proxy_data, task_weights
from pyro_sparse.datasets.shapes import load_3dshapes, shapes_data
from pyro_sparse.datasets.simulated import Simulated, anchored, anchored60, sim1
from pyro_sparse.datasets.tables import Loaded, holzinger, load_bfi, load_embedded
from pyro_sparse.datasets.topics import topic_counts
from pyro_sparse.datasets.transition_graphs import transition_graph
from pyro_sparse.datasets.transitions import Transitions, transition_data

__all__ = [
    "Episodes",
    "Loaded",
    "Simulated",
    "Transitions",
    "anchored",
    "anchored60",
    "as_episode",
    "dependency_data",
    "fig1_data",
    "glyphs",
    "holzinger",
    "load_3dshapes",
    "load_bfi",
    "load_cars3d",
    "load_cortex_counts",
    "load_embedded",
    "load_image_folders",
    "load_movielens",
    "load_mpi3d",
    "load_pbmc",
    "load_peerread",
    "load_zeisel",
    "proxy_data",
    "shapes_data",
    "sim1",
    "split_classes",
    "task_weights",
    "topic_counts",
    "transition_data",
    "transition_graph",
]
