"""What families of fits have each of its own, by one name: for annotations.

A `Program` is not among the `Trainable`: it has no parameters, and no loop trains it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from ...data.activations import Activations
    from ...data.sequences import SequenceBatch, Sequences
    from ...data.table import Batch, Table
    from ...data.tasks import TaskBatch, Tasks
    from ...models.base import FactorModel
    from ...models.latent_transition import LatentTransition
    from ...models.multitask import MultiTaskRegression
    from ...programs.data import Data as ProgramData

__all__ = ["Data", "Minibatch", "Trainable"]

Trainable: TypeAlias = "FactorModel | LatentTransition | MultiTaskRegression"
Data: TypeAlias = "Table | Sequences | Tasks | ProgramData | Activations"
Minibatch: TypeAlias = "Batch | SequenceBatch | TaskBatch"
