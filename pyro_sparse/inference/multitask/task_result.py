"""`MultiTaskFit`: what a fit of tasks found; all restarts in the frame of the best one.

Latents have unit variance over the training samples; their order and signs are those of the best restart.
Weights say how much of a task's target one standard deviation of a latent is worth, in the caller's units.
"""

from __future__ import annotations

import copy
import os
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, cast

import numpy as np
import pandas as pd
import torch

from ..._utils.checks import check_whole
from ..._utils.display import AgreementTable
from ..._utils.recorded import describe
from ..._utils.torch_state import first_rows, isolated, undisturbed
from ..._utils.types import ArvizData, TableLike, VectorLike
from ..._utils.version import __version__
from ...data.columns import as_frame, check_order, row_names, text_columns
from ...data.task_arrays import column, task_labels
from ...data.tasks import TaskBatch, Tasks, as_tasks
from ...findings.finding import Finding, write_findings
from ...posterior.method_names import warned_name
from ...posterior.rival_restarts import only_restart
from ..training import checkpoint as files
from ..training._repr import in_short
from ..training.fit_result import FitResult
from ..training.restarts import align_latents, in_frame
from .bilevel import left_out_error, samples
from .mean_weights import at_mean_weights
from .mode_edges import mode_doubts
from .outcomes import dense_model, dispersion
from .task_means import mean_error
from .task_notes import (
    dispersion_findings,
    error_findings,
    latent_findings,
    linear_map_only,
    unused,
)
from .task_run import in_chunks, raw_latents, solve_tasks

if TYPE_CHECKING:
    from ...likelihoods import Likelihood
    from ...models.multitask import MultiTaskRegression

__all__ = ["ARRAYS", "MEANS", "MultiTaskFit"]

ARRAYS = ("error", "found")
_ROWS = 2000  # encoded at once
MEANS = "mean weights"  # of the states in a file


@dataclass
class MultiTaskFit(FitResult):
    """Result of `pyro_sparse.fit` on tasks.

    Attributes
    ----------
    models : list of MultiTaskRegression
        One per restart, trained.
    tasks : Tasks
        What it was fitted to.
    best : int
        Number of the chosen restart: the least left-out error.
    error : ndarray (restart,)
        Mean squared error of samples left out of each task, in variances of the target; of held-out tasks
        where there are any. Where outcomes are not normal, what their likelihood makes of that
        (`outcomes.left_out_ratio`): below 1, better than an intercept alone. The mean over tasks goes by
        their weights, if there are any (`tasks.weight`).
    found : ndarray (restart,)
        Share of the search's random starts that ended at the same axes; NaN without a search.
    agreement : DataFrame
        One row per restart: `similarity` (mean absolute correlation of its latents with the best
        restart's), `least` (the same of the worst latent), `error`, `found`.
    history : DataFrame
        step, restart, objective, heldout, edges, stage.
    alignment : dict
        "permutation", "sign", "similarity" and "block", each (restart, latent): absolute correlation with the
        best restart's latent; and latents of one block are told apart by independence, or not at all
        (`task_axes.py`).
    settings : dict
        JSON-able record of how the fit was made.
    findings : list of Finding
        What a reader should know before believing it; `warnings` has them as sentences.
    """

    models: list[MultiTaskRegression]
    tasks: Tasks
    best: int
    error: np.ndarray
    found: np.ndarray
    agreement: pd.DataFrame
    history: pd.DataFrame
    alignment: dict[str, np.ndarray]
    settings: dict[str, Any]
    _at_means: MultiTaskRegression | None = field(default=None, init=False, repr=False, compare=False)

    def __repr__(self) -> str:
        sizes = {"tasks": len(self.task_names), "latents": self.model.n_latents}
        return in_short(self, sizes, {"left-out error": self.error}, "left-out error unknown")

    @property
    def model(self) -> MultiTaskRegression:
        """The chosen restart's model."""
        return self.models[self.best]

    @property
    def n_restarts(self) -> int:
        """Number of restarts."""
        return len(self.models)

    @property
    def latent_names(self) -> list[str]:
        """ "latent 1", "latent 2", …"""
        return [f"latent {k + 1}" for k in range(self.model.n_latents)]

    @property
    def task_names(self) -> list[str]:
        """Names of the tasks."""
        return self.tasks.task_names

    @property
    def weights(self) -> np.ndarray:
        """Weights (restart, task, latent), in units of the target per standard deviation of the latent.

        Of outcomes that are not normal they are in units of the linear predictor.
        """
        return self.model_weights * self.tasks.target_scale[:, None]

    @property
    def model_weights(self) -> np.ndarray:
        """Weights (restart, task, latent) in standard deviations of the task's target."""
        weights = np.stack([m.weights[0].double().cpu().numpy() for m in self.models])
        return self._framed(weights)

    @property
    def intercept(self) -> np.ndarray:
        """Expected target where all latents are 0, (restart, task), in units of the target.

        Of outcomes that are not normal it is the linear predictor there.
        """
        intercepts = np.stack([m.intercept.double().cpu().numpy() for m in self.models])
        likelihood = self.model.likelihood
        shifted = True if likelihood is None else likelihood.is_standardised(len(self.task_names))
        return np.where(shifted, self.tasks.target_centre, 0.0) + intercepts * self.tasks.target_scale

    @property
    def noise(self) -> np.ndarray:
        """Standard deviation of each task's noise, (restart, task), in units of the target.

        NaN where outcomes are not normal: what they vary by is in the likelihood.
        """
        if self.model.likelihood is not None:
            return np.full((self.n_restarts, len(self.task_names)), np.nan)
        variance = np.stack([m.variance.double().cpu().numpy() for m in self.models])
        return np.sqrt(variance) * self.tasks.target_scale

    @property
    def edge_score(self) -> np.ndarray | None:
        """Probability of each edge given its weight alone, (restart, task, latent): a score."""
        odds = [m.prior.edge_log_odds(m.weights) for m in self.models]
        if any(o is None for o in odds):
            return None
        return self._framed(
            np.stack([torch.sigmoid(cast(torch.Tensor, o))[0].double().cpu().numpy() for o in odds]),
            signed=False,
        )

    def _framed(self, values: np.ndarray, signed: bool = True) -> np.ndarray:
        """(restart, ..., latent) in each restart's own frame to that of the best."""
        turn, sign = self.alignment["permutation"], self.alignment["sign"]
        shape = (len(values), *[1] * (values.ndim - 2), values.shape[-1])
        taken = np.take_along_axis(values, np.broadcast_to(turn.reshape(shape), values.shape), -1)
        return taken * sign.reshape(shape) if signed else taken

    @classmethod
    def build(
        cls,
        models: list[MultiTaskRegression],
        tasks: Tasks,
        *,
        judged: TaskBatch,
        found: np.ndarray,
        inner: str,
        history: pd.DataFrame,
        settings: dict[str, Any],
        findings: list[Finding],
        blocks: np.ndarray | None = None,
    ) -> MultiTaskFit:
        """Choose a restart and bring the others into its frame."""
        few = first_rows(judged, 200)
        present = samples(few)
        frames, errors = [], []
        for model in models:
            f = (raw_latents(model, few) - model.centre) / model.spread
            frames.append(f[present].double().cpu().numpy())

            def error_of(batch: TaskBatch, model: MultiTaskRegression = model) -> torch.Tensor:
                return left_out_error(model, batch, inner, settings["penalty"], settings["ridge"])

            errors.append(mean_error(in_chunks(error_of, judged), judged.weight))
        error = np.array(errors)
        best = int(np.where(np.isfinite(error), error, np.inf).argmin())
        permutation, sign, similarity = align_latents(np.stack(frames), best)
        if blocks is None:  # no search of axes
            blocks = np.tile(np.arange(permutation.shape[1]), (len(models), 1))
        agreement = AgreementTable(
            {
                "similarity": similarity.mean(1),
                "least": similarity.min(1),
                "error": error,
                "found": found,
            },
            index=pd.RangeIndex(len(models), name="restart"),
        )
        names = [f"latent {k + 1}" for k in range(permutation.shape[1])]
        sizes = samples(judged).sum(1).cpu().numpy()
        doubts = error_findings(error[best], sizes, models[best].likelihood is None)
        some = first_rows(tasks.batch(models[best].turn.device, models[best].turn.dtype), 400)
        if models[best].likelihood is not None:
            doubts += dispersion_findings(
                dispersion(dense_model(models[best], some, settings["ridge"]), some)
            )
        of_mode: list[Finding] = []
        if inner == "ridge":
            doubts += linear_map_only()
        else:
            doubts += latent_findings(similarity, blocks[best][permutation[best]], best, names)
            of_mode = mode_doubts(models[best], some, settings["ridge"], tasks.task_names)
        return cls(
            models=models,
            tasks=tasks,
            best=best,
            error=error,
            found=found,
            agreement=agreement,
            history=history,
            alignment={
                "permutation": permutation,
                "sign": sign,
                "similarity": similarity,
                "block": np.take_along_axis(blocks, permutation, 1),
            },
            settings={**settings, "version": __version__},
            findings=[
                *findings,
                *doubts,
                *of_mode,
                *only_restart(len(models)),
                *unused(models[best], bool(of_mode)),
            ],
        )

    @isolated()
    @torch.no_grad()
    def transform(self, X: TableLike | None = None) -> np.ndarray:
        """Latents of inputs, best restart, in standard deviations over the training samples.

        Parameters
        ----------
        X : array_like (row, ...) or DataFrame, optional
            Inputs as in `fit`; a DataFrame may have other columns too. Default: those of the fit, (task,
            sample, latent), NaN at padding.

        Returns
        -------
        ndarray (row, latent) or (task, sample, latent)

        Raises
        ------
        ValueError, TypeError
            Another shape than the model's, a column that is not there, NaN or infinity.
        """
        if X is None:
            self._has_rows()
            like = self.model.turn
            raw = raw_latents(self.model, self.tasks.batch(like.device, like.dtype))
            z = self._framed_best((raw - self.model.centre) / self.model.spread)
            z[np.arange(z.shape[1]) >= self.tasks.lengths[:, None]] = np.nan
            return z
        x = self.tasks.inputs(X)
        like = self.model.turn
        chunks = [self.tasks.standardised(x[i : i + _ROWS], like.device, like.dtype)
                 for i in range(0, len(x), _ROWS)]  # fmt: skip
        return self._framed_best(torch.cat([self.model.standardised(chunk) for chunk in chunks]))

    def _has_rows(self) -> None:
        if not self.tasks.x.shape[1]:
            raise ValueError("X: a loaded fit has no rows of its own; give some")

    def _framed_best(self, z: torch.Tensor) -> np.ndarray:
        return in_frame(self, z.double().cpu().numpy())

    @isolated()
    def with_data(self, X: TableLike, y: VectorLike, task: VectorLike | None = None) -> MultiTaskFit:
        """The same fit with rows of its tasks to ask: a loaded one has none, and `edge_posterior` needs them.

        Weights stay as they are; for tasks that the fit has not seen see `adapt`.

        Parameters
        ----------
        X, y, task
            As in `fit`; all tasks of the fit, in any order, and no others.

        Returns
        -------
        MultiTaskFit
            With the rows of the fit its `edge_posterior`, `predict`, … are those of the fit before it was
            saved.

        Raises
        ------
        ValueError, TypeError
            As `fit`; a task is missing or not of the fit.
        """
        old = self.tasks
        likelihood = self.model.likelihood
        new = as_tasks(X, y, task, like=old, units=None if likelihood is None else _as_given)
        places = {name: t for t, name in enumerate(new.task_names)}
        strange = [name for name in new.task_names if name not in set(old.task_names)]
        missing = [name for name in old.task_names if name not in places]
        if strange or missing:
            why = f"{strange[0]!r} is none of the fit's" if strange else f"{missing[0]!r} is missing"
            count = len(strange or missing)
            raise ValueError(
                f"task: {why} ({count} such task(s)); wanted the fit's {len(old.task_names)} tasks, such as "
                f"{old.task_names[0]!r} (adapt() fits new ones)"
            )
        new = new.rows([places[name] for name in old.task_names])
        ratio = (new.target_scale / old.target_scale)[:, None]  # weights are in the fit's units of targets
        shift = ((new.target_centre - old.target_centre) / old.target_scale)[:, None]
        _check_outcomes(self.model, new)
        filler = 0.0 if likelihood is None else likelihood.filler
        y = new.y * ratio + shift if new.mask is None else np.where(new.mask, new.y * ratio + shift, filler)
        new = replace(new, y=y, target_centre=old.target_centre, target_scale=old.target_scale)
        new = replace(new, weight=old.weight)
        return replace(self, tasks=new)

    @isolated()
    def adapt(self, X: TableLike, y: VectorLike, task: VectorLike | None = None) -> MultiTaskFit:
        """Weights of new tasks on the learned representation, which stays as it is.

        Eta, the share of tasks that use each latent, also stays for the weights, which are a mode.
        `edge_posterior` learns it anew, from the new tasks alone, under the Beta prior that the fit used.

        Parameters
        ----------
        X, y, task
            As in `fit`; one task is enough.

        Returns
        -------
        MultiTaskFit
            The same fit with these tasks in place of those it was trained on; what it says of restarts is
            still about those.

        Raises
        ------
        ValueError, TypeError
            As `fit`.
        """
        known: MultiTaskRegression | None = None
        units: dict[str, Any] = {}
        if self.model.likelihood is not None:
            known = copy.deepcopy(self.model)
            units = {"units": known.take_outcomes, "filler": self.model.likelihood.filler}
        tasks = as_tasks(X, y, task, like=self.tasks, **units)
        models = []
        with undisturbed():
            for model in self.models:
                new = model.for_tasks(len(tasks), known)
                data = tasks.batch(model.turn.device, model.turn.dtype)
                solve_tasks(new, data, self.settings["inner"], self.settings["ridge"], learn=False)
                models.append(new)
        settings = {**self.settings, "tasks": len(tasks), "adapted": True}
        return replace(self, models=models, tasks=tasks, settings=settings)

    @isolated()
    def predict(
        self,
        X: TableLike | None = None,
        task: VectorLike | None = None,
        weights: Literal["auto", "mean", "mode"] = "auto",
    ) -> np.ndarray:
        """Expected targets, best restart, in the caller's units; of yes/no answers probabilities.

        Outcomes that are not normal are predicted by the posterior means of the weights, those that `summary`
        shows. Their mode, `fit.weights`, is 0 where the rows of a task say less of a weight than the prior's
        spike wants, and with few rows of much noise it has weights that are chance. A fit with normal
        outcomes is treated alike where it has the finding "mode", which says so.

        Parameters
        ----------
        X : array_like (row, ...) or DataFrame, optional
            Inputs; default those of the fit.
        task : array_like (row,) of task names, or name of a column of X
            Which of the fit's tasks each row belongs to; wanted with `X`.
        weights : {"auto", "mean", "mode"}
            "mean": posterior means of `edge_posterior`, computed the first time and saved with the fit.
            "mode": `fit.weights`. "auto": "mean" as above where there are means, else "mode".

        Returns
        -------
        ndarray (row,) or (task, sample)
            NaN at padding.

        Raises
        ------
        ValueError
            A task the fit does not know: `adapt` fits new ones. Unknown `weights`; posterior means of a
            fit that has none (scores only), or of a loaded one that was saved without them.
        """
        if weights not in ("auto", "mean", "mode"):
            raise ValueError(f"weights: want one of ['auto', 'mean', 'mode'], got {weights!r}")
        if X is None:
            z = self.transform()
            model, w, intercept = self._predicting(weights)
            predictor = intercept[:, None] + (z * w[:, None]).sum(-1)
            return self._expected(model, predictor.T, np.arange(len(predictor))).T
        if task is None:
            raise ValueError("task: got none; want the name of a task for every row of X")
        X = as_frame(X)
        if isinstance(X, pd.DataFrame):
            check_order("task", row_names(task), row_names(X))
            task, X = column(text_columns(X), task, "task")
        z, labels = self.transform(X), task_labels(task)
        names = {name: t for t, name in enumerate(self.task_names)}
        if len(labels) != len(z):
            raise ValueError(f"task: got {len(labels)} names for {len(z)} rows; want one per row")
        unknown = next((v for v in labels if v not in names), None)
        if unknown is not None:
            raise ValueError(
                f"task: the fit does not know {unknown!r}; want one of {self.task_names[:8]} (adapt() fits "
                "new ones)"
            )
        t = np.array([names[v] for v in labels], dtype=int)
        model, w, intercept = self._predicting(weights)
        return self._expected(model, intercept[t] + (z * w[t]).sum(-1), t)

    @isolated()
    @torch.no_grad()
    def _predict_all(self, X: TableLike) -> np.ndarray:
        """Expected targets of every row in every task, (row, task), as `predict` has them."""
        z = self.transform(X)
        model, w, intercept = self._predicting("auto")
        return self._expected(model, intercept + z @ w.T, np.arange(len(w)))

    def _predicting(self, by: str) -> tuple[MultiTaskRegression, np.ndarray, np.ndarray]:
        """The model that predicts, its weights in the fit's frame and its intercepts, in model units."""
        if by == "mean" and not self._has_means:
            raise ValueError(
                "weights: got 'mean', and the edges of this fit are scores, which have no posterior means; "
                "want 'mode', or a fit with inner='ssl'"
            )
        mean = by == "mean" or (by == "auto" and self._means_by_default)
        model = self._mean_model() if mean else self.model
        weights = self._framed_best(model.weights[0])
        return model, weights, model.intercept.double().cpu().numpy()

    @property
    def _means_by_default(self) -> bool:
        of_mode = any(finding.kind == "mode" for finding in self.findings)
        return (self.model.likelihood is not None or of_mode) and self._has_means

    @property
    def _has_means(self) -> bool:
        """Whether weights have posterior means, or a mode only."""
        methods = self._edge_methods("multitask")
        return self.settings["inner"] != "ridge" and methods.automatic(self, {}) != "score"

    def _mean_model(self) -> MultiTaskRegression:
        if self._at_means is None:
            with torch.enable_grad():  # expectation propagation differentiates densities
                edges = self.edge_posterior()
            self._at_means = at_mean_weights(self, edges)
        return self._at_means

    def _expected(self, model: MultiTaskRegression, predictor: np.ndarray, task: np.ndarray) -> np.ndarray:
        """Expected outcomes (..., column) of linear predictors in model units, each column of one task."""
        likelihood = model.likelihood
        if likelihood is not None:
            restricted = likelihood.of_features(torch.as_tensor(task, device=model.turn.device))
            f = torch.as_tensor(predictor).to(model.turn).reshape(1, -1, len(task))
            mean = cast("Likelihood", restricted).mean(f).double().cpu().numpy().reshape(predictor.shape)
            predictor = mean
        return self.tasks.target_centre[task] + predictor * self.tasks.target_scale[task]

    def edge_posterior(
        self,
        method: Literal["auto", "ep", "enumerate", "gibbs", "bootstrap", "score"] = "auto",
        num_draws: int = 500,
        seed: int = 0,
        **options: object,
    ) -> ArvizData:
        """Which task uses which latent, as an ArviZ object with dims (task, latent).

        Without options the answer is kept, so that asking again costs nothing.

        Parameters
        ----------
        method : {"auto", "ep", "enumerate", "gibbs", "bootstrap", "score"}
            "ep", which "auto" takes: expectation propagation, given the learned latents. "enumerate": every
            support, for few latents, with a normal slab and an eta for each task. "gibbs": a long run, to
            check the others.
            "bootstrap": modes of randomly weighted samples, for comparison. "score": p* of each
            weight, no probability.
        num_draws : int
            Draws per restart.
        seed : int
            Same seed, same draws.
        **options
            Passed to the method, or to the prior of the rows (`inference/edges/regression/rows.py`).

        Raises
        ------
        ValueError
            Unknown method, `num_draws` below 1, or a fit whose latents are known up to a linear map only.
        TypeError
            An option that the method does not have.
        """
        methods = self._edge_methods("multitask")
        name = methods.automatic(self, options) if method == "auto" else warned_name(method)
        if name not in methods.by_name:
            raise ValueError(f"method: want one of {['auto', *methods.by_name]}, got {method!r}")
        if self.settings["inner"] == "ridge":
            raise ValueError(
                "edge_posterior: inner='ridge' has no axes for edges to hold on to; fit with 'ssl'"
            )
        if not self.tasks.y.shape[1]:
            raise ValueError("the fit was loaded without its tasks: use fit.with_data(X, y, task) first")
        check_whole(1, num_draws=num_draws)
        check_whole(0, seed=seed)

        def compute(method: str, **arguments: object) -> ArvizData:
            return methods.by_name[method](self, method=method, **arguments)

        return self._kept(compute, name, num_draws, seed, options)

    def _declared_outcomes(self) -> object:
        """The likelihood before it knew these tasks, which `adapt` wants; None if it is not plain."""
        try:
            return None if self.model.likelihood is None else describe(self.model.declared[0])
        except TypeError:
            return None

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write everything but the data to one file that loads with ``weights_only=True``."""
        made = files.made(self.model)
        tasks = self.tasks
        meta = {
            "version": __version__,
            "made": made if isinstance(made, dict) else None,
            "outcomes": self._declared_outcomes(),
            "fingerprint": files.fingerprint(self.model, {}),
            "best": self.best,
            "dtype": str(self.model.turn.dtype).removeprefix("torch."),
            "task_names": tasks.task_names,
            "feature_names": tasks.feature_names,
            "agreement": self.agreement.to_dict("list"),
            "history": self.history.to_dict("list"),
            "settings": self.settings,
            "findings": write_findings(self.findings),
        }
        arrays = {n: torch.as_tensor(getattr(self, n)) for n in ARRAYS}
        arrays |= {f"alignment.{n}": torch.as_tensor(v) for n, v in self.alignment.items()}
        arrays |= {
            f"tasks.{n}": torch.as_tensor(getattr(tasks, n))
            for n in ("centre", "scale", "target_centre", "target_scale")
        }
        if tasks.weight is not None:
            arrays["tasks.weight"] = torch.as_tensor(tasks.weight)
        states = {f"restart {r}": model.state_dict() for r, model in enumerate(self.models)}
        if self._at_means is None and self._means_by_default and tasks.y.shape[1]:
            self._mean_model()  # a loaded fit has no rows to compute it from
        if self._at_means is not None:
            states[MEANS] = self._at_means.state_dict()
        files.write(path, "multi-task fit", meta, {"models": states, "arrays": arrays})


def _as_given(names: list[str], outcomes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Centre and scale of outcomes that are to stay as they are."""
    return np.zeros(len(names)), np.ones(len(names))


def _check_outcomes(model: MultiTaskRegression, tasks: Tasks) -> None:
    """Refuse outcomes, in the caller's units, that the likelihood of a fit cannot have."""
    if model.likelihood is not None:
        cells = tasks.y if tasks.mask is None else np.where(tasks.mask, tasks.y, np.nan)
        model.likelihood.check(cells.T, tasks.task_names)
