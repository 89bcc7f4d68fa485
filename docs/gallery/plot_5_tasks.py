"""
Tasks
=====

Which regression uses which latent? Half of 40 simulated hospitals, each with its own outcome.
"""

import numpy as np
import pandas as pd

import pyro_sparse as ps

rng = np.random.default_rng(0)
z = rng.normal(size=(40, 50, 3))  # (hospital, patient, latent)
w = rng.normal(size=(40, 3)) * (rng.random((40, 3)) < 0.4)
table = pd.DataFrame((z @ rng.normal(size=(3, 6))).reshape(-1, 6), columns=list("abcdef"))
table["hospital"] = np.repeat([f"hospital {i + 1}" for i in range(40)], 50)
table["outcome"] = ((z * w[:, None]).sum(2) + 0.3 * rng.normal(size=(40, 50))).ravel()

model = ps.models.MultiTaskRegression(n_features=6, n_latents=3)
fit = ps.fit(model, table, "outcome", task="hospital", restarts=2, steps=400, seed=0, progress=False)
idata = fit.edge_posterior()

# %%
# Tasks take the place of features, and latents that of factors.

ps.plots.plot_edges(idata, max_features=20)
