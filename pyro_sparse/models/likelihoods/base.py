"""The likelihood contract, and the checks every table passes through.

Subclass `Likelihood`, write `forward`, `mean` and, where only some values make sense, `_refuse`;
`pyro_sparse.testing.LikelihoodTestCase` then tells you whether it is sound.  Shapes: R = restart, B or N = row,
G = feature; x is (B, G), the linear predictor f (R, B, G), own parameters (R, 1, G).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyro.distributions as dist
import torch
from torch import Tensor, nn

__all__ = ["Likelihood", "column_mean", "masked", "observed", "refuse_where", "standardise"]


class Likelihood(nn.Module):
    r"""Base class: what the models, the fit and the results ask of a likelihood.

    Attributes
    ----------
    name : str
        The name `get_likelihood` knows it by.
    standardise : bool
        Whether the fit works on z-scored columns (only `Normal` does) and undoes it on output.
    uses_exposure : bool
        Whether rows carry an exposure (size factor, or total count for the multinomial).

    Notes
    -----
    ``exposure`` is always of shape (B,) or (R, B); ``mask`` of the shape of ``x``, true where observed.
    """

    name: str = ""
    standardise: bool = False
    uses_exposure: bool = False

    def setup(self, n_features: int, n_restarts: int = 1) -> None:
        """Allocate the parameters, each (R, 1, G), at their starting values; called once before a fit."""

    def check(self, x: np.ndarray, feature_names: Sequence[str] | None = None) -> None:
        """Refuse data this likelihood cannot describe.

        Parameters
        ----------
        x : array_like of shape (N, G)
            NaN marks a missing cell and is fine.
        feature_names : sequence of str, optional
            Names for the message; default ``"column 0"`` …

        Raises
        ------
        ValueError
            Naming the first offending column, its value, what is wanted and the mend.
        """
        self._refuse(numbers(x, feature_names), feature_names)

    def _refuse(self, x: np.ndarray, feature_names: Sequence[str] | None) -> None:
        """The checks beyond "finite numbers"; default none."""

    def start(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """Intercepts (G,) on the scale of the linear predictor, from the data (N, G); default the column means."""
        return column_mean(*observed(x, mask))

    def gaussianise(self, x: Tensor, mask: Tensor | None = None, exposure: Tensor | None = None) -> Tensor:
        """Roughly Gaussian version (N, G) of the data for a data-driven start; columns z-scored, missing cells 0."""
        return standardise(*observed(x, mask))

    def default_exposure(self, x: Tensor, mask: Tensor | None = None) -> Tensor | None:
        """Exposure (N,) of each row when the caller gives none; None where the likelihood has no such thing."""
        return None

    def priors(self) -> dict[str, dist.Distribution]:
        """Prior of each own quantity in `values`: batch shape (R,), event shape (1, G); default none."""
        return {}

    def values(self) -> dict[str, Tensor]:
        """Current value (R, 1, G) of each quantity that `priors` speaks about."""
        return {}

    def noise_sd(self) -> Tensor | None:
        """Noise standard deviation (R, 1, G) on the model's scale, or None where it depends on the mean."""
        return None

    def forward(
        self, f: Tensor, exposure: Tensor | None = None, mask: Tensor | None = None
    ) -> dist.Distribution:
        """Distribution of x given the linear predictor f (R, B, G): batch (R, B, G), event (); see `Multinomial`."""
        raise NotImplementedError

    def mean(self, f: Tensor, exposure: Tensor | None = None) -> Tensor:
        """Expectation (R, B, G) of x given f."""
        raise NotImplementedError

    def log_prob(
        self, f: Tensor, x: Tensor, mask: Tensor | None = None, exposure: Tensor | None = None
    ) -> Tensor:
        r"""Log-likelihood of each row, :math:`\sum_{j\ \mathrm{observed}} \log p(x_{ij} \mid f_{ij})`.

        Parameters
        ----------
        f : Tensor of shape (R, B, G)
            Linear predictor.
        x : Tensor of shape (B, G) or (R, B, G)
            Data; missing cells may hold anything, NaN included.
        mask : Tensor of shape (B, G) or (R, B, G), optional
            True (or 1) where observed.
        exposure : Tensor of shape (B,) or (R, B), optional

        Returns
        -------
        Tensor of shape (R, B)
            In nats; exactly the value of the table with the missing cells dropped.
        """
        x, seen = observed(x, mask)
        given = self(f, exposure, seen)
        logp = given.log_prob(x)
        return logp.sum(-1) if given.event_dim == 0 else logp

    def extra_repr(self) -> str:
        return self.name


def observed(x: Any, mask: Any = None) -> tuple[Tensor, Tensor]:
    """Data with missing cells set to 0, and the boolean mask of observed cells (not NaN, and ``mask``)."""
    x = torch.as_tensor(x)
    seen = ~torch.isnan(x)
    if mask is not None:
        seen = seen & torch.as_tensor(mask, device=x.device).bool()
    return torch.where(seen, x, torch.zeros_like(x)), seen


def column_mean(x: Tensor, seen: Tensor) -> Tensor:
    return (x * seen).sum(0) / seen.sum(0).clamp(min=1)


def standardise(x: Tensor, seen: Tensor) -> Tensor:
    """Columns to mean 0 and standard deviation 1 over observed cells; missing cells and constant columns are 0."""
    centred = (x - column_mean(x, seen)) * seen
    scale = column_mean(centred**2, seen).sqrt()
    return centred / torch.where(scale > 0, scale, torch.ones_like(scale))


def masked(distribution: dist.Distribution, mask: Tensor | None) -> dist.Distribution:
    return distribution if mask is None else distribution.mask(mask.bool())


def column(feature_names: Sequence[str] | None, j: int) -> str:
    return f"column {j}" if feature_names is None else f"column {feature_names[j]!r}"


def numbers(x: Any, feature_names: Sequence[str] | None) -> np.ndarray:
    """The table as floats; ValueError naming the first cell that is no number, or infinite."""
    x = np.asarray(x)
    if x.ndim != 2:
        raise ValueError(f"X: want a table (rows, features), got an array of shape {x.shape}.")
    if x.dtype.kind not in "biuf":
        numbers = np.empty(x.shape)
        for j in range(x.shape[1]):
            for i in range(x.shape[0]):
                value = x[i, j]
                try:
                    numbers[i, j] = np.nan if value is None else value
                    ok = not isinstance(value, str)
                except (TypeError, ValueError):
                    ok = False
                if not ok:
                    raise ValueError(
                        f"X: {column(feature_names, j)} holds {value!r} (row {i}), which is not a number. "
                        "Encode the column as numbers, drop it, or write NaN where the value is missing."
                    )
        x = numbers
    x = x.astype(float, copy=False)
    refuse_where(
        np.isinf(x),
        x,
        feature_names,
        "want finite numbers or NaN",
        "Write NaN where a value is unknown or out of range.",
    )
    return x


def refuse_where(
    bad: np.ndarray, x: np.ndarray, feature_names: Sequence[str] | None, want: str, mend: str
) -> None:
    if bad.any():
        j = int(bad.any(0).argmax())
        i = int(bad[:, j].argmax())
        raise ValueError(
            f"X: {column(feature_names, j)} holds {x[i, j]:g} (row {i}; {int(bad[:, j].sum())} such cells in the column, "
            f"{int(bad.any(0).sum())} such columns); {want}. {mend}"
        )
