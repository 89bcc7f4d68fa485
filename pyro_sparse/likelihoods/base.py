"""The likelihood contract, and the checks every table passes through.

Subclass `Likelihood`, write `forward`, `mean` and, where only some values make sense, `_refuse`;
`pyro_sparse.testing.LikelihoodTestCase` then tells you whether it is sound.
Shapes: R = restart, B or N = row, G = feature; x is (B, G), the linear predictor f (R, B, G), own parameters
(R, 1, G), or (R, 1, 1) where features share one.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyro.distributions as dist
import torch
from torch import Tensor, nn

from .._utils.declared import Declared
from .._utils.recorded import Recorded

__all__ = ["AROUND_CELLS", "CELLS", "Likelihood", "Slopes"]

# What a subclass may write anew without changing the density of a row: checks and views of the data, where a
# fit starts, expectations, and gradients in closed form.
AROUND_CELLS = frozenset({
    "_refuse", "calibrate", "calibrate_by", "check", "check_filler", "closed_slopes", "default_exposure",
    "encoder_view", "feature_gain", "feature_statistic", "filler", "intercept", "mean", "name",
    "note_exposures", "scorer", "separable", "setup", "slopes", "standardise", "start", "start_noise",
    "typical_exposure", "uses_exposure",
})  # fmt: skip
# Rows are the sum of what `forward` says of their cells, whatever that is.
CELLS = Declared(
    "cells",
    free=AROUND_CELLS,
    rests_on=frozenset(
        {"__call__", "__getattr__", "__getattribute__", "_call_impl", "log_prob", "observation"}
    ),
)


class Slopes(NamedTuple):
    """What `Likelihood.slopes` finds.

    Parameters
    ----------
    terms : dict of str to Tensor (R,)
        Log-likelihood of all rows, "x", and the log prior of each own quantity, without their weights.
    by_f : Tensor (R, B, G)
        Gradient by the linear predictor.
    by_own : list of Tensor
        Gradients by own parameters, in their order.
    """

    terms: dict[str, Tensor]
    by_f: Tensor
    by_own: list[Tensor]


class Likelihood(Recorded, nn.Module):
    r"""Base class: what the models, the fit and the results ask of a likelihood.

    Attributes
    ----------
    name : str
        The name `get_likelihood` knows it by.
    standardise : bool
        Whether the fit works on z-scored columns (only `Normal` does) and undoes it on output.
    uses_exposure : bool
        Whether rows carry an exposure: a size factor, or the total count of a multinomial row.
    separable : bool
        Whether each cell depends on its own entry of f and on its own feature's parameters only, and a row's
        `observation` is what `forward` says of its cells, so that a few features at a time may be evaluated.
        Default False, which is never wrong.
    filler : float
        What missing cells of x hold, in the model's units: any value at which the log density and its
        gradients are finite. They are left out, but infinity times 0 is not 0. Default 0; a density of
        positive numbers wants 1, say.

    Notes
    -----
    Everywhere, ``mask`` has the shape of ``x`` and is true where a cell was seen (None: where x is no NaN),
    and ``exposure`` has shape (B, 1), broadcastable to f.  `start` and `default_exposure` take
    numpy arrays or tensors and answer in kind.

    Parameters of which `priors` speaks are as uncertain as anything else to the Markov chains of
    `edge_posterior`, if each of `values` is an elementwise function of one of them; others are held where the
    fit left them, and the verdict says so.
    """

    declares: tuple[Declared, ...] = (CELLS,)
    name: str = ""
    standardise: bool = False
    uses_exposure: bool = False
    separable: bool = False
    filler: float = 0.0

    def __init__(self) -> None:
        super().__init__()

    def setup(self, n_features: int, n_restarts: int = 1) -> None:
        """Allocate the parameters, each (R, 1, G) or (R, 1, 1), at their start; called once before a fit."""

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
        x = _numbers(x, feature_names)
        self._refuse(x, feature_names)
        if not self.standardise and np.isnan(x).any():
            try:
                self._refuse(np.full((1, x.shape[1]), float(self.filler)), feature_names)
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
        exposure = torch.ones_like(f[0, :, :1]) if self.uses_exposure else None
        try:
            with torch.enable_grad():
                distribution = self.observation(leaves[0], hidden, exposure)
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

    def calibrate(self, x: Any, mask: Any = None) -> None:
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

    def note_exposures(self, given: bool) -> None:
        """Hear whether the training table's exposures are the caller's; default nothing."""

    def encoder_view(self, x: Tensor, exposure: Tensor | None = None) -> Tensor:
        """What the encoder reads of data (N, G), NaN where missing, before z-scoring; default the data."""
        return x

    def start_noise(self, residual_sd: Tensor, where: Tensor | None = None) -> None:
        """Begin, where asked, at noise (R, 1, G) guessed from a rough fit, model's scale; default nothing."""

    def default_exposure(self, x: Any, mask: Any = None) -> Any:
        """Exposure (N, 1) of each row when the caller gives none; None where there is no such thing."""
        return None

    def typical_exposure(self, exposure: np.ndarray) -> float:
        """What a caller's exposures (N, 1) are divided by, so that their unit does not matter; default 1."""
        return 1.0

    def start(self, x: Any, mask: Any = None) -> Any:
        """Intercepts (G,) on the scale of the linear predictor, from data (N, G): `intercept` of its sums."""
        cells, present = observed(x, mask)
        exposure, count = self.default_exposure(x, mask), present.sum(0)
        exposed = count if exposure is None else (present * torch.as_tensor(exposure)).sum(0)
        return in_kind(self.intercept(cells.sum(0), count, exposed), x)

    def intercept(self, total: Tensor, seen: Tensor, exposed: Tensor) -> Tensor:
        """Intercepts (G,) from the sums of columns, of a table too large for `start`; default column means.

        Parameters
        ----------
        total, seen, exposed : Tensor (G,)
            Of each column the sum, the number of cells seen and the sum of their rows' exposures (without
            exposures their number).
        """
        return total / seen.clamp(min=1)

    def priors(self) -> dict[str, dist.Distribution]:
        """Prior of each own quantity in `values`: batch shape (R,), event shape (G,); default none."""
        return {}

    def values(self) -> dict[str, Tensor]:
        """Current value (R, G) of each quantity that `priors` speaks about."""
        return {}

    def noise_sd(self) -> Tensor | None:
        """Noise standard deviation (R, 1, G) on the model's scale, or None where it depends on the mean."""
        return None

    def forward(self, f: Tensor, exposure: Tensor | None = None) -> dist.Distribution:
        """Distribution of x given f (R, B, G): batch (R, B, G), event ()."""
        raise NotImplementedError(
            f"{type(self).__name__} must define forward(f, exposure): the distribution of each cell"
        )

    def scorer(
        self, exposure: Tensor | None = None
    ) -> Callable[[Tensor, Tensor, int, Tensor], Tensor] | None:
        r"""Closed form of :math:`\partial \log p(x_{ij} | f_{ij}) / \partial f_{ij}`, if `separable`.

        Parameters
        ----------
        exposure : Tensor of shape (B, 1), optional

        Returns
        -------
        callable or None
            ``score(f, x, r, features)``: the derivative at f and x, both (feature, B), of the features with
            these numbers in restart r. None (the default) leaves it to autograd, which takes longer.
        """
        return None

    def slopes(
        self,
        f: Tensor,
        x: Tensor,
        mask: Tensor | None = None,
        exposure: Tensor | None = None,
        of_cells: float = 1.0,
        of_priors: float = 1.0,
    ) -> Slopes:
        r"""Log-likelihood and log priors, and the gradients of a weighted sum of them, outside autograd.

        The gradients are those of

        .. math:: a \sum_{ij} \log p(x_{ij} | f_{ij}) + b \sum_q \log p(q)

        with q the own quantities that `priors` speaks of. Here by autograd, through `observation`, `priors`
        and `values`; where a subclass knows a closed form, it overrides this.

        Parameters
        ----------
        f, x, mask, exposure
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
            terms = {"x": self.observation(leaf, mask, exposure).log_prob(x).sum(1)}
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

    def mean(self, f: Tensor, exposure: Tensor | None = None) -> Tensor:
        """Expectation (R, B, G) of x given f."""
        raise NotImplementedError(
            f"{type(self).__name__} must define mean(f, exposure): the expectation of each cell, which "
            "predictions and reports are made of"
        )

    def observation(
        self, f: Tensor, mask: Tensor | None = None, exposure: Tensor | None = None
    ) -> dist.Distribution:
        """Distribution of the seen cells of a row, batch (R, B), event (G,): a model's ``x`` site."""
        cells = self(f, exposure)
        return (cells if mask is None else cells.mask(mask.bool())).to_event(1)

    def log_prob(
        self, f: Tensor, x: Tensor, mask: Tensor | None = None, exposure: Tensor | None = None
    ) -> Tensor:
        r"""Log-likelihood of each row, :math:`\sum_{j\ \mathrm{seen}} \log p(x_{ij} \mid f_{ij})`.

        Parameters
        ----------
        f : Tensor of shape (R, B, G)
            Linear predictor.
        x : Tensor of shape (B, G) or (R, B, G)
            Data; missing cells may hold anything, NaN included.
        mask : Tensor of shape (B, G) or (R, B, G), optional
            True (or 1) where seen.
        exposure : Tensor of shape (B, 1), optional
            Ignored where the likelihood has none.

        Returns
        -------
        Tensor of shape (R, B)
            In nats; exactly the value of the table with the missing cells dropped.
        """
        x, present = observed(x, mask, self.filler)
        return self.observation(f, present, exposure).log_prob(x)

    def feature_statistic(
        self,
        f: Tensor,
        reference: Tensor,
        x: Tensor,
        mask: Tensor | None = None,
        exposure: Tensor | None = None,
    ) -> Tensor:
        r"""What `feature_gain` needs of some rows, additive over rows; default each log-likelihood.

        Parameters
        ----------
        f, reference : Tensor of shape (R, B, G)
            Linear predictor to judge, and the one the other features keep (only the multinomial needs it:
            feature j is judged with ``f`` in place j and ``reference`` elsewhere).
        x, mask, exposure
            As in `log_prob`.

        Returns
        -------
        Tensor of shape (R, G) or (R, G, m)
        """
        x, present = observed(x, mask, self.filler)
        log_probs = self(f, exposure).log_prob(x)
        return torch.where(present, log_probs, torch.zeros_like(log_probs)).sum(-2)

    def feature_gain(self, full: Tensor, reduced: Tensor) -> Tensor:
        """Log-likelihood (R, G) that each feature loses between two summed `feature_statistic`.

        At the own parameters as they are; or, so that a noise that suits one of the two is no judge of them,
        each at the own parameters that suit the feature best.
        """
        return full - reduced

    def extra_repr(self) -> str:
        return self.name


def in_kind(result: Tensor, x: Any) -> Any:
    """The result as a tensor where x was one, else as a numpy array."""
    return result if isinstance(x, Tensor) else result.numpy()


def observed(x: Any, mask: Any = None, filler: float = 0.0) -> tuple[Tensor, Tensor]:
    """Data with missing cells at `filler`, and the boolean mask of observed cells (not NaN, and ``mask``)."""
    x = torch.as_tensor(x)
    present = ~torch.isnan(x)
    if mask is not None:
        present = present & torch.as_tensor(mask, device=x.device).bool()
    return torch.where(present, x, torch.full_like(x, filler)), present


def column_mean(x: Tensor, present: Tensor) -> Tensor:
    """Mean (G,) of the seen cells of each column; 0 where none was."""
    return (x * present).sum(0) / present.sum(0).clamp(min=1)


def _column(feature_names: Sequence[str] | None, j: int) -> str:
    return f"column {j}" if feature_names is None else f"column {feature_names[j]!r}"


def _numbers(x: Any, feature_names: Sequence[str] | None) -> np.ndarray:
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
                        f"X: {_column(feature_names, j)} holds {value!r} (row {i}), which is not a number. "
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
    bad: np.ndarray, x: np.ndarray, feature_names: Sequence[str] | None, want: str, fix: str
) -> None:
    """ValueError for the first cell marked bad: what it holds, what is wanted, the fix."""
    if bad.any():
        j = int(bad.any(0).argmax())
        i = int(bad[:, j].argmax())
        raise ValueError(
            f"X: {_column(feature_names, j)} holds {x[i, j]:g} (row {i}); {want}. {fix} "
            f"({int(bad.sum())} such cell(s) in {int(bad.any(0).sum())} column(s).)"
        )
