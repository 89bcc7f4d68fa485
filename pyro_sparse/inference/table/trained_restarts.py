"""What trained restarts are worth, and what becomes of them as others take their places."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ...graphs.restart_choice import bic

if TYPE_CHECKING:
    from .axis_restarts import AxisStart
    from .linear_maximum import Maxima

__all__ = ["TrainedRestarts"]

_BY_RESTART = ("train", "heldout", "edges", "parameters", "n_factors_init", "bent", "log_likelihood")


class TrainedRestarts(NamedTuple):
    """Trained restarts.

    Attributes
    ----------
    train, heldout : ndarray (restart, row)
        ELBO of each row; None where no row is held out.
    edges : ndarray of int (restart,)
    parameters : ndarray of int (restart,)
        What a criterion charges for: edges and, of models with `log_likelihood`, correlations of factors.
    history : list of dict
        One for each look at a restart in training.
    n_factors_init, bent : ndarray (restart,)
        How each began.
    log_likelihood : ndarray (restart, row) or None
        At the restarts' maxima, where factors can be summed out (`marginal_likelihood.py`). Restarts are then
        compared by it and not by their bounds.
    best : int
    search : AxisStart or None
        Axes of a search, where they are not those of the best restart before it.
    from_axes, from_graphs : tuple of int
        Restarts that began in sparser axes, and at graphs of a search.
    """

    train: np.ndarray
    heldout: np.ndarray | None
    edges: np.ndarray
    parameters: np.ndarray
    history: list[dict[str, Any]]
    n_factors_init: np.ndarray
    bent: np.ndarray
    log_likelihood: np.ndarray | None = None
    best: int = 0
    search: AxisStart | None = None
    from_axes: tuple[int, ...] = ()
    from_graphs: tuple[int, ...] = ()

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

        arrays: dict[str, Any] = {}
        for name in _BY_RESTART:
            figures = getattr(self, name)
            if figures is not None:  # else it is None of both
                arrays[name] = np.array(figures)
                arrays[name][place] = getattr(source, name)[restart]
        history = [row for row in self.history if row["restart"] != place]
        history += [{**row, "restart": place} for row in source.history if row["restart"] == restart]
        return self._replace(history=sorted(history, key=lambda row: row["step"]), **arrays)
