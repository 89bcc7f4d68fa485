"""One fit of a benchmark's table, run as a file with PYTHONPATH at whichever version is to be timed.

``python benchmarks/_one_fit.py TABLE SEED [PATH]`` prints CPU seconds and held-out ELBO as JSON. Package and
`benchmarks` are those of PYTHONPATH, so that an older version fits with the settings of its own benchmarks.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path


def main(table: str, seed: int, path: str | None = None) -> None:
    """Fit, and print what `same_elbo` reads."""
    import numpy as np
    import torch

    import pyro_sparse as ps
    from benchmarks import anchored60, bfi, sim1
    from benchmarks._common import sparse_fit

    torch.set_num_threads(1)
    torch.optim.Adam([torch.zeros(1)])  # imports torch's compiler, which takes one or two seconds
    simulate = {"sim1": ps.datasets.sim1, "anchored60": ps.datasets.anchored60}
    if table == "bfi":
        x = ps.datasets.load_bfi(path).x.to_numpy()
    else:
        x = simulate[table](seed=seed).part("train")[0]
    start = time.process_time()
    if table == "bfi":
        fit = bfi.decoder_fit(x, seed)
    elif table == "sim1":
        fit = sparse_fit(x, 5, seed, restarts=sim1.RESTARTS)
    else:
        fit = sparse_fit(x, 6, seed, restarts=anchored60.RESTARTS)
    cpu = time.process_time() - start
    package = str(Path(ps.__file__).resolve().parent)
    print(json.dumps({"cpu": cpu, "elbo": float(np.max(fit.heldout_elbo)), "package": package}))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), *sys.argv[3:])
