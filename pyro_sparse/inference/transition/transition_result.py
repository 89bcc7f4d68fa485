"""`TransitionFit`: what a fit of sequences found; all restarts in the frame of the best one.

Latents have unit variance; their order and signs are those of the best restart, to which the others are
aligned. A graph is read from the widest gap in the strengths of the edges; `gap` says how wide it is and
`agreement` whether another restart found the same, which is what to look at before believing an edge.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypedDict, Unpack

import numpy as np
import pandas as pd
import torch
import xarray as xr

from ..._utils.checks import check_whole
from ..._utils.display import AgreementTable
from ..._utils.torch_state import first_rows, isolated, undisturbed
from ..._utils.types import ArvizData, TableLike
from ..._utils.version import __version__
from ...data.action_columns import n_columns
from ...data.sequences import SequenceBatch, Sequences, as_sequences
from ...findings.finding import Finding, read_findings, write_findings
from ...graphs.identifiability import consistency
from ...metrics.consistency import r_con
from ...models.latent_transition import LatentTransition
from ...posterior.method_names import warned_name
from ..training import checkpoint as files
from ..training._repr import in_short
from ..training.fit_result import FitResult
from ..training.restarts import align_latents, in_frame
from .restart_graphs import by_parent, differing_edges, edges_near_break, framed
from .transition_axes import FoundAxes, latents
from .transition_checks import axis_checks, axis_findings, graph_findings, restart_findings
from .transition_notes import fell

__all__ = ["TransitionFit"]

_ARRAYS = (
    "strength_time",
    "strength_action",
    "graph_time",
    "graph_action",
    "relaxed_time",
    "relaxed_action",
    "gap",
    "elbo",
    "heldout_elbo",
)
_COLUMNS = ("actions", "id", "time", "time_step")
_UNITS = ("centre", "scale", "action_centre", "action_scale")


class SequenceColumns(TypedDict, total=False):
    """What says how to read sequences, as in `pyro_sparse.fit`.

    Attributes
    ----------
    actions : array_like, or names of columns
    id, time : label of a column
    time_step : number or time difference
    """

    actions: TableLike | Sequence[Hashable] | None
    id: Hashable | None
    time: Hashable | None
    time_step: float | str | np.timedelta64 | pd.Timedelta | None


@dataclass
class TransitionFit(FitResult):
    """Result of `pyro_sparse.fit` on sequences.

    Attributes
    ----------
    model : LatentTransition
        Trained, with all restarts along its parameters' leading dimension (in the order they were trained).
    sequences : Sequences
        What it was fitted to.
    best : int
        Number of the chosen restart.
    strength_time : ndarray (restart, lag, target, source) or None
        Root mean square derivative of the next latent's mean by a past latent.
    strength_action : ndarray (restart, target, action) or None
        The same by an action, actions in standard deviations; of a categorical action the length of the
        derivatives by its contrasts.
    graph_time, graph_action : ndarray of int or None
        1 where the strength lies above the gap; shapes as above.
    relaxed_time, relaxed_action : ndarray or None
        Relaxed Bernoulli edges of the gated program, in [0, 1]: a score, not a probability.
    gap : ndarray (restart,)
        Log ratio of the weakest edge to the strongest zero; below 0.7 edges near the break are in doubt.
    agreement : DataFrame
        One row per restart: `similarity` (mean absolute correlation of its latents with the best restart's),
        `recovered` (how well the best restart's latents follow from those of this one that its graph lets
        them be mixed with: R_con, 1 where the restarts differ in nothing that is identified),
        `edges_differing` from the best restart's graph, `gap`, `found` (share of the search's starts that
        ended at its optimum), `influence` (share of the directions which sufficient influence asks for that
        its Jacobian spans: below one half the dynamics are nearly linear, and many axes as sparse),
        `beyond_linear` (standard errors by which its transition predicts the held-out sequences better than
        a linear one: below 2 nothing shows that the Jacobian varies, and influence is that of its mean; NaN
        without such sequences), `elbo`, `behind` (by how many standard errors it is below the best's).
    elbo, heldout_elbo : ndarray (restart,)
        Nats per sequence.
    history : DataFrame
        step, restart, elbo, heldout_elbo, edges, stage: "dense", "undone" (dense steps that were given up for
        an earlier state, better on the held-out sequences), "edges".
    alignment : dict
        "permutation" (restart, latent), "sign" (restart, latent).
    settings : dict
        JSON-able record of how the fit was made.
    findings : list of Finding
        What a reader should know before believing it; `warnings` has them as sentences.
    """

    model: LatentTransition
    sequences: Sequences
    best: int
    strength_time: np.ndarray | None
    strength_action: np.ndarray | None
    graph_time: np.ndarray | None
    graph_action: np.ndarray | None
    relaxed_time: np.ndarray | None
    relaxed_action: np.ndarray | None
    gap: np.ndarray
    agreement: pd.DataFrame
    elbo: np.ndarray
    heldout_elbo: np.ndarray
    history: pd.DataFrame
    alignment: dict[str, np.ndarray]
    settings: dict[str, Any]

    def __repr__(self) -> str:
        sizes = {"features": len(self.feature_names), "latents": self.model.n_latents}
        figures = {"held-out ELBO": self.heldout_elbo, "ELBO": self.elbo}
        return in_short(self, {"sequences": self.settings["sequences"], **sizes}, figures)

    @property
    def n_restarts(self) -> int:
        """Number of restarts."""
        return len(self.gap)

    @property
    def latent_names(self) -> list[str]:
        """ "latent 1", "latent 2", …"""
        return [f"latent {k + 1}" for k in range(self.model.n_latents)]

    @property
    def action_names(self) -> list[str]:
        """Names of the actions, a categorical one by its column."""
        return self.sequences.action_names

    @property
    def action_levels(self) -> dict[str, list]:
        """Levels of each categorical action."""
        return self.sequences.action_levels

    @property
    def feature_names(self) -> list[str]:
        """Names of the features."""
        return self.sequences.feature_names

    @classmethod
    def build(
        cls,
        model: LatentTransition,
        sequences: Sequences,
        *,
        data: SequenceBatch,
        answers: list[FoundAxes],
        rows: np.ndarray,
        heldout: bool,
        least: float,
        history: pd.DataFrame,
        settings: dict[str, Any],
        findings: list[Finding],
    ) -> TransitionFit:
        """Choose a restart and bring the others into its frame; a fall of the ELBO counts from `least` on."""
        gap = np.array([a.gap for a in answers])
        best = _best(rows, gap)
        behind, error = _behind(rows, best)
        few = first_rows(data, 2000)
        frames = latents(model, few).double().cpu().numpy()
        present = np.ones(frames.shape[1:3], bool) if few.present is None else few.present.cpu().numpy()
        permutation, sign, similarity = align_latents(frames[:, present], best)
        d, lags = model.n_latents, model.lags
        graphs = framed(model, np.stack([a.graph for a in answers]), permutation)
        differing = sum(
            (np.abs(g - g[best]).reshape(len(g), -1).sum(1) for g in graphs if g is not None),
            np.zeros(len(answers), int),
        )
        shares = np.array([a.found for a in answers])
        elbo = rows.mean(1)
        allowed = consistency(
            None if graphs[1] is None else graphs[1][best],
            None if graphs[0] is None else graphs[0][best].max(0),
        )
        recovered = _recovered(frames[:, present], permutation, best, allowed)
        agreement = AgreementTable(
            {
                "similarity": similarity.mean(1),
                "recovered": recovered,
                "edges_differing": differing,
                "gap": gap,
                "found": shares,
                "influence": [a.influence for a in answers],
                "beyond_linear": [a.beyond_linear for a in answers],
                "elbo": elbo,
                "behind": behind / np.maximum(error, 1e-12),
            },
            index=pd.RangeIndex(len(answers), name="restart"),
        )
        strengths = framed(model, np.stack([a.strength for a in answers]), permutation)
        names = [[f"latent {k + 1}" for k in range(d)], sequences.action_names]
        checks = axis_checks(
            model, data, best, permutation[best], by_parent(graphs, best), answers[best].beyond_linear
        )
        framed_latents = [z[:, turn] for z, turn in zip(frames[:, present], permutation, strict=True)]
        doubts = [
            *graph_findings(agreement, best, checks, edges_near_break(model, strengths, graphs, best, names)),
            *axis_findings(checks, names[0], lags),
            *restart_findings(
                np.stack(framed_latents),
                best,
                allowed,
                [differing_edges(graphs, r, best, names) for r in range(len(answers))],
                names[0],
            ),
        ]
        relaxed = framed(model, model.edge_probability.detach().double().cpu().numpy(), permutation)
        return cls(
            model=model,
            sequences=sequences,
            best=best,
            strength_time=strengths[0],
            strength_action=strengths[1],
            graph_time=graphs[0],
            graph_action=graphs[1],
            relaxed_time=relaxed[0],
            relaxed_action=relaxed[1],
            gap=gap,
            agreement=agreement,
            elbo=np.full(len(answers), np.nan) if heldout else elbo,
            heldout_elbo=elbo if heldout else np.full(len(answers), np.nan),
            history=history,
            alignment={"permutation": permutation, "sign": sign},
            settings={**settings, "version": __version__},
            findings=[*findings, *fell(history, best, elbo[best], least), *doubts],
        )

    @isolated()
    def transform(
        self, X: TableLike | None = None, **columns: Unpack[SequenceColumns]
    ) -> np.ndarray | pd.DataFrame:
        """Latents of every frame, (sequence, time, latent), NaN at padding: posterior means, best restart.

        Of a new DataFrame with `id` they are a DataFrame (frame, latent) whose index holds id and time (or
        the frame's number), sorted. Sequences of the fit stand in the order of `sequences.sequence_names`.

        Parameters
        ----------
        X : sequences, optional
            As in `fit`; default the sequences of the fit. A fit to sequences without missing cells reads
            those of new ones as the features' means, and warns.
        **columns
            `actions`, `id`, `time` as in `fit`; of a DataFrame by default the columns that the fit was given.

        Raises
        ------
        ValueError, TypeError
            As `fit`; also if `X` is left out and the fit was loaded, without its sequences.
        """
        sequences = self._these_or_new(X, columns)
        like = self.model.axes
        with undisturbed():
            z = (
                latents(self.model, sequences.batch(like.device, like.dtype))[self.best]
                .double()
                .cpu()
                .numpy()
            )
        z = in_frame(self, z)
        if sequences.present is not None:
            z[~sequences.present] = np.nan
        return z if X is None else sequences.framed(z, self.latent_names)

    @isolated()
    def forecast(
        self,
        steps: int,
        X: TableLike | None = None,
        *,
        future_actions: TableLike | None = None,
        num_draws: int = 200,
        seed: int = 0,
        **columns: Unpack[SequenceColumns],
    ) -> xr.DataArray:
        """Draws of the frames that follow each sequence, in the caller's units: best restart, gated program.

        Parameters
        ----------
        steps : int
            Frames ahead, at least 1.
        X : sequences, optional
            As in `fit`; default the sequences of the fit.
        future_actions : array_like (sequence, step, action) or DataFrame, optional
            ``future_actions[:, h]`` leads to step h + 1; wanted if the fit has actions, and in its units. A
            DataFrame has a row for every sequence and step, under the fit's id and action columns; rows are
            sorted by the fit's time column, if it has that.
        num_draws : int
            Each draws latents of the last frames, graph, noise of the transition and noise of the cells.
        seed : int
            Same seed, same draws.
        **columns
            `actions`, `id`, `time` of X as in `transform`.

        Returns
        -------
        DataArray (draw, sequence, step, feature)
            ``.mean("draw")`` is the forecast, ``.quantile([0.05, 0.95], "draw")`` an interval for a cell.

        Raises
        ------
        ValueError, TypeError
            As `transform`; actions to come that are missing or not the fit's, or a sequence shorter than the
            lags.
        """
        from .forecast import forecast

        return forecast(self, self._these_or_new(X, columns), steps, future_actions, num_draws, seed)

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
        **columns: Unpack[SequenceColumns],
    ) -> pd.DataFrame:
        """How good forecasts are of frames that are known, each forecast from those before it.

        Every sequence is cut at its last `origins` places that leave `steps` frames; the frames after the cut
        are forecast as `forecast` does. Give sequences, or later frames, that the fit has not seen: of its
        own the scores flatter.

        Parameters
        ----------
        steps : int
            Frames ahead, at least 1.
        X : sequences, optional
            As in `fit`; default the sequences of the fit.
        origins : int
            Cuts of each sequence; shorter ones have as many as they can.
        interval : float
            Probability of the central interval whose coverage is reported.
        num_draws, seed : int
            As in `forecast`.
        **columns
            `actions`, `id`, `time` of X as in `transform`.

        Returns
        -------
        DataFrame
            One row for each `step` and `feature`: `coverage`, the share of cells inside the interval; `crps`,
            the mean score of `ps.metrics.crps` in the feature's units; `crps_persistence`, that of the last
            frame plus changes drawn from those of the fit's sequences (NaN of a fit that was loaded without
            them, or where none has so many steps); `n`, cells scored. Cells that are missing, and frames
            beyond a gap, are not scored.

        Raises
        ------
        ValueError, TypeError
            As `transform`; no sequence with `steps` frames after the lags; a probability outside (0, 1).
        """
        from ..training.forecast_scores import forecast_scores
        from .forecast import drawn_ahead, gated_program

        sequences, model = self._these_or_new(X, columns), gated_program(self)

        def draw_ahead(
            past: Sequences, actions: np.ndarray | None, covariates: object, steps: int, draws: int, seed: int
        ) -> np.ndarray:
            return drawn_ahead(model, past, actions, steps, draws, seed)

        return forecast_scores(
            self.sequences, draw_ahead, model.lags, sequences, steps, origins, interval, num_draws, seed
        )

    def edge_posterior(
        self,
        method: Literal["auto", "parent_sets", "gate_probability"] = "auto",
        num_draws: int = 500,
        seed: int = 0,
        **options: object,
    ) -> ArvizData:
        """Edges as an ArviZ object, dims (target, source) and (target, action).

        Without options the answer is kept, so that asking again costs nothing.

        Parameters
        ----------
        method : {"auto", "parent_sets", "gate_probability"}
            "parent_sets", which "auto" takes: evidence of parent sets over the learned latents.
            "gate_probability": the gated program's relaxed edges, a score, which "auto" takes of a model with
            another transition.
        num_draws : int
            Draws per restart.
        seed : int
            Same seed, same draws.
        **options
            Passed to the method (`inference/edges/parents/transitions.py`).

        Raises
        ------
        ValueError
            Unknown method, or `num_draws` below 1.
        TypeError
            An option that the method does not have.
        """
        methods = self._edge_methods("transition")
        name = methods.automatic(self, options) if method == "auto" else warned_name(method)
        if name not in methods.by_name:
            raise ValueError(f"method: want one of {['auto', *methods.by_name]}, got {method!r}")
        if not len(self.sequences):
            raise ValueError("the fit was loaded without its sequences: use fit.with_data(X, ...) first")
        check_whole(1, num_draws=num_draws)
        check_whole(0, seed=seed)

        def compute(method: str, **arguments: object) -> ArvizData:
            return methods.by_name[method](self, **arguments)

        return self._kept(compute, name, num_draws, seed, options)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write everything but the data to one file that loads with ``weights_only=True``."""
        arrays = {n: torch.as_tensor(v) for n in _ARRAYS if (v := getattr(self, n)) is not None}
        arrays |= {f"alignment.{n}": torch.as_tensor(v) for n, v in self.alignment.items()}
        arrays |= {f"sequences.{n}": torch.as_tensor(getattr(self.sequences, n)) for n in _UNITS}
        sequences, step = self.sequences, self.sequences.step
        made = files.made(self.model)
        meta = {
            "version": __version__,
            "made": made if isinstance(made, dict) else None,
            "fingerprint": files.fingerprint(self.model, {}),
            "best": self.best,
            "n_restarts": self.model.n_restarts,
            "n_samples": self.model.n_samples,
            "missing": self.model.missing,
            "dtype": str(self.model.axes.dtype).removeprefix("torch."),
            "feature_names": sequences.feature_names,
            "sequences": {
                "feature_names": sequences.feature_names,
                "action_names": sequences.action_names,
                "sequence_names": [],
                "action_levels": {k: [_plain(v) for v in vs] for k, vs in sequences.action_levels.items()},
                "level_order": sequences.level_order,
                "roles": sequences.roles,
                "step": _plain(step) if isinstance(step, int | float | np.number | None) else str(step),
            },
            "agreement": self.agreement.to_dict("list"),
            "history": self.history.to_dict("list"),
            "settings": self.settings,
            "findings": write_findings(self.findings),
        }
        files.write(path, "transition fit", meta, {"model": self.model.state_dict(), "arrays": arrays})

    def with_data(self, X: TableLike, **columns: Unpack[SequenceColumns]) -> TransitionFit:
        """The same fit with sequences to ask: a loaded fit has none, and `edge_posterior` needs them.

        Parameters
        ----------
        X : sequences
            As in `fit`; the features and actions of the fit.
        **columns
            `actions`, `id`, `time`, `time_step` as in `transform`.

        Returns
        -------
        TransitionFit
            With the sequences of the fit its `edge_posterior`, `transform`, … are those of the fit before it
            was saved.

        Raises
        ------
        ValueError, TypeError
            As `fit`.
        """
        return replace(self, sequences=self._read(X, columns))

    def _these_or_new(self, X: TableLike | None, columns: SequenceColumns) -> Sequences:
        """The fit's sequences, or new ones."""
        if X is None and not len(self.sequences):
            raise ValueError("X: a loaded fit has no sequences of its own; give some")
        return self.sequences if X is None else self._read(X, columns)

    def _read(self, X: TableLike, columns: SequenceColumns) -> Sequences:
        """New sequences in the fit's units."""
        unknown = [name for name in columns if name not in _COLUMNS]
        if unknown:
            raise TypeError(
                f"got an unexpected argument {unknown[0]!r}; what says how to read X is one of "
                f"{', '.join(_COLUMNS)}"
            )
        fit_arguments: dict[str, Any] = {
            "like": self.sequences,
            "lag": self.model.lags,
            "likelihood": self.model.likelihood,
        }
        new = as_sequences(X, **fit_arguments, **columns)
        if new.missing and not self.model.missing:
            warnings.warn(
                "X: has missing cells, and the fit's sequences had none, so that its encoder reads each as "
                "the feature's mean; fill them in, or fit to sequences with missing cells too",
                RuntimeWarning,
                stacklevel=3,
            )
        return new


def take_actions(model: LatentTransition, sequences: dict[str, Any]) -> None:
    """Be a model of the actions of a saved fit.

    Parameters
    ----------
    model : LatentTransition
    sequences : dict
        What a file holds of the fit's sequences.

    Raises
    ------
    ValueError
        The file is of a version that made an action of each level.
    """
    names, levels = sequences["action_names"], sequences["action_levels"]
    if not set(levels) <= set(names):
        raise ValueError(
            f"action_names has {names}, an action for each level of {list(levels)}: the file was written by "
            "an earlier version of pyro_sparse; fit again"
        )
    model.take_actions(names, n_columns(names, levels))


def restore(model: LatentTransition, meta: dict[str, Any], arrays: dict[str, np.ndarray]) -> TransitionFit:
    """A fit from what `TransitionFit.save` wrote.

    Parameters
    ----------
    model : LatentTransition
        Its parameters loaded.
    meta : dict
    arrays : dict of str to ndarray
    """
    model.dense = False
    fields: dict[str, Any] = dict(meta["sequences"])
    if isinstance(fields["step"], str):
        fields["step"] = pd.Timedelta(fields["step"])
    fields |= {name: arrays[f"sequences.{name}"] for name in _UNITS}
    width = sum(model.action_widths)
    sequences = Sequences(
        x=np.zeros((0, 1, model.n_features)),
        mask=None,
        present=None,
        linked=None,
        actions=np.zeros((0, 1, width)) if width else None,
        **fields,
    )
    return TransitionFit(
        model=model,
        sequences=sequences,
        best=meta["best"],
        **{name: arrays.get(name) for name in _ARRAYS},  # type: ignore[arg-type]
        agreement=AgreementTable(meta["agreement"]).rename_axis("restart"),
        history=pd.DataFrame(meta["history"]),
        alignment={name: arrays[f"alignment.{name}"] for name in ("permutation", "sign")},
        settings=meta["settings"],
        findings=read_findings(meta["findings"]),
    )


def _best(rows: np.ndarray, gap: np.ndarray) -> int:
    """Of the restarts that the sequences cannot tell from the best one, that with the clearest graph."""
    mean = rows.mean(1)
    top = int(mean.argmax())
    behind, error = _behind(rows, top)
    alike = [r for r in range(len(rows)) if r == top or behind[r] <= error[r]]
    return max(alike, key=lambda r: (gap[r], mean[r]))


def _behind(rows: np.ndarray, restart: int) -> tuple[np.ndarray, np.ndarray]:
    """By how much restarts' mean ELBO is below that of one of them, and the standard error of that."""
    below = rows[restart] - rows
    n = rows.shape[1]
    return below.mean(1), (below.std(1, ddof=1) / np.sqrt(n) if n > 1 else np.zeros(len(rows)))


def _recovered(frames: np.ndarray, permutation: np.ndarray, best: int, allowed: np.ndarray) -> list[float]:
    """R_con of the best restart's latents on each restart's, mixing allowed as its graph allows it."""
    reference = frames[best][:, permutation[best]]
    return [
        r_con(reference, z[:, turn], allowed, permutation=np.arange(reference.shape[1]))
        for z, turn in zip(frames, permutation, strict=True)
    ]


def _plain(value: object) -> object:
    """A number or text that JSON can hold."""
    return value.item() if isinstance(value, np.generic) else value
