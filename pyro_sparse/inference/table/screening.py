r"""How strong the lasso of a linear decoder's lasso stage is for each feature: by what its cells tell.

A lasso of strength l moves a weight by l / I, I being what a cell tells of its linear predictor: 1 or more
for a standardised feature, and less for others, a fifth for yes and no, so that the same l would move their
weights to zero. So each feature has a lasso of its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ..._utils.torch_state import undisturbed
from ...data.read import Batch
from ..training.restarts import pick

if TYPE_CHECKING:
    import numpy as np

    from ...models.sparse_decoder import SparseDecoder

__all__ = ["cell_information", "pull"]

_SIMULATED = 500  # rows
_SHARE, _MOST = 0.25, 2.0  # of the information, and at most: by which few edges are lost and few kept


def cell_information(model: SparseDecoder, train: Batch) -> Tensor:
    """Mean squared score of simulated cells at the start, (1, feature, 1): Fisher's information.

    All restarts start with the same intercepts; a part of them finds the same number.

    Parameters
    ----------
    model : SparseDecoder
        Linear, set up and started.
    train : Batch
    """
    restart = pick(model, [0])
    some = torch.arange(min(len(train), _SIMULATED), device=train.x.device)
    per_row = train.rows(some).per_row
    f = restart.decoder.intercept.detach().expand(-1, len(some), -1)
    with undisturbed(seed=0, threads=None):
        x = restart.likelihood.observation(f, None, per_row).sample()
    score = restart.likelihood.closed_slopes()(f, x, None, per_row).by_f
    return score.square().mean(1).unsqueeze(-1).nan_to_num(1.0, 1.0)


def pull(information: Tensor | None, unit: Tensor | np.ndarray | float) -> Tensor:
    """How strong the lasso of each feature is, (1, feature, 1) or (feature, 1).

    Parameters
    ----------
    information : Tensor (1, feature, 1), optional
        `cell_information`; None where features have a standard deviation, which says as much.
    unit : array_like (feature, 1) or float
        That standard deviation, in the model's units.
    """
    if information is None:
        return torch.as_tensor(1 / unit).clamp(max=1.0)
    return (_SHARE * information).clamp(max=_MOST)
