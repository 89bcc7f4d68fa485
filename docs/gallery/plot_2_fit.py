"""
Checks of a fit
===============

Do restarts agree, and do simulated rows look like the data? The table is simulated and nonlinear: seven
features of two factors.
"""

import pandas as pd

import pyro_sparse as ps

table = pd.DataFrame(ps.datasets.sim1(500, seed=0).x, columns=list("abcdefg"))
fit = ps.fit(ps.models.SparseDecoder(n_features=7, n_factors=3), table, restarts=4, seed=0, progress=False)

# %%
# How each restart was trained. The best one is orange.

ps.plots.plot_elbo(fit)

# %%
# How alike the loadings of every two restarts are: 1 means the same factors.

scores = fit.edge_posterior("score")
ps.plots.plot_agreement(scores)

# %%
# Data beside rows simulated from the fit: all correlations, then the features whose distributions differ
# most.

ps.plots.plot_predictive(fit, table)

# %%
# Scores of edges, without Markov chains. The word on the scale is *score*, not *probability*.

ps.plots.plot_edges(scores)
