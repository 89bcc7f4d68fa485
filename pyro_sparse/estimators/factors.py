"""The scikit-learn front: `SparseFactorModel` is a `SparseDecoder` and its fit behind fit/transform/score.

Only translation happens here: scikit-learn's validation, names and conventions in, `pyro_sparse.fit` in the
middle, `(factor, feature)` arrays out. NaN is a missing cell and needs no imputer before it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from numbers import Integral
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pandas as pd
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import check_array, check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from ..data.columns import as_frame, in_numbers, under_names
from ..data.design import features_of, names_of, taken_out
from ..data.ordered_categories import with_codes, words_of
from ..data.row_weights import read_weights
from ..inference.fit import fit as fit_model
from ..inference.training.interrupt import whole
from ..likelihoods import LikelihoodLike, get_likelihood
from ..models import SparseDecoder
from ..priors import Prior, get_prior

if TYPE_CHECKING:
    import numpy.typing as npt
    from sklearn.utils import Tags

    from .._utils.types import Covariates, TableLike, VectorLike
    from ..models._edge_odds import EdgeOdds

__all__ = ["SparseFactorModel"]


def seed_of(random_state: int | np.random.RandomState | None) -> int:
    """The `seed` of `pyro_sparse.fit` for scikit-learn's `random_state`: an int is the seed itself.

    Parameters
    ----------
    random_state : int, RandomState instance or None

    Raises
    ------
    ValueError
        It is none of these.
    """
    if isinstance(random_state, Integral):
        return int(random_state)
    return int(check_random_state(random_state).randint(np.iinfo(np.int32).max))


class SparseFactorModel(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    r"""Sparse factor model: which feature depends on which latent factor.

    .. math:: z_i \sim N(0, C), \qquad x_{ij} \sim \mathrm{likelihood}\big(f_\theta(w_j \odot z_i)_j\big),
              \qquad w_{jk} \sim \mathrm{prior}

    Parameters
    ----------
    n_factors : int
        Upper bound K on the number of factors, fewer than features; surplus ones end without edges.
    prior : str or Prior
        Prior of the weights: a name that `pyro_sparse.priors.get_prior` knows, or an instance (which is
        copied, never changed).
    likelihood : str, mapping or Likelihood
        As in `pyro_sparse.models.SparseDecoder`: a name, a mapping from columns to names, "auto", or an
        instance (which is copied).
    decoder : {"mlp", "linear"}
        A neural network shared by all features, or sparse linear factor analysis.
    anchors, required, forbidden, edge_odds : optional
        What is known of single edges, as in `pyro_sparse.models.SparseDecoder`; features by name where X is a
        DataFrame.
    restarts : int
        Starts trained in one pass; the best is kept, the others say how far the answer can be trusted.
    steps : int, optional
        Gradient steps; None leaves it to `pyro_sparse.fit`.
    batch_size : int, optional
        Rows in a minibatch; None leaves it to `pyro_sparse.fit`.
    refine : bool
        In `transform`, climb from the encoder's guess to the posterior mode of each row.
    dtype : {"float64", "float32", "bfloat16"}
        Precision of the computation, as in `pyro_sparse.fit`. That is "float32" there; in it the scores of a
        row depend on the rows beside it by more than the 1e-7 that scikit-learn allows.
    device : str
        Where to compute: "cpu", "cuda", ...
    random_state : int, RandomState instance or None
        Seed of every random choice; an int is the `seed` of `pyro_sparse.fit`.
    verbose : bool
        Show a progress bar.

    Attributes
    ----------
    components_ : ndarray (factor, feature)
        Signed loadings of the best restart; exact zeros where there is no edge.
    edge_score_ : ndarray (factor, feature)
        Score of each edge in [0, 1]. It is not a calibrated probability.
    effects_ : ndarray (factor, feature)
        Share of each feature's variance that is due to each factor, in [0, 1].
    fit_ : Fit
        The full result, with every restart: `fit_.summary()`, `fit_.edge_posterior()`, `fit_.report(path)`.
    n_features_in_ : int
        Number of features seen by `fit`.
    feature_names_in_ : ndarray of str (feature,)
        Their names, where `fit` was given a DataFrame with text for names.

    Raises
    ------
    ValueError, TypeError
        From `fit`, for data or settings that cannot be used; the message says how to fix it.
    KeyboardInterrupt
        From `fit`, if it was interrupted: a search over settings must not score what was cut short.

    References
    ----------
    Moran, Sridhar, Wang, Blei (2022). Identifiable Deep Generative Models via Sparse Decoding. TMLR.

    Examples
    --------
    >>> from pyro_sparse.datasets import sim1
    >>> X = sim1(150, seed=0).x
    >>> model = SparseFactorModel(n_factors=2, restarts=2, steps=50, random_state=0)
    >>> model.fit_transform(X).shape
    (150, 2)
    >>> model.components_.shape
    (2, 7)
    """

    def __init__(
        self,
        n_factors: int = 5,
        *,
        prior: str | Prior = "spike_slab_lasso",
        likelihood: LikelihoodLike = "normal",
        decoder: str = "mlp",
        anchors: Mapping[int | str, int] | None = None,
        required: Iterable[tuple[int | str, int]] | None = None,
        forbidden: Iterable[tuple[int | str, int]] | None = None,
        edge_odds: EdgeOdds | None = None,
        restarts: int = 8,
        steps: int | None = None,
        batch_size: int | None = None,
        refine: bool = True,
        dtype: str = "float64",
        device: str = "cpu",
        random_state: int | np.random.RandomState | None = None,
        verbose: bool = False,
    ):
        self.n_factors = n_factors
        self.prior = prior
        self.likelihood = likelihood
        self.decoder = decoder
        self.anchors = anchors
        self.required = required
        self.forbidden = forbidden
        self.edge_odds = edge_odds
        self.restarts = restarts
        self.steps = steps
        self.batch_size = batch_size
        self.refine = refine
        self.dtype = dtype
        self.device = device
        self.random_state = random_state
        self.verbose = verbose

    def fit(
        self,
        X: TableLike,
        y: object = None,
        *,
        exposure: VectorLike | None = None,
        covariates: Covariates | None = None,
        groups: Covariates | None = None,
        sample_weight: VectorLike | str | None = None,
        sample_weight_type: Literal["frequency", "survey"] | None = None,
    ) -> SparseFactorModel:
        """Learn the factor graph.

        Parameters
        ----------
        X : array_like (row, feature) or DataFrame
            Measurements; NaN marks a missing cell.
        y : None
            Ignored.
        exposure : array_like (row,), optional
            Size factors of counts (time, area, depth). New rows then want theirs.
        covariates, groups : optional
            As in `pyro_sparse.fit`. Columns of X that they name are found in new rows as well; values are
            wanted of new rows, too.
        sample_weight, sample_weight_type : optional
            As in `pyro_sparse.fit`. New rows want none.

        Returns
        -------
        SparseFactorModel
            The estimator itself.
        """
        X, weights = read_weights(X, sample_weight, sample_weight_type)
        self._weight_column = sample_weight if isinstance(sample_weight, str) else None
        X, beside, _ = taken_out(X, {"covariates": covariates, "groups": groups})
        X = self._validated(X, reset=True)
        if weights is not None and weights.kind != "equal":
            beside |= {"sample_weight": weights.values, "sample_weight_type": weights.kind}
        model = SparseDecoder(
            n_features=X.shape[1],
            n_factors=self.n_factors,
            prior=get_prior(self.prior),
            likelihood=self.likelihood,
            decoder=self.decoder,
            anchors=self.anchors,
            required=self.required,
            forbidden=self.forbidden,
            edge_odds=self.edge_odds,
        )
        optional: dict[str, Any] = {"steps": self.steps, "batch_size": self.batch_size}
        self.fit_ = whole(
            fit_model,
            model,
            X,
            restarts=self.restarts,
            seed=seed_of(self.random_state),
            dtype=self.dtype,
            device=self.device,
            progress=self.verbose,
            exposure=exposure,
            **beside,
            **{name: value for name, value in optional.items() if value is not None},
        )
        given = {"covariates": covariates, "groups": groups}
        self._covariates = {role: names for role, values in given.items() if (names := names_of(values))}
        best = self.fit_.best
        self.components_ = np.asarray(self.fit_.weights[best].T, dtype=float)
        self.edge_score_ = np.asarray(self.fit_.edge_score[best].T, dtype=float)
        self.effects_ = np.asarray(self.fit_.effects[best].T, dtype=float)
        return self

    def fit_transform(
        self,
        X: TableLike,
        y: object = None,
        *,
        exposure: VectorLike | None = None,
        covariates: Covariates | None = None,
        groups: Covariates | None = None,
        sample_weight: VectorLike | str | None = None,
        sample_weight_type: Literal["frequency", "survey"] | None = None,
    ) -> np.ndarray:
        """`fit`, and the factor scores of its rows; arguments as in `fit`."""
        beside: dict[str, Any] = {"exposure": exposure, "covariates": covariates, "groups": groups}
        self.fit(X, y, **beside, sample_weight=sample_weight, sample_weight_type=sample_weight_type)
        return self.transform(X, **beside)

    def transform(
        self,
        X: TableLike,
        *,
        exposure: VectorLike | None = None,
        covariates: Covariates | None = None,
        groups: Covariates | None = None,
    ) -> np.ndarray:
        """Factor scores of new rows.

        Parameters
        ----------
        X : array_like (row, feature) or DataFrame
            NaN marks a missing cell.
        exposure : array_like (row,), optional
            Of these rows, if `fit` was given exposures.
        covariates, groups : optional
            Of these rows, if `fit` was given some.

        Returns
        -------
        ndarray (row, factor)
            Posterior mode of each row's factors (with `refine`), or the encoder's mean.
        """
        check_is_fitted(self)
        X, beside = self._beside(X, covariates, groups)
        scores = self.fit_.transform(self._validated(X), refine=self.refine, exposure=exposure, **beside)
        return np.asarray(scores, dtype=float)

    def inverse_transform(self, X: npt.ArrayLike) -> np.ndarray:
        """Expected measurements at given factor scores.

        Parameters
        ----------
        X : array_like (row, factor)
            Factor scores.

        Returns
        -------
        ndarray (row, feature)
            In the units of the data that `fit` was given.
        """
        check_is_fitted(self)
        scores = check_array(X, dtype=float, input_name="X")
        if scores.shape[1] != self._n_features_out:
            raise ValueError(
                f"X: has {scores.shape[1]} column(s), wanted one per factor ({self._n_features_out}); "
                "give what transform returned"
            )
        return np.asarray(self.fit_.inverse_transform(scores), dtype=float)

    def score(
        self,
        X: TableLike,
        y: object = None,
        *,
        exposure: VectorLike | None = None,
        covariates: Covariates | None = None,
        groups: Covariates | None = None,
        sample_weight: VectorLike | None = None,
    ) -> float:
        """Mean evidence lower bound (ELBO) of rows; higher is better, and held-out rows are the honest test.

        Parameters
        ----------
        X : array_like (row, feature) or DataFrame
            NaN marks a missing cell.
        y : None
            Ignored.
        exposure : array_like (row,), optional
            Of these rows, if `fit` was given exposures.
        covariates, groups : optional
            Of these rows, if `fit` was given some.
        sample_weight : array_like (row,), optional
            How much each row counts in the mean.

        Returns
        -------
        float
            ELBO in nats per row.
        """
        check_is_fitted(self)
        X, beside = self._beside(X, covariates, groups)
        beside |= {"exposure": exposure, "sample_weight": sample_weight}
        return float(self.fit_.score(self._validated(X), **beside))

    def _beside(
        self, X: TableLike, covariates: Covariates | None, groups: Covariates | None
    ) -> tuple[TableLike, dict[str, Any]]:
        """The features of new rows, and their covariates by role; those that `fit` named are columns of X."""
        if self._weight_column is not None:
            X = features_of(X, (self._weight_column,))
        given: dict[str, Any] = {"covariates": covariates, "groups": groups}
        given = {role: self._covariates.get(role) if v is None else v for role, v in given.items()}
        X, beside, _ = taken_out(X, given)
        return X, beside

    @property
    def _n_features_out(self) -> int:
        return self.components_.shape[0]

    def _validated(self, X: TableLike, reset: bool = False) -> np.ndarray | pd.DataFrame:
        least = {"ensure_min_samples": 2, "ensure_min_features": 2} if reset else {}
        options: dict[str, Any] = {"dtype": float, "ensure_all_finite": "allow-nan", **least}
        X = as_frame(X)
        # types of columns, and words of ordered categories, are the fit's to read
        as_it_is = isinstance(X, pd.DataFrame) and get_likelihood(self.likelihood).reads_columns
        numbers = in_numbers(self._coded(X, reset) if as_it_is else X)
        cells = validate_data(self, numbers, reset=reset, **options)
        return X if as_it_is else under_names(numbers, cells)

    def _coded(self, X: pd.DataFrame, reset: bool) -> pd.DataFrame:
        """The table with numbers in the place of ordered categories, by which scikit-learn checks it."""
        if reset:
            return with_codes(X, [str(name) for name in X.columns], [words_of(kind) for kind in X.dtypes])
        labels = self.fit_.model.likelihood.labels
        return with_codes(X, self.fit_.feature_names, labels) if labels else X

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.non_deterministic = self.random_state is None
        return tags
