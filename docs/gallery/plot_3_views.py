"""
Several assays
==============

Two assays of the same samples in two batches: where is each factor active? The tables are simulated: one
factor of both assays, one of each alone.
"""

import numpy as np
import pandas as pd

import pyro_sparse as ps

rng = np.random.default_rng(0)
samples = [f"s{i:03d}" for i in range(150)]
batch = pd.Series(rng.choice(["first", "second"], 150), index=samples, name="batch")
z = rng.normal(size=(150, 3))
w_rna, w_protein = np.zeros((3, 12)), np.zeros((3, 8))
w_rna[0, :5], w_rna[1, 5:10], w_protein[0, :3], w_protein[2, 3:7] = 1.0, 1.0, 1.0, 1.0
shift = (batch == "second").to_numpy(float)[:, None]
rna = pd.DataFrame(z @ w_rna + shift + rng.normal(size=(150, 12)), index=samples).add_prefix("g")
protein = pd.DataFrame(z @ w_protein + rng.normal(size=(150, 8)), index=samples).add_prefix("p")

model = ps.models.SparseDecoder(n_factors=4, decoder="linear")
views = {"rna": rna, "protein": protein}
fit = ps.fit(model, views, groups=batch, restarts=6, seed=0, progress=False)
idata = fit.edge_posterior(progress=False)

# %%
# Per cent of each view's variance, within batches. A frame means that the factor is surely active there.

ps.plots.plot_variance_explained(idata)

# %%
# Features carry the name of their view.

ps.plots.plot_top_weights(idata, n=8)

# %%
# Samples on the first two factors, coloured by batch. The batches do not separate, because factors are
# those within batches.

ps.plots.plot_scores(fit, views, factors=(0, 1), groups=batch)
