r"""Sparse linear rows: the model that enumeration, expectation propagation, Gibbs and bootstrap share.

.. math:: y_{ti} = b_t + \sum_j w_{tj} F_{tij} + \varepsilon_{ti}, \quad
          w_{tj} \sim \eta\, \psi_1 + (1 - \eta)\, \psi_0, \quad \varepsilon_{ti} \sim N(0, \sigma_t^2)

One row per task t, each with features of its own; edge (t, j) says that :math:`w_{tj}` is of the slab
:math:`\psi_1`. The intercept has a flat prior and is integrated out.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ...._utils.checks import check_whole

__all__ = ["RowDraws", "RowPosterior", "RowPrior"]


@dataclass(frozen=True, eq=False)
class RowPrior:
    r"""Prior of the weights, the inclusion rate and the noise of sparse linear rows.

    Parameters
    ----------
    slab : {"normal", "laplace"}
        Normal with standard deviation `slab_scale`, or Laplace with rate 1 / `slab_scale`.
    slab_scale : float or array_like, broadcastable to (..., task, feature)
        In units of the target per unit of the feature. Features are taken as they are, so one number for all
        wants standardised features.
    spike_scale : float
        0: absent weights are zero. Above 0, with the Laplace slab only: the spike is Laplace with rate
        1 / `spike_scale` (the spike-and-slab lasso).
    eta : float or array_like in (0, 1), broadcastable to (..., task, feature), optional
        Inclusion rate, if known.
    eta_prior : tuple of float
        a and b of its Beta distribution otherwise.
    eta_over : {"row", "feature", "all"}
        Which edges share a rate: those of a task, those of a feature over all tasks, or all.
    noise_variance : float or array_like, broadcastable to (..., task), optional
        :math:`\sigma^2`, if known, in squared units of the target.
    noise_prior : tuple of float, or "learned"
        Shape and scale of its inverse-gamma distribution otherwise, one draw per task. "learned": both are
        learned from all tasks, under the prior of `models/_task_noise.py`, for targets of unit variance.
    target_scale : array_like, broadcastable to (..., task), optional
        Where the prior of the noise is learned: what each task's targets were divided by. Whether noise goes
        with it is learned, too.
    slab_units : {"target", "noise"}
        "noise": both scales are in units of the noise's standard deviation (times target per feature), as
        conjugate priors have it; learned noise then wants the normal slab.
    intercept : bool
        Whether rows have one.
    intercept_sd : float
        Standard deviation of its normal prior, about 0 where the features have their means, on the scale of
        the linear predictor. Of outcomes that are not normal only; normal ones have a flat prior.

    Raises
    ------
    ValueError
        If a choice is unknown, a number out of range, or two settings do not go together.
    """

    slab: Literal["normal", "laplace"] = "normal"
    slab_scale: ArrayLike = 1.0
    spike_scale: float = 0.0
    eta: ArrayLike | None = None
    eta_prior: tuple[float, float] = (1.0, 1.0)
    eta_over: Literal["row", "feature", "all"] = "row"
    noise_variance: ArrayLike | None = None
    noise_prior: tuple[float, float] | Literal["learned"] = (2.0, 1.0)
    target_scale: ArrayLike | None = None
    slab_units: Literal["target", "noise"] = "target"
    intercept: bool = True
    intercept_sd: float = 5.0

    def __post_init__(self) -> None:
        for name, choices in (
            ("slab", ("normal", "laplace")),
            ("eta_over", ("row", "feature", "all")),
            ("slab_units", ("target", "noise")),
        ):
            if getattr(self, name) not in choices:
                raise ValueError(f"{name}: want one of {list(choices)}, got {getattr(self, name)!r}")
        if isinstance(self.noise_prior, str) and self.noise_prior != "learned":
            raise ValueError(
                f"noise_prior: want two positive numbers, or 'learned', got {self.noise_prior!r}"
            )
        for name in ("eta_prior", "noise_prior"):
            if isinstance(getattr(self, name), str):
                continue
            pair = np.asarray(getattr(self, name), dtype=float)
            if pair.shape != (2,) or not (np.isfinite(pair) & (pair > 0)).all():
                raise ValueError(f"{name}: want two positive numbers, got {getattr(self, name)!r}")
        for name, high in (
            ("slab_scale", np.inf),
            ("noise_variance", np.inf),
            ("target_scale", np.inf),
            ("eta", 1.0),
            ("intercept_sd", np.inf),
        ):
            value = getattr(self, name)
            if value is None and name not in ("slab_scale", "intercept_sd"):
                continue
            v = np.asarray(value, dtype=float)
            if not ((v > 0) & (v < high)).all():
                upper = "finite" if high == np.inf else "below 1"
                raise ValueError(f"{name}: want numbers above 0 and {upper}, got {value!r}")
        if not 0 <= self.spike_scale < np.min(np.asarray(self.slab_scale)):
            raise ValueError(
                f"spike_scale: want 0 or more and less than slab_scale, got {self.spike_scale!r}; "
                "0 is a point mass at zero"
            )
        if self.spike_scale > 0 and self.slab == "normal":
            raise ValueError(
                f"spike_scale: with the normal slab absent weights are zero, got {self.spike_scale!r}; set "
                'it to 0, or slab="laplace"'
            )
        if self.slab_units == "noise" and self.noise_variance is None and self.noise_prior == "learned":
            raise ValueError(
                'slab_units: a slab in units of noise whose prior is learned is not offered; use "target", '
                "or give noise_prior two numbers"
            )
        if self.slab_units == "noise" and self.noise_variance is None and self.slab == "laplace":
            raise ValueError(
                'slab_units: a Laplace slab in units of unknown noise is not offered; use "target", or give '
                "noise_variance"
            )


class RowDraws(NamedTuple):
    """Joint draws of edges and weights.

    Attributes
    ----------
    edge : ndarray of int8, shape (draw, ..., task, feature)
    weight : ndarray of shape (draw, ..., task, feature)
        Zero where there is no edge, if the spike is a point mass.
    """

    edge: NDArray[np.int8]
    weight: NDArray[np.float64]


class RowPosterior(NamedTuple):
    """Edge probabilities of sparse linear rows, by whatever method.

    Attributes
    ----------
    edge_prob : ndarray of shape (..., task, feature)
        P(edge | data).
    weight_mean, weight_sd : ndarray of shape (..., task, feature)
        Of the weight, whether the edge is there or not.
    eta : ndarray of shape (..., task, feature)
        Posterior mean of the inclusion rate behind each edge, or the known rate.
    noise_variance : ndarray of shape (..., task)
        The known variance, else 1 / E[1 / variance].
    log_evidence : ndarray of shape (..., task), or None
        log p(targets), in nats, with density 1 for the intercept; None where the method has no such number.
    converged : ndarray of bool, shape (..., task)
        True for enumeration; for the bootstrap, whether its modes have settled; for the others, whether
        `gap` is small enough everywhere in the row.
    gap : ndarray of shape (..., task, feature)
        How far to doubt `edge_prob`: its last change (expectation propagation), its range over chains
        (Gibbs), its standard error over replicates (bootstrap), 0 (enumeration).
    sampler : callable
        What `draws` calls.
    """

    edge_prob: NDArray[np.float64]
    weight_mean: NDArray[np.float64]
    weight_sd: NDArray[np.float64]
    eta: NDArray[np.float64]
    noise_variance: NDArray[np.float64]
    log_evidence: NDArray[np.float64] | None
    converged: NDArray[np.bool_]
    gap: NDArray[np.float64]
    sampler: Callable[[int, np.random.Generator], RowDraws]

    def draws(self, num_draws: int = 500, seed: int = 0) -> RowDraws:
        """Joint draws of edges and weights; rows are drawn independently of one another given the data.

        Parameters
        ----------
        num_draws : int
            At least 1.
        seed : int
            Same seed, same draws.

        Returns
        -------
        RowDraws

        Raises
        ------
        ValueError
            If `num_draws` is not a whole number of at least 1.
        """
        check_whole(1, num_draws=num_draws)
        return self.sampler(int(num_draws), np.random.default_rng(seed))
