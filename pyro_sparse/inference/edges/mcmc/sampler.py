r"""Edges of a masked decoder by short Markov chains that begin at the fit and from both sides of it.

.. math:: P(\gamma_{jk} = 1 \mid x) \approx \frac1{CS} \sum_{c, s}
          P(\gamma_{jk} = 1 \mid \text{all else in sweep } s \text{ of chain } c)

One chain begins at the sparse fit, one with every permitted edge there; what they do not agree on is reported
as unresolved. Factors, weights, noise, the decoder's layers and a straight decoder's axes all move
(`linear.py`, `decoder.py`, `moves/rotations.py`): an edge is unsure because everything is, which a
fit's own score leaves out.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...._utils.checks import check_whole
from ...._utils.declared import keeps
from ...._utils.torch_state import undisturbed
from ...._utils.types import ArvizData, TableLike, VectorLike
from ....data.large_table import LargeTable
from ....data.read import Table
from ....findings.finding import Finding
from ....graphs.chain_groups import ChainPool, pool_chains
from ....graphs.selection import edge_gap
from ....posterior.tables import to_arviz
from ...table.covariate_effects import contrasted
from ..density.mixture import MixtureDensity
from ..density.requirements import lacks_for_engine
from .accumulator import ChainSummary, OfRows
from .chain_evidence import explored_evidence
from .density_check import check_program
from .diagnostics import left_out_factors, spoken
from .initialise import (
    DecoderPrior,
    chains_of,
    check_scales_can_be_learned,
    refuse_other_programs,
    weight_density,
)
from .kernels import follow
from .plan import (
    MOST_GB,
    MOST_ROWS,
    chain_plan,
    free_plan,
    gigabytes,
    is_exact,
    is_free,
    pivot_of,
    row_limit,
    seconds_of,
    table_of,
)
from .running import LEAST_KEPT, run_chains, say_how_long
from .simulate import draw_decoder

if TYPE_CHECKING:
    from ...table.result import Fit
    from ..density.decoder_program import DecoderState
    from ..density.mixture import WeightDensity
    from .decoder import DecoderChains
    from .linear import LinearChains, LinearState

__all__ = ["ChainSummary", "DecoderPrior", "chains_of", "draw_decoder", "mcmc_edges"]

Array = NDArray[np.float64]

_SMALL = 0.35  # seconds of a sweep of four chains, up to which there are four
_WIDE = 3000  # weights from which a sweep takes a fiftieth of a second, and their edges need fewer
# In all, warm-up, of them with all edges held in: more where a sweep costs little. Of MLP decoders 240 in
# place of 400 more than doubled the squared error (NOTEBOOK.md).
_SWEEPS = {"exact": (700, 200, 50), "wide": (500, 150, 40), "small": (400, 120, 40), "large": (200, 60, 25)}
_LONGER = {"exact": 2800, "small": 560}  # sweeps again, at most, where chains of one graph disagree
# Nats below the best chain at which one is left out that holds another graph, where evidence is known too
# roughly to weigh graphs by: of curves, of each factor value; of lines whose rows are summed out by sampling,
# in roots of the number of loadings, since the log density of draws varies by that over the root of two, and
# chains of many factors have few effective ones (two of 300 x 15 that nearly agree: 40 nats).
_REACH, _REACH_EACH, _REACH_ROOT = 15.0, 0.05, 3.0
# What an edge of a questionnaire is: 25 of 25 items of simulated ones and of bfi on their factor, none beside
# it, where cross-loadings have a standard deviation of .05 to .1 (N 300 and 2,800).
PRACTICAL = MixtureDensity(False, 0.5, 0.07)
_PRACTICAL_MEANS = (
    "An edge is a standardised loading that cross-loadings of standard deviation 0.07 do not explain "
    "(edge='practical': N(0, 0.5²) against N(0, 0.07²))."
)
# Of the edges' own variance: what an end before the last sweep may add to it. Of a table whose chains ended
# after 40 sweeps of 280 the Brier score was .0608, after all .0604 (NOTEBOOK.md).
_ENOUGH = 0.003


def mcmc_edges(
    fit: Fit,
    num_draws: int = 500,
    seed: int = 0,
    X: TableLike | None = None,
    *,
    per_row: Mapping[str, VectorLike] | None = None,
    chains: int | None = None,
    sweeps: int | None = None,
    warm_up: int | None = None,
    max_rows: int | None = None,
    time_budget: float | None = None,
    tolerance: float | None = None,
    decoder_prior: DecoderPrior | None = None,
    learn_scales: bool = False,
    edge: Literal["prior", "practical"] = "prior",
    candidates: int = 6,
    log_likelihood: bool = False,
    scores: bool = False,
    progress: bool = True,
) -> ArvizData:
    """Edge probabilities of a `SparseDecoder` fit, by Markov chains over all it holds.

    Parameters
    ----------
    fit : Fit
        With a spike-and-slab prior.
    num_draws : int
        Draws kept of each chain, at most as many as sweeps.
    seed : int
    X : array_like (row, feature), optional
        The data; needed after `load`, otherwise the fit's own.
    per_row : mapping of str to array_like (row,), optional
        What the fit was given of its rows beside their cells, of the rows of X. `edge_posterior` takes each
        by its name, as the other methods of a fit do.
    chains : int, optional
        Two begin at the best restart (sparse, and with all edges), two more at the next good one, or there
        again if there is none. Default 4, or 2 where a sweep takes long. For a linear decoder with normal
        noise the second dense chain begins in other axes, chosen at random, where nothing pins them.
    sweeps, warm_up : int, optional
        Per chain, at most; the first include the second. Default 700 and 200 for a linear decoder with
        normal noise (500 and 150 where it has more than 3,000 weights); otherwise 400 and 120, or 200 and 60
        where a sweep takes long. By default, chains of linear decoders go on while those of one graph do not
        agree on its edges and loadings, for at most 2,800 sweeps more under normal noise and 560 under
        others; not where a sweep takes long.
    max_rows : int, optional
        Use at most so many rows, drawn at random: the posterior given those rows, wider than that of all.
        Default 100,000 for a linear decoder with normal noise; otherwise what keeps a sweep near a second,
        500 to 2,000.
    time_budget : float, optional
        Seconds after which the chains stop, if they have `LEAST_KEPT` sweeps after the warm-up. What they
        have seen by then depends on the machine. A `RuntimeWarning` after the first sweeps says how long the
        warm-up takes if it takes longer.
    tolerance : float, optional
        The chains stop, too, once as many sweeps again would add less than this share of the edges' own
        variance p (1 - p), on average (`Halves`), unless more sweeps may follow since chains of one graph do
        not agree on its edges. Default 0, never, for a linear decoder with normal noise, whose sweeps cost
        little; otherwise .003.
    decoder_prior : DecoderPrior, optional
        Prior of the decoder's layers.
    learn_scales : bool
        Draw the scales of spike and slab as well, beginning at the prior's; all chains share them
        (`_scales.drawn_density`), so how unsure the scales are is nearly left out, and chains that agree say
        nothing of it. Rates are then uniform unless b, `expected_size` or `column` of the prior was chosen:
        ``b="auto"`` expects few edges. By default an edge is what the prior says it is. Not with densities of
        one's own (`SpikeSlabPrior.components`).
    edge : {"prior", "practical"}
        What an edge is. "prior": a weight from the prior's slab; under a spike-and-slab lasso nearly any
        weight that is not zero. "practical", for a linear decoder: a standardised loading that cross-loadings
        of standard deviation .07 do not explain, N(0, .5²) against N(0, .07²); items of a questionnaire load
        a little on everything, and where zeros are exact a prior takes each such loading for an edge and
        every rotation for another answer. Where noise is not normal, a feature's unit is the standard
        deviation of predictor and noise (`Likelihood.variance_beside`) where the chains begin.
    candidates : int
        New values tried for each weight in a sweep (MLP decoders).
    log_likelihood : bool
        Keep each row's log density, its factors summed out, in the group `log_likelihood` of the answer, from
        the chains kept: what `arviz.loo` and `arviz.compare` read. Of linear decoders; exact under normal
        noise, else by importance sampling, some hundredths of a nat a row.
    scores : bool
        Keep draws of the rows' factors, in the group `scores` of the answer, from the chains kept: they know
        how unsure loadings and axes are (`factor_scores`), which those of `Fit.transform` do not.
    progress : bool
        Show how far the chains are (`_utils/progress.py`).

    Returns
    -------
    arviz.InferenceData or xarray.DataTree
        As `to_arviz`; chain = chain. `sample_stats` has `log_joint`, `restart` and `dense` of each, the
        `graph` it holds (numbered by share, the largest first; -1 if it failed) and its `pool_weight` in
        probabilities and mean weights (`graphs.pool_chains`). If the
        model has anchors or forbids edges, `edge_posterior` has `if_permitted`: what the probability of such
        an edge would be if it alone were permitted, all else as it is in the chains (NaN for other edges).
        Attributes: `prior_scales`, slab and spike that suit the weights (learned, with `learn_scales`), and
        `prior_p_value`, of the prior's own against them (`_scales.check_scales`; NaN with `learn_scales`, and
        both NaN for densities of one's own); `graphs`, how many the chains kept hold, and `graph_shares` of
        all.

    Warns
    -----
    RuntimeWarning
        The warm-up takes longer than `time_budget`; or the data want an edge that an anchor or another
        constraint forbids (`graphs.chain_verdict.contradictions`); or the weights are unlike their prior, and
        scales that suit them better have fewer edges (`_scales.check_scales`; where they have more, the
        verdict says so); or a likelihood of one's own has a parameter that `Likelihood.priors` does not speak
        of, which then stays where the fit left it (others are drawn).

    Raises
    ------
    ValueError
        The prior has no spike and slab, or with densities that are not symmetric around zero or not the same
        for all weights; the likelihood says of rows something else than `forward` of cells; no data; a number
        is out of range.
    """
    weight_density(getattr(fit.model, "prior", None))  # complains of models that chains do not know
    refuse_other_programs(fit.model)
    if log_likelihood:
        _check_levels(fit)
    if (log_likelihood or scores) and fit.table.weights is not None and fit.table.weights.kind == "survey":
        name = "log_likelihood" if log_likelihood else "scores"
        raise ValueError(
            f"{name}: of survey weights the chains read the weighted moments, and no rows; leave it out "
            "(fit.log_likelihood() and fit.factor_draws() are of rows)"
        )
    table = table_of(fit, X, per_row)
    exact = is_exact(fit)
    small = seconds_of(fit, 4) * min(len(table.x), MOST_ROWS) <= _SMALL
    chains = (4 if exact or small else 2) if chains is None else chains
    wide = exact and fit.model.n_features * fit.model.n_factors > _WIDE
    size = "wide" if wide else "exact" if exact else "small" if small else "large"
    all_sweeps, warm, held_sweeps = _SWEEPS[size]
    all_sweeps = all_sweeps if sweeps is None else sweeps
    warm = min(warm, all_sweeps // 3) if warm_up is None else warm_up
    tolerance = (0.0 if exact else _ENOUGH) if tolerance is None else tolerance
    _check(num_draws, all_sweeps, warm, max_rows, time_budget, tolerance, candidates)
    density = _density_of(fit, edge, exact, learn_scales)
    restarts, dense = chain_plan(fit, chains)
    kept, rotated = None, [False] * chains
    if fit.model.decoder_kind == "linear" and is_free(fit):
        restarts, rotated, kept = free_plan(fit, restarts)
        dense = [False] * chains
    goes_on = size == "exact" or (size == "small" and fit.model.decoder_kind == "linear")
    limit = row_limit(fit, exact, len(restarts)) if max_rows is None else max_rows
    large = isinstance(table, LargeTable)
    if large and (cost := gigabytes(fit, limit)) > MOST_GB:
        raise ValueError(
            f"X: chains over {limit} rows of {fit.model.n_features} features would take some {cost:.0f} GB, "
            f"wanted at most {MOST_GB}; give a smaller max_rows, fit fewer features, or ask for "
            'method="score"'
        )
    if large or len(table.x) > limit:
        table = table.rows(np.sort(np.random.default_rng(seed).permutation(len(table.x))[:limit]))
    check_program(fit, table)
    if not exact and time_budget is None:
        say_how_long(seconds_of(fit, len(restarts)) * len(table.x) * all_sweeps, len(table.x), all_sweeps)
    options = {} if exact else {"candidates": candidates}
    prior = DecoderPrior() if decoder_prior is None else decoder_prior
    if learn_scales:
        check_scales_can_be_learned(fit.model.prior)
    with undisturbed(seed):
        kernel, state = chains_of(fit, table, restarts, dense, prior, seed, rotated, kept, density, **options)
        began = _began(fit, kernel, state, restarts, rotated) if any(rotated) else None
        if learn_scales and fit.model.prior.auto_b:
            kernel = replace(kernel, eta_prior=(np.ones(kernel.permitted.shape[1]),) * 2)
        summary = run_chains(
            kernel, state, sweeps=all_sweeps, warm_up=warm, held=min(held_sweeps, warm // 2), dense=dense,
            seed=seed, pivot=pivot_of(fit)[:, :kept],
            groups=fit.model.alike_factors() if kept is None else [np.arange(kept)], num_draws=num_draws,
            time_budget=time_budget, tolerance=tolerance, progress=progress, learn_scales=learn_scales,
            longer=_LONGER[size] if goes_on and sweeps is None else 0,
            of_rows=OfRows(len(table.x), log_likelihood, scores),
        )  # fmt: skip
    if kept is not None:
        summary = summary.widened(fit.model.n_factors)
    pool = _pooled(fit, summary, len(table.x))
    wanted = all_sweeps - warm
    starts = _Starts(restarts, dense, rotated, began)
    return _packed(fit, summary, starts, table, X, learn_scales, wanted, pool, edge, kept)


class _Starts(NamedTuple):
    """Where chains began.

    Attributes
    ----------
    restarts : list of int
    dense, rotated : list of bool
        With every edge there; in other axes than the restart's.
    loadings : ndarray (chain, feature, factor) or None
        From `_began`.
    """

    restarts: list[int]
    dense: list[bool]
    rotated: list[bool]
    loadings: Array | None

    def __str__(self) -> str:
        if any(self.dense):
            return f"{sum(self.dense)} of them begun with every edge there"
        return f"{sum(self.rotated)} of them begun in other axes"


def _began(
    fit: Fit,
    kernel: LinearChains | DecoderChains,
    state: LinearState | DecoderState,
    restarts: list[int],
    rotated: list[bool],
) -> Array:
    """Loadings that chains begin at, (chain, feature, factor): a restart's, or where it was rotated to."""
    began = fit.weights[restarts].astype(float)
    drawn = follow(kernel, state, [False] * len(rotated)).loadings(np.random.default_rng(0))
    began[rotated] = 0.0  # over fewer factors, if the fit left some empty
    began[rotated, :, : drawn.shape[-1]] = drawn[rotated]
    return began


def _density_of(fit: Fit, edge: str, exact: bool, learn_scales: bool) -> WeightDensity | None:
    """What the weights are drawn from: None for the prior's own."""
    if edge not in ("prior", "practical"):
        raise ValueError(f"edge: want 'prior' or 'practical', got {edge!r}")
    if edge == "prior":
        return None
    if fit.model.decoder_kind != "linear":
        raise ValueError(
            "edge: 'practical' is of standardised loadings, which curves do not have; wanted a linear "
            "decoder (decoder='linear'), or leave it out"
        )
    if exact and not fit.model.likelihood.standardise:
        raise ValueError(
            "edge: 'practical' is of standardised loadings, and these columns are as they came; wanted "
            "z-scored ones (a noise variance for each), or leave it out"
        )
    if learn_scales:
        raise ValueError("edge: 'practical' says what an edge is, and learn_scales learns it; take one")
    return PRACTICAL


def _meaning(fit: Fit, edge: str, learned: bool) -> str:
    """What an edge is, in numbers."""
    if edge != "prior":
        return _PRACTICAL_MEANS
    if learned:
        return (
            "An edge is a weight from the slab; its scale and that of the spike are learned (edge='prior')."
        )
    density = weight_density(fit.model.prior)
    if not isinstance(density, MixtureDensity):
        return f"An edge is a weight from the slab of {type(fit.model.prior).__name__} (edge='prior')."
    family = "Laplace, mean size" if density.laplace else "normal, standard deviation"
    return (
        f"An edge is a weight that the prior's slab explains and its spike does not (edge='prior': {family} "
        f"{density.slab:.2g} against {density.spike:.2g})."
    )


def _check_levels(fit: Fit) -> None:
    """Complain where rows' log densities are not known."""
    if fit.model.decoder_kind != "linear":
        raise ValueError(
            "log_likelihood: of curved decoders a row's density with its factors summed out is not known; "
            "wanted decoder='linear'; leave it out"
        )
    likelihood = fit.model.likelihood.unadjusted
    made = set(fit.table.per_row) - set(fit.table.row_units) - {"design"}
    if made and keeps(likelihood, "cell terms", "row totals") and likelihood.given_totals(made) is not None:
        raise ValueError(
            "log_likelihood: of rows whose totals are taken for their depth only shares are modelled, and a "
            "row's density depends on a depth that is drawn with it; give exposure=, or size_factors=False"
        )


def _row_levels(fit: Fit, chains: ChainSummary, table: Table) -> Array | None:
    """Log densities of rows in the caller's units, (chain, draw, row)."""
    if chains.row_levels is None:
        return None
    log_scale = np.log(fit.table.scale)
    units = np.full(len(table.x), log_scale.sum()) if table.mask is None else table.mask @ log_scale
    return chains.row_levels - units


def _terms(fit: Fit, chains: ChainSummary) -> dict[str, tuple[tuple[str, ...], Array]]:
    """What else the chains drew, in the caller's units, with its dimensions."""
    dims = {
        "noise_sd": ("feature",),
        "factor_correlation": ("factor", "other_factor"),
        "covariate_effect": ("covariate", "feature"),
    }
    terms = dict(chains.terms)
    if "noise_sd" in terms:
        terms["noise_sd"] = terms["noise_sd"] * fit.table.scale
    if "covariate_effect" in terms:
        terms["covariate_effect"] = contrasted(fit, terms["covariate_effect"])[1]
    return {name: (dims[name], values) for name, values in terms.items()}


def _pooled(fit: Fit, chains: ChainSummary, n_rows: int) -> ChainPool:
    """Chains by the graph they hold: weighed by evidence where it is known, else alike within reach.

    Of curves, where factors are not summed out, the volume they move in is known from few sweeps only, and to
    some per cent of each standard deviation: chains that tell of the same graph were seen 200 nats apart at
    6,000. Of straight lines that ruler was wrong by more: next to collinear factors have a prior density that
    grows with every row, and chains 1,000 nats below the best one were taken for it.
    """
    if fit.model.decoder_kind == "linear":
        evidence, error = explored_evidence(chains.weight, chains.log_joint)
        loadings = int(chains.weight.any((0, 1)).sum())
        reach = _REACH if is_exact(fit) else max(_REACH, _REACH_ROOT * loadings**0.5)
        return pool_chains(chains.prob, chains.prob_error, evidence, error, np.inf if error else reach)
    level = chains.log_joint[:, chains.log_joint.shape[1] // 2 :].mean(1)
    reach = max(_REACH, _REACH_EACH * n_rows * fit.model.n_factors)
    return pool_chains(chains.prob, chains.prob_error, level, None, reach)


def _check(
    num_draws: int,
    sweeps: int,
    warm_up: int,
    max_rows: int | None,
    time_budget: float | None,
    tolerance: float,
    candidates: int,
) -> None:
    check_whole(1, num_draws=num_draws, candidates=candidates)
    check_whole(LEAST_KEPT, sweeps=sweeps)
    check_whole(0, warm_up=warm_up)
    if max_rows is not None:
        check_whole(10, max_rows=max_rows)
    if sweeps - warm_up < LEAST_KEPT:
        raise ValueError(
            f"warm_up: leaves {sweeps - warm_up} of sweeps={sweeps}, want at least {LEAST_KEPT}; lower it"
        )
    if time_budget is not None and not time_budget > 0:
        raise ValueError(f"time_budget: want a positive number of seconds, got {time_budget!r}")
    if not tolerance >= 0:
        raise ValueError(f"tolerance: want a share of a variance, 0 or more, got {tolerance!r}")


def _packed(
    fit: Fit,
    chains: ChainSummary,
    starts: _Starts,
    table: Table,
    X: TableLike | None,
    learned: bool,
    wanted: int,
    pool: ChainPool,
    edge: str,
    kept: int | None,
) -> ArvizData:
    keep = pool.keep

    def over_chains(values: Array) -> Array:
        """Mean over the chains kept, each with its weight."""
        mean: Array = np.average(values[keep], axis=0, weights=pool.weight[keep])
        return mean

    permitted = fit.model.permitted.cpu().numpy()[:, fit.alignment["permutation"][fit.best]]
    forbidden = np.where(permitted, np.nan, over_chains(chains.if_permitted))
    gap = edge_gap(chains.prob, keep)
    weight = over_chains(chains.weight.mean(1))
    diagnostics = spoken(
        fit, chains, pool, gap, forbidden, learned, len(table.x), edge == "prior", starts.loadings
    )
    engine_can = edge == "prior" and not lacks_for_engine(fit.model) and not isinstance(fit.table, LargeTable)
    diagnostics.findings.extend(left_out_factors(fit, kept, engine_can))
    done = chains.sweeps
    if chains.stopped_by == "time":
        message = f"The time budget ended the chains after {done} of {wanted} sweeps"
        remedy = "give them more time, or a number of sweeps, for figures that do not depend on the machine"
        diagnostics.findings.append(Finding("time", message, remedy, source="chains", size=done / wanted))
    for finding in diagnostics.warned:
        warnings.warn(f"edge_posterior: {finding}", RuntimeWarning, stacklevel=6)
    note = (
        f"Posterior probability of the slab from {len(keep)} Markov chains of {done} sweeps, {starts}. "
        f"{_meaning(fit, edge, learned)}"
    )
    idata = to_arviz(
        fit,
        terms=_terms(fit, chains),
        log_likelihood=_row_levels(fit, chains, table),
        scores=chains.scores,
        rows=table.sample_names,
        caller_row=table.caller_row,
        labels={} if fit.table.design is None else {"covariate": fit.table.design.contrasts()[0]},
        edge=chains.edge,
        weight=chains.weight,
        eta=chains.eta,
        probability=np.where(permitted, over_chains(chains.prob), 0.0).clip(0, 1),
        restart_probability=chains.prob.clip(0, 1),
        chain_restart=np.array(starts.restarts),
        kept=keep,
        chain_stats={
            "dense": np.array(starts.dense),
            "log_joint": chains.log_joint.mean(1),
            "graph": pool.group,
            "pool_weight": pool.weight,
        },
        edge_weight=weight,
        # A standardised loading is the root of the share.
        edge_effect=over_chains((chains.weight**2).mean(1)),
        edge_stats={} if permitted.all() else {"if_permitted": forbidden},
        method="mcmc",
        is_score=False,
        note=note,
        X=X,
        findings=diagnostics.findings,
        confirmed=diagnostics.confirmed,
        attrs={
            "rows_used": len(table.x),
            "decoder": fit.model.decoder_kind,
            "edge_means": edge,
            "sweeps": done,
            "sweeps_wanted": wanted,
            "stopped_by": chains.stopped_by,
            "interrupted": int(chains.stopped_by == "interrupt"),
            "mean_gap": float(np.nanmean(gap)),
            "graphs": pool.n_graphs,
            "graph_shares": pool.share.tolist(),
            "prior_scales": list(diagnostics.scales),
            "prior_p_value": diagnostics.p_value,
        },
    )
    if edge != "prior":
        idata.attrs["verdict"] += f"\n{_PRACTICAL_MEANS}"
    return idata
