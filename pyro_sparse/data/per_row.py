"""What a caller says of each row beside its cells, by name: read, checked, and brought to typical units.

Which names there are, and what their numbers must be, the likelihood says (`per_row_inputs`,
`check_per_row`). A table carries the numbers, and a minibatch their tensors, without knowing any name.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from ..likelihoods import Likelihood, get_likelihood, known_likelihoods
from .columns import check_order, row_names

if TYPE_CHECKING:
    from .._utils.types import VectorLike
    from .table import Table

__all__ = ["check_names", "default_per_row", "of_rows", "read_per_row", "tensors_of"]

_MOST = 1e30  # times a typical row, and as many times less: beyond it single precision has no number


def check_names(names: Iterable[str], likelihood: Likelihood) -> None:
    """Complain of inputs of rows that the likelihood does not read.

    Parameters
    ----------
    names : iterable of str
    likelihood : Likelihood

    Raises
    ------
    TypeError
        No likelihood reads such a thing: a misspelt argument.
    ValueError
        Another likelihood does.
    """
    for name in names:
        if name in likelihood.per_row_inputs:
            continue
        kind = type(likelihood).__name__
        others = [other for other in known_likelihoods() if name in get_likelihood(other).per_row_inputs]
        if not others:
            takes = ", ".join(likelihood.per_row_inputs) or "none"
            raise TypeError(f"got an unexpected argument {name!r}; of rows, {kind} takes {takes}")
        raise ValueError(
            f"{name}: got some, and {kind} has no use for them; leave them out, or take a likelihood that "
            f"has ({', '.join(others)})"
        )


def read_per_row(
    given: Mapping[str, VectorLike | None],
    n_rows: int,
    samples: list[str] | None,
    likelihood: Likelihood,
    like: Table | None,
) -> tuple[dict[str, np.ndarray], dict[str, float]]:
    """A caller's inputs of rows, each (row, 1) in units of the training table's typical one, and these units.

    Parameters
    ----------
    given : mapping of str to array_like (row,) or None
        None is as if it were left out.
    n_rows : int
    samples : list of str or None
        Names of the table's rows, where it has any.
    likelihood : Likelihood
    like : Table, optional
        Of the fit that these rows are for.

    Raises
    ------
    ValueError
        They are not one number per row, or none that the likelihood allows; or have the names of the rows in
        another order; or the fit was given some and these rows are not, or the other way round.
    TypeError
        They are the name of a column, or no numbers; or the likelihood reads nothing of that name.
    """
    here = {name: values for name, values in given.items() if values is not None}
    check_names(here, likelihood)
    if like is not None:
        for name in like.row_units.keys() - here:
            raise ValueError(f"{name}: got none, and the fit was given its rows'; give those of these rows")
        for name in here.keys() - like.row_units:
            raise ValueError(f"{name}: got some, and the fit was made without; leave them out")
    values = {name: _numbers(name, column, n_rows, likelihood) for name, column in here.items()}
    for name, column in here.items():
        check_order(name, row_names(column), samples)
    units = {
        name: float(likelihood.typical(name, column)) if like is None else like.row_units[name]
        for name, column in values.items()
    }
    for name, unit in units.items():
        values[name] = values[name] / unit
        size = np.abs(values[name])
        far = ~((size < _MOST) & ((size > 1 / _MOST) | (size == 0)))
        if far.any():
            i = int(far.argmax())
            raise ValueError(
                f"{name}: is {values[name][i, 0] * unit:g} in row {i}, and {unit:g} in a typical one; "
                f"wanted numbers less than a factor of {_MOST:g} apart from that"
            )
    return values, units


def _numbers(name: str, column: VectorLike, n_rows: int, likelihood: Likelihood) -> np.ndarray:
    if isinstance(column, str):
        raise TypeError(
            f"{name}: got the name {column!r}, wanted one number per row; give the column itself, such as "
            f"adata.obs[{column!r}]"
        )
    try:
        values = np.array(column, dtype=float).reshape(-1, 1)
    except (TypeError, ValueError) as error:
        raise TypeError(f"{name}: cannot be read as numbers ({error}), wanted one per row") from error
    if len(values) != n_rows:
        raise ValueError(f"{name}: has shape {np.shape(column)} for {n_rows} rows, wanted one number per row")
    try:
        likelihood.check_per_row(name, values)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from error
    infinite = ~np.isfinite(values)
    if infinite.any():
        i = int(infinite.argmax())
        raise ValueError(f"{name}: is {values[i, 0]:g} in row {i}, wanted one finite number per row")
    return values


def default_per_row(cells: np.ndarray, likelihood: Likelihood, given: Iterable[str]) -> dict[str, np.ndarray]:
    """What the cells say of the inputs that were not given, each (row, 1).

    Parameters
    ----------
    cells : ndarray (row, feature)
        NaN where missing.
    likelihood : Likelihood
    given : iterable of str
    """
    missing = set(likelihood.per_row_inputs) - set(given)
    default = likelihood.default_per_row(torch.as_tensor(cells)) if missing else {}
    return {name: np.asarray(values) for name, values in default.items() if name in missing}


def of_rows(per_row: Mapping[str, np.ndarray], index: np.ndarray) -> dict[str, np.ndarray]:
    """The inputs of these rows.

    Parameters
    ----------
    per_row : mapping of str to ndarray (row, 1)
    index : ndarray of int
    """
    return {name: values[index] for name, values in per_row.items()}


def tensors_of(
    per_row: Mapping[str, np.ndarray], dtype: torch.dtype, device: str | torch.device = "cpu"
) -> dict[str, Tensor]:
    """The inputs as tensors.

    Parameters
    ----------
    per_row : mapping of str to ndarray (row, 1)
    dtype : torch.dtype
    device : str or torch.device
    """
    return {name: torch.as_tensor(values, dtype=dtype, device=device) for name, values in per_row.items()}
