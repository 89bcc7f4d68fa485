"""`Fit`: what a fit found, in the caller's units and names, with all restarts in one frame.

Arrays are numpy, aligned to the best restart: factors in its order (largest first, unused last; factors that
constraints tell apart keep their numbers), signs turned so that they agree. `weights` are standardised
loadings, signed, exactly zero where there is no edge; `effects` say how much of a feature's variance goes
when a factor is shuffled, which is the better answer to "how strong" when the decoder bends.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, cast, overload

import numpy as np
import pandas as pd
import torch

from ..._utils.checks import check_whole
from ..._utils.display import AgreementTable
from ..._utils.torch_state import isolated, undisturbed
from ..._utils.version import __version__
from ...data.checks.new_rows import warn_of_other_units
from ...data.columns import check_number, check_rows
from ...data.design import ROLES
from ...data.large_table import JUDGED_CELLS, LargeTable
from ...data.per_row import check_names
from ...data.read import Batch, Table, read_table
from ...data.row_weights import counted_like, read_weights
from ...findings.finding import Finding
from ...graphs.alignment import apply_alignment
from ...graphs.restart_choice import found_factors
from ...posterior.rival_restarts import level_of, prescribed_in_fit, rival_restarts
from ..training._repr import in_short
from ..training.elbo import rowwise_elbo
from ..training.fit_result import FitResult
from ..training.restarts import align_factors, in_frame, out_of_frame, pick, score_similarity
from . import saved
from .by_rows import frugal, pieces
from .completed_tables import completed, completed_draws
from .covariate_effects import covariate_effects
from .effects import total_effects
from .factor_spread import roots_of
from .impute import excess_covariance, implied_moments
from .number_of_factors import number_of_factors
from .predictive import simulated_rows
from .refine import expected_cells, refine
from .residual_pairs import residual_pairs
from .weight_scores import weight_scores

if TYPE_CHECKING:
    import numpy.typing as npt

    from ..._utils.types import ArvizData, RowInput, TableLike
    from ...data.stores import RowStore
    from ...models.base import FactorModel
    from ...models.sparse_decoder import SparseDecoder

__all__ = ["Fit", "restore"]


@dataclass
class Fit(FitResult):
    """Result of `pyro_sparse.fit`.

    Attributes
    ----------
    model : FactorModel
        Trained, with all restarts along its parameters' leading dimension (in the order they were trained).
    best : int
        Number of the chosen restart.
    feature_names, factor_names, sample_names : list of str
    weights : ndarray (restart, feature, factor)
        Signed standardised loadings: sign of the mean slope times the square root of `effects`.
    effects : ndarray (restart, feature, factor)
        Share of the feature's variance lost when the factor is shuffled (total effect), in [0, 1].
    edge_score : ndarray (restart, feature, factor)
        Spike-and-slab posterior odds at the fitted weight as a number in [0, 1] (p*): a score, not a
        probability. NaN where the prior has no such odds.
    eta : ndarray (restart, factor)
        Inclusion probability of each factor.
    elbo, heldout_elbo : ndarray (restart,)
        Nats per row, on the rows trained on and on held-out ones. The best restart may have been trained
        longer than others (``settings["steps_made"]``).
    history : DataFrame
        step, restart, elbo, heldout_elbo, edges, stage.
    alignment : dict
        "permutation" (restart, factor), "sign" (restart, factor), "congruence" (restart, factor): of loadings
        with the best restart's, or, of a curved decoder where it is larger, the correlation of scores.
    factor_cov : ndarray (factor, factor)
        Correlation of the best restart's factors.
    noise_sd : ndarray (feature,) or None
        In the caller's units.
    settings : dict
        JSON-able record of how the fit was made.
    findings : list of Finding
        What a reader should know before believing it; `warnings` has them as sentences.
    """

    model: Any
    table: Table
    best: int
    weights: np.ndarray
    effects: np.ndarray
    edge_score: np.ndarray
    eta: np.ndarray
    elbo: np.ndarray
    heldout_elbo: np.ndarray
    history: pd.DataFrame
    alignment: dict[str, np.ndarray]
    factor_cov: np.ndarray
    noise_sd: np.ndarray | None
    settings: dict[str, Any]
    _excess: np.ndarray | None = field(default=None, repr=False)

    def __repr__(self) -> str:
        sizes = {"rows": len(self.sample_names), "features": len(self.feature_names)}
        figures = {"held-out ELBO": self.heldout_elbo, "ELBO": self.elbo}
        return in_short(self, {**sizes, "factors": self.weights.shape[-1]}, figures)

    # ---- names ---------------------------------------------------------------------------------------------
    @property
    def n_restarts(self) -> int:
        """Number of restarts."""
        return len(self.weights)

    @property
    def feature_names(self) -> list[str]:
        """Names of the columns."""
        return self.table.feature_names

    @property
    def sample_names(self) -> list[str]:
        """Names of the caller's rows."""
        return self.table.of_caller.sample_names

    @property
    def factor_names(self) -> list[str]:
        """ "factor 1", "factor 2", … with the active factors of the best restart first."""
        names: list[str] | None = getattr(self.model, "factor_names", None)
        return list(names) if names else [f"factor {k + 1}" for k in range(self.weights.shape[-1])]

    # ---- making one ----------------------------------------------------------------------------------------
    @classmethod
    def build(
        cls,
        model: FactorModel,
        table: Table,
        *,
        train: Batch,
        best: int,
        elbo: np.ndarray,
        heldout_elbo: np.ndarray,
        history: pd.DataFrame,
        settings: dict[str, Any],
        findings: list[Finding],
    ) -> Fit:
        """Summarise a trained model: effects, signs, order, alignment."""
        effects, slopes = total_effects(model, train)
        present = np.ones_like(effects, dtype=bool)
        if getattr(model, "weights", None) is not None:
            present = (cast("SparseDecoder", model).weights.detach() != 0).cpu().numpy()
        effects = np.where(present, effects, 0.0)
        loadings = np.where(present, np.sign(slopes) * np.sqrt(effects), 0.0)
        score, eta = weight_scores(model)
        alignment = align_factors(model, loadings, effects[best], best)
        if getattr(model, "decoder_kind", "") == "mlp" and not isinstance(table, LargeTable):
            alike = score_similarity(model, train, present, best)[:, alignment.permutation[best]]
            larger = np.where(alike > np.abs(alignment.congruence), alike, alignment.congruence)  # NaN stays
            alignment = alignment._replace(congruence=larger)
        noise = model.likelihood.noise_sd()
        cov = model.factor_cov[best].detach().cpu().double().numpy()
        turn, sign = alignment.permutation[best], alignment.sign[best]
        return cls(
            model=model,
            table=table,
            best=best,
            weights=apply_alignment(loadings, alignment) + 0.0,
            effects=apply_alignment(effects, alignment, signed=False),
            edge_score=apply_alignment(score, alignment, signed=False),
            eta=apply_alignment(eta, alignment, signed=False),
            elbo=elbo,
            heldout_elbo=heldout_elbo,
            history=history,
            alignment={
                "permutation": alignment.permutation,
                "sign": alignment.sign,
                "congruence": alignment.congruence,
            },
            factor_cov=cov[np.ix_(turn, turn)] * np.outer(sign, sign),
            noise_sd=None if noise is None else noise[best, 0].detach().cpu().double().numpy() * table.scale,
            settings={**settings, "version": __version__},
            findings=findings,
        )

    # ---- using it ------------------------------------------------------------------------------------------
    @overload
    def transform(
        self,
        X: TableLike | RowStore | None = ...,
        refine: bool | None = ...,
        return_std: Literal[False] = ...,
        **per_row: RowInput,
    ) -> np.ndarray: ...
    @overload
    def transform(
        self,
        X: TableLike | RowStore | None = ...,
        refine: bool | None = ...,
        *,
        return_std: Literal[True],
        **per_row: RowInput,
    ) -> tuple[np.ndarray, np.ndarray]: ...
    @isolated()
    def transform(
        self,
        X: TableLike | RowStore | None = None,
        refine: bool | None = None,
        return_std: bool = False,
        **per_row: RowInput,
    ) -> np.ndarray | tuple[np.ndarray, np.ndarray]:
        """Factors of rows, (row, factor), ordered as `factor_names`: posterior location of the best restart.

        Parameters
        ----------
        X : array_like (row, feature), DataFrame, or a table read by rows, optional
            NaN marks a missing cell; columns of a DataFrame are found by name. Default, here and in
            `predict`, `log_likelihood` and `score`: the rows of the fit, which a loaded one has not.
        refine : bool, optional
            Climb each row's ELBO from the encoder's guess. Default: not if X is so large that it is read by
            rows, for a climb costs a row as much as some 200 steps of training.
        return_std : bool
            Return the posterior standard deviation of each number, too: that of Laplace's normal
            (`factor_spread`), given the fit's parameters. Where edges are unsure scores are less sure.
        **per_row : array_like (row,)
            What the fit was given of its rows beside their cells, of these rows, by the same names; so in all
            methods that take rows.

        Returns
        -------
        ndarray (row, factor), or two of them
        """
        table = self._table(X, per_row)
        large = isinstance(table, LargeTable)
        climb = not large if refine is None else refine
        like = self.model.factor_cov
        batches = pieces(table, like.device, like.dtype, cells=JUDGED_CELLS * (1 if climb else 10))
        scores, spreads = [], []
        for batch in batches:
            location = self._posterior(batch, climb, large)
            scores.append(self._to_frame(location))
            if return_std:
                spreads.append(
                    np.abs(self._to_frame(roots_of(self, batch, location).square().sum(-1).sqrt()))
                )
        return (np.concatenate(scores), np.concatenate(spreads)) if return_std else np.concatenate(scores)

    @isolated()
    def factor_draws(
        self, X: TableLike | None = None, n: int = 100, seed: int = 0, **per_row: RowInput
    ) -> np.ndarray:
        """Draws of rows' factors from their posterior given the fit's parameters, (draw, row, factor).

        Parameters
        ----------
        X : array_like (row, feature) or DataFrame, optional
            As in `transform`.
        n : int
            Draws of each row.
        seed : int
        **per_row : array_like (row,)
            As in `transform`.
        """
        check_whole(1, n=n)
        table = self._whole(X, "factor_draws", per_row)
        generator = np.random.default_rng(seed)
        draws, like = [], self.model.factor_cov
        for batch in pieces(table, like.device, like.dtype):
            location = self._posterior(batch, True)
            roots = roots_of(self, batch, location).cpu().numpy()
            noise = generator.standard_normal((n, *location.shape, 1))
            draws.append(in_frame(self, location.cpu().double().numpy() + (roots @ noise)[..., 0]))
        return np.concatenate(draws, 1)

    @isolated()
    def predict(
        self,
        X: TableLike | None = None,
        num_draws: int = 32,
        average: bool = True,
        **per_row: RowInput,
    ) -> np.ndarray:
        """Posterior expectation of every cell, seen or missing, (row, feature), in the caller's units.

        Columns are those of `feature_names`, in that order, also where X has them in another one.

        Parameters
        ----------
        X : array_like (row, feature) or DataFrame, optional
            As in `transform`.
        num_draws : int
            Draws of each row's refined guide.
        average : bool
            Average over the restarts in `equally_good`; False uses the best one only.
        **per_row : array_like (row,)
            As in `transform`.
        """
        check_whole(1, num_draws=num_draws)
        table = self._whole(X, "predict", per_row)
        return self.table.given_back(self._expected(table, num_draws, average), table.per_row)

    def _expected(self, table: Table, num_draws: int, average: bool) -> np.ndarray:
        """Expectations of cells in model units."""
        with undisturbed(seed=0):
            few = pick(self.model, self.equally_good if average else [self.best])
            like = self.model.factor_cov
            mean = expected_cells(few, table.batch(like.device, like.dtype), num_draws=num_draws).mean(0)
        cells: np.ndarray = mean.cpu().double().numpy()
        return cells

    @overload
    def impute(
        self, X: TableLike, num_draws: int = ..., *, draws: None = ..., seed: int = ..., **per_row: RowInput
    ) -> np.ndarray | pd.DataFrame: ...
    @overload
    def impute(
        self,
        X: TableLike,
        num_draws: int = ...,
        *,
        draws: int,
        seed: int = ...,
        idata: ArvizData | None = ...,
        **per_row: RowInput,
    ) -> list[np.ndarray | pd.DataFrame]: ...
    @isolated()
    def impute(
        self,
        X: TableLike,
        num_draws: int = 32,
        *,
        draws: int | None = None,
        seed: int = 0,
        idata: ArvizData | None = None,
        **per_row: RowInput,
    ) -> np.ndarray | pd.DataFrame | list[np.ndarray | pd.DataFrame]:
        r"""`X` with its missing cells filled in, (row, feature), its columns in its own order and units.

        A missing cell gets what the factors say (`predict`) and, under a normal likelihood, what the row's
        other residuals add through `excess_cov`: a sparse graph leaves correlations that are no factor and
        predict nevertheless. With `draws`, `X` is filled in so many times (multiple imputation): the row's
        factors are drawn given its seen cells, then each missing cell from its column's likelihood.

        Parameters
        ----------
        X : array_like (row, feature) or DataFrame
            NaN marks a missing cell; columns of a DataFrame are found by name.
        num_draws : int
            As in `predict`, of expectations.
        draws : int, optional
            Completed tables to draw; default none, and cells are filled in by their expectations.
        seed : int
            Of these draws.
        idata : InferenceData or DataTree, optional
            `edge_posterior()` of this fit, by Markov chains, of a linear decoder under normal noise: each
            table then has loadings, noise, intercepts and effects of one of their draws. Without it tables
            differ by rows' factors and noise only, given the parameters of the best restart, and intervals
            are too narrow where rows are few.
        **per_row : array_like (row,)
            As in `transform`.

        Returns
        -------
        DataFrame or ndarray (row, feature), or a list of as many as `draws`
            A DataFrame with X's index and columns where X is one, or views. Ordered categories are such
            again, each missing one the level nearest to its expectation. Draws are what a column may hold
            (levels, words, whole counts, 0 and 1), and columns keep their dtype.

        Raises
        ------
        ValueError, TypeError
            As `transform`. With `draws`: the likelihood shares out rows' totals ("multinomial",
            "categorical"), factors are no normal variables, or the tables take more than 1.6 GB; `idata` is
            of another fit, or holds no draws of all parameters.

        Notes
        -----
        An analysis is done on each of the m tables; estimates are averaged, and the variance of the average
        is :math:`\bar U + (1 + 1/m) B`, the mean of their squared standard errors and the variance between
        them (Rubin). Under normal noise and a linear decoder draws are exact; else factors are drawn from
        Laplace's normal (`factor_draws`), and `excess_cov` of a curved decoder moves draws but does not widen
        them.

        References
        ----------
        Rubin (1987), *Multiple Imputation for Nonresponse in Surveys*, Wiley
        """
        check_whole(1, num_draws=num_draws)
        table = self._whole(X, "impute", per_row)
        if draws is not None:
            return completed_draws(self, X, table, draws, seed, idata)
        if idata is not None:
            raise ValueError("idata: got one, and draws was left out; say how many tables to draw")
        return completed(self, X, table, num_draws)

    @property
    @isolated()
    def excess_cov(self) -> np.ndarray | None:
        """Covariance (feature, feature) of the table beyond the model's, features in standard deviations.

        Shrunk to zero as far as the rows cannot tell it from noise (`inference/table/impute.py`). None where
        the likelihood is not normal, or the table has more than 2,000 features or is read by rows.
        """
        if self.model.likelihood.noise_sd() is None or self.model.n_features > 2000:
            return None
        if isinstance(self.table, LargeTable):
            return None
        if self._excess is None and len(self.table.x):
            self._excess = excess_covariance(self.table.x, self.table.mask, *self.implied_moments())
        return self._excess

    def implied_moments(self) -> tuple[np.ndarray, np.ndarray]:
        """Mean (feature,) and covariance (feature, feature) of a row under the best restart.

        Noise included, features in standard deviations. By 8,000 draws of the factors, which of straight
        lines are matched to their moments, so that these are exact.
        """
        with undisturbed(seed=0):
            return implied_moments(pick(self.model, [self.best]))

    def number_of_factors(self) -> pd.DataFrame:
        r"""Eigenvalues beside those of noise, and what each number of factors is worth.

        Returns
        -------
        DataFrame
            A row for each number of factors, from 0. `eigenvalue` of the correlations of the columns (of
            yes/no answers and ordered levels less what their cuts add: rare ones go with rare ones; of counts
            those of their logarithms), `sd`, by how much it may differ from that of the population, `noise`,
            its mean in tables of noise (parallel analysis), and `above`, the probability that the
            population's is above that. `criterion` of the best graph with so many factors, in nats beside the
            best one (an approximate log evidence), where the rows' factors have been summed out, and how many
            `restarts` ended with so many.
            `probability` of the number: where a graph explains the table exactly, by the criterion; where
            none does, by the eigenvalues. NaN where there is no criterion, or none of the numbers beside the
            best one. `kept`: the fit's number.

        Raises
        ------
        ValueError
            The fit has no rows in memory.

        References
        ----------
        Horn (1965), A rationale and test for the number of factors in factor analysis, Psychometrika 30(2);
        Cho, Li and Bandalos (2009), Accuracy of the parallel analysis procedure with polychoric correlations,
        Educational and Psychological Measurement 69(5)
        """
        return number_of_factors(self)

    def residual_pairs(self) -> pd.DataFrame:
        r"""Pairs of features that correlate beyond what their factors explain.

        Returns
        -------
        DataFrame
            `feature`, `other`, `residual_correlation` (of the residuals, to expect if the model had it) and
            `modification_index`, :math:`\chi^2_1` where it has none; largest index first.

        Raises
        ------
        ValueError
            The likelihood is not normal, the table is read by rows or not there, or has more than 2,000
            features.

        References
        ----------
        Sörbom (1989), Model modification, Psychometrika 54(3)
        """
        return residual_pairs(self)

    @property
    def equally_good(self) -> list[int]:
        """The best restart and all as good: by held-out (or training) ELBO within 0.05 nats per row of its.

        Of graphs at their maxima by the criterion that chose among them, within three nats.
        """
        _, as_good = rival_restarts(self)
        return [r for r in range(self.n_restarts) if r == self.best or as_good[r]]

    @property
    def agreement(self) -> pd.DataFrame:
        """How far other restarts ended where the best one did, and how well each explains the data.

        Returns
        -------
        DataFrame
            One row per restart: `similarity` (mean absolute congruence of its factors' loadings with those of
            the best restart, over the factors that either uses), `least` (the same of the factor least
            alike), `edges_differing` from the best restart's graph, `factors` (in use, beyond those the model
            was given) and `elbo` (nats per row, of held-out rows where there are any). Restarts begin with
            different numbers of factors, and one with fewer could not have found them all: `unsure` takes
            that into account.
        """
        edges, alike = self.weights != 0, pd.DataFrame(np.abs(self.alignment["congruence"]))
        return AgreementTable(
            {
                "similarity": alike.mean(axis=1).to_numpy(),
                "least": alike.min(axis=1).to_numpy(),
                "edges_differing": (edges != edges[self.best]).sum((1, 2)),
                "factors": found_factors(edges, prescribed_in_fit(self)),
                "elbo": level_of(self),
            },
            index=pd.RangeIndex(self.n_restarts, name="restart"),
        )

    @isolated()
    def inverse_transform(self, Z: npt.ArrayLike) -> np.ndarray:
        """Expected measurements (row, feature) at given factors (row, factor), in the caller's units.

        Of average rows, where the fit has covariates.
        """
        z = np.asarray(Z, dtype=float)
        k = self.weights.shape[-1]
        if z.ndim != 2 or z.shape[1] != k:
            raise ValueError(f"Z: has shape {z.shape}, wanted (row, {k}), one column per factor")
        latents = out_of_frame(self, z)
        like = self.model.factor_cov
        full = torch.as_tensor(latents, dtype=like.dtype, device=like.device).expand(
            self.n_restarts, *latents.shape
        )
        with torch.no_grad():
            mean = self.model.likelihood.mean(self.model.decode(full, getattr(self.model, "weights", None)))
        return self.table.given_back(mean[self.best].cpu().double().numpy())

    @isolated()
    def log_likelihood(
        self, X: TableLike | RowStore | None = None, num_draws: int = 16, **per_row: RowInput
    ) -> np.ndarray:
        """ELBO of each row, (row,), under the best restart: a lower bound of log p(x), caller's units.

        Parameters
        ----------
        X : array_like (row, feature), DataFrame, or a table read by rows, optional
            As in `transform`.
        num_draws : int
            Draws of each row's guide.
        **per_row : array_like (row,)
            As in `transform`.
        """
        check_whole(1, num_draws=num_draws)
        return self._bounds(self._table(X, per_row), num_draws)

    def _bounds(self, table: Table, num_draws: int = 16) -> np.ndarray:
        restart, like = pick(self.model, [self.best]), self.model.factor_cov
        bounds = []
        for batch in pieces(table, like.device, like.dtype):
            with undisturbed(seed=0):
                rows = rowwise_elbo(restart, batch, num_draws=num_draws)[0].cpu().double().numpy()
            observed = np.ones(batch.x.shape, dtype=bool) if batch.mask is None else batch.mask.cpu().numpy()
            bounds.append(rows - (observed * np.log(self.table.scale)).sum(1))
        return np.concatenate(bounds)

    @isolated()
    def score(self, X: TableLike | RowStore | None = None, **per_row: RowInput) -> float:
        """Mean of `log_likelihood`; weighted by `sample_weight`, or by the weights of the fit's own rows."""
        beside = {name: values for name, values in per_row.items() if name != "sample_weight"}
        given, weights = per_row.get("sample_weight"), self.table.weights
        if X is None:
            table = self._table(X, per_row)
            if weights is not None and weights.kind == "frequency":  # as the same rows repeated
                table, weights = self.table, None
        else:
            # of a mean only ratios matter, which need not be whole
            X, weights = read_weights(X, given, None if given is None else "survey")
            table = self._table(X, beside)
        return float(np.average(self._bounds(table), weights=None if weights is None else weights.values))

    @isolated()
    def sample(self, n: int, seed: int = 0) -> np.ndarray:
        """Simulated rows (n, feature) of the best restart, in the caller's units."""
        check_whole(1, n=n)
        check_whole(0, seed=seed)
        return simulated_rows(self, n, seed)

    @property
    def covariate_effects(self) -> pd.DataFrame:
        """Effects of covariates and groups on each feature (covariate, feature), of the best restart.

        Of a number its unit, of a category each level against the average row, all else equal: of columns of
        measurements in the caller's units, else on the scale of the linear predictor (log odds, log rates).
        Empty without covariates. Posterior draws are `covariate_effect` in what `edge_posterior` returns.
        """
        return covariate_effects(self)

    def edge_posterior(
        self,
        method: Literal["auto", "mcmc", "program", "jacobian", "score"] = "auto",
        num_draws: int = 500,
        seed: int = 0,
        **options: object,
    ) -> ArvizData:
        """Edges as an ArviZ object; see `pyro_sparse.inference.edges.edge_posterior`.

        Without options the answer is kept, so that asking again costs nothing.
        """
        compute = partial(self._edge_methods("table").compute, self)
        return self._kept(compute, method, num_draws, seed, options)

    # ---- files ---------------------------------------------------------------------------------------------
    def save(self, path: str | os.PathLike[str]) -> None:
        """Write everything but the data to one file that loads with ``weights_only=True``."""
        saved.write(self, path)

    @isolated()
    def with_data(
        self, X: TableLike | RowStore, *, mask: TableLike | None = None, **per_row: RowInput
    ) -> Fit:
        """The same fit with rows to ask: a loaded one has none, and edge probabilities need them.

        Parameters
        ----------
        X : array_like (row, feature), DataFrame, or a table read by rows
            The table of the fit, or another one with its columns; NaN marks a missing cell.
        mask : array_like of bool (row, feature), optional
            True where a cell was seen, beside NaN.
        **per_row : array_like (row,)
            As in `transform`, and `sample_weight` if the fit had weights.

        Returns
        -------
        Fit
            With the table of the fit its `edge_posterior`, `transform`, … are those of the fit before it was
            saved.

        Raises
        ------
        ValueError, TypeError
            As `fit`: other columns, bad cells, a row without any, fewer than ten rows.
        """
        table = counted_like(X, per_row, self.table, self.model.likelihood, mask)
        check_number(len(table.x))
        if table.mask is not None:
            check_rows(table.mask)
        return replace(self, table=table)

    # ---- inside --------------------------------------------------------------------------------------------
    def _table(self, X: TableLike | RowStore | None, per_row: Mapping[str, RowInput]) -> Table:
        """The fit's rows, or new ones."""
        if per_row.get("sample_weight") is not None:
            raise ValueError(
                "sample_weight: what is said of a row does not depend on its weight; leave it out"
            )
        per_row = {name: values for name, values in per_row.items() if name != "sample_weight"}
        if X is not None:
            table = read_table(X, per_row, likelihood=self.model.likelihood, like=self.table)
            if not isinstance(table, LargeTable):
                warn_of_other_units(table, self.model.likelihood)
            return table
        for name, values in per_row.items():
            if values is not None:
                with suppress(ValueError):  # that it is misspelt is worth more to know
                    check_names({name} - {*ROLES}, self.model.likelihood)
                raise ValueError(f"{name}: is of the rows of X, and X was left out; give both or neither")
        if not len(self.table.x):
            raise ValueError("X: a loaded fit has no rows of its own; give some")
        return self.table.of_caller

    def _whole(self, X: TableLike | RowStore | None, method: str, per_row: Mapping[str, RowInput]) -> Table:
        """The table, refused if it is read by rows: the answer would be dense."""
        table = self._table(X, per_row)
        if isinstance(table, LargeTable):
            n, g = table.x.shape
            raise ValueError(
                f"X: the answer would be a dense table of {n} x {g} cells, {8e-9 * n * g:.1f} GB; give some "
                f"rows at a time: fit.{method}(X[:1000])"
            )
        return table

    def _posterior(self, batch: Batch, climb: bool, large: bool = False) -> torch.Tensor:
        """Where the posteriors of rows are, (row, factor), in the order of the best restart."""
        restart = pick(self.model, [self.best])
        with undisturbed(seed=0), frugal(restart) if large else nullcontext():
            q = refine(restart, batch, steps=60 if climb else 0)
        location: torch.Tensor = q.mean[0]
        return location

    def _to_frame(self, z: torch.Tensor) -> np.ndarray:
        return in_frame(self, z.cpu().double().numpy())


def restore(model: FactorModel, meta: dict[str, Any], arrays: dict[str, np.ndarray]) -> Fit:
    """The fit that `Fit.save` wrote, around its model.

    Parameters
    ----------
    model : FactorModel
        With its parameters.
    meta, arrays : dict
        As in `saved.fields_of`.
    """
    return Fit(model=model, **saved.fields_of(meta, arrays))
