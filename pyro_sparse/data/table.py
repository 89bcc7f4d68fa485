"""A table in model units, in memory (`Table`), and rows of it on the device (`Batch`).

A `Table` knows its names, which cells are missing, and how it was standardised, and can undo it.
`data.as_table` makes them of a caller's data, `data/large_table.py` has the same of what is read by rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NotRequired, TypedDict, Unpack

import numpy as np
import torch
from torch import Tensor

from ..findings.finding import Finding
from .design import Design
from .per_row import of_rows, tensors_of

if TYPE_CHECKING:
    from ..likelihoods import Likelihood
    from .row_weights import RowWeights

__all__ = ["MOST_JUDGED", "Batch", "Table"]

# Held-out rows: enough to tell restarts apart. Judging a tenth of 50,000 rows had been half of a fit.
MOST_JUDGED = 2000


@dataclass(frozen=True)
class Batch:
    """Rows of a table on the device.

    Attributes
    ----------
    x : Tensor (row, feature)
        Values; missing cells hold the likelihood's `filler`.
    inputs : Tensor (row, feature)
        What the encoder reads: `x`, or for counts their standardised logarithm; missing cells 0.
    mask : Tensor (row, feature) of bool, or None
        True where the cell was seen; None when all were.
    total : int
        Number of rows in the full data: the plate scales the minibatch by ``total / len(x)``.
    per_row : mapping of str to Tensor (row, 1)
        What rows have beside their cells, by name: whoever declares a name reads it, and nobody else knows.
        "design" is the design matrix of covariates, (row, effect).
    """

    x: Tensor
    inputs: Tensor
    mask: Tensor | None
    total: int
    per_row: Mapping[str, Tensor] = field(default_factory=dict, kw_only=True)

    def __len__(self) -> int:
        return self.x.shape[0]

    def rows(self, index: Tensor) -> Batch:
        """The minibatch with these rows, still scaled to `total`."""
        x = self.x.index_select(0, index)
        return Batch(
            x=x,
            inputs=x if self.inputs is self.x else self.inputs.index_select(0, index),
            mask=None if self.mask is None else self.mask.index_select(0, index),
            total=self.total,
            per_row={name: values.index_select(0, index) for name, values in self.per_row.items()},
        )

    def whole(self) -> Batch:
        """The same rows seen as a data set of their own (no scaling up)."""
        return replace(self, total=len(self))

    def mean(self, mean_of_rows: Tensor) -> Tensor:
        """The minibatch's mean, from that of these rows: the same, unless other processes have more of it."""
        return mean_of_rows

    def shuffled(self) -> Tensor:
        """Order of the rows in an epoch, from torch's random stream."""
        return torch.randperm(self.total)


class _About(TypedDict):
    """What `Table.without_rows` takes beside `scale`."""

    centre: np.ndarray
    input_centre: np.ndarray
    input_scale: np.ndarray
    feature_names: list[str]
    sample_names: list[str]
    per_row: Mapping[str, np.ndarray]
    row_units: Mapping[str, float]
    design: Design | None
    weights: NotRequired[RowWeights | None]
    slopes: NotRequired[np.ndarray]
    input_slopes: NotRequired[np.ndarray]


@dataclass(frozen=True)
class Table:
    """A numeric table in model units, with the way back to the caller's units.

    Attributes
    ----------
    x : ndarray (row, feature)
        Values; missing cells hold the likelihood's `filler`.
    inputs : ndarray (row, feature)
        What the encoder reads of them (z-scored, for counts their logarithm); missing cells 0.
    mask : ndarray of bool (row, feature) or None
    centre, scale : ndarray (feature,)
        ``x = (original - centre) / scale``.
    input_centre, input_scale : ndarray (feature,)
        The same for `inputs`.
    feature_names, sample_names : list of str
    per_row : mapping of str to ndarray (row, 1)
        What rows have beside their cells, in units of `row_units` where a caller gave it.
    row_units : mapping of str to float
        The typical number of each input that a caller gave; what the likelihood made itself is not there.
    design : Design or None
        How the covariates of rows are coded; ``per_row["design"]`` has them.
    slopes, input_slopes : ndarray (effect, feature) or None
        Least squares on the design, in the caller's units, that are taken from the cells before `centre` and
        `scale` (of columns under normal noise; else 0), and from what the encoder reads.
    weights : RowWeights or None
        How much each of the caller's rows counts; the rows here count one each.
    caller_rows : Table or None
        The caller's rows, each once, where these are others because of weights.
    findings : tuple of Finding
        What the checks before a fit noticed.
    """

    x: np.ndarray
    inputs: np.ndarray
    mask: np.ndarray | None
    centre: np.ndarray
    scale: np.ndarray
    input_centre: np.ndarray
    input_scale: np.ndarray
    feature_names: list[str]
    sample_names: list[str]
    per_row: Mapping[str, np.ndarray] = field(default_factory=dict)
    row_units: Mapping[str, float] = field(default_factory=dict)
    design: Design | None = None
    slopes: np.ndarray | None = None
    input_slopes: np.ndarray | None = None
    weights: RowWeights | None = field(default=None, repr=False, compare=False)
    caller_rows: Table | None = field(default=None, repr=False, compare=False)
    findings: tuple[Finding, ...] = field(default=(), repr=False, compare=False)

    def batch(self, device: str | torch.device = "cpu", dtype: torch.dtype = torch.float32) -> Batch:
        """All rows as tensors; `inputs` is `x` itself where they hold the same numbers."""
        x, same = torch.as_tensor(self.x, dtype=dtype, device=device), np.array_equal(self.inputs, self.x)
        return Batch(
            x=x,
            inputs=x if same else torch.as_tensor(self.inputs, dtype=dtype, device=device),
            mask=None if self.mask is None else torch.as_tensor(self.mask, device=device),
            total=len(self.x),
            per_row=tensors_of(self.per_row, dtype, device),
        )

    def unit(self, likelihood: Likelihood) -> np.ndarray:
        """Standard deviation of each feature in model units, (feature,); 1 under likelihoods of other scales.

        Parameters
        ----------
        likelihood : Likelihood
            One that can be standardised (`standardise`) has the features' own scale.
        """
        ones = np.ones(len(self.scale))
        return np.where(likelihood.is_standardised(len(ones)), self.input_scale / self.scale, ones)

    def units(self) -> dict[str, np.ndarray]:
        """What leads back to the caller's units, by attribute."""
        names = ("centre", "scale", "input_centre", "input_scale", "slopes", "input_slopes")
        return {name: getattr(self, name) for name in names if getattr(self, name) is not None}

    def given_back(self, x: np.ndarray, per_row: Mapping[str, np.ndarray] | None = None) -> np.ndarray:
        """Cells (row, feature) in the caller's units.

        Parameters
        ----------
        x : ndarray (row, feature)
            In model units.
        per_row : mapping of str to ndarray, optional
            Of these rows; default average ones.
        """
        cells: np.ndarray = x * self.scale + self.centre
        if self.slopes is None or per_row is None:
            return cells
        return cells + per_row["design"] @ self.slopes

    @classmethod
    def without_rows(cls, scale: np.ndarray, **about: Unpack[_About]) -> Table:
        """A table that knows its units and names, and has no row.

        Parameters
        ----------
        scale : ndarray (feature,)
        **about
            The other attributes; `per_row` of the rows that there were.
        """
        empty = np.zeros((0, len(scale)))
        return cls(x=empty, inputs=empty, mask=None, scale=scale, **about)

    @property
    def freedom(self) -> float:
        """Share of the rows' degrees of freedom that effects of covariates leave."""
        return 1.0 if self.design is None else self.design.freedom

    @property
    def missing(self) -> bool:
        """Whether any cell is."""
        return self.mask is not None

    @property
    def most_judged(self) -> int:
        """How many rows may be kept aside: they are looked at again and again while a fit is trained."""
        return MOST_JUDGED

    def content(self) -> tuple[np.ndarray | None, ...]:
        """Arrays that tell this table from another."""
        return self.x, self.mask, *(self.per_row[name] for name in sorted(self.per_row))

    def part(self, index: np.ndarray, device: str | torch.device, dtype: torch.dtype) -> Batch:
        """These rows as what minibatches are taken from."""
        return self.rows(index).batch(device, dtype)

    def intercept(self, likelihood: Likelihood, kept: np.ndarray) -> np.ndarray | Tensor:
        """The likelihood's start (feature,), from these rows."""
        cells = self.x[kept] if self.mask is None else np.where(self.mask[kept], self.x[kept], np.nan)
        return likelihood.start(torch.as_tensor(cells))

    def rows(self, index: np.ndarray) -> Table:
        """The table with these rows only."""
        return replace(
            self,
            x=self.x[index],
            inputs=self.inputs[index],
            mask=None if self.mask is None else self.mask[index],
            sample_names=[self.sample_names[i] for i in index],
            per_row=of_rows(self.per_row, index),
            caller_rows=None,
        )

    @property
    def taken(self) -> tuple[str, ...]:
        """Columns of the caller's table that are no features: covariates, weights."""
        taken = () if self.design is None else self.design.taken
        column = None if self.weights is None else self.weights.column
        return taken if column is None else (*taken, column)

    @property
    def of_caller(self) -> Table:
        """The rows as the caller has them, each once."""
        return self if self.caller_rows is None else self.caller_rows

    @property
    def caller_row(self) -> np.ndarray | None:
        """Which row of the caller each row is, where frequency weights repeat rows and all are here."""
        if self.weights is None or self.weights.kind != "frequency" or len(self.x) != self.weights.counted:
            return None
        return np.repeat(np.arange(len(self.weights.values)), self.weights.values.astype(int))

    @property
    def n_counted(self) -> int:
        """Rows of the fit, as the likelihood counts them; also where the rows themselves are not here."""
        return len(self.sample_names) if self.weights is None else self.weights.counted
