"""What fits of tables, sequences and tasks answer alike: edges asked for twice, their table, the page."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import pandas as pd

from ..._utils.torch_state import isolated
from ...findings.finding import Finding, sentences

if TYPE_CHECKING:
    import numpy as np

    from ..._utils.types import ArvizData
    from ._families import Trainable

__all__ = ["FitResult"]


@dataclass
class FitResult:
    """A fit whose `edge_posterior` is computed once: what follows from it does not compute it again."""

    findings: list[Finding] = field(default_factory=list, kw_only=True)
    _edges: dict[tuple[str, int, int], ArvizData] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    if TYPE_CHECKING:  # what every family of results has, most of it as fields, in an order of its own

        @property
        def model(self) -> Trainable:
            """Trained; of several models the chosen restart's."""

        @property
        def best(self) -> int:
            """Number of the chosen restart."""

        @property
        def n_restarts(self) -> int:
            """Number of restarts."""

        @property
        def history(self) -> pd.DataFrame:
            """How each restart was trained."""

        @property
        def alignment(self) -> dict[str, np.ndarray]:
            """Order and signs that bring each restart into the best one's frame."""

        @property
        def settings(self) -> dict[str, Any]:
            """JSON-able record of how the fit was made."""

    @property
    def warnings(self) -> list[str]:
        """What a reader should know before believing the fit: `findings` as sentences, doubts first."""
        return sentences(self.findings)

    @property
    def unsure(self) -> bool:
        """Whether something that the fit found is in doubt: the edges that it touches are open."""
        return any(finding.is_doubt for finding in self.findings)

    def edge_posterior(
        self, method: Literal["auto"] = "auto", num_draws: int = 500, seed: int = 0, **options: object
    ) -> ArvizData:
        """Edges as an ArviZ object."""
        raise NotImplementedError

    def _edge_methods(self, family: str) -> Any:
        """How edges of this family of results are computed: late, since that room reads results."""
        from ..edges.families import METHODS_OF

        return METHODS_OF[family]

    def _kept(
        self,
        compute: Callable[..., ArvizData],
        method: str,
        num_draws: int,
        seed: int,
        options: Mapping[str, object],
    ) -> ArvizData:
        """The answer kept from before, or computed; with options it is neither."""
        with isolated():
            if options:
                return compute(method=method, num_draws=num_draws, seed=seed, **options)
            asked = (method, num_draws, seed)
            if asked not in self._edges:
                self._edges[asked] = compute(method=method, num_draws=num_draws, seed=seed)
            return self._edges[asked]

    def summary(self, fdr: float = 0.1, **options: Any) -> pd.DataFrame:
        """Table of edges; see `pyro_sparse.summary`."""
        from ...posterior.tables import summary

        return summary(self.edge_posterior(), fdr=fdr, **options)

    def report(self, path: str | os.PathLike[str], **options: Any) -> Path:
        """Write an HTML report; see `pyro_sparse.report`."""
        from ...pages.any_fit import report

        return report(self, path, **options)  # type: ignore[arg-type]
