"""A `MultiTaskFit` from what its `save` wrote."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import torch

from ..._utils.display import AgreementTable
from ..._utils.recorded import rebuild
from ..._utils.torch_state import undisturbed
from ...data.tasks import Tasks
from ...findings.finding import read_findings
from .task_result import ARRAYS, MEANS, MultiTaskFit

if TYPE_CHECKING:
    from ...models.multitask import MultiTaskRegression

__all__ = ["restore"]


def restore(
    model: MultiTaskRegression,
    meta: dict[str, Any],
    states: dict[str, dict[str, torch.Tensor]],
    arrays: dict[str, np.ndarray],
) -> MultiTaskFit:
    """A fit from what `MultiTaskFit.save` wrote; its tasks have names and units, but no rows.

    Parameters
    ----------
    model : MultiTaskRegression
        Made the same way.
    meta : dict
    states : dict
        One state of a model for each restart.
    arrays : dict of str to ndarray
    """
    names, models = meta["task_names"], []
    if meta.get("outcomes") is not None:
        bound = model.likelihood
        model.declare_outcomes(rebuild(meta["outcomes"]))
        model.likelihood = bound
    for state in states.values():  # also of the mean weights, which come last
        restored = copy.deepcopy(model)
        with undisturbed():
            restored.setup(n_tasks=len(names))
        restored.to(getattr(torch, meta["dtype"]))
        restored.load_state_dict(state)
        models.append(restored.eval())
    n = len(names)
    units = ("centre", "scale", "target_centre", "target_scale")
    measured: dict[str, Any] = {unit: arrays[f"tasks.{unit}"] for unit in units}
    tasks = Tasks(
        x=np.zeros((n, 0, *model.shape)),
        y=np.zeros((n, 0)),
        mask=None,
        **measured,
        task_names=names,
        feature_names=meta["feature_names"],
        lengths=np.zeros(n, dtype=int),
        weight=arrays.get("tasks.weight"),
    )
    at_means = models.pop() if MEANS in states else None
    fit = MultiTaskFit(
        models=models,
        tasks=tasks,
        best=meta["best"],
        **{k: arrays[k] for k in ARRAYS},
        agreement=AgreementTable(meta["agreement"]).rename_axis("restart"),
        history=pd.DataFrame(meta["history"]),
        alignment={k: arrays[f"alignment.{k}"] for k in ("permutation", "sign", "similarity", "block")},
        settings=meta["settings"],
        findings=read_findings(meta["findings"]),
    )
    fit._at_means = at_means
    return fit
