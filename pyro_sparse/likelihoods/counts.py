"""Counts: Poisson and negative binomial (log link, size factors), multinomial rows (softmax over features).

Sequencing depth, document length, number of ratings: each row carries an exposure, by default from its total
where rows differ in depth, so that factors speak of composition.  The training table decides that, and sets
the yardstick for the totals of later tables.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from functools import cache, cached_property
from typing import TYPE_CHECKING, Literal

import numpy as np
import pyro.distributions as dist
import torch
from pyro.distributions.torch_distribution import TorchDistribution
from torch import Tensor, nn
from torch.distributions import AbsTransform, Distribution, constraints
from torch.nn import functional as F

from .._utils.declared import Declared, keeps
from ._compiled_counts import count_terms
from ._shared_totals import along, log_sum, log_sum_if, of_shares
from .base import AROUND_CELLS, CELL_TERMS, CELLS, NOTHING, Likelihood, PerRow
from .given_cells import ArrayT, column_mean, filled, in_kind, refuse_where
from .row_depth import MOST_COLUMNS, MOST_ROWS, depth_share

if TYPE_CHECKING:
    import numpy.typing as npt

__all__ = ["Categorical", "Multinomial", "MultinomialCounts", "NegativeBinomial", "Poisson"]

FEW_FEATURES = 300  # up to which totals are shared out; beyond, separable cells are faster
# Share of what moves the totals, from which they are a better guess of depth than none. In simulated tables
# without depth it was 0 to .31, with log depths of sd .6 and 1 .71 and more (NOTEBOOK.md, calibration).
DEPTH_FROM = 0.5
NOT_ASKED = -1.0  # which no share can be
LOG_RATE_RANGE = (-30.0, 25.0)  # exp() of both ends is finite and positive in float32
_MOST_COUNTED = math.floor(math.exp(LOG_RATE_RANGE[1]))  # no rate is larger
PLAIN_RANGE = (-25.0, 8.0)  # log rates in which these ends bend no rate by more than 1e-7
LOG_THETA_RANGE = (-6.0, 7.0)  # above, lgamma(theta + x) - lgamma(theta) loses its digits in float32


def _soft_range(x: Tensor, low: float, high: float) -> Tensor:
    """The identity inside ``(low, high)``, bent smoothly towards the ends, with a gradient everywhere."""
    return x + F.softplus(low - x) - F.softplus(x - high)


def _soft_range_slope(x: Tensor, low: float, high: float) -> Tensor:
    """Derivative of `_soft_range`."""
    return 1 - torch.sigmoid(low - x) - torch.sigmoid(x - high)


def _soft_range_curvature(x: Tensor, low: float, high: float) -> Tensor:
    """Second derivative of `_soft_range`."""
    below, above = torch.sigmoid(low - x), torch.sigmoid(x - high)
    return below * (1 - below) - above * (1 - above)


def _with_offset(f: Tensor, per_row: PerRow) -> Tensor:
    """The predictor with the log of the rows' exposures, as an offset is in a generalised linear model."""
    exposure = per_row.get("exposure")
    return f if exposure is None else f + exposure.to(f).log()


class _Counts(Likelihood):
    """What the count likelihoods share: the data check, row totals, a log link."""

    per_row_inputs = ("exposure",)

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer(
            "share", torch.zeros(0, dtype=torch.float32)
        )  # each column's part of the training table's total
        self.register_buffer(
            "typical_total", torch.zeros((), dtype=torch.float32)
        )  # median row total there; 0 = not calibrated
        self.share: Tensor
        self.typical_total: Tensor

    def setup(self, n_features: int, n_restarts: int = 1) -> None:
        if len(self.share) != n_features:
            self.share, self.typical_total = self.share.new_zeros(n_features), self.share.new_zeros(())

    def _refuse(self, x: np.ndarray, feature_names: Sequence[str] | None) -> None:
        with np.errstate(invalid="ignore"):
            bad = (x < 0) | (x != np.round(x))
        refuse_where(
            bad & ~np.isnan(x),
            x,
            feature_names,
            f'likelihood="{self.name}" wants whole numbers >= 0 (counts) or NaN',
            "Give the raw counts, before any normalising or logarithm (of an AnnData they may be a layer: "
            'adata.to_df("counts")), or use likelihood="normal".',
        )
        with np.errstate(invalid="ignore"):
            refuse_where(
                x > _MOST_COUNTED,
                x,
                feature_names,
                f'likelihood="{self.name}" knows counts up to {_MOST_COUNTED:.1e}',
                "Count in larger units (thousands, say), or write NaN where it is no count.",
            )

    def calibrate(self, x: npt.ArrayLike | Tensor, mask: npt.ArrayLike | Tensor | None = None) -> None:
        """Remember the training table's column shares and median row total, the yardstick of `totals`."""
        cells, observed = filled(x, mask)
        few = slice(None, None, -(-len(cells) // MOST_ROWS) or 1)
        holes = torch.where(observed[few], cells[few], torch.nan)
        self.calibrate_by(
            column_mean(cells, observed),
            lambda: self._totals(cells, observed),
            lambda columns: holes[:, columns],
        )

    def calibrate_by(
        self, mean: Tensor, totals: Callable[[], Tensor], some: Callable[[Tensor], Tensor]
    ) -> None:
        # above 0 also where nothing was counted: totals are divided by shares
        share = mean + 1e-6 * mean.mean() + torch.finfo(mean.dtype).tiny
        self.share = (share / share.sum()).to(self.share)
        self.typical_total = torch.ones_like(self.typical_total)  # known enough for `totals`
        row_totals = totals()
        counted = row_totals[row_totals > 0]
        self.typical_total = (counted.median() if len(counted) else torch.ones(())).to(self.typical_total)

    def totals(self, x: ArrayT, mask: ArrayT | None = None) -> ArrayT:
        r"""Total count (N, 1) of each row; with missing cells, scaled up by the share of the columns seen.

        :math:`n_i = \sum_j m_{ij} x_{ij} / \sum_j m_{ij} s_j`, s the columns' shares in the training table
        (`calibrate`; the first table asked about, if that was never called).
        """
        if not self.typical_total > 0:
            self.calibrate(x, mask)
        return in_kind(self._totals(*filled(x, mask)), x)

    def _totals(self, x: Tensor, mask: Tensor) -> Tensor:
        if mask.all():
            return x.sum(-1, keepdim=True)
        covered = (mask * self.share.to(x)).sum(-1, keepdim=True)
        whole = torch.where(mask.all(-1, keepdim=True) | (covered == 0), torch.ones_like(covered), covered)
        return x.sum(-1, keepdim=True) / whole

    def default_per_row(self, x: ArrayT, mask: ArrayT | None = None) -> dict[str, ArrayT]:
        """Size factors (N, 1): row totals over their median in the training table; see `totals`.

        An empty row counts as half a count, so that the log rate stays finite.
        """
        return {"exposure": self.totals(x, mask).clip(min=0.5) / float(self.typical_total)}

    def check_per_row(self, name: str, values: np.ndarray) -> None:
        bad = ~(np.isfinite(values) & (values > 0))
        if bad.any():
            i = int(bad.argmax())
            raise ValueError(f"is {values[i, 0]:g} in row {i}, wanted one positive number per row")

    def amount(self, per_row: PerRow) -> Tensor | None:
        return per_row.get("exposure")

    def intercept(self, total: Tensor, seen: Tensor, amounts: Tensor) -> Tensor:
        return torch.log((total + 0.5) / (amounts + 1.0))  # finite where nothing was counted

    def encoder_view(self, x: Tensor, per_row: PerRow = NOTHING) -> Tensor:
        """``log1p`` of the counts, divided by the row's exposure if there is one."""
        exposure = per_row.get("exposure")
        return torch.log1p(x if exposure is None else x / exposure)

    def mean(self, f: Tensor, per_row: PerRow = NOTHING) -> Tensor:
        return self._log_rate(f, per_row).exp()

    @staticmethod
    def _log_rate(f: Tensor, per_row: PerRow) -> Tensor:
        return _soft_range(_with_offset(f, per_row), *LOG_RATE_RANGE)


class Poisson(_Counts):
    r"""Counts with variance equal to their mean: :math:`x_{ij} \sim \mathrm{Poisson}(s_i e^{f_{ij}})`.

    Parameters
    ----------
    size_factors : bool or "auto"
        Whether rows without a given exposure get ``s_i`` from their totals (`default_per_row`), so that
        factors speak of composition, not of depth; False sets ``s_i = 1``. "auto": if the training table says
        that at least half of what moves the totals is depth (`row_depth`).

    Attributes
    ----------
    depth : Tensor ()
        Share of the variance of the training table's log totals that is depth; -1 if that was not asked.
    takes_totals : bool
        Whether totals are taken for depth.
    shares : bool
        Whether totals that are taken for depth are shared out between the features of a row.

    Notes
    -----
    Factors move totals too: with :math:`s_i` proportional to the total :math:`n_i`, all features are divided
    by what factors do to some. So the rates of a row of at most 300 features are
    :math:`n_i\, \mathrm{softmax}(f_i)_j` over the cells that were seen: :math:`s_i` is where the likelihood
    of Poisson counts is largest, and the row is multinomial. Beyond, and of subclasses, cells are
    `separable`, which is faster.

    The log rate is bent smoothly into (−30, 25): no overflow, no zero rate, no dead gradient.
    """

    declares = (CELLS, CELL_TERMS)  # where totals are shared out, cells are Poisson given the exposures
    name = "poisson"
    capturable = True

    def __init__(self, size_factors: bool | Literal["auto"] = "auto") -> None:
        super().__init__()
        if size_factors not in (True, False, "auto"):
            raise ValueError(f'size_factors: got {size_factors!r}, wanted True, False or "auto"')
        self.size_factors = size_factors if size_factors == "auto" else bool(size_factors)
        self.register_buffer("depth", torch.tensor(NOT_ASKED, dtype=torch.float32))
        self.register_buffer("from_totals", torch.tensor(False))  # exposures of the training table
        self._cached_numbers: dict[str, tuple[Tensor, int, float]] = {}  # buffer, its version, and its number
        self.depth: Tensor
        self.from_totals: Tensor

    def setup(self, n_features: int, n_restarts: int = 1) -> None:
        if len(self.share) != n_features:
            self.depth = torch.full_like(self.depth, NOT_ASKED)
            self.from_totals = torch.zeros_like(self.from_totals)
        super().setup(n_features, n_restarts)

    @property
    def takes_totals(self) -> bool:
        return self.size_factors is True or self._said("depth") >= DEPTH_FROM

    @property
    def shares(self) -> bool:
        few = len(self.share) <= FEW_FEATURES
        return few and bool(self._said("from_totals")) and self._says_its_cells

    @cached_property
    def _says_its_cells(self) -> bool:
        """Whether `forward` is what this file says of cells: a subclass may say something else."""
        return keeps(self, "cell terms")

    def _said(self, name: str) -> float:
        """The number in a buffer: it is asked for in every step, and an accelerator makes wait for it."""
        buffer = getattr(self, name)
        if buffer.device.type == "cpu":
            return float(buffer)
        cached = self._cached_numbers.get(name)
        if cached is None or cached[0] is not buffer or cached[1] != buffer._version:
            self._cached_numbers[name] = cached = buffer, buffer._version, float(buffer)
        return cached[2]

    @property
    def separable(self) -> bool:  # type: ignore[override]
        return not self.shares

    def calibrate_by(
        self, mean: Tensor, totals: Callable[[], Tensor], some: Callable[[Tensor], Tensor]
    ) -> None:
        once = cache(totals)  # a pass over the table
        super().calibrate_by(mean, once, some)
        if self.size_factors == "auto":
            columns = mean.argsort(descending=True)[:MOST_COLUMNS]
            self.depth = torch.full_like(self.depth, depth_share(some(columns), once()))

    def note_per_row(self, given: Collection[str]) -> None:
        from_totals = self.takes_totals and "exposure" not in given
        self.from_totals = torch.full_like(self.from_totals, from_totals)

    def default_per_row(self, x: ArrayT, mask: ArrayT | None = None) -> dict[str, ArrayT]:
        if self.size_factors == "auto" and self.depth == NOT_ASKED:
            self.calibrate(x, mask)
        return super().default_per_row(x, mask) if self.takes_totals else {}

    def typical(self, name: str, values: np.ndarray) -> float:
        return float(np.median(values))

    def forward(self, f: Tensor, per_row: PerRow = NOTHING) -> dist.Distribution:
        return dist.Poisson(self._log_rate(f, per_row).exp())

    def observation(
        self, f: Tensor, mask: Tensor | None = None, per_row: PerRow = NOTHING
    ) -> dist.Distribution:
        if self.shares:
            f = f - log_sum(f, mask) + self._log_total(mask)
        return super().observation(f, mask, per_row)

    def mean(self, f: Tensor, per_row: PerRow = NOTHING) -> Tensor:
        if self.shares:
            f = f - log_sum(f, None) + self._log_total(None)
        return super().mean(f, per_row)

    def feature_statistic(
        self,
        f: Tensor,
        reference: Tensor,
        x: Tensor,
        mask: Tensor | None = None,
        per_row: PerRow = NOTHING,
    ) -> Tensor:
        if not self.shares:
            return super().feature_statistic(f, reference, x, mask, per_row)
        return of_shares(f, reference, *filled(x, mask))

    def _log_total(self, mask: Tensor | None) -> Tensor:
        """log of what rows of exposure 1 count in the cells that were seen."""
        typical = self.typical_total.log()
        if mask is None:
            return typical
        return typical + (mask * self.share).sum(-1, keepdim=True).clamp(min=1e-30).log()

    def cell_terms(
        self, f: Tensor, x: Tensor, dispersion: Tensor, per_row: PerRow, order: int
    ) -> tuple[Tensor, ...] | None:
        log_rate = _with_offset(f, per_row)
        low, high = (end.item() for end in torch.aminmax(log_rate.detach()))
        if PLAIN_RANGE[0] < low and high < PLAIN_RANGE[1]:
            rate = log_rate.exp()
            return (x * log_rate - rate, x - rate, rate)[: order + 1]
        bent = _soft_range(log_rate, *LOG_RATE_RANGE)
        rate = bent.exp()
        log_p = x * bent - rate
        if order == 0:
            return (log_p,)
        slope, excess = _soft_range_slope(log_rate, *LOG_RATE_RANGE), x - rate
        curvature = rate * slope**2 - excess * _soft_range_curvature(log_rate, *LOG_RATE_RANGE)
        return (log_p, excess * slope, curvature.clamp(min=0))[: order + 1]

    def given_totals(self, made: Collection[str]) -> Likelihood | None:
        return Poisson(size_factors=False) if "exposure" in made else None

    def scorer(self, per_row: PerRow = NOTHING) -> Callable[[Tensor, Tensor, int, Tensor], Tensor]:
        exposure = per_row.get("exposure")
        shift = 0.0 if exposure is None else exposure.log().mT

        def score(f: Tensor, x: Tensor, r: int, features: Tensor) -> Tensor:
            log_rate = f + shift
            excess = x - _soft_range(log_rate, *LOG_RATE_RANGE).exp()
            return excess * _soft_range_slope(log_rate, *LOG_RATE_RANGE)

        return score


class _HalfNormal(dist.HalfNormal):
    """Torch's, with its location made where the scale lies: a plain 0 is sent to an accelerator each time."""

    def __init__(self, scale: Tensor, validate_args: bool | None = None):
        base = torch.distributions.Normal(torch.zeros_like(scale), scale, validate_args=False)
        torch.distributions.TransformedDistribution.__init__(self, base, AbsTransform(), validate_args)

    def expand(self, batch_shape: Sequence[int], _instance: Distribution | None = None) -> dist.Distribution:
        return super().expand(batch_shape, self._get_checked_instance(_HalfNormal, _instance))


class NegativeBinomial(Poisson):
    r"""Counts with more variance than Poisson, one dispersion per feature.

    .. math:: x_{ij} \sim \mathrm{NB}(\mu_{ij} = s_i e^{f_{ij}}, \theta_j), \quad
              \operatorname{var} x = \mu + \mu^2/\theta, \quad \theta_j^{-1/2} \sim \mathrm{HalfNormal}(\tau).

    Equivalently Poisson with a gamma-distributed rate of coefficient of variation ``extra_cv`` = θ^(−1/2):
    0 is Poisson, and the prior's mode.

    Parameters
    ----------
    size_factors : bool or "auto"
        As in `Poisson`.
    prior_scale : float
        τ, the prior scale of ``extra_cv``.
    init : float
        Starting value of ``extra_cv``.
    """

    declares = (CELLS, CELL_TERMS)
    name = "negative_binomial"
    capturable = True
    has_dispersion = True

    def __init__(
        self,
        size_factors: bool | Literal["auto"] = "auto",
        prior_scale: float = 1.0,
        init: float = 0.5,
    ) -> None:
        super().__init__(size_factors)
        if not (prior_scale > 0 and init > 0):
            raise ValueError(
                f"NegativeBinomial: prior_scale and init must be positive, got {prior_scale} and {init}."
            )
        self.prior_scale, self.init = float(prior_scale), float(init)

    def setup(self, n_features: int, n_restarts: int = 1) -> None:
        super().setup(n_features, n_restarts)
        self.log_theta = nn.Parameter(torch.full((n_restarts, 1, n_features), -2.0 * math.log(self.init)))

    def _theta(self) -> Tensor:
        return _soft_range(self.log_theta, *LOG_THETA_RANGE).exp()

    def priors(self) -> dict[str, dist.Distribution]:
        return {
            "extra_cv": _HalfNormal(torch.full_like(self.log_theta.squeeze(1), self.prior_scale)).to_event(1)
        }

    def values(self) -> dict[str, Tensor]:
        return {"extra_cv": self._theta().squeeze(1) ** -0.5}

    def feature_statistic(
        self,
        f: Tensor,
        reference: Tensor,
        x: Tensor,
        mask: Tensor | None = None,
        per_row: PerRow = NOTHING,
    ) -> Tensor:
        if not self.shares:
            return super().feature_statistic(f, reference, x, mask, per_row)
        # A feature that counts less leaves more of the row's total to the others.
        x, observed = filled(x, mask)
        base = reference - log_sum(reference, observed) + self._log_total(observed)
        shift = torch.where(observed, log_sum(reference, observed) - log_sum_if(f, reference, observed), 0.0)

        def level(at: Tensor) -> Tensor:
            log_probs = self.forward(torch.where(observed, at, 0.0), per_row).log_prob(x)
            return torch.where(observed, log_probs, 0.0)

        before = level(base)
        others = along(lambda by: (level(base + by) - before).sum(-1, keepdim=True), shift)
        return (level(base + f - reference + shift) + others - (level(base + shift) - before)).sum(-2)

    def forward(self, f: Tensor, per_row: PerRow = NOTHING) -> dist.Distribution:
        theta = self._theta()
        return dist.NegativeBinomial(theta, logits=self._log_rate(f, per_row) - theta.log())

    def cell_terms(
        self, f: Tensor, x: Tensor, dispersion: Tensor, per_row: PerRow, order: int
    ) -> tuple[Tensor, ...] | None:
        log_rate = _with_offset(f, per_row)
        terms = count_terms(log_rate, x, dispersion, order)
        if terms is not None:
            return terms
        theta = 1 / dispersion.unsqueeze(-1)
        odds = log_rate - theta.log()
        log_p = -x * F.softplus(-odds) - theta * F.softplus(odds)  # no large numbers that cancel
        if order == 0:
            return (log_p,)
        over, under = torch.sigmoid(odds), torch.sigmoid(-odds)
        return (log_p, x * under - theta * over, (x + theta) * over * under)[: order + 1]

    def dispersion(self) -> Tensor:
        """1 / theta, (R, G): the square of ``extra_cv``."""
        return self.values()["extra_cv"] ** 2

    def log_base(self, x: Tensor, dispersion: Tensor) -> Tensor:
        r""":math:`\log \Gamma(x + \theta) - \log \Gamma(\theta)`."""
        theta = 1 / dispersion.double().unsqueeze(-1)
        return torch.lgamma(x.double() + theta) - torch.lgamma(theta)

    def log_dispersion_prior(self, dispersion: Tensor) -> Tensor:
        """Of ``extra_cv``, as far as `log_theta` can go."""
        low, high = LOG_THETA_RANGE
        inside = (dispersion.log() >= -high) & (dispersion.log() <= -low)
        return torch.where(inside, -0.5 * dispersion.double() / self.prior_scale**2, -torch.inf)

    def of_features(self, features: slice | Tensor) -> NegativeBinomial:
        return self._restricted(features, ("share",) if len(self.share) else ())

    def given_totals(self, made: Collection[str]) -> Likelihood | None:
        return self if "exposure" in made else None

    def scorer(self, per_row: PerRow = NOTHING) -> Callable[[Tensor, Tensor, int, Tensor], Tensor]:
        exposure, theta = per_row.get("exposure"), self._theta().mT
        shift = 0.0 if exposure is None else exposure.log().mT

        def score(f: Tensor, x: Tensor, r: int, features: Tensor) -> Tensor:
            log_rate, size = f + shift, theta[r, features]
            over = torch.sigmoid(_soft_range(log_rate, *LOG_RATE_RANGE) - size.log())
            return (x - (x + size) * over) * _soft_range_slope(log_rate, *LOG_RATE_RANGE)

        return score


class Multinomial(_Counts):
    r"""A row is n drawn items, :math:`x_i \sim \mathrm{Multinomial}(n_i, \mathrm{softmax} f_i)`.

    The total n of a row is given (its own sum); missing features are dropped from the softmax.  ``exposure``
    is the total that `mean` and sampling use (default 1: `mean` gives probabilities); `log_prob` needs none.

    Notes
    -----
    `log_prob` includes the coefficient :math:`n!/\prod x_j!`; published MovieLens "log losses" leave it out.
    """

    declares = (Declared("row totals", free=AROUND_CELLS),)
    name = "multinomial"
    capturable = True

    def default_per_row(self, x: ArrayT, mask: ArrayT | None = None) -> dict[str, ArrayT]:
        """Total count (N, 1) of each row over all features; see `totals` for missing cells."""
        return {"exposure": self.totals(x, mask)}

    def intercept(self, total: Tensor, seen: Tensor, amounts: Tensor) -> Tensor:
        start = super().intercept(total, seen, amounts)
        return start - start.mean()  # softmax does not see a common shift

    def encoder_view(self, x: Tensor, per_row: PerRow = NOTHING) -> Tensor:
        return super().encoder_view(x, _Counts.default_per_row(self, x))

    def given_totals(self, made: Collection[str]) -> Likelihood | None:
        return Poisson(size_factors=False)

    def forward(self, f: Tensor, per_row: PerRow = NOTHING) -> dist.Distribution:
        """Distribution of whole rows: batch (R, B), event (G,)."""
        exposure = per_row.get("exposure")
        return MultinomialCounts(f, None if exposure is None else exposure.squeeze(-1))

    def observation(
        self, f: Tensor, mask: Tensor | None = None, per_row: PerRow = NOTHING
    ) -> dist.Distribution:
        return self(f if mask is None else f.masked_fill(~mask.bool(), -1e30), per_row)

    def feature_statistic(
        self,
        f: Tensor,
        reference: Tensor,
        x: Tensor,
        mask: Tensor | None = None,
        per_row: PerRow = NOTHING,
    ) -> Tensor:
        """`_shared_totals.of_shares`: what each feature's share of the totals is worth."""
        return of_shares(f, reference, *filled(x, mask))

    def mean(self, f: Tensor, per_row: PerRow = NOTHING) -> Tensor:
        share, exposure = torch.softmax(f, -1), per_row.get("exposure")
        return share if exposure is None else share * exposure.to(f)


class Categorical(Multinomial):
    """One-hot or implicit-feedback rows (watched or not): `Multinomial` on a table of 0, 1 and NaN.

    Each column is a category, and all columns of a row share one softmax: levels (1, 2, 3 or text) of one
    variable become a column each, as `pandas.get_dummies` makes them. Several such variables side by side
    compete in it; columns that are yes/no each for itself want `Bernoulli`.
    """

    name = "categorical"
    capturable = True

    def _refuse(self, x: np.ndarray, feature_names: Sequence[str] | None) -> None:
        refuse_where(
            ~np.isin(x, (0.0, 1.0)) & ~np.isnan(x),
            x,
            feature_names,
            'likelihood="categorical" wants 0, 1 or NaN, one column for each category (one-hot), and all '
            "columns of a row share one softmax",
            "Make columns of the levels with pandas.get_dummies(dtype=float), or use another likelihood "
            'where columns are variables of their own ("bernoulli" for yes/no, "normal" for ratings).',
        )


class MultinomialCounts(TorchDistribution):
    r"""Multinomial whose total may differ from row to row.

    .. math:: \log p(x) = \log n! + \sum_j (x_j \log \mathrm{softmax}(f)_j - \log x_j!), \quad n = \sum_j x_j

    torch's own refuses to sample unequal totals.  As there, `log_prob` takes the total from its argument.

    Parameters
    ----------
    logits : Tensor of shape (..., G)
    total_count : Tensor broadcastable to (...), optional
        Totals for `sample` and `mean`, rounded to whole numbers; default 1.
    validate_args : bool, optional
        As in `torch.distributions.Distribution`.
    """

    arg_constraints = {"logits": constraints.real_vector}
    support = constraints.independent(constraints.nonnegative, 1)

    def __init__(
        self, logits: Tensor, total_count: Tensor | None = None, validate_args: bool | None = None
    ) -> None:
        batch = logits.shape[:-1]
        self.logits = logits.log_softmax(-1)
        total = logits.new_ones(()) if total_count is None else total_count.to(logits).round()
        self.total_count = total.expand(batch)
        super().__init__(batch, logits.shape[-1:], validate_args=validate_args)

    def expand(self, batch_shape: Sequence[int], _instance: Distribution | None = None) -> MultinomialCounts:
        batch = torch.Size(batch_shape)
        return MultinomialCounts(
            self.logits.expand(batch + self.event_shape), self.total_count.expand(batch), validate_args=False
        )

    @property
    def mean(self) -> Tensor:
        return self.total_count.unsqueeze(-1) * self.logits.exp()

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        coefficient = torch.lgamma(value.sum(-1) + 1) - torch.lgamma(value + 1).sum(-1)
        return coefficient + (value * self.logits).sum(-1)

    @torch.no_grad()
    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """Whole-number draws: feature by feature, a binomial share of what the earlier ones left."""
        shape = self._extended_shape(sample_shape)
        p = self.logits.exp().expand(shape)
        odds = p / p.flip(-1).cumsum(-1).flip(-1).clamp(min=torch.finfo(p.dtype).tiny)
        left = self.total_count.expand(shape[:-1]).clone()
        draw = torch.empty(shape, dtype=p.dtype, device=p.device)
        for j in range(shape[-1] - 1):
            draw[..., j] = torch.binomial(left, odds[..., j].clamp(max=1.0).contiguous())
            left = left - draw[..., j]
        draw[..., -1] = left
        return draw
