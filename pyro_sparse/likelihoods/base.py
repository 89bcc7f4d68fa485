"""The likelihood contract: what models, fits, chains and results ask of a distribution of cells.

Subclass `Likelihood`, write `forward`, `mean` and, where only some values make sense, `_refuse`;
`pyro_sparse.testing.LikelihoodTestCase` then tells you whether it is sound.
Shapes: R = restart, B or N = row, G = feature; x is (B, G), the linear predictor f (R, B, G), own parameters
(R, 1, G), or (R, 1, 1) where features share one.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, Self, TypeAlias

import numpy as np
import pyro.distributions as dist
import torch
from torch import Tensor, nn

from .._utils.declared import Declared
from .._utils.recorded import Recorded
from .given_cells import ArrayT, column_numbers, filled, in_kind

if TYPE_CHECKING:
    import numpy.typing as npt

__all__ = [
    "AROUND_CELLS",
    "CELLS",
    "CELL_TERMS",
    "LOGISTIC_LEVELS",
    "NOTHING",
    "Column",
    "Likelihood",
    "PerRow",
    "Slopes",
]

PerRow: TypeAlias = Mapping[str, Tensor]  # tensors (row, 1) by name: what rows have beside their cells
NOTHING: PerRow = {}

# What a subclass may write anew without changing the density of a row: checks and views of the data, where a
# fit starts, expectations, and gradients in closed form.
AROUND_CELLS = frozenset({
    "_refuse", "amount", "as_recorded", "calibrate", "calibrate_by", "calibrate_effects", "check",
    "check_filler", "check_per_row", "choose", "chosen", "closed_slopes", "default_per_row",
    "dispersion_parameters", "encoder_view", "families", "feature_gain", "feature_statistic", "filler",
    "for_columns", "full_name", "intercept", "is_standardised", "labels", "mean", "name", "note_per_row",
    "of_features", "per_row_inputs", "reads_columns", "scorer", "separable", "setup", "slopes",
    "standardise", "start", "start_noise", "typical", "unadjusted", "units", "variance_beside",
})  # fmt: skip
# Rows are the sum of what `forward` says of their cells, whatever that is.
CELLS = Declared(
    "cells",
    free=AROUND_CELLS,
    rests_on=frozenset(
        {"__call__", "__getattr__", "__getattribute__", "_call_impl", "log_prob", "observation"}
    ),
)


# `cell_terms`, and what goes with it, are of the density that `forward` says.
CELL_TERMS = Declared("cell terms", free=AROUND_CELLS)
# Those of the levels of a logistic response, cut where `logistic_cuts` says.
LOGISTIC_LEVELS = Declared("logistic levels", free=AROUND_CELLS)


class Column(NamedTuple):
    """What is known of a table's column before its cells are numbers in the model's units.

    Attributes
    ----------
    name : str
    type : {bool, int, float}
        Of its cells as they were given; int where a column of another type holds whole numbers.
    values : ndarray (row,)
        As numbers, NaN where missing; numbers of its levels, from 0, where it has `labels`.
    labels : tuple of str
        The words for its levels in their order, of ordered categories; else empty.
    """

    name: str
    type: type
    values: np.ndarray
    labels: tuple[str, ...] = ()


class Slopes(NamedTuple):
    """What `Likelihood.slopes` finds.

    Parameters
    ----------
    terms : dict of str to Tensor (R,)
        Log-likelihood of all rows, "x", and the log prior of each of `values`, without their weights.
    by_f : Tensor (R, B, G)
        Gradient by the linear predictor.
    by_parameters : list of Tensor
        Gradients by the parameters, in their order.
    """

    terms: dict[str, Tensor]
    by_f: Tensor
    by_parameters: list[Tensor]


class Likelihood(Recorded, nn.Module):
    r"""Base class: what the models, the fit and the results ask of a likelihood.

    Attributes
    ----------
    name : str
        The name `get_likelihood` knows it by.
    standardise : bool
        Whether the fit works on z-scored columns (as `Normal` does) and undoes it on output.
    per_row_inputs : tuple of str
        Names of what it reads of each row beside the cells. Callers give them by name to `pyro_sparse.fit`
        and to the methods of a fit.
    has_dispersion : bool
        Whether it has one positive number for each feature, its `dispersion`, that chains draw by themselves.
    capturable : bool
        Whether a training step calls nothing here that may differ from step to step, or that waits for an
        accelerator, so that steps may be CUDA graphs. A class says it of itself; it is not inherited.
    separable : bool
        Whether each cell depends on its own entry of f and on its own feature's parameters only, and a row's
        `observation` is what `forward` says of its cells, so that a few features at a time may be evaluated.
        Default False, which is never wrong.
    filler : float
        What missing cells of x hold, in the model's units: any value at which the log density and its
        gradients are finite. They are left out, but infinity times 0 is not 0. Default 0; a density of
        positive numbers wants 1, say.
    latent_variance : float
        Of cells without noise in the units of f: the variance of what stands for it (`variance_beside`).
    reads_columns : bool
        Whether names and types of columns matter to it (`for_columns`).
    labels : tuple of (tuple of str or None)
        Words for the levels of each column that has any; empty where no column has.

    Notes
    -----
    Everywhere, ``mask`` has the shape of ``x`` and is true where a cell was seen (None: where x is no NaN),
    and ``per_row`` has tensors (B, 1), broadcastable to f, by the names of `per_row_inputs`; one that is not
    there is as if it made no difference.  `start` and `default_per_row` take numpy arrays or tensors and
    answer in kind.

    Parameters of which `priors` speaks are as uncertain as anything else to the Markov chains of
    `edge_posterior`, if each of `values` is an elementwise function of one of them; others are held where the
    fit left them, and the verdict says so.
    """

    declares: tuple[Declared, ...] = (CELLS,)
    name: str = ""
    standardise: bool = False
    per_row_inputs: tuple[str, ...] = ()
    has_dispersion: bool = False
    capturable: bool = False
    separable: bool = False
    filler: float = 0.0
    latent_variance: float = 1.0
    reads_columns: bool = False
    labels: tuple[tuple[str, ...] | None, ...] = ()

    def __init__(self) -> None:
        super().__init__()

    def setup(self, n_features: int, n_restarts: int = 1) -> None:
        """Allocate the parameters, each (R, 1, G) or (R, 1, 1), at their start; called once before a fit."""

    def for_columns(self, columns: Sequence[Column]) -> Likelihood:
        """The likelihood of a table with these columns; default itself. Asked where `reads_columns`.

        Parameters
        ----------
        columns : sequence of Column
        """
        return self

    def choose(self, columns: Sequence[Column]) -> list[Likelihood]:
        """The likelihood of each of these columns; default itself."""
        return [self] * len(columns)

    def chosen(self, columns: Sequence[Column]) -> dict[str, list[str]]:
        """Names of the columns whose likelihood it chooses itself, by that; default none."""
        return {}

    def families(self) -> list[tuple[Likelihood, list[int] | None]]:
        """The likelihoods that it is made of, and the columns of each; default itself, of all (None)."""
        return [(self, None)]

    def check(self, x: np.ndarray, feature_names: Sequence[str] | None = None) -> None:
        """Refuse data this likelihood cannot describe, judging each cell by itself.

        Parameters
        ----------
        x : array_like of shape (N, G)
            NaN marks a missing cell and is fine. Of a sparse table read by rows, the stored cells only, as
            one column, and one table of a zero.
        feature_names : sequence of str, optional
            Names for the message; default ``column 0`` …

        Raises
        ------
        ValueError
            Naming the first offending column, its value, what is wanted and the fix; cells are missing, and
            `filler` is a value that is refused.
        """
        x = column_numbers(x, feature_names)
        self._refuse(x, feature_names)
        if not self.standardise and np.isnan(x).any():
            centre, scale = self.units(x, False)
            try:
                self._refuse((self.filler * scale + centre)[None], feature_names)
            except ValueError as error:
                raise ValueError(
                    f"{type(self).__name__}.filler: missing cells hold {self.filler:g}, which this "
                    f"likelihood refuses; set the attribute to a value that it allows. ({error})"
                ) from error

    def check_filler(self, f: Tensor) -> None:
        """Refuse a `filler` that spoils gradients although it is left out; asked where cells are missing.

        Parameters
        ----------
        f : Tensor of shape (R, B, G)
            Any linear predictor, after `setup`.

        Raises
        ------
        ValueError
            The filler is no value that a cell may have, or a gradient there is not finite.
        """
        leaves = [f.detach().requires_grad_(), *(p for p in self.parameters() if p.requires_grad)]
        hidden = torch.zeros(f.shape[1:], dtype=torch.bool, device=f.device)
        per_row = {name: torch.ones_like(f[0, :, :1]) for name in self.per_row_inputs}
        try:
            with torch.enable_grad():
                distribution = self.observation(leaves[0], hidden, per_row)
                rows = distribution.log_prob(torch.full_like(f[0], self.filler))
                gradients = torch.autograd.grad(rows.sum(), leaves, materialize_grads=True)
            why = "" if all(g.isfinite().all() for g in gradients) else "whose density has no finite gradient"
        except ValueError as error:
            why = str(error).splitlines()[0]
        if why:
            raise ValueError(
                f"{type(self).__name__}.filler: missing cells hold {self.filler:g}, {why}; set the attribute "
                "to a value inside the support"
            )

    def _refuse(self, x: np.ndarray, feature_names: Sequence[str] | None) -> None:
        """The checks beyond "finite numbers"; default none."""

    def as_recorded(self, cells: np.ndarray) -> np.ndarray:
        """Checked cells (N, G) in the caller's units, NaN where missing, as the density knows them.

        Numbers that the density does not tell apart become one, so that the encoder, centre and scale do not
        tell them apart either. Default: the cells as they are.
        """
        return cells

    def calibrate(self, x: npt.ArrayLike | Tensor, mask: npt.ArrayLike | Tensor | None = None) -> None:
        """Remember what later tables are measured by (counts: the typical row total); default nothing."""

    def calibrate_by(
        self, mean: Tensor, totals: Callable[[], Tensor], some: Callable[[Tensor], Tensor]
    ) -> None:
        """`calibrate` for a table too large for it; default nothing.

        Parameters
        ----------
        mean : Tensor (G,)
            Of the seen cells of each column.
        totals : callable
            Gives the rows' `totals` (N, 1), where the likelihood has such a method.
        some : callable
            Of numbers of columns, gives these columns of some thousand rows, evenly spread; NaN: missing.
        """

    @property
    def unadjusted(self) -> Likelihood:
        """The likelihood of cells given the whole predictor, effects of covariates included."""
        return self

    def calibrate_effects(self, x: Tensor, per_row: PerRow) -> None:
        """Remember where effects of covariates, ``per_row["design"]``, begin; default nothing."""

    def units(self, cells: np.ndarray, standardise: bool) -> tuple[np.ndarray, np.ndarray]:
        """Centre and scale (feature,) of columns in the model's units, x = (cell - centre) / scale.

        Parameters
        ----------
        cells : ndarray (row, feature)
            In the caller's units; NaN where missing.
        standardise : bool
            What the caller asked for. Default z-scores where this and the attribute of this name are true,
            else the caller's units.
        """
        if standardise and self.standardise:
            return np.nanmean(cells, 0), np.nanstd(cells, 0)
        return np.zeros(cells.shape[1]), np.ones(cells.shape[1])

    def is_standardised(self, n_features: int) -> np.ndarray:
        """Which columns (feature,) have the scale of their standard deviation; default by `standardise`."""
        return np.full(n_features, self.standardise)

    def of_features(self, features: slice | Tensor) -> Likelihood | None:
        """The likelihood of some columns alone, as far as the density of cells goes.

        None where it is not known how to restrict it: the default, where it has parameters of its own.
        """
        return None if next(self.parameters(), None) is not None else self

    def _restricted(self, features: slice | Tensor, buffers: Collection[str] = ()) -> Self:
        """`of_features` where parameters, and these buffers, have a column for each feature."""
        restricted = copy.copy(self)
        restricted._buffers = {
            name: buffer if buffer is None or name not in buffers else buffer[features]
            for name, buffer in self._buffers.items()
        }
        restricted._parameters = {
            name: None if p is None else nn.Parameter(p.detach()[..., features], requires_grad=False)
            for name, p in self._parameters.items()
        }
        return restricted

    def note_per_row(self, given: Collection[str]) -> None:
        """Hear which of `per_row_inputs` the caller gave with the training table; default nothing."""

    def encoder_view(self, x: Tensor, per_row: PerRow = NOTHING) -> Tensor:
        """What the encoder reads of data (N, G), NaN where missing, before z-scoring; default the data."""
        return x

    def start_noise(self, residual_sd: Tensor, where: Tensor | None = None) -> None:
        """Begin, where asked, at noise (R, 1, G) guessed from a rough fit, model's scale; default nothing."""

    def default_per_row(self, x: ArrayT, mask: ArrayT | None = None) -> dict[str, ArrayT]:
        """What the cells say of `per_row_inputs`, (N, 1) by name, where nobody gives it; default {}."""
        return {}

    def check_per_row(self, name: str, values: np.ndarray) -> None:
        """Refuse finite numbers (N, 1) that cannot be this one of `per_row_inputs`; default none.

        Raises
        ------
        ValueError
            "is 0 in row 3, wanted one positive number per row": what follows the name and a colon.
        """

    def typical(self, name: str, values: np.ndarray) -> float:
        """What a caller's inputs (N, 1) are divided by, so that their unit does not matter; default 1."""
        return 1.0

    def amount(self, per_row: PerRow) -> Tensor | None:
        """How much of a typical row each one is, (N, 1); None, the default, where all are alike."""
        return None

    def start(self, x: ArrayT, mask: ArrayT | None = None) -> ArrayT:
        """Intercepts (G,) on the scale of the linear predictor, from data (N, G): `intercept` of its sums."""
        cells, observed = filled(x, mask)
        default, count = self.default_per_row(x, mask), observed.sum(0)
        amount = self.amount({name: torch.as_tensor(values) for name, values in default.items()})
        amounts = count if amount is None else (observed * amount).sum(0)
        return in_kind(self.intercept(cells.sum(0), count, amounts), x)

    def intercept(self, total: Tensor, seen: Tensor, amounts: Tensor) -> Tensor:
        """Intercepts (G,) from the sums of columns, of a table too large for `start`; default column means.

        Parameters
        ----------
        total, seen, amounts : Tensor (G,)
            Of each column the sum, the number of cells seen and the sum of their rows' `amount` (their number
            where all are alike).
        """
        return total / seen.clamp(min=1)

    def priors(self) -> dict[str, dist.Distribution]:
        """Prior of each quantity in `values`: batch shape (R,), event shape (G,); default none."""
        return {}

    def values(self) -> dict[str, Tensor]:
        """Current value (R, G) of each quantity that `priors` speaks about."""
        return {}

    def noise_sd(self) -> Tensor | None:
        """Noise standard deviation (R, 1, G) on the model's scale, or None where it depends on the mean."""
        return None

    def variance_beside(self, dispersion: Tensor | None = None) -> Tensor | float:
        r"""Variance of cells beside that of f, (R, G): what shares of variance are shares of.

        Parameters
        ----------
        dispersion : Tensor (R, G), optional
            Where `has_dispersion`; default the fitted one.

        Returns
        -------
        Tensor (R, G) or float
            Of noise in the units of f its variance, else `latent_variance`: of answers through a logit
            :math:`\pi^2/3`, through a probit 1, that of the noise of the latent response (McKelvey and
            Zavoina 1975, Journal of Mathematical Sociology 4(1)); by default 1, a convention: rates have
            none.
        """
        sd = self.noise_sd()
        return self.latent_variance if sd is None else sd[:, 0] ** 2

    def forward(self, f: Tensor, per_row: PerRow = NOTHING) -> dist.Distribution:
        """Distribution of x given f (R, B, G): batch (R, B, G), event ()."""
        raise NotImplementedError(
            f"{type(self).__name__} must define forward(f, per_row): the distribution of each cell"
        )

    def scorer(self, per_row: PerRow = NOTHING) -> Callable[[Tensor, Tensor, int, Tensor], Tensor] | None:
        r"""Closed form of :math:`\partial \log p(x_{ij} | f_{ij}) / \partial f_{ij}`, if `separable`.

        Parameters
        ----------
        per_row : mapping of str to Tensor of shape (B, 1), optional

        Returns
        -------
        callable or None
            ``score(f, x, r, features)``: the derivative at f and x, both (feature, B), of the features with
            these numbers in restart r. None (the default) leaves it to autograd, which takes longer.
        """
        return None

    def cell_terms(
        self, f: Tensor, x: Tensor, dispersion: Tensor, per_row: PerRow, order: int
    ) -> tuple[Tensor, ...] | None:
        r"""Closed forms of :math:`\log p(x_{ij} \mid f_{ij})` and its derivatives, for Markov chains.

        They are used where the class that has them declares "cell terms" and no subclass writes the
        density anew; else, and where this returns None (the default), `forward` is differentiated.

        Parameters
        ----------
        f, x : Tensor (..., feature, row)
        dispersion : Tensor (..., feature)
            Where `has_dispersion`; else unused.
        per_row : mapping of str to Tensor (..., 1, row)
        order : int
            0, 1 or 2: how many derivatives.

        Returns
        -------
        tuple of Tensor (..., feature, row), or None
            Log density, up to what f does not move and `log_base` has; its slope; minus its curvature.
        """
        return None

    def logistic_cuts(self) -> Tensor | None:
        """Where a logistic response is cut, if `cell_terms` are those of its levels: sums of them take less.

        Asked of a class that declares "logistic levels".

        Returns
        -------
        Tensor (restart or 1, feature or 1, cut), or None
            Increasing, less f; infinite beyond a column's last. None, the default: `cell_terms` say it all.
        """
        return None

    def dispersion(self) -> Tensor:
        """The fitted one (R, G), where `has_dispersion`: the variance of normal cells, say."""
        raise NotImplementedError(f"{type(self).__name__} has no dispersion")

    def dispersion_parameters(self) -> tuple[str, ...]:
        """Names of the parameters that `dispersion` stands for; default all where `has_dispersion`."""
        return tuple(name for name, _ in self.named_parameters()) if self.has_dispersion else ()

    def log_base(self, x: Tensor, dispersion: Tensor) -> Tensor:
        """What `cell_terms` leave out of a cell's log density and the dispersion moves; default 0."""
        return torch.zeros_like(x, dtype=torch.float64)

    def log_dispersion_prior(self, dispersion: Tensor) -> Tensor:
        """Log prior density of the quantity in `priors` that it stands for, (..., feature), float64."""
        raise NotImplementedError(f"{type(self).__name__} has no dispersion")

    def given_totals(self, made: Collection[str]) -> Likelihood | None:
        """The likelihood of cells that come apart given a number for each row, of which only totals speak.

        Chains then draw that number. Rows of a multinomial are Poisson counts of this kind.

        Parameters
        ----------
        made : collection of str
            Those of `per_row_inputs` that `default_per_row` made.

        Returns
        -------
        Likelihood or None
            None, the default: rows have no such number, or it is known.
        """
        return None

    def slopes(
        self,
        f: Tensor,
        x: Tensor,
        mask: Tensor | None = None,
        per_row: PerRow = NOTHING,
        of_cells: float = 1.0,
        of_priors: float = 1.0,
    ) -> Slopes:
        r"""Log-likelihood and log priors, and the gradients of a weighted sum of them, outside autograd.

        The gradients are those of

        .. math:: a \sum_{ij} \log p(x_{ij} | f_{ij}) + b \sum_q \log p(q)

        with q the quantities that `priors` speaks of. Here by autograd, through `observation`, `priors`
        and `values`; where a subclass knows a closed form, it overrides this.

        Parameters
        ----------
        f, x, mask, per_row
            As in `log_prob`; missing cells of x hold `filler`.
        of_cells, of_priors : float
            a and b.

        Returns
        -------
        Slopes
        """
        parameters = list(self.parameters())
        with torch.enable_grad():
            leaf = f.detach().requires_grad_()
            terms = {"x": self.observation(leaf, mask, per_row).log_prob(x).sum(1)}
            priors = self.priors()
            terms |= {name: priors[name].log_prob(value) for name, value in self.values().items()}
            total = sum(term.sum() * (of_cells if name == "x" else of_priors) for name, term in terms.items())
            inputs = [p for p in (leaf, *parameters) if p.requires_grad]
            by = dict(zip(inputs, torch.autograd.grad(total, inputs, materialize_grads=True), strict=True))
        detached = {name: term.detach() for name, term in terms.items()}
        return Slopes(detached, by[leaf], [by[p] if p in by else torch.zeros_like(p) for p in parameters])

    def closed_slopes(self) -> Callable[..., Slopes]:
        """`slopes` where its own class wrote it; of a subclass, which may say something else, by autograd."""
        closed = "slopes" in vars(type(self))
        return self.slopes if closed else functools.partial(Likelihood.slopes, self)

    def mean(self, f: Tensor, per_row: PerRow = NOTHING) -> Tensor:
        """Expectation (R, B, G) of x given f."""
        raise NotImplementedError(
            f"{type(self).__name__} must define mean(f, per_row): the expectation of each cell, which "
            "predictions and reports are made of"
        )

    def observation(
        self, f: Tensor, mask: Tensor | None = None, per_row: PerRow = NOTHING
    ) -> dist.Distribution:
        """Distribution of the seen cells of a row, batch (R, B), event (G,): a model's ``x`` site."""
        cells = self(f, per_row)
        return (cells if mask is None else cells.mask(mask.bool())).to_event(1)

    def log_prob(self, f: Tensor, x: Tensor, mask: Tensor | None = None, per_row: PerRow = NOTHING) -> Tensor:
        r"""Log-likelihood of each row, :math:`\sum_{j\ \mathrm{seen}} \log p(x_{ij} \mid f_{ij})`.

        Parameters
        ----------
        f : Tensor of shape (R, B, G)
            Linear predictor.
        x : Tensor of shape (B, G) or (R, B, G)
            Data; missing cells may hold anything, NaN included.
        mask : Tensor of shape (B, G) or (R, B, G), optional
            True (or 1) where seen.
        per_row : mapping of str to Tensor of shape (B, 1), optional
            What is not among `per_row_inputs` is ignored.

        Returns
        -------
        Tensor of shape (R, B)
            In nats; exactly the value of the table with the missing cells dropped.
        """
        x, observed = filled(x, mask, self.filler)
        log_p: Tensor = self.observation(f, observed, per_row).log_prob(x)
        return log_p

    def feature_statistic(
        self,
        f: Tensor,
        reference: Tensor,
        x: Tensor,
        mask: Tensor | None = None,
        per_row: PerRow = NOTHING,
    ) -> Tensor:
        r"""What `feature_gain` needs of some rows, additive over rows; default each log-likelihood.

        Parameters
        ----------
        f, reference : Tensor of shape (R, B, G)
            Linear predictor to judge, and the one the other features keep (only the multinomial needs it:
            feature j is judged with ``f`` in place j and ``reference`` elsewhere).
        x, mask, per_row
            As in `log_prob`.

        Returns
        -------
        Tensor of shape (R, G) or (R, G, m)
        """
        x, observed = filled(x, mask, self.filler)
        log_probs = self(f, per_row).log_prob(x)
        return torch.where(observed, log_probs, torch.zeros_like(log_probs)).sum(-2)

    def feature_gain(self, full: Tensor, reduced: Tensor) -> Tensor:
        """Log-likelihood (R, G) that each feature loses between two summed `feature_statistic`.

        At the likelihood's parameters as they are; or, so that a noise that suits one of the two is no judge
        of them, each at the parameters that suit the feature best.
        """
        return full - reduced

    @property
    def full_name(self) -> str:
        """The name as it is printed, with what tells it from others of its name; default the name."""
        return self.name

    def extra_repr(self) -> str:
        return self.full_name
