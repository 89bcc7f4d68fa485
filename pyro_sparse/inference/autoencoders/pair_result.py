"""`AutoencoderFit`: dictionaries before and after a layer, of several restarts, and their graphs."""

from __future__ import annotations

import copy
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn

from ..._utils.checks import check_whole
from ..._utils.torch_state import isolated
from ..._utils.version import __version__
from ...data.activations import Activations
from ...findings.finding import Finding, read_findings, write_findings
from ...models.autoencoder_pair import AutoencoderPair
from ...posterior.rival_restarts import only_restart
from ...posterior.same_fit import fit_mark
from ..training import checkpoint as files
from ..training._repr import in_short
from ..training.fit_result import FitResult

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from ..._utils.types import ArvizData
    from ...nets.sparse_autoencoder import SparseAutoencoder
    from ..edges.dictionaries import LatentGraph
    from ..edges.dictionaries.latent_graph import Effect

__all__ = ["AutoencoderFit", "layer_digest", "restore"]

_GRAPH_ROWS = 12_000  # held-out rows from which graphs are taken where the caller names none
_MANY_DEAD = 0.1  # share of latents without use from which the reader is told


@dataclass
class AutoencoderFit(FitResult):
    """Result of `pyro_sparse.fit` of an `AutoencoderPair`.

    Attributes
    ----------
    model : AutoencoderPair
    pairs : list of (SparseAutoencoder, SparseAutoencoder)
        Of each restart, before and after the layer; they take activations as they were given.
    best : int
        Number of the restart that leaves the least of held-out rows unexplained, both sides together.
    metrics : DataFrame
        One row a restart, on held-out rows: fvu (fraction of variance unexplained), l0 (active latents of a
        row), dead (share of latents that no row has), rare (that fewer than one in 10,000 has), cosine (mean
        greatest cosine of a living latent with one of another restart), shared (share of living latents that
        another restart has, with a cosine above .8), each _in and _out; and of the slopes between a row's
        active latents mean_abs_slope, l1_over_l2 (mean over root mean square, 1 where all are equal) and
        entries_90 (share of entries that make up 90 % of the sum).
    history : DataFrame
        step, restart, fvu_in, fvu_out (running losses), penalty, dead_in, dead_out (numbers of latents).
    settings : dict
    held : Activations or None
        Rows that figures were taken from; None after `load`, since a file does not hold them.
    """

    model: AutoencoderPair  # type: ignore[assignment]  # no program: nothing of it is trained
    pairs: list[tuple[SparseAutoencoder, SparseAutoencoder]]
    best: int
    metrics: pd.DataFrame
    history: pd.DataFrame
    settings: dict[str, Any]
    held: Activations | None = None

    def __repr__(self) -> str:
        sizes = {"rows": self.settings["rows"]}
        return in_short(self, sizes, {"unexplained in": self.metrics["fvu_in"].to_numpy()})

    @classmethod
    def build(
        cls,
        model: AutoencoderPair,
        pairs: list[tuple[SparseAutoencoder, SparseAutoencoder]],
        judged: Activations,
        *,
        history: pd.DataFrame,
        settings: dict[str, Any],
        findings: list[Finding],
        device: str,
    ) -> AutoencoderFit:
        """Measure every restart."""
        from .measures import agreement, figures_of  # late, since it reads the room of edges

        measured = [figures_of(*pair, model.between, judged, device) for pair in pairs]
        metrics = pd.DataFrame([figures for figures, _ in measured]).rename_axis("restart")
        for side, name in enumerate(("in", "out")):
            directions = [pair[side].dec.cpu().float().numpy() for pair in pairs]
            living = [living[side] for _, living in measured]
            metrics[f"cosine_{name}"], metrics[f"shared_{name}"] = agreement(directions, living)
        level = (metrics["fvu_in"] + metrics["fvu_out"]).fillna(np.inf)
        findings = [*findings, *only_restart(len(pairs)), *_dead_findings(metrics)]
        return cls(
            model=model, pairs=pairs, best=int(level.argmin()), metrics=metrics, history=history,
            settings=settings, held=judged, findings=findings,
        )  # fmt: skip

    @property
    def n_restarts(self) -> int:
        """Number of restarts."""
        return len(self.pairs)

    @property
    def alignment(self) -> dict[str, np.ndarray]:
        """Nothing: latents of restarts are matched when their graphs are put together."""
        return {}

    # ---- the graph -----------------------------------------------------------------------------------------
    def latent_graphs(
        self,
        X: ArrayLike | Tensor | None = None,
        Y: ArrayLike | Tensor | None = None,
        effect: Effect = "slope",
    ) -> list[LatentGraph]:
        """The graph between the dictionaries of each restart, as `pyro_sparse.latent_graph` measures it.

        Parameters
        ----------
        X, Y : array_like or Tensor (row, d), optional
            Activations before and after the layer. Default: held-out rows of the fit, at most 12,000.
        effect : {"slope", "ablation"}

        Raises
        ------
        ValueError
            The fit came from a file, and no rows were given; else as `latent_graph`.
        """
        from ..edges.dictionaries import latent_graph  # late, since that room reads results

        if X is None:
            if self.held is None:
                raise ValueError(
                    "X: a fit that was loaded holds no activations; give some, before and after the layer"
                )
            if Y is not None:
                raise ValueError("X: got Y without it; give both, or neither")
            held = self.held.some(slice(0, _GRAPH_ROWS))
            X, Y = held.before, held.after
        with isolated():
            return [latent_graph(*pair, self.model.between, X, Y, effect=effect) for pair in self.pairs]

    def edge_posterior(
        self, method: Literal["auto"] = "auto", num_draws: int = 500, seed: int = 0, **options: Any
    ) -> ArvizData:
        """Probability that another refit shows an edge, over the restarts; see `pyro_sparse.edge_posterior`.

        Parameters
        ----------
        method : {"auto"}
            There is one.
        num_draws : int
            Of the graph, in each of four chains.
        seed : int
        **options
            X, Y, effect, as for `latent_graphs`; cosine, least_fires, as for `pyro_sparse.edge_posterior`.

        Raises
        ------
        ValueError, TypeError
            An unknown method or option; as `latent_graphs`.
        """
        if method != "auto":
            raise ValueError(f"method: got {method!r}, wanted 'auto': the graph is one over refits")
        check_whole(1, num_draws=num_draws)
        check_whole(0, seed=seed)
        known = ("X", "Y", "effect", "cosine", "least_fires")
        if unknown := sorted(set(options) - set(known)):
            raise TypeError(f"edge_posterior: unknown option {unknown[0]!r}; wanted some of {list(known)}")

        def compute(method: str, num_draws: int, seed: int, **options: Any) -> ArvizData:
            of_graphs = {name: options.pop(name) for name in ("X", "Y", "effect") if name in options}
            from ..edges.dictionaries import edge_posterior

            graphs = self.latent_graphs(**of_graphs)
            idata = edge_posterior(graphs, num_draws=num_draws, seed=seed, **options)
            idata.attrs["fit_mark"] = fit_mark(self)
            return idata

        return self._kept(compute, method, num_draws, seed, options)

    def report(self, path: str | os.PathLike[str], **options: Any) -> Path:
        """None: there is no page for dictionaries yet.

        Raises
        ------
        NotImplementedError
            Always.
        """
        raise NotImplementedError(
            "report: there is none for a pair of autoencoders; read fit.metrics, fit.summary() and "
            "pyro_sparse.plots.plot_graph(fit.edge_posterior())"
        )

    # ---- files ---------------------------------------------------------------------------------------------
    def save(self, path: str | os.PathLike[str]) -> None:
        """Write all but the layer and the activations to one file; ``ps.load(path, model)`` has it back.

        Parameters
        ----------
        path : path
        """
        states = [
            {name: sae.state_dict() for name, sae in zip(("before", "after"), pair, strict=True)}
            for pair in self.pairs
        ]
        meta = {
            "version": __version__,
            "mark": _mark(self.model),
            "sizes": [sae.dec.shape[1] for sae in self.pairs[0]],
            "best": self.best,
            "metrics": self.metrics.to_dict("list"),
            "history": self.history.to_dict("list"),
            "settings": self.settings,
            "findings": write_findings(self.findings),
        }
        files.write(path, "autoencoder fit", meta, {"states": states})


def restore(
    path: str | os.PathLike[str], model: object, meta: dict[str, Any], tensors: dict[str, Any]
) -> AutoencoderFit:
    """The fit that `save` wrote.

    Parameters
    ----------
    path : path
        For messages.
    model : AutoencoderPair
    meta, tensors : dict
        From `checkpoint.read`.

    Raises
    ------
    ValueError
        The model is missing, or another than the fit's.
    """
    if not isinstance(model, AutoencoderPair):
        raise ValueError(
            f"load: {str(path)!r} is the fit of a pair of autoencoders; pass model=, an AutoencoderPair with "
            "the layer that is between them, which the file does not hold"
        )
    ours = _mark(model)
    if differs := {name: value for name, value in ours.items() if meta["mark"][name] != value}:
        name, value = next(iter(differs.items()))
        raise ValueError(
            f"load: {str(path)!r} is the fit of another pair ({name}: {meta['mark'][name]!r} there, "
            f"{value!r} here); pass a model made the same way"
        )
    dtype = getattr(torch, meta["settings"]["dtype"].replace("bfloat16", "float32"))
    model = copy.deepcopy(model)  # the caller's layer stays as it is
    if isinstance(model.between, nn.Module):
        model.between.to(dtype).eval().requires_grad_(False)
    pairs = []
    for state in tensors["states"]:
        pair = model.build(*meta["sizes"])
        for sae, name in zip(pair, ("before", "after"), strict=True):
            sae.to(dtype).load_state_dict(state[name])
            sae.eval().requires_grad_(False)
        pairs.append(pair)
    return AutoencoderFit(
        model=model, pairs=pairs, best=meta["best"],
        metrics=pd.DataFrame(meta["metrics"]).astype(float).rename_axis("restart"),
        history=pd.DataFrame(meta["history"]), settings=meta["settings"],
        findings=read_findings(meta["findings"]),
    )  # fmt: skip


def layer_digest(between: object) -> str:
    """A short hash of a layer's parameters, the name of a function.

    Parameters
    ----------
    between : Module or callable
    """
    if not isinstance(between, nn.Module):
        return getattr(between, "__qualname__", type(between).__name__)
    tensors = [value.detach().cpu() for value in between.state_dict().values()]
    return files.digest(*(t.float().numpy() if t.is_floating_point() else t.numpy() for t in tensors))


def _mark(model: AutoencoderPair) -> dict[str, Any]:
    """What must agree for a model to be that of a file."""
    return {
        "n_latents_in": model.n_latents_in,
        "n_latents_out": model.n_latents_out,
        "k": model.k,
        "select": model.select,
        "layer": layer_digest(model.between),
    }


def _dead_findings(metrics: pd.DataFrame) -> list[Finding]:
    findings = []
    for name, noun in (("in", "input"), ("out", "output")):
        worst = float(metrics[f"dead_{name}"].max())
        if worst > _MANY_DEAD:
            findings.append(
                Finding(
                    "latents",
                    f"{worst:.0%} of the {noun} latents are dead: no held-out row has them",
                    "lower learning_rate, train on more rows, or ask for fewer latents",
                    size=worst,
                )
            )
    return findings
