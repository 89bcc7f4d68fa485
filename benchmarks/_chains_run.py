"""One fit and its chains, by whichever version of the package is on the path: a line of JSON with figures.

``python _chains_run.py TASK.json``: run by `chains` in a process of its own, so that two versions can be
timed on the same table. Only what both have had since c777257 is called.
"""

from __future__ import annotations

import json
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["figures", "main"]

Array = NDArray[np.float64]
AWAY = 0.2  # mean size of a standardised loading from which it counts as away from zero
FEWEST = 5  # loadings, the largest if need be
MOST = 200  # loadings, evenly spaced: ArviZ takes longer over thousands than chains do
EVERY = 10_000  # draws asked for: more than there are sweeps, so that each is one


def main(words: list[str]) -> None:
    """Fit, draw, count, print."""
    task = json.loads(Path(words[0]).read_text(encoding="utf-8"))
    import arviz  # noqa: F401  # before the clock starts
    import torch

    import pyro_sparse as ps

    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    root = Path(task["root"]).resolve()
    found = Path(str(ps.__file__)).resolve()
    if root not in found.parents:
        raise SystemExit(f"--baseline {root}: pyro_sparse came from {found}; name the folder that has it")
    x = np.load(task["x"])
    model = ps.models.SparseDecoder(n_features=x.shape[1], **task["model"])
    begun = time.process_time()
    fit = ps.fit(model, x, seed=task["seed"], progress=False, **task["fit"])
    fitted = time.process_time()
    idata = fit.edge_posterior(num_draws=EVERY, seed=task["seed"], **task["chains"])
    seconds = time.process_time() - fitted
    print(json.dumps(figures(idata) | {"chains_cpu_s": seconds, "fit_cpu_s": fitted - begun}))


def figures(idata: Any) -> dict[str, float | int | str]:
    """Effective samples, agreement and sizes of an edge posterior."""
    kept = np.flatnonzero(idata["sample_stats"]["kept"].to_numpy())
    draws = idata["posterior"]["weight"].transpose("chain", "draw", "feature", "factor").to_numpy()
    own = idata["edge_posterior"]
    p = own["probability"].transpose("feature", "factor").to_numpy()
    pooled, within = effective(draws[kept])
    return {
        "ess": float(np.median(pooled)),
        "ess_within": float(np.median(within)),
        "loadings": len(pooled),
        "present": int((p >= 0.95).sum()),
        "gap": float(np.nanmax(own["gap"].to_numpy())),
        "kept": len(kept),
        "chains": len(draws),
        "sweeps": int(idata.attrs["sweeps"]),
        "rows": int(idata.attrs["rows_used"]),
        "rows_said": str(idata.attrs["verdict"]).splitlines()[0].startswith("The chains used"),
    }


def effective(draws: Array) -> tuple[Array, Array]:
    """Effective samples of each loading away from zero: of all chains together, and added up chain by chain.

    Parameters
    ----------
    draws : ndarray (chain, draw, feature, factor)
    """
    import arviz

    size = np.abs(draws).mean((0, 1))
    large = size >= min(AWAY, np.sort(size, axis=None)[-FEWEST])
    loadings = np.moveaxis(draws[:, :, large], -1, 0)  # loading, chain, draw
    loadings = np.ascontiguousarray(loadings[:: -(-len(loadings) // MOST)])
    pooled = [float(arviz.ess(one)) for one in loadings]
    within = [sum(float(arviz.ess(chain[None])) for chain in one) for one in loadings]
    return np.array(pooled), np.array(within)


if __name__ == "__main__":
    main(sys.argv[1:])
