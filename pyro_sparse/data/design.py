r"""Covariates and groups of rows as a design matrix, whose effects on features are no business of factors.

.. math:: E[x_{ij}] = g\big(f_j(z_i) + d_i^\top \beta_j\big), \qquad
          d_i = T^\top (c_i - \bar c), \quad D^\top D = n I, \quad D^\top 1 = 0

:math:`c_i` has a column for each number and one for each level of a category. T makes the columns of D
orthogonal and of mean square 1 over the rows of the fit, so that effects are drawn without a care for the
units of the covariates or for how they depend on each other, and intercepts are those of an average row.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np
import pandas as pd

from .._utils.wording import listed
from .columns import as_frame, check_order, row_names
from .views import SEPARATOR, as_one_table, obs_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from .._utils.types import TableLike

__all__ = [
    "ARRAYS",
    "ROLES",
    "Design",
    "Term",
    "check_orders",
    "design_of",
    "features_of",
    "least_squares",
    "level_names",
    "named_columns",
    "names_of",
    "rows_of",
    "taken_out",
]

ARRAYS = ("centre", "basis")  # of a `Design`, in a file
ROLES = ("covariates", "groups")  # arguments of `fit`; groups are categories whatever they hold
_SAME = 1e-8  # of a column's standard deviation: what the others leave of a combination of them
_LEAST_SIZE, _MOST_SIZE = 1e-140, 1e140  # of numbers whose squares have a sum
_NAMED = 6  # covariates in a message
_LEFT = 10  # rows, at least, beside those that effects could fit exactly


class Term(NamedTuple):
    """A covariate.

    Attributes
    ----------
    name : str
    role : {"covariates", "groups"}
        The argument that it came by.
    levels : tuple of str
        Of a category; empty for a number.
    """

    name: str
    role: str
    levels: tuple[str, ...] = ()

    @property
    def width(self) -> int:
        """Columns before they are made orthogonal."""
        return len(self.levels) or 1


@dataclass(frozen=True, eq=False)
class Design:
    """How covariates become the columns of a design matrix.

    Attributes
    ----------
    terms : tuple of Term
    centre : ndarray (column,)
        Means of the columns of all terms, over the rows of the fit.
    basis : ndarray (column, effect)
        T.
    n_rows : int
        Of the fit.
    taken : tuple of str
        Names of terms that were columns of the table itself.
    """

    terms: tuple[Term, ...]
    centre: NDArray[np.float64]
    basis: NDArray[np.float64]
    n_rows: int
    taken: tuple[str, ...] = ()

    @property
    def n_effects(self) -> int:
        """Columns of the design matrix."""
        return self.basis.shape[1]

    @property
    def freedom(self) -> float:
        """Share of the rows' degrees of freedom that effects leave."""
        return 1 - self.n_effects / self.n_rows

    def rows(self, columns: NDArray[np.float64]) -> NDArray[np.float64]:
        """The design matrix (row, effect) of coded rows (row, column); NaN stands for the average."""
        return np.nan_to_num(columns - self.centre) @ self.basis

    def coded(self, rows: NDArray[np.float64]) -> NDArray[np.float64]:
        """The coded columns less their means, (row, column), that rows of the design matrix are of.

        Parameters
        ----------
        rows : ndarray (row, effect)
        """
        scale = np.maximum(np.linalg.norm(self.basis, axis=1), 1e-300)[:, None]  # units differ by magnitudes
        # Of a category's columns one is 1 and the others are 0: less their means they sum to 0.
        widths = [term.width for term in self.terms]
        sums = np.repeat(np.eye(len(widths)), widths, 0)[:, [bool(term.levels) for term in self.terms]]
        known = np.concatenate([self.basis / scale, sums / scale], 1)
        values = np.concatenate([rows, np.zeros((len(rows), sums.shape[1]))], 1)
        columns: NDArray[np.float64] = np.linalg.lstsq(known.T, values.T, rcond=None)[0].T / scale.T
        return columns

    def contrasts(self) -> tuple[list[str], NDArray[np.float64]]:
        """What effects are reported of, and the design of each, (contrast, effect).

        Of a number its unit, of a category each level against the average row, all else equal.
        """
        names, rows, at = [], [], 0
        for term in self.terms:
            here = slice(at, at + term.width)
            if term.levels:
                names += [f"{term.name} = {level}" for level in term.levels]
                rows.append((np.eye(term.width) - self.centre[here]) @ self.basis[here])
            else:
                names.append(term.name)
                rows.append(self.basis[here])
            at += term.width
        return names, np.concatenate(rows)

    def as_dict(self) -> dict[str, Any]:
        """What a file keeps beside `centre` and `basis`, of what JSON knows."""
        terms = [[term.name, term.role, list(term.levels)] for term in self.terms]
        return {"terms": terms, "n_rows": self.n_rows, "taken": list(self.taken)}

    @classmethod
    def of_dict(
        cls, about: Mapping[str, Any], centre: NDArray[np.float64], basis: NDArray[np.float64]
    ) -> Design:
        """From `as_dict`.

        Parameters
        ----------
        about : mapping
        centre, basis : ndarray
            As the attributes.
        """
        terms = tuple(Term(name, role, tuple(levels)) for name, role, levels in about["terms"])
        return cls(terms, centre, basis, int(about["n_rows"]), tuple(about["taken"]))


# ---- what the caller gave ----------------------------------------------------------------------------------
def _columns_by_name(data: Any, role: str, names: Iterable[str]) -> pd.DataFrame:
    """Columns of a table, of an AnnData's obs or of a MuData's, of the table's rows and in their order."""
    frame, obs = data if isinstance(data, pd.DataFrame) else None, obs_of(data)
    columns = []
    for name in names:
        in_obs = obs is not None and name in obs.columns
        if frame is not None and name in frame.columns:
            if in_obs:
                raise ValueError(
                    f"{role}: {name!r} is a column of the joined views and of obs; give the values, "
                    f"mdata.obs[{name!r}].loc[pyro_sparse.join_views(mdata).index], or rename one of them"
                )
            columns.append(frame[name])
        elif obs is not None and in_obs:
            columns.append(obs[name] if frame is None else _by_row(role, obs[name], frame.index))
        else:
            raise ValueError(f"{role}: X has no column {name!r}; {_what_there_is(name, frame, obs)}")
    return pd.concat(columns, axis=1)


def _by_row(role: str, column: pd.Series, rows: pd.Index) -> pd.Series:
    """A column of a MuData's obs, by the names of the joined rows."""
    if column.index.has_duplicates:
        again = column.index[column.index.duplicated()][0]
        raise ValueError(f"{role}: obs has the row {again!r} twice; wanted each once, to be found by name")
    absent = rows.difference(column.index, sort=False)
    if len(absent):
        raise ValueError(
            f"{role}: obs has no row {absent[0]!r}, which a view has, {len(absent)} such row(s) in all; "
            f"wanted {column.name!r} of every row: add them to obs, or give the values by row"
        )
    return column.loc[rows]


def _what_there_is(name: str, frame: pd.DataFrame | None, obs: pd.DataFrame | None) -> str:
    """What to give instead of a name that is not there."""
    first = frame if frame is not None else cast(pd.DataFrame, obs)
    words = f"it has {', '.join(map(str, first.columns[:8]))}" + " …" * (first.shape[1] > 8)
    if frame is None:
        return words
    if obs is not None:
        words += f"; obs has {', '.join(map(str, obs.columns[:8])) or 'none'}" + " …" * (obs.shape[1] > 8)
    every = [*frame.columns, *([] if obs is None else obs.columns)]
    alike = [str(column) for column in every if str(column).endswith(f"{SEPARATOR}{name}")]
    if alike:
        return f"{words}; columns of views are called by both names: {alike[0]!r}, or give a Series by row"
    if all(SEPARATOR in str(column) for column in frame.columns):
        beside = "mdata.pull_obs() adds them to that of the MuData" if obs is not None else "a MuData has one"
        words += f"; obs of single views is not read ({beside}): give values by row, in the order of "
        words += "pyro_sparse.join_views(X).index"
    return words


def taken_out(
    data: TableLike, given: Mapping[str, Any], taken: Iterable[str] = ()
) -> tuple[TableLike, dict[str, Any], tuple[str, ...]]:
    """The table without covariates that are columns of its own, and all covariates by role.

    Parameters
    ----------
    data : array_like (row, feature), DataFrame, AnnData or views
        Of an AnnData names are those of `obs`, of a MuData those of its columns, "view:feature", and of `obs`
        of all rows, which are matched by name.
    given : mapping of str to any
        By role: names of columns, or values.
    taken : iterable of str
        Columns that the fit took out of its own table: they are looked for where nothing is given.

    Returns
    -------
    data : the same without these columns
    given : dict
    taken : tuple of str
        What was taken out.

    Raises
    ------
    ValueError
        No column has that name, or one of the views and one of `obs`; `obs` lacks a row that a view has.
    TypeError
        Names, and the table has none.
    """
    data = as_frame(as_one_table(data))
    here = {role: values for role, values in given.items() if values is not None}
    is_named = isinstance(data, pd.DataFrame) or obs_of(data) is not None
    names = {role: named_columns(values, data) for role, values in here.items()}
    gone: list[str] = []
    for role, wanted in names.items():
        if wanted is None:
            continue
        if not is_named:
            raise TypeError(
                f"{role}: got the name {wanted[0]!r}, and X has no names of columns; give the values "
                "themselves, one for each row"
            )
        here[role] = _columns_by_name(data, role, wanted)
        gone += wanted
    left = [name for name in taken if name not in gone and name in _names_in(data)]
    # before what is given: of two the caller's own word counts
    here = {**{name: _columns_by_name(data, name, [name])[name] for name in left}, **here}
    gone += left
    if isinstance(data, pd.DataFrame) and gone:
        data = data.drop(columns=[name for name in dict.fromkeys(gone) if name in data.columns])
    return data, here, tuple(dict.fromkeys(gone))


def _names_in(data: Any) -> set[Any]:
    """All that columns can be called by: those of a table and of obs."""
    obs = obs_of(data)
    names = set() if obs is None else set(obs.columns)
    return names | set(data.columns) if isinstance(data, pd.DataFrame) else names


def features_of(data: TableLike, taken: tuple[str, ...]) -> TableLike:
    """A table without the columns that the fit took for something else than features.

    Parameters
    ----------
    data : array_like (row, feature), DataFrame or AnnData
    taken : tuple of str
        `Table.taken` of the fit.
    """
    return taken_out(data, {}, taken)[0] if taken else data


def names_of(values: Any) -> list[str] | None:
    """Names of columns, if that is what was given: a string, or a list of less than ten strings.

    Parameters
    ----------
    values : any
    """
    if isinstance(values, str):
        return [values]
    short = isinstance(values, list | tuple) and 0 < len(values) < 10
    return list(values) if short and all(isinstance(value, str) for value in values) else None


def named_columns(values: Any, data: Any) -> list[str] | None:
    """`names_of`, unless a list of strings is one level for each row.

    Parameters
    ----------
    values : any
    data : array_like (row, feature), DataFrame or AnnData
    """
    names = names_of(values)
    if names is None or isinstance(values, str):
        return names
    there = set(names) <= _names_in(data)
    n_rows = data.shape[0] if hasattr(data, "shape") else len(data)
    return names if there or len(names) != n_rows else None


def design_of(
    given: Mapping[str, Any], n_rows: int, samples: list[str] | None, taken: tuple[str, ...] = ()
) -> tuple[Design, NDArray[np.float64]]:
    """How the covariates of a fit are coded, and its design matrix (row, effect).

    Parameters
    ----------
    given : mapping of str to DataFrame, Series, mapping or array
        Values by role.
    n_rows : int
    samples : list of str or None
        Names of the table's rows.
    taken : tuple of str
        From `taken_out`.

    Raises
    ------
    TypeError, ValueError
        Not one value for each row; a missing one; a column that is constant or a combination of the others;
        a group of one row; more effects than rows can bear.
    """
    terms: list[Term] = []
    columns: list[NDArray[np.float64]] = []
    for role, values in given.items():
        for name, column in _series(role, values, n_rows, samples):
            if name in [term.name for term in terms]:
                raise ValueError(f"{role}: {name!r} is there twice; give it once")
            term = _term(name, role, column)
            terms.append(term)
            columns.append(_coded(term, column))
    raw = np.concatenate(columns, 1)
    centre = raw.mean(0)
    orthogonal = _orthogonal(terms, raw - centre)
    if (most := n_rows - 1 - _LEFT) < orthogonal.shape[1]:
        raise ValueError(
            f"covariates, groups: have {orthogonal.shape[1]} effects for {n_rows} rows, wanted at most "
            f"{max(most, 0)}; join groups, or leave some out"
        )
    scale = raw.std(0)
    basis = np.linalg.pinv((raw - centre) / scale) @ orthogonal / scale[:, None]
    design = Design(tuple(terms), centre, basis, n_rows, taken)
    return design, design.rows(raw)


def rows_of(
    design: Design, given: Mapping[str, Any], n_rows: int, samples: list[str] | None
) -> NDArray[np.float64]:
    """The design matrix (row, effect) of new rows.

    Parameters
    ----------
    design : Design
        Of the fit.
    given : mapping of str to any
        Values by role, or by the name of a term. A missing value stands for the average row of the fit.
    n_rows : int
    samples : list of str or None

    Raises
    ------
    TypeError, ValueError
        Not one value for each row; a covariate that is not there, or one that the fit does not know; a level
        that it has not seen.
    """
    known = {term.name for term in design.terms}
    by_name = {}
    for role, values in given.items():
        for name, column in _series(role, values, n_rows, samples):
            of_role = [term.name for term in design.terms if term.role == role]
            nameless = name == role.removesuffix("s") and len(of_role) == 1
            by_name[of_role[0] if nameless else name] = role, column
    if strange := [name for name in by_name if name not in known]:
        raise ValueError(
            f"{by_name[strange[0]][0]}: {strange[0]!r} is none of the fit's; it has "
            f"{', '.join(map(repr, sorted(known)))}"
        )
    columns = []
    for term in design.terms:
        if term.name not in by_name:
            raise ValueError(
                f"{term.role}: {term.name!r} is not there, and the fit was given its rows'; give those of "
                "these rows (NaN stands for the average row)"
            )
        columns.append(_coded(term, by_name[term.name][1]))
    return design.rows(np.concatenate(columns, 1))


def least_squares(cells: NDArray[np.float64], design: NDArray[np.float64]) -> NDArray[np.float64]:
    """Effects (effect, feature) on columns, by least squares of the cells that were seen.

    Parameters
    ----------
    cells : ndarray (row, feature)
        NaN where missing.
    design : ndarray (row, effect)
    """
    framed = np.concatenate([np.ones((len(design), 1)), design], 1)
    seen = ~np.isnan(cells)
    patterns, number = np.unique(seen.T, axis=0, return_inverse=True)
    effects = np.zeros((design.shape[1], cells.shape[1]))
    for i, pattern in enumerate(patterns):
        at = number.reshape(-1) == i
        effects[:, at] = np.linalg.lstsq(framed[pattern], cells[pattern][:, at], rcond=None)[0][1:]
    return effects


def check_orders(role: str, values: Any, samples: list[str] | None) -> None:
    """`check_order` of an argument that may be a mapping of columns.

    Parameters
    ----------
    role : str
    values : any
    samples : list of str or None
        Names of the table's rows.
    """
    parts = {f"{role}[{name!r}]": v for name, v in values.items()} if isinstance(values, Mapping) else None
    for name, part in (parts or {role: values}).items():
        check_order(name, row_names(part), samples)


# ---- coding ------------------------------------------------------------------------------------------------
def _series(role: str, values: Any, n_rows: int, samples: list[str] | None) -> list[tuple[str, pd.Series]]:
    """Named columns of an argument."""
    check_orders(role, values, samples)
    alone = role.removesuffix("s")
    if isinstance(values, Mapping):
        values = pd.DataFrame({str(name): pd.Series(v).reset_index(drop=True) for name, v in values.items()})
    values = as_frame(values)
    if isinstance(values, pd.Series):
        values = values.to_frame(alone if values.name is None else str(values.name))
    if not isinstance(values, pd.DataFrame):
        array = np.asarray(values)
        if array.ndim == 1:
            values = pd.DataFrame({alone: array})
        elif array.ndim == 2:
            names = [alone] if array.shape[1] == 1 else [f"{alone} {j + 1}" for j in range(array.shape[1])]
            values = pd.DataFrame(array, columns=names)
        else:
            raise ValueError(f"{role}: has shape {array.shape}, wanted one value for each row, or a table")
    if len(values) != n_rows:
        raise ValueError(f"{role}: has {len(values)} rows, and X has {n_rows}; give one value for each row")
    if not values.shape[1]:
        raise ValueError(f"{role}: has no columns; give some, or leave it out")
    return [(str(name), values.iloc[:, j]) for j, name in enumerate(values.columns)]


def _term(name: str, role: str, column: pd.Series) -> Term:
    """What a covariate is: a number, or a category with the levels that are there."""
    missing = column.isna().to_numpy()
    if missing.any():
        raise ValueError(
            f"{role}: {name!r} is missing in row {int(missing.argmax())}; a fit wants it of every row: leave "
            "such rows out, or give them a value or a level of their own"
        )
    kind = column.dtype
    if pd.api.types.is_datetime64_any_dtype(kind) or pd.api.types.is_complex_dtype(kind):
        raise TypeError(f"{role}: {name!r} holds {kind}, wanted numbers or categories; make it one of them")
    numbers = pd.api.types.is_numeric_dtype(kind) and not pd.api.types.is_bool_dtype(kind)
    if role == "covariates" and numbers:
        values = column.to_numpy(dtype=float)
        if not np.isfinite(values).all():
            i = int((~np.isfinite(values)).argmax())
            raise ValueError(f"{role}: {name!r} is {values[i]:g} in row {i}, wanted finite numbers")
        largest, spread = np.abs(values).max(), np.ptp(values)
        if spread == 0:
            raise ValueError(f"{role}: {name!r} is {values[0]:g} in every row; leave it out")
        if spread <= _SAME * largest:
            raise ValueError(
                f"{role}: {name!r} differs by {spread:.2g} between rows, of numbers up to {largest:.2g}, "
                "too little for their digits; subtract its mean"
            )
        if spread < _LEAST_SIZE or largest > _MOST_SIZE:
            raise ValueError(
                f"{role}: {name!r} has numbers up to {largest:.2g} that differ by {spread:.2g}, beyond what "
                "can be squared; give it in other units"
            )
        return Term(name, role)
    words = level_names(column)
    counts = words.value_counts()
    ordered = sorted(counts.index)
    if isinstance(kind, pd.CategoricalDtype):
        ordered = [str(level) for level in kind.categories]
    levels = tuple(level for level in ordered if counts.get(level, 0))
    if len(levels) < 2:
        raise ValueError(f"{role}: {name!r} is {levels[0]!r} in every row; leave it out")
    if single := [level for level in levels if counts[level] == 1]:
        row = int((words == single[0]).to_numpy().argmax())
        more = f" (and {len(single) - 1} more like it)" if len(single) > 1 else ""
        raise ValueError(
            f"{role}: {name!r} has one row with the level {single[0]!r}, row {row}{more}; an effect of its "
            "own would fit that row exactly: join it with another level, or leave the row out"
        )
    return Term(name, role, levels)


def level_names(column: pd.Series) -> pd.Series:
    """Levels as text; whole numbers without a point, so that 1 and 1.0 are one level.

    Parameters
    ----------
    column : Series
    """

    def word(value: object) -> object:
        whole = isinstance(value, float | np.floating) and float(value).is_integer()
        return str(int(value)) if whole else str(value)  # type: ignore[call-overload]

    return column.astype(object).map(word, na_action="ignore")


def _coded(term: Term, column: pd.Series) -> NDArray[np.float64]:
    """A number, or a column of 0 and 1 for each level; NaN where missing: (row, column)."""
    if not term.levels:
        try:
            return column.to_numpy(dtype=float, na_value=np.nan)[:, None]
        except (TypeError, ValueError) as error:
            raise TypeError(
                f"{term.role}: {term.name!r} was numbers in the fit, and here it is not ({error})"
            ) from error
    words = level_names(column)
    strange = words.notna() & ~words.isin(term.levels)
    if strange.any():
        row = int(strange.to_numpy().argmax())
        known = ", ".join(map(repr, term.levels[:6])) + (" …" if len(term.levels) > 6 else "")
        raise ValueError(
            f"{term.role}: {term.name!r} is {words.iloc[row]!r} in row {row}, a level that the fit has not "
            f"seen ({known}); NaN stands for the average row, and a new level needs a new fit"
        )
    coded = np.stack([(words == level).to_numpy(dtype=float) for level in term.levels], 1)
    coded[words.isna().to_numpy()] = np.nan
    return coded


def _orthogonal(terms: list[Term], centred: NDArray[np.float64]) -> NDArray[np.float64]:
    """Orthogonal columns of mean square 1 that span all terms (row, effect), one term after the other."""
    n = len(centred)
    basis, at = np.zeros((n, 0)), 0
    for i, term in enumerate(terms):
        columns = centred[:, at : at + term.width]
        at += term.width
        columns = columns / columns.std(0)
        left = columns - basis @ (basis.T @ columns) / n
        left = left - basis @ (basis.T @ left) / n  # again, for what rounding left
        u, s, _ = np.linalg.svd(left, full_matrices=False)
        rank, wanted = int((s > _SAME * np.sqrt(n)).sum()), max(len(term.levels) - 1, 1)
        if rank < wanted:
            before = [repr(other.name) for other in terms[:i]]
            more = [f"{len(before) - _NAMED} more"] if len(before) > _NAMED else []
            others = listed([*before[:_NAMED], *more]) if before else "the others"
            raise ValueError(
                f"{term.role}: {term.name!r} follows from {others}, in all rows or at one of its levels; "
                "leave it out, or join levels"
            )
        basis = np.concatenate([basis, np.sqrt(n) * u[:, :wanted]], 1)
    return basis
