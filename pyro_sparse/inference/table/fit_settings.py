"""What `Fit.settings` records of a table's fit: the model, the restarts, how they compare, and the training.

`steps` and the like are what was asked for, `steps_made` what each restart took of it. A key that does not
apply is left out, and readers ask whether it is there: `graph_level` of restarts at the maxima of their
graphs, `log_likelihood` and `correlations` where factors can be summed out, `axis_restarts` and
`graph_restarts` where such took the places of others.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from ...data.read import Table
    from ...models.base import FactorModel
    from ..training.ranks import Ranks
    from .dependency_schedule import DependencySchedule
    from .latent_penalty import LatentPenalty
    from .linear_maximum import Maxima
    from .schedule import Schedule
    from .trained_restarts import TrainedRestarts

__all__ = ["restart_settings", "training_settings"]


def restart_settings(model: FactorModel, trained: TrainedRestarts, maxima: Maxima | None) -> dict[str, Any]:
    """The model, how its restarts began, and the figures by which they are compared.

    Parameters
    ----------
    model : FactorModel
        Trained.
    trained : TrainedRestarts
    maxima : Maxima or None
        Where the restarts are at the maxima of their graphs.
    """
    settings = {
        "model": type(model).__name__,
        "decoder": getattr(model, "decoder_kind", ""),
        "likelihood": model.likelihood.full_name,
        "prior": type(getattr(model, "prior", None)).__name__,
        "n_factors": model.n_factors,
        "restarts": model.n_restarts,
        "n_factors_init": trained.n_factors_init.tolist(),
        "bent": trained.bent.tolist(),
    }
    if trained.from_axes:
        settings["axis_restarts"] = list(trained.from_axes)
    if trained.from_graphs:
        settings["graph_restarts"] = list(trained.from_graphs)
    steps_made = {row["restart"]: row["step"] for row in trained.history}
    if steps_made:
        settings["steps_made"] = [steps_made.get(r, 0) for r in range(model.n_restarts)]
    if maxima is not None:
        settings["graph_level"] = np.round(maxima.level, 3).tolist()
    if trained.log_likelihood is not None:
        settings["log_likelihood"] = np.round(trained.log_likelihood.mean(1), 6).tolist()
        settings["correlations"] = (trained.parameters - trained.edges).tolist()
    if maxima is not None and maxima.searched:
        settings["searched"] = sorted(maxima.searched)
    if maxima is not None and maxima.supported:
        settings |= {"supported_factors": maxima.supported, "likeliest_factors": maxima.likeliest}
    return settings


def training_settings(
    table: Table,
    *,
    seed: int,
    holdout: float,
    dependency: LatentPenalty | None,
    ranks: Ranks,
    schedule: Schedule | DependencySchedule,
) -> dict[str, Any]:
    """What all restarts share: rows, penalty, processes and schedule.

    Parameters
    ----------
    table : Table
    seed, holdout, dependency
        As in `pyro_sparse.fit`.
    ranks : Ranks
    schedule : Schedule or DependencySchedule
        As in `pyro_sparse.fit`.
    """
    given = {*table.row_units, "design"}
    weights = table.weights
    return {
        "seed": seed,
        "holdout": holdout,
        "rows": len(table.x),
        "dependency": None if dependency is None else dependency.as_dict(),
        "per_row": {name: "given" if name in given else "from the cells" for name in table.per_row},
        "ranks": ranks.size,
        **({} if weights is None or weights.kind == "equal" else {"sample_weight": weights.as_dict()}),
        **schedule.as_dict(),
    }
