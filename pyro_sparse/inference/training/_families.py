"""What families of fits (tables, sequences, tasks) have each of its own, by one name: for annotations."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from ...data.sequences import SequenceBatch, Sequences
    from ...data.table import Batch, Table
    from ...data.tasks import TaskBatch, Tasks
    from ...models.base import FactorModel
    from ...models.latent_transition import LatentTransition
    from ...models.multitask import MultiTaskRegression

__all__ = ["Data", "Minibatch", "Trainable"]

Trainable: TypeAlias = "FactorModel | LatentTransition | MultiTaskRegression"
Data: TypeAlias = "Table | Sequences | Tasks"
Minibatch: TypeAlias = "Batch | SequenceBatch | TaskBatch"
