"""All checks of a table before a fit, in one list."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from ...findings.finding import Finding
from ...likelihoods import Likelihood, LikelihoodLike, get_likelihood
from ..column_types import columns_of
from ..read import read_table
from ..row_weights import read_weights, weights_findings
from ..stores import store_of
from ..table import Table
from ._cells import Cells, cells_of
from .beyond_covariates import beyond_covariates
from .clusters import clustered_rows
from .counts import overdispersed_counts, underdispersed_counts
from .dependence import copied_columns, dependent_columns
from .far_counts import far_count_rows
from .filled import filled_cells
from .groups import row_groups
from .joined import joined_columns
from .kinds import chosen_kinds, entry_mistakes, few_levels, missing_codes, several_kinds
from .labels import alike_levels
from .level_order import levels_out_of_order
from .missing import separate_columns
from .near_rows import nearly_repeated_rows
from .rows import outlying_cells, outlying_rows, repeated_rows
from .sign_changes import sign_changes, sign_changes_of_levels
from .straightlining import straightlined_rows
from .tails import heavy_tails

if TYPE_CHECKING:
    from ..._utils.types import TableLike, VectorLike
    from ..stores import RowStore

__all__ = ["check_read_table", "check_table"]


def check_table(
    X: TableLike | RowStore,
    likelihood: LikelihoodLike = "normal",
    *,
    mask: TableLike | None = None,
    feature_names: Sequence[str] | None = None,
    sample_weight: VectorLike | str | None = None,
    sample_weight_type: Literal["frequency", "survey"] | None = None,
    **per_row: VectorLike | None,
) -> list[Finding]:
    """What a table holds that would mislead a fit: ask before one; `fit` asks, too, and warns.

    Parameters
    ----------
    X : array_like (row, feature), DataFrame, scipy.sparse matrix, AnnData or RowStore
        As for `pyro_sparse.fit`. Of a table that is read by rows some thousand are looked at.
    likelihood : str, mapping or Likelihood
        As for the model.
    mask, feature_names, sample_weight, sample_weight_type : optional
        As for `pyro_sparse.fit`.
    **per_row : array_like (row,)
        What `pyro_sparse.fit` takes of rows beside their cells.

    Returns
    -------
    list of Finding
        Empty where nothing was seen. Each names columns or rows and what to do.

    Raises
    ------
    ValueError, TypeError
        As `pyro_sparse.fit`, of data that it cannot use.

    Notes
    -----
    Looked for: columns that copy one another; sets of which one follows from the others; rows that repeat,
    nearly or in every cell, or are on another scale; rows with one answer to all questions; columns of
    another table that was joined; cells that make their column; codes, counts, levels and yes or no under
    the normal likelihood; codes for missing cells, cells that were filled in; heavy tails; columns hardly
    seen together; batches of rows, or clusters; columns whose sign changes at a row, or in a group;
    covariates whose effects are no lines; levels in another order than what they mean; levels of covariates
    that differ in spelling; counts that vary more, or less, than their likelihood; how many rows survey
    weights leave.

    Examples
    --------
    >>> import numpy as np, pandas as pd, pyro_sparse as ps
    >>> x = np.random.default_rng(0).normal(size=(100, 3))
    >>> table = pd.DataFrame(x, columns=list("abc")).assign(total=x[:, 0] + x[:, 1])
    >>> [finding.columns for finding in ps.check_table(table)]
    [('a', 'b', 'total')]
    """
    names = None if feature_names is None else [str(name) for name in feature_names]
    X, weights = read_weights(X, sample_weight, sample_weight_type)
    density = get_likelihood(likelihood)
    chosen: list[Finding] = []
    if density.reads_columns and store_of(X) is None:
        columns = columns_of(X, names, mask)
        chosen = chosen_kinds(density.chosen(columns))
        density = density.for_columns(columns)
    table = read_table(X, per_row, likelihood=density, mask=mask, feature_names=names)
    return [*chosen, *check_read_table(table, density), *weights_findings(weights, table.x)]


def check_read_table(table: Table, likelihood: Likelihood) -> list[Finding]:
    """`check_table` of a table that was read.

    Parameters
    ----------
    table : Table
    likelihood : Likelihood
    """
    with np.errstate(all="ignore"):
        return _findings(cells_of(table, likelihood), table, likelihood)


def _findings(cells: Cells, table: Table, likelihood: Likelihood) -> list[Finding]:
    families = [
        (cells, slice(None)) if columns is None else (cells.of(columns, part.name), columns)
        for part, columns in likelihood.families()
    ]
    mistakes = [
        finding
        for family, _ in families
        for find in (entry_mistakes, missing_codes)
        for finding in find(family)
    ]
    kinds = [finding for family, _ in families for finding in several_kinds(family)]
    far_rows, rows = [], []
    for family, _ in families:
        of_family, its_rows = (outlying_rows if family.is_normal else far_count_rows)(family)
        far_rows += of_family
        rows.append(its_rows)
    # rows on another scale would correlate all columns, and so do such cells
    far = np.unique(np.concatenate(rows))
    trimmed = cells.without(far)
    hidden = np.zeros(trimmed.values.shape, dtype=bool)
    far_cells = []
    for family, columns in families:
        of_family, where = outlying_cells(family.without(far))
        far_cells += of_family
        hidden[:, columns] = where
    others = trimmed.hidden(hidden)
    copies, copied = copied_columns(others)
    answers, straightlined = [], []
    for family, _ in families:
        of_family, its_rows = straightlined_rows(family)
        answers += of_family if not mistakes else []  # a code for missing cells is an answer, too
        straightlined.append(its_rows)
    repeats = repeated_rows(cells.without(np.unique(np.concatenate(straightlined))))
    near_repeats = [finding for family, _ in families for finding in nearly_repeated_rows(family, cells)]
    of_tails, levels, counts, filled = [], [], [], []
    for family, columns in families:
        filled += filled_cells(family) if not mistakes else []
        of_tails += heavy_tails(family.without(far).hidden(hidden[:, columns]))
        levels += few_levels(family) if not (mistakes or kinds) else []
        beside = np.delete(cells.view, columns, 1)
        counts += underdispersed_counts(family)
        counts += overdispersed_counts(family, beside if beside.shape[1] else None) if not mistakes else []
    return [
        *mistakes,
        *kinds,
        *levels,
        *copies,
        *dependent_columns(others, copied),
        *separate_columns(cells),
        *(joined_columns(cells) if not repeats else []),
        *answers,
        *repeats,
        *near_repeats,
        *far_rows,
        *far_cells,
        *filled,
        *(_disordered(others, families, likelihood) if not mistakes else []),
        *alike_levels(table.design),
        *of_tails,
        *(_unlike_rows(cells, table, families, far) if not (repeats or mistakes) else []),
        *counts,
    ]


def _disordered(cells: Cells, families: list[tuple[Cells, Any]], likelihood: Likelihood) -> list[Finding]:
    """Levels of another order than what they mean, of columns that are read as levels or measurements."""
    every = list(range(len(cells.features)))
    read_as_levels = [
        j
        for family, columns in families
        if family.is_normal or family.likelihood == "ordinal"
        for j in (every if isinstance(columns, slice) else columns)
    ]
    return levels_out_of_order(cells, read_as_levels, likelihood.labels)


def _unlike_rows(
    cells: Cells, table: Table, families: list[tuple[Cells, Any]], far: NDArray[np.int_]
) -> list[Finding]:
    """Rows that are not one sample: what covariates leave, batches and clusters, signs that change.

    Of several causes the first one is said, since one looks like another.
    """
    if beyond := beyond_covariates(cells, table):
        return beyond
    of_numbers = [columns for family, columns in families if family.is_normal]
    numbers = [j for columns in of_numbers if not isinstance(columns, slice) for j in columns]
    groups = row_groups(cells, numbers)
    signs = sign_changes(cells, numbers, bool(groups))
    if groups:
        return [*groups, *signs]
    signs = signs or sign_changes_of_levels(cells, table)
    clusters = [finding for family, _ in families for finding in clustered_rows(family.without(far))]
    return [*clusters, *signs]
