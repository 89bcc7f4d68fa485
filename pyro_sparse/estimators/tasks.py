"""The scikit-learn fronts for tasks: `MultiTaskSparseRegressor` and `SparseTaskSVM`.

Only translation happens here: scikit-learn's validation, names and conventions in, `pyro_sparse.fit` or the
group-lasso SVM in the middle, arrays out. A task is a column of a two-dimensional target, or a label per row.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import torch
from sklearn.base import (
    BaseEstimator,
    ClassifierMixin,
    ClassNamePrefixFeaturesOutMixin,
    RegressorMixin,
    TransformerMixin,
)
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_array, check_is_fitted, validate_data

from .._utils.types import TableLike, TaskWeights, VectorLike
from ..data.columns import check_order, in_numbers, in_order, row_names, under_names
from ..data.task_arrays import full_labels
from ..data.task_weights import read_task_weight
from ..inference.fit import fit as fit_model
from ..inference.multitask.inner import group_svm
from ..inference.training.interrupt import whole
from ..models import MultiTaskRegression
from ..priors import Prior
from .factors import seed_of

if TYPE_CHECKING:
    from sklearn.utils import Tags

__all__ = ["MultiTaskSparseRegressor", "SparseTaskSVM"]


class MultiTaskSparseRegressor(
    ClassNamePrefixFeaturesOutMixin, TransformerMixin, RegressorMixin, BaseEstimator
):
    r"""Many regressions on one learned representation, each using few of its latents.

    .. math:: y_{ti} = w_t^\top f_\theta(x_{ti}) + b_t + \varepsilon_{ti}, \qquad w_t \text{ sparse}

    Parameters
    ----------
    n_latents : int
        Width of the representation; at most the number of tasks.
    encoder : {"linear", "mlp"} or Module
        f.
    inner : {"ssl", "lasso", "outer", "ridge"}
        The regressions inside the training; see `pyro_sparse.fit`.
    prior : Prior, optional
        Of the weights (copied); default a spike-and-slab lasso.
    restarts : int
        Representations learned from different starts; the best is kept, the others say whether to trust it.
    steps : int, optional
        Gradient steps; None leaves it to `pyro_sparse.fit`.
    batch_size : int, optional
        Tasks in a step; None leaves it to `pyro_sparse.fit`.
    dtype : {"float64", "float32"}
        Precision of the computation, as in `SparseFactorModel`; that of `pyro_sparse.fit` is "float32".
    device : str
        Where to compute: "cpu", "cuda", ...
    random_state : int, RandomState instance or None
        Seed of every random choice; an int is the `seed` of `pyro_sparse.fit`.
    verbose : bool
        Show a progress bar.

    Attributes
    ----------
    coef_ : ndarray (task, latent)
        Weights in units of the target per standard deviation of the latent; exact zeros unless ridge. They
        are a mode: where `fit_` has the finding "mode" (rows are too few for it), predictions go by posterior
        means.
    tasks_ : ndarray (task,)
        Names of the tasks: labels of `task`, or the target's columns, by number where they have no names.
    fit_ : MultiTaskFit
        The full result: `fit_.summary()`, `fit_.edge_posterior()`.
    n_features_in_ : int
        Number of features seen by `fit`.

    Raises
    ------
    ValueError, TypeError
        From `fit`, for data or settings that cannot be used; the message says how to fix it.
    KeyboardInterrupt
        From `fit`, if it was interrupted: a search over settings must not score what was cut short.

    References
    ----------
    Lachapelle, Deleu et al. (2023), Synergies between disentanglement and sparsity.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(60, 4))
    >>> Y = X[:, :2] @ rng.normal(size=(2, 6)) + 0.1 * rng.normal(size=(60, 6))
    >>> model = MultiTaskSparseRegressor(n_latents=2, steps=100, restarts=1, random_state=0).fit(X, Y)
    >>> model.coef_.shape, model.predict(X).shape, bool(model.score(X, Y) > 0.9)
    ((6, 2), (60, 6), True)
    """

    def __init__(
        self,
        n_latents: int = 2,
        *,
        encoder: str | torch.nn.Module = "linear",
        inner: str = "ssl",
        prior: Prior | None = None,
        restarts: int = 2,
        steps: int | None = None,
        batch_size: int | None = None,
        dtype: str = "float64",
        device: str = "cpu",
        random_state: int | np.random.RandomState | None = None,
        verbose: bool = False,
    ):
        self.n_latents = n_latents
        self.encoder = encoder
        self.inner = inner
        self.prior = prior
        self.restarts = restarts
        self.steps = steps
        self.batch_size = batch_size
        self.dtype = dtype
        self.device = device
        self.random_state = random_state
        self.verbose = verbose

    def fit(
        self,
        X: TableLike,
        y: TableLike | VectorLike,
        task: VectorLike | None = None,
        task_weight: TaskWeights | None = None,
    ) -> MultiTaskSparseRegressor:
        """Learn the representation and every task's weights.

        Parameters
        ----------
        X : array_like (row, feature)
        y : array_like (row, task), or (row,) with `task` or for a single one
            Targets; NaN is a missing one.
        task : array_like (row,), optional
            Which task each row belongs to.
        task_weight : mapping by the names in `tasks_`, or array_like (task,) in their order, optional
            How much each task counts in learning the representation, as in `pyro_sparse.fit`.

        Returns
        -------
        MultiTaskSparseRegressor
            The estimator itself.
        """
        table = under_names(X, validate_data(self, in_numbers(X), dtype=np.float64, ensure_min_samples=2))
        if y is None:
            raise ValueError("y: this regressor requires y to be passed, but the target y is None")
        for name, argument in (("y", y), ("task", task)):
            check_order(name, row_names(argument), row_names(X))
        names = y.columns if isinstance(y, pd.DataFrame) else None
        y = check_array(y, ensure_2d=False, ensure_all_finite="allow-nan", dtype=np.float64, input_name="y")
        self._by_label = task is not None
        n_rows, n_features = table.shape
        if not isinstance(table, pd.DataFrame):
            table = pd.DataFrame(table, columns=[f"x{j + 1}" for j in range(n_features)])
        if task is None:
            self._flat = y.ndim == 1
            y = y.reshape(len(y), -1)
            inputs, targets = table, y if names is None else pd.DataFrame(y, table.index, names)
            self.tasks_ = np.arange(y.shape[1]) if names is None else names.to_numpy()
        else:
            labels = full_labels(task)
            if labels.shape != (n_rows,) or y.shape != (n_rows,):
                raise ValueError(
                    f"task: got shape {labels.shape} with y {y.shape}; want one label and one target for "
                    f"each of {n_rows} rows"
                )
            self.tasks_ = in_order(task)[1].to_numpy()  # as the fit has them
            inputs, targets, task = table, y, pd.Categorical(labels, self.tasks_)
        model = MultiTaskRegression(
            n_features, self.n_latents, encoder=self.encoder, prior=copy.deepcopy(self.prior)
        )
        optional: dict[str, Any] = {"steps": self.steps, "batch_size": self.batch_size}
        self.fit_ = whole(
            fit_model,
            model,
            inputs,
            targets,
            task=task,
            task_weight=read_task_weight(task_weight, [str(name) for name in self.tasks_]),
            inner=self.inner,
            restarts=self.restarts,
            seed=seed_of(self.random_state),
            dtype=self.dtype,
            device=self.device,
            progress=self.verbose,
            **{name: value for name, value in optional.items() if value is not None},
        )
        self.coef_ = self.fit_.weights[self.fit_.best]
        return self

    def predict(self, X: TableLike, task: VectorLike | None = None) -> np.ndarray:
        """Expected targets, (row, task), or (row,) with `task`.

        Parameters
        ----------
        X : array_like (row, feature)
        task : array_like (row,), optional
            Which of the known tasks each row belongs to; wanted if `fit` was given labels.
        """
        check_is_fitted(self)
        X = validate_data(self, in_numbers(X), dtype=np.float64, reset=False)
        if not self._by_label:
            if task is not None:
                raise ValueError("task: the tasks of this fit are columns of y, not labels; leave it out")
            predictions = self.fit_._predict_all(X)
            return predictions[:, 0] if self._flat else predictions
        labels = self.tasks_[_places(task, self.tasks_, len(X))]
        return self.fit_.predict(X, [str(label) for label in labels])

    def score(
        self,
        X: TableLike,
        y: TableLike | VectorLike,
        sample_weight: VectorLike | None = None,
        task: VectorLike | None = None,
    ) -> float:
        """R² of the predictions, the mean over the columns of y that have targets.

        Parameters
        ----------
        X, task
            As in `predict`.
        y : array_like (row, task), or (row,) with `task`
            NaN is a missing target.
        sample_weight : array_like (row,), optional
        """
        from sklearn.metrics import r2_score  # imported at the top it would draw from numpy's random stream

        predictions = self.predict(X, task)
        y = check_array(y, ensure_2d=False, ensure_all_finite="allow-nan", dtype=np.float64, input_name="y")
        targets, means = (array.reshape(len(array), -1) for array in (y, predictions))
        if targets.shape != means.shape or np.isnan(targets).all():
            raise ValueError(
                f"y: got shape {y.shape} with {int(np.isfinite(y).sum())} target(s), the predictions have "
                f"{predictions.shape}; want that shape, and some target"
            )
        scores = []
        for target, mean in zip(targets.T, means.T, strict=True):
            observed = ~np.isnan(target)
            weight = None if sample_weight is None else np.asarray(sample_weight)[observed]
            if observed.any():
                scores.append(r2_score(target[observed], mean[observed], sample_weight=weight))
        return float(np.mean(scores))

    def transform(self, X: TableLike) -> np.ndarray:
        """Latents (row, latent), in standard deviations over the training rows."""
        check_is_fitted(self)
        return self.fit_.transform(validate_data(self, in_numbers(X), dtype=np.float64, reset=False))

    @property
    def _n_features_out(self) -> int:
        return self.coef_.shape[1]

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        tags.non_deterministic = self.random_state is None
        tags.regressor_tags.poor_score = True  # the checks fit ten rows
        return tags


class SparseTaskSVM(ClassifierMixin, BaseEstimator):
    r"""Multiclass SVM that uses few features, the same ones for all classes; one per task. No intercept.

    .. math:: \min_W \sum_i \max_l \big(1 - Y_{il} + x_i^\top (W_l - W_{y_i})\big)
              + \lambda_1 \sum_j \lVert W_{j:} \rVert + \tfrac{\lambda_2}{2} \lVert W \rVert^2

    Parameters
    ----------
    sparsity : float
        :math:`\lambda_1` as a share of the one that leaves no feature, in [0, 1).
    l2 : float
        :math:`\lambda_2 > 0`.
    standardise : bool
        Features z-scored first, so that none is used for its scale.
    tol : float
        Largest relative duality gap.
    max_steps : int
        Iterations of the dual solver; what has not converged then is said in a warning.

    Attributes
    ----------
    coef_ : ndarray (task, class, feature) or (class, feature) for a single task
        Exact zeros for features that are not used.
    classes_ : ndarray (class,)
    tasks_ : ndarray (task,) or None
    gap_ : ndarray (task,)
        Relative duality gaps.
    active_ : ndarray of bool (task, feature) or (feature,)
        Features in use.

    References
    ----------
    Lachapelle, Deleu et al. (2023), equation (8) and appendix C.

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> X, y = load_wine(return_X_y=True)
    >>> model = SparseTaskSVM(sparsity=0.5).fit(X, y)
    >>> bool(model.score(X, y) > 0.9), bool(model.active_.sum() < 13), bool((model.gap_ < 1e-5).all())
    (True, True, True)
    """

    def __init__(
        self,
        sparsity: float = 0.2,
        *,
        l2: float = 1.0,
        standardise: bool = True,
        tol: float = 1e-6,
        max_steps: int = 5000,
    ):
        self.sparsity = sparsity
        self.l2 = l2
        self.standardise = standardise
        self.tol = tol
        self.max_steps = max_steps

    def fit(self, X: TableLike, y: TableLike | VectorLike, task: VectorLike | None = None) -> SparseTaskSVM:
        """Solve every task's problem.

        Parameters
        ----------
        X : array_like (row, feature)
        y : array_like (row,)
            Classes.
        task : array_like (row,), optional
            Which task each row belongs to; classes are shared by all tasks.

        Returns
        -------
        SparseTaskSVM
            The estimator itself.
        """
        X, y = validate_data(self, in_numbers(X), y, dtype=np.float64)
        if not 0 <= self.sparsity < 1:
            raise ValueError(f"sparsity: got {self.sparsity!r}, wanted a share in [0, 1): 1 leaves none")
        check_classification_targets(y)
        self.classes_, codes = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError(f"y: got one class ({self.classes_[0]!r}), want at least two")
        self._centre = X.mean(0) if self.standardise else np.zeros(X.shape[1])
        spread = X.std(0) if self.standardise else np.ones(X.shape[1])
        self._scale = np.where(spread > 0, spread, 1.0)
        rows = (X - self._centre) / self._scale
        labels = np.zeros(len(X)) if task is None else full_labels(task)
        if labels.shape != (len(X),):
            raise ValueError(f"task: got shape {labels.shape}, want one label for each of {len(X)} rows")
        codes_of_tasks, tasks = in_order(labels if task is None else task)
        self.tasks_ = None if task is None else tasks.to_numpy()
        groups = [np.flatnonzero(codes_of_tasks == t) for t in range(len(tasks))]
        solutions = [
            group_svm(
                torch.as_tensor(rows[members])[None],
                torch.as_tensor(codes[members])[None],
                len(self.classes_),
                sparsity=self.sparsity,
                l2=self.l2,
                tol=self.tol,
                max_iter=self.max_steps,
            )
            for members in groups
        ]
        coef = np.stack([solution.weight[0].numpy().T for solution in solutions])
        self.gap_ = np.array([float(solution.gap[0]) for solution in solutions])
        active = np.stack([solution.active[0].numpy() for solution in solutions])
        self.coef_ = coef[0] if self.tasks_ is None else coef
        self.active_ = active[0] if self.tasks_ is None else active
        return self

    def decision_function(self, X: TableLike, task: VectorLike | None = None) -> np.ndarray:
        """Scores (row, class); of two classes how much more the second has, (row,).

        Parameters
        ----------
        X : array_like (row, feature)
        task : array_like (row,), optional
            Wanted if `fit` was given tasks.
        """
        check_is_fitted(self)
        rows = (
            validate_data(self, in_numbers(X), dtype=np.float64, reset=False) - self._centre
        ) / self._scale
        if self.tasks_ is None:
            return self._scores(rows @ self.coef_.T)
        coef = self.coef_[_places(task, self.tasks_, len(rows))]
        return self._scores(np.einsum("nd,ncd->nc", rows, coef))

    def _scores(self, scores: np.ndarray) -> np.ndarray:
        return scores[:, 1] - scores[:, 0] if len(self.classes_) == 2 else scores

    def predict(self, X: TableLike, task: VectorLike | None = None) -> np.ndarray:
        """The class with the highest score, (row,)."""
        scores = self.decision_function(X, task)
        return self.classes_[(scores > 0).astype(int) if scores.ndim == 1 else scores.argmax(1)]

    def score(
        self,
        X: TableLike,
        y: TableLike | VectorLike,
        sample_weight: VectorLike | None = None,
        task: VectorLike | None = None,
    ) -> float:
        """Share of the rows that are classified correctly.

        Parameters
        ----------
        X, task
            As in `decision_function`.
        y : array_like (row,)
            Classes.
        sample_weight : array_like (row,), optional
        """
        from sklearn.metrics import accuracy_score

        return float(accuracy_score(y, self.predict(X, task), sample_weight=sample_weight))


def _places(task: VectorLike | None, tasks: np.ndarray, n_rows: int) -> np.ndarray:
    """Which of the known tasks each row belongs to."""
    labels = np.asarray(task)
    places = pd.Index(tasks).get_indexer(labels) if labels.shape == (n_rows,) else np.array([-1])
    if (places < 0).any():
        raise ValueError(f"task: want one of {tasks.tolist()[:8]} for each of {n_rows} rows")
    return places
