"""
Tasks
=====

Which regression uses which latent? Each of 120 simulated hospitals has its own outcome.
"""

import numpy as np
import pandas as pd

import pyro_sparse as ps

rng = np.random.default_rng(0)
z = rng.normal(size=(120, 30, 3))  # (hospital, patient, latent)
w = rng.normal(size=(120, 3)) * (rng.random((120, 3)) < 0.4)
table = pd.DataFrame((z @ rng.normal(size=(3, 6))).reshape(-1, 6), columns=list("abcdef"))
table["hospital"] = np.repeat([f"hospital {i + 1}" for i in range(120)], 30)
table["outcome"] = ((z * w[:, None]).sum(2) + 0.3 * rng.normal(size=(120, 30))).ravel()

model = ps.models.MultiTaskRegression(n_features=6, n_latents=3)
fit = ps.fit(model, table, "outcome", task="hospital", restarts=2, steps=400, seed=0, progress=False)
idata = fit.edge_posterior()

# %%
# Tasks take the place of features, and latents that of factors. Only the 20 tasks with the surest edges are
# drawn.

ps.plots.plot_edges(idata, max_features=20)
