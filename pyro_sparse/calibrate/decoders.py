r"""Simulation of a masked decoder from its own prior, and the fit and chains that are to be checked on it.

.. math:: \eta_k \to \gamma_{jk} \to w_{jk}, \quad \theta \sim \mathrm{DecoderPrior}, \quad
          z_i \sim N(0, I), \quad x_{ij} \sim \mathrm{likelihood}(f_\theta(w_j \odot z_i)_j)

`experiment` returns the two functions that `sbc` wants, for the caller's own model: prior, likelihood,
decoder, anchors. Factors without anchors have no lasting order, so that truths and draws then compare by
statistics that need none.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from .._utils.quiet import ignored
from .._utils.torch_state import undisturbed
from ..data.table import Batch
from ..inference.edges.mcmc.density_check import refuse_differences
from ..inference.edges.mcmc.sampler import DecoderPrior, draw_decoder
from ..models import SparseDecoder

__all__ = ["Experiment", "experiment"]

Truth = dict[str, NDArray[Any]]


class Experiment(NamedTuple):
    """How data sets come about, and what is inferred from each.

    Attributes
    ----------
    simulate : callable
        ``simulate(rng) -> (truth, data)``: "edge" and "weight" (feature, factor), and a table. Weights are
        standardised loadings, as those of `edge_posterior` are: signed roots of shares of variance.
    infer : callable
        ``infer(data, rng) -> draws``: "edge" and "weight" (draw, feature, factor), of the chains that count;
        signs are the fit's.
    """

    simulate: Callable[[np.random.Generator], tuple[Truth, NDArray[np.float64]]]
    infer: Callable[[NDArray[np.float64], np.random.Generator], Truth]


def experiment(
    model: SparseDecoder,
    n_rows: int = 200,
    *,
    decoder_prior: DecoderPrior | None = None,
    sweeps: int = 600,
    num_draws: int = 64,
    **settings: object,
) -> Experiment:
    """A model's own prior as a simulator, and its fit with Markov chains as the inference.

    Parameters
    ----------
    model : SparseDecoder
        With a spike-and-slab prior. It is copied, never changed. ``factor_cov=False``, and for counts
        ``Poisson(size_factors=False)``, are what the simulation assumes; a model that learns the correlation,
        or takes rows' totals for their depth, is checked for what that costs.
    n_rows : int
        Rows of each simulated table.
    decoder_prior : DecoderPrior, optional
        Of the decoder's layers, in simulation and inference.
    sweeps, num_draws : int
        Of each chain.
    **settings
        Of `pyro_sparse.fit`: ``restarts`` (default 1), ``steps`` …

    Returns
    -------
    Experiment

    Raises
    ------
    TypeError
        The model is not a `SparseDecoder`, or `decoder_prior` no `DecoderPrior`.
    ValueError
        Too few rows, a prior without spike and slab, or a program that is not the one that the chains sample:
        pass `simulate` and `infer` of your own to `sbc` then.

    Examples
    --------
    >>> import numpy as np
    >>> import pyro_sparse as ps
    >>> model = ps.models.SparseDecoder(6, 2, decoder="linear", anchors={0: 0, 1: 1}, factor_cov=False)
    >>> simulate, infer = ps.calibrate.experiment(model, n_rows=50)
    >>> truth, x = simulate(np.random.default_rng(0))
    >>> truth["edge"].shape, x.shape
    ((6, 2), (50, 6))
    """
    if not isinstance(model, SparseDecoder):
        raise TypeError(
            f"model: got a {type(model).__name__}, wanted a SparseDecoder; others pass simulate and infer"
        )
    if n_rows < 10:
        raise ValueError(f"n_rows: want at least 10, got {n_rows!r}")
    prior = DecoderPrior() if decoder_prior is None else decoder_prior
    if not isinstance(prior, DecoderPrior):
        raise TypeError(f"decoder_prior: want a DecoderPrior, got {prior!r}")

    def simulate(rng: np.random.Generator) -> tuple[Truth, NDArray[np.float64]]:
        with undisturbed(int(rng.integers(2**31))):
            drawn_from = copy.deepcopy(model)
            simulated = draw_decoder(drawn_from, n_rows, rng, prior)
        centre, scale = drawn_from.likelihood.units(simulated.x, False)  # levels count from the lowest
        return {
            "edge": simulated.edge.astype(np.int8),
            "weight": simulated.loading,
        }, simulated.x * scale + centre

    def infer(data: NDArray[np.float64], rng: np.random.Generator) -> Truth:
        from ..inference.fit import fit
        from ..inference.training.interrupt import whole

        fit_settings = {"restarts": 1, "holdout": 0.0, "patience": None, "standardise": False, **settings}
        with ignored(category=RuntimeWarning):
            result = whole(fit, model, data, seed=int(rng.integers(2**31)), progress=False, **fit_settings)
            chains = result.edge_posterior(
                "mcmc",
                seed=int(rng.integers(2**31)),
                sweeps=sweeps,
                num_draws=num_draws,
                decoder_prior=prior,
                progress=False,
            )
        if chains.attrs["interrupted"]:
            raise KeyboardInterrupt("interrupted during the edges' chains")
        draws, kept = chains["posterior"], chains["sample_stats"]["kept"].to_numpy()
        return {
            name: draws[name].to_numpy()[kept].reshape(-1, model.n_features, model.n_factors)
            for name in ("edge", "weight")
        }

    with undisturbed(0), torch.no_grad():
        trial = copy.deepcopy(model)
        x = draw_decoder(trial, 10, np.random.default_rng(0), prior).x  # complaints come now
        rows = torch.as_tensor(x[:4]).to(trial.factor_cov)
        refuse_differences(trial, Batch(rows, rows, mask=None, total=len(rows)))
    return Experiment(simulate, infer)
