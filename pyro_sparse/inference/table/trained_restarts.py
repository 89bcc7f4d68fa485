"""What trained restarts are worth, and what becomes of them as others take their places."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np

from ...graphs.restart_choice import bic

if TYPE_CHECKING:
    from .axis_restarts import AxisStart
    from .linear_maximum import Maxima

__all__ = ["TrainedRestarts"]


class TrainedRestarts(NamedTuple):
    """Trained restarts.

    Attributes
    ----------
    train, heldout : ndarray (restart, row)
        ELBO of each row; None where no row is held out.
    edges : ndarray of int (restart,)
    parameters : ndarray of int (restart,)
        What a criterion charges for: edges and, of models with `log_likelihood`, correlations of factors.
    best : int
    history : list of dict
    n_factors_init, bent : ndarray (restart,)
        How each began.
    from_axes, from_graphs : list of int
        Restarts that began in sparser axes, and at graphs of a search.
    search : AxisStart or None
        Its axes, if not those of the restarts before it.
    log_likelihood : ndarray (restart, row) or None
        At the restarts' maxima, where factors can be summed out (`marginal_likelihood.py`). Restarts are then
        compared by it and not by their bounds.
    """

    train: np.ndarray
    heldout: np.ndarray | None
    edges: np.ndarray
    parameters: np.ndarray
    best: int
    history: list[dict[str, Any]]
    n_factors_init: np.ndarray
    bent: np.ndarray
    from_axes: list[int]
    search: AxisStart | None
    from_graphs: list[int]
    log_likelihood: np.ndarray | None = None

    @property
    def rows(self) -> np.ndarray:
        """The rows that restarts are judged by."""
        return self.train if self.heldout is None else self.heldout

    @property
    def all_rows(self) -> np.ndarray:
        """Rows trained on, and held-out ones."""
        return self.train if self.heldout is None else np.concatenate([self.train, self.heldout], 1)

    def level(self, n_rows: int) -> np.ndarray:
        """BIC of each restart, halved and negative."""
        rows = self.all_rows if self.log_likelihood is None else self.log_likelihood
        return bic(rows, self.parameters, n_rows)

    def at(self, maxima: Maxima) -> TrainedRestarts:
        """The same with the restart whose graph is best; those of the search began with its factors."""
        n_factors_init, bent = np.array(self.n_factors_init), np.array(self.bent)
        for place, n_factors in maxima.searched.items():
            n_factors_init[place], bent[place] = n_factors, False
        return self._replace(best=maxima.best, n_factors_init=n_factors_init, bent=bent)

    def with_restart(self, place: int, source: TrainedRestarts, restart: int) -> TrainedRestarts:
        """A restart of another set in the place of one of these."""

        def replaced(figures: np.ndarray, new: np.ndarray) -> np.ndarray:
            figures = np.array(figures)
            figures[place] = new[restart]
            return figures

        aside = cast(np.ndarray, self.heldout)  # both sets have such rows, or neither has
        history = [row for row in self.history if row["restart"] != place]
        history += [{**row, "restart": place} for row in source.history if row["restart"] == restart]
        return TrainedRestarts(
            train=replaced(self.train, source.train),
            heldout=None if source.heldout is None else replaced(aside, source.heldout),
            edges=replaced(self.edges, source.edges),
            parameters=replaced(self.parameters, source.parameters),
            best=self.best,
            history=sorted(history, key=lambda row: row["step"]),
            n_factors_init=replaced(self.n_factors_init, source.n_factors_init),
            bent=replaced(self.bent, source.bent),
            from_axes=self.from_axes,
            search=self.search,
            from_graphs=self.from_graphs,
            log_likelihood=(
                None
                if self.log_likelihood is None
                else replaced(self.log_likelihood, cast(np.ndarray, source.log_likelihood))
            ),
        )
