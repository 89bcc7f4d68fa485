"""`ProgramFit`: what the fit of a program found, all restarts in one frame."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pandas as pd
import torch

from ..._utils.checks import check_whole
from ..._utils.options import check_options, options_of
from ..._utils.version import __version__
from ...findings.finding import Finding, found_by_one_restart, write_findings
from ...graphs.alignment import SAME_FACTOR, Alignment, align, apply_alignment, orient
from ...posterior.rival_restarts import only_restart
from ..training import checkpoint as files
from ..training._repr import in_short
from ..training.fit_result import FitResult
from .mark import mark_of

if TYPE_CHECKING:
    from ..._utils.types import ArvizData
    from ...programs.data import Data
    from ...programs.program import Program
    from .job import Summary
    from .layout import Layout
    from .recorded import Position

__all__ = ["ProgramFit"]

# Nats below the best up to which a mode may be as good: its own volume is no part of the mean log density.
REACH = 15.0
ARRAYS = ("weights", "edge_score", "log_marginal")  # of a file, beside alignment and positions


@dataclass
class ProgramFit(FitResult):
    """Result of `pyro_sparse.fit` for a `Program`.

    Attributes
    ----------
    model : Program
    data : Data
    layout : Layout
        Of the program's sites.
    site : str
        The site whose edges the fit shows: the program's first.
    best : int
        Number of the chosen restart: the one with the highest log marginal.
    weights : ndarray (restart, feature, factor)
        Mean over each restart's sweeps after the climb; of gates 0/1 means.
    edge_score : ndarray (restart, feature, factor)
        Mean probability of each edge there: a score, since a restart sees one mode.
    log_marginal : ndarray (restart,)
        Mean log density of all sites outside of the rows, latent rows integrated out
        (`ProgramChains.log_marginal`), in nats.
    history : DataFrame
        step, restart, log_marginal, edges.
    alignment : dict
        "permutation", "sign", "congruence" (restart, factor).
    position : dict of Tensor
        Last sweep of every restart, as real numbers, in the restart's own order of factors.
    settings : dict
    """

    model: Program  # type: ignore[assignment]  # no module: chains sample it, and nothing trains it
    data: Data
    layout: Layout
    site: str
    best: int
    weights: np.ndarray
    edge_score: np.ndarray
    log_marginal: np.ndarray
    history: pd.DataFrame
    alignment: dict[str, np.ndarray]
    position: Position = field(repr=False)
    settings: dict[str, Any]

    def __repr__(self) -> str:
        sizes = {"rows": len(self.data), "features": len(self.feature_names), "factors": self.model.n_factors}
        return in_short(self, sizes, {"log marginal": self.log_marginal})

    @classmethod
    def build(
        cls,
        model: Program,
        data: Data,
        layout: Layout,
        site: str,
        summary: Summary,
        *,
        history: pd.DataFrame,
        settings: dict[str, Any],
        findings: list[Finding],
    ) -> ProgramFit:
        """Put all restarts into the best one's frame, its largest factor first."""
        level = np.where(np.isfinite(summary.log_marginal), summary.log_marginal, -np.inf)
        best = int(level.argmax())
        weight = summary.weight
        r, _, k = weight.shape
        if layout.has_axes:
            order = np.argsort(-(weight[best] ** 2).sum(0), kind="stable")
            pivot = weight[best][:, order] * orient(weight[best][:, order])
            aligned = align(weight, pivot=pivot)
        else:
            aligned = Alignment(np.tile(np.arange(k), (r, 1)), np.ones((r, k)), np.ones((r, k)))
        fit = cls(
            model=model, data=data, layout=layout, site=site, best=best,
            weights=apply_alignment(weight, aligned) + 0.0,
            edge_score=apply_alignment(summary.prob, aligned, signed=False),
            log_marginal=summary.log_marginal, history=history,
            alignment={name: getattr(aligned, name) for name in ("permutation", "sign", "congruence")},
            position=summary.position, settings={**settings, "site": site}, findings=findings,
        )  # fmt: skip
        fit.findings.extend(only_restart(fit.n_restarts))
        fit.findings.extend(fit._unconfirmed())
        return fit

    # ---- names ---------------------------------------------------------------------------------------------
    @property
    def n_restarts(self) -> int:
        """Number of restarts."""
        return len(self.weights)

    @property
    def feature_names(self) -> list[str]:
        """Names of the columns."""
        return self.data.feature_names

    @property
    def sample_names(self) -> list[str]:
        """Names of the rows."""
        return self.data.sample_names

    @property
    def factor_names(self) -> list[str]:
        """ "factor 1", "factor 2", …, the largest of the best restart first."""
        return [f"factor {k + 1}" for k in range(self.model.n_factors)]

    def values(self, restart: int | None = None) -> dict[str, torch.Tensor]:
        """Latent sites of a restart's last sweep on their own support, for `poutine.condition` and the like.

        Parameters
        ----------
        restart : int, optional
            Default: the best one.
        """
        r, sites = self.best if restart is None else restart, self.layout.sites
        return {
            name: value[r] if (link := sites[name].link) is None else link(value[r])
            for name, value in self.position.items()
        }

    def edge_posterior(
        self,
        method: Literal["auto", "mcmc", "score"] = "auto",
        num_draws: int = 500,
        seed: int = 0,
        **options: Any,
    ) -> ArvizData:
        """Edge probabilities by Markov chains over the program, as an ArviZ object.

        Parameters
        ----------
        method : {"auto", "mcmc", "score"}
            "score": of the best restart, without chains.
        num_draws : int
            Kept of each chain.
        seed : int
        **options
            Of `pyro_sparse.inference.edges.program.sampler.program_edges`: chains, sweeps, warm_up,
            time_budget, progress.
        """
        methods = self._edge_methods("program").by_name
        name = "mcmc" if method == "auto" else method
        if name not in methods:
            raise ValueError(f"method: want one of {['auto', *methods]}, got {method!r}")
        check_options(name, options, options_of(methods[name]))
        check_whole(1, num_draws=num_draws)
        check_whole(0, seed=seed)

        def compute(method: str, **arguments: Any) -> ArvizData:
            return methods[method](self, **arguments)

        return self._kept(compute, name, num_draws, seed, options)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write all but the program and its data to one file; ``ps.load(path, model, data)`` has it back.

        Parameters
        ----------
        path : path
        """
        arrays = {name: torch.as_tensor(getattr(self, name)) for name in ARRAYS}
        arrays |= {f"alignment.{name}": torch.as_tensor(value) for name, value in self.alignment.items()}
        meta = {
            "version": __version__,
            "mark": mark_of(self.model, self.layout),
            "site": self.site,
            "best": self.best,
            "feature_names": self.feature_names,
            "sample_names": self.sample_names,
            "settings": self.settings,
            "findings": write_findings(self.findings),
            "history": self.history.to_dict("list"),
        }
        files.write(path, "program fit", meta, {"arrays": arrays, "position": dict(self.position)})

    def _unconfirmed(self) -> list[Finding]:
        """Factors of the best restart that no other restart found; chains may confirm them."""
        if self.n_restarts == 1 or not self.layout.has_axes:
            return []
        others = np.delete(np.nan_to_num(np.abs(self.alignment["congruence"])), self.best, axis=0)
        used = (self.edge_score[self.best] > 0.5).any(0)
        lost = [self.factor_names[k] for k in np.flatnonzero(used & (others.max(0) < SAME_FACTOR))]
        remedy = "more restarts, or prior knowledge of edges, would settle it"
        return [found_by_one_restart(lost, remedy)] if lost else []
