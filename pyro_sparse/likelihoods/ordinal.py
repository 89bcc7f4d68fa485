"""Levels in an order, such as answers from "never" to "always": a hidden variable that is cut at points."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyro.distributions as dist
import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from ._compiled_cells import level_terms
from ._links import LINKS, Link, LinkName, read_link
from .base import CELL_TERMS, CELLS, LOGISTIC_LEVELS, NOTHING, Column, Likelihood, PerRow, Slopes
from .given_cells import ArrayT, filled, in_kind, refuse_where

if TYPE_CHECKING:
    import numpy.typing as npt

__all__ = ["MOST_LEVELS", "Ordinal", "level_numbers"]

MOST_LEVELS = (
    12  # of a column: beyond, a scale is nearly a measurement, and gaps between cuts are hardly seen
)
_GAP_SD = 1.0  # of the logarithm of a gap, a priori: a third to three times the typical one


class Ordinal(Likelihood):
    r"""Levels in an order (whole numbers, NaN), by a hidden response with cuts of each column's own.

    .. math:: P(x_{ij} \le l) = F(c_{jl} - f_{ij}), \qquad c_{j1} < \dots < c_{j, L_j - 1}

    with F the logistic distribution function, or the normal one.

    The middle cut is 0, for f has an intercept; the others are sums of gaps
    :math:`g_{jl} = c_{j, l+1} - c_{jl}` with

    .. math:: \log g_{jl} \sim N(\log \tfrac{s}{L - 1}, 1),

    L being the largest number of levels, s = 4 of logits and :math:`4 \sqrt 3 / \pi = 2.2` of probits. These
    are as many standard deviations of the response: a logistic one has 1.81, a normal one 1.

    Parameters
    ----------
    levels : (int, int), sequence of those, or None
        Lowest and highest level of all columns, or of each; levels that nobody chose are levels all the same.
        None: what the table for the fit has.
    labels : sequence of (sequence of str or None), optional
        Words for the levels of each column, from the lowest. A fit takes them from ordered categories.
    link : {"logit", "probit"}
        F. "probit": the responses are normal with variance 1 given the factors, and with a linear decoder
        their correlations are the polychoric ones (tetrachoric of two levels): the factor analysis of
        polychoric correlations, with all answers of a row at once in place of pairs of columns.

    Attributes
    ----------
    lowest : Tensor (feature,)
        Lowest level of each column; empty before there is a table.
    n_levels : Tensor (feature,)

    Raises
    ------
    ValueError, TypeError
        `levels` are no pairs of whole numbers, the second larger by 1 to 11; `link` is none of the two.

    Notes
    -----
    Tables hold levels as they are given, the model counts them from 0: methods that take x and f take that.
    :math:`L_j \le 12`. A column's mean is that of its levels' numbers. Weights are in units of the response,
    so that those of probits are about 1.8 times smaller, under the same prior.

    References
    ----------
    McCullagh (1980), *Regression models for ordinal data*, JRSS B 42(2).
    McKelvey and Zavoina (1975), *A statistical model for the analysis of ordinal level dependent variables*,
    Journal of Mathematical Sociology 4(1). Probits.
    Muthén (1984), *A general structural equation model with dichotomous, ordered categorical, and continuous
    latent variable indicators*, Psychometrika 49(1). Factors behind polychoric correlations.

    Examples
    --------
    >>> import numpy as np
    >>> likelihood = Ordinal()
    >>> likelihood.calibrate(np.array([[1, 1], [2, 3], [5, 2]]))
    >>> likelihood.n_levels.tolist()
    [5, 3]
    """

    declares = (CELLS, CELL_TERMS, LOGISTIC_LEVELS)
    name = "ordinal"
    separable = True
    reads_columns = True

    def __init__(
        self,
        levels: tuple[int, int] | Sequence[tuple[int, int]] | None = None,
        labels: Sequence[Sequence[str] | None] | None = None,
        link: LinkName = "logit",
    ) -> None:
        super().__init__()
        self.link = read_link(link)
        self.latent_variance = self._link.latent_variance
        self.given_levels = _read_levels(levels)
        self.labels = tuple(None if words is None else tuple(words) for words in labels or ())
        self._check_labels()
        self.register_buffer("lowest", torch.zeros(0))
        self.register_buffer("n_levels", torch.zeros(0, dtype=torch.long))
        self.lowest: Tensor
        self.n_levels: Tensor
        self.n_gaps: int | None = (
            None  # of the column that has most levels; a number, since programs are recorded
        )
        if isinstance(self.given_levels, list):
            self._take(self.given_levels)

    @property
    def _link(self) -> Link:
        return LINKS[self.link]

    @property
    def full_name(self) -> str:
        return self.name if self.link == "logit" else f"{self.name}, {self.link}"

    def _check_labels(self) -> None:
        pairs = self.given_levels if isinstance(self.given_levels, list) else None
        if self.labels and (pairs is None or len(pairs) != len(self.labels)):
            raise ValueError(
                f"labels: there are those of {len(self.labels)} columns, wanted levels of each, too, as "
                'levels=[(0, 1)], labels=[("no", "yes")]'
            )
        for words, (low, high) in zip(self.labels, pairs or (), strict=False):
            if words is not None and len(words) != high - low + 1:
                raise ValueError(f"labels: got {words}, wanted {high - low + 1}, one for each level")

    # ---- levels ------------------------------------------------------------------------------------------
    def for_columns(self, columns: Sequence[Column]) -> Ordinal:
        """With the words of ordered categories, which are all levels, whether or not anybody chose them."""
        if not any(column.labels for column in columns):
            return self
        if isinstance(self.given_levels, list) and len(self.given_levels) != len(columns):
            raise ValueError(
                f"levels: there are {len(self.given_levels)} pairs, and X has {len(columns)} such columns; "
                "wanted one for each, or one for all"
            )
        levels = []
        for j, column in enumerate(columns):
            if column.labels:
                numbers = level_numbers(column.labels)
                levels.append((numbers[0], numbers[-1]))
            elif self.given_levels is not None:
                levels.append(
                    self.given_levels if isinstance(self.given_levels, tuple) else self.given_levels[j]
                )
            else:
                levels.append(_range_of(column.values))
        for column, (low, high) in zip(columns, levels, strict=True):
            if not 1 <= high - low < MOST_LEVELS:
                raise ValueError(
                    f"X: column {column.name!r} has {high - low + 1} levels, wanted 2 to {MOST_LEVELS}; join "
                    "some, or drop it"
                )
        return Ordinal(levels, [column.labels or None for column in columns], self.link)

    def calibrate(self, x: npt.ArrayLike | Tensor, mask: npt.ArrayLike | Tensor | None = None) -> None:
        """Learn the levels of a table's columns, unless they were given."""
        cells, observed = filled(torch.as_tensor(x).double(), mask)
        n_features = cells.shape[1]
        if isinstance(self.given_levels, tuple):
            self._take([self.given_levels] * n_features)
        elif self.given_levels is None:
            none, far = ~observed.any(0), torch.full_like(cells, math.inf)
            low = torch.where(observed, cells, far).amin(0).masked_fill(none, 0.0)
            high = torch.where(observed, cells, -far).amax(0).masked_fill(none, 1.0)
            self._take([(int(a), max(int(b), int(a) + 1)) for a, b in zip(low, high, strict=True)])
        below = [
            ((cells < self.lowest + level) & observed).sum(0) for level in range(1, int(self.n_levels.max()))
        ]
        share = torch.stack(below, -1)
        self._start = (share + 0.5) / (observed.sum(0).unsqueeze(-1) + 1.0)

    def _take(self, levels: list[tuple[int, int]]) -> None:
        self.lowest = torch.tensor([float(low) for low, _ in levels]).to(self.lowest)
        self.n_levels = torch.tensor([high - low + 1 for low, high in levels], device=self.n_levels.device)
        self.__dict__.get("_arguments", {})["levels"] = levels  # by which a saved fit is made again

    @property
    def _most(self) -> int:
        """The largest number of levels; before there is a table as many as make one gap."""
        if self.n_gaps is not None:
            return self.n_gaps + 2
        return int(self.n_levels.max()) if len(self.n_levels) else 3

    def calibrate_by(
        self, mean: Tensor, totals: Callable[[], Tensor], some: Callable[[Tensor], Tensor]
    ) -> None:
        """Levels of a table that is read by rows have to be given.

        Raises
        ------
        ValueError
            They were not.
        """
        if self.given_levels is None:
            raise ValueError(
                "likelihood: levels of a table that is read by rows are not looked for; give them, as "
                "Ordinal(levels=(1, 5))"
            )
        self.calibrate(some(torch.arange(len(mean))))

    def _refuse(self, x: np.ndarray, feature_names: Sequence[str] | None) -> None:
        with np.errstate(invalid="ignore"):
            refuse_where(
                (x != np.round(x)) & ~np.isnan(x),
                x,
                feature_names,
                f'likelihood="{self.name}" wants levels as whole numbers, or NaN',
                'Recode the column to 1, 2, 3, …, or use likelihood="normal".',
            )
        seen = ~np.isnan(x).all(0)
        low, high = np.zeros(x.shape[1]), np.zeros(x.shape[1])
        low[seen], high[seen] = np.nanmin(x[:, seen], 0), np.nanmax(x[:, seen], 0)
        if len(self.n_levels) == x.shape[1]:
            lowest = self.lowest.cpu().double().numpy()
            highest = lowest + self.n_levels.cpu().numpy() - 1
        elif isinstance(self.given_levels, tuple):
            lowest, highest = (np.full(x.shape[1], float(level)) for level in self.given_levels)
        elif self.given_levels is not None:
            raise ValueError(
                f"levels: there are {len(self.given_levels)} pairs, and X has {x.shape[1]} columns; wanted "
                "one for each, or one for all"
            )
        else:
            refuse_where(
                (x - low >= MOST_LEVELS) & ~np.isnan(x),
                x,
                feature_names,
                f'likelihood="{self.name}" knows {MOST_LEVELS} levels of a column at most, and its lowest is '
                "further below",
                'Join levels, or use likelihood="normal".',
            )
            return
        with np.errstate(invalid="ignore"):
            refuse_where(
                (x < lowest) | (x > highest),
                x,
                feature_names,
                "no such level is known of this column, whose levels are those of the table that was fitted, "
                "or those that were given",
                "Give levels=(lowest, highest) if it may occur, or write NaN.",
            )

    def units(self, cells: np.ndarray, standardise: bool) -> tuple[np.ndarray, np.ndarray]:
        """Levels are counted from 0."""
        if len(self.lowest) == cells.shape[1]:
            lowest = self.lowest.cpu().double().numpy()
        elif isinstance(self.given_levels, tuple):
            lowest = np.full(cells.shape[1], float(self.given_levels[0]))
        else:
            lowest = np.where(
                np.isnan(cells).all(0), 0.0, np.min(cells, 0, initial=np.inf, where=~np.isnan(cells))
            )
        return lowest, np.ones(cells.shape[1])

    # ---- cuts --------------------------------------------------------------------------------------------
    def setup(self, n_features: int, n_restarts: int = 1) -> None:
        if len(self.n_levels) != n_features:  # no table was seen
            pair = self.given_levels if isinstance(self.given_levels, tuple) else (0, 2)
            self._take([pair] * n_features)
        for name in [name for name in self._parameters if name.startswith("log_gap_")]:
            del self._parameters[name]
        self.n_gaps = None
        self.n_gaps = self._most - 2
        share = self.__dict__.get("_start")
        for i, gap in enumerate(self._gaps_at_start(share)):
            self.register_parameter(
                f"log_gap_{i + 1}", nn.Parameter(gap.float().log().expand(n_restarts, 1, -1).clone())
            )

    def _gaps_at_start(self, share: Tensor | None) -> list[Tensor]:
        """Gaps between quantiles of the shares below each cut, at least a tenth of the typical one."""
        typical, n_gaps = self._typical_gap, self._most - 2
        at_mode = torch.full(
            (len(self.n_levels),), typical * math.exp(-(_GAP_SD**2)), device=self.lowest.device
        )
        if share is None or len(share) != len(self.n_levels):
            return [at_mode] * n_gaps
        gaps = self._link.quantile(share.to(self.lowest)).diff(dim=-1).clamp(min=0.1 * typical)
        there = torch.arange(n_gaps, device=gaps.device) < self.n_levels.unsqueeze(-1) - 2
        return list(torch.where(there, gaps, at_mode.unsqueeze(-1)).unbind(-1))

    @property
    def _typical_gap(self) -> float:
        return self._link.spread / (self._most - 1)

    def _gaps(self) -> list[Tensor]:
        return [getattr(self, f"log_gap_{i + 1}").exp() for i in range(self._most - 2)]

    def cuts(self) -> Tensor:
        """Cuts between levels (restart, 1, feature, cut), increasing; infinite beyond a column's last."""
        gaps = self._gaps()
        zero = self.lowest.new_zeros(1, 1, 1) if not gaps else torch.zeros_like(gaps[0])
        cuts = torch.stack([zero, *gaps], -1).cumsum(-1)
        cuts = cuts.expand(*cuts.shape[:2], len(self.n_levels), -1)
        middle = self._middle().view(1, 1, -1, 1).expand(*cuts.shape[:3], 1)
        there = torch.arange(cuts.shape[-1], device=cuts.device) < self.n_levels.unsqueeze(-1) - 1
        return torch.where(there, cuts - cuts.gather(-1, middle), math.inf)

    def _middle(self) -> Tensor:
        """Which cut of each column is 0."""
        return (self.n_levels - 2) // 2

    def priors(self) -> dict[str, dist.Distribution]:
        typical = math.log(self._typical_gap)
        return {
            f"gap_{i + 1}": dist.LogNormal(
                torch.full_like(gap.squeeze(1), typical), torch.full_like(gap.squeeze(1), _GAP_SD)
            ).to_event(1)
            for i, gap in enumerate(self._gaps())
        }

    def values(self) -> dict[str, Tensor]:
        return {f"gap_{i + 1}": gap.squeeze(1) for i, gap in enumerate(self._gaps())}

    # ---- the density -------------------------------------------------------------------------------------
    def forward(self, f: Tensor, per_row: PerRow = NOTHING) -> dist.Distribution:
        return self._link.levels(f, self.cuts().to(f), validate_args=False)

    def mean(self, f: Tensor, per_row: PerRow = NOTHING) -> Tensor:
        """Expected number of the level, counted from 0."""
        total = torch.zeros_like(f)
        for cut in self.cuts().to(f).unbind(-1):
            total = total + self._link.cdf(f - cut)
        return total

    def start(self, x: ArrayT, mask: ArrayT | None = None) -> ArrayT:
        """Quantiles of the share of cells above each column's middle cut."""
        cells, observed = filled(x, mask)
        above = ((cells > self._middle()) & observed).sum(0)
        return in_kind(self._link.quantile((above + 0.5) / (observed.sum(0) + 1.0)).to(cells), x)

    def intercept(self, total: Tensor, seen: Tensor, amounts: Tensor) -> Tensor:
        """Quantile of the mean level's place in its range; `start`, of a table in memory, counts cells."""
        share = (total / seen.clamp(min=1)) / (self.n_levels - 1).to(total)
        return self._link.quantile(share.clamp(0.02, 0.98))

    def scorer(self, per_row: PerRow = NOTHING) -> Callable[[Tensor, Tensor, int, Tensor], Tensor]:
        edges = self._edges(self.cuts().squeeze(1))

        def score(f: Tensor, x: Tensor, r: int, features: Tensor) -> Tensor:
            of_restart = edges[min(r, len(edges) - 1)][features].to(f)
            level = x.long()
            low, high = of_restart.gather(-1, level) - f, of_restart.gather(-1, level + 1) - f
            return self._link.terms(low, high, 1)[1]

        return score

    @staticmethod
    def _edges(cuts: Tensor) -> Tensor:
        """Cuts with the ends of the line at either side."""
        return pad(pad(cuts, (1, 0), value=-math.inf), (0, 1), value=math.inf)

    def logistic_cuts(self) -> Tensor | None:
        return self.cuts().squeeze(1) if self.link == "logit" else None

    def cell_terms(
        self, f: Tensor, x: Tensor, dispersion: Tensor, per_row: PerRow, order: int
    ) -> tuple[Tensor, ...] | None:
        cuts = self.cuts().squeeze(1)
        terms = level_terms(f, x, cuts, order) if self.link == "logit" else None
        if terms is not None:
            return terms
        edges = self._edges(cuts).to(f)  # chain, feature, end
        level = x.long()
        n_chains = max(len(edges), len(level))
        edges, level = edges.expand(n_chains, -1, -1), level.expand(n_chains, -1, -1)
        low, high = edges.gather(-1, level) - f, edges.gather(-1, level + 1) - f
        return self._link.terms(low, high, order)

    def slopes(
        self,
        f: Tensor,
        x: Tensor,
        mask: Tensor | None = None,
        per_row: PerRow = NOTHING,
        of_cells: float = 1.0,
        of_priors: float = 1.0,
    ) -> Slopes:
        r"""`Likelihood.slopes` in closed form.

        With the cuts :math:`l < h` of a cell's level less f and F' the density of the response,

        .. math:: \frac{\partial \log p}{\partial h} = \frac{F'(h)}{F(h) - F(l)}, \qquad
                  \frac{\partial \log p}{\partial l} = -\frac{F'(l)}{F(h) - F(l)}
        """
        cuts = self.cuts()
        edges = self._edges(cuts.squeeze(1))  # restart, feature, end
        f, level = f.mT, x.mT.long().expand(*f.mT.shape)
        edges = edges.expand(len(f), -1, -1).to(f)
        low, high = edges.gather(-1, level) - f, edges.gather(-1, level + 1) - f
        log_p, by_low, by_high = self._link.slopes(low, high)
        if mask is not None:
            observed = mask.mT.bool()
            log_p, by_high, by_low = (torch.where(observed, part, 0.0) for part in (log_p, by_high, by_low))
        by_edge = torch.zeros_like(edges).scatter_add(-1, level, by_low).scatter_add(-1, level + 1, by_high)
        by_cut = by_edge[..., 1:-1]
        # a gap moves all cuts above it, less what it moves the middle one by, which stays
        from_here_on = by_cut.flip(-1).cumsum(-1).flip(-1)
        terms, by_parameters = {"x": log_p.sum((1, 2)).detach()}, []
        typical, middle = math.log(self._typical_gap), self._middle()
        for i, gap in enumerate(self._gaps()):
            below_middle = (middle > i).to(f) * from_here_on[..., 0]
            log_gap = gap.log()
            off = (log_gap - typical) / _GAP_SD**2
            by_gap = (from_here_on[..., i + 1] - below_middle).unsqueeze(1) * gap * of_cells
            by_parameters.append((by_gap - of_priors * (1 + off)).detach())
            log_prior = (
                -log_gap - 0.5 * off * (log_gap - typical) - math.log(_GAP_SD * math.sqrt(2 * math.pi))
            )
            terms[f"gap_{i + 1}"] = log_prior.sum((1, 2)).detach()
        return Slopes(terms, (-(by_high + by_low) * of_cells).mT.detach(), by_parameters)

    def of_features(self, features: slice | Tensor) -> Ordinal:
        """The likelihood of some columns alone."""
        return self._restricted(features, ("lowest", "n_levels"))


def _read_levels(levels: object) -> tuple[int, int] | list[tuple[int, int]] | None:
    """One pair, or one for each column.

    Raises
    ------
    ValueError, TypeError
    """
    if levels is None:
        return None
    wrong = TypeError(
        f"levels: got {levels!r}, wanted (lowest, highest), such as (1, 5), or one such pair for each column"
    )
    if not isinstance(levels, list | tuple) or not levels:
        raise wrong
    pairs: list[Any] = [levels] if all(_is_whole(level) for level in levels) else list(levels)
    for pair in pairs:
        if not isinstance(pair, list | tuple) or len(pair) != 2 or not all(_is_whole(end) for end in pair):
            raise wrong
        if not 1 <= pair[1] - pair[0] < MOST_LEVELS:
            raise ValueError(
                f"levels: got {tuple(pair)}, wanted 2 to {MOST_LEVELS} levels from the lowest to the highest"
            )
    read = [(int(low), int(high)) for low, high in pairs]
    return read[0] if pairs[0] is levels else read


def level_numbers(labels: Sequence[str]) -> list[int]:
    """What the words of levels stand for: themselves where they count, as "1", "2", "3" do, else 0, 1, …

    Parameters
    ----------
    labels : sequence of str
        In their order.

    Examples
    --------
    >>> level_numbers(["1", "2", "3"]), level_numbers(["never", "often"])
    ([1, 2, 3], [0, 1])
    """
    try:
        numbers = [int(label) for label in labels]
    except ValueError:
        return list(range(len(labels)))
    counts = numbers == list(range(numbers[0], numbers[0] + len(numbers))) if numbers else True
    return numbers if counts else list(range(len(labels)))


def _range_of(values: np.ndarray) -> tuple[int, int]:
    seen = values[np.isfinite(values)]
    low, high = (int(seen.min()), int(seen.max())) if len(seen) else (0, 1)
    return low, max(high, low + 1)


def _is_whole(number: object) -> bool:
    is_number = isinstance(number, int | np.integer) and not isinstance(number, bool)
    return is_number or (isinstance(number, float) and number.is_integer())
