"""What was given of rows or features and a program never reads: a misspelt name, or a forgotten covariate."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from pyro import poutine
from torch import Tensor

from ..._utils.torch_state import default_device, default_dtype, undisturbed
from ..._utils.wording import listed
from ...findings.finding import Finding
from ...programs.data import Data
from ...programs.parameters import GivenParameters
from ...programs.program import Program

__all__ = ["unread_data"]


def unread_data(
    model: Program, data: Data, parameters: Mapping[str, Tensor] | None = None, *, device: str = "cpu"
) -> list[Finding]:
    """A note on what the program was given by name and does not read.

    Parameters
    ----------
    model : Program
    data : Data
    parameters : mapping of str to Tensor, optional
        Values of `pyro.param`; default the initial ones.
    device : str
    """
    given = [*data.rows, *data.features]
    if not given:
        return []
    with undisturbed(0), default_dtype(torch.float64), default_device(device), GivenParameters(parameters):
        view = data.view(model.n_factors, data.tensors(device))
        with torch.no_grad():
            poutine.trace(model.program).get_trace(view)
    unread = [name for name in given if name not in view.names_read]
    if not unread:
        return []
    names = listed([f"d.{name}" for name in unread])
    return [
        Finding(
            "unread",
            f"the program never reads {names}, which Data was given: edges are not net of it",
            "read it in the program, or leave it out of Data",
        )
    ]
