r"""Columns of several kinds in one table, each under the likelihood that suits it.

.. math:: \log p(x_i \mid f_i) = \sum_k \sum_{j \in J_k} \log p_k(x_{ij} \mid f_{ij})

Columns of one likelihood are looked at together (`parts`), so that a table of three kinds costs about what
one of its dearest kind does. Which column is of which is known once the table is (`for_columns`); from then
on the keys are positions.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import numpy as np
import pyro.distributions as dist
import torch
from pyro.distributions.torch_distribution import TorchDistribution
from torch import Tensor, nn
from torch.distributions import Distribution, constraints

from .._utils.declared import keeps
from .._utils.recorded import describe
from .auto import Auto
from .base import CELL_TERMS, CELLS, NOTHING, Column, Likelihood, PerRow, Slopes
from .column_keys import keys_of, read_key
from .counts import NegativeBinomial, Poisson
from .families import family
from .given_cells import ArrayT, column_numbers, filled, in_kind
from .hurdle import HurdleNegativeBinomial, HurdlePoisson
from .zero_inflated import ZeroInflatedNegativeBinomial

if TYPE_CHECKING:
    import numpy.typing as npt

__all__ = ["Columns", "Key", "LikelihoodLike"]

_OF_COUNTS = {
    cls.name: cls
    for cls in (
        Poisson, NegativeBinomial, ZeroInflatedNegativeBinomial, HurdlePoisson, HurdleNegativeBinomial
    )
}  # fmt: skip
_NUMBERS = 2  # of a `feature_statistic`, at least: those of normal columns have so many
Key: TypeAlias = str | int | type | tuple[str | int, ...]
# What `get_likelihood` takes; of keys Any, for a mapping from text alone is no mapping from `Key`.
LikelihoodLike: TypeAlias = str | Likelihood | Mapping[Any, str | Likelihood]


class Columns(Likelihood):
    """Each column of a table under its own likelihood.

    Parameters
    ----------
    likelihoods : mapping
        From columns to a likelihood, a name or an instance. Columns are a name or a pattern ("grade*"), a
        position, a tuple of these, or ``bool``, ``int`` or ``float`` for all columns of that type; "*" are
        those that no other key names. "auto" leaves columns to `for_columns` of `Auto`.

    Attributes
    ----------
    parts : ModuleList of Likelihood
        Empty until the columns are known.
    columns : list of list of int
        The columns of each part.

    Raises
    ------
    TypeError, ValueError
        No mapping, or an empty one; a key or a likelihood that is none.

    Notes
    -----
    Counts have no depth here, for the totals of a few columns of counts are no depth: rows have an exposure
    where the caller gives one. Rows of shares ("multinomial", "categorical") are no columns.

    Examples
    --------
    >>> likelihood = Columns({(0, 1): "normal", 2: "bernoulli"})
    >>> likelihood.setup(3)
    >>> [part.name for part in likelihood.parts], likelihood.columns
    (['normal', 'bernoulli'], [[0, 1], [2]])
    """

    declares = (CELLS, CELL_TERMS)
    name = "columns"
    reads_columns = True

    def __init__(self, likelihoods: Mapping[Key, str | Likelihood]) -> None:
        super().__init__()
        if not isinstance(likelihoods, Mapping) or not likelihoods:
            raise TypeError(
                f"likelihood: got {likelihoods!r}, wanted a mapping such as "
                '{"age": "normal", "q*": "ordinal"}'
            )
        self.given = {read_key(key): _part(likelihood, key) for key, likelihood in likelihoods.items()}
        if len(self.given) < len(likelihoods):
            raise ValueError(f"likelihood: two keys of {list(likelihoods)} mean the same; leave one of them")
        self.parts = nn.ModuleList()
        self.columns: list[list[int]] = []
        positions: list[Any] = [j for key in self.given for j in key]
        if all(type(j) is int for j in positions) and sorted(positions) == list(range(len(positions))):
            self.parts = nn.ModuleList(self.given.values())
            self.columns = [list(key) for key in self.given]

    # ---- which column is of which ------------------------------------------------------------------------
    def for_columns(self, columns: Sequence[Column]) -> Likelihood:
        """The likelihood whose keys are positions; that of all columns, if it is one.

        Parameters
        ----------
        columns : sequence of Column

        Raises
        ------
        ValueError
            A key that no column has; a column that has no key, or two; kinds that "auto" cannot know.
        """
        of_key: dict[tuple[Any, ...], list[int]] = {}
        for j, key in enumerate(keys_of(columns, list(self.given))):
            of_key.setdefault(key, []).append(j)
        for key, members in of_key.items():  # names in a tuple have the order of the tuple
            place = {member: at for at, member in enumerate(key)}
            members.sort(key=lambda j: place.get(columns[j].name, place.get(j, len(place))))
        groups: dict[object, tuple[Likelihood, list[int]]] = {}
        for key, members in of_key.items():
            for j, likelihood in zip(
                members, self.given[key].choose([columns[j] for j in members]), strict=True
            ):
                groups.setdefault(_description(likelihood), (likelihood, []))[1].append(j)
        bound: dict[Key, str | Likelihood] = {
            tuple(members): copy.deepcopy(likelihood).for_columns([columns[j] for j in members])
            for likelihood, members in groups.values()
        }
        alone = len(bound) == 1
        return cast("Likelihood", next(iter(bound.values()))) if alone else Columns(bound)

    def chosen(self, columns: Sequence[Column]) -> dict[str, list[str]]:
        by_kind: dict[str, list[str]] = {}
        of_auto = [
            column
            for column, key in zip(columns, keys_of(columns, list(self.given)), strict=True)
            if isinstance(self.given[key], Auto)
        ]
        for column, likelihood in zip(of_auto, Auto().choose(of_auto), strict=True):
            by_kind.setdefault(likelihood.name, []).append(column.name)
        return by_kind

    @property
    def labels(self) -> tuple[tuple[str, ...] | None, ...]:  # type: ignore[override]
        """Words for the levels of each column, where it has any."""
        every: dict[int, tuple[str, ...] | None] = {}
        for part, columns in self._each():
            of_part = part.labels or (None,) * len(columns)
            every.update(zip(columns, of_part, strict=True))
        return tuple(every[j] for j in range(len(every)))

    def _parts(self) -> list[Likelihood]:
        return [cast("Likelihood", part) for part in self.parts]

    def _each(self) -> Iterator[tuple[Likelihood, list[int]]]:
        if not self.columns:
            raise ValueError(
                f"likelihood: which columns {list(self.given)} are is known once there is a table in memory "
                "that has their names; give positions, as in {(0, 1): 'normal', 2: 'bernoulli'}"
            )
        return zip(self._parts(), self.columns, strict=True)

    def _split(self, values: ArrayT, dim: int = -1) -> list[ArrayT]:
        """What belongs to the columns of each part."""
        if isinstance(values, np.ndarray):
            return [np.take(values, columns, dim) for _, columns in self._each()]
        return [values.index_select(dim, index) for index in self._index(values.device)]

    def _index(self, device: torch.device) -> list[Tensor]:
        cached: dict[torch.device, list[Tensor]] = self.__dict__.setdefault("_indices", {})
        if device not in cached:
            cached[device] = [torch.tensor(columns, device=device) for _, columns in self._each()]
        return cached[device]

    def _join(self, values: Sequence[Tensor], dim: int = -1) -> Tensor:
        """Columns of the parts, in their order in the table."""
        whole = torch.cat(list(values), dim)
        order = torch.cat(self._index(whole.device)).argsort()
        return whole.index_select(dim, order)

    def _joined_array(self, values: Sequence[np.ndarray]) -> np.ndarray:
        return np.concatenate(values, -1)[..., np.argsort(np.concatenate(self.columns))]

    def families(self) -> list[tuple[Likelihood, list[int] | None]]:
        return list(self._each())

    # ---- the table ---------------------------------------------------------------------------------------
    def check(self, x: np.ndarray, feature_names: Sequence[str] | None = None) -> None:
        x = column_numbers(x, feature_names)
        names = [f"column {j}" for j in range(x.shape[1])] if feature_names is None else list(feature_names)
        self._check_width(x.shape[1])
        for part, columns in self._each():
            part.check(x[:, columns], [names[j] for j in columns])

    def as_recorded(self, cells: np.ndarray) -> np.ndarray:
        split = zip(self._parts(), self._split(cells), strict=True)
        return self._joined_array([part.as_recorded(of_part) for part, of_part in split])

    def _check_width(self, n_features: int) -> None:
        known = sum(len(columns) for _, columns in self._each())
        if known != n_features:
            raise ValueError(f"likelihood: speaks of {known} columns, and there are {n_features}")

    def calibrate(self, x: npt.ArrayLike | Tensor, mask: npt.ArrayLike | Tensor | None = None) -> None:
        cells, observed = filled(x, mask)
        for part, of_part, seen in zip(self._parts(), self._split(cells), self._split(observed), strict=True):
            part.calibrate(torch.where(seen, of_part, torch.nan))

    def calibrate_by(
        self, mean: Tensor, totals: Callable[[], Tensor], some: Callable[[Tensor], Tensor]
    ) -> None:
        raise ValueError(
            "likelihood: a table that is read by rows has one likelihood for all columns; take fewer rows, "
            "so that it is held in memory"
        )

    def units(self, cells: np.ndarray, standardise: bool) -> tuple[np.ndarray, np.ndarray]:
        units = [
            part.units(of_part, standardise)
            for part, of_part in zip(self._parts(), self._split(np.asarray(cells)), strict=True)
        ]
        centre, scale = zip(*units, strict=True)
        return self._joined_array(centre), self._joined_array(scale)

    def is_standardised(self, n_features: int) -> np.ndarray:
        return self._joined_array([part.is_standardised(len(columns)) for part, columns in self._each()])

    def encoder_view(self, x: Tensor, per_row: PerRow = NOTHING) -> Tensor:
        views = [part.encoder_view(p, per_row) for part, p in zip(self._parts(), self._split(x), strict=True)]
        return self._join(views)

    @property
    def per_row_inputs(self) -> tuple[str, ...]:  # type: ignore[override]
        parts = self._parts() if self.columns else list(self.given.values())
        return tuple(dict.fromkeys(name for part in parts for name in part.per_row_inputs))

    def check_per_row(self, name: str, values: np.ndarray) -> None:
        for part in self._parts():
            if name in part.per_row_inputs:
                part.check_per_row(name, values)

    def typical(self, name: str, values: np.ndarray) -> float:
        return next(
            (part.typical(name, values) for part in self._parts() if name in part.per_row_inputs), 1.0
        )

    def amount(self, per_row: PerRow) -> Tensor | None:
        amounts = (part.amount(per_row) for part in self._parts())
        return next((amount for amount in amounts if amount is not None), None)

    def note_per_row(self, given: Collection[str]) -> None:
        for part in self._parts():
            part.note_per_row(given)

    # ---- parameters --------------------------------------------------------------------------------------
    def setup(self, n_features: int, n_restarts: int = 1) -> None:
        self._check_width(n_features)
        for part, columns in self._each():
            part.setup(len(columns), n_restarts)

    def start(self, x: ArrayT, mask: ArrayT | None = None) -> ArrayT:
        cells, observed = filled(x, mask)
        starts = [
            part.start(of_part, seen)
            for part, of_part, seen in zip(
                self._parts(), self._split(cells), self._split(observed), strict=True
            )
        ]
        return in_kind(self._join(starts), x)

    def start_noise(self, residual_sd: Tensor, where: Tensor | None = None) -> None:
        wheres = [None] * len(self._parts()) if where is None else self._split(where)
        for part, sd, at in zip(self._parts(), self._split(residual_sd), wheres, strict=True):
            part.start_noise(sd, at)

    def priors(self) -> dict[str, dist.Distribution]:
        return {f"{name}_{q}": p for name, part in self._named() for q, p in part.priors().items()}

    def values(self) -> dict[str, Tensor]:
        return {f"{name}_{q}": v for name, part in self._named() for q, v in part.values().items()}

    def _named(self) -> list[tuple[str, Likelihood]]:
        """Parts under names of their own."""
        names = [part.name or type(part).__name__ for part in self._parts()]
        return [
            (name if names.count(name) == 1 else f"{name}{names[: i + 1].count(name)}", part)
            for i, (name, part) in enumerate(zip(names, self._parts(), strict=True))
        ]

    def dispersion_parameters(self) -> tuple[str, ...]:
        if not self.has_dispersion:
            return ()
        return tuple(
            f"parts.{i}.{name}"
            for i, part in enumerate(self._parts())
            for name in part.dispersion_parameters()
        )

    # ---- the density -------------------------------------------------------------------------------------
    def forward(self, f: Tensor, per_row: PerRow = NOTHING) -> dist.Distribution:
        cells = [part(of_part, per_row) for part, of_part in zip(self._parts(), self._split(f), strict=True)]
        return _JoinedCells(cells, self.columns, f.shape)

    def mean(self, f: Tensor, per_row: PerRow = NOTHING) -> Tensor:
        return self._join(
            [part.mean(p, per_row) for part, p in zip(self._parts(), self._split(f), strict=True)]
        )

    @property
    def _in_closed_form(self) -> bool:
        return all(keeps(part, "cell terms") for part in self._parts())

    @property
    def has_dispersion(self) -> bool:  # type: ignore[override]
        return self._in_closed_form and any(part.has_dispersion for part in self._parts())

    def cell_terms(
        self, f: Tensor, x: Tensor, dispersion: Tensor, per_row: PerRow, order: int
    ) -> tuple[Tensor, ...] | None:
        if not self._in_closed_form:
            return None
        terms = []
        parts = zip(
            self._parts(), self._split(f, -2), self._split(x, -2), self._split(dispersion), strict=True
        )
        for part, of_f, of_x, of_dispersion in parts:
            of_part = part.cell_terms(of_f, of_x, of_dispersion, per_row, order)
            if of_part is None:
                return None
            terms.append([term.expand_as(of_f) for term in of_part])
        return tuple(self._join(term, -2) for term in zip(*terms, strict=True))

    def log_base(self, x: Tensor, dispersion: Tensor) -> Tensor:
        parts = zip(self._parts(), self._split(x, -2), self._split(dispersion), strict=True)
        n_chains = max(len(x), len(dispersion))
        logs = [part.log_base(p, d).expand(n_chains, *p.shape[1:]) for part, p, d in parts]
        return self._join(logs, -2)

    def dispersion(self) -> Tensor:
        """Of each column that has one; 1 of others."""
        n_restarts = max((len(p) for p in self.parameters()), default=1)
        return self._join([
            part.dispersion() if part.has_dispersion else torch.ones(n_restarts, len(columns))
            for part, columns in self._each()
        ])  # fmt: skip

    def variance_beside(self, dispersion: Tensor | None = None) -> Tensor:
        """Of each part's columns its own."""
        pieces = [None] * len(self._parts()) if dispersion is None else self._split(dispersion)
        variances = [part.variance_beside(piece) for part, piece in zip(self._parts(), pieces, strict=True)]
        n_restarts = max((len(v) for v in variances if isinstance(v, Tensor)), default=1)
        return self._join([
            torch.as_tensor(variance).expand(n_restarts, len(columns))
            for variance, columns in zip(variances, self.columns, strict=True)
        ])  # fmt: skip

    def log_dispersion_prior(self, dispersion: Tensor) -> Tensor:
        """Of columns that have none a density that no cell depends on: its logarithm is standard normal."""
        return self._join([
            part.log_dispersion_prior(d)
            if part.has_dispersion
            else -0.5 * d.double().log().square() - 0.5 * d.double().log()
            for part, d in zip(self._parts(), self._split(dispersion), strict=True)
        ])  # fmt: skip

    def slopes(
        self,
        f: Tensor,
        x: Tensor,
        mask: Tensor | None = None,
        per_row: PerRow = NOTHING,
        of_cells: float = 1.0,
        of_priors: float = 1.0,
    ) -> Slopes:
        """`Likelihood.slopes`, each part by its own."""
        masks = [None] * len(self._parts()) if mask is None else self._split(mask)
        terms: dict[str, Tensor] = {}
        by_f, by_parameters, rows = [], [], []
        pieces = zip(self._named(), self._split(f), self._split(x), masks, strict=True)
        for (name, part), of_f, of_x, of_mask in pieces:
            slopes = part.closed_slopes()(of_f, of_x, of_mask, per_row, of_cells, of_priors)
            rows.append(slopes.terms["x"])
            terms |= {f"{name}_{quantity}": t for quantity, t in slopes.terms.items() if quantity != "x"}
            by_f.append(slopes.by_f)
            by_parameters += slopes.by_parameters
        return Slopes({"x": torch.stack(rows).sum(0), **terms}, self._join(by_f), by_parameters)

    def feature_statistic(
        self,
        f: Tensor,
        reference: Tensor,
        x: Tensor,
        mask: Tensor | None = None,
        per_row: PerRow = NOTHING,
    ) -> Tensor:
        """Of each part its own, padded with zeros to as many numbers."""
        cells, observed = filled(x, mask)
        pieces = zip(
            self._parts(), *(self._split(values) for values in (f, reference, cells, observed)), strict=True
        )
        statistics = [
            part.feature_statistic(g, h, c, seen, per_row).reshape(len(g), g.shape[-1], -1)
            for part, g, h, c, seen in pieces
        ]
        most = max(_NUMBERS, *(statistic.shape[-1] for statistic in statistics))
        return self._join([nn.functional.pad(s, (0, most - s.shape[-1])) for s in statistics], -2)

    def feature_gain(self, full: Tensor, reduced: Tensor) -> Tensor:
        pieces = zip(self._parts(), self._split(full, -2), self._split(reduced, -2), strict=True)
        gains = [part.feature_gain(of_full, of_reduced) for part, of_full, of_reduced in pieces]
        # where a part has one number, what follows it is padding
        return self._join([gain[..., 0] if gain.dim() == 3 else gain for gain in gains])

    def of_features(self, features: slice | Tensor) -> Likelihood | None:
        n_features = sum(map(len, self.columns))
        wanted = torch.arange(n_features)[
            features.cpu() if isinstance(features, Tensor) else features
        ].tolist()
        place = {j: (i, at) for i, columns in enumerate(self.columns) for at, j in enumerate(columns)}
        restricted: dict[tuple[int, ...], Likelihood] = {}
        for i, part in enumerate(self._parts()):
            here = [(new, place[j][1]) for new, j in enumerate(wanted) if place[j][0] == i]
            if not here:
                continue
            of_part = part.of_features(torch.tensor([at for _, at in here]))
            if of_part is None:
                return None
            restricted[tuple(new for new, _ in here)] = of_part
        return _bound(restricted)

    def __repr__(self) -> str:
        pairs = [(key[0] if len(key) == 1 else key, part.full_name) for key, part in self.given.items()]
        return f"Columns({', '.join(f'{key!r}: {name}' for key, name in pairs)})"


def _bound(parts: dict[tuple[int, ...], Likelihood]) -> Columns:
    columns = Columns.__new__(Columns)
    nn.Module.__init__(columns)
    columns.given, columns.parts = dict(parts), nn.ModuleList(parts.values())
    columns.columns = [list(key) for key in parts]
    return columns


class _JoinedCells(TorchDistribution):
    """Cells of columns of several kinds: batch shape (restart, row, feature)."""

    arg_constraints: dict[str, Any] = {}
    support = constraints.real

    def __init__(self, cells: Sequence[Any], columns: Sequence[Sequence[int]], shape: torch.Size) -> None:
        self.cells, self.columns = list(cells), [list(members) for members in columns]
        super().__init__(torch.Size(shape), validate_args=False)

    def _join(self, values: Sequence[Tensor]) -> Tensor:
        order = np.argsort(np.concatenate(self.columns))
        whole = torch.cat([value.to(values[0]) for value in values], -1)
        return whole[..., torch.as_tensor(order, device=whole.device)]

    def expand(self, batch_shape: Sequence[int], _instance: Distribution | None = None) -> _JoinedCells:
        """The same of a larger batch."""
        cells = [
            part.expand(torch.Size([*batch_shape[:-1], len(members)]))
            for part, members in zip(self.cells, self.columns, strict=True)
        ]
        return _JoinedCells(cells, self.columns, torch.Size(batch_shape))

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """Draws, shape ``sample_shape + (restart, row, feature)``."""
        return self._join([part.sample(torch.Size(sample_shape)) for part in self.cells])

    def log_prob(self, value: Tensor) -> Tensor:
        """Log density of each cell."""
        return self._join([
            part.log_prob(value[..., members])
            for part, members in zip(self.cells, self.columns, strict=True)
        ])  # fmt: skip

    @property
    def mean(self) -> Tensor:
        """Of each cell."""
        return self._join([part.mean for part in self.cells])

    @property
    def variance(self) -> Tensor:
        """Of each cell."""
        return self._join([part.variance for part in self.cells])


def _part(likelihood: object, key: object) -> Likelihood:
    if isinstance(likelihood, str) and likelihood == "auto":
        return Auto()
    of_counts = _OF_COUNTS.get(likelihood) if isinstance(likelihood, str) else None
    part = family(likelihood) if of_counts is None else of_counts(size_factors=False)
    if isinstance(part, Columns):
        raise TypeError(f"likelihood: {key!r} has a mapping of its own; write its keys beside the others")
    if part.name in ("multinomial", "categorical"):
        raise ValueError(
            f'likelihood: {key!r} is "{part.name}", which is of rows of shares and not of a column; counts '
            'are "poisson" or "negative_binomial", one of several answers is a column of 0 and 1 for each'
        )
    if getattr(part, "size_factors", False) is not False:
        raise ValueError(
            f"likelihood: {key!r} takes the totals of its columns for depth, which those of a few columns "
            f"are not; give {type(part).__name__}(size_factors=False)"
        )
    if part.filler != 0.0:
        raise ValueError(
            f"likelihood: {key!r} has the filler {part.filler:g}, wanted 0, as that of the others"
        )
    return part


def _description(likelihood: Likelihood) -> object:
    """Equal for likelihoods that were made alike."""
    try:
        return repr(describe(likelihood))
    except TypeError:
        return id(likelihood)
