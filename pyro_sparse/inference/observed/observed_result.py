"""`ObservedFit`: which variable, at which lag, and which action drives which, with probabilities."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import pandas as pd
import torch
import xarray as xr

from ..._utils.checks import check_whole
from ..._utils.torch_state import isolated
from ..._utils.types import ArvizData, TableLike
from ..._utils.version import __version__
from ...data.action_columns import n_columns
from ...data.frame_covariates import as_designed_sequences
from ...data.frame_design import FrameDesign
from ...data.sequences import Sequences
from ...findings.finding import read_findings, write_findings
from ...models.observed_transition import ObservedTransition
from ...posterior.method_names import warned_name
from ..training import checkpoint as files
from ..training.fit_result import FitResult

__all__ = ["ObservedFit"]

_ARRAYS = (
    "by_chain",
    "draws",
    "curved",
    "strength",
    "noise_correlation",
    "explained",
    "filled",
    "sets",
    "slab",
)
_COLUMNS = ("actions", "covariates", "id", "time", "time_step")
_UNITS = ("centre", "scale", "action_centre", "action_scale")


@dataclass
class ObservedFit(FitResult):
    """Result of `pyro_sparse.fit` of an `ObservedTransition`.

    Candidates are the variables one step back, two steps back, …, and then the actions.

    Attributes
    ----------
    model : ObservedTransition
    sequences : Sequences
        What it was fitted to.
    lags : int
        Of the model, or chosen.
    by_chain : ndarray (chain, target, candidate)
        Probability of every edge from each chain; with missing cells, averaged over draws of them.
    draws : ndarray of int8 (chain, draw, target, candidate)
        Graphs from the posterior.
    curved : ndarray (target, candidate)
        Probability that an edge is there and acts otherwise than by a line.
    strength : ndarray (target, candidate)
        Standard deviation of the part of the target's mean that the candidate has a share in, in standard
        deviations of the target (less what trend, season and covariates explain of it).
    noise_correlation : ndarray (variable, variable)
        Of what the past leaves, within a step.
    explained : ndarray (variable,)
        Share of each variable's variance that its parents explain, in sample; of what trend, season and
        covariates leave of it.
    lag_evidence : DataFrame
        By lag, one more than the model may have: `largest` probability of an edge there, and
        `expected_edges`. From a look without products.
    filled : ndarray (filling, cell)
        A few draws of the missing cells of frames that were seen in part, for forecasts.
    sets : ndarray of int (filling, draw, target, term)
        Terms of draws given each of them, -1 where there are fewer.
    slab : ndarray (filling, class)
        Variances of coefficients over that of the noise, by class of terms.
    settings : dict
        JSON-able record of how the fit was made.
    findings : list of Finding
        What a reader should know before believing it; `warnings` has them as sentences.
    """

    model: ObservedTransition  # type: ignore[assignment]  # nothing trains it
    sequences: Sequences
    lags: int
    by_chain: np.ndarray
    draws: np.ndarray
    curved: np.ndarray
    strength: np.ndarray
    noise_correlation: np.ndarray
    explained: np.ndarray
    lag_evidence: pd.DataFrame
    filled: np.ndarray
    sets: np.ndarray
    slab: np.ndarray
    settings: dict[str, Any]

    def __repr__(self) -> str:
        n, a = len(self.feature_names), len(self.action_names)
        actions = f", {a} action{'s' * (a != 1)}" if a else ""
        edges = int((self.probability >= 0.5).sum())
        return (
            f"ObservedFit({n} variable{'s' * (n != 1)}{actions}, {self.lags} lag{'s' * (self.lags != 1)}, "
            f"{self.settings['steps']} steps; {edges} edge{'s' * (edges != 1)} more probable than not; "
            f"{len(self.warnings)} warning{'s' * (len(self.warnings) != 1)})"
        )

    @property
    def probability(self) -> np.ndarray:
        """Probability of every edge, (target, candidate)."""
        return np.asarray(self.by_chain.mean(0))

    @property
    def n_restarts(self) -> int:
        """Number of chains."""
        return len(self.by_chain)

    @property
    def best(self) -> int:
        """The first chain: all of them count."""
        return 0

    @property
    def alignment(self) -> dict[str, np.ndarray]:
        """Variables have one order and one sign."""
        d = len(self.feature_names)
        return {
            "permutation": np.tile(np.arange(d), (self.n_restarts, 1)),
            "sign": np.ones((self.n_restarts, d)),
        }

    @property
    def history(self) -> pd.DataFrame:
        """Empty: nothing is trained."""
        return pd.DataFrame(columns=["step", "restart"])

    @property
    def feature_names(self) -> list[str]:
        """Names of the variables."""
        return self.sequences.feature_names

    @property
    def latent_names(self) -> list[str]:
        """The same: variables are what drives each other."""
        return self.feature_names

    @property
    def action_names(self) -> list[str]:
        """Names of the actions."""
        return self.sequences.action_names

    def edge_posterior(
        self,
        method: Literal["auto", "terms", "parent_sets"] = "auto",
        num_draws: int = 500,
        seed: int = 0,
        **options: object,
    ) -> ArvizData:
        """Edges as an ArviZ object, dims (target, source) and (target, action).

        Parameters
        ----------
        method : {"auto", "terms", "parent_sets"}
            "terms", which "auto" takes: the posterior of the fit. "parent_sets": Gaussian processes on sets
            of parents, as for a `LatentTransition`; slower, and of at most 200 steps by default.
        num_draws : int
            Of each chain.
        seed : int
            Same seed, same draws.
        **options
            Of "parent_sets": see `pyro_sparse.inference.edges.parents.parents.parent_posterior`.

        Returns
        -------
        arviz.InferenceData or xarray.DataTree
            Group `edge_posterior` with `probability_time` (target, source), with several lags (lag, target,
            source), and then `probability_any_lag` (target, source); `probability_action` (target, action);
            for each also `q_value`, `gap` (between chains), `strength`, `curved`.

        Raises
        ------
        ValueError
            Unknown method, or `num_draws` below 1.
        TypeError
            An option that the method does not have.
        """
        methods = self._edge_methods("observed")
        name = methods.automatic(self, options) if method == "auto" else warned_name(method)
        if name not in methods.by_name:
            raise ValueError(f"method: want one of {['auto', *methods.by_name]}, got {method!r}")
        check_whole(1, num_draws=num_draws)
        check_whole(0, seed=seed)

        def compute(method: str, **arguments: object) -> ArvizData:
            return methods.by_name[method](self, **arguments)

        return self._kept(compute, name, num_draws, seed, options)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write everything but the data to one file that loads with ``weights_only=True``.

        The posterior is in it: only forecasts and ``method="parent_sets"`` want the data again (`with_data`).
        """
        made = files.made(self.model)
        sequences, step = self.sequences, self.sequences.step
        arrays = {name: torch.as_tensor(getattr(self, name)) for name in _ARRAYS}
        arrays |= {f"sequences.{name}": torch.as_tensor(getattr(sequences, name)) for name in _UNITS}
        meta = {
            "version": __version__,
            "made": made if isinstance(made, dict) else None,
            "lags": self.lags,
            "sequences": {
                "feature_names": sequences.feature_names,
                "action_names": sequences.action_names,
                "sequence_names": [],
                "action_levels": {k: [_plain(v) for v in vs] for k, vs in sequences.action_levels.items()},
                "level_order": sequences.level_order,
                "roles": sequences.roles,
                "design": None if sequences.design is None else sequences.design.as_dict(),
                "step": _plain(step) if isinstance(step, int | float | np.number | None) else str(step),
            },
            "lag_evidence": {"lag": self.lag_evidence.index.tolist(), **self.lag_evidence.to_dict("list")},
            "settings": self.settings,
            "findings": write_findings(self.findings),
        }
        files.write(path, "observed fit", meta, {"arrays": arrays})

    def with_data(self, X: TableLike, **columns: Any) -> ObservedFit:
        """The same fit with its sequences, which a loaded one has not.

        Parameters
        ----------
        X : sequences
            As in `fit`.
        **columns
            `actions`, `covariates`, `id`, `time`, `time_step` as in `fit`.

        Raises
        ------
        ValueError, TypeError
            As `fit`.
        """
        return replace(self, sequences=self._read(X, columns))

    @isolated()
    def forecast(
        self,
        steps: int,
        X: TableLike | None = None,
        *,
        future_actions: TableLike | None = None,
        future_covariates: Any = None,
        num_draws: int = 200,
        seed: int = 0,
        **columns: Any,
    ) -> xr.DataArray:
        """Draws of the frames that follow each sequence, in the caller's units.

        Parameters
        ----------
        steps : int
            Frames ahead, at least 1.
        X : sequences, optional
            As in `fit`; default the sequences of the fit. Without time stamps its first frame is taken to be
            at the place of the fit's first, by which trend and season go.
        future_actions : array_like (sequence, step, action) or DataFrame, optional
            ``future_actions[:, h]`` leads to step h + 1; wanted if the fit has actions, and in its units.
        future_covariates : DataFrame, Series, mapping or array (sequence and step, covariate), optional
            Those of each step, one sequence after the other; wanted if the fit has covariates. A DataFrame
            with the fit's id and time columns may have its rows in any order. Trend and season are known.
        num_draws : int
            Each draws a set of terms, effects, noise, and missing cells of the last frames.
        seed : int
            Same seed, same draws.
        **columns
            `actions`, `covariates`, `id`, `time`, `time_step` of X as in `fit`.

        Returns
        -------
        DataArray (draw, sequence, step, feature)
            ``.mean("draw")`` is the forecast, ``.quantile([0.05, 0.95], "draw")`` an interval for a cell.

        Raises
        ------
        ValueError, TypeError
            As `fit`; actions or covariates to come that are missing or not the fit's, a sequence shorter than
            the lags, or a fit that was loaded and has no sequences (`with_data`).
        """
        from .forecast import forecast

        sequences = self.sequences if X is None else self._read(X, columns)
        return forecast(self, sequences, steps, future_actions, future_covariates, num_draws, seed)

    @isolated()
    def forecast_scores(
        self,
        steps: int,
        X: TableLike | None = None,
        *,
        origins: int = 5,
        interval: float = 0.9,
        num_draws: int = 200,
        seed: int = 0,
        **columns: Any,
    ) -> pd.DataFrame:
        """How good forecasts are of frames that are known, each forecast from those before it.

        Every sequence is cut at its last `origins` places that leave `steps` frames. Actions and covariates
        after the cut are taken as known. Give sequences, or later frames, that the fit has not seen: of its
        own the scores flatter.

        Parameters
        ----------
        steps : int
        X : sequences, optional
            As in `fit`; default the sequences of the fit.
        origins : int
            Cuts of each sequence; shorter ones have as many as they can.
        interval : float
            Probability of the central interval whose coverage is reported.
        num_draws, seed : int
            As in `forecast`.
        **columns
            `actions`, `covariates`, `id`, `time`, `time_step` of X as in `fit`.

        Returns
        -------
        DataFrame
            One row for each `step` and `feature`: `coverage`, `crps`, `crps_persistence` and `n`, as of
            `TransitionFit.forecast_scores`.

        Raises
        ------
        ValueError, TypeError
            As `forecast`; no sequence with `steps` frames after the lags; a probability outside (0, 1).
        """
        from ..training.forecast_scores import forecast_scores
        from .forecast import check_own_sequences, drawn_ahead

        check_own_sequences(self)

        def draw_ahead(
            past: Sequences, actions: Any, covariates: Any, steps: int, draws: int, seed: int
        ) -> np.ndarray:
            return drawn_ahead(self, past, actions, covariates, steps, draws, seed)

        sequences = self.sequences if X is None else self._read(X, columns)
        return forecast_scores(
            self.sequences, draw_ahead, self.lags, sequences, steps, origins, interval, num_draws, seed
        )

    def _read(self, X: TableLike, columns: dict[str, Any]) -> Sequences:
        """New sequences in the fit's units."""
        unknown = [name for name in columns if name not in _COLUMNS]
        if unknown:
            raise TypeError(
                f"got an unexpected argument {unknown[0]!r}; what says how to read X is one of "
                f"{', '.join(_COLUMNS)}"
            )
        return as_designed_sequences(X, like=self.sequences, lag=1, **columns)


def restore(meta: dict[str, Any], arrays: dict[str, np.ndarray], model: ObservedTransition) -> ObservedFit:
    """A fit from what `ObservedFit.save` wrote.

    Parameters
    ----------
    meta : dict
    arrays : dict of str to ndarray
    model : ObservedTransition

    Raises
    ------
    ValueError
        Arrays are of other sizes than names and lags say.
    """
    fields: dict[str, Any] = dict(meta["sequences"])
    if fields["design"] is not None:
        fields["design"] = FrameDesign.of_dict(fields["design"])
    if isinstance(fields["step"], str):
        fields["step"] = pd.Timedelta(fields["step"])
    fields |= {name: arrays[f"sequences.{name}"] for name in _UNITS}
    d, n_actions = len(fields["feature_names"]), len(fields["action_names"])
    width = sum(n_columns(fields["action_names"], fields["action_levels"]))
    edges = (d, meta["lags"] * d + n_actions)
    wanted = {
        "curved": edges, "strength": edges, "noise_correlation": (d, d), "explained": (d,),
        "by_chain": (len(arrays["by_chain"]), *edges), "draws": (*arrays["draws"].shape[:2], *edges),
        "sequences.centre": (d,), "sequences.scale": (d,), "sequences.action_centre": (width,),
        "sequences.action_scale": (width,), "filled": (len(arrays["slab"]), arrays["filled"].shape[1]),
        "sets": (len(arrays["slab"]), arrays["sets"].shape[1], d, arrays["sets"].shape[3]),
    }  # fmt: skip
    for name, shape in wanted.items():
        if arrays[name].shape != shape:
            raise ValueError(f"{name} has shape {arrays[name].shape}, wanted {shape}")
    sequences = Sequences(
        x=np.zeros((0, 1, d)),
        mask=None,
        present=None,
        linked=None,
        actions=np.zeros((0, 1, width)) if n_actions else None,
        **fields,
    )
    return ObservedFit(
        model=model,
        sequences=sequences,
        lags=meta["lags"],
        **{name: arrays[name] for name in _ARRAYS},
        lag_evidence=pd.DataFrame(meta["lag_evidence"]).set_index("lag"),
        settings=meta["settings"],
        findings=read_findings(meta["findings"]),
    )


def _plain(value: object) -> object:
    """A number or text that JSON can hold."""
    return value.item() if isinstance(value, np.generic) else value
