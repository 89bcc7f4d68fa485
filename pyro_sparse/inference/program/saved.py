"""Files of fits of programs: all but the program and its data, which are the caller's to keep."""

from __future__ import annotations

import json
import os
from typing import Any

import pandas as pd
import torch

from ..._utils.torch_state import default_dtype, undisturbed
from ...findings.finding import read_findings
from ...programs.data import Data
from ...programs.program import Program
from ..training import checkpoint as files
from .layout import read_layout
from .mark import mark_of
from .result import ARRAYS, ProgramFit

__all__ = ["restore"]

_ALIGNMENT = ("permutation", "sign", "congruence")


def restore(
    path: str | os.PathLike[str],
    model: object,
    data: object,
    meta: dict[str, Any],
    tensors: dict[str, Any],
) -> ProgramFit:
    """The fit that `save` wrote.

    Parameters
    ----------
    path : path
        For messages.
    model : Program
    data : Data
    meta, tensors : dict
        From `checkpoint.read`.

    Raises
    ------
    ValueError
        Model or data are missing or others than the fit's.
    """
    if not isinstance(model, Program) or not isinstance(data, Data):
        raise ValueError(
            f"load: {str(path)!r} is the fit of a program; pass model=, the ps.Program, and data=, the "
            "ps.Data that it was made with"
        )
    with undisturbed(0), default_dtype(torch.float64):
        layout, _ = read_layout(model.program, data.view(model.n_factors))
    ours = mark_of(model, layout)
    if differs := files.differences(json.dumps(meta["mark"]), json.dumps(ours)):
        raise ValueError(f"load: {str(path)!r} is the fit of another program ({differs})")
    names = data.feature_names, data.sample_names
    if names != (meta["feature_names"], meta["sample_names"]):
        raise ValueError(f"load: {str(path)!r} is of other rows or features than data has")
    arrays: dict[str, Any] = {name: value.numpy() for name, value in tensors["arrays"].items()}
    return ProgramFit(
        model=model, data=data, layout=layout, site=meta["site"], best=meta["best"],
        **{name: arrays[name] for name in ARRAYS},
        history=pd.DataFrame(meta["history"]),
        alignment={name: arrays[f"alignment.{name}"] for name in _ALIGNMENT},
        position=tensors["position"], settings=meta["settings"], findings=read_findings(meta["findings"]),
    )  # fmt: skip
