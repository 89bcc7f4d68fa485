r"""Any likelihood with effects of covariates on its linear predictor.

.. math:: x_{ij} \sim \mathrm{likelihood}\big(f_{ij} + d_i^\top \beta_j\big)

:math:`d_i` is a row of the design matrix (`data/design.py`), ``per_row["design"]``; where it is not there,
the row is an average one. A fit climbs in :math:`\beta`; Markov chains draw it
(`edges/moves/covariates.py`). Cells under normal noise alone need none of this: what least squares say of
covariates is taken from them first.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pyro.distributions as dist
import torch
from torch import Tensor, nn

from .._utils.declared import keeps
from .base import CELLS, NOTHING, Likelihood, PerRow, Slopes
from .given_cells import ArrayT, filled, in_kind

if TYPE_CHECKING:
    import numpy.typing as npt

__all__ = ["EFFECT_SD", "Adjusted"]

# Prior standard deviation of an effect, of one standard deviation of a covariate on the linear predictor: as
# wide as the scale of the Cauchy prior that Gelman, Jakulin, Pittau and Su (2008, Annals of Applied
# Statistics 2(4)) give coefficients of a logistic regression, whose inputs have a standard deviation of .5.
EFFECT_SD = 2.5
_NEWTON, _FARTHEST = 25, 1.0  # steps at most, and how far a predictor may move in one of them


class Adjusted(Likelihood):
    r"""A likelihood whose linear predictor has effects of covariates.

    Parameters
    ----------
    likelihood : Likelihood
        Of cells given the whole predictor.
    n_effects : int
        Columns of the design matrix.

    Attributes
    ----------
    effects : Parameter (restart, effect, feature)
        :math:`\beta`; begins at the maximum of a regression of each column on the design alone, where the
        likelihood has `cell_terms`, and else at 0.
    """

    declares = (CELLS,)
    effects: nn.Parameter

    def __init__(self, likelihood: Likelihood, n_effects: int) -> None:
        super().__init__()
        self.likelihood, self.n_effects = likelihood, int(n_effects)
        self._begin: Tensor | None = None

    # ---- covariates --------------------------------------------------------------------------------------
    @property
    def unadjusted(self) -> Likelihood:
        """The likelihood of cells given the whole predictor."""
        return self.likelihood

    def shift(self, per_row: PerRow) -> Tensor | float:
        """What covariates add to the predictor, (R, B, G)."""
        return per_row["design"] @ self.effects if "design" in per_row else 0.0

    def setup(self, n_features: int, n_restarts: int = 1) -> None:
        self.likelihood.setup(n_features, n_restarts)
        start = torch.zeros(self.n_effects, n_features) if self._begin is None else self._begin[1:]
        self.effects = nn.Parameter(start.to(torch.get_default_dtype()).repeat(n_restarts, 1, 1))

    @torch.no_grad()
    def calibrate_effects(self, x: Tensor, per_row: PerRow) -> None:
        """Where intercepts and effects begin: each column's regression on the design, by Newton's method."""
        columns = x.shape[1]
        self._begin = torch.zeros(1 + self.n_effects, columns)
        self._begin[0] = torch.nan  # as the likelihood has it
        for part, members in self.likelihood.families():
            here = list(range(columns)) if members is None else members
            if keeps(part, "normal noise"):  # least squares have been there
                continue
            self._begin[:, here] = _regression(part, x[:, here], per_row).to(self._begin)

    # ---- the density -------------------------------------------------------------------------------------
    def forward(self, f: Tensor, per_row: PerRow = NOTHING) -> dist.Distribution:
        cells: dist.Distribution = self.likelihood(f + self.shift(per_row), per_row)
        return cells

    def observation(
        self, f: Tensor, mask: Tensor | None = None, per_row: PerRow = NOTHING
    ) -> dist.Distribution:
        return self.likelihood.observation(f + self.shift(per_row), mask, per_row)

    def mean(self, f: Tensor, per_row: PerRow = NOTHING) -> Tensor:
        return self.likelihood.mean(f + self.shift(per_row), per_row)

    def slopes(
        self,
        f: Tensor,
        x: Tensor,
        mask: Tensor | None = None,
        per_row: PerRow = NOTHING,
        of_cells: float = 1.0,
        of_priors: float = 1.0,
    ) -> Slopes:
        """`Likelihood.slopes`, those of the effects from those of the predictor."""
        shifted = f + self.shift(per_row)
        slopes = self.likelihood.closed_slopes()(shifted, x, mask, per_row, of_cells, of_priors)
        by_effects = torch.zeros_like(self.effects)
        if "design" in per_row:
            by_effects = per_row["design"].mT.to(slopes.by_f) @ slopes.by_f
        return Slopes(slopes.terms, slopes.by_f, [by_effects, *slopes.by_parameters])

    def feature_statistic(
        self,
        f: Tensor,
        reference: Tensor,
        x: Tensor,
        mask: Tensor | None = None,
        per_row: PerRow = NOTHING,
    ) -> Tensor:
        shift = self.shift(per_row)
        return self.likelihood.feature_statistic(f + shift, reference + shift, x, mask, per_row)

    def feature_gain(self, full: Tensor, reduced: Tensor) -> Tensor:
        return self.likelihood.feature_gain(full, reduced)

    def priors(self) -> dict[str, dist.Distribution]:
        return self.likelihood.priors()

    def values(self) -> dict[str, Tensor]:
        return self.likelihood.values()

    # ---- everything else is the likelihood's -------------------------------------------------------------
    @property
    def name(self) -> str:  # type: ignore[override]
        return self.likelihood.name

    @property
    def full_name(self) -> str:
        return self.likelihood.full_name

    @property
    def filler(self) -> float:  # type: ignore[override]
        return self.likelihood.filler

    @property
    def per_row_inputs(self) -> tuple[str, ...]:  # type: ignore[override]
        return self.likelihood.per_row_inputs

    @property
    def labels(self) -> tuple[tuple[str, ...] | None, ...]:  # type: ignore[override]
        """Words for the levels of each column, where it has any."""
        return self.likelihood.labels

    @property
    def standardise(self) -> bool:  # type: ignore[override]
        return self.likelihood.standardise

    def families(self) -> list[tuple[Likelihood, list[int] | None]]:
        return self.likelihood.families()

    def check(self, x: np.ndarray, feature_names: Sequence[str] | None = None) -> None:
        self.likelihood.check(x, feature_names)

    def as_recorded(self, cells: np.ndarray) -> np.ndarray:
        return self.likelihood.as_recorded(cells)

    def calibrate(self, x: npt.ArrayLike | Tensor, mask: npt.ArrayLike | Tensor | None = None) -> None:
        self.likelihood.calibrate(x, mask)

    def calibrate_by(
        self, mean: Tensor, totals: Callable[[], Tensor], some: Callable[[Tensor], Tensor]
    ) -> None:
        self.likelihood.calibrate_by(mean, totals, some)

    def units(self, cells: np.ndarray, standardise: bool) -> tuple[np.ndarray, np.ndarray]:
        return self.likelihood.units(cells, standardise)

    def is_standardised(self, n_features: int) -> np.ndarray:
        return self.likelihood.is_standardised(n_features)

    def note_per_row(self, given: Collection[str]) -> None:
        self.likelihood.note_per_row(given)

    def encoder_view(self, x: Tensor, per_row: PerRow = NOTHING) -> Tensor:
        return self.likelihood.encoder_view(x, per_row)

    def start_noise(self, residual_sd: Tensor, where: Tensor | None = None) -> None:
        self.likelihood.start_noise(residual_sd, where)

    def default_per_row(self, x: ArrayT, mask: ArrayT | None = None) -> dict[str, ArrayT]:
        return self.likelihood.default_per_row(x, mask)

    def check_per_row(self, name: str, values: np.ndarray) -> None:
        self.likelihood.check_per_row(name, values)

    def typical(self, name: str, values: np.ndarray) -> float:
        return self.likelihood.typical(name, values)

    def amount(self, per_row: PerRow) -> Tensor | None:
        return self.likelihood.amount(per_row)

    def start(self, x: ArrayT, mask: ArrayT | None = None) -> ArrayT:
        intercept = torch.as_tensor(self.likelihood.start(x, mask))
        if self._begin is not None:  # of an average row, which is not the rows' average where the link bends
            intercept = torch.where(self._begin[0].isnan(), intercept, self._begin[0].to(intercept))
        return in_kind(intercept, x)

    def noise_sd(self) -> Tensor | None:
        return self.likelihood.noise_sd()

    def variance_beside(self, dispersion: Tensor | None = None) -> Tensor | float:
        return self.likelihood.variance_beside(dispersion)


def _regression(likelihood: Likelihood, x: Tensor, per_row: PerRow) -> Tensor:
    """Intercepts and effects (1 + effect, feature) at the posterior mode of columns without factors.

    Intercepts are NaN where the likelihood has no `cell_terms`.

    Parameters
    ----------
    likelihood : Likelihood
    x : Tensor (row, feature)
        NaN where missing.
    per_row : mapping of str to Tensor (row, 1)
        The design (row, effect) among them.
    """
    rows = {name: values.double() for name, values in per_row.items()}
    design = rows.pop("design")
    if not keeps(likelihood, "cell terms"):
        return _unknown(design.shape[1], x.shape[1])
    cells, observed = filled(x.double(), filler=likelihood.filler)
    alone = copy.deepcopy(likelihood).double()
    alone.setup(x.shape[1], 1)
    alone.double()
    across = {name: values.mT for name, values in rows.items()}  # (1, row)
    dispersion = alone.dispersion() if alone.has_dispersion else torch.ones(1, x.shape[1]).double()
    framed = torch.cat([torch.ones_like(design[:, :1]), design], 1)  # row, 1 + effect
    theta = torch.zeros(x.shape[1], framed.shape[1]).double()
    theta[:, 0] = torch.as_tensor(alone.start(torch.where(observed, cells, torch.nan))).double()
    precision = torch.full((framed.shape[1],), EFFECT_SD**-2).double()
    precision[0] = 1e-6
    for _ in range(_NEWTON):
        f = (theta @ framed.mT).unsqueeze(0)
        terms = alone.cell_terms(f, cells.mT.unsqueeze(0), dispersion, across, 2)
        if terms is None:
            return _unknown(design.shape[1], x.shape[1])
        slope, bend = (term[0] * observed.mT for term in terms[1:])
        hessian = (bend.unsqueeze(1) * framed.mT) @ framed + precision.diag()
        step = torch.linalg.solve(hessian, slope @ framed - precision * theta)
        moves = (step @ framed.mT).abs().amax(1, keepdim=True)
        theta = theta + step * (_FARTHEST / moves.clamp(min=_FARTHEST))
        if bool((moves < 1e-6).all()):
            break
    return theta.mT


def _unknown(n_effects: int, n_features: int) -> Tensor:
    start = torch.zeros(1 + n_effects, n_features)
    start[0] = torch.nan
    return start
